//! The registry of harnesses that operators put there while the host runs.
//!
//! A registration is one named row of the store (`row.rs`), which is what
//! counts; the host's routes follow it, also when another host changes it
//! (`shared.rs`). Changes are made one at a time, each in a task of its own: a
//! caller that goes away leaves nothing half done.

mod change;
mod list;
mod row;
mod shared;
mod spec;
mod store;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use mainspring_api::{
    Action, Caller, Condition, HarnessRegistration, HarnessRegistry, HarnessSource, HarnessSpec,
    HarnessState, RegisterOutcome, SessionsError,
};
use mainspring_placement::{Harnesses, Placer, Registered};

use crate::service::{Inner, Service, invalid, placement_failed};
use row::Stored;
use store::Rows;

pub(crate) use shared::RoutingSlot;
pub use spec::SPEC_BYTES_MAX;

/// The bytes that the reason of a retirement may have.
pub const RETIRE_REASON_BYTES_MAX: usize = 1_024;

/// The harnesses that may be registered in one store.
pub const REGISTRATIONS_MAX: usize = 4_096;

/// Names that nobody registers, whether or not this host serves them.
const RESERVED: [&str; 2] = ["echo", "chat"];

/// Makes the placers of registered harnesses.
pub trait PlacementBuilder: fmt::Debug + Send + Sync + 'static {
    /// The placer of a registered harness. Connects to nothing: a harness that
    /// is not up yet can be registered.
    ///
    /// # Errors
    /// Why this host cannot serve it, for the operator to read.
    fn build(&self, name: &str, spec: &HarnessSpec) -> Result<Arc<Placer>, String>;
}

/// The registry of a service. Clones share everything.
///
/// Asks the service's authoriser, and adds to the harnesses that the service
/// routes to.
#[derive(Debug, Clone)]
pub struct Registry {
    parts: Arc<Parts>,
}

#[derive(Debug)]
struct Parts {
    service: Arc<Inner>,
    routing: Arc<Routing>,
}

/// What the routes of registered harnesses are made with. The service keeps it:
/// it looks a name up that it does not know.
#[derive(Debug)]
pub(crate) struct Routing {
    builder: Arc<dyn PlacementBuilder>,
    /// Held while a registration changes, over the look at its row, the row's
    /// change and the route's.
    changing: tokio::sync::Mutex<()>,
}

impl Registry {
    /// The registry of a service, with every registration of its store loaded
    /// and the names of the host's own harnesses reserved there for good.
    ///
    /// A registration that cannot be read or served here is isolated: it is
    /// listed with the reason, and its name stays taken.
    ///
    /// # Errors
    /// `FailedPrecondition` when a harness of the host's own is registered in
    /// the store, before anything is written; `Unimplemented` when the store
    /// keeps no rows; else what the store reports. The host must not start then.
    pub async fn open(
        service: &Service,
        builder: Arc<dyn PlacementBuilder>,
    ) -> Result<Self, SessionsError> {
        let parts = Parts::of(service, builder);
        let rows = parts.registered_rows().await?;
        for name in &parts.harnesses().configured_names() {
            parts.rows()?.reserve(name).await?;
        }
        parts.load_all(rows);
        Ok(Self { parts: Arc::new(parts) })
    }

    /// Makes every registration of the service's store routable, and writes
    /// nothing: for a process that uses what another one registered.
    ///
    /// # Errors
    /// As [`Registry::open`].
    pub async fn load(
        service: &Service,
        builder: Arc<dyn PlacementBuilder>,
    ) -> Result<(), SessionsError> {
        let parts = Parts::of(service, builder);
        let rows = parts.registered_rows().await?;
        parts.load_all(rows);
        Ok(())
    }

    /// Runs a change whole, whatever becomes of its caller.
    async fn changed<T: Send + 'static>(
        &self,
        change: impl Future<Output = Result<T, SessionsError>> + Send + 'static,
    ) -> Result<T, SessionsError> {
        self.parts.service.owned(change).await
    }
}

impl Parts {
    fn of(service: &Service, builder: Arc<dyn PlacementBuilder>) -> Self {
        let routing = Arc::new(Routing { builder, changing: tokio::sync::Mutex::default() });
        service.inner.routing.set(&routing);
        Self { service: Arc::clone(&service.inner), routing }
    }

    /// What is registered, unless a harness of the host's own is.
    async fn registered_rows(&self) -> Result<Vec<(String, Stored)>, SessionsError> {
        let rows = self.rows()?.all().await?;
        let own = self.harnesses().configured_names();
        match rows.iter().find(|(name, _)| own.contains(name)) {
            None => Ok(rows),
            Some((name, _)) => {
                let message = format!(
                    "harness {name:?} is configured on this host, and registered in its store: \
                     configure it under another name"
                );
                Err(SessionsError::new(Condition::FailedPrecondition, message))
            }
        }
    }

    fn load_all(&self, rows: Vec<(String, Stored)>) {
        for (name, stored) in rows {
            let registered = self.load(&name, &stored);
            if let Err(reason) = &registered.placer {
                tracing::warn!(harness = name, reason, "a registered harness is not served here");
            }
            self.harnesses().register(&name, registered);
        }
    }
}

#[async_trait]
impl HarnessRegistry for Registry {
    async fn register(
        &self,
        caller: &Caller,
        name: &str,
        spec: HarnessSpec,
    ) -> Result<(HarnessRegistration, RegisterOutcome), SessionsError> {
        self.parts.service.allow(caller, Action::RegistryRegister).await?;
        let (parts, name) = (Arc::clone(&self.parts), name.to_owned());
        self.changed(async move { parts.register(&name, spec).await }).await
    }

    async fn get(
        &self,
        caller: &Caller,
        name: &str,
        observe: bool,
    ) -> Result<HarnessRegistration, SessionsError> {
        self.parts.service.allow(caller, Action::RegistryRead).await?;
        if name.is_empty() {
            return Err(invalid("name is empty"));
        }
        let mut found = self.parts.find(name).await?;
        if observe {
            self.parts.observe(&mut found).await;
        }
        Ok(found)
    }

    async fn list(
        &self,
        caller: &Caller,
        page_size: i32,
        page_token: &str,
        include_retired: bool,
    ) -> Result<(Vec<HarnessRegistration>, String), SessionsError> {
        self.parts.service.allow(caller, Action::RegistryList).await?;
        self.parts.list(page_size, page_token, include_retired).await
    }

    async fn retire(
        &self,
        caller: &Caller,
        name: &str,
        reason: &str,
    ) -> Result<HarnessRegistration, SessionsError> {
        self.parts.service.allow(caller, Action::RegistryRetire).await?;
        let (parts, name, reason) = (Arc::clone(&self.parts), name.to_owned(), reason.to_owned());
        self.changed(async move { parts.retire(&name, reason).await }).await
    }
}

impl Parts {
    fn harnesses(&self) -> &Harnesses {
        &self.service.options.harnesses
    }

    fn rows(&self) -> Result<Rows<'_>, SessionsError> {
        Rows::of(&*self.service.options.log, &*self.service.options.entropy)
    }

    async fn find(&self, name: &str) -> Result<HarnessRegistration, SessionsError> {
        let _changing = self.routing.changing.lock().await;
        let stored = self.rows()?.get(name).await?.map(|(_, stored)| stored);
        if let Some(stored) = &stored {
            self.follow(name, stored);
        }
        if self.harnesses().configured(name).is_some() {
            return Ok(self.own(name));
        }
        stored.map(|stored| self.shown(name, stored)).ok_or_else(|| not_found(name))
    }

    /// Brings the route of a name up to its row, which another host may have
    /// changed. Must be called while no registration changes.
    fn follow(&self, name: &str, stored: &Stored) {
        let retired = stored.is_retired();
        let registered = match self.harnesses().configured(name) {
            Some((_, true)) => return,
            // From now on it serves nobody: its sessions may be either's.
            Some((_, false)) => {
                tracing::warn!(harness = name, "a harness of this host was registered elsewhere");
                Registered { placer: Err(String::new()), retired }
            }
            None => match self.harnesses().registered(name) {
                Some(known) if known.retired == retired => return,
                Some(known) => Registered { retired, ..known },
                None => self.load(name, stored),
            },
        };
        self.harnesses().register(name, registered);
    }

    async fn observe(&self, found: &mut HarnessRegistration) {
        let own = self.harnesses().configured(&found.name).map(|(placer, _)| placer);
        let registered = self.harnesses().registered(&found.name);
        let placer = own.map(Ok).or_else(|| registered.map(|registered| registered.placer));
        let observed = match placer {
            Some(Ok(placer)) => placer.observe().await,
            Some(Err(_)) | None => {
                found.observe_error = "it is not served here".to_owned();
                return;
            }
        };
        match observed {
            Ok(descriptor) => found.observed = Some(descriptor),
            Err(error) => found.observe_error = placement_failed(error).to_string(),
        }
    }

    /// What a row comes to on this host.
    fn load(&self, name: &str, stored: &Stored) -> Registered {
        let retired = stored.is_retired();
        let spec = if RESERVED.contains(&name) {
            Err("its name is a host's own".to_owned())
        } else {
            stored.spec()
        };
        let placer = spec.and_then(|spec| self.routing.builder.build(name, &spec));
        Registered { placer, retired }
    }

    /// A harness of the host's own.
    fn own(&self, name: &str) -> HarnessRegistration {
        let is_contested =
            self.harnesses().configured(name).is_some_and(|(_, contested)| contested);
        HarnessRegistration {
            unservable_reason: if is_contested {
                "it is registered too".to_owned()
            } else {
                String::new()
            },
            ..blank(name, HarnessSource::Static)
        }
    }

    /// A registered harness, as this host knows it and as its row says.
    fn shown(&self, name: &str, stored: Stored) -> HarnessRegistration {
        let mut shown = blank(name, HarnessSource::Registered);
        shown.unservable_reason = match self.harnesses().registered(name) {
            Some(Registered { placer: Ok(_), .. }) => String::new(),
            Some(Registered { placer: Err(reason), .. }) => reason,
            None => "it is not served here".to_owned(),
        };
        match stored.spec() {
            Ok(spec) => shown.spec = Some(spec),
            Err(reason) => shown.unservable_reason = reason,
        }
        if let Stored::Row(row) = stored {
            shown.uid = row.uid;
            shown.create_time = Some(row.create_time);
            shown.spec_digest = row.digest;
            if let Some((time, reason)) = row.retired {
                shown.state = HarnessState::Retired;
                shown.retire_time = Some(time);
                shown.retire_reason = reason;
            }
        }
        shown
    }
}

/// A registration of which only the name is known.
fn blank(name: &str, source: HarnessSource) -> HarnessRegistration {
    HarnessRegistration {
        name: name.to_owned(),
        uid: String::new(),
        create_time: None,
        spec: None,
        spec_digest: String::new(),
        state: HarnessState::Active,
        source,
        retire_time: None,
        retire_reason: String::new(),
        observed: None,
        observe_error: String::new(),
        unservable_reason: String::new(),
    }
}

fn not_found(name: &str) -> SessionsError {
    // A name is at most what a request holds; it is shown in part.
    let shown: String = name.chars().take(64).collect();
    SessionsError::new(Condition::HarnessNotFound, format!("no harness {shown:?}"))
}
