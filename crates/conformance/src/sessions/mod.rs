//! The suite of the sessions service: `Sessions` and `Operations` of
//! `mainspring_api`.
//!
//! The suite brings what a service stands on ([`Parts`]: a log in memory, a
//! harness that does what its turn's configuration says, a model, tools, an
//! authoriser that writes down what it is asked), and the subject makes a
//! service of them, embedded or behind a transport. Cases see it through its
//! contracts alone, as one of several callers, and look at the log beneath.
//!
//! A case is a rule of the contract of the sessions service; its doc quotes the
//! rule. Errors are compared by condition and outcome: what a transport makes
//! of them is its own tests' matter.

mod parts;
mod support;

pub mod cases_approve;
pub mod cases_authorise;
pub mod cases_cancel;
pub mod cases_create;
pub mod cases_delete;
pub mod cases_describe;
pub mod cases_detach;
pub mod cases_exec;
pub mod cases_follow;
pub mod cases_fork;
pub mod cases_idempotent;
pub mod cases_list;
pub mod cases_operations;
pub mod cases_recover;
pub mod cases_replay;
pub mod cases_resume;
pub mod cases_shared;

use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;

use mainspring_api::{
    Authorizer, Caller, Harness, ModelProvider, Operations, Sessions, ToolExecutor,
};
use mainspring_eventlog::{EventLog, KvOptions, KvStore, MemoryEngine};

pub use parts::{Asked, Policy, Script};
pub use support::World;

/// What a subject makes its service of.
#[derive(Debug, Clone)]
pub struct Parts {
    /// The store.
    pub log: Arc<dyn EventLog>,
    /// Harnesses by name; the first is the host's default.
    pub harnesses: Vec<(&'static str, Arc<dyn Harness>)>,
    /// Answers model calls.
    pub model: Arc<dyn ModelProvider>,
    /// Runs tools.
    pub tools: Arc<dyn ToolExecutor>,
    /// Decides what callers may do, in cases about that.
    pub authorizer: Option<Arc<dyn Authorizer>>,
}

/// Somebody's way to the service.
#[derive(Clone)]
pub struct Client {
    /// The sessions.
    pub sessions: Arc<dyn Sessions>,
    /// What operators and auditors do.
    pub operations: Arc<dyn Operations>,
    /// Who calls, by which method.
    pub caller: fn(&'static str, &'static str) -> Caller,
    /// The name that `caller` takes first.
    pub who: &'static str,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("who", &self.who).finish_non_exhaustive()
    }
}

/// A sessions service under test.
pub trait Subject: Sized {
    /// A service over the parts.
    fn open(parts: Parts) -> impl Future<Output = Self>;

    /// The service as the verified caller (`https://issuer.test`, `who`) sees
    /// it; as nobody, when `who` is empty.
    fn client(&self, who: &'static str) -> impl Future<Output = Client>;

    /// The log that a case runs on: empty, and its own. In memory unless the
    /// subject says otherwise; `None` where this machine has not what it needs,
    /// which was then said.
    fn log() -> impl Future<Output = Option<Arc<dyn EventLog>>> {
        let log = KvStore::open(MemoryEngine::default(), KvOptions::default());
        std::future::ready(Some(Arc::new(log.expect("memory opens")) as _))
    }
}

/// What a case opens its subject with.
#[derive(Debug)]
pub struct Setup<S> {
    log: Arc<dyn EventLog>,
    subject: PhantomData<fn() -> S>,
}

impl<S: Subject> Setup<S> {
    /// A setup on a log of its own; `None` where there cannot be one.
    pub async fn new() -> Option<Self> {
        Some(Self { log: S::log().await?, subject: PhantomData })
    }

    /// A service without an authoriser, as somebody sees it.
    pub async fn open(self) -> World<S> {
        World::open(self.log, None).await
    }

    /// A service that lets callers do what `policy` says.
    pub async fn guarded(self, policy: Policy) -> World<S> {
        World::open(self.log, Some(policy)).await
    }
}

/// Makes a `#[test]` of each case of the sessions suite. The argument is the
/// type of the subject.
#[macro_export]
macro_rules! sessions_conformance {
    ($subject:ty) => {
        $crate::__sessions_cases! { __sessions_tests ($subject) }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __sessions_table {
    (($subject:ident) $($module:ident: $($case:ident),+ $(,)?;)+) => {
        vec![$($((
            stringify!($case),
            (|setup| Box::pin($crate::sessions::$module::$case(setup)))
                as fn(Setup<$subject>) -> Pin<Box<dyn Future<Output = ()>>>,
        )),+),+]
    };
}

/// A case as a value: its name, and what to run.
pub type Case<S> = (&'static str, fn(Setup<S>) -> Pin<Box<dyn Future<Output = ()>>>);

/// All cases, by name.
#[must_use]
pub fn cases<S: Subject + 'static>() -> Vec<Case<S>> {
    crate::__sessions_cases! { __sessions_table (S) }
}

#[doc(hidden)]
#[macro_export]
macro_rules! __sessions_tests {
    (($subject:ty) $($module:ident: $($case:ident),+ $(,)?;)+) => {
        $($(
            #[test]
            fn $case() {
                $crate::run_if_there(
                    $crate::sessions::Setup::<$subject>::new,
                    $crate::sessions::$module::$case,
                )
            }
        )+)+
    };
}

/// The one list of cases.
#[doc(hidden)]
#[macro_export]
macro_rules! __sessions_cases {
    ($then:ident $args:tt) => {
        $crate::$then! { $args
            cases_approve:
                a_decision_is_one_record,
                a_decision_names_its_request,
                the_same_decision_again_answers_the_same,
                another_decision_is_refused,
                a_decision_with_another_digest_is_refused,
                a_decision_does_not_wait_for_a_turn;
            cases_authorise:
                each_method_asks_what_the_contract_lists,
                a_gate_asks_for_each_step,
                b53_what_is_not_yours_is_not_there,
                a_list_has_what_is_yours,
                who_creates_owns,
                nobody_is_unauthenticated,
                a_denied_action_changes_nothing,
                an_authoriser_that_cannot_answer_allows_nothing;
            cases_cancel:
                a_running_turn_is_cancelled,
                a_cancel_again_is_ok,
                a_parked_turn_is_closed_first,
                what_the_host_had_to_end_has_failed,
                only_the_latest_open_turn_is_cancelled,
                another_turn_is_not_cancelled;
            cases_create:
                a_created_session_is_as_it_was_asked_for,
                an_empty_project_is_the_default_one,
                a_create_again_makes_another,
                a_create_on_an_unknown_harness_is_refused,
                an_empty_identity_comes_back_unset;
            cases_delete:
                a_delete_is_recorded_once,
                a_deleted_session_is_read_only,
                a_running_turn_is_cancelled_first,
                an_empty_session_is_deleted;
            cases_describe:
                a_report_says_where_a_session_stands;
            cases_detach:
                a_lost_stream_does_not_end_its_turn,
                a_stream_lost_cancels_when_that_was_asked_for,
                a_stream_read_to_its_end_is_not_lost;
            cases_exec:
                an_exec_without_session_creates_one,
                an_exec_that_cannot_be_leaves_no_session,
                the_first_frame_is_the_session_before_the_turn,
                another_position_conflicts_after_the_session,
                zero_is_an_expectation,
                empty_inputs_are_a_turn_without_input,
                configuration_and_cursor_are_stored,
                deltas_come_before_their_output,
                a_parked_turn_shows_its_session_last,
                a_failed_turn_ends_with_its_error,
                inputs_do_not_pass_over_a_gate,
                an_expired_deadline_journals_nothing,
                a_deadline_ends_a_running_turn,
                an_input_over_its_bound_is_refused_by_name;
            cases_follow:
                a_follower_gets_what_was_and_what_comes,
                a_follower_gets_deltas,
                b25_a_parked_session_is_followed_in_silence,
                b19_a_cursor_beyond_the_head_is_refused;
            cases_fork:
                a_fork_takes_no_identity,
                a_fork_is_at_the_head_and_one,
                a_fork_that_cannot_be_makes_nothing,
                a_child_has_what_its_parent_had,
                b15_forks_of_forks_share_their_prefix;
            cases_idempotent:
                a_keyed_create_again_is_the_same_session,
                b36_a_key_names_one_request,
                a_key_belongs_to_its_caller,
                an_exec_again_shows_its_turn_again,
                an_exec_again_joins_a_running_turn,
                an_exec_again_has_the_same_status,
                an_id_names_one_turn,
                an_inherited_id_is_taken,
                a_keyed_exec_is_one_turn,
                a_keyed_exec_creates_one_session,
                fifty_execs_with_one_id_are_one_turn,
                a_failed_turn_is_not_run_again;
            cases_list:
                a_list_has_one_project,
                pages_are_newest_first_and_whole,
                a_page_has_its_bounds,
                a_foreign_page_token_is_refused,
                a_find_has_what_matches_and_nothing_else;
            cases_operations:
                an_export_is_imported_elsewhere,
                a_changed_export_is_refused,
                a_verification_knows_the_head,
                a_resolved_call_is_gone_on_with;
            cases_recover:
                a_pending_request_shows_the_session_twice,
                a_decided_turn_is_finished,
                what_was_recorded_wins,
                recovery_expects_its_position,
                recovery_has_a_deadline,
                a_finished_gate_is_behind;
            cases_replay:
                a_replay_has_its_range,
                a_replay_does_not_wait_for_a_turn,
                a_negative_end_is_refused,
                a_replay_can_verify_first;
            cases_resume:
                a_suspend_is_recorded,
                a_resume_is_recorded_each_time,
                a_resume_waits_with_its_turn,
                a_second_park_has_no_resume,
                b45_suspends_and_resumes_can_be_repeated;
            cases_shared:
                an_overlap_is_busy_and_changes_nothing,
                a_fork_does_not_wait_for_a_turn,
                an_unknown_harness_is_refused_with_those_served,
                another_harness_is_for_its_turn_only,
                an_unknown_override_comes_before_an_unknown_session,
                a_turn_runs_on_the_stored_harness,
                an_unknown_session_is_not_found;
        }
    };
}
