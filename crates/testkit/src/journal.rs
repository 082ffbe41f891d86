//! A journal looked at from outside: the contract alone, nothing cached.

use std::collections::HashMap;

use futures_util::TryStreamExt as _;
use mainspring_api::{Event, ExecutionId, Fence, Head, Seq, SessionUid};
use mainspring_eventlog::{
    Batch, EventLog, ExecutionView, Level, LogError, NewRecord, NewSession, ReadLimit, SessionRow,
    SessionView, StoredRecord, Verified,
};

use crate::sample;

/// Creates a session of the project `default` under a fresh id.
///
/// # Errors
/// As [`EventLog::create`].
pub async fn create(log: &dyn EventLog, uid: &SessionUid) -> Result<SessionRow, LogError> {
    log.create(sample::fresh_id(), NewSession::bare(uid.clone(), "default")).await
}

/// Appends `records` at the session's head, under its fence in force and a fresh id.
///
/// # Errors
/// As [`EventLog::append`].
pub async fn append(
    log: &dyn EventLog,
    uid: &SessionUid,
    records: Vec<NewRecord>,
) -> Result<Head, LogError> {
    let row = log.get(uid, Level::Strict).await?;
    let fence = row.fence.fence.max(Fence::NONE);
    let batch = Batch::link(row.view.head, records)?;
    log.append(uid, sample::fresh_id(), fence, &batch).await
}

/// Appends `turns` after `at` under the fence in force, or the first one, several of them at a time;
/// `events` are those of one turn. Returns the head after them.
///
/// # Errors
/// As [`EventLog::append`].
pub async fn append_turns(
    log: &dyn EventLog,
    uid: &SessionUid,
    mut at: Head,
    turns: std::ops::Range<u64>,
    at_a_time: u64,
    events: impl Fn(u64) -> Vec<Event>,
) -> Result<Head, LogError> {
    let fence = log.get(uid, Level::Strict).await?.fence.fence.max(Fence::new(1));
    let mut next = turns.start;
    while next < turns.end {
        let upto = (next + at_a_time).min(turns.end);
        let batch = Batch::link(at, sample::records((next..upto).flat_map(&events)))?;
        at = log.append(uid, sample::fresh_id(), fence, &batch).await?;
        next = upto;
    }
    Ok(at)
}

/// All records of a journal, by pages.
///
/// # Errors
/// As [`EventLog::read`].
///
/// # Panics
/// When a page does not start where it was asked to.
pub async fn read_all(log: &dyn EventLog, uid: &SessionUid) -> Result<Vec<StoredRecord>, LogError> {
    let mut records: Vec<StoredRecord> = Vec::new();
    loop {
        let from = records.last().map_or(Seq::new(1), |last| last.seq.next());
        let page = log.read(uid, from, ReadLimit::default(), Level::Strict).await?;
        let Some(first) = page.first() else { return Ok(records) };
        assert_eq!(first.seq, from, "a page starts where it was asked to");
        records.extend(page);
    }
}

/// The fold of a journal, made afresh from its records.
///
/// # Errors
/// As [`EventLog::read`] and [`StoredRecord::event`].
pub async fn fold_all(log: &dyn EventLog, uid: &SessionUid) -> Result<SessionView, LogError> {
    fold_records(&read_all(log, uid).await?)
}

fn fold_records(records: &[StoredRecord]) -> Result<SessionView, LogError> {
    let mut table: HashMap<ExecutionId, ExecutionView> = HashMap::new();
    let mut view = SessionView::default();
    for record in records {
        view.apply(&record.event()?, record.head(), record.canonical.len(), &mut table)?;
    }
    Ok(view)
}

/// Verifies a whole journal and returns its head.
///
/// # Errors
/// As [`EventLog::verify`].
///
/// # Panics
/// When the stream ends with neither a result nor an error, or goes on after one.
pub async fn verify_all(log: &dyn EventLog, uid: &SessionUid) -> Result<Head, LogError> {
    let steps: Vec<Verified> = log.verify(uid, Head::EMPTY).try_collect().await?;
    match steps.as_slice() {
        [progress @ .., Verified::Done(head)]
            if progress.iter().all(|step| matches!(step, Verified::Checked { .. })) =>
        {
            Ok(*head)
        }
        other => panic!("a verification ends with exactly one Done, not {other:?}"),
    }
}
