//! The registry of harnesses, and what it does to the sessions of a host.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mainspring_api::{
    Action, AppendId, AuthorizeRequest, Authorizer, AuthzError, Bytes, Caller, CallerIdentity,
    Capabilities, Classify as _, Condition, CreateRequest, Descriptor, ErrorKind, EventSink,
    ExecRequest, ForkRequest, Harness, HarnessError, HarnessRegistration, HarnessRegistry as _,
    HarnessSource, HarnessSpec, HarnessState, OsEntropy, Placement, RegisterOutcome, RequestId,
    Runtime, SessionUid, Sessions as _, SessionsError, Start, Timestamp, async_trait, method,
};
use mainspring_controller::ApprovedRetry;
use mainspring_eventlog::{Holder, RowKey, spec_digest};
use mainspring_harness::EchoModel;
use mainspring_placement::{Connectors, Harnesses, Placer, PlacerOptions};
use mainspring_runtime_local::LocalRuntime;
use mainspring_sessions::{
    PlacementBuilder, RETIRE_REASON_BYTES_MAX, Registry, SPEC_BYTES_MAX, Service, ServiceOptions,
};

use crate::support::{Drive as _, IDLE, World, caller, shown, turn};

/// Places registered harnesses on the world's compute, but for some addresses.
#[derive(Debug)]
struct Builder {
    world: World,
    refused: Mutex<BTreeSet<String>>,
    built: Mutex<Vec<String>>,
}

impl PlacementBuilder for Builder {
    fn build(&self, name: &str, spec: &HarnessSpec) -> Result<Arc<Placer>, String> {
        self.built.lock().unwrap().push(name.to_owned());
        let Some(Placement::Remote { address }) = &spec.placement else {
            return Err("no such substrate here".to_owned());
        };
        if self.refused.lock().unwrap().contains(address) {
            return Err("no way there".to_owned());
        }
        let runtime: Arc<dyn Runtime> = match address.as_str() {
            "silent:1" => {
                Arc::new(LocalRuntime::builder().built_in(name, Arc::new(Silent)).build().unwrap())
            }
            _ => Arc::clone(&self.world.compute) as _,
        };
        Ok(placer(&self.world, name, &spec.descriptor_id, runtime))
    }
}

/// Never says what it is.
#[derive(Debug)]
struct Silent;

#[async_trait]
impl Harness for Silent {
    async fn describe(&self) -> Result<Descriptor, HarnessError> {
        std::future::pending().await
    }

    async fn run(&self, _: Start, _: Arc<dyn EventSink>) -> Result<(), HarnessError> {
        Ok(())
    }
}

fn placer(
    world: &World,
    name: &str,
    descriptor_id: &str,
    runtime: Arc<dyn Runtime>,
) -> Arc<Placer> {
    Placer::new(PlacerOptions {
        name: name.to_owned(),
        runtime,
        connector: Arc::new(Connectors::in_process()),
        model: Arc::new(EchoModel),
        policy: None,
        tools: Some(Arc::clone(&world.tools) as _),
        approved_retry: ApprovedRetry::DeclaredOnly,
        descriptor_id: descriptor_id.to_owned(),
        holder: Holder { id: "h".to_owned(), name: "test".to_owned() },
        clock: Arc::clone(&world.clock) as _,
        entropy: Arc::new(OsEntropy),
    })
}

/// A host with a registry.
struct Host {
    world: World,
    service: Service,
    registry: Registry,
    builder: Arc<Builder>,
}

impl Host {
    /// Whose own harness is `scripted`, on a store of its own.
    async fn new() -> Self {
        Self::on(&World::new(), &["scripted"], None).await.unwrap()
    }

    async fn on(
        world: &World,
        own: &[&str],
        authorizer: Option<Arc<dyn Authorizer>>,
    ) -> Result<Self, SessionsError> {
        let placer = |name: &&str| placer(world, name, "", Arc::clone(&world.compute) as _);
        let mut placers = own.iter().map(placer);
        let harnesses = Harnesses::new(placers.next().unwrap());
        placers.for_each(|placer| harnesses.add(placer).unwrap());
        let service = Service::new(ServiceOptions {
            log: Arc::clone(&world.log),
            harnesses,
            project: "default".to_owned(),
            holder: Holder { id: "h".to_owned(), name: "test".to_owned() },
            clock: Arc::clone(&world.clock) as _,
            entropy: Arc::new(OsEntropy),
            idle: IDLE,
            authorizer,
            approval_ttl: None,
            approval_policy: None,
        });
        let builder = Arc::new(Builder {
            world: world.clone(),
            refused: Mutex::default(),
            built: Mutex::default(),
        });
        Self::open(world, service, builder).await
    }

    async fn open(
        world: &World,
        service: Service,
        builder: Arc<Builder>,
    ) -> Result<Self, SessionsError> {
        let registry = Registry::open(&service, Arc::clone(&builder) as _).await?;
        Ok(Self { world: world.clone(), service, registry, builder })
    }

    async fn register(
        &self,
        name: &str,
        spec: HarnessSpec,
    ) -> Result<(HarnessRegistration, RegisterOutcome), SessionsError> {
        self.registry.register(&caller(), name, spec).await
    }

    async fn registered(&self, name: &str) -> HarnessRegistration {
        self.register(name, remote("h:1")).await.unwrap().0
    }

    async fn retire(&self, name: &str) -> Result<HarnessRegistration, SessionsError> {
        self.registry.retire(&caller(), name, "moved").await
    }

    async fn get(&self, name: &str) -> Result<HarnessRegistration, SessionsError> {
        self.registry.get(&caller(), name, false).await
    }

    async fn names(&self, include_retired: bool) -> Vec<String> {
        let (page, next) = self.registry.list(&caller(), 0, "", include_retired).await.unwrap();
        assert_eq!(next, "");
        page.into_iter().map(|harness| harness.name).collect()
    }

    async fn create(&self, harness: &str) -> Result<SessionUid, SessionsError> {
        let request = CreateRequest { harness: harness.to_owned(), ..CreateRequest::default() };
        self.service.create(&caller(), request).await.map(|session| session.uid)
    }

    /// A turn of a session on the harness that is asked for.
    async fn exec(&self, session: &SessionUid, harness: &str) -> Result<(), SessionsError> {
        let request = ExecRequest { harness: harness.to_owned(), ..turn(session, "out x") };
        self.ended(request).await
    }

    async fn ended(&self, request: ExecRequest) -> Result<(), SessionsError> {
        shown(self.service.exec(&caller(), request).await).await.error.map_or(Ok(()), Err)
    }

    async fn fork(&self, session: &SessionUid) -> Result<SessionUid, SessionsError> {
        let request = ForkRequest {
            session: session.clone(),
            at_seq: 0,
            count: 1,
            child_names: Vec::new(),
            labels: Default::default(),
            identity: None,
        };
        let children = self.service.fork(&caller(), request).await?;
        Ok(children[0].uid.clone())
    }

    async fn row(&self, kind: &str, name: &str) -> Option<Bytes> {
        let rows = self.world.log.rows().unwrap();
        let row = rows.named(&RowKey::new(kind, name).unwrap()).await.unwrap();
        row.map(|row| row.value)
    }
}

async fn put_row(world: &World, kind: &str, name: &str, value: impl Into<Bytes>) {
    let (rows, key) = (world.log.rows().unwrap(), RowKey::new(kind, name).unwrap());
    let version = rows.named(&key).await.unwrap().map_or(0, |row| row.version);
    let id = AppendId::random(&OsEntropy);
    rows.put_named(id, &key, version, Some(value.into())).await.unwrap();
}

fn remote(address: &str) -> HarnessSpec {
    HarnessSpec {
        placement: Some(Placement::Remote { address: address.to_owned() }),
        capabilities: Some(Capabilities::default()),
        descriptor_id: String::new(),
    }
}

#[track_caller]
fn assert_is<T: std::fmt::Debug>(result: Result<T, SessionsError>, condition: Condition) -> String {
    let error = result.unwrap_err();
    assert_eq!(error.condition(), condition, "{error}");
    error.to_string()
}

#[tokio::test(start_paused = true)]
async fn a_new_registration_is_created_and_routable_at_once() {
    let host = Host::new().await;
    assert_is(host.create("agent").await, Condition::UnknownHarness);
    let (made, outcome) = host.register("agent", remote("h:1")).await.unwrap();
    assert_eq!(outcome, RegisterOutcome::Created);
    let hex = made.uid.strip_prefix("harness-").unwrap();
    assert!(hex.len() == 24 && hex.bytes().all(|byte| b"0123456789abcdef".contains(&byte)));
    assert_eq!(made.spec_digest, spec_digest(&remote("h:1")));
    assert_eq!(made.spec, Some(remote("h:1")));
    assert_eq!((made.state, made.source), (HarnessState::Active, HarnessSource::Registered));
    assert!(made.create_time.is_some() && made.unservable_reason.is_empty());
    assert_eq!(host.get("agent").await.unwrap(), made);
    let session = host.create("agent").await.unwrap();
    host.exec(&session, "").await.unwrap();
    // A turn that creates its session, too.
    let request = ExecRequest { session: None, harness: "agent".to_owned(), ..turn(&session, "") };
    host.ended(request).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn names_of_hosts_own_and_bad_names_are_refused_in_order() {
    let host = Host::new().await;
    put_row(&host.world, "reserved-harness", "theirs", "").await;
    let bad = HarnessSpec { placement: None, ..remote("") };
    for name in ["scripted", "echo", "chat", "theirs"] {
        assert_is(host.register(name, remote("h:1")).await, Condition::AlreadyExists);
        // The name comes before the spec.
        assert_is(host.register(name, bad.clone()).await, Condition::AlreadyExists);
        assert_eq!(host.row("harness", name).await, None);
    }
    for name in ["", "Agent", "-a", "a-", "a.b", &"a".repeat(64)] {
        assert_is(host.register(name, remote("h:1")).await, Condition::InvalidArgument);
    }
    host.registered(&"a".repeat(63)).await;
    // The spec comes before the row, and the row before what can be served.
    host.registered("agent").await;
    assert_is(host.register("agent", bad).await, Condition::InvalidArgument);
    host.builder.refused.lock().unwrap().insert("h:2".to_owned());
    assert_is(host.register("agent", remote("h:2")).await, Condition::AlreadyExists);
}

#[tokio::test(start_paused = true)]
async fn a_spec_says_enough_and_not_too_much() {
    let host = Host::new().await;
    let substrate = |atespace: &str, template: &str| HarnessSpec {
        placement: Some(Placement::Substrate {
            atespace: atespace.to_owned(),
            template: template.to_owned(),
        }),
        ..remote("")
    };
    let with_id = |bytes: usize| HarnessSpec { descriptor_id: "i".repeat(bytes), ..remote("h:1") };
    let overhead = mainspring_eventlog::spec_bytes(&with_id(1)).len() - 1;
    let cases = [
        ("spec.placement is not set", HarnessSpec { placement: None, ..remote("") }),
        ("spec.remote.address is empty", remote("")),
        ("spec.substrate.atespace is empty", substrate("", "t")),
        ("spec.substrate.template is empty", substrate("a", "")),
        (
            "spec.capabilities.resumability is not set",
            HarnessSpec { capabilities: None, ..remote("h:1") },
        ),
        ("SPEC_BYTES_MAX", with_id(SPEC_BYTES_MAX + 1 - overhead)),
    ];
    for (reason, spec) in cases {
        let said = assert_is(host.register("agent", spec).await, Condition::InvalidArgument);
        assert!(said.contains(reason), "{said}");
        assert_eq!(host.row("harness", "agent").await, None);
    }
    host.register("agent", with_id(SPEC_BYTES_MAX - overhead)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_served_here_is_not_stored() {
    let host = Host::new().await;
    let substrate = Placement::Substrate { atespace: "a".to_owned(), template: "t".to_owned() };
    let spec = HarnessSpec { placement: Some(substrate), ..remote("") };
    let said = assert_is(host.register("agent", spec).await, Condition::HarnessUnservable);
    assert!(said.contains("no such substrate here"), "{said}");
    assert_eq!(Condition::HarnessUnservable.kind(), ErrorKind::Precondition);
    assert_eq!(host.row("harness", "agent").await, None);
    assert_is(host.get("agent").await, Condition::HarnessNotFound);
    // The name is not held by it.
    host.registered("agent").await;
}

#[tokio::test(start_paused = true)]
async fn the_same_again_changes_nothing_and_brings_back_what_was_retired() {
    let host = Host::new().await;
    let made = host.registered("agent").await;
    let stored = host.row("harness", "agent").await;
    tokio::time::advance(Duration::from_secs(5)).await;
    let (again, outcome) = host.register("agent", remote("h:1")).await.unwrap();
    assert_eq!((again, outcome), (made.clone(), RegisterOutcome::Unchanged));
    assert_eq!(host.row("harness", "agent").await, stored);

    host.retire("agent").await.unwrap();
    assert_is(host.register("agent", remote("h:2")).await, Condition::AlreadyExists);
    let (back, outcome) = host.register("agent", remote("h:1")).await.unwrap();
    // Uid and create time survive; the retirement is forgotten.
    assert_eq!((back, outcome), (made, RegisterOutcome::Reactivated));
    assert_eq!(host.row("harness", "agent").await, stored);
    host.create("agent").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_harness_is_found_by_its_name() {
    let host = Host::new().await;
    host.registered("agent").await;
    assert_is(host.get("").await, Condition::InvalidArgument);
    for name in ["other", "a\0b", "NOT A NAME", &"n".repeat(10_000)] {
        let said = assert_is(host.get(name).await, Condition::HarnessNotFound);
        assert!(said.len() < 200);
    }
    assert_eq!(Condition::HarnessNotFound.kind(), ErrorKind::NotFound);
    let own = host.get("scripted").await.unwrap();
    assert_eq!((own.state, own.source), (HarnessState::Active, HarnessSource::Static));
    assert_eq!((own.uid, own.spec, own.spec_digest), (String::new(), None, String::new()));
    assert_eq!(own.create_time, None);
}

#[tokio::test(start_paused = true)]
async fn observing_asks_the_harness_and_never_fails() {
    let host = Host::new().await;
    host.registered("agent").await;
    host.register("silent", remote("silent:1")).await.unwrap();
    put_row(&host.world, "harness", "damaged", "?").await;
    let observed = async |name: &str| host.registry.get(&caller(), name, true).await.unwrap();
    for name in ["agent", "scripted"] {
        let found = observed(name).await;
        assert_eq!(found.observed.unwrap().id, "scripted");
        assert_eq!(found.observe_error, "");
    }
    assert_eq!(host.get("agent").await.unwrap().observed, None, "only when it is asked for");

    let began = tokio::time::Instant::now();
    let found = observed("silent").await;
    assert_eq!(began.elapsed(), Duration::from_secs(10));
    assert_eq!(found.observed, None);
    assert!(found.observe_error.contains("no answer within 10 s"), "{}", found.observe_error);

    let found = observed("damaged").await;
    assert_eq!((found.observed, found.observe_error.as_str()), (None, "it is not served here"));
}

#[tokio::test(start_paused = true)]
async fn pages_show_every_harness_once_by_name() {
    let host = Host::on(&World::new(), &["m", "b", "z"], None).await.unwrap();
    for name in ["a", "c", "d", "n", "y"] {
        host.registered(name).await;
    }
    host.retire("d").await.unwrap();
    host.retire("y").await.unwrap();
    for (include_retired, all) in [(true, "abcdmnyz"), (false, "abcmnz")] {
        for size in 1..=9 {
            let (mut seen, mut token, mut pages) = (String::new(), String::new(), 0);
            loop {
                let page = host.registry.list(&caller(), size, &token, include_retired).await;
                let (page, next) = page.unwrap();
                assert!(!page.is_empty() && page.len() <= usize::try_from(size).unwrap());
                seen.extend(page.into_iter().map(|harness| harness.name));
                pages += 1;
                token = next;
                if token.is_empty() {
                    break;
                }
            }
            assert_eq!(seen, all, "pages of {size}");
            assert_eq!(pages, all.len().div_ceil(usize::try_from(size).unwrap()));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_has_50_unless_asked_and_500_at_most() {
    let host = Host::new().await;
    for number in 0..501 {
        put_row(&host.world, "harness", &format!("h{number:03}"), "?").await;
    }
    for (asked, found) in [(0, 50), (1, 1), (500, 500), (501, 500), (i32::MAX, 500)] {
        let (page, next) = host.registry.list(&caller(), asked, "", false).await.unwrap();
        assert_eq!(page.len(), found, "asked for {asked}");
        assert!(!next.is_empty());
    }
    let negative = host.registry.list(&caller(), -1, "", false).await;
    assert_is(negative, Condition::InvalidArgument);
    for token in ["!", "YQ==", "_w", " "] {
        let answer = host.registry.list(&caller(), 0, token, false).await;
        assert_is(answer, Condition::InvalidArgument);
    }
}

#[tokio::test(start_paused = true)]
async fn a_retirement_is_kept_as_it_was_first() {
    let host = Host::new().await;
    host.registered("agent").await;
    let retired = host.retire("agent").await.unwrap();
    assert_eq!(retired.state, HarnessState::Retired);
    assert_eq!(retired.retire_reason, "moved");
    assert!(retired.retire_time.is_some());
    tokio::time::advance(Duration::from_secs(5)).await;
    let again = host.registry.retire(&caller(), "agent", "another reason").await.unwrap();
    assert_eq!(again, retired);
    assert_eq!(host.get("agent").await.unwrap(), retired);
    assert_eq!(host.names(false).await, ["scripted"]);
    assert_eq!(host.names(true).await, ["agent", "scripted"]);

    let retire = async |name: &str, reason: &str| {
        host.registry.retire(&caller(), name, reason).await.map(drop)
    };
    assert_is(retire("scripted", "").await, Condition::FailedPrecondition);
    assert_is(retire("other", "").await, Condition::HarnessNotFound);
    assert_is(retire("", "").await, Condition::InvalidArgument);
    host.registered("talkative").await;
    let over = "r".repeat(RETIRE_REASON_BYTES_MAX + 1);
    let said = assert_is(retire("talkative", &over).await, Condition::InvalidArgument);
    assert!(said.contains("RETIRE_REASON_BYTES_MAX"), "{said}");
    assert_eq!(host.get("talkative").await.unwrap().state, HarnessState::Active);
    retire("talkative", &over[1..]).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_retired_harness_refuses_only_new_sessions() {
    let host = Host::new().await;
    host.registered("agent").await;
    let (session, parked) = (host.create("agent").await.unwrap(), host.create("agent").await);
    let parked = parked.unwrap();
    host.exec(&session, "").await.unwrap();
    let waiting = host.service.run(&parked, "gate c1").await;
    let approval = waiting.last().pending_approval.clone().unwrap();
    host.retire("agent").await.unwrap();

    assert_is(host.create("agent").await, Condition::HarnessRetired);
    assert_eq!(Condition::HarnessRetired.kind(), ErrorKind::Precondition);
    let request = ExecRequest { session: None, harness: "agent".to_owned(), ..turn(&session, "") };
    assert_is(host.ended(request).await, Condition::HarnessRetired);

    host.exec(&session, "").await.unwrap();
    host.exec(&session, "agent").await.unwrap();
    host.service.decided(&parked, &approval, true).await.unwrap();
    assert!(host.service.resumed(&parked).await.error.is_none());
    host.service.suspend(&caller(), &session).await.unwrap();
    let child = host.fork(&session).await.unwrap();
    assert_eq!(host.service.get(&caller(), &child).await.unwrap().harness, "agent");
    host.exec(&child, "").await.unwrap();

    // Also after the host started anew.
    let host = Host::on(&host.world, &["scripted"], None).await.unwrap();
    assert_is(host.create("agent").await, Condition::HarnessRetired);
    host.exec(&child, "").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_session_is_pinned_where_a_registered_harness_is_concerned() {
    let host = Host::on(&World::new(), &["scripted", "second"], None).await.unwrap();
    host.registered("agent").await;
    let (own, theirs) = (host.create("").await.unwrap(), host.create("agent").await.unwrap());
    host.exec(&own, "second").await.unwrap();
    host.exec(&own, "scripted").await.unwrap();
    host.exec(&theirs, "agent").await.unwrap();
    assert_is(host.exec(&own, "agent").await, Condition::HarnessPinned);
    assert_is(host.exec(&theirs, "second").await, Condition::HarnessPinned);
    assert_eq!(Condition::HarnessPinned.kind(), ErrorKind::Precondition);
    // Decided before the name is looked up.
    assert_is(host.exec(&theirs, "nobody").await, Condition::HarnessPinned);
    assert_is(host.exec(&own, "nobody").await, Condition::UnknownHarness);
    host.retire("agent").await.unwrap();
    assert_is(host.exec(&own, "agent").await, Condition::HarnessPinned);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_name_is_answered_with_those_that_new_sessions_may_have() {
    let host = Host::new().await;
    host.registered("agent").await;
    host.registered("old").await;
    host.retire("old").await.unwrap();
    let said = assert_is(host.create("nobody").await, Condition::UnknownHarness);
    assert!(said.ends_with("served are: agent, scripted"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn registrations_are_there_when_a_host_starts() {
    let host = Host::new().await;
    let made = host.registered("agent").await;
    let session = host.create("agent").await.unwrap();
    let host = Host::on(&host.world, &["scripted"], None).await.unwrap();
    assert_eq!(host.get("agent").await.unwrap(), made);
    host.exec(&session, "").await.unwrap();
    host.create("agent").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_loaded_is_isolated() {
    let host = Host::new().await;
    let good = host.registered("good").await;
    let session = host.create("good").await.unwrap();
    let stored = String::from_utf8(host.row("harness", "good").await.unwrap().to_vec()).unwrap();
    let (line, spec) = stored.split_once('\n').unwrap();
    let invalid = r#"{"remote":{"address":"h:1"}}"#;
    let invalid_spec = HarnessSpec { capabilities: None, ..remote("h:1") };
    let digest = &good.spec_digest;
    let cases = [
        // Name, row, whether its digest is known, a word of the reason.
        ("no-line", "?".to_owned(), false, "line"),
        ("no-json", format!("?\n{spec}"), false, "JSON"),
        ("newer", format!("{}\n{spec}", line.replace("\"1\"", "\"2\"")), false, "version"),
        ("more", format!("{}\n{spec}", line.replace('{', "{\"x\":\"y\",")), false, "not know"),
        ("no-spec", format!("{line}\n?"), true, "not know"),
        ("new-field", format!("{line}\n{}", spec.replace('{', "{\"x\":\"y\",")), true, "not know"),
        ("forged", format!("{line}\n{}", spec.replace("h:1", "h:2")), true, "digest"),
        (
            "invalid",
            format!("{}\n{invalid}", line.replace(digest, &spec_digest(&invalid_spec))),
            true,
            "resumability",
        ),
    ];
    for (name, row, ..) in &cases {
        put_row(&host.world, "harness", name, row.clone()).await;
    }
    put_row(&host.world, "harness", "echo", stored.clone()).await;
    put_row(&host.world, "harness", "away", stored.replace("good", "away")).await;

    let builder = Arc::clone(&host.builder);
    builder.refused.lock().unwrap().insert("h:1".to_owned());
    let again = Host::on(&host.world, &["scripted"], None).await.unwrap();
    let service = again.service;
    let host = Host::open(&host.world, service, builder).await.unwrap();

    for (name, _, has_digest, word) in &cases {
        let found = host.get(name).await.unwrap();
        assert!(found.unservable_reason.contains(word), "{name}: {}", found.unservable_reason);
        assert_eq!(found.spec, None, "{name}");
        assert_eq!(!found.spec_digest.is_empty(), *has_digest, "{name}");
        assert_is(host.create(name).await, Condition::HarnessUnservable);
        // Its name is held.
        assert_is(host.register(name, remote("h:2")).await, Condition::AlreadyExists);
    }
    assert!(host.get("echo").await.unwrap().unservable_reason.contains("host's own"));
    assert_is(host.create("echo").await, Condition::HarnessUnservable);

    // It is sound, and cannot be built here.
    let away = host.get("good").await.unwrap();
    assert_eq!((away.spec, away.unservable_reason.as_str()), (Some(remote("h:1")), "no way there"));
    for answer in [
        host.create("good").await.map(drop),
        host.exec(&session, "").await,
        host.fork(&session).await.map(drop),
        host.service.suspend(&caller(), &session).await.map(drop),
    ] {
        assert_is(answer, Condition::HarnessUnservable);
    }
    // Once it can be, the same registration puts it right.
    host.builder.refused.lock().unwrap().clear();
    let (back, outcome) = host.register("good", remote("h:1")).await.unwrap();
    assert_eq!((back, outcome), (good, RegisterOutcome::Unchanged));
    host.exec(&session, "").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_host_does_not_start_with_a_harness_of_a_registered_name() {
    let host = Host::new().await;
    host.registered("agent").await;
    host.registered("damaged").await;
    put_row(&host.world, "harness", "damaged", "?").await;
    for name in ["agent", "damaged"] {
        let started = Host::on(&host.world, &["other", name], None).await.map(|_| ());
        let said = assert_is(started, Condition::FailedPrecondition);
        assert!(said.contains(name), "{said}");
    }
    assert_eq!(host.row("reserved-harness", "other").await, None, "nothing was written");
    host.retire("agent").await.unwrap();
    let started = Host::on(&host.world, &["other", "agent"], None).await.map(|_| ());
    assert_is(started, Condition::FailedPrecondition);
}

#[tokio::test(start_paused = true)]
async fn names_of_a_hosts_own_stay_reserved() {
    let world = World::new();
    Host::on(&world, &["first", "second"], None).await.unwrap();
    let host = Host::on(&world, &["scripted"], None).await.unwrap();
    for name in ["first", "second"] {
        assert!(host.row("reserved-harness", name).await.is_some());
        assert_is(host.register(name, remote("h:1")).await, Condition::AlreadyExists);
    }
    assert_is(host.create("first").await, Condition::UnknownHarness);
}

#[tokio::test(start_paused = true)]
async fn what_another_host_registered_is_shown_and_served_once_it_is_registered_here() {
    let here = Host::new().await;
    let there = Host::on(&here.world, &["scripted"], None).await.unwrap();
    let made = there.registered("agent").await;
    let found = here.get("agent").await.unwrap();
    assert_eq!(found.uid, made.uid);
    assert!(found.unservable_reason.contains("elsewhere"), "{}", found.unservable_reason);
    assert_eq!(here.names(false).await, ["agent", "scripted"]);
    assert_is(here.create("agent").await, Condition::HarnessUnservable);
    let (same, outcome) = here.register("agent", remote("h:1")).await.unwrap();
    assert_eq!((same, outcome), (made, RegisterOutcome::Unchanged));
    here.create("agent").await.unwrap();
    // A retirement there is noticed, too.
    there.retire("agent").await.unwrap();
    assert_eq!(here.get("agent").await.unwrap().state, HarnessState::Retired);
    assert_is(here.create("agent").await, Condition::HarnessRetired);
}

#[tokio::test(start_paused = true)]
async fn a_harness_of_a_hosts_own_that_is_registered_too_serves_nobody() {
    let host = Host::on(&World::new(), &["scripted", "second"], None).await.unwrap();
    let (session, other) = (host.create("second").await.unwrap(), host.create("").await.unwrap());
    let spare = Host::on(&World::new(), &["scripted"], None).await.unwrap();
    spare.registered("second").await;
    let row = spare.row("harness", "second").await.unwrap();
    // As a host without this rule would have put it there.
    put_row(&host.world, "harness", "second", row).await;
    let found = host.get("second").await.unwrap();
    assert_eq!(found.source, HarnessSource::Static);
    assert_eq!(found.unservable_reason, "it is registered too");
    assert_is(host.exec(&session, "").await, Condition::HarnessUnservable);
    assert_is(host.create("second").await, Condition::HarnessUnservable);
    assert_is(host.exec(&other, "second").await, Condition::HarnessPinned);
    assert_eq!(host.names(false).await, ["scripted", "second"]);
    host.exec(&other, "").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_harness_that_is_another_than_was_registered_is_refused() {
    let host = Host::new().await;
    let spec = HarnessSpec { descriptor_id: "somebody".to_owned(), ..remote("h:1") };
    host.register("agent", spec).await.unwrap();
    let spec = HarnessSpec { descriptor_id: "scripted".to_owned(), ..remote("h:1") };
    host.register("right", spec).await.unwrap();
    let right = host.create("right").await.unwrap();
    host.exec(&right, "").await.unwrap();

    let session = host.create("agent").await.unwrap();
    assert_is(host.exec(&session, "").await, Condition::DescriptorMismatch);
    assert_is(host.fork(&session).await, Condition::DescriptorMismatch);
    let resumed = host.service.resumed(&session).await;
    assert_is(resumed.error.map_or(Ok(()), Err), Condition::DescriptorMismatch);
    assert_eq!(host.world.journal(&session).await, "", "nothing was recorded");
}

/// Writes down what it is asked, and allows some of it.
#[derive(Debug, Default)]
struct Asked {
    allowed: Vec<Action>,
    seen: Mutex<Vec<(Action, &'static str)>>,
}

#[async_trait]
impl Authorizer for Asked {
    async fn authorize(&self, request: AuthorizeRequest<'_>) -> Result<(), AuthzError> {
        assert!(request.session.is_none() && request.owner.is_none());
        assert_eq!(request.caller.unwrap().subject, "operator");
        self.seen.lock().unwrap().push((request.action, request.method));
        match self.allowed.contains(&request.action) {
            true => Ok(()),
            false => Err(AuthzError::Denied),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_authoriser_is_asked_before_anything_is_told_or_done() {
    let world = World::new();
    let first = Host::on(&world, &["scripted"], None).await.unwrap();
    first.registered("agent").await;
    let operator = |method| Caller {
        identity: Some(CallerIdentity {
            issuer: "https://id.example".to_owned(),
            subject: "operator".to_owned(),
        }),
        ..Caller::anonymous(method, RequestId::new("t").unwrap())
    };
    let all = [
        (Action::RegistryRegister, method::REGISTER_HARNESS),
        (Action::RegistryRead, method::GET_HARNESS),
        (Action::RegistryList, method::LIST_HARNESSES),
        (Action::RegistryRetire, method::RETIRE_HARNESS),
    ];
    // Each in turn may be done, and the others may not.
    for (allowed, _) in all {
        let asked = Arc::new(Asked { allowed: vec![allowed], seen: Mutex::default() });
        let host = Host::on(&world, &["scripted"], Some(Arc::clone(&asked) as _)).await.unwrap();
        for (action, method) in all {
            for name in ["agent", "unknown", "scripted", ""] {
                let (who, nobody) = (operator(method), caller());
                let registry = &host.registry;
                let call = async |who: &Caller| match action {
                    Action::RegistryRegister => {
                        registry.register(who, name, remote("")).await.map(drop)
                    }
                    Action::RegistryRead => registry.get(who, name, false).await.map(drop),
                    Action::RegistryList => registry.list(who, -1, name, true).await.map(drop),
                    _ => registry.retire(who, name, &"r".repeat(2_000)).await.map(drop),
                };
                assert_is(call(&nobody).await, Condition::Unauthenticated);
                let answer = call(&who).await;
                if action == allowed {
                    let denied = answer.err().map(|error| error.kind()) == Some(ErrorKind::Denied);
                    assert!(!denied, "{action:?} {name:?}");
                } else {
                    assert_is(answer, Condition::PermissionDenied);
                }
                assert_eq!(asked.seen.lock().unwrap().pop(), Some((action, method)));
            }
        }
        assert!(asked.seen.lock().unwrap().is_empty(), "each call asks once");
    }
    assert_eq!(first.get("agent").await.unwrap().state, HarnessState::Active);
}

#[tokio::test(start_paused = true)]
async fn of_calls_at_the_same_time_one_registers() {
    let host = Arc::new(Host::new().await);
    let calls: Vec<_> = (0..20)
        .map(|number| {
            let host = Arc::clone(&host);
            tokio::spawn(async move {
                let spec = remote(&format!("h:{}", 1 + number % 2));
                host.register("agent", spec).await.map(|(_, outcome)| outcome)
            })
        })
        .collect();
    let mut outcomes = Vec::new();
    for call in calls {
        outcomes.push(call.await.unwrap());
    }
    let count = |of: &dyn Fn(&Result<RegisterOutcome, SessionsError>) -> bool| {
        outcomes.iter().filter(|outcome| of(outcome)).count()
    };
    assert_eq!(count(&|o| matches!(o, Ok(RegisterOutcome::Created))), 1);
    assert_eq!(count(&|o| matches!(o, Ok(RegisterOutcome::Unchanged))), 9);
    let taken = |o: &Result<_, SessionsError>| {
        o.as_ref().is_err_and(|e| e.kind() == ErrorKind::AlreadyExists)
    };
    assert_eq!(count(&taken), 10);
}

#[tokio::test(start_paused = true)]
async fn the_stored_form_is_the_documented_one() {
    let host = Host::new().await;
    let made = host.registered("agent").await;
    host.retire("agent").await.unwrap();
    let row = host.row("harness", "agent").await.unwrap();
    let expected = format!(
        concat!(
            r#"{{"create_time":"2023-11-14T22:13:20Z","retire_reason":"moved","#,
            r#""retire_time":"2023-11-14T22:13:20Z","spec_digest":"{}","uid":"{}","version":"1"}}"#,
            "\n",
            r#"{{"capabilities":{{"resumability":"RESUMABILITY_STATELESS_REPLAY"}},"#,
            r#""remote":{{"address":"h:1"}}}}"#
        ),
        made.spec_digest, made.uid
    );
    assert_eq!(String::from_utf8(row.to_vec()).unwrap(), expected);
    assert_eq!(made.create_time, Some(Timestamp { seconds: 1_700_000_000, nanos: 0 }));
}
