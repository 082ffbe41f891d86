//! What a host finds in its store when it starts.

use mainspring_api::{Condition, HarnessSpec, RegisterOutcome, Sessions as _, Timestamp};
use mainspring_eventlog::spec_digest;

use super::{Host, assert_is, put_row, remote};
use crate::support::{World, caller};

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

    let host = Host::refusing(&host.world, &["scripted"], None, &["h:1"]).await.unwrap();

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
