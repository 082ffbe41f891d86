//! On which compute a session's memory is.

use mainspring_api::{EventBody, LifecycleKind, Seq};
use mainspring_eventlog::{InstanceView, SessionRow};

use crate::error::ControllerError;
use crate::journal::Journal;

/// Whose recorded instances count.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum InstanceOf {
    /// Everyone's.
    #[default]
    Anyone,
    /// Those of this harness's turns, of turns that name no harness, and of fork markers.
    Harness(String),
}

impl InstanceOf {
    fn counts(&self, harness: &str) -> bool {
        match self {
            Self::Anyone => true,
            Self::Harness(name) => harness.is_empty() || harness == name,
        }
    }
}

/// The latest compute instance that the journal records for `whose`, from the
/// last fork on.
///
/// # Errors
/// The log's.
pub async fn latest_compute_instance(
    journal: &Journal,
    row: &SessionRow,
    whose: &InstanceOf,
) -> Result<Option<(String, Seq)>, ControllerError> {
    let found = |view: &InstanceView| (view.instance.clone(), view.seq);
    match &row.view.instance {
        None => return Ok(None),
        Some(last) if whose.counts(&last.harness) => return Ok(Some(found(last))),
        // Another harness has run on this session meanwhile.
        Some(_) => {}
    }
    let mut latest = None;
    let from = row.view.last_fork.unwrap_or(Seq::new(1));
    journal
        .read_range(from, row.view.head.seq, |stored| {
            let (instance, harness) = match stored.event()?.body {
                EventBody::ExecutionStart(Some(start)) => (start.compute_instance, start.harness),
                EventBody::Lifecycle(Some(body)) if body.kind == LifecycleKind::Fork => {
                    (body.compute_instance, String::new())
                }
                _ => return Ok(()),
            };
            if !instance.is_empty() && whose.counts(&harness) {
                latest = Some((instance, stored.seq));
            }
            Ok(())
        })
        .await?;
    Ok(latest)
}

/// Refuses compute that is not the one which holds the session's memory.
pub(crate) async fn check(
    journal: &Journal,
    row: &SessionRow,
    whose: &InstanceOf,
    actual: &str,
) -> Result<(), ControllerError> {
    if actual.is_empty() {
        return Ok(());
    }
    match latest_compute_instance(journal, row, whose).await? {
        Some((recorded, seq)) if recorded != actual => {
            Err(ControllerError::MemoryStateLost { recorded, seq, actual: actual.to_owned() })
        }
        _ => Ok(()),
    }
}
