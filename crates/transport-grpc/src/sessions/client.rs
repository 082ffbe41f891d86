//! `api::Sessions` over a connection.

use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use mainspring_api::{
    ApproveRequest, Approved, BoxStream, Caller, CancelRequest, Condition, CreateRequest,
    DescribeReport, ExecRequest, ExecStream, ExecUpdate, FollowRequest, FollowUpdate, ForkRequest,
    ListPage, ListRequest, LogRecord, OnDisconnect, Outcome, ReplayRequest, ResolveRequest,
    ResumeRequest, Session, SessionUid, Sessions, SessionsError, async_trait,
};
use mainspring_wire::operations_v1::operations_client::OperationsClient;
use mainspring_wire::v1::sessions_client::SessionsClient;
use mainspring_wire::{WireError, operations_v1, v1};
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;
use tonic::{Code, Request, Status, Streaming};

use crate::address::PeerAddress;
use crate::metadata::{
    self, APPROVAL_DIGEST, APPROVAL_TTL, EXECUTION_ID, IDEMPOTENCY_KEY, NOTES, ON_DISCONNECT,
    VERIFY,
};
use crate::options::LinkOptions;
use crate::status::{Effect, from_status};

/// A sessions service on another host. Clones share the connection, which is
/// made anew when it is lost.
///
/// Asks for notes with every record. `resolve` needs a host that serves
/// `mainspring.v1.Operations`. What has no method yet (describe, follow) is
/// refused by name, and `resume` yields the session at the end alone.
#[derive(Debug, Clone)]
pub struct RemoteSessions {
    client: SessionsClient<Channel>,
    operations: OperationsClient<Channel>,
}

impl RemoteSessions {
    /// Connects to `address`: `host:port`, `http://host:port`, `unix:///abs`
    /// or `unix:path`.
    ///
    /// # Errors
    /// - `invalid_argument` for an address of another form.
    /// - `unavailable` when nobody answers within the options' bound.
    pub async fn connect(address: &str, options: &LinkOptions) -> Result<Self, SessionsError> {
        let peer = PeerAddress::server(address)
            .map_err(|error| SessionsError::new(Condition::InvalidArgument, error.to_string()))?;
        let channel = crate::channel::connect(&peer, options, options.keep_alive_interval)
            .await
            .map_err(|error| {
                SessionsError::new(
                    Condition::Unavailable,
                    format!("{peer}: {}", mainspring_api::report(&error)),
                )
            })?;
        Ok(Self::over(channel, options))
    }

    /// A service over a channel that the caller made.
    #[must_use]
    pub fn over(channel: Channel, options: &LinkOptions) -> Self {
        let client = SessionsClient::new(channel.clone())
            .max_decoding_message_size(options.message_bytes_max)
            .max_encoding_message_size(options.message_bytes_max);
        let operations = OperationsClient::new(channel)
            .max_decoding_message_size(options.message_bytes_max)
            .max_encoding_message_size(options.message_bytes_max);
        Self { client, operations }
    }

    fn client(&self) -> SessionsClient<Channel> {
        self.client.clone()
    }
}

fn request<T>(message: T, metadata: MetadataMap) -> Request<T> {
    Request::from_parts(metadata, Default::default(), message)
}

fn call<T>(caller: &Caller, message: T) -> Request<T> {
    request(message, metadata::of_caller(caller))
}

fn bad_request(error: WireError) -> SessionsError {
    SessionsError::new(Condition::InvalidArgument, error.to_string())
}

/// The peer did it, and its answer cannot be read.
fn bad_answer(error: WireError) -> SessionsError {
    SessionsError::new(Condition::Internal, format!("answer of the host: {error}"))
}

fn written(status: Status) -> SessionsError {
    from_status(&status, Effect::Write)
}

fn read(status: Status) -> SessionsError {
    from_status(&status, Effect::Read)
}

fn session(answer: tonic::Response<v1::Session>) -> Result<Session, SessionsError> {
    answer.into_inner().try_into().map_err(|error| bad_answer(error).with_outcome(Outcome::Unknown))
}

fn no_method(operation: &str) -> SessionsError {
    SessionsError::new(
        Condition::Unimplemented,
        format!("{operation} has no method in agentsessions.v1 or mainspring.v1"),
    )
}

/// The error of a write of `mainspring.v1.Operations`, which a host of
/// `agentsessions.v1` alone does not serve.
fn not_served(operation: &str, status: &Status) -> SessionsError {
    // Our own hosts say more than the code when it is the service that refuses.
    if status.code() == Code::Unimplemented && status.details().is_empty() {
        let service = operations_v1::operations_server::SERVICE_NAME;
        return SessionsError::new(
            Condition::Unimplemented,
            format!("{operation} needs {service}, which this host does not serve"),
        );
    }
    written(status.clone())
}

/// The messages of a stream, up to and with the first error.
fn items<T, U>(
    messages: Streaming<T>,
    effect: Effect,
) -> BoxStream<'static, Result<U, SessionsError>>
where
    T: Send + 'static,
    U: TryFrom<T, Error = WireError> + Send + 'static,
{
    Box::pin(stream::unfold(Some(messages), move |messages| async move {
        let mut messages: Streaming<T> = messages?;
        let item = match messages.next().await? {
            Ok(message) => U::try_from(message).map_err(bad_answer),
            Err(status) => Err(from_status(&status, effect)),
        };
        let rest = item.is_ok().then_some(messages);
        Some((item, rest))
    }))
}

#[async_trait]
impl Sessions for RemoteSessions {
    async fn create(
        &self,
        caller: &Caller,
        create: CreateRequest,
    ) -> Result<Session, SessionsError> {
        let mut metadata = metadata::of_caller(caller);
        if let Some(key) = &create.idempotency_key {
            metadata::set(&mut metadata, IDEMPOTENCY_KEY, key)?;
        }
        let request = request(create.into(), metadata);
        session(self.client().create_session(request).await.map_err(written)?)
    }

    async fn get(&self, caller: &Caller, uid: &SessionUid) -> Result<Session, SessionsError> {
        let message = v1::GetSessionRequest { uid: uid.to_string() };
        let answer = self.client().get_session(call(caller, message)).await;
        let answer = answer.map_err(read)?.into_inner();
        answer.try_into().map_err(bad_answer)
    }

    async fn list(&self, caller: &Caller, list: ListRequest) -> Result<ListPage, SessionsError> {
        let answer = self.client().list_sessions(call(caller, list.into())).await;
        let answer = answer.map_err(read)?.into_inner();
        answer.try_into().map_err(bad_answer)
    }

    async fn describe(
        &self,
        _caller: &Caller,
        _session: &SessionUid,
    ) -> Result<DescribeReport, SessionsError> {
        Err(no_method("describe"))
    }

    async fn exec(&self, caller: &Caller, exec: ExecRequest) -> Result<ExecStream, SessionsError> {
        let mut metadata = metadata::of_caller(caller);
        metadata::set(&mut metadata, NOTES, "1")?;
        if let Some(id) = &exec.execution_id {
            metadata::set(&mut metadata, EXECUTION_ID, id.as_str())?;
        }
        if let Some(key) = &exec.idempotency_key {
            metadata::set(&mut metadata, IDEMPOTENCY_KEY, key)?;
        }
        if exec.on_disconnect == OnDisconnect::Cancel {
            metadata::set(&mut metadata, ON_DISCONNECT, "cancel")?;
        }
        set_ttl(&mut metadata, exec.approval_ttl)?;
        let message = v1::ExecRequest::try_from(exec).map_err(bad_request)?;
        let answer = self.client().exec(request(message, metadata)).await;
        Ok(items(answer.map_err(written)?.into_inner(), Effect::Write))
    }

    async fn resume(
        &self,
        caller: &Caller,
        resume: ResumeRequest,
    ) -> Result<ExecStream, SessionsError> {
        let mut metadata = metadata::of_caller(caller);
        set_ttl(&mut metadata, resume.approval_ttl)?;
        let answer = self.client().resume(request(resume.into(), metadata)).await;
        let session = session(answer.map_err(written)?)?;
        let update = ExecUpdate::Session(Box::new(session));
        Ok(Box::pin(stream::iter([Ok(update)])))
    }

    async fn follow(
        &self,
        _caller: &Caller,
        _request: FollowRequest,
    ) -> Result<BoxStream<'static, Result<FollowUpdate, SessionsError>>, SessionsError> {
        Err(no_method("follow"))
    }

    async fn replay(
        &self,
        caller: &Caller,
        replay: ReplayRequest,
    ) -> Result<BoxStream<'static, Result<LogRecord, SessionsError>>, SessionsError> {
        let mut metadata = metadata::of_caller(caller);
        metadata::set(&mut metadata, NOTES, "1")?;
        if replay.verify {
            metadata::set(&mut metadata, VERIFY, "1")?;
        }
        let answer = self.client().replay(request(replay.into(), metadata)).await;
        Ok(items(answer.map_err(read)?.into_inner(), Effect::Read))
    }

    async fn approve(
        &self,
        caller: &Caller,
        approve: ApproveRequest,
    ) -> Result<Approved, SessionsError> {
        let mut metadata = metadata::of_caller(caller);
        metadata::set(&mut metadata, NOTES, "1")?;
        if let Some(digest) = &approve.digest {
            metadata::set(&mut metadata, APPROVAL_DIGEST, digest)?;
        }
        let answer = self.client().approve(request(approve.into(), metadata)).await;
        let answer = answer.map_err(written)?.into_inner();
        answer.try_into().map_err(|error| bad_answer(error).with_outcome(Outcome::Unknown))
    }

    async fn resolve(
        &self,
        caller: &Caller,
        resolve: ResolveRequest,
    ) -> Result<Session, SessionsError> {
        let message = operations_v1::ResolveRequest::try_from(resolve).map_err(bad_request)?;
        let answer = self.operations.clone().resolve(call(caller, message)).await;
        let answer = answer.map_err(|status| not_served("resolve", &status))?.into_inner();
        answer.try_into().map_err(|error| bad_answer(error).with_outcome(Outcome::Unknown))
    }

    async fn suspend(&self, caller: &Caller, uid: &SessionUid) -> Result<Session, SessionsError> {
        let message = v1::SuspendRequest { session: uid.to_string() };
        let answer = self.client().suspend(call(caller, message)).await;
        session(answer.map_err(written)?)
    }

    async fn fork(
        &self,
        caller: &Caller,
        fork: ForkRequest,
    ) -> Result<Vec<Session>, SessionsError> {
        let answer = self.client().fork(call(caller, fork.into())).await;
        let children = answer.map_err(written)?.into_inner().children;
        children.into_iter().map(|child| session(tonic::Response::new(child))).collect()
    }

    async fn cancel(
        &self,
        caller: &Caller,
        cancel: CancelRequest,
    ) -> Result<Session, SessionsError> {
        let answer = self.client().cancel(call(caller, cancel.into())).await;
        session(answer.map_err(written)?)
    }

    async fn delete(&self, caller: &Caller, uid: &SessionUid) -> Result<Session, SessionsError> {
        let message = v1::DeleteSessionRequest { uid: uid.to_string() };
        let answer = self.client().delete_session(call(caller, message)).await;
        session(answer.map_err(written)?)
    }
}

/// Whole seconds, rounded up: what a host is told must not be shorter than what was asked for.
fn set_ttl(metadata: &mut MetadataMap, ttl: Option<Duration>) -> Result<(), SessionsError> {
    match ttl {
        None => Ok(()),
        Some(ttl) => {
            let seconds = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
            metadata::set(metadata, APPROVAL_TTL, &seconds.to_string())
        }
    }
}
