//! The frozen rules: which entry of the log counts.
//!
//! Every host judges every entry in offset order, by what the entries before it
//! left behind, and comes to the same verdict: there is no clock, no setting and
//! no payload in it. The first valid writer wins.

use mainspring_api::{Fence, Hash, Head, Seq, SessionUid};
use mainspring_eventlog::replica::{Child, Terms};
use sha2::{Digest as _, Sha256};

/// What is known of one session, row or import: all that a verdict needs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// Where its journal ends.
    pub(crate) head: Head,
    /// The fence in force; of an import, the highest that was staged.
    pub(crate) fence: Fence,
    /// Of its row; of an import, its generation.
    pub(crate) version: u64,
    /// Notes that were added later.
    pub(crate) notes: u64,
    flags: u8,
}

const OWNED: u8 = 1;
const DELETED: u8 = 2;
/// An import that can go on.
const OPEN: u8 = 4;
/// An import that is a session now.
const PUBLISHED: u8 = 8;

impl State {
    const fn is(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    fn set(&mut self, flag: u8, on: bool) {
        if on {
            self.flags |= flag;
        } else {
            self.flags &= !flag;
        }
    }

    /// Its stored form.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(72);
        out.push(self.flags);
        for number in [self.head.seq.get(), self.fence.get(), self.version, self.notes] {
            out.extend_from_slice(&number.to_be_bytes());
        }
        if let Some(hash) = self.head.hash {
            out.extend_from_slice(hash.as_bytes());
        }
        out
    }

    pub(crate) fn decode(stored: &[u8]) -> Option<Self> {
        let (flags, mut rest) = stored.split_first()?;
        let mut next = || {
            let (number, tail) = rest.split_first_chunk::<8>()?;
            rest = tail;
            Some(u64::from_be_bytes(*number))
        };
        let (seq, fence, version, notes) = (next()?, next()?, next()?, next()?);
        let head = match rest {
            [] if seq == 0 => Head::EMPTY,
            hash => Head::at(Seq::new(seq), Hash::new(hash.try_into().ok()?)),
        };
        Some(Self { head, fence: Fence::new(fence), version, notes, flags: *flags })
    }
}

/// Why an entry does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Void {
    /// There is no such session, or no such open import.
    NotFound,
    /// It is there already.
    Exists,
    /// The journal ends here, and not where it was expected to.
    Head(Head),
    /// This fence is in force.
    Fence(Fence),
    /// The version, generation or count is another.
    Version,
    /// There is an owner already.
    Owner,
    /// The session is to be deleted.
    Deleted,
    /// The position is beyond the head, or was never there.
    Beyond,
    /// It belongs into another partition, or nowhere.
    Misplaced,
    /// The whole frame does not count.
    Frame,
}

impl Void {
    const fn code(self) -> u8 {
        match self {
            Self::NotFound => 1,
            Self::Exists => 2,
            Self::Head(_) => 3,
            Self::Fence(_) => 4,
            Self::Version => 5,
            Self::Owner => 6,
            Self::Deleted => 7,
            Self::Beyond => 8,
            Self::Misplaced => 9,
            Self::Frame => 10,
        }
    }
}

/// What became of an entry.
pub(crate) type Verdict = Result<(), Void>;

/// What the entries before left behind.
pub(crate) trait States {
    /// Why what was left behind cannot be looked up.
    type Error;

    /// The state of a name.
    fn get(&mut self, name: &Name) -> Result<Option<State>, Self::Error>;

    /// Changes it.
    fn put(&mut self, name: Name, state: State);
}

/// The name of a session, row or import, in one space.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Name(Box<[u8]>);

impl Name {
    pub(crate) fn session(uid: &SessionUid) -> Self {
        Self([b"s", uid.as_str().as_bytes()].concat().into())
    }

    pub(crate) fn import(store: &SessionUid) -> Self {
        Self([b"i", store.as_str().as_bytes()].concat().into())
    }

    pub(crate) fn row(key: &mainspring_eventlog::RowKey) -> Self {
        Self([b"r", key.kind().as_bytes(), b"\0", key.name().as_bytes()].concat().into())
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The partitions of a store, and the one that is judged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) partition: u32,
    pub(crate) partitions: u32,
}

/// The partition of a session, and of an import by the name of its staging.
pub(crate) fn partition_of(uid: &SessionUid, partitions: u32) -> u32 {
    let hash = Sha256::digest(uid.as_str().as_bytes());
    let first = hash.first_chunk::<8>().map_or(0, |first| u64::from_be_bytes(*first));
    u32::try_from(first % u64::from(partitions.max(1))).expect("less than a u32")
}

/// The partition of all named rows.
pub(crate) const ROWS_PARTITION: u32 = 0;

/// Judges one entry, and moves what it counts for.
pub(crate) fn judge<S: States>(
    states: &mut S,
    place: Place,
    terms: &Terms,
) -> Result<Verdict, S::Error> {
    let lives_here = |uid: &SessionUid| partition_of(uid, place.partitions) == place.partition;
    let misplaced = match terms {
        Terms::Create { session, .. }
        | Terms::Update { session, .. }
        | Terms::Append { session, .. }
        | Terms::Mint { session, .. }
        | Terms::Annotate { session, .. }
        | Terms::Publish { session, .. } => !lives_here(session),
        Terms::Fork { parent, children, .. } => {
            !lives_here(parent) || !children.iter().all(|child| lives_here(&child.session))
        }
        Terms::PutNamed { .. } => place.partition != ROWS_PARTITION,
        // Staged wherever it is published: its name says nothing of that.
        Terms::BeginImport { .. } | Terms::Stage { .. } | Terms::Unstage { .. } => false,
    };
    if misplaced {
        return Ok(Err(Void::Misplaced));
    }
    match terms {
        Terms::Create { session, owned } => create(states, session, *owned),
        Terms::Fork { parent, at, children } => fork(states, parent, *at, children),
        Terms::Publish { store, session, head, owned } => {
            publish(states, store, session, *head, *owned)
        }
        Terms::Update { session, .. }
        | Terms::Append { session, .. }
        | Terms::Mint { session, .. }
        | Terms::Annotate { session, .. } => {
            let name = Name::session(session);
            let Some(mut state) = states.get(&name)? else { return Ok(Err(Void::NotFound)) };
            let verdict = on_session(&mut state, terms);
            if verdict.is_ok() {
                states.put(name, state);
            }
            Ok(verdict)
        }
        Terms::BeginImport { store, .. }
        | Terms::Stage { store, .. }
        | Terms::Unstage { store, .. } => {
            let name = Name::import(store);
            let mut state = states.get(&name)?.unwrap_or_default();
            let verdict = on_import(&mut state, terms);
            if verdict.is_ok() {
                states.put(name, state);
            }
            Ok(verdict)
        }
        Terms::PutNamed { key, version } => {
            let name = Name::row(key);
            let mut state = states.get(&name)?.unwrap_or_default();
            if state.version != *version {
                return Ok(Err(Void::Version));
            }
            state.version = state.version.saturating_add(1);
            states.put(name, state);
            Ok(Ok(()))
        }
    }
}

fn create<S: States>(
    states: &mut S,
    session: &SessionUid,
    owned: bool,
) -> Result<Verdict, S::Error> {
    let name = Name::session(session);
    if states.get(&name)?.is_some() {
        return Ok(Err(Void::Exists));
    }
    let mut state = State { version: 1, ..State::default() };
    state.set(OWNED, owned);
    states.put(name, state);
    Ok(Ok(()))
}

/// Positions and imported fences beyond it are refused, as they are at every
/// other door: every reader of the wire form takes what is below.
const NUMBER_MAX: u64 = 1 << 53;

fn goes_on(base: Head, head: Head) -> bool {
    head.seq > base.seq && head.seq.get() <= NUMBER_MAX
}

fn on_session(state: &mut State, terms: &Terms) -> Verdict {
    match terms {
        Terms::Append { base, head, fence, deletes, .. } => {
            if *base != state.head {
                return Err(Void::Head(state.head));
            }
            if *fence < state.fence {
                return Err(Void::Fence(state.fence));
            }
            if !goes_on(*base, *head) {
                return Err(Void::Beyond);
            }
            state.head = *head;
            state.set(DELETED, *deletes || state.is(DELETED));
            Ok(())
        }
        Terms::Mint { current, at, .. } => {
            if at.is_some_and(|at| at != state.head) {
                return Err(Void::Head(state.head));
            }
            if *current != state.fence {
                return Err(Void::Fence(state.fence));
            }
            state.fence = Fence::new(state.fence.get().saturating_add(1));
            Ok(())
        }
        Terms::Update { version, sets_owner, .. } => {
            if *version != state.version {
                return Err(Void::Version);
            }
            if *sets_owner && state.is(OWNED) {
                return Err(Void::Owner);
            }
            state.version = state.version.saturating_add(1);
            state.set(OWNED, *sets_owner || state.is(OWNED));
            Ok(())
        }
        Terms::Annotate { seq, fence, notes, .. } => {
            if *fence < state.fence {
                return Err(Void::Fence(state.fence));
            }
            if *seq == Seq::ZERO || *seq > state.head.seq {
                return Err(Void::Beyond);
            }
            if *notes != state.notes {
                return Err(Void::Version);
            }
            state.notes = state.notes.saturating_add(1);
            Ok(())
        }
        _ => Err(Void::Misplaced),
    }
}

/// Children a fork may have.
const CHILDREN_MAX: usize = 128;

fn fork<S: States>(
    states: &mut S,
    parent: &SessionUid,
    at: Seq,
    children: &[Child],
) -> Result<Verdict, S::Error> {
    let Some(parent) = states.get(&Name::session(parent))? else {
        return Ok(Err(Void::NotFound));
    };
    if parent.is(DELETED) {
        return Ok(Err(Void::Deleted));
    }
    let follows = |child: &Child| child.head.seq.get().checked_sub(1) == Some(at.get());
    if at > parent.head.seq
        || !children.iter().all(follows)
        || !(1..=CHILDREN_MAX).contains(&children.len())
    {
        return Ok(Err(Void::Beyond));
    }
    for (place, child) in children.iter().enumerate() {
        let twice = children[..place].iter().any(|other| other.session == child.session);
        if twice || states.get(&Name::session(&child.session))?.is_some() {
            return Ok(Err(Void::Exists));
        }
    }
    for child in children {
        let mut state =
            State { head: child.head, fence: Fence::new(1), version: 1, ..State::default() };
        state.set(OWNED, child.owned);
        states.put(Name::session(&child.session), state);
    }
    Ok(Ok(()))
}

fn on_import(state: &mut State, terms: &Terms) -> Verdict {
    match terms {
        Terms::BeginImport { generation, .. } => {
            if state.is(OPEN) || state.is(PUBLISHED) {
                return Err(Void::Exists);
            }
            if *generation != state.version {
                return Err(Void::Version);
            }
            *state = State { version: state.version, ..State::default() };
            state.set(OPEN, true);
            Ok(())
        }
        Terms::Stage { generation, after, head, fence, deletes, .. } => {
            if !state.is(OPEN) {
                return Err(Void::NotFound);
            }
            if *generation != state.version {
                return Err(Void::Version);
            }
            if *after != state.head {
                return Err(Void::Head(state.head));
            }
            if !goes_on(*after, *head) || fence.get() > NUMBER_MAX {
                return Err(Void::Beyond);
            }
            state.head = *head;
            state.fence = state.fence.max(*fence);
            state.set(DELETED, *deletes || state.is(DELETED));
            Ok(())
        }
        Terms::Unstage { generation, .. } => {
            if !state.is(OPEN) {
                return Err(Void::NotFound);
            }
            if *generation != state.version {
                return Err(Void::Version);
            }
            // A later begin has another generation, so that nothing that was
            // staged for this one can count for it.
            *state = State { version: state.version.saturating_add(1), ..State::default() };
            Ok(())
        }
        _ => Err(Void::Misplaced),
    }
}

fn publish<S: States>(
    states: &mut S,
    store: &SessionUid,
    session: &SessionUid,
    head: Head,
    owned: bool,
) -> Result<Verdict, S::Error> {
    let name = Name::import(store);
    let Some(mut staged) = states.get(&name)?.filter(|staged| staged.is(OPEN)) else {
        return Ok(Err(Void::NotFound));
    };
    if staged.head != head {
        return Ok(Err(Void::Head(staged.head)));
    }
    let session = Name::session(session);
    if states.get(&session)?.is_some() {
        return Ok(Err(Void::Exists));
    }
    let mut state = State { head, fence: staged.fence, version: 1, ..State::default() };
    state.set(OWNED, owned);
    state.set(DELETED, staged.is(DELETED));
    staged.set(OPEN, false);
    staged.set(PUBLISHED, true);
    states.put(name, staged);
    states.put(session, state);
    Ok(Ok(()))
}

/// The digest of a fold: over every message, in order, and what became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct FoldDigest(pub(crate) [u8; 32]);

impl FoldDigest {
    /// After the message at `offset`, whose entries had these heads and verdicts.
    pub(crate) fn after<'a>(
        &self,
        offset: u64,
        entries: impl Iterator<Item = (&'a [u8], Verdict)>,
    ) -> Self {
        let mut sha = Sha256::new();
        sha.update(self.0);
        sha.update(offset.to_be_bytes());
        for (head, verdict) in entries {
            sha.update([verdict.err().map_or(0, Void::code)]);
            sha.update((head.len() as u64).to_be_bytes());
            sha.update(head);
        }
        Self(sha.finalize().into())
    }
}
