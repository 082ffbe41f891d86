//! Flags of the commands that make and show sessions.

use clap::{Args, ValueEnum};

use crate::commands::complete::{harnesses, sessions};

use super::HarnessArgs;

#[derive(Debug, Args)]
pub(crate) struct Create {
    /// Display name.
    #[arg(long, default_value = "")]
    pub(crate) name: String,
    /// Harness; the host's default unless given.
    #[arg(long, default_value = "", add = harnesses())]
    pub(crate) harness: String,
    /// Model that the session is labelled with.
    #[arg(long, default_value = "")]
    pub(crate) model: String,
    #[command(flatten)]
    pub(crate) host: HarnessArgs,
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// Sessions fetched at a time; all are shown.
    #[arg(long, default_value_t = 50)]
    pub(crate) page_size: i32,
    /// Those whose turns stand like this; repeatable.
    #[arg(long, value_enum)]
    pub(crate) state: Vec<State>,
    /// Those that run on this harness.
    #[arg(long, add = harnesses())]
    pub(crate) harness: Option<String>,
    /// Those with this label; repeatable, and all must be there.
    #[arg(long, value_name = "K=V")]
    pub(crate) label: Vec<String>,
    /// Those of this owner: me.
    #[arg(long, value_parser = ["me"])]
    pub(crate) owner: Option<String>,
}

/// Where a session's turns stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum State {
    /// It has none yet.
    Pending,
    /// One is open, with or without a driver.
    Running,
    /// The latest waits for a decision.
    Awaiting,
    /// The latest completed.
    Completed,
    /// The latest, or its latest attempt, failed.
    Failed,
    /// The latest was cancelled.
    Canceled,
}

/// One session to explain.
#[derive(Debug, Args)]
pub(crate) struct Describe {
    /// The session.
    #[arg(long, value_name = "UID", add = sessions())]
    pub(crate) session: String,
}

#[derive(Debug, Args)]
pub(crate) struct Follow {
    /// The session.
    #[arg(long, value_name = "UID", add = sessions())]
    pub(crate) session: String,
    /// The last position that is known already; what is after it is shown.
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    pub(crate) after: u64,
    /// Stop once the latest turn has ended, or waits for a decision.
    #[arg(long)]
    pub(crate) until_idle: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Adopt {
    /// The session.
    #[arg(long, value_name = "UID", add = sessions())]
    pub(crate) session: String,
    /// Who vouches for its owner.
    #[arg(long)]
    pub(crate) issuer: String,
    /// Its owner's name there.
    #[arg(long)]
    pub(crate) subject: String,
}

#[derive(Debug, Args)]
pub(crate) struct OneSession {
    /// The session.
    #[arg(long, value_name = "UID", add = sessions())]
    pub(crate) session: String,
    #[command(flatten)]
    pub(crate) host: HarnessArgs,
}

#[derive(Debug, Args)]
pub(crate) struct Fork {
    /// The session.
    #[arg(long, value_name = "UID", add = sessions())]
    pub(crate) session: String,
    /// Position to fork at; 0 is the head.
    #[arg(long, default_value_t = 0)]
    pub(crate) at: i64,
    /// Children to make.
    #[arg(long, default_value_t = 1)]
    pub(crate) count: i32,
    /// Names of the children, separated by commas.
    #[arg(long, value_delimiter = ',')]
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    pub(crate) host: HarnessArgs,
}
