//! Writing checkpoints, and deciding when.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use mainspring_api::{Entropy as _, OsEntropy};
use mainspring_eventlog::replica::{is_broken, unavailable};
use mainspring_eventlog::{EngineError, LogError, Space};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Message as _};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext};
use sha2::{Digest as _, Sha256};

use super::{CHUNK_BYTES, FORM, Manifest, chunk_key, manifest_key, newest, put_entry};
use crate::client::{Reader, quiet};
use crate::config::KafkaConfig;
use crate::engine::PartitionEngine;
use crate::error::{unknown, unsent};
use crate::frame::Genesis;
use crate::mark::Mark;
use crate::messages::refused;
use crate::shared::Core;

/// How long the brokers may take for what is on its way.
const FLUSH_MAX: Duration = Duration::from_secs(60);

/// What is heard of the messages of one checkpoint.
#[derive(Clone)]
struct Reports(Arc<Delivered>);

struct Delivered {
    /// The lowest offset of a chunk.
    first: AtomicI64,
    failed: AtomicBool,
}

quiet!(Reports);

impl ProducerContext for Reports {
    type DeliveryOpaque = ();

    fn delivery(&self, report: &DeliveryResult<'_>, (): ()) {
        match report {
            Ok(message) => {
                self.0.first.fetch_min(message.offset(), Ordering::AcqRel);
            }
            Err(_) => self.0.failed.store(true, Ordering::Release),
        }
    }
}

struct Chunks<'a> {
    producer: &'a BaseProducer<Reports>,
    topic: &'a str,
    partition: u32,
    generation: String,
    chunk: Vec<u8>,
    sent: u32,
    bytes: u64,
    sha: Sha256,
}

impl Chunks<'_> {
    fn put(&mut self, space: Space, key: &[u8], value: &[u8]) -> Result<(), KafkaError> {
        put_entry(&mut self.chunk, space, key, value);
        if self.chunk.len() >= CHUNK_BYTES { self.send() } else { Ok(()) }
    }

    fn send(&mut self) -> Result<(), KafkaError> {
        let chunk = std::mem::take(&mut self.chunk);
        if chunk.is_empty() {
            return Ok(());
        }
        self.sha.update(&chunk);
        self.bytes += chunk.len() as u64;
        let key = chunk_key(self.partition, &self.generation, self.sent);
        self.sent += 1;
        send(self.producer, self.topic, self.partition, &key, Some(&chunk))
    }
}

/// Sends one message; waits while the client is full.
fn send(
    producer: &BaseProducer<Reports>,
    topic: &str,
    partition: u32,
    key: &str,
    value: Option<&[u8]>,
) -> Result<(), KafkaError> {
    loop {
        let record: BaseRecord<'_, str, [u8]> =
            BaseRecord::to(topic).partition(partition.cast_signed()).key(key);
        let record = match value {
            Some(value) => record.payload(value),
            None => record,
        };
        match producer.send(record) {
            Ok(()) => return Ok(()),
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) => {
                producer.poll(Duration::from_millis(100));
            }
            Err((error, _)) => return Err(error),
        }
    }
}

/// Writes a checkpoint of a partition as the view has it now, and lets go of the
/// one before.
///
/// # Errors
/// `Unavailable`. What was written of it is then never named by a manifest.
pub(crate) fn save(
    config: &KafkaConfig,
    genesis: &Genesis,
    view: &PartitionEngine,
    partition: u32,
) -> Result<Manifest, LogError> {
    let failed = |error| unsent("a checkpoint cannot be written", error);
    let client: Reader = config.open_reader().map_err(failed)?;
    let before = newest(&client, config, genesis, partition)?;
    let first = AtomicI64::new(i64::MAX);
    let delivered = Arc::new(Delivered { first, failed: AtomicBool::new(false) });
    // One whose chunks keep their order, whatever is sent again.
    let mut settings = config.producer();
    settings
        .set("compression.type", "lz4")
        .set("queue.buffering.max.kbytes", "16384")
        .set("linger.ms", "5")
        .set("message.timeout.ms", "60000");
    let producer: BaseProducer<Reports> =
        settings.create_with_context(Reports(Arc::clone(&delivered))).map_err(failed)?;
    let topic = config.checkpoints_topic();
    let mut random = [0; 8];
    OsEntropy.fill(&mut random);
    let mut chunks = Chunks {
        producer: &producer,
        topic: &topic,
        partition,
        generation: format!("{:016x}", u64::from_be_bytes(random)),
        chunk: Vec::with_capacity(CHUNK_BYTES + 4_096),
        sent: 0,
        bytes: 0,
        sha: Sha256::new(),
    };
    let mark = write_chunks(view, &mut chunks).map_err(unavailable)?;
    let delivered_all = || {
        producer.flush(FLUSH_MAX).map_err(failed)?;
        if delivered.failed.load(Ordering::Acquire) {
            return Err(unknown("a part of a checkpoint was not taken"));
        }
        Ok(())
    };
    delivered_all()?;
    let manifest = Manifest {
        form: FORM,
        store: genesis.store_id.as_str().to_owned(),
        generation: chunks.generation.clone(),
        first: delivered.first.load(Ordering::Acquire).cast_unsigned(),
        chunks: chunks.sent,
        sha256: chunks.sha.finalize().iter().map(|byte| format!("{byte:02x}")).collect(),
        bytes: chunks.bytes,
        next: mark.next,
        log_bytes: mark.bytes,
    };
    let value = serde_json::to_vec(&manifest).expect("a manifest has only string keys");
    let key = manifest_key(partition);
    send(&producer, &topic, partition, &key, Some(&value)).map_err(failed)?;
    delivered_all()?;
    // Nobody starts from it any more; whoever reads it now reads on.
    if let Some(before) = before {
        for chunk in 0..before.chunks {
            let key = chunk_key(partition, &before.generation, chunk);
            send(&producer, &topic, partition, &key, None).map_err(failed)?;
        }
    }
    delivered_all()?;
    Ok(manifest)
}

/// All that is stored of a partition, as it is at one moment.
fn write_chunks(view: &PartitionEngine, chunks: &mut Chunks<'_>) -> Result<Mark, EngineError> {
    let mut mark = Mark::START;
    view.read_stored(&mut |stored| {
        mark = Mark::load_stored(&stored)?;
        for space in Space::ALL {
            let mut failed = None;
            stored.scan(space, &mut |key, value| {
                // Others may be able to read what this build is not.
                failed = if space == Space::Rows && is_broken(value) {
                    Some(refused("a session of it cannot be read by this build".to_owned()))
                } else {
                    let put = chunks.put(space, key, value);
                    put.err().map(|error| EngineError::of("send a chunk of a checkpoint", error))
                };
                if failed.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
            failed.map_or(Ok(()), Err)?;
        }
        Ok(())
    })?;
    chunks.send().map_err(|error| EngineError::of("send a chunk of a checkpoint", error))?;
    if mark == Mark::START {
        return Err(refused("there is nothing to checkpoint".to_owned()));
    }
    Ok(mark)
}

/// Looks now and then whether a partition is to be checkpointed.
pub(crate) struct Saver {
    core: std::sync::Weak<Core>,
    /// Bytes of the log, and of the checkpoint, at the last one of each partition.
    last: Vec<Option<(u64, u64)>>,
}

/// Pause between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(2);

impl Saver {
    pub(crate) fn new(core: &Arc<Core>) -> Self {
        Self { last: vec![None; core.replicas.len()], core: Arc::downgrade(core) }
    }

    /// Runs until the store is closed.
    pub(crate) fn run(mut self) {
        while let Some(core) = self.core.upgrade() {
            if core.progress.is_over() {
                return;
            }
            // One host is enough; the others look again when it is gone.
            if core.hosts.get().is_some_and(crate::hosts::Hosts::is_first) {
                for partition in 0..core.genesis.partitions {
                    if let Err(error) = self.look(&core, partition) {
                        tracing::warn!(partition, %error, "the fold is not checkpointed");
                    }
                }
            }
            let progress = Arc::clone(&core.progress);
            drop(core);
            progress.wait_over(LOOK_EVERY);
        }
    }

    fn look(&mut self, core: &Core, partition: u32) -> Result<(), LogError> {
        let view = core.replica(partition).engine();
        let at = crate::view::stands_at(core.replica(partition)).map_err(unavailable)?;
        let config = &core.config;
        let last = match self.last[partition as usize] {
            Some(last) => last,
            None => self.known(core, partition)?,
        };
        self.last[partition as usize] = Some(last);
        let (log_bytes, bytes) = last;
        // As much log as the last one took, so that all of them together cost a
        // constant part of what is written.
        if at.bytes.saturating_sub(log_bytes) < config.checkpoint_bytes.max(bytes) {
            return Ok(());
        }
        // Another host may have come first.
        let (log_bytes, bytes) = self.known(core, partition)?;
        if at.bytes.saturating_sub(log_bytes) >= config.checkpoint_bytes.max(bytes) {
            // Not again at once if it fails: what a try leaves behind takes room.
            self.last[partition as usize] = Some((at.bytes, bytes));
            let manifest = save(config, &core.genesis, view, partition)?;
            tracing::info!(
                partition,
                next = manifest.next,
                bytes = manifest.bytes,
                "checkpoint written"
            );
            self.last[partition as usize] = Some((manifest.log_bytes, manifest.bytes));
        } else {
            self.last[partition as usize] = Some((log_bytes, bytes));
        }
        Ok(())
    }

    fn known(&self, core: &Core, partition: u32) -> Result<(u64, u64), LogError> {
        let client: Reader = core
            .config
            .open_reader()
            .map_err(|error| unsent("the checkpoints cannot be read", error))?;
        let known = newest(&client, &core.config, &core.genesis, partition)?;
        Ok(known.map_or((0, 0), |known| (known.log_bytes, known.bytes)))
    }
}
