//! Harnesses that another host of the same store registered or retired.

use std::time::Duration;

use mainspring_api::{Condition, HarnessState, RegisterOutcome};

use super::{Host, assert_is, remote};
use crate::alive::{Shared, within};

/// About a second, and a round of whoever looks.
const SOON: Duration = Duration::from_millis(2_100);

#[tokio::test(start_paused = true)]
async fn what_another_host_registered_is_shown_and_served() {
    let here = Host::new().await;
    let there = Host::on(&here.world, &["scripted"], None).await.unwrap();
    let made = there.registered("agent").await;
    assert!(here.harnesses.registered("agent").is_none(), "nobody has asked");
    let session = here.create("agent").await.unwrap();
    here.exec(&session, "").await.unwrap();
    let found = here.get("agent").await.unwrap();
    assert_eq!(found, made);
    assert_eq!(here.names(false).await, ["agent", "scripted"]);
    let (same, outcome) = here.register("agent", remote("h:1")).await.unwrap();
    assert_eq!((same, outcome), (made, RegisterOutcome::Unchanged));
    there.retire("agent").await.unwrap();
    assert_eq!(here.get("agent").await.unwrap().state, HarnessState::Retired);
    assert_is(here.create("agent").await, Condition::HarnessRetired);
    // What cannot be placed here says why.
    let refusing = Host::refusing(&here.world, &["scripted"], None, &["n:1"]).await.unwrap();
    there.register("elsewhere", remote("n:1")).await.unwrap();
    let said = assert_is(refusing.create("elsewhere").await, Condition::HarnessUnservable);
    assert!(said.contains("no way there"), "{said}");
}

/// A session of it is created there; its turn, and the turn that names it as an
/// override, find it here.
#[tokio::test(start_paused = true)]
async fn a_turn_on_an_unknown_name_looks_it_up_once() {
    let shared = Shared::new();
    let here = Host::on(&shared.world, &["scripted"], None).await.unwrap();
    let there = Host::on(&shared.world, &["scripted"], None).await.unwrap();
    there.registered("agent").await;
    let session = there.create("agent").await.unwrap();
    here.exec(&session, "").await.unwrap();
    there.registered("second").await;
    let own = here.create("").await.unwrap();
    // A registered name is no override, whoever registered it.
    assert_is(here.exec(&own, "second").await, Condition::HarnessPinned);
    assert_is(here.exec(&own, "nobodys").await, Condition::UnknownHarness);
}

#[tokio::test(start_paused = true)]
async fn every_host_follows_what_one_registers_and_retires() {
    let shared = Shared::new();
    let here = Host::on(&shared.world, &["scripted"], None).await.unwrap();
    let there = Host::on(&shared.world, &["scripted"], None).await.unwrap();
    here.registry.follow_others();
    let names = || here.harnesses.names();
    assert_eq!(names(), ["scripted"]);
    there.registered("agent").await;
    within(SOON, async || names() == ["agent", "scripted"]).await;
    there.retire("agent").await.unwrap();
    within(SOON, async || names() == ["scripted"]).await;
    let (_, outcome) = there.register("agent", remote("h:1")).await.unwrap();
    assert_eq!(outcome, RegisterOutcome::Reactivated);
    within(SOON, async || names() == ["agent", "scripted"]).await;
    here.service.drain();
    there.registered("late").await;
    tokio::time::sleep(10 * SOON).await;
    assert_eq!(names(), ["agent", "scripted"], "it goes down");
}

/// Not a second later: the store is asked each time.
#[tokio::test(start_paused = true)]
async fn a_harness_that_was_retired_on_one_host_takes_no_new_session_on_any() {
    let shared = Shared::new();
    let here = Host::on(&shared.world, &["scripted"], None).await.unwrap();
    let there = Host::on(&shared.world, &["scripted"], None).await.unwrap();
    there.registered("agent").await;
    here.create("agent").await.unwrap();
    there.retire("agent").await.unwrap();
    assert_is(here.create("agent").await, Condition::HarnessRetired);
    there.registered("agent").await;
    here.create("agent").await.unwrap();
}
