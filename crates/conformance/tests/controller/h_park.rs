//! Family H: a park holds, whatever the harness makes of it.

use std::sync::{Arc, Mutex};

use mainspring_api::{ApprovalRef, EventSink, SinkError};
use mainspring_controller::Resumed;

use crate::support::raw::{reported, some_usage};
use crate::support::{Fixture, Probe, Reach, ask, gated, mediated, parked};

type Kept = Arc<Mutex<Option<Arc<dyn EventSink>>>>;

/// What all five methods say.
async fn refusals(sink: &dyn EventSink) -> [SinkError; 6] {
    [
        ask(sink, "late").await.unwrap_err(),
        sink.output("late".to_owned()).await.unwrap_err(),
        sink.tool_call(mediated("c2", "search")).await.unwrap_err(),
        sink.tool_call(gated("c3", "pay")).await.unwrap_err(),
        sink.report(reported("c4")).await.unwrap_err(),
        sink.usage(some_usage()).await.unwrap_err(),
    ]
}

#[track_caller]
fn all_parked(refusals: &[SinkError], park: &ApprovalRef) {
    for refusal in refusals {
        match refusal {
            SinkError::Parked(other) => assert_eq!(other, park),
            other => panic!("not the park: {other:?}"),
        }
    }
}

/// A harness that goes on after its park, keeps its sink, and says that all is well.
fn going_on(kept: &Kept, seen: &Arc<Mutex<Vec<SinkError>>>) -> Probe {
    let (kept, seen) = (Arc::clone(kept), Arc::clone(seen));
    Probe::new(move |_, sink| {
        let (kept, seen) = (Arc::clone(&kept), Arc::clone(&seen));
        async move {
            let first = sink.tool_call(gated("c1", "pay")).await.unwrap_err();
            let mut all = vec![first];
            all.extend(refusals(&*sink).await);
            *seen.lock().unwrap() = all;
            *kept.lock().unwrap() = Some(sink);
            Ok(())
        }
    })
}

/// After a park every method returns the same park, within the run and after it, and nothing is recorded.
async fn h04_stop_persists(session: Fixture) {
    let session = session.with_tools();
    let (kept, seen) = (Kept::default(), Arc::default());
    let probe = session.place(going_on(&kept, &seen)).await;
    let park = parked(session.exec(&probe, &["hello"]).await);
    assert_eq!((park.tool_call_id.as_str(), park.request_seq), ("c1", 4));
    let within = std::mem::take(&mut *seen.lock().unwrap());
    assert_eq!(within.len(), 7);
    all_parked(&within, &park);
    late_calls_are_refused(&session, &kept, &park).await;
    assert_eq!(session.kinds().await, "ES IN TC AQ");
    assert_eq!((session.model.calls(), session.executor().calls()), (0, 0));
}

/// Once the run has returned: the sink of a bridge has let go of its stream, and says so; any other says the park.
async fn late_calls_are_refused(session: &Fixture, kept: &Kept, park: &ApprovalRef) {
    let sink = kept.lock().unwrap().take().unwrap();
    let refusals = refusals(&*sink).await;
    match session.cell.reach {
        Reach::InProcess => all_parked(&refusals, park),
        Reach::Wire => {
            assert!(
                refusals.iter().all(|error| matches!(error, SinkError::Closed)),
                "{refusals:?}"
            );
        }
    }
}

/// The same for the second park of a turn, which a resume comes to.
async fn h04_stop_persists_in_a_resume(session: Fixture) {
    let session = session.with_tools();
    let first = Probe::calling([gated("c0", "pay")]);
    let first = session.place(first).await;
    let park = parked(session.exec(&first, &["hello"]).await);
    session.decide(&park, false, "no").await.unwrap();
    let (kept, seen) = (Kept::default(), Arc::default());
    let inner = going_on(&kept, &seen);
    let inner = Arc::new(inner);
    let both = Probe::new(move |start, sink: Arc<dyn EventSink>| {
        let inner = Arc::clone(&inner);
        async move {
            sink.tool_call(gated("c0", "pay")).await?;
            mainspring_api::Harness::run(&*inner, start, sink).await
        }
    });
    let both = session.place(both).await;
    let Resumed { resumed, result } = session.resume(&both).await;
    assert!(resumed);
    let second = parked(result);
    assert_eq!((second.tool_call_id.as_str(), second.request_seq), ("c1", 8));
    all_parked(&seen.lock().unwrap(), &second);
    late_calls_are_refused(&session, &kept, &second).await;
    assert_eq!(session.kinds().await, "ES IN TC AQ AR TR TC AQ");
}

matrix! {
    run:
    everywhere {
        #[test] fn h04_stop_persists;
        #[test] fn h04_stop_persists_in_a_resume;
    }
}
