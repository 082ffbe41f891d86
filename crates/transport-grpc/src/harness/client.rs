//! `api::Harness` over a connection.

use mainspring_api::{
    CancelReason, Descriptor, EventSink, Harness, HarnessError, RequestId, Signal, Start,
    async_trait,
};
use mainspring_wire::v1;
use mainspring_wire::v1::harness_client::HarnessClient;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use crate::harness::bridge::{Bridge, Terms};
use crate::harness::extensions::{Agreement, HarnessExtensions};
use crate::harness::start::{self, ReadHistory};
use crate::metadata::{CallMetadata, REQUEST_ID};
use crate::options::LinkOptions;
use crate::status::is_local;

/// Frames that may wait for the connection: a start, or a decision and its receipt.
const FRAMES_MAX: usize = 2;

/// A harness in another process. Made by [`GrpcConnector`](crate::GrpcConnector).
///
/// What both sides can do beyond `agentsessions.v1` is learnt by `describe`.
/// Runs of a connection that was never asked to describe its harness speak the
/// plain contract.
#[derive(Debug, Clone)]
pub struct GrpcHarness {
    client: HarnessClient<Channel>,
    metadata: CallMetadata,
    cancel: Signal<CancelReason>,
    closed: Signal<()>,
    options: LinkOptions,
    /// What the check of a start has read, for the run that follows it.
    checked: Arc<Mutex<Option<ReadHistory>>>,
    /// What the last description said, for the runs that follow it.
    agreed: Arc<Mutex<Agreement>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl GrpcHarness {
    pub(crate) fn new(
        channel: Channel,
        metadata: CallMetadata,
        cancel: Signal<CancelReason>,
        closed: Signal<()>,
        options: LinkOptions,
    ) -> Self {
        let client = HarnessClient::new(channel)
            .max_decoding_message_size(options.message_bytes_max)
            .max_encoding_message_size(options.message_bytes_max);
        let agreed = Arc::new(Mutex::new(Agreement::plain()));
        Self { client, metadata, cancel, closed, options, checked: Arc::default(), agreed }
    }

    /// The call metadata wins over the request id, and over whatever else is there.
    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let id = RequestId::random(&*self.options.entropy);
        if let Ok(value) = id.as_str().parse() {
            request.metadata_mut().insert(REQUEST_ID, value);
        }
        self.metadata.apply(request.metadata_mut());
        request
    }

    fn check_open(&self) -> Result<(), HarnessError> {
        match self.closed.get() {
            None => Ok(()),
            Some(()) => {
                Err(HarnessError::Unavailable { message: "connection is closed".to_owned() })
            }
        }
    }
}

#[async_trait]
impl Harness for GrpcHarness {
    async fn describe(&self) -> Result<Descriptor, HarnessError> {
        self.check_open()?;
        let request = self.request(v1::DescribeRequest {});
        let answer = self.client.clone().describe(request).await;
        let (metadata, descriptor, _) = answer.map_err(|status| failure(&status))?.into_parts();
        let extensions =
            HarnessExtensions::announced(&metadata).and(self.options.harness_extensions);
        let agreed = Agreement::of(extensions, &descriptor);
        let descriptor = Descriptor::try_from(descriptor)
            .map_err(|error| HarnessError::Protocol { message: format!("descriptor: {error}") })?;
        *lock(&self.agreed) = agreed;
        Ok(descriptor)
    }

    async fn check_start(&self, start: &Start) -> Result<(), HarnessError> {
        let bound = self.options.message_bytes_max;
        if lock(&self.agreed).extensions.history_range {
            return start::to_frame_with_head(start.clone(), bound).map(|_| ());
        }
        let history = ReadHistory::of(start, bound).await?;
        start::to_frame(start.clone(), &history, bound)?;
        *lock(&self.checked) = Some(history);
        Ok(())
    }

    async fn run(&self, start: Start, sink: Arc<dyn EventSink>) -> Result<(), HarnessError> {
        self.check_open()?;
        let session = start::session_text(start.session.as_ref());
        let execution_id = start.execution_id.clone();
        // Refused here, if at all: nothing has been sent yet.
        let bound = self.options.message_bytes_max;
        let agreed = lock(&self.agreed).clone();
        let history = Arc::clone(&start.history);
        let checked = lock(&self.checked).take();
        let frame = if agreed.extensions.history_range {
            start::to_frame_with_head(start, bound)?
        } else {
            let history = match checked.filter(|history| history.is_of(&start)) {
                Some(history) => history,
                None => ReadHistory::of(&start, bound).await?,
            };
            start::to_frame(start, &history, bound)?
        };
        let (to_harness, frames) = mpsc::channel(FRAMES_MAX);
        to_harness.try_send(frame).expect("a fresh channel has room for the first frame");
        let mut request = self.request(ReceiverStream::new(frames));
        agreed.extensions.write(request.metadata_mut());
        let mut bridge = Bridge::new(
            (session, execution_id),
            to_harness,
            sink,
            self.cancel.clone(),
            Terms { message_bytes_max: bound, agreed, history },
        );
        let mut client = self.client.clone();
        let opening = client.connect(request);
        bridge.drive(opening).await
    }
}

/// What a failed call or stream means for the turn.
pub(crate) fn failure(status: &Status) -> HarnessError {
    let message = crate::status::bounded(status.message());
    if is_local(status) || status.code() == Code::Unavailable {
        return HarnessError::Unavailable { message };
    }
    match status.code() {
        Code::DeadlineExceeded => HarnessError::Deadline { message },
        Code::Unimplemented => {
            HarnessError::Protocol { message: format!("not a harness: {message}") }
        }
        _ => HarnessError::failed(message),
    }
}
