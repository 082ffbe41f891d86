//! Every order of a few writers' messages, against what the rules promise.
//!
//! A script is a handful of messages on one partition. They are delivered in
//! every order, those of one writer too, and up to two of them once more later.
//! After each message two hosts are compared, one that has its states in memory
//! and one that reads them back as stored.

mod scripts;

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::rc::Rc;

use mainspring_api::{Fence, SessionUid};
use mainspring_eventlog::replica::Terms;

use super::{DELETED, Name, OPEN, OWNED, PUBLISHED, Place, State, States, Verdict, judge};

/// Copies that are delivered beyond the first ones.
const COPIES_MAX: usize = 2;

const PLACE: Place = Place { partition: 0, partitions: 1 };

/// What a few writers send.
struct Script {
    name: &'static str,
    /// Counts in this order, before anything else.
    before: Vec<Terms>,
    /// Each with a name that starts with its writer's.
    messages: Vec<(&'static str, Terms)>,
}

/// What a host keeps.
trait Host: Clone {
    fn state(&self, name: &Name) -> Option<State>;
    fn set(&mut self, name: &Name, state: State);
}

/// A host that has its states in memory.
#[derive(Clone, Default)]
struct InMemory(HashMap<Name, State>);

/// A host that keeps them as the view does, and reads them back each time.
#[derive(Clone, Default)]
struct Stored(BTreeMap<Vec<u8>, Vec<u8>>);

impl Host for InMemory {
    fn state(&self, name: &Name) -> Option<State> {
        self.0.get(name).copied()
    }

    fn set(&mut self, name: &Name, state: State) {
        self.0.insert(name.clone(), state);
    }
}

impl Host for Stored {
    fn state(&self, name: &Name) -> Option<State> {
        let stored = self.0.get(name.as_bytes())?;
        Some(State::decode(stored).expect("it was encoded"))
    }

    fn set(&mut self, name: &Name, state: State) {
        self.0.insert(name.as_bytes().to_vec(), state.encode());
    }
}

/// One message on one host.
struct Step<'a, H> {
    host: &'a H,
    changed: Vec<(Name, State)>,
}

impl<H: Host> States for Step<'_, H> {
    type Error = Infallible;

    fn get(&mut self, name: &Name) -> Result<Option<State>, Infallible> {
        let changed = self.changed.iter().rev().find(|(changed, _)| changed == name);
        Ok(changed.map_or_else(|| self.host.state(name), |(_, state)| Some(*state)))
    }

    fn put(&mut self, name: Name, state: State) {
        self.changed.push((name, state));
    }
}

/// Judges a message; returns what became of it and what it changed.
fn judged(host: &impl Host, terms: &Terms) -> (Verdict, Vec<(Name, State)>) {
    let mut step = Step { host, changed: Vec::new() };
    match judge(&mut step, PLACE, terms) {
        Ok(verdict) => (verdict, step.changed),
        Err(impossible) => match impossible {},
    }
}

/// The host after a message; the same one when it changed nothing.
fn after<H: Host>(host: &Rc<H>, changed: &[(Name, State)]) -> Rc<H> {
    if changed.is_empty() {
        return Rc::clone(host);
    }
    let mut after = H::clone(host);
    changed.iter().for_each(|(name, state)| after.set(name, *state));
    Rc::new(after)
}

/// What became of a message's copies so far.
#[derive(Clone, Copy, Default)]
struct Fate {
    delivered: usize,
    counted: bool,
    /// A copy did not count although its writer had read what it states: that is
    /// an answer, and no later copy may make it wrong.
    refused: bool,
}

/// Two hosts that have judged the same messages.
#[derive(Clone, Default)]
struct Hosts {
    memory: Rc<InMemory>,
    stored: Rc<Stored>,
}

/// Goes through all orders of a script.
struct Walk<'a> {
    script: &'a Script,
    /// What was delivered, for whoever reads a failure.
    order: Vec<usize>,
    /// The hosts after each message so far.
    past: Vec<Hosts>,
    orders: u64,
    /// Messages that counted in some order, and that did not in some.
    ever: Vec<(bool, bool)>,
}

impl Walk<'_> {
    /// Delivers every message that may come next, each with all that may follow.
    fn all(&mut self, fates: &mut [Fate], spare: usize) {
        if fates.iter().all(|fate| fate.delivered > 0) {
            self.orders += 1;
        }
        for at in 0..fates.len() {
            let fate = fates[at];
            let copies = usize::from(fate.delivered > 0);
            let Some(spare) = spare.checked_sub(copies) else { continue };
            self.order.push(at);
            if let Err(broken) = self.deliver(at, &mut fates[at]) {
                let names: Vec<&str> =
                    self.order.iter().map(|at| self.script.messages[*at].0).collect();
                panic!("{}: {broken}, with {}", self.script.name, names.join(" "));
            }
            self.all(fates, spare);
            self.past.pop();
            self.order.pop();
            fates[at] = fate;
        }
    }

    /// Judges one copy on both hosts, and checks every promise.
    fn deliver(&mut self, at: usize, fate: &mut Fate) -> Result<(), &'static str> {
        let terms = &self.script.messages[at].1;
        let before = self.past.last().expect("it starts with what was before");
        let (verdict, changed) = judged(&*before.memory, terms);
        if judged(&*before.stored, terms) != (verdict, changed.clone()) {
            return Err("two hosts judge the same messages otherwise");
        }
        let after = Hosts {
            memory: after(&before.memory, &changed),
            stored: after(&before.stored, &changed),
        };
        match verdict {
            Ok(()) if fate.counted => return Err("a message counts twice"),
            Ok(()) if fate.refused => return Err("a message counts that was refused before"),
            Ok(()) => {
                counts(terms, &before.memory, &after.memory)?;
                fate.counted = true;
                self.ever[at].0 = true;
            }
            Err(_) if !changed.is_empty() => return Err("what does not count changes something"),
            Err(_) => {
                let was_read = || self.past.iter().any(|past| was_read(&past.memory, terms));
                fate.refused = fate.refused || !fate.counted && was_read();
                self.ever[at].1 = true;
            }
        }
        fate.delivered += 1;
        self.past.push(after);
        Ok(())
    }
}

/// Delivers a script in all orders; returns how many there were.
fn check(script: &Script) -> u64 {
    let mut past = vec![Hosts::default()];
    for terms in &script.before {
        let Hosts { memory, stored } = past.last().expect("it starts with none");
        let (verdict, changed) = judged(&**memory, terms);
        assert_eq!(verdict, Ok(()), "{}: {terms:?}", script.name);
        let next = Hosts { memory: after(memory, &changed), stored: after(stored, &changed) };
        past.push(next);
    }
    let count = script.messages.len();
    let (order, ever) = (Vec::new(), vec![(false, false); count]);
    let mut walk = Walk { script, order, past, orders: 0, ever };
    walk.all(&mut vec![Fate::default(); count], COPIES_MAX);
    for ((name, _), ever) in script.messages.iter().zip(&walk.ever) {
        let both = (true, true);
        assert_eq!(*ever, both, "{}: {name} counts in some order, and not in all", script.name);
    }
    walk.orders
}

/// Whether a writer could read, in this state, what its message states. One that
/// states what it has not read is refused and may count later: nobody does that.
fn was_read(past: &InMemory, terms: &Terms) -> bool {
    let known = |name: Name| past.0.get(&name);
    let session = |uid: &SessionUid| known(Name::session(uid));
    let import = |store: &SessionUid| known(Name::import(store)).copied().unwrap_or_default();
    match terms {
        Terms::Create { .. } => true,
        Terms::Update { session: uid, version, .. } => {
            session(uid).is_some_and(|state| state.version >= *version)
        }
        // Its fence may have been read earlier than its head.
        Terms::Append { session: uid, base, .. } => {
            session(uid).is_some_and(|state| state.head == *base)
        }
        Terms::Mint { session: uid, current, at } => session(uid)
            .is_some_and(|state| state.fence >= *current && at.is_none_or(|at| state.head == at)),
        Terms::Fork { parent, at, .. } => {
            session(parent).is_some_and(|state| state.head.seq >= *at)
        }
        Terms::Annotate { session: uid, seq, notes, .. } => {
            session(uid).is_some_and(|state| state.head.seq >= *seq && state.notes >= *notes)
        }
        Terms::BeginImport { store, generation } => import(store).version >= *generation,
        Terms::Stage { store, generation, after, .. } => {
            let state = import(store);
            state.is(OPEN) && state.version == *generation && state.head == *after
        }
        Terms::Unstage { store, generation } => {
            let state = import(store);
            state.is(OPEN) && state.version == *generation
        }
        Terms::Publish { store, generation, head, .. } => {
            let state = import(store);
            state.is(OPEN) && state.head == *head && state.version == *generation
        }
        Terms::PutNamed { key, version } => {
            known(Name::row(key)).copied().unwrap_or_default().version >= *version
        }
    }
}

/// What has to hold of a message that counts.
fn counts(terms: &Terms, before: &InMemory, after: &InMemory) -> Result<(), &'static str> {
    let ensure = |holds: bool, broken| if holds { Ok(()) } else { Err(broken) };
    let names = names(terms);
    let others =
        |states: &InMemory| states.0.iter().filter(|(name, _)| !names.contains(name)).count();
    let kept = before
        .0
        .iter()
        .all(|(name, state)| names.contains(name) || after.0.get(name) == Some(state));
    ensure(kept && others(before) == others(after), "it changes what it is not about")?;
    let get = |states: &InMemory, at: usize| states.0.get(&names[at]).copied();
    let (was, is) = (get(before, 0), get(after, 0).unwrap_or_default());
    let old = was.unwrap_or_default();
    match terms {
        Terms::Create { owned, .. } => {
            ensure(was.is_none(), "a session is created that is there")?;
            ensure(is.version == 1 && is.is(OWNED) == *owned, "a session starts otherwise")
        }
        Terms::Update { version, sets_owner, .. } => {
            ensure(was.is_some_and(|was| was.version == *version), "an update of another version")?;
            ensure(is.version == old.version + 1, "a version does not go up by one")?;
            ensure(!(*sets_owner && old.is(OWNED)), "an owner is replaced")?;
            ensure(is.is(OWNED) == (*sets_owner || old.is(OWNED)), "an owner is lost")
        }
        Terms::Append { base, head, fence, deletes, .. } => {
            ensure(was.is_some_and(|was| was.head == *base), "there are two chains")?;
            ensure(is.head == *head && head.seq > base.seq, "a head does not go forward")?;
            ensure(*fence >= old.fence && is.fence == old.fence, "an older fence counts")?;
            ensure(is.is(DELETED) == (*deletes || old.is(DELETED)), "a deletion is lost")
        }
        Terms::Mint { current, at, .. } => {
            ensure(was.is_some_and(|was| was.fence == *current), "a mint of another fence")?;
            ensure(is.fence.get() == old.fence.get() + 1, "a fence does not go up by one")?;
            ensure(at.is_none_or(|at| at == old.head) && is.head == old.head, "at another head")
        }
        Terms::Annotate { seq, fence, notes, .. } => {
            ensure(was.is_some_and(|was| was.notes == *notes), "a note that was not seen")?;
            ensure(is.notes == old.notes + 1 && *fence >= old.fence, "a note of an older fence")?;
            ensure(*seq <= old.head.seq, "a note to no record")
        }
        Terms::Fork { at, children, .. } => {
            let alive = was.is_some_and(|was| was.head.seq >= *at && !was.is(DELETED));
            ensure(alive && was == get(after, 0), "a fork of what is not there")?;
            for (place, child) in children.iter().enumerate() {
                let (child_was, child_is) = (get(before, place + 1), get(after, place + 1));
                ensure(child_was.is_none(), "a child was there")?;
                let starts = child_is.is_some_and(|is| {
                    is.head == child.head && is.fence == Fence::new(1) && is.version == 1
                });
                ensure(starts, "a child starts otherwise")?;
            }
            Ok(())
        }
        Terms::BeginImport { generation, .. } => {
            ensure(!old.is(OPEN) && !old.is(PUBLISHED), "an import is begun twice")?;
            ensure(old.version == *generation && is.version == *generation, "another generation")
        }
        Terms::Stage { generation, after, head, fence, .. } => {
            ensure(old.is(OPEN) && old.version == *generation, "another generation is staged")?;
            ensure(old.head == *after && is.head == *head, "there are two staged chains")?;
            ensure(is.fence == old.fence.max(*fence), "an imported fence is lost")
        }
        Terms::Unstage { generation, .. } => {
            ensure(old.is(OPEN) && old.version == *generation, "another generation is unstaged")?;
            ensure(is.version == old.version + 1 && !is.is(OPEN), "it is not left behind")
        }
        Terms::Publish { generation, head, .. } => {
            let session = get(after, 1).unwrap_or_default();
            ensure(old.version == *generation, "another generation is published")?;
            ensure(old.is(OPEN) && old.head == *head, "what is published is not staged")?;
            ensure(is.is(PUBLISHED) && !is.is(OPEN), "an import goes on that is done")?;
            ensure(get(before, 1).is_none(), "a session is replaced")?;
            ensure(session.head == *head && session.fence == old.fence, "the fence floor is lost")?;
            ensure(session.is(DELETED) == old.is(DELETED), "a deletion is lost")
        }
        Terms::PutNamed { version, .. } => {
            ensure(old.version == *version && is.version == *version + 1, "another version")
        }
    }
}

/// What a message may change; of a fork the parent, which stays, comes first.
fn names(terms: &Terms) -> Vec<Name> {
    match terms {
        Terms::Create { session, .. }
        | Terms::Update { session, .. }
        | Terms::Append { session, .. }
        | Terms::Mint { session, .. }
        | Terms::Annotate { session, .. } => vec![Name::session(session)],
        Terms::Fork { parent, children, .. } => std::iter::once(parent)
            .chain(children.iter().map(|child| &child.session))
            .map(Name::session)
            .collect(),
        Terms::BeginImport { store, .. }
        | Terms::Stage { store, .. }
        | Terms::Unstage { store, .. } => vec![Name::import(store)],
        Terms::Publish { store, session, .. } => vec![Name::import(store), Name::session(session)],
        Terms::PutNamed { key, .. } => vec![Name::row(key)],
    }
}

/// Delivers some scripts in all orders, of which there are this many.
#[track_caller]
fn check_all(scripts: &[Script], orders: u64) {
    assert_eq!(scripts.iter().map(check).sum::<u64>(), orders);
}

#[test]
fn in_every_order_a_journal_is_one_chain_under_rising_fences() {
    check_all(&scripts::journals(), 829_440);
}

#[test]
fn in_every_order_a_row_moves_by_its_version() {
    check_all(&scripts::rows(), 56_160);
}

#[test]
fn in_every_order_a_note_is_added_to_what_was_seen() {
    check_all(&scripts::notes(), 37_440);
}

#[test]
fn in_every_order_a_child_is_made_once_and_of_what_is_there() {
    check_all(&scripts::forks(), 37_440);
}

#[test]
fn in_every_order_an_import_is_published_once_and_whole() {
    check_all(&scripts::imports(), 263_520);
}
