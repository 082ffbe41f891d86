//! Capacity of stores on Kafka: what a number of sessions takes, reckoned from
//! unit costs through a simulated day.

mod day;
mod table;

use crate::Costs;

pub use day::{Hour, hour};
pub use table::{Inputs, costs_table, table};

/// What is asked of all stores together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// Sessions.
    pub sessions: f64,
    /// Turns of each session in a day, on average.
    pub turns_a_day: f64,
    /// Appends of a turn.
    pub appends_a_turn: f64,
    /// Records of a turn.
    pub records_a_turn: f64,
    /// Canonical bytes of a record.
    pub bytes_a_record: f64,
    /// The busiest hour, as a multiple of the mean one.
    pub peak: f64,
    /// Days that the logs have run.
    pub days: f64,
}

/// One store: a topic, and the hosts that have it open.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cell {
    /// Partitions of its log.
    pub partitions: f64,
    /// Hosts, each of which folds all of it.
    pub hosts: f64,
    /// The share of its time that a fold may be busy in the busiest hour. The
    /// rest is for catching up, and for what the machine does besides.
    pub busy_max: f64,
}

/// What a number of sessions takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Capacity {
    /// Stores.
    pub cells: f64,
    /// Most sessions of one store.
    pub sessions_a_cell_max: f64,
    /// Turns a second of all stores in the busiest hour.
    pub turns_a_second: f64,
    /// Of one store, in its busiest hour.
    pub peak: Hour,
    /// Messages of one store in a day.
    pub messages_a_day: f64,
    /// Bytes of one store's log in a day, one replica.
    pub bytes_a_day: f64,
    /// Bytes of one store's log, one replica.
    pub log_bytes: f64,
    /// Bytes of a host's memory.
    pub memory_bytes: f64,
    /// Bytes of a host's view.
    pub view_bytes: f64,
    /// Bytes of the checkpoints of one store.
    pub checkpoint_bytes: f64,
    /// Seconds until a host without a view serves: filled from checkpoints, and
    /// the log since.
    pub rebuilt_after: f64,
    /// The same without checkpoints.
    pub folded_after: f64,
}

/// Bytes of log after which a partition is checkpointed, at the least.
const CHECKPOINT_EVERY: f64 = (64 << 20) as f64;

/// Sessions whose state a host's fold keeps in memory, of all partitions; and of
/// each partition at the least.
pub const SESSIONS_KEPT: (f64, f64) = (131_072.0, 512.0);

/// What Kafka adds to a message in a file: a batch of one record.
pub const KAFKA_BYTES: f64 = 75.0;

/// Sessions of one store more, or fewer, in the search for the most it takes.
const STEPS: u32 = 24;

/// What `load` takes on stores of the shape `cell`.
#[must_use]
pub fn capacity(load: &Load, cell: &Cell, costs: &Costs) -> Capacity {
    let sessions_a_cell_max = most(load, cell, costs);
    let cells = (load.sessions / sessions_a_cell_max).ceil().max(1.0);
    let of_one = Load { sessions: load.sessions / cells, ..*load };
    let day: Vec<Hour> = (0..24).map(|at| hour(&of_one, cell, costs, at)).collect();
    let peak = day.iter().copied().max_by(|a, b| a.busy.total_cmp(&b.busy)).unwrap_or_default();
    let sum = |of: fn(&Hour) -> f64| day.iter().map(of).sum::<f64>() * 3_600.0;
    let messages_a_day = sum(|hour| hour.messages);
    let bytes_a_day = sum(|hour| hour.bytes);
    let records = of_one.sessions * load.turns_a_day * load.records_a_turn * load.days;
    let checkpoint_bytes =
        of_one.sessions * costs.checkpoint_session_bytes + records * costs.checkpoint_record_bytes;
    let created_bytes = of_one.sessions * (costs.create_bytes + costs.message_bytes + KAFKA_BYTES);
    let log_bytes = bytes_a_day * load.days + created_bytes;
    // The log since a checkpoint is as much as the checkpoint, at the most.
    let since = log_bytes.min(checkpoint_bytes.max(CHECKPOINT_EVERY * cell.partitions));
    let kept = SESSIONS_KEPT.0.max(SESSIONS_KEPT.1 * cell.partitions).min(of_one.sessions);
    let fold_a_byte = sum(|hour| hour.busy) / bytes_a_day;
    Capacity {
        cells,
        sessions_a_cell_max,
        turns_a_second: peak.writes / writes_a_turn(load) * cells,
        peak,
        messages_a_day,
        bytes_a_day,
        log_bytes,
        memory_bytes: costs.host_memory_bytes + kept * costs.session_memory_bytes,
        view_bytes: of_one.sessions * costs.view_session_bytes + records * costs.view_record_bytes,
        checkpoint_bytes,
        rebuilt_after: checkpoint_bytes / costs.checkpoint_loaded_a_second + since * fold_a_byte,
        folded_after: log_bytes * fold_a_byte,
    }
}

/// The appends of a turn, and the mint of its fence.
const fn writes_a_turn(load: &Load) -> f64 {
    load.appends_a_turn + 1.0
}

/// The most sessions of one store whose fold keeps to its share of the busiest
/// hour.
fn most(load: &Load, cell: &Cell, costs: &Costs) -> f64 {
    let keeps = |sessions: f64| {
        let busiest = hour(&Load { sessions, ..*load }, cell, costs, day::BUSIEST);
        busiest.busy <= cell.busy_max
    };
    // Alone in its message each write costs most, so this many are kept.
    let alone = costs.fold_message_us
        + costs.fold_append_us
        + costs.fold_record_us * load.records_a_turn / load.appends_a_turn;
    let a_second = load.turns_a_day * load.peak * writes_a_turn(load) / 86_400.0;
    let mut low = cell.busy_max * 1e6 / alone / a_second / 2.0;
    let mut high = low * 64.0;
    for _ in 0..STEPS {
        let middle = f64::midpoint(low, high);
        if keeps(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

#[cfg(test)]
mod tests;
