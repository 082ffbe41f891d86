//! What a host and a harness say to each other.

use bytes::Bytes;
use mainspring_api::{
    ApprovalRef, ApprovalResult, CancelReason, Capabilities, Descriptor, Event, Message,
    ModelReply, ToolResult,
};

use crate::enums::{resumability_from, resumability_to};
use crate::error::{WireError, Within as _, each, required};
use crate::history::HistoryPage;
use crate::requests::cancel_reason;
use crate::v1;

/// A frame from the host to the harness, as sent or as received.
#[derive(Debug, Clone, PartialEq)]
pub struct ControllerFrame {
    /// The session; empty for a controller without a session scope.
    pub session: String,
    /// The execution.
    pub execution_id: String,
    /// What it says.
    pub frame: Frame,
}

/// What a host says to a harness.
#[derive(Debug, Clone, PartialEq)]
pub enum Frame {
    /// Opens the execution; always the first.
    Start(Box<StartFrame>),
    /// The turn is to stop.
    Cancel(CancelReason),
    /// The decision on a gated tool call; the receipt follows.
    Approval(ApprovalResult),
    /// The result of a tool call.
    Tool(Box<ToolResult>),
    /// The completion of a model call.
    Model(Box<ModelResult>),
    /// The gated tool call waits for a person.
    Park(ApprovalRef),
    /// Extension `history-range`: events that the harness asked for.
    HistoryPage(Box<HistoryPage>),
    /// Extension `failure-replies`: the call failed, and the harness may go on.
    Failure(CallFailure),
}

impl Frame {
    /// The name of its field.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Start(_) => "start",
            Self::Cancel(_) => "cancel",
            Self::Approval(_) => "approval",
            Self::Tool(_) => "tool",
            Self::Model(_) => "model",
            Self::Park(_) => "park",
            Self::HistoryPage(_) => "history_page",
            Self::Failure(_) => "failure",
        }
    }
}

/// What opens an execution, history included.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StartFrame {
    /// Opaque configuration.
    pub config: Bytes,
    /// Every event before this execution.
    pub history: Vec<Event>,
    /// What the turn is about.
    pub inputs: Vec<Message>,
    /// The harness's own cursor.
    pub resume_from_seq: i64,
    /// The host's default model; only under a model policy.
    pub model: String,
    /// Extension `history-range`: how many events there are before this
    /// execution. `history` is then empty.
    pub history_head: i64,
}

/// A call that failed, in the words of the host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallFailure {
    /// Which model or tool call.
    pub call_id: String,
    /// The stable code of the error.
    pub code: String,
    /// Words.
    pub description: String,
}

/// The completion of a model call.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelResult {
    /// Which call.
    pub model_call_id: String,
    /// The completion.
    pub reply: ModelReply,
}

impl TryFrom<ControllerFrame> for v1::ControllerFrame {
    type Error = WireError;

    fn try_from(frame: ControllerFrame) -> Result<Self, WireError> {
        use v1::controller_frame::Frame as Wire;
        let wire = match frame.frame {
            Frame::Start(start) => Wire::Start((*start).try_into().within("start")?),
            Frame::Cancel(reason) => Wire::Cancel(v1::Cancel { reason: reason.name().to_owned() }),
            Frame::Approval(result) => Wire::Approval(result.into()),
            Frame::Tool(result) => Wire::Tool((*result).try_into().within("tool")?),
            Frame::Model(result) => Wire::Model((*result).try_into().within("model")?),
            Frame::Park(approval) => Wire::Park(approval.into()),
            Frame::HistoryPage(page) => {
                Wire::HistoryPage((*page).try_into().within("history_page")?)
            }
            Frame::Failure(failure) => Wire::Failure(v1::CallFailure {
                call_id: failure.call_id,
                code: failure.code,
                description: failure.description,
            }),
        };
        Ok(Self { session: frame.session, execution_id: frame.execution_id, frame: Some(wire) })
    }
}

impl TryFrom<v1::ControllerFrame> for ControllerFrame {
    type Error = WireError;

    fn try_from(frame: v1::ControllerFrame) -> Result<Self, WireError> {
        use v1::controller_frame::Frame as Wire;
        let domain = match frame.frame.ok_or_else(|| WireError::missing("frame"))? {
            Wire::Start(start) => Frame::Start(Box::new(start.try_into().within("start")?)),
            Wire::Cancel(cancel) => Frame::Cancel(cancel_reason("cancel.reason", &cancel.reason)?),
            Wire::Approval(result) => Frame::Approval(result.try_into().within("approval")?),
            Wire::Tool(result) => Frame::Tool(Box::new(result.try_into().within("tool")?)),
            Wire::Model(result) => Frame::Model(Box::new(result.try_into().within("model")?)),
            Wire::Park(approval) => Frame::Park(approval.try_into().within("park")?),
            Wire::HistoryPage(page) => {
                Frame::HistoryPage(Box::new(page.try_into().within("history_page")?))
            }
            Wire::Failure(failure) => Frame::Failure(CallFailure {
                call_id: failure.call_id,
                code: failure.code,
                description: failure.description,
            }),
        };
        Ok(Self { session: frame.session, execution_id: frame.execution_id, frame: domain })
    }
}

/// `identity` is declared by the contract and never sent.
impl TryFrom<StartFrame> for v1::Start {
    type Error = WireError;

    fn try_from(start: StartFrame) -> Result<Self, WireError> {
        Ok(Self {
            config: start.config,
            history: each("history", start.history, TryInto::try_into)?,
            inputs: each("inputs", start.inputs, TryInto::try_into)?,
            identity: None,
            resume_from_seq: start.resume_from_seq,
            model: start.model,
            history_head: start.history_head,
        })
    }
}

/// `identity` is not read.
impl TryFrom<v1::Start> for StartFrame {
    type Error = WireError;

    fn try_from(start: v1::Start) -> Result<Self, WireError> {
        Ok(Self {
            config: start.config,
            history: each("history", start.history, TryInto::try_into)?,
            inputs: each("inputs", start.inputs, TryInto::try_into)?,
            resume_from_seq: start.resume_from_seq,
            model: start.model,
            history_head: start.history_head,
        })
    }
}

impl TryFrom<ModelResult> for v1::ModelResult {
    type Error = WireError;

    fn try_from(result: ModelResult) -> Result<Self, WireError> {
        Ok(Self {
            message: Some(result.reply.message.try_into().within("message")?),
            usage: Some(result.reply.usage.into()),
            model_call_id: result.model_call_id,
        })
    }
}

/// An absent usage reads as zero: not every host counts tokens.
impl TryFrom<v1::ModelResult> for ModelResult {
    type Error = WireError;

    fn try_from(result: v1::ModelResult) -> Result<Self, WireError> {
        Ok(Self {
            model_call_id: result.model_call_id,
            reply: ModelReply {
                message: required("message", result.message, TryInto::try_into)?,
                usage: result.usage.unwrap_or_default().into(),
            },
        })
    }
}

impl From<Capabilities> for v1::Capabilities {
    fn from(capabilities: Capabilities) -> Self {
        Self {
            resumability: resumability_to(capabilities.resumability),
            fork_safe: capabilities.fork_safe,
            requires_gpu: capabilities.requires_gpu,
            streaming: capabilities.streaming,
            reasoning_replay: capabilities.reasoning_replay,
        }
    }
}

/// An unknown resumability reads as stateless replay.
impl From<v1::Capabilities> for Capabilities {
    fn from(capabilities: v1::Capabilities) -> Self {
        Self {
            resumability: resumability_from(capabilities.resumability),
            fork_safe: capabilities.fork_safe,
            requires_gpu: capabilities.requires_gpu,
            streaming: capabilities.streaming,
            reasoning_replay: capabilities.reasoning_replay,
        }
    }
}

impl From<Descriptor> for v1::HarnessDescriptor {
    fn from(descriptor: Descriptor) -> Self {
        Self {
            id: descriptor.id,
            models: descriptor.models,
            tools: descriptor.tools.into_iter().map(Into::into).collect(),
            capabilities: Some(descriptor.capabilities.into()),
            version: descriptor.version,
        }
    }
}

/// Absent capabilities read as those of a plain stateless harness.
impl TryFrom<v1::HarnessDescriptor> for Descriptor {
    type Error = WireError;

    fn try_from(descriptor: v1::HarnessDescriptor) -> Result<Self, WireError> {
        Ok(Self {
            id: descriptor.id,
            version: descriptor.version,
            models: descriptor.models,
            tools: each("tools", descriptor.tools, TryInto::try_into)?,
            capabilities: descriptor.capabilities.unwrap_or_default().into(),
        })
    }
}
