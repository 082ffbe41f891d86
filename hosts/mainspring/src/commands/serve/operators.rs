//! The listener of operators: the registry of harnesses, and administration.

use std::sync::Arc;

use mainspring::api::{HarnessRegistry, Operations, Signal};
use mainspring::transport_grpc::{Listener, ServeError, ServeOptions, serve_operators};
use tokio::task::JoinHandle;

use crate::error::CliError;

/// What operators call, served in a task of its own until it is stopped.
pub(super) struct Operators {
    address: String,
    stop: Signal<()>,
    /// `None` once its end was seen.
    serving: Option<JoinHandle<Result<(), ServeError>>>,
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
        let serving = serve_operators(registry, operations, listener, options, until);
        Self { address, stop, serving: Some(tokio::spawn(serving)) }
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Takes no more calls. Those that run end within their bound.
    pub(super) fn stop(&self) {
        self.stop.set(());
    }

    /// Waits until it has ended, and logs what went wrong.
    pub(super) async fn ended(&mut self) {
        if let Some(Err(error)) = self.outcome().await {
            tracing::warn!(error = error.message, "the operators' listener ended");
        }
    }

    /// How it ended; `None` when that was seen before.
    async fn outcome(&mut self) -> Option<Result<(), CliError>> {
        let ended = self.serving.as_mut()?.await;
        self.serving = None;
        Some(match ended {
            Ok(ended) => ended.map_err(|error| super::serve_failed(&error)),
            Err(error) => Err(CliError::internal(error.to_string())),
        })
    }
}

/// Waits for the end of a listener that was not told to stop, if there is one.
pub(super) async fn broken(operators: Option<&mut Operators>) -> CliError {
    let outcome = match operators {
        Some(operators) => operators.outcome().await,
        None => None,
    };
    match outcome {
        Some(Err(mut error)) => {
            error.message = format!("the operators' listener ended: {}", error.message);
            error
        }
        Some(Ok(())) => CliError::internal("the operators' listener ended"),
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(outcome: Result<(), ServeError>) -> Operators {
        let serving = Some(tokio::spawn(async { outcome }));
        Operators { address: String::new(), stop: Signal::default(), serving }
    }

    #[tokio::test]
    async fn a_listener_that_ends_by_itself_is_told_of_with_its_error() {
        let mut operators = ended(Err(ServeError::DrainTimeout { seconds: 1 }));
        let error = broken(Some(&mut operators)).await;
        assert!(error.message.starts_with("the operators' listener ended: "), "{}", error.message);
        assert_eq!(error.code, "deadline_exceeded");
        // Its end is not waited for again.
        operators.ended().await;
        let error = broken(Some(&mut ended(Ok(())))).await;
        assert_eq!(error.code, "internal");
    }
}
