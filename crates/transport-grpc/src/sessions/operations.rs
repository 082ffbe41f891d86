//! Serves what `api::Sessions` has and `agentsessions.v1` has no method for,
//! and `api::Operations`.

use std::fmt;
use std::sync::Arc;

use futures_util::{StreamExt as _, stream};
use mainspring_api::{
    Authenticator, BoxStream, Bytes, Condition, ExportRequest, FindRequest, FollowRequest,
    FollowUpdate, ImportRequest, Operations, ResolveRequest, ResumeRequest, Sessions,
    SessionsError, VerifyRequest, method,
};
use mainspring_wire::operations_v1::operations_server as generated;
use mainspring_wire::{follow_to_wire, operations_v1 as wire, session_uid, v1};
use tonic::{Request, Response, Status, Streaming};

use crate::call::{Counts, RpcKind, count};
use crate::front::{Front, GrpcService, unread};
use crate::metadata::{self, APPROVAL_TTL};
use crate::options::LinkOptions;
use crate::sessions::lines::{self, LINE_BYTES_MAX};
use crate::sessions::served::{
    Call, Sending, WireStream, answer, answer_stream, bad_request, beating, begun, split, take,
    to_session, to_update, unsendable, warmed, warmed_if_begun,
};
use crate::status::{Effect, from_status};

/// Serves a sessions service as `mainspring.v1.Operations`, beside
/// [`SessionsServer`](crate::SessionsServer).
#[derive(Clone)]
pub struct OperationsServer {
    sessions: Arc<dyn Sessions>,
    operations: Option<Arc<dyn Operations>>,
    front: Front,
}

impl fmt::Debug for OperationsServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OperationsServer")
            .field("sessions", &self.sessions)
            .field("operations", &self.operations)
            .finish_non_exhaustive()
    }
}

impl OperationsServer {
    /// A server of `sessions` and `operations`, whose callers stay anonymous.
    /// Without `operations` find, verify, export and import are refused by name.
    #[must_use]
    pub fn new(
        sessions: Arc<dyn Sessions>,
        operations: Option<Arc<dyn Operations>>,
        options: LinkOptions,
    ) -> Self {
        Self { sessions, operations, front: Front::new(options) }
    }

    /// Takes only calls with credentials that hold.
    #[must_use]
    pub fn authenticated_by(mut self, authenticator: Option<Arc<dyn Authenticator>>) -> Self {
        self.front.authenticator = authenticator;
        self
    }

    /// The tower service, for a router that serves others beside it.
    #[must_use]
    pub fn into_service(self) -> impl GrpcService {
        let bytes_max = self.front.link.message_bytes_max;
        let front = self.front.clone();
        let service = generated::OperationsServer::new(Rpc(self))
            .max_decoding_message_size(bytes_max)
            .max_encoding_message_size(bytes_max);
        front.before(service)
    }
}

// Keeps the generated trait out of the public type.
struct Rpc(OperationsServer);

impl Rpc {
    fn operations(&self, method: &str) -> Result<&dyn Operations, SessionsError> {
        self.0.operations.as_deref().ok_or_else(|| {
            let text = format!("{method} is not served by this host");
            SessionsError::new(Condition::Unimplemented, text)
        })
    }
}

fn to_follow(
    update: FollowUpdate,
    sending: Sending,
    counts: &mut Counts,
) -> Result<wire::FollowUpdate, SessionsError> {
    match &update {
        FollowUpdate::Record(_) => counts.add_record(),
        FollowUpdate::Delta(_) => counts.add_delta(),
        FollowUpdate::DeltaGap | FollowUpdate::Heartbeat => {}
    }
    follow_to_wire(update, sending.notes).map_err(unsendable)
}

/// A message of a journal's lines that fits.
fn to_chunk(lines: Bytes, bytes_max: usize) -> Result<wire::ExportChunk, SessionsError> {
    // Tag and length of the field.
    const FRAME_BYTES: usize = 16;
    if lines.len() + FRAME_BYTES > bytes_max {
        let text =
            format!("a line of the journal is larger than message_bytes_max, {bytes_max} bytes");
        return Err(SessionsError::new(Condition::ValueTooLarge, text));
    }
    Ok(wire::ExportChunk { lines })
}

/// Where an import goes, and its lines, each whole.
async fn imported(
    mut messages: Streaming<wire::ImportRequest>,
    bytes_max: usize,
) -> Result<(ImportRequest, BoxStream<'static, Result<Bytes, SessionsError>>), SessionsError> {
    let lost = move |status: Status| {
        unread(&status, bytes_max).unwrap_or_else(|| from_status(&status, Effect::Read))
    };
    let malformed = |text: &str| SessionsError::new(Condition::InvalidArgument, text.to_owned());
    let first = messages.message().await.map_err(lost)?;
    let first = first.ok_or_else(|| malformed("target: missing"))?;
    let target = first.target.ok_or_else(|| malformed("target: missing"))?;
    let target =
        ImportRequest::try_from(target).map_err(|error| bad_request(error.within("target")))?;
    let rest = messages.map(move |message| match message {
        Ok(message) if message.target.is_some() => {
            Err(malformed("target: it is not in the first message"))
        }
        Ok(message) => Ok(message.lines),
        Err(status) => Err(lost(status)),
    });
    let pieces = stream::iter([Ok(first.lines)]).chain(rest);
    Ok((target, lines::split(Box::pin(pieces), LINE_BYTES_MAX)))
}

#[tonic::async_trait]
impl generated::Operations for Rpc {
    async fn describe(
        &self,
        request: Request<wire::DescribeRequest>,
    ) -> Result<Response<wire::DescribeResponse>, Status> {
        let Call { metadata, caller, log, body, session } =
            take(request, method::DESCRIBE, RpcKind::Unary, |body| &body.session);
        let work = async {
            metadata::only(&metadata, &[])?;
            let session = session_uid("session", &body.session).map_err(bad_request)?;
            let report = self.0.sessions.describe(&caller, &session).await?;
            report.try_into().map_err(unsendable)
        };
        warmed(&*self.0.sessions, &session, answer(log, work.await))
    }

    type FollowStream = WireStream<wire::FollowUpdate>;

    async fn follow(
        &self,
        request: Request<wire::FollowRequest>,
    ) -> Result<Response<Self::FollowStream>, Status> {
        let Call { metadata, caller, mut log, body, session } =
            take(request, method::FOLLOW, RpcKind::Stream, |body| &body.session);
        log.counts = Counts { deltas_sent: Some(0), ..Counts::of_records() };
        let work = async {
            metadata::only(&metadata, &[])?;
            let sending = Sending::asked(&metadata)?;
            let request = FollowRequest::try_from(body).map_err(bad_request)?;
            Ok((sending, self.0.sessions.follow(&caller, request).await?))
        };
        let (sending, updates) = split(work.await);
        let answer =
            answer_stream(log, updates, move |update, counts| to_follow(update, sending, counts))?;
        warmed(&*self.0.sessions, &session, Ok(beating(answer, sending.heartbeat)))
    }

    type ResumeStream = WireStream<v1::ExecUpdate>;

    async fn resume(
        &self,
        request: Request<wire::ResumeRequest>,
    ) -> Result<Response<Self::ResumeStream>, Status> {
        let Call { metadata, caller, mut log, body, session } =
            take(request, method::RESUME_STREAM, RpcKind::Stream, |body| &body.session);
        log.counts = Counts { deltas_sent: Some(0), ..Counts::of_records() };
        let work = async {
            metadata::only(&metadata, &[APPROVAL_TTL])?;
            let sending = Sending::asked(&metadata)?;
            let mut request = ResumeRequest::try_from(body).map_err(bad_request)?;
            request.approval_ttl = metadata::approval_ttl(&metadata)?;
            let sessions = Arc::clone(&self.0.sessions);
            let begin = async move { sessions.resume(&caller, request).await };
            Ok((sending, begun(begin, sending).await?))
        };
        let (sending, updates) = split(work.await);
        let answer = answer_stream(log, updates, move |update, counts| {
            to_update(update, sending.notes, counts)
        })?;
        warmed_if_begun(&*self.0.sessions, &session, answer, sending)
    }

    async fn find(
        &self,
        request: Request<wire::FindRequest>,
    ) -> Result<Response<wire::FindResponse>, Status> {
        let Call { metadata, caller, mut log, body, .. } =
            take(request, method::FIND, RpcKind::Unary, |_| "");
        let work = async {
            metadata::only(&metadata, &[])?;
            let operations = self.operations(method::FIND)?;
            let request = FindRequest::try_from(body).map_err(bad_request)?;
            let page = operations.find(&caller, request).await?;
            wire::FindResponse::try_from(page).map_err(unsendable)
        };
        let page = work.await;
        log.counts.sessions_returned =
            page.as_ref().ok().and_then(|page| count(page.sessions.len()));
        answer(log, page)
    }

    async fn resolve(
        &self,
        request: Request<wire::ResolveRequest>,
    ) -> Result<Response<wire::ResolveResponse>, Status> {
        let Call { metadata, caller, log, body, session } =
            take(request, method::RESOLVE, RpcKind::Unary, |body| &body.session);
        let work = async {
            metadata::only(&metadata, &[])?;
            let request = ResolveRequest::try_from(body).map_err(bad_request)?;
            let session = self.0.sessions.resolve(&caller, request).await?;
            session.try_into().map_err(unsendable)
        };
        warmed(&*self.0.sessions, &session, answer(log, work.await))
    }

    type VerifyStream = WireStream<wire::VerifyProgress>;

    async fn verify(
        &self,
        request: Request<wire::VerifyRequest>,
    ) -> Result<Response<Self::VerifyStream>, Status> {
        let Call { metadata, caller, log, body, session } =
            take(request, method::VERIFY, RpcKind::Stream, |body| &body.session);
        let work = async {
            metadata::only(&metadata, &[])?;
            let operations = self.operations(method::VERIFY)?;
            let request = VerifyRequest::try_from(body).map_err(bad_request)?;
            operations.verify(&caller, request).await
        };
        let answer =
            answer_stream(log, work.await, |progress, _| progress.try_into().map_err(unsendable));
        warmed(&*self.0.sessions, &session, answer)
    }

    type ExportStream = WireStream<wire::ExportChunk>;

    async fn export(
        &self,
        request: Request<wire::ExportRequest>,
    ) -> Result<Response<Self::ExportStream>, Status> {
        let Call { metadata, caller, log, body, session } =
            take(request, method::EXPORT, RpcKind::Stream, |body| &body.session);
        let work = async {
            metadata::only(&metadata, &[])?;
            let operations = self.operations(method::EXPORT)?;
            let request = ExportRequest::try_from(body).map_err(bad_request)?;
            Ok(lines::packed(operations.export(&caller, request).await?))
        };
        let bytes_max = self.0.front.link.message_bytes_max;
        let answer = answer_stream(log, work.await, move |lines, _| to_chunk(lines, bytes_max));
        warmed(&*self.0.sessions, &session, answer)
    }

    async fn import(
        &self,
        request: Request<Streaming<wire::ImportRequest>>,
    ) -> Result<Response<v1::Session>, Status> {
        let Call { metadata, caller, log, body, .. } =
            take(request, method::IMPORT, RpcKind::Stream, |_| "");
        let work = async {
            metadata::only(&metadata, &[])?;
            let operations = self.operations(method::IMPORT)?;
            let bytes_max = self.0.front.link.message_bytes_max;
            let (target, lines) = imported(body, bytes_max).await?;
            to_session(operations.import(&caller, target, lines).await?)
        };
        answer(log, work.await)
    }
}
