//! Recording that a session is to be deleted.

use std::sync::Arc;

use mainspring_api::{
    AppendId, DeletionState, Entropy, Event, EventBody, Head, Lifecycle, LifecycleKind,
};
use mainspring_eventlog::{Holder, LogError, mint_any};

use crate::error::ControllerError;
use crate::journal::Journal;
use crate::observer::Observer;
use crate::writer::Writer;

/// How often a deletion follows a head that a writer which was superseded
/// meanwhile has still moved.
const TRIES_MAX: usize = 8;

/// With whose means a deletion is recorded.
#[derive(Debug, Clone)]
pub struct Deletion {
    /// Who mints the fence.
    pub holder: Holder,
    /// Source of ids.
    pub entropy: Arc<dyn Entropy>,
    /// Is told of the record.
    pub observer: Arc<dyn Observer>,
}

/// Records that the session is to be deleted, under a fence of its own: whoever
/// drives a turn of it elsewhere can record nothing more. Drops nothing, and
/// calls no harness.
///
/// # Guarantees
/// A session has at most one such record of its own: deleting it again does
/// nothing and mints nothing.
///
/// # Errors
/// The log's: `Tampered` when the journal does not hold. Nothing was recorded.
pub async fn delete(journal: &Journal, request: &Deletion) -> Result<Head, ControllerError> {
    let row = journal.open().await?;
    if row.view.deletion == DeletionState::Pending {
        return Ok(row.view.head);
    }
    // Not only if the head is still there: that would starve while it moves.
    let id = || AppendId::random(&*request.entropy);
    let fence = mint_any(&**journal.log(), journal.uid(), id, request.holder.clone()).await?;
    let mut conflict = None;
    for _ in 0..TRIES_MAX {
        let row = journal.open().await?;
        if row.view.deletion == DeletionState::Pending {
            return Ok(row.view.head);
        }
        let (observer, entropy) = (Arc::clone(&request.observer), Arc::clone(&request.entropy));
        let mut writer = Writer::new(journal.clone(), fence, row.view.head, observer, entropy);
        let body = Lifecycle { kind: LifecycleKind::Delete, ..Lifecycle::default() };
        match writer.append_one(Event::of(EventBody::Lifecycle(Some(body))).into()).await {
            Ok(_) => return Ok(writer.head),
            Err(error @ LogError::Conflict { .. }) => conflict = Some(error),
            Err(error) => return Err(error.into()),
        }
    }
    Err(conflict.unwrap_or(LogError::Moved { what: "the head" }).into())
}
