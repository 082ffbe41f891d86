//! Why a remote runtime cannot be built.

use mainspring_api::{Classify, Condition, ErrorKind};

use crate::address::AddressError;

/// Why a remote runtime cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteConfigError {
    /// A harness without a name.
    #[error("a harness has no name")]
    NoName,
    /// Two harnesses of one name.
    #[error("harness {name:?} is configured twice")]
    Duplicate {
        /// The name.
        name: String,
    },
    /// An address that cannot be dialled.
    #[error("address of harness {name:?}")]
    Address {
        /// The name.
        name: String,
        /// The rule that the address breaks.
        #[source]
        source: AddressError,
    },
}

impl Classify for RemoteConfigError {
    fn kind(&self) -> ErrorKind {
        Condition::InvalidArgument.kind()
    }

    fn code(&self) -> &'static str {
        Condition::InvalidArgument.code()
    }
}
