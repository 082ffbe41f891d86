//! The local view: what the fold came to, written behind in large steps.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use mainspring_api::SessionUid;
use mainspring_eventlog::replica::{Decided, Op, Replica, Terms, decode};
use mainspring_eventlog::{EngineError, Keep, LogError, Space};

use crate::client::now;
use crate::engine::PartitionEngine;
use crate::fold::{Folded, Restart};
use crate::frame::{Entry, Frame, Statement};
use crate::lane::{Judged, Sent};
use crate::mark::Mark;
use crate::messages::refused;
use crate::progress::Progress;

/// Messages of one step.
const STEP_MAX: usize = 1_024;
/// Bytes of one step, after which no more messages join it.
const STEP_BYTES_MAX: usize = 16 << 20;
/// How long a step that nobody waits for waits for more.
const GATHER_MAX: Duration = Duration::from_millis(10);
/// How often it looks meanwhile whether somebody does.
const GATHER_SLICE: Duration = Duration::from_millis(1);
/// How long what was applied may wait to become durable.
const BEHIND_MAX: Duration = Duration::from_secs(1);
/// Bytes of messages that may wait to become durable.
const BEHIND_BYTES_MAX: usize = 64 << 20;

/// Something that is to happen to the view between two steps.
pub(crate) type Task = Box<dyn FnOnce(&View) -> Result<(), EngineError> + Send>;

/// What reaches the view.
pub(crate) enum Input {
    /// A message that was judged.
    Folded(Box<Folded>),
    /// The view is to be filled anew by this.
    Refill(Task),
}

/// The view of all partitions.
pub(crate) struct View {
    pub(crate) replicas: Vec<Replica<PartitionEngine>>,
    pub(crate) progress: Arc<Progress>,
}

/// The thread that writes the view.
pub(crate) struct Writer {
    pub(crate) view: View,
    pub(crate) input: Receiver<Input>,
    pub(crate) restarts: SyncSender<Restart>,
    pub(crate) marks: Vec<Mark>,
}

/// What was applied and is not durable yet.
struct Behind {
    since: Option<Instant>,
    bytes: usize,
}

impl Writer {
    /// Applies what the fold sends until the store is closed.
    pub(crate) fn run(mut self) {
        let mut behind = Behind { since: None, bytes: 0 };
        loop {
            let first = match self.input.recv_timeout(BEHIND_MAX) {
                Ok(first) => Some(first),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            if first.is_none()
                && let Err(error) = self.check()
            {
                self.recover(&error);
                behind = Behind { since: None, bytes: 0 };
                continue;
            }
            let (step, refill) = first.map(|first| self.gather(first)).unwrap_or_default();
            behind.bytes += step.iter().map(|folded| folded.bytes.len()).sum::<usize>();
            if !step.is_empty() {
                behind.since.get_or_insert_with(now);
            }
            let due = behind.since.is_some_and(|since| since.elapsed() >= BEHIND_MAX)
                || behind.bytes >= BEHIND_BYTES_MAX;
            let keep = if due { Keep::Yes } else { Keep::Behind };
            let applied = self.apply(step, keep).and_then(|()| match refill {
                Some(refill) => refill(&self.view).and_then(|()| self.restart()),
                None => Ok(()),
            });
            match applied {
                Ok(()) if due => behind = Behind { since: None, bytes: 0 },
                Ok(()) => {}
                Err(error) => {
                    self.recover(&error);
                    behind = Behind { since: None, bytes: 0 };
                }
            }
        }
        if let Err(error) = self.flush() {
            tracing::warn!(error = %mainspring_api::report(&error), "the view is left behind the log");
        }
    }

    /// Whether the view is where it was left: an engine may have opened itself
    /// anew, without what was not durable.
    fn check(&self) -> Result<(), EngineError> {
        for (replica, mark) in self.view.replicas.iter().zip(&self.marks) {
            if stands_at(replica)?.next != mark.next {
                return Err(refused("the view is not where it was".to_owned()));
            }
        }
        Ok(())
    }

    /// What is there, as far as one step takes it. While nobody waits for it a
    /// step waits a moment for more: a transaction for each message would take
    /// the processor from those who write.
    fn gather(&self, first: Input) -> (Vec<Folded>, Option<Task>) {
        let (mut step, mut bytes) = (Vec::new(), 0);
        let until = now() + GATHER_MAX;
        let mut next = Some(first);
        while let Some(input) = next {
            match input {
                Input::Refill(task) => return (step, Some(task)),
                // Judged before the fold was told to go on from elsewhere.
                Input::Folded(folded) if folded.run != self.view.progress.run() => {}
                Input::Folded(folded) => {
                    bytes += folded.bytes.len();
                    step.push(*folded);
                }
            }
            let full = step.len() >= STEP_MAX || bytes >= STEP_BYTES_MAX;
            next = if full { None } else { self.next(&step, until) };
        }
        (step, None)
    }

    fn next(&self, step: &[Folded], until: Instant) -> Option<Input> {
        loop {
            if let Ok(input) = self.input.try_recv() {
                return Some(input);
            }
            let replies = step.iter().filter_map(|folded| folded.sent.as_ref());
            let waits = replies.flatten().any(|sent| sent.wants_reply);
            if waits || self.view.progress.is_waited_for() || now() >= until {
                return None;
            }
            match self.input.recv_timeout(GATHER_SLICE) {
                Ok(input) => return Some(input),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    fn apply(&mut self, step: Vec<Folded>, keep: Keep) -> Result<(), EngineError> {
        if step.is_empty() {
            return if keep == Keep::Yes { self.flush() } else { Ok(()) };
        }
        let mut by_partition: Vec<Vec<Folded>> = Vec::new();
        by_partition.resize_with(self.marks.len(), Vec::new);
        for folded in step {
            by_partition[folded.partition as usize].push(folded);
        }
        for (partition, step) in (0..).zip(by_partition) {
            if !step.is_empty() {
                self.apply_partition(partition, step, keep)?;
            }
        }
        Ok(())
    }

    fn apply_partition(
        &mut self,
        partition: u32,
        mut step: Vec<Folded>,
        keep: Keep,
    ) -> Result<(), EngineError> {
        let replica = &self.view.replicas[partition as usize];
        let from = self.marks[partition as usize];
        let (ops, places) = decided(&step);
        let decided: Vec<Decided<'_>> = ops.iter().map(Decision::as_decided).collect();
        let mut mark = from;
        if let Some(last) = step.last() {
            mark = last.mark;
            mark.last = Some((last.offset, Mark::hash_of(&last.bytes)));
        }
        let answers = replica.apply(
            &decided,
            &|op| {
                let (message, entry) = places[op];
                replica.engine().entering(step[message].offset, entry);
            },
            &mut |kv| {
                // The engine may have been opened anew without what was not durable.
                if Mark::load(kv)?.next != from.next {
                    return Err(refused("the view is not where it was".to_owned()));
                }
                for (name, state) in step.iter().flat_map(|folded| &folded.changed) {
                    kv.put(Space::Judged, name.as_bytes(), &state.encode())?;
                }
                mark.store(kv)
            },
            keep,
        )?;
        drop(decided);
        self.marks[partition as usize] = mark;
        for ((message, entry), answer) in places.iter().zip(answers) {
            let next = step[*message].offset + 1;
            if let Err(error) = &answer {
                tracing::error!(partition, offset = next - 1, entry, %error, "an entry that counts cannot be applied");
            }
            let sent = step[*message].sent.as_mut();
            if let Some(sent) = sent.and_then(|sent| sent.get_mut(*entry as usize)) {
                sent.tell(Ok(Judged { verdict: Ok(()), next, reply: Some(answer) }));
            }
        }
        replica.engine().promise(mark.next);
        self.view.progress.set_applied(partition, mark.next);
        Ok(())
    }

    /// Makes durable what was applied.
    fn flush(&self) -> Result<(), EngineError> {
        let Some(replica) = self.view.replicas.first() else { return Ok(()) };
        replica.apply(&[], &|_| {}, &mut |_| Ok(()), Keep::Yes).map(drop)
    }

    /// After an error of the engine nothing is known but what is durable: the
    /// fold goes on from there.
    fn recover(&mut self, error: &EngineError) {
        tracing::error!(error = %mainspring_api::report(error), "the view failed and is opened again");
        let mut pause = Duration::from_millis(20);
        while !self.view.progress.is_over() {
            let reopened = match self.view.replicas.first() {
                Some(replica) => replica.engine().base().reopen(),
                None => Ok(()),
            };
            match reopened.and_then(|()| self.restart()) {
                Ok(()) => return,
                Err(error) => {
                    tracing::error!(error = %mainspring_api::report(&error), "the view cannot be opened");
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(Duration::from_secs(2));
                }
            }
        }
    }

    /// Has the fold go on from where the view stands.
    fn restart(&mut self) -> Result<(), EngineError> {
        let mut marks = Vec::with_capacity(self.view.replicas.len());
        for replica in &self.view.replicas {
            replica.forget();
            marks.push(stands_at(replica)?);
        }
        // First of all: a fold that finds less than it was promised must not
        // judge by it.
        let run = self.view.progress.next_run();
        for (partition, (mark, replica)) in (0..).zip(marks.iter().zip(&self.view.replicas)) {
            self.view.progress.set_applied(partition, mark.next);
            replica.engine().promise(mark.next);
        }
        self.marks.clone_from(&marks);
        // A fold that has ended needs to know nothing.
        let _ = self.restarts.send(Restart { run, marks });
        Ok(())
    }
}

/// Where the view of a partition stands.
pub(crate) fn stands_at(replica: &Replica<PartitionEngine>) -> Result<Mark, EngineError> {
    let mut mark = Mark::START;
    replica.engine().read_stored(&mut |stored| {
        mark = Mark::load_stored(&stored)?;
        Ok(())
    })?;
    Ok(mark)
}

/// An entry that counts, as the view applies it.
enum Decision {
    Op(Arc<Op>, mainspring_api::Timestamp),
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

/// The entries of a step that count, each with the place of its message in the
/// step and its own in the message.
fn decided(step: &[Folded]) -> (Vec<Decision>, Vec<(usize, u32)>) {
    let (mut ops, mut places) = (Vec::new(), Vec::new());
    for (message, folded) in step.iter().enumerate() {
        let Some(frame) = &folded.frame else { continue };
        for (place, entry) in frame.entries.iter().enumerate() {
            let Statement::Op(terms) = &entry.statement else { continue };
            if folded.verdicts.get(place).is_none_or(Result::is_err) {
                continue;
            }
            let sent = folded.sent.as_ref().and_then(|sent| sent.get(place));
            let Some(decision) = decide(frame, entry, terms, sent) else { continue };
            ops.push(decision);
            places.push((message, u32::try_from(place).expect("entries are bounded")));
        }
    }
    (ops, places)
}

fn decide(frame: &Frame, entry: &Entry, terms: &Terms, sent: Option<&Sent>) -> Option<Decision> {
    if let Some(op) = sent.and_then(|sent| sent.op.clone()) {
        return Some(Decision::Op(op, frame.time));
    }
    match decode(entry.id, terms, frame.payload(entry)) {
        Ok(op) => Some(Decision::Op(Arc::new(op), frame.time)),
        Err(error) => {
            let what = error.to_string();
            let session = terms.session()?;
            let error = LogError::Corrupt { what };
            Some(Decision::Broken(session.clone(), error))
        }
    }
}
