//! Serves `api::Sessions` as `agentsessions.v1.Sessions`.

use std::fmt;
use std::sync::Arc;

use mainspring_api::{
    ApproveRequest, Authenticator, CancelRequest, CreateRequest, ExecRequest, ForkRequest,
    ReplayRequest, ResumeRequest, Sessions, SessionsError, method,
};
use mainspring_wire::v1::sessions_server as generated;
use mainspring_wire::{approved_to_wire, session_uid, v1};
use tonic::{Request, Response, Status};

use crate::call::{Counts, RpcKind, count};
use crate::front::{Front, GrpcService, add_trailer};
use crate::metadata::{
    self, APPROVAL_DIGEST, APPROVAL_TTL, EXECUTION_ID, FAULT, IDEMPOTENCY_KEY, ON_DISCONNECT,
};
use crate::options::LinkOptions;
use crate::sessions::served::{
    Call, Sending, WireStream, answer, answer_stream, bad_request, begun, last_session, notes,
    split, take, to_session, to_update, unsendable, warmed, warmed_if_begun,
};

/// Serves a sessions service over gRPC.
///
/// Dropping a client's stream drops the service's stream and no more: whether
/// the turn goes on is the service's matter.
#[derive(Clone)]
pub struct SessionsServer {
    sessions: Arc<dyn Sessions>,
    front: Front,
}

impl fmt::Debug for SessionsServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionsServer").field("sessions", &self.sessions).finish_non_exhaustive()
    }
}

impl SessionsServer {
    /// A server of `sessions`, whose callers stay anonymous.
    #[must_use]
    pub fn new(sessions: Arc<dyn Sessions>, options: LinkOptions) -> Self {
        Self { sessions, front: Front::new(options) }
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
        let service = generated::SessionsServer::new(Rpc(self))
            .max_decoding_message_size(bytes_max)
            .max_encoding_message_size(bytes_max);
        front.before(service)
    }
}

// Keeps the generated trait out of the public type.
struct Rpc(SessionsServer);

/// An answer whose session's fault, for which the contract has no field, is a trailer.
fn with_fault(mut response: Response<v1::Session>, fault: Option<&str>) -> Response<v1::Session> {
    if let Some(fault) = fault {
        add_trailer(&mut response, FAULT, fault);
    }
    response
}

#[tonic::async_trait]
impl generated::Sessions for Rpc {
    async fn create_session(
        &self,
        request: Request<v1::CreateSessionRequest>,
    ) -> Result<Response<v1::Session>, Status> {
        let Call { metadata, caller, log, body, .. } =
            take(request, method::CREATE_SESSION, RpcKind::Unary, |_| "");
        let work = async {
            metadata::only(&metadata, &[IDEMPOTENCY_KEY])?;
            let mut request = CreateRequest::from(body);
            request.idempotency_key = metadata::idempotency_key(&metadata)?;
            to_session(self.0.sessions.create(&caller, request).await?)
        };
        answer(log, work.await)
    }

    async fn get_session(
        &self,
        request: Request<v1::GetSessionRequest>,
    ) -> Result<Response<v1::Session>, Status> {
        let Call { metadata, caller, log, body, session } =
            take(request, method::GET_SESSION, RpcKind::Unary, |body| &body.uid);
        let work = async {
            metadata::only(&metadata, &[])?;
            let uid = session_uid("uid", &body.uid).map_err(bad_request)?;
            let session = self.0.sessions.get(&caller, &uid).await?;
            let fault = session.fault.clone();
            Ok((to_session(session)?, fault))
        };
        let (found, fault) = match work.await {
            Ok((found, fault)) => (Ok(found), fault),
            Err(error) => (Err(error), None),
        };
        let answer = with_fault(answer(log, found)?, fault.as_deref());
        warmed(&*self.0.sessions, &session, Ok(answer))
    }

    async fn list_sessions(
        &self,
        request: Request<v1::ListSessionsRequest>,
    ) -> Result<Response<v1::ListSessionsResponse>, Status> {
        let Call { metadata, caller, mut log, body, .. } =
            take(request, method::LIST_SESSIONS, RpcKind::Unary, |_| "");
        let work = async {
            metadata::only(&metadata, &[])?;
            let page = self.0.sessions.list(&caller, body.into()).await?;
            let returned = count(page.sessions.len());
            Ok((page.try_into().map_err(unsendable)?, returned))
        };
        let page = work.await.map(|(page, returned)| {
            log.counts.sessions_returned = returned;
            page
        });
        answer(log, page)
    }

    async fn delete_session(
        &self,
        request: Request<v1::DeleteSessionRequest>,
    ) -> Result<Response<v1::Session>, Status> {
        let Call { metadata, caller, log, body, session } =
            take(request, method::DELETE_SESSION, RpcKind::Unary, |body| &body.uid);
        let work = async {
            metadata::only(&metadata, &[])?;
            let uid = session_uid("uid", &body.uid).map_err(bad_request)?;
            to_session(self.0.sessions.delete(&caller, &uid).await?)
        };
        warmed(&*self.0.sessions, &session, answer(log, work.await))
    }

    type ExecStream = WireStream<v1::ExecUpdate>;

    async fn exec(
        &self,
        request: Request<v1::ExecRequest>,
    ) -> Result<Response<Self::ExecStream>, Status> {
        let Call { metadata, caller, mut log, body, session } =
            take(request, method::EXEC, RpcKind::Stream, |body| &body.session);
        log.counts = Counts {
            input_count: count(body.inputs.len()),
            cas_requested: Some(body.expected_last_seq.is_some()),
            deltas_sent: Some(0),
            ..Counts::of_records()
        };
        let work = async {
            metadata::only(
                &metadata,
                &[EXECUTION_ID, IDEMPOTENCY_KEY, ON_DISCONNECT, APPROVAL_TTL],
            )?;
            let sending = Sending::asked(&metadata)?;
            let mut request = ExecRequest::try_from(body).map_err(bad_request)?;
            request.execution_id = metadata::execution_id(&metadata)?;
            request.idempotency_key = metadata::idempotency_key(&metadata)?;
            request.on_disconnect = metadata::on_disconnect(&metadata)?;
            request.approval_ttl = metadata::approval_ttl(&metadata)?;
            let sessions = Arc::clone(&self.0.sessions);
            let begin = async move { sessions.exec(&caller, request).await };
            Ok((sending, begun(begin, sending).await?))
        };
        let (sending, updates) = split(work.await);
        let answer = answer_stream(log, updates, move |update, counts| {
            to_update(update, sending.notes, counts)
        })?;
        warmed_if_begun(&*self.0.sessions, &session, answer, sending)
    }

    type ReplayStream = WireStream<v1::LogRecord>;

    async fn replay(
        &self,
        request: Request<v1::ReplayRequest>,
    ) -> Result<Response<Self::ReplayStream>, Status> {
        let Call { metadata, caller, mut log, body, session } =
            take(request, method::REPLAY, RpcKind::Stream, |body| &body.session);
        log.counts = Counts::of_records();
        let work = async {
            metadata::only(&metadata, &[])?;
            let sending = Sending::asked(&metadata)?;
            let mut request = ReplayRequest::try_from(body).map_err(bad_request)?;
            request.verify = metadata::switch(&metadata, metadata::VERIFY)?;
            let sessions = Arc::clone(&self.0.sessions);
            let begin = async move { sessions.replay(&caller, request).await };
            Ok((sending, begun(begin, sending).await?))
        };
        let (sending, records) = split(work.await);
        let answer = answer_stream(log, records, move |record, counts| {
            counts.add_record();
            mainspring_wire::record_to_wire(record, sending.notes).map_err(unsendable)
        })?;
        warmed_if_begun(&*self.0.sessions, &session, answer, sending)
    }

    async fn approve(
        &self,
        request: Request<v1::ApproveRequest>,
    ) -> Result<Response<v1::ApproveResponse>, Status> {
        let Call { metadata, caller, log, body, session } =
            take(request, method::APPROVE, RpcKind::Unary, |body| &body.session);
        let work = async {
            metadata::only(&metadata, &[APPROVAL_DIGEST])?;
            let notes = notes(&metadata)?;
            let mut request = ApproveRequest::try_from(body).map_err(bad_request)?;
            request.digest = metadata::approval_digest(&metadata)?;
            let approved = self.0.sessions.approve(&caller, request).await?;
            approved_to_wire(approved, notes).map_err(unsendable)
        };
        warmed(&*self.0.sessions, &session, answer(log, work.await))
    }

    async fn cancel(
        &self,
        request: Request<v1::CancelRequest>,
    ) -> Result<Response<v1::Session>, Status> {
        let Call { metadata, caller, log, body, session } =
            take(request, method::CANCEL, RpcKind::Unary, |body| &body.session);
        let work = async {
            metadata::only(&metadata, &[])?;
            let request = CancelRequest::try_from(body).map_err(bad_request)?;
            to_session(self.0.sessions.cancel(&caller, request).await?)
        };
        warmed(&*self.0.sessions, &session, answer(log, work.await))
    }

    async fn suspend(
        &self,
        request: Request<v1::SuspendRequest>,
    ) -> Result<Response<v1::Session>, Status> {
        let Call { metadata, caller, log, body, session } =
            take(request, method::SUSPEND, RpcKind::Unary, |body| &body.session);
        let work = async {
            metadata::only(&metadata, &[])?;
            let uid = session_uid("session", &body.session).map_err(bad_request)?;
            to_session(self.0.sessions.suspend(&caller, &uid).await?)
        };
        warmed(&*self.0.sessions, &session, answer(log, work.await))
    }

    async fn resume(
        &self,
        request: Request<v1::ResumeRequest>,
    ) -> Result<Response<v1::Session>, Status> {
        let Call { metadata, caller, log, body, session } =
            take(request, method::RESUME, RpcKind::Unary, |body| &body.session);
        let work = async {
            metadata::only(&metadata, &[APPROVAL_TTL])?;
            let mut request = ResumeRequest::try_from(body).map_err(bad_request)?;
            request.approval_ttl = metadata::approval_ttl(&metadata)?;
            let updates = self.0.sessions.resume(&caller, request).await?;
            to_session(last_session(updates).await?)
        };
        warmed(&*self.0.sessions, &session, answer(log, work.await))
    }

    async fn fork(
        &self,
        request: Request<v1::ForkRequest>,
    ) -> Result<Response<v1::ForkResponse>, Status> {
        let Call { metadata, caller, mut log, body, session } =
            take(request, method::FORK, RpcKind::Unary, |body| &body.session);
        let work = async {
            metadata::only(&metadata, &[])?;
            let request = ForkRequest::try_from(body).map_err(bad_request)?;
            let children = self.0.sessions.fork(&caller, request).await?;
            let children = children.into_iter().map(to_session).collect::<Result<_, _>>()?;
            Ok::<_, SessionsError>(v1::ForkResponse { children })
        };
        let children = work.await;
        log.counts.children_created =
            children.as_ref().map_or(Some(0), |answer| count(answer.children.len()));
        warmed(&*self.0.sessions, &session, answer(log, children))
    }
}
