//! Flags of the commands that read sessions and whole journals.

use std::path::PathBuf;

use clap::Args;

use crate::commands::complete::sessions;

use super::HarnessArgs;

#[derive(Debug, Args)]
pub(crate) struct Replay {
    /// The session.
    #[arg(long, value_name = "UID", add = sessions())]
    pub(crate) session: String,
    /// First position.
    #[arg(long, conflicts_with = "re_execute")]
    pub(crate) from: Option<i64>,
    /// Last position; 0 is the head.
    #[arg(long, conflicts_with = "re_execute")]
    pub(crate) to: Option<i64>,
    /// Run the recorded turns again on their harness, here and without a model,
    /// and print their outputs.
    #[arg(long)]
    pub(crate) re_execute: bool,
    /// Harness to run them on; the recorded one unless given.
    #[arg(long, requires = "re_execute", default_value = "")]
    pub(crate) harness: String,
    #[command(flatten)]
    pub(crate) host: HarnessArgs,
}

#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("what").required(true).args(["session", "file"])))]
pub(crate) struct Verify {
    /// A session.
    #[arg(long, value_name = "UID", add = sessions())]
    pub(crate) session: Option<String>,
    /// An exported file, or a vector file; - is standard input.
    #[arg(long, value_name = "PATH")]
    pub(crate) file: Option<String>,
    /// The head that it must have.
    #[arg(long, value_name = "SEQ:HASH")]
    pub(crate) expect_head: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Export {
    /// The session.
    #[arg(long, value_name = "UID", add = sessions())]
    pub(crate) session: String,
    /// Where to; standard output unless given.
    #[arg(long, value_name = "PATH")]
    pub(crate) file: Option<PathBuf>,
    /// Go on with what an interrupted export left at PATH.partial.
    #[arg(long, requires = "file")]
    pub(crate) resume: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Import {
    /// An exported file, or a vector file; - is standard input.
    #[arg(long, value_name = "PATH", default_value = "-")]
    pub(crate) file: String,
    /// Uid for a file that names none.
    #[arg(long, value_name = "UID", add = sessions())]
    pub(crate) session: Option<String>,
    /// Harness for a file that names none.
    #[arg(long, default_value = "")]
    pub(crate) harness: String,
    /// Display name for a file that names none.
    #[arg(long, default_value = "")]
    pub(crate) name: String,
    /// Go on with an import that was interrupted; it said this id.
    #[arg(long, value_name = "ID")]
    pub(crate) resume: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Stats {
    /// A session; the whole store unless given.
    #[arg(long, value_name = "UID", add = sessions())]
    pub(crate) session: Option<String>,
}
