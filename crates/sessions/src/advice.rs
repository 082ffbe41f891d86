//! A session's standing in words, and the commands that get it going.

use mainspring_api::{ExecutionId, OpenCall, Seq, SessionUid, Standing};
use mainspring_eventlog::canonical::rfc3339;

/// Where a session stands, and what of it decides what is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Why {
    Deleted {
        purged: bool,
    },
    Damaged {
        seq: Seq,
        what: String,
    },
    Running {
        operation: String,
    },
    RunningElsewhere {
        holder: String,
    },
    Parked,
    Decided {
        approved: bool,
    },
    UnknownEffect {
        /// The call was copied by a fork.
        inherited: bool,
    },
    Interrupted,
    /// Cut before its inputs were recorded: no resume can go on with it.
    Unstarted {
        missing: u64,
    },
    /// Forked in the middle of a gated call: no resume can go on with it.
    Inherited,
    /// The last attempt failed, and the turn has no end.
    AttemptFailed,
    Failed,
    Idle {
        /// What became of the latest turn.
        last: Option<&'static str>,
    },
}

impl Why {
    pub(crate) const fn standing(&self) -> Standing {
        match self {
            Self::Deleted { .. } => Standing::Deleted,
            Self::Damaged { .. } => Standing::Damaged,
            Self::Running { .. } => Standing::Running,
            Self::RunningElsewhere { .. } => Standing::RunningElsewhere,
            Self::Parked => Standing::Parked,
            Self::Decided { .. } => Standing::Decided,
            Self::UnknownEffect { .. } => Standing::UnknownEffect,
            Self::Interrupted | Self::Unstarted { .. } | Self::Inherited => Standing::Interrupted,
            Self::AttemptFailed | Self::Failed => Standing::Failed,
            Self::Idle { .. } => Standing::Idle,
        }
    }
}

/// What is known of a session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Findings<'a> {
    pub(crate) session: &'a SessionUid,
    pub(crate) execution: Option<&'a ExecutionId>,
    pub(crate) why: &'a Why,
}

impl Findings<'_> {
    /// One sentence, for people.
    pub(crate) fn summary(&self, call: Option<&OpenCall>) -> String {
        let named = call.map_or_else(
            || "a tool call".to_owned(),
            |call| format!("call {:?} of tool {:?}", call.tool_call_id, call.tool),
        );
        match self.why {
            Why::Deleted { purged: false } => "The session is to be deleted.".to_owned(),
            Why::Deleted { purged: true } => {
                "The session was deleted, and its records are gone.".to_owned()
            }
            Why::Damaged { seq, what } => {
                format!("The journal cannot be gone on with, from seq {seq} on: {what}.")
            }
            Why::Running { operation } => match operation.as_str() {
                "exec" | "resume" => "A turn runs on this host.".to_owned(),
                other => format!("The operation {other} runs on this host."),
            },
            Why::RunningElsewhere { holder } => {
                format!("The latest turn runs on another host, {holder:?}, which is alive.")
            }
            Why::Parked => {
                let until = call.and_then(|call| call.expires).map(rfc3339);
                let until =
                    until.map_or(String::new(), |at| format!("; the request expires at {at}"));
                format!("The latest turn waits for a decision on {named}{until}.")
            }
            Why::Decided { approved } => {
                let word = if *approved { "approved" } else { "denied" };
                format!("The decision on {named} is made, {word}; the turn waits to be resumed.")
            }
            Why::UnknownEffect { .. } => format!(
                "The latest turn was cut at {named}, which has no result: nobody knows whether it \
                 happened."
            ),
            Why::Interrupted => "The latest turn was cut, and waits to be resumed.".to_owned(),
            Why::Unstarted { missing } => format!(
                "The latest turn was cut before {missing} of its inputs were recorded; a new turn \
                 takes its place."
            ),
            Why::Inherited => "The session was forked in the middle of a call that needs an \
                               approval; a new turn takes its place."
                .to_owned(),
            Why::AttemptFailed => {
                "The last attempt of the latest turn has failed; the turn can be resumed."
                    .to_owned()
            }
            Why::Failed => "The latest turn has failed.".to_owned(),
            Why::Idle { last: None } => "The session has had no turn yet.".to_owned(),
            Why::Idle { last: Some(last) } => format!("The latest turn {last}; nothing is open."),
        }
    }

    /// What to run next, the best first.
    pub(crate) fn commands(&self, call: Option<&OpenCall>) -> Vec<String> {
        let session = self.session;
        let one = |verb: &str| format!("mainspring {verb} --session {session}");
        let next = format!("{} --input TEXT", one("exec"));
        match self.why {
            Why::Running { .. } | Why::RunningElsewhere { .. } | Why::Idle { .. } => Vec::new(),
            Why::Deleted { purged: true } => Vec::new(),
            Why::Deleted { purged: false } => vec![one("export")],
            Why::Damaged { seq, .. } => {
                let mut commands = vec![one("verify")];
                // Position 0 would be the head.
                if seq.get() > 1 {
                    commands.push(format!("{} --at {}", one("fork"), seq.get() - 1));
                }
                commands
            }
            Why::Parked => ["approve", "deny"].map(|v| format!("mainspring {v} {session}")).into(),
            Why::Decided { .. } | Why::Interrupted => vec![one("resume")],
            Why::UnknownEffect { inherited } => {
                let call = call.map_or_else(|| "ID".to_owned(), |call| quoted(&call.tool_call_id));
                let execution = self.execution.map_or("ID", ExecutionId::as_str);
                let resolve =
                    format!("{} --tool-call {call} --execution {execution}", one("resolve"));
                let mut words = vec!["--result JSON", "--failed TEXT"];
                if !inherited {
                    words.push("--retry");
                }
                words.into_iter().map(|word| format!("{resolve} {word}")).collect()
            }
            Why::AttemptFailed => vec![one("resume"), next],
            Why::Unstarted { .. } | Why::Inherited | Why::Failed => vec![next],
        }
    }
}

/// A word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |ch: char| ch.is_ascii_alphanumeric() || "-_./:@%+=".contains(ch);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    if word.chars().any(char::is_control) {
        let escaped: String = word.bytes().map(|byte| format!("\\x{byte:02x}")).collect();
        return format!("$'{escaped}'");
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn a_word_is_one_word_of_a_shell() {
        assert_eq!(quoted("call-1"), "call-1");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("it's $5"), r"'it'\''s $5'");
        assert_eq!(quoted("a\n;b"), r"$'\x61\x0a\x3b\x62'");
    }
}
