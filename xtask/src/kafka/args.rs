//! The arguments of `cargo xtask kafka`.

use anyhow::{Result, bail};

/// What `cargo xtask kafka` takes.
pub(super) const USAGE: &str = "\
usage: cargo xtask kafka COMMAND [--name NAME]

  up [--brokers 1|3] [--netns] [--tls]   starts a cluster and waits until it serves; without options as it was before
  down [--purge]            stops it; --purge also removes its data
  status [--json]           its brokers and where they are
  kill N..                  SIGKILL
  start N..                 starts brokers again and waits until they serve
  pause N.. | resume N..    SIGSTOP and SIGCONT
  cut N.. [--from-peers]    cuts brokers from everybody, or from the other brokers alone (needs `up --netns`)
  heal N..                  undoes every cut

A cluster is named `default` unless --name says otherwise.";

/// The name of a cluster that was given none.
const DEFAULT_NAME: &str = "default";
/// Longest name of a cluster, in bytes.
const NAME_BYTES_MAX: usize = 32;

/// A command, and the cluster that it is for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Arguments {
    pub(super) command: Command,
    pub(super) name: String,
}

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Command {
    Up(Wanted),
    Down { purge: bool },
    Status { json: bool },
    Kill(Vec<u8>),
    Start(Vec<u8>),
    Pause(Vec<u8>),
    Resume(Vec<u8>),
    Cut { ids: Vec<u8>, from_peers: bool },
    Heal(Vec<u8>),
}

/// The shape that `up` was asked for; without any of it the cluster comes up as it was.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) brokers: Option<u8>,
    pub(super) netns: bool,
    pub(super) tls: bool,
}

impl Arguments {
    /// Reads what follows `kafka`.
    pub(super) fn parse(arguments: &[String]) -> Result<Self> {
        let Some((verb, rest)) = arguments.split_first() else {
            bail!("no command was given\n\n{USAGE}");
        };
        let mut words = Words::read(rest)?;
        let command = match verb.as_str() {
            "up" => Command::Up(Wanted {
                brokers: words.brokers.take(),
                netns: words.flag("--netns"),
                tls: words.flag("--tls"),
            }),
            "down" => Command::Down { purge: words.flag("--purge") },
            "status" => Command::Status { json: words.flag("--json") },
            "kill" => Command::Kill(words.ids()?),
            "start" => Command::Start(words.ids()?),
            "pause" => Command::Pause(words.ids()?),
            "resume" => Command::Resume(words.ids()?),
            "cut" => Command::Cut { ids: words.ids()?, from_peers: words.flag("--from-peers") },
            "heal" => Command::Heal(words.ids()?),
            other => bail!("there is no command `kafka {other}`\n\n{USAGE}"),
        };
        let name = words.name.take().unwrap_or_else(|| DEFAULT_NAME.to_owned());
        words.refuse_rest(verb)?;
        Ok(Self { command, name })
    }
}

/// What follows the command, sorted by kind.
#[derive(Debug, Default)]
struct Words {
    name: Option<String>,
    brokers: Option<u8>,
    ids: Vec<u8>,
    flags: Vec<String>,
}

impl Words {
    fn read(arguments: &[String]) -> Result<Self> {
        let mut words = Self::default();
        let mut rest = arguments.iter();
        while let Some(word) = rest.next() {
            match word.as_str() {
                "--name" => words.name = Some(checked_name(rest.next())?),
                "--brokers" => words.brokers = Some(checked_brokers(rest.next())?),
                flag if flag.starts_with('-') => words.flags.push(flag.to_owned()),
                id => match id.parse() {
                    Ok(id) => words.ids.push(id),
                    Err(_) => bail!("`{id}` is no number of a broker\n\n{USAGE}"),
                },
            }
        }
        Ok(words)
    }

    fn flag(&mut self, flag: &str) -> bool {
        let before = self.flags.len();
        self.flags.retain(|given| given != flag);
        self.flags.len() < before
    }

    fn ids(&mut self) -> Result<Vec<u8>> {
        if self.ids.is_empty() {
            bail!("which broker? give its number\n\n{USAGE}");
        }
        Ok(std::mem::take(&mut self.ids))
    }

    fn refuse_rest(&self, verb: &str) -> Result<()> {
        if let Some(flag) = self.flags.first() {
            bail!("`{verb}` has no option `{flag}`\n\n{USAGE}");
        }
        if self.brokers.is_some() {
            bail!("`{verb}` has no option `--brokers`\n\n{USAGE}");
        }
        if let Some(id) = self.ids.first() {
            bail!("`{verb}` takes no number of a broker, but was given `{id}`\n\n{USAGE}");
        }
        Ok(())
    }
}

/// A name is a folder's, and part of no path but its own.
fn checked_name(name: Option<&String>) -> Result<String> {
    let Some(name) = name else { bail!("--name needs a name") };
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty()
        || name.len() > NAME_BYTES_MAX
        || name.starts_with('-')
        || !name.chars().all(plain)
    {
        bail!("`{name}` is no name: 1 to {NAME_BYTES_MAX} of a-z, 0-9 and -, not - first");
    }
    Ok(name.clone())
}

fn checked_brokers(number: Option<&String>) -> Result<u8> {
    match number.map(String::as_str) {
        Some("1") => Ok(1),
        Some("3") => Ok(3),
        _ => bail!("--brokers is 1 or 3"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Arguments> {
        Arguments::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[track_caller]
    fn reads(line: &str, command: Command, name: &str) {
        assert_eq!(Arguments { command, name: name.to_owned() }, parse(line).unwrap());
    }

    #[track_caller]
    fn refuses(line: &str, reason: &str) {
        let error = parse(line).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }

    #[test]
    fn commands_are_read() {
        reads("up", Command::Up(Wanted::default()), "default");
        let wanted = Wanted { brokers: Some(3), netns: true, tls: true };
        reads("up --tls --brokers 3 --netns --name net-3", Command::Up(wanted), "net-3");
        reads("down", Command::Down { purge: false }, "default");
        reads("down --purge --name a", Command::Down { purge: true }, "a");
        reads("status --json", Command::Status { json: true }, "default");
        reads("kill 1", Command::Kill(vec![1]), "default");
        reads("start 1 --name x 3", Command::Start(vec![1, 3]), "x");
        reads("pause 2", Command::Pause(vec![2]), "default");
        reads("resume 2", Command::Resume(vec![2]), "default");
        reads("cut 2", Command::Cut { ids: vec![2], from_peers: false }, "default");
        reads("cut --from-peers 2", Command::Cut { ids: vec![2], from_peers: true }, "default");
        reads("heal 2", Command::Heal(vec![2]), "default");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        refuses("", "no command was given");
        refuses("restart", "there is no command `kafka restart`");
        refuses("up 1", "`up` takes no number of a broker, but was given `1`");
        refuses("up --purge", "`up` has no option `--purge`");
        refuses("up --brokers 2", "--brokers is 1 or 3");
        refuses("up --brokers", "--brokers is 1 or 3");
        refuses("down --brokers 3", "`down` has no option `--brokers`");
        refuses("kill", "which broker?");
        refuses("kill all", "`all` is no number of a broker");
        refuses("status --name", "--name needs a name");
        for name in ["..", "a/b", "-a", "A", "lib-4.4.0", "a23456789012345678901234567890123"] {
            refuses(&format!("up --name {name}"), "is no name");
        }
    }
}
