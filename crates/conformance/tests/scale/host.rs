//! A host of one session in one redb file, and its harnesses.

use std::path::Path;
use std::sync::Arc;

use mainspring_api::{
    Address, Descriptor, Event, EventBody, EventSink, Fence, Harness, HarnessConnector as _,
    HarnessError, Head, Incarnation, Message, ModelError, ModelProvider, ModelReply, ModelRequest,
    SessionUid, Start, async_trait,
};
use mainspring_controller::{Controller, Journal, Options};
use mainspring_eventlog::{EventLog, KvOptions, Level, input_hash};
use mainspring_harness::{Echo, HistoryPages};
use mainspring_store_redb::RedbConfig;
use mainspring_testkit::{append, create, sample};
use mainspring_transport_grpc::{
    GrpcConnector, LinkOptions, Listener, ServeOptions, serve_harness,
};

/// A store with a cache that leaves the bound to the host itself.
pub(crate) fn open(path: &Path) -> Arc<dyn EventLog> {
    let mut config = RedbConfig::at(path);
    config.cache_bytes = 16 << 20;
    Arc::new(mainspring_store_redb::open_store(&config, KvOptions::default()).unwrap())
}

/// Answers with the last message.
#[derive(Debug)]
struct EchoModel;

#[async_trait]
impl ModelProvider for EchoModel {
    async fn complete(&self, request: &ModelRequest) -> Result<ModelReply, ModelError> {
        let text = request.messages.last().map(Message::plain_text).unwrap_or_default();
        let message = Message::assistant(format!("echo:{text}"));
        Ok(ModelReply { message, ..ModelReply::default() })
    }
}

/// One session.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) log: Arc<dyn EventLog>,
    pub(crate) uid: SessionUid,
    journal: Journal,
}

impl Host {
    pub(crate) async fn create(path: &Path) -> Self {
        let log = open(path);
        let uid = sample::session("long");
        create(&*log, &uid).await.unwrap();
        Self { journal: Journal::new(Arc::clone(&log), uid.clone()), log, uid }
    }

    /// The same session as another host sees it: not verified yet.
    pub(crate) fn again(self) -> Self {
        Self { journal: Journal::new(Arc::clone(&self.log), self.uid.clone()), ..self }
    }

    pub(crate) async fn head(&self) -> Head {
        self.log.head(&self.uid, Level::Strict).await.unwrap()
    }

    /// Appends events at the head, as a host that went down after them.
    pub(crate) async fn append(&self, events: Vec<Event>) -> Head {
        append(&*self.log, &self.uid, sample::records(events)).await.unwrap()
    }

    fn options(&self) -> Options {
        Options { session: Some(self.uid.clone()), ..Options::new(Arc::new(EchoModel)) }
    }

    pub(crate) fn reader(&self) -> Controller {
        Controller::reader(self.journal.clone(), self.options())
    }

    pub(crate) async fn controller(&self) -> Controller {
        Controller::new(self.journal.clone(), self.options()).await.unwrap()
    }

    /// Goes on with the interrupted turn.
    pub(crate) async fn resume(&self, harness: &Arc<dyn Harness>) {
        let resumed = self.controller().await.resume(harness, None).await;
        resumed.result.unwrap();
        assert!(resumed.resumed, "there was a turn to go on with");
    }
}

/// The request of the harness echo, and of [`Reader`].
fn request(text: String) -> ModelRequest {
    ModelRequest {
        model: Echo::ID.to_owned(),
        messages: vec![Message::user(text)],
        ..ModelRequest::default()
    }
}

/// The turn with this number, as echo leaves it; `asks` is what it asks the model.
pub(crate) fn turn_asking(number: u64, asks: &str) -> Vec<Event> {
    let mut events = sample::turn(&sample::execution(number), &format!("turn {number}"));
    for event in &mut events {
        if let EventBody::ModelCall(Some(call)) = &mut event.body {
            call.input_hash = input_hash(&request(asks.to_owned())).unwrap().to_string();
        }
    }
    events
}

/// The same, as echo leaves it.
pub(crate) fn turn(number: u64) -> Vec<Event> {
    turn_asking(number, &format!("turn {number}"))
}

/// Reads all of the history, and asks the model how much it was.
#[derive(Debug)]
pub(crate) struct Reader;

#[async_trait]
impl Harness for Reader {
    async fn describe(&self) -> Result<Descriptor, HarnessError> {
        Echo.describe().await
    }

    async fn run(&self, start: Start, sink: Arc<dyn EventSink>) -> Result<(), HarnessError> {
        let (mut pages, mut events) = (HistoryPages::new(&*start.history), 0);
        while let Some(page) = pages.next_page().await? {
            events += page.len();
        }
        sink.model(request(format!("{events} events"))).await?;
        Ok(())
    }
}

/// The harness behind a unix socket at `path`.
pub(crate) async fn served(harness: Arc<dyn Harness>, path: &Path) -> String {
    let listener = Listener::bind(&format!("unix://{}", path.display())).await.unwrap();
    let address = listener.address().to_string();
    let never = std::future::pending();
    tokio::spawn(serve_harness(harness, listener, ServeOptions::default(), never));
    address
}

/// The harness at that address.
pub(crate) async fn connect(address: &str, link: LinkOptions) -> Arc<dyn Harness> {
    let incarnation = Incarnation {
        address: Address::Grpc { address: address.to_owned(), call_metadata: Vec::new() },
        worker: String::new(),
        compute_instance: String::new(),
        fence: Fence::NONE,
        live_describer: false,
    };
    GrpcConnector::new(link).connect(&incarnation).await.unwrap().harness()
}
