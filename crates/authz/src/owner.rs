//! The built-in policies: who owns a session, and who is on a list.

use std::collections::{HashMap, HashSet};

use async_trait::async_trait;
use mainspring_api::{Action, AuthorizeRequest, Authorizer, AuthzError, CallerIdentity, Owner};

/// Allows a caller what is done to a session that it owns: read, exec, fork,
/// suspend, resume, delete, cancel. Denies everything else, to owners too.
#[derive(Debug, Clone, Copy, Default)]
pub struct OwnerPolicy;

#[async_trait]
impl Authorizer for OwnerPolicy {
    async fn authorize(&self, request: AuthorizeRequest<'_>) -> Result<(), AuthzError> {
        match request.action {
            Action::Read
            | Action::Exec
            | Action::Fork
            | Action::Suspend
            | Action::Resume
            | Action::Delete
            | Action::Cancel
                if owns(&request) =>
            {
                Ok(())
            }
            _ => Err(AuthzError::Denied),
        }
    }
}

/// The actions that an [`Allowlist`] can allow.
pub const LISTED_ACTIONS: [Action; 8] = [
    Action::Create,
    Action::List,
    Action::Approve,
    Action::Adopt,
    Action::RegistryRead,
    Action::RegistryList,
    Action::RegistryRegister,
    Action::RegistryRetire,
];

/// As [`OwnerPolicy`], and allows create, list, approve, adopt and the
/// registry's actions to those that a list names for them. The list changes
/// nothing about any other action.
#[derive(Debug, Clone, Default)]
pub struct OwnerAllowlistPolicy {
    allowlist: Allowlist,
}

impl OwnerAllowlistPolicy {
    /// A policy with a list.
    #[must_use]
    pub fn new(allowlist: Allowlist) -> Self {
        Self { allowlist }
    }
}

#[async_trait]
impl Authorizer for OwnerAllowlistPolicy {
    async fn authorize(&self, request: AuthorizeRequest<'_>) -> Result<(), AuthzError> {
        let is_listed = |caller: &CallerIdentity| {
            is_complete(&caller.issuer, &caller.subject)
                && self.allowlist.names(request.action, caller)
        };
        if LISTED_ACTIONS.contains(&request.action) && request.caller.is_some_and(is_listed) {
            return Ok(());
        }
        OwnerPolicy.authorize(request).await
    }
}

/// Who may do what, by name.
#[derive(Debug, Clone, Default)]
pub struct Allowlist {
    allowed: HashMap<Action, HashSet<CallerIdentity>>,
}

impl Allowlist {
    /// Adds a caller to the list of an action.
    #[must_use]
    pub fn allow(mut self, action: Action, caller: CallerIdentity) -> Self {
        self.allowed.entry(action).or_default().insert(caller);
        self
    }

    fn names(&self, action: Action, caller: &CallerIdentity) -> bool {
        self.allowed.get(&action).is_some_and(|callers| callers.contains(caller))
    }
}

/// Whether the caller and the owner are complete and the same, and there is a
/// session that they are the caller and the owner of.
fn owns(request: &AuthorizeRequest<'_>) -> bool {
    let (Some(caller), Some(owner), Some(_)) = (request.caller, request.owner, request.session)
    else {
        return false;
    };
    let Owner { issuer, subject } = owner;
    is_complete(issuer, subject) && caller.issuer == *issuer && caller.subject == *subject
}

pub(crate) fn is_complete(issuer: &str, subject: &str) -> bool {
    !issuer.is_empty() && !subject.is_empty()
}
