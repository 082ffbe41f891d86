//! Filling a view from a checkpoint.

use mainspring_eventlog::replica::{Replica, unavailable};
use mainspring_eventlog::{EngineError, Keep, LogError, Space};
use sha2::{Digest as _, Sha256};

use super::{FORM, Manifest, chunk_key, entries, manifest_key};
use crate::client::Reader;
use crate::config::KafkaConfig;
use crate::engine::PartitionEngine;
use crate::frame::Genesis;
use crate::log;
use crate::messages::refused;

/// The newest checkpoint of a partition that this build can read, and where its
/// topic ends.
///
/// # Errors
/// `Unavailable`.
pub(crate) fn newest(
    client: &Reader,
    config: &KafkaConfig,
    genesis: &Genesis,
    partition: u32,
) -> Result<Option<Manifest>, LogError> {
    let topic = config.checkpoints_topic();
    let (first, end) = log::bounds(client, &topic, partition)?;
    let key = manifest_key(partition);
    let mut newest: Option<Manifest> = None;
    log::each_message(client, &topic, partition, (first, end), &mut |_, found, value| {
        if found == Some(key.as_bytes()) {
            // A later one that cannot be read does not hide an earlier one.
            let manifest = serde_json::from_slice::<Manifest>(value).ok();
            let ours = |m: &Manifest| m.form == FORM && m.store == genesis.store_id.as_str();
            let later = |m: &Manifest| newest.as_ref().is_none_or(|newest| m.next >= newest.next);
            if let Some(manifest) = manifest.filter(|m| ours(m) && later(m)) {
                newest = Some(manifest);
            }
        }
        Ok(true)
    })?;
    Ok(newest)
}

/// Fills the view of a partition from its newest checkpoint, if there is one. The
/// view must be empty.
///
/// # Guarantees
/// The view's position is written last, in one step with the rest of its place:
/// a view that was filled in part stands at the start, and is filled again.
///
/// # Errors
/// `Unavailable`; a checkpoint that does not hold is left, with a warning.
pub(crate) fn load(
    client: &Reader,
    config: &KafkaConfig,
    genesis: &Genesis,
    partition: u32,
    replica: &Replica<PartitionEngine>,
) -> Result<(), LogError> {
    let Some(manifest) = newest(client, config, genesis, partition)? else { return Ok(()) };
    let (_, log_end) = log::bounds(client, &config.topic, partition)?;
    if manifest.next > log_end {
        tracing::warn!(
            partition,
            next = manifest.next,
            log_end,
            "a checkpoint is ahead of the log and is left"
        );
        return Ok(());
    }
    tracing::info!(
        partition,
        next = manifest.next,
        bytes = manifest.bytes,
        log_end,
        "the view is filled from a checkpoint"
    );
    let filled = fill(client, config, partition, &manifest, replica);
    if let Err(why) = filled {
        tracing::warn!(partition, error = %mainspring_api::report(&why), "a checkpoint does not hold and is left");
        crate::open::clear(std::slice::from_ref(replica)).map_err(unavailable)?;
    }
    replica.forget();
    Ok(())
}

fn fill(
    client: &Reader,
    config: &KafkaConfig,
    partition: u32,
    manifest: &Manifest,
    replica: &Replica<PartitionEngine>,
) -> Result<(), LogError> {
    let topic = config.checkpoints_topic();
    let (_, end) = log::bounds(client, &topic, partition)?;
    let mut sha = Sha256::new();
    let mut chunk = 0;
    // The partition's position comes last.
    let mut last: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    let range = (manifest.first, end);
    log::each_message(client, &topic, partition, range, &mut |_, key, value| {
        let expected = chunk_key(partition, &manifest.generation, chunk);
        if key != Some(expected.as_bytes()) {
            return Ok(true);
        }
        sha.update(value);
        write_chunk(replica, value, &mut last).map_err(unavailable)?;
        chunk += 1;
        Ok(chunk < manifest.chunks)
    })?;
    let hash: String = sha.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    if chunk != manifest.chunks || hash != manifest.sha256 {
        let what = format!("checkpoint of partition {partition} at {}", manifest.next);
        return Err(LogError::Corrupt { what });
    }
    replica
        .engine()
        .write_stored(Keep::Yes, &mut |stored| {
            last.iter().try_for_each(|(key, value)| stored.put(Space::Meta, key, value))
        })
        .map_err(unavailable)
}

fn write_chunk(
    replica: &Replica<PartitionEngine>,
    chunk: &[u8],
    last: &mut Vec<(Vec<u8>, Vec<u8>)>,
) -> Result<(), EngineError> {
    replica.engine().write_stored(Keep::Behind, &mut |stored| {
        for entry in entries(chunk) {
            let cut = || refused("a chunk of a checkpoint cannot be taken apart".to_owned());
            let (space, key, value) = entry.ok_or_else(cut)?;
            if space == Space::Meta {
                last.push((key.to_vec(), value.to_vec()));
            } else {
                stored.put(space, key, value)?;
            }
        }
        Ok(())
    })
}
