//! Metrics: their names, and how calls become numbers.
//!
//! No metric is labelled by a session, or by anything else that a caller can
//! make up: the number of series has a bound.

use std::fmt;
use std::sync::OnceLock;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

use crate::error::CliError;

/// Calls that came over gRPC and ended. Labels: `method`, `code`.
pub(crate) const RPC_TOTAL: &str = "mainspring_rpc_total";

/// Seconds that such calls took. Label: `method`.
pub(crate) const RPC_DURATION_SECONDS: &str = "mainspring_rpc_duration_seconds";

/// 1. Label: `version`.
pub(crate) const BUILD_INFO: &str = "mainspring_build_info";

/// 1. Label: `class`, what the store promises of an answered write.
#[cfg(feature = "transport-grpc")]
const STORE_DURABILITY: &str = "mainspring_store_durability";

/// 1 while the host takes new work, else 0.
#[cfg(feature = "transport-grpc")]
pub(crate) const READY: &str = "mainspring_ready";

/// Messages of the log on Kafka that this host has folded.
#[cfg(all(feature = "kafka", feature = "transport-grpc"))]
pub(crate) const KAFKA_FOLDED_MESSAGES: &str = "mainspring_kafka_folded_messages";

/// Messages of the log on Kafka, as far as this host has heard.
#[cfg(all(feature = "kafka", feature = "transport-grpc"))]
pub(crate) const KAFKA_END_MESSAGES: &str = "mainspring_kafka_end_messages";

/// Upper ends of the buckets of durations, in seconds. Turns take minutes.
const DURATION_BUCKETS: [f64; 13] =
    [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0];

/// The page's source: there is one recorder in a process.
static PAGE: OnceLock<PrometheusHandle> = OnceLock::new();

/// The page, if metrics are recorded.
#[cfg(feature = "transport-grpc")]
pub(crate) fn page() -> Option<String> {
    let handle = PAGE.get()?;
    handle.run_upkeep();
    Some(handle.render())
}

/// Says what the store promises, once it is open.
#[cfg(feature = "transport-grpc")]
pub(crate) fn store_durability(class: &'static str) {
    metrics::describe_gauge!(STORE_DURABILITY, "what the store promises of an answered write");
    metrics::gauge!(STORE_DURABILITY, "class" => class).set(1.0);
}

/// Begins to record, and gives the layer that turns the events of calls into numbers.
pub(super) fn layer<S>() -> Result<Box<dyn Layer<S> + Send + Sync>, CliError>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let failed = |error: &dyn fmt::Display| CliError::internal(format!("metrics: {error}"));
    let duration = Matcher::Full(RPC_DURATION_SECONDS.to_owned());
    let recorder = PrometheusBuilder::new()
        .set_buckets_for_metric(duration, &DURATION_BUCKETS)
        .map_err(|error| failed(&error))?
        .build_recorder();
    let handle = recorder.handle();
    metrics::set_global_recorder(recorder).map_err(|error| failed(&error))?;
    let _ = PAGE.set(handle);
    metrics::describe_counter!(RPC_TOTAL, "calls that came over gRPC and ended");
    metrics::describe_histogram!(
        RPC_DURATION_SECONDS,
        metrics::Unit::Seconds,
        "how long calls that came over gRPC took"
    );
    metrics::describe_gauge!(BUILD_INFO, "the running version");
    metrics::gauge!(BUILD_INFO, "version" => env!("CARGO_PKG_VERSION")).set(1.0);
    let calls = filter_fn(|about| about.target().starts_with("mainspring_transport_grpc"));
    Ok(Calls.with_filter(calls).boxed())
}

/// Counts the calls that transports tell of.
#[derive(Debug)]
struct Calls;

impl<S: Subscriber> Layer<S> for Calls {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if *event.metadata().level() > Level::INFO {
            return;
        }
        let mut call = Call::default();
        event.record(&mut call);
        if !call.is_grpc || !call.is_finished {
            return;
        }
        let Some(seconds) = call.duration_ms.map(|ms| ms as f64 / 1_000.0) else { return };
        metrics::counter!(RPC_TOTAL, "method" => call.method.clone(), "code" => call.code)
            .increment(1);
        metrics::histogram!(RPC_DURATION_SECONDS, "method" => call.method).record(seconds);
    }
}

/// What an event says of a call.
#[derive(Debug, Default)]
struct Call {
    is_grpc: bool,
    is_finished: bool,
    method: String,
    code: String,
    duration_ms: Option<u64>,
}

impl Visit for Call {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "component" => self.is_grpc = value == "grpc",
            "rpc_method" => self.method = value.to_owned(),
            "grpc_code" => self.code = value.to_owned(),
            "message" => self.is_finished = value == FINISHED,
            _ => {}
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "duration_ms" {
            self.duration_ms = Some(value);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.is_finished = format!("{value:?}") == FINISHED,
            "grpc_code" => self.code = format!("{value:?}"),
            _ => {}
        }
    }
}

/// The message of a call's last event.
const FINISHED: &str = "operation finished";
