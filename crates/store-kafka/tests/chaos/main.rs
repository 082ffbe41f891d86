//! Hosts in processes of their own race on one topic, through kills, pauses,
//! dead brokers and cut links, and must come to one truth.
//!
//! `CHAOS_SEED` repeats a run as far as its faults go, `CHAOS_APPENDS` makes it
//! longer. Each host writes down what it tries before it does and what it is
//! told, so that its end without notice loses nothing that is checked.

mod check;
mod child;
mod clock;
mod cluster;
mod hosts;
mod journals;
mod ledger;
mod nemesis;
mod plan;
mod run;

use std::sync::{Mutex, PoisonError};

use cluster::{Cluster, Shape};
use plan::Plan;

/// The machine has too few cores for two of these at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// Two hosts lose nothing and repeat nothing while they and their broker are
/// killed and paused.
#[test]
fn two_hosts_race_through_kills_and_pauses() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(cluster) = Cluster::up("chaos1", Shape::One) {
        run::run(&cluster, 2);
    }
}

/// Three hosts do so while brokers are killed, paused, and cut off.
#[test]
fn three_hosts_race_through_broker_faults() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(cluster) = Cluster::up("chaos3", Shape::Three) {
        run::run(&cluster, 3);
    }
}

/// The program that the hosts of the other tests run: this binary, started with
/// a plan. Without one there is nothing to do.
#[test]
fn host_process() {
    if let Some(plan) = Plan::from_env() {
        child::run(&plan);
    }
}
