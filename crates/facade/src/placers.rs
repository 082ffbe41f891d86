//! How a host places its harnesses, its own and those that operators register.

use std::sync::Arc;

use mainspring_api::{
    Clock, Entropy, HarnessConnector, HarnessSpec, ModelPolicy, ModelProvider, Placement, Runtime,
    ToolExecutor,
};
use mainspring_controller::ApprovedRetry;
use mainspring_eventlog::Holder;
use mainspring_placement::{Placer, PlacerOptions, can_place};
use mainspring_sessions::PlacementBuilder;

/// What every placer of a host shares.
#[derive(Debug, Clone)]
pub(crate) struct Placers {
    pub(crate) connector: Arc<dyn HarnessConnector>,
    /// Whether the connector reaches harnesses by gRPC.
    pub(crate) has_grpc: bool,
    pub(crate) model: Arc<dyn ModelProvider>,
    pub(crate) policy: Option<ModelPolicy>,
    pub(crate) tools: Arc<dyn ToolExecutor>,
    pub(crate) holder: Holder,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<dyn Entropy>,
}

impl Placers {
    /// A placer of one harness, which must describe itself with `descriptor_id`
    /// if that is not empty.
    pub(crate) fn placer(
        &self,
        name: &str,
        descriptor_id: &str,
        runtime: &Arc<dyn Runtime>,
    ) -> Arc<Placer> {
        Placer::new(PlacerOptions {
            name: name.to_owned(),
            runtime: Arc::clone(runtime),
            connector: Arc::clone(&self.connector),
            model: Arc::clone(&self.model),
            policy: self.policy.clone(),
            tools: Some(Arc::clone(&self.tools)),
            approved_retry: ApprovedRetry::DeclaredOnly,
            descriptor_id: descriptor_id.to_owned(),
            holder: self.holder.clone(),
            clock: Arc::clone(&self.clock),
            entropy: Arc::clone(&self.entropy),
        })
    }
}

impl PlacementBuilder for Placers {
    fn build(&self, name: &str, spec: &HarnessSpec) -> Result<Arc<Placer>, String> {
        let runtime = match &spec.placement {
            Some(Placement::Remote { address }) => self.remote(name, address)?,
            Some(Placement::Substrate { .. }) => return Err("this host has no substrate".into()),
            _ => return Err("this host does not know its placement".into()),
        };
        let capabilities = spec.capabilities.unwrap_or_default();
        if !can_place(&capabilities, &runtime.capabilities()) {
            let name = runtime.name();
            return Err(format!("it needs memory snapshots, which runtime {name} does not have"));
        }
        Ok(self.placer(name, &spec.descriptor_id, &runtime))
    }
}

impl Placers {
    /// A runtime of one harness at an address. Connects to nothing.
    #[cfg(feature = "runtime-remote")]
    fn remote(&self, name: &str, address: &str) -> Result<Arc<dyn Runtime>, String> {
        if !self.has_grpc {
            return Err("this host has no gRPC connector".to_owned());
        }
        let runtime = mainspring_runtime_remote::RemoteRuntime::new([(name, address)]);
        Ok(Arc::new(runtime.map_err(|error| mainspring_api::report(&error))?))
    }

    #[cfg(not(feature = "runtime-remote"))]
    fn remote(&self, _name: &str, _address: &str) -> Result<Arc<dyn Runtime>, String> {
        let _ = self.has_grpc;
        Err("this build has no runtime-remote".to_owned())
    }
}

#[cfg(all(test, feature = "runtime-local", feature = "runtime-remote"))]
mod tests {
    use std::sync::Arc;

    use mainspring_api::{
        Caller, Capabilities, Condition, ConnectError, CreateRequest, HarnessConnection,
        HarnessConnector, HarnessRegistry as _, HarnessSpec, Incarnation, Placement, RequestId,
        Resumability, Sessions as _, SessionsError, async_trait,
    };
    use mainspring_eventlog::{KvOptions, KvStore, MemoryEngine};

    use crate::HostBuilder;

    /// Reaches nobody.
    #[derive(Debug)]
    struct Nowhere;

    #[async_trait]
    impl HarnessConnector for Nowhere {
        async fn connect(&self, _: &Incarnation) -> Result<HarnessConnection, ConnectError> {
            Err(ConnectError::Unavailable { message: "nobody is there".to_owned() })
        }
    }

    fn builder() -> HostBuilder {
        let store = KvStore::open(MemoryEngine::default(), KvOptions::default()).unwrap();
        HostBuilder::new(Arc::new(store))
    }

    fn caller() -> Caller {
        Caller::anonymous("test", RequestId::new("t").unwrap())
    }

    fn remote(address: &str) -> HarnessSpec {
        HarnessSpec {
            placement: Some(Placement::Remote { address: address.to_owned() }),
            capabilities: Some(Capabilities::default()),
            descriptor_id: String::new(),
        }
    }

    async fn registered(builder: HostBuilder, spec: HarnessSpec) -> Result<(), SessionsError> {
        let host = builder.build().unwrap();
        let registry = host.open_registry().await?;
        registry.register(&caller(), "agent", spec).await.map(drop)
    }

    #[tokio::test]
    async fn a_host_says_what_it_cannot_serve() {
        let with = || builder().grpc(Arc::new(Nowhere));
        let memory = Capabilities {
            resumability: Resumability::RequiresMemorySnapshot,
            ..Capabilities::default()
        };
        let substrate = Placement::Substrate { atespace: "a".to_owned(), template: "t".to_owned() };
        let cases = [
            (builder(), remote("h:1"), "no gRPC connector"),
            (with(), remote("h:0"), "its port is not a number"),
            (with(), remote("ftp://h:1"), "scheme"),
            (with(), HarnessSpec { capabilities: Some(memory), ..remote("h:1") }, "memory"),
            (with(), HarnessSpec { placement: Some(substrate), ..remote("h:1") }, "substrate"),
        ];
        for (builder, spec, reason) in cases {
            let error = registered(builder, spec).await.unwrap_err();
            assert_eq!(error.condition(), Condition::HarnessUnservable, "{error}");
            assert!(error.to_string().contains(reason), "{error}");
        }
        // Nobody needs to be there yet.
        registered(with(), remote("h:1")).await.unwrap();
    }

    #[tokio::test]
    async fn a_registered_harness_is_one_of_the_hosts() {
        let host = builder().grpc(Arc::new(Nowhere)).build().unwrap();
        let registry = host.open_registry().await.unwrap();
        registry.register(&caller(), "agent", remote("h:1")).await.unwrap();
        let request = CreateRequest { harness: "agent".to_owned(), ..CreateRequest::default() };
        host.service().create(&caller(), request).await.unwrap();
        assert!(host.harnesses().names().contains(&"agent".to_owned()));
        let observed = registry.get(&caller(), "agent", true).await.unwrap();
        assert!(observed.observe_error.contains("nobody is there"), "{}", observed.observe_error);
        for name in ["echo", "gate", "chat"] {
            let taken = registry.register(&caller(), name, remote("h:1")).await.unwrap_err();
            assert_eq!(taken.condition(), Condition::AlreadyExists);
        }
        host.close().await;
    }
}
