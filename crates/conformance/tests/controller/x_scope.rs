//! Family X: the session that a controller acts for.

use mainspring_api::{Condition, Fence};
use mainspring_controller::{Controller, Options};
use mainspring_testkit::sample;

use crate::support::{Fixture, Probe, mediated, turn};

/// An executor without a session is refused before a fence is minted; without one a session is not needed.
async fn x01_executor_without_uid(session: Fixture) {
    let session = session.with_tools();
    let options = Options { session: None, ..session.options() };
    let error = Controller::new(session.journal(), options).await.unwrap_err();
    assert_eq!(error.condition(), Condition::MissingSessionUid);
    assert_eq!(session.fence().await, Fence::NONE);
    let without = Options { session: None, ..session.without_tools().options() };
    let controller = Controller::new(session.journal(), without).await.unwrap();
    let echo = session.place(Probe::echo()).await;
    controller.exec(&echo.harness, turn(&["hello"])).await.unwrap();
    assert_eq!(echo.probe.seen()[0].session, None);
}

/// The session that was set last is what harness and executor see; an empty one last is none.
async fn x02_last_uid_wins(session: Fixture) {
    let session = session.with_tools();
    let calling = Probe::new(|_, sink| async move {
        sink.tool_call(mediated("c1", "look")).await?;
        Ok(())
    });
    let placed = session.place(calling).await;
    let (first, last) = (sample::session("first"), sample::session("last"));
    let set = Options { session: Some(first), ..session.options() };
    let set = Options { session: Some(last.clone()), ..set };
    let controller = Controller::new(session.journal(), set.clone()).await.unwrap();
    controller.exec(&placed.harness, turn(&[])).await.unwrap();
    assert_eq!(placed.probe.seen()[0].session, Some(last.clone()));
    assert_eq!(session.executor().attempts()[0].0, last);

    let fence = session.fence().await;
    let emptied = Options { session: None, ..set };
    let error = Controller::new(session.journal(), emptied).await.unwrap_err();
    assert_eq!(error.condition(), Condition::MissingSessionUid);
    assert_eq!(session.fence().await, fence);
}

matrix! {
    run:
    everywhere {
        #[test] fn x01_executor_without_uid;
        #[test] fn x02_last_uid_wins;
    }
}
