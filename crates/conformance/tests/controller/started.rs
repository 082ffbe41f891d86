//! Calls that are known not to have happened, and those of which nobody knows.

use mainspring_api::{Outcome, ToolError};
use mainspring_controller::{ApprovedRetry, Controller, ControllerError, Options, Resumed};

use crate::support::{Fixture, Placed, Probe, TestTools, gated, mediated, parked};

/// Makes one call of a tool that nobody declared repeatable.
async fn mailing(session: &Fixture) -> Placed {
    let probe = Probe::new(|_, sink| async move {
        sink.tool_call(mediated("c1", "mail")).await?;
        Ok(())
    });
    session.place(probe).await
}

fn failing(session: &Fixture, outcome: Outcome) {
    session.executor().respond(move |_| async move {
        Err(ToolError { message: "it broke".to_owned(), outcome, source: None })
    });
}

fn working(session: &Fixture) {
    session.executor().respond(|call| async move { Ok(TestTools::answer(&call)) });
}

#[track_caller]
fn unknown(resumed: Resumed) {
    assert!(!resumed.resumed);
    let error = resumed.result.unwrap_err();
    assert!(matches!(error, ControllerError::UnansweredToolCall { .. }), "{error:?}");
}

/// What a tool promises not to have done may be done by a resume, once for each such promise.
async fn a_call_that_did_not_happen_is_run_by_a_resume(session: Fixture) {
    let session = session.with_tools();
    let mailing = mailing(&session).await;
    failing(&session, Outcome::NotApplied);
    session.exec(&mailing, &["go"]).await.unwrap_err();
    session.resume(&mailing).await.result.unwrap_err();
    assert_eq!(
        (session.kinds().await.as_str(), session.executor().calls()),
        ("ES IN TC ERR ERR", 2)
    );
    working(&session);
    session.resume(&mailing).await.result.unwrap();
    assert_eq!(session.kinds().await, "ES IN TC ERR ERR TR END");
    assert_eq!(session.executor().calls(), 3);
    session.replay_check(&mailing, 1, &[]).await;
}

/// A failure of which nobody knows the outcome leaves the call unknown, also after one that was known.
async fn a_call_that_may_have_happened_is_not(session: Fixture) {
    let session = session.with_tools();
    let mailing = mailing(&session).await;
    failing(&session, Outcome::NotApplied);
    session.exec(&mailing, &["go"]).await.unwrap_err();
    failing(&session, Outcome::Unknown);
    session.resume(&mailing).await.result.unwrap_err();
    working(&session);
    unknown(session.resume(&mailing).await);
    assert_eq!(
        (session.kinds().await.as_str(), session.executor().calls()),
        ("ES IN TC ERR ERR", 2)
    );
}

/// A call that no executor had the tool for was never started: whoever has it runs it.
async fn a_call_without_its_tool_is_run_where_it_is(session: Fixture) {
    let session = session.with_tools();
    let mailing = mailing(&session).await;
    session.executor().lack("mail", true);
    session.exec(&mailing, &["go"]).await.unwrap_err();
    assert_eq!((session.kinds().await.as_str(), session.executor().calls()), ("ES IN TC ERR", 0));
    session.executor().lack("mail", false);
    session.resume(&mailing).await.result.unwrap();
    assert_eq!(session.kinds().await, "ES IN TC ERR TR END");

    let other = Fixture::open(session.cell).await.with_tools();
    let mailing = self::mailing(&other).await;
    other.without_tools().exec(&mailing, &["go"]).await.unwrap_err();
    other.resume(&mailing).await.result.unwrap();
    assert_eq!(
        (other.kinds().await.as_str(), other.executor().calls()),
        ("ES IN TC ERR TR END", 1)
    );
}

/// An approved call waits for a host that has its tool; nothing but the wait is recorded.
async fn an_approved_call_waits_for_its_tool(session: Fixture) {
    let session = session.with_tools();
    let probe = Probe::new(|_, sink| async move {
        sink.tool_call(gated("c1", "refund")).await?;
        Ok(())
    });
    let refunding = session.place(probe).await;
    session.executor().lack("refund", true);
    let park = parked(session.exec(&refunding, &["go"]).await);
    session.decide(&park, true, "").await.unwrap();
    let resume = async || {
        let options = Options { approved_retry: ApprovedRetry::DeclaredOnly, ..session.options() };
        let controller = Controller::new(session.journal(), options).await.unwrap();
        controller.resume(&refunding.harness, None).await
    };
    for _ in 0..2 {
        let resumed = resume().await;
        assert!(resumed.resumed && resumed.result.is_err());
    }
    assert_eq!((session.kinds().await.as_str(), session.executor().calls()), ("ES IN TC AQ AR", 0));
    session.executor().lack("refund", false);
    resume().await.result.unwrap();
    assert_eq!(session.kinds().await, "ES IN TC AQ AR TR END");
}

matrix! {
    run:
    everywhere {
        #[test] fn a_call_that_did_not_happen_is_run_by_a_resume;
        #[test] fn a_call_that_may_have_happened_is_not;
        #[test] fn a_call_without_its_tool_is_run_where_it_is;
        #[test] fn an_approved_call_waits_for_its_tool;
    }
}
