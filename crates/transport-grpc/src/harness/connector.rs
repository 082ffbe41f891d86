//! From a gRPC address to a harness.

use std::sync::Arc;

use mainspring_api::{
    Address, ConnectError, HarnessConnection, HarnessConnector, Incarnation, Signal, async_trait,
};

use crate::address::PeerAddress;
use crate::harness::GrpcHarness;
use crate::metadata::CallMetadata;
use crate::options::LinkOptions;

/// Connects to harnesses by gRPC.
///
/// Setting the cancel signal of a connection sends `cancel` to the harness,
/// gives it 2 s, and then cancels the stream.
#[derive(Debug, Clone, Default)]
pub struct GrpcConnector {
    options: LinkOptions,
}

impl GrpcConnector {
    /// A connector.
    #[must_use]
    pub const fn new(options: LinkOptions) -> Self {
        Self { options }
    }
}

#[async_trait]
impl HarnessConnector for GrpcConnector {
    async fn connect(&self, incarnation: &Incarnation) -> Result<HarnessConnection, ConnectError> {
        let Address::Grpc { address, call_metadata } = &incarnation.address else {
            return Err(ConnectError::UnsupportedAddress {
                message: "it is not a gRPC address".to_owned(),
            });
        };
        let unsupported = |message| ConnectError::UnsupportedAddress { message };
        let peer = PeerAddress::harness(address).map_err(|error| unsupported(error.to_string()))?;
        let metadata = CallMetadata::new(call_metadata).map_err(unsupported)?;
        let (channel, _) =
            crate::channel::connect(&peer, &self.options, self.options.harness_keep_alive_interval)
                .await
                .map_err(|error| ConnectError::Unavailable {
                    message: format!("{peer}: {}", mainspring_api::report(&error)),
                })?;
        let (cancel, closed) = (Signal::default(), Signal::default());
        let harness = GrpcHarness::new(
            channel,
            metadata,
            cancel.clone(),
            closed.clone(),
            self.options.clone(),
        );
        let close = async move {
            closed.set(());
            Ok(())
        };
        Ok(HarnessConnection::new(Arc::new(harness), cancel, Box::pin(close)))
    }
}
