//! One session of a million records.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mainspring_api::{Harness, Head, Message};
use mainspring_controller::{ControllerError, Turn};
use mainspring_harness::Echo;
use mainspring_testkit::append_turns;
use mainspring_testkit::scale::{Phases, in_child};
use mainspring_transport_grpc::{HarnessExtensions, LinkOptions};

use crate::host::{Host, Reader, connect, served, turn, turn_asking};

const RECORDS: u64 = 1_000_000;
const TURNS: u64 = RECORDS / 5;

/// The largest message of a host that has no history by range.
const PLAIN_BYTES_MAX: usize = 4 << 20;

/// Replayed, and gone on with in process and over the wire, also by a harness
/// that reads all of it: the whole takes no more memory than a short one does.
#[test]
fn a_million_records_are_replayed_and_resumed_in_bounded_memory() {
    const NAME: &str = "long_session::a_million_records_are_replayed_and_resumed_in_bounded_memory";
    in_child(NAME, async |dir| {
        let path = dir.path().join("long.redb");
        let host = Host::create(&path).await;
        let echo: Arc<dyn Harness> = Arc::new(Echo);
        let mut phases = Phases::start();
        append_turns(&*host.log, &host.uid, Head::EMPTY, 0..TURNS, 500, turn).await.unwrap();
        phases.done("append", &path);

        let served_outputs = Arc::<AtomicU64>::default();
        let count = Arc::clone(&served_outputs);
        let on_output = Arc::new(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        let turns = host.reader().replay_into(&echo, on_output).await.unwrap();
        assert_eq!((turns, served_outputs.load(Ordering::Relaxed)), (TURNS, TURNS));
        phases.done("replay", &path);

        // A host that has not seen the journal yet, and a turn cut after its model call.
        let host = Host::again(host);
        host.append(turn(TURNS)[..3].to_vec()).await;
        host.resume(&echo).await;
        assert_eq!(host.head().await.seq.get(), RECORDS + 5);
        phases.done("resume, in process", &path);

        let host = Host::again(host);
        let history = RECORDS + 5;
        let asks = format!("{history} events");
        host.append(turn_asking(TURNS + 1, &asks)[..3].to_vec()).await;
        let address = served(Arc::new(Reader), &dir.path().join("reader.sock")).await;
        let reader = connect(&address, LinkOptions::default()).await;
        host.resume(&reader).await;
        assert_eq!(host.head().await.seq.get(), history + 5);
        phases.done("resume over the wire, reading all of the history", &path);

        let mut plain = LinkOptions::default();
        plain.harness_extensions = HarnessExtensions::NONE;
        plain.message_bytes_max = PLAIN_BYTES_MAX;
        let reader = connect(&address, plain).await;
        let next = Turn::new(vec![Message::user("go")]);
        let refused = host.controller().await.exec(&reader, next).await.unwrap_err();
        let ControllerError::Run(refused) = refused else { panic!("{refused}") };
        assert!(refused.is(mainspring_api::Condition::StartTooLarge), "{refused}");
        assert_eq!(host.head().await.seq.get(), history + 5, "nothing was recorded");
        phases.done("a new turn over the wire, refused without history by range", &path);
        phases.check();
    });
}
