//! Family S: which models a host allows.

use mainspring_api::{Classify as _, Condition, Descriptor, EventBody, ModelPolicy, ModelRequest};
use mainspring_controller::{Controller, ControllerError, Options};
use mainspring_eventlog::input_hash;

use crate::support::raw;
use crate::support::{Fixture, Placed, Probe, TestModel, ask, turn};

/// A policy that allows these, the first by default.
pub(super) fn allowing(models: &[&str]) -> ModelPolicy {
    ModelPolicy {
        default: models.first().map(ToString::to_string).unwrap_or_default(),
        allowed: models.iter().map(ToString::to_string).collect(),
    }
}

/// A controller under a policy, with a default of the session's.
pub(super) async fn under(
    session: &Fixture,
    policy: Option<ModelPolicy>,
    model_default: &str,
) -> Controller {
    let options = Options { policy, model_default: model_default.to_owned(), ..session.options() };
    Controller::new(session.journal(), options).await.unwrap()
}

/// A request for `model` with the text `hello`.
pub(super) fn request(model: &str) -> ModelRequest {
    ModelRequest {
        model: model.to_owned(),
        messages: vec![mainspring_api::Message::user("hello")],
        ..ModelRequest::default()
    }
}

/// Asks each of `models` in turn.
pub(super) fn asking_for(models: &'static [&'static str]) -> Probe {
    Probe::new(move |_, sink| async move {
        for model in models {
            sink.model(request(model)).await?;
        }
        Ok(())
    })
}

/// What the start at `index` records as its default.
pub(super) async fn recorded_default(session: &Fixture, index: usize) -> String {
    match &session.events().await[index].body {
        EventBody::ExecutionStart(Some(start)) => start.model.clone(),
        other => panic!("{other:?}"),
    }
}

/// The hashes and models of the recorded calls.
pub(super) async fn recorded_calls(session: &Fixture) -> Vec<(String, String)> {
    let events = session.events().await;
    events
        .into_iter()
        .filter_map(|event| match event.body {
            EventBody::ModelCall(Some(call)) => Some((call.input_hash, call.model)),
            _ => None,
        })
        .collect()
}

pub(super) fn hash(model: &str) -> String {
    input_hash(&request(model)).unwrap().to_string()
}

/// Under a policy the default is recorded, handed to the run, and what an empty request is for.
async fn s01_default(session: Fixture) {
    let placed = session.place(asking_for(&["", "second"])).await;
    let controller = under(&session, Some(allowing(&["first", "second"])), "").await;
    controller.exec(&placed.harness, turn(&[])).await.unwrap();
    assert_eq!(session.kinds().await, "ES MC OUT MC OUT END");
    assert_eq!(recorded_default(&session, 0).await, "first");
    assert_eq!(placed.probe.seen()[0].model, "first");
    let calls = [(hash("first"), "first".to_owned()), (hash("second"), "second".to_owned())];
    assert_eq!(recorded_calls(&session).await, calls);
    let asked: Vec<_> = session.model.asked().into_iter().map(|asked| asked.model).collect();
    assert_eq!(asked, ["first", "second"]);
    session.replay_check(&placed, 1, &["echo:hello", "echo:hello"]).await;
    assert_eq!(placed.probe.seen()[1].model, "first", "a replay is given the recorded one");
}

/// Nothing was recorded and nobody was run.
async fn refused_at_exec(
    session: &Fixture,
    placed: &Placed,
    (policy, default): (ModelPolicy, &str),
) -> ControllerError {
    let (head, runs) = (session.head().await, placed.runs());
    let controller = under(session, Some(policy), default).await;
    let error = controller.exec(&placed.harness, turn(&["hello"])).await.unwrap_err();
    assert_eq!((session.head().await, placed.runs(), session.model.calls()), (head, runs, 0));
    error
}

/// A session's default is recorded if it is allowed and refused if not; without a policy it is ignored.
async fn s02_session_default(session: Fixture) {
    let policy = || allowing(&["first", "second"]);
    let placed = session.place(asking_for(&[""])).await;
    for default in ["third", "First", " "] {
        let error = refused_at_exec(&session, &placed, (policy(), default)).await;
        assert!(matches!(&error, ControllerError::ModelNotAllowed(model) if model == default));
    }
    let controller = under(&session, Some(policy()), "second").await;
    controller.exec(&placed.harness, turn(&[])).await.unwrap();
    assert_eq!(recorded_default(&session, 0).await, "second");
    assert_eq!(recorded_calls(&session).await, [(hash("second"), "second".to_owned())]);

    let free = Fixture::open(session.cell).await;
    let placed = free.place(asking_for(&[""])).await;
    let controller = under(&free, None, "second").await;
    controller.exec(&placed.harness, turn(&[])).await.unwrap();
    assert_eq!(recorded_default(&free, 0).await, "");
    assert_eq!(recorded_calls(&free).await, [(hash(""), String::new())]);
    assert_eq!(placed.probe.seen()[0].model, "");
}

/// Models that a harness names must all be allowed; one that names none widens nothing.
async fn s03_descriptor_outside(session: Fixture) {
    let naming = |models: &'static [&'static str]| {
        asking_for(&[""]).describing(move || async move {
            let models = models.iter().map(ToString::to_string).collect();
            Ok(Descriptor { id: "probe".to_owned(), models, ..Descriptor::default() })
        })
    };
    let policy = || allowing(&["first", "second"]);
    for models in [&["third"][..], &["first", "third"], &[""]] {
        let placed = session.place(naming(models)).await;
        let error = refused_at_exec(&session, &placed, (policy(), "")).await;
        assert_eq!(error.condition(), Condition::ModelNotAllowed, "{models:?}: {error:?}");
    }
    let mut turns = 0;
    for models in [&[][..], &["second"], &["first", "second"]] {
        let placed = session.place(naming(models)).await;
        let controller = under(&session, Some(policy()), "").await;
        controller.exec(&placed.harness, turn(&[])).await.unwrap();
        turns += 1;
        let calls = recorded_calls(&session).await;
        assert_eq!(calls, vec![(hash("first"), "first".to_owned()); turns], "{models:?}");
    }
    // Without a policy what it names is nothing to us.
    let placed = session.place(naming(&["third"])).await;
    session.exec(&placed, &[]).await.unwrap();
}

/// A policy that is ill-formed is refused before anything is recorded; a replay does not look at it.
async fn s06_invalid_policies(session: Fixture) {
    let placed = session.place(asking_for(&["first"])).await;
    session.exec(&placed, &[]).await.unwrap();
    let policy = |default: &str, allowed: &[&str]| ModelPolicy {
        default: default.to_owned(),
        allowed: allowed.iter().map(ToString::to_string).collect(),
    };
    let all = [
        policy("", &["first"]),
        policy("", &[]),
        policy("second", &["first"]),
        policy("first", &["first", ""]),
        policy("first", &[]),
    ];
    for invalid in all {
        let what = format!("{invalid:?}");
        let head = session.head().await;
        // Neither a valid default nor an allowed one mends it.
        for default in ["", "first"] {
            let controller = under(&session, Some(invalid.clone()), default).await;
            let error = controller.exec(&placed.harness, turn(&[])).await.unwrap_err();
            assert_eq!(error.condition(), Condition::InvalidModelPolicy, "{what}: {error:?}");
        }
        assert_eq!(session.head().await, head, "{what}");
        let options = Options { policy: Some(invalid), ..session.options() };
        let controller = Controller::new(session.journal(), options).await.unwrap();
        let replayed = controller.replay(&placed.harness).await.unwrap();
        assert_eq!(replayed.outputs, ["echo:hello"], "{what}");
    }
}

/// A turn that is resumed meets an ill-formed policy at its first live call, and only there.
async fn s06_invalid_at_live_effects_of_a_resume(session: Fixture) {
    let placed = session.place(asking_for(&["", "first"])).await;
    let controller = under(&session, Some(allowing(&["first"])), "").await;
    session.model.respond(|request| async move {
        match request.model.as_str() {
            "first" => Ok(TestModel::echo(&request)),
            _ => Err(TestModel::failure()),
        }
    });
    controller.exec(&placed.harness, turn(&[])).await.unwrap();
    let records = session.records().await;
    for (cut, tail) in [(1, "ES ERR"), (2, "ES MC ERR"), (3, "ES MC OUT ERR")] {
        let cut_session = Fixture::open(session.cell).await;
        cut_session.append_recorded(&records[..cut]).await;
        let controller = under(&cut_session, Some(allowing(&[])), "").await;
        let resumed = controller.resume(&placed.harness, None).await;
        assert!(resumed.resumed);
        let error = resumed.result.unwrap_err();
        assert_eq!(error.condition(), Condition::InvalidModelPolicy, "{cut}: {error:?}");
        assert_eq!(error.code(), "invalid_model_policy");
        assert_eq!((cut_session.kinds().await.as_str(), cut_session.model.calls()), (tail, 0));
    }
    let served = Fixture::open(session.cell).await;
    served.append_recorded(&records[..5]).await;
    let controller = under(&served, Some(allowing(&[])), "").await;
    controller.resume(&placed.harness, None).await.result.unwrap();
    assert_eq!(served.kinds().await, "ES MC OUT MC OUT END");
}

/// Without a policy any model passes as it is, and hashes are what they were.
async fn without_a_policy_nothing_changes(session: Fixture) {
    let placed = session.place(asking_for(&["", "any", "µ"])).await;
    session.exec(&placed, &["hello"]).await.unwrap();
    let calls = ["", "any", "µ"].map(|model| (hash(model), model.to_owned()));
    assert_eq!(recorded_calls(&session).await, calls);
    let text = String::from_utf8(session.records().await[0].canonical.to_vec()).unwrap();
    assert!(!text.contains("\"model\""), "{text}");
    // The hash of the specification's vector.
    let echo = session.place(Probe::new(|_, sink| async move {
        ask(&*sink, "hello").await?;
        Ok(())
    }));
    session.exec(&echo.await, &[]).await.unwrap();
    let vector = "2611c24a1a665deca46265ed96d1e1efc699260c9cba9c07f22cda7939232c30";
    assert_eq!(recorded_calls(&session).await.last().unwrap().0, vector);
    assert_eq!(raw::kinds(&session.events().await[..2]), "ES IN");
}

matrix! {
    run:
    everywhere {
        #[test] fn s01_default;
        #[test] fn s02_session_default;
        #[test] fn s03_descriptor_outside;
        #[test] fn s06_invalid_policies;
        #[test] fn without_a_policy_nothing_changes;
        #[test] fn s06_invalid_at_live_effects_of_a_resume;
    }
}
