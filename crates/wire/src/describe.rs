//! What a host says of a session: where it stands, and what to do about it.

use mainspring_api::{
    DescribeReport, ExecutionId, FenceHolder, LastError, OpenCall, RunningOperation, Seq,
    StoreDurability, WarmHost,
};

use crate::enums::{standing_from, standing_to};
use crate::error::{WireError, optional, required};
use crate::operations_v1 as wire;
use crate::operations_v1::describe_response as part;
use crate::scalar::{execution_id, seq_from, seq_to, text_of, timestamp_from, timestamp_to};

fn execution_id_opt(field: &str, text: &str) -> Result<Option<ExecutionId>, WireError> {
    if text.is_empty() {
        return Ok(None);
    }
    execution_id(field, text).map(Some)
}

/// The fault of the session, for which `agentsessions.v1` has no field, is a
/// field of the answer.
impl TryFrom<DescribeReport> for wire::DescribeResponse {
    type Error = WireError;

    fn try_from(report: DescribeReport) -> Result<Self, WireError> {
        let mut session = report.session;
        Ok(Self {
            fault: session.fault.take().unwrap_or_default(),
            session: optional("session", Some(session), TryInto::try_into)?,
            standing: standing_to(report.standing)?,
            summary: report.summary,
            execution_id: text_of(report.execution_id.as_ref()),
            holder: optional("holder", report.holder, TryInto::try_into)?,
            running: optional("running", report.running, TryInto::try_into)?,
            open_call: optional("open_call", report.open_call, TryInto::try_into)?,
            last_error: optional("last_error", report.last_error, TryInto::try_into)?,
            durability: report.durability.map(Into::into),
            warm_host: report.warm_host.map(Into::into),
            next_commands: report.next_commands,
        })
    }
}

impl TryFrom<wire::DescribeResponse> for DescribeReport {
    type Error = WireError;

    fn try_from(response: wire::DescribeResponse) -> Result<Self, WireError> {
        let mut session: mainspring_api::Session =
            required("session", response.session, TryInto::try_into)?;
        session.fault = (!response.fault.is_empty()).then_some(response.fault);
        Ok(Self {
            session,
            standing: standing_from(response.standing)?,
            summary: response.summary,
            execution_id: execution_id_opt("execution_id", &response.execution_id)?,
            holder: optional("holder", response.holder, TryInto::try_into)?,
            running: optional("running", response.running, TryInto::try_into)?,
            open_call: optional("open_call", response.open_call, TryInto::try_into)?,
            last_error: optional("last_error", response.last_error, TryInto::try_into)?,
            durability: response.durability.map(Into::into),
            warm_host: response.warm_host.map(Into::into),
            next_commands: response.next_commands,
        })
    }
}

impl TryFrom<FenceHolder> for part::Holder {
    type Error = WireError;

    fn try_from(holder: FenceHolder) -> Result<Self, WireError> {
        Ok(Self {
            name: holder.name,
            since: optional("since", holder.since, timestamp_to)?,
            is_here: holder.is_here,
            is_alive: holder.is_alive,
        })
    }
}

impl TryFrom<part::Holder> for FenceHolder {
    type Error = WireError;

    fn try_from(holder: part::Holder) -> Result<Self, WireError> {
        Ok(Self {
            name: holder.name,
            since: optional("since", holder.since, timestamp_from)?,
            is_here: holder.is_here,
            is_alive: holder.is_alive,
        })
    }
}

impl From<StoreDurability> for part::Durability {
    fn from(durability: StoreDurability) -> Self {
        Self { class: durability.class, summary: durability.summary }
    }
}

impl From<part::Durability> for StoreDurability {
    fn from(durability: part::Durability) -> Self {
        Self { class: durability.class, summary: durability.summary }
    }
}

impl From<WarmHost> for part::WarmHost {
    fn from(warm: WarmHost) -> Self {
        Self { name: warm.name, address: warm.address, is_here: warm.is_here }
    }
}

impl From<part::WarmHost> for WarmHost {
    fn from(warm: part::WarmHost) -> Self {
        Self { name: warm.name, address: warm.address, is_here: warm.is_here }
    }
}

impl TryFrom<RunningOperation> for part::Running {
    type Error = WireError;

    fn try_from(running: RunningOperation) -> Result<Self, WireError> {
        Ok(Self {
            operation: running.operation,
            since: optional("since", Some(running.since), timestamp_to)?,
            execution_id: text_of(running.execution_id.as_ref()),
        })
    }
}

impl TryFrom<part::Running> for RunningOperation {
    type Error = WireError;

    fn try_from(running: part::Running) -> Result<Self, WireError> {
        Ok(Self {
            operation: running.operation,
            since: required("since", running.since, timestamp_from)?,
            execution_id: execution_id_opt("execution_id", &running.execution_id)?,
        })
    }
}

impl TryFrom<OpenCall> for part::OpenCall {
    type Error = WireError;

    fn try_from(call: OpenCall) -> Result<Self, WireError> {
        Ok(Self {
            execution_id: call.execution_id.to_string(),
            tool_call_id: call.tool_call_id,
            tool: call.tool,
            seq: seq_to("seq", call.seq)?,
            request_seq: seq_to("request_seq", call.request_seq.unwrap_or(Seq::ZERO))?,
            digest: call.digest,
            expires: optional("expires", call.expires, timestamp_to)?,
            approved: call.approved,
        })
    }
}

impl TryFrom<part::OpenCall> for OpenCall {
    type Error = WireError;

    fn try_from(call: part::OpenCall) -> Result<Self, WireError> {
        let request_seq = seq_from("request_seq", call.request_seq)?;
        Ok(Self {
            execution_id: execution_id("execution_id", &call.execution_id)?,
            tool_call_id: call.tool_call_id,
            tool: call.tool,
            seq: seq_from("seq", call.seq)?,
            request_seq: (request_seq != Seq::ZERO).then_some(request_seq),
            digest: call.digest,
            expires: optional("expires", call.expires, timestamp_from)?,
            approved: call.approved,
        })
    }
}

impl TryFrom<LastError> for part::LastError {
    type Error = WireError;

    fn try_from(error: LastError) -> Result<Self, WireError> {
        Ok(Self { seq: seq_to("seq", error.seq)?, code: error.code, message: error.message })
    }
}

impl TryFrom<part::LastError> for LastError {
    type Error = WireError;

    fn try_from(error: part::LastError) -> Result<Self, WireError> {
        Ok(Self { seq: seq_from("seq", error.seq)?, code: error.code, message: error.message })
    }
}
