//! The brokers: those that were named, or one of the bench's own.

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// The cluster of the bench's own, as `cargo xtask kafka` names it.
const NAME: &str = "bench";

/// Brokers; those of the bench's own go with this value.
pub(crate) struct Cluster {
    brokers: String,
    is_own: bool,
}

impl Cluster {
    /// The named brokers; without any, one that is started.
    pub(crate) fn find(named: Option<String>) -> Result<Self> {
        if let Some(brokers) = named {
            return Ok(Self { brokers, is_own: false });
        }
        eprintln!("starting a broker");
        // Before it may fail: a broker that did not come up in time goes, too.
        let mut cluster = Self { brokers: String::new(), is_own: true };
        let output = xtask("up").stdout(Stdio::piped()).output()?;
        if !output.status.success() {
            bail!("`cargo xtask kafka up` ended with {}", output.status);
        }
        let said = String::from_utf8(output.stdout)?;
        let brokers = said.lines().find_map(|line| line.strip_prefix("bootstrap="));
        brokers
            .context("`cargo xtask kafka up` named no brokers")?
            .clone_into(&mut cluster.brokers);
        Ok(cluster)
    }

    pub(crate) fn brokers(&self) -> &str {
        &self.brokers
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if !self.is_own {
            return;
        }
        match xtask("down").arg("--purge").status() {
            Ok(status) if status.success() => {}
            other => eprintln!("the cluster `{NAME}` is still there: {other:?}"),
        }
    }
}

fn xtask(verb: &str) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    command.args(["run", "--quiet", "--package", "xtask", "--", "kafka", verb, "--name", NAME]);
    command
}
