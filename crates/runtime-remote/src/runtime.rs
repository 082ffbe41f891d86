//! The runtime contract, for harnesses that somebody else runs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mainspring_api::{
    Address, ComputeState, ComputeStatus, Fence, Fidelity, Incarnation, Runtime,
    RuntimeCapabilities, RuntimeError, Seq, SessionHistory, SessionSpec, SessionUid, SnapshotRef,
    async_trait,
};

use crate::address::HarnessAddress;
use crate::config::RemoteConfigError;

const NAME: &str = "remote";

/// Hands out configured addresses.
#[derive(Debug)]
pub struct RemoteRuntime {
    /// `None` for a harness whose address is left empty.
    addresses: BTreeMap<String, Option<HarnessAddress>>,
    closed: AtomicBool,
}

impl RemoteRuntime {
    /// A runtime of (harness name, address) pairs. An empty address is allowed:
    /// the name is known and every create says that it has no address.
    ///
    /// # Errors
    /// [`RemoteConfigError`], naming the harness and the rule.
    pub fn new<N: Into<String>, A: AsRef<str>>(
        harnesses: impl IntoIterator<Item = (N, A)>,
    ) -> Result<Self, RemoteConfigError> {
        let mut addresses = BTreeMap::new();
        for (name, address) in harnesses {
            let name = name.into();
            if name.is_empty() {
                return Err(RemoteConfigError::NoName);
            }
            let parsed =
                match address.as_ref() {
                    "" => None,
                    text => Some(text.parse().map_err(|source| RemoteConfigError::Address {
                        name: name.clone(),
                        source,
                    })?),
                };
            if addresses.insert(name.clone(), parsed).is_some() {
                return Err(RemoteConfigError::Duplicate { name });
            }
        }
        Ok(Self { addresses, closed: AtomicBool::new(false) })
    }

    /// The names that it serves, in order.
    pub fn harnesses(&self) -> impl Iterator<Item = &str> {
        self.addresses.keys().map(String::as_str)
    }

    fn open(&self) -> Result<(), RuntimeError> {
        if self.closed.load(Ordering::Acquire) {
            return Err(RuntimeError::Closed);
        }
        Ok(())
    }

    fn attach(&self, harness: &str) -> Result<Incarnation, RuntimeError> {
        self.open()?;
        let address = self.addresses.get(harness).and_then(Option::as_ref);
        let address =
            address.ok_or_else(|| RuntimeError::NoAddress { harness: harness.to_owned() })?;
        Ok(Incarnation {
            address: Address::Grpc { address: address.to_string(), call_metadata: Vec::new() },
            worker: address.to_string(),
            compute_instance: String::new(),
            fence: Fence::NONE,
            live_describer: true,
        })
    }
}

#[async_trait]
impl Runtime for RemoteRuntime {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> RuntimeCapabilities {
        RuntimeCapabilities::default()
    }

    async fn create(
        &self,
        spec: &SessionSpec,
        _history: Arc<dyn SessionHistory>,
    ) -> Result<Incarnation, RuntimeError> {
        self.attach(&spec.harness)
    }

    async fn snapshot(
        &self,
        uid: &SessionUid,
        _head: Seq,
        fidelity: Fidelity,
    ) -> Result<SnapshotRef, RuntimeError> {
        self.open()?;
        match fidelity {
            Fidelity::Local => {
                Err(RuntimeError::Unsupported { runtime: NAME, what: "pausing in place" })
            }
            Fidelity::External => {
                Ok(SnapshotRef { local: uid.to_string(), ..SnapshotRef::default() })
            }
        }
    }

    async fn restore(
        &self,
        from: &SnapshotRef,
        spec: &SessionSpec,
        _history: Arc<dyn SessionHistory>,
    ) -> Result<Incarnation, RuntimeError> {
        refuse_memory(from)?;
        self.attach(&spec.harness)
    }

    async fn fork(
        &self,
        from: &SnapshotRef,
        child: &SessionSpec,
        _history: Arc<dyn SessionHistory>,
    ) -> Result<Incarnation, RuntimeError> {
        refuse_memory(from)?;
        self.attach(&child.harness)
    }

    async fn stop(&self, _uid: &SessionUid) -> Result<(), RuntimeError> {
        Ok(())
    }

    async fn status(&self, _uid: &SessionUid) -> Result<ComputeStatus, RuntimeError> {
        self.open()?;
        Ok(ComputeStatus {
            state: ComputeState::Live,
            instance: String::new(),
            reason: String::new(),
        })
    }

    async fn list(&self) -> Result<Vec<SessionUid>, RuntimeError> {
        self.open()?;
        Ok(Vec::new())
    }

    async fn close(&self) -> Result<(), RuntimeError> {
        self.closed.store(true, Ordering::Release);
        Ok(())
    }
}

/// A checkpoint with memory came from another runtime; attaching cold would
/// lose that memory without a word.
fn refuse_memory(from: &SnapshotRef) -> Result<(), RuntimeError> {
    if from.memory {
        return Err(RuntimeError::InvalidCheckpoint {
            message: format!("runtime {NAME} cannot restore memory"),
        });
    }
    Ok(())
}
