//! Ending a turn.

use mainspring::api::{CancelReason, CancelRequest, Session, method};

use crate::args::{Cancel, Global, HarnessArgs, Reason};
use crate::context::{Context, Open, caller, uid};
use crate::error::CliError;
use crate::output::{Output, moved_line, session_json};
use crate::recorded;

pub(crate) async fn cancel(global: &Global, args: Cancel, output: Output) -> Result<(), CliError> {
    let context = Context::open(global, &HarnessArgs::default(), None, Open::Existing).await?;
    let canceled = run(&context, &args).await;
    context.close().await;
    let session = canceled?;
    output.line(|| moved_line(&session, "cancel"), || session_json(&session));
    Ok(())
}

async fn run(context: &Context, args: &Cancel) -> Result<Session, CliError> {
    let session = uid(&args.session)?;
    let execution_id = recorded::execution(context, &session, args.execution.as_deref()).await?;
    let reason = match args.reason {
        Reason::User => CancelReason::User,
        Reason::Timeout => CancelReason::Timeout,
        Reason::Internal => CancelReason::Internal,
    };
    let request = CancelRequest { session, execution_id, reason };
    Ok(context.sessions.cancel(&caller(method::CANCEL), request).await?)
}
