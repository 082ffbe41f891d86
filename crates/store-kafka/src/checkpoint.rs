//! Checkpoints of the fold.

use mainspring_eventlog::LogError;
use mainspring_eventlog::replica::Replica;

use crate::config::KafkaConfig;
use crate::engine::PartitionEngine;
use crate::frame::Genesis;

/// Fills an empty view from the newest checkpoint, if there is one.
pub(crate) fn load(
    _config: &KafkaConfig,
    _genesis: &Genesis,
    _partition: u32,
    _replica: &Replica<PartitionEngine>,
) -> Result<(), LogError> {
    Ok(())
}
