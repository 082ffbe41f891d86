//! Which placer serves which harness name.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use mainspring_eventlog::SessionView;

use crate::error::PlacementError;
use crate::placer::Placer;

/// The harnesses of a host, by name, with a default.
///
/// Clones share everything: a harness that is registered while the host runs
/// is routable at once, everywhere.
#[derive(Debug, Clone)]
pub struct Harnesses {
    routes: Arc<RwLock<BTreeMap<String, Route>>>,
    default: Arc<str>,
}

/// Where the sessions of a name go.
#[derive(Debug, Clone)]
enum Route {
    /// To a harness of the host's own configuration.
    Static(Arc<Placer>),
    /// Nowhere: the host's own harness has the name of a registered one.
    Contested(Arc<Placer>),
    /// To a registered one.
    Registered(Registered),
}

/// A harness that an operator registered, as this host sees it.
#[derive(Debug, Clone)]
pub struct Registered {
    /// Its placer, or why this host cannot serve it.
    pub placer: Result<Arc<Placer>, String>,
    /// Whether new sessions are refused.
    pub retired: bool,
}

impl Harnesses {
    /// A host whose default harness is served by `placer`.
    #[must_use]
    pub fn new(default: Arc<Placer>) -> Self {
        let name = default.name().to_owned();
        let default_name = Arc::from(name.as_str());
        let routes = BTreeMap::from([(name, Route::Static(default))]);
        Self { routes: Arc::new(RwLock::new(routes)), default: default_name }
    }

    /// Adds a harness of the host's own.
    ///
    /// # Errors
    /// [`PlacementError::HarnessExists`] when the name is taken.
    pub fn add(&self, placer: Arc<Placer>) -> Result<(), PlacementError> {
        let name = placer.name().to_owned();
        let mut routes = self.write();
        if routes.contains_key(&name) {
            return Err(PlacementError::HarnessExists(name));
        }
        routes.insert(name, Route::Static(placer));
        Ok(())
    }

    /// Adds a harness of the host's own in the place of the one that has its name.
    pub fn replace(&self, placer: Arc<Placer>) {
        self.write().insert(placer.name().to_owned(), Route::Static(placer));
    }

    /// Says what is known of a registered harness from now on. A name of the
    /// host's own serves nobody any more.
    pub fn register(&self, name: &str, registered: Registered) {
        let mut routes = self.write();
        let route = match routes.get(name) {
            Some(Route::Static(own) | Route::Contested(own)) => Route::Contested(Arc::clone(own)),
            Some(Route::Registered(_)) | None => Route::Registered(registered),
        };
        routes.insert(name.to_owned(), route);
    }

    /// What is known of a registered harness.
    #[must_use]
    pub fn registered(&self, name: &str) -> Option<Registered> {
        match self.read().get(name)? {
            Route::Registered(registered) => Some(registered.clone()),
            Route::Static(_) | Route::Contested(_) => None,
        }
    }

    /// How many harnesses are registered, as far as this host knows.
    #[must_use]
    pub fn registered_count(&self) -> usize {
        self.read().values().filter(|route| matches!(route, Route::Registered(_))).count()
    }

    /// The host's own harness of a name, and whether a registration has the name too.
    #[must_use]
    pub fn configured(&self, name: &str) -> Option<(Arc<Placer>, bool)> {
        match self.read().get(name)? {
            Route::Static(placer) => Some((Arc::clone(placer), false)),
            Route::Contested(placer) => Some((Arc::clone(placer), true)),
            Route::Registered(_) => None,
        }
    }

    /// The names of the host's own harnesses, in order.
    #[must_use]
    pub fn configured_names(&self) -> Vec<String> {
        let routes = self.read();
        let own = routes.iter().filter(|(_, route)| !matches!(route, Route::Registered(_)));
        own.map(|(name, _)| name.clone()).collect()
    }

    /// Every placer, by name.
    #[must_use]
    pub fn placers(&self) -> Vec<Arc<Placer>> {
        let placer = |route: &Route| match route {
            Route::Static(placer) | Route::Contested(placer) => Some(Arc::clone(placer)),
            Route::Registered(registered) => registered.placer.as_ref().ok().map(Arc::clone),
        };
        self.read().values().filter_map(placer).collect()
    }

    /// The names that new sessions may have, in order.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        names(&self.read())
    }

    /// The default name.
    #[must_use]
    pub fn default_name(&self) -> &str {
        &self.default
    }

    /// The placer of an existing session's harness; empty means the default.
    ///
    /// # Errors
    /// [`PlacementError::UnknownHarness`], naming what is served;
    /// [`PlacementError::HarnessUnservable`] for one that is known and cannot
    /// be served here.
    pub fn find(&self, name: &str) -> Result<Arc<Placer>, PlacementError> {
        self.resolve(name, false)
    }

    /// The placer of a new session's harness; empty means the default.
    ///
    /// # Errors
    /// As [`Harnesses::find`], and [`PlacementError::HarnessRetired`].
    pub fn find_for_new(&self, name: &str) -> Result<Arc<Placer>, PlacementError> {
        self.resolve(name, true)
    }

    /// The placer of one turn of a session whose harness is `stored`, when the
    /// call asks for `asked`; empty means the session's own.
    ///
    /// # Errors
    /// [`PlacementError::HarnessPinned`] when they differ and either is
    /// registered, whether or not it is served; else as [`Harnesses::find`].
    pub fn find_for_turn(&self, stored: &str, asked: &str) -> Result<Arc<Placer>, PlacementError> {
        let stored = self.or_default(stored);
        if asked.is_empty() || asked == stored {
            return self.find(stored);
        }
        let routes = self.read();
        let is_registered = |name: &str| {
            matches!(routes.get(name), Some(Route::Registered(_) | Route::Contested(_)))
        };
        if is_registered(stored) || is_registered(asked) {
            return Err(PlacementError::HarnessPinned {
                stored: stored.to_owned(),
                asked: asked.to_owned(),
            });
        }
        drop(routes);
        self.find(asked)
    }

    /// The placer that must resume a session: the one that recorded its pending
    /// turn, else the session's own. Never a fallback to the default.
    ///
    /// # Errors
    /// [`PlacementError::RecordedHarnessNotServed`]; as [`Harnesses::find`] for
    /// the session's own.
    pub fn find_recorded(
        &self,
        view: &SessionView,
        own: &str,
    ) -> Result<Arc<Placer>, PlacementError> {
        let recorded = view.pending().and_then(|turn| turn.start.as_ref()).map(|s| &s.harness);
        match recorded.filter(|name| !name.is_empty()) {
            None => self.find(own),
            Some(name) => self.find(name).map_err(|error| match error {
                PlacementError::UnknownHarness { name, .. } => {
                    PlacementError::RecordedHarnessNotServed(name)
                }
                other => other,
            }),
        }
    }

    fn resolve(&self, name: &str, is_new: bool) -> Result<Arc<Placer>, PlacementError> {
        let name = self.or_default(name);
        let routes = self.read();
        match routes.get(name) {
            Some(Route::Static(placer)) => Ok(Arc::clone(placer)),
            Some(Route::Contested(_)) => Err(PlacementError::HarnessUnservable {
                harness: name.to_owned(),
                reason: "it is configured on this host, and registered too".to_owned(),
            }),
            Some(Route::Registered(Registered { retired: true, .. })) if is_new => {
                Err(PlacementError::HarnessRetired(name.to_owned()))
            }
            Some(Route::Registered(registered)) => registered.placer.clone().map_err(|reason| {
                PlacementError::HarnessUnservable { harness: name.to_owned(), reason }
            }),
            None => Err(PlacementError::UnknownHarness {
                name: name.to_owned(),
                served: names(&routes),
            }),
        }
    }

    fn or_default<'a>(&'a self, name: &'a str) -> &'a str {
        if name.is_empty() { &self.default } else { name }
    }

    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<String, Route>> {
        self.routes.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<String, Route>> {
        self.routes.write().unwrap_or_else(PoisonError::into_inner)
    }
}

fn names(routes: &BTreeMap<String, Route>) -> Vec<String> {
    let is_served = |route: &Route| match route {
        Route::Static(_) => true,
        Route::Contested(_) => false,
        Route::Registered(registered) => registered.placer.is_ok() && !registered.retired,
    };
    let served = routes.iter().filter(|(_, route)| is_served(route));
    served.map(|(name, _)| name.clone()).collect()
}
