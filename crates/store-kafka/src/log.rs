//! Reading the log outside of the fold: its genesis, its bounds, and ahead.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use mainspring_api::Bytes;
use mainspring_eventlog::LogError;
use rdkafka::consumer::Consumer as _;
use rdkafka::error::KafkaError;
use rdkafka::message::Message as _;
use rdkafka::{Offset, TopicPartitionList};

use crate::client::{Quiet, Reader, now};
use crate::config::KafkaConfig;
use crate::error::{Halt, is_lost_topic, unsent};
use crate::frame::{Frame, Genesis, Statement};

/// How long the broker may take for one answer.
const ASK_MAX: Duration = Duration::from_secs(10);

/// Pause between two questions.
const AGAIN: Duration = Duration::from_millis(50);

/// Asks until there is an answer, within a bound: leaders move, and a topic that
/// was just made is not known to every broker.
///
/// # Errors
/// `Unavailable` with the last answer; `Halted` when this client is refused.
#[expect(clippy::disallowed_methods, reason = "bounds a wait on this thread")]
pub(crate) fn ask<T>(
    what: &str,
    mut question: impl FnMut() -> Result<T, KafkaError>,
) -> Result<T, LogError> {
    let since = Instant::now();
    loop {
        let error = match question() {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        if crate::error::is_refused(&error) && since.elapsed() >= REFUSED_MAX {
            return Err(Halt::AccessRefused(format!("{what}: {error}")).into());
        }
        if since.elapsed() >= ASK_MAX {
            return Err(unsent(what, error));
        }
        std::thread::sleep(AGAIN);
    }
}

/// How long brokers may refuse before that counts: a rule that was just made, or
/// a topic, is not known to every broker.
pub(crate) const REFUSED_MAX: Duration = Duration::from_secs(2);

/// How long a topic that is not known may take to be: one that was just made is
/// not known to every broker.
const MISSING_MAX: Duration = Duration::from_secs(2);

/// The partitions of a topic, each with the number of its replicas; `None` when
/// there is no such topic.
///
/// # Errors
/// `Unavailable` when no broker answers.
#[expect(clippy::disallowed_methods, reason = "bounds a wait on this thread")]
pub(crate) fn partitions(client: &Reader, topic: &str) -> Result<Option<Vec<usize>>, LogError> {
    let since = Instant::now();
    loop {
        let found = ask("no broker tells of the topic", || look_up(client, topic))?;
        let found = found.filter(|partitions| !partitions.is_empty());
        if found.is_some() || since.elapsed() >= MISSING_MAX {
            return Ok(found);
        }
        std::thread::sleep(AGAIN);
    }
}

fn look_up(client: &Reader, topic: &str) -> Result<Option<Vec<usize>>, KafkaError> {
    let metadata = match client.fetch_metadata(Some(topic), ASK_MAX) {
        Ok(metadata) => metadata,
        Err(error) if is_lost_topic(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    let found = metadata.topics().iter().find(|found| found.name() == topic);
    let Some(found) = found else { return Ok(None) };
    if let Some(code) = found.error() {
        let error = KafkaError::MetadataFetch(code.into());
        return if is_lost_topic(&error) { Ok(None) } else { Err(error) };
    }
    Ok(Some(found.partitions().iter().map(|partition| partition.replicas().len()).collect()))
}

/// How many partitions a topic has.
fn count(client: &Reader, topic: &str) -> Result<u32, LogError> {
    let found = partitions(client, topic)?.ok_or_else(|| Halt::TopicMissing(topic.to_owned()))?;
    Ok(u32::try_from(found.len()).unwrap_or(u32::MAX))
}

/// The first offset of a partition, and the one after its last.
///
/// # Errors
/// `Unavailable`.
pub(crate) fn bounds(client: &Reader, topic: &str, partition: u32) -> Result<(u64, u64), LogError> {
    let (first, end) = ask("the log's bounds cannot be asked for", || {
        client.fetch_watermarks(topic, partition.cast_signed(), ASK_MAX)
    })?;
    Ok((first.cast_unsigned(), end.cast_unsigned()))
}

/// Is given a message's offset, key and value; says whether to go on.
pub(crate) type VisitMessage<'a> =
    dyn FnMut(u64, Option<&[u8]>, &[u8]) -> Result<bool, LogError> + 'a;

/// Visits messages `from..to` of a partition; those that are not there any more
/// are passed over. Stops when `visit` says so.
///
/// # Errors
/// `Unavailable` when the next one does not come within a bound.
#[expect(clippy::disallowed_methods, reason = "bounds a wait on this thread")]
pub(crate) fn each_message(
    client: &Reader,
    topic: &str,
    partition: u32,
    (from, to): (u64, u64),
    visit: &mut VisitMessage<'_>,
) -> Result<(), LogError> {
    if from >= to {
        return Ok(());
    }
    assign(client, topic, partition, from)
        .map_err(|error| unsent("the log cannot be read", error))?;
    let mut since = Instant::now();
    loop {
        match client.poll(Duration::from_millis(100)) {
            Some(Ok(message)) => {
                since = Instant::now();
                let offset = message.offset().cast_unsigned();
                if offset >= to {
                    return Ok(());
                }
                let bytes = message.payload().unwrap_or_default();
                if !visit(offset, message.key(), bytes)? || offset + 1 >= to {
                    return Ok(());
                }
            }
            Some(Err(error)) if crate::error::is_lost_offset(&error) => {
                return Err(unsent("the log has no message there", error));
            }
            Some(Err(error))
                if crate::error::is_refused(&error) && since.elapsed() >= REFUSED_MAX =>
            {
                return Err(
                    Halt::AccessRefused(format!("topic {topic} may not be read: {error}")).into()
                );
            }
            Some(Err(error)) if since.elapsed() >= ASK_MAX => {
                return Err(unsent("the log cannot be read", error));
            }
            // What follows are marks of transactions, which no reader is given.
            None if position(client, topic, partition).is_some_and(|at| at >= to) => return Ok(()),
            None if since.elapsed() >= ASK_MAX => {
                return Err(LogError::unavailable(format!(
                    "no message of partition {partition} came within {ASK_MAX:?}"
                )));
            }
            _ => {}
        }
    }
}

fn position(client: &Reader, topic: &str, partition: u32) -> Option<u64> {
    let positions = client.position().ok()?;
    let at = positions.find_partition(topic, partition.cast_signed())?;
    match at.offset() {
        Offset::Offset(offset) => Some(offset.cast_unsigned()),
        _ => None,
    }
}

fn assign(client: &Reader, topic: &str, partition: u32, from: u64) -> Result<(), KafkaError> {
    let mut list = TopicPartitionList::new();
    let from = Offset::Offset(from.cast_signed());
    list.add_partition_offset(topic, partition.cast_signed(), from)?;
    client.assign(&list)
}

/// One message.
pub(crate) fn message(
    client: &Reader,
    topic: &str,
    partition: u32,
    offset: u64,
) -> Result<Option<Bytes>, LogError> {
    let mut found = None;
    each_message(client, topic, partition, (offset, offset + 1), &mut |at, _, bytes| {
        found = (at == offset).then(|| Bytes::copy_from_slice(bytes));
        Ok(false)
    })?;
    Ok(found)
}

/// One message each of many partitions, by partition, in one pass over all of
/// them. Those that do not come at once are not there.
fn one_each(
    config: &KafkaConfig,
    places: &[(u32, u64)],
) -> Result<HashMap<u32, Bytes>, KafkaError> {
    let topic = &config.topic;
    let client: Reader = config.small_reader().create_with_context(Quiet)?;
    let mut list = TopicPartitionList::new();
    for (partition, offset) in places {
        let offset = Offset::Offset(offset.cast_signed());
        list.add_partition_offset(topic, partition.cast_signed(), offset)?;
    }
    client.assign(&list)?;
    let mut found: HashMap<u32, Bytes> = HashMap::new();
    let mut since = now();
    while found.len() < places.len() && since.elapsed() < EACH_MAX {
        let Some(Ok(message)) = client.poll(Duration::from_millis(20)) else { continue };
        let (partition, offset) = (message.partition().cast_unsigned(), message.offset());
        let asked = (partition, offset.cast_unsigned());
        if !found.contains_key(&partition) && places.contains(&asked) {
            found.insert(partition, Bytes::copy_from_slice(message.payload().unwrap_or_default()));
            since = now();
            let mut done = TopicPartitionList::new();
            done.add_partition(topic, message.partition());
            // What it sends on is passed over; this only spares the way.
            let _ = client.pause(&done);
        }
    }
    Ok(found)
}

/// How long the next message of another partition may take, before each is
/// looked for by itself.
const EACH_MAX: Duration = Duration::from_secs(1);

/// The messages at these places, by partition.
///
/// # Errors
/// `Unavailable`, and as [`bounds`].
pub(crate) fn messages(
    client: &Reader,
    config: &KafkaConfig,
    places: &[(u32, u64)],
) -> Result<HashMap<u32, Bytes>, LogError> {
    let mut found = match places {
        // It needs no pass of its own.
        [] | [_] => HashMap::new(),
        _ => one_each(config, places).unwrap_or_default(),
    };
    for (partition, offset) in places {
        if !found.contains_key(partition)
            && let Some(bytes) = message(client, &config.topic, *partition, *offset)?
        {
            found.insert(*partition, bytes);
        }
    }
    Ok(found)
}

/// The genesis that a partition starts with; `None` for an empty partition.
///
/// # Errors
/// `Halted` when it starts with something else, or not at 0.
pub(crate) fn partition_genesis(
    client: &Reader,
    topic: &str,
    partition: u32,
) -> Result<Option<Genesis>, LogError> {
    let (first, end) = bounds(client, topic, partition)?;
    if end == 0 {
        return Ok(None);
    }
    if first > 0 {
        return Err(Halt::LogTruncated { partition, first, end, folded: 0 }.into());
    }
    let bytes = message(client, topic, partition, 0)?.unwrap_or_default();
    genesis_in(bytes, topic, partition).map(Some)
}

fn genesis_in(bytes: Bytes, topic: &str, partition: u32) -> Result<Genesis, LogError> {
    let genesis = Frame::read(bytes).and_then(|frame| match &frame.entries[..] {
        [entry] => match &entry.statement {
            Statement::Genesis(genesis) => Some(genesis.clone()),
            _ => None,
        },
        _ => None,
    });
    let genesis = genesis.filter(|genesis| genesis.partition == partition);
    genesis.ok_or_else(|| {
        Halt::NotALog(format!("partition {partition} of {topic} does not start with a genesis"))
            .into()
    })
}

/// The genesis of a store: the same in every partition, of which there are as
/// many as it says.
///
/// # Errors
/// `Halted`, naming what is missing or other; `Unavailable`.
pub(crate) fn genesis(client: &Reader, config: &KafkaConfig) -> Result<Genesis, LogError> {
    let topic = &config.topic;
    let found = count(client, topic)?;
    let not_begun = || {
        let why = format!("{topic} has no genesis yet; `mainspring kafka init` writes it");
        LogError::from(Halt::NotALog(why))
    };
    let first = partition_genesis(client, topic, 0)?.ok_or_else(not_begun)?;
    if first.partitions != found {
        return Err(Halt::PartitionsChanged { found, genesis: first.partitions }.into());
    }
    let places: Vec<(u32, u64)> = (1..found).map(|partition| (partition, 0)).collect();
    let mut others = one_each(config, &places).unwrap_or_default();
    for partition in 1..found {
        let other = match others.remove(&partition) {
            Some(bytes) => genesis_in(bytes, topic, partition)?,
            // Looked at by itself, it says what it is.
            None => partition_genesis(client, topic, partition)?.ok_or_else(not_begun)?,
        };
        if other.store_id != first.store_id || other.partitions != first.partitions {
            let why = format!("partitions 0 and {partition} of {topic} are of two stores");
            return Err(Halt::NotALog(why).into());
        }
    }
    Ok(first)
}

/// Whether the log, further on, voids the digest in the message at `offset`.
pub(crate) fn is_voided(
    config: &KafkaConfig,
    partition: u32,
    offset: u64,
) -> Result<bool, LogError> {
    let client: Reader =
        config.open_reader().map_err(|error| unsent("the log cannot be read", error))?;
    let (_, end) = bounds(&client, &config.topic, partition)?;
    let mut voided = false;
    each_message(&client, &config.topic, partition, (offset + 1, end), &mut |_, _, bytes| {
        let frame = Frame::read(Bytes::copy_from_slice(bytes));
        voided |= frame.iter().flat_map(|frame| &frame.entries).any(
            |entry| matches!(entry.statement, Statement::VoidDigest { offset: of } if of == offset),
        );
        Ok(!voided)
    })?;
    Ok(voided)
}
