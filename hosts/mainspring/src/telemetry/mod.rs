//! What the program tells of itself: logs, metrics, traces, and whether it is
//! ready.

#[cfg(feature = "transport-grpc")]
pub(crate) mod http;
mod logs;
pub(crate) mod metrics;
#[cfg(feature = "otel")]
mod otel;

use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::config::Config;
use crate::error::CliError;

/// What is to be ended with the process.
#[derive(Debug, Default)]
pub(crate) struct Telemetry {
    #[cfg(feature = "otel")]
    traces: Option<otel::Traces>,
}

impl Telemetry {
    /// Sets up logs, and for a server metrics and traces. Called once, on the
    /// runtime: an exporter connects on it.
    ///
    /// # Errors
    /// A usage error for a filter that cannot be read, or for traces that this
    /// build or machine cannot send.
    pub(crate) fn start(config: &Config, serves: bool) -> Result<Self, CliError> {
        let logs = logs::layer(&config.log, serves)?;
        let counts = (serves && config.metrics.addr.is_some()).then(metrics::layer).transpose()?;
        #[cfg(feature = "otel")]
        {
            let (traces, spans) = match config.otel.endpoint.as_deref() {
                Some(endpoint) => {
                    let traces = otel::Traces::start(endpoint)?;
                    let spans = traces.layer();
                    (Some(traces), Some(spans))
                }
                None => (None, None),
            };
            let _ = tracing_subscriber::registry().with(logs).with(counts).with(spans).try_init();
            Ok(Self { traces })
        }
        #[cfg(not(feature = "otel"))]
        {
            if config.otel.endpoint.is_some() {
                return Err(CliError::usage("this build has no otel for otel.endpoint"));
            }
            let _ = tracing_subscriber::registry().with(logs).with(counts).try_init();
            Ok(Self {})
        }
    }

    /// Sends what is left to send, within a bound.
    pub(crate) fn end(self) {
        #[cfg(feature = "otel")]
        if let Some(traces) = self.traces {
            traces.end();
        }
    }
}
