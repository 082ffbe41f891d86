//! The host that is measured, in a process of its own: this program again, with
//! a hidden argument.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use mainspring::HostBuilder;
use mainspring_bench::run::store::Store;
use mainspring_transport_grpc::{Listener, ServeOptions, serve};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// The hidden argument.
pub(crate) const CHILD: &str = "--server-child";

/// A host over redb that listens on a port of this machine.
pub(crate) struct Server {
    /// Held for its standard input, whose end is the host's.
    child: Child,
    pub(crate) address: String,
}

impl Server {
    pub(crate) async fn start(dir: &Path) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg(CHILD)
            .arg(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let output = child.stdout.take().context("it is piped")?;
        let line = BufReader::new(output).lines().next_line().await?;
        let address = line.context("the server ended before it listened")?;
        Ok(Self { child, address })
    }

    /// The memory that it holds now, in MiB.
    pub(crate) fn resident(&self) -> Result<f64> {
        let pid = self.child.id().context("the server has ended")?;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.context("no VmRSS")?.trim().trim_end_matches("kB").trim();
        Ok(kib.parse::<f64>()? / 1024.0)
    }

    pub(crate) async fn stop(mut self) -> Result<()> {
        drop(self.child.stdin.take());
        let status = self.child.wait().await?;
        anyhow::ensure!(status.success(), "the server ended with {status}");
        Ok(())
    }
}

/// What the child does, until its standard input ends.
pub(crate) async fn be_child(arguments: Vec<String>) -> Result<()> {
    let [dir] = arguments.try_into().ok().context("one argument")?;
    let host = HostBuilder::new(Store::Redb.open(&PathBuf::from(dir))?).build()?;
    let listener = Listener::bind("127.0.0.1:0").await?;
    println!("{}", listener.address());
    let stopped = async {
        let _ = tokio::io::stdin().read_to_end(&mut Vec::new()).await;
    };
    serve(Arc::new(host.service().clone()), listener, ServeOptions::default(), stopped).await?;
    host.service().idle().await;
    host.close().await;
    Ok(())
}
