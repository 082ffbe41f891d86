//! An hour of one store, simulated.
//!
//! Writes come at random. Each host has a lane for each partition, with one
//! message in flight: what comes meanwhile goes out as the next one. Every
//! message takes the way to the broker and back, and then its turn in the fold,
//! which is one thread for all partitions. How many writes share a message, and
//! how long they wait, comes out.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::Costs;
use crate::scale::{Cell, KAFKA_BYTES, Load};
use crate::stats::percentile;

/// What one hour comes to, each second.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Hour {
    /// Appends and mints.
    pub writes: f64,
    /// Messages.
    pub messages: f64,
    /// Bytes of log.
    pub bytes: f64,
    /// The share of its time that a fold is busy; above 1 it falls behind.
    pub busy: f64,
    /// Milliseconds from a write to its answer: the 99th of 100.
    pub p99_ms: f64,
}

/// The busiest hour.
pub(super) const BUSIEST: usize = 14;

/// Writes that are simulated for each hour.
const WRITES: usize = 40_000;

/// What each hour is of the mean one: a smooth day with one peak.
fn share(at: usize, peak: f64) -> f64 {
    let curve = |sharpness: f64, at: usize| {
        let angle = (at as f64 - BUSIEST as f64) / 24.0 * std::f64::consts::TAU;
        (sharpness * angle.cos()).exp()
    };
    let share = |sharpness: f64, at: usize| {
        let mean = (0..24).map(|at| curve(sharpness, at)).sum::<f64>() / 24.0;
        curve(sharpness, at) / mean
    };
    let (mut low, mut high) = (0.0, 64.0);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if share(middle, BUSIEST) < peak { low = middle } else { high = middle }
    }
    share(low, at)
}

/// A generator of random numbers that is the same on every machine.
struct Random(u64);

impl Random {
    /// Above 0, up to 1.
    fn unit(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    fn below(&mut self, count: usize) -> usize {
        ((self.unit() * count as f64) as usize).min(count - 1)
    }
}

#[derive(Debug, Clone, Copy)]
struct Write {
    at: f64,
    records: f64,
    /// In a frame.
    bytes: f64,
}

#[derive(Debug, Default)]
struct Lane {
    queue: Vec<Write>,
    flight: Vec<Write>,
}

/// A message of a lane, back from the broker at a time in nanoseconds.
type Back = Reverse<(u64, usize)>;

struct Simulation<'a> {
    costs: &'a Costs,
    lanes: Vec<Lane>,
    flying: BinaryHeap<Back>,
    /// When the fold is done with all that it was given.
    fold_free: f64,
    busy: f64,
    messages: f64,
    bytes: f64,
    waits_ms: Vec<f64>,
}

/// One hour of a store; `at` counts from midnight.
#[must_use]
pub fn hour(load: &Load, cell: &Cell, costs: &Costs, at: usize) -> Hour {
    let turns = load.sessions * load.turns_a_day / 86_400.0 * share(at, load.peak);
    let a_second = turns * (load.appends_a_turn + 1.0);
    let lanes = (cell.partitions * cell.hosts).max(1.0) as usize;
    let mut simulation = Simulation {
        costs,
        lanes: (0..lanes).map(|_| Lane::default()).collect(),
        flying: BinaryHeap::new(),
        fold_free: 0.0,
        busy: 0.0,
        messages: 0.0,
        bytes: 0.0,
        waits_ms: Vec::with_capacity(WRITES),
    };
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut clock = 0.0;
    for _ in 0..WRITES {
        clock -= random.unit().ln() / a_second;
        simulation.until(clock);
        let write = next_write(load, costs, &mut random, clock);
        let lane = random.below(lanes);
        simulation.lanes[lane].queue.push(write);
        simulation.send(lane, clock);
    }
    simulation.until(f64::INFINITY);
    simulation.waits_ms.sort_by(f64::total_cmp);
    Hour {
        writes: WRITES as f64 / clock,
        messages: simulation.messages / clock,
        bytes: simulation.bytes / clock,
        busy: simulation.busy / clock,
        p99_ms: percentile(&simulation.waits_ms, 99.0),
    }
}

/// One of a turn's writes: the mint, or an append with as many records as there
/// are of each on average.
fn next_write(load: &Load, costs: &Costs, random: &mut Random, at: f64) -> Write {
    if random.unit() * (load.appends_a_turn + 1.0) <= 1.0 {
        return Write { at, records: 0.0, bytes: costs.mint_bytes };
    }
    let records = load.records_a_turn / load.appends_a_turn;
    let bytes = costs.append_bytes + records * (costs.record_bytes + load.bytes_a_record);
    Write { at, records, bytes }
}

impl Simulation<'_> {
    /// Sends what is queued in a lane, unless a message is on its way.
    fn send(&mut self, lane: usize, clock: f64) {
        let Lane { queue, flight } = &mut self.lanes[lane];
        if !flight.is_empty() || queue.is_empty() {
            return;
        }
        std::mem::swap(queue, flight);
        self.messages += 1.0;
        self.bytes += self.costs.message_bytes + KAFKA_BYTES;
        self.bytes += flight.iter().map(|write| write.bytes).sum::<f64>();
        let back = clock + self.costs.round_trip_us / 1e6;
        self.flying.push(Reverse(((back * 1e9) as u64, lane)));
    }

    /// All that happens before `clock`.
    fn until(&mut self, clock: f64) {
        while let Some(Reverse((nanos, lane))) = self.flying.peek().copied() {
            let back = nanos as f64 / 1e9;
            if back >= clock {
                return;
            }
            self.flying.pop();
            self.fold(lane, back);
        }
    }

    fn fold(&mut self, lane: usize, back: f64) {
        let writes = std::mem::take(&mut self.lanes[lane].flight);
        let records: f64 = writes.iter().map(|write| write.records).sum();
        let micros = self.costs.fold_message_us
            + self.costs.fold_append_us * writes.len() as f64
            + self.costs.fold_record_us * records;
        self.busy += micros / 1e6;
        self.fold_free = self.fold_free.max(back) + micros / 1e6;
        let done = self.fold_free;
        self.waits_ms.extend(writes.iter().map(|write| (done - write.at) * 1e3));
        self.send(lane, done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_has_its_peak_and_its_mean() {
        for peak in [1.0, 1.5, 3.0] {
            let day: Vec<f64> = (0..24).map(|at| share(at, peak)).collect();
            let most = day.iter().copied().fold(0.0, f64::max);
            assert!((most - peak).abs() < 1e-6 && (day[BUSIEST] - most).abs() < 1e-9);
            assert!((day.iter().sum::<f64>() - 24.0).abs() < 1e-6);
        }
    }
}
