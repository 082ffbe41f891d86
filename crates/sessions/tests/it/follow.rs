//! Following a session.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt as _;
use mainspring_api::{
    BoxStream, Caller, Clock as _, Condition, FollowRequest, FollowUpdate, ForkRequest, Message,
    ModelError, ModelProvider, ModelReply, ModelRequest, Seq, SessionUid, Sessions as _,
    SessionsError, Signal, StreamingModel, Timestamp, Usage, async_trait,
};
use mainspring_eventlog::Level;
use mainspring_sessions::Service;
use mainspring_testkit::sample;
use tokio::time::Instant;

use crate::support::{Drive, World, caller, kind};

type Stream = BoxStream<'static, Result<FollowUpdate, SessionsError>>;

/// Streams as many chunks as it was told for each answer, and waits after half
/// of them where it is told so.
#[derive(Debug, Default)]
struct Streams {
    chunks: Mutex<VecDeque<usize>>,
    half: Signal<()>,
    go: Signal<()>,
    waits: bool,
}

impl Streams {
    fn of(chunks: &[usize]) -> Self {
        Self { chunks: Mutex::new(chunks.iter().copied().collect()), ..Self::default() }
    }
}

#[async_trait]
impl ModelProvider for Streams {
    async fn complete(&self, _: &ModelRequest) -> Result<ModelReply, ModelError> {
        unreachable!("it streams")
    }

    fn streaming(&self) -> Option<&dyn StreamingModel> {
        Some(self)
    }
}

#[async_trait]
impl StreamingModel for Streams {
    async fn stream(
        &self,
        _: &ModelRequest,
        on_chunk: &mut (dyn for<'a> FnMut(&'a str) + Send),
    ) -> Result<ModelReply, ModelError> {
        let chunks = self.chunks.lock().unwrap().pop_front().unwrap_or_default();
        let mut text = String::new();
        for chunk in 0..chunks {
            if self.waits && chunk == chunks / 2 {
                self.half.set(());
                self.go.wait().await;
            }
            on_chunk(&format!("{chunk} "));
            text.push_str(&format!("{chunk} "));
        }
        Ok(ModelReply { message: Message::assistant(text), usage: Usage::default() })
    }
}

fn from(session: &SessionUid, after: u64) -> FollowRequest {
    FollowRequest { session: session.clone(), after_seq: Seq::new(after) }
}

async fn followed(service: &Service, session: &SessionUid, after: u64) -> Stream {
    service.follow(&caller(), from(session, after)).await.unwrap()
}

fn word(update: &FollowUpdate) -> String {
    match update {
        FollowUpdate::Record(record) => format!("{}{}", kind(record), record.seq),
        FollowUpdate::Delta(delta) if delta.done => "done".to_owned(),
        FollowUpdate::Delta(delta) => delta.chunk.trim().to_owned(),
        FollowUpdate::DeltaGap => "GAP".to_owned(),
        FollowUpdate::Heartbeat => "BEAT".to_owned(),
    }
}

/// The next updates, as words.
async fn words(stream: &mut Stream, count: usize) -> String {
    let mut words = Vec::new();
    while words.len() < count {
        words.push(word(&stream.next().await.expect("it goes on").unwrap()));
    }
    words.join(" ")
}

/// How the stream ends: one error, and then nothing.
async fn ending(stream: &mut Stream) -> SessionsError {
    loop {
        match stream.next().await {
            Some(Ok(_)) => {}
            Some(Err(error)) => {
                assert!(stream.next().await.is_none(), "nothing comes after an error");
                return error;
            }
            None => panic!("it ended without a word"),
        }
    }
}

/// Nothing but signs of life.
async fn silent(stream: &mut Stream) {
    let begun = Instant::now();
    assert_eq!(words(stream, 2).await, "BEAT BEAT");
    assert_eq!(begun.elapsed(), Duration::from_secs(30));
}

#[tokio::test(start_paused = true)]
async fn records_come_after_the_cursor_and_then_live() {
    let world = World::new();
    let service = world.service();
    let session = service.created().await;
    service.run(&session, "out a").await;
    for after in 0..=4 {
        let mut stream = followed(&service, &session, after).await;
        let all = ["ES1", "IN2", "OUT3", "END4"];
        let rest = &all[usize::try_from(after).unwrap()..];
        assert_eq!(words(&mut stream, rest.len()).await, rest.join(" "));
        silent(&mut stream).await;
    }
    let mut stream = followed(&service, &session, 3).await;
    service.run(&session, "out b").await;
    assert_eq!(words(&mut stream, 5).await, "END4 ES5 IN6 OUT7 END8");
    // Another host's records come, too.
    world.service().run(&session, "out c").await;
    assert_eq!(words(&mut stream, 4).await, "ES9 IN10 OUT11 END12");
    silent(&mut stream).await;
}

/// Clients of a session see the same one, whoever goes on with it; a fork is
/// another, and says whose it is.
#[tokio::test(start_paused = true)]
async fn b6_all_clients_see_one_session() {
    let world = World::new();
    let (here, there) = (world.service(), world.service());
    let (session, approval) = here.parked(", out a").await;
    let mut streams = [followed(&here, &session, 0).await, followed(&there, &session, 0).await];
    there.decided(&session, &approval, true).await.unwrap();
    assert_eq!(there.resumed(&session).await.last().uid, session);
    here.run(&session, "out b").await;
    for stream in &mut streams {
        assert_eq!(
            words(stream, 15).await,
            "ES1 IN2 TC3 AQ4 SUSPEND5 AR6 TR7 OUT8 OUT9 END10 RESUME11 ES12 IN13 OUT14 END15"
        );
    }
    let sessions = here.list(&caller(), Default::default()).await.unwrap().sessions;
    assert_eq!(sessions.len(), 1, "nothing was split off");
    let fork = ForkRequest {
        session: session.clone(),
        at_seq: 0,
        count: 1,
        labels: Default::default(),
        child_names: Vec::new(),
        identity: None,
    };
    let child = here.fork(&caller(), fork).await.unwrap().remove(0);
    assert_eq!((child.parent_uid, child.fork_seq.get()), (Some(session), 15));
    assert_eq!(words(&mut followed(&there, &child.uid, 14).await, 2).await, "END15 FORK16");
    silent(&mut streams[0]).await;
}

/// A session without records is followed from its first.
#[tokio::test(start_paused = true)]
async fn an_empty_session_is_followed() {
    let world = World::new();
    let service = world.service();
    let session = service.created().await;
    let mut stream = followed(&service, &session, 0).await;
    silent(&mut stream).await;
    service.run(&session, "out a").await;
    assert_eq!(words(&mut stream, 4).await, "ES1 IN2 OUT3 END4");
}

/// A client that was cut goes on where it was: what came meanwhile, in order,
/// then live, and nothing twice.
#[tokio::test(flavor = "multi_thread")]
async fn b16_a_cut_follow_goes_on_without_a_gap() {
    let world = World { model: Arc::new(Streams::of(&[3; 40])), ..World::new() };
    let service = world.service();
    let session = service.created().await;
    let script = (0..40).map(|n| format!("ask, out {n}")).collect::<Vec<_>>().join(", ");
    let (inner, uid) = (service.clone(), session.clone());
    let turn = tokio::spawn(async move { inner.run(&uid, &script).await });
    let mut last = 0;
    let mut kinds = Vec::new();
    'cuts: for cut in 1.. {
        let mut stream = followed(&service, &session, last).await;
        for _ in 0..cut {
            let FollowUpdate::Record(record) = stream.next().await.unwrap().unwrap() else {
                continue;
            };
            assert_eq!(record.seq.get(), last + 1);
            last += 1;
            kinds.push(kind(&record));
            if kinds.last() == Some(&"END") {
                break 'cuts;
            }
        }
    }
    turn.await.unwrap();
    assert_eq!(kinds.join(" "), world.journal(&session).await);
}

#[tokio::test(start_paused = true)]
async fn deltas_come_before_the_record_that_they_make() {
    let world = World { model: Arc::new(Streams::of(&[2, 1])), ..World::new() };
    let service = world.service();
    let session = service.created().await;
    let mut stream = followed(&service, &session, 0).await;
    let (_, shown) = tokio::join!(service.run(&session, "ask, ask"), words(&mut stream, 12));
    assert_eq!(shown, "ES1 IN2 ?3 0 1 done OUT4 ?5 0 done OUT6 END7");
    // The next turn's come on the same stream.
    let shown = tokio::join!(service.run(&session, "ask"), words(&mut stream, 6)).1;
    assert_eq!(shown, "ES8 IN9 ?10 done OUT11 END12");
    silent(&mut stream).await;
}

/// Who comes in the middle of an output is told that there was more of it.
#[tokio::test(start_paused = true)]
async fn a_gap_says_that_deltas_were_left_out() {
    let model = Arc::new(Streams { waits: true, ..Streams::of(&[4]) });
    let world = World { model: Arc::clone(&model) as _, ..World::new() };
    let service = world.service();
    let session = service.created().await;
    let (inner, uid) = (service.clone(), session.clone());
    let turn = tokio::spawn(async move { inner.run(&uid, "ask").await });
    model.half.wait().await;
    let mut late = followed(&service, &session, 0).await;
    assert_eq!(words(&mut late, 4).await, "ES1 IN2 ?3 GAP");
    let mut later = followed(&service, &session, 3).await;
    model.go.set(());
    assert_eq!(words(&mut late, 5).await, "2 3 done OUT4 END5");
    assert_eq!(words(&mut later, 6).await, "GAP 2 3 done OUT4 END5");
    turn.await.unwrap();
}

/// A reader that does not read loses deltas, and is told so, but no record.
#[tokio::test(start_paused = true)]
async fn a_slow_reader_loses_no_record() {
    let world = World { model: Arc::new(Streams::of(&[2_000, 3])), ..World::new() };
    let service = world.service();
    let session = service.created().await;
    let mut stream = followed(&service, &session, 0).await;
    service.run(&session, &format!("{}ask, ask", "out a, ".repeat(700))).await;
    let mut records = Vec::new();
    let mut deltas = 0;
    while records.last() != Some(&"END") {
        match stream.next().await.unwrap().unwrap() {
            FollowUpdate::Record(record) => {
                records.push(kind(&record));
                assert_eq!(record.seq.get(), records.len() as u64);
            }
            FollowUpdate::Delta(_) => deltas += 1,
            FollowUpdate::DeltaGap | FollowUpdate::Heartbeat => {}
        }
    }
    assert_eq!(records.len(), 2 + 700 + 2 * 2 + 1);
    assert!(deltas <= 512, "what waits for it is bounded: {deltas}");
    silent(&mut stream).await;
}

/// A reader that falls behind within an output is told where it goes on.
#[tokio::test(start_paused = true)]
async fn a_reader_that_falls_behind_is_told_of_the_gap() {
    let model = Arc::new(Streams { waits: true, ..Streams::of(&[4, 2_000]) });
    let world = World { model: Arc::clone(&model) as _, ..World::new() };
    let service = world.service();
    let session = service.created().await;
    let mut stream = followed(&service, &session, 0).await;
    let (inner, uid) = (service.clone(), session.clone());
    let turn = tokio::spawn(async move { inner.run(&uid, "ask, ask").await });
    model.half.wait().await;
    assert_eq!(words(&mut stream, 4).await, "ES1 IN2 ?3 GAP");
    model.go.set(());
    turn.await.unwrap();
    // The end and two records are among what waits for it.
    let kept = (1_492..2_000).map(|chunk| chunk.to_string()).collect::<Vec<_>>().join(" ");
    let shown = words(&mut stream, 3 + 508 + 3).await;
    assert_eq!(shown, format!("OUT4 ?5 GAP {kept} done OUT6 END7"));
    silent(&mut stream).await;
}

#[tokio::test(start_paused = true)]
async fn b25_a_parked_session_is_followed_in_silence() {
    let world = World::new();
    let service = world.service();
    let (session, approval) = service.parked("").await;
    let mut stream = followed(&service, &session, 0).await;
    assert_eq!(words(&mut stream, 5).await, "ES1 IN2 TC3 AQ4 SUSPEND5");
    silent(&mut stream).await;
    service.decided(&session, &approval, true).await.unwrap();
    service.resumed(&session).await;
    assert_eq!(words(&mut stream, 5).await, "AR6 TR7 OUT8 END9 RESUME10");
}

/// Errors come before the stream.
#[tokio::test(start_paused = true)]
async fn b19_a_cursor_of_another_session_is_refused() {
    let world = World::new();
    let service = world.service();
    let session = service.created().await;
    service.run(&session, "out a").await;
    let refused = async |session: &SessionUid, after| {
        service.follow(&caller(), from(session, after)).await.err().expect("it is refused")
    };
    let beyond = refused(&session, 5).await;
    assert_eq!(beyond.condition(), Condition::InvalidArgument);
    assert_eq!(beyond.to_string(), "after_seq is 5, the journal ends at 4");
    assert_eq!(refused(&session, u64::MAX).await.condition(), Condition::InvalidArgument);
    let unknown = refused(&sample::session("nobody"), 0).await;
    assert_eq!(unknown.condition(), Condition::SessionNotFound);
}

#[tokio::test(start_paused = true)]
async fn a_follow_ends_when_the_credential_expires() {
    let world = World::new();
    let service = world.service();
    let session = service.created().await;
    let now = world.clock.now();
    let expires = Timestamp { seconds: now.seconds + 40, ..now };
    let until = Caller { expires: Some(expires), ..caller() };
    let mut stream = service.follow(&until, from(&session, 0)).await.unwrap();
    let begun = Instant::now();
    let ended = ending(&mut stream).await;
    assert_eq!(ended.condition(), Condition::Unauthenticated);
    assert_eq!(begun.elapsed(), Duration::from_secs(40));
    let again = service.follow(&until, from(&session, 0)).await.err().expect("it is refused");
    assert_eq!(again.condition(), Condition::Unauthenticated);
}

#[tokio::test(start_paused = true)]
async fn a_follow_ends_when_the_host_drains() {
    let world = World::new();
    let service = world.service();
    let session = service.created().await;
    let mut stream = followed(&service, &session, 0).await;
    let (ended, ()) = tokio::join!(ending(&mut stream), async {
        tokio::task::yield_now().await;
        service.drain();
    });
    assert_eq!(ended.condition(), Condition::Draining);
    let again = service.follow(&caller(), from(&session, 0)).await.err().expect("it is refused");
    assert_eq!(again.condition(), Condition::Draining);
    let mut elsewhere = followed(&world.service(), &session, 0).await;
    silent(&mut elsewhere).await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_session_is_followed_until_it_is_purged() {
    let world = World::new();
    let service = world.service();
    let session = service.created().await;
    service.run(&session, "out a").await;
    let mut stream = followed(&service, &session, 4).await;
    let deletion = sample::records([sample::deletion()]);
    mainspring_testkit::append(&*world.log, &session, deletion).await.unwrap();
    assert_eq!(words(&mut stream, 1).await, "DELETE5");
    assert_eq!(words(&mut followed(&service, &session, 3).await, 2).await, "END4 DELETE5");
    silent(&mut stream).await;
    let purge = world.log.purge().unwrap();
    purge.purge(sample::fresh_id(), &session).await.unwrap();
    assert!(world.log.get(&session, Level::Strict).await.unwrap().purged);
    assert_eq!(ending(&mut stream).await.condition(), Condition::SessionDeleted);
    let again = service.follow(&caller(), from(&session, 0)).await.err().expect("it is refused");
    assert_eq!(again.condition(), Condition::SessionDeleted);
}

/// A record that is too large to wait for a slow watcher is shown all the same.
#[tokio::test(start_paused = true)]
async fn a_large_record_is_shown_in_its_place() {
    let world = World::new();
    let service = world.service();
    let session = service.created().await;
    let text = "x".repeat(100_000);
    let shown = service.run(&session, &format!("out {text}")).await;
    assert_eq!(shown.kinds(), "ES IN OUT END");
    let recorded = world.records(&session).await;
    for (shown, recorded) in shown.records.iter().zip(&recorded) {
        assert!((shown.seq, &shown.event) == (recorded.seq, &recorded.event), "{}", shown.seq);
    }
}
