//! Enums, number by number.

use mainspring_api::{
    ComputeState, DeletionState, ExecState, HarnessSource, HarnessState, LifecycleKind, Mediation,
    RegisterOutcome, ResultCode, Resumability, Standing, ToolChoiceMode,
};

use crate::error::{FieldPath, WireError};
use crate::{operations_v1, v1};

/// Two enums with the same members; unknown numbers are refused.
macro_rules! same_members {
    ($to:ident, $from:ident: $domain:ident = $wire:ty { $($a:ident = $b:ident),* $(,)? }) => {
        pub(crate) fn $to(value: $domain) -> i32 {
            type Wire = $wire;
            match value { $($domain::$a => Wire::$b as i32,)* }
        }

        pub(crate) fn $from(field: &str, number: i32) -> Result<$domain, WireError> {
            type Wire = $wire;
            match Wire::try_from(number) {
                $(Ok(Wire::$b) => Ok($domain::$a),)*
                #[allow(unreachable_patterns, reason = "some wire enums have one value more")]
                Ok(_) => Err(WireError::unknown_enum(field, number)),
                Err(_) => Err(WireError::unknown_enum(field, number)),
            }
        }
    };
}

same_members! { mediation_to, mediation_from: Mediation = v1::Mediation {
    Unspecified = Unspecified,
    InHarnessReported = InHarnessReported,
    ControllerMediated = ControllerMediated,
    RequiresApproval = RequiresApproval,
} }

same_members! { mode_to, mode_from: ToolChoiceMode = v1::tool_choice::Mode {
    Unspecified = Unspecified,
    Auto = Auto,
    None = None,
    Required = Required,
} }

same_members! { code_to, code_from: ResultCode = v1::tool_result::Code {
    Unspecified = Unspecified,
    ApprovalDenied = ApprovalDenied,
    ExecutorError = ExecutorError,
} }

same_members! { lifecycle_to, lifecycle_from: LifecycleKind = v1::lifecycle::Kind {
    Unspecified = LifecycleUnspecified,
    Suspend = LifecycleSuspend,
    Resume = LifecycleResume,
    Fork = LifecycleFork,
    Baseline = LifecycleBaseline,
    Cancel = LifecycleCancel,
    Delete = LifecycleDelete,
} }

same_members! { harness_state_to, harness_state_from: HarnessState = v1::HarnessState {
    Active = Active,
    Retired = Retired,
} }

same_members! { harness_source_to, harness_source_from: HarnessSource = v1::HarnessSource {
    Static = Static,
    Registered = Registered,
} }

same_members! { outcome_to, outcome_from: RegisterOutcome = v1::RegisterOutcome {
    Created = Created,
    Unchanged = Unchanged,
    Reactivated = Reactivated,
} }

same_members! { exec_state_to, exec_state_known: ExecState = v1::ExecState {
    Pending = ExecPending,
    Running = ExecRunning,
    Awaiting = ExecAwaiting,
    Completed = ExecCompleted,
    Failed = ExecFailed,
    Canceled = ExecCanceled,
} }

same_members! { compute_state_to, compute_state_known: ComputeState = v1::ComputeState {
    None = ComputeNone,
    Live = ComputeLive,
    Warm = ComputeWarm,
    Cold = ComputeCold,
    Terminated = ComputeTerminated,
} }

/// Members of an enum that may get more: one that this schema does not have is refused.
macro_rules! standings {
    ($($name:ident),* $(,)?) => {
        pub(crate) fn standing_to(value: Standing) -> Result<i32, WireError> {
            type Wire = operations_v1::Standing;
            Ok(match value {
                $(Standing::$name => Wire::$name as i32,)*
                _ => return Err(WireError::NoForm { path: FieldPath::of("standing") }),
            })
        }

        pub(crate) fn standing_from(number: i32) -> Result<Standing, WireError> {
            type Wire = operations_v1::Standing;
            match Wire::try_from(number) {
                $(Ok(Wire::$name) => Ok(Standing::$name),)*
                Ok(Wire::Unspecified) | Err(_) => Err(WireError::unknown_enum("standing", number)),
            }
        }
    };
}

standings! {
    Idle, Running, RunningElsewhere, Parked, Decided, UnknownEffect, Interrupted, Failed, Deleted,
    Damaged,
}

/// "Not said" reads as the state of a session without a turn.
pub(crate) fn exec_state_from(field: &str, number: i32) -> Result<ExecState, WireError> {
    if number == v1::ExecState::Unspecified as i32 {
        return Ok(ExecState::Pending);
    }
    exec_state_known(field, number)
}

/// "Not said" reads as no compute, which is also what an empty stored name means.
pub(crate) fn compute_state_from(field: &str, number: i32) -> Result<ComputeState, WireError> {
    if number == v1::ComputeState::Unspecified as i32 {
        return Ok(ComputeState::None);
    }
    compute_state_known(field, number)
}

pub(crate) fn deletion_to(state: DeletionState) -> i32 {
    match state {
        DeletionState::Active => v1::DeletionState::DeletionActive as i32,
        DeletionState::Pending => v1::DeletionState::DeletionPending as i32,
    }
}

/// Older peers send nothing, which means active. Every number that is not
/// known means deleted: a reader that guesses otherwise would use a session
/// that is going away.
pub(crate) fn deletion_from(number: i32) -> DeletionState {
    match v1::DeletionState::try_from(number) {
        Ok(v1::DeletionState::Unspecified | v1::DeletionState::DeletionActive) => {
            DeletionState::Active
        }
        _ => DeletionState::Pending,
    }
}

pub(crate) fn resumability_to(value: Resumability) -> i32 {
    match value {
        Resumability::StatelessReplay => v1::Resumability::StatelessReplay as i32,
        Resumability::RequiresMemorySnapshot => v1::Resumability::RequiresMemorySnapshot as i32,
    }
}

/// What an operator registers must say it: nothing and unknown numbers are refused.
pub(crate) fn resumability_said(field: &str, number: i32) -> Result<(), WireError> {
    match v1::Resumability::try_from(number) {
        Ok(v1::Resumability::StatelessReplay | v1::Resumability::RequiresMemorySnapshot) => Ok(()),
        Ok(v1::Resumability::Unspecified) => Err(WireError::missing(field)),
        Err(_) => Err(WireError::unknown_enum(field, number)),
    }
}

/// "Not said" and unknown numbers read as stateless replay.
pub(crate) fn resumability_from(number: i32) -> Resumability {
    match v1::Resumability::try_from(number) {
        Ok(v1::Resumability::RequiresMemorySnapshot) => Resumability::RequiresMemorySnapshot,
        _ => Resumability::StatelessReplay,
    }
}
