//! Arbitrary events.

use mainspring_api::{
    ApprovalRef, ApprovalRequest, ApprovalResult, Bytes, DataPart, Event, EventBody, ExecutionId,
    ExecutionStart, FilePart, FileSource, HarnessEnd, IdentityRef, Json, JsonObject, Lifecycle,
    LifecycleKind, Mediation, Message, ModelCall, Opaque, Part, ReasoningPart, RecordedError,
    ResultCode, SnapshotRef, Timestamp, ToolCall, ToolChoice, ToolChoiceMode, ToolDefinition,
    ToolResult, Usage,
};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;

fn text() -> BoxedStrategy<String> {
    prop_oneof![
        Just(String::new()),
        "[a-z]{1,8}",
        "\\PC{0,6}",
        Just("\u{10ffff}\u{e000}\0\n\"\\<&>\u{2028}".to_owned()),
    ]
    .boxed()
}

fn bytes() -> BoxedStrategy<Bytes> {
    vec(any::<u8>(), 0..12).prop_map(Bytes::from).boxed()
}

fn position() -> BoxedStrategy<i64> {
    prop_oneof![Just(0), 1..i64::MAX, Just(i64::MAX)].boxed()
}

fn json() -> BoxedStrategy<Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::Bool),
        prop_oneof![
            any::<f64>().prop_filter("finite", |n| n.is_finite()),
            Just(-0.0),
            Just(9_007_199_254_740_993.0),
        ]
        .prop_map(Json::Number),
        text().prop_map(Json::String),
    ];
    leaf.prop_recursive(6, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Json::Array),
            btree_map(text(), inner, 0..4).prop_map(Json::Object),
        ]
    })
    .boxed()
}

fn object() -> BoxedStrategy<JsonObject> {
    btree_map(text(), json(), 0..4).boxed()
}

fn file() -> BoxedStrategy<FilePart> {
    let source =
        prop_oneof![bytes().prop_map(FileSource::Bytes), text().prop_map(FileSource::Uri),];
    (text(), option::of(source), text(), text())
        .prop_map(|(mime, source, name, digest)| FilePart { mime, source, name, digest })
        .boxed()
}

fn mediation() -> BoxedStrategy<Mediation> {
    prop_oneof![
        Just(Mediation::Unspecified),
        Just(Mediation::InHarnessReported),
        Just(Mediation::ControllerMediated),
        Just(Mediation::RequiresApproval),
    ]
    .boxed()
}

fn tool_call() -> BoxedStrategy<ToolCall> {
    (text(), text(), option::of(object()), mediation(), text())
        .prop_map(|(id, tool, args, mediation, idempotency_key)| ToolCall {
            id,
            tool,
            args,
            mediation,
            idempotency_key,
        })
        .boxed()
}

fn tool_result(content: BoxedStrategy<Part>) -> BoxedStrategy<ToolResult> {
    let code = prop_oneof![
        Just(ResultCode::Unspecified),
        Just(ResultCode::ApprovalDenied),
        Just(ResultCode::ExecutorError),
    ];
    (
        (text(), option::of(object()), text(), text(), any::<bool>()),
        (text(), vec(content, 0..3), code, position(), position()),
    )
        .prop_map(
            |(
                (id, output, output_uri, output_digest, is_error),
                (error, content, code, approval_request_seq, approval_decision_seq),
            )| ToolResult {
                id,
                output,
                output_uri,
                output_digest,
                is_error,
                error,
                content,
                code,
                approval_request_seq,
                approval_decision_seq,
                decision: None,
            },
        )
        .boxed()
}

fn reasoning(summary: BoxedStrategy<Part>) -> BoxedStrategy<ReasoningPart> {
    let opaque = prop_oneof![bytes().prop_map(Opaque::Bytes), text().prop_map(Opaque::Uri),];
    (
        (text(), text(), option::of(opaque), vec(summary, 0..3)),
        (text(), any::<i32>(), text(), text()),
    )
        .prop_map(
            |(
                (provider, model_id, opaque, summary),
                (item_id, ordinal, validity_scope, opaque_digest),
            )| ReasoningPart {
                provider,
                model_id,
                opaque,
                summary,
                item_id,
                ordinal,
                validity_scope,
                opaque_digest,
            },
        )
        .boxed()
}

fn part() -> BoxedStrategy<Part> {
    let leaf = prop_oneof![
        Just(Part::Empty),
        text().prop_map(Part::Text),
        file().prop_map(Part::File),
        option::of(object()).prop_map(|data| Part::Data(DataPart { data })),
        tool_call().prop_map(Part::ToolCall),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            reasoning(inner.clone()).prop_map(Part::Reasoning).boxed(),
            tool_result(inner).prop_map(Part::ToolResult).boxed(),
        ]
    })
    .boxed()
}

pub(crate) fn message() -> BoxedStrategy<Message> {
    (text(), vec(part(), 0..4)).prop_map(|(role, parts)| Message { role, parts }).boxed()
}

fn model_call() -> BoxedStrategy<ModelCall> {
    let tool =
        (text(), text(), option::of(object())).prop_map(|(name, description, input_schema)| {
            ToolDefinition { name, description, input_schema }
        });
    let mode = prop_oneof![
        Just(ToolChoiceMode::Unspecified),
        Just(ToolChoiceMode::Auto),
        Just(ToolChoiceMode::None),
        Just(ToolChoiceMode::Required),
    ];
    let choice = (mode, text()).prop_map(|(mode, name)| ToolChoice { mode, name });
    (
        (text(), btree_map(text(), text(), 0..3), text(), text()),
        (vec(message(), 0..3), vec(tool, 0..2), option::of(choice)),
    )
        .prop_map(|((model, params, input_hash, id), (messages, tools, tool_choice))| ModelCall {
            model,
            params,
            input_hash,
            id,
            messages,
            tools,
            tool_choice,
        })
        .boxed()
}

fn lifecycle() -> BoxedStrategy<Lifecycle> {
    let kind = prop_oneof![
        Just(LifecycleKind::Unspecified),
        Just(LifecycleKind::Suspend),
        Just(LifecycleKind::Resume),
        Just(LifecycleKind::Fork),
        Just(LifecycleKind::Baseline),
        Just(LifecycleKind::Cancel),
        Just(LifecycleKind::Delete),
    ];
    let snapshot = (text(), text(), any::<bool>(), any::<bool>()).prop_map(
        |(local, external_uri, memory, sealed)| SnapshotRef { local, external_uri, memory, sealed },
    );
    (kind, text(), snapshot, text())
        .prop_map(|(kind, detail, snapshot, compute_instance)| Lifecycle {
            kind,
            detail,
            snapshot,
            compute_instance,
        })
        .boxed()
}

fn start() -> BoxedStrategy<ExecutionStart> {
    ((bytes(), any::<i64>(), option::of(any::<i64>()), text()), (text(), text(), text()))
        .prop_map(
            |(
                (config, resume_from_seq, input_count, harness),
                (harness_version, compute_instance, model),
            )| ExecutionStart {
                config,
                resume_from_seq,
                input_count,
                harness,
                harness_version,
                compute_instance,
                model,
            },
        )
        .boxed()
}

fn usage() -> BoxedStrategy<Usage> {
    (text(), any::<i64>(), any::<i64>(), any::<i64>())
        .prop_map(|(model, input_tokens, output_tokens, reasoning_tokens)| Usage {
            model,
            input_tokens,
            output_tokens,
            reasoning_tokens,
        })
        .boxed()
}

fn recorded_error() -> BoxedStrategy<RecordedError> {
    (any::<i32>(), text())
        .prop_map(|(code, description)| RecordedError { code, description })
        .boxed()
}

fn approvals() -> BoxedStrategy<EventBody> {
    prop_oneof![
        option::of(
            (text(), text())
                .prop_map(|(tool_call_id, reason)| ApprovalRequest { tool_call_id, reason })
        )
        .prop_map(EventBody::ApprovalRequest),
        option::of((text(), any::<bool>(), text(), position()).prop_map(
            |(tool_call_id, approved, reason, request_seq)| ApprovalResult {
                tool_call_id,
                approved,
                reason,
                request_seq,
            }
        ))
        .prop_map(EventBody::ApprovalResult),
        option::of((text(), text(), position()).prop_map(
            |(execution_id, tool_call_id, request_seq)| ApprovalRef {
                execution_id,
                tool_call_id,
                request_seq,
            }
        ))
        .prop_map(EventBody::Parked),
    ]
    .boxed()
}

fn body() -> BoxedStrategy<EventBody> {
    let end = (text(), option::of(recorded_error()))
        .prop_map(|(state, error)| HarnessEnd { state, error });
    prop_oneof![
        Just(EventBody::Unspecified),
        option::of(message()).prop_map(EventBody::Input),
        option::of(model_call()).prop_map(EventBody::ModelCall),
        option::of(message()).prop_map(EventBody::Output),
        option::of(tool_call()).prop_map(EventBody::ToolCall),
        option::of(tool_result(part())).prop_map(EventBody::ToolResult),
        approvals(),
        option::of(usage()).prop_map(EventBody::Usage),
        option::of(lifecycle()).prop_map(EventBody::Lifecycle),
        option::of(end).prop_map(EventBody::End),
        option::of(recorded_error()).prop_map(EventBody::Error),
        option::of(start()).prop_map(EventBody::ExecutionStart),
    ]
    .boxed()
}

/// Any event. An identity without content is left out: it equals an absent one.
pub(crate) fn event() -> BoxedStrategy<Event> {
    let ts = (Timestamp::SECONDS_MIN..=Timestamp::SECONDS_MAX, 0..1_000_000_000u32)
        .prop_map(|(seconds, nanos)| Timestamp { seconds, nanos });
    let actor = (text(), text(), text())
        .prop_map(|(principal, issuer, subject)| IdentityRef { principal, issuer, subject })
        .prop_filter("empty equals absent", |actor| !actor.is_empty());
    let execution = option::of("[ -~]{1,20}".prop_map(|id| ExecutionId::new(&id).unwrap()));
    (execution, option::of(ts), any::<i32>(), option::of(actor), body())
        .prop_map(|(execution_id, ts, schema_version, actor, body)| Event {
            execution_id,
            ts,
            schema_version,
            actor,
            body,
        })
        .boxed()
}
