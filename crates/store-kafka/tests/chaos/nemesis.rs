//! What goes wrong, by seed.

use std::time::Duration;

use mainspring_testkit::SeededRng;

use crate::cluster::{Cluster, Shape};

/// What happens to a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostFault {
    /// Killed, and started again with its view or without one.
    Kill { loses_view: bool },
    /// Stopped, for longer than any wait or for less.
    Pause { is_long: bool },
}

/// What happens to brokers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BrokerFault {
    /// That many killed, and started again.
    Kill { count: u8 },
    /// One stopped, for longer than its session or for less.
    Pause { is_long: bool },
    /// One cut off, from everybody or from the other brokers alone.
    Cut { from_peers: bool },
}

/// What happens at the same time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    pub(crate) host: Option<HostFault>,
    pub(crate) broker: Option<BrokerFault>,
}

const HOST_FAULTS: [HostFault; 4] = [
    HostFault::Kill { loses_view: false },
    HostFault::Kill { loses_view: true },
    HostFault::Pause { is_long: false },
    HostFault::Pause { is_long: true },
];

const fn broker_faults(shape: Shape) -> &'static [BrokerFault] {
    use BrokerFault::{Cut, Kill, Pause};
    match shape {
        Shape::One => &[Kill { count: 1 }, Pause { is_long: false }, Pause { is_long: true }],
        Shape::Three => &[
            Kill { count: 1 },
            Kill { count: 2 },
            Kill { count: 3 },
            Pause { is_long: false },
            Pause { is_long: true },
            Cut { from_peers: false },
            Cut { from_peers: true },
        ],
    }
}

/// Every fault once, in an order of its own, some of them at the same time.
pub(crate) fn round(shape: Shape, rng: &mut SeededRng) -> Vec<Step> {
    let mut steps: Vec<Step> =
        HOST_FAULTS.iter().map(|fault| Step { host: Some(*fault), broker: None }).collect();
    for fault in broker_faults(shape) {
        let host = rng.percent(40).then(|| *rng.pick(&HOST_FAULTS));
        steps.push(Step { host, broker: Some(*fault) });
    }
    for last in (1..steps.len()).rev() {
        steps.swap(last, rng.below(last + 1));
    }
    steps
}

impl Step {
    /// How long it lasts.
    pub(crate) fn lasts(&self, rng: &mut SeededRng) -> Duration {
        let host = match self.host {
            None => 0,
            Some(HostFault::Kill { .. }) => 200 + rng.below(800),
            Some(HostFault::Pause { is_long: false }) => 300 + rng.below(1_500),
            // Longer than a write and a read wait, one after the other or not.
            Some(HostFault::Pause { is_long: true }) => 7_000 + rng.below(2_000),
        };
        let broker = match self.broker {
            None => 0,
            Some(BrokerFault::Kill { .. }) => 500 + rng.below(3_000),
            Some(BrokerFault::Pause { is_long: false }) => 400 + rng.below(1_200),
            Some(BrokerFault::Pause { is_long: true } | BrokerFault::Cut { .. }) => {
                4_000 + rng.below(4_000)
            }
        };
        Duration::from_millis(host.max(broker) as u64)
    }
}

impl BrokerFault {
    /// Does it, to the broker `first` and those after it.
    pub(crate) fn begin(self, cluster: &Cluster, first: u8) {
        match self {
            Self::Kill { count } => cluster.kill(&some(cluster, first, count)),
            Self::Pause { .. } => cluster.pause(first),
            Self::Cut { from_peers } => cluster.cut(first, from_peers),
        }
    }

    /// Undoes it.
    pub(crate) fn end(self, cluster: &Cluster, first: u8) {
        match self {
            Self::Kill { count } => cluster.start(&some(cluster, first, count)),
            Self::Pause { .. } => cluster.resume(first),
            Self::Cut { .. } => cluster.heal(first),
        }
    }
}

fn some(cluster: &Cluster, first: u8, count: u8) -> Vec<u8> {
    (0..count).map(|step| (first - 1 + step) % cluster.shape.brokers() + 1).collect()
}
