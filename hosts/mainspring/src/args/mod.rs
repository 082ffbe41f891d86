//! The command line.

mod catalog;
mod flags;
mod journal;
mod kafka;
mod serve;
mod turn;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::Deserialize;

use crate::config::{Config, Loaded, Origin};

pub(crate) use catalog::{Adopt, Create, Describe, Follow, Fork, List, OneSession, State};
pub(crate) use journal::{Export, Import, Replay, Stats, Verify};
pub(crate) use kafka::Kafka;
#[cfg(feature = "kafka")]
pub(crate) use kafka::{KafkaAcls, KafkaInit, KafkaVoidDigest};
pub(crate) use serve::{
    Harness, HarnessGet, HarnessList, HarnessRegister, HarnessRetire, HarnessServe, Serve,
};
pub(crate) use turn::{
    ApprovalArgs, Cancel, Decide, Disconnect, Exec, HarnessArgs, ModelArgs, Reason, Resolve,
    Resume, TurnArgs,
};

/// Durable agent sessions: run, kill, resume, replay, fork, verify.
#[derive(Debug, Parser)]
#[command(name = "mainspring", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: GlobalArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// How a result is shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON value a line; errors too, on standard error.
    Json,
}

/// The flags of every command.
#[derive(Debug, Args)]
pub(crate) struct GlobalArgs {
    /// Talk to a server at HOST:PORT or unix:PATH instead of opening a journal here.
    #[arg(long, global = true, value_name = "ADDR")]
    pub(crate) server: Option<String>,
    /// The journal: a file, or SCHEME:REST such as fjall:FOLDER or kafka://HOST:PORT/TOPIC;
    /// mainspring.redb unless given.
    #[arg(long, global = true, value_name = "PATH", conflicts_with = "server")]
    pub(crate) journal: Option<String>,
    /// The file of this process's view of a journal on Kafka; mainspring-view.redb unless given.
    #[arg(long, global = true, value_name = "PATH", conflicts_with = "server")]
    pub(crate) kafka_view: Option<String>,
    /// Project that sessions are created and listed in; default unless given.
    #[arg(long, global = true)]
    pub(crate) project: Option<String>,
    /// How results are shown; text unless given.
    #[arg(short, long, global = true, value_enum)]
    pub(crate) output: Option<Format>,
    /// The configuration file; MAINSPRING_CONFIG, or mainspring.toml if it is there, unless given.
    #[arg(long, global = true, value_name = "PATH")]
    pub(crate) config_file: Option<PathBuf>,
    /// A file with the bearer token that a server is shown.
    #[arg(long, global = true, value_name = "PATH")]
    pub(crate) token_file: Option<PathBuf>,
}

/// What every command knows: where it works, and its configuration.
#[derive(Debug, Clone)]
pub(crate) struct Global {
    /// The server that it talks to; none: the journal is opened here.
    pub(crate) server: Option<String>,
    /// Whether that was the command line's word.
    pub(crate) server_flag: bool,
    /// The journal, unless it is the default one.
    pub(crate) journal: Option<String>,
    pub(crate) project: String,
    /// The file of the view of a journal on Kafka, if the command line named one.
    pub(crate) kafka_view_flag: Option<PathBuf>,
    /// The configuration file, if the command line named one.
    pub(crate) config_flag: Option<PathBuf>,
    /// The file with the bearer token, if the command line named one.
    pub(crate) token_file_flag: Option<PathBuf>,
    pub(crate) config: Config,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve sessions over gRPC until interrupted.
    Serve(Box<Serve>),
    /// Create a session.
    Create(Create),
    /// List sessions, newest first.
    List(List),
    /// Show a session.
    Get(OneSession),
    /// Say why a session does or does not move, and what to run next.
    Describe(Describe),
    /// Run a turn, on a session or on a new one.
    Exec(Box<Exec>),
    /// Show a session's records, and then what happens as it happens.
    Follow(Follow),
    /// Show a session's records, or run its turns again without a model.
    Replay(Replay),
    /// Fork a session at a position.
    Fork(Fork),
    /// Free a session's compute.
    Suspend(OneSession),
    /// Bring a session back and finish its interrupted turn.
    Resume(Resume),
    /// Approve the tool call that a session waits on, and go on.
    Approve(Box<Decide>),
    /// Deny the tool call that a session waits on, and go on.
    Deny(Box<Decide>),
    /// End a session's latest turn, wherever it stands.
    Cancel(Cancel),
    /// Delete a session.
    Delete(OneSession),
    /// Say what became of a tool call whose outcome nobody knows.
    Resolve(Resolve),
    /// Give a session that has no owner to one, on the operators' listener.
    Adopt(Adopt),
    /// Recompute the hash chain of a session or of an exported file.
    Verify(Verify),
    /// Write a session's journal as lines of JSON.
    Export(Export),
    /// Read an exported journal into this store.
    Import(Import),
    /// Show what a session or a journal store holds and takes.
    Stats(Stats),
    /// Give the dead space of a journal store back, while no server has it open.
    Compact,
    /// The topics of a journal on Kafka.
    #[command(subcommand)]
    Kafka(Kafka),
    /// Harnesses outside of the host.
    #[command(subcommand)]
    Harness(Harness),
    /// The configuration.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Write a completion script for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Show the version.
    Version,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show every setting; secrets are redacted.
    Show {
        /// Say where each value comes from.
        #[arg(long)]
        origin: bool,
    },
}

impl Global {
    /// Where a command works, by its configuration.
    pub(crate) fn new(loaded: &Loaded, config_flag: Option<PathBuf>) -> Self {
        let journal = *loaded.origin("journal") != Origin::Default;
        let kafka_view = *loaded.origin("kafka.view") == Origin::Flag;
        let token_file = *loaded.origin("token_file") == Origin::Flag;
        Self {
            server: loaded.server().map(str::to_owned),
            server_flag: *loaded.origin("server") == Origin::Flag,
            journal: journal.then(|| loaded.config.journal.clone()),
            project: loaded.config.project.clone(),
            kafka_view_flag: kafka_view.then(|| loaded.config.kafka.view.clone()),
            config_flag,
            token_file_flag: loaded.config.token_file.clone().filter(|_| token_file),
            config: loaded.config.clone(),
        }
    }
}
