//! Addresses of brokers: free ports on loopback, or a network of their own in which links can be cut.
//!
//! Such a network is a bridge in a namespace, to which a namespace for each broker and this machine itself are
//! linked. The bridge is not in the machine's own namespace, so no firewall rule of it stands between brokers.

use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::fetch::found;

/// First port that is tried; those below belong to well-known services.
const PORT_MIN: u16 = 10_240;
/// A range of ports with fewer than this is not worth searching.
const PORTS_MIN: u16 = 1_000;
/// The networks are 10.231.1.0/24 to 10.231.254.0/24.
const SUBNETS: u8 = 254;
/// Where `ip` keeps namespaces that have names.
const NAMESPACES: &str = "/run/netns";

/// As many ports as asked for that nobody listens on.
///
/// They lie below the range from which outgoing connections take theirs: a client that tries again and again to
/// reach a dead broker would otherwise some day connect to itself, and hold the port when the broker comes back.
pub(super) fn free_ports(number: usize) -> Result<Vec<u16>> {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
    let low: Option<u16> =
        range.ok().and_then(|range| range.split_whitespace().next()?.parse().ok());
    let span = low.unwrap_or_default().max(PORT_MIN) - PORT_MIN;
    let candidates: Vec<u16> = if span < PORTS_MIN {
        // There is nothing below: the kernel chooses.
        vec![0; number]
    } else {
        let start = u16::from_be_bytes(random()?) % span;
        (start..span).chain(0..start).map(|step| PORT_MIN + step).collect()
    };
    // All are held until the last is found, so that no two are the same.
    let found = candidates.into_iter().filter_map(|port| bind(port).ok());
    let held: Vec<TcpListener> = found.take(number).collect();
    if held.len() < number {
        bail!("there are no {number} free ports");
    }
    held.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}

/// Whether nobody listens on any of these ports.
pub(super) fn all_free(ports: &[u16]) -> bool {
    ports.iter().all(|port| bind(*port).is_ok())
}

fn bind(port: u16) -> std::io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port))
}

/// Bytes that nobody can foresee.
pub(super) fn random<const N: usize>() -> Result<[u8; N]> {
    use std::io::Read;
    let mut bytes = [0; N];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .context("cannot read /dev/urandom")?;
    Ok(bytes)
}

/// Refuses a machine, or a user, that cannot make networks.
pub(super) fn check() -> Result<()> {
    let attempt = Command::new("ip").arg("-V").stdin(Stdio::null()).output();
    found(attempt, "ip", "iproute2, which --netns needs")?;
    if !rustix::process::geteuid().is_root() {
        bail!("--netns makes network namespaces, which only root may do");
    }
    Ok(())
}

/// The address of a broker in its network.
pub(super) fn address(subnet: u8, id: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 231, subnet, 10 + id))
}

/// The namespace of a broker.
pub(super) fn namespace(subnet: u8, id: u8) -> String {
    format!("mskafka{subnet}-{id}")
}

/// The namespace of the bridge.
fn hub(subnet: u8) -> String {
    format!("mskafka{subnet}")
}

/// The machine's own end of its link to the bridge; names of links have at most 15 bytes.
fn host_link(subnet: u8) -> String {
    format!("mskafka{subnet}")
}

/// The bridge's end of the link to a broker.
fn port(id: u8) -> String {
    format!("port{id}")
}

/// Takes a network that no other cluster has, beginning with one derived from the cluster's folder.
pub(super) fn claim(folder: &Path) -> Result<u8> {
    let first = hash(folder.as_os_str().as_encoded_bytes());
    for step in 0..SUBNETS {
        let subnet = subnet(first, step);
        // To make the namespace is to claim the network: of two who try, one is refused.
        if ip(&["netns", "add", &hub(subnet)]).is_ok() {
            return Ok(subnet);
        }
        if !exists(&hub(subnet)) {
            ip(&["netns", "add", &hub(subnet)])?;
            return Ok(subnet);
        }
    }
    bail!("all {SUBNETS} networks are taken: bring clusters down that are not needed");
}

fn subnet(first: u64, step: u8) -> u8 {
    let wrapped = (first % u64::from(SUBNETS) + u64::from(step)) % u64::from(SUBNETS);
    u8::try_from(wrapped + 1).expect("at most 254")
}

/// FNV-1a, which is the same in every build.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Makes what `claim` has not made yet: the bridge, and the links to this machine and to the brokers.
pub(super) fn make(subnet: u8, brokers: u8) -> Result<()> {
    let hub = hub(subnet);
    ip(&["-n", &hub, "link", "set", "lo", "up"])?;
    ip(&["-n", &hub, "link", "add", "bridge", "type", "bridge"])?;
    ip(&["-n", &hub, "link", "set", "bridge", "up"])?;
    let host = host_link(subnet);
    ip(&["link", "add", &host, "type", "veth", "peer", "name", "host", "netns", &hub])?;
    ip(&["-n", &hub, "link", "set", "host", "master", "bridge", "up"])?;
    ip(&["addr", "add", &format!("10.231.{subnet}.1/24"), "dev", &host])?;
    ip(&["link", "set", &host, "up"])?;
    for id in 1..=brokers {
        let (own, port) = (namespace(subnet, id), port(id));
        ip(&["netns", "add", &own])?;
        ip(&["-n", &own, "link", "set", "lo", "up"])?;
        let peer = ["type", "veth", "peer", "name", "eth0", "netns", &own];
        ip(&[&["-n", &hub, "link", "add", &port][..], &peer].concat())?;
        ip(&["-n", &hub, "link", "set", &port, "master", "bridge", "up"])?;
        ip(&["-n", &own, "addr", "add", &format!("{}/24", address(subnet, id)), "dev", "eth0"])?;
        ip(&["-n", &own, "link", "set", "eth0", "up"])?;
    }
    Ok(())
}

/// Removes a network, as much of it as there is.
pub(super) fn remove(subnet: u8, brokers: u8) -> Result<()> {
    // The kernel removes links some time after their namespace, and the next network may have the same names.
    if Path::new("/sys/class/net").join(host_link(subnet)).exists() {
        ip(&["link", "del", &host_link(subnet)])?;
    }
    for name in (1..=brokers).map(|id| namespace(subnet, id)).chain([hub(subnet)]) {
        if exists(&name) {
            ip(&["netns", "del", &name])?;
        }
    }
    Ok(())
}

fn exists(namespace: &str) -> bool {
    Path::new(NAMESPACES).join(namespace).exists()
}

/// Cuts a broker from everybody.
pub(super) fn cut(subnet: u8, id: u8) -> Result<()> {
    ip(&["-n", &hub(subnet), "link", "set", &port(id), "down"]).map(drop)
}

/// Cuts a broker from other brokers; clients still reach it.
pub(super) fn cut_from(subnet: u8, id: u8, peers: impl Iterator<Item = u8>) -> Result<()> {
    for peer in peers {
        let route = format!("{}/32", address(subnet, peer));
        ip(&["-n", &namespace(subnet, id), "route", "replace", "blackhole", &route])?;
    }
    Ok(())
}

/// Undoes every cut of a broker.
pub(super) fn heal(subnet: u8, id: u8) -> Result<()> {
    ip(&["-n", &namespace(subnet, id), "route", "flush", "type", "blackhole"])?;
    ip(&["-n", &hub(subnet), "link", "set", &port(id), "up"]).map(drop)
}

/// How a broker is linked to others.
pub(super) fn link(subnet: u8, id: u8) -> Result<&'static str> {
    let shown = ip(&["-n", &hub(subnet), "-o", "link", "show", "dev", &port(id)])?;
    let flags = shown.split_once('<').and_then(|(_, rest)| rest.split_once('>'));
    let up = flags.is_some_and(|(flags, _)| flags.split(',').any(|flag| flag == "UP"));
    let blackholes = ip(&["-n", &namespace(subnet, id), "route", "show", "type", "blackhole"])?;
    Ok(match (up, blackholes.trim().is_empty()) {
        (false, _) => "cut",
        (true, false) => "cut from peers",
        (true, true) => "whole",
    })
}

/// Runs `ip` and returns what it printed.
fn ip(arguments: &[&str]) -> Result<String> {
    let output = Command::new("ip").args(arguments).stdin(Stdio::null()).output();
    let output = found(output, "ip", "iproute2")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("`ip {}`: {}", arguments.join(" "), said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_free_and_differ() {
        let ports = free_ports(6).unwrap();
        let mut sorted = ports.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(6, sorted.len());
        assert!(ports.iter().all(|port| *port != 0));
    }

    #[test]
    fn a_port_with_a_listener_is_not_free() {
        let listener = bind(0).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(!all_free(&[port]));
    }

    #[test]
    fn subnets_go_round_and_differ() {
        let first = hash(b"/t/kafka/default");
        let mut seen: Vec<u8> = (0..SUBNETS).map(|step| subnet(first, step)).collect();
        seen.sort_unstable();
        assert_eq!((1..=SUBNETS).collect::<Vec<_>>(), seen);
        assert_ne!(first, hash(b"/t/kafka/other"));
    }

    #[test]
    fn names_of_links_fit() {
        assert!(host_link(SUBNETS).len() <= 15);
        assert_eq!("10.231.254.13", address(SUBNETS, 3).to_string());
    }
}
