//! What went wrong elsewhere around tools and approvals, as experiments on this controller.

use std::sync::Arc;

use futures_util::future::join_all;
use mainspring_api::{
    ApprovalRef, CancelReason, Classify as _, Event, EventBody, ModelRequest, OsEntropy, Outcome,
    Part, Resolution, Signal, ToolError,
};
use mainspring_controller::{Controller, ControllerError, Options, Resolving, TurnStop, resolve};
use mainspring_harness::conversation;
use mainspring_testkit::sample;

use crate::support::raw::{kinds, some_usage};
use crate::support::{
    Answers, Fixture, Placed, Probe, TestModel, TestTools, ask, driven, gated, mediated, parked,
    refused, turn,
};

/// Sends the whole conversation; the first turn calls a tool before that.
fn conversing() -> Probe {
    Probe::new(|start, sink| async move {
        let first = start.history.is_empty();
        let mut messages = conversation(&*start.history).await?;
        messages.extend(start.inputs);
        if first {
            sink.tool_call(mediated("c1", "search")).await?;
        }
        let model = "echo".to_owned();
        sink.model(ModelRequest { model, messages, ..ModelRequest::default() }).await?;
        Ok(())
    })
}

/// A crash between intent and result leaves a call that is named, resolved by a person, and never sent to a model alone.
async fn b4_a_call_without_a_result(session: Fixture) {
    let session = session.with_tools();
    let probe = session.place(conversing()).await;
    let called = session.executor().hang();
    tokio::select! {
        ended = session.exec(&probe, &["hello"]) => panic!("{ended:?}"),
        () = called.notified() => {}
    }
    session.executor().recover();
    let error = refused(session.resume(&probe).await);
    let ControllerError::UnansweredToolCall { seq, call_id } = &error else { panic!("{error:?}") };
    assert_eq!((seq.get(), call_id.as_str()), (3, "c1"));
    assert!(error.to_string().contains("outcome is unknown"), "{error}");
    assert_eq!(session.model.calls(), 0);
    let execution = session.events().await[0].execution_id.clone().unwrap();
    let resolving = Resolving {
        execution,
        tool_call_id: "c1".to_owned(),
        resolution: Resolution::Failed("it was never sent".to_owned()),
        holder: sample::holder("ada"),
        entropy: Arc::new(OsEntropy),
        observer: Arc::clone(&session.watcher) as Arc<_>,
    };
    resolve(&session.journal(), resolving).await.unwrap();
    driven(session.resume(&probe).await);
    session.exec(&probe, &["next"]).await.unwrap();
    assert_eq!(session.kinds().await, "ES IN TC TR MC OUT END ES IN MC OUT END");
    orphans(&session);
}

/// No request holds a call whose result it lacks.
fn orphans(session: &Fixture) {
    for request in session.model.asked() {
        let parts: Vec<_> = request.messages.iter().flat_map(|message| &message.parts).collect();
        for part in &parts {
            let Part::ToolCall(call) = part else { continue };
            let answers = |part: &&Part| matches!(part, Part::ToolResult(r) if r.id == call.id);
            assert!(parts.iter().any(answers), "{call:?} has no result in {request:?}");
        }
    }
}

/// The same when a new turn is begun past the call instead.
async fn b4_a_new_turn_past_the_call(session: Fixture) {
    let session = session.with_tools();
    let probe = session.place(conversing()).await;
    session.executor().fail(1);
    session.exec(&probe, &["hello"]).await.unwrap_err();
    session.exec(&probe, &["next"]).await.unwrap();
    assert_eq!(session.kinds().await, "ES IN TC ERR ES IN MC OUT END");
    orphans(&session);
}

const PARALLEL: usize = 8;

/// Makes eight calls at once, and waits for all of them.
fn parallel() -> Probe {
    Probe::new(|_, sink| async move {
        let calls = (1..=PARALLEL).map(|number| mediated(&format!("c{number}"), "search"));
        let results = join_all(calls.map(|call| sink.tool_call(call))).await;
        for (number, result) in (1..).zip(results) {
            assert_eq!(result?.id, format!("c{number}"), "each is answered its own result");
        }
        Ok(())
    })
}

/// Every call that is recorded has its result right after it, under its own id.
fn matched(events: &[Event]) -> usize {
    let mut calls = 0;
    for pair in events.windows(2) {
        if let EventBody::ToolCall(Some(call)) = &pair[0].body {
            let EventBody::ToolResult(Some(result)) = &pair[1].body else {
                panic!("no result: {pair:?}")
            };
            assert_eq!(result.id, call.id);
            calls += 1;
        }
    }
    calls
}

/// Eight calls at once have eight results, each under its own id.
async fn b5_parallel_calls(session: Fixture) {
    let session = session.with_tools();
    session.executor().respond(|call| async move {
        tokio::task::yield_now().await;
        Ok(TestTools::answer(&call))
    });
    let probe = session.place(parallel()).await;
    session.exec(&probe, &["hello"]).await.unwrap();
    let pairs = ["TC TR"; PARALLEL].join(" ");
    assert_eq!(session.kinds().await, format!("ES IN {pairs} END"));
    assert_eq!(matched(&session.events().await), PARALLEL);
    session.replay_check(&probe, 1, &[]).await;
}

/// Stopped while they finish, no call that is recorded lacks its result; those not begun leave no trace, and a later host makes them.
async fn b5_parallel_calls_are_stopped(session: Fixture) {
    for stop in [TurnStop::Cancel(CancelReason::User), TurnStop::Interrupt] {
        for at in 1..=PARALLEL {
            let session = Fixture::open(session.cell).await.with_tools();
            let word = Signal::default();
            let setting = word.clone();
            session.executor().respond(move |call| {
                if call.id == format!("c{at}") {
                    setting.set(stop);
                }
                async move { Ok(TestTools::answer(&call)) }
            });
            let probe = session.place(parallel()).await;
            let options = Options { stop: word.clone(), ..session.options() };
            let controller = Controller::new(session.journal(), options).await.unwrap();
            let result = controller.exec(&probe.harness, turn(&["hello"])).await;
            let events = session.events().await;
            assert_eq!(matched(&events), at);
            if stop == TurnStop::Interrupt {
                if result.is_err() {
                    driven(session.resume(&probe).await);
                }
                assert_eq!(matched(&session.events().await), PARALLEL);
                let keys: Vec<_> = (1..=PARALLEL).map(|n| format!("key-c{n}")).collect();
                assert_eq!(session.executor().ledger(), keys, "each happened once");
                session.replay_check(&probe, 1, &[]).await;
            } else {
                assert!(matches!(result, Err(ControllerError::Canceled(_))), "{result:?}");
                assert!(kinds(&events).ends_with(" TR END"));
            }
        }
    }
}

/// A resume goes on at the park: the effects before it are served, none is done again.
async fn b26_resume_goes_on_at_the_park(session: Fixture) {
    let session = session.with_tools();
    let probe = Probe::new(|_, sink| async move {
        ask(&*sink, "first").await?;
        sink.tool_call(mediated("c1", "search")).await?;
        sink.tool_call(gated("c2", "pay")).await?;
        ask(&*sink, "second").await?;
        Ok(())
    });
    let probe = session.place(probe).await;
    let park = parked(session.exec(&probe, &["hello"]).await);
    assert_eq!(park.request_seq, 8);
    session.decide(&park, true, "").await.unwrap();
    driven(session.resume(&probe).await);
    assert_eq!(session.kinds().await, "ES IN MC OUT TC TR TC AQ AR TR MC OUT END");
    assert_eq!(session.model.texts(), ["first", "second"]);
    assert_eq!(session.executor().ledger(), ["key-c1", "key-c2"]);
    session.replay_check(&probe, 1, &["echo:first", "echo:second"]).await;
}

async fn next_park(session: &Fixture, probe: &Placed) -> ApprovalRef {
    let resumed = session.resume(probe).await;
    assert!(resumed.resumed);
    parked(resumed.result)
}

/// Three gated calls at once have three requests, each answered alone; the third waits whatever became of the others.
async fn b27_parallel_gates(session: Fixture) {
    let session = session.with_tools();
    let probe = Probe::new(|_, sink| async move {
        let calls = ["c1", "c2", "c3"].map(|id| sink.tool_call(gated(id, "pay")));
        for result in join_all(calls).await {
            if let Err(error) = result {
                return Err(error.into());
            }
        }
        Ok(())
    });
    let probe = session.place(probe).await;
    let first = parked(session.exec(&probe, &["hello"]).await);
    session.decide(&first, true, "yes").await.unwrap();
    let second = next_park(&session, &probe).await;
    session.decide(&second, false, "no").await.unwrap();
    let third = next_park(&session, &probe).await;
    let refs = [&first, &second, &third].map(|park| (park.tool_call_id.clone(), park.request_seq));
    let expected = [("c1", 4), ("c2", 8), ("c3", 12)];
    assert_eq!(refs, expected.map(|(id, seq)| (id.to_owned(), seq)));
    // Neither decision can be given to the third, nor changed.
    for (park, approved) in [(&first, false), (&second, true)] {
        let error = session.decide(park, approved, "yes").await.unwrap_err();
        assert_eq!(error.code(), "invalid_approval_decision");
    }
    for _ in 0..2 {
        assert_eq!(next_park(&session, &probe).await, third, "still pending after a restart");
    }
    assert_eq!(session.kinds().await, "ES IN TC AQ AR TR TC AQ AR TR TC AQ");
    assert_eq!(session.executor().ledger(), ["key-c1"]);
    session.decide(&third, true, "").await.unwrap();
    driven(session.resume(&probe).await);
    assert_eq!(session.executor().ledger(), ["key-c1", "key-c3"]);
    session.replay_check(&probe, 1, &[]).await;
}

/// The second approval of a turn is as visible as the first, and the turn ends after both.
async fn b28_two_approvals_in_a_turn(session: Fixture) {
    let session = session.with_tools();
    let answers = Answers::default();
    let calls = [gated("c1", "pay"), gated("c2", "pay")];
    let probe = session.place(Probe::answered(calls, &answers)).await;
    let first = parked(session.exec(&probe, &["hello"]).await);
    session.decide(&first, true, "").await.unwrap();
    let second = next_park(&session, &probe).await;
    assert_ne!(first, second);
    assert_eq!(session.kinds().await, "ES IN TC AQ AR TR TC AQ");
    session.decide(&second, true, "").await.unwrap();
    answers.take();
    driven(session.resume(&probe).await);
    assert_eq!(session.kinds().await, "ES IN TC AQ AR TR TC AQ AR TR OUT END");
    assert_eq!(answers.codes(), ["ok", "ok"]);
    assert_eq!(session.executor().ledger(), ["key-c1", "key-c2"]);
    session.replay_check(&probe, 1, &["done"]).await;
}

/// A turn of every effect.
fn every_effect() -> Probe {
    Probe::new(|_, sink| async move {
        let reply = ask(&*sink, "first").await?;
        sink.usage(reply.usage).await?;
        sink.tool_call(mediated("c1", "search")).await?;
        sink.tool_call(gated("c2", "pay")).await?;
        sink.tool_call(gated("c3", "pay")).await?;
        sink.output("said".to_owned()).await?;
        sink.report(crate::support::raw::reported("c4")).await?;
        Ok(())
    })
}

const EVERY_EFFECT: &str = "ES IN MC OUT US TC TR TC AQ AR TR TC AQ AR TR OUT TR END";

/// Cut at every position: a replay finds nothing wrong, and a resume goes on or refuses by name; nothing diverges.
async fn b31_cut_at_every_seq(session: Fixture) {
    let whole = session.with_tools();
    whole.model.respond(|request| async move {
        Ok(mainspring_api::ModelReply { usage: some_usage(), ..TestModel::echo(&request) })
    });
    let probe = whole.place(every_effect()).await;
    let first = parked(whole.exec(&probe, &["hello"]).await);
    whole.decide(&first, true, "").await.unwrap();
    let second = next_park(&whole, &probe).await;
    whole.decide(&second, false, "").await.unwrap();
    driven(whole.resume(&probe).await);
    assert_eq!(whole.kinds().await, EVERY_EFFECT);
    let records = whole.records().await;
    for cut in 1..=records.len() {
        for declared in [false, true] {
            let uid = sample::session(&format!("cut-{cut}-{declared}"));
            let here = whole.session(&uid).with_tools();
            mainspring_testkit::create(&*here.log, &uid).await.unwrap();
            if declared {
                here.executor().declare("search");
            }
            here.append_recorded(&records[..cut]).await;
            let turns = u64::from(cut == records.len());
            let replayed = here.replay(&probe).await.unwrap();
            assert_eq!(replayed.turns, turns, "cut at {cut}");
            let resumed = here.resume(&probe).await;
            let names = match &resumed.result {
                Ok(()) => "ok",
                Err(error) => error.code(),
            };
            let expected = match kinds(&here.events().await[..cut]).rsplit(' ').next().unwrap() {
                "ES" => "incomplete_invocation",
                "TC" if cut == 6 && !declared => "unanswered_tool_call",
                // At a gate, or before one.
                "TC" | "AQ" if cut != 6 => "approval_parked",
                _ if cut < 12 => "approval_parked",
                _ => "ok",
            };
            assert_eq!(names, expected, "cut at {cut}, declared {declared}: {:?}", resumed.result);
        }
    }
}

/// A tool that did its work and whose answer was lost is not run again by itself; declared, it is, and its effect is one.
async fn b37_a_lost_answer(session: Fixture) {
    for declared in [false, true] {
        let session = Fixture::open(session.cell).await.with_tools();
        session.executor().respond(|_| async {
            let message = "connection reset".to_owned();
            Err(ToolError { message, outcome: Outcome::Unknown, source: None })
        });
        let probe = session.place(Probe::calling([mediated("c1", "pay")])).await;
        let error = session.exec(&probe, &["hello"]).await.unwrap_err();
        assert_eq!((error.code(), session.executor().ledger().len()), ("tool_failed", 1));
        session.executor().recover();
        if declared {
            session.executor().declare("pay");
            driven(session.resume(&probe).await);
            assert_eq!(session.kinds().await, "ES IN TC ERR TR END");
            assert_eq!(session.executor().calls(), 2);
        } else {
            assert_eq!(refused(session.resume(&probe).await).code(), "unanswered_tool_call");
            assert_eq!(
                (session.kinds().await.as_str(), session.executor().calls()),
                ("ES IN TC ERR", 1)
            );
        }
        assert_eq!(session.executor().ledger(), ["key-c1"], "one effect");
    }
}

/// Pays once, when it is asked to.
fn paying() -> Probe {
    Probe::new(|start, sink| async move {
        let text = start.inputs[0].plain_text();
        if text == "pay" {
            sink.tool_call(gated("c1", "pay")).await?;
        }
        ask(&*sink, &text).await?;
        Ok(())
    })
}

/// An approved call that was made is never made again: not by later turns, restarts, forks, or resumes.
async fn b39_an_approved_call_is_made_once(session: Fixture) {
    let session = session.with_tools();
    let probe = session.place(paying()).await;
    let park = parked(session.exec(&probe, &["pay"]).await);
    session.decide(&park, true, "").await.unwrap();
    // The model fails after the receipt, and the turn is resumed.
    session.model.fail(1);
    session.resume(&probe).await.result.unwrap_err();
    driven(session.resume(&probe).await);
    assert_eq!(session.kinds().await, "ES IN TC AQ AR TR MC ERR OUT END");
    for _ in 0..10 {
        session.exec(&probe, &["more"]).await.unwrap();
        let resumed = session.resume(&probe).await;
        assert!(!resumed.resumed);
    }
    let child = session.fork(session.head().await.seq.get(), "child").await.unwrap();
    child.exec(&probe, &["more"]).await.unwrap();
    // A fork between the receipt and the end goes on after the receipt.
    let early = session.fork(6, "early").await.unwrap();
    driven(early.resume(&probe).await);
    assert_eq!(early.kinds().await, "ES IN TC AQ AR TR LC:FORK MC OUT END");
    let replayed = session.replay(&probe).await.unwrap();
    assert_eq!(replayed.turns, 11);
    early.replay_check(&probe, 1, &["echo:pay"]).await;
    assert_eq!(session.executor().ledger(), ["key-c1"], "called once, over all of that");
}

matrix! {
    run:
    everywhere {
        #[test] fn b4_a_call_without_a_result;
        #[test] fn b4_a_new_turn_past_the_call;
        #[test] fn b5_parallel_calls;
        #[test] fn b5_parallel_calls_are_stopped;
        #[test] fn b26_resume_goes_on_at_the_park;
        #[test] fn b27_parallel_gates;
        #[test] fn b28_two_approvals_in_a_turn;
        #[test] fn b31_cut_at_every_seq;
        #[test] fn b37_a_lost_answer;
        #[test] fn b39_an_approved_call_is_made_once;
    }
}
