//! Serves what of `api::Operations` is for operators alone.

use std::fmt;
use std::sync::Arc;

use mainspring_api::{AdoptRequest, Authenticator, Operations, method};
use mainspring_wire::operations_v1::administration_server as generated;
use mainspring_wire::{operations_v1 as wire, v1};
use tonic::{Request, Response, Status};

use crate::call::RpcKind;
use crate::front::{Front, GrpcService};
use crate::metadata;
use crate::options::LinkOptions;
use crate::sessions::{Call, answer, bad_request, take, to_session};

/// Serves `mainspring.v1.Administration`.
#[derive(Clone)]
pub struct AdministrationServer {
    operations: Arc<dyn Operations>,
    front: Front,
}

impl fmt::Debug for AdministrationServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdministrationServer")
            .field("operations", &self.operations)
            .finish_non_exhaustive()
    }
}

impl AdministrationServer {
    /// A server of `operations`, whose callers stay anonymous.
    #[must_use]
    pub fn new(operations: Arc<dyn Operations>, options: LinkOptions) -> Self {
        Self { operations, front: Front::new(options) }
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
        let service = generated::AdministrationServer::new(Rpc(self))
            .max_decoding_message_size(bytes_max)
            .max_encoding_message_size(bytes_max);
        front.before(service)
    }
}

// Keeps the generated trait out of the public type.
struct Rpc(AdministrationServer);

#[tonic::async_trait]
impl generated::Administration for Rpc {
    async fn adopt(
        &self,
        request: Request<wire::AdoptRequest>,
    ) -> Result<Response<v1::Session>, Status> {
        let Call { metadata, caller, log, body, .. } =
            take(request, method::ADOPT, RpcKind::Unary, |body| &body.session);
        let work = async {
            metadata::only(&metadata, &[])?;
            let request = AdoptRequest::try_from(body).map_err(bad_request)?;
            to_session(self.0.operations.adopt(&caller, request).await?)
        };
        answer(log, work.await)
    }
}
