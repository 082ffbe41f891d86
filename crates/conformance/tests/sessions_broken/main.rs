//! The sessions suite tests itself: for each case there is a service, broken on
//! purpose, that the case must catch.

mod broken;
mod fault;
#[path = "../sessions/host.rs"]
mod host;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use mainspring_conformance::run_if_there;
use mainspring_conformance::sessions::{Client, Parts, Setup, cases};

use broken::Broken;
use fault::{Fault, TABLE};

tokio::task_local! {
    static FAULT: Fault;
}

#[derive(Debug)]
struct Subject(Arc<Broken>);

impl mainspring_conformance::sessions::Subject for Subject {
    async fn open(parts: Parts) -> Self {
        Self(Arc::new(Broken { sound: host::open(parts).0, fault: FAULT.get() }))
    }

    async fn client(&self, who: &'static str) -> Client {
        let service = Arc::clone(&self.0);
        Client { sessions: service.clone(), operations: service, caller: host::caller, who }
    }
}

/// A case that a fault lets wait for ever has caught it.
const HANG_MAX: Duration = Duration::from_secs(5);

/// Whether a case passes on a service with this fault.
fn passes(name: &str, fault: Fault) -> bool {
    let (_, case) = *cases::<Subject>()
        .iter()
        .find(|(case, _)| *case == name)
        .unwrap_or_else(|| panic!("there is no case {name}"));
    let case = async move |setup: Setup<Subject>| {
        let case = FAULT.scope(fault, case(setup));
        tokio::time::timeout(HANG_MAX, case).await.expect("it does not hang");
    };
    catch_unwind(AssertUnwindSafe(|| run_if_there(Setup::<Subject>::new, case))).is_ok()
}

/// Runs `f` without the words of the panics that it expects.
fn quietly<T>(f: impl FnOnce() -> T) -> T {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let out = f();
    std::panic::set_hook(hook);
    out
}

// One test, because the panic hook belongs to the process.
#[test]
fn every_case_catches_a_broken_service() {
    let names: BTreeSet<&str> = cases::<Subject>().iter().map(|(name, _)| *name).collect();
    let proven: BTreeSet<&str> = TABLE.iter().flat_map(|(_, cases)| *cases).copied().collect();
    let unproven: Vec<_> = names.difference(&proven).collect();
    assert!(unproven.is_empty(), "no broken service shows that these can fail: {unproven:?}");
    let mut missed = Vec::new();
    quietly(|| {
        for (fault, cases) in TABLE {
            missed.extend(cases.iter().filter(|name| passes(name, *fault)).map(|n| (*fault, *n)));
        }
    });
    assert!(missed.is_empty(), "broken services that were not caught: {missed:?}");
}
