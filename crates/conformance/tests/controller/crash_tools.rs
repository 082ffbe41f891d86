//! A turn of every kind of effect, cut before and after each of its durable
//! writes, and once more at each write of every recovery.

use std::collections::BTreeMap;
use std::sync::Arc;

use mainspring_api::{
    EventBody, EventSink, ExecutionId, HarnessError, Message, ModelReply, OsEntropy, Resolution,
    SinkError, ToolCall,
};
use mainspring_controller::{
    ApprovedRetry, Controller, ControllerError, Options, Resolving, resolve,
};
use mainspring_eventlog::EventLog;
use mainspring_testkit::{CutMode, CutOp, CutPoint, CutStore, sample};

use crate::support::raw::{reported, some_usage};
use crate::support::{
    Cell, Fixture, Placed, Probe, TestModel, TestTools, ask, gated, mediated, turn,
};

const WHOLE: &str =
    "ES IN MC OUT US OUT TC TR TR MC MC OUT TC AQ AR TR TC TR TC AQ AR TR OUT MC OUT END";
const OUTPUTS: [&str; 5] = ["echo:first", "said", "echo:second", "wiped: false", "echo:last"];

/// Twelve effects: four models of which one fails, a usage, two outputs, a
/// report, a tool that may be repeated, one that may not, and two gates.
async fn work(sink: &dyn EventSink) -> Result<(), HarnessError> {
    let first = ask(sink, "first").await?;
    sink.usage(first.usage).await?;
    sink.output("said".to_owned()).await?;
    sink.tool_call(mediated("c1", "search")).await?;
    sink.report(reported("r1")).await?;
    match ask(sink, "flaky").await {
        // How a provider fails is told otherwise when it is served.
        Err(SinkError::Failed(_) | SinkError::CompletionMissing) => {}
        Err(other) => return Err(other.into()),
        Ok(_) => return Err(HarnessError::failed("the provider does not answer that")),
    }
    ask(sink, "second").await?;
    sink.tool_call(gated("c2", "refund")).await?;
    sink.tool_call(mediated("c3", "mail")).await?;
    let wiped = sink.tool_call(gated("c4", "wipe")).await?;
    sink.output(format!("wiped: {}", !wiped.is_error)).await?;
    ask(sink, "last").await?;
    Ok(())
}

fn worker() -> Probe {
    Probe::new(|_, sink| async move { work(&*sink).await })
}

/// The world outside of the host: it outlives every crash.
fn world(session: Fixture) -> Fixture {
    let session = session.with_tools();
    session.executor().declare("search");
    session.model.respond(|request| async move {
        let text = request.messages.last().map(Message::plain_text).unwrap_or_default();
        if text == "flaky" {
            return Err(TestModel::failure());
        }
        Ok(ModelReply { usage: some_usage(), ..TestModel::echo(&request) })
    });
    session
}

/// How far one life of a host came.
#[derive(Debug, PartialEq, Eq)]
enum Life {
    /// The turn has ended.
    Ended,
    /// The store was lost.
    Lost,
}

/// One life of a host over `log`: whatever the journal asks for next is done,
/// until the turn has ended or the store is lost.
async fn life(
    session: &Fixture,
    log: &Arc<dyn EventLog>,
    worker: &Placed,
    retry: ApprovedRetry,
) -> Life {
    let host = session.through(Arc::clone(log));
    // Each step that does not lose the store brings the turn further.
    for _ in 0..16 {
        let Ok(row) = log.get(&session.uid, Default::default()).await else { return Life::Lost };
        if row.view.latest.as_ref().is_some_and(|latest| latest.end.is_some()) {
            return Life::Ended;
        }
        if let Some((execution, gate, request)) = row.view.pending_gate() {
            let park = mainspring_api::ApprovalRef {
                execution_id: execution.id.to_string(),
                tool_call_id: gate.call_id.clone(),
                request_seq: request.as_i64(),
            };
            let approved = gate.call_id == "c2";
            if host.decide(&park, approved, "as the case says").await.is_err() {
                return Life::Lost;
            }
            continue;
        }
        let options = Options { approved_retry: retry, ..host.options() };
        let Ok(controller) = Controller::new(host.journal(), options).await else {
            return Life::Lost;
        };
        let result = match row.view.latest {
            None => controller.exec(&worker.harness, turn(&["hello"])).await.map(drop),
            Some(_) => controller.resume(&worker.harness, None).await.result,
        };
        match result {
            Ok(()) => assert_eq!(session.kinds().await, WHOLE),
            Err(ControllerError::ApprovalParked(_)) => {}
            Err(ControllerError::UnansweredToolCall { call_id, .. }) => {
                let execution = row.view.latest.expect("it has an open call").id;
                if answer(&host, execution, &call_id).await.is_err() {
                    return Life::Lost;
                }
            }
            Err(_) => return Life::Lost,
        }
    }
    panic!("the turn does not get further: {}", session.kinds().await);
}

/// A person looks at what the tool did, and says so.
async fn answer(host: &Fixture, execution: ExecutionId, call: &str) -> Result<(), ControllerError> {
    let known: ToolCall = if call == "c2" { gated("c2", "refund") } else { mediated("c3", "mail") };
    assert_eq!(known.id, call, "only what may not be repeated is shown to a person");
    let happened = host.executor().ledger().contains(&known.idempotency_key);
    let resolution = match happened {
        true => Resolution::Result(Box::new(TestTools::answer(&known))),
        false => Resolution::Retry,
    };
    let request = Resolving {
        execution,
        tool_call_id: call.to_owned(),
        resolution,
        holder: sample::holder("person"),
        entropy: Arc::new(OsEntropy),
        observer: Arc::clone(&host.watcher) as Arc<_>,
    };
    resolve(&host.journal(), request).await.map(drop)
}

/// What one life did outside of the journal.
struct Outside {
    models: usize,
    tools: usize,
    completed: Vec<String>,
    receipts: Vec<String>,
}

impl Outside {
    async fn before(session: &Fixture) -> Self {
        let mut this = Self {
            models: session.model.calls(),
            tools: session.executor().calls(),
            completed: Vec::new(),
            receipts: Vec::new(),
        };
        for event in session.events().await {
            match event.body {
                EventBody::Output(Some(message)) => {
                    let text = message.plain_text();
                    this.completed.extend(text.strip_prefix("echo:").map(str::to_owned));
                }
                EventBody::ToolResult(Some(result)) => this.receipts.push(result.id),
                _ => {}
            }
        }
        this
    }

    /// What was recorded was not done again, and nothing was done twice.
    fn check(&self, session: &Fixture, at: &str) {
        let mut asked: BTreeMap<String, usize> = BTreeMap::new();
        for text in session.model.texts().into_iter().skip(self.models) {
            assert!(!self.completed.contains(&text), "{at}: {text:?} was completed");
            *asked.entry(text).or_default() += 1;
        }
        let mut called: BTreeMap<String, usize> = BTreeMap::new();
        for (_, call) in session.executor().attempts().into_iter().skip(self.tools) {
            assert!(!self.receipts.contains(&call.id), "{at}: {} has its receipt", call.id);
            assert_ne!(call.tool, "wipe", "{at}: it was denied");
            *called.entry(call.id).or_default() += 1;
        }
        let once = |counts: &BTreeMap<String, usize>| counts.values().all(|count| *count == 1);
        assert!(once(&asked) && once(&called), "{at}: {asked:?} {called:?} in one life");
    }
}

/// Runs one life behind `cut`, or to the end without one, and checks it.
async fn checked_life(
    session: &Fixture,
    cut: Option<CutPoint>,
    worker: &Placed,
    retry: ApprovedRetry,
    at: &str,
) -> (Life, Vec<CutPoint>) {
    let acknowledged = session.records().await;
    let outside = Outside::before(session).await;
    let store = Arc::new(match cut {
        None => CutStore::counting(Arc::clone(&session.log)),
        Some(point) => CutStore::new(Arc::clone(&session.log), point, CutMode::Dead),
    });
    let log: Arc<dyn EventLog> = Arc::clone(&store) as Arc<_>;
    let life = life(session, &log, worker, retry).await;
    outside.check(session, at);
    let records = session.records().await;
    let kept = records.iter().zip(&acknowledged).filter(|(now, then)| now.hash == then.hash);
    assert_eq!(kept.count(), acknowledged.len(), "{at}: what was recorded stays");
    let writes = |point: &CutPoint| matches!(point.op, CutOp::Append | CutOp::Annotate);
    (life, store.points().into_iter().filter(writes).collect())
}

/// The turn is whole, replays, and nothing happened more often than it may.
async fn assert_whole(session: &Fixture, worker: &Placed, retry: ApprovedRetry, at: &str) {
    assert_eq!(session.kinds().await, WHOLE, "{at}");
    session.replay_check(worker, 1, &OUTPUTS).await;
    let attempts = |tool: &str| {
        session.executor().attempts().iter().filter(|(_, call)| call.tool == tool).count()
    };
    let happened =
        |key: &str| session.executor().ledger().iter().filter(|entry| *entry == key).count();
    assert_eq!(happened("key-c1"), 1, "{at}: a declared key counts once");
    assert_eq!((attempts("mail"), happened("key-c3")), (1, 1), "{at}: never sent again");
    assert_eq!(attempts("wipe"), 0, "{at}: it was denied");
    if retry == ApprovedRetry::DeclaredOnly {
        assert_eq!((attempts("refund"), happened("key-c2")), (1, 1), "{at}: never sent again");
    }
}

async fn fresh(cell: Cell) -> (Fixture, Placed) {
    let session = world(Fixture::open(cell).await);
    let worker = session.place(worker()).await;
    (session, worker)
}

/// The writes of a turn that is not cut.
async fn writes_of_a_turn(cell: Cell, retry: ApprovedRetry) -> Vec<CutPoint> {
    let (session, worker) = fresh(cell).await;
    let (life, points) = checked_life(&session, None, &worker, retry, "uncut").await;
    assert_eq!(life, Life::Ended);
    assert_whole(&session, &worker, retry, "uncut").await;
    points
}

/// Cut once at `point`, on a store that is then opened again.
async fn cut_once(cell: Cell, point: CutPoint, retry: ApprovedRetry) -> (Fixture, Placed) {
    let (session, worker) = fresh(cell).await;
    let at = point.to_string();
    let (life, _) = checked_life(&session, Some(point), &worker, retry, &at).await;
    assert_eq!(life, Life::Lost, "{at}");
    (session.reopen().await, worker)
}

async fn every_cut(cell: Cell, retry: ApprovedRetry) {
    let points = writes_of_a_turn(cell, retry).await;
    let noted = usize::from(retry == ApprovedRetry::DeclaredOnly);
    // 26 records, of which the input and two requests go with the record before them.
    assert_eq!(points.len(), 2 * (23 + noted), "{points:?}");
    for point in points {
        let (session, worker) = cut_once(cell, point, retry).await;
        let at = format!("{point}, then recovery");
        let (life, _) = checked_life(&session, None, &worker, retry, &at).await;
        assert_eq!(life, Life::Ended, "{at}");
        assert_whole(&session, &worker, retry, &at).await;
    }
}

/// Cut before and after each durable write, the turn is brought to its end by the contract's rule.
async fn every_cut_recovers_under_the_contract(session: Fixture) {
    every_cut(session.cell, ApprovedRetry::Always).await;
}

/// The same where an approved call that was started is a person's to judge.
async fn every_cut_recovers_when_only_declared_calls_are_repeated(session: Fixture) {
    every_cut(session.cell, ApprovedRetry::DeclaredOnly).await;
}

/// Cut at each write of one quarter, and once more at each write of that recovery.
async fn pairs_of_cuts(cell: Cell, quarter: usize) {
    let retry = ApprovedRetry::DeclaredOnly;
    let mut pairs = 0;
    for first in writes_of_a_turn(cell, retry).await.into_iter().skip(quarter).step_by(4) {
        let (session, worker) = cut_once(cell, first, retry).await;
        let (_, seconds) = checked_life(&session, None, &worker, retry, "counting").await;
        for second in seconds {
            let at = format!("{first}, then {second}");
            let (session, worker) = cut_once(cell, first, retry).await;
            let (life, _) = checked_life(&session, Some(second), &worker, retry, &at).await;
            assert_eq!(life, Life::Lost, "{at}");
            let session = session.reopen().await;
            let (life, _) = checked_life(&session, None, &worker, retry, &at).await;
            assert_eq!(life, Life::Ended, "{at}");
            assert_whole(&session, &worker, retry, &at).await;
            pairs += 1;
        }
    }
    assert!(pairs > 250, "{pairs} pairs");
}

/// All pairs of cuts recover: the first quarter of them.
async fn every_pair_of_cuts_recovers_1(session: Fixture) {
    pairs_of_cuts(session.cell, 0).await;
}

/// All pairs of cuts recover: the second quarter of them.
async fn every_pair_of_cuts_recovers_2(session: Fixture) {
    pairs_of_cuts(session.cell, 1).await;
}

/// All pairs of cuts recover: the third quarter of them.
async fn every_pair_of_cuts_recovers_3(session: Fixture) {
    pairs_of_cuts(session.cell, 2).await;
}

/// All pairs of cuts recover: the last quarter of them.
async fn every_pair_of_cuts_recovers_4(session: Fixture) {
    pairs_of_cuts(session.cell, 3).await;
}

matrix! {
    run_on_one_thread:
    everywhere {
        #[test] fn every_cut_recovers_under_the_contract;
        #[test] fn every_cut_recovers_when_only_declared_calls_are_repeated;
    }
    in_process {
        #[test] fn every_pair_of_cuts_recovers_1;
        #[test] fn every_pair_of_cuts_recovers_2;
        #[test] fn every_pair_of_cuts_recovers_3;
        #[test] fn every_pair_of_cuts_recovers_4;
    }
}
