//! Serves `api::Harness` as `agentsessions.v1.Harness`.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::stream;
use mainspring_api::{
    ApprovalRef, Authenticator, BoxStream, CancelReason, Classify as _, Condition, EndState, Event,
    EventBody, ExecutionId, Harness, HarnessEnd, HarnessError, RecordedError, SessionsError,
    Signal, SinkError,
};
use mainspring_wire::v1::harness_server as generated;
use mainspring_wire::{ControllerFrame, Frame, v1};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status, Streaming};

use crate::call::RpcKind;
use crate::front::{Admitted, Front, GrpcService};
use crate::harness::extensions::{self, HarnessExtensions};
use crate::harness::history::RemoteHistory;
use crate::harness::link::{LinkError, Stop};
use crate::harness::remote_sink::{Inbound, Outbound, RemoteSink, RunSink};
use crate::harness::start;
use crate::metadata;
use crate::methods::{HARNESS_CONNECT, HARNESS_DESCRIBE};
use crate::options::LinkOptions;
use crate::status::{bounded, to_status};

/// Frames that may wait for the harness. A host sends at most two unasked: a
/// decision, and its receipt.
const REPLIES_MAX: usize = 2;

/// How long a run may go on after the host closed its side: it can still end,
/// but nothing that it asks for will be answered.
const HALF_CLOSED_MAX: Duration = Duration::from_secs(2);

/// Serves a harness over gRPC.
#[derive(Clone)]
pub struct HarnessServer {
    harness: Arc<dyn Harness>,
    front: Front,
    /// Digest of the descriptor that was answered last.
    digest: Arc<Mutex<Option<String>>>,
}

impl fmt::Debug for HarnessServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HarnessServer").field("harness", &self.harness).finish_non_exhaustive()
    }
}

impl HarnessServer {
    /// A server of `harness`.
    #[must_use]
    pub fn new(harness: Arc<dyn Harness>, options: LinkOptions) -> Self {
        Self { harness, front: Front::new(options), digest: Arc::default() }
    }

    /// The tower service, for a router that serves others beside it.
    #[must_use]
    pub fn into_service(self) -> impl GrpcService {
        let bytes_max = self.front.link.message_bytes_max;
        let front = self.front.clone();
        let service = generated::HarnessServer::new(Rpc(self))
            .max_decoding_message_size(bytes_max)
            .max_encoding_message_size(bytes_max);
        front.before(service)
    }

    /// Takes only calls with credentials that hold.
    #[must_use]
    pub fn authenticated_by(mut self, authenticator: Option<Arc<dyn Authenticator>>) -> Self {
        self.front.authenticator = authenticator;
        self
    }
}

/// What holds for one stream.
struct Terms {
    agreed: HarnessExtensions,
    /// Of the harness that takes the turn, if the host asks who that is.
    digest: Option<String>,
}

fn lock(digest: &Mutex<Option<String>>) -> MutexGuard<'_, Option<String>> {
    digest.lock().unwrap_or_else(PoisonError::into_inner)
}

impl HarnessServer {
    /// Asks the harness who it is, and keeps the digest of that.
    async fn describe(&self) -> Result<v1::HarnessDescriptor, HarnessError> {
        let descriptor = self.harness.describe().await?.into();
        *lock(&self.digest) = Some(extensions::digest(&descriptor));
        Ok(descriptor)
    }

    /// What the host asks for. An extension that is not offered here is refused
    /// by name, because the host would go by it.
    async fn terms(&self, metadata: &MetadataMap) -> Result<Terms, Status> {
        let offered = self.front.link.harness_extensions;
        let agreed = HarnessExtensions::asked_for(metadata, offered).map_err(|name| {
            let text =
                format!("{}: this harness does not offer {name}", metadata::HARNESS_EXTENSIONS);
            to_status(&SessionsError::new(Condition::FailedPrecondition, text))
        })?;
        if !agreed.descriptor_digest {
            return Ok(Terms { agreed, digest: None });
        }
        let mut digest = lock(&self.digest).clone();
        if digest.is_none() {
            // Another process answered Describe.
            self.describe().await.map_err(|error| status_of(&error))?;
            digest.clone_from(&lock(&self.digest));
        }
        Ok(Terms { agreed, digest })
    }
}

// Keeps the generated trait out of the public type.
struct Rpc(HarnessServer);

#[tonic::async_trait]
impl generated::Harness for Rpc {
    async fn describe(
        &self,
        request: Request<v1::DescribeRequest>,
    ) -> Result<Response<v1::HarnessDescriptor>, Status> {
        let admitted = Admitted::of(request.extensions());
        let (_, log) = admitted.begin(HARNESS_DESCRIBE, RpcKind::Unary, "");
        match self.0.describe().await {
            Ok(descriptor) => {
                log.finish(tonic::Code::Ok);
                let mut response = Response::new(descriptor);
                self.0.front.link.harness_extensions.write(response.metadata_mut());
                Ok(response)
            }
            Err(error) => {
                let status = status_of(&error);
                log.finish(status.code());
                Err(status)
            }
        }
    }

    type ConnectStream = BoxStream<'static, Outbound>;

    async fn connect(
        &self,
        request: Request<Streaming<v1::ControllerFrame>>,
    ) -> Result<Response<Self::ConnectStream>, Status> {
        let admitted = Admitted::of(request.extensions());
        let (_, log) = admitted.begin(HARNESS_CONNECT, RpcKind::Stream, "");
        let terms = match self.0.terms(request.metadata()).await {
            Ok(terms) => terms,
            Err(status) => {
                log.finish(status.code());
                return Err(status);
            }
        };
        let (out, events) = mpsc::channel(1);
        let server = self.0.clone();
        // Its own task, so that a busy harness does not hold up the connection.
        let task = tokio::spawn(async move {
            match execute(&server, terms.agreed, request.into_inner(), &out).await {
                Ok(()) => log.finish(tonic::Code::Ok),
                Err(status) => {
                    log.finish(status.code());
                    // The host may be gone, and then nobody needs to know.
                    let _ = out.send(Err(status)).await;
                }
            }
        });
        let state = (events, AbortOnDrop(task));
        let events = stream::unfold(state, async |(mut events, task)| {
            Some((events.recv().await?, (events, task)))
        });
        // The headers go out at once, before there is an event.
        let mut response = Response::new(Box::pin(events) as Self::ConnectStream);
        if let Some(digest) = terms.digest {
            extensions::show(&digest, response.metadata_mut());
        }
        Ok(response)
    }
}

/// A stream that the host has dropped takes its run with it.
struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn execute(
    server: &HarnessServer,
    agreed: HarnessExtensions,
    mut frames: Streaming<v1::ControllerFrame>,
    out: &mpsc::Sender<Outbound>,
) -> Result<(), Status> {
    let first = frames
        .message()
        .await?
        .ok_or_else(|| protocol_status(&LinkError::protocol("stream closed before start")))?;
    let (mut start, history_len) =
        start::from_frame(first, agreed).map_err(|error| protocol_status(&error))?;
    let execution_id = start.execution_id.clone();
    let stop = Signal::default();
    let (replies_in, replies) = mpsc::channel(REPLIES_MAX);
    let sink = Arc::new(RemoteSink::new(
        (start::session_text(start.session.as_ref()), execution_id.clone()),
        (out.clone(), replies),
        stop.clone(),
        &server.front.link,
        agreed,
    ));
    if agreed.history_range {
        start.history = Arc::new(RemoteHistory::new(history_len, Arc::clone(&sink)));
    }

    let run = server.harness.run(start, Arc::new(RunSink(Arc::clone(&sink))));
    let result = tokio::select! {
        // A cancellation that is there already wins over a result.
        biased;
        stopped = watch(frames, replies_in, &sink, &stop) => Err(stopped),
        result = run => Ok(result),
    };
    // Whoever kept the sink learns that the run is over.
    stop.set(match &result {
        Ok(_) => Stop::Returned,
        Err(stopped) => stopped.clone(),
    });
    let end = conclude(result, sink.finish().await);
    end.send(&execution_id, out).await
}

/// Reads frames until nothing can come that the run could use.
async fn watch(
    frames: Streaming<v1::ControllerFrame>,
    replies: mpsc::Sender<Inbound>,
    sink: &RemoteSink,
    stop: &Signal<Stop>,
) -> Stop {
    if let Some(stopped) = pump(frames, replies, sink).await {
        // Set here, before the run is polled again, so that no reply that is
        // waiting can win over it.
        stop.set(stopped.clone());
        return stopped;
    }
    tokio::time::sleep(HALF_CLOSED_MAX).await;
    Stop::Fault(LinkError::eof())
}

/// The reader: hands frames on in order until the host closes its side
/// (`None`) or the execution has to stop.
async fn pump(
    mut frames: Streaming<v1::ControllerFrame>,
    replies: mpsc::Sender<Inbound>,
    sink: &RemoteSink,
) -> Option<Stop> {
    loop {
        let frame = match frames.message().await {
            Ok(Some(frame)) => frame,
            Ok(None) => return None,
            Err(status) => {
                let lost = LinkError::Lost(bounded(status.message()));
                return Some(Stop::Fault(lost));
            }
        };
        let inbound = ControllerFrame::try_from(frame)
            .map_err(|error| LinkError::protocol(format!("frame: {error}")));
        if let Ok(ControllerFrame { frame: Frame::Cancel(reason), .. }) = &inbound {
            let reason = *reason;
            let checked = inbound.and_then(|frame| sink.check_envelope(&frame));
            return Some(match checked {
                Ok(()) => Stop::Canceled(reason),
                Err(error) => Stop::Fault(error),
            });
        }
        if replies.try_send(inbound).is_err() {
            let rule = "more frames than the harness has asked for";
            return Some(Stop::Fault(LinkError::protocol(rule)));
        }
    }
}

/// How an execution ends on the stream.
enum Conclusion {
    Completed,
    Parked(ApprovalRef),
    Canceled(CancelReason),
    Failed(HarnessError),
}

/// A failure of the run, also beside a park, wins over the park; a failure of
/// the bridge that the run swallowed wins over its success.
fn conclude(
    result: Result<Result<(), HarnessError>, Stop>,
    sealed: Option<SinkError>,
) -> Conclusion {
    let result = match result {
        Ok(result) => result,
        Err(Stop::Canceled(reason)) => return Conclusion::Canceled(reason),
        Err(stopped) => return Conclusion::Failed(stopped.into_sink().into()),
    };
    match (result, sealed) {
        (Ok(()), Some(SinkError::Parked(park))) => Conclusion::Parked(park),
        (Err(HarnessError::Sink(SinkError::Parked(park))), Some(SinkError::Parked(sealed)))
            if park == sealed =>
        {
            Conclusion::Parked(park)
        }
        (Ok(()), None) => Conclusion::Completed,
        (Ok(()), Some(error)) => Conclusion::Failed(error.into()),
        (Err(error), _) => Conclusion::Failed(error),
    }
}

impl Conclusion {
    async fn send(
        self,
        execution_id: &ExecutionId,
        out: &mpsc::Sender<Outbound>,
    ) -> Result<(), Status> {
        let (body, then) = match self {
            Self::Completed => (EventBody::End(Some(HarnessEnd::completed())), Ok(())),
            Self::Parked(park) => (EventBody::Parked(Some(park)), Ok(())),
            Self::Canceled(reason) => {
                let text = format!("canceled: {}", reason.name());
                let error = SessionsError::new(Condition::Cancelled, text.clone());
                let status = to_status(&error);
                (ended(EndState::Canceled, &status, text), Err(status))
            }
            Self::Failed(error) => {
                let status = status_of(&error);
                let text = bounded(&mainspring_api::report(&error));
                (ended(EndState::Failed, &status, text), Err(status))
            }
        };
        let event = v1::Event::try_from(Event::in_execution(execution_id, body))
            .map_err(|error| Status::internal(error.to_string()))?;
        // A host that is gone needs no end.
        let _ = out.send(Ok(event)).await;
        then
    }
}

fn ended(state: EndState, status: &Status, description: String) -> EventBody {
    EventBody::End(Some(HarnessEnd {
        state: state.name().to_owned(),
        error: Some(RecordedError { code: status.code() as i32, description }),
    }))
}

fn status_of(error: &HarnessError) -> Status {
    let text = mainspring_api::report(error);
    to_status(&SessionsError::new(error.condition(), text).with_outcome(error.outcome()))
}

fn protocol_status(error: &LinkError) -> Status {
    to_status(&SessionsError::new(Condition::InvalidArgument, error.to_string()))
}
