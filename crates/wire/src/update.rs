//! Updates of a running turn, and of a session that is followed.

use mainspring_api::{Delta, ExecUpdate, FollowUpdate};

use crate::error::{WireError, Within as _};
use crate::scalar::execution_id;
use crate::session::{NotesField, record_to_wire};
use crate::{operations_v1, v1};

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
            Wire::Heartbeat(_) => return Err(WireError::heartbeat("heartbeat")),
        })
    }
}

/// An update of a followed session for the wire.
///
/// # Errors
/// As for a record.
pub fn follow_to_wire(
    update: FollowUpdate,
    notes: NotesField,
) -> Result<operations_v1::FollowUpdate, WireError> {
    use operations_v1::follow_update::{DeltaGap, Heartbeat, Update as Wire};
    let update = match update {
        FollowUpdate::Record(record) => {
            Wire::Record(record_to_wire(*record, notes).within("record")?)
        }
        FollowUpdate::Delta(delta) => Wire::Delta(delta.into()),
        FollowUpdate::DeltaGap => Wire::DeltaGap(DeltaGap {}),
        FollowUpdate::Heartbeat => Wire::Heartbeat(Heartbeat {}),
    };
    Ok(operations_v1::FollowUpdate { update: Some(update) })
}

impl TryFrom<operations_v1::FollowUpdate> for FollowUpdate {
    type Error = WireError;

    fn try_from(update: operations_v1::FollowUpdate) -> Result<Self, WireError> {
        use operations_v1::follow_update::Update as Wire;
        Ok(match update.update.ok_or_else(|| WireError::missing("update"))? {
            Wire::Record(record) => Self::Record(Box::new(record.try_into().within("record")?)),
            Wire::Delta(delta) => Self::Delta(delta.try_into().within("delta")?),
            Wire::DeltaGap(_) => Self::DeltaGap,
            Wire::Heartbeat(_) => Self::Heartbeat,
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
