//! What a harness says of itself, when somebody asks.

use std::sync::Arc;

use async_trait::async_trait;
use mainspring_api::{
    Descriptor, HarnessError, RuntimeError, Seq, SessionHistory, SessionSpec, SessionUid,
    SnapshotRef, random_hex,
};

use crate::error::PlacementError;
use crate::placer::{ADMISSION_MAX, Placer};

impl Placer {
    /// Asks a harness of this placer to describe itself, on compute of its own,
    /// within 10 s. What it says is not judged.
    ///
    /// # Errors
    /// It cannot be reached, or cannot describe itself.
    pub async fn observe(&self) -> Result<Descriptor, PlacementError> {
        let uid = SessionUid::new(&format!("probe-{}", random_hex(&*self.options.entropy, 12)))
            .expect("hex fits a uid");
        let harness = || self.name().to_owned();
        let asked = tokio::time::timeout(ADMISSION_MAX, self.ask(&uid)).await;
        self.release(&uid).await;
        asked.unwrap_or_else(|_| {
            let message = format!("no answer within {} s", ADMISSION_MAX.as_secs());
            let source = HarnessError::Deadline { message };
            Err(PlacementError::HarnessUnavailable { harness: harness(), source })
        })
    }

    async fn ask(&self, uid: &SessionUid) -> Result<Descriptor, PlacementError> {
        let options = &self.options;
        let spec = SessionSpec {
            uid: Some(uid.clone()),
            harness: options.name.clone(),
            ..SessionSpec::default()
        };
        let incarnation = options.runtime.create(&spec, Arc::new(NoHistory)).await?;
        let connection = options.connector.connect(&incarnation).await?;
        let described = connection.harness().describe().await;
        self.close(uid, connection).await;
        let harness = options.name.clone();
        described.map_err(|source| match source {
            HarnessError::Unavailable { .. } | HarnessError::Deadline { .. } => {
                PlacementError::HarnessUnavailable { harness, source }
            }
            source => PlacementError::HarnessDescribeFailed { harness, source },
        })
    }
}

/// The history of compute that belongs to no session.
#[derive(Debug)]
struct NoHistory;

#[async_trait]
impl SessionHistory for NoHistory {
    async fn started_turns(&self) -> Result<u64, RuntimeError> {
        Ok(0)
    }

    async fn recorded_checkpoint(&self) -> Result<Option<SnapshotRef>, RuntimeError> {
        Ok(None)
    }

    async fn recorded_instance(&self) -> Result<Option<(String, Seq)>, RuntimeError> {
        Ok(None)
    }

    async fn turns_since_checkpoint(&self) -> Result<u64, RuntimeError> {
        Ok(0)
    }
}
