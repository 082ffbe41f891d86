//! Serves what `api::Sessions` has and `agentsessions.v1` has no method for.

use std::fmt;
use std::sync::Arc;

use mainspring_api::{ResolveRequest, Sessions};
use mainspring_wire::operations_v1 as wire;
use mainspring_wire::operations_v1::operations_server as generated;
use tonic::{Request, Response, Status};

use crate::call::RpcKind;
use crate::metadata;
use crate::options::LinkOptions;
use crate::sessions::method;
use crate::sessions::server::{answer, bad_answer, bad_request, begin};

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

#[tonic::async_trait]
impl generated::Operations for Rpc {
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
