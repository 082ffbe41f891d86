//! Traces over OTLP.

use std::time::Duration;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::Subscriber;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::Layer;
use tracing_subscriber::registry::LookupSpan;

use crate::error::CliError;

/// How long sending a batch of spans may take, and how long the last one may
/// hold up the end of the process.
const EXPORT_MAX: Duration = Duration::from_secs(5);

/// An exporter of spans.
#[derive(Debug)]
pub(super) struct Traces(SdkTracerProvider);

impl Traces {
    /// Sends to `endpoint`, such as `http://127.0.0.1:4317`. Nothing is sent yet.
    pub(super) fn start(endpoint: &str) -> Result<Self, CliError> {
        let exporter = SpanExporter::builder()
            .with_tonic()
            .with_endpoint(endpoint)
            .with_timeout(EXPORT_MAX)
            .build()
            .map_err(|error| CliError::usage(format!("otel.endpoint {endpoint:?}: {error}")))?;
        let resource = Resource::builder_empty()
            .with_service_name("mainspring")
            .with_attribute(opentelemetry::KeyValue::new(
                "service.version",
                env!("CARGO_PKG_VERSION"),
            ))
            .build();
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource)
            .build();
        Ok(Self(provider))
    }

    /// The layer that makes spans of the turns' own.
    pub(super) fn layer<S>(&self) -> Box<dyn Layer<S> + Send + Sync>
    where
        S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
    {
        let scope = opentelemetry::InstrumentationScope::builder("mainspring")
            .with_version(env!("CARGO_PKG_VERSION"))
            .with_schema_url(mainspring::controller::spans::SCHEMA_URL)
            .build();
        let spans = filter_fn(|about| {
            about.is_span() && about.target() == mainspring::controller::spans::TARGET
        });
        tracing_opentelemetry::layer()
            .with_tracer(self.0.tracer_with_scope(scope))
            .with_location(false)
            .with_threads(false)
            .with_filter(spans)
            .boxed()
    }

    /// Sends what is left.
    pub(super) fn end(self) {
        if let Err(error) = self.0.shutdown_with_timeout(EXPORT_MAX) {
            tracing::warn!(error = %error, "spans were left unsent");
        }
    }
}
