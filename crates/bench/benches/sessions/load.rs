//! Many sessions that run turns of the echo harness at once, through gRPC,
//! beside as many tasks that append what such turns record.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use futures_util::StreamExt as _;
use mainspring_api::{
    AppendId, Caller, CreateRequest, ExecRequest, ExecUpdate, Head, Message, OsEntropy, RequestId,
    Seq, SessionUid, Sessions, method,
};
use mainspring_bench::run::store::Store;
use mainspring_bench::run::workload::{fresh_id, now};
use mainspring_bench::{Line, Report, Unit, percentile};
use mainspring_eventlog::{
    Batch, EventLog, Holder, Level, NewRecord, NewSession, ReadLimit, StoredRecord, mint_any,
};
use mainspring_transport_grpc::{LinkOptions, RemoteSessions};

use crate::Plan;
use crate::server::Server;

const ROW: &str = "load";

/// What each turn is asked.
const TEXT: &str = "Please say this once more, so that everybody can hear it: the build is green.";

/// Connections of the clients: one would make its flow control the measure.
const CONNECTIONS: usize = 8;

/// Turns of all sessions, as one round saw them.
struct Round {
    per_second: f64,
    p50: f64,
    p99: f64,
}

impl Round {
    fn of(mut micros: Vec<f64>, seconds: f64) -> Self {
        micros.sort_by(f64::total_cmp);
        let (p50, p99) = (percentile(&micros, 50.0), percentile(&micros, 99.0));
        Self { per_second: micros.len() as f64 / seconds, p50, p99 }
    }
}

pub(crate) async fn run(plan: &Plan, report: &mut Report) -> Result<()> {
    let (mut turns, mut floors) = (Vec::new(), Vec::new());
    let (mut memory, mut growth) = (Vec::new(), Vec::new());
    for round in 0..plan.rounds {
        eprintln!("measuring {ROW}, round {}", round + 1);
        let dir = plan.folder()?;
        let server = Server::start(dir.path()).await?;
        let (measured, resident) = through_grpc(plan, &server).await?;
        server.stop().await?;
        turns.push(measured);
        let (first, last) = (resident[0], resident[resident.len() - 1]);
        memory.push(last);
        growth.push(last - first);
        let template = template(dir.path()).await?;
        let dir = plan.folder()?;
        floors.push(bare(plan, &Store::Redb.open(dir.path())?, &template).await?);
    }
    let what = format!("redb, {} sessions, {} turns", plan.sessions, plan.sessions * plan.turns);
    let mut line = |figure: &str, unit, of: fn(&Round) -> f64| {
        let figures: Vec<f64> = turns.iter().map(of).collect();
        let beside: Vec<f64> = floors.iter().map(of).collect();
        let line = Line::alone(ROW, format!("{what}, {figure}"), unit, &figures);
        report.push(line.beside("the same appends", &figures, &beside));
    };
    line("turns a second", Unit::PerSecond, |round| round.per_second);
    line("p50 of a turn", Unit::Micros, |round| round.p50);
    line("p99 of a turn", Unit::Micros, |round| round.p99);
    report.push(Line::alone(ROW, "memory of the host at the end", Unit::MiB, &memory));
    let what = "memory gained from a quarter of the turns to the end";
    report.push(Line::alone(ROW, what, Unit::MiB, &growth));
    Ok(())
}

/// Every turn through gRPC; also the host's memory after each quarter of them.
async fn through_grpc(plan: &Plan, server: &Server) -> Result<(Round, Vec<f64>)> {
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        let client = RemoteSessions::connect(&server.address, &LinkOptions::default()).await?;
        clients.push(Arc::new(client) as Arc<dyn Sessions>);
    }
    let mut sessions = Vec::new();
    for number in 0..plan.sessions {
        let caller = caller(method::CREATE_SESSION)?;
        let client = Arc::clone(&clients[number % CONNECTIONS]);
        let session = client.create(&caller, CreateRequest::default()).await?;
        sessions.push((client, session.uid));
    }
    let (mut micros, mut seconds, mut resident) = (Vec::new(), 0.0, Vec::new());
    for quarter in 0..4 {
        let turns = plan.turns * (quarter + 1) / 4 - plan.turns * quarter / 4;
        let begun = now();
        let tasks: Vec<_> = sessions
            .iter()
            .map(|(client, uid)| tokio::spawn(drive(Arc::clone(client), uid.clone(), turns)))
            .collect();
        for task in tasks {
            micros.extend(task.await??);
        }
        seconds += begun.elapsed().as_secs_f64();
        resident.push(server.resident()?);
    }
    Ok((Round::of(micros, seconds), resident))
}

async fn drive(client: Arc<dyn Sessions>, uid: SessionUid, turns: usize) -> Result<Vec<f64>> {
    let mut micros = Vec::with_capacity(turns);
    for _ in 0..turns {
        let request = ExecRequest {
            session: Some(uid.clone()),
            inputs: vec![Message::user(TEXT)],
            ..ExecRequest::default()
        };
        let begun = now();
        let mut updates = client.exec(&caller(method::EXEC)?, request).await?;
        let mut records = 0;
        while let Some(update) = updates.next().await {
            records += usize::from(matches!(update?, ExecUpdate::Record(_)));
        }
        micros.push(begun.elapsed().as_secs_f64() * 1e6);
        anyhow::ensure!(records == TURN_RECORDS, "a turn showed {records} records");
    }
    Ok(micros)
}

/// Start and input, model call, completion, end.
const TURN_RECORDS: usize = 5;

/// Its appends: the start comes with its input.
const APPENDS: [usize; 4] = [2, 1, 1, 1];

fn caller(method: &'static str) -> Result<Caller> {
    Ok(Caller::anonymous(method, RequestId::new("bench")?))
}

/// The first turn that a host recorded in `dir`.
async fn template(dir: &std::path::Path) -> Result<Vec<StoredRecord>> {
    let log = Store::Redb.open(dir)?;
    let query = mainspring_eventlog::ListQuery {
        project: "default".to_owned(),
        page_size: 1,
        ..Default::default()
    };
    let page = log.list(query, Level::Committed).await?;
    let uid = &page.rows.first().context("there is a session")?.session.uid;
    let limit = ReadLimit { records: TURN_RECORDS, ..ReadLimit::default() };
    Ok(log.read(uid, Seq::new(1), limit, Level::Committed).await?)
}

/// As many tasks that make the same appends on sessions of their own.
async fn bare(plan: &Plan, log: &Arc<dyn EventLog>, template: &[StoredRecord]) -> Result<Round> {
    let events: Vec<_> =
        template.iter().map(StoredRecord::to_record).collect::<Result<Vec<_>, _>>()?;
    let events: Arc<Vec<_>> = Arc::new(events.into_iter().map(|record| record.event).collect());
    let begun = now();
    let tasks: Vec<_> = (0..plan.sessions)
        .map(|number| {
            let (log, events, turns) = (Arc::clone(log), Arc::clone(&events), plan.turns);
            tokio::spawn(async move {
                let uid = SessionUid::new(&format!("bench-{number}"))?;
                log.create(fresh_id(), NewSession::bare(uid.clone(), "bench")).await?;
                let holder = Holder { id: "bench".to_owned(), name: "bench".to_owned() };
                let mut head = Head::EMPTY;
                let mut micros = Vec::with_capacity(turns);
                for _ in 0..turns {
                    let begun = now();
                    let id = || AppendId::random(&OsEntropy);
                    // A turn takes a fence of its own.
                    let fence = mint_any(&*log, &uid, id, holder.clone()).await?;
                    let mut rest = &events[..];
                    for count in APPENDS {
                        let (records, after) = rest.split_at(count);
                        rest = after;
                        let records = records.iter().cloned().map(NewRecord::from).collect();
                        let batch = Batch::link(head, records)?;
                        head = log.append(&uid, fresh_id(), fence, &batch).await?;
                    }
                    micros.push(begun.elapsed().as_secs_f64() * 1e6);
                }
                anyhow::Ok(micros)
            })
        })
        .collect();
    let mut micros = Vec::new();
    for task in tasks {
        micros.extend(task.await??);
    }
    Ok(Round::of(micros, begun.elapsed().as_secs_f64()))
}
