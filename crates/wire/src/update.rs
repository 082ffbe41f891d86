//! Updates of a running turn.

use mainspring_api::{Delta, ExecUpdate};

use crate::error::{WireError, Within as _};
use crate::scalar::execution_id;
use crate::session::{NotesField, record_to_wire};
use crate::v1;

/// An update for the wire.
///
/// # Errors
/// As for a session and a record.
pub fn update_to_wire(update: ExecUpdate, notes: NotesField) -> Result<v1::ExecUpdate, WireError> {
    use v1::exec_update::Update as Wire;
    let update = match update {
        ExecUpdate::Session(session) => Wire::Session((*session).try_into().within("session")?),
        ExecUpdate::Record(record) => {
            Wire::Record(record_to_wire(*record, notes).within("record")?)
        }
        ExecUpdate::Delta(delta) => Wire::Delta(delta.into()),
    };
    Ok(v1::ExecUpdate { update: Some(update) })
}

impl TryFrom<v1::ExecUpdate> for ExecUpdate {
    type Error = WireError;

    fn try_from(update: v1::ExecUpdate) -> Result<Self, WireError> {
        use v1::exec_update::Update as Wire;
        Ok(match update.update.ok_or_else(|| WireError::missing("update"))? {
            Wire::Session(session) => {
                Self::Session(Box::new(session.try_into().within("session")?))
            }
            Wire::Record(record) => Self::Record(Box::new(record.try_into().within("record")?)),
            Wire::Delta(delta) => Self::Delta(delta.try_into().within("delta")?),
        })
    }
}

impl From<Delta> for v1::Delta {
    fn from(delta: Delta) -> Self {
        Self {
            execution_id: delta.execution_id.to_string(),
            part_index: delta.part_index,
            chunk: delta.chunk,
            done: delta.done,
        }
    }
}

impl TryFrom<v1::Delta> for Delta {
    type Error = WireError;

    fn try_from(delta: v1::Delta) -> Result<Self, WireError> {
        Ok(Self {
            execution_id: execution_id("execution_id", &delta.execution_id)?,
            part_index: delta.part_index,
            chunk: delta.chunk,
            done: delta.done,
        })
    }
}
