//! Requests and answers of the Sessions service.

use mainspring_api::{
    ApprovalRef, ApproveRequest, Approved, CancelReason, CancelRequest, CreateRequest, ExecRequest,
    ForkRequest, ListPage, ListRequest, OnDisconnect, ReplayRequest, ResumeRequest,
};

use crate::error::{FieldPath, WireError, Within as _, each, required};
use crate::scalar::{execution_id, session_uid, session_uid_opt, text_of};
use crate::session::{NotesField, identity_from, origin_from, record_to_wire};
use crate::v1;

impl From<CreateRequest> for v1::CreateSessionRequest {
    fn from(request: CreateRequest) -> Self {
        Self {
            session: Some(v1::Session {
                metadata: Some(v1::ResourceMetadata {
                    project: request.project,
                    name: request.name,
                    ..Default::default()
                }),
                harness: request.harness,
                model: request.model,
                identity: request.identity.map(Into::into),
                origin: request.origin.map(Into::into),
                labels: request.labels,
                annotations: request.annotations,
                ..Default::default()
            }),
        }
    }
}

/// Everything in the request that a caller may not choose, the uid included,
/// is ignored. An absent session asks for defaults.
impl From<v1::CreateSessionRequest> for CreateRequest {
    fn from(request: v1::CreateSessionRequest) -> Self {
        let session = request.session.unwrap_or_default();
        let metadata = session.metadata.unwrap_or_default();
        Self {
            project: metadata.project,
            name: metadata.name,
            harness: session.harness,
            model: session.model,
            labels: session.labels,
            annotations: session.annotations,
            origin: origin_from(session.origin),
            identity: identity_from(session.identity),
            idempotency_key: None,
        }
    }
}

impl From<ListRequest> for v1::ListSessionsRequest {
    fn from(request: ListRequest) -> Self {
        Self {
            project: request.project,
            page_size: request.page_size,
            page_token: request.page_token,
        }
    }
}

impl From<v1::ListSessionsRequest> for ListRequest {
    fn from(request: v1::ListSessionsRequest) -> Self {
        Self {
            project: request.project,
            page_size: request.page_size,
            page_token: request.page_token,
        }
    }
}

impl TryFrom<ListPage> for v1::ListSessionsResponse {
    type Error = WireError;

    fn try_from(page: ListPage) -> Result<Self, WireError> {
        Ok(Self {
            sessions: each("sessions", page.sessions, TryInto::try_into)?,
            next_page_token: page.next_page_token,
        })
    }
}

impl TryFrom<v1::ListSessionsResponse> for ListPage {
    type Error = WireError;

    fn try_from(page: v1::ListSessionsResponse) -> Result<Self, WireError> {
        Ok(Self {
            sessions: each("sessions", page.sessions, TryInto::try_into)?,
            next_page_token: page.next_page_token,
        })
    }
}

/// Leaves out what travels as call metadata: execution id, idempotency key,
/// and what losing the stream does.
impl TryFrom<ExecRequest> for v1::ExecRequest {
    type Error = WireError;

    fn try_from(request: ExecRequest) -> Result<Self, WireError> {
        Ok(Self {
            session: text_of(request.session.as_ref()),
            inputs: each("inputs", request.inputs, TryInto::try_into)?,
            resume_from_seq: request.resume_from_seq,
            harness: request.harness,
            config: request.config,
            expected_last_seq: request.expected_last_seq,
            deadline_unix: request.deadline_unix,
        })
    }
}

impl TryFrom<v1::ExecRequest> for ExecRequest {
    type Error = WireError;

    fn try_from(request: v1::ExecRequest) -> Result<Self, WireError> {
        Ok(Self {
            session: session_uid_opt("session", &request.session)?,
            inputs: each("inputs", request.inputs, TryInto::try_into)?,
            resume_from_seq: request.resume_from_seq,
            harness: request.harness,
            config: request.config,
            expected_last_seq: request.expected_last_seq,
            deadline_unix: request.deadline_unix,
            execution_id: None,
            idempotency_key: None,
            on_disconnect: OnDisconnect::default(),
            approval_ttl: None,
        })
    }
}

/// Leaves out `verify`, which travels as call metadata.
impl From<ReplayRequest> for v1::ReplayRequest {
    fn from(request: ReplayRequest) -> Self {
        Self {
            session: request.session.to_string(),
            from_seq: request.from_seq,
            to_seq: request.to_seq,
        }
    }
}

impl TryFrom<v1::ReplayRequest> for ReplayRequest {
    type Error = WireError;

    fn try_from(request: v1::ReplayRequest) -> Result<Self, WireError> {
        Ok(Self {
            session: session_uid("session", &request.session)?,
            from_seq: request.from_seq,
            to_seq: request.to_seq,
            verify: false,
        })
    }
}

impl From<ResumeRequest> for v1::ResumeRequest {
    #[expect(deprecated, reason = "the field is never read, and still has to be filled")]
    fn from(request: ResumeRequest) -> Self {
        Self { session: request.session.to_string(), boot: false }
    }
}

impl TryFrom<v1::ResumeRequest> for ResumeRequest {
    type Error = WireError;

    fn try_from(request: v1::ResumeRequest) -> Result<Self, WireError> {
        Ok(Self { session: session_uid("session", &request.session)?, approval_ttl: None })
    }
}

/// Leaves out the digest, which travels as call metadata.
impl From<ApproveRequest> for v1::ApproveRequest {
    fn from(request: ApproveRequest) -> Self {
        Self {
            session: request.session.to_string(),
            execution_id: request.approval.execution_id,
            tool_call_id: request.approval.tool_call_id,
            request_seq: request.approval.request_seq,
            approved: Some(request.approved),
            reason: request.reason,
            identity: request.identity.map(Into::into),
        }
    }
}

impl TryFrom<v1::ApproveRequest> for ApproveRequest {
    type Error = WireError;

    fn try_from(request: v1::ApproveRequest) -> Result<Self, WireError> {
        let session = session_uid("session", &request.session)?;
        execution_id("execution_id", &request.execution_id)?;
        if request.tool_call_id.is_empty() {
            return Err(WireError::missing("tool_call_id"));
        }
        if request.request_seq < 1 {
            return Err(WireError::out_of_range("request_seq", request.request_seq));
        }
        Ok(Self {
            session,
            approval: ApprovalRef {
                execution_id: request.execution_id,
                tool_call_id: request.tool_call_id,
                request_seq: request.request_seq,
            },
            approved: request.approved.ok_or_else(|| WireError::missing("approved"))?,
            reason: request.reason,
            identity: identity_from(request.identity),
            digest: None,
        })
    }
}

/// A decision for the wire.
///
/// # Errors
/// As for a session and a record.
pub fn approved_to_wire(
    approved: Approved,
    notes: NotesField,
) -> Result<v1::ApproveResponse, WireError> {
    Ok(v1::ApproveResponse {
        session: Some(approved.session.try_into().within("session")?),
        decision: Some(record_to_wire(approved.decision, notes).within("decision")?),
    })
}

impl TryFrom<v1::ApproveResponse> for Approved {
    type Error = WireError;

    fn try_from(response: v1::ApproveResponse) -> Result<Self, WireError> {
        Ok(Self {
            session: required("session", response.session, TryInto::try_into)?,
            decision: required("decision", response.decision, TryInto::try_into)?,
        })
    }
}

impl From<ForkRequest> for v1::ForkRequest {
    fn from(request: ForkRequest) -> Self {
        Self {
            session: request.session.to_string(),
            at_seq: request.at_seq,
            count: request.count,
            identity: request.identity.map(Into::into),
            labels: request.labels,
            child_names: request.child_names,
        }
    }
}

/// An identity that is present without content stays present: any presence is
/// to be refused by the service.
impl TryFrom<v1::ForkRequest> for ForkRequest {
    type Error = WireError;

    fn try_from(request: v1::ForkRequest) -> Result<Self, WireError> {
        Ok(Self {
            session: session_uid("session", &request.session)?,
            at_seq: request.at_seq,
            count: request.count,
            labels: request.labels,
            child_names: request.child_names,
            identity: request.identity.map(Into::into),
        })
    }
}

impl From<CancelRequest> for v1::CancelRequest {
    fn from(request: CancelRequest) -> Self {
        Self {
            session: request.session.to_string(),
            execution_id: request.execution_id.to_string(),
            reason: request.reason.name().to_owned(),
        }
    }
}

impl TryFrom<v1::CancelRequest> for CancelRequest {
    type Error = WireError;

    fn try_from(request: v1::CancelRequest) -> Result<Self, WireError> {
        Ok(Self {
            session: session_uid("session", &request.session)?,
            execution_id: execution_id("execution_id", &request.execution_id)?,
            reason: cancel_reason("reason", &request.reason)?,
        })
    }
}

/// The reason of a cancellation; empty reads as asked for by a person.
pub(crate) fn cancel_reason(field: &str, text: &str) -> Result<CancelReason, WireError> {
    if text.is_empty() {
        return Ok(CancelReason::User);
    }
    [CancelReason::User, CancelReason::Timeout, CancelReason::Internal]
        .into_iter()
        .find(|reason| reason.name() == text)
        .ok_or_else(|| WireError::UnknownName {
            path: FieldPath::of(field),
            expected: "USER, TIMEOUT, INTERNAL",
        })
}
