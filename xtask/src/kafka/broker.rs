//! One broker: its data made ready, its process started, and how to tell that it serves.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::config::{self, data_folder, properties_file};
use super::fetch::found;
use super::net;
use super::process::{Health, Process, wait_until};
use super::state::{Broker, State};
use super::wire;

/// What a broker's log says when the controllers let it serve.
const STARTED: &str = "Kafka Server started";
/// What it says when somebody else has its port.
const PORT_TAKEN: &str = "Address already in use";
/// How long brokers have until they serve.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// How much of a log is shown when they do not.
const TAIL_LINES: usize = 30;

/// Where a cluster's brokers run, and with which jars.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ground<'a> {
    /// The cluster's folder.
    pub(super) folder: &'a Path,
    /// The folder with the jars.
    pub(super) library: &'a Path,
}

/// A broker that was started, and where in its log this start begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Launched {
    pub(super) id: u8,
    from: u64,
}

/// How a start went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    Ready,
    PortTaken(u8),
}

/// Writes what every broker is told.
pub(super) fn configure(ground: Ground<'_>, state: &State) -> Result<()> {
    std::fs::write(ground.folder.join("log4j2.xml"), config::LOG4J)?;
    for broker in &state.brokers {
        let text = config::render(state, broker)?;
        let path = ground.folder.join(properties_file(broker.id));
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Formats the data folders that are not formatted yet.
pub(super) fn format(ground: Ground<'_>, state: &State) -> Result<()> {
    let mut running: Vec<(u8, Child)> = Vec::new();
    for broker in &state.brokers {
        let data = ground.folder.join(data_folder(broker.id));
        if data.join("meta.properties").exists() {
            continue;
        }
        let mut command = Command::new("java");
        command
            .args(["-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"])
            .args(java_arguments(ground))
            .args(["kafka.tools.StorageTool", "format", "-t", &state.cluster_id, "-c"])
            .arg(properties_file(broker.id));
        if let Some(tls) = &state.tls {
            let scram = format!("SCRAM-SHA-512=[name={},password={}]", tls.user, tls.password);
            command.args(["--add-scram", &scram]);
        }
        let command = command
            .current_dir(ground.folder)
            .stdin(Stdio::null())
            .stdout(log(ground.folder, broker.id)?)
            .stderr(log(ground.folder, broker.id)?);
        running.push((broker.id, command.spawn().context("cannot start java")?));
    }
    // All are waited for before the first failure is told, so that none is left behind.
    let ended: Vec<_> = running.iter_mut().map(|(id, child)| (*id, child.wait())).collect();
    for (id, status) in ended {
        let status = status?;
        if !status.success() {
            bail!("the data of broker {id} was not formatted: {status}\n{}", tail(ground, id));
        }
    }
    Ok(())
}

/// Starts a broker that outlives this program.
pub(super) fn launch(ground: Ground<'_>, state: &State, id: u8) -> Result<(Process, Launched)> {
    let output = log(ground.folder, id)?;
    let from = output.metadata()?.len();
    // A session of its own: what ends the terminal of this program does not end the broker. `setsid` and `ip` become
    // java in place, so the number of the child is java's.
    let mut command = Command::new("setsid");
    if let Some(subnet) = state.subnet {
        command.args(["ip", "netns", "exec", &net::namespace(subnet, id)]);
    }
    // Thousands of topics, one or more of each test, take up to 600 MB. A broker
    // without heap is not dead: it answers ever more slowly.
    let child = command
        .args(["java", "-Xms128m", "-Xmx1g", "-XX:+UseSerialGC"])
        .arg("-Djava.net.preferIPv4Stack=true")
        .args(java_arguments(ground))
        .args(["kafka.Kafka", &properties_file(id)])
        .current_dir(ground.folder)
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .spawn();
    let child = found(child, "setsid", "util-linux")?;
    Ok((Process::of(child.id())?, Launched { id, from }))
}

fn java_arguments(ground: Ground<'_>) -> Vec<String> {
    // Java itself expands the star.
    let jars = format!("{}/*", ground.library.display());
    vec!["-Dlog4j2.configurationFile=log4j2.xml".to_owned(), "-cp".to_owned(), jars]
}

/// Waits until the brokers that were started say so, and those asked know all of `alive`.
///
/// What the others say does not prove that a broker serves: they list one that was killed until its session ends.
pub(super) fn wait_ready(
    ground: Ground<'_>,
    state: &State,
    launched: &[Launched],
    asked: &[u8],
    alive: &[u8],
) -> Result<Readiness> {
    let mut starting = launched.to_vec();
    let mut asked = asked.to_vec();
    let mut taken = None;
    let ready = wait_until(READY_LIMIT, || {
        for index in (0..starting.len()).rev() {
            let Launched { id, from } = starting[index];
            let said = log_from(ground.folder, id, from)?;
            if said.contains(PORT_TAKEN) {
                taken = Some(id);
                return Ok(true);
            }
            if said.contains(STARTED) {
                starting.swap_remove(index);
            } else if state.broker(id)?.health()? == Health::Dead {
                bail!("broker {id} ended while it started\n{}", tail(ground, id));
            }
        }
        if starting.is_empty() {
            let mut unsure = Vec::new();
            for &id in &asked {
                if !knows(state.broker(id)?, alive) {
                    unsure.push(id);
                }
            }
            asked = unsure;
        }
        Ok(starting.is_empty() && asked.is_empty())
    })?;
    if let Some(id) = taken {
        return Ok(Readiness::PortTaken(id));
    }
    if !ready {
        let late = starting.first().map(|launched| launched.id).or_else(|| asked.first().copied());
        let late = late.expect("one of them is not empty, or all would be ready");
        let limit = READY_LIMIT.as_secs();
        bail!("broker {late} did not serve within {limit} s\n{}", tail(ground, late));
    }
    Ok(Readiness::Ready)
}

/// Whether a broker answers, and takes all of `alive` for alive.
fn knows(broker: &Broker, alive: &[u8]) -> bool {
    wire::brokers(broker.address())
        .is_ok_and(|known| alive.iter().all(|id| known.contains(&i32::from(*id))))
}

fn log_name(id: u8) -> String {
    format!("broker-{id}.log")
}

fn log(folder: &Path, id: u8) -> Result<File> {
    let path = folder.join(log_name(id));
    File::options()
        .create(true)
        .append(true)
        .open(&path)
        .with_context(|| format!("cannot open {}", path.display()))
}

fn log_from(folder: &Path, id: u8, from: u64) -> Result<String> {
    let bytes = std::fs::read(folder.join(log_name(id)))?;
    let from = usize::try_from(from)?.min(bytes.len());
    Ok(String::from_utf8_lossy(&bytes[from..]).into_owned())
}

/// The end of a broker's log, under a line that says where it is.
fn tail(ground: Ground<'_>, id: u8) -> String {
    let path = ground.folder.join(log_name(id));
    let text = log_from(ground.folder, id, 0).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let shown = &lines[lines.len().saturating_sub(TAIL_LINES)..];
    format!("the end of {}:\n{}", path.display(), shown.join("\n"))
}
