//! Opening a log by its address: `SCHEME:REST`, or a path for the default scheme.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use mainspring_api::async_trait;
use mainspring_eventlog::{
    EventLog, KvOptions, KvStore, LogError, MemoryEngine, OpenProgress, StoreStats,
};
#[cfg(feature = "store-fjall")]
use mainspring_store_fjall::FjallConfig;
#[cfg(feature = "store-redb")]
use mainspring_store_redb::RedbConfig;

/// What a compaction came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compacted {
    /// Bytes on disk before.
    pub before: u64,
    /// Bytes on disk after.
    pub after: u64,
}

/// Opens the logs of one scheme.
#[async_trait]
pub trait StoreFactory: fmt::Debug + Send + Sync {
    /// Its scheme, such as `redb`.
    fn scheme(&self) -> &'static str;

    /// Opens or creates the log at `rest`, the address without its scheme.
    ///
    /// # Errors
    /// The store's own.
    fn open(&self, rest: &str, options: KvOptions) -> Result<Arc<dyn EventLog>, LogError>;

    /// As [`StoreFactory::open`], telling `progress` while a log that was not
    /// closed cleanly is recovered, if the store can tell.
    ///
    /// # Errors
    /// The store's own.
    fn open_with(
        &self,
        rest: &str,
        options: KvOptions,
        progress: &OpenProgress,
    ) -> Result<Arc<dyn EventLog>, LogError> {
        let _ = progress;
        self.open(rest, options)
    }

    /// Opens the log at `rest`, which must be there, and reads its totals.
    /// `progress` is told how many sessions were read.
    ///
    /// # Errors
    /// `Unsupported` where the store has no totals; the store's own.
    async fn stats(
        &self,
        rest: &str,
        options: KvOptions,
        opening: &OpenProgress,
        progress: &mut (dyn FnMut(u64) + Send),
    ) -> Result<StoreStats, LogError> {
        let _ = (rest, options, opening, progress);
        Err(LogError::Unsupported("stats"))
    }

    /// Gives back the dead space of the log at `rest`, which nobody may have
    /// open. `progress` is told how many bytes are done, of how many.
    ///
    /// # Guarantees
    /// A crash at any point leaves the log as it was or compacted.
    ///
    /// # Errors
    /// `Unsupported` where the store has no dead space to give back; the
    /// store's own, with the log as it was.
    fn compact(
        &self,
        rest: &str,
        options: &KvOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Compacted, LogError> {
        let _ = (rest, options, progress);
        Err(LogError::Unsupported("compact"))
    }
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
        let (factory, rest) = self.find(address)?;
        factory.open(rest, options)
    }

    /// As [`Stores::open`], telling `progress` while a log is recovered.
    ///
    /// # Errors
    /// As [`Stores::open`].
    pub fn open_with(
        &self,
        address: &str,
        options: KvOptions,
        progress: &OpenProgress,
    ) -> Result<Arc<dyn EventLog>, LogError> {
        let (factory, rest) = self.find(address)?;
        factory.open_with(rest, options, progress)
    }

    /// The totals of the log at `address`: see [`StoreFactory::stats`].
    ///
    /// # Errors
    /// As [`Stores::open`] and [`StoreFactory::stats`].
    pub async fn stats(
        &self,
        address: &str,
        options: KvOptions,
        opening: &OpenProgress,
        progress: &mut (dyn FnMut(u64) + Send),
    ) -> Result<StoreStats, LogError> {
        let (factory, rest) = self.find(address)?;
        factory.stats(rest, options, opening, progress).await
    }

    /// Gives back the dead space of the log at `address`: see
    /// [`StoreFactory::compact`].
    ///
    /// # Errors
    /// As [`Stores::open`] and [`StoreFactory::compact`].
    pub fn compact(
        &self,
        address: &str,
        options: &KvOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Compacted, LogError> {
        let (factory, rest) = self.find(address)?;
        factory.compact(rest, options, progress)
    }

    /// The factory of an address, and the address without its scheme.
    fn find<'a>(&self, address: &'a str) -> Result<(&dyn StoreFactory, &'a str), LogError> {
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
                "scheme {scheme:?} is not built in{}; present are: {}",
                feature_of(scheme),
                self.factories.keys().copied().collect::<Vec<_>>().join(", ")
            ),
        })?;
        Ok((&**factory, rest))
    }
}

/// The feature that a build needs for a scheme, in words.
fn feature_of(scheme: &str) -> String {
    let features = [("redb", "store-redb"), ("fjall", "store-fjall"), ("kafka", "kafka")];
    let feature = features.into_iter().find(|(of, _)| *of == scheme);
    feature.map_or_else(String::new, |(_, feature)| format!(": it needs the feature {feature}"))
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
#[async_trait]
impl StoreFactory for RedbFactory {
    fn scheme(&self) -> &'static str {
        "redb"
    }

    fn open(&self, rest: &str, options: KvOptions) -> Result<Arc<dyn EventLog>, LogError> {
        self.open_with(rest, options, &OpenProgress::ignored())
    }

    fn open_with(
        &self,
        rest: &str,
        options: KvOptions,
        progress: &OpenProgress,
    ) -> Result<Arc<dyn EventLog>, LogError> {
        let config = RedbConfig::at(rest);
        Ok(Arc::new(mainspring_store_redb::open_store_with(&config, options, progress)?))
    }

    async fn stats(
        &self,
        rest: &str,
        options: KvOptions,
        opening: &OpenProgress,
        progress: &mut (dyn FnMut(u64) + Send),
    ) -> Result<StoreStats, LogError> {
        let config = RedbConfig::at(rest);
        let store = mainspring_store_redb::open_store_with(&config, options, opening)?;
        store.stats(progress).await
    }

    fn compact(
        &self,
        rest: &str,
        options: &KvOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Compacted, LogError> {
        let config = RedbConfig::at(rest);
        let done = mainspring_store_redb::compact(&config, &*options.clock, progress)?;
        Ok(Compacted { before: done.before, after: done.after })
    }
}

/// `fjall:PATH`, one folder.
#[cfg(feature = "store-fjall")]
#[derive(Debug, Clone, Copy)]
pub struct FjallFactory;

#[cfg(feature = "store-fjall")]
#[async_trait]
impl StoreFactory for FjallFactory {
    fn scheme(&self) -> &'static str {
        "fjall"
    }

    fn open(&self, rest: &str, options: KvOptions) -> Result<Arc<dyn EventLog>, LogError> {
        Ok(Arc::new(mainspring_store_fjall::open_store(&FjallConfig::at(rest), options)?))
    }

    async fn stats(
        &self,
        rest: &str,
        options: KvOptions,
        _opening: &OpenProgress,
        progress: &mut (dyn FnMut(u64) + Send),
    ) -> Result<StoreStats, LogError> {
        let store = mainspring_store_fjall::open_store(&FjallConfig::at(rest), options)?;
        store.stats(progress).await
    }

    fn compact(
        &self,
        rest: &str,
        options: &KvOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Compacted, LogError> {
        let config = FjallConfig::at(rest);
        let (before, after) = mainspring_store_fjall::compact(&config, &*options.clock, progress)?;
        Ok(Compacted { before, after })
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
        assert!(
            error.to_string().ends_with("it needs the feature kafka; present are: memory"),
            "{error}"
        );
        // Without a scheme it is a path of the default store.
        let error = stores.open("./a.redb", KvOptions::default()).unwrap_err();
        assert!(error.to_string().contains("\"redb\""), "{error}");
        let error = stores.compact("memory:", &KvOptions::default(), &mut |_, _| {}).unwrap_err();
        assert!(matches!(error, LogError::Unsupported("compact")), "{error}");
    }
}
