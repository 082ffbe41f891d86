//! A host that is killed while many turns run, or in the middle of one.

use std::sync::Arc;

use futures_util::StreamExt as _;
use mainspring::api::{
    CreateRequest, Descriptor, EventBody, EventSink, ExecRequest, ExecState, ExecUpdate, Harness,
    HarnessError, ListRequest, Message, SessionUid, Sessions as _, Start, async_trait,
};
use mainspring::transport_grpc::{
    LinkOptions, Listener, RemoteSessions, ServeOptions, serve_harness,
};

use crate::kill_loop::{caller, replay};
use crate::support::{Dir, Serving};

/// Gives one output and never ends.
#[derive(Debug)]
struct Endless;

#[async_trait]
impl Harness for Endless {
    async fn describe(&self) -> Result<Descriptor, HarnessError> {
        Ok(Descriptor { id: "endless".into(), version: "1".into(), ..Descriptor::default() })
    }

    async fn run(&self, _start: Start, sink: Arc<dyn EventSink>) -> Result<(), HarnessError> {
        sink.output("begun".to_owned()).await?;
        std::future::pending().await
    }
}

async fn connect(serving: &Serving) -> RemoteSessions {
    RemoteSessions::connect(&serving.address, &LinkOptions::default()).await.unwrap()
}

/// Lists everything, in one page.
async fn listed(client: &RemoteSessions) -> Vec<(SessionUid, ExecState)> {
    let query = ListRequest { page_size: 500, ..ListRequest::default() };
    let page = client.list(&caller(), query).await.unwrap();
    assert_eq!(page.next_page_token, "");
    let mut listed: Vec<_> =
        page.sessions.into_iter().map(|session| (session.uid, session.exec_state)).collect();
    listed.sort_by(|one, other| one.0.cmp(&other.0));
    listed
}

/// Fifty turns run when the host is killed. The next one lists all fifty at
/// once, as running: nobody drives them, and each can be resumed.
#[test]
fn b7_fifty_running_sessions_are_listed_after_a_kill() {
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let dir = Dir::new();
        let harness = format!("unix:{}", dir.path("h.sock").display());
        let listener = Listener::bind(&harness).await.unwrap();
        let served = serve_harness(
            Arc::new(Endless),
            listener,
            ServeOptions::default(),
            std::future::pending(),
        );
        tokio::spawn(served);
        let place = format!("endless={harness}");
        let args = ["serve", "--addr", "127.0.0.1:0", "--harness", &place];
        let mut serving = Serving::start(&dir, &args);
        let client = connect(&serving).await;
        let mut running = Vec::new();
        for _ in 0..50 {
            let create = CreateRequest { harness: "endless".to_owned(), ..Default::default() };
            let uid = client.create(&caller(), create).await.unwrap().uid;
            let request = ExecRequest {
                session: Some(uid.clone()),
                inputs: vec![Message::user("go")],
                ..ExecRequest::default()
            };
            running.push((uid, client.exec(&caller(), request).await.unwrap()));
        }
        for (uid, updates) in &mut running {
            loop {
                let update = updates.next().await.unwrap_or_else(|| panic!("{uid} ended"));
                if let ExecUpdate::Record(record) = update.unwrap()
                    && matches!(record.event.body, EventBody::Output(_))
                {
                    break;
                }
            }
        }
        serving.kill();
        let mut expected: Vec<_> =
            running.into_iter().map(|(uid, _)| (uid, ExecState::Running)).collect();
        expected.sort_by(|one, other| one.0.cmp(&other.0));

        let mut serving = Serving::start(&dir, &args);
        assert_eq!(listed(&connect(&serving).await).await, expected);
        serving.kill();
        // All that lies beside the journal may go.
        for entry in std::fs::read_dir(dir.path(".")).unwrap().flatten() {
            let name = entry.file_name();
            if name != "mainspring.redb" && name != "h.sock" {
                std::fs::remove_file(entry.path()).unwrap();
            }
        }
        let serving = Serving::start(&dir, &args);
        assert_eq!(listed(&connect(&serving).await).await, expected);
        drop(serving);
    });
}

/// A session of 300 records, killed in an append: all that was shown is shown.
#[test]
fn b1_a_long_session_killed_in_an_append_shows_every_committed_record() {
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let dir = Dir::new();
        let args = ["serve", "--addr", "127.0.0.1:0"];
        let mut serving = Serving::start(&dir, &args);
        let client = connect(&serving).await;
        let uid = client.create(&caller(), CreateRequest::default()).await.unwrap().uid;
        let turn = |text: String| ExecRequest {
            session: Some(uid.clone()),
            inputs: vec![Message::user(text)],
            ..ExecRequest::default()
        };
        let mut shown = Vec::new();
        for number in 0..60 {
            let mut updates = client.exec(&caller(), turn(number.to_string())).await.unwrap();
            while let Some(update) = updates.next().await {
                if let ExecUpdate::Record(record) = update.unwrap() {
                    shown.push(*record);
                }
            }
        }
        assert_eq!(shown.len(), 300);
        // Killed when the first record of the last turn shows, in the appends after it.
        let mut updates = client.exec(&caller(), turn("x".repeat(1 << 20))).await.unwrap();
        while let Some(Ok(update)) = updates.next().await {
            if let ExecUpdate::Record(record) = update {
                if shown.len() == 300 {
                    serving.kill();
                }
                shown.push(*record);
            }
        }
        drop(updates);
        let serving = Serving::start(&dir, &args);
        let records = replay(&connect(&serving).await, &uid).await;
        assert!(records.len() >= shown.len() && shown.len() > 300, "{}", shown.len());
        for (stored, shown) in records.iter().zip(&shown) {
            assert_eq!((stored.seq, stored.hash), (shown.seq, shown.hash));
            assert_eq!(stored.event, shown.event);
        }
        let verified = ["verify", "--session", uid.as_str(), "--server", &serving.address];
        dir.run(&verified).ok();
    });
}
