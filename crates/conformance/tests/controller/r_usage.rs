//! Family R: token counts.

use std::sync::{Arc, Mutex};

use mainspring_api::{EventBody, ModelReply, Usage};
use mainspring_controller::ControllerError;

use crate::support::raw::{self, execution, some_usage};
use crate::support::{Fixture, Probe, TestModel, ask};

/// Usage is recorded as it is given, and a replay that gives the same passes.
async fn r01_recorded_as_given(session: Fixture) {
    let odd = Usage { model: "µ\"".to_owned(), input_tokens: i64::MAX, ..Usage::default() };
    let given = odd.clone();
    let probe = Probe::new(move |_, sink| {
        let given = given.clone();
        async move {
            sink.usage(given).await?;
            sink.usage(Usage::default()).await?;
            Ok(())
        }
    });
    let probe = session.place(probe).await;
    session.exec(&probe, &[]).await.unwrap();
    assert_eq!(session.kinds().await, "ES US US END");
    let events = session.events().await;
    assert_eq!(events[1].body, EventBody::Usage(Some(odd)));
    assert_eq!(events[2].body, EventBody::Usage(Some(Usage::default())));
    session.replay_check(&probe, 1, &[]).await;
}

/// Passes on what a call returned, and keeps a copy.
fn passing_on(got: &Arc<Mutex<Vec<Usage>>>) -> Probe {
    let got = Arc::clone(got);
    Probe::new(move |_, sink| {
        let got = Arc::clone(&got);
        async move {
            let reply = ask(&*sink, "hello").await?;
            got.lock().unwrap().push(reply.usage.clone());
            sink.usage(reply.usage).await?;
            ask(&*sink, "again").await?;
            Ok(())
        }
    })
}

fn costs(session: &Fixture) {
    session.model.respond(|request| async move {
        Ok(ModelReply { usage: some_usage(), ..TestModel::echo(&request) })
    });
}

/// A served call returns the usage that was recorded with it, so that passing it on matches.
async fn r02_served_usage(session: Fixture) {
    costs(&session);
    let got = Arc::default();
    let probe = session.place(passing_on(&got)).await;
    session.exec(&probe, &[]).await.unwrap();
    assert_eq!(session.kinds().await, "ES MC OUT US MC OUT END");
    session.replay_check(&probe, 1, &["echo:hello", "echo:again"]).await;
    assert_eq!(*got.lock().unwrap(), [some_usage(), some_usage()]);

    // Cut after the usage: a resume serves the same.
    let turn = session.records().await;
    let cut = Fixture::open(session.cell).await;
    cut.append_recorded(&turn[..4]).await;
    cut.resume(&probe).await.result.unwrap();
    assert_eq!(cut.model.texts(), ["again"]);
    cut.replay_check(&probe, 1, &["echo:hello", "echo:again"]).await;
    assert_eq!(*got.lock().unwrap(), vec![some_usage(); 4]);
}

/// A cut between a completion and its usage still serves what the provider said: it is noted beside the output.
async fn a_cut_before_the_usage_serves_the_noted_figures(session: Fixture) {
    costs(&session);
    let got = Arc::default();
    let probe = session.place(passing_on(&got)).await;
    session.exec(&probe, &[]).await.unwrap();
    let turn = session.records().await;
    assert_eq!(turn[1..=2].iter().filter(|record| record.notes.contains_key("usage")).count(), 1);
    let cut = Fixture::open(session.cell).await;
    cut.append_recorded(&turn[..3]).await;
    cut.resume(&probe).await.result.unwrap();
    assert_eq!(cut.kinds().await, "ES MC OUT US MC OUT END");
    assert_eq!(cut.events().await[3].body, EventBody::Usage(Some(some_usage())));
    assert_eq!(*got.lock().unwrap(), [some_usage(), some_usage()]);
    assert_eq!(cut.model.texts(), ["again"]);
}

/// Usage belongs to the call before it: never to one that another call follows.
async fn usage_is_not_taken_from_a_later_call(session: Fixture) {
    let id = execution(1);
    session.append([raw::start(&id, Some(0))]).await;
    session.append([raw::model_call(&id, "hello"), raw::output(&id, "echo:hello")]).await;
    session.append([raw::model_call(&id, "again"), raw::output(&id, "echo:again")]).await;
    session.append([raw::usage(&id, some_usage()), raw::end(&id)]).await;
    let got = Arc::new(Mutex::new(Vec::new()));
    let keep = Arc::clone(&got);
    let probe = Probe::new(move |_, sink| {
        let keep = Arc::clone(&keep);
        async move {
            for text in ["hello", "again"] {
                let reply = ask(&*sink, text).await?;
                keep.lock().unwrap().push(reply.usage);
            }
            sink.usage(some_usage()).await?;
            Ok(())
        }
    });
    let probe = session.place(probe).await;
    session.replay_check(&probe, 1, &["echo:hello", "echo:again"]).await;
    assert_eq!(*got.lock().unwrap(), [Usage::default(), some_usage()]);

    let other = Probe::new(|_, sink| async move {
        ask(&*sink, "hello").await?;
        ask(&*sink, "again").await?;
        sink.usage(Usage { output_tokens: 4, ..some_usage() }).await?;
        Ok(())
    });
    let other = session.place(other).await;
    let error = session.replay(&other).await.unwrap_err();
    assert!(matches!(error, ControllerError::ReplayDiverged(_)), "{error:?}");
}

matrix! {
    run:
    everywhere {
        #[test] fn r01_recorded_as_given;
        #[test] fn r02_served_usage;
        #[test] fn a_cut_before_the_usage_serves_the_noted_figures;
        #[test] fn usage_is_not_taken_from_a_later_call;
    }
}
