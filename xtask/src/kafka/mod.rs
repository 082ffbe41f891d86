//! Real Kafka clusters of one or three brokers, for tests, for continuous integration and for people.
//!
//! A cluster lives in `<target>/kafka/<name>` and outlives the command that started it. What is known of it stands in
//! its `cluster.json`; programs read that, or the last line that `up` prints.

mod args;
mod broker;
mod cluster;
mod config;
mod faults;
mod fetch;
mod net;
mod process;
mod state;
mod status;
mod tls;
mod wire;

use anyhow::Result;

use crate::workspace::Workspace;
use args::{Arguments, Command};
use cluster::Place;

/// The version of Kafka that `pom.xml` names.
const VERSION: &str = "4.4.0";

/// Runs one command on one cluster.
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    if matches!(arguments.first().map(String::as_str), Some("help" | "--help" | "-h")) {
        println!("{}", args::USAGE);
        return Ok(());
    }
    let Arguments { command, name } = Arguments::parse(arguments)?;
    let place = Place::new(&workspace.target, &name);
    match command {
        Command::Up(wanted) => cluster::up(&place, &wanted),
        Command::Down { purge } => cluster::down(&place, purge),
        Command::Status { json } => status::print(&place, json),
        Command::Kill(ids) => faults::kill(&place, &ids),
        Command::Start(ids) => cluster::start(&place, &ids),
        Command::Pause(ids) => faults::pause(&place, &ids),
        Command::Resume(ids) => faults::resume(&place, &ids),
        Command::Cut { ids, from_peers } => faults::cut(&place, &ids, from_peers),
        Command::Heal(ids) => faults::heal(&place, &ids),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_one_that_is_fetched() {
        let line = format!("<kafka.version>{VERSION}</kafka.version>");
        assert!(fetch::POM.contains(&line), "pom.xml names another version than {VERSION}");
    }
}
