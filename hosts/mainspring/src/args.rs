//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Durable agent sessions: run, kill, resume, replay, fork, verify.
#[derive(Debug, Parser)]
#[command(name = "mainspring", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// How a result is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// One JSON value a line; errors too, on standard error.
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct Global {
    /// Talk to a server at HOST:PORT or unix:PATH instead of opening a journal here.
    #[arg(long, global = true, value_name = "ADDR")]
    pub(crate) server: Option<String>,
    /// The journal: a file, or SCHEME:REST such as fjall:FOLDER; mainspring.redb unless given.
    #[arg(long, global = true, value_name = "PATH", conflicts_with = "server")]
    pub(crate) journal: Option<String>,
    /// Project that sessions are created and listed in.
    #[arg(long, global = true, default_value = "default")]
    pub(crate) project: String,
    /// How results are shown.
    #[arg(short, long, global = true, value_enum, default_value = "text")]
    pub(crate) output: Format,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve sessions over gRPC until interrupted.
    Serve(Serve),
    /// Create a session.
    Create(Create),
    /// List sessions, newest first.
    List(List),
    /// Show a session.
    Get(OneSession),
    /// Run a turn, on a session or on a new one.
    Exec(Exec),
    /// Show a session's records, or run its turns again without a model.
    Replay(Replay),
    /// Fork a session at a position.
    Fork(Fork),
    /// Free a session's compute.
    Suspend(OneSession),
    /// Bring a session back and finish its interrupted turn.
    Resume(Resume),
    /// Approve the tool call that a session waits on, and go on.
    Approve(Decide),
    /// Deny the tool call that a session waits on, and go on.
    Deny(Decide),
    /// End a session's latest turn, wherever it stands.
    Cancel(Cancel),
    /// Say what became of a tool call whose outcome nobody knows.
    Resolve(Resolve),
    /// Recompute the hash chain of a session or of an exported file.
    Verify(Verify),
    /// Write a session's journal as lines of JSON.
    Export(Export),
    /// Read an exported journal into this store.
    Import(Import),
    /// Show what a journal store holds and takes, while no server has it open.
    Stats(Stats),
    /// Give the dead space of a journal store back, while no server has it open.
    Compact,
    /// Harnesses outside of the host.
    #[command(subcommand)]
    Harness(Harness),
    /// Write a completion script for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Show the version.
    Version,
    #[command(flatten)]
    Later(Later),
}

/// Commands of a later version: known by name, and refused by it.
#[derive(Debug, Subcommand)]
pub(crate) enum Later {
    #[command(hide = true)]
    Delete(Rest),
    #[command(hide = true)]
    Describe(Rest),
    #[command(hide = true)]
    Follow(Rest),
}

impl Later {
    /// The command's name.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Delete(_) => "delete",
            Self::Describe(_) => "describe",
            Self::Follow(_) => "follow",
        }
    }
}

/// Whatever follows.
#[derive(Debug, Args)]
pub(crate) struct Rest {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    rest: Vec<String>,
}

/// Who answers model calls.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ModelArgs {
    /// Answer model calls with this model of an OpenAI-compatible endpoint.
    #[arg(long)]
    pub(crate) model: Option<String>,
    /// The endpoint's base.
    #[arg(
        long,
        value_name = "URL",
        requires = "model",
        default_value = "https://api.openai.com/v1"
    )]
    pub(crate) model_base_url: String,
    /// The path after the base.
    #[arg(long, value_name = "PATH", requires = "model", default_value = "/chat/completions")]
    pub(crate) model_path: String,
    /// The header that carries the key from MODEL_API_KEY or OPENAI_API_KEY.
    #[arg(long, value_name = "HEADER", requires = "model", default_value = "Authorization")]
    pub(crate) model_auth_header: String,
    /// Run a tool for harnesses: NAME=exec:COMMAND or NAME=http:URL, with ,durable at the end if it
    /// may be run again under its key.
    #[arg(long, value_name = "NAME=WHERE")]
    pub(crate) tool: Vec<String>,
}

/// How long a request for approval stays open.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct ApprovalArgs {
    /// Seconds after which a request for approval expires; for good unless given.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    approval_ttl: Option<u32>,
}

impl ApprovalArgs {
    pub(crate) fn ttl(self) -> Option<Duration> {
        self.approval_ttl.map(|seconds| Duration::from_secs(seconds.into()))
    }
}

/// Harnesses of the host inside a command that opens the journal itself.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct HarnessArgs {
    /// Serve a harness: NAME=HOST:PORT, NAME=unix:PATH, or NAME=exec:COMMAND for a child process.
    #[arg(long, value_name = "NAME=ADDR")]
    pub(crate) harness_at: Vec<String>,
    /// Let a harness take the name of a built-in one.
    #[arg(long)]
    pub(crate) replace_builtin: bool,
}

/// What a command that runs a turn itself needs.
#[derive(Debug, Args)]
pub(crate) struct TurnArgs {
    #[command(flatten)]
    pub(crate) host: HarnessArgs,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) approval: ApprovalArgs,
}

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Where to listen: a loopback address, or unix:PATH.
    #[arg(long, default_value = "127.0.0.1:8080")]
    pub(crate) addr: String,
    /// The operators' listener (comes in a later version).
    #[arg(long)]
    pub(crate) registry_addr: Option<String>,
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
    #[command(flatten)]
    pub(crate) approval: ApprovalArgs,
}

#[derive(Debug, Args)]
pub(crate) struct Create {
    /// Display name.
    #[arg(long, default_value = "")]
    pub(crate) name: String,
    /// Harness; the host's default unless given.
    #[arg(long, default_value = "")]
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
}

#[derive(Debug, Args)]
pub(crate) struct OneSession {
    /// The session.
    #[arg(long, value_name = "UID")]
    pub(crate) session: String,
    #[command(flatten)]
    pub(crate) host: HarnessArgs,
}

#[derive(Debug, Args)]
pub(crate) struct Resume {
    /// The session.
    #[arg(long, value_name = "UID")]
    pub(crate) session: String,
    #[command(flatten)]
    pub(crate) turn: TurnArgs,
}

#[derive(Debug, Args)]
pub(crate) struct Exec {
    /// The session; a new one unless given.
    #[arg(long, value_name = "UID")]
    pub(crate) session: Option<String>,
    /// A user message of this text.
    #[arg(long, value_name = "TEXT")]
    pub(crate) input: Vec<String>,
    /// A user message of this file's text; - is standard input.
    #[arg(long, value_name = "PATH")]
    pub(crate) input_file: Vec<String>,
    /// A message as JSON, with proto field names.
    #[arg(long, value_name = "JSON")]
    pub(crate) message: Vec<String>,
    /// Harness for this turn; the session's unless given.
    #[arg(long, default_value = "")]
    pub(crate) harness: String,
    /// Configuration for the harness, or @PATH to read it from a file.
    #[arg(long, value_name = "TEXT")]
    pub(crate) config: Option<String>,
    /// Fail unless the journal ends at this position.
    #[arg(long, value_name = "SEQ", allow_negative_numbers = true)]
    pub(crate) expected_last_seq: Option<i64>,
    /// Seconds that the whole turn may take.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) deadline: Option<u32>,
    /// Chosen execution id (comes in a later version).
    #[arg(long, value_name = "HEX")]
    pub(crate) execution_id: Option<String>,
    /// Do not wait for the turn (comes in a later version).
    #[arg(long)]
    pub(crate) detach: bool,
    #[command(flatten)]
    pub(crate) turn: TurnArgs,
}

#[derive(Debug, Args)]
pub(crate) struct Decide {
    /// The session.
    #[arg(value_name = "UID", required_unless_present = "session", conflicts_with = "session")]
    uid: Option<String>,
    /// The session.
    #[arg(long, value_name = "UID")]
    session: Option<String>,
    /// The request's execution; the session's pending request unless given.
    #[arg(long, value_name = "ID", requires_all = ["tool_call", "request_seq"])]
    pub(crate) execution: Option<String>,
    /// The request's tool call.
    #[arg(long, value_name = "ID", requires_all = ["execution", "request_seq"])]
    pub(crate) tool_call: Option<String>,
    /// The request's position.
    #[arg(
        long,
        value_name = "N",
        requires_all = ["execution", "tool_call"],
        allow_negative_numbers = true
    )]
    pub(crate) request_seq: Option<i64>,
    /// Why.
    #[arg(long, default_value = "")]
    pub(crate) reason: String,
    /// Who decides, for the record.
    #[arg(long, value_name = "PRINCIPAL", default_value = "")]
    pub(crate) actor: String,
    /// Who vouches for that.
    #[arg(long, value_name = "ISSUER", default_value = "")]
    pub(crate) identity_issuer: String,
    /// Under which name.
    #[arg(long, value_name = "SUBJECT", default_value = "")]
    pub(crate) identity_subject: String,
    /// Digest of the call that was looked at, as get -o json shows it; the
    /// recorded call's unless given.
    #[arg(long, value_name = "DIGEST")]
    pub(crate) digest: Option<String>,
    /// Record the decision alone.
    #[arg(long)]
    pub(crate) no_resume: bool,
    #[command(flatten)]
    pub(crate) turn: TurnArgs,
}

impl Decide {
    /// The session, however it was named.
    pub(crate) fn session(&self) -> &str {
        self.uid.as_ref().or(self.session.as_ref()).map_or("", |uid| uid)
    }
}

/// Why a turn is cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Reason {
    /// A person asked.
    User,
    /// It took too long.
    Timeout,
    /// The host had to; the turn has failed.
    Internal,
}

#[derive(Debug, Args)]
pub(crate) struct Cancel {
    /// The session.
    #[arg(long, value_name = "UID")]
    pub(crate) session: String,
    /// Its latest execution; that one unless given.
    #[arg(long, value_name = "ID")]
    pub(crate) execution: Option<String>,
    /// Why.
    #[arg(long, value_enum, default_value = "user")]
    pub(crate) reason: Reason,
}

#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("word").required(true).args(["result", "failed", "retry"])))]
pub(crate) struct Resolve {
    /// The session.
    #[arg(long, value_name = "UID")]
    pub(crate) session: String,
    /// The tool call without a receipt.
    #[arg(long, value_name = "ID")]
    pub(crate) tool_call: String,
    /// Its execution; the session's latest unless given.
    #[arg(long, value_name = "ID")]
    pub(crate) execution: Option<String>,
    /// It happened, with this result: JSON with proto field names, or @PATH.
    #[arg(long, value_name = "JSON")]
    pub(crate) result: Option<String>,
    /// It did not happen, or failed: what the harness is told.
    #[arg(long, value_name = "TEXT")]
    pub(crate) failed: Option<String>,
    /// It may be run once more, under its key.
    #[arg(long)]
    pub(crate) retry: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Replay {
    /// The session.
    #[arg(long, value_name = "UID")]
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
pub(crate) struct Fork {
    /// The session.
    #[arg(long, value_name = "UID")]
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

#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("what").required(true).args(["session", "file"])))]
pub(crate) struct Verify {
    /// A session.
    #[arg(long, value_name = "UID")]
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
    #[arg(long, value_name = "UID")]
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
    #[arg(long, value_name = "UID")]
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
    #[arg(long, value_name = "UID")]
    pub(crate) session: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Harness {
    /// Serve a reference harness to hosts.
    Serve(HarnessServe),
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
