//! One turn of a hundred thousand effects.

use std::sync::Arc;

use mainspring_api::{
    Descriptor, EndState, Event, EventBody, EventSink, Harness, HarnessError, Head, Message, Start,
    async_trait,
};
use mainspring_harness::Echo;
use mainspring_testkit::scale::{Phases, in_child};
use mainspring_testkit::{append_turns, sample};
use mainspring_transport_grpc::LinkOptions;

use crate::host::{Host, connect, served};

const EFFECTS: u64 = 100_000;

/// Of one output: all of them are more than a host may hold.
const TEXT_BYTES: usize = 1_000;

fn text(number: u64) -> String {
    format!("{number:0>TEXT_BYTES$}")
}

/// Makes that many outputs.
#[derive(Debug)]
struct Talker;

#[async_trait]
impl Harness for Talker {
    async fn describe(&self) -> Result<Descriptor, HarnessError> {
        Echo.describe().await
    }

    async fn run(&self, _start: Start, sink: Arc<dyn EventSink>) -> Result<(), HarnessError> {
        for number in 0..EFFECTS {
            sink.output(text(number)).await?;
        }
        Ok(())
    }
}

/// What is recorded of a turn is served as it is asked for, and never held at once.
#[test]
fn a_turn_of_a_hundred_thousand_effects_is_resumed_in_bounded_memory() {
    const NAME: &str =
        "long_turn::a_turn_of_a_hundred_thousand_effects_is_resumed_in_bounded_memory";
    in_child(NAME, async |dir| {
        let path = dir.path().join("turn.redb");
        let mut host = Host::create(&path).await;
        let address = served(Arc::new(Talker), &dir.path().join("talker.sock")).await;
        let wired = connect(&address, LinkOptions::default()).await;
        let in_process: Arc<dyn Harness> = Arc::new(Talker);
        let mut phases = Phases::start();
        for (what, turn, harness) in [("in process", 0, in_process), ("over the wire", 1, wired)] {
            let execution = sample::execution(turn);
            let of = |body| Event::in_execution(&execution, body);
            let input = of(EventBody::Input(Some(Message::user("go"))));
            let at = host.append(vec![sample::start(&execution, 1), input]).await;
            // All but the last one.
            let output =
                |number| vec![of(EventBody::Output(Some(Message::assistant(text(number)))))];
            append_turns(&*host.log, &host.uid, at, 0..EFFECTS - 1, 1_000, output).await.unwrap();
            phases.done("append", &path);
            host = Host::again(host);
            host.resume(&harness).await;
            let head: Head = host.head().await;
            assert_eq!(head.seq.get(), (turn + 1) * (EFFECTS + 3));
            phases.done(&format!("resume, {what}"), &path);
        }
        let row = host.log.get(&host.uid, mainspring_eventlog::Level::Strict).await.unwrap();
        let end = row.view.latest.and_then(|latest| latest.end);
        assert_eq!(end.map(|(_, state)| state), Some(Some(EndState::Completed)));
        phases.check();
    });
}
