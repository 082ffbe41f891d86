//! Events with all their bodies.

use mainspring_api::{
    ApprovalRef, ApprovalRequest, ApprovalResult, Event, EventBody, EventKind, ExecutionStart,
    HarnessEnd, IdentityRef, Lifecycle, RecordedError, SnapshotRef,
};

use crate::enums::{lifecycle_from, lifecycle_to};
use crate::error::{FieldPath, WireError, Within as _, optional};
use crate::scalar::{execution_id, text_of, timestamp_from, timestamp_to};
use crate::v1;

/// An identity without content equals an absent one.
impl TryFrom<Event> for v1::Event {
    type Error = WireError;

    fn try_from(event: Event) -> Result<Self, WireError> {
        let kind = kind_to(event.kind()) as i32;
        Ok(Self {
            execution_id: text_of(event.execution_id.as_ref()),
            ts: optional("ts", event.ts, timestamp_to)?,
            schema_version: event.schema_version,
            kind,
            actor: event.actor.filter(|actor| !actor.is_empty()).map(Into::into),
            body: body_to(event.body)?,
        })
    }
}

impl TryFrom<v1::Event> for Event {
    type Error = WireError;

    fn try_from(event: v1::Event) -> Result<Self, WireError> {
        let execution_id = match event.execution_id.as_str() {
            "" => None,
            text => Some(execution_id("execution_id", text)?),
        };
        Ok(Self {
            execution_id,
            ts: optional("ts", event.ts, timestamp_from)?,
            schema_version: event.schema_version,
            actor: event.actor.map(Into::into).filter(|actor: &IdentityRef| !actor.is_empty()),
            body: body_from(event.kind, event.body)?,
        })
    }
}

fn kind_to(kind: EventKind) -> v1::EventKind {
    match kind {
        EventKind::Unspecified => v1::EventKind::Unspecified,
        EventKind::Input => v1::EventKind::EventInput,
        EventKind::ModelCall => v1::EventKind::EventModelCall,
        EventKind::Output => v1::EventKind::EventOutput,
        EventKind::ToolCall => v1::EventKind::EventToolCall,
        EventKind::ToolResult => v1::EventKind::EventToolResult,
        EventKind::ApprovalRequest => v1::EventKind::EventApprovalRequest,
        EventKind::ApprovalResult => v1::EventKind::EventApprovalResult,
        EventKind::Usage => v1::EventKind::EventUsage,
        EventKind::Lifecycle => v1::EventKind::EventLifecycle,
        EventKind::End => v1::EventKind::EventEnd,
        EventKind::Error => v1::EventKind::EventError,
        EventKind::ExecutionStart => v1::EventKind::EventExecutionStart,
        EventKind::Parked => v1::EventKind::EventParked,
    }
}

fn body_to(body: EventBody) -> Result<Option<v1::event::Body>, WireError> {
    use v1::event::Body as Wire;
    Ok(match body {
        EventBody::Unspecified => None,
        EventBody::Input(body) | EventBody::Output(body) => {
            optional("message", body, TryInto::try_into)?.map(Wire::Message)
        }
        EventBody::ModelCall(body) => optional("model", body, TryInto::try_into)?.map(Wire::Model),
        EventBody::ToolCall(body) => optional("tool", body, TryInto::try_into)?.map(Wire::Tool),
        EventBody::ToolResult(body) => {
            optional("result", body, TryInto::try_into)?.map(Wire::Result)
        }
        EventBody::ApprovalRequest(body) => body.map(|body| Wire::Approval(body.into())),
        EventBody::ApprovalResult(body) => body.map(|body| Wire::ApprovalResult(body.into())),
        EventBody::Usage(body) => body.map(|body| Wire::Usage(body.into())),
        EventBody::Lifecycle(body) => body.map(|body| Wire::Lifecycle(body.into())),
        EventBody::End(body) => body.map(|body| Wire::End(body.into())),
        EventBody::Error(body) => body.map(|body| Wire::Error(body.into())),
        EventBody::ExecutionStart(body) => body.map(|body| Wire::ExecutionStart(body.into())),
        EventBody::Parked(body) => body.map(|body| Wire::Parked(body.into())),
    })
}

/// The kind and its own body, or no body, or a refusal.
macro_rules! body_of {
    ($kind:ident, $body:expr, $member:ident, $name:literal) => {
        match $body {
            None => EventBody::$kind(None),
            Some(v1::event::Body::$member(body)) => {
                EventBody::$kind(Some(body.try_into().within($name)?))
            }
            Some(other) => return Err(mismatch(EventKind::$kind, &other)),
        }
    };
    (infallible $kind:ident, $body:expr, $member:ident) => {
        match $body {
            None => EventBody::$kind(None),
            Some(v1::event::Body::$member(body)) => EventBody::$kind(Some(body.into())),
            Some(other) => return Err(mismatch(EventKind::$kind, &other)),
        }
    };
}

fn body_from(kind: i32, body: Option<v1::event::Body>) -> Result<EventBody, WireError> {
    use v1::EventKind as Kind;
    let known = Kind::try_from(kind).map_err(|_| WireError::unknown_enum("kind", kind))?;
    Ok(match known {
        Kind::Unspecified => match body {
            None => EventBody::Unspecified,
            Some(other) => return Err(mismatch(EventKind::Unspecified, &other)),
        },
        Kind::EventInput => body_of!(Input, body, Message, "message"),
        Kind::EventModelCall => body_of!(ModelCall, body, Model, "model"),
        Kind::EventOutput => body_of!(Output, body, Message, "message"),
        Kind::EventToolCall => body_of!(ToolCall, body, Tool, "tool"),
        Kind::EventToolResult => body_of!(ToolResult, body, Result, "result"),
        Kind::EventApprovalRequest => body_of!(infallible ApprovalRequest, body, Approval),
        Kind::EventApprovalResult => {
            body_of!(ApprovalResult, body, ApprovalResult, "approval_result")
        }
        Kind::EventUsage => body_of!(infallible Usage, body, Usage),
        Kind::EventLifecycle => body_of!(Lifecycle, body, Lifecycle, "lifecycle"),
        Kind::EventEnd => body_of!(infallible End, body, End),
        Kind::EventError => body_of!(infallible Error, body, Error),
        Kind::EventExecutionStart => body_of!(infallible ExecutionStart, body, ExecutionStart),
        Kind::EventParked => body_of!(Parked, body, Parked, "parked"),
        // Not an event: it is read apart, and never becomes one that a journal could take.
        Kind::EventHistoryRequest => return Err(WireError::unknown_enum("kind", kind)),
    })
}

fn mismatch(kind: EventKind, body: &v1::event::Body) -> WireError {
    body_mismatch(kind.name(), body)
}

pub(crate) fn body_mismatch(kind: &'static str, body: &v1::event::Body) -> WireError {
    use v1::event::Body as Wire;
    let belongs_to = match body {
        // Shared by two kinds; either name says enough.
        Wire::Message(_) => EventKind::Input.name(),
        Wire::Model(_) => EventKind::ModelCall.name(),
        Wire::Tool(_) => EventKind::ToolCall.name(),
        Wire::Result(_) => EventKind::ToolResult.name(),
        Wire::Approval(_) => EventKind::ApprovalRequest.name(),
        Wire::ApprovalResult(_) => EventKind::ApprovalResult.name(),
        Wire::Usage(_) => EventKind::Usage.name(),
        Wire::Lifecycle(_) => EventKind::Lifecycle.name(),
        Wire::End(_) => EventKind::End.name(),
        Wire::Error(_) => EventKind::Error.name(),
        Wire::ExecutionStart(_) => EventKind::ExecutionStart.name(),
        Wire::Parked(_) => EventKind::Parked.name(),
        Wire::HistoryRequest(_) => v1::EventKind::EventHistoryRequest.as_str_name(),
    };
    WireError::BodyMismatch { path: FieldPath::of("body"), kind, body: belongs_to }
}

impl From<ApprovalRequest> for v1::ApprovalRequest {
    fn from(request: ApprovalRequest) -> Self {
        Self { tool_call_id: request.tool_call_id, reason: request.reason }
    }
}

impl From<v1::ApprovalRequest> for ApprovalRequest {
    fn from(request: v1::ApprovalRequest) -> Self {
        Self { tool_call_id: request.tool_call_id, reason: request.reason }
    }
}

impl From<ApprovalResult> for v1::ApprovalResult {
    fn from(result: ApprovalResult) -> Self {
        Self {
            tool_call_id: result.tool_call_id,
            approved: result.approved,
            reason: result.reason,
            request_seq: result.request_seq,
        }
    }
}

impl TryFrom<v1::ApprovalResult> for ApprovalResult {
    type Error = WireError;

    fn try_from(result: v1::ApprovalResult) -> Result<Self, WireError> {
        Ok(Self {
            tool_call_id: result.tool_call_id,
            approved: result.approved,
            reason: result.reason,
            request_seq: position("request_seq", result.request_seq)?,
        })
    }
}

impl From<ApprovalRef> for v1::ApprovalRef {
    fn from(approval: ApprovalRef) -> Self {
        Self {
            execution_id: approval.execution_id,
            tool_call_id: approval.tool_call_id,
            request_seq: approval.request_seq,
        }
    }
}

impl TryFrom<v1::ApprovalRef> for ApprovalRef {
    type Error = WireError;

    fn try_from(approval: v1::ApprovalRef) -> Result<Self, WireError> {
        Ok(Self {
            execution_id: approval.execution_id,
            tool_call_id: approval.tool_call_id,
            request_seq: position("request_seq", approval.request_seq)?,
        })
    }
}

/// Positions that the domain keeps as plain numbers, because 0 means "none".
fn position(field: &str, number: i64) -> Result<i64, WireError> {
    if number < 0 {
        return Err(WireError::out_of_range(field, number));
    }
    Ok(number)
}

impl From<RecordedError> for v1::Error {
    fn from(error: RecordedError) -> Self {
        Self { code: error.code, description: error.description }
    }
}

impl From<v1::Error> for RecordedError {
    fn from(error: v1::Error) -> Self {
        Self { code: error.code, description: error.description }
    }
}

impl From<HarnessEnd> for v1::HarnessEnd {
    fn from(end: HarnessEnd) -> Self {
        Self { state: end.state, error: end.error.map(Into::into) }
    }
}

impl From<v1::HarnessEnd> for HarnessEnd {
    fn from(end: v1::HarnessEnd) -> Self {
        Self { state: end.state, error: end.error.map(Into::into) }
    }
}

impl From<Lifecycle> for v1::Lifecycle {
    fn from(event: Lifecycle) -> Self {
        Self {
            kind: lifecycle_to(event.kind),
            detail: event.detail,
            snapshot_local: event.snapshot.local,
            snapshot_external_uri: event.snapshot.external_uri,
            snapshot_memory: event.snapshot.memory,
            snapshot_sealed: event.snapshot.sealed,
            compute_instance: event.compute_instance,
        }
    }
}

impl TryFrom<v1::Lifecycle> for Lifecycle {
    type Error = WireError;

    fn try_from(event: v1::Lifecycle) -> Result<Self, WireError> {
        Ok(Self {
            kind: lifecycle_from("kind", event.kind)?,
            detail: event.detail,
            snapshot: SnapshotRef {
                local: event.snapshot_local,
                external_uri: event.snapshot_external_uri,
                memory: event.snapshot_memory,
                sealed: event.snapshot_sealed,
            },
            compute_instance: event.compute_instance,
        })
    }
}

impl From<ExecutionStart> for v1::ExecutionStart {
    fn from(start: ExecutionStart) -> Self {
        Self {
            config: start.config,
            resume_from_seq: start.resume_from_seq,
            input_count: start.input_count,
            harness: start.harness,
            harness_version: start.harness_version,
            compute_instance: start.compute_instance,
            model: start.model,
        }
    }
}

impl From<v1::ExecutionStart> for ExecutionStart {
    fn from(start: v1::ExecutionStart) -> Self {
        Self {
            config: start.config,
            resume_from_seq: start.resume_from_seq,
            input_count: start.input_count,
            harness: start.harness,
            harness_version: start.harness_version,
            compute_instance: start.compute_instance,
            model: start.model,
        }
    }
}
