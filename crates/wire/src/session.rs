//! Sessions, records, identity and origin.

use mainspring_api::{IdentityRef, LogRecord, Notes, Origin, Session};

use crate::enums::{
    compute_state_from, compute_state_to, deletion_from, deletion_to, exec_state_from,
    exec_state_to,
};
use crate::error::{WireError, Within as _, optional, required};
use crate::scalar::{
    fence_from, fence_to, hash_from, seq_from, seq_to, session_uid, session_uid_opt, text_of,
    timestamp_from, timestamp_to,
};
use crate::v1;

impl From<IdentityRef> for v1::IdentityRef {
    fn from(identity: IdentityRef) -> Self {
        Self { principal: identity.principal, issuer: identity.issuer, subject: identity.subject }
    }
}

impl From<v1::IdentityRef> for IdentityRef {
    fn from(identity: v1::IdentityRef) -> Self {
        Self { principal: identity.principal, issuer: identity.issuer, subject: identity.subject }
    }
}

/// An identity where an empty one equals none.
pub(crate) fn identity_from(identity: Option<v1::IdentityRef>) -> Option<IdentityRef> {
    identity.map(IdentityRef::from).filter(|identity| !identity.is_empty())
}

/// An origin where an empty one equals none.
pub(crate) fn origin_from(origin: Option<v1::Origin>) -> Option<Origin> {
    origin.map(Origin::from).filter(|origin| *origin != Origin::default())
}

impl From<Origin> for v1::Origin {
    fn from(origin: Origin) -> Self {
        Self {
            source: origin.source,
            subject: origin.subject,
            uri: origin.uri,
            attributes: origin.attributes,
        }
    }
}

impl From<v1::Origin> for Origin {
    fn from(origin: v1::Origin) -> Self {
        Self {
            source: origin.source,
            subject: origin.subject,
            uri: origin.uri,
            attributes: origin.attributes,
        }
    }
}

/// Leaves out the owner, for which `agentsessions.v1` has no field.
impl TryFrom<Session> for v1::Session {
    type Error = WireError;

    fn try_from(session: Session) -> Result<Self, WireError> {
        let version = i64::try_from(session.version)
            .map_err(|_| WireError::out_of_range("metadata.version", session.version))?;
        Ok(Self {
            metadata: Some(v1::ResourceMetadata {
                project: session.project,
                name: session.name,
                uid: session.uid.to_string(),
                version,
                create_time: Some(
                    timestamp_to(session.create_time).within("metadata.create_time")?,
                ),
                update_time: Some(
                    timestamp_to(session.update_time).within("metadata.update_time")?,
                ),
            }),
            harness: session.harness,
            model: session.model,
            exec_state: exec_state_to(session.exec_state),
            compute_state: compute_state_to(session.compute_state),
            pending_approval: session.pending_approval.map(Into::into),
            last_seq: seq_to("last_seq", session.last_seq)?,
            parent_uid: text_of(session.parent_uid.as_ref()),
            fork_seq: seq_to("fork_seq", session.fork_seq)?,
            identity: session.identity.map(Into::into),
            compute: None,
            origin: session.origin.map(Into::into),
            labels: session.labels,
            annotations: session.annotations,
            deletion_state: deletion_to(session.deletion_state),
        })
    }
}

/// The owner is not on the wire and comes back unset. Absent times read as the
/// epoch: a list must not fail because another host left one out.
impl TryFrom<v1::Session> for Session {
    type Error = WireError;

    fn try_from(session: v1::Session) -> Result<Self, WireError> {
        let metadata = session.metadata.ok_or_else(|| WireError::missing("metadata"))?;
        let version = u64::try_from(metadata.version)
            .map_err(|_| WireError::out_of_range("metadata.version", metadata.version))?;
        let time = |field, time| Ok(optional(field, time, timestamp_from)?.unwrap_or_default());
        Ok(Self {
            uid: session_uid("metadata.uid", &metadata.uid)?,
            project: metadata.project,
            name: metadata.name,
            harness: session.harness,
            model: session.model,
            version,
            create_time: time("metadata.create_time", metadata.create_time)?,
            update_time: time("metadata.update_time", metadata.update_time)?,
            exec_state: exec_state_from("exec_state", session.exec_state)?,
            compute_state: compute_state_from("compute_state", session.compute_state)?,
            deletion_state: deletion_from(session.deletion_state),
            pending_approval: optional(
                "pending_approval",
                session.pending_approval,
                TryInto::try_into,
            )?,
            last_seq: seq_from("last_seq", session.last_seq)?,
            parent_uid: session_uid_opt("parent_uid", &session.parent_uid)?,
            fork_seq: seq_from("fork_seq", session.fork_seq)?,
            identity: identity_from(session.identity),
            origin: origin_from(session.origin),
            labels: session.labels,
            annotations: session.annotations,
            owner: None,
            fault: None,
        })
    }
}

/// Whether a record travels with its notes. They are ours, not the contract's,
/// so a client gets them only when its call asks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NotesField {
    /// Left out.
    #[default]
    Omit,
    /// Sent in the extension field.
    Send,
}

/// A record for the wire.
///
/// # Errors
/// [`WireError`] for a position or fence above `int64`, and as for an event.
pub fn record_to_wire(record: LogRecord, notes: NotesField) -> Result<v1::LogRecord, WireError> {
    Ok(v1::LogRecord {
        seq: seq_to("seq", record.seq)?,
        prev_hash: text_of(record.prev_hash.as_ref()),
        content_hash: record.hash.to_string(),
        fence: fence_to("fence", record.fence)?,
        event: Some(record.event.try_into().within("event")?),
        notes: match notes {
            NotesField::Omit => Notes::new(),
            NotesField::Send => record.notes,
        },
        heartbeat: None,
    })
}

impl TryFrom<v1::LogRecord> for LogRecord {
    type Error = WireError;

    fn try_from(record: v1::LogRecord) -> Result<Self, WireError> {
        if record.heartbeat.is_some() {
            return Err(WireError::heartbeat("heartbeat"));
        }
        let prev_hash = match record.prev_hash.as_str() {
            "" => None,
            text => Some(hash_from("prev_hash", text)?),
        };
        Ok(Self {
            seq: seq_from("seq", record.seq)?,
            prev_hash,
            hash: hash_from("content_hash", &record.content_hash)?,
            fence: fence_from("fence", record.fence)?,
            event: required("event", record.event, TryInto::try_into)?,
            notes: record.notes,
        })
    }
}
