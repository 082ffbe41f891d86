//! What registrations do to the sessions of a host.

use mainspring_api::{
    Condition, ErrorKind, ExecRequest, HarnessSource, HarnessSpec, Sessions as _,
};

use super::{Host, assert_is, put_row, remote};
use crate::support::{Drive as _, World, caller, turn};

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
