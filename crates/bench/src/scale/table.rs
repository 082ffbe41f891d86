//! Capacity as tables for people.

use std::fmt::Write as _;

use crate::Costs;
use crate::scale::{Capacity, Cell, Load, capacity};

/// Everything that a table is reckoned from, but for unit costs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Inputs {
    /// What is asked.
    pub load: Load,
    /// What each store is.
    pub cell: Cell,
}

impl Default for Inputs {
    /// A million sessions that all have ten turns a day, as the controller's
    /// bench writes them.
    fn default() -> Self {
        Self {
            load: Load {
                sessions: 1e6,
                turns_a_day: 10.0,
                appends_a_turn: 9.0,
                records_a_turn: 10.0,
                bytes_a_record: 300.0,
                peak: 3.0,
                days: 30.0,
            },
            cell: Cell { partitions: 64.0, hosts: 4.0, busy_max: 0.5 },
        }
    }
}

impl Inputs {
    /// The input of this name, which is that of the option, too.
    pub fn named(&mut self, name: &str) -> Option<&mut f64> {
        Some(match name {
            "sessions" => &mut self.load.sessions,
            "turns-a-day" => &mut self.load.turns_a_day,
            "appends-a-turn" => &mut self.load.appends_a_turn,
            "records-a-turn" => &mut self.load.records_a_turn,
            "bytes-a-record" => &mut self.load.bytes_a_record,
            "peak" => &mut self.load.peak,
            "days" => &mut self.load.days,
            "partitions" => &mut self.cell.partitions,
            "hosts" => &mut self.cell.hosts,
            "busy-max" => &mut self.cell.busy_max,
            _ => return None,
        })
    }

    /// A sentence that names them all but the sessions.
    fn described(&self) -> String {
        let Self { load, cell } = self;
        format!(
            "{} turns a day, {} appends and {} records a turn, {} canonical bytes a record, a busiest hour of {} times \
             the mean, logs of {} days; stores of {} partitions and {} hosts, whose folds may be busy for {} of the \
             time.",
            load.turns_a_day,
            load.appends_a_turn,
            load.records_a_turn,
            load.bytes_a_record,
            load.peak,
            load.days,
            cell.partitions,
            cell.hosts,
            cell.busy_max,
        )
    }
}

/// The table of what the sessions take, and of a tenth, ten and a hundred times
/// as many.
#[must_use]
pub fn table(inputs: &Inputs, costs: &Costs) -> String {
    let sessions = [0.1, 1.0, 10.0, 100.0].map(|times| inputs.load.sessions * times);
    let columns =
        sessions.map(|sessions| capacity(&Load { sessions, ..inputs.load }, &inputs.cell, costs));
    let mut out = format!("{}\n\n| Sessions |", inputs.described());
    for sessions in sessions {
        let _ = write!(out, " {} |", count(sessions));
    }
    out.push_str("\n|---|---:|---:|---:|---:|\n");
    for (what, show) in rows() {
        let _ = write!(out, "| {what} |");
        for column in &columns {
            let _ = write!(out, " {} |", show(column));
        }
        out.push('\n');
    }
    out
}

type Show = fn(&Capacity) -> String;

fn rows() -> Vec<(&'static str, Show)> {
    vec![
        ("**all stores**: turns a second, busiest hour", |c| count(c.turns_a_second)),
        ("stores (cells)", |c| count(c.cells)),
        ("most sessions of one store", |c| count(c.sessions_a_cell_max)),
        ("log in a day, one replica", |c| bytes(c.bytes_a_day * c.cells)),
        ("log, one replica", |c| bytes(c.log_bytes * c.cells)),
        ("**each store**: messages in a day", |c| count(c.messages_a_day)),
        ("writes a second, busiest hour", |c| count(c.peak.writes)),
        ("messages a second, busiest hour", |c| count(c.peak.messages)),
        ("writes in a message, busiest hour", |c| {
            format!("{:.2}", c.peak.writes / c.peak.messages)
        }),
        ("log a second, busiest hour", |c| bytes(c.peak.bytes)),
        ("fold busy, busiest hour", |c| format!("{:.0} %", c.peak.busy * 100.0)),
        ("write to answer, p99, busiest hour", |c| format!("{:.1} ms", c.peak.p99_ms)),
        ("checkpoints", |c| bytes(c.checkpoint_bytes)),
        ("**each host**: memory", |c| bytes(c.memory_bytes)),
        ("view on disk", |c| bytes(c.view_bytes)),
        ("serves without a view, from checkpoints, after", |c| seconds(c.rebuilt_after)),
        ("the same from the log's start", |c| seconds(c.folded_after)),
    ]
}

/// The unit costs.
#[must_use]
pub fn costs_table(costs: &Costs) -> String {
    let mut out = String::from("| Unit cost | |\n|---|---:|\n");
    let in_bytes = |bytes: f64| format!("{bytes:.0} B");
    let micros = |micros: f64| format!("{micros:.1} us");
    for (what, shown) in [
        ("a message, before its entries", in_bytes(costs.message_bytes)),
        ("a message, what Kafka adds", in_bytes(super::KAFKA_BYTES)),
        ("an append, beyond its records", in_bytes(costs.append_bytes)),
        ("a record, beyond its canonical bytes", in_bytes(costs.record_bytes)),
        ("a mint of a fence", in_bytes(costs.mint_bytes)),
        ("the creation of a session", in_bytes(costs.create_bytes)),
        ("view, each session", in_bytes(costs.view_session_bytes)),
        ("view, each record", in_bytes(costs.view_record_bytes)),
        ("checkpoint, each session", in_bytes(costs.checkpoint_session_bytes)),
        ("checkpoint, each record", in_bytes(costs.checkpoint_record_bytes)),
        ("checkpoint, written in a second", bytes(costs.checkpoint_saved_a_second)),
        ("checkpoint, loaded in a second", bytes(costs.checkpoint_loaded_a_second)),
        ("memory of a host, few sessions and a long log", bytes(costs.host_memory_bytes)),
        (
            "memory of a host, each session in the fold's cache",
            in_bytes(costs.session_memory_bytes),
        ),
        ("append to answer, alone", micros(costs.round_trip_us)),
        ("fold, each message", micros(costs.fold_message_us)),
        ("fold, each append or mint", micros(costs.fold_append_us)),
        ("fold, each record", micros(costs.fold_record_us)),
    ] {
        let _ = writeln!(out, "| {what} | {shown} |");
    }
    out
}

fn scaled(figure: f64, step: f64, units: &[&str]) -> String {
    let mut figure = figure;
    let mut units = units.iter();
    let mut unit = units.next().copied().unwrap_or_default();
    while figure >= step {
        let Some(next) = units.next() else { break };
        figure /= step;
        unit = next;
    }
    let digits = if figure >= 100.0 || unit.is_empty() && figure.fract() == 0.0 { 0 } else { 1 };
    format!("{figure:.digits$}{unit}")
}

fn count(count: f64) -> String {
    scaled(count, 1e3, &["", " k", " M", " G"])
}

fn bytes(bytes: f64) -> String {
    scaled(bytes, 1024.0, &[" B", " KiB", " MiB", " GiB", " TiB", " PiB"])
}

fn seconds(seconds: f64) -> String {
    if seconds < 120.0 { format!("{seconds:.0} s") } else { format!("{:.0} min", seconds / 60.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        for (figure, shown) in [(1.0, "1"), (17.36, "17.4"), (1.5e3, "1.5 k"), (2.5e8, "250 M")] {
            assert_eq!(shown, count(figure));
        }
        assert_eq!("1.0 KiB", bytes(1024.0));
        assert_eq!("90 s", seconds(90.0));
        assert_eq!("3 min", seconds(180.0));
    }

    #[test]
    fn every_input_has_its_name() {
        let mut inputs = Inputs::default();
        for name in ["sessions", "turns-a-day", "peak", "days", "partitions", "hosts", "busy-max"] {
            *inputs.named(name).unwrap() = 7.0;
        }
        assert_eq!((7.0, 7.0), (inputs.load.peak, inputs.cell.hosts));
        assert!(inputs.named("others").is_none());
    }
}
