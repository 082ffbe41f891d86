//! Approving and denying.

use mainspring::api::{
    ApprovalRef, ApproveRequest, Approved, Condition, IdentityRef, Outcome, ResumeRequest,
    SessionUid, method,
};
use serde_json::json;

use super::advice;
use super::lifecycle::run_resume;
use crate::args::{Decide, Global};
use crate::context::{Context, Open, caller, uid};
use crate::error::CliError;
use crate::output::{Output, session_json, shown_line};
use crate::recorded::{self, RecordedCall};
use crate::records;

pub(crate) async fn decide(
    global: &Global,
    args: Decide,
    approved: bool,
    output: Output,
) -> Result<(), CliError> {
    let session = uid(args.session())?;
    let context =
        Context::open(global, &args.turn.host, Some(&args.turn.model), Open::Existing).await?;
    let decided = run(&context, global, &session, &args, approved, output).await;
    context.close().await;
    decided
}

async fn run(
    context: &Context,
    global: &Global,
    session: &SessionUid,
    args: &Decide,
    approved: bool,
    output: Output,
) -> Result<(), CliError> {
    let approval = named(context, session, args).await?;
    let recorded = recorded::call(context, session, &approval).await?;
    let identity = IdentityRef {
        principal: args.actor.clone(),
        issuer: args.identity_issuer.clone(),
        subject: args.identity_subject.clone(),
    };
    let request = ApproveRequest {
        session: session.clone(),
        approval,
        approved,
        reason: args.reason.clone(),
        identity: Some(identity).filter(|identity| !identity.is_empty()),
        digest: Some(args.digest.clone().unwrap_or_else(|| recorded.digest.clone())),
    };
    let verb = if approved { "approve" } else { "deny" };
    let decided = context.sessions.approve(&caller(method::APPROVE), request).await?;
    show(&decided, &recorded, verb, output)?;
    if args.no_resume {
        return Ok(());
    }
    let request =
        ResumeRequest { session: session.clone(), approval_ttl: args.turn.approval.ttl() };
    run_resume(context, global, request, output).await.map_err(|error| {
        // A turn that waits again has gone on.
        if error.code == Condition::ApprovalParked.code() {
            return error;
        }
        let next = if advice::has_next(&error) {
            String::new()
        } else {
            format!(", next: {}", Context::next(global, "resume", session))
        };
        let seq = decided.decision.seq;
        let message = format!("{}; the decision is committed at seq {seq}{next}", error.message);
        let outcome = match error.outcome {
            Outcome::NotApplied => Outcome::Applied,
            other => other,
        };
        CliError { message, outcome, session: Some(session.to_string()), ..error }
    })
}

/// The request that the command names, else the one that the session waits on.
async fn named(
    context: &Context,
    session: &SessionUid,
    args: &Decide,
) -> Result<ApprovalRef, CliError> {
    if let (Some(execution), Some(call), Some(seq)) =
        (&args.execution, &args.tool_call, args.request_seq)
    {
        if seq <= 0 {
            return Err(CliError::usage(format!("--request-seq is {seq}")));
        }
        return Ok(ApprovalRef {
            execution_id: execution.clone(),
            tool_call_id: call.clone(),
            request_seq: seq,
        });
    }
    let found = context.sessions.get(&caller(method::GET_SESSION), session).await?;
    found.pending_approval.ok_or_else(|| CliError {
        session: Some(session.to_string()),
        ..CliError::of(
            Condition::FailedPrecondition,
            format!("session {session} waits for no approval"),
        )
    })
}

/// `session U VERB tool=T tool_call=C execution=E decision_seq=N`
fn show(
    decided: &Approved,
    recorded: &RecordedCall,
    verb: &str,
    output: Output,
) -> Result<(), CliError> {
    let record = records::json_line(&decided.decision)?;
    let record: serde_json::Value = serde_json::from_str(&record)
        .map_err(|error| CliError::internal(format!("the decision's record: {error}")))?;
    let execution = decided.decision.event.execution_id.as_ref();
    output.line(
        || {
            format!(
                "session {} {verb} tool={} tool_call={} execution={} decision_seq={}",
                decided.session.uid,
                shown_line(&recorded.call.tool),
                shown_line(&recorded.call.id),
                execution.map_or("", |id| id.as_str()),
                decided.decision.seq
            )
        },
        || {
            json!({
                "decision": record,
                "request": recorded.json(),
                "session": session_json(&decided.session),
            })
        },
    );
    Ok(())
}
