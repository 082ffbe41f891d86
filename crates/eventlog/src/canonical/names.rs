//! The declared names of enum values.

use mainspring_api::{LifecycleKind, Mediation, ResultCode, ToolChoiceMode};

pub(crate) const fn lifecycle_name(kind: LifecycleKind) -> &'static str {
    match kind {
        LifecycleKind::Unspecified => "LIFECYCLE_UNSPECIFIED",
        LifecycleKind::Suspend => "LIFECYCLE_SUSPEND",
        LifecycleKind::Resume => "LIFECYCLE_RESUME",
        LifecycleKind::Fork => "LIFECYCLE_FORK",
        LifecycleKind::Baseline => "LIFECYCLE_BASELINE",
        LifecycleKind::Cancel => "LIFECYCLE_CANCEL",
        LifecycleKind::Delete => "LIFECYCLE_DELETE",
    }
}

pub(crate) const fn mediation_name(mediation: Mediation) -> &'static str {
    match mediation {
        Mediation::Unspecified => "MEDIATION_UNSPECIFIED",
        Mediation::InHarnessReported => "MEDIATION_IN_HARNESS_REPORTED",
        Mediation::ControllerMediated => "MEDIATION_CONTROLLER_MEDIATED",
        Mediation::RequiresApproval => "MEDIATION_REQUIRES_APPROVAL",
    }
}

pub(crate) const fn code_name(code: ResultCode) -> &'static str {
    match code {
        ResultCode::Unspecified => "CODE_UNSPECIFIED",
        ResultCode::ApprovalDenied => "APPROVAL_DENIED",
        ResultCode::ExecutorError => "EXECUTOR_ERROR",
    }
}

pub(crate) const fn choice_name(mode: ToolChoiceMode) -> &'static str {
    match mode {
        ToolChoiceMode::Unspecified => "MODE_UNSPECIFIED",
        ToolChoiceMode::Auto => "MODE_AUTO",
        ToolChoiceMode::None => "MODE_NONE",
        ToolChoiceMode::Required => "MODE_REQUIRED",
    }
}
