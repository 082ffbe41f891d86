//! Appends and imports as they should not be done.

use futures_util::StreamExt as _;
use mainspring_api::{AppendId, BoxStream, Fence, Head, SessionUid};
use mainspring_eventlog::{Batch, ImportRecord, LogError};
use mainspring_testkit::{create, read_all, sample};

use crate::fault::Fault;
use crate::store::Broken;

impl Broken {
    /// The same events, at the head of the moment.
    async fn relinked(&self, uid: &SessionUid, batch: &Batch) -> Result<Batch, LogError> {
        let head = self.found(uid).await?.view.head;
        Batch::link(head, batch.events().cloned().map(Into::into).collect())
    }

    /// Appends as it should be done, or not.
    pub(crate) async fn append_broken(
        &self,
        uid: &SessionUid,
        id: AppendId,
        fence: Fence,
        batch: &Batch,
    ) -> Result<Head, LogError> {
        let row = self.found(uid).await;
        let at = row.as_ref().map_or(Head::EMPTY, |row| row.view.head);
        let in_force = row.as_ref().map_or(Fence::NONE, |row| row.fence.fence);
        let base = batch.base();
        match self.fault {
            Fault::CreatesOnAppend if row.is_err() => {
                create(&*self.inner, uid).await?;
            }
            Fault::AppendIgnoresHead if base != at => {
                let batch = self.relinked(uid, batch).await?;
                return self.inner.append(uid, id, fence, &batch).await;
            }
            Fault::AppendIgnoresHash if base.seq == at.seq => {
                let batch = self.relinked(uid, batch).await?;
                return self.inner.append(uid, id, fence, &batch).await;
            }
            Fault::TestsFenceFirst if fence < in_force => {
                return Err(LogError::Fenced { current: in_force });
            }
            Fault::IgnoresFence => {
                return self.inner.append(uid, id, fence.max(in_force), batch).await;
            }
            Fault::FenceAboveRaises => {
                for current in in_force.get()..fence.get() {
                    let holder = sample::holder("raised");
                    self.inner.mint(uid, sample::fresh_id(), Fence::new(current), holder).await?;
                }
            }
            Fault::TestsBoundsLast => {
                row?;
            }
            _ => {}
        }
        self.inner.append(uid, id, fence, batch).await
    }

    /// Makes something else of a refusal.
    pub(crate) async fn refused_append(
        &self,
        uid: &SessionUid,
        id: AppendId,
        batch: &Batch,
        error: LogError,
    ) -> Result<Head, LogError> {
        let conflict = matches!(error, LogError::Conflict { .. });
        match self.fault {
            Fault::TearsBatches if conflict => {
                let first = batch.events().next().cloned().into_iter();
                mainspring_testkit::append(&*self.inner, uid, sample::records(first)).await?;
            }
            Fault::AnswersLosersOk if conflict => return Ok(batch.head()),
            Fault::TrustsEqualBytes if conflict => {
                let all = read_all(&*self.inner, uid).await?;
                if all.iter().any(|record| record.head() == batch.head()) {
                    return Ok(batch.head());
                }
            }
            Fault::CountsOnRetry if conflict && !self.lost.lock().unwrap().insert(id) => {
                let batch = self.relinked(uid, batch).await?;
                return self.inner.append(uid, sample::fresh_id(), Fence::NONE, &batch).await;
            }
            Fault::BoundHasNoName if matches!(error, LogError::TooLarge { .. }) => {
                return Err(LogError::Invalid("too large"));
            }
            Fault::SplitsLargeBatches => {
                let mut head = batch.base();
                for event in batch.events() {
                    let one = Batch::link(head, vec![event.clone().into()])?;
                    head = self.inner.append(uid, sample::fresh_id(), Fence::NONE, &one).await?;
                }
                return Ok(head);
            }
            _ => {}
        }
        Err(error)
    }

    /// Makes something else of what an import brings.
    pub(crate) async fn imported(
        &self,
        records: BoxStream<'static, Result<ImportRecord, LogError>>,
    ) -> Result<Vec<Result<ImportRecord, LogError>>, LogError> {
        let mut items: Vec<_> = records.collect().await;
        let is_head = |item: &Result<ImportRecord, _>| matches!(item, Ok(ImportRecord::Head(..)));
        match self.fault {
            Fault::ImportIgnoresHead => items.retain(|item| !is_head(item)),
            Fault::ImportKeepsOnePage => items.truncate(500),
            Fault::ImportNeedsRecords if items.iter().all(is_head) => {
                return Err(LogError::Invalid("no records"));
            }
            Fault::ImportPublishesPart => items.retain(Result::is_ok),
            Fault::ImportSkipsUnknown => items.retain(
                |item| !matches!(item, Ok(ImportRecord::Record(record)) if record.event().is_err()),
            ),
            Fault::ImportRelinks => {
                let mut head = Head::EMPTY;
                for item in &mut items {
                    if let Ok(ImportRecord::Record(record)) = item {
                        let batch = Batch::link(head, vec![record.event()?.into()])?;
                        *record = batch.stored().next().unwrap().clone();
                        head = batch.head();
                    }
                }
            }
            _ => {}
        }
        for item in items.iter_mut().flatten() {
            match (item, self.fault) {
                (ImportRecord::Record(record), Fault::ImportLosesNotes) => record.notes.clear(),
                (ImportRecord::Record(record), Fault::ImportLosesFences) => {
                    record.fence = Fence::NONE;
                }
                (ImportRecord::Head(_, row), Fault::ImportIgnoresHeadRow) => *row = None,
                _ => {}
            }
        }
        Ok(items)
    }
}
