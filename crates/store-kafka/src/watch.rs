//! Looking at the topics again while the store is open: what held at the start
//! may be changed by whoever administers the cluster.

use std::sync::Arc;
use std::time::Duration;

use mainspring_eventlog::LogError;

use crate::config::KafkaConfig;
use crate::error::Halt;
use crate::frame::Genesis;
use crate::progress::Progress;
use crate::topic::{TopicReport, check};

/// Pause between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(15);

/// Looks until the store is closed or stops. Runs as a task of its own.
pub(crate) async fn watch(config: KafkaConfig, genesis: Genesis, progress: Arc<Progress>) {
    let mut missing = false;
    while !progress.is_over() {
        tokio::time::sleep(LOOK_EVERY).await;
        match check(&config).await {
            Ok(report) => {
                missing = false;
                if let Some(why) = refusal(&report, Some(&genesis)) {
                    progress.halt(why);
                }
            }
            // Once may be a broker that has not heard of it yet.
            Err(LogError::Halted { code: "topic_missing", .. }) if !missing => missing = true,
            Err(LogError::Halted { code: "topic_missing", .. }) => {
                progress.halt(Halt::TopicMissing(config.topic.clone()));
            }
            Err(error) => tracing::debug!(%error, "the topics cannot be looked at now"),
        }
    }
}

/// Why a store does not go on with such topics.
pub(crate) fn refusal(report: &TopicReport, known: Option<&Genesis>) -> Option<Halt> {
    if let (Some(known), Some(found)) = (known, &report.genesis)
        && known.store_id != found.store_id
    {
        let (found, known) =
            (found.store_id.as_str().to_owned(), known.store_id.as_str().to_owned());
        return Some(Halt::LogRecreated { found, known });
    }
    let fault = report.faults().next()?;
    if fault.setting == "partitions" {
        let number = |text: &str| text.parse().unwrap_or(0);
        let (found, genesis) = (number(&fault.found), number(&fault.wanted));
        return Some(Halt::PartitionsChanged { found, genesis });
    }
    Some(Halt::TopicLossy(fault.to_string()))
}
