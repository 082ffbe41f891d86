//! Why a session does or does not move.

use mainspring::api::{
    DescribeReport, FenceHolder, LastError, OpenCall, RunningOperation, WarmHost, method,
};
use mainspring::eventlog::canonical::rfc3339;
use serde_json::{Value, json};

use crate::args::{Describe, Global, HarnessArgs};
use crate::context::{Context, Open, caller, uid};
use crate::error::CliError;
use crate::output::{Output, get_line, session_json, shown_line};

pub(crate) async fn describe(
    global: &Global,
    args: Describe,
    output: Output,
) -> Result<(), CliError> {
    let session = uid(&args.session)?;
    let context = Context::open(global, &HarnessArgs::default(), None, Open::Existing).await?;
    let described = context.sessions.describe(&caller(method::DESCRIBE), &session).await;
    context.close().await;
    let report = described?;
    let next: Vec<String> =
        report.next_commands.iter().map(|command| Context::placed(global, command)).collect();
    output.line(|| text(&report, &next), || report_json(&report, &next));
    Ok(())
}

/// One screen: the session, where it stands, what holds it, what to run next.
fn text(report: &DescribeReport, next: &[String]) -> String {
    let mut lines = vec![
        get_line(&report.session),
        format!("standing {}: {}", report.standing.name(), shown_line(&report.summary)),
    ];
    if let Some(execution) = &report.execution_id {
        lines.push(format!("turn {execution}"));
    }
    lines.push(match &report.holder {
        Some(holder) => holder_line(holder),
        None => "holder none yet".to_owned(),
    });
    lines.extend(report.warm_host.as_ref().map(warm_line));
    lines.extend(report.running.as_ref().map(running_line));
    lines.extend(report.open_call.as_ref().map(call_line));
    lines.extend(report.last_error.as_ref().map(error_line));
    let durability = report.durability.as_ref();
    lines.extend(durability.map(|store| format!("store {}", shown_line(&store.summary))));
    match next {
        [] => lines.push("next: nothing is to be done".to_owned()),
        [first, others @ ..] => {
            lines.push(format!("next: {}", shown_line(first)));
            lines.extend(others.iter().map(|other| format!("  or: {}", shown_line(other))));
        }
    }
    lines.join("\n")
}

fn holder_line(holder: &FenceHolder) -> String {
    let place = match (holder.is_here, holder.is_alive) {
        (true, _) => "this host",
        (false, true) => "another host, alive",
        (false, false) => "another host, no sign of life",
    };
    let since = holder.since.map_or(String::new(), |since| format!(" since={}", rfc3339(since)));
    format!("holder {}{since} ({place})", shown_line(&holder.name))
}

/// `warm host NAME at ADDRESS`, and whether it is the one that answers.
fn warm_line(warm: &WarmHost) -> String {
    let at = match &*warm.address {
        "" => String::new(),
        address => format!(" at {}", shown_line(address)),
    };
    let here = if warm.is_here { " (this host)" } else { "" };
    format!("warm host {}{at}{here}", shown_line(&warm.name))
}

fn running_line(running: &RunningOperation) -> String {
    let execution = running.execution_id.as_ref();
    format!(
        "running {} since={}{}",
        shown_line(&running.operation),
        rfc3339(running.since),
        execution.map_or(String::new(), |execution| format!(" execution={execution}"))
    )
}

/// `call tool=T tool_call=C execution=E seq=N`, then what there is of the gate.
fn call_line(call: &OpenCall) -> String {
    let mut line = format!(
        "call tool={} tool_call={} execution={} seq={}",
        shown_line(&call.tool),
        shown_line(&call.tool_call_id),
        call.execution_id,
        call.seq
    );
    if let Some(seq) = call.request_seq {
        line.push_str(&format!(" request_seq={seq}"));
    }
    line.push_str(&format!(" digest={}", shown_line(&call.digest)));
    if let Some(expires) = call.expires {
        line.push_str(&format!(" expires={}", rfc3339(expires)));
    }
    match call.approved {
        Some(true) => line.push_str(" decision=approved"),
        Some(false) => line.push_str(" decision=denied"),
        None => {}
    }
    line
}

fn error_line(error: &LastError) -> String {
    format!("last error seq={} code={}: {}", error.seq, error.code, shown_line(&error.message))
}

fn report_json(report: &DescribeReport, next: &[String]) -> Value {
    let execution =
        |id: &Option<mainspring::api::ExecutionId>| id.as_ref().map(|id| id.as_str().to_owned());
    json!({
        "session": session_json(&report.session),
        "standing": report.standing.name(),
        "summary": report.summary,
        "execution_id": execution(&report.execution_id),
        "holder": report.holder.as_ref().map(|holder| json!({
            "name": holder.name,
            "since": holder.since.map(rfc3339),
            "is_here": holder.is_here,
            "is_alive": holder.is_alive,
        })),
        "running": report.running.as_ref().map(|running| json!({
            "operation": running.operation,
            "since": rfc3339(running.since),
            "execution_id": execution(&running.execution_id),
        })),
        "open_call": report.open_call.as_ref().map(|call| json!({
            "execution_id": call.execution_id.as_str(),
            "tool_call_id": call.tool_call_id,
            "tool": call.tool,
            "seq": call.seq.get(),
            "request_seq": call.request_seq.map(|seq| seq.get()),
            "digest": call.digest,
            "expires": call.expires.map(rfc3339),
            "approved": call.approved,
        })),
        "last_error": report.last_error.as_ref().map(|error| json!({
            "seq": error.seq.get(),
            "code": error.code,
            "message": error.message,
        })),
        "durability": report.durability.as_ref().map(|store| json!({
            "class": store.class,
            "summary": store.summary,
        })),
        "warm_host": report.warm_host.as_ref().map(|warm| json!({
            "name": warm.name,
            "address": warm.address,
            "is_here": warm.is_here,
        })),
        "next_commands": next,
    })
}

#[cfg(test)]
mod tests;
