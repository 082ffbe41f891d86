//! What an authoriser is asked, and what nobody learns without its word.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::{StreamExt as _, stream};
use mainspring_api::{
    Action, ApprovalRef, ApproveRequest, AuthorizeRequest, Authorizer, AuthzError, BoxStream,
    Bytes, Caller, CallerIdentity, CancelReason, CancelRequest, Classify as _, Condition,
    CreateRequest, ExecRequest, ExecutionId, ExportRequest, ForkRequest, Head, ImportRequest,
    ListRequest, Message, Operations as _, OsEntropy, Owner, ReplayRequest, RequestId, Resolution,
    ResolveRequest, ResumeRequest, SessionUid, Sessions as _, SessionsError, VerifyRequest,
    async_trait, method,
};
use mainspring_eventlog::LogError;
use mainspring_sessions::Service;
use mainspring_testkit::{HookedLog, LogCall, LogHook};

use crate::support::{Drive as _, Shown, World, shown, turn};

/// One question: action, whether a session was named, its owner, the method.
type Asked = (&'static str, bool, Option<String>, &'static str);

/// Writes down what it is asked. Denies some actions, or everything to strangers.
#[derive(Debug, Default)]
struct Recorder {
    asked: Mutex<Vec<Asked>>,
    denies: Vec<Action>,
    owners_only: bool,
    is_broken: bool,
}

#[async_trait]
impl Authorizer for Recorder {
    async fn authorize(&self, request: AuthorizeRequest<'_>) -> Result<(), AuthzError> {
        let owner = request.owner.map(|owner| format!("{}/{}", owner.issuer, owner.subject));
        let asked = (request.action.name(), request.session.is_some(), owner, request.method);
        self.asked.lock().unwrap().push(asked);
        let is_foreign = request.owner.map(|owner| owner.subject.as_str())
            != request.caller.map(|caller| caller.subject.as_str());
        if self.is_broken {
            return Err(AuthzError::Unavailable);
        }
        match self.denies.contains(&request.action) || (self.owners_only && is_foreign) {
            true => Err(AuthzError::Denied),
            false => Ok(()),
        }
    }
}

impl Recorder {
    fn take(&self) -> Vec<Asked> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

fn alice(method: &'static str) -> Caller {
    let identity = CallerIdentity { issuer: "idp".to_owned(), subject: "alice".to_owned() };
    let request_id = RequestId::new("t").unwrap();
    Caller { identity: Some(identity), ..Caller::anonymous(method, request_id) }
}

fn guarded(world: &World, authorizer: Recorder) -> (Service, Arc<Recorder>) {
    let authorizer = Arc::new(authorizer);
    let world = World { authorizer: Some(Arc::clone(&authorizer) as _), ..world.clone() };
    (world.service(), authorizer)
}

fn resume(session: &SessionUid) -> ResumeRequest {
    ResumeRequest { session: session.clone(), approval_ttl: None }
}

fn decision(session: &SessionUid, approval: ApprovalRef) -> ApproveRequest {
    ApproveRequest {
        session: session.clone(),
        approval,
        approved: true,
        reason: String::new(),
        identity: None,
        digest: None,
    }
}

fn fork(session: &SessionUid) -> ForkRequest {
    ForkRequest {
        session: session.clone(),
        at_seq: 0,
        count: 1,
        labels: Default::default(),
        child_names: Vec::new(),
        identity: None,
    }
}

fn resolve(session: &SessionUid) -> ResolveRequest {
    ResolveRequest {
        session: session.clone(),
        execution_id: ExecutionId::new("0123456789abcdef").unwrap(),
        tool_call_id: "c1".to_owned(),
        resolution: Resolution::Failed("no".to_owned()),
    }
}

fn cancel(session: &SessionUid, execution_id: &str) -> CancelRequest {
    CancelRequest {
        session: session.clone(),
        execution_id: ExecutionId::new(execution_id).unwrap(),
        reason: CancelReason::User,
    }
}

fn replay(session: &SessionUid) -> ReplayRequest {
    ReplayRequest { session: session.clone(), from_seq: 0, to_seq: 0, verify: false }
}

async fn all<T>(
    stream: Result<BoxStream<'static, Result<T, SessionsError>>, SessionsError>,
) -> Vec<T> {
    stream.unwrap().map(Result::unwrap).collect().await
}

#[tokio::test(start_paused = true)]
async fn each_method_asks_what_the_contract_says() {
    let world = World::new();
    let (service, asked) = guarded(&world, Recorder::default());
    let ours = Some("idp/alice".to_owned());
    let on = |action, method| (action, true, ours.clone(), method);

    let row = service.create(&alice(method::CREATE_SESSION), CreateRequest::default()).await;
    let row = row.unwrap();
    let owner = Owner { issuer: "idp".to_owned(), subject: "alice".to_owned() };
    assert_eq!(row.owner, Some(owner.clone()));
    assert_eq!(asked.take(), [("create", false, None, method::CREATE_SESSION)]);
    let session = &row.uid;

    service.get(&alice(method::GET_SESSION), session).await.unwrap();
    assert_eq!(asked.take(), [on("read", method::GET_SESSION)]);
    service.list(&alice(method::LIST_SESSIONS), ListRequest::default()).await.unwrap();
    assert_eq!(asked.take(), [("list", false, None, method::LIST_SESSIONS)]);

    let exec = async |request| shown(service.exec(&alice(method::EXEC), request).await).await;
    exec(turn(session, "gate c1")).await.last();
    assert_eq!(asked.take(), [on("exec", method::EXEC)]);
    let open = exec(ExecRequest { inputs: Vec::new(), ..turn(session, "") }).await;
    let approval = open.last().pending_approval.clone().unwrap();
    let recovery = [on("exec", method::EXEC), on("resume", method::EXEC)];
    assert_eq!(asked.take(), recovery, "the recovery path");
    let created = exec(ExecRequest { inputs: vec![Message::user("x")], ..Default::default() });
    assert_eq!(created.await.last().owner, Some(owner.clone()));
    let first = [("create", false, None, method::EXEC), on("exec", method::EXEC)];
    assert_eq!(asked.take(), first, "before there is a session");

    let resumed = async || {
        let caller = alice(method::RESUME_STREAM);
        shown(service.resume(&caller, resume(session)).await).await
    };
    resumed().await.last();
    assert_eq!(asked.take(), [on("resume", method::RESUME_STREAM)], "it waits still");
    service.approve(&alice(method::APPROVE), decision(session, approval)).await.unwrap();
    assert_eq!(asked.take(), [on("read", method::APPROVE), on("approve", method::APPROVE)]);
    resumed().await.last();
    let both = [on("resume", method::RESUME_STREAM), on("exec", method::RESUME_STREAM)];
    assert_eq!(asked.take(), both, "it runs the tool");
    resumed().await.last();
    assert_eq!(asked.take(), [on("resume", method::RESUME_STREAM)], "nothing is open");

    service.suspend(&alice(method::SUSPEND), session).await.unwrap();
    assert_eq!(asked.take(), [on("suspend", method::SUSPEND)]);
    let children = service.fork(&alice(method::FORK), fork(session)).await.unwrap();
    assert_eq!(children[0].owner, Some(owner.clone()));
    assert_eq!(asked.take(), [on("fork", method::FORK)]);
    service.resolve(&alice(method::RESOLVE), resolve(session)).await.unwrap_err();
    assert_eq!(asked.take(), [on("read", method::RESOLVE), on("approve", method::RESOLVE)]);
    let nothing = cancel(session, "0123456789abcdef");
    service.cancel(&alice(method::CANCEL), nothing).await.unwrap_err();
    assert_eq!(asked.take(), [on("cancel", method::CANCEL)]);

    all(service.replay(&alice(method::REPLAY), replay(session)).await).await;
    assert_eq!(asked.take(), [on("read", method::REPLAY)]);
    let request = VerifyRequest { session: session.clone(), expect_head: None };
    all(service.verify(&alice(method::VERIFY), request).await).await;
    assert_eq!(asked.take(), [on("read", method::VERIFY)]);
    let request = ExportRequest { session: session.clone(), after: Head::EMPTY };
    let lines = all(service.export(&alice(method::EXPORT), request).await).await;
    assert_eq!(asked.take(), [on("read", method::EXPORT)]);

    // A caller plants no session on somebody else.
    let mut lines: Vec<_> =
        lines.iter().map(|line| String::from_utf8_lossy(line).into_owned()).collect();
    let head = lines.last_mut().unwrap();
    assert!(head.contains("alice"), "{head}");
    *head = head.replace("alice", "mallory").replace(session.as_str(), "planted");
    let lines = stream::iter(lines.into_iter().map(|line| Ok(Bytes::from(line))));
    let caller = alice(method::IMPORT);
    let import = service.import(&caller, ImportRequest::default(), Box::pin(lines));
    let imported = import.await.unwrap();
    assert_eq!((imported.uid.as_str(), imported.owner), ("planted", Some(owner)));
    assert_eq!(asked.take(), [("create", false, None, method::IMPORT)]);
}

/// Each part of a composed permission is needed, and comes before any effect.
#[tokio::test(start_paused = true)]
async fn every_check_of_a_call_must_pass() {
    let world = World::new();
    let (session, approval) = {
        let (service, _) = guarded(&world, Recorder::default());
        let row = service.create(&alice("m"), CreateRequest::default()).await.unwrap();
        let parked = shown(service.exec(&alice("m"), turn(&row.uid, "gate c1")).await).await;
        (row.uid, parked.last().pending_approval.clone().unwrap())
    };
    let denied = |error: Option<SessionsError>| {
        assert_eq!(error.unwrap().condition(), Condition::PermissionDenied);
    };
    let without = |action| guarded(&world, Recorder { denies: vec![action], ..Default::default() });
    let sessions = async || {
        let query = mainspring_eventlog::ListQuery {
            project: "default".to_owned(),
            page_size: 500,
            ..Default::default()
        };
        let page = world.log.list(query, mainspring_eventlog::Level::Strict).await.unwrap();
        page.rows.len()
    };

    let (service, _) = without(Action::Approve);
    let refused = service.approve(&alice("m"), decision(&session, approval.clone())).await;
    denied(refused.err());
    denied(service.resolve(&alice("m"), resolve(&session)).await.err());
    let (service, _) = without(Action::Read);
    let refused = service.approve(&alice("m"), decision(&session, approval.clone())).await;
    denied(refused.err());
    let (service, _) = without(Action::Resume);
    let again = ExecRequest { inputs: Vec::new(), ..turn(&session, "") };
    denied(shown(service.exec(&alice("m"), again).await).await.error);
    for action in [Action::Create, Action::Exec] {
        let (service, _) = without(action);
        let request = ExecRequest { inputs: vec![Message::user("x")], ..Default::default() };
        let refused = shown(service.exec(&alice("m"), request).await).await.error;
        assert!(refused.as_ref().unwrap().session().is_none(), "there is none");
        denied(refused);
    }
    assert_eq!(sessions().await, 1, "none was created");
    assert_eq!(world.journal(&session).await, "ES IN TC AQ SUSPEND");
    let (service, _) = without(Action::Exec);
    service.approve(&alice("m"), decision(&session, approval)).await.unwrap();
    denied(shown(service.resume(&alice("m"), resume(&session)).await).await.error);
    assert_eq!(world.journal(&session).await, "ES IN TC AQ SUSPEND AR");
    assert!(world.tools.started().is_empty());
    // The host goes on with what is its own to finish, whoever may not.
    let done = service.resume_interrupted().await.unwrap();
    assert_eq!(done.resumed, 1);
    assert_eq!(world.tools.done(), ["key-c1"]);
}

/// Reads of rows fail as damaged ones do, while it is told to.
#[derive(Debug, Default)]
struct Damage(AtomicBool);

impl LogHook for Damage {
    async fn around<T: Send>(
        &self,
        call: LogCall,
        run: impl Future<Output = Result<T, LogError>> + Send,
    ) -> Result<T, LogError> {
        if call == LogCall::Read && self.0.load(Ordering::Relaxed) {
            return Err(LogError::Corrupt { what: "the row".to_owned() });
        }
        run.await
    }
}

/// Every method that is about one session, on this one.
async fn refusals(service: &Service, uid: &SessionUid) -> Vec<(&'static str, SessionsError)> {
    let caller = &alice("m");
    let approval = ApprovalRef {
        execution_id: "0123456789abcdef".to_owned(),
        tool_call_id: "c1".to_owned(),
        request_seq: 4,
    };
    let failed = |shown: Shown| shown.error.unwrap();
    let nowhere = ExecRequest { harness: "nowhere".to_owned(), ..turn(uid, "out x") };
    let keyed = ExecRequest { idempotency_key: Some("k".to_owned()), ..turn(uid, "out x") };
    let past = ExecRequest { deadline_unix: 1, ..turn(uid, "out x") };
    let stale = ExecRequest { expected_last_seq: Some(7), ..turn(uid, "out x") };
    let beyond = ForkRequest { at_seq: 99, ..fork(uid) };
    let verify = VerifyRequest { session: uid.clone(), expect_head: None };
    let export = ExportRequest { session: uid.clone(), after: Head::EMPTY };
    vec![
        ("get", service.get(caller, uid).await.unwrap_err()),
        ("exec", failed(shown(service.exec(caller, turn(uid, "out x")).await).await)),
        ("exec elsewhere", failed(shown(service.exec(caller, nowhere).await).await)),
        ("exec again", failed(shown(service.exec(caller, keyed).await).await)),
        ("exec late", failed(shown(service.exec(caller, past).await).await)),
        ("exec stale", failed(shown(service.exec(caller, stale).await).await)),
        ("resume", failed(shown(service.resume(caller, resume(uid)).await).await)),
        ("suspend", service.suspend(caller, uid).await.unwrap_err()),
        ("fork", service.fork(caller, fork(uid)).await.unwrap_err()),
        ("fork beyond", service.fork(caller, beyond).await.unwrap_err()),
        ("approve", service.approve(caller, decision(uid, approval)).await.unwrap_err()),
        ("resolve", service.resolve(caller, resolve(uid)).await.unwrap_err()),
        ("cancel", service.cancel(caller, cancel(uid, "0123456789abcdef")).await.unwrap_err()),
        ("replay", service.replay(caller, replay(uid)).await.err().unwrap()),
        ("verify", service.verify(caller, verify).await.err().unwrap()),
        ("export", service.export(caller, export).await.err().unwrap()),
    ]
}

/// What a caller may not see answers as what is not there, and stays as it is:
/// also while the host drains, and whatever state the session is in.
#[tokio::test(start_paused = true)]
async fn a_foreign_session_answers_as_a_missing_one() {
    let plain = World::new();
    let log = Arc::new(HookedLog::with_hook(Arc::clone(&plain.log), Damage::default()));
    let world = World { log: Arc::clone(&log) as _, ..plain.clone() };
    let open = world.service();
    let idle = open.created().await;
    let (parked, _) = open.parked("").await;
    let running = open.created().await;
    let request = turn(&running, "tool c9 slow");
    let _watched = open.exec(&crate::support::caller(), request).await.unwrap();
    world.tools.entered.wait().await;
    let missing = SessionUid::random(&OsEntropy);
    let before =
        [plain.records(&idle).await, plain.records(&parked).await, plain.records(&running).await];
    let fences = [plain.fence(&idle).await, plain.fence(&parked).await];
    world.compute.calls();
    for drains in [false, true] {
        let (service, asked) =
            guarded(&world, Recorder { owners_only: true, ..Default::default() });
        if drains {
            service.drain();
        }
        for session in [&missing, &idle, &parked, &running] {
            for damaged in [false, true] {
                log.hook().0.store(damaged, Ordering::Relaxed);
                for (what, error) in refusals(&service, session).await {
                    let told = (error.condition(), error.to_string(), error.outcome());
                    let expected = (
                        Condition::PermissionDenied,
                        "permission denied".to_owned(),
                        mainspring_api::Outcome::NotApplied,
                    );
                    assert_eq!(told, expected, "{what}");
                    assert_eq!(error.session(), Some(session), "{what}");
                    assert!(std::error::Error::source(&error).is_none(), "{what}");
                }
                assert_eq!(asked.take().len(), 16, "each was asked about, once");
                log.hook().0.store(false, Ordering::Relaxed);
            }
        }
    }
    let after =
        [plain.records(&idle).await, plain.records(&parked).await, plain.records(&running).await];
    assert_eq!(after, before);
    assert_eq!([plain.fence(&idle).await, plain.fence(&parked).await], fences);
    assert!(world.compute.calls().is_empty());
    assert!(world.tools.go.set(()));
    open.idle().await;
}

/// Without a verified caller nothing is asked; an authoriser that cannot answer
/// allows nothing and says nothing.
#[tokio::test(start_paused = true)]
async fn without_a_caller_or_an_answer_nothing_is_done() {
    let world = World::new();
    let session = world.service().created().await;
    let (service, asked) = guarded(&world, Recorder::default());
    let nobody = crate::support::caller();
    let refused = service.create(&nobody, CreateRequest::default()).await.unwrap_err();
    assert_eq!(refused.condition(), Condition::Unauthenticated);
    for uid in [&session, &SessionUid::random(&OsEntropy)] {
        let refused = shown(service.exec(&nobody, turn(uid, "out x")).await).await.error.unwrap();
        assert_eq!(refused.condition(), Condition::Unauthenticated);
    }
    assert!(asked.take().is_empty());
    let (service, _) = guarded(&world, Recorder { is_broken: true, ..Default::default() });
    for (what, error) in refusals(&service, &session).await {
        assert_eq!(error.condition(), Condition::AuthorizationUnavailable, "{what}");
        assert_eq!(error.to_string(), "authorization unavailable", "{what}");
    }
    assert_eq!(world.journal(&session).await, "");
}

/// The form of a request is looked at first: it says nothing of any session.
#[tokio::test(start_paused = true)]
async fn a_malformed_request_asks_nobody() {
    let world = World::new();
    let (service, asked) = guarded(&world, Recorder { owners_only: true, ..Default::default() });
    let missing = SessionUid::random(&OsEntropy);
    let caller = &alice("m");
    let nobody =
        ApprovalRef { execution_id: String::new(), tool_call_id: "c1".to_owned(), request_seq: 4 };
    let keyed = |execution_id: &str, key: Option<&str>| ExecRequest {
        execution_id: ExecutionId::new(execution_id).ok(),
        idempotency_key: key.map(str::to_owned),
        ..turn(&missing, "")
    };
    let failed = async |request| shown(service.exec(caller, request).await).await.error.unwrap();
    let stale = ExecRequest { expected_last_seq: Some(-1), ..turn(&missing, "") };
    let key = CreateRequest { idempotency_key: Some(String::new()), ..Default::default() };
    for error in [
        failed(keyed("0123456789ABCDEF", None)).await,
        failed(keyed("", Some("a b"))).await,
        failed(keyed("0123456789abcdef", Some("k"))).await,
        failed(stale).await,
        service.create(caller, key).await.unwrap_err(),
        service.approve(caller, decision(&missing, nobody)).await.unwrap_err(),
        service.fork(caller, ForkRequest { count: 129, ..fork(&missing) }).await.unwrap_err(),
        service
            .replay(caller, ReplayRequest { to_seq: -1, ..replay(&missing) })
            .await
            .err()
            .unwrap(),
    ] {
        assert_eq!(error.condition(), Condition::InvalidArgument, "{error}");
    }
    assert!(asked.take().is_empty());
}
