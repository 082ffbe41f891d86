//! The registry of harnesses, and what it does to the sessions of a host.

mod allowed;
mod down;
mod list;
mod others;
mod register;
mod routes;
mod start;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use mainspring_api::{
    AppendId, Authorizer, Bytes, Capabilities, Condition, CreateRequest, Descriptor, EventSink,
    ExecRequest, ForkRequest, Harness, HarnessError, HarnessRegistration, HarnessRegistry as _,
    HarnessSpec, OsEntropy, Placement, RegisterOutcome, Runtime, SessionUid, Sessions as _,
    SessionsError, Start, async_trait,
};
use mainspring_controller::ApprovedRetry;
use mainspring_eventlog::{Holder, RowKey};
use mainspring_harness::EchoModel;
use mainspring_placement::{Connectors, Harnesses, Placer, PlacerOptions};
use mainspring_runtime_local::LocalRuntime;
use mainspring_sessions::{PlacementBuilder, Registry, Service, ServiceOptions};

use crate::support::{IDLE, World, caller, shown, turn};

/// Places registered harnesses on the world's compute, but for some addresses.
#[derive(Debug)]
struct Builder {
    world: World,
    refused: Mutex<BTreeSet<String>>,
}

impl PlacementBuilder for Builder {
    fn build(&self, name: &str, spec: &HarnessSpec) -> Result<Arc<Placer>, String> {
        let Some(Placement::Remote { address }) = &spec.placement else {
            return Err("no such substrate here".to_owned());
        };
        if address.starts_with("race:") {
            // Between the look at the row and its change.
            (0..1_000).for_each(|_| std::thread::yield_now());
        }
        if self.refused.lock().unwrap().contains(address) {
            return Err("no way there".to_owned());
        }
        let runtime: Arc<dyn Runtime> = match address.as_str() {
            "silent:1" => {
                Arc::new(LocalRuntime::builder().built_in(name, Arc::new(Silent)).build().unwrap())
            }
            _ => Arc::clone(&self.world.compute) as _,
        };
        Ok(placer(&self.world, name, &spec.descriptor_id, runtime))
    }
}

/// Never says what it is.
#[derive(Debug)]
struct Silent;

#[async_trait]
impl Harness for Silent {
    async fn describe(&self) -> Result<Descriptor, HarnessError> {
        std::future::pending().await
    }

    async fn run(&self, _: Start, _: Arc<dyn EventSink>) -> Result<(), HarnessError> {
        Ok(())
    }
}

fn placer(
    world: &World,
    name: &str,
    descriptor_id: &str,
    runtime: Arc<dyn Runtime>,
) -> Arc<Placer> {
    Placer::new(PlacerOptions {
        name: name.to_owned(),
        runtime,
        connector: Arc::new(Connectors::in_process()),
        model: Arc::new(EchoModel),
        policy: None,
        tools: Some(Arc::clone(&world.tools) as _),
        approved_retry: ApprovedRetry::DeclaredOnly,
        descriptor_id: descriptor_id.to_owned(),
        holder: Holder { id: "h".to_owned(), name: "test".to_owned() },
        clock: Arc::clone(&world.clock) as _,
        entropy: Arc::new(OsEntropy),
    })
}

/// A host with a registry.
struct Host {
    world: World,
    harnesses: Harnesses,
    service: Service,
    registry: Registry,
    builder: Arc<Builder>,
}

impl Host {
    /// Whose own harness is `scripted`, on a store of its own.
    async fn new() -> Self {
        Self::on(&World::new(), &["scripted"], None).await.unwrap()
    }

    async fn on(
        world: &World,
        own: &[&str],
        authorizer: Option<Arc<dyn Authorizer>>,
    ) -> Result<Self, SessionsError> {
        Self::refusing(world, own, authorizer, &[]).await
    }

    /// That cannot place harnesses at these addresses.
    async fn refusing(
        world: &World,
        own: &[&str],
        authorizer: Option<Arc<dyn Authorizer>>,
        refused: &[&str],
    ) -> Result<Self, SessionsError> {
        let placer = |name: &&str| placer(world, name, "", Arc::clone(&world.compute) as _);
        let mut placers = own.iter().map(placer);
        let harnesses = Harnesses::new(placers.next().unwrap());
        placers.for_each(|placer| harnesses.add(placer).unwrap());
        let service = Service::new(ServiceOptions {
            log: Arc::clone(&world.log),
            harnesses: harnesses.clone(),
            project: "default".to_owned(),
            holder: Holder { id: "h".to_owned(), name: "test".to_owned() },
            clock: Arc::clone(&world.clock) as _,
            entropy: Arc::new(OsEntropy),
            idle: IDLE,
            authorizer,
            approval_ttl: None,
            approval_policy: None,
            exec_state: Default::default(),
            reclaim: None,
        });
        let builder = Arc::new(Builder {
            world: world.clone(),
            refused: Mutex::new(refused.iter().map(|address| (*address).to_owned()).collect()),
        });
        let registry = Registry::open(&service, Arc::clone(&builder) as _).await?;
        Ok(Self { world: world.clone(), harnesses, service, registry, builder })
    }

    async fn register(
        &self,
        name: &str,
        spec: HarnessSpec,
    ) -> Result<(HarnessRegistration, RegisterOutcome), SessionsError> {
        self.registry.register(&caller(), name, spec).await
    }

    async fn registered(&self, name: &str) -> HarnessRegistration {
        self.register(name, remote("h:1")).await.unwrap().0
    }

    async fn retire(&self, name: &str) -> Result<HarnessRegistration, SessionsError> {
        self.registry.retire(&caller(), name, "moved").await
    }

    async fn get(&self, name: &str) -> Result<HarnessRegistration, SessionsError> {
        self.registry.get(&caller(), name, false).await
    }

    async fn names(&self, include_retired: bool) -> Vec<String> {
        let (page, next) = self.registry.list(&caller(), 0, "", include_retired).await.unwrap();
        assert_eq!(next, "");
        page.into_iter().map(|harness| harness.name).collect()
    }

    async fn create(&self, harness: &str) -> Result<SessionUid, SessionsError> {
        let request = CreateRequest { harness: harness.to_owned(), ..CreateRequest::default() };
        self.service.create(&caller(), request).await.map(|session| session.uid)
    }

    /// A turn of a session on the harness that is asked for.
    async fn exec(&self, session: &SessionUid, harness: &str) -> Result<(), SessionsError> {
        let request = ExecRequest { harness: harness.to_owned(), ..turn(session, "out x") };
        self.ended(request).await
    }

    async fn ended(&self, request: ExecRequest) -> Result<(), SessionsError> {
        shown(self.service.exec(&caller(), request).await).await.error.map_or(Ok(()), Err)
    }

    async fn fork(&self, session: &SessionUid) -> Result<SessionUid, SessionsError> {
        let request = ForkRequest {
            session: session.clone(),
            at_seq: 0,
            count: 1,
            child_names: Vec::new(),
            labels: Default::default(),
            identity: None,
        };
        let children = self.service.fork(&caller(), request).await?;
        Ok(children[0].uid.clone())
    }

    async fn row(&self, kind: &str, name: &str) -> Option<Bytes> {
        let rows = self.world.log.rows().unwrap();
        let row = rows.named(&RowKey::new(kind, name).unwrap()).await.unwrap();
        row.map(|row| row.value)
    }
}

async fn put_row(world: &World, kind: &str, name: &str, value: impl Into<Bytes>) {
    let (rows, key) = (world.log.rows().unwrap(), RowKey::new(kind, name).unwrap());
    let version = rows.named(&key).await.unwrap().map_or(0, |row| row.version);
    let id = AppendId::random(&OsEntropy);
    rows.put_named(id, &key, version, Some(value.into())).await.unwrap();
}

fn remote(address: &str) -> HarnessSpec {
    HarnessSpec {
        placement: Some(Placement::Remote { address: address.to_owned() }),
        capabilities: Some(Capabilities::default()),
        descriptor_id: String::new(),
    }
}

#[track_caller]
fn assert_is<T: std::fmt::Debug>(result: Result<T, SessionsError>, condition: Condition) -> String {
    let error = result.unwrap_err();
    assert_eq!(error.condition(), condition, "{error}");
    error.to_string()
}
