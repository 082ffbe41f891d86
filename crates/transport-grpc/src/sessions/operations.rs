//! Serves what `api::Sessions` has and `agentsessions.v1` has no method for.

use std::fmt;
use std::sync::Arc;

use mainspring_api::{BoxStream, Condition, ResolveRequest, Sessions, SessionsError, method};
use mainspring_wire::operations_v1::operations_server as generated;
use mainspring_wire::{operations_v1 as wire, v1};
use tonic::{Request, Response, Status, Streaming};

use crate::call::RpcKind;
use crate::metadata;
use crate::options::LinkOptions;
use crate::sessions::server::{answer, bad_answer, bad_request, begin};
use crate::status::to_status;

/// Serves a sessions service as `mainspring.v1.Operations`, beside
/// [`SessionsServer`](crate::SessionsServer).
#[derive(Clone)]
pub struct OperationsServer {
    sessions: Arc<dyn Sessions>,
    options: LinkOptions,
}

impl fmt::Debug for OperationsServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OperationsServer").field("sessions", &self.sessions).finish_non_exhaustive()
    }
}

impl OperationsServer {
    /// A server of `sessions`.
    #[must_use]
    pub fn new(sessions: Arc<dyn Sessions>, options: LinkOptions) -> Self {
        Self { sessions, options }
    }

    /// The tower service, for a router that serves others beside it.
    #[must_use]
    pub fn into_service(self) -> generated::OperationsServer<impl generated::Operations> {
        let bytes_max = self.options.message_bytes_max;
        generated::OperationsServer::new(Rpc(self))
            .max_decoding_message_size(bytes_max)
            .max_encoding_message_size(bytes_max)
    }
}

// Keeps the generated trait out of the public type.
struct Rpc(OperationsServer);

type Later<T> = BoxStream<'static, Result<T, Status>>;

/// Refuses by name what this version does not serve.
fn later<T>(method: &str) -> Result<T, Status> {
    let message = format!("{method} is not supported yet");
    Err(to_status(&SessionsError::new(Condition::Unimplemented, message)))
}

#[tonic::async_trait]
impl generated::Operations for Rpc {
    type FollowStream = Later<wire::FollowUpdate>;
    type ResumeStream = Later<v1::ExecUpdate>;
    type VerifyStream = Later<wire::VerifyProgress>;
    type ExportStream = Later<wire::ExportChunk>;

    async fn describe(
        &self,
        _: Request<wire::DescribeRequest>,
    ) -> Result<Response<wire::DescribeResponse>, Status> {
        later(method::DESCRIBE)
    }

    async fn follow(
        &self,
        _: Request<wire::FollowRequest>,
    ) -> Result<Response<Self::FollowStream>, Status> {
        later(method::FOLLOW)
    }

    async fn resume(
        &self,
        _: Request<wire::ResumeRequest>,
    ) -> Result<Response<Self::ResumeStream>, Status> {
        later(method::RESUME_STREAM)
    }

    async fn find(
        &self,
        _: Request<wire::FindRequest>,
    ) -> Result<Response<wire::FindResponse>, Status> {
        later(method::FIND)
    }

    async fn verify(
        &self,
        _: Request<wire::VerifyRequest>,
    ) -> Result<Response<Self::VerifyStream>, Status> {
        later(method::VERIFY)
    }

    async fn export(
        &self,
        _: Request<wire::ExportRequest>,
    ) -> Result<Response<Self::ExportStream>, Status> {
        later(method::EXPORT)
    }

    async fn import(
        &self,
        _: Request<Streaming<wire::ImportRequest>>,
    ) -> Result<Response<v1::Session>, Status> {
        later(method::IMPORT)
    }

    async fn resolve(
        &self,
        request: Request<wire::ResolveRequest>,
    ) -> Result<Response<wire::ResolveResponse>, Status> {
        let (metadata, _, body) = request.into_parts();
        let Self(server) = self;
        let (caller, log) =
            begin(&server.options, &metadata, method::RESOLVE, RpcKind::Unary, &body.session);
        let work = async {
            metadata::only(&metadata, &[])?;
            let request = ResolveRequest::try_from(body).map_err(bad_request)?;
            let session = server.sessions.resolve(&caller, request).await?;
            session.try_into().map_err(bad_answer)
        };
        answer(log, work.await)
    }
}
