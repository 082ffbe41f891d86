//! Messages that were read: kept in memory, fetched again by their offset.

use std::collections::HashMap;
use std::fmt;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mainspring_api::Bytes;
use mainspring_eventlog::EngineError;
use mainspring_eventlog::replica::record_value;
use rdkafka::consumer::Consumer as _;
use rdkafka::message::Message as _;
use rdkafka::{Offset, TopicPartitionList};

use crate::client::{Reader, now};
use crate::config::KafkaConfig;
use crate::engine::{RecordPlace, Records};
use crate::frame::{Frame, Statement};

type Place = (u32, u64);

/// Messages in two generations: what is used again stays.
#[derive(Debug, Default)]
struct Generations {
    young: HashMap<Place, Arc<Frame>>,
    old: HashMap<Place, Arc<Frame>>,
    young_bytes: usize,
}

/// The messages of the log, as far as they are asked for.
pub(crate) struct Messages {
    kept: Mutex<Generations>,
    bytes_max: usize,
    fetcher: Fetcher,
}

impl fmt::Debug for Messages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Messages").field("bytes_max", &self.bytes_max).finish_non_exhaustive()
    }
}

impl Messages {
    pub(crate) fn new(config: &KafkaConfig) -> Result<Arc<Self>, rdkafka::error::KafkaError> {
        let fetcher = Fetcher::start(config)?;
        Ok(Arc::new(Self { kept: Mutex::default(), bytes_max: config.cache_bytes, fetcher }))
    }

    /// Keeps a message that was read.
    pub(crate) fn keep(&self, partition: u32, offset: u64, frame: &Arc<Frame>) {
        let mut kept = self.kept();
        kept.young_bytes += frame.memory() + 256;
        kept.young.insert((partition, offset), Arc::clone(frame));
        // Two generations share the bound.
        if kept.young_bytes > self.bytes_max / 2 {
            kept.old = std::mem::take(&mut kept.young);
            kept.young_bytes = 0;
        }
    }

    fn kept(&self) -> MutexGuard<'_, Generations> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self, partition: u32, offset: u64) -> Option<Arc<Frame>> {
        let place = (partition, offset);
        let found = {
            let kept = self.kept();
            if let Some(frame) = kept.young.get(&place) {
                return Some(Arc::clone(frame));
            }
            kept.old.get(&place).map(Arc::clone)?
        };
        self.keep(partition, offset, &found);
        Some(found)
    }

    /// The message at an offset.
    ///
    /// # Errors
    /// When it cannot be fetched now, is not there, or is no frame.
    pub(crate) fn get(&self, partition: u32, offset: u64) -> Result<Arc<Frame>, EngineError> {
        if let Some(frame) = self.known(partition, offset) {
            return Ok(frame);
        }
        let what = || format!("message {offset} of partition {partition}");
        let mut found = None;
        for (at, bytes) in self.fetcher.fetch(partition, offset)? {
            let Some(frame) = Frame::read(bytes).map(Arc::new) else { continue };
            self.keep(partition, at, &frame);
            if at == offset {
                found = Some(frame);
            }
        }
        found.ok_or_else(|| refused(format!("{} cannot be read", what())))
    }
}

impl Records for Messages {
    fn record(&self, partition: u32, place: RecordPlace) -> Result<Vec<u8>, EngineError> {
        let frame = self.get(partition, place.offset)?;
        let entry = frame.entries.get(place.entry as usize);
        let value = entry.and_then(|entry| match &entry.statement {
            Statement::Op(terms) => {
                let payload = frame.payload(entry);
                record_value(entry.id, terms, payload, frame.time, place.record as usize).ok()
            }
            _ => None,
        });
        let RecordPlace { offset, entry, record } = place;
        value.ok_or_else(|| {
            refused(format!(
                "partition {partition}, message {offset} has no record {record} in entry {entry}"
            ))
        })
    }
}

pub(crate) fn refused(message: String) -> EngineError {
    EngineError { message, source: None }
}

fn late(partition: u32, offset: u64) -> EngineError {
    refused(format!("message {offset} of partition {partition} did not come within {FETCH_MAX:?}"))
}

type Fetched = Vec<(u64, Bytes)>;

struct Request {
    partition: u32,
    offset: u64,
    /// When who asks is gone.
    until: Instant,
    answer: SyncSender<Result<Fetched, EngineError>>,
}

/// A thread that reads messages by their offset.
struct Fetcher {
    requests: Option<SyncSender<Request>>,
    thread: Option<JoinHandle<()>>,
}

/// How long one message may take.
const FETCH_MAX: Duration = Duration::from_secs(10);
/// Requests that may wait.
const QUEUE_MAX: usize = 256;
/// Messages that are read on after the one that was asked for, if they are
/// there: a journal's next record is often near.
const AHEAD_MAX: usize = 256;
/// Bytes of them.
const AHEAD_BYTES_MAX: usize = 4 << 20;

impl Fetcher {
    fn start(config: &KafkaConfig) -> Result<Self, rdkafka::error::KafkaError> {
        let consumer = config.open_reader()?;
        let (requests, queue) = sync_channel(QUEUE_MAX);
        let config = config.clone();
        let thread = std::thread::Builder::new()
            .name("kafka-fetch".to_owned())
            .spawn(move || run(&config, consumer, &queue))
            .map_err(|error| rdkafka::error::KafkaError::ClientCreation(error.to_string()))?;
        Ok(Self { requests: Some(requests), thread: Some(thread) })
    }

    fn fetch(&self, partition: u32, offset: u64) -> Result<Fetched, EngineError> {
        let (answer, fetched) = sync_channel(1);
        let stopped = || refused("the store is closed".to_owned());
        let requests = self.requests.as_ref().ok_or_else(stopped)?;
        let until = now() + FETCH_MAX;
        let mut request = Request { partition, offset, until, answer };
        loop {
            request = match requests.try_send(request) {
                Ok(()) => break,
                Err(TrySendError::Disconnected(_)) => return Err(stopped()),
                Err(TrySendError::Full(_)) if now() >= until => {
                    return Err(late(partition, offset));
                }
                Err(TrySendError::Full(request)) => request,
            };
            std::thread::sleep(Duration::from_millis(2));
        }
        match fetched.recv_timeout(until.saturating_duration_since(now())) {
            Ok(fetched) => fetched,
            Err(RecvTimeoutError::Timeout) => Err(late(partition, offset)),
            Err(RecvTimeoutError::Disconnected) => Err(stopped()),
        }
    }
}

impl Drop for Fetcher {
    fn drop(&mut self) {
        drop(self.requests.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(config: &KafkaConfig, mut consumer: Reader, queue: &Receiver<Request>) {
    let mut next: Option<Place> = None;
    while let Ok(Request { partition, offset, until, answer }) = queue.recv() {
        // Nobody waits for it any more.
        if now() >= until {
            continue;
        }
        let fetched = read_at(&consumer, &config.topic, (partition, offset), next, until);
        next =
            fetched.as_ref().ok().and_then(|read| read.last()).map(|(at, _)| (partition, at + 1));
        // A client that has lost its brokers may never find them again.
        if fetched.is_err()
            && let Ok(fresh) = config.open_reader()
        {
            crate::client::let_go(std::mem::replace(&mut consumer, fresh));
        }
        // Whoever asked may have given up.
        let _ = answer.send(fetched);
    }
}

/// Reads the message at `offset`, and what follows it and is there at once.
fn read_at(
    consumer: &Reader,
    topic: &str,
    (partition, offset): Place,
    next: Option<Place>,
    until: Instant,
) -> Result<Fetched, EngineError> {
    if next != Some((partition, offset)) {
        assign(consumer, topic, partition, offset)
            .map_err(|error| EngineError::of("read a message by its offset", error))?;
    }
    let (mut read, mut bytes) = (Fetched::new(), 0);
    loop {
        let wait = if read.is_empty() { Duration::from_millis(100) } else { Duration::ZERO };
        match consumer.poll(wait) {
            Some(Ok(message)) => {
                let at = message.offset().cast_unsigned();
                let payload = message.payload().unwrap_or_default();
                if i32::try_from(partition) != Ok(message.partition()) || at < offset {
                    continue;
                }
                bytes += payload.len();
                read.push((at, Bytes::copy_from_slice(payload)));
                if at > offset && read.len() == 1 {
                    return Err(refused(format!("message {offset} is not in the log")));
                }
                if read.len() >= AHEAD_MAX || bytes >= AHEAD_BYTES_MAX {
                    return Ok(read);
                }
            }
            Some(Err(error)) if crate::error::is_lost_offset(&error) => {
                return Err(EngineError::of("read a message by its offset", error));
            }
            // Brokers come and go; the client tries again by itself.
            Some(Err(_)) | None if read.is_empty() => {
                if now() >= until {
                    return Err(late(partition, offset));
                }
            }
            _ => return Ok(read),
        }
    }
}

fn assign(
    consumer: &Reader,
    topic: &str,
    partition: u32,
    offset: u64,
) -> Result<(), rdkafka::error::KafkaError> {
    let mut list = TopicPartitionList::new();
    let (partition, offset) = (partition.cast_signed(), offset.cast_signed());
    list.add_partition_offset(topic, partition, Offset::Offset(offset))?;
    consumer.assign(&list)
}
