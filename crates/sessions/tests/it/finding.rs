//! Finding and adopting sessions, and whose they are.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream;
use mainspring_api::{
    Action, AdoptRequest, AuthorizeRequest, Authorizer, AuthzError, Caller, CallerIdentity,
    Condition, CreateRequest, ExecRequest, ExecState, FindRequest, FollowRequest, ForkRequest,
    ImportRequest, ListPage, ListRequest, Message, Operations as _, Owner, SessionUid,
    Sessions as _, Standing, async_trait,
};
use mainspring_eventlog::Level;
use mainspring_eventlog::export::record_line;
use mainspring_sessions::Service;
use mainspring_testkit::{read_all, sample};

use crate::support::{Drive, World, caller};

/// Owners may do everything to what is theirs, and an operator adopts.
#[derive(Debug)]
struct Owners;

#[async_trait]
impl Authorizer for Owners {
    async fn authorize(&self, request: AuthorizeRequest<'_>) -> Result<(), AuthzError> {
        let caller = request.caller.expect("the service asks about known callers alone");
        let owns = request.owner.is_some_and(|owner| {
            (&owner.issuer, &owner.subject) == (&caller.issuer, &caller.subject)
        });
        let may = match request.action {
            Action::Create | Action::List => true,
            Action::Adopt => caller.subject == "operator",
            _ => owns,
        };
        if may { Ok(()) } else { Err(AuthzError::Denied) }
    }
}

fn known(subject: &str) -> Caller {
    let (issuer, subject) = ("i".to_owned(), subject.to_owned());
    Caller { identity: Some(CallerIdentity { issuer, subject }), ..caller() }
}

fn owner(subject: &str) -> Owner {
    Owner { issuer: "i".to_owned(), subject: subject.to_owned() }
}

fn authorised() -> (World, Service) {
    let world = World { authorizer: Some(Arc::new(Owners)), ..World::new() };
    let service = world.service();
    (world, service)
}

async fn created(service: &Service, caller: &Caller) -> SessionUid {
    service.create(caller, CreateRequest::default()).await.unwrap().uid
}

async fn found(service: &Service, caller: &Caller, request: FindRequest) -> Vec<SessionUid> {
    let mut request = FindRequest { page_size: 2, ..request };
    let mut all = Vec::new();
    loop {
        let ListPage { sessions, next_page_token } =
            service.find(caller, request.clone()).await.unwrap();
        assert!(sessions.len() <= 2);
        all.extend(sessions.into_iter().map(|session| session.uid));
        if next_page_token.is_empty() {
            all.sort_unstable();
            return all;
        }
        request.page_token = next_page_token;
    }
}

#[tokio::test(start_paused = true)]
async fn sessions_are_found_by_state_label_and_harness() {
    let world = World::new();
    let service = world.service();
    let labels: BTreeMap<_, _> = [("team".to_owned(), "a".to_owned())].into();
    let labelled = CreateRequest { labels: labels.clone(), ..CreateRequest::default() };
    let labelled = service.create(&caller(), labelled).await.unwrap().uid;
    let (parked, _) = service.parked("").await;
    let done = service.created().await;
    service.run(&done, "out a").await;
    let cut = world.cut(&done, 3).await;
    let failed = service.created().await;
    service.run(&failed, "fail boom").await;
    for (states, mut expected) in [
        (vec![ExecState::Awaiting], vec![parked.clone()]),
        (vec![ExecState::Running], vec![cut.clone()]),
        (vec![ExecState::Running, ExecState::Awaiting], vec![cut.clone(), parked.clone()]),
        (vec![ExecState::Failed], vec![failed.clone()]),
        (vec![ExecState::Completed, ExecState::Pending], vec![done.clone(), labelled.clone()]),
    ] {
        expected.sort_unstable();
        let request = FindRequest { states: states.clone(), ..FindRequest::default() };
        assert_eq!(found(&service, &caller(), request).await, expected, "{states:?}");
    }
    let request = FindRequest { labels, ..FindRequest::default() };
    assert_eq!(found(&service, &caller(), request).await, [labelled]);
    let request = FindRequest { harness: "other".to_owned(), ..FindRequest::default() };
    assert!(found(&service, &caller(), request).await.is_empty());
    assert_eq!(found(&service, &caller(), FindRequest::default()).await.len(), 5);
    let bad = FindRequest { page_token: "x".to_owned(), ..FindRequest::default() };
    let bad = service.find(&caller(), bad).await.unwrap_err();
    assert_eq!(bad.condition(), Condition::InvalidArgument);
}

/// Two owners: neither finds, lists or counts what is the other's.
#[tokio::test(start_paused = true)]
async fn b53_what_is_found_is_the_callers() {
    let (world, service) = authorised();
    let (a, b) = (known("a"), known("b"));
    let mut own = Vec::new();
    for _ in 0..5 {
        own.push(created(&service, &a).await);
        created(&service, &b).await;
    }
    own.sort_unstable();
    world.log.create(sample::fresh_id(), legacy("legacy")).await.unwrap();
    for request in [
        FindRequest::default(),
        FindRequest { owner: Some(owner("a")), ..FindRequest::default() },
        FindRequest { states: vec![ExecState::Pending], ..FindRequest::default() },
    ] {
        assert_eq!(found(&service, &a, request).await, own);
    }
    let listed = service.list(&a, ListRequest::default()).await.unwrap();
    assert_eq!((listed.sessions.len(), listed.next_page_token.as_str()), (5, ""));
    let exact = ListRequest { page_size: 5, ..ListRequest::default() };
    assert_eq!(service.list(&a, exact).await.unwrap().next_page_token, "", "none is counted");
    // Somebody else's are not asked for, nor by nobody.
    let foreign = FindRequest { owner: Some(owner("b")), ..FindRequest::default() };
    let denied = service.find(&a, foreign).await.unwrap_err();
    assert_eq!(denied.condition(), Condition::PermissionDenied);
    let nobody = service.find(&caller(), FindRequest::default()).await.unwrap_err();
    assert_eq!(nobody.condition(), Condition::Unauthenticated);
}

/// A foreign session answers every verb as one that is not there.
#[tokio::test(start_paused = true)]
async fn b53_a_foreign_session_is_as_one_that_is_not_there() {
    let (world, service) = authorised();
    let session = created(&service, &known("a")).await;
    let stranger = known("b");
    let mut answers = Vec::new();
    for uid in [session.clone(), sample::session("nobody")] {
        let follow = FollowRequest { session: uid.clone(), after_seq: Default::default() };
        let adopt = AdoptRequest { session: uid.clone(), owner: owner("b") };
        let refused = [
            service.describe(&stranger, &uid).await.err(),
            service.follow(&stranger, follow).await.err(),
            service.delete(&stranger, &uid).await.err(),
            service.adopt(&stranger, adopt).await.err(),
        ];
        answers.push(refused.map(|error| {
            let error = error.unwrap();
            assert_eq!(error.condition(), Condition::PermissionDenied, "{error}");
            error.to_string()
        }));
    }
    assert_eq!(answers[0], answers[1]);
    assert_eq!(world.journal(&session).await, "", "nothing was done");
    // Its owner may.
    let own = known("a");
    service.describe(&own, &session).await.unwrap();
    service.delete(&own, &session).await.unwrap();
}

fn legacy(name: &str) -> mainspring_eventlog::NewSession {
    mainspring_eventlog::NewSession::bare(sample::session(name), "default")
}

#[tokio::test(start_paused = true)]
async fn a_session_without_an_owner_is_adopted_once() {
    let (world, service) = authorised();
    let operator = known("operator");
    let session = sample::session("legacy");
    world.log.create(sample::fresh_id(), legacy("legacy")).await.unwrap();
    let adopt = |subject: &str| AdoptRequest { session: session.clone(), owner: owner(subject) };
    let denied = service.adopt(&known("a"), adopt("a")).await.unwrap_err();
    assert_eq!(denied.condition(), Condition::PermissionDenied);
    let nobody = AdoptRequest { owner: owner(""), ..adopt("a") };
    let invalid = service.adopt(&operator, nobody).await.unwrap_err();
    assert_eq!(invalid.condition(), Condition::InvalidArgument);
    assert!(service.get(&known("a"), &session).await.is_err());

    let adopted = service.adopt(&operator, adopt("a")).await.unwrap();
    assert_eq!(adopted.owner, Some(owner("a")));
    assert_eq!(service.get(&known("a"), &session).await.unwrap(), adopted);
    let of_a = found(&service, &known("a"), FindRequest::default()).await;
    assert_eq!(of_a, std::slice::from_ref(&session));
    // The same again answers the same; another owner is refused, and not told whose it is.
    assert_eq!(service.adopt(&operator, adopt("a")).await.unwrap(), adopted);
    let taken = service.adopt(&operator, adopt("b")).await.unwrap_err();
    assert_eq!(taken.condition(), Condition::FailedPrecondition);
    assert_eq!(taken.to_string(), format!("session {session} has another owner"));
    let row = world.log.get(&session, Level::Strict).await.unwrap();
    assert_eq!(row.session.owner, Some(owner("a")));
}

/// Of two who adopt at once, one does.
#[tokio::test(flavor = "multi_thread")]
async fn one_adoption_wins() {
    for _ in 0..50 {
        let world = World::new();
        let (one, other) = (world.service(), world.service());
        let session = one.created().await;
        let adopt =
            |subject: &str| AdoptRequest { session: session.clone(), owner: owner(subject) };
        let (caller_a, caller_b) = (caller(), caller());
        let both =
            tokio::join!(one.adopt(&caller_a, adopt("a")), other.adopt(&caller_b, adopt("b")));
        let won = one.get(&caller(), &session).await.unwrap().owner;
        for (subject, answer) in [("a", both.0), ("b", both.1)] {
            match answer {
                Ok(adopted) => {
                    assert_eq!((adopted.owner, won.clone()), (won.clone(), Some(owner(subject))))
                }
                Err(error) => assert_eq!(error.condition(), Condition::FailedPrecondition),
            }
        }
    }
}

/// A request expires wherever its session was brought: in a project of which
/// this host has never heard, and while it runs.
#[tokio::test(start_paused = true)]
async fn b14_an_imported_request_expires() {
    let ttl = Some(Duration::from_secs(3_600));
    let world = World { ttl, ..World::new() };
    let (session, _) = world.service().parked("").await;
    let lines: Vec<_> =
        read_all(&*world.log, &session).await.unwrap().iter().map(record_line).collect();
    let import = async |world: &World, service: &Service, name: &str| {
        let request = ImportRequest {
            session: Some(sample::session(name)),
            project: name.to_owned(),
            ..ImportRequest::default()
        };
        let lines = Box::pin(stream::iter(lines.clone().into_iter().map(Ok)));
        let imported = service.import(&caller(), request, lines).await.unwrap();
        assert_eq!(imported.exec_state, ExecState::Awaiting);
        let row = world.log.get(&imported.uid, Level::Strict).await.unwrap();
        assert_eq!(row.session.project, name);
        imported.uid
    };
    let elsewhere = World::new();
    let before = import(&elsewhere, &elsewhere.service(), "before").await;
    // That host is gone; this one knows of no time to live.
    let service = elsewhere.service();
    service.watch_approvals();
    // It has looked by then.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let meanwhile = import(&elsewhere, &service, "meanwhile").await;
    tokio::time::sleep(Duration::from_secs(3_500)).await;
    for uid in [&before, &meanwhile] {
        let waits = service.get(&caller(), uid).await.unwrap();
        assert_eq!(waits.exec_state, ExecState::Awaiting, "{uid}");
    }
    tokio::time::sleep(Duration::from_secs(200)).await;
    service.idle().await;
    for uid in [&before, &meanwhile] {
        let done = service.get(&caller(), uid).await.unwrap();
        assert_eq!(done.exec_state, ExecState::Completed, "{uid}");
    }
}

/// What was running when its host died is in every list at once, as open, and
/// says that it was interrupted.
#[tokio::test(start_paused = true)]
async fn b7_sessions_of_a_dead_host_are_listed_as_interrupted() {
    let world = World::new();
    let done = world.service().created().await;
    world.service().run(&done, "out a, out b").await;
    let mut cut = Vec::new();
    for _ in 0..50 {
        cut.push(world.cut(&done, 3).await);
    }
    cut.sort_unstable();
    let service = world.service();
    assert_eq!(found(&service, &caller(), FindRequest::default()).await.len(), 51);
    let running = FindRequest { states: vec![ExecState::Running], ..FindRequest::default() };
    assert_eq!(found(&service, &caller(), running).await, cut);
    for session in &cut {
        let report = service.describe(&caller(), session).await.unwrap();
        assert_eq!(report.standing, Standing::Interrupted);
    }
}

/// A session that was given to somebody is still the one that its key made.
#[tokio::test(start_paused = true)]
async fn a_key_still_answers_when_its_session_was_adopted() {
    let service = World::new().service();
    let request = |name: &str| CreateRequest {
        name: name.to_owned(),
        idempotency_key: Some("key-1".to_owned()),
        ..CreateRequest::default()
    };
    let session = service.create(&caller(), request("one")).await.unwrap().uid;
    let adopt = AdoptRequest { session: session.clone(), owner: owner("a") };
    service.adopt(&caller(), adopt).await.unwrap();
    let again = service.create(&caller(), request("one")).await.unwrap();
    assert_eq!((again.uid, again.owner), (session, Some(owner("a"))));
    let other = service.create(&caller(), request("two")).await.unwrap_err();
    assert_eq!(other.condition(), Condition::AlreadyExists);
}

/// What exceeds its bound is refused by its name, before anything is asked.
#[tokio::test(start_paused = true)]
async fn metadata_beyond_its_bound_is_refused_by_name() {
    let world = World::new();
    let service = world.service();
    let session = service.created().await;
    let who = &caller();
    let long = "n".repeat(1_025);
    let project = "p".repeat(70_000);
    let labels: BTreeMap<_, _> = [("k".to_owned(), "v".repeat(64 << 10))].into();
    let fork = |name: &str, labels: &BTreeMap<String, String>| ForkRequest {
        session: session.clone(),
        at_seq: 0,
        count: 1,
        labels: labels.clone(),
        child_names: vec![name.to_owned()],
        identity: None,
    };
    let create = async |request| service.create(who, request).await.err();
    let none = || Box::pin(stream::empty());
    let exec = ExecRequest {
        inputs: vec![Message::user("x")],
        harness: long.clone(),
        ..ExecRequest::default()
    };
    let import = ImportRequest { harness: long.clone(), ..Default::default() };
    let adopt = AdoptRequest { session: session.clone(), owner: owner(&long) };
    let find = FindRequest { project: project.clone(), ..Default::default() };
    let list = ListRequest { project: project.clone(), ..Default::default() };
    for (what, error) in [
        ("project", create(CreateRequest { project, ..Default::default() }).await),
        ("name", create(CreateRequest { name: long.clone(), ..Default::default() }).await),
        ("model", create(CreateRequest { model: long.clone(), ..Default::default() }).await),
        (
            "session metadata (mostly labels)",
            create(CreateRequest { labels: labels.clone(), ..Default::default() }).await,
        ),
        ("harness", service.exec(who, exec).await.err()),
        ("child_names: name", service.fork(who, fork(&long, &BTreeMap::new())).await.err()),
        ("session metadata (mostly labels)", service.fork(who, fork("a", &labels)).await.err()),
        ("harness", service.import(who, import, none()).await.err()),
        ("owner_subject", service.adopt(who, adopt).await.err()),
        ("project", service.find(who, find).await.err()),
        ("project", service.list(who, list).await.err()),
    ] {
        let error = error.unwrap();
        assert_eq!(error.condition(), Condition::ValueTooLarge, "{error}");
        assert!(error.to_string().starts_with(&format!("{what} is ")), "{what}: {error}");
    }
    assert_eq!(found(&service, who, FindRequest::default()).await, [session]);
}
