//! What a runtime may ask of a session's journal.

use std::sync::Arc;

use async_trait::async_trait;
use mainspring_api::{RuntimeError, Seq, SessionHistory, SnapshotRef};
use mainspring_controller::Journal;
use mainspring_eventlog::{Level, SessionRow};

/// Answers from the fold of the session's journal, read when asked.
#[derive(Debug, Clone)]
pub struct JournalHistory(Journal);

impl JournalHistory {
    /// Answers for this journal.
    #[must_use]
    pub fn new(journal: &Journal) -> Arc<Self> {
        Arc::new(Self(journal.clone()))
    }

    async fn row(&self) -> Result<SessionRow, RuntimeError> {
        let row = self.0.log().get(self.0.uid(), Level::Committed).await;
        row.map_err(|error| RuntimeError::History(Arc::new(error)))
    }
}

#[async_trait]
impl SessionHistory for JournalHistory {
    async fn started_turns(&self) -> Result<u64, RuntimeError> {
        Ok(self.row().await?.view.executions)
    }

    async fn recorded_checkpoint(&self) -> Result<Option<SnapshotRef>, RuntimeError> {
        let row = self.row().await?;
        let own = row
            .view
            .last_suspend
            .filter(|suspend| suspend.snapshot.local == row.session.uid.as_str());
        Ok(own.map(|suspend| suspend.snapshot))
    }

    async fn recorded_instance(&self) -> Result<Option<(String, Seq)>, RuntimeError> {
        Ok(self.row().await?.view.instance.map(|instance| (instance.instance, instance.seq)))
    }

    async fn turns_since_checkpoint(&self) -> Result<u64, RuntimeError> {
        // Only a memory tier asks, and no runtime of this version has one.
        Err(RuntimeError::Unsupported { runtime: "placement", what: "turns since a checkpoint" })
    }
}
