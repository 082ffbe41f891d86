//! What to run next when a turn stopped.

use mainspring::api::{Condition, Outcome, Session, SessionUid, method};

use crate::args::Global;
use crate::context::{Context, caller, quoted};
use crate::error::CliError;
use crate::output::shown_line;
use crate::recorded;

/// The error of a turn, with the command that goes on with its session.
pub(crate) async fn advised(
    context: &Context,
    global: &Global,
    session: &SessionUid,
    mut error: CliError,
) -> CliError {
    let next = |command| Context::next(global, command, session);
    let advice = if error.code == Condition::UnansweredToolCall.code() {
        unanswered(context, session, &next("resolve")).await
    } else if error.code == Condition::ToolFailed.code() {
        format!("; next: {}, which says if the call must be resolved first", next("resume"))
    } else if error.code == Condition::ApprovalBlocked.code() {
        match context.sessions.get(&caller(method::GET_SESSION), session).await {
            Ok(row) if row.pending_approval.is_some() => {
                format!("; next: {} (or deny)", next("approve"))
            }
            Ok(_) => format!("; it was decided, next: {}", next("resume")),
            Err(_) => String::new(),
        }
    } else {
        return error;
    };
    error.message.push_str(&advice);
    error
}

/// Whether [`advised`] has something to say about an error of a resume.
pub(crate) fn has_next(error: &CliError) -> bool {
    [Condition::UnansweredToolCall, Condition::ToolFailed]
        .map(Condition::code)
        .contains(&&*error.code)
}

/// About a tool call whose outcome nobody knows: which, and how to say what became of it.
async fn unanswered(context: &Context, session: &SessionUid, resolve: &str) -> String {
    let (about, id) = match recorded::unanswered(context, session).await {
        Ok(Some(call)) => (
            format!(
                "look up what became of tool {:?}, call {:?}, under its idempotency key {:?}",
                call.tool, call.id, call.idempotency_key
            ),
            quoted(&shown_line(&call.id)),
        ),
        // The call cannot be read; what is to be done is said all the same.
        _ => ("look it up under its idempotency key".to_owned(), "ID".to_owned()),
    };
    format!(
        "; {about} (it may still be running if its host was killed), then: {resolve} --tool-call \
         {id} (with --result JSON, --failed TEXT or --retry)"
    )
}

/// What a command reports whose turn waits for an approval.
pub(crate) async fn parked(
    context: &Context,
    global: &Global,
    session: &Session,
) -> Option<CliError> {
    let approval = session.pending_approval.as_ref()?;
    // The call is named by its id alone if it cannot be read.
    let call = recorded::call(context, &session.uid, approval).await.ok();
    let tool = call.map_or(String::new(), |recorded| format!(" of tool {:?}", recorded.call.tool));
    // A server has its tools; a host in this process has those of its command.
    let runs = if context.host.is_some() { ", with the --tool that runs the call" } else { "" };
    let message = format!(
        "the turn waits for an approval of tool call {:?}{tool}; next: {} (or deny){runs}",
        approval.tool_call_id,
        Context::next(global, "approve", &session.uid)
    );
    Some(CliError {
        outcome: Outcome::Applied,
        session: Some(session.uid.to_string()),
        ..CliError::of(Condition::ApprovalParked, message)
    })
}
