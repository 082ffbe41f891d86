//! Whether a tool call is the one that was recorded.

use mainspring_api::{Condition, Divergence, Mediation, Seq, ToolCall};
use mainspring_eventlog::normalise_args;

/// Compares a call with the recorded one: the evidence itself first, then id,
/// tool, mediation, key and arguments. Names what differs, never a value.
pub(super) fn compare(
    seq: Seq,
    recorded: Option<&ToolCall>,
    call: &ToolCall,
) -> Result<(), Divergence> {
    let Some(recorded) = recorded else {
        return Err(Divergence::at(seq, "the recorded tool call has no body"));
    };
    check_evidence(seq, recorded)?;
    let differs = |field: &str| {
        Err(Divergence::at(seq, format!("the tool call's {field} differs from the recorded one")))
    };
    if recorded.id != call.id {
        return differs("id");
    }
    if recorded.tool != call.tool {
        return differs("tool");
    }
    if recorded.mediation != call.mediation {
        return differs("mediation");
    }
    if recorded.idempotency_key != call.idempotency_key {
        return differs("idempotency key");
    }
    match normalise_args(call.args.as_ref()) {
        Err(_) => Err(Divergence::at(seq, "the tool call's arguments cannot be recorded")
            .because(Condition::InvalidToolArgs)),
        // All numbers are doubles and keys are unordered in this form; absent
        // and empty, missing and null stay different.
        Ok(args) if args != recorded.args => differs("arguments"),
        Ok(_) => Ok(()),
    }
}

fn check_evidence(seq: Seq, recorded: &ToolCall) -> Result<(), Divergence> {
    match recorded.mediation {
        Mediation::ControllerMediated => {}
        Mediation::RequiresApproval if recorded.id.is_empty() => {
            return Err(Divergence::at(seq, "the recorded gated tool call has no id"));
        }
        Mediation::RequiresApproval => {}
        Mediation::Unspecified | Mediation::InHarnessReported => {
            return Err(Divergence::at(seq, "the recorded tool call is not mediated")
                .because(Condition::UnmediatedToolCall));
        }
    }
    if recorded.idempotency_key.is_empty() {
        return Err(Divergence::at(seq, "the recorded tool call has no idempotency key")
            .because(Condition::MissingIdempotencyKey));
    }
    Ok(())
}
