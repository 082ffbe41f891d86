//! Who calls, and what they may do.

use std::fmt;

use async_trait::async_trait;
use bytes::Bytes;

use crate::clock::Timestamp;
use crate::condition::Condition;
use crate::error::{Classify, ErrorKind};
use crate::id::{RequestId, SessionUid};
use crate::secret::Secret;
use crate::session::Owner;

/// A verified identity. Set by the host from a credential, never from a request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CallerIdentity {
    /// Who vouched.
    pub issuer: String,
    /// For whom.
    pub subject: String,
}

/// Who calls, and through which method.
#[derive(Debug, Clone)]
pub struct Caller {
    /// The verified identity, if there is one.
    pub identity: Option<CallerIdentity>,
    /// When the credential behind it expires: a follow ends then, a turn does not.
    pub expires: Option<Timestamp>,
    /// Full name of the method that the call came in by, one of [`method`](crate::method);
    /// it stays the same for every check that the call causes.
    pub method: &'static str,
    /// The call's id in logs.
    pub request_id: RequestId,
}

impl Caller {
    /// Somebody that nothing is known of.
    #[must_use]
    pub const fn anonymous(method: &'static str, request_id: RequestId) -> Self {
        Self { identity: None, expires: None, method, request_id }
    }
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum Action {
    Read,
    Exec,
    Fork,
    Suspend,
    Resume,
    Delete,
    Cancel,
    Create,
    Approve,
    Mint,
    List,
    RegistryRead,
    RegistryList,
    RegistryRegister,
    RegistryRetire,
    Adopt,
}

impl Action {
    /// The name in policies.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Exec => "exec",
            Self::Fork => "fork",
            Self::Suspend => "suspend",
            Self::Resume => "resume",
            Self::Delete => "delete",
            Self::Cancel => "cancel",
            Self::Create => "create",
            Self::Approve => "approve",
            Self::Mint => "mint",
            Self::List => "list",
            Self::RegistryRead => "registry.read",
            Self::RegistryList => "registry.list",
            Self::RegistryRegister => "registry.register",
            Self::RegistryRetire => "registry.retire",
            Self::Adopt => "adopt",
        }
    }
}

/// One question to an authoriser.
#[derive(Debug, Clone)]
pub struct AuthorizeRequest<'a> {
    /// Who.
    pub caller: Option<&'a CallerIdentity>,
    /// What.
    pub action: Action,
    /// On which session; absent for create, list and the registry.
    pub session: Option<&'a SessionUid>,
    /// Its stored owner.
    pub owner: Option<&'a Owner>,
    /// Full name of the method that the call came in by.
    pub method: &'static str,
}

/// Decides what callers may do.
#[async_trait]
pub trait Authorizer: fmt::Debug + Send + Sync + 'static {
    /// Allows, or says why not.
    async fn authorize(&self, request: AuthorizeRequest<'_>) -> Result<(), AuthzError>;
}

/// Why an authoriser did not allow it.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum AuthzError {
    /// It said no.
    #[error("permission denied")]
    Denied,
    /// It could not answer.
    #[error("authorization unavailable")]
    Unavailable,
}

impl Classify for AuthzError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Denied => Condition::PermissionDenied.kind(),
            Self::Unavailable => Condition::AuthorizationUnavailable.kind(),
        }
    }

    fn code(&self) -> &'static str {
        match self {
            Self::Denied => Condition::PermissionDenied.code(),
            Self::Unavailable => Condition::AuthorizationUnavailable.code(),
        }
    }
}

/// What a caller presented.
#[derive(Debug, Clone, Default)]
pub struct Credentials {
    /// A bearer token.
    pub bearer: Option<Secret>,
    /// DER of the client certificate that the connection was made with; its
    /// chain and its validity have been verified by the transport.
    pub certificate: Option<Bytes>,
}

/// An identity that a credential vouches for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// Whose it is.
    pub identity: CallerIdentity,
    /// When the credential expires.
    pub expires: Option<Timestamp>,
}

/// Turns credentials into an identity.
#[async_trait]
pub trait Authenticator: fmt::Debug + Send + Sync + 'static {
    /// The identity behind `credentials`.
    ///
    /// # Guarantees
    /// A credential that does not hold is never made up for by another one
    /// that was presented beside it.
    ///
    /// # Errors
    /// `Unauthenticated`, whose text says nothing of the credential;
    /// `Unavailable` when what is needed to check it cannot be had.
    async fn authenticate(&self, credentials: &Credentials) -> Result<Verified, AuthnError>;
}

/// Why credentials give no identity.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum AuthnError {
    /// None were presented, or they do not hold.
    #[error("unauthenticated: {0}")]
    Unauthenticated(&'static str),
    /// They could not be checked.
    #[error("credentials cannot be checked now: {0}")]
    Unavailable(&'static str),
}

impl Classify for AuthnError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Unauthenticated(_) => ErrorKind::Unauthenticated,
            Self::Unavailable(_) => ErrorKind::Unavailable,
        }
    }

    fn code(&self) -> &'static str {
        match self {
            Self::Unauthenticated(_) => Condition::Unauthenticated.code(),
            Self::Unavailable(_) => Condition::Unavailable.code(),
        }
    }
}
