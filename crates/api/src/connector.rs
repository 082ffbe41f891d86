//! From placed compute to a harness that can be called.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use crate::BoxFuture;
use crate::condition::Condition;
use crate::error::{Classify, ErrorKind};
use crate::harness::Harness;
use crate::id::Fence;
use crate::sessions::CancelReason;
use crate::signal::Signal;

/// Where placed compute can be reached.
#[derive(Debug, Clone)]
pub enum Address {
    /// In this process.
    InProcess(InProcess),
    /// By gRPC.
    Grpc {
        /// `host:port`, `dns:///host:port`, or `unix:///path`.
        address: String,
        /// Pairs that go on every call: routing, not authentication.
        call_metadata: Vec<(String, String)>,
    },
}

/// A handle to something in this process; the connector that made it knows its type.
#[derive(Clone)]
pub struct InProcess(Arc<dyn Any + Send + Sync>);

impl InProcess {
    /// A handle to a harness.
    #[must_use]
    pub fn harness(harness: Arc<dyn Harness>) -> Self {
        Self(Arc::new(harness))
    }

    /// The harness, if it is one.
    #[must_use]
    pub fn as_harness(&self) -> Option<Arc<dyn Harness>> {
        self.0.downcast_ref::<Arc<dyn Harness>>().cloned()
    }
}

impl fmt::Debug for InProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InProcess")
    }
}

/// One placement of a session's compute.
#[derive(Debug, Clone)]
pub struct Incarnation {
    /// Where it is.
    pub address: Address,
    /// What runs it, such as `host/pid`, for people.
    pub worker: String,
    /// The compute's own instance id; empty outside the memory tier.
    pub compute_instance: String,
    /// The fence of the turn that it was placed for; stamped by placement.
    pub fence: Fence,
    /// Whether the descriptor may change behind the address, so that it is
    /// asked again on the turn's own connection.
    pub live_describer: bool,
}

/// A harness that can be called, until it is closed.
pub struct HarnessConnection {
    harness: Arc<dyn Harness>,
    cancel: Signal<CancelReason>,
    close: BoxFuture<'static, Result<(), ConnectError>>,
}

impl HarnessConnection {
    /// A connection whose `close` future ends it.
    #[must_use]
    pub fn new(
        harness: Arc<dyn Harness>,
        cancel: Signal<CancelReason>,
        close: BoxFuture<'static, Result<(), ConnectError>>,
    ) -> Self {
        Self { harness, cancel, close }
    }

    /// The harness.
    #[must_use]
    pub fn harness(&self) -> Arc<dyn Harness> {
        Arc::clone(&self.harness)
    }

    /// Tells the harness that its turn is to stop, and why.
    #[must_use]
    pub fn cancel_signal(&self) -> &Signal<CancelReason> {
        &self.cancel
    }

    /// Ends the connection. Consumes it, so that it is awaited exactly once.
    pub async fn close(self) -> Result<(), ConnectError> {
        self.close.await
    }
}

impl fmt::Debug for HarnessConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HarnessConnection").field("harness", &self.harness).finish_non_exhaustive()
    }
}

/// Connects to placed compute.
#[async_trait]
pub trait HarnessConnector: fmt::Debug + Send + Sync + 'static {
    /// Connects, within the connector's own bound.
    ///
    /// # Errors
    /// - [`ConnectError::UnsupportedAddress`] for an address of another kind.
    /// - [`ConnectError::Unavailable`] when nobody answers.
    async fn connect(&self, incarnation: &Incarnation) -> Result<HarnessConnection, ConnectError>;
}

/// Why no connection came about, or why it did not close.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// This connector does not know such addresses.
    #[error("connector does not take this address: {message}")]
    UnsupportedAddress {
        /// Which.
        message: String,
    },
    /// Nobody answers there.
    #[error("harness unavailable: {message}")]
    Unavailable {
        /// What happened.
        message: String,
    },
    /// The connector was closed.
    #[error("connector is closed")]
    Closed,
}

impl ConnectError {
    /// The condition that this reports.
    #[must_use]
    pub const fn condition(&self) -> Condition {
        match self {
            Self::UnsupportedAddress { .. } => Condition::InvalidArgument,
            Self::Unavailable { .. } | Self::Closed => Condition::HarnessUnavailable,
        }
    }
}

impl Classify for ConnectError {
    fn kind(&self) -> ErrorKind {
        self.condition().kind()
    }

    fn code(&self) -> &'static str {
        self.condition().code()
    }
}
