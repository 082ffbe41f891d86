//! Requests for approval, and who may decide them without a person.

use std::fmt;

use async_trait::async_trait;

use crate::event::ApprovalRef;
use crate::id::SessionUid;
use crate::session::IdentityRef;
use crate::tool::ToolCall;

/// A request for approval that nobody has decided.
#[derive(Debug, Clone, PartialEq)]
pub struct PendingApproval {
    /// The session.
    pub session: SessionUid,
    /// Which request.
    pub approval: ApprovalRef,
    /// The call as it was recorded: what an approval lets happen.
    pub call: ToolCall,
    /// Digest of that call, as a client sends it back with its decision.
    pub digest: String,
}

/// A decision, and whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Yes or no.
    pub approved: bool,
    /// Why.
    pub reason: String,
    /// Provenance of the decision.
    pub identity: Option<IdentityRef>,
}

/// Decides requests for approval that a rule can decide. It is asked after the
/// turn has parked; its decision is recorded like a person's.
#[async_trait]
pub trait ApprovalPolicy: fmt::Debug + Send + Sync + 'static {
    /// A decision, or `None` to leave it to a person.
    ///
    /// # Cancellation
    /// The host gives it a bounded time; without an answer the request stays open.
    async fn decide(&self, pending: &PendingApproval) -> Option<Decision>;
}
