//! Forking, suspending, resuming and deleting.

use futures_util::StreamExt as _;
use mainspring::api::{ExecUpdate, ForkRequest, ResumeRequest, Session, method};
use serde_json::json;

use super::advice;
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
    let forked = context.sessions.fork(&caller(method::FORK), request).await;
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
    let suspended = context.sessions.suspend(&caller(method::SUSPEND), &session).await;
    context.close().await;
    let session = suspended?;
    output.line(|| moved_line(&session, "suspend"), || session_json(&session));
    Ok(())
}

pub(crate) async fn delete(
    global: &Global,
    args: OneSession,
    output: Output,
) -> Result<(), CliError> {
    let session = uid(&args.session)?;
    let context = Context::open(global, &args.host, None, Open::Existing).await?;
    let deleted = context.sessions.delete(&caller(method::DELETE_SESSION), &session).await;
    context.close().await;
    let session = deleted?;
    output.line(|| moved_line(&session, "delete"), || session_json(&session));
    Ok(())
}

pub(crate) async fn resume(global: &Global, args: Resume, output: Output) -> Result<(), CliError> {
    let request =
        ResumeRequest { session: uid(&args.session)?, approval_ttl: args.turn.approval.ttl() };
    let context =
        Context::open(global, &args.turn.host, Some(&args.turn.model), Open::Existing).await?;
    let resumed = run_resume(&context, global, request, output).await;
    context.close().await;
    resumed
}

/// Shows what a resume records; the session comes last.
pub(crate) async fn run_resume(
    context: &Context,
    global: &Global,
    request: ResumeRequest,
    output: Output,
) -> Result<(), CliError> {
    let session = request.session.clone();
    match show_resume(context, request, output).await {
        Ok(session) => match advice::parked(context, global, &session).await {
            Some(parked) => Err(parked),
            None => Ok(()),
        },
        Err(error) => Err(advice::advised(context, global, &session, error).await),
    }
}

async fn show_resume(
    context: &Context,
    request: ResumeRequest,
    output: Output,
) -> Result<Box<Session>, CliError> {
    let mut stream = context.sessions.resume(&caller(method::RESUME), request).await?;
    let mut last = None;
    while let Some(update) = stream.next().await {
        if let Some(session) = show(update?, output)? {
            last = Some(session);
        }
    }
    let session = last.ok_or_else(|| CliError::internal("the resume ended without its session"))?;
    output.line(|| moved_line(&session, "resume"), || json!({"session": session_json(&session)}));
    Ok(session)
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
