//! Registrations that another host of the same store made or retired.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use mainspring_api::{Classify as _, SessionsError};
use mainspring_placement::{Harnesses, PlacementError};
use tokio::time::Instant;

use super::row::Stored;
use super::{Parts, REGISTRATIONS_MAX, Registry, Routing};
use crate::service::Inner;

/// How often the rows are read.
const ROUND: Duration = Duration::from_secs(1);

/// Reading them may take a tenth of the time: the rest is so many times as long.
const REST_PER_LOOK: u32 = 9;

/// How long they are not read at most.
const REST_MAX: Duration = Duration::from_secs(30);

/// Rows that are read at a time.
const PAGE: usize = 500;

/// What the service looks names up with, once its registry was opened.
#[derive(Debug, Default)]
pub(crate) struct RoutingSlot(Mutex<Option<Arc<Routing>>>);

impl RoutingSlot {
    pub(super) fn set(&self, routing: &Arc<Routing>) {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *slot = Some(Arc::clone(routing));
    }

    fn get(&self) -> Option<Arc<Routing>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Registry {
    /// Follows what other hosts of the store register and retire, about a second
    /// behind, for as long as the host is there and does not drain; nothing on a
    /// store that is exclusive to one process. Must be called within a runtime.
    pub fn follow_others(&self) {
        let service = &self.parts.service;
        if service.options.log.liveness().is_none() {
            return;
        }
        let (host, draining) = (Arc::downgrade(service), service.draining.clone());
        let routing = Arc::clone(&self.parts.routing);
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = draining.wait() => {}
                () = run(&host, &routing) => {}
            }
        });
    }
}

async fn run(host: &Weak<Inner>, routing: &Arc<Routing>) {
    let (mut versions, mut failing) = (HashMap::new(), false);
    loop {
        let Some(service) = host.upgrade() else { return };
        let begun = Instant::now();
        let parts = Parts { service, routing: Arc::clone(routing) };
        let followed = parts.follow_all(&mut versions).await;
        if let Err(error) = &followed
            && !failing
        {
            tracing::warn!(code = error.code(), "cannot read what other hosts have registered");
        }
        failing = followed.is_err();
        drop(parts);
        let rest = begun.elapsed() * REST_PER_LOOK;
        tokio::time::sleep(rest.clamp(ROUND, REST_MAX)).await;
    }
}

impl Parts {
    /// Brings the routes up to those rows whose version is not the known one.
    async fn follow_all(&self, known: &mut HashMap<String, u64>) -> Result<(), SessionsError> {
        let (mut after, mut count) = (String::new(), 0);
        // Two hosts may have passed the bound together, each by its own count.
        while count < 2 * REGISTRATIONS_MAX {
            let page = self.rows()?.versions(&after, PAGE).await?;
            let Some((last, _)) = page.last() else { break };
            after.clone_from(last);
            count += page.len();
            for (name, row) in page {
                if known.get(&name) != Some(&row.version) {
                    self.follow_name(&name).await?;
                    known.insert(name, row.version);
                }
            }
        }
        Ok(())
    }

    /// Brings the route of a name up to its row. Whether there is one.
    async fn follow_name(&self, name: &str) -> Result<bool, SessionsError> {
        let _changing = self.routing.changing.lock().await;
        // Read under the lock: a change of this host's own may be under way.
        let stored: Option<(u64, Stored)> = self.rows()?.get(name).await?;
        if let Some((_, stored)) = &stored {
            self.follow(name, stored);
        }
        Ok(stored.is_some())
    }
}

impl Inner {
    /// Looks up who serves. A name that this host does not know may have been
    /// registered on another one since: its row is read once before the call is
    /// refused.
    pub(crate) async fn routed<T>(
        self: &Arc<Self>,
        find: impl Fn(&Harnesses) -> Result<T, PlacementError>,
    ) -> Result<T, PlacementError> {
        let found = find(&self.options.harnesses);
        let name = match &found {
            Err(PlacementError::UnknownHarness { name, .. }) => name,
            Err(PlacementError::RecordedHarnessNotServed(name)) => name,
            _ => return found,
        };
        if self.look_up(name).await { find(&self.options.harnesses) } else { found }
    }

    /// Who serves a new session. On a store of many hosts a registered name is
    /// looked up each time: what was retired on any host takes no new sessions
    /// from then on, on none.
    pub(crate) async fn routed_for_new(self: &Arc<Self>, name: &str) -> Result<(), PlacementError> {
        let harnesses = &self.options.harnesses;
        if self.options.log.liveness().is_some() && harnesses.registered(name).is_some() {
            self.look_up(name).await;
        }
        self.routed(|harnesses| harnesses.find_for_new(name)).await.map(drop)
    }

    /// Whether a name is registered in the store; what its row says is known
    /// from now on. A row that cannot be read says nothing.
    async fn look_up(self: &Arc<Self>, name: &str) -> bool {
        let Some(routing) = self.routing.get() else { return false };
        let parts = Parts { service: Arc::clone(self), routing };
        match parts.follow_name(name).await {
            Ok(is_there) => is_there,
            Err(error) => {
                tracing::warn!(harness = name, code = error.code(), "a name cannot be looked up");
                false
            }
        }
    }
}
