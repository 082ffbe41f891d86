//! The listener of operators: the registry of harnesses, and administration.

use std::sync::Arc;

use mainspring::api::{HarnessRegistry, Operations, Signal};
use mainspring::transport_grpc::{Listener, ServeError, ServeOptions, serve_operators};
use tokio::task::JoinHandle;

/// What operators call, served in a task of its own until it is stopped.
pub(super) struct Operators {
    address: String,
    stop: Signal<()>,
    serving: JoinHandle<Result<(), ServeError>>,
}

impl Operators {
    pub(super) fn start(
        registry: Arc<dyn HarnessRegistry>,
        operations: Arc<dyn Operations>,
        listener: Listener,
        options: ServeOptions,
    ) -> Self {
        let address = listener.address().to_string();
        let stop = Signal::<()>::default();
        let stopped = stop.clone();
        let until = async move { stopped.wait().await };
        let serving = tokio::spawn(serve_operators(registry, operations, listener, options, until));
        Self { address, stop, serving }
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Takes no more calls, and lets those that run end within their bound.
    pub(super) async fn stop(self) {
        self.stop.set(());
        let ended = match self.serving.await {
            Ok(ended) => ended.map_err(|error| mainspring::api::report(&error)),
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = ended {
            tracing::warn!(error, "the operators' listener ended");
        }
    }
}
