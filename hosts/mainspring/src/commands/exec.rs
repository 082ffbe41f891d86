//! Running a turn.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::StreamExt as _;
use mainspring::api::{CreateRequest, ExecRequest, ExecStream, ExecUpdate};
use serde_json::json;

use crate::args::{Exec, Global};
use crate::context::{Context, Open, caller, uid};
use crate::error::CliError;
use crate::input;
use crate::output::{Output, session_json};

pub(crate) async fn exec(global: &Global, args: Exec, output: Output) -> Result<(), CliError> {
    if args.execution_id.is_some() {
        return Err(CliError::unimplemented("--execution-id"));
    }
    if args.detach {
        return Err(CliError::unimplemented("--detach"));
    }
    let session = args.session.as_deref().map(uid).transpose()?;
    let mut request = ExecRequest {
        session,
        inputs: input::messages(&args).await?,
        harness: args.harness.clone(),
        config: input::config(&args).await?,
        expected_last_seq: args.expected_last_seq,
        deadline_unix: args.deadline.map_or(0, deadline_unix),
        ..ExecRequest::default()
    };
    let context = Context::open(global, &args.host, Some(&args.model), Open::OrCreate).await?;
    let result = run(&context, global, &mut request, output).await;
    context.close().await;
    result
}

async fn run(
    context: &Context,
    global: &Global,
    request: &mut ExecRequest,
    output: Output,
) -> Result<(), CliError> {
    let caller = caller("mainspring exec");
    // A session of another project than the server's default is created first.
    let created = request.session.is_none();
    if created && request.expected_last_seq.is_none_or(|seq| seq == 0) {
        let create = CreateRequest {
            project: global.project.clone(),
            harness: std::mem::take(&mut request.harness),
            ..CreateRequest::default()
        };
        check(request)?;
        let session = context.sessions.create(&caller, create).await?;
        output.line(
            || format!("session {}", session.uid),
            || json!({"session": session_json(&session)}),
        );
        request.session = Some(session.uid);
    }
    let stream = context.sessions.exec(&caller, request.clone()).await?;
    show(stream, output, created).await
}

/// Refuses an input that could not be recorded before a session is made for it.
fn check(request: &ExecRequest) -> Result<(), CliError> {
    let mut turn = mainspring::controller::Turn::new(request.inputs.clone());
    turn.config = request.config.clone();
    Ok(turn.check(&mainspring::eventlog::Limits::default())?)
}

/// Shows a turn as it runs.
pub(crate) async fn show(
    mut stream: ExecStream,
    output: Output,
    mut session_shown: bool,
) -> Result<(), CliError> {
    while let Some(update) = stream.next().await {
        match update? {
            ExecUpdate::Session(session) => {
                // The first frame is the session before the turn.
                if output.is_json() && !session_shown {
                    output.line(String::new, || json!({"session": session_json(&session)}));
                }
                session_shown = true;
            }
            ExecUpdate::Record(record) => output.record(&record, Some("record"))?,
            ExecUpdate::Delta(delta) => {
                output.chunk(delta.execution_id.as_str(), &delta.chunk, delta.done);
            }
        }
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "a deadline is wall time, and this is the host")]
fn deadline_unix(seconds: u32) -> i64 {
    let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO)
        + Duration::from_secs(seconds.into());
    // Rounded up, so that a turn never has less time than was asked for.
    i64::try_from(at.as_secs()).unwrap_or(i64::MAX - 1) + i64::from(at.subsec_nanos() > 0)
}
