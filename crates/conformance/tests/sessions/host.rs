//! A host over the suite's parts.

use std::sync::Arc;

use mainspring_api::{Caller, CallerIdentity, OsEntropy, RequestId, Runtime, SystemClock};
use mainspring_conformance::sessions::Parts;
use mainspring_controller::ApprovedRetry;
use mainspring_eventlog::Holder;
use mainspring_placement::{Connectors, Harnesses, Placer, PlacerOptions};
use mainspring_runtime_local::LocalRuntime;
use mainspring_sessions::{Service, ServiceOptions};

pub(crate) const ISSUER: &str = "https://issuer.test";

/// The service, and the harnesses that it serves.
pub(crate) fn open(parts: Parts) -> (Service, Harnesses) {
    let mut runtime = LocalRuntime::builder();
    for (name, harness) in &parts.harnesses {
        runtime = runtime.built_in(*name, Arc::clone(harness));
    }
    let runtime: Arc<dyn Runtime> = Arc::new(runtime.build().unwrap());
    let holder = Holder { id: "suite".to_owned(), name: "suite".to_owned() };
    let mut placers = parts.harnesses.iter().map(|(name, _)| {
        Placer::new(PlacerOptions {
            name: (*name).to_owned(),
            runtime: Arc::clone(&runtime),
            connector: Arc::new(Connectors::in_process()),
            model: Arc::clone(&parts.model),
            policy: None,
            tools: Some(Arc::clone(&parts.tools)),
            approved_retry: ApprovedRetry::DeclaredOnly,
            descriptor_id: String::new(),
            holder: holder.clone(),
            clock: Arc::new(SystemClock),
            entropy: Arc::new(OsEntropy),
        })
    });
    let harnesses = Harnesses::new(placers.next().expect("there is a default"));
    for placer in placers {
        harnesses.add(placer).unwrap();
    }
    let service = Service::new(ServiceOptions {
        log: parts.log,
        harnesses: harnesses.clone(),
        project: "default".to_owned(),
        holder,
        clock: Arc::new(SystemClock),
        entropy: Arc::new(OsEntropy),
        idle: std::time::Duration::from_secs(300),
        authorizer: parts.authorizer,
        approval_ttl: None,
        approval_policy: None,
        exec_state: Default::default(),
        reclaim: None,
    });
    (service, harnesses)
}

/// The caller of a name; nobody, when it is empty.
pub(crate) fn caller(who: &'static str, method: &'static str) -> Caller {
    let identity = (!who.is_empty())
        .then(|| CallerIdentity { issuer: ISSUER.to_owned(), subject: who.to_owned() });
    let request_id = RequestId::new("suite").unwrap();
    Caller { identity, ..Caller::anonymous(method, request_id) }
}
