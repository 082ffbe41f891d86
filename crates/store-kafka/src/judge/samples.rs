//! Terms of the session `s` and of the import `i` that becomes it, in short.

use mainspring_api::{Fence, Hash, Head, Seq, SessionUid};
use mainspring_eventlog::RowKey;
use mainspring_eventlog::replica::{Child, Terms};

pub(super) fn uid(name: &str) -> SessionUid {
    SessionUid::new(name).unwrap()
}

/// A head at `seq` that only the writer of this letter can have come to.
pub(super) fn head(seq: u64, writer: u8) -> Head {
    Head::at(Seq::new(seq), Hash::new([writer; 32]))
}

pub(super) fn create(session: &str) -> Terms {
    Terms::Create { session: uid(session), owned: false }
}

pub(super) fn append(base: Head, head: Head, fence: u64) -> Terms {
    Terms::Append { session: uid("s"), base, head, fence: Fence::new(fence), deletes: false }
}

pub(super) fn delete(base: Head, head: Head) -> Terms {
    Terms::Append { session: uid("s"), base, head, fence: Fence::NONE, deletes: true }
}

pub(super) fn mint(current: u64) -> Terms {
    Terms::Mint { session: uid("s"), current: Fence::new(current), at: None }
}

pub(super) fn acquire(current: u64, at: Head) -> Terms {
    Terms::Mint { session: uid("s"), current: Fence::new(current), at: Some(at) }
}

pub(super) fn update(version: u64, sets_owner: bool) -> Terms {
    Terms::Update { session: uid("s"), version, sets_owner }
}

pub(super) fn note(seq: u64, fence: u64, notes: u64) -> Terms {
    Terms::Annotate { session: uid("s"), seq: Seq::new(seq), fence: Fence::new(fence), notes }
}

pub(super) fn fork(at: u64, children: &[(&str, u8)]) -> Terms {
    let child = |(name, writer): &(&str, u8)| Child {
        session: uid(name),
        head: head(at + 1, *writer),
        owned: false,
    };
    Terms::Fork {
        parent: uid("s"),
        at: Seq::new(at),
        children: children.iter().map(child).collect(),
    }
}

pub(super) fn begin(generation: u64) -> Terms {
    Terms::BeginImport { store: uid("i"), generation }
}

pub(super) fn stage(generation: u64, after: Head, head: Head, fence: u64) -> Terms {
    let fence = Fence::new(fence);
    Terms::Stage { store: uid("i"), generation, after, head, fence, deletes: false }
}

pub(super) fn unstage(generation: u64) -> Terms {
    Terms::Unstage { store: uid("i"), generation }
}

pub(super) fn publish(generation: u64, head: Head) -> Terms {
    Terms::Publish { store: uid("i"), generation, session: uid("s"), head, owned: true }
}

pub(super) fn put(version: u64) -> Terms {
    Terms::PutNamed { key: RowKey::new("kind", "name").unwrap(), version }
}
