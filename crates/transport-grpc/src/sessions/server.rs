//! Serves `api::Sessions` as `agentsessions.v1.Sessions`.

use std::fmt;
use std::sync::Arc;

use futures_util::{StreamExt as _, stream};
use mainspring_api::{
    ApproveRequest, BoxStream, Caller, CancelRequest, Condition, CreateRequest, ExecRequest,
    ExecStream, ExecUpdate, ForkRequest, ReplayRequest, ResumeRequest, Session, Sessions,
    SessionsError, method,
};
use mainspring_wire::v1::sessions_server as generated;
use mainspring_wire::{NotesField, WireError, approved_to_wire, session_uid, v1};
use tonic::metadata::MetadataMap;
use tonic::{Code, Request, Response, Status};

use crate::call::{CallLog, RpcKind};
use crate::metadata::{
    self, APPROVAL_DIGEST, APPROVAL_TTL, EXECUTION_ID, IDEMPOTENCY_KEY, ON_DISCONNECT,
};
use crate::options::LinkOptions;
use crate::status::to_status;

/// Serves a sessions service over gRPC.
///
/// Dropping a client's stream drops the service's stream and no more: whether
/// the turn goes on is the service's matter.
#[derive(Clone)]
pub struct SessionsServer {
    sessions: Arc<dyn Sessions>,
    options: LinkOptions,
}

impl fmt::Debug for SessionsServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionsServer").field("sessions", &self.sessions).finish_non_exhaustive()
    }
}

impl SessionsServer {
    /// A server of `sessions`.
    #[must_use]
    pub fn new(sessions: Arc<dyn Sessions>, options: LinkOptions) -> Self {
        Self { sessions, options }
    }

    /// The tower service, for a router that serves others beside it.
    #[must_use]
    pub fn into_service(self) -> generated::SessionsServer<impl generated::Sessions> {
        let bytes_max = self.options.message_bytes_max;
        generated::SessionsServer::new(Rpc(self))
            .max_decoding_message_size(bytes_max)
            .max_encoding_message_size(bytes_max)
    }

    fn begin(
        &self,
        metadata: &MetadataMap,
        method: &'static str,
        kind: RpcKind,
        session: &str,
    ) -> (Caller, CallLog) {
        begin(&self.options, metadata, method, kind, session)
    }
}

/// Who calls, as far as the call says, and the log of the call.
pub(super) fn begin(
    options: &LinkOptions,
    metadata: &MetadataMap,
    method: &'static str,
    kind: RpcKind,
    session: &str,
) -> (Caller, CallLog) {
    let request_id = metadata::request_id(metadata, &*options.entropy);
    let log = CallLog::start(method, kind, request_id.clone(), session);
    let caller = Caller::anonymous(method, request_id);
    (caller, log)
}

// Keeps the generated trait out of the public type.
struct Rpc(SessionsServer);

pub(super) fn bad_request(error: WireError) -> SessionsError {
    SessionsError::new(Condition::InvalidArgument, error.to_string())
}

pub(super) fn bad_answer(error: WireError) -> SessionsError {
    SessionsError::new(Condition::Internal, format!("answer cannot be sent: {error}"))
}

pub(super) fn answer<T>(
    log: CallLog,
    result: Result<T, SessionsError>,
) -> Result<Response<T>, Status> {
    match result {
        Ok(value) => {
            log.finish(Code::Ok);
            Ok(Response::new(value))
        }
        Err(error) => {
            let status = to_status(&error);
            log.finish(status.code());
            Err(status)
        }
    }
}

type WireStream<T> = BoxStream<'static, Result<T, Status>>;

/// The service's stream as a response that ends at the first error.
fn answer_stream<T: 'static, U: 'static>(
    log: CallLog,
    result: Result<BoxStream<'static, Result<T, SessionsError>>, SessionsError>,
    convert: impl Fn(T) -> Result<U, WireError> + Send + 'static,
) -> Result<Response<WireStream<U>>, Status> {
    let items = match result {
        Ok(items) => items,
        Err(error) => {
            let status = to_status(&error);
            log.finish(status.code());
            return Err(status);
        }
    };
    let state = Some((items, log, convert));
    let stream = stream::unfold(state, async |state| {
        let (mut items, log, convert) = state?;
        let item = match items.next().await {
            None => {
                log.finish(Code::Ok);
                return None;
            }
            Some(item) => item.and_then(|item| convert(item).map_err(bad_answer)),
        };
        match item {
            Ok(item) => Some((Ok(item), Some((items, log, convert)))),
            Err(error) => {
                let status = to_status(&error);
                log.finish(status.code());
                Some((Err(status), None))
            }
        }
    });
    Ok(Response::new(Box::pin(stream)))
}

fn notes(metadata: &MetadataMap) -> Result<NotesField, SessionsError> {
    Ok(if metadata::switch(metadata, metadata::NOTES)? {
        NotesField::Send
    } else {
        NotesField::Omit
    })
}

fn to_session(session: Session) -> Result<v1::Session, SessionsError> {
    session.try_into().map_err(bad_answer)
}

/// The session that a resume ends with.
async fn last_session(mut updates: ExecStream) -> Result<Session, SessionsError> {
    let mut last = None;
    while let Some(update) = updates.next().await {
        if let ExecUpdate::Session(session) = update? {
            last = Some(*session);
        }
    }
    last.ok_or_else(|| SessionsError::new(Condition::Internal, "resume ended without its session"))
}

#[tonic::async_trait]
impl generated::Sessions for Rpc {
    async fn create_session(
        &self,
        request: Request<v1::CreateSessionRequest>,
    ) -> Result<Response<v1::Session>, Status> {
        let (metadata, _, body) = request.into_parts();
        let (caller, log) = self.0.begin(&metadata, method::CREATE_SESSION, RpcKind::Unary, "");
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
        let (metadata, _, body) = request.into_parts();
        let (caller, log) = self.0.begin(&metadata, method::GET_SESSION, RpcKind::Unary, &body.uid);
        let work = async {
            metadata::only(&metadata, &[])?;
            let uid = session_uid("uid", &body.uid).map_err(bad_request)?;
            to_session(self.0.sessions.get(&caller, &uid).await?)
        };
        answer(log, work.await)
    }

    async fn list_sessions(
        &self,
        request: Request<v1::ListSessionsRequest>,
    ) -> Result<Response<v1::ListSessionsResponse>, Status> {
        let (metadata, _, body) = request.into_parts();
        let (caller, log) = self.0.begin(&metadata, method::LIST_SESSIONS, RpcKind::Unary, "");
        let work = async {
            metadata::only(&metadata, &[])?;
            let page = self.0.sessions.list(&caller, body.into()).await?;
            page.try_into().map_err(bad_answer)
        };
        answer(log, work.await)
    }

    async fn delete_session(
        &self,
        request: Request<v1::DeleteSessionRequest>,
    ) -> Result<Response<v1::Session>, Status> {
        let (metadata, _, body) = request.into_parts();
        let (caller, log) =
            self.0.begin(&metadata, method::DELETE_SESSION, RpcKind::Unary, &body.uid);
        let work = async {
            metadata::only(&metadata, &[])?;
            let uid = session_uid("uid", &body.uid).map_err(bad_request)?;
            to_session(self.0.sessions.delete(&caller, &uid).await?)
        };
        answer(log, work.await)
    }

    type ExecStream = WireStream<v1::ExecUpdate>;

    async fn exec(
        &self,
        request: Request<v1::ExecRequest>,
    ) -> Result<Response<Self::ExecStream>, Status> {
        let (metadata, _, body) = request.into_parts();
        let (caller, log) = self.0.begin(&metadata, method::EXEC, RpcKind::Stream, &body.session);
        let work = async {
            metadata::only(
                &metadata,
                &[EXECUTION_ID, IDEMPOTENCY_KEY, ON_DISCONNECT, APPROVAL_TTL],
            )?;
            let notes = notes(&metadata)?;
            let mut request = ExecRequest::try_from(body).map_err(bad_request)?;
            request.execution_id = metadata::execution_id(&metadata)?;
            request.idempotency_key = metadata::idempotency_key(&metadata)?;
            request.on_disconnect = metadata::on_disconnect(&metadata)?;
            request.approval_ttl = metadata::approval_ttl(&metadata)?;
            Ok((notes, self.0.sessions.exec(&caller, request).await?))
        };
        let (notes, updates) = match work.await {
            Ok((notes, updates)) => (notes, Ok(updates)),
            Err(error) => (NotesField::Omit, Err(error)),
        };
        answer_stream(log, updates, move |update| mainspring_wire::update_to_wire(update, notes))
    }

    type ReplayStream = WireStream<v1::LogRecord>;

    async fn replay(
        &self,
        request: Request<v1::ReplayRequest>,
    ) -> Result<Response<Self::ReplayStream>, Status> {
        let (metadata, _, body) = request.into_parts();
        let (caller, log) = self.0.begin(&metadata, method::REPLAY, RpcKind::Stream, &body.session);
        let work = async {
            metadata::only(&metadata, &[])?;
            let notes = notes(&metadata)?;
            let mut request = ReplayRequest::try_from(body).map_err(bad_request)?;
            request.verify = metadata::switch(&metadata, metadata::VERIFY)?;
            Ok((notes, self.0.sessions.replay(&caller, request).await?))
        };
        let (notes, records) = match work.await {
            Ok((notes, records)) => (notes, Ok(records)),
            Err(error) => (NotesField::Omit, Err(error)),
        };
        answer_stream(log, records, move |record| mainspring_wire::record_to_wire(record, notes))
    }

    async fn approve(
        &self,
        request: Request<v1::ApproveRequest>,
    ) -> Result<Response<v1::ApproveResponse>, Status> {
        let (metadata, _, body) = request.into_parts();
        let (caller, log) = self.0.begin(&metadata, method::APPROVE, RpcKind::Unary, &body.session);
        let work = async {
            metadata::only(&metadata, &[APPROVAL_DIGEST])?;
            let notes = notes(&metadata)?;
            let mut request = ApproveRequest::try_from(body).map_err(bad_request)?;
            request.digest = metadata::approval_digest(&metadata)?;
            let approved = self.0.sessions.approve(&caller, request).await?;
            approved_to_wire(approved, notes).map_err(bad_answer)
        };
        answer(log, work.await)
    }

    async fn cancel(
        &self,
        request: Request<v1::CancelRequest>,
    ) -> Result<Response<v1::Session>, Status> {
        let (metadata, _, body) = request.into_parts();
        let (caller, log) = self.0.begin(&metadata, method::CANCEL, RpcKind::Unary, &body.session);
        let work = async {
            metadata::only(&metadata, &[])?;
            let request = CancelRequest::try_from(body).map_err(bad_request)?;
            to_session(self.0.sessions.cancel(&caller, request).await?)
        };
        answer(log, work.await)
    }

    async fn suspend(
        &self,
        request: Request<v1::SuspendRequest>,
    ) -> Result<Response<v1::Session>, Status> {
        let (metadata, _, body) = request.into_parts();
        let (caller, log) = self.0.begin(&metadata, method::SUSPEND, RpcKind::Unary, &body.session);
        let work = async {
            metadata::only(&metadata, &[])?;
            let uid = session_uid("session", &body.session).map_err(bad_request)?;
            to_session(self.0.sessions.suspend(&caller, &uid).await?)
        };
        answer(log, work.await)
    }

    async fn resume(
        &self,
        request: Request<v1::ResumeRequest>,
    ) -> Result<Response<v1::Session>, Status> {
        let (metadata, _, body) = request.into_parts();
        let (caller, log) = self.0.begin(&metadata, method::RESUME, RpcKind::Unary, &body.session);
        let work = async {
            metadata::only(&metadata, &[APPROVAL_TTL])?;
            let mut request = ResumeRequest::try_from(body).map_err(bad_request)?;
            request.approval_ttl = metadata::approval_ttl(&metadata)?;
            let updates = self.0.sessions.resume(&caller, request).await?;
            to_session(last_session(updates).await?)
        };
        answer(log, work.await)
    }

    async fn fork(
        &self,
        request: Request<v1::ForkRequest>,
    ) -> Result<Response<v1::ForkResponse>, Status> {
        let (metadata, _, body) = request.into_parts();
        let (caller, log) = self.0.begin(&metadata, method::FORK, RpcKind::Unary, &body.session);
        let work = async {
            metadata::only(&metadata, &[])?;
            let request = ForkRequest::try_from(body).map_err(bad_request)?;
            let children = self.0.sessions.fork(&caller, request).await?;
            let children = children.into_iter().map(to_session).collect::<Result<_, _>>()?;
            Ok(v1::ForkResponse { children })
        };
        answer(log, work.await)
    }
}
