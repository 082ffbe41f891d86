//! What losing a client's stream does to its turn.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::StreamExt as _;
use mainspring_api::{ExecRequest, ExecUpdate, OnDisconnect, SessionUid, Sessions as _};
use mainspring_testkit::HookedLog;

use crate::doubles::Gatekeeper;
use crate::repeat::once;
use crate::support::{Drive as _, World, caller};

fn until_lost(session: &SessionUid, script: &str) -> ExecRequest {
    ExecRequest { on_disconnect: OnDisconnect::Cancel, ..once(session, script) }
}

/// A client that asked for it takes its turn with it; one that did not, or is
/// not the last, does not.
#[tokio::test(start_paused = true)]
async fn a_lost_client_cancels_its_turn_if_it_said_so() {
    for (asks, other_stays, journal) in [
        (true, false, "ES IN TC CANCELED"),
        (true, true, "ES IN TC TR OUT END"),
        (false, false, "ES IN TC TR OUT END"),
    ] {
        let world = World::new();
        let service = world.service();
        let session = service.created().await;
        let script = "tool c1 slow, out x";
        let request = if asks { until_lost(&session, script) } else { once(&session, script) };
        let first = service.exec(&caller(), request).await.unwrap();
        let other = match other_stays {
            true => Some(service.exec(&caller(), once(&session, script)).await.unwrap()),
            false => None,
        };
        world.tools.entered.wait().await;
        drop(first);
        if !journal.contains("CANCELED") {
            assert!(world.tools.go.set(()));
        }
        service.idle().await;
        assert_eq!(world.journal(&session).await, journal, "asks {asks}, stays {other_stays}");
        drop(other);
        service.idle().await;
        // What is over stays as it is, and the session takes the next turn.
        assert_eq!(service.run(&session, "out y").await.kinds(), "ES IN OUT END");
    }
}

/// As a cancel would: what has parked by then has its gate closed.
#[tokio::test(start_paused = true)]
async fn a_turn_that_parks_as_its_client_is_lost_is_cancelled() {
    let world = World::new();
    world.compute.slow_snapshot.store(true, Ordering::Relaxed);
    let service = world.service();
    let session = service.created().await;
    let stream = service.exec(&caller(), until_lost(&session, "gate c1")).await.unwrap();
    world.compute.capturing.wait().await;
    drop(stream);
    assert!(world.compute.go.set(()));
    service.idle().await;
    assert_eq!(world.journal(&session).await, "ES IN TC AQ SUSPEND AR TR CANCELED");
    // One that was told of the park goes away from a turn that waits.
    world.compute.slow_snapshot.store(false, Ordering::Relaxed);
    let session = service.created().await;
    let mut stream = service.exec(&caller(), until_lost(&session, "gate c1")).await.unwrap();
    let mut sessions = 0;
    while let Some(update) = stream.next().await {
        sessions += usize::from(matches!(update.unwrap(), ExecUpdate::Session(_)));
    }
    assert_eq!(sessions, 2);
    drop(stream);
    service.idle().await;
    assert_eq!(world.journal(&session).await, "ES IN TC AQ SUSPEND");
}

/// Before its start is durable there is nothing to cancel.
#[tokio::test(start_paused = true)]
async fn a_client_that_is_lost_before_the_start_leaves_nothing() {
    for request in [once, until_lost] {
        let plain = World::new();
        let log = HookedLog::with_hook(Arc::clone(&plain.log), Gatekeeper::default());
        let log = Arc::new(log);
        let world = World { log: Arc::clone(&log) as _, ..plain };
        let service = world.service();
        let session = service.created().await;
        let stream = service.exec(&caller(), request(&session, "out x")).await.unwrap();
        log.hook().asked.wait().await;
        drop(stream);
        assert!(log.hook().go.set(()));
        service.idle().await;
        assert_eq!(world.journal(&session).await, "");
    }
}
