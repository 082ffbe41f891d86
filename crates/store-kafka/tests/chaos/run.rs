//! One run: hosts race while faults come and go; then all is checked.

use std::path::Path;
use std::time::Duration;

use mainspring_api::{Entropy as _, OsEntropy};
use mainspring_store_kafka::{NewTopics, init};
use mainspring_testkit::SeededRng;

use crate::clock::{POLL, now, since, within};
use crate::cluster::{Cluster, Shape};
use crate::hosts::Host;
use crate::nemesis::{BrokerFault, HostFault, Step, round};
use crate::plan::{Plan, config};
use crate::{check, journals};

/// Appends of a run that is given no number.
const APPENDS: usize = 2_000;
/// Appends between two faults, in a short run and in a long one.
const STEP_APPENDS: (usize, usize) = (250, 500);
/// Times in a step that every host is told to go on.
const GOES: usize = 4;
/// Appends that an idle host is told to try while a fault begins.
const MORE: usize = 6;
/// How long hosts may take to do all they were told once all is well again.
const RECOVERY_MAX: Duration = Duration::from_secs(120);

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is a number, not `{text}`")))
}

/// Runs the race on a cluster.
pub(crate) fn run(cluster: &Cluster, hosts: usize) {
    let mut random = [0; 4];
    OsEntropy.fill(&mut random);
    let seed = number("CHAOS_SEED").unwrap_or_else(|| u64::from(u32::from_be_bytes(random)));
    let appends = number("CHAOS_APPENDS").map_or(APPENDS, |n| usize::try_from(n).expect("fits"));
    eprintln!("CHAOS_SEED={seed} CHAOS_APPENDS={appends}, {hosts} hosts, {:?}", cluster.shape);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("the system has threads");
    let lossy = cluster.shape == Shape::One;
    let topic = config(&cluster.brokers, "chaos", lossy);
    let made = match cluster.shape {
        Shape::One => NewTopics { partitions: 3, replicas: 1, in_sync_min: 1 },
        Shape::Three => NewTopics { partitions: 2, replicas: 3, in_sync_min: 2 },
    };
    runtime.block_on(async {
        init(&topic, made).await.expect("the brokers take topics");
        journals::create_sessions(&topic).await;
    });
    let folder = tempfile::Builder::new().prefix("chaos-").tempdir().expect("there is room");
    let mut race = Race::start(cluster, hosts, seed, appends, folder.path());
    // What was written stays where it is for whoever looks into a failure.
    let raced = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        race.go_on(appends);
        let (views, ledgers) = race.end();
        runtime.block_on(check::all(&topic, cluster.shape, &views, &ledgers));
    }));
    if let Err(failure) = raced {
        eprintln!("CHAOS_SEED={seed} failed; its files are in {}", folder.keep().display());
        drop(race);
        std::panic::resume_unwind(failure);
    }
    runtime.shutdown_background();
}

struct Race<'a> {
    cluster: &'a Cluster,
    rng: SeededRng,
    hosts: Vec<Host>,
    /// Appends that one host is told to try at once.
    share: usize,
    began: u64,
}

impl<'a> Race<'a> {
    fn start(cluster: &'a Cluster, hosts: usize, seed: u64, appends: usize, folder: &Path) -> Self {
        let plan = Plan {
            brokers: cluster.brokers.clone(),
            topic: "chaos".to_owned(),
            lossy: cluster.shape == Shape::One,
            seed,
            host: 0,
            incarnation: 0,
            view: folder.to_owned(),
            ledger: folder.to_owned(),
        };
        let step = if appends <= 5_000 { STEP_APPENDS.0 } else { STEP_APPENDS.1 };
        let mut race = Self {
            cluster,
            rng: SeededRng::new(seed),
            hosts: (0..hosts).map(|host| Host::new(host, folder, plan.clone())).collect(),
            share: step.div_ceil(GOES * hosts),
            began: now(),
        };
        race.hosts.iter_mut().for_each(Host::start);
        race
    }

    /// Faults, until so many appends were tried and every fault has been there.
    fn go_on(&mut self, appends: usize) {
        self.recovered();
        for number in 0.. {
            for step in round(self.cluster.shape, &mut self.rng) {
                if number > 0 && self.tried() >= appends {
                    return;
                }
                self.step(step);
            }
        }
    }

    fn tried(&self) -> usize {
        self.hosts.iter().map(|host| host.tried).sum()
    }

    /// Tells all hosts that live, and are not paused, to try some appends.
    fn go(&mut self) {
        for host in self.hosts.iter_mut().filter(|host| !host.is_paused) {
            host.go(self.share);
        }
    }

    fn step(&mut self, step: Step) {
        let victim = self.rng.below(self.hosts.len());
        let broker = u8::try_from(self.rng.below(usize::from(self.cluster.shape.brokers())) + 1);
        let broker = broker.expect("few brokers");
        let lasts = step.lasts(&mut self.rng);
        let seconds = since(self.began).as_secs();
        eprintln!(
            "{seconds:4} s, {} appends: {step:?}, host {victim}, broker {broker}, {lasts:?}",
            self.tried()
        );
        self.go();
        // Somewhere in the middle of what they do.
        std::thread::sleep(Duration::from_micros(self.rng.next_u64() % 60_000));
        if let Some(fault) = step.broker {
            self.begin(fault, broker);
        }
        let pauses = matches!(step.host, Some(HostFault::Pause { .. }));
        match step.host {
            Some(HostFault::Kill { .. }) => self.hosts[victim].kill(),
            Some(HostFault::Pause { .. }) => self.hosts[victim].pause(),
            None => {}
        }
        self.go();
        if pauses {
            self.take_over(victim, step.broker.is_none());
        }
        std::thread::sleep(lasts / 2);
        self.go();
        std::thread::sleep(lasts / 2);
        let host_first = self.rng.percent(50);
        if host_first {
            self.undo(step.host, victim);
        }
        if let Some(fault) = step.broker {
            fault.end(self.cluster, broker);
        }
        if !host_first {
            self.undo(step.host, victim);
        }
        self.go();
        self.recovered();
    }

    /// Does something to brokers while all hosts write.
    fn begin(&mut self, fault: BrokerFault, broker: u8) {
        let cluster = self.cluster;
        std::thread::scope(|scope| {
            let command = scope.spawn(move || fault.begin(cluster, broker));
            while !command.is_finished() {
                for host in self.hosts.iter_mut().filter(|host| !host.is_paused) {
                    if host.is_idle() {
                        host.go(MORE);
                    }
                }
                std::thread::sleep(POLL);
            }
        });
    }

    /// Another host takes everything over from the one that is paused.
    fn take_over(&mut self, victim: usize, waits: bool) {
        let next = (victim + 1) % self.hosts.len();
        self.hosts[next].take_all();
        if waits {
            self.wait(&|host| !host.is_paused);
        }
    }

    fn undo(&mut self, fault: Option<HostFault>, victim: usize) {
        let host = &mut self.hosts[victim];
        match fault {
            Some(HostFault::Kill { loses_view }) => {
                if loses_view {
                    host.lose_view();
                }
                host.start();
            }
            Some(HostFault::Pause { .. }) => {
                host.resume();
                host.write_as_before();
            }
            None => {}
        }
    }

    /// Now that all is well, every host does what it was told.
    fn recovered(&mut self) {
        self.wait(&|_| true);
    }

    fn wait(&mut self, who: &dyn Fn(&Host) -> bool) {
        let hosts = std::cell::RefCell::new(&mut self.hosts);
        let what = || hosts.borrow().iter().map(Host::standing).collect::<Vec<_>>().join("\n");
        within(RECOVERY_MAX, &what, || {
            let mut hosts = hosts.borrow_mut();
            hosts.iter_mut().filter(|host| who(host)).all(Host::is_idle).then_some(())
        });
    }

    /// Ends the hosts; their views, and what they wrote down.
    fn end(&mut self) -> (Vec<std::path::PathBuf>, Vec<std::path::PathBuf>) {
        self.hosts.iter_mut().for_each(Host::end);
        eprintln!(
            "{:4} s, {} appends: the hosts have ended",
            since(self.began).as_secs(),
            self.tried()
        );
        let views = self.hosts.iter().map(Host::view).collect();
        (views, self.hosts.iter().flat_map(|host| host.ledgers.clone()).collect())
    }
}
