//! The floor: producing to a topic and reading one's own messages back, with as
//! little around the client as that takes.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use futures_channel::oneshot;
use mainspring_store_kafka::KafkaConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::Message as _;
use rdkafka::producer::{BaseRecord, DefaultProducerContext, ThreadedProducer};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

/// What goes into one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pack {
    /// One payload, at once.
    Each,
    /// What queued while the partition's last message was on its way.
    Queued,
}

/// How long a message may take there and back.
const BACK_MAX: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
struct Lane {
    queue: VecDeque<(Vec<u8>, oneshot::Sender<()>)>,
    flights: HashMap<u64, Vec<oneshot::Sender<()>>>,
    next: u64,
}

struct Shared {
    topic: String,
    pack: Pack,
    producer: ThreadedProducer<DefaultProducerContext>,
    lanes: Vec<Mutex<Lane>>,
    over: AtomicBool,
}

/// A client that writes and reads its own messages back.
pub(crate) struct Bare {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Bare {
    /// Starts on a topic that holds one message in each partition.
    pub(crate) fn start(config: &KafkaConfig, partitions: u32, pack: Pack) -> Result<Self> {
        let mut client = ClientConfig::new();
        client.set("bootstrap.servers", &config.brokers).set("socket.nagle.disable", "true");
        let producer = client
            .clone()
            .set("acks", "all")
            .set("enable.idempotence", "true")
            .set("linger.ms", "0")
            .set("message.max.bytes", (16 << 20).to_string())
            .create()?;
        let consumer: BaseConsumer = client
            .set("group.id", "bench")
            .set("enable.auto.commit", "false")
            .set("isolation.level", "read_uncommitted")
            .create()?;
        let mut list = TopicPartitionList::new();
        for partition in 0..partitions {
            list.add_partition_offset(&config.topic, partition.cast_signed(), Offset::Offset(1))?;
        }
        consumer.assign(&list)?;
        let shared = Arc::new(Shared {
            topic: config.topic.clone(),
            pack,
            producer,
            lanes: (0..partitions).map(|_| Mutex::default()).collect(),
            over: AtomicBool::new(false),
        });
        let reading = Arc::clone(&shared);
        let thread = std::thread::spawn(move || reading.read(&consumer));
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Writes a payload and waits until it was read back.
    pub(crate) async fn write(&self, caller: usize, payload: Vec<u8>) -> Result<()> {
        let back = self.queue(caller, payload)?;
        tokio::time::timeout(BACK_MAX, back).await.context("no answer")?.context("not read back")
    }

    fn queue(&self, caller: usize, payload: Vec<u8>) -> Result<oneshot::Receiver<()>> {
        let partition = caller % self.shared.lanes.len();
        let (done, back) = oneshot::channel();
        let mut lane = self.shared.lane(partition);
        lane.queue.push_back((payload, done));
        self.shared.send(partition, &mut lane)?;
        Ok(back)
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lane(&self, partition: usize) -> MutexGuard<'_, Lane> {
        self.lanes[partition].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends what is queued, as far as the pack allows: a number, and the
    /// payloads, each with its length.
    fn send(&self, partition: usize, lane: &mut Lane) -> Result<()> {
        if lane.queue.is_empty() || (self.pack == Pack::Queued && !lane.flights.is_empty()) {
            return Ok(());
        }
        let number = lane.next;
        lane.next += 1;
        let mut message = number.to_be_bytes().to_vec();
        let mut waiting = Vec::with_capacity(lane.queue.len());
        for (payload, done) in lane.queue.drain(..) {
            message.extend_from_slice(&u32::try_from(payload.len())?.to_be_bytes());
            message.extend_from_slice(&payload);
            waiting.push(done);
        }
        lane.flights.insert(number, waiting);
        let record: BaseRecord<'_, (), [u8]> =
            BaseRecord::to(&self.topic).partition(i32::try_from(partition)?).payload(&message);
        self.producer.send(record).map_err(|(error, _)| anyhow!(error))
    }

    fn read(&self, consumer: &BaseConsumer) {
        while !self.over.load(Ordering::Acquire) {
            // What fails is missed by whoever waits for it.
            let Some(Ok(message)) = consumer.poll(POLL) else { continue };
            let number = message.payload().and_then(|payload| payload.first_chunk::<8>());
            let Some(number) = number.map(|number| u64::from_be_bytes(*number)) else { continue };
            let Ok(partition) = usize::try_from(message.partition()) else { continue };
            let mut lane = self.lane(partition);
            let waiting = lane.flights.remove(&number);
            if let Err(error) = self.send(partition, &mut lane) {
                eprintln!("a bare message was not taken: {error:#}");
            }
            drop(lane);
            for done in waiting.into_iter().flatten() {
                let _ = done.send(());
            }
        }
    }
}
