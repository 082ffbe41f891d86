//! The harnesses that golden journals name. One that a journal names is never changed.

use mainspring_api::{EventSink, HarnessError, Message, ModelRequest, ResultCode, Start, Usage};
use mainspring_harness::conversation;

use crate::support::{Probe, ask, gated, mediated, raw};

/// The harness of this name and version; an id-less journal was recorded by echo.
pub(super) fn registered(name: &str, version: &str) -> Probe {
    match (name, version) {
        ("scripted", "1") => scripted(),
        ("" | "echo", _) => Probe::echo(),
        other => panic!("no harness is registered as {other:?}"),
    }
}

/// Does what the words of its inputs say, in order.
pub(super) fn scripted() -> Probe {
    let probe = Probe::new(|start: Start, sink| async move {
        let mut usage = Usage::default();
        for input in &start.inputs {
            for (number, word) in (1..).zip(input.plain_text().split_whitespace()) {
                usage = step(&start, &*sink, (number, word), usage).await?;
            }
        }
        Ok(())
    });
    probe.named("scripted", "1")
}

/// One word; returns the usage of the last model call.
async fn step(
    start: &Start,
    sink: &dyn EventSink,
    (number, word): (usize, &str),
    usage: Usage,
) -> Result<Usage, HarnessError> {
    let id = format!("call-{number}");
    match word {
        "ask" => return Ok(ask(sink, &format!("question {number}")).await?.usage),
        "ask-default" => {
            let messages = vec![Message::user("of whatever model")];
            let reply = sink.model(ModelRequest { messages, ..ModelRequest::default() }).await?;
            return Ok(reply.usage);
        }
        "converse" => {
            let mut messages = conversation(&*start.history).await?;
            messages.extend(start.inputs.clone());
            let model = "echo".to_owned();
            let request = ModelRequest { model, messages, ..ModelRequest::default() };
            return Ok(sink.model(request).await?.usage);
        }
        "count" => sink.usage(usage.clone()).await?,
        "say" => sink.output(format!("said {number}: \"<&>\u{2028}µ\"")).await?,
        "report" => sink.report(raw::reported(&id)).await?,
        "look" => {
            let found = sink.tool_call(mediated(&id, "look")).await?;
            sink.output(format!("looked, error {}", found.is_error)).await?;
        }
        "deploy" => {
            let receipt = sink.tool_call(gated(&id, "deploy")).await?;
            let code = match receipt.code {
                ResultCode::Unspecified => "deployed",
                ResultCode::ApprovalDenied => "denied",
                ResultCode::ExecutorError => "failed",
            };
            let reason = receipt.decision.map(|decision| decision.reason).unwrap_or_default();
            sink.output(format!("{code} ({reason}): {}", receipt.error)).await?;
        }
        "fail" => return Err(HarnessError::failed("gave up")),
        other => panic!("the script knows no {other:?}"),
    }
    Ok(usage)
}
