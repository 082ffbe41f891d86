//! Opening a log by its address: `SCHEME:REST`, or a path for the default scheme.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use mainspring_eventlog::{EventLog, KvOptions, KvStore, LogError, MemoryEngine};

/// Opens the logs of one scheme.
pub trait StoreFactory: fmt::Debug + Send + Sync {
    /// Its scheme, such as `redb`.
    fn scheme(&self) -> &'static str;

    /// Opens or creates the log at `rest`, the address without its scheme.
    ///
    /// # Errors
    /// The store's own.
    fn open(&self, rest: &str, options: KvOptions) -> Result<Arc<dyn EventLog>, LogError>;
}

/// The schemes that a host knows.
#[derive(Debug, Clone, Default)]
pub struct Stores {
    factories: BTreeMap<&'static str, Arc<dyn StoreFactory>>,
}

/// The scheme of an address that names none.
const DEFAULT_SCHEME: &str = "redb";

impl Stores {
    /// Every store that is switched on by a feature, and the one in memory.
    #[must_use]
    pub fn with_defaults() -> Self {
        let stores = Self::default().with(MemoryFactory);
        #[cfg(feature = "store-redb")]
        let stores = stores.with(RedbFactory);
        #[cfg(feature = "store-fjall")]
        let stores = stores.with(FjallFactory);
        stores
    }

    /// Adds a scheme, in the place of one of the same name.
    #[must_use]
    pub fn with(mut self, factory: impl StoreFactory + 'static) -> Self {
        self.factories.insert(factory.scheme(), Arc::new(factory));
        self
    }

    /// Opens or creates the log at `address`.
    ///
    /// # Errors
    /// [`LogError::NotAStore`] for a scheme that is not there, naming those that are.
    pub fn open(&self, address: &str, options: KvOptions) -> Result<Arc<dyn EventLog>, LogError> {
        let is_scheme = |text: &str| {
            text.len() > 1 && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
        };
        let (scheme, rest) = match address.split_once(':') {
            Some((scheme, rest)) if is_scheme(scheme) => (scheme, rest),
            _ => (DEFAULT_SCHEME, address),
        };
        let factory = self.factories.get(scheme).ok_or_else(|| LogError::NotAStore {
            path: address.to_owned(),
            why: format!(
                "scheme {scheme:?} is not built in; present are: {}",
                self.factories.keys().copied().collect::<Vec<_>>().join(", ")
            ),
        })?;
        factory.open(rest, options)
    }
}

/// `memory:`, which keeps nothing.
#[derive(Debug, Clone, Copy)]
pub struct MemoryFactory;

impl StoreFactory for MemoryFactory {
    fn scheme(&self) -> &'static str {
        "memory"
    }

    fn open(&self, _rest: &str, options: KvOptions) -> Result<Arc<dyn EventLog>, LogError> {
        Ok(Arc::new(KvStore::open(MemoryEngine::default(), options)?))
    }
}

/// `redb:PATH`, one file.
#[cfg(feature = "store-redb")]
#[derive(Debug, Clone, Copy)]
pub struct RedbFactory;

#[cfg(feature = "store-redb")]
impl StoreFactory for RedbFactory {
    fn scheme(&self) -> &'static str {
        "redb"
    }

    fn open(&self, rest: &str, options: KvOptions) -> Result<Arc<dyn EventLog>, LogError> {
        let config = mainspring_store_redb::RedbConfig::at(rest);
        Ok(Arc::new(mainspring_store_redb::open_store(&config, options)?))
    }
}

/// `fjall:PATH`, one folder.
#[cfg(feature = "store-fjall")]
#[derive(Debug, Clone, Copy)]
pub struct FjallFactory;

#[cfg(feature = "store-fjall")]
impl StoreFactory for FjallFactory {
    fn scheme(&self) -> &'static str {
        "fjall"
    }

    fn open(&self, rest: &str, options: KvOptions) -> Result<Arc<dyn EventLog>, LogError> {
        let config = mainspring_store_fjall::FjallConfig::at(rest);
        Ok(Arc::new(mainspring_store_fjall::open_store(&config, options)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_scheme_names_those_that_are_there() {
        let stores = Stores::default().with(MemoryFactory);
        assert!(stores.open("memory:", KvOptions::default()).is_ok());
        let error = stores.open("kafka:broker", KvOptions::default()).unwrap_err();
        assert!(error.to_string().ends_with("present are: memory"), "{error}");
        // Without a scheme it is a path of the default store.
        let error = stores.open("./a.redb", KvOptions::default()).unwrap_err();
        assert!(error.to_string().contains("\"redb\""), "{error}");
    }
}
