//! Forking, suspending and resuming.

use futures_util::StreamExt as _;
use mainspring::api::{
    Condition, ExecUpdate, ForkRequest, Outcome, ResumeRequest, Session, SessionUid,
};
use serde_json::json;

use crate::args::{Fork, Global, OneSession, Resume};
use crate::context::{Context, Open, caller, uid};
use crate::error::CliError;
use crate::output::{Output, child_line, moved_line, session_json};

pub(crate) async fn fork(global: &Global, args: Fork, output: Output) -> Result<(), CliError> {
    let request = ForkRequest {
        session: uid(&args.session)?,
        at_seq: args.at,
        count: args.count,
        labels: Default::default(),
        child_names: args.names,
        identity: None,
    };
    let context = Context::open(global, &args.host, None, Open::Existing).await?;
    let forked = context.sessions.fork(&caller("mainspring fork"), request).await;
    context.close().await;
    for child in forked? {
        output.line(|| child_line(&child), || session_json(&child));
    }
    Ok(())
}

pub(crate) async fn suspend(
    global: &Global,
    args: OneSession,
    output: Output,
) -> Result<(), CliError> {
    let session = uid(&args.session)?;
    let context = Context::open(global, &args.host, None, Open::Existing).await?;
    let suspended = context.sessions.suspend(&caller("mainspring suspend"), &session).await;
    context.close().await;
    let session = suspended?;
    output.line(|| moved_line(&session, "suspend"), || session_json(&session));
    Ok(())
}

pub(crate) async fn resume(global: &Global, args: Resume, output: Output) -> Result<(), CliError> {
    let request = ResumeRequest { session: uid(&args.session)?, approval_ttl: args.approval.ttl() };
    let context = Context::open(global, &args.host, Some(&args.model), Open::Existing).await?;
    let session = request.session.clone();
    let resumed = run_resume(&context, global, request, output).await;
    context.close().await;
    resumed.map_err(|error| advised(global, &session, error))
}

/// Names the command that gets a session on whose tool call nobody knows the outcome of.
fn advised(global: &Global, session: &SessionUid, mut error: CliError) -> CliError {
    if error.code == Condition::UnansweredToolCall.code() {
        let next = Context::next(global, "resolve", session);
        error.message.push_str(&format!(
            "; look it up under its idempotency key, then: {next} --tool-call ID with --result, \
             --failed or --retry"
        ));
    }
    error
}

/// Shows what a resume records; the session comes last.
pub(crate) async fn run_resume(
    context: &Context,
    global: &Global,
    request: ResumeRequest,
    output: Output,
) -> Result<(), CliError> {
    let mut stream = context.sessions.resume(&caller("mainspring resume"), request).await?;
    let mut last = None;
    while let Some(update) = stream.next().await {
        if let Some(session) = show(update?, output)? {
            last = Some(session);
        }
    }
    let session = last.ok_or_else(|| CliError::internal("the resume ended without its session"))?;
    output.line(|| moved_line(&session, "resume"), || json!({"session": session_json(&session)}));
    match parked(global, &session) {
        Some(parked) => Err(parked),
        None => Ok(()),
    }
}

/// Shows a step of a turn; a session is its caller's to show.
pub(crate) fn show(update: ExecUpdate, output: Output) -> Result<Option<Box<Session>>, CliError> {
    match update {
        ExecUpdate::Session(session) => return Ok(Some(session)),
        ExecUpdate::Record(record) => output.record(&record, Some("record"))?,
        ExecUpdate::Delta(delta) => {
            output.chunk(delta.execution_id.as_str(), &delta.chunk, delta.done);
        }
    }
    Ok(None)
}

/// What a command reports whose turn waits for an approval.
pub(crate) fn parked(global: &Global, session: &Session) -> Option<CliError> {
    let approval = session.pending_approval.as_ref()?;
    let message = format!(
        "the turn waits for an approval of tool call {:?}; next: {} (or deny)",
        approval.tool_call_id,
        Context::next(global, "approve", &session.uid)
    );
    Some(CliError {
        outcome: Outcome::Applied,
        session: Some(session.uid.to_string()),
        ..CliError::of(Condition::ApprovalParked, message)
    })
}
