//! Flags of the commands that serve, and of the registry of harnesses.

use clap::{Args, Subcommand};

use super::{ApprovalArgs, ModelArgs};

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Where to listen; 127.0.0.1:8080 unless given. Beyond loopback and unix:PATH that needs TLS,
    /// an authenticator and a policy, set in the configuration file.
    #[arg(long)]
    pub(crate) addr: Option<String>,
    /// Where operators are listened to: unix:PATH, a loopback IP:PORT that is not --addr's, or
    /// elsewhere with TLS, an authenticator and a policy.
    #[arg(long, value_name = "ADDR")]
    pub(crate) registry_addr: Option<String>,
    /// Where clients reach this host, on a store that many serve; --addr unless given.
    #[arg(long, value_name = "ADDR")]
    pub(crate) advertise: Option<String>,
    /// Serve a harness: NAME=HOST:PORT, NAME=unix:PATH, or NAME=exec:COMMAND for a child process.
    #[arg(long = "harness", value_name = "NAME=ADDR")]
    pub(crate) harness: Vec<String>,
    /// Let a harness take the name of a built-in one.
    #[arg(long)]
    pub(crate) replace_builtin: bool,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// Seconds that turns may run on once it is told to stop.
    #[arg(long, value_name = "SECONDS", hide = true)]
    pub(crate) drain_max: Option<u32>,
    /// Loopback IP:PORT of a page of metrics, and of /livez and /readyz.
    #[arg(long, value_name = "ADDR")]
    pub(crate) metrics_addr: Option<String>,
    #[command(flatten)]
    pub(crate) approval: ApprovalArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Harness {
    /// Serve a reference harness to hosts.
    Serve(HarnessServe),
    /// Register a harness on a server's operators' listener.
    Register(HarnessRegister),
    /// Show a harness.
    Get(HarnessGet),
    /// List harnesses by name.
    List(HarnessList),
    /// Refuse a harness to new sessions.
    Retire(HarnessRetire),
}

#[derive(Debug, Args)]
pub(crate) struct HarnessServe {
    /// Which.
    #[arg(long, env = "HARNESS_KIND", default_value = "echo")]
    pub(crate) kind: String,
    /// Where: HOST:PORT or unix:PATH. Under a host that started this process,
    /// HARNESS_ADDR says it, and the end of standard input ends it.
    #[arg(long)]
    pub(crate) addr: Option<String>,
    /// Model that the chat and gate harnesses ask for.
    #[arg(long, env = "HARNESS_MODEL", default_value = "")]
    pub(crate) model: String,
}

#[derive(Debug, Args)]
pub(crate) struct HarnessRegister {
    /// Its name.
    #[arg(long)]
    pub(crate) name: String,
    /// Its spec: JSON with proto field names; - is standard input.
    #[arg(long, value_name = "FILE")]
    pub(crate) spec: String,
}

#[derive(Debug, Args)]
pub(crate) struct HarnessGet {
    /// Its name.
    #[arg(long)]
    pub(crate) name: String,
    /// Ask it to describe itself.
    #[arg(long)]
    pub(crate) observe: bool,
}

#[derive(Debug, Args)]
pub(crate) struct HarnessList {
    /// Show retired ones too.
    #[arg(long)]
    pub(crate) include_retired: bool,
    /// Harnesses fetched at a time; all are shown.
    #[arg(long, default_value_t = 50)]
    pub(crate) page_size: i32,
}

#[derive(Debug, Args)]
pub(crate) struct HarnessRetire {
    /// Its name.
    #[arg(long)]
    pub(crate) name: String,
    /// Why.
    #[arg(long, default_value = "")]
    pub(crate) reason: String,
}
