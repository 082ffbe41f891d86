//! The recorded conversations about a gated tool call.

use std::sync::Arc;

use mainspring_api::{
    EventBody, EventSink, HarnessError, Mediation, SinkError, ToolCall, ToolResult,
};
use mainspring_wire::v1;
use mainspring_wire::v1::controller_frame::Frame;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::address_book::{Over, Running};
use crate::raw::{RawHost, start_frame};
use crate::script::Script;

const VECTORS: &str = include_str!("../../../../testdata/vectors/connect_frames/approval.json");

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

fn number(value: &Value, key: &str) -> i64 {
    value[key].as_str().map_or(0, |text| text.parse().unwrap())
}

fn flag(value: &Value, key: &str) -> bool {
    value[key].as_bool().unwrap_or_default()
}

fn frame(value: &Value) -> v1::ControllerFrame {
    let frame = if let Some(park) = value.get("park") {
        Frame::Park(v1::ApprovalRef {
            execution_id: text(park, "execution_id"),
            tool_call_id: text(park, "tool_call_id"),
            request_seq: number(park, "request_seq"),
        })
    } else if let Some(approval) = value.get("approval") {
        Frame::Approval(v1::ApprovalResult {
            tool_call_id: text(approval, "tool_call_id"),
            approved: flag(approval, "approved"),
            reason: text(approval, "reason"),
            request_seq: number(approval, "request_seq"),
        })
    } else {
        let tool = &value["tool"];
        Frame::Tool(v1::ToolResult {
            id: text(tool, "id"),
            is_error: flag(tool, "is_error"),
            code: match tool["code"].as_str() {
                None => 0,
                Some(name) => v1::tool_result::Code::from_str_name(name).unwrap() as i32,
            },
            approval_request_seq: number(tool, "approval_request_seq"),
            approval_decision_seq: number(tool, "approval_decision_seq"),
            ..Default::default()
        })
    };
    v1::ControllerFrame {
        session: text(value, "session"),
        execution_id: text(value, "execution_id"),
        frame: Some(frame),
    }
}

fn gating() -> (Arc<Script>, mpsc::UnboundedReceiver<Result<ToolResult, SinkError>>) {
    let (tell, told) = mpsc::unbounded_channel();
    let script = Script::new(move |_, sink: Arc<dyn EventSink>| {
        let tell = tell.clone();
        async move {
            let call = ToolCall {
                id: "call".to_owned(),
                tool: "tool".to_owned(),
                mediation: Mediation::RequiresApproval,
                idempotency_key: "key".to_owned(),
                ..Default::default()
            };
            let result = sink.tool_call(call).await;
            tell.send(result.clone()).unwrap();
            result.map(|_| ()).map_err(HarnessError::from)
        }
    });
    (script, told)
}

async fn check(case: &Value) {
    let name = text(case, "name");
    let (script, mut told) = gating();
    let running = Running::harness(Over::Tcp, script).await;
    let mut host = RawHost::open(&running.address, Some(start_frame())).await;
    let asked = host.next().await.unwrap().unwrap();
    assert!(matches!(asked.body, EventBody::ToolCall(Some(_))), "{name}");
    for value in case["frames"].as_array().unwrap() {
        host.send_frame(frame(value)).await;
    }
    host.half_close();
    let result = told.recv().await.unwrap();
    let (events, status) = host.rest().await;
    let last = &events.last().expect("an end").body;
    match case["expect"].as_str().unwrap() {
        "ok" => {
            let result = result.unwrap();
            assert!(result.decision.is_some(), "{name}");
            status.unwrap();
            assert!(matches!(last, EventBody::End(Some(end)) if end.state == "COMPLETED"));
        }
        "parked" => {
            let Err(SinkError::Parked(park)) = result else {
                panic!("{name}: {result:?}");
            };
            status.unwrap();
            assert_eq!(*last, EventBody::Parked(Some(park)), "{name}");
            assert_eq!(events.len(), 1, "{name}: no end beside it");
        }
        _ => {
            let error = result.unwrap_err();
            assert!(!matches!(error, SinkError::Parked(_)), "{name}");
            let about = text(case, "about");
            assert!(error.to_string().contains(&about), "{name}: {about}: {error}");
            assert!(status.is_err(), "{name}");
            assert!(matches!(last, EventBody::End(Some(end)) if end.state == "FAILED"));
            assert_eq!(events.len(), 1, "{name}");
        }
    }
}

#[tokio::test]
async fn recorded_conversations_end_as_they_say() {
    let vectors: Value = serde_json::from_str(VECTORS).unwrap();
    let cases = vectors["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 18);
    for case in cases {
        check(case).await;
    }
}
