//! Folding stored records again, in bounded memory.

use std::collections::HashMap;
use std::ops::ControlFlow;

use mainspring_api::{Event, ExecutionId, Head, Seq};

use super::keys;
use super::ops::OpError;
use super::read::{key_seq, records};
use super::row::{self, KvRow, Segment};
use crate::chain::StoredRecord;
use crate::engine::{EngineError, KvRead, Space};
use crate::error::LogError;
use crate::log::ReadLimit;
use crate::view::{ExecutionTable, ExecutionView, SessionView};

/// Visits the decoded records `from..=to` of a session, in order.
fn each_event(
    kv: &dyn KvRead,
    row: &KvRow,
    from: Seq,
    to: Seq,
    mut visit: impl FnMut(StoredRecord, Event) -> Result<(), OpError>,
) -> Result<(), OpError> {
    let mut next = from;
    while next <= to {
        let page = records(kv, row, next, ReadLimit::default())?;
        if page.is_empty() {
            return Err(LogError::Corrupt { what: format!("record {next} is missing") }.into());
        }
        for record in page.into_iter().take_while(|record| record.seq <= to) {
            next = record.seq.next();
            let event = record.event()?;
            visit(record, event)?;
        }
    }
    Ok(())
}

/// The view of one execution within a range of inherited records, wherever its
/// ancestors keep them.
pub(super) fn refold_execution(
    kv: &dyn KvRead,
    segments: &[Segment],
    id: &ExecutionId,
    (from, to): (Seq, Seq),
) -> Result<Option<ExecutionView>, OpError> {
    let mut view = None;
    let mut failed = None;
    let mut from = from;
    for Segment { uid, upto } in segments {
        let upto = to.min(Seq::new(*upto));
        if from > upto {
            continue;
        }
        let range = (keys::record(uid, from), keys::record(uid, upto.next()));
        kv.scan(Space::Records, &range.0, &range.1, &mut |key, value| {
            let seq = key_seq(key);
            match keys::decode_record(seq, value).and_then(|record| record.event()) {
                Ok(event) => ExecutionView::refold(&mut view, id, seq, &event),
                Err(error) => {
                    failed = Some(error);
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        })?;
        if let Some(error) = failed {
            return Err(error.into());
        }
        from = upto.next();
    }
    Ok(view)
}

/// Executions that a fold keeps in memory at a time.
const EXECUTIONS_MAX: usize = 16_384;

/// The executions of a prefix while it is folded. Those that did not fit are
/// folded again from their records when they come back, which is rare.
struct PrefixTable<'a> {
    kv: &'a dyn KvRead,
    row: &'a KvRow,
    /// Every record up to here, so that all of a prefix is found alike.
    segments: Vec<Segment>,
    known: HashMap<ExecutionId, ExecutionView>,
    forgot: bool,
    at: Seq,
    failed: Option<EngineError>,
}

impl<'a> PrefixTable<'a> {
    fn new(kv: &'a dyn KvRead, row: &'a KvRow) -> Self {
        let own = Segment { uid: row.store.clone(), upto: row.row.view.head.seq.get() };
        let segments = row.segments.iter().cloned().chain([own]).collect();
        let known = HashMap::new();
        Self { kv, row, segments, known, forgot: false, at: Seq::ZERO, failed: None }
    }

    fn first_seq(&self, id: &ExecutionId) -> Result<Option<Seq>, OpError> {
        if let Some(latest) = self.row.row.view.latest.as_ref().filter(|latest| latest.id == *id) {
            return Ok(Some(latest.first_seq));
        }
        for segment in &self.segments {
            let key = keys::execution(&segment.uid, id);
            let Some(stored) = self.kv.get(Space::Executions, &key)? else { continue };
            let first = row::decode_execution(&stored)?.first_seq;
            if first.get() <= segment.upto {
                return Ok(Some(first));
            }
        }
        Ok(None)
    }

    fn find(&self, id: &ExecutionId) -> Result<Option<ExecutionView>, OpError> {
        if let Some(view) = self.known.get(id) {
            return Ok(Some(view.clone()));
        }
        if !self.forgot {
            return Ok(None);
        }
        let from = match self.first_seq(id)? {
            Some(first) if first < self.at => first,
            _ => return Ok(None),
        };
        refold_execution(self.kv, &self.segments, id, (from, Seq::new(self.at.get() - 1)))
    }
}

impl ExecutionTable for PrefixTable<'_> {
    fn load(&mut self, id: &ExecutionId) -> Result<Option<ExecutionView>, LogError> {
        self.find(id).or_else(|error| match error {
            OpError::Refused(error) => Err(error),
            OpError::Engine(error) => {
                self.failed = Some(error);
                Ok(None)
            }
        })
    }

    fn store(&mut self, view: &ExecutionView) -> Result<(), LogError> {
        if self.known.len() >= EXECUTIONS_MAX {
            self.known.clear();
            self.forgot = true;
        }
        self.known.insert(view.id.clone(), view.clone());
        Ok(())
    }
}

/// The view of a session as it was at `at`.
pub(super) fn view_at(kv: &dyn KvRead, row: &KvRow, at: Head) -> Result<SessionView, OpError> {
    let view = &row.row.view;
    if at.seq > view.head.seq {
        return Err(LogError::Invalid("the position is beyond the head").into());
    }
    if at.seq == view.head.seq {
        return if at == view.head { Ok(view.clone()) } else { Err(moved(at, view.head)) };
    }
    let mut folded = SessionView::default();
    let mut table = PrefixTable::new(kv, row);
    if at.seq > Seq::ZERO {
        each_event(kv, row, Seq::new(1), at.seq, |record, event| {
            table.at = record.seq;
            folded.apply(&event, record.head(), record.canonical.len(), &mut table)?;
            table.failed.take().map_or(Ok(()), |error| Err(error.into()))
        })?;
    }
    if folded.head == at { Ok(folded) } else { Err(moved(at, folded.head)) }
}

fn moved(expected: Head, head: Head) -> OpError {
    LogError::Conflict { expected, head }.into()
}
