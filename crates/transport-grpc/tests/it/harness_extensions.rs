//! What is agreed on beside the contract, and that nothing is without it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mainspring_api::{
    Descriptor, Event, EventBody, EventSink, Harness, HarnessConnection, HarnessError, History,
    HistoryError, Message, SinkError, Start, ToolResult, Usage, async_trait,
};
use mainspring_transport_grpc::{HarnessExtensions, LinkOptions, ServeOptions};
use mainspring_wire::v1;
use mainspring_wire::v1::controller_frame::Frame;
use prost::Message as _;
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;
use tonic::Code;
use tonic::metadata::MetadataMap;

use crate::address_book::{BOTH, Over, Running};
use crate::raw::{
    Events, Frames, Headers, RawHost, completed, connect, connect_with, envelope, event,
    serve_raw_with, start_frame,
};
use crate::script::{Recorder, Script, descriptor, start};

pub(crate) const ALL: &str = "history-range,failure-replies,descriptor-digest";

/// Connects and asks the harness who it is, as a host does before a turn.
pub(crate) async fn admitted(address: &str) -> HarnessConnection {
    let connection = connect(address).await;
    connection.harness().describe().await.unwrap();
    connection
}

/// What a raw harness says that offers `offers`, with the digest of its descriptor.
pub(crate) fn offering(offers: &'static str) -> Headers {
    let descriptor = v1::HarnessDescriptor { id: "raw".to_owned(), ..Default::default() };
    let digest = Sha256::digest(descriptor.encode_to_vec());
    Headers { offers, digest: digest.iter().map(|byte| format!("{byte:02x}")).collect() }
}

/// A history that must not be read.
#[derive(Debug)]
struct Unread(u64);

#[async_trait]
impl History for Unread {
    fn len(&self) -> u64 {
        self.0
    }

    async fn range(&self, _: u64, _: usize) -> Result<Vec<Event>, HistoryError> {
        panic!("history was read");
    }
}

/// Three events.
#[derive(Debug)]
struct Three;

#[async_trait]
impl History for Three {
    fn len(&self) -> u64 {
        3
    }

    async fn range(&self, from: u64, limit: usize) -> Result<Vec<Event>, HistoryError> {
        let all =
            ["a", "b", "c"].map(|text| Event::of(EventBody::Input(Some(Message::user(text)))));
        Ok(all.into_iter().skip(usize::try_from(from).unwrap()).take(limit).collect())
    }
}

/// Describes, if told to, and runs against a raw harness that completes.
/// Returns its start frame and the metadata of Connect.
async fn opened(
    headers: Headers,
    options: LinkOptions,
    pairs: &[(&str, &str)],
    (describe, history): (bool, Arc<dyn History>),
) -> (v1::Start, MetadataMap) {
    let (tell, mut told) = mpsc::unbounded_channel();
    let (address, mut seen) = serve_raw_with(headers, move |mut frames: Frames, out: Events| {
        let tell = tell.clone();
        async move {
            tell.send(frames.message().await.unwrap().unwrap().frame).unwrap();
            let _ = out.send(Ok(completed())).await;
        }
    })
    .await;
    let connection = connect_with(&address, pairs, options).await;
    let harness = connection.harness();
    if describe {
        harness.describe().await.unwrap();
        seen.recv().await.unwrap();
    }
    let begin = Start { history, ..start() };
    harness.check_start(&begin).await.unwrap();
    harness.run(begin, Arc::new(Recorder::default())).await.unwrap();
    let Some(Some(Frame::Start(start))) = told.recv().await else {
        panic!("no start");
    };
    (start, seen.recv().await.unwrap())
}

#[tokio::test]
async fn without_an_agreement_the_plain_contract_holds() {
    let mut off = LinkOptions::default();
    off.harness_extensions = HarnessExtensions::NONE;
    let on = LinkOptions::default;
    let rows = [
        (Headers::default(), on(), true, "a harness that announces nothing"),
        (offering("time-travel"), on(), true, "a harness that announces something else"),
        (offering(ALL), off, true, "a host that uses nothing"),
        (offering(ALL), on(), false, "a host that never asked"),
    ];
    for (headers, options, describe, row) in rows {
        // Not even routing metadata can name what was not agreed on.
        let pairs = [("x-mainspring-harness", ALL)];
        let three: Arc<dyn History> = Arc::new(Three);
        let (start, metadata) = opened(headers, options, &pairs, (describe, three)).await;
        assert_eq!((start.history.len(), start.history_head), (3, 0), "{row}");
        assert!(metadata.get("x-mainspring-harness").is_none(), "{row}");
    }
}

#[tokio::test]
async fn what_is_agreed_on_is_named_and_the_start_stays_small() {
    let history: Arc<dyn History> = Arc::new(Unread(1_000_000));
    let options = LinkOptions::default();
    let (start, metadata) = opened(offering(ALL), options, &[], (true, history)).await;
    assert_eq!((start.history.len(), start.history_head), (0, 1_000_000));
    assert_eq!(metadata.get("x-mainspring-harness").unwrap(), ALL);
    assert_eq!(start.inputs.len(), 1);

    // Only what both have.
    let mut options = LinkOptions::default();
    options.harness_extensions.failure_replies = false;
    let three: Arc<dyn History> = Arc::new(Three);
    let offers = offering("failure-replies,descriptor-digest");
    let (start, metadata) = opened(offers, options, &[], (true, three)).await;
    assert_eq!((start.history.len(), start.history_head), (3, 0));
    assert_eq!(metadata.get("x-mainspring-harness").unwrap(), "descriptor-digest");
}

#[tokio::test]
async fn inputs_above_the_limit_are_still_refused_before_the_turn() {
    let (address, _) = serve_raw_with(offering(ALL), async |_, _| ()).await;
    let mut options = LinkOptions::default();
    options.message_bytes_max = 1000;
    let connection = connect_with(&address, &[], options).await;
    let harness = connection.harness();
    harness.describe().await.unwrap();
    let begin = Start {
        history: Arc::new(Unread(5)),
        inputs: vec![Message::user("x".repeat(2000))],
        ..start()
    };
    let refused = harness.check_start(&begin).await;
    assert!(
        matches!(refused, Err(HarnessError::StartTooLarge { bytes_max: 1000, .. })),
        "{refused:?}"
    );
}

#[tokio::test]
async fn every_mix_of_switches_runs_the_same_turn() {
    let script = Script::new(async |start: Start, sink: Arc<dyn EventSink>| {
        let events = start.history.range(1, 10).await?;
        sink.output(format!("{} {events:?}", start.history.len())).await?;
        Ok(())
    });
    let mut seen = Vec::new();
    for (over, at_host, at_harness) in [
        (Over::Unix, HarnessExtensions::ALL, HarnessExtensions::ALL),
        (Over::Tcp, HarnessExtensions::ALL, HarnessExtensions::ALL),
        (Over::Unix, HarnessExtensions::NONE, HarnessExtensions::ALL),
        (Over::Unix, HarnessExtensions::ALL, HarnessExtensions::NONE),
    ] {
        let mut serving = ServeOptions::default();
        serving.link.harness_extensions = at_harness;
        let running = Running::harness_with(over, script.clone(), serving).await;
        let mut options = LinkOptions::default();
        options.harness_extensions = at_host;
        let connection = connect_with(&running.address, &[], options).await;
        let harness = connection.harness();
        assert_eq!(harness.describe().await.unwrap(), descriptor());
        let sink = Arc::new(Recorder::default());
        let begin = Start { history: Arc::new(Three), ..start() };
        harness.run(begin, Arc::clone(&sink) as Arc<_>).await.unwrap();
        seen.push(sink.calls());
        connection.close().await.unwrap();
        running.stop().await.unwrap();
    }
    assert!(seen[0][0].starts_with("(\"output\", \"3 [Event"), "{seen:?}");
    assert!(seen.iter().all(|calls| *calls == seen[0]), "{seen:?}");
}

#[tokio::test]
async fn a_harness_refuses_by_name_what_it_does_not_offer() {
    let script = Script::new(async |_, _| Ok(()));
    let mut some = ServeOptions::default();
    some.link.harness_extensions.history_range = false;
    for (options, names, refused) in [
        (ServeOptions::default(), "failure-replies,time-travel", "time-travel"),
        (some, "descriptor-digest,history-range", "history-range"),
    ] {
        let running = Running::harness_with(Over::Tcp, script.clone(), options).await;
        let opened = RawHost::open_with(&running.address, names, Some(start_frame())).await;
        let status = opened.err().expect("refused");
        assert_eq!(status.code(), Code::FailedPrecondition);
        let words = format!("x-mainspring-harness: this harness does not offer {refused}");
        assert_eq!(status.message(), words);
    }
}

#[tokio::test]
async fn a_start_says_what_was_agreed_on() {
    let script = Script::new(async |_, _| Ok(()));
    let running = Running::harness(Over::Tcp, script).await;
    let whole = v1::Start { history: vec![v1::Event::default()], ..Default::default() };
    let head = |history_head| v1::Start { history_head, ..Default::default() };
    for (names, start, words) in [
        ("", head(1), "was not agreed on"),
        ("failure-replies", head(1), "was not agreed on"),
        ("history-range", whole, "carries the history"),
        ("history-range", head(-1), "negative"),
    ] {
        let first = envelope(Frame::Start(start));
        let mut host = RawHost::open_with(&running.address, names, Some(first)).await.unwrap();
        let (events, status) = host.rest().await;
        let status = status.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains(words), "{words}: {}", status.message());
        assert!(events.is_empty());
    }
}

/// A harness of another description.
#[derive(Debug)]
struct Other;

#[async_trait]
impl Harness for Other {
    async fn describe(&self) -> Result<Descriptor, HarnessError> {
        Ok(Descriptor { version: "2".to_owned(), ..descriptor() })
    }

    async fn run(&self, _: Start, sink: Arc<dyn EventSink>) -> Result<(), HarnessError> {
        sink.output("from another".to_owned()).await?;
        Ok(())
    }
}

fn mismatch(run: Result<(), HarnessError>) -> String {
    match run {
        Err(HarnessError::DescriptorMismatch { message }) => message,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn another_harness_at_the_same_address_gets_no_turn() {
    let script = Script::new(async |_, _| Ok(()));
    for over in BOTH {
        let running = Running::harness(over, script.clone()).await;
        let connection = admitted(&running.address).await;
        let harness = connection.harness();
        harness.run(start(), Arc::new(Recorder::default())).await.unwrap();

        let running = running.replace(Arc::new(Other)).await;
        let sink = Arc::new(Recorder::default());
        let run = harness.run(start(), Arc::clone(&sink) as Arc<_>).await;
        assert!(mismatch(run).contains("another descriptor digest"));
        assert!(sink.calls().is_empty(), "no event was handled");

        // Described anew, it is the one that was admitted.
        assert_eq!(harness.describe().await.unwrap().version, "2");
        harness.run(start(), Arc::clone(&sink) as Arc<_>).await.unwrap();
        assert_eq!(sink.calls(), ["(\"output\", \"from another\")"]);
        connection.close().await.unwrap();
        running.stop().await.unwrap();
    }
}

/// Counts how often it is asked who it is.
#[derive(Debug, Default)]
struct Asked(AtomicUsize);

#[async_trait]
impl Harness for Asked {
    async fn describe(&self) -> Result<Descriptor, HarnessError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(descriptor())
    }

    async fn run(&self, _: Start, _: Arc<dyn EventSink>) -> Result<(), HarnessError> {
        Ok(())
    }
}

#[tokio::test]
async fn showing_a_digest_asks_the_harness_no_second_time() {
    let asked = Arc::new(Asked::default());
    let running = Running::harness(Over::Unix, asked.clone()).await;
    let connection = admitted(&running.address).await;
    let harness = connection.harness();
    for _ in 0..2 {
        harness.run(start(), Arc::new(Recorder::default())).await.unwrap();
    }
    assert_eq!(asked.0.load(Ordering::Relaxed), 1);

    // Another process of the same harness was never asked, and asks itself.
    let another = Arc::new(Asked::default());
    let _running = running.replace(another.clone()).await;
    for _ in 0..2 {
        harness.run(start(), Arc::new(Recorder::default())).await.unwrap();
    }
    assert_eq!(another.0.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_digest_that_is_missing_or_wrong_is_seen_before_the_first_event() {
    for (digest, words) in [(String::new(), "shows no"), ("0".repeat(64), "another")] {
        let headers = Headers { digest, ..offering("descriptor-digest") };
        let (address, _) = serve_raw_with(headers, async |mut frames: Frames, out: Events| {
            frames.message().await.unwrap().unwrap();
            let _ = out.send(Ok(event(EventBody::Usage(Some(Usage::default()))))).await;
            let _ = out.send(Ok(completed())).await;
        })
        .await;
        let connection = admitted(&address).await;
        let sink = Arc::new(Recorder::default());
        let run = connection.harness().run(start(), Arc::clone(&sink) as Arc<_>).await;
        assert!(mismatch(run).contains(words));
        assert!(sink.calls().is_empty());
    }
}

#[tokio::test]
async fn a_host_that_was_not_promised_a_digest_asks_for_none() {
    let headers = Headers { digest: "0".repeat(64), ..offering("failure-replies") };
    let (address, _) = serve_raw_with(headers, async |_, out: Events| {
        let _ = out.send(Ok(completed())).await;
    })
    .await;
    let connection = admitted(&address).await;
    connection.harness().run(start(), Arc::new(Recorder::default())).await.unwrap();
}

#[tokio::test]
async fn a_report_with_a_forged_receipt_fails_as_such() {
    // Numbers that the domain cannot hold; those that it can are for the controller to judge.
    let forge: [fn(&mut v1::ToolResult); 4] = [
        |result| result.code = 99,
        |result| result.code = -1,
        |result| result.approval_request_seq = -1,
        |result| result.approval_decision_seq = i64::MIN,
    ];
    for forge in forge {
        let report = EventBody::ToolResult(Some(ToolResult::default()));
        let mut wire = event(report);
        let Some(v1::event::Body::Result(result)) = &mut wire.body else {
            panic!("built above");
        };
        forge(result);
        let (address, _) =
            serve_raw_with(Headers::default(), move |mut frames: Frames, out: Events| {
                let wire = wire.clone();
                async move {
                    frames.message().await.unwrap().unwrap();
                    let _ = out.send(Ok(wire)).await;
                    let _ = out.send(Ok(completed())).await;
                }
            })
            .await;
        let connection = connect(&address).await;
        let sink = Arc::new(Recorder::default());
        let run = connection.harness().run(start(), Arc::clone(&sink) as Arc<_>).await;
        assert!(
            matches!(run, Err(HarnessError::Sink(SinkError::ApprovalReceiptReport))),
            "{run:?}"
        );
        assert!(sink.calls().is_empty(), "nothing recorded");
    }
}
