//! Describing a session: each standing has its words, and its advice works.

use std::sync::atomic::Ordering;
use std::time::Duration;

use mainspring_api::{
    Condition, DescribeReport, ExecState, ExecutionId, ForkRequest, OsEntropy, Resolution,
    ResolveRequest, Seq, SessionUid, Sessions as _, Standing,
};
use mainspring_eventlog::{Holder, Level, WarmHost, mint_any};
use mainspring_sessions::Service;
use mainspring_testkit::sample;

use crate::alive::Shared;
use crate::support::{Drive, Shown, World, caller, shown, turn};

async fn described(service: &Service, session: &SessionUid) -> DescribeReport {
    service.describe(&caller(), session).await.unwrap()
}

/// The report as it is shown, with the ids of a run in general words.
fn text(report: &DescribeReport) -> String {
    let mut lines = vec![format!("{} {}", report.standing.name(), report.summary)];
    if let Some(call) = &report.open_call {
        let (request, approved) = (call.request_seq.map(Seq::get), call.approved);
        assert!(call.digest.starts_with("sha256:"));
        assert_eq!(Some(&call.execution_id), report.execution_id.as_ref());
        lines.push(format!(
            "call {} {} at {} request {request:?} approved {approved:?}",
            call.tool_call_id, call.tool, call.seq
        ));
    }
    if let Some(error) = &report.last_error {
        lines.push(format!("error {} at {}: {}", error.code, error.seq, error.message));
    }
    lines.extend(report.next_commands.iter().map(|command| format!("$ {command}")));
    let mut text = lines.join("\n");
    for (id, name) in [
        (Some(report.session.uid.as_str()), "UID"),
        (report.execution_id.as_ref().map(ExecutionId::as_str), "EXECUTION"),
    ] {
        text = id.map_or(text.clone(), |id| text.replace(id, name));
    }
    text
}

/// Does what a command of the advice says, through the service.
async fn obey(service: &Service, report: &DescribeReport, command: &str) {
    let uid = &report.session.uid;
    let words: Vec<&str> = command.split(' ').collect();
    let ["mainspring", verb, .., last] = words[..] else { panic!("{command}") };
    match verb {
        "approve" | "deny" => {
            let approval = report.session.pending_approval.clone().unwrap();
            service.decided(uid, &approval, verb == "approve").await.unwrap();
            service.resumed(uid).await.last();
        }
        "resume" => drop(service.resumed(uid).await),
        "exec" => {
            assert_eq!(service.run(uid, "out x").await.kinds(), "ES IN OUT END");
        }
        "resolve" => {
            assert_eq!(words[4..6], ["--tool-call", "c1"]);
            let resolution = match words[8] {
                "--result" => Resolution::Result(Box::default()),
                "--failed" => Resolution::Failed("it did not".to_owned()),
                "--retry" => Resolution::Retry,
                other => panic!("{other}"),
            };
            let request = ResolveRequest {
                session: uid.clone(),
                execution_id: ExecutionId::new(words[7]).unwrap(),
                tool_call_id: words[5].to_owned(),
                resolution,
            };
            service.resolve(&caller(), request).await.unwrap();
        }
        "fork" => {
            let child = forked(service, uid, last.parse().unwrap()).await;
            let next = service.run(&child, "out x").await;
            assert_eq!(next.kinds(), "ES IN OUT END");
        }
        "verify" | "export" => {}
        other => panic!("{other} is no advice"),
    }
}

async fn forked(service: &Service, session: &SessionUid, at_seq: i64) -> SessionUid {
    let request = ForkRequest {
        session: session.clone(),
        at_seq,
        count: 1,
        labels: Default::default(),
        child_names: Vec::new(),
        identity: None,
    };
    service.fork(&caller(), request).await.unwrap().remove(0).uid
}

/// Takes the first advice until there is none.
async fn obeyed(service: &Service, session: &SessionUid) -> Vec<Standing> {
    let mut standings = Vec::new();
    for _ in 0..5 {
        let report = described(service, session).await;
        standings.push(report.standing);
        match report.next_commands.first() {
            None => return standings,
            Some(command) => obey(service, &report, command).await,
        }
    }
    panic!("the advice leads nowhere: {standings:?}")
}

#[tokio::test(start_paused = true)]
async fn an_idle_session_says_what_was_last() {
    let world = World::new();
    let service = world.service();
    let session = service.created().await;
    let report = described(&service, &session).await;
    assert_eq!(text(&report), "IDLE The session has had no turn yet.");
    assert_eq!((report.holder, report.running, report.execution_id), (None, None, None));
    service.run(&session, "out a").await;
    let report = described(&service, &session).await;
    assert_eq!(text(&report), "IDLE The latest turn has completed; nothing is open.");
    let holder = report.holder.unwrap();
    assert!(holder.is_here && holder.is_alive && holder.since.is_some());
    assert_eq!(report.session.exec_state, ExecState::Completed);
    let (parked, _) = service.parked("").await;
    service.canceled(&parked).await.unwrap();
    let report = described(&service, &parked).await;
    assert!(report.summary.starts_with("The latest turn was cancelled;"), "{}", report.summary);
    // An end that was cancelled carries why.
    assert_eq!(report.last_error.unwrap().message, "canceled: USER");
}

#[tokio::test(start_paused = true)]
async fn a_running_turn_is_named() {
    let world = World::new();
    let service = world.service();
    let session = service.created().await;
    let (inner, uid) = (service.clone(), session.clone());
    let watching = tokio::spawn(async move { inner.run(&uid, "tool c1 slow").await });
    world.tools.entered.wait().await;
    let report = described(&service, &session).await;
    assert_eq!(text(&report), "RUNNING A turn runs on this host.");
    let running = report.running.unwrap();
    assert_eq!(running.operation, "exec");
    assert_eq!(running.execution_id, report.execution_id);
    world.tools.go.set(());
    watching.await.unwrap();
    assert_eq!(described(&service, &session).await.standing, Standing::Idle);
}

#[tokio::test(start_paused = true)]
async fn a_parked_session_says_which_call_waits() {
    for (choice, tool) in [(0, "done"), (1, "denied")] {
        let world = World { ttl: Some(Duration::from_secs(60)), ..World::new() };
        let service = world.service();
        let (session, _) = service.parked("").await;
        let report = described(&service, &session).await;
        assert_eq!(
            text(&report),
            "PARKED The latest turn waits for a decision on call \"c1\" of tool \"deploy\"; the \
             request expires at 2023-11-14T22:14:20Z.\n\
             call c1 deploy at 3 request Some(4) approved None\n\
             $ mainspring approve UID\n\
             $ mainspring deny UID"
        );
        assert_eq!(report.open_call.as_ref().unwrap().expires.unwrap().seconds, 1_700_000_060);
        obey(&service, &report, &report.next_commands[choice]).await;
        assert_eq!(described(&service, &session).await.standing, Standing::Idle, "{tool}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_decided_session_waits_to_be_resumed() {
    for (approved, word) in [(true, "approved"), (false, "denied")] {
        let world = World::new();
        let service = world.service();
        let (session, approval) = service.parked("").await;
        service.decided(&session, &approval, approved).await.unwrap();
        assert_eq!(
            text(&described(&service, &session).await),
            format!(
                "DECIDED The decision on call \"c1\" of tool \"deploy\" is made, {word}; the turn \
                 waits to be resumed.\n\
                 call c1 deploy at 3 request Some(4) approved Some({approved})\n\
                 $ mainspring resume --session UID"
            )
        );
        assert_eq!(obeyed(&service, &session).await, [Standing::Decided, Standing::Idle]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_unknown_effect_is_resolved_first() {
    for choice in 0..3 {
        let world = World::new();
        let service = world.service();
        let session = service.created().await;
        service.run(&session, "tool c1 quick").await;
        let session = world.cut(&session, 3).await;
        let report = described(&service, &session).await;
        let resolve = "$ mainspring resolve --session UID --tool-call c1 --execution EXECUTION";
        assert_eq!(
            text(&report),
            format!(
                "UNKNOWN_EFFECT The latest turn was cut at call \"c1\" of tool \"quick\", which \
                 has no result: nobody knows whether it happened.\n\
                 call c1 quick at 3 request None approved None\n\
                 {resolve} --result JSON\n{resolve} --failed TEXT\n{resolve} --retry"
            )
        );
        // What it says of a resume is so.
        let refused = service.resumed(&session).await.error.unwrap();
        assert_eq!(refused.condition(), Condition::UnansweredToolCall);
        obey(&service, &report, &report.next_commands[choice]).await;
        assert_eq!(obeyed(&service, &session).await, [Standing::Interrupted, Standing::Idle]);
    }
}

/// A call that its executor may repeat is not unknown, and one that was
/// approved is only once it was started.
#[tokio::test(start_paused = true)]
async fn what_a_resume_would_go_on_with_is_not_unknown() {
    let world = World::new();
    let service = world.service();
    let session = service.created().await;
    service.run(&session, "tool c1 quick").await;
    let session = world.cut(&session, 3).await;
    world.tools.repeatable.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(obeyed(&service, &session).await, [Standing::Interrupted, Standing::Idle]);
    world.tools.repeatable.store(false, std::sync::atomic::Ordering::Relaxed);

    let (session, approval) = service.parked("").await;
    service.decided(&session, &approval, true).await.unwrap();
    let holder = Holder { id: "x".to_owned(), name: "x".to_owned() };
    let id = || mainspring_api::AppendId::random(&OsEntropy);
    let fence = mint_any(&*world.log, &session, id, holder).await.unwrap();
    world.log.annotate(&session, Seq::new(3), fence, "started", "1").await.unwrap();
    let report = described(&service, &session).await;
    assert_eq!(report.standing, Standing::UnknownEffect);
    assert_eq!(report.open_call.as_ref().unwrap().approved, Some(true));
    let standings = [Standing::UnknownEffect, Standing::Interrupted, Standing::Idle];
    assert_eq!(obeyed(&service, &session).await, standings);
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_turn_waits_to_be_resumed() {
    let world = World::new();
    let service = world.service();
    let session = service.created().await;
    service.run(&session, "out a, out b").await;
    let session = world.cut(&session, 3).await;
    let report = described(&service, &session).await;
    assert_eq!(
        text(&report),
        "INTERRUPTED The latest turn was cut, and waits to be resumed.\n\
         $ mainspring resume --session UID"
    );
    assert_eq!(report.holder, None, "an import has none");
    assert_eq!(obeyed(&service, &session).await, [Standing::Interrupted, Standing::Idle]);
}

/// A request that was not recorded is made up for by a resume, which parks.
#[tokio::test(start_paused = true)]
async fn a_call_without_its_request_is_asked_for_again() {
    let world = World::new();
    let service = world.service();
    let (session, _) = service.parked("").await;
    let session = world.cut(&session, 3).await;
    let standings = [Standing::Interrupted, Standing::Parked, Standing::Idle];
    assert_eq!(obeyed(&service, &session).await, standings);
}

/// What cannot be resumed is not advised to be.
#[tokio::test(start_paused = true)]
async fn a_turn_that_no_resume_can_go_on_with_is_abandoned() {
    let world = World::new();
    let service = world.service();
    let (parked, _) = service.parked("").await;
    let cut = world.cut(&parked, 1).await;
    assert_eq!(
        text(&described(&service, &cut).await),
        "INTERRUPTED The latest turn was cut before 1 of its inputs were recorded; a new turn \
         takes its place.\n\
         $ mainspring exec --session UID --input TEXT"
    );
    assert_eq!(obeyed(&service, &cut).await, [Standing::Interrupted, Standing::Idle]);
    let child = forked(&service, &parked, 4).await;
    assert_eq!(
        text(&described(&service, &child).await),
        "INTERRUPTED The session was forked in the middle of a call that needs an approval; a new \
         turn takes its place.\n\
         $ mainspring exec --session UID --input TEXT"
    );
    assert!(service.resumed(&child).await.error.is_some());
    assert_eq!(obeyed(&service, &child).await, [Standing::Interrupted, Standing::Idle]);
}

/// A call that a fork copied without its result may be resolved, not repeated.
#[tokio::test(start_paused = true)]
async fn an_inherited_call_is_resolved_and_never_repeated() {
    let world = World::new();
    let service = world.service();
    world.tools.repeatable.store(true, std::sync::atomic::Ordering::Relaxed);
    let session = service.created().await;
    service.run(&session, "tool c1 quick").await;
    for choice in 0..2 {
        let child = forked(&service, &session, 3).await;
        let report = described(&service, &child).await;
        assert_eq!(report.standing, Standing::UnknownEffect);
        assert_eq!(report.next_commands.len(), 2, "{:?}", report.next_commands);
        obey(&service, &report, &report.next_commands[choice]).await;
        assert_eq!(obeyed(&service, &child).await, [Standing::Interrupted, Standing::Idle]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_attempt_can_be_resumed_and_a_failed_turn_not() {
    let world = World::new();
    let service = world.service();
    let session = service.created().await;
    service.run(&session, "fail boom").await;
    let report = described(&service, &session).await;
    assert_eq!(
        text(&report),
        "FAILED The last attempt of the latest turn has failed; the turn can be resumed.\n\
         error 0 at 3: boom\n\
         $ mainspring resume --session UID\n\
         $ mainspring exec --session UID --input TEXT"
    );
    obey(&service, &report, &report.next_commands[1]).await;
    assert_eq!(described(&service, &session).await.standing, Standing::Idle);

    let session = service.created().await;
    let execution = sample::execution(1);
    let events =
        [sample::start(&execution, 0), sample::end(&execution, mainspring_api::EndState::Failed)];
    mainspring_testkit::append(&*world.log, &session, sample::records(events)).await.unwrap();
    assert_eq!(
        text(&described(&service, &session).await),
        "FAILED The latest turn has failed.\n\
         $ mainspring exec --session UID --input TEXT"
    );
    assert_eq!(obeyed(&service, &session).await, [Standing::Failed, Standing::Idle]);
}

#[tokio::test(start_paused = true)]
async fn a_damaged_journal_is_forked_before_its_damage() {
    let world = World::new();
    let service = world.service();
    let session = service.created().await;
    service.run(&session, "out a").await;
    let execution = sample::execution(1);
    let twice = [sample::start(&execution, 0), sample::start(&execution, 0)];
    mainspring_testkit::append(&*world.log, &session, sample::records(twice)).await.unwrap();
    let report = described(&service, &session).await;
    assert_eq!(
        text(&report),
        "DAMAGED The journal cannot be gone on with, from seq 6 on: an execution has two start \
         records.\n\
         $ mainspring verify --session UID\n\
         $ mainspring fork --session UID --at 5"
    );
    let refused = service.resumed(&session).await.error.unwrap();
    assert_eq!(refused.condition(), Condition::InvalidExecutionLog);
    obey(&service, &report, &report.next_commands[1]).await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_session_can_be_exported_until_it_is_purged() {
    let world = World::new();
    let service = world.service();
    let (session, _) = service.parked("").await;
    let deletion = sample::records([sample::deletion()]);
    mainspring_testkit::append(&*world.log, &session, deletion).await.unwrap();
    assert_eq!(
        text(&described(&service, &session).await),
        "DELETED The session is to be deleted.\n$ mainspring export --session UID"
    );
    world.log.purge().unwrap().purge(sample::fresh_id(), &session).await.unwrap();
    assert_eq!(
        text(&described(&service, &session).await),
        "DELETED The session was deleted, and its records are gone."
    );
}

#[tokio::test(start_paused = true)]
async fn an_unknown_session_is_not_found() {
    let service = World::new().service();
    let error = service.describe(&caller(), &sample::session("nobody")).await.unwrap_err();
    assert_eq!(error.condition(), Condition::SessionNotFound);
}

/// The turn of another host runs as long as that is alive.
#[tokio::test(start_paused = true)]
async fn a_turn_of_a_live_host_runs_elsewhere() {
    let shared = Shared::new();
    shared.world.tools.repeatable.store(false, Ordering::Relaxed);
    let world = &shared.world;
    let (here, there) = (world.service(), world.service_of("there"));
    let session = there.created().await;
    let (inner, uid) = (there.clone(), session.clone());
    let turning = tokio::spawn(async move {
        let mut request = turn(&uid, "tool c1 slow");
        request.harness = "there".to_owned();
        shown(inner.exec(&caller(), request).await).await
    });
    world.tools.entered.wait().await;
    let report = described(&here, &session).await;
    assert_eq!(report.standing, Standing::UnknownEffect, "its host is dead");
    assert!(!report.holder.unwrap().is_alive);
    shared.alive.set("hthere", true);
    let report = described(&here, &session).await;
    assert_eq!(
        text(&report),
        "RUNNING_ELSEWHERE The latest turn runs on another host, \"test/hthere\", which is alive."
    );
    let holder = report.holder.unwrap();
    assert!(holder.is_alive && !holder.is_here);
    assert_eq!(described(&there, &session).await.standing, Standing::Running);
    world.tools.go.set(());
    let Shown { error, .. } = turning.await.unwrap();
    assert!(error.is_none(), "{error:?}");
    assert_eq!(described(&here, &session).await.standing, Standing::Idle);
    // A parked one is nobody's.
    let (parked, _) = there.parked("").await;
    assert_eq!(described(&here, &parked).await.standing, Standing::Parked);
    let row = world.log.get(&parked, Level::Strict).await.unwrap();
    assert!(row.view.last_suspend.is_some());
}

/// The store says what it promises, and which host has the session at hand.
#[tokio::test(start_paused = true)]
async fn a_store_of_many_hosts_names_the_warm_one() {
    let alone = World::new();
    let session = alone.service().created().await;
    let report = described(&alone.service(), &session).await;
    let durability = report.durability.unwrap();
    assert_eq!((&*durability.class, &*durability.summary), ("volatile", "volatile"));
    assert_eq!(report.warm_host, None);

    let shared = Shared::new();
    let (a, b) = (shared.host("a").await, shared.host("b").await);
    let session = a.created().await;
    assert_eq!(described(&a, &session).await.warm_host, None, "nobody is known to be");
    let holder = Holder { id: "a".to_owned(), name: "test/a".to_owned() };
    shared.alive.warm(WarmHost { holder, address: "http://a:1".to_owned() });
    for (host, is_here) in [(&a, true), (&b, false)] {
        let warm = described(host, &session).await.warm_host.unwrap();
        assert_eq!((&*warm.name, &*warm.address), ("test/a", "http://a:1"));
        assert_eq!(warm.is_here, is_here);
        assert_eq!(host.warm_host(&session), Some(warm));
    }
}
