//! The suite of [`EventLog`].
//!
//! Cases are grouped by what they look at; each quotes the sentence of the
//! contract that it checks. A store that is only reachable through its
//! contract can run all of them.

mod support;

pub mod cases_append;
pub mod cases_catalog;
pub mod cases_durable;
pub mod cases_fence;
pub mod cases_fold;
pub mod cases_follow;
pub mod cases_fork;
pub mod cases_import;
pub mod cases_index;
pub mod cases_list;
pub mod cases_liveness;
pub mod cases_notes;
pub mod cases_order;
pub mod cases_purge;
pub mod cases_race;
pub mod cases_read;
pub mod cases_rows;
pub mod cases_settle;
pub mod cases_warmth;

use std::pin::Pin;
use std::sync::Arc;

use mainspring_eventlog::EventLog;

/// Optional parts of the contract that this suite knows.
pub const PARTS: &[&str] = &["follow", "rows", "purge", "liveness", "warmth"];

/// A store under test. It starts empty and is alone on its files.
pub trait Subject: Sized {
    /// The optional parts that it offers, by the names of their accessors.
    const OFFERS: &'static [&'static str];

    /// The store. No case keeps a handle over [`Subject::reopen`].
    fn log(&self) -> Arc<dyn EventLog>;

    /// Closes the store, and opens what is durable of it.
    fn reopen(self) -> impl Future<Output = Self>;
}

/// A case as a value: its name, and what to run.
pub type Case<S> = (&'static str, fn(S) -> Pin<Box<dyn Future<Output = ()>>>);

/// Makes a `#[test]` of each case of the log-store suite. The argument is an
/// async function or closure that opens a fresh subject; with `if there:` before
/// it, one that gives `None` where this machine has not what it needs.
#[macro_export]
macro_rules! log_store_conformance {
    (if there: $open:expr) => {
        $crate::__log_store_cases! { __log_store_tests (run_if_there, $open) }
    };
    ($open:expr) => {
        $crate::__log_store_cases! { __log_store_tests (run, $open) }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __log_store_tests {
    (($run:ident, $open:expr) $($module:ident: $($case:ident),+ $(,)?;)+) => {
        $($(
            #[test]
            fn $case() {
                $crate::$run($open, $crate::log_store::$module::$case)
            }
        )+)+
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __log_store_table {
    (($subject:ident) $($module:ident: $($case:ident),+ $(,)?;)+) => {
        vec![$($((
            stringify!($case),
            (|subject| Box::pin($crate::log_store::$module::$case(subject)))
                as fn($subject) -> Pin<Box<dyn Future<Output = ()>>>,
        )),+),+]
    };
}

/// All cases, by name.
#[must_use]
pub fn cases<S: Subject + 'static>() -> Vec<Case<S>> {
    crate::__log_store_cases! { __log_store_table (S) }
}

/// The one list of cases.
#[doc(hidden)]
#[macro_export]
macro_rules! __log_store_cases {
    ($then:ident $args:tt) => {
        $crate::$then! { $args
            cases_catalog:
                offers_are_what_is_there,
                a_created_session_is_there,
                an_unknown_session_is_not_found_and_not_created,
                a_taken_uid_already_exists,
                an_update_changes_what_it_names,
                an_update_of_an_old_version_is_moved,
                an_owner_is_set_once,
                uids_that_start_alike_share_nothing;
            cases_list:
                a_list_is_newest_first_then_by_uid,
                pages_show_each_session_once,
                a_list_row_is_what_get_answers,
                a_list_has_one_project,
                a_list_filters_by_owner,
                a_list_filters_by_state,
                a_list_filters_by_harness,
                a_list_filters_by_all_labels,
                pages_during_creates_miss_none;
            cases_index:
                an_owners_list_has_every_session_of_theirs,
                an_open_list_moves_with_each_append,
                forks_and_imports_are_listed_as_open,
                pages_of_an_owner_during_creates_miss_none,
                marked_rows_are_found_in_every_project;
            cases_append:
                an_append_is_read_back,
                stored_bytes_are_the_hashed_ones,
                an_append_behind_the_head_conflicts,
                an_append_ahead_of_the_head_conflicts,
                an_append_at_another_hash_conflicts,
                a_conflict_is_tested_before_the_fence,
                an_old_fence_is_fenced,
                a_fence_above_is_accepted_and_raises_nothing,
                a_refused_batch_leaves_no_part,
                an_event_over_the_bound_is_refused_by_name,
                a_batch_over_the_bound_is_refused,
                bounds_are_tested_first,
                the_row_moves_with_an_append;
            cases_settle:
                an_append_again_answers_the_same,
                an_append_again_after_a_newer_fence_answers_the_same,
                equal_bytes_of_another_append_conflict,
                an_append_that_lost_never_counts,
                a_create_again_answers_the_same,
                an_update_again_answers_the_same,
                a_mint_again_answers_the_same,
                an_acquire_again_answers_the_same,
                a_fork_again_answers_the_same,
                an_import_again_answers_the_same;
            cases_fence:
                fences_rise_by_one_and_name_their_holder,
                a_mint_over_a_moved_fence_is_moved,
                a_mint_stops_the_writer_before,
                an_acquire_at_the_head_mints,
                an_acquire_at_a_moved_head_changes_nothing,
                an_acquire_at_another_hash_conflicts,
                an_acquire_over_a_moved_fence_is_moved;
            cases_read:
                pages_of_any_size_make_the_journal,
                a_read_stops_at_its_bytes_but_returns_one,
                a_read_beyond_the_end_is_empty,
                a_read_from_zero_starts_at_one,
                head_row_and_records_agree,
                a_verification_ends_at_the_head,
                a_verification_goes_on_after_a_known_head,
                a_verification_after_another_head_is_tampered,
                a_journal_shorter_than_known_is_tampered;
            cases_fork:
                a_fork_shares_the_prefix_and_adds_its_marker,
                a_child_shows_its_own_first_fence,
                a_fork_leaves_the_parent_as_it_was,
                a_fork_at_zero_has_its_marker_alone,
                forks_of_forks_hold_together,
                parent_and_children_go_on_apart,
                a_fork_below_an_old_fork_reaches_the_right_records,
                a_fork_beyond_the_head_is_refused,
                a_fork_at_another_hash_conflicts,
                a_fork_makes_all_children_or_none,
                a_fork_with_one_uid_twice_makes_none,
                a_fork_makes_up_to_its_bound,
                a_deleted_parent_is_not_forked,
                a_child_brings_the_notes_along,
                every_fork_position_folds_afresh;
            cases_import:
                an_import_keeps_every_byte,
                an_import_keeps_the_row,
                an_import_takes_the_row_of_its_head,
                an_import_of_nothing_is_an_empty_session,
                an_import_of_many_pages_is_whole,
                an_imported_session_goes_on,
                an_import_has_its_highest_fence_in_force,
                a_tampered_import_is_refused_at_its_place,
                an_import_that_ends_elsewhere_is_refused,
                an_import_whose_stream_fails_leaves_nothing,
                an_import_with_an_unknown_record_is_refused,
                an_import_over_a_session_is_refused,
                an_import_goes_on_where_it_stopped,
                an_import_sent_from_the_start_goes_on,
                an_import_does_not_go_on_with_another_journal,
                a_refused_import_can_go_on,
                a_done_import_is_not_done_with_another_journal;
            cases_notes:
                every_record_has_a_commit_time,
                notes_of_an_append_are_read_back,
                an_annotation_is_read_back_and_not_hashed,
                an_annotation_is_made_once,
                a_note_of_the_append_stands,
                an_annotation_under_an_old_fence_is_fenced,
                an_annotation_needs_its_record;
            cases_fold:
                the_row_is_the_fold_of_its_journal,
                children_fold_what_they_inherited_and_added,
                well_formed_trees_have_no_fault,
                an_inherited_execution_goes_on_from_what_is_shown,
                an_import_folds_its_records,
                ill_formed_evidence_is_kept_and_never_fails_a_list;
            cases_race:
                one_append_wins_each_position,
                readers_see_whole_batches,
                pages_during_appends_make_the_journal,
                one_mint_wins_each_fence,
                one_create_wins_a_uid,
                one_import_wins_a_uid,
                one_append_sent_often_is_there_once,
                a_dropped_append_is_whole_or_absent;
            cases_durable:
                a_store_keeps_its_id,
                creates_and_updates_are_durable,
                appends_are_durable,
                fences_are_durable,
                forks_are_durable,
                imports_are_durable,
                annotations_are_durable,
                operation_ids_are_durable,
                staged_imports_are_durable,
                named_rows_are_durable,
                purges_are_durable,
                refused_operations_leave_nothing_behind;
            cases_order:
                concurrent_operations_are_linearisable,
                lost_replies_are_settled_by_sending_again;
            cases_follow:
                a_follower_sees_what_is_there_and_what_comes,
                followers_during_appends_see_each_record_once,
                a_slow_follower_gets_everything,
                a_follower_of_an_unknown_session_is_told,
                a_follower_after_another_head_is_tampered,
                a_followed_child_shows_its_prefix,
                a_follower_ends_with_its_store;
            cases_rows:
                a_named_row_is_read_back,
                a_named_row_moves_by_its_version,
                a_removed_row_leaves_its_version,
                a_named_row_put_again_answers_the_same,
                named_rows_are_listed_by_name,
                a_named_row_over_its_bound_is_refused,
                one_put_wins_each_version;
            cases_purge:
                a_purge_needs_a_deletion,
                a_purged_session_is_a_tombstone,
                a_purged_session_takes_nothing_more,
                a_purge_keeps_what_forks_show,
                a_purge_again_answers_the_same;
            cases_liveness:
                a_holder_that_was_never_seen_is_dead,
                an_announced_holder_is_alive;
            cases_warmth:
                a_store_that_no_host_announced_has_no_warm_host,
                a_warm_host_is_named_with_its_address,
                an_address_over_its_bound_is_refused;
        }
    };
}
