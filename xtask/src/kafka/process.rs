//! Processes that outlive the command which started them: who they are, how they do, and signals to them.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use crate::run::now;

/// How often something that is waited for is looked at.
const POLL: Duration = Duration::from_millis(20);

/// A process, told apart from a later one that got the same number by when it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Process {
    pub(super) pid: u32,
    /// In clock ticks since the machine started: field 22 of `/proc/<pid>/stat`.
    pub(super) start_time: u64,
}

/// How a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Health {
    Running,
    Paused,
    Dead,
}

impl std::fmt::Display for Health {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Dead => "dead",
        })
    }
}

impl Process {
    /// The process that has this number now.
    pub(super) fn of(pid: u32) -> Result<Self> {
        let start_time = stat(pid)?.with_context(|| format!("process {pid} is gone"))?.start_time;
        Ok(Self { pid, start_time })
    }

    /// How it does; a process that has ended and was not yet waited for is dead.
    pub(super) fn health(self) -> Result<Health> {
        Ok(stat(self.pid)?.map_or(Health::Dead, |stat| self.judge(&stat)))
    }

    fn judge(self, stat: &Stat) -> Health {
        match stat.state {
            _ if stat.start_time != self.start_time => Health::Dead,
            'Z' | 'X' | 'x' => Health::Dead,
            'T' | 't' => Health::Paused,
            _ => Health::Running,
        }
    }

    /// Sends a signal; whether there was somebody to send it to.
    pub(super) fn signal(self, signal: Signal) -> Result<bool> {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        let pid = pid.with_context(|| format!("{} is no number of a process", self.pid))?;
        let handle = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(handle) => handle,
            Err(Errno::SRCH) => return Ok(false),
            Err(error) => bail!("cannot take hold of process {}: {error}", self.pid),
        };
        // The handle stays with the process that it was opened for, so the look comes after it.
        if self.health()? == Health::Dead {
            return Ok(false);
        }
        match pidfd_send_signal(&handle, signal) {
            Ok(()) => Ok(true),
            Err(Errno::SRCH) => Ok(false),
            Err(error) => bail!("cannot send {signal:?} to process {}: {error}", self.pid),
        }
    }

    /// Waits until it does as `wanted`; whether it did so within `limit`.
    pub(super) fn wait_for(self, wanted: Health, limit: Duration) -> Result<bool> {
        wait_until(limit, || Ok(self.health()? == wanted))
    }
}

/// Looks at `condition` until it holds; whether it did so within `limit`.
pub(super) fn wait_until(
    limit: Duration,
    mut condition: impl FnMut() -> Result<bool>,
) -> Result<bool> {
    let started = now();
    loop {
        if condition()? {
            return Ok(true);
        }
        if started.elapsed() >= limit {
            return Ok(false);
        }
        std::thread::sleep(POLL);
    }
}

/// What is used of `/proc/<pid>/stat`.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    state: char,
    start_time: u64,
}

fn stat(pid: u32) -> Result<Option<Stat>> {
    let path = format!("/proc/{pid}/stat");
    match std::fs::read_to_string(&path) {
        Ok(line) => {
            Ok(Some(parse_stat(&line).with_context(|| format!("{path} has another form"))?))
        }
        // A process that ends while its file is read is reported as one that is not there.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) if Errno::from_io_error(&error) == Some(Errno::SRCH) => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {path}")),
    }
}

/// The second field is the program's name in brackets, which may itself hold blanks and brackets.
fn parse_stat(line: &str) -> Option<Stat> {
    let (_, rest) = line.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = fields.next()?.chars().next()?;
    let start_time = fields.nth(18)?.trim().parse().ok()?;
    Some(Stat { state, start_time })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    #[test]
    fn the_fields_are_found_behind_any_name() {
        let tail = "S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 998877 123 45";
        let expected = Some(Stat { state: 'S', start_time: 998_877 });
        assert_eq!(expected, parse_stat(&format!("12 (java) {tail}")));
        assert_eq!(expected, parse_stat(&format!("12 (a ) Z (b) {tail}")));
        assert_eq!(None, parse_stat("12 (java) S 1 7"));
        assert_eq!(None, parse_stat(""));
    }

    #[test]
    fn a_process_is_judged_by_state_and_start() {
        let process = Process { pid: 12, start_time: 5 };
        let judge = |state, start_time| process.judge(&Stat { state, start_time });
        assert_eq!(Health::Running, judge('S', 5));
        assert_eq!(Health::Running, judge('R', 5));
        assert_eq!(Health::Paused, judge('T', 5));
        assert_eq!(Health::Dead, judge('Z', 5));
        assert_eq!(Health::Dead, judge('S', 6));
    }

    #[test]
    fn signals_reach_the_process_that_was_meant_and_no_other() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let process = Process::of(child.id()).unwrap();
        let other = Process { start_time: process.start_time + 1, ..process };
        assert!(!other.signal(Signal::KILL).unwrap());
        assert_eq!(Health::Dead, other.health().unwrap());

        assert!(process.signal(Signal::STOP).unwrap());
        assert!(process.wait_for(Health::Paused, LIMIT).unwrap());
        assert!(process.signal(Signal::CONT).unwrap());
        assert!(process.wait_for(Health::Running, LIMIT).unwrap());
        assert!(process.signal(Signal::KILL).unwrap());
        // It is dead before its parent has asked for its status.
        assert!(process.wait_for(Health::Dead, LIMIT).unwrap());
        child.wait().unwrap();
        assert!(!process.signal(Signal::KILL).unwrap());
        assert!(!process.wait_for(Health::Running, Duration::ZERO).unwrap());
    }
}
