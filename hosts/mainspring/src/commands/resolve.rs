//! A person's word on a tool call whose outcome nobody knows.

use mainspring::api::{Resolution, ResolveRequest, Session, method};

use crate::args::{Global, HarnessArgs, Resolve};
use crate::context::{Context, Open, caller, uid};
use crate::error::CliError;
use crate::output::{Output, moved_line, session_json};
use crate::{input, recorded};

pub(crate) async fn resolve(
    global: &Global,
    args: Resolve,
    output: Output,
) -> Result<(), CliError> {
    let session = uid(&args.session)?;
    let resolution = match (&args.result, &args.failed) {
        (Some(result), _) => Resolution::Result(Box::new(input::tool_result(result).await?)),
        (None, Some(failed)) => Resolution::Failed(failed.clone()),
        // The command line has made sure of one of the three.
        (None, None) => Resolution::Retry,
    };
    let context = Context::open(global, &HarnessArgs::default(), None, Open::Existing).await?;
    let resolved = async {
        let execution = args.execution.as_deref();
        let execution_id = recorded::execution(&context, &session, execution).await?;
        let request = ResolveRequest {
            session: session.clone(),
            execution_id,
            tool_call_id: args.tool_call.clone(),
            resolution,
        };
        let resolved = context.sessions.resolve(&caller(method::RESOLVE), request).await;
        Ok::<Session, CliError>(resolved?)
    };
    let resolved = resolved.await;
    context.close().await;
    let session = resolved?;
    output.line(|| moved_line(&session, "resolve"), || session_json(&session));
    output.note(&format!("next: {}", Context::next(global, "resume", &session.uid)));
    Ok(())
}
