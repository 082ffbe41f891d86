//! What may run on one session at a time, and on two.

use std::sync::atomic::Ordering;

use mainspring_api::{
    Condition, ExecRequest, ExecState, ForkRequest, SessionUid, Sessions as _, SessionsError,
};
use mainspring_sessions::Service;

use crate::support::{Drive as _, World, caller, shown, turn};

/// What holds a session.
#[derive(Debug, Clone, Copy)]
enum Holds {
    Exec,
    Resume,
    Suspend,
}

/// Lets an operation begin on a fresh session and go no further.
async fn held(
    world: &World,
    service: &Service,
    holds: Holds,
) -> (SessionUid, tokio::task::JoinHandle<()>) {
    let (host, session) = (service.clone(), service.created().await);
    let of = session.clone();
    let task = match holds {
        Holds::Exec => {
            let task = tokio::spawn(async move {
                assert!(host.run(&of, "tool c1 slow").await.error.is_none());
            });
            world.tools.entered.wait().await;
            task
        }
        Holds::Resume => {
            let parked = host.run(&of, "gate c1, tool c2 slow").await;
            let approval = parked.last().pending_approval.clone().unwrap();
            host.decided(&of, &approval, true).await.unwrap();
            let task = tokio::spawn(async move {
                assert!(host.resumed(&of).await.error.is_none());
            });
            world.tools.entered.wait().await;
            task
        }
        Holds::Suspend => {
            host.run(&of, "out x").await;
            world.compute.slow_snapshot.store(true, Ordering::Relaxed);
            let task = tokio::spawn(async move {
                host.suspend(&caller(), &of).await.unwrap();
            });
            world.compute.capturing.wait().await;
            task
        }
    };
    (session, task)
}

/// Each operation of another kind, or of the same, by either harness.
async fn each_of(service: &Service, session: &SessionUid) -> Vec<SessionsError> {
    let elsewhere = ExecRequest { harness: "other".to_owned(), ..turn(session, "out y") };
    vec![
        service.run(session, "out y").await.error.unwrap(),
        shown(service.exec(&caller(), elsewhere).await).await.error.unwrap(),
        service.resumed(session).await.error.unwrap(),
        service.suspend(&caller(), session).await.unwrap_err(),
    ]
}

#[tokio::test(start_paused = true)]
async fn u07_operations_on_one_session_exclude_one_another() {
    for (holds, name) in
        [(Holds::Exec, "exec"), (Holds::Resume, "resume"), (Holds::Suspend, "suspend")]
    {
        let world = World::new();
        let service = world.service_with(&["scripted", "other"], "h");
        let (session, task) = held(&world, &service, holds).await;
        let (records, fence) = (world.records(&session).await, world.fence(&session).await);
        world.compute.calls();
        for error in each_of(&service, &session).await {
            assert_eq!(error.condition(), Condition::SessionBusy, "{holds:?}: {error}");
            assert!(error.to_string().contains(name), "{error}");
        }
        assert!(world.compute.calls().is_empty(), "{holds:?}");
        assert_eq!(world.records(&session).await, records);
        assert_eq!(world.fence(&session).await, fence);
        // Another session knows nothing of it.
        world.compute.slow_snapshot.store(false, Ordering::Relaxed);
        let other = service.created().await;
        assert_eq!(service.run(&other, "out y").await.kinds(), "ES IN OUT END");
        service.suspend(&caller(), &other).await.unwrap();
        assert_eq!(service.resumed(&other).await.last().exec_state, ExecState::Completed);
        world.tools.go.set(());
        world.compute.go.set(());
        task.await.unwrap();
        assert_eq!(service.run(&session, "out y").await.kinds(), "ES IN OUT END", "{holds:?}");
    }
}

/// A child of a stateless session shares its journal's prefix alone: the parent
/// is not touched, and has no fence taken from it.
#[tokio::test(start_paused = true)]
async fn u16_a_stateless_fork_leaves_its_parent_alone() {
    let world = World::new();
    let service = world.service();
    let (parent, task) = held(&world, &service, Holds::Exec).await;
    let (records, fence) = (world.records(&parent).await, world.fence(&parent).await);
    world.compute.calls();
    for (at_seq, journal) in [(0, "ES IN TC FORK"), (2, "ES IN FORK")] {
        let fork = ForkRequest {
            session: parent.clone(),
            at_seq,
            count: 2,
            labels: Default::default(),
            child_names: Vec::new(),
            identity: None,
        };
        for child in service.fork(&caller(), fork).await.unwrap() {
            assert_eq!(child.parent_uid, Some(parent.clone()));
            assert_eq!(world.journal(&child.uid).await, journal);
        }
    }
    assert!(world.compute.calls().is_empty(), "neither snapshot nor compute");
    assert_eq!(world.records(&parent).await, records);
    assert_eq!(world.fence(&parent).await, fence);
    assert!(world.tools.go.set(()));
    task.await.unwrap();
    assert_eq!(world.journal(&parent).await, "ES IN TC TR END", "its turn went on");
}
