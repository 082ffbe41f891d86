//! Decisions that no person makes: the time's and the policy's.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mainspring_api::{
    ApprovalPolicy, Condition, CreateRequest, Decision, EventBody, ExecRequest, ExecState,
    IdentityRef, LogRecord, PendingApproval, ResumeRequest, SessionUid, Sessions as _, async_trait,
};
use mainspring_sessions::Service;

use crate::support::{Drive as _, World, caller, shown, turn};

const HOUR: Duration = Duration::from_secs(3_600);

async fn settled(service: &Service, session: &SessionUid) {
    // Decisions and turns of the host's own come one after the other.
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        service.idle().await;
    }
    let _ = service.get(&caller(), session).await.unwrap();
}

fn decision(records: &[LogRecord]) -> (bool, String, String) {
    let found = records.iter().find_map(|record| match &record.event.body {
        EventBody::ApprovalResult(Some(body)) => {
            let actor = record.event.actor.clone().unwrap_or_default();
            Some((body.approved, body.reason.clone(), actor.principal))
        }
        _ => None,
    });
    found.expect("there is a decision")
}

/// A request waits for good, whatever happens meanwhile.
#[tokio::test(start_paused = true)]
async fn b14_a_request_does_not_go_away_by_itself() {
    let world = World::new();
    let service = world.service();
    service.watch_approvals();
    let (session, approval) = service.parked("").await;
    for _ in 0..10 {
        tokio::time::sleep(100 * HOUR).await;
        service.resumed(&session).await;
    }
    let waits = service.get(&caller(), &session).await.unwrap();
    assert_eq!(waits.exec_state, ExecState::Awaiting);
    assert_eq!(waits.pending_approval, Some(approval));
    assert_eq!(world.journal(&session).await, "ES IN TC AQ SUSPEND");
}

/// With a time to live it ends, by a decision that is not a person's.
#[tokio::test(start_paused = true)]
async fn b14_a_request_with_a_time_to_live_expires() {
    let world = World { ttl: Some(HOUR), ..World::new() };
    let service = world.service();
    let (session, _) = service.parked("").await;
    tokio::time::sleep(HOUR - Duration::from_secs(5)).await;
    assert_eq!(world.journal(&session).await, "ES IN TC AQ SUSPEND");
    tokio::time::sleep(Duration::from_secs(10)).await;
    settled(&service, &session).await;
    assert_eq!(world.journal(&session).await, "ES IN TC AQ SUSPEND AR TR OUT END RESUME");
    let (approved, reason, who) = decision(&world.records(&session).await);
    assert_eq!((approved, reason.as_str(), who.as_str()), (false, "expired", "mainspring/expiry"));
    assert!(world.tools.started().is_empty());
}

/// Also where the turn that asked failed beside its park: its request stays, and so does its time.
#[tokio::test(start_paused = true)]
async fn b14_a_request_expires_after_a_failed_hand_over() {
    let world = World { ttl: Some(HOUR), ..World::new() };
    let service = world.service();
    let session = service.created().await;
    let failed = service.run(&session, "try c1, fail own").await;
    assert!(failed.error.is_some());
    assert_eq!(world.journal(&session).await, "ES IN TC AQ");
    tokio::time::sleep(HOUR + Duration::from_secs(5)).await;
    settled(&service, &session).await;
    let journal = world.journal(&session).await;
    assert!(journal.starts_with("ES IN TC AQ AR TR"), "{journal}");
    let (approved, reason, _) = decision(&world.records(&session).await);
    assert_eq!((approved, reason.as_str()), (false, "expired"));
}

/// The call's own time to live comes before the host's, on resumes too.
#[tokio::test(start_paused = true)]
async fn a_call_says_how_long_its_requests_live() {
    let world = World { ttl: Some(1_000 * HOUR), ..World::new() };
    let service = world.service();
    let session = service.created().await;
    let request =
        ExecRequest { approval_ttl: Some(HOUR), ..turn(&session, "gate c1, gate c2, out x") };
    let first = shown(service.exec(&caller(), request).await).await;
    let approval = first.last().pending_approval.clone().unwrap();
    service.decided(&session, &approval, true).await.unwrap();
    let request = ResumeRequest { session: session.clone(), approval_ttl: Some(2 * HOUR) };
    let second = shown(service.resume(&caller(), request).await).await;
    assert!(second.last().pending_approval.is_some());
    tokio::time::sleep(HOUR + HOUR / 2).await;
    assert_eq!(service.get(&caller(), &session).await.unwrap().exec_state, ExecState::Awaiting);
    tokio::time::sleep(HOUR).await;
    settled(&service, &session).await;
    let done = service.get(&caller(), &session).await.unwrap();
    assert_eq!(done.exec_state, ExecState::Completed);
    assert_eq!(world.tools.done(), ["key-c1"], "the first was approved, the second expired");
}

/// What the host goes on with by itself keeps the time to live of its call.
#[tokio::test(start_paused = true)]
async fn the_next_request_of_an_expired_turn_expires_too() {
    let world = World::new();
    let service = world.service();
    let session = service.created().await;
    let request = ExecRequest { approval_ttl: Some(HOUR), ..turn(&session, "gate c1, gate c2") };
    shown(service.exec(&caller(), request).await).await;
    tokio::time::sleep(3 * HOUR).await;
    settled(&service, &session).await;
    let done = service.get(&caller(), &session).await.unwrap();
    assert_eq!(done.exec_state, ExecState::Completed);
    assert!(world.tools.started().is_empty());
}

/// A decision that came first stands.
#[tokio::test(start_paused = true)]
async fn an_expiry_that_comes_late_does_nothing() {
    let world = World { ttl: Some(HOUR), ..World::new() };
    let service = world.service();
    let (session, approval) = service.parked("").await;
    service.decided(&session, &approval, true).await.unwrap();
    tokio::time::sleep(2 * HOUR).await;
    settled(&service, &session).await;
    assert_eq!(world.journal(&session).await, "ES IN TC AQ SUSPEND AR", "nobody resumed it");
    assert_eq!(service.resumed(&session).await.last().exec_state, ExecState::Completed);
    assert_eq!(world.tools.done(), ["key-c1"]);
}

/// A host that keeps no timers, as an embedded command: after its time a request
/// cannot be decided any more, and whoever goes on with the session ends it.
#[tokio::test(start_paused = true)]
async fn an_expired_request_cannot_be_approved() {
    let world = World { ttl: Some(HOUR), ..World::new() };
    let first = world.service();
    let (session, approval) = first.parked("").await;
    drop(first);
    tokio::time::sleep(2 * HOUR).await;
    let second = World { ttl: None, ..world.clone() }.service();
    for approved in [true, false] {
        let refused = second.decided(&session, &approval, approved).await.unwrap_err();
        assert_eq!(refused.condition(), Condition::InvalidApprovalDecision);
        assert!(refused.to_string().contains("expired"), "{refused}");
    }
    assert_eq!(world.journal(&session).await, "ES IN TC AQ SUSPEND");
    let request = ResumeRequest { session: session.clone(), approval_ttl: None };
    let resumed = shown(second.resume(&caller(), request).await).await;
    assert_eq!(resumed.last().exec_state, ExecState::Completed);
    assert!(world.journal(&session).await.starts_with("ES IN TC AQ SUSPEND AR TR "));
    assert!(world.tools.started().is_empty(), "it was not run");
}

/// What parked before this host started expires too, in every project.
#[tokio::test(start_paused = true)]
async fn an_expiry_survives_its_host() {
    let world = World { ttl: Some(HOUR), ..World::new() };
    let first = world.service();
    let mut sessions = Vec::new();
    for n in 0..450 {
        let project = ["default", "other", ""][n % 3].to_owned();
        let create = CreateRequest { project, ..CreateRequest::default() };
        let session = first.create(&caller(), create).await.unwrap().uid;
        first.run(&session, "gate c1").await;
        sessions.push(session);
    }
    drop(first);
    let second = World { ttl: None, ..world.clone() }.service();
    second.watch_approvals();
    tokio::time::sleep(HOUR / 2).await;
    let waits = second.get(&caller(), &sessions[0]).await.unwrap();
    assert_eq!(waits.exec_state, ExecState::Awaiting);
    drop(second);
    // It is down when the time comes.
    tokio::time::sleep(2 * HOUR).await;
    let third = world.service();
    third.watch_approvals();
    tokio::time::sleep(Duration::from_secs(60)).await;
    settled(&third, &sessions[0]).await;
    for session in &sessions {
        let done = third.get(&caller(), session).await.unwrap();
        assert_eq!(done.exec_state, ExecState::Completed, "{session} of {:?}", done.project);
    }
}

/// Answers after a while, and counts how often it was asked.
#[derive(Debug)]
struct Policy {
    takes: Duration,
    says: Option<bool>,
    asked: AtomicUsize,
}

#[async_trait]
impl ApprovalPolicy for Policy {
    async fn decide(&self, pending: &PendingApproval) -> Option<Decision> {
        assert_eq!(pending.call.tool, "deploy");
        assert!(pending.digest.starts_with("sha256:"));
        self.asked.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(self.takes).await;
        let principal = "rules".to_owned();
        self.says.map(|approved| Decision {
            approved,
            reason: "by rule".to_owned(),
            identity: Some(IdentityRef { principal, ..IdentityRef::default() }),
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_policy_decides_or_leaves_it_to_a_person() {
    for (takes, says, journal) in [
        (1, Some(true), "ES IN TC AQ SUSPEND AR TR OUT TC AQ SUSPEND AR TR OUT END RESUME"),
        (1, Some(false), "ES IN TC AQ SUSPEND AR TR OUT TC AQ SUSPEND AR TR OUT END RESUME"),
        (1, None, "ES IN TC AQ SUSPEND"),
        (11, Some(true), "ES IN TC AQ SUSPEND"),
    ] {
        let takes = Duration::from_secs(takes);
        let policy = Arc::new(Policy { takes, says, asked: AtomicUsize::default() });
        let world = World { policy: Some(Arc::clone(&policy) as _), ..World::new() };
        let service = world.service();
        let (session, _) = service.parked(", gate c2").await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        settled(&service, &session).await;
        assert_eq!(world.journal(&session).await, journal, "{takes:?} {says:?}");
        if journal.ends_with("RESUME") {
            let (approved, reason, who) = decision(&world.records(&session).await);
            assert_eq!((Some(approved), reason.as_str(), who.as_str()), (says, "by rule", "rules"));
            assert_eq!(policy.asked.load(Ordering::Relaxed), 2);
        } else {
            // A person looks again; the policy is not asked twice about it.
            service.resumed(&session).await;
            tokio::time::sleep(Duration::from_secs(60)).await;
            assert_eq!(policy.asked.load(Ordering::Relaxed), 1);
        }
        let ran = if says == Some(true) && takes.as_secs() < 10 { 2 } else { 0 };
        assert_eq!(world.tools.done().len(), ran);
    }
}

/// A person who was faster is not overruled.
#[tokio::test(start_paused = true)]
async fn a_policy_that_comes_late_does_nothing() {
    let policy =
        Policy { takes: Duration::from_secs(5), says: Some(false), asked: AtomicUsize::default() };
    let world = World { policy: Some(Arc::new(policy)), ..World::new() };
    let service = world.service();
    let (session, approval) = service.parked("").await;
    service.decided(&session, &approval, true).await.unwrap();
    assert_eq!(service.resumed(&session).await.last().exec_state, ExecState::Completed);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.journal(&session).await, "ES IN TC AQ SUSPEND AR TR OUT END RESUME");
}
