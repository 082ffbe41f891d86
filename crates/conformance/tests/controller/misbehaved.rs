//! Harnesses and models that do what they should not: no journal is worse for it.

use std::sync::{Arc, Mutex};

use futures_util::future::maybe_done;
use mainspring_api::{CancelReason, Classify as _, EventSink, HarnessError, Signal, ToolResult};
use mainspring_controller::{Controller, ControllerError, Options, Turn, TurnStop};
use tokio::sync::Notify;
use tokio::time::{Duration, Instant};

use crate::support::raw::{description, reported, some_usage};
use crate::support::{
    Fixture, Placed, Probe, TestModel, TestTools, ask, gated, mediated, parked, turn,
};

/// Polls a call once and drops it.
async fn drop_half_way<T>(call: impl Future<Output = T>) {
    tokio::select! {
        biased;
        _ = call => {}
        () = std::future::ready(()) => {}
    }
}

/// Calls that a harness drops half way are whole in the journal, and those after them come after them.
async fn dropped_calls_are_recorded_whole(session: Fixture) {
    let probe = Probe::new(|_, sink| async move {
        drop_half_way(ask(&*sink, "dropped")).await;
        sink.output("after".to_owned()).await?;
        Ok(())
    });
    let probe = session.place(probe).await;
    session.model.respond(|request| async move {
        for _ in 0..16 {
            tokio::task::yield_now().await;
        }
        Ok(TestModel::echo(&request))
    });
    session.exec(&probe, &["hello"]).await.unwrap();
    assert_eq!(session.kinds().await, "ES IN MC OUT OUT END");
    assert_eq!(session.outputs().await, ["echo:dropped", "after"]);
    session.replay_check(&probe, 1, &["echo:dropped", "after"]).await;
}

/// The same at the end of a run: what was called before it returned is recorded before its end, in order.
async fn dropped_last_calls_are_recorded_before_the_end(session: Fixture) {
    let probe = Probe::new(|_, sink| async move {
        drop_half_way(sink.report(reported("c1"))).await;
        drop_half_way(sink.usage(some_usage())).await;
        drop_half_way(ask(&*sink, "dropped")).await;
        drop_half_way(sink.output("last".to_owned())).await;
        Ok(())
    });
    let probe = session.place(probe).await;
    session.exec(&probe, &["hello"]).await.unwrap();
    assert_eq!(session.kinds().await, "ES IN TR US MC OUT OUT END");
    session.replay_check(&probe, 1, &["echo:dropped", "last"]).await;
}

/// A call that is neither awaited nor dropped does not stand in the way of those after it.
async fn a_neglected_call_blocks_nobody(session: Fixture) {
    let probe = Probe::new(|_, sink| async move {
        // On another thread the effect may be done by the first look already.
        let mut first = Box::pin(maybe_done(ask(&*sink, "first")));
        drop_half_way(&mut first).await;
        let mut neglected = Box::pin(ask(&*sink, "neglected"));
        drop_half_way(&mut neglected).await;
        first.as_mut().await;
        first.as_mut().take_output().expect("it was just awaited")?;
        sink.output("after".to_owned()).await?;
        drop(neglected);
        Ok(())
    });
    let probe = session.place(probe).await;
    session.exec(&probe, &["hello"]).await.unwrap();
    assert_eq!(session.kinds().await, "ES IN MC OUT MC OUT OUT END");
    session.replay_check(&probe, 1, &["echo:first", "echo:neglected", "after"]).await;
}

/// A harness that panics fails its turn, and the next host finishes it.
async fn a_panic_fails_the_turn(session: Fixture) {
    let probe = Probe::new(|_, sink| async move {
        ask(&*sink, "hello").await?;
        panic!("the agent panicked with s3cret data");
    });
    let probe = session.place(probe.named("echo", "1")).await;
    let error = session.exec(&probe, &["hello"]).await.unwrap_err();
    assert!(matches!(error, ControllerError::Run(_)), "{error:?}");
    assert_eq!(session.kinds().await, "ES IN MC OUT ERR");
    let events = session.events().await;
    let words = description(&events[4]);
    assert!(!words.contains("s3cret"), "{words}");
    let echo = session.place(Probe::echo()).await;
    session.resume(&echo).await.result.unwrap();
    assert_eq!(
        (session.kinds().await.as_str(), session.model.calls()),
        ("ES IN MC OUT ERR END", 1)
    );
    session.replay_check(&echo, 1, &["echo:hello"]).await;
}

/// A model that panics fails the call, not the host: the intent stays, and a resume makes the call again.
async fn a_panicking_model_fails_the_call(session: Fixture) {
    session.model.respond(|_| async { panic!("the provider panicked") });
    let echo = session.place(Probe::echo()).await;
    session.exec(&echo, &["hello"]).await.unwrap_err();
    assert_eq!(session.kinds().await, "ES IN MC ERR");
    session.model.respond(|request| async move { Ok(TestModel::echo(&request)) });
    session.resume(&echo).await.result.unwrap();
    assert_eq!(session.kinds().await, "ES IN MC ERR OUT END");
}

/// An effect that is in flight when the run returns is complete before the end; nothing follows that.
async fn an_effect_in_flight_at_the_end_is_complete_before_it(session: Fixture) {
    let (called, returned) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (called_in_model, returned_to_model) = (Arc::clone(&called), Arc::clone(&returned));
    session.model.respond(move |request| {
        let (called, returned) = (Arc::clone(&called_in_model), Arc::clone(&returned_to_model));
        async move {
            called.notify_one();
            returned.notified().await;
            Ok(TestModel::echo(&request))
        }
    });
    let late = Arc::new(Mutex::new(None));
    let keep = Arc::clone(&late);
    let probe = Probe::new(move |_, sink: Arc<dyn EventSink>| {
        let (called, returned) = (Arc::clone(&called), Arc::clone(&returned));
        let keep = Arc::clone(&keep);
        async move {
            let task = tokio::spawn(async move {
                ask(&*sink, "in flight").await.unwrap();
                sink.output("too late".to_owned()).await
            });
            *keep.lock().unwrap() = Some(task);
            called.notified().await;
            // On one thread nothing comes between this and the run's return.
            returned.notify_one();
            Ok(())
        }
    });
    let probe = session.place(probe).await;
    session.exec(&probe, &["hello"]).await.unwrap();
    let task = late.lock().unwrap().take().unwrap();
    let refused = task.await.unwrap().unwrap_err();
    assert_eq!(refused.code(), "sink_closed");
    assert_eq!(session.kinds().await, "ES IN MC OUT END");
    assert_eq!(session.outputs().await, ["echo:in flight"]);
}

/// A turn whose deadline passes during a model call ends with an error of its own code, and is resumed.
async fn a_deadline_during_a_call_leaves_a_resumable_turn(session: Fixture) {
    session.model.respond(|_| async {
        tokio::time::pause();
        std::future::pending().await
    });
    let echo = session.place(Probe::echo()).await;
    let deadline = Some(Instant::now() + Duration::from_secs(30));
    let error = session.exec_turn(&echo, Turn { deadline, ..turn(&["hello"]) }).await.unwrap_err();
    tokio::time::resume();
    assert!(matches!(error, ControllerError::DeadlineExceeded), "{error:?}");
    assert_eq!(session.kinds().await, "ES IN MC ERR");
    assert_eq!(description(&session.events().await[3]), "deadline exceeded");
    session.model.respond(|request| async move { Ok(TestModel::echo(&request)) });
    session.resume(&echo).await.result.unwrap();
    assert_eq!(session.kinds().await, "ES IN MC ERR OUT END");
}

/// A turn that is dropped by its host is resumable: nothing of it is half recorded.
async fn a_dropped_turn_is_resumable(session: Fixture) {
    let called = Arc::new(Notify::new());
    let in_model = Arc::clone(&called);
    session.model.respond(move |request| {
        let called = Arc::clone(&in_model);
        async move {
            called.notify_one();
            let _ = request;
            std::future::pending().await
        }
    });
    let echo = session.place(Probe::echo()).await;
    tokio::select! {
        ended = session.exec(&echo, &["hello"]) => panic!("it cannot end: {ended:?}"),
        () = called.notified() => {}
    }
    assert_eq!(session.kinds().await, "ES IN MC");
    session.model.respond(|request| async move { Ok(TestModel::echo(&request)) });
    session.resume(&echo).await.result.unwrap();
    assert_eq!((session.kinds().await.as_str(), session.model.calls()), ("ES IN MC OUT END", 2));
    session.replay_check(&echo, 1, &["echo:hello"]).await;
}

/// A harness that swallows a lost fence and says that all is well does not get an end.
async fn a_swallowed_lost_fence_is_no_success(session: Fixture) {
    let other = session.clone();
    let probe = Probe::new(move |_, sink| {
        let other = other.clone();
        async move {
            other.take_over().await;
            let _ = sink.output("too late".to_owned()).await;
            Ok(())
        }
    });
    let probe = session.place(probe).await;
    let error = session.exec(&probe, &["hello"]).await.unwrap_err();
    assert_eq!((error.code(), session.kinds().await.as_str()), ("fenced", "ES IN"));
}

/// Several failures at once are all told.
async fn joined_failures_are_all_recorded(session: Fixture) {
    let probe = Probe::new(|_, _| async {
        Err(HarnessError::Joined(vec![HarnessError::failed("one"), HarnessError::failed("two")]))
    });
    let probe = session.place(probe).await;
    session.exec(&probe, &[]).await.unwrap_err();
    assert_eq!(description(&session.events().await[1]), "one; two");
}

/// A tool that answers late, and a harness that does not wait for that: each call has its own answer.
async fn an_answer_that_nobody_waits_for_is_nobody_elses(session: Fixture) {
    let session = session.with_tools();
    let asked = Arc::new(Notify::new());
    let in_tool = Arc::clone(&asked);
    session.executor().respond(move |call| {
        let asked = Arc::clone(&in_tool);
        async move {
            asked.notify_one();
            for _ in 0..16 {
                tokio::task::yield_now().await;
            }
            Ok(TestTools::answer(&call))
        }
    });
    let probe = Probe::new(move |_, sink| {
        let asked = Arc::clone(&asked);
        async move {
            tokio::select! {
                biased;
                _ = sink.tool_call(mediated("c1", "slow")) => {}
                () = asked.notified() => {}
            }
            let result = sink.tool_call(mediated("c1", "other")).await?;
            assert_eq!(
                result,
                ToolResult { id: "c1".to_owned(), ..TestTools::answer(&mediated("c1", "other")) }
            );
            ask(&*sink, "after").await?;
            Ok(())
        }
    });
    let probe = session.place(probe).await;
    session.exec(&probe, &["hello"]).await.unwrap();
    assert_eq!(session.kinds().await, "ES IN TC TR TC TR MC OUT END");
}

/// A request for approval that the harness does not wait for parks its turn all the same.
async fn a_gate_that_nobody_waits_for_parks(session: Fixture) {
    let session = session.with_tools();
    let probe = Probe::new(|_, sink| async move {
        drop_half_way(sink.tool_call(gated("c1", "pay"))).await;
        sink.output("on".to_owned()).await?;
        Ok(())
    });
    let probe = session.place(probe).await;
    parked(session.exec(&probe, &["hello"]).await);
    assert_eq!(session.kinds().await, "ES IN TC AQ");
}

/// Begins a call of a tool that never answers, gives it up, and returns.
async fn gives_up(session: &Fixture) -> Placed {
    let called = session.executor().hang();
    let probe = Probe::new(move |_, sink| {
        let called = Arc::clone(&called);
        async move {
            tokio::select! {
                _ = sink.tool_call(mediated("c1", "slow")) => {}
                () = called.notified() => {}
            }
            tokio::time::pause();
            Ok(())
        }
    });
    session.place(probe).await
}

/// The deadline of a turn also bounds a call that its harness gave up on before it returned.
async fn a_deadline_after_the_run_returned(session: Fixture) {
    let session = session.with_tools();
    let probe = gives_up(&session).await;
    let deadline = Some(Instant::now() + Duration::from_secs(30));
    let error = session.exec_turn(&probe, Turn { deadline, ..turn(&["hello"]) }).await.unwrap_err();
    tokio::time::resume();
    assert!(matches!(error, ControllerError::DeadlineExceeded), "{error:?}");
    assert_eq!(session.kinds().await, "ES IN TC ERR");
}

/// So does the host's word that the turn is to stop.
async fn a_stop_after_the_run_returned(session: Fixture) {
    let cancel = TurnStop::Cancel(CancelReason::User);
    for (stop, journal) in [(cancel, "ES IN TC END"), (TurnStop::Interrupt, "ES IN TC")] {
        let session = Fixture::open(session.cell).await.with_tools();
        let probe = gives_up(&session).await;
        let word = Signal::default();
        let options = Options { stop: word.clone(), ..session.options() };
        let controller = Controller::new(session.journal(), options).await.unwrap();
        let running = controller.exec(&probe.harness, turn(&["hello"]));
        let (ended, ()) = tokio::join!(running, async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            word.set(stop);
        });
        tokio::time::resume();
        let error = ended.unwrap_err();
        assert_eq!(matches!(error, ControllerError::Canceled(_)), stop == cancel, "{error:?}");
        assert_eq!(session.kinds().await, journal);
    }
}

/// Calls that wait behind the one that a deadline cut are not made.
async fn a_deadline_cuts_what_waits_too(session: Fixture) {
    let session = session.with_tools();
    let called = session.executor().hang();
    let probe = Probe::new(move |_, sink| {
        let called = Arc::clone(&called);
        async move {
            let pausing = async {
                called.notified().await;
                tokio::time::pause();
            };
            let first = sink.tool_call(mediated("c1", "slow"));
            let _ = tokio::join!(first, sink.tool_call(gated("c2", "pay")), pausing);
            Ok(())
        }
    });
    let probe = session.place(probe).await;
    let deadline = Some(Instant::now() + Duration::from_secs(30));
    let error = session.exec_turn(&probe, Turn { deadline, ..turn(&["hello"]) }).await.unwrap_err();
    tokio::time::resume();
    assert!(matches!(error, ControllerError::DeadlineExceeded), "{error:?}");
    assert_eq!(session.kinds().await, "ES IN TC ERR");
}

mod on_threads {
    use super::{
        a_dropped_turn_is_resumable, a_gate_that_nobody_waits_for_parks,
        a_neglected_call_blocks_nobody, a_panic_fails_the_turn, a_panicking_model_fails_the_call,
        a_swallowed_lost_fence_is_no_success, an_answer_that_nobody_waits_for_is_nobody_elses,
        dropped_calls_are_recorded_whole, dropped_last_calls_are_recorded_before_the_end,
        joined_failures_are_all_recorded,
    };

    matrix! {
        run:
        everywhere {
            #[test] fn dropped_calls_are_recorded_whole;
            #[test] fn a_panic_fails_the_turn;
            #[test] fn a_panicking_model_fails_the_call;
            #[test] fn a_dropped_turn_is_resumable;
            #[test] fn a_swallowed_lost_fence_is_no_success;
            #[test] fn joined_failures_are_all_recorded;
            #[test] fn an_answer_that_nobody_waits_for_is_nobody_elses;
            #[test] fn a_gate_that_nobody_waits_for_parks;
        }
        in_process {
            #[test] fn dropped_last_calls_are_recorded_before_the_end;
            #[test] fn a_neglected_call_blocks_nobody;
        }
    }
}

mod on_one_thread {
    use super::{
        a_deadline_after_the_run_returned, a_deadline_cuts_what_waits_too,
        a_deadline_during_a_call_leaves_a_resumable_turn, a_stop_after_the_run_returned,
        an_effect_in_flight_at_the_end_is_complete_before_it,
    };

    matrix! {
        run_on_one_thread:
        everywhere {
            #[test] fn a_deadline_during_a_call_leaves_a_resumable_turn;
        }
        in_process {
            #[test] fn an_effect_in_flight_at_the_end_is_complete_before_it;
            #[test] fn a_deadline_after_the_run_returned;
            #[test] fn a_stop_after_the_run_returned;
            #[test] fn a_deadline_cuts_what_waits_too;
        }
    }
}
