//! Requests and answers of `mainspring.v1.Operations`.

use mainspring_api::{Resolution, ResolveRequest, Session};

use crate::error::{WireError, Within as _, required};
use crate::operations_v1 as wire;
use crate::scalar::{execution_id, session_uid};

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
