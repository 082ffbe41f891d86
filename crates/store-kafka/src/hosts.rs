//! What hosts tell of themselves: signs of life, addresses, and which partitions
//! they have at hand. Advice: the fence decides.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use event_listener::Event;
use mainspring_eventlog::{Holder, LogError, WarmHost};
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext, Rebalance};
use rdkafka::message::Message as _;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use rdkafka::{Offset, TopicPartitionList};
use serde::{Deserialize, Serialize};

use crate::client::{Quiet, Reader, now, quiet};
use crate::config::KafkaConfig;
use crate::error::unsent;
use crate::frame::Writer;

/// A host's sign of life, as it stands in the hosts' topic.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Beat {
    /// The host's random id.
    host: String,
    /// The incarnations that it answers for.
    holders: BTreeMap<String, String>,
    address: String,
    partitions: Vec<u32>,
}

/// What was last heard of a host.
#[derive(Debug)]
struct Heard {
    at: Instant,
    beat: Beat,
}

#[derive(Debug, Default)]
struct Table {
    own: Beat,
    /// Whether something of this host's own is to be told at once.
    changed: bool,
    heard: HashMap<String, Heard>,
    /// Since when this host listens.
    listening: Option<Instant>,
}

/// What is known of the hosts.
#[derive(Debug)]
struct Shared {
    table: Mutex<Table>,
    heard: Event,
    closed: AtomicBool,
    silence_max: Duration,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The hosts of a store, as this one knows them.
#[derive(Debug)]
pub(crate) struct Hosts {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// How long this host waits to hear itself.
const HEAR_MAX: Duration = Duration::from_secs(10);
/// Hosts that were silent for so long are forgotten.
const FORGET_AFTER: Duration = Duration::from_secs(600);
/// How long a host may not hear its own signs of life.
const DEAF_MAX: Duration = Duration::from_secs(10);
/// How long one poll waits.
const POLL: Duration = Duration::from_millis(50);

impl Hosts {
    pub(crate) fn start(config: &KafkaConfig, writer: &Writer) -> Result<Self, LogError> {
        let mut host = String::with_capacity(32);
        for byte in writer {
            let _ = write!(host, "{byte:02x}");
        }
        let own = Beat { host, ..Beat::default() };
        let shared = Arc::new(Shared {
            table: Mutex::new(Table { own, ..Table::default() }),
            heard: Event::new(),
            closed: AtomicBool::new(false),
            silence_max: config.silence_max,
        });
        let failed = |error| unsent("the hosts' topic cannot be opened", error);
        let client = Client {
            topic: config.hosts_topic(),
            log: config.topic.clone(),
            beat: config.beat,
            shared: Arc::clone(&shared),
            listener: config.open_reader().map_err(failed)?,
            producer: config.plain_producer().create_with_context(Quiet).map_err(failed)?,
            config: config.clone(),
            group: None,
            made: now(),
        };
        let thread = std::thread::Builder::new()
            .name("kafka-hosts".to_owned())
            .spawn(move || client.run())
            .map_err(|error| LogError::unavailable(format!("thread: {error}")))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Gives signs of life for `holder` from now on; answers when one of them
    /// has come back.
    pub(crate) async fn announce(&self, holder: &Holder) -> Result<(), LogError> {
        {
            let mut table = self.shared.lock();
            table.own.holders.insert(holder.id.clone(), holder.name.clone());
            table.changed = true;
        }
        self.hear(|own| own.holders.contains_key(&holder.id)).await
    }

    /// Tells where clients reach this host.
    pub(crate) async fn advertise(&self, address: &str) -> Result<(), LogError> {
        {
            let mut table = self.shared.lock();
            address.clone_into(&mut table.own.address);
            table.changed = true;
        }
        self.hear(|own| own.address == address).await
    }

    /// Waits until this host has read back a beat of its own that is so.
    async fn hear(&self, is_so: impl Fn(&Beat) -> bool) -> Result<(), LogError> {
        let heard = async {
            loop {
                let heard = self.shared.heard.listen();
                {
                    let table = self.shared.lock();
                    let own = table.heard.get(&table.own.host);
                    if own.is_some_and(|own| is_so(&own.beat)) {
                        return;
                    }
                }
                heard.await;
            }
        };
        let in_time = tokio::time::timeout(HEAR_MAX, heard).await;
        in_time.map_err(|_| LogError::unavailable("this host's sign of life did not come back"))
    }

    /// Whether a sign of life of a holder came lately. Waits until this host has
    /// listened for as long as one may be silent.
    pub(crate) async fn is_alive(&self, holder: &str) -> Result<bool, LogError> {
        let silence_max = self.shared.silence_max;
        let listened = async {
            loop {
                let heard = self.shared.heard.listen();
                let now = now();
                let wait = {
                    let table = self.shared.lock();
                    if let Some(alive) = table.is_alive(holder, now, silence_max) {
                        return alive;
                    }
                    table
                        .listening
                        .map(|since| (since + silence_max).saturating_duration_since(now))
                };
                let _ = tokio::time::timeout(wait.unwrap_or(silence_max), heard).await;
            }
        };
        tokio::time::timeout(HEAR_MAX + silence_max, listened)
            .await
            .map_err(|_| LogError::unavailable("no host's sign of life can be heard"))
    }

    /// The live host that has a partition at hand.
    pub(crate) fn warm_host(&self, partition: u32) -> Option<WarmHost> {
        let now = now();
        let table = self.shared.lock();
        let live = table.heard.values().filter(|heard| {
            now.duration_since(heard.at) <= self.shared.silence_max
                && heard.beat.partitions.contains(&partition)
        });
        // While a partition changes hands two may name it: all name the same of them.
        let warm = live.min_by(|a, b| a.beat.host.cmp(&b.beat.host))?;
        let (id, name) = warm.beat.holders.iter().next()?;
        let holder = Holder { id: id.clone(), name: name.clone() };
        Some(WarmHost { holder, address: warm.beat.address.clone() })
    }

    /// Whether this host is the one of the live ones that does what one should.
    pub(crate) fn is_first(&self) -> bool {
        let now = now();
        let table = self.shared.lock();
        let live = table.heard.values().filter(|heard| {
            now.duration_since(heard.at) <= self.shared.silence_max
                && !heard.beat.holders.is_empty()
        });
        live.map(|heard| &heard.beat.host).min() == Some(&table.own.host)
    }
}

impl Table {
    /// Takes a beat in. Who hears its own again after a silence was cut off from
    /// the others as well, and listens to them anew before it takes one for dead.
    fn heard(&mut self, beat: Beat, now: Instant, silence_max: Duration) {
        let is_own = beat.host == self.own.host;
        let before = self.heard.insert(beat.host.clone(), Heard { at: now, beat });
        let silence = before.map(|before| now.saturating_duration_since(before.at));
        if is_own && silence.is_some_and(|silence| silence > silence_max) {
            self.listening = Some(now);
        }
    }

    /// Whether a holder lives; `None` while that cannot be told. One whose beats
    /// are missing together with this host's own is not taken for dead: it may
    /// be the line.
    fn is_alive(&self, holder: &str, now: Instant, silence_max: Duration) -> Option<bool> {
        let age = |heard: &Heard| now.saturating_duration_since(heard.at);
        let heard = self.heard.values().find(|heard| heard.beat.holders.contains_key(holder));
        if heard.is_some_and(|heard| age(heard) <= silence_max) {
            return Some(true);
        }
        if self.listening.is_none_or(|since| now.saturating_duration_since(since) < silence_max) {
            return None;
        }
        let hears_itself = self.own.holders.is_empty()
            || self.heard.get(&self.own.host).is_some_and(|own| age(own) <= silence_max);
        hears_itself.then_some(false)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Hears which partitions the group gives to this host.
struct Assigned(Arc<Shared>);

quiet!(Assigned);

impl ConsumerContext for Assigned {
    fn post_rebalance(&self, group: &BaseConsumer<Self>, _: &Rebalance<'_>) {
        let Ok(assignment) = group.assignment() else { return };
        // It is to be known who has them at hand; the fold reads them all.
        let _ = group.pause(&assignment);
        let partitions = assignment.elements();
        let mut table = self.0.lock();
        table.own.partitions =
            partitions.iter().map(|element| element.partition().cast_unsigned()).collect();
        table.changed = true;
    }
}

struct Client {
    topic: String,
    log: String,
    beat: Duration,
    shared: Arc<Shared>,
    listener: Reader,
    producer: BaseProducer<Quiet>,
    config: KafkaConfig,
    group: Option<BaseConsumer<Assigned>>,
    /// When the clients were made.
    made: Instant,
}

impl Client {
    fn run(mut self) {
        let mut last: Option<Instant> = None;
        while !self.shared.closed.load(Ordering::Acquire) {
            if self.shared.lock().listening.is_none() {
                self.listen();
            }
            let due = last.is_none_or(|last| last.elapsed() >= self.beat);
            let (beat, changed) = {
                let mut table = self.shared.lock();
                (table.own.clone(), std::mem::take(&mut table.changed))
            };
            if !beat.holders.is_empty() || !beat.address.is_empty() {
                self.join_group();
                if due || changed {
                    last = Some(now());
                    self.tell(&beat);
                }
            }
            self.renew_if_deaf(&beat);
            self.producer.poll(Duration::ZERO);
            if let Some(group) = &self.group {
                // Nothing comes of it but who has which partitions.
                while group.poll(Duration::ZERO).is_some() {}
            }
            self.hear();
        }
        // Others need not wait for the silence.
        let _ = self.producer.flush(Duration::from_millis(200));
    }

    /// A host that gives signs of life and does not hear its own for long makes
    /// its clients anew: one that has lost its brokers may never find them again.
    fn renew_if_deaf(&mut self, beat: &Beat) {
        let heard = self.shared.lock().heard.get(&beat.host).map(|own| own.at);
        let since = heard.map_or(self.made, |heard| heard.max(self.made));
        if (beat.holders.is_empty() && beat.address.is_empty()) || since.elapsed() < DEAF_MAX {
            return;
        }
        self.made = now();
        if let (Ok(listener), Ok(producer)) =
            (self.config.open_reader(), self.config.plain_producer().create_with_context(Quiet))
        {
            tracing::warn!("no sign of life was heard for {DEAF_MAX:?}; the clients are made anew");
            crate::client::let_go(std::mem::replace(&mut self.listener, listener));
            crate::client::let_go(std::mem::replace(&mut self.producer, producer));
            crate::client::let_go(self.group.take());
            self.shared.lock().listening = None;
        }
    }

    /// Listens from the topic's end on.
    fn listen(&self) {
        let end = self.listener.fetch_watermarks(&self.topic, 0, Duration::from_secs(2));
        let assigned = end.and_then(|(_, end)| {
            let mut list = TopicPartitionList::new();
            list.add_partition_offset(&self.topic, 0, Offset::Offset(end))?;
            self.listener.assign(&list)
        });
        match assigned {
            Ok(()) => self.shared.lock().listening = Some(now()),
            Err(error) => tracing::debug!(%error, "the hosts' topic cannot be read now"),
        }
    }

    fn join_group(&mut self) {
        if self.group.is_some() {
            return;
        }
        let mut config = self.config.base();
        config
            .set("group.id", format!("{}.warm", self.log))
            .set("enable.auto.commit", "false")
            .set("auto.offset.reset", "latest")
            .set("session.timeout.ms", "6000")
            .set("heartbeat.interval.ms", "1000")
            .set("partition.assignment.strategy", "cooperative-sticky");
        let group = config.create_with_context(Assigned(Arc::clone(&self.shared)));
        let group = group.and_then(|group: BaseConsumer<Assigned>| {
            group.subscribe(&[&self.log])?;
            Ok(group)
        });
        match group {
            Ok(group) => self.group = Some(group),
            Err(error) => tracing::warn!(%error, "this host is not named as warm for any session"),
        }
    }

    fn tell(&self, beat: &Beat) {
        let value = serde_json::to_vec(beat).expect("a beat has only string keys");
        let record: BaseRecord<'_, str, [u8]> =
            BaseRecord::to(&self.topic).partition(0).key(beat.host.as_str()).payload(&value[..]);
        if let Err((error, _)) = self.producer.send(record) {
            tracing::debug!(%error, "a sign of life is not sent");
        }
    }

    fn hear(&self) {
        let mut wait = POLL;
        loop {
            let beat: Beat = match self.listener.poll(wait) {
                None => return,
                Some(Ok(message)) => {
                    let beat = serde_json::from_slice(message.payload().unwrap_or_default());
                    // Whatever else stands there says nothing of hosts.
                    let Ok(beat) = beat else { continue };
                    beat
                }
                Some(Err(error)) => {
                    tracing::debug!(%error, "the hosts' topic cannot be read now");
                    if crate::error::is_lost_offset(&error) {
                        self.shared.lock().listening = None;
                    }
                    return;
                }
            };
            wait = Duration::ZERO;
            let now = now();
            let mut table = self.shared.lock();
            table.heard.retain(|_, heard| now.duration_since(heard.at) < FORGET_AFTER);
            table.heard(beat, now, self.shared.silence_max);
            drop(table);
            self.shared.heard.notify(usize::MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SILENCE_MAX: Duration = Duration::from_secs(3);

    fn beat(host: &str) -> Beat {
        let holders = [(format!("{host}-holder"), host.to_owned())].into_iter().collect();
        Beat { host: host.to_owned(), holders, ..Beat::default() }
    }

    #[test]
    fn a_host_that_was_cut_off_listens_anew_before_it_takes_one_for_dead() {
        let begun = now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let mut table = Table { own: beat("a"), listening: Some(begun), ..Table::default() };
        for seconds in 0..=4 {
            table.heard(beat("a"), at(seconds), SILENCE_MAX);
            table.heard(beat("b"), at(seconds), SILENCE_MAX);
        }
        let is_alive =
            |table: &Table, seconds| table.is_alive("b-holder", at(seconds), SILENCE_MAX);
        assert_eq!(is_alive(&table, 5), Some(true));
        // The brokers are gone for both. This one is the first that hears again.
        assert_eq!(is_alive(&table, 9), None);
        table.heard(beat("a"), at(10), SILENCE_MAX);
        assert_eq!(is_alive(&table, 10), None, "the other may only be later");
        table.heard(beat("b"), at(11), SILENCE_MAX);
        assert_eq!(is_alive(&table, 12), Some(true));
        // One that is silent while this host hears itself is dead.
        for seconds in 11..=16 {
            table.heard(beat("a"), at(seconds), SILENCE_MAX);
        }
        assert_eq!(is_alive(&table, 16), Some(false));
    }
}
