//! Harnesses that operators register at run time.

use std::fmt;

use async_trait::async_trait;

use crate::auth::Caller;
use crate::clock::Timestamp;
use crate::harness::{Capabilities, Descriptor};
use crate::sessions::SessionsError;

/// Where a registered harness runs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Placement {
    /// At an address.
    Remote {
        /// The address.
        address: String,
    },
    /// On the reference's substrate; read, never served here.
    Substrate {
        /// Actor space.
        atespace: String,
        /// Template.
        template: String,
    },
}

/// What an operator registers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HarnessSpec {
    /// Where it runs.
    pub placement: Option<Placement>,
    /// What it can do.
    pub capabilities: Option<Capabilities>,
    /// The id that it must describe itself with; empty means any.
    pub descriptor_id: String,
}

/// Whether new sessions may use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HarnessState {
    /// They may.
    Active,
    /// They may not; existing ones go on.
    Retired,
}

/// Who put it there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HarnessSource {
    /// The host's configuration.
    Static,
    /// An operator.
    Registered,
}

/// A registered or static harness.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HarnessRegistration {
    /// Its name.
    pub name: String,
    /// Its uid; empty for static ones.
    pub uid: String,
    /// When it was registered.
    pub create_time: Option<Timestamp>,
    /// What was registered; absent for static ones and undecodable rows.
    pub spec: Option<HarnessSpec>,
    /// Digest of the spec.
    pub spec_digest: String,
    /// Whether new sessions may use it.
    pub state: HarnessState,
    /// Who put it there.
    pub source: HarnessSource,
    /// When it was retired.
    pub retire_time: Option<Timestamp>,
    /// Why.
    pub retire_reason: String,
    /// What it says of itself, when asked.
    pub observed: Option<Descriptor>,
    /// Why it could not be asked.
    pub observe_error: String,
    /// Why this host cannot serve it.
    pub unservable_reason: String,
}

/// What a registration did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegisterOutcome {
    /// It is new.
    Created,
    /// It was there already.
    Unchanged,
    /// It was retired, and is active again.
    Reactivated,
}

/// The operator's registry of harnesses.
#[async_trait]
pub trait HarnessRegistry: fmt::Debug + Send + Sync + 'static {
    /// Registers a harness under a name.
    async fn register(
        &self,
        caller: &Caller,
        name: &str,
        spec: HarnessSpec,
    ) -> Result<(HarnessRegistration, RegisterOutcome), SessionsError>;

    /// One harness; with `observe` it is asked to describe itself.
    async fn get(
        &self,
        caller: &Caller,
        name: &str,
        observe: bool,
    ) -> Result<HarnessRegistration, SessionsError>;

    /// A page of harnesses by name, and the token of the next.
    async fn list(
        &self,
        caller: &Caller,
        page_size: i32,
        page_token: &str,
        include_retired: bool,
    ) -> Result<(Vec<HarnessRegistration>, String), SessionsError>;

    /// Refuses a harness to new sessions.
    async fn retire(
        &self,
        caller: &Caller,
        name: &str,
        reason: &str,
    ) -> Result<HarnessRegistration, SessionsError>;
}
