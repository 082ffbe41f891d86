//! Peers that say exactly what a test tells them to.

use std::sync::Arc;

use futures_util::StreamExt as _;
use mainspring_api::{
    Address, BoxStream, Event, EventBody, ExecutionId, Fence, HarnessConnection,
    HarnessConnector as _, HarnessEnd, Incarnation,
};
use mainspring_transport_grpc::metadata::{DESCRIPTOR_DIGEST, HARNESS_EXTENSIONS};
use mainspring_transport_grpc::{GrpcConnector, LinkOptions};
use mainspring_wire::v1;
use mainspring_wire::v1::harness_client::HarnessClient;
use mainspring_wire::v1::harness_server;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::metadata::MetadataMap;
use tonic::transport::{Endpoint, Server};
use tonic::{Request, Response, Status, Streaming};

pub(crate) type Frames = Streaming<v1::ControllerFrame>;
pub(crate) type Events = mpsc::Sender<Result<v1::Event, Status>>;

type Talk = dyn Fn(Frames, Events) -> mainspring_api::BoxFuture<'static, ()> + Send + Sync;

/// What a harness says beside its messages.
#[derive(Debug, Clone, Default)]
pub(crate) struct Headers {
    /// On its Describe answer: what it offers.
    pub(crate) offers: &'static str,
    /// On its Connect answer: its digest.
    pub(crate) digest: String,
}

/// A harness that is a conversation.
pub(crate) struct RawHarness {
    talk: Arc<Talk>,
    headers: Headers,
    pub(crate) metadata: mpsc::UnboundedSender<MetadataMap>,
}

#[tonic::async_trait]
impl harness_server::Harness for RawHarness {
    async fn describe(
        &self,
        request: Request<v1::DescribeRequest>,
    ) -> Result<Response<v1::HarnessDescriptor>, Status> {
        let _ = self.metadata.send(request.metadata().clone());
        let mut answer =
            Response::new(v1::HarnessDescriptor { id: "raw".to_owned(), ..Default::default() });
        insert(answer.metadata_mut(), HARNESS_EXTENSIONS, self.headers.offers);
        Ok(answer)
    }

    type ConnectStream = BoxStream<'static, Result<v1::Event, Status>>;

    async fn connect(
        &self,
        request: Request<Frames>,
    ) -> Result<Response<Self::ConnectStream>, Status> {
        let _ = self.metadata.send(request.metadata().clone());
        let (out, events) = mpsc::channel(8);
        let talk = (self.talk)(request.into_inner(), out);
        // Lives as long as the response: a cancelled stream ends the talk.
        let talking = futures_util::stream::once(talk).filter_map(async |()| None);
        let events = ReceiverStream::new(events);
        let events: Self::ConnectStream = Box::pin(futures_util::stream::select(events, talking));
        let mut answer = Response::new(events);
        insert(answer.metadata_mut(), DESCRIPTOR_DIGEST, &self.headers.digest);
        Ok(answer)
    }
}

fn insert(metadata: &mut MetadataMap, key: &'static str, value: &str) {
    if !value.is_empty() {
        metadata.insert(key, value.parse().unwrap());
    }
}

/// Serves a conversation; the receiver gets the metadata of every call.
pub(crate) async fn serve_raw<F>(
    talk: impl Fn(Frames, Events) -> F + Send + Sync + 'static,
) -> (String, mpsc::UnboundedReceiver<MetadataMap>)
where
    F: Future<Output = ()> + Send + 'static,
{
    serve_raw_with(Headers::default(), talk).await
}

pub(crate) async fn serve_raw_with<F>(
    headers: Headers,
    talk: impl Fn(Frames, Events) -> F + Send + Sync + 'static,
) -> (String, mpsc::UnboundedReceiver<MetadataMap>)
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (metadata, seen) = mpsc::unbounded_channel();
    let harness = RawHarness {
        talk: Arc::new(move |frames, events| Box::pin(talk(frames, events))),
        headers,
        metadata,
    };
    let service = harness_server::HarnessServer::new(harness).max_decoding_message_size(64 << 20);
    tokio::spawn(
        Server::builder()
            .add_service(service)
            .serve_with_incoming(TcpListenerStream::new(listener)),
    );
    (address, seen)
}

pub(crate) fn event(body: EventBody) -> v1::Event {
    let execution = ExecutionId::new("exec").unwrap();
    Event::in_execution(&execution, body).try_into().unwrap()
}

pub(crate) fn completed() -> v1::Event {
    event(EventBody::End(Some(HarnessEnd::completed())))
}

pub(crate) async fn connect_with(
    address: &str,
    pairs: &[(&str, &str)],
    options: LinkOptions,
) -> HarnessConnection {
    let incarnation = Incarnation {
        address: Address::Grpc {
            address: address.to_owned(),
            call_metadata: pairs
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
        },
        worker: String::new(),
        compute_instance: String::new(),
        fence: Fence::NONE,
        live_describer: false,
    };
    GrpcConnector::new(options).connect(&incarnation).await.unwrap()
}

pub(crate) async fn connect(address: &str) -> HarnessConnection {
    connect_with(address, &[], LinkOptions::default()).await
}

/// A host that is a conversation: frames in, events out.
pub(crate) struct RawHost {
    frames: Option<mpsc::Sender<v1::ControllerFrame>>,
    events: Streaming<v1::Event>,
}

impl RawHost {
    pub(crate) async fn open(address: &str, first: Option<v1::ControllerFrame>) -> Self {
        Self::open_with(address, "", first).await.unwrap()
    }

    /// A host that names extensions.
    pub(crate) async fn open_with(
        address: &str,
        names: &str,
        first: Option<v1::ControllerFrame>,
    ) -> Result<Self, Status> {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        let mut client = HarnessClient::new(endpoint.connect().await.unwrap());
        let (frames, stream) = mpsc::channel(8);
        let frames = match first {
            Some(first) => {
                frames.send(first).await.unwrap();
                Some(frames)
            }
            None => None,
        };
        let mut request = Request::new(ReceiverStream::new(stream));
        insert(request.metadata_mut(), HARNESS_EXTENSIONS, names);
        let events = client.connect(request).await?;
        Ok(Self { frames, events: events.into_inner() })
    }

    /// The next event as it came, which must be there.
    pub(crate) async fn wire(&mut self) -> v1::Event {
        self.events.message().await.unwrap().unwrap()
    }

    pub(crate) async fn send(&self, frame: v1::controller_frame::Frame) {
        self.send_frame(envelope(frame)).await;
    }

    pub(crate) async fn send_frame(&self, frame: v1::ControllerFrame) {
        let frames = self.frames.as_ref().expect("open");
        // A harness that has refused an earlier frame takes no more.
        let _ = frames.send(frame).await;
    }

    pub(crate) fn half_close(&mut self) {
        self.frames = None;
    }

    pub(crate) async fn next(&mut self) -> Result<Option<Event>, Status> {
        let event = self.events.message().await?;
        Ok(event.map(|event| event.try_into().unwrap()))
    }

    /// Everything until the end, and the status.
    pub(crate) async fn rest(&mut self) -> (Vec<Event>, Result<(), Status>) {
        let mut events = Vec::new();
        loop {
            match self.next().await {
                Ok(Some(event)) => events.push(event),
                Ok(None) => return (events, Ok(())),
                Err(status) => return (events, Err(status)),
            }
        }
    }
}

pub(crate) fn envelope(frame: v1::controller_frame::Frame) -> v1::ControllerFrame {
    v1::ControllerFrame {
        session: "session".to_owned(),
        execution_id: "exec".to_owned(),
        frame: Some(frame),
    }
}

pub(crate) fn start_frame() -> v1::ControllerFrame {
    envelope(v1::controller_frame::Frame::Start(v1::Start::default()))
}
