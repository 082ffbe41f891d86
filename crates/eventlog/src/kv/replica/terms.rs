//! What decides about an operation, and nothing else of it.

use mainspring_api::{Event, EventBody, Fence, Head, LifecycleKind, Seq, SessionUid};

use super::Op;
use crate::chain::StoredRecord;
use crate::log::RowKey;

/// What decides about an operation. A decision needs no clock, no configuration
/// and no event.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "as the fields of the operations")]
pub enum Terms {
    /// The session must not be there.
    Create { session: SessionUid, owned: bool },
    /// The row must have this version, and no owner if it is given one.
    Update { session: SessionUid, version: u64, sets_owner: bool },
    /// The journal must end at `base`, and the fence must not be older than the
    /// one in force. Ends it at `head`.
    Append { session: SessionUid, base: Head, head: Head, fence: Fence, deletes: bool },
    /// The fence must be `current`, and the journal end at `at` if it is given.
    Mint { session: SessionUid, current: Fence, at: Option<Head> },
    /// The parent must be there, reach `at` and not be deleted, and no child be there.
    Fork { parent: SessionUid, at: Seq, children: Vec<Child> },
    /// The record must be there, the fence as for an append, and the session
    /// have as many later notes as the writer saw.
    Annotate { session: SessionUid, seq: Seq, fence: Fence, notes: u64 },
    /// No import of that name may be open, and this be its generation.
    BeginImport { store: SessionUid, generation: u64 },
    /// The import must be open, of that generation, and end at `after`.
    Stage {
        store: SessionUid,
        generation: u64,
        after: Head,
        head: Head,
        fence: Fence,
        deletes: bool,
    },
    /// The import must be open and end at `head`, and the session not be there.
    Publish { store: SessionUid, session: SessionUid, head: Head, owned: bool },
    /// The import must be open and of that generation.
    Unstage { store: SessionUid, generation: u64 },
    /// The row must have this version.
    PutNamed { key: RowKey, version: u64 },
}

/// A child of a fork.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Child {
    /// Its uid.
    pub session: SessionUid,
    /// Where its journal ends, with its marker.
    pub head: Head,
    /// Whether it has an owner.
    pub owned: bool,
}

impl Terms {
    /// The session that it is about; of a fork the parent, of a publication the
    /// session that comes of it.
    #[must_use]
    pub const fn session(&self) -> Option<&SessionUid> {
        match self {
            Self::Create { session, .. }
            | Self::Update { session, .. }
            | Self::Append { session, .. }
            | Self::Mint { session, .. }
            | Self::Annotate { session, .. }
            | Self::Publish { session, .. }
            | Self::Fork { parent: session, .. } => Some(session),
            Self::BeginImport { .. }
            | Self::Stage { .. }
            | Self::Unstage { .. }
            | Self::PutNamed { .. } => None,
        }
    }
}

impl Op {
    /// What decides about it; `None` for what only embedded stores do. What a
    /// caller does not know (generations, counts of notes) is 0.
    #[must_use]
    pub fn terms(&self) -> Option<Terms> {
        Some(match self {
            Self::Create { session, .. } => {
                Terms::Create { session: session.uid.clone(), owned: session.owner.is_some() }
            }
            Self::Update { session, version, patch, .. } => Terms::Update {
                session: session.clone(),
                version: *version,
                sets_owner: patch.owner.is_some(),
            },
            Self::Append { session, fence, batch, .. } => Terms::Append {
                session: session.clone(),
                base: batch.base(),
                head: batch.head(),
                fence: *fence,
                deletes: batch.events().any(deletes),
            },
            Self::Mint { session, current, head, .. } => {
                Terms::Mint { session: session.clone(), current: *current, at: *head }
            }
            Self::Fork { parent, at, children, .. } => {
                let child = |(session, batch): &(crate::log::NewSession, crate::chain::Batch)| {
                    let owned = session.owner.is_some();
                    Child { session: session.uid.clone(), head: batch.head(), owned }
                };
                let children = children.iter().map(child).collect();
                Terms::Fork { parent: parent.clone(), at: at.seq, children }
            }
            Self::Annotate { session, seq, fence, .. } => {
                Terms::Annotate { session: session.clone(), seq: *seq, fence: *fence, notes: 0 }
            }
            Self::BeginImport { store } => {
                Terms::BeginImport { store: store.clone(), generation: 0 }
            }
            Self::Stage { store, after, records } => Terms::Stage {
                store: store.clone(),
                generation: 0,
                after: *after,
                head: records.last().map_or(*after, |(record, _)| record.head()),
                fence: highest(records),
                deletes: records.iter().any(|(_, event)| deletes(event)),
            },
            Self::Publish { store, row, head, .. } => Terms::Publish {
                store: store.clone(),
                session: row.session.uid.clone(),
                head: *head,
                owned: row.session.owner.is_some(),
            },
            Self::Unstage { store } => Terms::Unstage { store: store.clone(), generation: 0 },
            Self::PutNamed { key, version, .. } => {
                Terms::PutNamed { key: key.clone(), version: *version }
            }
            Self::Bury { .. } | Self::Reclaim { .. } | Self::CatchUp { .. } => return None,
        })
    }
}

fn highest(records: &[(StoredRecord, Event)]) -> Fence {
    records.iter().map(|(record, _)| record.fence).max().unwrap_or(Fence::NONE)
}

/// Whether an event marks its session as one to be deleted.
fn deletes(event: &Event) -> bool {
    matches!(&event.body, EventBody::Lifecycle(Some(body)) if body.kind == LifecycleKind::Delete)
}
