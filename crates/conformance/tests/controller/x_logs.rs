//! Case X03: what the logs may not hold.

use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use mainspring_api::{
    Bytes, Fence, HarnessError, LifecycleKind, Mediation, Message, ModelReply, SnapshotRef,
    ToolCall,
};
use mainspring_controller::{Controller, Options, Turn};
use mainspring_testkit::sample;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::support::raw::{lifecycle, reported};
use crate::support::{Fixture, Probe, TestModel, ask, turn};

/// All that our crates logged in this process since somebody listened.
#[derive(Debug, Clone, Default)]
struct Logged(Arc<Mutex<Vec<u8>>>);

impl io::Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Logged {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

impl Logged {
    /// Listens from the first call on. Once for the process, because a turn
    /// runs in many threads; what other libraries log of theirs is not ours.
    fn listen() -> &'static Self {
        static LOGGED: OnceLock<Logged> = OnceLock::new();
        LOGGED.get_or_init(|| {
            let logged = Self::default();
            tracing_subscriber::fmt()
                .with_env_filter(EnvFilter::new("mainspring=trace"))
                .with_writer(logged.clone())
                .with_ansi(false)
                .without_time()
                .init();
            logged
        })
    }

    fn text(&self) -> String {
        let logged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&logged).into_owned()
    }
}

/// Every text that a user, an agent, a model or a host may keep to itself has this in it.
const SECRET: &str = "s3cret";
/// A number that nothing else here can make.
const FENCE: u64 = 918_273_645;

/// A harness whose every effect carries a secret, and which may fail with one.
fn indiscreet(fails: bool, takes_over: Option<Fixture>) -> Probe {
    Probe::new(move |_, sink| {
        let takes_over = takes_over.clone();
        async move {
            ask(&*sink, "s3cret request").await?;
            sink.output("s3cret output".to_owned()).await?;
            let mut result = reported("s3cret id");
            result.error = "s3cret error".to_owned();
            sink.report(result).await?;
            if let Some(session) = takes_over {
                // No error record can follow: that is logged.
                session.take_over().await;
            }
            if fails {
                let call = ToolCall {
                    id: "s3cret id".to_owned(),
                    tool: "s3cret tool".to_owned(),
                    args: Some([("s3cret".to_owned(), "s3cret".into())].into()),
                    mediation: Mediation::Unspecified,
                    idempotency_key: "s3cret key".to_owned(),
                };
                sink.tool_call(call).await.unwrap_err();
                return Err(HarnessError::failed("s3cret words"));
            }
            Ok(())
        }
    })
}

/// Nothing that controller, stores and transport log holds a payload, a config, a key, a fence or a snapshot's place.
async fn x03_logs_hold_no_secrets(session: Fixture) {
    let logged = Logged::listen();
    let session = session.session(&sample::session(&format!("x03-{:?}", session.cell.reach)));
    mainspring_testkit::create(&*session.log, &session.uid).await.unwrap();
    session.model.respond(|request| async move {
        let message = Message::assistant(format!(
            "s3cret {}",
            TestModel::echo(&request).message.plain_text()
        ));
        Ok(ModelReply { message, ..ModelReply::default() })
    });
    let mut suspend = lifecycle(LifecycleKind::Suspend);
    suspend.snapshot =
        SnapshotRef { external_uri: "s3://s3cret/snapshot".to_owned(), ..SnapshotRef::default() };
    session.append_lifecycle(suspend).await;

    let options = || Options { fence: Some(Fence::new(FENCE)), ..session.options() };
    let secret_turn =
        || Turn { config: Bytes::from_static(b"s3cret config"), ..turn(&["s3cret input"]) };
    let controller = Controller::new(session.journal(), options()).await.unwrap();
    let failing = session.place(indiscreet(true, None)).await;
    controller.exec(&failing.harness, secret_turn()).await.unwrap_err();
    let good = session.place(indiscreet(false, None)).await;
    controller.resume(&good.harness, None).await.result.unwrap();
    controller.replay(&good.harness).await.unwrap();
    let diverging = session.place(Probe::asking(&["s3cret other request"])).await;
    controller.replay(&diverging.harness).await.unwrap_err();
    controller.exec(&good.harness, Turn { deadline: None, ..secret_turn() }).await.unwrap();

    // A fence that is superseded within the turn.
    let superseded = session.place(indiscreet(true, Some(session.clone()))).await;
    session.exec_turn(&superseded, secret_turn()).await.unwrap_err();

    let text = logged.text();
    let ours = format!("session={}", session.uid);
    assert!(
        text.lines().any(|line| line.contains("error record not appended") && line.contains(&ours)),
        "the logs were not heard:\n{text}"
    );
    for secret in [SECRET, &FENCE.to_string()] {
        let told: Vec<_> = text.lines().filter(|line| line.contains(secret)).collect();
        assert!(told.is_empty(), "{secret} is in the logs:\n{}", told.join("\n"));
    }
    let journal = session.records().await;
    let journal: Vec<_> =
        journal.iter().map(|record| String::from_utf8_lossy(&record.canonical)).collect();
    assert!(journal.iter().any(|record| record.contains(SECRET)), "there was something to tell");
}

matrix! {
    run:
    everywhere {
        #[test] fn x03_logs_hold_no_secrets;
    }
}
