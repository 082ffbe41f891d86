//! Requests and answers of `mainspring.v1.Operations`.

use mainspring_api::{
    AdoptRequest, ExecState, FindRequest, FollowRequest, ListPage, Owner, Resolution,
    ResolveRequest, ResumeRequest, Session,
};

use crate::enums::{exec_state_known, exec_state_to};
use crate::error::{WireError, Within as _, each, required};
use crate::operations_v1 as wire;
use crate::scalar::{execution_id, seq_from, seq_to, session_uid};

impl TryFrom<ResolveRequest> for wire::ResolveRequest {
    type Error = WireError;

    fn try_from(request: ResolveRequest) -> Result<Self, WireError> {
        use wire::resolve_request::{Resolution as Wire, Retry};
        let resolution = match request.resolution {
            Resolution::Result(result) => Wire::Result((*result).try_into().within("result")?),
            Resolution::Failed(reason) => Wire::Failed(reason),
            Resolution::Retry => Wire::Retry(Retry {}),
        };
        Ok(Self {
            session: request.session.to_string(),
            execution_id: request.execution_id.to_string(),
            tool_call_id: request.tool_call_id,
            resolution: Some(resolution),
        })
    }
}

impl TryFrom<wire::ResolveRequest> for ResolveRequest {
    type Error = WireError;

    fn try_from(request: wire::ResolveRequest) -> Result<Self, WireError> {
        use wire::resolve_request::Resolution as Wire;
        let session = session_uid("session", &request.session)?;
        let execution_id = execution_id("execution_id", &request.execution_id)?;
        if request.tool_call_id.is_empty() {
            return Err(WireError::missing("tool_call_id"));
        }
        let resolution = match request.resolution.ok_or_else(|| WireError::missing("resolution"))? {
            Wire::Result(result) => {
                Resolution::Result(Box::new(result.try_into().within("result")?))
            }
            Wire::Failed(reason) => Resolution::Failed(reason),
            Wire::Retry(_) => Resolution::Retry,
        };
        Ok(Self { session, execution_id, tool_call_id: request.tool_call_id, resolution })
    }
}

impl TryFrom<Session> for wire::ResolveResponse {
    type Error = WireError;

    fn try_from(session: Session) -> Result<Self, WireError> {
        Ok(Self { session: Some(session.try_into().within("session")?) })
    }
}

impl TryFrom<wire::ResolveResponse> for Session {
    type Error = WireError;

    fn try_from(response: wire::ResolveResponse) -> Result<Self, WireError> {
        required("session", response.session, TryInto::try_into)
    }
}

impl TryFrom<FollowRequest> for wire::FollowRequest {
    type Error = WireError;

    fn try_from(request: FollowRequest) -> Result<Self, WireError> {
        Ok(Self {
            session: request.session.to_string(),
            after_seq: seq_to("after_seq", request.after_seq)?,
        })
    }
}

impl TryFrom<wire::FollowRequest> for FollowRequest {
    type Error = WireError;

    fn try_from(request: wire::FollowRequest) -> Result<Self, WireError> {
        Ok(Self {
            session: session_uid("session", &request.session)?,
            after_seq: seq_from("after_seq", request.after_seq)?,
        })
    }
}

/// Leaves out the approval's time to live, which travels as call metadata.
impl From<ResumeRequest> for wire::ResumeRequest {
    fn from(request: ResumeRequest) -> Self {
        Self { session: request.session.to_string() }
    }
}

impl TryFrom<wire::ResumeRequest> for ResumeRequest {
    type Error = WireError;

    fn try_from(request: wire::ResumeRequest) -> Result<Self, WireError> {
        Ok(Self { session: session_uid("session", &request.session)?, approval_ttl: None })
    }
}

/// Both parts of an owner, or none.
fn owner_opt(issuer: String, subject: String) -> Result<Option<Owner>, WireError> {
    match (issuer.is_empty(), subject.is_empty()) {
        (true, true) => Ok(None),
        (true, false) => Err(WireError::missing("owner_issuer")),
        (false, true) => Err(WireError::missing("owner_subject")),
        (false, false) => Ok(Some(Owner { issuer, subject })),
    }
}

impl TryFrom<FindRequest> for wire::FindRequest {
    type Error = WireError;

    fn try_from(request: FindRequest) -> Result<Self, WireError> {
        let owner = match request.owner {
            None => None,
            // An owner of empty parts would read as none on the other side.
            Some(owner) => {
                let owner = owner_opt(owner.issuer, owner.subject)?;
                Some(owner.ok_or_else(|| WireError::missing("owner_issuer"))?)
            }
        };
        let (owner_issuer, owner_subject) =
            owner.map(|owner| (owner.issuer, owner.subject)).unwrap_or_default();
        Ok(Self {
            project: request.project,
            states: request.states.into_iter().map(exec_state_to).collect(),
            labels: request.labels,
            harness: request.harness,
            page_size: request.page_size,
            page_token: request.page_token,
            owner_issuer,
            owner_subject,
        })
    }
}

/// A state that is not said is refused, unlike in a session: as a filter it
/// would mean something else than was asked for.
impl TryFrom<wire::FindRequest> for FindRequest {
    type Error = WireError;

    fn try_from(request: wire::FindRequest) -> Result<Self, WireError> {
        let state = |number| -> Result<ExecState, WireError> { exec_state_known("", number) };
        Ok(Self {
            project: request.project,
            owner: owner_opt(request.owner_issuer, request.owner_subject)?,
            states: each("states", request.states, state)?,
            labels: request.labels,
            harness: request.harness,
            page_size: request.page_size,
            page_token: request.page_token,
        })
    }
}

impl TryFrom<ListPage> for wire::FindResponse {
    type Error = WireError;

    fn try_from(page: ListPage) -> Result<Self, WireError> {
        Ok(Self {
            sessions: each("sessions", page.sessions, TryInto::try_into)?,
            next_page_token: page.next_page_token,
        })
    }
}

impl TryFrom<wire::FindResponse> for ListPage {
    type Error = WireError;

    fn try_from(page: wire::FindResponse) -> Result<Self, WireError> {
        Ok(Self {
            sessions: each("sessions", page.sessions, TryInto::try_into)?,
            next_page_token: page.next_page_token,
        })
    }
}

impl From<AdoptRequest> for wire::AdoptRequest {
    fn from(request: AdoptRequest) -> Self {
        Self {
            session: request.session.to_string(),
            owner_issuer: request.owner.issuer,
            owner_subject: request.owner.subject,
        }
    }
}

impl TryFrom<wire::AdoptRequest> for AdoptRequest {
    type Error = WireError;

    fn try_from(request: wire::AdoptRequest) -> Result<Self, WireError> {
        let session = session_uid("session", &request.session)?;
        let owner = owner_opt(request.owner_issuer, request.owner_subject)?;
        Ok(Self { session, owner: owner.ok_or_else(|| WireError::missing("owner_issuer"))? })
    }
}
