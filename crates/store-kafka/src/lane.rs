//! Writing: one lane for each partition, one message of many entries in flight.
//!
//! What queues while a lane's last message is on its way goes out as the next
//! one, as soon as this host has read that one back. Its writers are answered
//! when it is judged.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

use futures_channel::oneshot;
use mainspring_api::{AppendId, Clock, Outcome};
use mainspring_eventlog::replica::{Op, Reply};
use mainspring_eventlog::{LogError, replica};
use rdkafka::ClientConfig;
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseRecord, Producer as _, ProducerContext, ThreadedProducer};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::client::{now, quiet};
use crate::config::{FRAME_BYTES_MAX, KafkaConfig};
use crate::error::{Halt, is_refused, unknown, unsent};
use crate::frame::{Draft, ENTRIES_MAX, Frame, Statement, Writer};
use crate::judge::{Verdict, Void};

/// Entries that may wait or be in flight in one lane; beyond, callers wait.
const QUEUE_MAX: usize = 4_096;
/// Units of queued bytes in one lane: 64 MiB.
const QUEUE_UNITS_MAX: usize = 65_536;
const UNIT: usize = 1_024;

/// What became of an entry that this host has sent.
#[derive(Debug, Clone)]
pub(crate) struct Judged {
    pub(crate) verdict: Verdict,
    /// The offset after its message.
    pub(crate) next: u64,
    /// What applying it to the view answered, where that was asked for.
    pub(crate) reply: Option<Result<Reply, LogError>>,
}

/// An entry that this host has sent, and who waits for it.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) id: AppendId,
    /// The operation as its caller gave it, so that it need not be decoded.
    pub(crate) op: Option<Arc<Op>>,
    /// Whether the caller waits for the view's answer, and not the verdict alone.
    pub(crate) wants_reply: bool,
    pub(crate) answer: Option<oneshot::Sender<Result<Judged, LogError>>>,
    /// What it takes of its lane until it is answered, whoever still waits.
    room: Option<[OwnedSemaphorePermit; 2]>,
}

impl Sent {
    /// Answers whoever waits, once.
    pub(crate) fn tell(&mut self, judged: Result<Judged, LogError>) {
        self.room = None;
        if let Some(answer) = self.answer.take() {
            // Who dropped its future learns nothing.
            let _ = answer.send(judged);
        }
    }
}

#[derive(Debug)]
struct Job {
    ticket: u64,
    draft: Draft,
    sent: Sent,
}

#[derive(Debug, Default)]
struct LaneState {
    queue: VecDeque<Job>,
    /// The number of the message on its way, if there is one.
    in_flight: Option<u64>,
    /// Messages that were not judged yet.
    flights: HashMap<u64, Vec<Sent>>,
    next_ticket: u64,
    next_number: u64,
    closed: bool,
}

impl LaneState {
    /// A message is on its way no more.
    fn landed(&mut self, number: u64) {
        if self.in_flight == Some(number) {
            self.in_flight = None;
        }
    }
}

#[derive(Debug)]
struct Lane {
    state: Mutex<LaneState>,
    entries: Arc<Semaphore>,
    units: Arc<Semaphore>,
}

impl Lane {
    fn lock(&self) -> MutexGuard<'_, LaneState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The writing side of a store.
pub(crate) struct Lanes {
    topic: String,
    writer: Writer,
    lanes: Vec<Lane>,
    client: RwLock<Client>,
    settings: ClientConfig,
    reports: Reports,
    heard: Mutex<Instant>,
    clock: Arc<dyn Clock>,
    write_max: Duration,
}

impl fmt::Debug for Lanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lanes").field("lanes", &self.lanes.len()).finish_non_exhaustive()
    }
}

/// Hears what the client reports of messages.
#[derive(Clone, Default)]
pub(crate) struct Reports(Arc<OnceLock<Weak<Lanes>>>);

quiet!(Reports);

type Producer = ThreadedProducer<Reports>;

/// The client that writes, and since when.
struct Client {
    producer: Arc<Producer>,
    made: Instant,
}

impl ProducerContext for Reports {
    type DeliveryOpaque = Box<(u32, u64)>;

    fn delivery(&self, report: &DeliveryResult<'_>, opaque: Self::DeliveryOpaque) {
        let (Err((error, _)), Some(lanes)) = (report, self.0.get().and_then(Weak::upgrade)) else {
            return;
        };
        let (partition, number) = *opaque;
        // Also what a broker refuses: an earlier try of it may have been taken.
        let why = if is_refused(error) {
            let why = format!("topic {} may not be written: {error}", lanes.topic);
            LogError::Unavailable {
                message: why.clone(),
                outcome: Outcome::Unknown,
                source: Some(Arc::new(Halt::AccessRefused(why))),
            }
        } else {
            unknown(&error.to_string())
        };
        lanes.failed(partition, number, &why);
    }
}

impl Lanes {
    pub(crate) fn new(
        config: &KafkaConfig,
        partitions: u32,
        writer: Writer,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Self>, rdkafka::error::KafkaError> {
        let lane = |_| Lane {
            state: Mutex::default(),
            entries: Arc::new(Semaphore::new(QUEUE_MAX)),
            units: Arc::new(Semaphore::new(QUEUE_UNITS_MAX)),
        };
        let reports = Reports::default();
        let settings = config.producer();
        let producer: Producer = settings.create_with_context(reports.clone())?;
        let lanes = Arc::new(Self {
            topic: config.topic.clone(),
            writer,
            lanes: (0..partitions).map(lane).collect(),
            client: RwLock::new(Client { producer: Arc::new(producer), made: now() }),
            settings,
            reports: reports.clone(),
            heard: Mutex::new(now()),
            clock,
            write_max: config.write_max,
        });
        let _ = reports.0.set(Arc::downgrade(&lanes));
        Ok(lanes)
    }

    /// The random id of this host among those who write.
    pub(crate) const fn writer(&self) -> &Writer {
        &self.writer
    }

    /// The number of a frame in this host's name.
    pub(crate) fn own(&self, frame: &Frame) -> Option<u64> {
        (frame.writer == self.writer).then_some(frame.number)
    }

    /// The client that writes now.
    pub(crate) fn producer(&self) -> Arc<Producer> {
        Arc::clone(&self.client.read().unwrap_or_else(PoisonError::into_inner).producer)
    }

    /// The brokers have answered.
    pub(crate) fn heard(&self) {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = now();
    }

    /// Makes the client anew if it is lost: it has heard nothing for `max` while
    /// there was something to hear, or it has failed for good. A client that was
    /// told of a topic without brokers forgets all of them, and never asks again.
    ///
    /// What it had on its way is answered as unknown.
    pub(crate) fn renew_if_lost(&self, max: Duration, asked: bool) {
        let Some(why) = self.is_lost(max, asked) else { return };
        self.heard();
        let made = self.settings.create_with_context(self.reports.clone());
        match made {
            Ok(fresh) => {
                tracing::warn!("{why}; the writing client is made anew");
                let mut client = self.client.write().unwrap_or_else(PoisonError::into_inner);
                let fresh = Client { producer: Arc::new(fresh), made: now() };
                let old = std::mem::replace(&mut *client, fresh);
                drop(client);
                // Tells what was on its way; a client without brokers may take long over it.
                crate::client::let_go(old);
            }
            Err(error) => tracing::error!(%error, "the writing client cannot be made anew"),
        }
    }

    fn is_lost(&self, max: Duration, asked: bool) -> Option<String> {
        let client = self.client.read().unwrap_or_else(PoisonError::into_inner);
        // One that fails for good each time is not made anew all the time.
        if client.made.elapsed() >= max
            && let Some((code, why)) = client.producer.client().fatal_error()
        {
            return Some(format!("the writing client has failed for good: {code}: {why}"));
        }
        drop(client);
        let heard = *self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let waits = asked || self.lanes.iter().any(|lane| lane.lock().in_flight.is_some());
        (waits && heard.elapsed() >= max).then(|| format!("the brokers were not heard for {max:?}"))
    }

    /// Writes an operation and waits until its entry is judged.
    ///
    /// # Errors
    /// `Unavailable` with `NotApplied` when nothing was sent, and with `Unknown`
    /// when the message was handed over and not read back in time.
    pub(crate) async fn write(
        &self,
        partition: u32,
        id: AppendId,
        statement: &Statement,
        op: Option<Arc<Op>>,
        wants_reply: bool,
    ) -> Result<Judged, LogError> {
        let payload = op.as_deref().map(replica::encode).unwrap_or_default();
        let draft = Draft::new(id, statement, payload);
        let bytes_max = crate::config::MESSAGE_BYTES_MAX - 1_024;
        if draft.bytes() > bytes_max {
            let (bytes, bytes_max) = (draft.bytes() as u64, bytes_max as u64);
            return Err(LogError::TooLarge { what: "message to the log", bytes, bytes_max });
        }
        let lane = &self.lanes[partition as usize];
        let units = u32::try_from(draft.bytes() / UNIT).unwrap_or(1).max(1);
        let room = async {
            let entry = Arc::clone(&lane.entries).acquire_owned().await.ok()?;
            Some([entry, Arc::clone(&lane.units).acquire_many_owned(units).await.ok()?])
        };
        let until = tokio::time::Instant::now() + self.write_max;
        let Ok(Some(room)) = tokio::time::timeout_at(until, room).await else {
            return Err(LogError::unavailable("too many writes wait for the log"));
        };
        let (answer, mut judged) = oneshot::channel();
        let (answer, room) = (Some(answer), Some(room));
        let ticket = self.queue(partition, draft, Sent { id, op, wants_reply, answer, room })?;
        let answered = tokio::time::timeout_at(until, &mut judged).await;
        match answered {
            Ok(Ok(judged)) => judged,
            Ok(Err(_)) => Err(unknown("the store was closed before the message was read back")),
            Err(_) if self.take_back(partition, ticket) => Err(LogError::unavailable(
                "the write was not sent: an earlier message is still on its way",
            )),
            Err(_) => Err(unknown("the message was not read back in time")),
        }
    }

    /// Writes what nobody waits for.
    pub(crate) fn post(&self, partition: u32, statement: &Statement) {
        let id = AppendId::new([0; 16]);
        let draft = Draft::new(id, statement, Vec::new());
        let sent = Sent { id, op: None, wants_reply: false, answer: None, room: None };
        // A store that is closed needs it no more.
        let _ = self.queue(partition, draft, sent);
    }

    fn queue(&self, partition: u32, draft: Draft, sent: Sent) -> Result<u64, LogError> {
        let ticket = {
            let mut state = self.lanes[partition as usize].lock();
            if state.closed {
                return Err(LogError::unavailable("the store is closed"));
            }
            let ticket = state.next_ticket;
            state.next_ticket += 1;
            state.queue.push_back(Job { ticket, draft, sent });
            ticket
        };
        self.pump(partition);
        Ok(ticket)
    }

    /// Takes a job back that was not sent yet.
    fn take_back(&self, partition: u32, ticket: u64) -> bool {
        let mut state = self.lanes[partition as usize].lock();
        let before = state.queue.len();
        state.queue.retain(|job| job.ticket != ticket);
        state.queue.len() < before
    }

    /// Sends what is queued, unless a message is on its way already.
    fn pump(&self, partition: u32) {
        let producer = self.producer();
        self.pump_to(&producer, partition);
        // If it was made anew meanwhile this may be the last to have it. Closing it
        // waits for its reports, which take the lanes' locks and come on its own
        // thread, and that may be this one.
        if let Some(last) = Arc::into_inner(producer) {
            crate::client::let_go(last);
        }
    }

    fn pump_to(&self, producer: &Producer, partition: u32) {
        let mut state = self.lanes[partition as usize].lock();
        while state.in_flight.is_none() {
            let jobs = next_jobs(&mut state.queue);
            if jobs.is_empty() {
                return;
            }
            let number = state.next_number;
            state.next_number += 1;
            let drafts = jobs.iter().map(|job| &job.draft);
            let frame = crate::frame::write(&self.writer, number, self.clock.now(), drafts);
            let record: BaseRecord<'_, (), [u8], Box<(u32, u64)>> =
                BaseRecord::with_opaque_to(&self.topic, Box::new((partition, number)))
                    .partition(partition.cast_signed())
                    .payload(&frame);
            // Under the lock: the client only copies it, and nobody else may
            // send for this lane meanwhile.
            match producer.send(record) {
                Ok(()) => {
                    state.in_flight = Some(number);
                    state.flights.insert(number, jobs.into_iter().map(|job| job.sent).collect());
                }
                Err((error, _)) => {
                    for mut job in jobs {
                        job.sent.tell(Err(unsent("the client takes no message", error.clone())));
                    }
                }
            }
        }
    }

    /// A message of this host was read back. The next one goes out, and is on
    /// its way while this one is judged.
    pub(crate) fn read_back(&self, partition: u32, number: u64) {
        self.lanes[partition as usize].lock().landed(number);
        self.heard();
        self.pump(partition);
    }

    /// A message of this host was judged: who waits for its entries, if that was
    /// not settled before.
    pub(crate) fn judged(&self, partition: u32, number: u64) -> Option<Vec<Sent>> {
        self.lanes[partition as usize].lock().flights.remove(&number)
    }

    /// The fold went on beyond messages that it did not read: what is on its way
    /// may be among them.
    pub(crate) fn passed(&self, partition: u32) {
        let flights = {
            let mut state = self.lanes[partition as usize].lock();
            state.in_flight = None;
            std::mem::take(&mut state.flights)
        };
        for mut sent in flights.into_values().flatten() {
            sent.tell(Err(unknown("this host went on from a checkpoint beyond the message")));
        }
        self.pump(partition);
    }

    /// The client has given a message up. It may be in the log, or come there.
    fn failed(&self, partition: u32, number: u64, why: &LogError) {
        self.lanes[partition as usize].lock().landed(number);
        for mut sent in self.judged(partition, number).into_iter().flatten() {
            sent.tell(Err(why.clone()));
        }
        self.pump(partition);
    }

    /// Nothing is sent any more; whoever waits is told.
    pub(crate) fn close(&self, why: &LogError) {
        for lane in &self.lanes {
            let (queued, flying) = {
                let mut state = lane.lock();
                state.closed = true;
                state.in_flight = None;
                (std::mem::take(&mut state.queue), std::mem::take(&mut state.flights))
            };
            for mut job in queued {
                job.sent.tell(Err(why.clone()));
            }
            for mut sent in flying.into_values().flatten() {
                sent.tell(Err(unknown("the store was closed")));
            }
        }
    }
}

/// As many of the queued jobs as one message takes.
fn next_jobs(queue: &mut VecDeque<Job>) -> Vec<Job> {
    let (mut jobs, mut bytes) = (Vec::new(), 0);
    while let Some(job) = queue.front() {
        let size = job.draft.bytes();
        if !jobs.is_empty() && (bytes + size > FRAME_BYTES_MAX || jobs.len() == ENTRIES_MAX) {
            break;
        }
        bytes += size;
        jobs.extend(queue.pop_front());
    }
    jobs
}

impl Judged {
    /// The verdict as a refusal of the contract; `Ok` when the entry counts.
    pub(crate) fn void(&self) -> Option<Void> {
        self.verdict.err()
    }
}

#[cfg(test)]
mod tests;
