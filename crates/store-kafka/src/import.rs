//! Importing: staged in one partition, published in the partition of its uid.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use mainspring_api::{Head, SessionUid};
use mainspring_eventlog::replica::{Op, OpWriter, Reply, Terms, unavailable};
use mainspring_eventlog::{Level, LogError, ReadLimit};

use crate::judge::Name;
use crate::shared::Core;

/// Writes the operations of one import.
///
/// The uid may stand in the last line only. Records that were staged in the
/// partition of another uid are then staged once more where they belong.
pub(crate) struct ImportWriter {
    core: Arc<Core>,
    /// Where the records are staged.
    partition: Mutex<u32>,
}

impl fmt::Debug for ImportWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImportWriter").finish_non_exhaustive()
    }
}

/// The partition that has most of an import staged, and how much that is.
pub(crate) async fn furthest(
    core: &Core,
    store: &SessionUid,
) -> Result<Option<(u32, Head)>, LogError> {
    let mut found: Option<(u32, Head)> = None;
    for partition in 0..core.genesis.partitions {
        let head = core.replica(partition).staged(store).await?;
        if head.seq > found.map_or(mainspring_api::Seq::ZERO, |(_, head)| head.seq) {
            found = Some((partition, head));
        }
    }
    Ok(found)
}

impl ImportWriter {
    pub(crate) fn new(core: Arc<Core>, uid: &SessionUid) -> Self {
        let partition = core.partition_of(uid);
        Self { core, partition: Mutex::new(partition) }
    }

    /// For what is staged in a partition.
    pub(crate) const fn of_partition(core: Arc<Core>, partition: u32) -> Self {
        Self { core, partition: Mutex::new(partition) }
    }

    fn partition(&self) -> u32 {
        *self.partition.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stage_in(&self, partition: u32) {
        *self.partition.lock().unwrap_or_else(PoisonError::into_inner) = partition;
    }

    /// Which beginning of an import is the one now.
    fn generation(&self, partition: u32, store: &SessionUid) -> Result<u64, LogError> {
        let state =
            crate::states::read(self.core.replica(partition).engine(), &Name::import(store));
        Ok(state.map_err(unavailable)?.unwrap_or_default().version)
    }

    async fn begin(&self, store: &SessionUid) -> Result<Reply, LogError> {
        self.core.all_up_to_date(Level::Committed).await?;
        for partition in 0..self.core.genesis.partitions {
            if let Some((row, head)) = self.core.replica(partition).published(store).await? {
                return Ok(Reply::Imported(Box::new(row), head));
            }
        }
        if let Some((partition, head)) = furthest(&self.core, store).await? {
            self.stage_in(partition);
            return Ok(Reply::Head(head));
        }
        self.begin_in(self.partition(), store).await.map(Reply::Head)
    }

    /// Begins an import in a partition, or finds how far it is there.
    async fn begin_in(&self, partition: u32, store: &SessionUid) -> Result<Head, LogError> {
        let generation = self.generation(partition, store)?;
        let op = Op::BeginImport { store: store.clone() };
        let terms = Terms::BeginImport { store: store.clone(), generation };
        match self.core.write_to(partition, op, terms).await {
            Ok(Reply::Head(head)) => Ok(head),
            // It was begun before, with nothing staged yet or by this call.
            Err(LogError::Moved { .. }) => self.core.replica(partition).staged(store).await,
            Ok(other) => unreachable!("an import begins otherwise: {other:?}"),
            Err(error) => Err(error),
        }
    }

    async fn stage(&self, partition: u32, op: Op) -> Result<Reply, LogError> {
        let Some(Terms::Stage { store, after, head, fence, deletes, .. }) = op.terms() else {
            return Err(LogError::Unsupported("this step of an import"));
        };
        let generation = self.generation(partition, &store)?;
        let terms = Terms::Stage { store, generation, after, head, fence, deletes };
        self.core.write_to(partition, op, terms).await
    }

    pub(crate) async fn unstage(
        &self,
        partition: u32,
        store: &SessionUid,
    ) -> Result<Reply, LogError> {
        let generation = self.generation(partition, store)?;
        let op = Op::Unstage { store: store.clone() };
        let terms = Terms::Unstage { store: store.clone(), generation };
        match self.core.write_to(partition, op, terms).await {
            // Nothing is staged there.
            Err(LogError::Moved { .. }) => Ok(Reply::Done),
            answer => answer,
        }
    }

    async fn publish(
        &self,
        op: Op,
        store: &SessionUid,
        uid: &SessionUid,
    ) -> Result<Reply, LogError> {
        let (from, to) = (self.partition(), self.core.partition_of(uid));
        if from != to {
            self.stage_again(store, from, to).await?;
        }
        let Some(Terms::Publish { store: staged, session, head, owned, .. }) = op.terms() else {
            return Err(LogError::Unsupported("this step of an import"));
        };
        let generation = self.generation(to, store)?;
        let terms = Terms::Publish { store: staged, generation, session, head, owned };
        let published = self.core.write_to(to, op, terms).await;
        if from != to && published.is_ok() {
            // Out of sight already: what is left of it costs a little space.
            if let Err(error) = self.unstage(from, store).await {
                tracing::warn!(%store, %error, "staged records are left");
            }
        }
        published
    }

    async fn stage_again(&self, store: &SessionUid, from: u32, to: u32) -> Result<(), LogError> {
        let mut at = self.begin_in(to, store).await?;
        loop {
            let replica = self.core.replica(from);
            let page = replica.staged_records(store, at.seq.next(), ReadLimit::default()).await?;
            let Some(last) = page.last().map(|record| record.head()) else { return Ok(()) };
            let records = page
                .into_iter()
                .map(|record| record.event().map(|event| (record, event)))
                .collect::<Result<_, _>>()?;
            let op = Op::Stage { store: store.clone(), after: at, records };
            self.stage(to, op).await?;
            at = last;
        }
    }
}

#[async_trait]
impl OpWriter for ImportWriter {
    async fn write(&self, op: Op) -> Result<Reply, LogError> {
        match &op {
            Op::BeginImport { store } => self.begin(store).await,
            Op::Stage { .. } => self.stage(self.partition(), op).await,
            Op::Unstage { store } => self.unstage(self.partition(), store).await,
            Op::Publish { store, row, .. } => {
                let (store, uid) = (store.clone(), row.session.uid.clone());
                self.publish(op, &store, &uid).await
            }
            _ => Err(LogError::Unsupported("this step of an import")),
        }
    }

    fn event_bytes_max(&self) -> usize {
        self.core.config.limits.event_bytes_max
    }
}
