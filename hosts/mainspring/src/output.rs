//! Results on standard output, errors on standard error, as text or JSON.

use std::io::Write as _;
use std::process::ExitCode;

use mainspring::api::{ComputeState, DeletionState, ExecState, LogRecord, Outcome, Session};
use mainspring::eventlog::canonical::rfc3339;
use serde_json::{Value, json};

use crate::args::Format;
use crate::error::CliError;
use crate::records;

/// Writes to standard output. A reader that went away (a closed pipe) is no
/// reason to give up what is being done: the rest is not shown.
fn print(text: &str, line: bool) {
    let mut out = std::io::stdout().lock();
    let end = if line { "\n" } else { "" };
    let written = out.write_all(text.as_bytes()).and_then(|()| out.write_all(end.as_bytes()));
    if let Err(error) = written.and_then(|()| out.flush())
        && error.kind() != std::io::ErrorKind::BrokenPipe
    {
        UNWRITTEN.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

/// Set when a result could not be written for another reason than a closed pipe.
static UNWRITTEN: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// Whether some result was not written, as to a full disk.
pub(crate) fn unwritten() -> bool {
    UNWRITTEN.load(std::sync::atomic::Ordering::Relaxed)
}

/// Text from elsewhere, for a terminal: its control characters could forge
/// lines or drive the terminal, and bidirectional ones reorder what is read. Line ends and tabs of running text stay.
pub(crate) fn shown(text: &str) -> String {
    text.chars()
        .map(|ch| if misleads(ch) && !matches!(ch, '\n' | '\t') { ' ' } else { ch })
        .collect()
}

/// [`shown`], on one line.
pub(crate) fn shown_line(text: &str) -> String {
    text.chars().map(|ch| if misleads(ch) { ' ' } else { ch }).collect()
}

/// JSON with what would mislead escaped: it means the same.
pub(crate) fn shown_json(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for ch in json.chars() {
        if misleads(ch) {
            // All of them are of the basic plane, and within strings.
            shown.push_str(&format!("\\u{:04x}", u32::from(ch)));
        } else {
            shown.push(ch);
        }
    }
    shown
}

/// Whether a character drives a terminal, ends a line, or turns the direction
/// of the text after it around.
fn misleads(ch: char) -> bool {
    let turns = matches!(ch, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || ch.is_control() || matches!(ch, '\u{2028}' | '\u{2029}')
}

/// Where and how results go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    format: Format,
}

/// One line on standard error. Whether anybody reads it changes nothing: a
/// server goes on, and a command ends as it would have.
pub(crate) fn tell(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

impl Output {
    pub(crate) const fn new(format: Format) -> Self {
        Self { format }
    }

    pub(crate) const fn is_json(self) -> bool {
        matches!(self.format, Format::Json)
    }

    /// One result, as a line.
    pub(crate) fn line(self, text: impl FnOnce() -> String, json: impl FnOnce() -> Value) {
        let line = if self.is_json() { json().to_string() } else { text() };
        print(&line, true);
    }

    /// A record, as a line.
    pub(crate) fn record(self, record: &LogRecord, member: Option<&str>) -> Result<(), CliError> {
        if !self.is_json() {
            print(&records::text_line(record), true);
            return Ok(());
        }
        let line = records::json_line(record)?;
        match member {
            None => print(&line, true),
            Some(member) => print(&format!("{{\"{member}\":{line}}}"), true),
        }
        Ok(())
    }

    /// A piece of output while it is written.
    pub(crate) fn chunk(self, execution: &str, chunk: &str, done: bool) {
        if self.is_json() {
            let delta = json!({"execution_id": execution, "chunk": chunk, "done": done});
            print(&json!({"delta": delta}).to_string(), true);
        } else if done {
            print("", true);
        } else {
            print(&shown(chunk), false);
        }
    }

    /// Says something beside the result.
    pub(crate) fn note(self, text: &str) {
        if self.is_json() {
            tell(&json!({"note": text}).to_string());
        } else {
            tell(&format!("mainspring: {}", shown_line(text)));
        }
    }

    /// Shows why the command failed, and gives its exit code.
    pub(crate) fn fail(self, error: &CliError) -> ExitCode {
        if self.is_json() {
            let outcome = match error.outcome {
                Outcome::NotApplied => "not_applied",
                Outcome::Unknown => "unknown",
                Outcome::Applied => "applied",
            };
            let mut body = json!({
                "code": error.code,
                "message": error.message,
                "outcome": outcome,
                "exit_code": error.exit_code(),
            });
            if let Some(session) = &error.session {
                body["session"] = json!(session);
            }
            tell(&json!({"error": body}).to_string());
        } else {
            tell(&format!("mainspring: {} [{}]", shown(&error.to_string()), error.code));
        }
        ExitCode::from(error.exit_code())
    }
}

/// A session, with proto field names.
pub(crate) fn session_json(s: &Session) -> Value {
    let mut value = json!({
        "uid": s.uid.as_str(),
        "project": s.project,
        "name": s.name,
        "harness": s.harness,
        "model": s.model,
        "exec_state": format!("EXEC_{}", s.exec_state.name()),
        "compute_state": compute_name(s.compute_state),
        "deletion_state": match s.deletion_state {
            DeletionState::Active => "DELETION_ACTIVE",
            DeletionState::Pending => "DELETION_PENDING",
        },
        "last_seq": s.last_seq.get(),
        "create_time": rfc3339(s.create_time),
        "update_time": rfc3339(s.update_time),
        "labels": s.labels,
        "annotations": s.annotations,
    });
    if let Some(parent) = &s.parent_uid {
        value["parent_uid"] = json!(parent.as_str());
        value["fork_seq"] = json!(s.fork_seq.get());
    }
    if let Some(approval) = &s.pending_approval {
        value["pending_approval"] = json!({
            "execution_id": approval.execution_id,
            "tool_call_id": approval.tool_call_id,
            "request_seq": approval.request_seq,
        });
    }
    value
}

fn compute_name(state: ComputeState) -> String {
    format!("COMPUTE_{}", state.name())
}

/// `uid TAB last_seq=N TAB compute=X TAB harness=H TAB name=N`, and after that
/// `TAB exec=STATE` unless its turns are over and well, and `TAB deletion=PENDING`
/// if it is deleted.
pub(crate) fn list_line(s: &Session) -> String {
    let states = states(s, '\t');
    format!(
        "{}\tlast_seq={}\tcompute={}\tharness={}\tname={}{states}",
        s.uid,
        s.last_seq,
        s.compute_state.name(),
        shown_line(&s.harness),
        shown_line(&s.name)
    )
}

/// `session U project=P name=N harness=H last_seq=N compute=X`, and ` exec=STATE`
/// and ` deletion=PENDING` as [`list_line`] has them.
pub(crate) fn get_line(s: &Session) -> String {
    format!(
        "session {} project={} name={} harness={} last_seq={} compute={}{}",
        s.uid,
        shown_line(&s.project),
        shown_line(&s.name),
        shown_line(&s.harness),
        s.last_seq,
        s.compute_state.name(),
        states(s, ' ')
    )
}

/// What there is to know of a session's turns and its deletion: nothing, if no turn
/// is open, the last one went well, and it is not deleted.
fn states(s: &Session, separator: char) -> String {
    let exec = match s.exec_state {
        ExecState::Pending | ExecState::Completed => String::new(),
        state => format!("{separator}exec={}", state.name()),
    };
    match s.deletion_state {
        DeletionState::Active => exec,
        DeletionState::Pending => format!("{exec}{separator}deletion=PENDING"),
    }
}

/// `session U VERB compute=COMPUTE_X last_seq=N`
pub(crate) fn moved_line(s: &Session, verb: &str) -> String {
    format!(
        "session {} {verb} compute={} last_seq={}",
        s.uid,
        compute_name(s.compute_state),
        s.last_seq
    )
}

/// `child U parent=P fork_seq=N name=N`
pub(crate) fn child_line(s: &Session) -> String {
    let parent = s.parent_uid.as_ref().map_or("", |parent| parent.as_str());
    format!("child {} parent={parent} fork_seq={} name={}", s.uid, s.fork_seq, shown_line(&s.name))
}
