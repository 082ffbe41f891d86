//! The fold: reads the log in offset order and judges every entry.

mod partition;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::{Duration, Instant};

use mainspring_api::Bytes;
use rdkafka::consumer::Consumer as _;
use rdkafka::error::KafkaError;
use rdkafka::message::Message as _;
use rdkafka::{Offset, TopicPartitionList};

use crate::ahead::{Ahead, Room};
use crate::client::{Reader, now};
use crate::error::{Halt, is_lost_offset, is_lost_topic};
use crate::frame::Frame;
use crate::judge::{Name, Place, State, Verdict};
use crate::lane::{Judged, Lanes, Sent};
use crate::mark::Mark;
use crate::messages::Messages;
use crate::progress::Progress;
use crate::states::Cache;
use crate::view::Input;
use partition::{Partition, Stop};

/// A message that was judged, on its way to the view.
#[derive(Debug)]
pub(crate) struct Folded {
    pub(crate) partition: u32,
    pub(crate) offset: u64,
    /// `None` for a message that is no frame.
    pub(crate) frame: Option<Arc<Frame>>,
    pub(crate) verdicts: Vec<Verdict>,
    /// What it left behind, in order.
    pub(crate) changed: Vec<(Name, State)>,
    /// Who waits, if this host has sent it.
    pub(crate) sent: Option<Vec<Sent>>,
    pub(crate) bytes: Bytes,
    /// Where the fold stands after it; without the hash of the message.
    pub(crate) mark: Mark,
    /// Which run of the fold judged it.
    pub(crate) run: u64,
    /// What it takes until the view has it.
    pub(crate) _room: Room,
}

impl Folded {
    /// How many entries it has.
    pub(crate) fn entries(&self) -> usize {
        self.frame.as_ref().map_or(0, |frame| frame.entries.len())
    }

    /// Whether somebody waits for what the view answers.
    pub(crate) fn wants_reply(&self) -> bool {
        self.sent.iter().flatten().any(|sent| sent.wants_reply)
    }
}

/// Tells the fold to go on from elsewhere.
#[derive(Debug)]
pub(crate) struct Restart {
    pub(crate) run: u64,
    pub(crate) marks: Vec<Mark>,
}

/// How long the topic may be unknown before that counts: leaders move.
const LOST_MAX: Duration = Duration::from_secs(5);
/// How long nothing may be read though there is something to read.
const DEAF_MAX: Duration = Duration::from_secs(8);
/// How long one poll waits.
const POLL: Duration = Duration::from_millis(100);

/// What the fold shares with the rest of its store.
pub(crate) struct FoldParts {
    pub(crate) topic: String,
    pub(crate) consumer: Reader,
    pub(crate) lanes: Arc<Lanes>,
    pub(crate) messages: Arc<Messages>,
    pub(crate) progress: Arc<Progress>,
    pub(crate) folded: SyncSender<Input>,
    pub(crate) ahead: Arc<Ahead>,
    pub(crate) restarts: Receiver<Restart>,
    /// A fresh cache of a partition's states.
    pub(crate) caches: Box<dyn Fn(u32) -> Cache + Send>,
    /// A client of the log.
    pub(crate) open: Box<dyn Fn() -> Result<Reader, KafkaError> + Send>,
    /// Asks for a view that is filled anew.
    pub(crate) rebuild: Box<dyn Fn() + Send>,
    /// Whether the log, further on, voids the digest in a message.
    pub(crate) is_voided: Box<dyn Fn(u32, u64) -> bool + Send>,
}

/// The fold of a host.
pub(crate) struct Fold {
    parts: FoldParts,
    partitions: Vec<Partition>,
    run: u64,
    /// Messages whose digest was another one than this fold's, once.
    suspects: HashSet<(u32, u64)>,
    lost_since: Option<Instant>,
    /// Since when the brokers refuse this client, and when they last did.
    refused: Option<(Instant, Instant)>,
    /// When the last message was read, or the client made.
    read_at: Instant,
}

impl Fold {
    pub(crate) fn new(parts: FoldParts, marks: Vec<Mark>) -> Result<Self, KafkaError> {
        let mut fold = Self {
            parts,
            partitions: Vec::new(),
            run: 0,
            suspects: HashSet::new(),
            lost_since: None,
            refused: None,
            read_at: now(),
        };
        fold.start(&marks)?;
        Ok(fold)
    }

    fn start(&mut self, marks: &[Mark]) -> Result<(), KafkaError> {
        let count = u32::try_from(marks.len()).expect("partitions are a u32");
        self.partitions.clear();
        for (partition, mark) in (0..).zip(marks) {
            let place = Place { partition, partitions: count };
            let cache = (self.parts.caches)(partition);
            self.partitions.push(Partition::new(place, *mark, cache));
            if mark.next > self.parts.progress.next_judged(partition) {
                self.parts.lanes.passed(partition);
            }
            self.parts.progress.judged(partition, mark.next);
        }
        self.assign()
    }

    /// Has the client read on from where each partition is.
    fn assign(&self) -> Result<(), KafkaError> {
        let mut list = TopicPartitionList::new();
        for at in &self.partitions {
            let partition = at.place.partition.cast_signed();
            let offset = Offset::Offset(at.mark.next.cast_signed());
            list.add_partition_offset(&self.parts.topic, partition, offset)?;
        }
        self.parts.consumer.assign(&list)
    }

    /// Makes the client anew if it has read nothing for long though there is
    /// something to read.
    fn renew_if_deaf(&mut self) {
        if self.read_at.elapsed() < DEAF_MAX || !self.parts.progress.is_behind() {
            return;
        }
        self.read_at = now();
        tracing::warn!("the log was not heard for {DEAF_MAX:?}; the reading client is made anew");
        let renewed = (self.parts.open)().and_then(|fresh| {
            crate::client::let_go(std::mem::replace(&mut self.parts.consumer, fresh));
            self.assign()
        });
        if let Err(error) = renewed {
            tracing::error!(%error, "the reading client cannot be made anew");
        }
    }

    /// Folds until the store is closed or stopped.
    pub(crate) fn run(mut self) {
        while !self.parts.progress.is_over() {
            if let Ok(restart) = self.parts.restarts.try_recv() {
                self.run = restart.run;
                if let Err(error) = self.start(&restart.marks) {
                    tracing::error!(%error, "the log cannot be read from where the view stands");
                }
            }
            let read = match self.parts.consumer.poll(POLL) {
                None => {
                    self.renew_if_deaf();
                    if let Err(why) = self.check_topic() {
                        self.parts.progress.halt(why);
                    }
                    continue;
                }
                Some(Ok(message)) => {
                    let payload = message.payload().unwrap_or_default();
                    let bytes = Bytes::copy_from_slice(payload);
                    Ok((
                        message.partition().cast_unsigned(),
                        message.offset().cast_unsigned(),
                        bytes,
                    ))
                }
                Some(Err(error)) => Err(error),
            };
            let gone_on = match read {
                Ok((partition, offset, bytes)) => {
                    self.lost_since = None;
                    self.refused = None;
                    self.read_at = now();
                    self.fold(partition, offset, bytes)
                }
                Err(error) => {
                    self.renew_if_deaf();
                    self.failed(&error)
                }
            };
            if let Err(why) = gone_on {
                self.parts.progress.halt(why);
            }
        }
        let why = self.parts.progress.check().err();
        let closed = || mainspring_eventlog::LogError::unavailable("the store is closed");
        self.parts.lanes.close(&why.unwrap_or_else(closed));
    }

    fn failed(&mut self, error: &KafkaError) -> Result<(), Halt> {
        if is_lost_offset(error) {
            for partition in &self.partitions {
                let at = partition.place.partition;
                let timeout = Duration::from_secs(5);
                let marks = self.parts.consumer.fetch_watermarks(
                    &self.parts.topic,
                    at.cast_signed(),
                    timeout,
                );
                let Ok((first, end)) = marks else { continue };
                let (first, end) = (first.cast_unsigned(), end.cast_unsigned());
                let folded = partition.mark.next;
                if folded < first || folded > end {
                    return Err(Halt::LogTruncated { partition: at, first, end, folded });
                }
            }
        }
        if crate::error::is_refused(error) {
            let at = now();
            // One refusal now and one hours ago are two that passed.
            let still = self.refused.filter(|(_, last)| at - *last < LOST_MAX);
            let since = still.map_or(at, |(since, _)| since);
            self.refused = Some((since, at));
            if at - since >= crate::log::REFUSED_MAX {
                let why = format!("topic {} may not be read: {error}", self.parts.topic);
                return Err(Halt::AccessRefused(why));
            }
        }
        if is_lost_topic(error) {
            self.lost_since.get_or_insert_with(now);
            self.check_topic()?;
        }
        tracing::debug!(%error, "the log cannot be read now");
        Ok(())
    }

    /// A topic that stays unknown is gone, if the brokers say so: a quiet one
    /// sends nothing that would show that it is there again.
    fn check_topic(&mut self) -> Result<(), Halt> {
        if self.lost_since.is_none_or(|since| since.elapsed() < LOST_MAX) {
            return Ok(());
        }
        self.lost_since = None;
        match crate::log::partitions(&self.parts.consumer, &self.parts.topic) {
            Ok(None) => Err(Halt::TopicMissing(self.parts.topic.clone())),
            Ok(Some(_)) | Err(_) => Ok(()),
        }
    }

    fn fold(&mut self, partition: u32, offset: u64, bytes: Bytes) -> Result<(), Halt> {
        let count = self.partitions.len();
        // The view says soon where to go on.
        if count == 0 || self.parts.progress.run() != self.run {
            return Ok(());
        }
        let Some(at) = self.partitions.get_mut(partition as usize) else {
            let genesis = u32::try_from(count).unwrap_or(u32::MAX);
            return Err(Halt::PartitionsChanged { found: partition + 1, genesis });
        };
        // What the client had read before it was told to go elsewhere.
        if offset < at.mark.next {
            return Ok(());
        }
        let frame = Frame::read(bytes.clone());
        // Before its genesis a partition knows the first rules alone.
        let frame = frame.filter(|frame| frame.level <= at.mark.level.max(1)).map(Arc::new);
        if frame.is_none() {
            tracing::warn!(
                partition,
                offset,
                "a message that is no frame of the rules in force is void"
            );
        }
        // Before anything is judged, so that a message is judged as a whole or not at all.
        for entry in frame.iter().flat_map(|frame| &frame.entries) {
            match at.check(offset, &entry.statement) {
                Ok(()) => {}
                Err(Stop::Halt(why)) => return Err(why),
                Err(Stop::Disagrees) if (self.parts.is_voided)(partition, offset) => {}
                Err(Stop::Disagrees) => return self.disagrees(partition, offset),
            }
        }
        if let Some(number) = frame.as_ref().and_then(|frame| self.parts.lanes.own(frame)) {
            self.parts.lanes.read_back(partition, number);
        }
        at.cache.begin(offset, self.parts.progress.applied(partition));
        let mut verdicts = Vec::new();
        for entry in frame.iter().flat_map(|frame| &frame.entries) {
            match at.judge(&self.parts.progress, self.run, offset, &entry.statement) {
                Some(verdict) => verdicts.push(verdict),
                // Closed, or to go on from elsewhere: nobody is told of this message.
                None => return Ok(()),
            }
        }
        // A view that was found behind is no ground to judge by.
        if self.parts.progress.run() != self.run {
            return Ok(());
        }
        let changed = at.cache.take_changed();
        at.advance(offset, bytes.len(), frame.as_deref(), &verdicts);
        let sent = self.answer(frame.as_deref(), partition, offset, &verdicts);
        let at = &mut self.partitions[partition as usize];
        self.parts.progress.judged(partition, at.mark.next);
        if let Some(frame) = &frame {
            self.parts.messages.keep(partition, offset, frame);
        }
        at.state_digest(&self.parts.lanes);
        let (mark, run) = (at.mark, self.run);
        // Waits while the view is behind: the log keeps what is not read yet.
        let progress = &self.parts.progress;
        let is_over = || progress.is_over() || progress.run() != run;
        let memory = frame.as_ref().map_or(bytes.len(), |frame| frame.memory());
        let _room = self.parts.ahead.room(memory, is_over);
        let folded =
            Folded { partition, offset, frame, verdicts, changed, sent, bytes, mark, run, _room };
        let wants_reply = folded.wants_reply();
        let _ = self.parts.folded.send(Input::Folded(Box::new(folded)));
        if wants_reply {
            self.parts.progress.ask();
        }
        Ok(())
    }

    /// Tells those who wait for a verdict alone; returns the others.
    fn answer(
        &self,
        frame: Option<&Frame>,
        partition: u32,
        offset: u64,
        verdicts: &[Verdict],
    ) -> Option<Vec<Sent>> {
        let frame = frame?;
        let mut sent = self.parts.lanes.judged(partition, self.parts.lanes.own(frame)?)?;
        // Whoever else writes in this host's name is not answered for it.
        let ids = frame.entries.iter().map(|entry| entry.id);
        if !sent.iter().map(|sent| sent.id).eq(ids) {
            tracing::error!(partition, offset, "a message in this host's name is not its own");
            return None;
        }
        for (sent, verdict) in sent.iter_mut().zip(verdicts) {
            if verdict.is_ok() && sent.wants_reply {
                continue;
            }
            let judged = Judged { verdict: *verdict, next: offset + 1, reply: None };
            sent.tell(Ok(judged));
        }
        Some(sent)
    }

    /// A digest in the log is not what this fold had, and the log voids it
    /// nowhere: all is folded again, once, and then this host stops.
    fn disagrees(&mut self, partition: u32, offset: u64) -> Result<(), Halt> {
        if !self.suspects.insert((partition, offset)) {
            return Err(Halt::DigestDisagrees { partition, offset });
        }
        tracing::error!(
            partition,
            offset,
            "digest_disagrees: the view is filled anew, to fold again"
        );
        (self.parts.rebuild)();
        // Until the view says where to start, nothing is read.
        self.partitions.clear();
        self.parts.consumer.unassign().or(Ok(()))
    }
}
