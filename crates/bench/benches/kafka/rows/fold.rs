//! A host without a view: how fast it folds a log from its start, and fills its
//! view from a checkpoint.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use mainspring_api::SessionUid;
use mainspring_bench::run::workload::{EVENT_BYTES, Events, FILL_RECORDS, Writer, now};
use mainspring_bench::{Costs, Line, Report, Spread, Unit};
use mainspring_eventlog::{EventLog as _, Level};
use mainspring_store_kafka::{KafkaConfig, KafkaStore};

use crate::Plan;
use crate::host::{self, Place};
use crate::rows::idle;

const ROW: &str = "fold";
const CHECKPOINT: &str = "checkpoint";

/// Who writes the logs at once: each alone on a partition, mostly; and many on one.
const ALONE: usize = 32;
const ALONE_PARTITIONS: u32 = 256;
const TOGETHER: usize = 512;
/// Sessions whose records come by the thousand.
const LARGE: u64 = 10;

/// A log that was written to be folded.
struct Log {
    config: KafkaConfig,
    partitions: u32,
    messages: u64,
    appends: u64,
    records: u64,
    /// One of its sessions.
    session: SessionUid,
}

/// What folding it took, by round.
#[derive(Default)]
struct Folds {
    seconds: Vec<f64>,
    fold: Vec<f64>,
    view: Vec<f64>,
    /// Processor time of the whole process.
    all: Vec<f64>,
}

pub(crate) async fn run(
    plan: &Plan,
    place: &Place,
    report: &mut Report,
    costs: &mut Costs,
) -> Result<()> {
    let alone = written(plan, place, ALONE_PARTITIONS, ALONE, plan.alone).await?;
    let alone_folds = folds(plan, &alone).await?;
    show(report, "one append in a message", &alone, &alone_folds);
    let packed = written(plan, place, 1, TOGETHER, plan.packed).await?;
    let packed_folds = folds(plan, &packed).await?;
    show(report, "many appends in a message", &packed, &packed_folds);
    let large = large(plan, place).await?;
    let large_folds = folds(plan, &large).await?;
    show(report, "1000 records in an append", &large, &large_folds);
    costs.host_memory_bytes = idle::folded(plan, &large.config)?;
    let what = "memory of a host after that".to_owned();
    let mib = costs.host_memory_bytes / f64::from(1 << 20);
    report.push(Line::alone(ROW, what, Unit::MiB, &[mib]));
    let logs = [(&alone, &alone_folds), (&packed, &packed_folds), (&large, &large_folds)];
    let each = each(&logs.map(|(log, folds)| (log, Spread::of(&folds.seconds).median)));
    [costs.fold_message_us, costs.fold_append_us, costs.fold_record_us] = each;
    for (what, micros) in ["message", "append", "record"].into_iter().zip(each) {
        report.push(Line::alone(ROW, format!("each {what}"), Unit::Micros, &[micros]));
    }
    checkpoint(plan, &large, report, costs).await
}

/// A log of appends of one record, by this many callers at once.
async fn written(
    plan: &Plan,
    place: &Place,
    partitions: u32,
    callers: usize,
    appends: usize,
) -> Result<Log> {
    let config = place.fresh(partitions).await?;
    let dir = plan.folder()?;
    let store = host::open(&config, dir.path()).await?;
    let events = Events::of_bytes(EVENT_BYTES)?;
    let tasks: Vec<_> = (0..callers)
        .map(|number| {
            let (store, events) = (Arc::clone(&store), events.clone());
            tokio::spawn(async move {
                let mut writer =
                    Writer::create(&*store, &format!("bench-{number}"), &events).await?;
                for _ in 0..appends / callers {
                    writer.append_one(&*store).await?;
                }
                anyhow::Ok(writer.uid)
            })
        })
        .collect();
    let mut session = None;
    for task in tasks {
        session = Some(task.await??);
    }
    let session = session.context("somebody wrote")?;
    let appends = (appends / callers * callers) as u64;
    log_of(config, partitions, &store, (appends, appends), session)
}

async fn large(plan: &Plan, place: &Place) -> Result<Log> {
    let config = place.fresh(1).await?;
    let dir = plan.folder()?;
    let store = host::open(&config, dir.path()).await?;
    let events = Events::of_bytes(EVENT_BYTES)?;
    let mut session = None;
    let each = plan.large / LARGE;
    for number in 0..LARGE {
        let name = format!("bench-{number}");
        session = Some(Writer::filled(&*store, &name, &events, each).await?.uid);
    }
    let counts = (LARGE * each.div_ceil(FILL_RECORDS), LARGE * each);
    log_of(config, 1, &store, counts, session.context("somebody wrote")?)
}

fn log_of(
    config: KafkaConfig,
    partitions: u32,
    store: &KafkaStore,
    (appends, records): (u64, u64),
    session: SessionUid,
) -> Result<Log> {
    let messages = store.catch_up().end;
    Ok(Log { config, partitions, messages, appends, records, session })
}

/// Folds a log from its start, on a host with an empty view, some times.
async fn folds(plan: &Plan, log: &Log) -> Result<Folds> {
    let mut folds = Folds::default();
    for _ in 0..plan.folds {
        let dir = plan.folder()?;
        let (begun, before) = (now(), processor(None)?);
        let store = served(log, dir.path()).await?;
        folds.seconds.push(begun.elapsed().as_secs_f64());
        folds.all.push(processor(None)? - before);
        folds.fold.push(processor(Some("kafka-fold"))?);
        folds.view.push(processor(Some("kafka-view"))?);
        drop(store);
    }
    Ok(folds)
}

/// A host that has caught up with every partition.
async fn served(log: &Log, dir: &Path) -> Result<Arc<KafkaStore>> {
    let store = host::open(&log.config, dir).await?;
    let row = store.get(&log.session, Level::Committed).await?;
    anyhow::ensure!(row.view.head.seq.get() > 0, "the session has no records");
    let mut caught = store.catch_up();
    while caught.folded < caught.end {
        // A listing waits for all partitions; its answer is not needed.
        store.marked(mainspring_eventlog::Mark::Awaiting, None, 1).await?;
        caught = store.catch_up();
    }
    Ok(store)
}

fn show(report: &mut Report, what: &str, log: &Log, folds: &Folds) {
    let Log { messages, appends, records, partitions, .. } = log;
    let what = format!("{what}: {messages} messages, {appends} appends, {records} records");
    let rate = |count: u64| -> Vec<f64> {
        folds.seconds.iter().map(|seconds| count as f64 / seconds).collect()
    };
    let mut line = |figure: &str, unit, figures: &[f64]| {
        report.push(Line::alone(ROW, format!("{what}: {figure}"), unit, figures));
    };
    line(&format!("seconds, {partitions} partitions"), Unit::Seconds, &folds.seconds);
    line("messages a second", Unit::PerSecond, &rate(*messages));
    line("records a second", Unit::PerSecond, &rate(*records));
    line("processor time of the fold", Unit::Seconds, &folds.fold);
    line("processor time of the view", Unit::Seconds, &folds.view);
    line("processor time of the host", Unit::Seconds, &folds.all);
}

/// Microseconds of each message, append and record, by Cramer's rule: three
/// logs, three unknowns. What the noise of a run makes less than nothing is nothing.
fn each(logs: &[(&Log, f64); 3]) -> [f64; 3] {
    let rows = logs
        .each_ref()
        .map(|(log, _)| [log.messages as f64, log.appends as f64, log.records as f64]);
    let whole = determinant(&rows);
    [0, 1, 2].map(|column| {
        let mut with = rows;
        for (row, (_, seconds)) in with.iter_mut().zip(logs) {
            row[column] = seconds * 1e6;
        }
        (determinant(&with) / whole).max(0.0)
    })
}

fn determinant([a, b, c]: &[[f64; 3]; 3]) -> f64 {
    a[0] * (b[1] * c[2] - b[2] * c[1]) - a[1] * (b[0] * c[2] - b[2] * c[0])
        + a[2] * (b[0] * c[1] - b[1] * c[0])
}

/// Writes a checkpoint of a log, and fills views from it.
async fn checkpoint(plan: &Plan, log: &Log, report: &mut Report, costs: &mut Costs) -> Result<()> {
    let dir = plan.folder()?;
    let store = served(log, dir.path()).await?;
    let (mut saved, mut filled) = (Vec::new(), Vec::new());
    for _ in 0..plan.folds {
        let begun = now();
        store.checkpoint().await?;
        saved.push(begun.elapsed().as_secs_f64());
    }
    drop(store);
    costs.view_record_bytes = host::view_bytes(dir.path())? as f64 / log.records as f64;
    for _ in 0..plan.folds {
        let dir = plan.folder()?;
        let begun = now();
        let store = host::open(&log.config, dir.path()).await?;
        store.get(&log.session, Level::Committed).await?;
        filled.push(begun.elapsed().as_secs_f64());
    }
    let bytes = host::checkpoint_bytes(&log.config, log.partitions.cast_signed())? as f64;
    costs.checkpoint_record_bytes = bytes / log.records as f64;
    costs.checkpoint_saved_a_second = bytes / Spread::of(&saved).median;
    costs.checkpoint_loaded_a_second = bytes / Spread::of(&filled).median;
    let records = log.records;
    for (what, unit, figures) in [
        (format!("of {records} records: written in"), Unit::Seconds, &saved[..]),
        (format!("of {records} records: a session served after"), Unit::Seconds, &filled),
        ("bytes for each record".to_owned(), Unit::Bytes, &[costs.checkpoint_record_bytes]),
        ("view on disk for each record".to_owned(), Unit::Bytes, &[costs.view_record_bytes]),
    ] {
        report.push(Line::alone(CHECKPOINT, what, unit, figures));
    }
    Ok(())
}

/// Seconds of processor time: of this process so far, or of its live threads of
/// a name.
fn processor(thread: Option<&str>) -> Result<f64> {
    let Some(name) = thread else {
        let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        return Ok(spent.tv_sec as f64 + spent.tv_nsec as f64 / 1e9);
    };
    let mut nanos = 0.0;
    for task in std::fs::read_dir("/proc/self/task")? {
        let task = task?.path();
        if std::fs::read_to_string(task.join("comm"))?.trim() == name {
            let stat = std::fs::read_to_string(task.join("schedstat"))?;
            nanos += stat.split_whitespace().next().context("schedstat")?.parse::<f64>()?;
        }
    }
    Ok(nanos / 1e9)
}
