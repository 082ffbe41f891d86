//! The local view: what the fold came to, written behind in large steps.

mod part;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use event_listener::Listener as _;
use mainspring_eventlog::replica::Replica;
use mainspring_eventlog::{EngineError, Keep};

use crate::client::now;
use crate::engine::PartitionEngine;
use crate::fold::{Folded, Restart};
use crate::mark::Mark;
use crate::messages::refused;
use crate::progress::Progress;
use part::Part;

/// Messages of one step.
const STEP_MAX: usize = 1_024;
/// Entries of one step, and bytes, after which no more messages join it.
const STEP_ENTRIES_MAX: usize = 4_096;
const STEP_BYTES_MAX: usize = 16 << 20;
/// How long a step that nobody waits for waits for more.
const GATHER_MAX: Duration = Duration::from_millis(10);
/// How often it takes meanwhile what came, so that the fold need not wait.
const GATHER_SLICE: Duration = Duration::from_millis(2);
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
            let mut applied = self.apply(step, keep);
            if let Some(refill) = refill {
                if let Err(error) = &applied {
                    self.recover(error);
                }
                applied = refill(&self.view).and_then(|()| self.restart());
            }
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
        let (mut step, mut bytes, mut entries, mut waits) = (Vec::new(), 0, 0, false);
        let until = now() + GATHER_MAX;
        let mut next = Some(first);
        loop {
            // Before looking, so that nobody who asks meanwhile is missed.
            let asked = self.view.progress.asked();
            while let Some(input) = next.take().or_else(|| self.input.try_recv().ok()) {
                let folded = match input {
                    Input::Refill(task) => return (step, Some(task)),
                    Input::Folded(folded) => folded,
                };
                // Judged before the fold was told to go on from elsewhere.
                if folded.run != self.view.progress.run() {
                    continue;
                }
                bytes += folded.bytes.len();
                entries += folded.entries();
                waits |= folded.wants_reply();
                step.push(*folded);
                let full = step.len() >= STEP_MAX || entries >= STEP_ENTRIES_MAX;
                if full || bytes >= STEP_BYTES_MAX {
                    return (step, None);
                }
            }
            let at = now();
            if waits || at >= until || self.view.progress.is_waited_for() {
                return (step, None);
            }
            // Not in the channel, where each message would wake this thread.
            asked.wait_deadline(until.min(at + GATHER_SLICE));
        }
    }

    /// Applies a step, of all partitions in one transaction.
    fn apply(&mut self, step: Vec<Folded>, keep: Keep) -> Result<(), EngineError> {
        if step.is_empty() {
            return if keep == Keep::Yes { self.flush() } else { Ok(()) };
        }
        let parts = self.parts(step);
        let replicas = &self.view.replicas;
        let of = |part: &Part| &replicas[part.partition as usize];
        let mut answers = Vec::with_capacity(parts.len());
        of(&parts[0]).engine().base().write(&mut |kv| {
            answers.clear();
            for part in &parts {
                answers.push(part.write(of(part), kv)?);
            }
            Ok(keep)
        })?;
        for (part, answers) in parts.into_iter().zip(answers) {
            let replica = of(&part);
            self.marks[part.partition as usize] = part.to;
            replica.engine().promise(part.to.next);
            replica.committed(&part.decided(), &answers);
            self.view.progress.set_applied(part.partition, part.to.next);
            part.tell(answers);
        }
        Ok(())
    }

    /// What a step does to each partition that it has messages of.
    fn parts(&self, step: Vec<Folded>) -> Vec<Part> {
        let mut by_partition: BTreeMap<u32, Vec<Folded>> = BTreeMap::new();
        for folded in step {
            by_partition.entry(folded.partition).or_default().push(folded);
        }
        let part =
            |(partition, messages)| Part::of(partition, messages, self.marks[partition as usize]);
        by_partition.into_iter().map(part).collect()
    }

    /// Makes durable what was applied.
    fn flush(&self) -> Result<(), EngineError> {
        let Some(replica) = self.view.replicas.first() else { return Ok(()) };
        replica.engine().base().write(&mut |_| Ok(Keep::Yes))
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
