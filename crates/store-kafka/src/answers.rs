//! What an operation answers, from its verdict.

use mainspring_api::{AppendId, OsEntropy};
use mainspring_eventlog::LogError;
use mainspring_eventlog::replica::{Op, Reply};

use crate::judge::Void;

/// The answer of an operation that counts, where that follows from itself.
pub(crate) fn counted(op: &Op) -> Reply {
    match op {
        Op::Append { batch, .. } => Reply::Head(batch.head()),
        Op::Mint { current, .. } => Reply::Fence(current.next()),
        _ => Reply::Done,
    }
}

/// The id that an operation carries.
pub(crate) fn id_of(op: &Op) -> AppendId {
    match op {
        Op::Create { id, .. }
        | Op::Update { id, .. }
        | Op::Append { id, .. }
        | Op::Mint { id, .. }
        | Op::Fork { id, .. }
        | Op::Publish { id, .. }
        | Op::PutNamed { id, .. } => *id,
        _ => AppendId::random(&OsEntropy),
    }
}

/// What an operation that does not count is refused with.
pub(crate) fn refusal(op: &Op, void: Void) -> LogError {
    let session = op.terms().and_then(|terms| terms.session().cloned());
    match (void, op) {
        (
            Void::NotFound | Void::Version,
            Op::BeginImport { .. } | Op::Stage { .. } | Op::Publish { .. } | Op::Unstage { .. },
        ) => LogError::Moved { what: "an import of the same id" },
        (Void::NotFound, _) => session
            .map_or(LogError::Invalid("there is nothing of that name"), LogError::SessionNotFound),
        (Void::Exists, Op::Fork { children, .. }) => {
            LogError::AlreadyExists(children[0].0.uid.clone())
        }
        (Void::Exists, _) => session
            .map_or(LogError::Moved { what: "an import of the same id" }, LogError::AlreadyExists),
        (Void::Head(head), Op::Append { batch, .. }) => {
            LogError::Conflict { expected: batch.base(), head }
        }
        (Void::Head(head), Op::Mint { head: Some(expected), .. }) => {
            LogError::Conflict { expected: *expected, head }
        }
        (Void::Head(_), _) => LogError::Moved { what: "an import of the same id" },
        (Void::Fence(current), Op::Append { .. } | Op::Annotate { .. }) => {
            LogError::Fenced { current }
        }
        (Void::Fence(_), _) => LogError::Moved { what: "the fence" },
        (Void::Version, Op::Annotate { .. }) => LogError::Moved { what: "the note" },
        (Void::Version, _) => LogError::Moved { what: "the row's version" },
        (Void::Owner, _) => LogError::Invalid("the session has an owner already"),
        (Void::Deleted, _) => {
            session.map_or(LogError::Invalid("the session is to be deleted"), LogError::Deleted)
        }
        (Void::Beyond, Op::Fork { .. }) => LogError::Invalid("the position is beyond the head"),
        (Void::Beyond, _) => LogError::Invalid("there is no such record of this session"),
        (Void::Misplaced, _) => {
            LogError::Invalid("it does not belong into the partition that it was written to")
        }
        (Void::Frame, _) => LogError::Unavailable {
            message: "the store stopped while the message was judged".to_owned(),
            outcome: mainspring_api::Outcome::Unknown,
            source: None,
        },
    }
}

/// The answer of an operation that answers in one way alone.
macro_rules! answer {
    ($reply:expr, $variant:ident) => {
        match $reply? {
            Reply::$variant(value) => Ok(value),
            other => unreachable!("this operation answers otherwise: {other:?}"),
        }
    };
}
pub(crate) use answer;
