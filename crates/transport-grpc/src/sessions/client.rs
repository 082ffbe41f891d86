//! `api::Sessions` over a connection.

use std::time::Duration;

use futures_util::stream;
use mainspring_api::{
    ApproveRequest, Approved, BoxStream, Caller, CancelRequest, CreateRequest, DescribeReport,
    ExecRequest, ExecStream, ExecUpdate, FollowRequest, FollowUpdate, ForkRequest, ListPage,
    ListRequest, LogRecord, OnDisconnect, Outcome, ReplayRequest, ResolveRequest, ResumeRequest,
    Session, SessionUid, Sessions, SessionsError, async_trait,
};
use mainspring_wire::operations_v1::operations_client::OperationsClient;
use mainspring_wire::operations_v1::operations_server::SERVICE_NAME as OPERATIONS;
use mainspring_wire::v1::sessions_client::SessionsClient;
use mainspring_wire::{operations_v1, v1};
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;

use crate::heartbeat::HEARTBEAT_DEFAULT;
use crate::link::{ConnectOptions, Link};
use crate::metadata::{
    self, APPROVAL_DIGEST, APPROVAL_TTL, EXECUTION_ID, HEARTBEAT, IDEMPOTENCY_KEY, NOTES,
    ON_DISCONNECT, VERIFY,
};
use crate::options::LinkOptions;
use crate::sessions::received::{
    Outgoing, Pulse, bad_answer, bad_request, is_not_served, live_items, not_served, opened, read,
    session, written,
};
use crate::status::Effect;

/// A sessions service on another host. Clones share the connection, which is
/// made anew when it is lost, and when a stream on it was silent for too long.
///
/// Asks for notes with every record, and for signs of life on every stream.
/// What has no method in `agentsessions.v1` needs a host that serves
/// `mainspring.v1.Operations`: from any other one, `describe`, `follow` and
/// `resolve` are refused by name, and `resume` yields the session at the end alone.
#[derive(Debug, Clone)]
pub struct RemoteSessions {
    client: SessionsClient<Link>,
    operations: OperationsClient<Link>,
    pulse: Pulse,
    out: Outgoing,
}

impl RemoteSessions {
    /// Connects to `address`: `host:port`, `http://host:port`,
    /// `https://host:port`, `unix:///abs` or `unix:path`.
    ///
    /// # Errors
    /// - `invalid_argument` for an address of another form, TLS files that
    ///   cannot be used, options that exclude each other, and a token that
    ///   would go to another machine in plain text.
    /// - `unavailable` when nobody answers within the options' bound, or who
    ///   answers is not trusted.
    pub async fn connect(
        address: &str,
        options: impl Into<ConnectOptions>,
    ) -> Result<Self, SessionsError> {
        let options = options.into();
        let link = Link::connect(address, &options).await?;
        Ok(Self::on(link, &options.link, options.heartbeat))
    }

    /// A service over a channel that the caller made, which is never replaced.
    #[must_use]
    pub fn over(channel: Channel, options: &LinkOptions) -> Self {
        Self::on(Link::over(channel), options, Some(HEARTBEAT_DEFAULT))
    }

    fn on(link: Link, options: &LinkOptions, heartbeat: Option<Duration>) -> Self {
        let client = SessionsClient::new(link.clone())
            .max_decoding_message_size(options.message_bytes_max)
            .max_encoding_message_size(options.message_bytes_max);
        let pulse = Pulse::new(heartbeat, link.line());
        let operations = OperationsClient::new(link)
            .max_decoding_message_size(options.message_bytes_max)
            .max_encoding_message_size(options.message_bytes_max);
        let out = Outgoing { bytes_max: options.message_bytes_max };
        Self { client, operations, pulse, out }
    }

    /// The metadata of a call that is answered by a stream of records.
    fn streamed(&self, caller: &Caller) -> Result<MetadataMap, SessionsError> {
        let mut metadata = metadata::of_caller(caller);
        metadata::set(&mut metadata, NOTES, "1")?;
        if let Some(interval) = self.pulse.interval() {
            metadata::set(&mut metadata, HEARTBEAT, &interval.as_secs().to_string())?;
        }
        Ok(metadata)
    }

    fn client(&self) -> SessionsClient<Link> {
        self.client.clone()
    }
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
        let request = self.out.request(create.into(), metadata)?;
        session(self.client().create_session(request).await.map_err(written)?)
    }

    async fn get(&self, caller: &Caller, uid: &SessionUid) -> Result<Session, SessionsError> {
        let message = v1::GetSessionRequest { uid: uid.to_string() };
        let answer = self.client().get_session(self.out.call(caller, message)?).await;
        let answer = answer.map_err(read)?;
        let fault = metadata::fault(answer.metadata());
        let session: Session = answer.into_inner().try_into().map_err(bad_answer)?;
        Ok(Session { fault, ..session })
    }

    async fn list(&self, caller: &Caller, list: ListRequest) -> Result<ListPage, SessionsError> {
        let answer = self.client().list_sessions(self.out.call(caller, list.into())?).await;
        let answer = answer.map_err(read)?.into_inner();
        answer.try_into().map_err(bad_answer)
    }

    async fn describe(
        &self,
        caller: &Caller,
        uid: &SessionUid,
    ) -> Result<DescribeReport, SessionsError> {
        let message = operations_v1::DescribeRequest { session: uid.to_string() };
        let answer = self.operations.clone().describe(self.out.call(caller, message)?).await;
        let answer = answer.map_err(not_served("describe", OPERATIONS, Effect::Read))?;
        answer.into_inner().try_into().map_err(bad_answer)
    }

    async fn exec(&self, caller: &Caller, exec: ExecRequest) -> Result<ExecStream, SessionsError> {
        let mut metadata = self.streamed(caller)?;
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
        let mut client = self.client();
        let answer = client.exec(self.out.request(message, metadata)?);
        let answer = self.pulse.answer(false, Effect::Write, answer).await?;
        opened(live_items(answer.map_err(written)?, Effect::Write)).await
    }

    async fn resume(
        &self,
        caller: &Caller,
        resume: ResumeRequest,
    ) -> Result<ExecStream, SessionsError> {
        let mut metadata = self.streamed(caller)?;
        set_ttl(&mut metadata, resume.approval_ttl)?;
        let message = operations_v1::ResumeRequest::from(resume.clone());
        let streamed = self.out.request(message, metadata)?;
        let mut operations = self.operations.clone();
        match self.pulse.answer(false, Effect::Write, operations.resume(streamed)).await? {
            Ok(answer) => return opened(live_items(answer, Effect::Write)).await,
            Err(status) if is_not_served(&status) => {}
            Err(status) => return Err(written(status)),
        }
        let mut metadata = metadata::of_caller(caller);
        set_ttl(&mut metadata, resume.approval_ttl)?;
        let answer = self.client().resume(self.out.request(resume.into(), metadata)?).await;
        let session = session(answer.map_err(written)?)?;
        let update = ExecUpdate::Session(Box::new(session));
        Ok(Box::pin(stream::iter([Ok(update)])))
    }

    async fn follow(
        &self,
        caller: &Caller,
        follow: FollowRequest,
    ) -> Result<BoxStream<'static, Result<FollowUpdate, SessionsError>>, SessionsError> {
        let metadata = self.streamed(caller)?;
        let message = operations_v1::FollowRequest::try_from(follow).map_err(bad_request)?;
        let mut operations = self.operations.clone();
        let answer = operations.follow(self.out.request(message, metadata)?);
        let answer = self.pulse.answer(true, Effect::Read, answer).await?;
        let answer = answer.map_err(not_served("follow", OPERATIONS, Effect::Read))?;
        Ok(live_items(answer, Effect::Read))
    }

    async fn replay(
        &self,
        caller: &Caller,
        replay: ReplayRequest,
    ) -> Result<BoxStream<'static, Result<LogRecord, SessionsError>>, SessionsError> {
        let mut metadata = self.streamed(caller)?;
        if replay.verify {
            metadata::set(&mut metadata, VERIFY, "1")?;
        }
        let mut client = self.client();
        let answer = client.replay(self.out.request(replay.into(), metadata)?);
        let answer = self.pulse.answer(false, Effect::Read, answer).await?;
        opened(live_items(answer.map_err(read)?, Effect::Read)).await
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
        let answer = self.client().approve(self.out.request(approve.into(), metadata)?).await;
        let answer = answer.map_err(written)?.into_inner();
        answer.try_into().map_err(|error| bad_answer(error).with_outcome(Outcome::Unknown))
    }

    async fn resolve(
        &self,
        caller: &Caller,
        resolve: ResolveRequest,
    ) -> Result<Session, SessionsError> {
        let message = operations_v1::ResolveRequest::try_from(resolve).map_err(bad_request)?;
        let answer = self.operations.clone().resolve(self.out.call(caller, message)?).await;
        let answer = answer.map_err(not_served("resolve", OPERATIONS, Effect::Write))?;
        answer
            .into_inner()
            .try_into()
            .map_err(|error| bad_answer(error).with_outcome(Outcome::Unknown))
    }

    async fn suspend(&self, caller: &Caller, uid: &SessionUid) -> Result<Session, SessionsError> {
        let message = v1::SuspendRequest { session: uid.to_string() };
        let answer = self.client().suspend(self.out.call(caller, message)?).await;
        session(answer.map_err(written)?)
    }

    async fn fork(
        &self,
        caller: &Caller,
        fork: ForkRequest,
    ) -> Result<Vec<Session>, SessionsError> {
        let answer = self.client().fork(self.out.call(caller, fork.into())?).await;
        let children = answer.map_err(written)?.into_inner().children;
        children.into_iter().map(|child| session(tonic::Response::new(child))).collect()
    }

    async fn cancel(
        &self,
        caller: &Caller,
        cancel: CancelRequest,
    ) -> Result<Session, SessionsError> {
        let answer = self.client().cancel(self.out.call(caller, cancel.into())?).await;
        session(answer.map_err(written)?)
    }

    async fn delete(&self, caller: &Caller, uid: &SessionUid) -> Result<Session, SessionsError> {
        let message = v1::DeleteSessionRequest { uid: uid.to_string() };
        let answer = self.client().delete_session(self.out.call(caller, message)?).await;
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
