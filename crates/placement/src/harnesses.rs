//! Which placer serves which harness name.

use std::collections::BTreeMap;
use std::sync::Arc;

use mainspring_eventlog::SessionView;

use crate::error::PlacementError;
use crate::placer::Placer;

/// The harnesses of a host, by name, with a default.
#[derive(Debug, Clone)]
pub struct Harnesses {
    placers: BTreeMap<String, Arc<Placer>>,
    default: String,
}

impl Harnesses {
    /// A host whose default harness is served by `placer`.
    #[must_use]
    pub fn new(default: Arc<Placer>) -> Self {
        let name = default.name().to_owned();
        Self { placers: [(name.clone(), default)].into(), default: name }
    }

    /// Adds a harness.
    ///
    /// # Errors
    /// [`PlacementError::HarnessExists`] when the name is taken.
    pub fn add(&mut self, placer: Arc<Placer>) -> Result<(), PlacementError> {
        let name = placer.name().to_owned();
        if self.placers.contains_key(&name) {
            return Err(PlacementError::HarnessExists(name));
        }
        self.placers.insert(name, placer);
        Ok(())
    }

    /// Adds a harness in the place of the one that has its name.
    pub fn replace(&mut self, placer: Arc<Placer>) {
        self.placers.insert(placer.name().to_owned(), placer);
    }

    /// Every placer, by name.
    pub fn placers(&self) -> impl Iterator<Item = &Arc<Placer>> {
        self.placers.values()
    }

    /// The served names, in order.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.placers.keys().cloned().collect()
    }

    /// The default name.
    #[must_use]
    pub fn default_name(&self) -> &str {
        &self.default
    }

    /// The placer of a name; empty means the default.
    ///
    /// # Errors
    /// [`PlacementError::UnknownHarness`], naming what is served.
    pub fn find(&self, name: &str) -> Result<&Arc<Placer>, PlacementError> {
        let name = if name.is_empty() { &self.default } else { name };
        self.placers.get(name).ok_or_else(|| PlacementError::UnknownHarness {
            name: name.to_owned(),
            served: self.names(),
        })
    }

    /// The placer that must resume a session: the one that recorded its pending
    /// turn, else the session's own. Never a fallback to the default.
    ///
    /// # Errors
    /// [`PlacementError::RecordedHarnessNotServed`]; `UnknownHarness` for the session's own.
    pub fn find_recorded(
        &self,
        view: &SessionView,
        own: &str,
    ) -> Result<&Arc<Placer>, PlacementError> {
        let recorded = view.pending().and_then(|turn| turn.start.as_ref()).map(|s| &s.harness);
        match recorded.filter(|name| !name.is_empty()) {
            None => self.find(own),
            Some(name) => self
                .placers
                .get(name)
                .ok_or_else(|| PlacementError::RecordedHarnessNotServed(name.clone())),
        }
    }
}
