//! Flags of the commands that run, cancel and decide turns.

use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::commands::complete::{harnesses, sessions};

/// Who answers model calls.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ModelArgs {
    /// Answer model calls with this model of an OpenAI-compatible endpoint.
    #[arg(long)]
    pub(crate) model: Option<String>,
    /// The endpoint's base; https://api.openai.com/v1 unless given.
    #[arg(long, value_name = "URL")]
    pub(crate) model_base_url: Option<String>,
    /// The path after the base; /chat/completions unless given.
    #[arg(long, value_name = "PATH")]
    pub(crate) model_path: Option<String>,
    /// The header that carries the key from MODEL_API_KEY or OPENAI_API_KEY; Authorization unless
    /// given.
    #[arg(long, value_name = "HEADER")]
    pub(crate) model_auth_header: Option<String>,
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
    pub(crate) const fn seconds(self) -> Option<u32> {
        self.approval_ttl
    }

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
pub(crate) struct Resume {
    /// The session.
    #[arg(long, value_name = "UID", add = sessions())]
    pub(crate) session: String,
    #[command(flatten)]
    pub(crate) turn: TurnArgs,
}

#[derive(Debug, Args)]
pub(crate) struct Exec {
    /// The session; a new one unless given.
    #[arg(long, value_name = "UID", add = sessions())]
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
    #[arg(long, default_value = "", add = harnesses())]
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
    /// Execution id, chosen here: 16 hex digits. The same again attaches to that turn.
    #[arg(long, value_name = "HEX", conflicts_with = "idempotency_key")]
    pub(crate) execution_id: Option<String>,
    /// A key that the execution id is made from. The same again attaches to that turn; without
    /// --session it also names the session.
    #[arg(long, value_name = "KEY")]
    pub(crate) idempotency_key: Option<String>,
    /// Leave the turn to its server once its start is recorded.
    #[arg(long, conflicts_with = "on_disconnect")]
    pub(crate) detach: bool,
    /// What losing the connection does to the turn on a server.
    #[arg(long, value_enum, default_value = "detach")]
    pub(crate) on_disconnect: Disconnect,
    #[command(flatten)]
    pub(crate) turn: TurnArgs,
}

#[derive(Debug, Args)]
pub(crate) struct Decide {
    /// The session.
    #[arg(value_name = "UID", required_unless_present = "session", conflicts_with = "session", add = sessions())]
    uid: Option<String>,
    /// The session.
    #[arg(long, value_name = "UID", add = sessions())]
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

/// What losing the connection does to a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Disconnect {
    /// It goes on; this command attaches to it again.
    Detach,
    /// It is cancelled.
    Cancel,
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
    #[arg(long, value_name = "UID", add = sessions())]
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
    #[arg(long, value_name = "UID", add = sessions())]
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
