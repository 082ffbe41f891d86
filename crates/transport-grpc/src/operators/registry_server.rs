//! Serves `api::HarnessRegistry` as `agentsessions.v1.HarnessRegistry`.

use std::fmt;
use std::sync::Arc;

use mainspring_api::{Authenticator, HarnessRegistry, method};
use mainspring_wire::v1::harness_registry_server as generated;
use mainspring_wire::{harnesses_to_wire, registered_to_wire, registration_from_wire, v1};
use tonic::{Request, Response, Status};

use crate::call::RpcKind;
use crate::front::{Front, GrpcService};
use crate::metadata;
use crate::operators::strict::Strict;
use crate::options::LinkOptions;
use crate::sessions::{Call, answer, bad_request, take, unsendable};

/// Serves a registry of harnesses over gRPC.
#[derive(Clone)]
pub struct HarnessRegistryServer {
    registry: Arc<dyn HarnessRegistry>,
    front: Front,
}

impl fmt::Debug for HarnessRegistryServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HarnessRegistryServer")
            .field("registry", &self.registry)
            .finish_non_exhaustive()
    }
}

impl HarnessRegistryServer {
    /// A server of `registry`, whose callers stay anonymous.
    #[must_use]
    pub fn new(registry: Arc<dyn HarnessRegistry>, options: LinkOptions) -> Self {
        Self { registry, front: Front::new(options) }
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
        let service = generated::HarnessRegistryServer::new(Rpc(self))
            .max_decoding_message_size(bytes_max)
            .max_encoding_message_size(bytes_max);
        front.before(Strict::new(service, bytes_max))
    }
}

// Keeps the generated trait out of the public type.
struct Rpc(HarnessRegistryServer);

#[tonic::async_trait]
impl generated::HarnessRegistry for Rpc {
    async fn register_harness(
        &self,
        request: Request<v1::RegisterHarnessRequest>,
    ) -> Result<Response<v1::RegisterHarnessResponse>, Status> {
        let Call { metadata, caller, log, body, .. } =
            take(request, method::REGISTER_HARNESS, RpcKind::Unary, |_| "");
        let work = async {
            metadata::only(&metadata, &[])?;
            let (name, spec) = registration_from_wire(body).map_err(bad_request)?;
            let (harness, outcome) = self.0.registry.register(&caller, &name, spec).await?;
            registered_to_wire(harness, outcome).map_err(unsendable)
        };
        answer(log, work.await)
    }

    async fn get_harness(
        &self,
        request: Request<v1::GetHarnessRequest>,
    ) -> Result<Response<v1::HarnessRegistration>, Status> {
        let Call { metadata, caller, log, body, .. } =
            take(request, method::GET_HARNESS, RpcKind::Unary, |_| "");
        let work = async {
            metadata::only(&metadata, &[])?;
            let harness = self.0.registry.get(&caller, &body.name, body.observe).await?;
            harness.try_into().map_err(unsendable)
        };
        answer(log, work.await)
    }

    async fn list_harnesses(
        &self,
        request: Request<v1::ListHarnessesRequest>,
    ) -> Result<Response<v1::ListHarnessesResponse>, Status> {
        let Call { metadata, caller, log, body, .. } =
            take(request, method::LIST_HARNESSES, RpcKind::Unary, |_| "");
        let work = async {
            metadata::only(&metadata, &[])?;
            let (harnesses, next) = self
                .0
                .registry
                .list(&caller, body.page_size, &body.page_token, body.include_retired)
                .await?;
            harnesses_to_wire(harnesses, next).map_err(unsendable)
        };
        answer(log, work.await)
    }

    async fn retire_harness(
        &self,
        request: Request<v1::RetireHarnessRequest>,
    ) -> Result<Response<v1::HarnessRegistration>, Status> {
        let Call { metadata, caller, log, body, .. } =
            take(request, method::RETIRE_HARNESS, RpcKind::Unary, |_| "");
        let work = async {
            metadata::only(&metadata, &[])?;
            let harness = self.0.registry.retire(&caller, &body.name, &body.reason).await?;
            harness.try_into().map_err(unsendable)
        };
        answer(log, work.await)
    }
}
