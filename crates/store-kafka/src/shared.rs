//! What all parts of a store share: reading what was committed, writing what
//! the log decides.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use mainspring_api::{AppendId, OsEntropy, SessionUid};
use mainspring_eventlog::replica::{Op, Replica, Reply, Terms};
use mainspring_eventlog::{Durability, Level, LogError};

use crate::answers::{counted, id_of, refusal};
use crate::config::KafkaConfig;
use crate::ends::Ends;
use crate::engine::PartitionEngine;
use crate::frame::{Genesis, Statement};
use crate::hosts::Hosts;
use crate::judge::{ROWS_PARTITION, Void, partition_of};
use crate::lane::Lanes;
use crate::progress::{CatchUp, Progress};

/// What all parts of a store share.
pub(crate) struct Core {
    pub(crate) config: KafkaConfig,
    pub(crate) genesis: Genesis,
    pub(crate) durability: Durability,
    pub(crate) replicas: Vec<Replica<PartitionEngine>>,
    pub(crate) lanes: Arc<Lanes>,
    pub(crate) progress: Arc<Progress>,
    pub(crate) ends: Ends,
    /// Only a host that serves, or asks who lives, has it.
    pub(crate) hosts: OnceLock<Hosts>,
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").field("genesis", &self.genesis).finish_non_exhaustive()
    }
}

/// How long a read waits before it writes a barrier, for a log whose last
/// message never reaches a reader, such as the mark of a foreign transaction.
const NUDGE_AFTER: Duration = Duration::from_secs(1);

impl Core {
    pub(crate) fn partition_of(&self, uid: &SessionUid) -> u32 {
        partition_of(uid, self.genesis.partitions)
    }

    pub(crate) fn replica(&self, partition: u32) -> &Replica<PartitionEngine> {
        &self.replicas[partition as usize]
    }

    /// Waits until this host's view has all that was committed when this began.
    pub(crate) async fn up_to_date(&self, partition: u32, level: Level) -> Result<(), LogError> {
        self.progress.check()?;
        let end = match level {
            Level::Committed => self.ends.of(partition).await?,
            Level::Strict => self.barrier(partition).await?,
        };
        let before = self.progress.applied(partition);
        if self.progress.wait(partition, end, NUDGE_AFTER).await? {
            return Ok(());
        }
        if self.progress.applied(partition) == before {
            self.barrier(partition).await?;
        }
        if self.progress.wait(partition, end, self.config.read_max).await? {
            return Ok(());
        }
        let CatchUp { folded, end: all } = self.progress.catch_up();
        let at = self.progress.applied(partition);
        Err(LogError::unavailable(format!(
            "this host is catching up with the log: partition {partition} is at {at} of {end}, \
             all of them at {folded} of {all}"
        )))
    }

    /// The hosts of this store; from the first call on this one listens.
    pub(crate) fn hosts(&self) -> Result<&Hosts, LogError> {
        if let Some(hosts) = self.hosts.get() {
            return Ok(hosts);
        }
        let started = Hosts::start(&self.config, self.lanes.writer())?;
        // Another call may have been quicker: then its hosts are used.
        Ok(self.hosts.get_or_init(|| started))
    }

    async fn barrier(&self, partition: u32) -> Result<u64, LogError> {
        let id = AppendId::random(&OsEntropy);
        let judged = self.lanes.write(partition, id, &Statement::Barrier, None, false).await;
        judged.map(|judged| judged.next).map_err(|error| match error {
            // A barrier changes nothing, so there is nothing to settle.
            LogError::Unavailable { message, .. } => LogError::unavailable(message),
            other => other,
        })
    }

    /// All partitions' views have all that was committed when this began.
    pub(crate) async fn all_up_to_date(&self, level: Level) -> Result<(), LogError> {
        let waits = (0..self.genesis.partitions).map(|partition| self.up_to_date(partition, level));
        futures_util::future::try_join_all(waits).await.map(drop)
    }

    /// Writes an operation to its partition and answers what it came to.
    pub(crate) async fn write_to(
        &self,
        partition: u32,
        op: Op,
        terms: Terms,
    ) -> Result<Reply, LogError> {
        self.progress.check()?;
        let wants_reply = !matches!(op, Op::Append { .. } | Op::Mint { .. });
        let id = id_of(&op);
        let op = Arc::new(op);
        let statement = Statement::Op(terms);
        let sent = self.lanes.write(partition, id, &statement, Some(Arc::clone(&op)), wants_reply);
        let judged = sent.await?;
        match (judged.void(), judged.reply) {
            (None, Some(reply)) => reply,
            (None, None) => Ok(counted(&op)),
            (Some(void), _) => {
                // What is there now was decided before this copy.
                self.settle(partition, &op, void, judged.next).await
            }
        }
    }

    /// A copy of an operation was judged and does not count: if an earlier one
    /// did, its answer is the operation's; otherwise no copy ever can.
    async fn settle(
        &self,
        partition: u32,
        op: &Op,
        void: Void,
        next: u64,
    ) -> Result<Reply, LogError> {
        if !self.progress.wait(partition, next, self.config.read_max).await? {
            return Err(crate::error::unknown("this host's view is behind the log"));
        }
        if let Some(reply) = self.replica(partition).settled(op).await? {
            return Ok(reply);
        }
        Err(refusal(op, void))
    }
}

impl Core {
    /// Writes an operation to the partition that it belongs to.
    pub(crate) async fn write(&self, op: Op) -> Result<Reply, LogError> {
        let terms = op.terms().ok_or(LogError::Unsupported("this operation"))?;
        let partition = match &op {
            Op::PutNamed { .. } => ROWS_PARTITION,
            _ => self.partition_of(terms.session().expect("only rows and imports have none")),
        };
        self.write_to(partition, op, terms).await
    }
}
