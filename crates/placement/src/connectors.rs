//! Connecting to whatever a runtime hands out.

use std::sync::Arc;

use async_trait::async_trait;
use mainspring_api::{
    Address, ConnectError, HarnessConnection, HarnessConnector, Incarnation, Signal,
};

/// In-process harnesses, and gRPC ones through a connector that the host brings.
#[derive(Debug, Clone, Default)]
pub struct Connectors {
    grpc: Option<Arc<dyn HarnessConnector>>,
}

impl Connectors {
    /// In-process harnesses alone.
    #[must_use]
    pub fn in_process() -> Self {
        Self::default()
    }

    /// With a connector for gRPC addresses.
    #[must_use]
    pub fn with_grpc(mut self, connector: Arc<dyn HarnessConnector>) -> Self {
        self.grpc = Some(connector);
        self
    }
}

#[async_trait]
impl HarnessConnector for Connectors {
    async fn connect(&self, incarnation: &Incarnation) -> Result<HarnessConnection, ConnectError> {
        match (&incarnation.address, &self.grpc) {
            (Address::InProcess(handle), _) => {
                let harness =
                    handle.as_harness().ok_or_else(|| unsupported("an unknown handle"))?;
                let close = Box::pin(async { Ok(()) });
                Ok(HarnessConnection::new(harness, Signal::default(), close))
            }
            (Address::Grpc { .. }, Some(grpc)) => grpc.connect(incarnation).await,
            (Address::Grpc { address, .. }, None) => {
                Err(unsupported(&format!("{address}: this host has no gRPC connector")))
            }
        }
    }
}

fn unsupported(what: &str) -> ConnectError {
    ConnectError::UnsupportedAddress { message: what.to_owned() }
}
