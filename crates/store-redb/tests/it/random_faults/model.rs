//! What a store must show, by what it acknowledged.

use std::collections::BTreeMap;

use mainspring_api::{AppendId, Classify as _, Event, Fence, Hash, Head, Outcome, Seq, SessionUid};
use mainspring_eventlog::{
    Batch, EventLog, Holder, Level, ListQuery, LogError, NewSession, RowPatch, StoredRecord,
};
use mainspring_testkit::{SeededRng, fold_all, read_all, sample, verify_all};

use crate::support::text_batch;

const SESSIONS_MAX: usize = 6;

/// What is to be seen of one session.
#[derive(Debug, Clone, PartialEq)]
struct State {
    hashes: Vec<Hash>,
    /// Records that are another session's.
    inherited: usize,
    fence: Fence,
    version: u64,
    name: String,
    /// Notes that were added later, to its own records.
    notes: BTreeMap<(Seq, String), String>,
}

impl State {
    fn fresh() -> Self {
        let (hashes, notes) = (Vec::new(), BTreeMap::new());
        Self { hashes, inherited: 0, fence: Fence::NONE, version: 1, name: String::new(), notes }
    }

    fn head(&self) -> Head {
        let hash = self.hashes.last();
        hash.map_or(Head::EMPTY, |hash| Head::at(Seq::new(self.hashes.len() as u64), *hash))
    }
}

/// A write that is sent until it is judged.
#[derive(Debug, Clone)]
enum Op {
    Create(AppendId),
    Append(AppendId, Batch),
    Mint(AppendId, Holder),
    Acquire(AppendId, Holder),
    Annotate(Seq, String),
    Rename(AppendId, String),
    Fork(AppendId, Head, Vec<(NewSession, Event)>),
}

const NOTE: &str = "attempt";

/// A write that was not acknowledged.
#[derive(Debug)]
struct Open {
    op: Op,
    /// Whether any copy of it may have taken effect.
    maybe: bool,
    /// Whether a read showed its effect.
    seen: bool,
}

/// All sessions, and one write at a time for each.
#[derive(Debug)]
pub(super) struct World {
    shown: BTreeMap<SessionUid, State>,
    open: BTreeMap<SessionUid, Open>,
    /// Those that writes are made for, in part before they exist.
    uids: Vec<SessionUid>,
    number: u64,
}

impl World {
    pub(super) fn new(sessions: usize) -> Self {
        let uids = (0..sessions).map(|number| sample::session(&number.to_string())).collect();
        Self { shown: BTreeMap::new(), open: BTreeMap::new(), uids, number: 0 }
    }

    /// Sends the open write of some session again, or a new one.
    pub(super) async fn step(&mut self, log: &dyn EventLog, rng: &mut SeededRng) {
        let uid = rng.pick(&self.uids).clone();
        if !self.open.contains_key(&uid) {
            let op = self.some_op(&uid, rng);
            self.open.insert(uid.clone(), Open { op, maybe: false, seen: false });
        }
        self.send(log, &uid).await;
    }

    /// Sends every open write until it is judged; the disk works. Returns
    /// whether there was any.
    pub(super) async fn settle(&mut self, log: &dyn EventLog) -> bool {
        let open: Vec<_> = self.open.keys().cloned().collect();
        for uid in &open {
            self.send(log, uid).await;
            assert!(!self.open.contains_key(uid), "{uid}: not judged by a disk that works");
        }
        !open.is_empty()
    }

    fn some_op(&mut self, uid: &SessionUid, rng: &mut SeededRng) -> Op {
        self.number += 1;
        let (id, number) = (sample::fresh_id(), self.number);
        let Some(state) = self.shown.get(uid) else { return Op::Create(id) };
        let own = state.hashes.len() - state.inherited;
        match rng.below(20) {
            0..=2 => Op::Mint(id, sample::holder(&number.to_string())),
            3 => Op::Acquire(id, sample::holder(&number.to_string())),
            4..=5 if own > 0 => {
                let seq = Seq::new((state.inherited + 1 + rng.below(own)) as u64);
                let taken = state.notes.get(&(seq, NOTE.to_owned()));
                Op::Annotate(seq, taken.cloned().unwrap_or_else(|| number.to_string()))
            }
            6..=7 => Op::Rename(id, format!("name {number}")),
            8..=10 if self.uids.len() < SESSIONS_MAX => {
                let at = rng.below(state.hashes.len() + 1);
                let at = State { hashes: state.hashes[..at].to_vec(), ..state.clone() }.head();
                let children = 0..1 + rng.below(2);
                let child = |child| {
                    let uid = sample::session(&format!("{number}-{child}"));
                    (NewSession::bare(uid, "default"), sample::fork_marker(at.seq))
                };
                Op::Fork(id, at, children.map(child).collect())
            }
            _ => {
                let pad = "x".repeat(rng.below(5_000));
                Op::Append(id, text_batch(state.head(), &format!("{number} {pad}")))
            }
        }
    }

    /// What is shown of the sessions that a write changes, once it is there.
    fn effect(&self, uid: &SessionUid, op: &Op) -> Vec<(SessionUid, State)> {
        let mut state = self.shown.get(uid).cloned().unwrap_or_else(State::fresh);
        match op {
            Op::Create(_) => {}
            Op::Append(_, batch) => {
                state.hashes.extend(batch.stored().map(|record| record.hash));
            }
            Op::Mint(..) | Op::Acquire(..) => state.fence = state.fence.next(),
            Op::Annotate(seq, value) => {
                state.notes.insert((*seq, NOTE.to_owned()), value.clone());
            }
            Op::Rename(_, name) => {
                state.name.clone_from(name);
                state.version += 1;
            }
            Op::Fork(_, at, children) => {
                let child = |(new, marker): &(NewSession, Event)| {
                    let inherited = usize::try_from(at.seq.get()).expect("a short journal");
                    let marker = Batch::link(*at, vec![marker.clone().into()]).unwrap();
                    let mut child = State { inherited, fence: Fence::new(1), ..State::fresh() };
                    child.hashes = state.hashes[..inherited].to_vec();
                    child.hashes.extend(marker.stored().map(|record| record.hash));
                    (new.uid.clone(), child)
                };
                return children.iter().map(child).collect();
            }
        }
        vec![(uid.clone(), state)]
    }

    async fn send(&mut self, log: &dyn EventLog, uid: &SessionUid) {
        let open = &self.open[uid];
        let fresh = State::fresh();
        let state = self.shown.get(uid).unwrap_or(&fresh);
        let (current, head) = (state.fence, state.head());
        let answer = match open.op.clone() {
            Op::Create(id) => {
                log.create(id, NewSession::bare(uid.clone(), "default")).await.map(drop)
            }
            Op::Append(id, batch) => log
                .append(uid, id, current, &batch)
                .await
                .map(|after| assert_eq!(after, batch.head(), "{uid}")),
            Op::Mint(id, holder) => log.mint(uid, id, current, holder).await.map(|fence| {
                assert_eq!(fence, current.next(), "{uid}");
            }),
            Op::Acquire(id, holder) => {
                log.acquire_if_head(uid, id, current, head, holder).await.map(|fence| {
                    assert_eq!(fence, current.next(), "{uid}");
                })
            }
            Op::Annotate(seq, value) => log.annotate(uid, seq, current, NOTE, &value).await,
            Op::Rename(id, name) => {
                let patch = RowPatch { name: Some(name), ..RowPatch::default() };
                log.update(id, uid, state.version, patch).await.map(drop)
            }
            Op::Fork(id, at, children) => log.fork(id, uid, at, children).await.map(drop),
        };
        match answer {
            Ok(()) => {
                let open = self.open.remove(uid).expect("it was sent");
                for (uid, state) in self.effect(uid, &open.op) {
                    if !self.uids.contains(&uid) {
                        self.uids.push(uid.clone());
                    }
                    self.shown.insert(uid, state);
                }
            }
            Err(error @ LogError::Unavailable { .. }) => {
                let open = self.open.get_mut(uid).expect("it was sent");
                open.maybe |= error.outcome() == Outcome::Unknown;
            }
            Err(error) => panic!("{uid}: {:?}: {error}", self.open[uid]),
        }
    }

    /// Reads some session while the disk fails: whatever a read shows is there for good.
    pub(super) async fn look_at_one(&mut self, log: &dyn EventLog, rng: &mut SeededRng) {
        let uid = rng.pick(&self.uids).clone();
        match look(log, &uid).await {
            Ok(found) => self.judge(&uid, found),
            Err(LogError::Unavailable { .. }) => {}
            Err(error) => panic!("{uid}: {error}"),
        }
    }

    /// Reads everything, with a disk that works.
    pub(super) async fn check(&mut self, log: &dyn EventLog) {
        let touched: Vec<_> = self
            .open
            .iter()
            .flat_map(|(uid, open)| self.effect(uid, &open.op))
            .map(|(uid, _)| uid)
            .collect();
        let mut uids: Vec<_> = self.shown.keys().cloned().chain(touched).collect();
        uids.sort();
        uids.dedup();
        let mut found = Vec::new();
        for uid in uids {
            let state = look(log, &uid).await.unwrap();
            found.push((uid, state));
        }
        // Twice: of the children of a fork all are there or none.
        for (uid, state) in found.iter().chain(&found) {
            self.judge(uid, state.clone());
        }
        let there = found.iter().filter(|(_, state)| state.is_some()).map(|(uid, _)| uid);
        let there: Vec<_> = there.cloned().collect();
        let query = ListQuery { project: "default".into(), page_size: 500, ..Default::default() };
        let page = log.list(query, Level::Strict).await.unwrap();
        let mut listed: Vec<_> = page.rows.into_iter().map(|row| row.session.uid).collect();
        listed.sort();
        assert_eq!(listed, there, "the list");
    }

    /// Compares what a read showed with what may and what must be there.
    fn judge(&mut self, uid: &SessionUid, found: Option<State>) {
        let writer = self.open.iter().find_map(|(writer, open)| {
            let effects = self.effect(writer, &open.op);
            let (_, after) = effects.into_iter().find(|(touched, _)| touched == uid)?;
            Some((writer.clone(), after))
        });
        let before = self.shown.get(uid);
        let Some((writer, after)) = writer else {
            assert_eq!(found.as_ref(), before, "{uid}: nothing is open");
            return;
        };
        let open = self.open.get_mut(&writer).expect("found above");
        if before == Some(&after) {
            assert_eq!(found.as_ref(), before, "{uid}");
        } else if found.as_ref() == Some(&after) {
            assert!(open.maybe, "{uid}: it was said not to be applied: {open:?}");
            open.seen = true;
        } else {
            assert_eq!(found.as_ref(), before, "{uid}: neither before nor after {open:?}");
            assert!(!open.seen, "{uid}: a read showed it and now it is gone: {open:?}");
        }
    }

    /// Each chain verifies, and each row holds the fold of its records.
    pub(super) async fn check_chains(&self, log: &dyn EventLog) {
        for (uid, state) in &self.shown {
            assert_eq!(verify_all(log, uid).await.unwrap(), state.head(), "{uid}");
            let row = log.get(uid, Level::Strict).await.unwrap();
            assert_eq!(fold_all(log, uid).await.unwrap(), row.view, "{uid}");
        }
    }
}

/// What a store shows of a session; `None` when it says that there is none.
async fn look(log: &dyn EventLog, uid: &SessionUid) -> Result<Option<State>, LogError> {
    let row = match log.get(uid, Level::Strict).await {
        Err(LogError::SessionNotFound(_)) => return Ok(None),
        row => row?,
    };
    let records = read_all(log, uid).await?;
    assert_eq!(records.last().map_or(Head::EMPTY, StoredRecord::head), row.view.head, "{uid}");
    let inherited = row.parent.map_or(0, |(_, at)| usize::try_from(at.get()).expect("short"));
    let notes = records[inherited..].iter().flat_map(|record| {
        let note = record.notes.get(NOTE);
        note.map(|value| ((record.seq, NOTE.to_owned()), value.clone()))
    });
    Ok(Some(State {
        notes: notes.collect(),
        hashes: records.iter().map(|record| record.hash).collect(),
        inherited,
        fence: row.fence.fence,
        version: row.version,
        name: row.session.name,
    }))
}
