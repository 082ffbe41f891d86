//! The ways in which a service is broken, and the cases that must catch each.

/// One way to break the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A field of a request is not looked at.
    CreateDrops(CreateField),
    ExecDrops(ExecField),
    ForkDrops(ForkField),
    ListDrops(ListField),
    FindDrops(FindField),
    ReplayDrops(ReplayField),
    ApproveDrops(ApproveField),
    VerifyDropsHead,
    FollowDropsCursor,
    CancelDropsReason,
    /// Something of a stream is left out, added, or moved.
    ExecHidesItsSession,
    ExecShowsItsSessionAgain,
    ExecHidesTheLastRecord,
    ExecRepeatsARecord,
    ExecHidesDeltas,
    ExecDeltasComeLast,
    ExecEndsWell,
    ExecSeemsRepeatable,
    ResumeHidesItsRecords,
    FollowSkips,
    FollowHidesDeltas,
    FollowEndsAtTheHead,
    ReplaySkips,
    /// An operation answers, and does nothing.
    SuspendLies,
    ResumeLies,
    CancelLies,
    DeleteLies,
    ApproveLies,
    ResolveLies,
    ImportLies,
    /// It does more than it was asked.
    CreateOfTheUnknown,
    ApproveResumes,
    CancelOfTheEnded,
    SuspendsBeforeAFork,
    SuspendsBeforeAResume,
    CreateIsKeyed,
    CreateChoosesAProject,
    /// Its answers say something else than what is.
    GetIsStale,
    DescribeIsIdle,
    UnknownIsInternal,
    BusyIsUnavailable,
    DeadlineIsInternal,
    ForkIsBusy,
    ReplayIsBusy,
    SuspendedIsFailure,
    ListIsReversed,
    ExecHidesTheLastSession,
    /// Who calls is not looked at.
    ForgetsTheCaller,
    TrustsEverybody,
    MethodIsLost,
    ForeignIsNotFound,
    DeniedByName,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CreateField {
    Project,
    Harness,
    Labels,
    Identity,
    Key,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExecField {
    Inputs,
    Cursor,
    Harness,
    Config,
    Expected,
    Deadline,
    Id,
    Key,
    OnDisconnect,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ForkField {
    At,
    Count,
    Labels,
    Names,
    Identity,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListField {
    Project,
    Size,
    Token,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FindField {
    States,
    Labels,
    Harness,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplayField {
    From,
    To,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ApproveField {
    Yes,
    Reason,
    Identity,
    Digest,
}

use Fault as F;

/// Each fault with the cases that must catch it.
pub(crate) const TABLE: &[(Fault, &[&str])] = &[
    (F::CreateDrops(CreateField::Project), &["a_list_has_one_project"]),
    (
        F::CreateDrops(CreateField::Harness),
        &["a_turn_runs_on_the_stored_harness", "a_create_on_an_unknown_harness_is_refused"],
    ),
    (F::CreateDrops(CreateField::Labels), &["a_find_has_what_matches_and_nothing_else"]),
    (F::CreateDrops(CreateField::Identity), &["a_created_session_is_as_it_was_asked_for"]),
    (
        F::CreateDrops(CreateField::Key),
        &["a_keyed_create_again_is_the_same_session", "b36_a_key_names_one_request"],
    ),
    (
        F::ExecDrops(ExecField::Inputs),
        &["inputs_do_not_pass_over_a_gate", "an_input_over_its_bound_is_refused_by_name"],
    ),
    (F::ExecDrops(ExecField::Cursor), &["configuration_and_cursor_are_stored"]),
    (
        F::ExecDrops(ExecField::Harness),
        &[
            "another_harness_is_for_its_turn_only",
            "an_unknown_harness_is_refused_with_those_served",
            "an_unknown_override_comes_before_an_unknown_session",
            "an_exec_without_session_creates_one",
        ],
    ),
    (F::ExecDrops(ExecField::Config), &["a_failed_turn_ends_with_its_error"]),
    (
        F::ExecDrops(ExecField::Expected),
        &[
            "another_position_conflicts_after_the_session",
            "zero_is_an_expectation",
            "an_exec_that_cannot_be_leaves_no_session",
            "recovery_expects_its_position",
        ],
    ),
    (
        F::ExecDrops(ExecField::Deadline),
        &["an_expired_deadline_journals_nothing", "recovery_has_a_deadline"],
    ),
    (
        F::ExecDrops(ExecField::Id),
        &[
            "an_exec_again_shows_its_turn_again",
            "an_exec_again_has_the_same_status",
            "an_id_names_one_turn",
            "an_inherited_id_is_taken",
            "fifty_execs_with_one_id_are_one_turn",
            "a_failed_turn_is_not_run_again",
        ],
    ),
    (
        F::ExecDrops(ExecField::Key),
        &["a_keyed_exec_is_one_turn", "a_keyed_exec_creates_one_session"],
    ),
    (
        F::ForkDrops(ForkField::At),
        &["a_fork_is_at_the_head_and_one", "a_fork_that_cannot_be_makes_nothing"],
    ),
    (F::ForkDrops(ForkField::Count), &["a_fork_that_cannot_be_makes_nothing"]),
    (F::ForkDrops(ForkField::Labels), &["a_child_has_what_its_parent_had"]),
    (F::ForkDrops(ForkField::Names), &["a_child_has_what_its_parent_had"]),
    (F::ForkDrops(ForkField::Identity), &["a_fork_takes_no_identity"]),
    (F::ListDrops(ListField::Project), &["a_list_has_one_project"]),
    (F::ListDrops(ListField::Size), &["a_page_has_its_bounds"]),
    (F::ListDrops(ListField::Token), &["a_foreign_page_token_is_refused"]),
    (F::FindDrops(FindField::States), &["a_find_has_what_matches_and_nothing_else"]),
    (F::FindDrops(FindField::Labels), &["a_find_has_what_matches_and_nothing_else"]),
    (F::FindDrops(FindField::Harness), &["a_find_has_what_matches_and_nothing_else"]),
    (F::ReplayDrops(ReplayField::From), &["a_replay_has_its_range", "a_replay_can_verify_first"]),
    (F::ReplayDrops(ReplayField::To), &["a_replay_has_its_range", "a_negative_end_is_refused"]),
    (F::ApproveDrops(ApproveField::Yes), &["a_decided_turn_is_finished"]),
    (
        F::ApproveDrops(ApproveField::Reason),
        &["a_decision_is_one_record", "another_decision_is_refused"],
    ),
    (F::ApproveDrops(ApproveField::Identity), &["a_decision_is_one_record"]),
    (F::ApproveDrops(ApproveField::Digest), &["a_decision_with_another_digest_is_refused"]),
    (F::VerifyDropsHead, &["a_verification_knows_the_head"]),
    (
        F::FollowDropsCursor,
        &["b19_a_cursor_beyond_the_head_is_refused", "a_follower_gets_what_was_and_what_comes"],
    ),
    (F::CancelDropsReason, &["what_the_host_had_to_end_has_failed"]),
    (
        F::ExecHidesItsSession,
        &["an_exec_without_session_creates_one", "a_pending_request_shows_the_session_twice"],
    ),
    (F::ExecShowsItsSessionAgain, &["the_first_frame_is_the_session_before_the_turn"]),
    (
        F::ExecHidesTheLastRecord,
        &["empty_inputs_are_a_turn_without_input", "a_stream_read_to_its_end_is_not_lost"],
    ),
    (F::ExecRepeatsARecord, &["the_first_frame_is_the_session_before_the_turn"]),
    (F::ExecHidesDeltas, &["deltas_come_before_their_output"]),
    (F::ExecDeltasComeLast, &["deltas_come_before_their_output"]),
    (F::ExecEndsWell, &["a_failed_turn_ends_with_its_error"]),
    (F::ExecSeemsRepeatable, &["a_failed_turn_ends_with_its_error"]),
    (F::ResumeHidesItsRecords, &["a_resume_is_recorded_each_time", "a_second_park_has_no_resume"]),
    (F::FollowSkips, &["a_follower_gets_what_was_and_what_comes"]),
    (F::FollowHidesDeltas, &["a_follower_gets_deltas"]),
    (F::FollowEndsAtTheHead, &["b25_a_parked_session_is_followed_in_silence"]),
    (F::ReplaySkips, &["a_replay_has_its_range"]),
    (F::SuspendLies, &["a_suspend_is_recorded"]),
    (F::ResumeLies, &["a_resume_is_recorded_each_time"]),
    (
        F::CancelLies,
        &["a_running_turn_is_cancelled", "a_parked_turn_is_closed_first", "a_cancel_again_is_ok"],
    ),
    (
        F::DeleteLies,
        &[
            "a_delete_is_recorded_once",
            "a_deleted_session_is_read_only",
            "an_empty_session_is_deleted",
            "a_running_turn_is_cancelled_first",
        ],
    ),
    (
        F::ApproveLies,
        &[
            "the_same_decision_again_answers_the_same",
            "a_finished_gate_is_behind",
            "what_was_recorded_wins",
        ],
    ),
    (F::ResolveLies, &["a_resolved_call_is_gone_on_with"]),
    (F::ImportLies, &["an_export_is_imported_elsewhere", "a_changed_export_is_refused"]),
    (F::CreateOfTheUnknown, &["an_unknown_session_is_not_found"]),
    (F::ApproveResumes, &["a_decision_is_one_record"]),
    (
        F::CancelOfTheEnded,
        &["only_the_latest_open_turn_is_cancelled", "another_turn_is_not_cancelled"],
    ),
    (F::GetIsStale, &["a_lost_stream_does_not_end_its_turn", "an_empty_identity_comes_back_unset"]),
    (F::DescribeIsIdle, &["a_report_says_where_a_session_stands"]),
    (F::UnknownIsInternal, &["an_unknown_session_is_not_found", "a_decision_names_its_request"]),
    (
        F::BusyIsUnavailable,
        &["an_overlap_is_busy_and_changes_nothing", "a_decision_does_not_wait_for_a_turn"],
    ),
    (F::ForgetsTheCaller, &["who_creates_owns", "a_list_has_what_is_yours"]),
    (F::TrustsEverybody, &["nobody_is_unauthenticated"]),
    (F::MethodIsLost, &["each_method_asks_what_the_contract_lists", "a_gate_asks_for_each_step"]),
    (F::ForeignIsNotFound, &["b53_what_is_not_yours_is_not_there"]),
    (F::DeniedByName, &["a_denied_action_changes_nothing"]),
    (F::DeniedByName, &["an_authoriser_that_cannot_answer_allows_nothing"]),
    (F::ForgetsTheCaller, &["a_key_belongs_to_its_caller"]),
    (F::ExecDrops(ExecField::Id), &["an_exec_again_joins_a_running_turn"]),
    (F::ExecDrops(ExecField::OnDisconnect), &["a_stream_lost_cancels_when_that_was_asked_for"]),
    (F::DeadlineIsInternal, &["a_deadline_ends_a_running_turn"]),
    (F::SuspendsBeforeAFork, &["b15_forks_of_forks_share_their_prefix"]),
    (F::SuspendsBeforeAResume, &["a_resume_waits_with_its_turn"]),
    (F::CreateIsKeyed, &["a_create_again_makes_another"]),
    (F::CreateChoosesAProject, &["an_empty_project_is_the_default_one"]),
    (F::ForkIsBusy, &["a_fork_does_not_wait_for_a_turn"]),
    (F::ReplayIsBusy, &["a_replay_does_not_wait_for_a_turn"]),
    (F::SuspendedIsFailure, &["b45_suspends_and_resumes_can_be_repeated"]),
    (F::ListIsReversed, &["pages_are_newest_first_and_whole"]),
    (F::ExecHidesTheLastSession, &["a_parked_turn_shows_its_session_last"]),
];
