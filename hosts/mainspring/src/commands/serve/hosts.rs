//! This host among those that serve the same store.

use mainspring::api::Classify as _;
use mainspring::eventlog::LogError;
use mainspring::sessions::Service;

use super::rules::{is_unix, is_unspecified};
use crate::error::CliError;
use crate::telemetry::metrics;

/// Tells the other hosts that this one lives, and where clients reach it; tells
/// the page of metrics what the store promises.
///
/// # Errors
/// The log's; the host must not start then.
pub(super) async fn join(
    service: &Service,
    advertise: Option<&str>,
    listening: &str,
) -> Result<(), CliError> {
    let log = service.log();
    metrics::store_durability(log.durability().class());
    service.announce().await?;
    if let Some(warmth) = log.warmth() {
        let told = warmth.advertise(reached_at(advertise, listening)).await;
        told.map_err(|error: LogError| {
            CliError::of(error.condition(), format!("this host cannot tell its address: {error}"))
        })?;
    }
    Ok(())
}

/// Where clients reach this host: what is set, else where it listens, unless
/// that means nothing to another machine.
fn reached_at<'a>(advertise: Option<&'a str>, listening: &'a str) -> &'a str {
    let is_told = !is_unix(listening) && !is_unspecified(listening);
    advertise.unwrap_or(if is_told { listening } else { "" })
}

/// Goes on with the turns that other hosts left open, in the background: where
/// one host serves the store, those of earlier ones; where many do, those of
/// each that dies.
pub(super) fn go_on(service: Service) {
    if service.is_shared() {
        service.take_over();
        return;
    }
    tokio::spawn(async move {
        match service.resume_interrupted().await {
            Ok(recovered) if recovered == Default::default() => {}
            Ok(recovered) => tracing::info!(
                resumed = recovered.resumed,
                refused = recovered.refused,
                left = recovered.left,
                "open turns of earlier hosts were gone on with"
            ),
            Err(error) => tracing::warn!(
                code = error.code(),
                "open turns of earlier hosts cannot be searched for"
            ),
        }
    });
}

#[cfg(test)]
mod tests {
    use super::reached_at;

    #[test]
    fn a_host_is_reached_where_it_says_or_else_where_it_listens() {
        for (set, listening, expected) in [
            (Some("h.example:1"), "0.0.0.0:2", "h.example:1"),
            (None, "10.0.0.1:2", "10.0.0.1:2"),
            (None, "127.0.0.1:2", "127.0.0.1:2"),
            (None, "0.0.0.0:2", ""),
            (None, "[::]:2", ""),
            (None, "unix:/run/s.sock", ""),
        ] {
            assert_eq!(reached_at(set, listening), expected, "{set:?} {listening}");
        }
    }
}
