//! Logs on standard error.

use tracing::Subscriber;
use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::layer::Layer;
use tracing_subscriber::registry::LookupSpan;

use crate::config::{Log, LogFormat};
use crate::error::CliError;

/// Spans of this target are for traces; in logs they would repeat with every line.
const WITHOUT_SPANS: &str = "mainspring::gen_ai=off";

/// The layer that writes them, as text or as one JSON object a line with the
/// fields of an event at its top.
///
/// A client command reports its one error itself, and logs nothing unless told.
pub(super) fn layer<S>(log: &Log, serves: bool) -> Result<Box<dyn Layer<S> + Send + Sync>, CliError>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let level = log.level.as_deref().unwrap_or(if serves { "warn" } else { "off" });
    let directive = WITHOUT_SPANS.parse().expect("it is a directive");
    let filter = EnvFilter::try_new(level)
        .map_err(|error| CliError::usage(format!("log.level {level:?}: {error}")))?
        .add_directive(directive);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    Ok(match log.format {
        LogFormat::Text => {
            let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
            let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
            lines.with_ansi(is_terminal && !plain).with_filter(filter).boxed()
        }
        LogFormat::Json => lines.json().flatten_event(true).with_filter(filter).boxed(),
    })
}
