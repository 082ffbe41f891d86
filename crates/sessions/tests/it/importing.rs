//! What an import may bring, and what it tells.

use std::sync::Arc;

use futures_util::stream;
use mainspring_api::{
    Action, AppendId, AuthorizeRequest, Authorizer, AuthzError, Bytes, Caller, CallerIdentity,
    Condition, CreateRequest, ExecRequest, ExecState, FindRequest, ImportRequest, Message,
    Operations as _, ResumeRequest, Session, SessionUid, Sessions as _, SessionsError, async_trait,
};
use mainspring_eventlog::Level;
use mainspring_eventlog::export::{head_line, record_line};
use mainspring_sessions::Service;
use mainspring_testkit::{read_all, sample};

use crate::support::{Drive as _, World, caller, shown, turn};

/// Everybody creates; owners may do everything else but decide, which is the
/// approver's.
#[derive(Debug)]
struct Policy;

#[async_trait]
impl Authorizer for Policy {
    async fn authorize(&self, request: AuthorizeRequest<'_>) -> Result<(), AuthzError> {
        let caller = request.caller.expect("the service asks about known callers alone");
        let owns = request.owner.is_some_and(|owner| {
            (&owner.issuer, &owner.subject) == (&caller.issuer, &caller.subject)
        });
        let may = match request.action {
            Action::Create | Action::List => true,
            Action::Approve => owns && caller.subject == "approver",
            _ => owns,
        };
        if may { Ok(()) } else { Err(AuthzError::Denied) }
    }
}

fn known(subject: &str) -> Caller {
    let (issuer, subject) = ("i".to_owned(), subject.to_owned());
    Caller { identity: Some(CallerIdentity { issuer, subject }), ..caller() }
}

fn guarded() -> (World, Service) {
    let world = World { authorizer: Some(Arc::new(Policy)), ..World::new() };
    let service = world.service();
    (world, service)
}

type Lines = Vec<Bytes>;

/// The record lines of a session, and its head line.
async fn exported(world: &World, session: &SessionUid) -> (Lines, Bytes) {
    let row = world.log.get(session, Level::Strict).await.unwrap();
    let records = read_all(&*world.log, session).await.unwrap();
    (records.iter().map(record_line).collect(), head_line(&row))
}

async fn import(
    service: &Service,
    caller: &Caller,
    request: ImportRequest,
    lines: impl IntoIterator<Item = Result<Bytes, SessionsError>>,
) -> Result<Session, SessionsError> {
    let lines: Vec<_> = lines.into_iter().collect();
    service.import(caller, request, Box::pin(stream::iter(lines))).await
}

#[track_caller]
fn denied<T: std::fmt::Debug>(answer: Result<T, SessionsError>) -> String {
    let error = answer.unwrap_err();
    assert_eq!(error.condition(), Condition::PermissionDenied, "{error}");
    error.to_string()
}

async fn owned(service: &Service, caller: &Caller) -> usize {
    service.find(caller, FindRequest::default()).await.unwrap().sessions.len()
}

/// A file can hold any decision: only who may decide brings an open turn that
/// stands at a call which needs one.
#[tokio::test(start_paused = true)]
async fn an_import_with_an_open_gate_needs_the_right_to_approve() {
    let elsewhere = World::new();
    let maker = elsewhere.service();
    let (session, approval) = maker.parked("").await;
    let (undecided, _) = exported(&elsewhere, &session).await;
    maker.decided(&session, &approval, true).await.unwrap();
    let (decided, head) = exported(&elsewhere, &session).await;
    assert_eq!(elsewhere.journal(&session).await, "ES IN TC AQ SUSPEND AR");
    maker.resumed(&session).await.last();
    let (finished, _) = exported(&elsewhere, &session).await;
    let named: Vec<_> = decided.iter().chain([&head]).cloned().collect();

    let (world, service) = guarded();
    let (ann, approver) = (known("ann"), known("approver"));
    let gated = &decided[..3];
    for lines in [gated, &undecided, &decided, &named] {
        let refused =
            import(&service, &ann, ImportRequest::default(), lines.iter().cloned().map(Ok));
        denied(refused.await);
        assert_eq!(owned(&service, &ann).await, 0, "nothing is published");
    }
    for lines in [&decided[..2], &finished] {
        let brought =
            import(&service, &ann, ImportRequest::default(), lines.iter().cloned().map(Ok));
        brought.await.unwrap();
    }
    assert!(world.tools.done().is_empty());
    let brought = import(&service, &approver, ImportRequest::default(), named.into_iter().map(Ok));
    let resume = ResumeRequest { session: brought.await.unwrap().uid, approval_ttl: None };
    shown(service.resume(&approver, resume).await).await.last();
    assert_eq!(world.tools.done().len(), 1, "the approver's decision counts");
    // Without an authoriser everybody may do everything.
    let open = World::new().service();
    import(&open, &caller(), ImportRequest::default(), decided.into_iter().map(Ok)).await.unwrap();
}

/// Lines that go on from what was staged do not show the whole journal.
#[tokio::test(start_paused = true)]
async fn the_rest_of_an_import_is_not_taken_for_all_of_it() {
    let elsewhere = World::new();
    let maker = elsewhere.service();
    let session = maker.created().await;
    let large = vec![Message::user("x".repeat(1 << 20))];
    let request = ExecRequest { inputs: large, ..turn(&session, "gate c1") };
    let parked = shown(maker.exec(&caller(), request).await).await;
    let approval = parked.last().pending_approval.clone().unwrap();
    maker.decided(&session, &approval, true).await.unwrap();
    let (lines, head) = exported(&elsewhere, &session).await;

    let (world, service) = guarded();
    for (who, may) in [("ann", false), ("approver", true)] {
        let who = known(who);
        let request = || ImportRequest { id: Some(AppendId::new([7; 16])), ..Default::default() };
        let cut = || Err(SessionsError::new(Condition::Unavailable, "the client went away"));
        let part = lines[..2].iter().cloned().map(Ok).chain([cut()]);
        let lost = import(&service, &who, request(), part).await.unwrap_err();
        assert_eq!(lost.condition(), Condition::Unavailable);
        let rest = || lines[2..].iter().chain([&head]).cloned().map(Ok);
        if may {
            import(&service, &who, request(), rest()).await.unwrap();
        } else {
            denied(import(&service, &who, request(), rest()).await);
            denied(import(&service, &who, request(), lines[2..].iter().cloned().map(Ok)).await);
        }
        assert_eq!(owned(&service, &who).await, usize::from(may));
    }
    assert!(world.tools.done().is_empty());
}

/// An import's id is its caller's own.
#[tokio::test(start_paused = true)]
async fn an_import_id_is_answered_to_who_began_it() {
    let elsewhere = World::new();
    let maker = elsewhere.service();
    let (one, other) = (maker.created().await, maker.created().await);
    maker.run(&one, "out one").await;
    maker.run(&other, "out other").await;
    let (one, _) = exported(&elsewhere, &one).await;
    let (other, _) = exported(&elsewhere, &other).await;
    let (_, service) = guarded();
    let request = || ImportRequest { id: Some(AppendId::new([7; 16])), ..Default::default() };
    let lines = |lines: &Lines| lines.clone().into_iter().map(Ok);
    let of_ann = import(&service, &known("ann"), request(), lines(&one)).await.unwrap();
    let of_bob = import(&service, &known("bob"), request(), lines(&other)).await.unwrap();
    assert_ne!(of_ann.uid, of_bob.uid);
    assert_eq!(of_bob.owner.unwrap().subject, "bob");
    let again = import(&service, &known("ann"), request(), lines(&one)).await.unwrap();
    assert_eq!(again.uid, of_ann.uid, "the same again is answered");
}

/// A uid that is taken answers as a foreign session does, but to its owner.
#[tokio::test(start_paused = true)]
async fn an_import_tells_nothing_of_a_foreign_uid() {
    let (world, service) = guarded();
    let (ann, bob) = (known("ann"), known("bob"));
    let session = service.create(&ann, CreateRequest::default()).await.unwrap().uid;
    let (_, head) = exported(&world, &session).await;
    let line = || [Ok(head.clone())];
    let refused = denied(import(&service, &bob, ImportRequest::default(), line()).await);
    assert_eq!(refused, denied(service.get(&bob, &session).await));
    let own = import(&service, &ann, ImportRequest::default(), line()).await.unwrap_err();
    assert_eq!(own.condition(), Condition::AlreadyExists);
    for uid in [session, sample::session("free")] {
        let request = ImportRequest { session: Some(uid), ..Default::default() };
        let chosen = denied(import(&service, &bob, request, [Ok(Bytes::new())]).await);
        assert_eq!(chosen, "an import may not choose its uid here");
    }
}

/// A project's name may have all of its bytes, and is found by a later host.
#[tokio::test(start_paused = true)]
async fn a_project_of_the_longest_name_works() {
    let world = World::new();
    let service = world.service();
    let project = "p".repeat(256);
    let request = CreateRequest { project: project.clone(), ..CreateRequest::default() };
    let session = service.create(&caller(), request).await.unwrap().uid;
    service.run(&session, "out x").await.last();
    let (lines, _) = exported(&world, &session).await;
    let request = ImportRequest { project: project.clone(), ..ImportRequest::default() };
    let cut = lines[..3].iter().cloned().map(Ok);
    let cut = import(&service, &caller(), request, cut).await.unwrap();
    assert_eq!(cut.exec_state, ExecState::Running);
    let holder = sample::holder("later");
    let fence = world.log.get(&cut.uid, Level::Strict).await.unwrap().fence.fence;
    world.log.mint(&cut.uid, sample::fresh_id(), fence, holder.clone()).await.unwrap();
    let later = world.service_by("scripted", &holder.id);
    later.resume_interrupted().await.unwrap();
    later.idle().await;
    let done = later.get(&caller(), &cut.uid).await.unwrap();
    assert_eq!(done.exec_state, ExecState::Completed);
    let request = FindRequest { project, ..FindRequest::default() };
    assert_eq!(later.find(&caller(), request).await.unwrap().sessions.len(), 2);
}
