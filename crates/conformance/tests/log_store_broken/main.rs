//! The log-store suite tests itself: for each case there is a store, broken on
//! purpose, that the case must catch.

mod fault;
mod parts;
mod store;
mod ways;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use mainspring_conformance::log_store::{self, cases};
use mainspring_conformance::run;
use mainspring_eventlog::{EventLog, KvOptions, KvStore, Limits};
use mainspring_testkit::SharedMemory;

use fault::{Fault, TABLE};
use store::Broken;

struct Subject {
    engine: SharedMemory,
    fault: Fault,
    log: Arc<dyn EventLog>,
}

impl Subject {
    fn over(engine: SharedMemory, fault: Fault) -> Self {
        let mut limits = Limits::default();
        limits.event_bytes_max = 64 << 10;
        limits.batch_bytes_max = 256 << 10;
        limits.batch_records_max = 300;
        let options = KvOptions { limits, ..KvOptions::default() };
        let sound = Arc::new(KvStore::open(engine.clone(), options).unwrap());
        Self { engine, fault, log: Arc::new(Broken::new(sound, fault)) }
    }
}

impl log_store::Subject for Subject {
    const OFFERS: &'static [&'static str] = &["follow", "rows", "purge", "liveness", "warmth"];

    fn log(&self) -> Arc<dyn EventLog> {
        Arc::clone(&self.log)
    }

    async fn reopen(self) -> Self {
        let Self { engine, fault, log } = self;
        drop(log);
        let forgets = fault == Fault::ForgetsOnReopen;
        Self::over(if forgets { SharedMemory::default() } else { engine }, fault)
    }
}

/// A subject that says it offers what nobody knows.
struct Boasts(Subject);

impl log_store::Subject for Boasts {
    const OFFERS: &'static [&'static str] = &["time_travel"];

    fn log(&self) -> Arc<dyn EventLog> {
        self.0.log()
    }

    async fn reopen(self) -> Self {
        Self(self.0.reopen().await)
    }
}

async fn fresh(fault: Fault) -> Subject {
    Subject::over(SharedMemory::default(), fault)
}

/// Whether a case passes on a store with this fault.
fn passes(name: &str, fault: Fault) -> bool {
    let (_, case) = *cases::<Subject>()
        .iter()
        .find(|(case, _)| *case == name)
        .unwrap_or_else(|| panic!("there is no case {name}"));
    catch_unwind(AssertUnwindSafe(|| run(|| fresh(fault), case))).is_ok()
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
fn every_case_catches_a_broken_store() {
    let names: BTreeSet<&str> = cases::<Subject>().iter().map(|(name, _)| *name).collect();
    let proven: BTreeSet<&str> = TABLE.iter().flat_map(|(_, cases)| *cases).copied().collect();
    let own = BTreeSet::from(["offers_are_what_is_there"]);
    let unproven: Vec<_> = names.difference(&proven).filter(|name| !own.contains(**name)).collect();
    assert!(unproven.is_empty(), "no broken store shows that these can fail: {unproven:?}");

    let mut missed = Vec::new();
    quietly(|| {
        for (fault, cases) in TABLE {
            missed.extend(cases.iter().filter(|name| passes(name, *fault)).map(|n| (*fault, *n)));
        }
        let boasts = || async { Boasts(fresh(Fault::None).await) };
        let case = log_store::cases_catalog::offers_are_what_is_there;
        if catch_unwind(AssertUnwindSafe(|| run(boasts, case))).is_ok() {
            missed.push((Fault::None, "offers_are_what_is_there"));
        }
    });
    assert!(missed.is_empty(), "broken stores that were not caught: {missed:?}");

    // The store that the faults are put into is sound, so what is caught is the fault.
    let failing: Vec<_> = names.iter().filter(|name| !passes(name, Fault::None)).collect();
    assert!(failing.is_empty(), "cases that fail without a fault: {failing:?}");
}

/// Every public case of every module is in the list.
#[test]
fn the_list_of_cases_is_whole() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/src/log_store");
    let mut written = BTreeSet::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if !path.file_name().unwrap().to_str().unwrap().starts_with("cases_") {
            continue;
        }
        for line in std::fs::read_to_string(&path).unwrap().lines() {
            if let Some(rest) = line.strip_prefix("pub async fn ") {
                written.insert(rest.split('<').next().unwrap().to_owned());
            }
        }
    }
    let listed: BTreeSet<String> =
        cases::<Subject>().iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(written, listed);
}
