//! Messages as somebody else would write them: by `docs/format.md`, with no part
//! of the crate.

use std::time::Duration;

use mainspring_store_kafka::KafkaConfig;
use rdkafka::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};

/// A frame of these entries, each a head and a payload.
pub(crate) fn frame(level: u16, entries: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut out = b"MSJ\x01".to_vec();
    out.extend_from_slice(&level.to_be_bytes());
    out.extend_from_slice(&[0, 0]);
    out.extend_from_slice(&[0xee; 16]);
    out.extend_from_slice(&0_u64.to_be_bytes());
    out.extend_from_slice(&0_i64.to_be_bytes());
    out.extend_from_slice(&u32::try_from(entries.len()).unwrap().to_be_bytes());
    out.extend_from_slice(&[0; 4]);
    for part in entries.iter().flat_map(|(head, payload)| [head, payload]) {
        out.extend_from_slice(&u32::try_from(part.len()).unwrap().to_be_bytes());
        out.extend_from_slice(part);
    }
    out
}

/// The head of an entry that is no operation.
pub(crate) fn head(kind: u8, fields: &[&[u8]]) -> Vec<u8> {
    let mut out = vec![0xab; 16];
    out.push(kind);
    fields.iter().for_each(|field| out.extend_from_slice(field));
    out
}

/// Puts a message into a partition of the log.
pub(crate) fn put(config: &KafkaConfig, partition: u32, message: &[u8]) {
    put_with_key(config, partition, "", message);
}

/// As [`put`], with a key.
pub(crate) fn put_with_key(config: &KafkaConfig, partition: u32, key: &str, message: &[u8]) {
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", &config.brokers)
        .set("acks", "all")
        .create()
        .unwrap();
    let record: BaseRecord<'_, str, [u8]> =
        BaseRecord::to(&config.topic).partition(partition.cast_signed()).key(key).payload(message);
    producer.send(record).map_err(|(error, _)| error).unwrap();
    producer.flush(Duration::from_secs(10)).unwrap();
}

/// What is in a partition of the log, by offset.
pub(crate) fn messages(config: &KafkaConfig, partition: u32) -> Vec<(i64, Vec<u8>)> {
    use rdkafka::consumer::{BaseConsumer, Consumer as _};
    use rdkafka::message::Message as _;
    use rdkafka::{Offset, TopicPartitionList};
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", &config.brokers)
        .set("group.id", "none")
        .create()
        .unwrap();
    let partition = partition.cast_signed();
    let ten = Duration::from_secs(10);
    let (_, end) = consumer.fetch_watermarks(&config.topic, partition, ten).unwrap();
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(&config.topic, partition, Offset::Beginning).unwrap();
    consumer.assign(&list).unwrap();
    let mut found = Vec::new();
    while found.last().is_none_or(|(offset, _)| offset + 1 < end) {
        let message = consumer.poll(ten).expect("the log has it").unwrap();
        found.push((message.offset(), message.payload().unwrap_or_default().to_vec()));
    }
    found
}
