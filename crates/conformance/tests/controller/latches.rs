//! The host's word that a running turn is to stop: at the next effect, with grace for the one in flight.

use std::sync::{Arc, Mutex};

use mainspring_api::{
    CancelReason, Classify as _, EndState, EventBody, EventSink, Signal, SinkError,
};
use mainspring_controller::{Controller, ControllerError, EFFECT_GRACE, Options, TurnStop};
use tokio::time::{Duration, Instant};

use crate::support::{Fixture, Placed, Probe, TestModel, TestTools, ask, driven, mediated, turn};

const CANCEL: TurnStop = TurnStop::Cancel(CancelReason::User);

/// Both words.
const STOPS: [TurnStop; 2] = [CANCEL, TurnStop::Interrupt];

/// A fresh controller that listens to `stop`.
pub(crate) async fn listening(session: &Fixture, stop: &Signal<TurnStop>) -> Controller {
    let options = Options { stop: stop.clone(), ..session.options() };
    Controller::new(session.journal(), options).await.unwrap()
}

/// Runs a turn that is stopped, and returns how it ended.
async fn stopped(session: &Fixture, placed: &Placed, stop: &Signal<TurnStop>) -> ControllerError {
    let controller = listening(session, stop).await;
    controller.exec(&placed.harness, turn(&["hello"])).await.unwrap_err()
}

/// After the word the journal is `done`; a canceled turn has its end, an interrupted one nothing more.
pub(crate) async fn ended(session: &Fixture, error: &ControllerError, stop: TurnStop, done: &str) {
    match stop {
        TurnStop::Cancel(reason) => {
            assert!(matches!(error, ControllerError::Canceled(why) if *why == reason), "{error:?}");
            assert_eq!(session.kinds().await, format!("{done} END"));
            let EventBody::End(Some(end)) = session.events().await.pop().unwrap().body else {
                panic!("not an end")
            };
            assert_eq!(end.end_state(), Some(EndState::Canceled));
            is_over(session).await;
        }
        TurnStop::Interrupt => {
            assert!(matches!(error, ControllerError::Interrupted), "{error:?}");
            assert_eq!(session.kinds().await, done);
        }
    }
}

/// A canceled turn is not resumed and not replayed, and new turns follow it.
async fn is_over(session: &Fixture) {
    let echo = session.place(Probe::echo()).await;
    session.model.respond(|request| async move { Ok(TestModel::echo(&request)) });
    let resumed = session.resume(&echo).await;
    assert!(!resumed.resumed);
    resumed.result.unwrap();
    session.replay_check(&echo, 0, &[]).await;
    session.exec(&echo, &["next"]).await.unwrap();
    session.replay_check(&echo, 1, &["echo:next"]).await;
    // What stood in the journal before that turn is what the caller looks at.
    let before = session.kinds().await;
    assert!(before.ends_with(" END ES IN MC OUT END"), "{before}");
}

/// Asks, calls, and asks again; `between` is done before the effect of that number.
fn working(before: usize, word: &Signal<TurnStop>, stop: TurnStop) -> Probe {
    let word = word.clone();
    Probe::new(move |_, sink| {
        let word = word.clone();
        async move {
            for effect in 0..3 {
                if effect == before {
                    word.set(stop);
                }
                match effect {
                    0 => drop(ask(&*sink, "first").await?),
                    1 => drop(sink.tool_call(mediated("c1", "search")).await?),
                    _ => drop(ask(&*sink, "second").await?),
                }
            }
            Ok(())
        }
    })
}

const STEPS: [&str; 4] =
    ["ES IN", "ES IN MC OUT", "ES IN MC OUT TC TR", "ES IN MC OUT TC TR MC OUT"];

/// Between effects the word takes at the next one; an interrupted turn is finished later, with each effect done once.
async fn latch_between_effects(session: Fixture) {
    for stop in STOPS {
        for (before, done) in STEPS.into_iter().take(3).enumerate() {
            let session = Fixture::open(session.cell).await.with_tools();
            let word = Signal::default();
            let probe = session.place(working(before, &word, stop)).await;
            let error = stopped(&session, &probe, &word).await;
            assert_eq!(session.executor().calls(), usize::from(before == 2));
            assert_eq!(session.model.calls(), usize::from(before > 0));
            ended(&session, &error, stop, done).await;
            if stop == TurnStop::Interrupt {
                finishes(&session, &probe, [2, 1]).await;
            }
        }
    }
}

/// A later host finishes the turn: so many model and tool calls were made over all.
async fn finishes(session: &Fixture, probe: &Placed, calls: [usize; 2]) {
    driven(session.resume(probe).await);
    assert_eq!(session.kinds().await, format!("{} END", STEPS[3]));
    assert_eq!([session.model.calls(), session.executor().calls()], calls);
    session.replay_check(probe, 1, &["echo:first", "echo:second"]).await;
}

/// A word that comes after the last effect: an interrupted turn has ended already, a canceled one is canceled.
async fn latch_after_the_last_effect(session: Fixture) {
    for stop in STOPS {
        let session = Fixture::open(session.cell).await.with_tools();
        let word = Signal::default();
        let setting = word.clone();
        let probe = Probe::new(move |_, sink| {
            let setting = setting.clone();
            async move {
                ask(&*sink, "only").await?;
                setting.set(stop);
                Ok(())
            }
        });
        let probe = session.place(probe).await;
        let controller = listening(&session, &word).await;
        let result = controller.exec(&probe.harness, turn(&["hello"])).await;
        match stop {
            TurnStop::Cancel(_) => {
                ended(&session, &result.unwrap_err(), stop, "ES IN MC OUT").await;
            }
            TurnStop::Interrupt => {
                result.unwrap();
                assert_eq!(session.kinds().await, "ES IN MC OUT END");
            }
        }
    }
}

/// A word that was given before the turn stops it before its first effect.
async fn latch_before_the_turn(session: Fixture) {
    for stop in STOPS {
        let session = Fixture::open(session.cell).await.with_tools();
        let word = Signal::default();
        word.set(stop);
        let probe = session.place(working(9, &word, stop)).await;
        let error = stopped(&session, &probe, &word).await;
        assert_eq!((session.model.calls(), session.executor().calls()), (0, 0));
        ended(&session, &error, stop, "ES IN").await;
    }
}

/// What is in flight when the word comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InFlight {
    Model,
    Tool,
}

/// The model's or the tool's answer takes so long after the word; time is paused meanwhile.
fn answering_late(
    session: &Fixture,
    what: InFlight,
    word: &Signal<TurnStop>,
    stop: TurnStop,
    late: Duration,
) {
    let word = word.clone();
    let wait = move || {
        let word = word.clone();
        async move {
            tokio::time::pause();
            word.set(stop);
            tokio::time::sleep(late).await;
        }
    };
    match what {
        InFlight::Model => session.model.respond(move |request| {
            let wait = wait();
            async move {
                wait.await;
                Ok(TestModel::echo(&request))
            }
        }),
        InFlight::Tool => session.executor().respond(move |call| {
            let wait = wait();
            async move {
                wait.await;
                Ok(TestTools::answer(&call))
            }
        }),
    }
}

fn recover(session: &Fixture) {
    tokio::time::resume();
    session.model.respond(|request| async move { Ok(TestModel::echo(&request)) });
    session.executor().recover();
}

/// An effect in flight that is answered within its grace is recorded; the next one is refused.
async fn latch_within_the_grace(session: Fixture) {
    for stop in STOPS {
        for (what, done) in [(InFlight::Model, STEPS[1]), (InFlight::Tool, STEPS[2])] {
            let session = Fixture::open(session.cell).await.with_tools();
            let word = Signal::default();
            let late = EFFECT_GRACE - Duration::from_millis(1);
            answering_late(&session, what, &word, stop, late);
            let probe = session.place(working(9, &word, stop)).await;
            let error = stopped(&session, &probe, &word).await;
            recover(&session);
            ended(&session, &error, stop, done).await;
            if stop == TurnStop::Interrupt {
                finishes(&session, &probe, [2, 1]).await;
            }
        }
    }
}

/// One that is not leaves its intent alone: a model call is made again later, an undeclared tool call is unknown.
async fn latch_beyond_the_grace(session: Fixture) {
    for stop in STOPS {
        for (what, done) in [(InFlight::Model, "ES IN MC"), (InFlight::Tool, "ES IN MC OUT TC")] {
            let session = Fixture::open(session.cell).await.with_tools();
            let word = Signal::default();
            answering_late(&session, what, &word, stop, EFFECT_GRACE + Duration::from_millis(1));
            let probe = session.place(working(9, &word, stop)).await;
            let begun = Instant::now();
            let error = stopped(&session, &probe, &word).await;
            assert!(begun.elapsed() < EFFECT_GRACE * 2, "{:?}", begun.elapsed());
            recover(&session);
            ended(&session, &error, stop, done).await;
            if stop == TurnStop::Interrupt && what == InFlight::Model {
                finishes(&session, &probe, [3, 1]).await;
            } else if stop == TurnStop::Interrupt {
                let error = crate::support::refused(session.resume(&probe).await);
                assert_eq!(error.code(), "unanswered_tool_call");
                session.executor().declare("search");
                finishes(&session, &probe, [2, 2]).await;
                assert_eq!(session.executor().ledger(), ["key-c1"]);
            }
        }
    }
}

/// A harness that swallows every refusal and says that all is well does not change what becomes of its turn.
async fn latch_swallowed(session: Fixture) {
    for stop in STOPS {
        for late in [Duration::ZERO, EFFECT_GRACE * 2] {
            let session = Fixture::open(session.cell).await.with_tools();
            let word = Signal::default();
            answering_late(&session, InFlight::Tool, &word, stop, late);
            let seen = Arc::new(Mutex::new(Vec::<SinkError>::new()));
            let keep = Arc::clone(&seen);
            let probe = Probe::new(move |_, sink| {
                let keep = Arc::clone(&keep);
                async move {
                    let mut errors = Vec::new();
                    errors.extend(sink.tool_call(mediated("c1", "search")).await.err());
                    if late == Duration::ZERO {
                        errors.extend(ask(&*sink, "more").await.err());
                        errors.extend(sink.output("more".to_owned()).await.err());
                    }
                    *keep.lock().unwrap() = errors;
                    Ok(())
                }
            });
            let probe = session.place(probe).await;
            let error = stopped(&session, &probe, &word).await;
            recover(&session);
            let seen = seen.lock().unwrap().clone();
            assert!(!seen.is_empty());
            for error in &seen {
                match stop {
                    TurnStop::Cancel(_) => {
                        assert!(matches!(error, SinkError::Canceled(_)), "{error:?}")
                    }
                    TurnStop::Interrupt => {
                        assert!(matches!(error, SinkError::Interrupted), "{error:?}")
                    }
                }
            }
            let done = if late == Duration::ZERO { "ES IN TC TR" } else { "ES IN TC" };
            ended(&session, &error, stop, done).await;
        }
    }
}

/// A harness that never returns is left behind, in bounded time; what it does later is refused.
async fn latch_never_returns(session: Fixture) {
    for stop in STOPS {
        let session = Fixture::open(session.cell).await.with_tools();
        let word = Signal::default();
        let (setting, kept) = (word.clone(), Arc::new(Mutex::new(None::<Arc<dyn EventSink>>)));
        let keep = Arc::clone(&kept);
        let probe = Probe::new(move |_, sink| {
            let (setting, keep) = (setting.clone(), Arc::clone(&keep));
            async move {
                ask(&*sink, "first").await?;
                *keep.lock().unwrap() = Some(sink);
                tokio::time::pause();
                setting.set(stop);
                std::future::pending().await
            }
        });
        let probe = session.place(probe).await;
        let begun = Instant::now();
        let told = Signal::default();
        let options = Options { stop: word.clone(), cancel: told.clone(), ..session.options() };
        let controller = Controller::new(session.journal(), options).await.unwrap();
        let error = controller.exec(&probe.harness, turn(&["hello"])).await.unwrap_err();
        assert!(begun.elapsed() < EFFECT_GRACE * 2, "{:?}", begun.elapsed());
        recover(&session);
        let reason = if stop == CANCEL { CancelReason::User } else { CancelReason::Internal };
        assert_eq!(told.get(), Some(reason), "it was told before it was left");
        ended(&session, &error, stop, "ES IN MC OUT").await;
        let sink = kept.lock().unwrap().take().unwrap();
        let late = sink.output("late".to_owned()).await.unwrap_err();
        assert!(matches!(late, SinkError::Closed | SinkError::Canceled(_)), "{late:?}");
    }
}

mod on_threads {
    use super::{latch_after_the_last_effect, latch_before_the_turn, latch_between_effects};

    matrix! {
        run:
        everywhere {
            #[test] fn latch_between_effects;
            #[test] fn latch_after_the_last_effect;
            #[test] fn latch_before_the_turn;
        }
    }
}

mod on_one_thread {
    use super::{
        latch_beyond_the_grace, latch_never_returns, latch_swallowed, latch_within_the_grace,
    };

    matrix! {
        run_on_one_thread:
        in_process {
            #[test] fn latch_within_the_grace;
            #[test] fn latch_beyond_the_grace;
            #[test] fn latch_swallowed;
            #[test] fn latch_never_returns;
        }
    }
}
