//! The strict reader: stored JSON to an event, refusing what it does not know.
//!
//! A reader that skipped an unknown member would compute another hash and call
//! a newer writer's journal tampered. This one says "unsupported" instead.

mod fields;
mod parts;

use mainspring_api::{
    ApprovalRef, ApprovalRequest, ApprovalResult, Event, EventBody, EventKind, ExecutionId,
    ExecutionStart, HarnessEnd, IdentityRef, Json, Lifecycle, LifecycleKind, RecordedError,
    SnapshotRef, Usage,
};

use crate::canonical::{PART_DEPTH_MAX, lifecycle_name};
use crate::json::{self, JsonError};
use fields::Fields;

pub use fields::parse_rfc3339;

/// Containers that an event may nest: its own, its parts', and free-form JSON.
pub(crate) const EVENT_DEPTH_MAX: usize = 6 + 4 * PART_DEPTH_MAX + mainspring_api::JSON_DEPTH_MAX;

/// Why stored JSON is not an event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// A member or value that this version does not know.
    #[error("unsupported {what} at {path}")]
    Unsupported {
        /// What is not known: `field` or `value`.
        what: &'static str,
        /// Where, as a path of member names.
        path: String,
    },
    /// A member of the wrong type or form.
    #[error("malformed {path}: {why}")]
    Malformed {
        /// Where, as a path of member names.
        path: String,
        /// What is wrong.
        why: &'static str,
    },
    /// It is not acceptable JSON at all.
    #[error(transparent)]
    Json(#[from] JsonError),
}

/// Reads the stored bytes of one event.
///
/// # Errors
/// [`ReadError`]: unsupported when a newer writer may have meant it, malformed otherwise.
pub fn event_from_bytes(bytes: &[u8]) -> Result<Event, ReadError> {
    event_from_json(parse_event_json(bytes)?)
}

/// Parses event JSON without interpreting it.
///
/// # Errors
/// [`JsonError`] when it is not acceptable JSON.
pub fn parse_event_json(bytes: &[u8]) -> Result<Json, JsonError> {
    json::parse_within(bytes, EVENT_DEPTH_MAX)
}

/// Reads one event from parsed JSON.
///
/// # Errors
/// As [`event_from_bytes`].
pub fn event_from_json(json: Json) -> Result<Event, ReadError> {
    let mut f = Fields::of(json, "event".to_owned())?;
    let kind = match f.text("kind")? {
        name if name.is_empty() => EventKind::Unspecified,
        name => EventKind::ALL
            .iter()
            .copied()
            .find(|kind| kind.name() == name)
            .ok_or_else(|| f.unsupported("value", "kind"))?,
    };
    let body = read_body(&mut f, kind)?;
    let execution_id = f.text("execution_id")?;
    let event = Event {
        execution_id: ExecutionId::new(&execution_id).ok(),
        ts: f.timestamp("ts")?,
        schema_version: f.int32("schema_version")?,
        actor: f.object("actor")?.map(read_identity).transpose()?,
        body,
    };
    f.end()?;
    Ok(event)
}

fn read_body(f: &mut Fields, kind: EventKind) -> Result<EventBody, ReadError> {
    use EventBody as B;
    macro_rules! body {
        ($key:literal, $read:expr) => {
            f.object($key)?.map($read).transpose()?
        };
    }
    Ok(match kind {
        EventKind::Unspecified => B::Unspecified,
        EventKind::Input => B::Input(body!("message", parts::message)),
        EventKind::ModelCall => B::ModelCall(body!("model", parts::model_call)),
        EventKind::Output => B::Output(body!("message", parts::message)),
        EventKind::ToolCall => B::ToolCall(body!("tool", parts::tool_call)),
        EventKind::ToolResult => B::ToolResult(body!("result", |r| parts::tool_result(r, 0))),
        EventKind::ApprovalRequest => B::ApprovalRequest(body!("approval", read_request)),
        EventKind::ApprovalResult => B::ApprovalResult(body!("approval_result", read_result)),
        EventKind::Usage => B::Usage(body!("usage", read_usage)),
        EventKind::Lifecycle => B::Lifecycle(body!("lifecycle", read_lifecycle)),
        EventKind::End => B::End(body!("end", read_end)),
        EventKind::Error => B::Error(body!("error", read_error)),
        EventKind::ExecutionStart => B::ExecutionStart(body!("execution_start", read_start)),
        EventKind::Parked => B::Parked(body!("parked", read_ref)),
    })
}

fn read_identity(mut f: Fields) -> Result<IdentityRef, ReadError> {
    let identity = IdentityRef {
        principal: f.text("principal")?,
        issuer: f.text("issuer")?,
        subject: f.text("subject")?,
    };
    f.end()?;
    Ok(identity)
}

fn read_request(mut f: Fields) -> Result<ApprovalRequest, ReadError> {
    let body = ApprovalRequest { tool_call_id: f.text("tool_call_id")?, reason: f.text("reason")? };
    f.end()?;
    Ok(body)
}

fn read_result(mut f: Fields) -> Result<ApprovalResult, ReadError> {
    let body = ApprovalResult {
        tool_call_id: f.text("tool_call_id")?,
        approved: f.flag("approved")?,
        reason: f.text("reason")?,
        request_seq: f.int64("request_seq")?,
    };
    f.end()?;
    Ok(body)
}

fn read_ref(mut f: Fields) -> Result<ApprovalRef, ReadError> {
    let body = ApprovalRef {
        execution_id: f.text("execution_id")?,
        tool_call_id: f.text("tool_call_id")?,
        request_seq: f.int64("request_seq")?,
    };
    f.end()?;
    Ok(body)
}

fn read_usage(mut f: Fields) -> Result<Usage, ReadError> {
    let body = Usage {
        model: f.text("model")?,
        input_tokens: f.int64("input_tokens")?,
        output_tokens: f.int64("output_tokens")?,
        reasoning_tokens: f.int64("reasoning_tokens")?,
    };
    f.end()?;
    Ok(body)
}

fn read_error(mut f: Fields) -> Result<RecordedError, ReadError> {
    let body = RecordedError { code: f.int32("code")?, description: f.text("description")? };
    f.end()?;
    Ok(body)
}

fn read_end(mut f: Fields) -> Result<HarnessEnd, ReadError> {
    let body = HarnessEnd {
        state: f.text("state")?,
        error: f.object("error")?.map(read_error).transpose()?,
    };
    f.end()?;
    Ok(body)
}

fn read_lifecycle(mut f: Fields) -> Result<Lifecycle, ReadError> {
    const KINDS: [LifecycleKind; 7] = [
        LifecycleKind::Unspecified,
        LifecycleKind::Suspend,
        LifecycleKind::Resume,
        LifecycleKind::Fork,
        LifecycleKind::Baseline,
        LifecycleKind::Cancel,
        LifecycleKind::Delete,
    ];
    let body = Lifecycle {
        kind: f.name("kind", &KINDS, lifecycle_name)?,
        detail: f.text("detail")?,
        snapshot: SnapshotRef {
            local: f.text("snapshot_local")?,
            external_uri: f.text("snapshot_external_uri")?,
            memory: f.flag("snapshot_memory")?,
            sealed: f.flag("snapshot_sealed")?,
        },
        compute_instance: f.text("compute_instance")?,
    };
    f.end()?;
    Ok(body)
}

fn read_start(mut f: Fields) -> Result<ExecutionStart, ReadError> {
    let body = ExecutionStart {
        config: f.bytes("config")?.unwrap_or_default(),
        resume_from_seq: f.int64("resume_from_seq")?,
        input_count: f.optional_int64("input_count")?,
        harness: f.text("harness")?,
        harness_version: f.text("harness_version")?,
        compute_instance: f.text("compute_instance")?,
        model: f.text("model")?,
    };
    f.end()?;
    Ok(body)
}
