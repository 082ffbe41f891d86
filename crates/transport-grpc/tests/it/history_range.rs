//! History by range: complete, in bounded memory, beside other effects.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::FutureExt as _;
use mainspring_api::{
    CancelReason, Classify as _, Event, EventBody, EventSink, HarnessError, History, HistoryError,
    Message, SinkError, Start, Usage, async_trait,
};
use mainspring_transport_grpc::LinkOptions;
use mainspring_wire::v1::controller_frame::Frame;
use mainspring_wire::{HistoryRequest, v1};
use tokio::sync::mpsc;

use crate::address_book::{BOTH, Over, Running};
use crate::harness_extensions::{admitted, offering};
use crate::raw::{Events, Frames, RawHost, completed, connect_with, envelope, serve_raw_with};
use crate::script::{Recorder, Script, ask, start};

/// Numbered events of `text` bytes, and the most that were asked for at once.
#[derive(Debug)]
struct Numbered {
    len: u64,
    text: usize,
    at_once: AtomicUsize,
}

impl Numbered {
    fn new(len: u64, text: usize) -> Arc<Self> {
        Arc::new(Self { len, text, at_once: AtomicUsize::new(0) })
    }
}

fn numbered(n: u64, text: usize) -> Event {
    let text = format!("{n}:{}", "x".repeat(text));
    Event::of(EventBody::Input(Some(Message::user(text))))
}

fn number(event: &Event) -> u64 {
    let EventBody::Input(Some(message)) = &event.body else {
        panic!("{event:?}");
    };
    message.plain_text().split(':').next().unwrap().parse().unwrap()
}

#[async_trait]
impl History for Numbered {
    fn len(&self) -> u64 {
        self.len
    }

    async fn range(&self, from: u64, limit: usize) -> Result<Vec<Event>, HistoryError> {
        self.at_once.fetch_max(limit, Ordering::Relaxed);
        let end = self.len.min(from.saturating_add(limit as u64));
        Ok((from..end).map(|n| numbered(n, self.text)).collect())
    }
}

/// A harness that reads it all, asking for as much as it gets, and says what
/// it saw: how many events, and the most that came at once.
fn reader() -> Arc<Script> {
    Script::new(async |start: Start, sink: Arc<dyn EventSink>| {
        let (mut next, mut at_once) = (0, 0);
        loop {
            let page = start.history.range(next, usize::MAX).await?;
            if page.is_empty() {
                break;
            }
            for event in &page {
                assert_eq!(number(event), next);
                next += 1;
            }
            at_once = at_once.max(page.len());
        }
        assert_eq!(next, start.history.len());
        sink.output(format!("{next} {at_once}")).await?;
        Ok(())
    })
}

async fn read_all(over: Over, history: Arc<Numbered>) -> Vec<String> {
    let running = Running::harness(over, reader()).await;
    let connection = admitted(&running.address).await;
    let sink = Arc::new(Recorder::default());
    let begin = Start { history, ..start() };
    let harness = connection.harness();
    harness.check_start(&begin).await.unwrap();
    harness.run(begin, Arc::clone(&sink) as Arc<_>).await.unwrap();
    sink.calls()
}

#[tokio::test]
async fn a_hundred_thousand_events_are_read_a_page_at_a_time() {
    for over in BOTH {
        let history = Numbered::new(100_000, 10);
        let calls = read_all(over, Arc::clone(&history)).await;
        assert_eq!(calls, ["(\"output\", \"100000 256\")"]);
        assert_eq!(history.at_once.load(Ordering::Relaxed), 256);
    }
}

#[tokio::test]
async fn large_events_come_fewer_at_a_time() {
    let calls = read_all(Over::Unix, Numbered::new(300, 100_000)).await;
    assert_eq!(calls, ["(\"output\", \"300 10\")"]);
    // One that is larger than a page comes alone.
    let calls = read_all(Over::Unix, Numbered::new(3, 3_000_000)).await;
    assert_eq!(calls, ["(\"output\", \"3 1\")"]);
    let calls = read_all(Over::Unix, Numbered::new(0, 0)).await;
    assert_eq!(calls, ["(\"output\", \"0 0\")"]);
}

#[tokio::test]
async fn a_page_stays_within_the_message_limit() {
    let running = Running::harness(Over::Unix, reader()).await;
    let run = async |history: Arc<Numbered>| {
        let mut options = LinkOptions::default();
        options.message_bytes_max = 2000;
        let connection = connect_with(&running.address, &[], options).await;
        let harness = connection.harness();
        harness.describe().await.unwrap();
        let sink = Arc::new(Recorder::default());
        let begin = Start { history, ..start() };
        let run = harness.run(begin, Arc::clone(&sink) as Arc<_>).await;
        (run, sink.calls())
    };
    // Sizes around the limit, so that framing is counted to the byte or above.
    for text in (350..450).chain([900, 1800, 1900]) {
        let (run, calls) = run(Numbered::new(20, text)).await;
        run.unwrap();
        assert!(calls[0].starts_with("(\"output\", \"20 "), "{calls:?}");
    }
    let (run, calls) = run(Numbered::new(20, 2000)).await;
    let Err(HarnessError::Sink(SinkError::TooLarge { what, bytes, bytes_max })) = run else {
        panic!("{run:?}");
    };
    assert_eq!(what, "event of the history");
    assert!((2000..2100).contains(&bytes) && (1900..2000).contains(&bytes_max));
    assert!(calls.is_empty());
}

#[tokio::test]
async fn reading_goes_on_beside_other_effects() {
    let script = Script::new(async |start: Start, sink: Arc<dyn EventSink>| {
        let history = Arc::clone(&start.history);
        let reading = tokio::spawn(async move {
            let mut next = 0;
            while next < history.len() {
                let page = history.range(next, 7).await.unwrap();
                assert!(page.iter().map(number).eq(next..next + page.len() as u64));
                next += page.len() as u64;
            }
            next
        });
        for n in 0..50 {
            let reply = sink.model(ask(&n.to_string())).await?;
            assert_eq!(reply.message.plain_text(), format!("echo:{n}"));
            sink.output(n.to_string()).await?;
        }
        assert_eq!(reading.await.unwrap(), 500);
        Ok(())
    });
    let running = Running::harness(Over::Unix, script).await;
    let connection = admitted(&running.address).await;
    let sink = Arc::new(Recorder::default());
    let begin = Start { history: Numbered::new(500, 10), ..start() };
    connection.harness().run(begin, Arc::clone(&sink) as Arc<_>).await.unwrap();
    assert_eq!(sink.calls().len(), 100);
}

#[tokio::test]
async fn a_reader_that_is_dropped_half_way_disturbs_nobody() {
    let script = Script::new(async |start: Start, sink: Arc<dyn EventSink>| {
        // Polled once, so that the request is on its way.
        assert!(start.history.range(0, 5).now_or_never().is_none());
        tokio::task::yield_now().await;
        sink.model(ask("x")).await?;
        assert_eq!(start.history.range(3, 2).await?.len(), 2);
        Ok(())
    });
    let running = Running::harness(Over::Unix, script).await;
    let connection = admitted(&running.address).await;
    let begin = Start { history: Numbered::new(10, 10), ..start() };
    connection.harness().run(begin, Arc::new(Recorder::default())).await.unwrap();
}

#[tokio::test]
async fn history_is_closed_with_its_run() {
    let kept = Arc::new(Mutex::new(None));
    let script = {
        let kept = Arc::clone(&kept);
        Script::new(move |start: Start, _| {
            *kept.lock().unwrap() = Some(start.history);
            async { Ok(()) }
        })
    };
    let running = Running::harness(Over::Unix, script).await;
    let connection = admitted(&running.address).await;
    let begin = Start { history: Numbered::new(10, 10), ..start() };
    connection.harness().run(begin, Arc::new(Recorder::default())).await.unwrap();
    let history = kept.lock().unwrap().take().unwrap();
    let error = history.range(0, 1).await.unwrap_err();
    assert_eq!(error.code(), "sink_closed");
    assert_eq!(error.to_string(), "history: sink is closed: the run has ended");
}

/// Runs a raw harness that asks for one page of ten events, with `request`.
async fn asked(offers: &'static str, request: HistoryRequest) -> Result<v1::HistoryPage, String> {
    let (tell, mut told) = mpsc::unbounded_channel();
    let (address, _) = serve_raw_with(offering(offers), move |mut frames: Frames, out: Events| {
        let tell = tell.clone();
        async move {
            frames.message().await.unwrap().unwrap();
            let execution = mainspring_api::ExecutionId::new("exec").unwrap();
            let _ = out.send(Ok(request.in_execution(&execution))).await;
            if let Ok(Some(v1::ControllerFrame { frame: Some(Frame::HistoryPage(page)), .. })) =
                frames.message().await
            {
                tell.send(page).unwrap();
                let _ = out.send(Ok(completed())).await;
            }
            drop(out);
        }
    })
    .await;
    let connection = admitted(&address).await;
    let begin = Start { history: Numbered::new(1000, 10), ..start() };
    match connection.harness().run(begin, Arc::new(Recorder::default())).await {
        Ok(()) => Ok(told.recv().await.unwrap()),
        Err(HarnessError::Protocol { message }) => Err(message),
        Err(other) => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_may_be_asked_for() {
    let page = async |from_seq, limit| {
        let page = asked("history-range", HistoryRequest { from_seq, limit }).await;
        page.map(|page| (page.from_seq, page.events.len(), page.end))
    };
    assert_eq!(page(1, 1).await, Ok((1, 1, false)));
    assert_eq!(page(1, i32::MAX).await, Ok((1, 256, false)), "cut to a page");
    assert_eq!(page(1000, 5).await, Ok((1000, 1, true)));
    assert_eq!(page(991, 10).await, Ok((991, 10, true)));
    for from_seq in [0, -1, i64::MIN, 1001, i64::MAX] {
        let error = page(from_seq, 1).await.unwrap_err();
        assert_eq!(error, format!("history was asked for from seq {from_seq}, it is 1 to 1000"));
    }
    for limit in [0, -1, i32::MIN] {
        let error = page(1, limit).await.unwrap_err();
        assert_eq!(error, format!("history was asked for {limit} events"));
    }
    let request = HistoryRequest { from_seq: 1, limit: 1 };
    let error = asked("failure-replies", request).await.unwrap_err();
    assert_eq!(error, "history was asked for by range, which was not agreed on");
}

#[tokio::test]
async fn a_history_that_fails_ends_the_turn() {
    /// Says that it has events, and has none.
    #[derive(Debug)]
    struct Short;

    #[async_trait]
    impl History for Short {
        fn len(&self) -> u64 {
            5
        }
        async fn range(&self, _: u64, _: usize) -> Result<Vec<Event>, HistoryError> {
            Ok(Vec::new())
        }
    }

    let running = Running::harness(Over::Unix, reader()).await;
    let connection = admitted(&running.address).await;
    let begin = Start { history: Arc::new(Short), ..start() };
    let run = connection.harness().run(begin, Arc::new(Recorder::default())).await;
    assert!(matches!(run, Err(HarnessError::History(_))), "{run:?}");
}

/// A harness that reads once, then tries another effect, and tells both errors.
fn once() -> (Arc<Script>, mpsc::UnboundedReceiver<String>) {
    let (tell, told) = mpsc::unbounded_channel();
    let script = Script::new(move |start: Start, sink: Arc<dyn EventSink>| {
        let tell = tell.clone();
        async move {
            let read = start.history.range(0, 3).await.map(|events| events.len());
            tell.send(format!("{read:?}")).unwrap();
            let used = sink.usage(Usage::default()).await;
            tell.send(used.map_or_else(|error| error.to_string(), |()| "used".to_owned())).unwrap();
            Ok(())
        }
    });
    (script, told)
}

async fn host_of(running: &Running) -> RawHost {
    let start = v1::Start { history_head: 5, ..Default::default() };
    let first = envelope(Frame::Start(start));
    let mut host =
        RawHost::open_with(&running.address, "history-range", Some(first)).await.unwrap();
    let request = HistoryRequest::of(&host.wire().await).unwrap().unwrap();
    assert_eq!(request, HistoryRequest { from_seq: 1, limit: 3 });
    host
}

#[tokio::test]
async fn a_page_of_something_else_is_refused_and_sticks() {
    let page = |from_seq, events, end| {
        let events = (0..events).map(|n| numbered(n, 1).try_into().unwrap()).collect();
        Frame::HistoryPage(v1::HistoryPage { from_seq, events, end })
    };
    let another = "page of the history is another one";
    let rows = [
        (page(2, 3, false), another),
        (page(1, 0, false), another),
        (page(1, 4, false), another),
        (page(1, 3, true), another),
        (Frame::Tool(v1::ToolResult::default()), "expected history_page, got tool"),
    ];
    for (frame, words) in rows {
        let (script, mut told) = once();
        let running = Running::harness(Over::Tcp, script).await;
        let mut host = host_of(&running).await;
        host.send(frame).await;
        assert!(told.recv().await.unwrap().contains(words), "{words}");
        assert!(told.recv().await.unwrap().contains(words), "{words}");
        assert!(host.rest().await.1.is_err());
    }
    let (script, mut told) = once();
    let running = Running::harness(Over::Tcp, script).await;
    let mut host = host_of(&running).await;
    host.send(page(1, 3, false)).await;
    assert_eq!(told.recv().await.unwrap(), "Ok(3)");
    assert_eq!(told.recv().await.unwrap(), "used");
    host.rest().await.1.unwrap();
}

#[tokio::test]
async fn a_cancel_ends_a_reader_that_waits() {
    let (tell, mut told) = mpsc::unbounded_channel();
    let script = Script::new(move |start: Start, _| {
        let tell = tell.clone();
        async move {
            tokio::spawn(async move {
                for _ in 0..2 {
                    let error = start.history.range(0, 3).await.unwrap_err();
                    tell.send(error.code()).unwrap();
                }
            });
            std::future::pending().await
        }
    });
    let running = Running::harness(Over::Tcp, script).await;
    let mut host = host_of(&running).await;
    host.send(Frame::Cancel(v1::Cancel { reason: "USER".to_owned() })).await;
    assert_eq!(told.recv().await.unwrap(), "cancelled");
    assert_eq!(told.recv().await.unwrap(), "cancelled", "and after it");
    assert!(host.rest().await.1.is_err());
}

#[tokio::test]
async fn a_request_after_a_cancel_gets_no_answer() {
    let (tell, mut told) = mpsc::unbounded_channel();
    let (ready, mut started) = mpsc::unbounded_channel();
    let (address, _) =
        serve_raw_with(offering("history-range"), move |mut frames: Frames, out: Events| {
            let (tell, ready) = (tell.clone(), ready.clone());
            async move {
                frames.message().await.unwrap().unwrap();
                ready.send(()).unwrap();
                let cancel = frames.message().await.unwrap().unwrap().frame;
                assert!(matches!(cancel, Some(Frame::Cancel(_))));
                let request = HistoryRequest { from_seq: 1, limit: 1 };
                let execution = mainspring_api::ExecutionId::new("exec").unwrap();
                let _ = out.send(Ok(request.in_execution(&execution))).await;
                tell.send(frames.message().await.unwrap().is_none()).unwrap();
            }
        })
        .await;
    let connection = admitted(&address).await;
    let harness = connection.harness();
    let history = Numbered::new(10, 10);
    let begin = Start { history: Arc::clone(&history) as Arc<_>, ..start() };
    let run = tokio::spawn(async move { harness.run(begin, Arc::new(Recorder::default())).await });
    started.recv().await.unwrap();
    connection.cancel_signal().set(CancelReason::User);
    assert!(told.recv().await.unwrap(), "the host closes its side without another frame");
    let run = run.await.unwrap();
    assert!(matches!(run, Err(HarnessError::Sink(SinkError::Canceled(CancelReason::User)))));
    assert_eq!(history.at_once.load(Ordering::Relaxed), 0, "nothing was read");
}

/// A history whose pages never come.
#[derive(Debug)]
struct Stuck(mpsc::UnboundedSender<()>);

#[async_trait]
impl History for Stuck {
    fn len(&self) -> u64 {
        5
    }

    async fn range(&self, _: u64, _: usize) -> Result<Vec<Event>, HistoryError> {
        self.0.send(()).unwrap();
        std::future::pending().await
    }
}

#[tokio::test]
async fn a_cancel_wins_over_a_read_that_hangs() {
    let (reading, mut read) = mpsc::unbounded_channel();
    let running = Running::harness(Over::Unix, reader()).await;
    let connection = admitted(&running.address).await;
    let harness = connection.harness();
    let begin = Start { history: Arc::new(Stuck(reading)), ..start() };
    let run = tokio::spawn(async move { harness.run(begin, Arc::new(Recorder::default())).await });
    read.recv().await.unwrap();
    connection.cancel_signal().set(CancelReason::Timeout);
    let run = run.await.unwrap();
    assert!(matches!(run, Err(HarnessError::Sink(SinkError::Canceled(CancelReason::Timeout)))));
}
