//! Appends of many sessions at once, one record at the head of each: latency and
//! throughput beside a bare client that sends each record by itself, and one
//! that packs as the store does.

use std::sync::Arc;

use anyhow::Result;
use mainspring_api::SessionUid;
use mainspring_bench::run::workload::{EVENT_BYTES, Events, Writer, now};
use mainspring_bench::{Costs, Line, Report, Spread, Target, Unit, percentile};
use mainspring_eventlog::{EventLog as _, MemoryEngine};
use mainspring_store_kafka::KafkaStore;

use crate::Plan;
use crate::bare::{Bare, Pack};
use crate::host::{self, Place};

const ROW: &str = "append";

const SINGLE: &str = "bare client, one message each";
const PACKED: &str = "bare client that packs alike";

/// Bytes of a message before its entries: `docs/format.md`.
pub(crate) const FRAME_BYTES: usize = 48;

#[derive(Debug, Clone, Copy)]
struct Round {
    p50: f64,
    p99: f64,
    rate: f64,
}

/// The rounds of one number of sessions.
#[derive(Default)]
struct Rounds {
    store: Vec<Round>,
    single: Vec<Round>,
    packed: Vec<Round>,
}

pub(crate) async fn run(
    plan: &Plan,
    place: &Place,
    report: &mut Report,
    costs: &mut Costs,
) -> Result<()> {
    for partitions in plan.partitions {
        let measured = at(plan, place, *partitions).await?;
        for ((sessions, _), rounds) in plan.sessions.iter().zip(&measured) {
            show(report, *partitions, *sessions, rounds);
            if *sessions == 1 {
                let figures: Vec<f64> = rounds.store.iter().map(|round| round.p50).collect();
                costs.round_trip_us = Spread::of(&figures).median;
            }
        }
    }
    Ok(())
}

/// What is written to in the rounds.
struct Subjects {
    store: Arc<KafkaStore>,
    writers: Vec<Writer>,
    single: Arc<Bare>,
    packed: Arc<Bare>,
    payload: Vec<u8>,
}

async fn at(plan: &Plan, place: &Place, partitions: u32) -> Result<Vec<Rounds>> {
    let dir = plan.folder()?;
    let mut subjects = subjects(plan, place, partitions, dir.path()).await?;
    let mut measured: Vec<Rounds> = plan.sessions.iter().map(|_| Rounds::default()).collect();
    for round in 0..=plan.rounds {
        for ((sessions, appends), rounds) in plan.sessions.iter().zip(&mut measured) {
            // The first one warms the broker and the clients up.
            let appends = if round == 0 { *appends / 4 + 1 } else { *appends };
            subjects.round(*sessions, appends, round, rounds).await?;
        }
        if round == 0 {
            measured = plan.sessions.iter().map(|_| Rounds::default()).collect();
        }
    }
    Ok(measured)
}

async fn subjects(
    plan: &Plan,
    place: &Place,
    partitions: u32,
    dir: &std::path::Path,
) -> Result<Subjects> {
    let config = place.fresh(partitions).await?;
    let store = host::open(&config, dir).await?;
    let events = Events::of_bytes(EVENT_BYTES)?;
    let most = plan.sessions.iter().map(|(sessions, _)| *sessions).max().unwrap_or(1);
    let mut writers = Vec::with_capacity(most);
    for name in balanced(&store, most, partitions as usize)? {
        writers.push(Writer::create(&*store, &name, &events).await?);
    }
    let entry = entry_bytes(place, &events).await?;
    let bare = |config, pack| Bare::start(config, partitions, pack).map(Arc::new);
    Ok(Subjects {
        store,
        writers,
        single: bare(&place.fresh(partitions).await?, Pack::Each)?,
        packed: bare(&place.fresh(partitions).await?, Pack::Queued)?,
        // Texts hardly compress, and nothing compresses here.
        payload: vec![0xa5; entry],
    })
}

/// Names of sessions, one of each partition in turn, as the bare clients write.
fn balanced(store: &KafkaStore, most: usize, partitions: usize) -> Result<Vec<String>> {
    let share = most.div_ceil(partitions);
    let mut by_partition: Vec<Vec<String>> = Vec::with_capacity(partitions);
    let mut number = 0;
    while by_partition.len() < partitions || by_partition.iter().any(|names| names.len() < share) {
        let name = format!("bench-{number}");
        number += 1;
        let uid = SessionUid::new(&name)?;
        let mut at = None;
        for (partition, names) in by_partition.iter().enumerate() {
            // A fork keeps to the partition of its parent.
            if store.may_be_child(&SessionUid::new(&names[0])?, &uid) {
                at = Some(partition);
            }
        }
        match at {
            Some(partition) => by_partition[partition].push(name),
            None => by_partition.push(vec![name]),
        }
    }
    let turns = (0..share).flat_map(|turn| by_partition.iter().map(move |names| &names[turn]));
    Ok(turns.take(most).cloned().collect())
}

/// Bytes that an append of one record takes in a message.
async fn entry_bytes(place: &Place, events: &Events) -> Result<usize> {
    let config = place.fresh(1).await?;
    let store = KafkaStore::open(config.clone(), Arc::new(MemoryEngine::default())).await?;
    let mut writer = Writer::create(&store, "bench-0", events).await?;
    for _ in 0..2 {
        writer.append_one(&store).await?;
    }
    let sizes = host::sizes(&config, 0, 1)?;
    Ok(sizes.last().map_or(EVENT_BYTES, |last| last - FRAME_BYTES))
}

impl Subjects {
    async fn round(
        &mut self,
        sessions: usize,
        appends: usize,
        round: usize,
        rounds: &mut Rounds,
    ) -> Result<()> {
        // Each of the three is first, second and last in turn.
        for place in 0..3 {
            match (round + place) % 3 {
                0 => rounds.store.push(self.append(sessions, appends).await?),
                1 => rounds.single.push(self.write(&self.single, sessions, appends).await?),
                _ => rounds.packed.push(self.write(&self.packed, sessions, appends).await?),
            }
        }
        Ok(())
    }

    async fn append(&mut self, sessions: usize, appends: usize) -> Result<Round> {
        let begun = now();
        let tasks: Vec<_> = self
            .writers
            .drain(..sessions)
            .map(|mut writer| {
                let store = Arc::clone(&self.store);
                tokio::spawn(async move {
                    let mut micros = Vec::with_capacity(appends);
                    for _ in 0..appends {
                        let begun = now();
                        writer.append_one(&*store).await?;
                        micros.push(begun.elapsed().as_nanos() as f64 / 1e3);
                    }
                    anyhow::Ok((writer, micros))
                })
            })
            .collect();
        let mut micros = Vec::with_capacity(sessions * appends);
        for task in tasks {
            let (writer, of_one) = task.await??;
            self.writers.push(writer);
            micros.extend(of_one);
        }
        Ok(Round::of(micros, begun.elapsed().as_secs_f64()))
    }

    async fn write(&self, bare: &Arc<Bare>, sessions: usize, appends: usize) -> Result<Round> {
        let begun = now();
        let tasks: Vec<_> = (0..sessions)
            .map(|caller| {
                let (bare, payload) = (Arc::clone(bare), self.payload.clone());
                tokio::spawn(async move {
                    let mut micros = Vec::with_capacity(appends);
                    for _ in 0..appends {
                        let begun = now();
                        bare.write(caller, payload.clone()).await?;
                        micros.push(begun.elapsed().as_nanos() as f64 / 1e3);
                    }
                    anyhow::Ok(micros)
                })
            })
            .collect();
        let mut micros = Vec::with_capacity(sessions * appends);
        for task in tasks {
            micros.extend(task.await??);
        }
        Ok(Round::of(micros, begun.elapsed().as_secs_f64()))
    }
}

impl Round {
    fn of(mut micros: Vec<f64>, seconds: f64) -> Self {
        micros.sort_by(f64::total_cmp);
        let (p50, p99) = (percentile(&micros, 50.0), percentile(&micros, 99.0));
        Self { p50, p99, rate: micros.len() as f64 / seconds }
    }
}

fn show(report: &mut Report, partitions: u32, sessions: usize, rounds: &Rounds) {
    let shape =
        format!("{}, {}", counted(sessions, "session"), counted(partitions as usize, "partition"));
    let mut line = |figure: &str, unit, of: fn(&Round) -> f64, floor: &str, target| {
        let floors = if floor == SINGLE { &rounds.single } else { &rounds.packed };
        let figures: Vec<f64> = rounds.store.iter().map(of).collect();
        let floors: Vec<f64> = floors.iter().map(of).collect();
        let line = Line::alone(ROW, format!("{shape}, {figure}"), unit, &figures);
        report.push(line.beside(floor, &figures, &floors).held_to(target));
    };
    let latency = (sessions == 1).then(|| Target::at_most(1.2));
    let throughput = (sessions == 64).then(|| Target::at_least(0.8));
    line("p50", Unit::Micros, |round| round.p50, SINGLE, latency);
    line("p99", Unit::Micros, |round| round.p99, SINGLE, None);
    line("p50", Unit::Micros, |round| round.p50, PACKED, None);
    line("p99", Unit::Micros, |round| round.p99, PACKED, None);
    line("appends a second", Unit::PerSecond, |round| round.rate, PACKED, throughput);
    line("appends a second", Unit::PerSecond, |round| round.rate, SINGLE, None);
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
