//! How a controller is set up.

use std::sync::Arc;
use std::time::Duration;

use mainspring_api::{
    CancelReason, Clock, Descriptor, Entropy, Fence, ModelPolicy, ModelProvider, OsEntropy,
    SessionUid, Signal, SystemClock, ToolExecutor,
};
use mainspring_eventlog::Holder;

use crate::instance::InstanceOf;
use crate::observer::{IgnoreAll, Observer};
use crate::run::TurnStop;

/// What a resume does with an approved tool call that was started and has no
/// receipt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ApprovedRetry {
    /// Runs it again, as the contract says.
    #[default]
    Always,
    /// Runs it again only if its executor declares the tool repeatable. Its
    /// start is noted durably before it is made.
    DeclaredOnly,
}

/// How a controller is set up.
#[derive(Debug, Clone)]
pub struct Options {
    /// The session scope that harnesses and tools see; a controller with an
    /// executor, and a legacy turn, need one.
    pub session: Option<SessionUid>,
    /// The fence to write under; `None` mints one, which supersedes every older writer.
    pub fence: Option<Fence>,
    /// Who mints it.
    pub holder: Holder,
    /// The harness's name; empty means the id that it describes itself with.
    pub harness: String,
    /// Answers model calls.
    pub model: Arc<dyn ModelProvider>,
    /// Which models may be used; `None` means any.
    pub policy: Option<ModelPolicy>,
    /// The session's default model; of use only under a policy.
    pub model_default: String,
    /// Runs mediated tools; `None` refuses them.
    pub tools: Option<Arc<dyn ToolExecutor>>,
    /// What becomes of an approved call that was started and has no receipt.
    pub approved_retry: ApprovedRetry,
    /// How long a request for approval stays open; `None` means for good. The
    /// time is noted beside the request; ending it then is the host's part.
    pub approval_ttl: Option<Duration>,
    /// The compute that runs the turn; memory tier only, else empty.
    pub compute_instance: String,
    /// Whose recorded compute it is compared with.
    pub instance_of: InstanceOf,
    /// Is told of records and deltas.
    pub observer: Arc<dyn Observer>,
    /// Wall clock.
    pub clock: Arc<dyn Clock>,
    /// Source of ids.
    pub entropy: Arc<dyn Entropy>,
    /// What the harness said of itself on this very connection; `None` asks it.
    pub descriptor: Option<Descriptor>,
    /// Set when the caller goes away. It counts until the turn begins.
    pub gone: Signal<()>,
    /// Set by the host to stop the running turn at its next effect.
    pub stop: Signal<TurnStop>,
    /// Tells the harness that its turn is to stop, before it is dropped.
    pub cancel: Signal<CancelReason>,
}

impl Options {
    /// Options with a model and nothing else; mints a fence, tells nobody.
    #[must_use]
    pub fn new(model: Arc<dyn ModelProvider>) -> Self {
        Self {
            session: None,
            fence: None,
            holder: Holder { id: "controller".to_owned(), name: "controller".to_owned() },
            harness: String::new(),
            model,
            policy: None,
            model_default: String::new(),
            tools: None,
            approved_retry: ApprovedRetry::default(),
            approval_ttl: None,
            compute_instance: String::new(),
            instance_of: InstanceOf::default(),
            observer: Arc::new(IgnoreAll),
            clock: Arc::new(SystemClock),
            entropy: Arc::new(OsEntropy),
            descriptor: None,
            gone: Signal::default(),
            stop: Signal::default(),
            cancel: Signal::default(),
        }
    }
}
