//! What is done to a whole cluster, and to some of its brokers.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use rustix::process::Signal;

use super::args::Wanted;
use super::broker::{self, Ground, Launched, Readiness};
use super::faults::{SIGNAL_LIMIT, signal};
use super::process::Health;
use super::state::{Broker, Lock, State};
use super::{VERSION, fetch, net, tls};

/// How long a broker has to stop when asked to.
const STOP_LIMIT: Duration = Duration::from_secs(10);
/// How often other ports are tried when somebody took those that were free.
const PORTS_TRIES_MAX: usize = 3;
/// The ports of brokers that have a network of their own.
const NETNS_PORTS: [u16; 4] = [9092, 9093, 9094, 9095];

/// Where a cluster lives.
#[derive(Debug)]
pub(super) struct Place {
    /// The folder of all clusters.
    kafka: PathBuf,
    /// The cluster's own.
    pub(super) folder: PathBuf,
    pub(super) name: String,
}

impl Place {
    /// The place of the cluster `name` below the folder where cargo builds.
    pub(super) fn new(target: &Path, name: &str) -> Self {
        let kafka = target.join("kafka");
        Self { folder: kafka.join(name), kafka, name: name.to_owned() }
    }

    /// The state of a cluster that must exist.
    pub(super) fn state(&self) -> Result<State> {
        State::load(&self.folder)?.with_context(|| {
            let name = &self.name;
            format!("there is no cluster `{name}`: `cargo xtask kafka up --name {name}` makes it")
        })
    }

    fn lock(&self) -> Result<Lock> {
        // It lies beside the folder, which `down --purge` removes.
        Lock::take(&self.kafka.join(format!("{}.lock", self.name)))
    }
}

/// Starts the cluster, or as much of it as does not run, and prints its addresses when it serves.
pub(super) fn up(place: &Place, wanted: &Wanted) -> Result<()> {
    if wanted.netns {
        net::check()?;
    }
    fetch::check_java()?;
    let library = fetch::jars(&place.kafka)?;
    let ground = Ground { folder: &place.folder, library: &library };
    let _lock = place.lock()?;
    let mut state = match State::load(&place.folder)? {
        Some(state) => fitting(state, wanted, &place.name)?,
        None => fresh(place, wanted)?,
    };
    if state.those(Health::Dead)?.len() == state.brokers.len() {
        start_all(ground, &mut state)?;
    } else {
        complete(ground, &mut state)?;
    }
    println!("bootstrap={}", state.bootstrap);
    Ok(())
}

/// A cluster that exists, if it is what was asked for.
fn fitting(state: State, wanted: &Wanted, name: &str) -> Result<State> {
    let any = *wanted == Wanted::default();
    let brokers = usize::from(wanted.brokers.unwrap_or(1));
    let same = state.brokers.len() == brokers
        && state.netns == wanted.netns
        && state.tls.is_some() == wanted.tls;
    if any || same {
        return Ok(state);
    }
    let shape = shape(&state);
    bail!(
        "the cluster `{name}` exists with another shape ({shape}): `cargo xtask kafka down --purge --name {name}` \
         removes it, or choose another --name"
    );
}

fn shape(state: &State) -> String {
    let mut shape = format!("--brokers {}", state.brokers.len());
    for (has, option) in [(state.netns, " --netns"), (state.tls.is_some(), " --tls")] {
        if has {
            shape.push_str(option);
        }
    }
    shape
}

/// A cluster that has neither addresses nor data.
fn fresh(place: &Place, wanted: &Wanted) -> Result<State> {
    let folder = &place.folder;
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let broker = |id| Broker {
        id,
        process: None,
        host: IpAddr::V4(Ipv4Addr::LOCALHOST),
        port: 0,
        controller_port: 0,
        sasl_port: None,
        mtls_port: None,
    };
    Ok(State {
        version: VERSION.to_owned(),
        // 16 bytes in base64: 21 digits stand for any bits, and of the last one only the first two bits count.
        cluster_id: format!("{}A", &tls::hex(&net::random::<16>()?)[..21]),
        bootstrap: String::new(),
        netns: wanted.netns,
        subnet: None,
        brokers: (1..=wanted.brokers.unwrap_or(1)).map(broker).collect(),
        tls: if wanted.tls { Some(tls::credentials(folder)?) } else { None },
    })
}

/// Starts a cluster of which nothing runs.
fn start_all(ground: Ground<'_>, state: &mut State) -> Result<()> {
    VERSION.clone_into(&mut state.version);
    for attempt in 1..=PORTS_TRIES_MAX {
        give_addresses(ground.folder, state, attempt == 1)?;
        if state.tls.is_some() {
            tls::make(ground.folder, state)?;
        }
        broker::configure(ground, state)?;
        broker::format(ground, state)?;
        let ids: Vec<u8> = state.brokers.iter().map(|broker| broker.id).collect();
        let outcome = launch(ground, state, &ids)
            .and_then(|launched| broker::wait_ready(ground, state, &launched, &ids, &ids));
        match outcome {
            Ok(Readiness::Ready) => return Ok(()),
            // What did not come up as a whole does not stay in part.
            Ok(Readiness::PortTaken(id)) => {
                stop_all(ground.folder, state, Duration::ZERO)?;
                eprintln!("somebody took a port of broker {id}: trying others");
            }
            Err(error) => {
                stop_all(ground.folder, state, Duration::ZERO)?;
                return Err(error);
            }
        }
    }
    bail!("ports that were free were taken {PORTS_TRIES_MAX} times before the brokers had them");
}

/// Chooses where the brokers listen: where they did before, if `keep` and that is possible.
fn give_addresses(folder: &Path, state: &mut State, keep: bool) -> Result<()> {
    let number = u8::try_from(state.brokers.len())?;
    let tls = state.tls.is_some();
    if state.netns {
        net::check()?;
        // What an earlier failure may have left.
        if let Some(subnet) = state.subnet.take() {
            net::remove(subnet, number)?;
        }
        let subnet = net::claim(folder)?;
        state.subnet = Some(subnet);
        // From here on `down` finds the network.
        state.save(folder)?;
        net::make(subnet, number)?;
        for broker in &mut state.brokers {
            broker.host = net::address(subnet, broker.id);
            set_ports(broker, NETNS_PORTS, tls);
        }
    } else {
        let known: Vec<u16> = state.brokers.iter().flat_map(ports).collect();
        if !keep || known.contains(&0) || !net::all_free(&known) {
            let found = net::free_ports(NETNS_PORTS.len() * state.brokers.len())?;
            let (of_each, _) = found.as_chunks::<4>();
            for (broker, ports) in state.brokers.iter_mut().zip(of_each) {
                set_ports(broker, *ports, tls);
            }
        }
    }
    state.bootstrap = state.addresses(|broker| Some(broker.port));
    let sasl = state.addresses(|broker| broker.sasl_port);
    let mtls = state.addresses(|broker| broker.mtls_port);
    if let Some(tls) = &mut state.tls {
        (tls.sasl_bootstrap, tls.mtls_bootstrap) = (sasl, mtls);
    }
    state.save(folder)
}

fn ports(broker: &Broker) -> impl Iterator<Item = u16> {
    let plain = [broker.port, broker.controller_port];
    plain.into_iter().chain(broker.sasl_port).chain(broker.mtls_port)
}

fn set_ports(broker: &mut Broker, ports: [u16; 4], tls: bool) {
    [broker.port, broker.controller_port] = [ports[0], ports[1]];
    broker.sasl_port = tls.then_some(ports[2]);
    broker.mtls_port = tls.then_some(ports[3]);
}

/// Makes a cluster whole that runs in part.
fn complete(ground: Ground<'_>, state: &mut State) -> Result<()> {
    if state.version != VERSION {
        bail!("the cluster runs Kafka {}, not {VERSION}: bring it down first", state.version);
    }
    for broker in &state.brokers {
        if let Some(subnet) = state.subnet {
            net::heal(subnet, broker.id)?;
        }
        if broker.health()? == Health::Paused {
            signal(broker, Signal::CONT, Health::Running)?;
        }
    }
    let dead = state.those(Health::Dead)?;
    let all: Vec<u8> = state.brokers.iter().map(|broker| broker.id).collect();
    start_some(ground, state, &dead, &all)
}

/// Starts some brokers of a cluster and waits until all those of `asked` serve.
fn start_some(ground: Ground<'_>, state: &mut State, ids: &[u8], asked: &[u8]) -> Result<()> {
    let outcome = launch(ground, state, ids)
        .and_then(|launched| broker::wait_ready(ground, state, &launched, asked, asked));
    let error = match outcome {
        Ok(Readiness::Ready) => return Ok(()),
        // The ports of a broker stay while others run: clients and brokers know them.
        Ok(Readiness::PortTaken(id)) => {
            let address = state.broker(id)?.address();
            anyhow!("somebody took a port of broker {id}, at {address}, while it was dead")
        }
        Err(error) => error,
    };
    // A broker that has no port lives on and answers nobody.
    for id in ids {
        if let Some(process) = state.broker(*id)?.process {
            process.signal(Signal::KILL)?;
        }
    }
    Err(error)
}

/// Starts processes and writes down which they are.
fn launch(ground: Ground<'_>, state: &mut State, ids: &[u8]) -> Result<Vec<Launched>> {
    let mut all = Vec::new();
    for &id in ids {
        let (process, launched) = broker::launch(ground, state, id)?;
        for broker in state.brokers.iter_mut().filter(|broker| broker.id == id) {
            broker.process = Some(process);
        }
        // After each, so that `down` finds every broker whatever happens next.
        state.save(ground.folder)?;
        all.push(launched);
    }
    Ok(all)
}

/// Stops the cluster; with `purge` nothing of it remains.
pub(super) fn down(place: &Place, purge: bool) -> Result<()> {
    let _lock = place.lock()?;
    if let Some(mut state) = State::load(&place.folder)? {
        // Data that goes away need not be left in order.
        let limit = if purge { Duration::ZERO } else { STOP_LIMIT };
        stop_all(&place.folder, &mut state, limit)?;
    }
    if purge {
        fetch::remove(&place.folder)?;
    }
    Ok(())
}

/// Stops every broker, by force if it does not follow within `limit` or if that is zero, and removes their network.
fn stop_all(folder: &Path, state: &mut State, limit: Duration) -> Result<()> {
    let processes: Vec<_> = state.brokers.iter().filter_map(|broker| broker.process).collect();
    if !limit.is_zero() {
        if let Some(subnet) = state.subnet {
            // A broker that is cut off from its controllers does not stop in time. That is all that is lost where a
            // part of the network is gone, which is no reason to leave the rest.
            for broker in &state.brokers {
                net::heal(subnet, broker.id).ok();
            }
        }
        for process in &processes {
            process.signal(Signal::TERM)?;
            // A paused process takes a signal only when it goes on.
            process.signal(Signal::CONT)?;
        }
        super::process::wait_until(limit, || {
            let dead = processes.iter().map(|process| process.health());
            Ok(dead.collect::<Result<Vec<_>>>()?.iter().all(|health| *health == Health::Dead))
        })?;
    }
    for process in processes {
        process.signal(Signal::KILL)?;
        if !process.wait_for(Health::Dead, SIGNAL_LIMIT)? {
            bail!("process {} did not end when it was killed", process.pid);
        }
    }
    for broker in &mut state.brokers {
        broker.process = None;
    }
    if let Some(subnet) = state.subnet.take() {
        net::remove(subnet, u8::try_from(state.brokers.len())?)?;
    }
    state.save(folder)
}

/// Starts brokers that are dead and waits until they serve.
pub(super) fn start(place: &Place, ids: &[u8]) -> Result<()> {
    fetch::check_java()?;
    let library = fetch::jars(&place.kafka)?;
    let ground = Ground { folder: &place.folder, library: &library };
    let _lock = place.lock()?;
    let mut state = place.state()?;
    for &id in ids {
        let health = state.broker(id)?.health()?;
        if health != Health::Dead {
            bail!("broker {id} is {health}");
        }
    }
    if state.version != VERSION
        || state.bootstrap.is_empty()
        || (state.netns && state.subnet.is_none())
    {
        bail!("the cluster is down: `cargo xtask kafka up` starts it");
    }
    let running = state.those(Health::Running)?.len() + ids.len();
    if running * 2 <= state.brokers.len() {
        let all = state.brokers.len();
        bail!(
            "{running} of {all} brokers are no majority, so none would serve: start more at once"
        );
    }
    start_some(ground, &mut state, ids, ids)
}

#[cfg(test)]
mod tests {
    use super::super::state::tests::sample;
    use super::*;

    #[test]
    fn a_cluster_stays_in_its_shape() {
        let fits = |brokers, tls| {
            let wanted = Wanted { brokers, netns: false, tls };
            fitting(sample(3, true), &wanted, "x").map(drop)
        };
        fits(Some(3), true).unwrap();
        // Without options it is taken as it is.
        fits(None, false).unwrap();
        for (brokers, tls) in [(Some(1), true), (Some(3), false), (None, true)] {
            let error = fits(brokers, tls).unwrap_err().to_string();
            assert!(error.contains("another shape (--brokers 3 --tls)"), "{error}");
        }
    }

    #[test]
    fn brokers_without_tls_have_two_ports() {
        let mut broker = sample(1, false).brokers.remove(0);
        set_ports(&mut broker, [1, 2, 3, 4], false);
        assert_eq!(vec![1, 2], ports(&broker).collect::<Vec<_>>());
        set_ports(&mut broker, [1, 2, 3, 4], true);
        assert_eq!(vec![1, 2, 3, 4], ports(&broker).collect::<Vec<_>>());
    }
}
