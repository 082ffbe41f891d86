//! A host: a Sessions service over a log, with the harnesses that it serves.

use std::sync::Arc;
use std::time::Duration;

use mainspring_api::{
    ApprovalPolicy, Authorizer, Clock, Entropy, Harness, HarnessConnector, ModelPolicy,
    ModelProvider, OsEntropy, Outcome, Runtime, SessionsError, SystemClock, ToolCall, ToolError,
    ToolExecutor, ToolResult, ToolScope, async_trait, random_hex,
};
use mainspring_eventlog::{EventLog, Holder};
use mainspring_harness::{EchoModel, REFERENCE_KINDS, reference};
use mainspring_placement::{Connectors, Harnesses, PlacementError};
use mainspring_sessions::{ExecStateProjection, Reclaim, Registry, Service, ServiceOptions};

use crate::placers::Placers;

/// The harness that sessions run on when nothing else is said.
const DEFAULT_HARNESS: &str = "echo";

/// Puts a host together.
#[derive(Debug)]
pub struct HostBuilder {
    log: Arc<dyn EventLog>,
    project: String,
    model: Option<Arc<dyn ModelProvider>>,
    model_policy: Option<ModelPolicy>,
    tools: Option<Arc<dyn ToolExecutor>>,
    approval_ttl: Option<Duration>,
    approval_policy: Option<Arc<dyn ApprovalPolicy>>,
    authorizer: Option<Arc<dyn Authorizer>>,
    exec_state: ExecStateProjection,
    reclaim: Option<Reclaim>,
    connectors: Connectors,
    has_grpc: bool,
    placed: Vec<(String, Arc<dyn Runtime>)>,
    replace_built_in: bool,
    every_built_in: bool,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
}

impl HostBuilder {
    /// A host over `log` with the built-in harnesses `echo` and `gate`, and the
    /// model `echo`.
    #[must_use]
    pub fn new(log: Arc<dyn EventLog>) -> Self {
        Self {
            log,
            project: "default".to_owned(),
            model: None,
            model_policy: None,
            tools: None,
            approval_ttl: None,
            approval_policy: None,
            authorizer: None,
            exec_state: ExecStateProjection::default(),
            reclaim: None,
            connectors: Connectors::in_process(),
            has_grpc: false,
            placed: Vec::new(),
            replace_built_in: false,
            every_built_in: false,
            clock: Arc::new(SystemClock),
            entropy: Arc::new(OsEntropy),
        }
    }

    /// The project of calls that name none; `default` unless set.
    #[must_use]
    pub fn project(mut self, project: impl Into<String>) -> Self {
        self.project = project.into();
        self
    }

    /// Answers model calls with `model` instead of the built-in echo, and
    /// serves the built-in `chat` harness too.
    #[must_use]
    pub fn model(mut self, model: Arc<dyn ModelProvider>) -> Self {
        self.model = Some(model);
        self
    }

    /// Which models turns may use; any unless set.
    #[must_use]
    pub fn model_policy(mut self, policy: ModelPolicy) -> Self {
        self.model_policy = Some(policy);
        self
    }

    /// Runs mediated tools; without it they are refused. An approved call that
    /// was started and has no receipt is run again only if its tool is
    /// declared repeatable.
    #[must_use]
    pub fn tools(mut self, tools: Arc<dyn ToolExecutor>) -> Self {
        self.tools = Some(tools);
        self
    }

    /// How long requests for approval stay open when a call does not say; for
    /// good unless set.
    #[must_use]
    pub fn approval_ttl(mut self, ttl: Duration) -> Self {
        self.approval_ttl = Some(ttl);
        self
    }

    /// Is asked about requests for approval before a person is.
    #[must_use]
    pub fn approval_policy(mut self, policy: Arc<dyn ApprovalPolicy>) -> Self {
        self.approval_policy = Some(policy);
        self
    }

    /// Decides what callers may do; everybody may do everything unless set.
    #[must_use]
    pub fn authorizer(mut self, authorizer: Arc<dyn Authorizer>) -> Self {
        self.authorizer = Some(authorizer);
        self
    }

    /// What the turn axis of a session says; as the journal implies it unless set.
    #[must_use]
    pub fn exec_state(mut self, projection: ExecStateProjection) -> Self {
        self.exec_state = projection;
        self
    }

    /// Drops the records of sessions that were deleted long enough ago; they
    /// are kept for good unless set. The host's service does it once it is told
    /// to look.
    #[must_use]
    pub fn reclaim(mut self, reclaim: Reclaim) -> Self {
        self.reclaim = Some(reclaim);
        self
    }

    /// Reaches harnesses by gRPC.
    #[must_use]
    pub fn grpc(mut self, connector: Arc<dyn HarnessConnector>) -> Self {
        self.connectors = self.connectors.with_grpc(connector);
        self.has_grpc = true;
        self
    }

    /// Serves the harness `name` on `runtime`.
    #[must_use]
    pub fn harness(mut self, name: impl Into<String>, runtime: Arc<dyn Runtime>) -> Self {
        self.placed.push((name.into(), runtime));
        self
    }

    /// Lets a harness take a built-in's name.
    #[must_use]
    pub fn replace_built_in(mut self, replace: bool) -> Self {
        self.replace_built_in = replace;
        self
    }

    /// Serves every built-in harness, also those that are of no use for new
    /// turns without a model: a replay needs none.
    #[must_use]
    pub fn every_built_in(mut self) -> Self {
        self.every_built_in = true;
        self
    }

    /// Takes time and randomness from elsewhere.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>, entropy: Arc<dyn Entropy>) -> Self {
        self.clock = clock;
        self.entropy = entropy;
        self
    }

    /// The host.
    ///
    /// # Errors
    /// [`HostError::HarnessExists`] when two harnesses have one name.
    pub fn build(self) -> Result<Host, HostError> {
        let holder = Holder {
            id: random_hex(&*self.entropy, 8),
            name: format!("pid/{}", std::process::id()),
        };
        let placers = Placers {
            connector: Arc::new(self.connectors.clone()),
            has_grpc: self.has_grpc,
            model: self.model.clone().unwrap_or_else(|| Arc::new(EchoModel)),
            policy: self.model_policy.clone(),
            tools: self.tools.clone().unwrap_or_else(|| Arc::new(NoTools)),
            holder: holder.clone(),
            clock: Arc::clone(&self.clock),
            entropy: Arc::clone(&self.entropy),
        };
        let placer = |name: &str, runtime: &Arc<dyn Runtime>| placers.placer(name, "", runtime);
        let built_in = self.built_in()?;
        let mut runtimes = vec![Arc::clone(&built_in)];
        let harnesses = Harnesses::new(placer(DEFAULT_HARNESS, &built_in));
        harnesses.add(placer("gate", &built_in)).map_err(HostError::from)?;
        if self.model.is_some() || self.every_built_in {
            harnesses.add(placer("chat", &built_in)).map_err(HostError::from)?;
        }
        let mut taken: Vec<&String> = Vec::new();
        for (name, runtime) in &self.placed {
            let is_built_in = REFERENCE_KINDS.contains(&name.as_str());
            if taken.contains(&name) || (is_built_in && !self.replace_built_in) {
                return Err(HostError::HarnessExists { name: name.clone(), built_in: is_built_in });
            }
            taken.push(name);
            harnesses.replace(placer(name, runtime));
            if !runtimes.iter().any(|known| Arc::ptr_eq(known, runtime)) {
                runtimes.push(Arc::clone(runtime));
            }
        }
        let service = Service::new(ServiceOptions {
            log: Arc::clone(&self.log),
            harnesses: harnesses.clone(),
            project: self.project.clone(),
            holder: holder.clone(),
            clock: Arc::clone(&self.clock),
            entropy: Arc::clone(&self.entropy),
            exec_state: self.exec_state,
            idle: IDLE,
            authorizer: self.authorizer.clone(),
            approval_ttl: self.approval_ttl,
            approval_policy: self.approval_policy.clone(),
            reclaim: self.reclaim,
        });
        Ok(Host { service, harnesses, runtimes, placers })
    }

    /// The built-in harnesses, in this process.
    #[cfg(feature = "runtime-local")]
    fn built_in(&self) -> Result<Arc<dyn Runtime>, HostError> {
        let mut builder = mainspring_runtime_local::LocalRuntime::builder();
        for kind in BUILT_IN {
            let harness: Arc<dyn Harness> =
                reference(kind, "").expect("every built-in is a reference harness");
            builder = builder.built_in(kind, harness);
        }
        Ok(Arc::new(builder.build().map_err(|error| HostError::Config(error.to_string()))?))
    }

    #[cfg(not(feature = "runtime-local"))]
    fn built_in(&self) -> Result<Arc<dyn Runtime>, HostError> {
        let _ = (reference as fn(&str, &str) -> Option<Arc<dyn Harness>>, BUILT_IN);
        Err(HostError::Config(
            "this build has no runtime-local for the built-in harness".to_owned(),
        ))
    }
}

/// The executor of a host without tools. With it, a call whose outcome is
/// unknown stays so, instead of being a call that nobody could make.
#[derive(Debug)]
struct NoTools;

#[async_trait]
impl ToolExecutor for NoTools {
    async fn execute(&self, _: &ToolScope, call: &ToolCall) -> Result<ToolResult, ToolError> {
        Err(ToolError {
            message: format!("this host has no tool {:?}", call.tool),
            outcome: Outcome::NotApplied,
            source: None,
        })
    }

    fn offers(&self, _: &str) -> bool {
        false
    }

    fn is_repeatable(&self, _: &str) -> bool {
        false
    }
}

/// How long compute stays warm after a turn.
const IDLE: Duration = Duration::from_secs(300);

/// The harnesses that a host has of its own.
const BUILT_IN: [&str; 3] = [DEFAULT_HARNESS, "gate", "chat"];

/// A running host.
#[derive(Debug)]
pub struct Host {
    service: Service,
    harnesses: Harnesses,
    runtimes: Vec<Arc<dyn Runtime>>,
    placers: Placers,
}

impl Host {
    /// The Sessions service, and Operations.
    #[must_use]
    pub fn service(&self) -> &Service {
        &self.service
    }

    /// The harnesses that it serves.
    #[must_use]
    pub fn harnesses(&self) -> &Harnesses {
        &self.harnesses
    }

    /// The registry of harnesses that operators put there while the host runs,
    /// with what its store holds loaded, and the host's own names reserved. A
    /// host that serves opens it once, before it serves, also if nobody may
    /// call it: what was registered is routable from then on.
    ///
    /// # Errors
    /// As [`Registry::open`]; the host must not serve then.
    pub async fn open_registry(&self) -> Result<Registry, SessionsError> {
        Registry::open(&self.service, Arc::new(self.placers.clone())).await
    }

    /// Makes what is registered in the store routable, and writes nothing: for a
    /// command that opens the store of a host.
    ///
    /// # Errors
    /// As [`Registry::load`].
    pub async fn load_registrations(&self) -> Result<(), SessionsError> {
        Registry::load(&self.service, Arc::new(self.placers.clone())).await
    }

    /// Ends all compute that this host started.
    pub async fn close(&self) {
        let mut runtimes = self.runtimes.clone();
        for placer in self.harnesses.placers() {
            if !runtimes.iter().any(|known| Arc::ptr_eq(known, placer.runtime())) {
                runtimes.push(Arc::clone(placer.runtime()));
            }
        }
        for runtime in &runtimes {
            if let Err(error) = runtime.close().await {
                tracing::warn!(runtime = runtime.name(), error = %error, "runtime not closed");
            }
        }
    }
}

/// Why a host cannot be put together.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// Two harnesses have one name.
    #[error("harness {name:?} exists already{}", if *.built_in { " as a built-in" } else { "" })]
    HarnessExists {
        /// The name.
        name: String,
        /// Whether it is a built-in's.
        built_in: bool,
    },
    /// A part is set up wrongly.
    #[error("{0}")]
    Config(String),
}

impl From<PlacementError> for HostError {
    fn from(error: PlacementError) -> Self {
        Self::Config(error.to_string())
    }
}
