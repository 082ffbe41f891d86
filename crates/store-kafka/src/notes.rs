//! Notes that are added to a record later, each once.

use mainspring_api::{Fence, Seq, SessionUid};
use mainspring_eventlog::replica::{Op, Terms};
use mainspring_eventlog::{Level, LogError, ReadLimit};

use crate::judge::Name;
use crate::shared::Core;

/// How often a note is tried again because another one came first.
const TRIES_MAX: usize = 16;

/// Adds a note, unless it is there.
///
/// That it is not there holds for the count of notes that this host has seen,
/// which the entry states: another note in between makes it void.
pub(crate) async fn annotate(
    core: &Core,
    session: &SessionUid,
    seq: Seq,
    fence: Fence,
    (key, value): (&str, &str),
) -> Result<(), LogError> {
    let partition = core.partition_of(session);
    let mut level = Level::Committed;
    for _ in 0..TRIES_MAX {
        core.up_to_date(partition, level).await?;
        let replica = core.replica(partition);
        let notes = crate::states::read(replica.engine(), &Name::session(session))
            .map_err(mainspring_eventlog::replica::unavailable)?
            .map_or(0, |state| state.notes);
        let row = replica.get(session).await?;
        if fence < row.fence.fence {
            return Err(LogError::Fenced { current: row.fence.fence });
        }
        let is_own = seq > row.parent.as_ref().map_or(Seq::ZERO, |(_, at)| *at) && seq > Seq::ZERO;
        let one = ReadLimit { records: 1, bytes: 1 };
        let found = if is_own { replica.records(session, seq, one).await? } else { Vec::new() };
        let Some(record) = found.first().filter(|record| record.seq == seq) else {
            return Err(LogError::Invalid("there is no such record of this session"));
        };
        match record.notes.get(key) {
            Some(there) if there == value => return Ok(()),
            Some(_) => return Err(LogError::Moved { what: "the note" }),
            None => {}
        }
        let terms = Terms::Annotate { session: session.clone(), seq, fence, notes };
        let op = Op::Annotate {
            session: session.clone(),
            seq,
            fence,
            key: key.to_owned(),
            value: value.to_owned(),
        };
        match core.write_to(partition, op, terms).await {
            Err(LogError::Moved { .. }) => level = Level::Committed,
            answer => return answer.map(drop),
        }
    }
    Err(LogError::Moved { what: "the note" })
}
