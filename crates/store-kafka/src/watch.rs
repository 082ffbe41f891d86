//! Looking at the topics again while the store is open: what held at the start
//! may be changed by whoever administers the cluster.

use std::sync::Weak;
use std::time::Duration;

use mainspring_eventlog::LogError;

use crate::config::KafkaConfig;
use crate::error::Halt;
use crate::frame::Genesis;
use crate::progress::Progress;
use crate::shared::Core;
use crate::topic::{TopicReport, check};

/// Pause between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(15);

/// Looks at the topics, and after imports that were left, until the store is
/// closed or stops. Has a runtime of its own: that on which a store was opened
/// may be gone.
pub(crate) fn run(core: &Weak<Core>, config: &KafkaConfig, known: &Genesis, progress: &Progress) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "the topics are not looked at any more");
            return;
        }
    };
    runtime.block_on(async {
        tokio::select! {
            () = watch(config, known, progress) => {}
            () = crate::sweep::sweep(core) => {}
            () = progress.until_over() => {}
        }
    });
}

async fn watch(config: &KafkaConfig, genesis: &Genesis, progress: &Progress) {
    let mut missing = false;
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        match check(config).await {
            Ok(report) => {
                missing = false;
                if let Some(why) = refusal(&report, Some(genesis)) {
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
    if let Some(Halt::PartitionsChanged { found, genesis }) = report.halt() {
        return Some(Halt::PartitionsChanged { found, genesis });
    }
    let fault = report.faults().next()?;
    if fault.setting == "partitions" {
        let number = |text: &str| text.parse().unwrap_or(0);
        let (found, genesis) = (number(&fault.found), number(&fault.wanted));
        return Some(Halt::PartitionsChanged { found, genesis });
    }
    Some(Halt::TopicLossy(fault.to_string()))
}
