//! A journal of many executions, some failed, some interleaved, replayed in order.

use std::sync::Arc;

use mainspring_api::{
    Descriptor, EndState, Event, EventSink, Harness, HarnessError, Message, Start, async_trait,
};
use mainspring_controller::Controller;
use mainspring_testkit::sample;

use crate::support::Fixture;
use crate::support::raw::{self, execution};

const EXECUTIONS: u64 = 5_000;

/// Says its input, and looks at no history: this is about which turns are run.
#[derive(Debug)]
struct Repeating;

#[async_trait]
impl Harness for Repeating {
    async fn describe(&self) -> Result<Descriptor, HarnessError> {
        Err(HarnessError::failed("nobody asks: the turns name no harness"))
    }

    async fn run(&self, start: Start, sink: Arc<dyn EventSink>) -> Result<(), HarnessError> {
        let text: Vec<_> = start.inputs.iter().map(Message::plain_text).collect();
        sink.output(format!("{}:{}", start.execution_id, text.join(","))).await?;
        Ok(())
    }
}

fn said(number: u64) -> String {
    format!("{}:input {number}", execution(number))
}

/// How a turn went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Went {
    Well,
    Failed,
    Canceled,
    Nowhere,
}

/// Executions in an order of ids that is not that of their numbers.
fn went(number: u64) -> Went {
    match number % 10 {
        3 => Went::Failed,
        5 => Went::Canceled,
        8 => Went::Nowhere,
        _ => Went::Well,
    }
}

fn id_of(position: u64) -> u64 {
    position * 7_919 % EXECUTIONS
}

fn opening(number: u64) -> Vec<Event> {
    let id = execution(number);
    vec![raw::start(&id, Some(1)), raw::input(&id, &format!("input {number}"))]
}

fn closing(number: u64) -> Vec<Event> {
    let id = execution(number);
    let output = raw::output(&id, &said(number));
    match went(number) {
        Went::Well => vec![output, raw::end(&id)],
        Went::Failed => vec![output, raw::error(&id, "failed")],
        Went::Canceled => vec![output, sample::end(&id, EndState::Canceled)],
        Went::Nowhere => vec![output],
    }
}

/// Every completed execution is run once, by first appearance, with its own input and id.
async fn many_executions_replay_in_order(session: Fixture) {
    let mut expected = Vec::new();
    let mut events = Vec::new();
    for first in (0..EXECUTIONS).step_by(4) {
        let numbers = [0, 1, 2, 3].map(|offset| id_of(first + offset));
        let [a, b, c, d] = numbers;
        // Two that are interleaved, the first of which ends last, then two in a row.
        for part in [opening(a), opening(b), closing(b), closing(a)] {
            events.extend(part);
        }
        for part in [opening(c), closing(c), opening(d), closing(d)] {
            events.extend(part);
        }
        expected.extend(numbers.into_iter().filter(|number| went(*number) == Went::Well));
        if events.len() > 900 {
            session.append(std::mem::take(&mut events)).await;
        }
    }
    session.append(events).await;
    let expected: Vec<_> = expected.into_iter().map(said).collect();
    assert_eq!(expected.len() as u64, EXECUTIONS / 10 * 7);
    let head = session.head().await;
    let controller = Controller::reader(session.journal(), session.options());
    let harness: Arc<dyn Harness> = Arc::new(Repeating);
    let replayed = controller.replay(&harness).await.unwrap();
    assert_eq!(replayed.turns, expected.len() as u64);
    assert_eq!((replayed.outputs, replayed.model_calls), (expected, 0));
    assert_eq!((session.head().await, session.model.calls()), (head, 0));
}

mod in_process_memory {
    use crate::support::{Cell, Kept, Reach, run};

    #[test]
    fn many_executions_replay_in_order() {
        let cell = Cell { reach: Reach::InProcess, kept: Kept::Memory };
        run(cell, super::many_executions_replay_in_order);
    }
}
