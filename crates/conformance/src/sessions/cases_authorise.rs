//! Who may do what, and that nobody learns of what is not theirs.

use mainspring_api::{
    Action, CancelReason, Classify as _, Condition, ErrorKind, ExecRequest, ExecutionId,
    ExportRequest, FindRequest, Head, ListRequest, Message, Outcome, Resolution, ResolveRequest,
    SessionUid, SessionsError, VerifyRequest, method,
};

use super::support::{Shown, fork_of, range, turn, unknown};
use super::{Asked, Client, Policy, Setup, Subject};

fn asked(action: &'static str, owner: Option<&str>, method: &'static str) -> Asked {
    let about_session = owner.is_some();
    Asked { action, about_session, owner: owner.map(ToOwned::to_owned), method }
}

/// The table of 5.10: what is asked, in which order, with the full method name.
pub async fn each_method_asks_what_the_contract_lists<S: Subject>(setup: Setup<S>) {
    let policy = Policy::default();
    let world = setup.guarded(policy.clone()).await;
    let me = &world.me;
    let mine = Some("alice");
    let session = me.created().await;
    assert_eq!(policy.asked(), [asked("create", None, method::CREATE_SESSION)]);
    me.get(&session).await.unwrap();
    assert_eq!(policy.asked(), [asked("read", mine, method::GET_SESSION)]);
    me.list(ListRequest::default()).await.unwrap();
    assert_eq!(policy.asked(), [asked("list", None, method::LIST_SESSIONS)]);
    me.run(&session, "out a").await.ok();
    assert_eq!(policy.asked(), [asked("exec", mine, method::EXEC)]);
    let auto = ExecRequest { inputs: vec![Message::user("go")], ..ExecRequest::default() };
    Shown::of(me.exec(auto).await).await.ok();
    let create_then_exec = [asked("create", None, method::EXEC), asked("exec", mine, method::EXEC)];
    let seen = policy.asked();
    let seen: Vec<_> = seen.iter().map(|asked| (asked.action, asked.method)).collect();
    let wanted: Vec<_> =
        create_then_exec.iter().map(|asked| (asked.action, asked.method)).collect();
    assert_eq!(seen, wanted);
    me.replay(range(&session, 0, 0)).await.unwrap();
    assert_eq!(policy.asked(), [asked("read", mine, method::REPLAY)]);
    me.suspend(&session).await.unwrap();
    assert_eq!(policy.asked(), [asked("suspend", mine, method::SUSPEND)]);
    me.fork(fork_of(&session)).await.unwrap();
    assert_eq!(policy.asked(), [asked("fork", mine, method::FORK)]);
    me.resume(&session).await.ok();
    assert_eq!(policy.asked(), [asked("resume", mine, method::RESUME_STREAM)]);
    let follow = me.follow(&session, 0).await.unwrap();
    drop(follow);
    assert_eq!(policy.asked(), [asked("read", mine, method::FOLLOW)]);
    let described = me.sessions.describe(&me.as_caller(method::DESCRIBE), &session).await;
    described.unwrap();
    assert_eq!(policy.asked(), [asked("read", mine, method::DESCRIBE)]);
    let found = me.operations.find(&me.as_caller(method::FIND), FindRequest::default()).await;
    found.unwrap();
    assert_eq!(policy.asked(), [asked("list", None, method::FIND)]);
    me.delete(&session).await.unwrap();
    assert_eq!(policy.asked(), [asked("delete", mine, method::DELETE_SESSION)]);
}

/// "Exec recovery path: exec, and resume", "Resume: resume; also exec when it drives effects", "Approve: read, then
/// approve".
pub async fn a_gate_asks_for_each_step<S: Subject>(setup: Setup<S>) {
    let policy = Policy::default();
    let world = setup.guarded(policy.clone()).await;
    let me = &world.me;
    let mine = Some("alice");
    let (session, approval) = me.parked(", gate c2").await;
    let _ = policy.asked();
    me.approve(&session, &approval, true).await.unwrap();
    assert_eq!(
        policy.asked(),
        [asked("read", mine, method::APPROVE), asked("approve", mine, method::APPROVE)]
    );
    me.resume(&session).await.ok();
    assert_eq!(
        policy.asked(),
        [asked("resume", mine, method::RESUME_STREAM), asked("exec", mine, method::RESUME_STREAM)]
    );
    let request = ExecRequest { inputs: Vec::new(), ..turn(&session, "") };
    Shown::of(me.exec(request).await).await.ok();
    assert_eq!(
        policy.asked(),
        [asked("exec", mine, method::EXEC), asked("resume", mine, method::EXEC)]
    );
    let execution = world.execution(&session).await;
    me.cancel(&session, &execution, CancelReason::User).await.unwrap();
    assert_eq!(policy.asked(), [asked("cancel", mine, method::CANCEL)]);
}

/// What a method answers, as far as it can be told apart.
type Answer = (Condition, ErrorKind, Outcome, String);

fn answer(error: &SessionsError, session: &SessionUid) -> Answer {
    let text = error.to_string().replace(session.as_str(), "UID");
    (error.condition(), error.kind(), error.outcome(), text)
}

/// The answers of every method that names a session.
async fn answers(client: &Client, session: &SessionUid) -> Vec<(&'static str, Answer)> {
    let execution = ExecutionId::chosen("00000000000000aa").unwrap();
    let approval = mainspring_api::ApprovalRef {
        execution_id: execution.to_string(),
        tool_call_id: "c1".to_owned(),
        request_seq: 4,
    };
    let mut answers = Vec::new();
    let mut note = |method, error: Option<SessionsError>| {
        let error = error.unwrap_or_else(|| panic!("{method} is refused"));
        answers.push((method, answer(&error, session)));
    };
    note("get", client.get(session).await.err());
    note("exec", client.exec(turn(session, "out a")).await.err());
    let recovery = ExecRequest { inputs: Vec::new(), ..turn(session, "") };
    note("recovery", client.exec(recovery).await.err());
    let unserved = ExecRequest { harness: "nobody".to_owned(), ..turn(session, "") };
    note("exec elsewhere", client.exec(unserved).await.err());
    let ahead = ExecRequest { expected_last_seq: Some(77), ..turn(session, "") };
    note("exec ahead", client.exec(ahead).await.err());
    note("resume", client.resume(session).await.error);
    note("suspend", client.suspend(session).await.err());
    note("fork", client.fork(fork_of(session)).await.err());
    let mut far = fork_of(session);
    far.at_seq = 1_000;
    note("fork far", client.fork(far).await.err());
    note("approve", client.approve(session, &approval, true).await.err());
    note("cancel", client.cancel(session, &execution, CancelReason::User).await.err());
    note("delete", client.delete(session).await.err());
    note("replay", client.replay(range(session, 0, 0)).await.err());
    note("follow", client.follow(session, 0).await.err());
    note("follow far", client.follow(session, 1_000).await.err());
    let caller = client.as_caller(method::DESCRIBE);
    note("describe", client.sessions.describe(&caller, session).await.err());
    let request = ResolveRequest {
        session: session.clone(),
        execution_id: execution,
        tool_call_id: "t1".to_owned(),
        resolution: Resolution::Retry,
    };
    let caller = client.as_caller(method::RESOLVE);
    note("resolve", client.sessions.resolve(&caller, request).await.err());
    let request = VerifyRequest { session: session.clone(), expect_head: None };
    let caller = client.as_caller(method::VERIFY);
    note("verify", client.operations.verify(&caller, request).await.err());
    let request = ExportRequest { session: session.clone(), after: Head::EMPTY };
    let caller = client.as_caller(method::EXPORT);
    note("export", client.operations.export(&caller, request).await.err());
    answers
}

/// "a foreign id answers exactly like a missing one", whatever state the session is in.
pub async fn b53_what_is_not_yours_is_not_there<S: Subject>(setup: Setup<S>) {
    let world = setup.guarded(Policy::default()).await;
    let me = &world.me;
    let done = me.ran("out a").await;
    let (parked, _) = me.parked("").await;
    let deleted = me.ran("out a").await;
    me.delete(&deleted).await.unwrap();
    let running = me.created().await;
    let mut stream = me.exec(turn(&running, "hold here")).await.unwrap();
    super::support::until(&mut stream, "IN").await;
    let mallory = world.client("mallory").await;
    let missing = answers(&mallory, &unknown()).await;
    assert!(missing.iter().all(|(_, answer)| answer.0 == Condition::PermissionDenied));
    for session in [&done, &parked, &deleted, &running] {
        let before = world.records(session).await;
        assert_eq!(answers(&mallory, session).await, missing);
        assert_eq!(world.records(session).await, before, "nothing was changed");
    }
    assert!(mallory.list(ListRequest::default()).await.unwrap().sessions.is_empty());
    let caller = mallory.as_caller(method::FIND);
    let found = mallory.operations.find(&caller, FindRequest::default()).await.unwrap();
    assert!(found.sessions.is_empty() && found.next_page_token.is_empty());
    world.holds.let_go("here");
    Shown::of(Ok(stream)).await.ok();
}

/// "ListSessions ... then the query is restricted to the caller's rows"
pub async fn a_list_has_what_is_yours<S: Subject>(setup: Setup<S>) {
    let world = setup.guarded(Policy::default()).await;
    let bob = world.client("bob").await;
    let mine = world.me.created().await;
    for _ in 0..60 {
        bob.created().await;
    }
    let page = world.me.list(ListRequest::default()).await.unwrap();
    assert_eq!(page.sessions.len(), 1);
    assert_eq!(page.sessions[0].uid, mine);
    assert_eq!(page.next_page_token, "", "there are no more of mine");
}

/// "the row gets the caller as owner" and "the child gets the caller as owner"
pub async fn who_creates_owns<S: Subject>(setup: Setup<S>) {
    let world = setup.guarded(Policy::default()).await;
    let session = world.me.ran("out a").await;
    let child = world.me.fork(fork_of(&session)).await.unwrap().remove(0).uid;
    for uid in [session, child] {
        let owner = world.row(&uid).await.session.owner.expect("it has an owner");
        assert_eq!((&*owner.issuer, &*owner.subject), ("https://issuer.test", "alice"));
    }
}

/// "no verified caller UNAUTHENTICATED", by every method, and nothing is changed.
pub async fn nobody_is_unauthenticated<S: Subject>(setup: Setup<S>) {
    let world = setup.guarded(Policy::default()).await;
    let session = world.me.ran("out a").await;
    let nobody = world.client("").await;
    for uid in [&session, &unknown()] {
        for (method, answer) in answers(&nobody, uid).await {
            assert_eq!(answer.0, Condition::Unauthenticated, "{method}");
        }
    }
    let error = nobody.create(Default::default()).await.unwrap_err();
    assert_eq!(error.condition(), Condition::Unauthenticated);
    let error = nobody.list(ListRequest::default()).await.unwrap_err();
    assert_eq!(error.condition(), Condition::Unauthenticated);
    assert_eq!(world.count().await, 1);
    assert_eq!(world.journal(&session).await, "ES IN OUT END");
}

/// "ErrPermissionDenied -> PERMISSION_DENIED": each action alone can be withheld from an owner, and nothing is changed.
pub async fn a_denied_action_changes_nothing<S: Subject>(setup: Setup<S>) {
    let policy = Policy::default();
    let world = setup.guarded(policy.clone()).await;
    let me = &world.me;
    let (session, approval) = me.parked("").await;
    let before = world.records(&session).await;
    let execution = world.execution(&session).await;
    for action in [
        Action::Approve,
        Action::Exec,
        Action::Resume,
        Action::Suspend,
        Action::Fork,
        Action::Cancel,
        Action::Delete,
        Action::Create,
        Action::List,
    ] {
        policy.deny(action);
    }
    let denied = |error: Option<SessionsError>, what: &str| {
        let error = error.unwrap_or_else(|| panic!("{what} is denied"));
        assert_eq!(error.condition(), Condition::PermissionDenied, "{what}");
    };
    denied(me.approve(&session, &approval, true).await.err(), "approve");
    denied(me.exec(turn(&session, "")).await.err(), "exec");
    denied(me.resume(&session).await.error, "resume");
    denied(me.suspend(&session).await.err(), "suspend");
    denied(me.fork(fork_of(&session)).await.err(), "fork");
    denied(me.cancel(&session, &execution, CancelReason::User).await.err(), "cancel");
    denied(me.delete(&session).await.err(), "delete");
    denied(me.create(Default::default()).await.err(), "create");
    denied(me.list(ListRequest::default()).await.err(), "list");
    assert_eq!(world.records(&session).await, before);
    assert_eq!(world.count().await, 1);
}

/// "any other error -> a host failure with a fixed text"
pub async fn an_authoriser_that_cannot_answer_allows_nothing<S: Subject>(setup: Setup<S>) {
    let policy = Policy::default();
    let world = setup.guarded(policy.clone()).await;
    let session = world.me.created().await;
    policy.fail();
    let error = world.me.get(&session).await.unwrap_err();
    assert_eq!(error.condition(), Condition::AuthorizationUnavailable);
    assert!(error.to_string().contains("authorization unavailable"), "{error}");
    assert!(world.me.exec(turn(&session, "out a")).await.is_err());
    assert_eq!(world.journal(&session).await, "");
}
