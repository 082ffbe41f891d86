//! What a step of the view does to one partition.

use std::collections::BTreeMap;
use std::sync::Arc;

use mainspring_api::{SessionUid, Timestamp};
use mainspring_eventlog::replica::{Decided, Op, Replica, Reply, Terms, decode};
use mainspring_eventlog::{EngineError, KvWrite, LogError, Space};

use crate::engine::PartitionEngine;
use crate::fold::Folded;
use crate::frame::{Entry, Frame, Statement};
use crate::judge::{Name, State};
use crate::lane::{Judged, Sent};
use crate::mark::Mark;
use crate::messages::refused;

/// What a step does to one partition.
pub(super) struct Part {
    pub(super) partition: u32,
    messages: Vec<Folded>,
    decisions: Vec<Decision>,
    /// Of each decision its message, and the entry of that.
    places: Vec<(usize, u32)>,
    from: Mark,
    pub(super) to: Mark,
}

impl Part {
    pub(super) fn of(partition: u32, messages: Vec<Folded>, from: Mark) -> Self {
        let (decisions, places) = decisions(&messages);
        let mut to = from;
        if let Some(last) = messages.last() {
            to = last.mark;
            to.last = Some((last.offset, Mark::hash_of(&last.bytes)));
        }
        Self { partition, messages, decisions, places, from, to }
    }

    pub(super) fn decided(&self) -> Vec<Decided<'_>> {
        self.decisions.iter().map(Decision::as_decided).collect()
    }

    pub(super) fn write(
        &self,
        replica: &Replica<PartitionEngine>,
        kv: &mut dyn KvWrite,
    ) -> Result<Vec<Result<Reply, LogError>>, EngineError> {
        let engine = replica.engine();
        let entering = |op: usize| {
            let (message, entry) = self.places[op];
            engine.entering(self.messages[message].offset, entry);
        };
        let mut answers = Vec::new();
        engine.within(kv, &mut |kv| {
            // The engine may have been opened anew without what was not durable.
            if Mark::load(kv)?.next != self.from.next {
                return Err(refused("the view is not where it was".to_owned()));
            }
            answers = replica.apply(kv, &self.decided(), &entering)?;
            for (name, state) in self.changed() {
                kv.put(Space::Judged, name.as_bytes(), &state.encode())?;
            }
            self.to.store(kv)
        })?;
        Ok(answers)
    }

    /// What the last message that changed it has left behind.
    fn changed(&self) -> BTreeMap<&Name, &State> {
        let changed = self.messages.iter().flat_map(|folded| &folded.changed);
        changed.map(|(name, state)| (name, state)).collect()
    }

    /// Tells those who wait for what their operation came to.
    pub(super) fn tell(mut self, answers: Vec<Result<Reply, LogError>>) {
        let partition = self.partition;
        for ((message, entry), answer) in self.places.into_iter().zip(answers) {
            let folded = &mut self.messages[message];
            let offset = folded.offset;
            if let Err(error) = &answer {
                tracing::error!(partition, offset, entry, %error, "an entry that counts cannot be applied");
            }
            let sent = folded.sent.as_mut().and_then(|sent| sent.get_mut(entry as usize));
            if let Some(sent) = sent {
                let next = offset + 1;
                sent.tell(Ok(Judged { verdict: Ok(()), next, reply: Some(answer) }));
            }
        }
    }
}

/// An entry that counts, as the view applies it.
enum Decision {
    Op(Arc<Op>, Timestamp),
    Broken(SessionUid, LogError),
}

impl Decision {
    fn as_decided(&self) -> Decided<'_> {
        match self {
            Self::Op(op, time) => Decided::Op(op, *time),
            Self::Broken(session, error) => Decided::Broken(session, error),
        }
    }
}

/// The entries of messages that count, each with the place of its message and
/// its own in that.
fn decisions(messages: &[Folded]) -> (Vec<Decision>, Vec<(usize, u32)>) {
    let (mut ops, mut places) = (Vec::new(), Vec::new());
    for (message, folded) in messages.iter().enumerate() {
        let Some(frame) = &folded.frame else { continue };
        for (place, entry) in frame.entries.iter().enumerate() {
            let Statement::Op(terms) = &entry.statement else { continue };
            if folded.verdicts.get(place).is_none_or(Result::is_err) {
                continue;
            }
            let sent = folded.sent.as_ref().and_then(|sent| sent.get(place));
            let place = u32::try_from(place).expect("entries are bounded");
            for decision in decide(frame, entry, terms, sent) {
                ops.push(decision);
                places.push((message, place));
            }
        }
    }
    (ops, places)
}

/// What the view does for an entry that counts. What cannot be read leaves
/// behind broken what it would have changed.
fn decide(frame: &Frame, entry: &Entry, terms: &Terms, sent: Option<&Sent>) -> Vec<Decision> {
    if let Some(op) = sent.and_then(|sent| sent.op.clone()) {
        return vec![Decision::Op(op, frame.time)];
    }
    let error = match decode(entry.id, terms, frame.payload(entry)) {
        Ok(op) => return vec![Decision::Op(Arc::new(op), frame.time)],
        Err(error) => LogError::Corrupt { what: error.to_string() },
    };
    let sessions: Vec<&SessionUid> = match terms {
        Terms::Fork { children, .. } => children.iter().map(|child| &child.session).collect(),
        terms => terms.session().into_iter().collect(),
    };
    if sessions.is_empty() {
        tracing::error!(%error, ?terms, "an entry that counts cannot be read by this build");
    }
    sessions.into_iter().map(|session| Decision::Broken(session.clone(), error.clone())).collect()
}
