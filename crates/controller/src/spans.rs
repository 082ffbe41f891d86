//! Spans of what turns do, with the names of OpenTelemetry's GenAI conventions.
//!
//! The conventions still move, so every name stands here, as of the pinned
//! schema. A span is made for what happens now: effects that are served from
//! the journal make none, so that nothing is counted twice. Content is never
//! on a span: no message, no argument, no result.

use mainspring_api::{Classify, SessionUid, ToolCall, Usage};
use tracing::{Span, field, info_span};

/// The conventions that the names are of.
pub const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.37.0";

/// The target of every span here.
pub const TARGET: &str = "mainspring::gen_ai";

/// Span of a live run of a turn.
pub const INVOKE_AGENT: &str = "invoke_agent";
/// Span of a model call that is made.
pub const CHAT: &str = "chat";
/// Span of a tool that is run for a harness.
pub const EXECUTE_TOOL: &str = "execute_tool";

/// What is done: the span's own name.
pub const OPERATION_NAME: &str = "gen_ai.operation.name";
/// The session's uid.
pub const CONVERSATION_ID: &str = "gen_ai.conversation.id";
/// The harness.
pub const AGENT_NAME: &str = "gen_ai.agent.name";
/// The model that was asked for.
pub const REQUEST_MODEL: &str = "gen_ai.request.model";
/// Tokens that went in.
pub const INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
/// Tokens that came out.
pub const OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
/// Of those that came out, tokens spent on reasoning.
pub const REASONING_TOKENS: &str = "gen_ai.usage.reasoning.output_tokens";
/// The tool.
pub const TOOL_NAME: &str = "gen_ai.tool.name";
/// The call's id.
pub const TOOL_CALL_ID: &str = "gen_ai.tool.call.id";
/// The code of the error that something ended with.
pub const ERROR_TYPE: &str = "error.type";

/// The name that an exporter shows; tracing's own must be constant.
const OTEL_NAME: &str = "otel.name";
/// Whether a span is a call to elsewhere.
const OTEL_KIND: &str = "otel.kind";
/// Set to `ERROR` for what failed.
const OTEL_STATUS_CODE: &str = "otel.status_code";

/// A live run of a turn. A resumed one is a span of its own.
pub(crate) fn invoke_agent(session: Option<&SessionUid>, agent: &str) -> Span {
    info_span!(
        target: TARGET,
        INVOKE_AGENT,
        { OTEL_NAME } = format!("{INVOKE_AGENT} {agent}"),
        { OTEL_KIND } = "internal",
        { OPERATION_NAME } = INVOKE_AGENT,
        { AGENT_NAME } = agent,
        { CONVERSATION_ID } = session.map(SessionUid::as_str),
        { ERROR_TYPE } = field::Empty,
        { OTEL_STATUS_CODE } = field::Empty,
    )
}

/// A model call.
pub(crate) fn chat(run: &Span, session: Option<&SessionUid>, model: &str) -> Span {
    info_span!(
        target: TARGET,
        parent: run,
        CHAT,
        { OTEL_NAME } = format!("{CHAT} {model}"),
        { OTEL_KIND } = "client",
        { OPERATION_NAME } = CHAT,
        { REQUEST_MODEL } = model,
        { CONVERSATION_ID } = session.map(SessionUid::as_str),
        { INPUT_TOKENS } = field::Empty,
        { OUTPUT_TOKENS } = field::Empty,
        { REASONING_TOKENS } = field::Empty,
        { ERROR_TYPE } = field::Empty,
        { OTEL_STATUS_CODE } = field::Empty,
    )
}

/// A tool that is run.
pub(crate) fn execute_tool(run: &Span, session: Option<&SessionUid>, call: &ToolCall) -> Span {
    info_span!(
        target: TARGET,
        parent: run,
        EXECUTE_TOOL,
        { OTEL_NAME } = format!("{EXECUTE_TOOL} {}", call.tool),
        { OTEL_KIND } = "internal",
        { OPERATION_NAME } = EXECUTE_TOOL,
        { TOOL_NAME } = call.tool,
        { TOOL_CALL_ID } = call.id,
        { CONVERSATION_ID } = session.map(SessionUid::as_str),
        { ERROR_TYPE } = field::Empty,
        { OTEL_STATUS_CODE } = field::Empty,
    )
}

/// What a model call cost.
pub(crate) fn record_usage(span: &Span, usage: &Usage) {
    span.record(INPUT_TOKENS, usage.input_tokens);
    span.record(OUTPUT_TOKENS, usage.output_tokens);
    span.record(REASONING_TOKENS, usage.reasoning_tokens);
}

/// What something failed with: its stable code, never its text.
pub(crate) fn record_error(span: &Span, error: &impl Classify) {
    span.record(ERROR_TYPE, error.code());
    span.record(OTEL_STATUS_CODE, "ERROR");
}
