//! Cancels that meet a turn anywhere.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt as _;
use mainspring_api::{
    CancelReason, CancelRequest, Classify as _, Condition, CreateRequest, ExecRequest, ExecState,
    ExecUpdate, ExecutionId, Message, ModelError, ModelProvider, ModelReply, ModelRequest, Session,
    Sessions as _, SessionsError, ToolCall, ToolError, ToolExecutor, ToolResult, ToolScope,
    async_trait, method,
};
use mainspring_conformance::sessions::{Parts, Script};
use mainspring_controller::Journal;
use mainspring_eventlog::{EventLog, KvOptions, KvStore, Level, MemoryEngine};
use mainspring_placement::Call;
use mainspring_sessions::Service;
use mainspring_testkit::{SeededRng, verify_all};

use crate::host::{self, caller};

/// Takes as many steps of the scheduler as the seed says.
#[derive(Debug)]
struct Dawdling(Arc<Mutex<SeededRng>>);

impl Dawdling {
    async fn dawdle(&self) {
        let steps = self.0.lock().unwrap().below(40);
        for _ in 0..steps {
            tokio::task::yield_now().await;
        }
    }
}

#[async_trait]
impl ModelProvider for Dawdling {
    async fn complete(&self, _: &ModelRequest) -> Result<ModelReply, ModelError> {
        self.dawdle().await;
        Ok(ModelReply { message: Message::assistant("well"), ..ModelReply::default() })
    }
}

#[async_trait]
impl ToolExecutor for Dawdling {
    async fn execute(&self, _: &ToolScope, _: &ToolCall) -> Result<ToolResult, ToolError> {
        self.dawdle().await;
        Ok(ToolResult::default())
    }

    fn offers(&self, _: &str) -> bool {
        true
    }

    fn is_repeatable(&self, _: &str) -> bool {
        false
    }
}

/// How long a cancel may take: much more than it needs, much less than its own bound.
const BOUND: Duration = Duration::from_secs(10);

/// Cancels that meet their turn.
const POINTS: u64 = 50;

const SEEDS_MAX: u64 = 2_000;

const TURN: &str = "out a, tool t1 add, model x, out b, tool t2 add, model y, out c, tool t3 add";

async fn cancel(
    service: &Service,
    session: &Session,
    execution: ExecutionId,
) -> Result<Session, SessionsError> {
    let session = session.uid.clone();
    let request = CancelRequest { session, execution_id: execution, reason: CancelReason::User };
    let caller = caller("alice", method::CANCEL);
    tokio::time::timeout(BOUND, service.cancel(&caller, request)).await.expect("it is bounded")
}

/// B22: however far the turn is, a cancel takes it out of RUNNING within its
/// bound, its end is its last record, what completed replays, and the next turn
/// works.
#[tokio::test(flavor = "multi_thread")]
async fn b22_a_cancel_anywhere_ends_its_turn() {
    let (mut canceled, mut seed) = (0_u64, 0);
    // On a busy machine many turns are over before they are cancelled.
    while canceled < POINTS {
        canceled += u64::from(cancelled_at_random(seed).await);
        seed += 1;
        assert!(seed < SEEDS_MAX, "only {canceled} of {seed} met their turn");
    }
}

async fn cancelled_at_random(seed: u64) -> bool {
    let rng = Arc::new(Mutex::new(SeededRng::new(seed)));
    let below = |bound| rng.lock().unwrap().below(bound);
    let log: Arc<dyn EventLog> =
        Arc::new(KvStore::open(MemoryEngine::default(), KvOptions::default()).unwrap());
    let script = Arc::new(Script::default());
    let parts = Parts {
        log: Arc::clone(&log),
        harnesses: vec![("script", script)],
        model: Arc::new(Dawdling(Arc::clone(&rng))),
        tools: Arc::new(Dawdling(Arc::clone(&rng))),
        authorizer: None,
    };
    let (service, harnesses) = host::open(parts);
    let session = service
        .create(&caller("", method::CREATE_SESSION), CreateRequest::default())
        .await
        .unwrap();
    let turn = |script: String| ExecRequest {
        session: Some(session.uid.clone()),
        inputs: vec![Message::user("go")],
        config: script.into(),
        ..ExecRequest::default()
    };
    let script = if seed.is_multiple_of(3) { format!("gate c1, {TURN}") } else { TURN.to_owned() };
    let mut stream = service.exec(&caller("", method::EXEC), turn(script)).await.unwrap();
    let mut execution = None;
    for _ in 0..2 + below(14) {
        match stream.next().await {
            Some(Ok(ExecUpdate::Record(record))) => execution = record.event.execution_id,
            Some(Ok(_)) => {}
            _ => break,
        }
    }
    let Some(execution) = execution else { return false };
    for _ in 0..below(60) {
        tokio::task::yield_now().await;
    }
    let answer = cancel(&service, &session, execution).await;
    while stream.next().await.is_some() {}
    let seen = service.get(&caller("", method::GET_SESSION), &session.uid).await.unwrap();
    let was_canceled = match answer {
        Ok(_) => {
            assert_eq!(seen.exec_state, ExecState::Canceled, "seed {seed}");
            let row = log.get(&session.uid, Level::Strict).await.unwrap();
            let (end, _) = row.view.latest.unwrap().end.expect("it has an end");
            assert_eq!(end, row.view.head.seq, "seed {seed}: its end is its last record");
            true
        }
        Err(error) => {
            assert_eq!(error.condition(), Condition::FailedPrecondition, "seed {seed}: {error}");
            assert_eq!(seen.exec_state, ExecState::Completed, "seed {seed}: {}", error.code());
            false
        }
    };
    let mut next = service.exec(&caller("", method::EXEC), turn("out z".to_owned())).await.unwrap();
    while let Some(update) = next.next().await {
        update.unwrap_or_else(|error| panic!("seed {seed}: the next turn: {error}"));
    }
    verify_all(&*log, &session.uid).await.unwrap();
    let journal = Journal::new(Arc::clone(&log), session.uid.clone());
    let replayed = harnesses.find("").unwrap().replay(&journal, &Call::default()).await.unwrap();
    assert_eq!(replayed.turns, if was_canceled { 1 } else { 2 }, "seed {seed}");
    assert_eq!(replayed.model_calls, 0, "seed {seed}");
    was_canceled
}
