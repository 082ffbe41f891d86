//! The faults, and the cases that must catch each.

macro_rules! faults {
    ($($(#[$doc:meta])* $fault:ident => [$($case:ident),* $(,)?],)*) => {
        /// One way in which a store is broken.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Fault {
            /// It is sound.
            None,
            $($(#[$doc])* $fault,)*
        }

        /// The cases that catch each fault.
        pub(crate) const TABLE: &[(Fault, &[&str])] =
            &[$((Fault::$fault, &[$(stringify!($case)),*])),*];
    };
}

faults! {
    /// Nothing is durable.
    ForgetsOnReopen => [
        a_store_keeps_its_id, creates_and_updates_are_durable, appends_are_durable,
        fences_are_durable, forks_are_durable, imports_are_durable, annotations_are_durable,
        operation_ids_are_durable, staged_imports_are_durable, named_rows_are_durable,
        purges_are_durable,
    ],
    /// It takes every operation for a new one.
    ForgetsIds => [
        an_append_again_answers_the_same, a_create_again_answers_the_same,
        an_update_again_answers_the_same, a_mint_again_answers_the_same,
        an_acquire_again_answers_the_same, a_fork_again_answers_the_same,
        an_import_again_answers_the_same, operation_ids_are_durable,
        one_append_sent_often_is_there_once, a_dropped_append_is_whole_or_absent,
        lost_replies_are_settled_by_sending_again, a_named_row_put_again_answers_the_same,
        an_import_goes_on_where_it_stopped, an_import_sent_from_the_start_goes_on,
    ],
    /// A create loses the labels.
    CreateLosesLabels => [a_created_session_is_there, a_list_filters_by_all_labels],
    /// A create of a taken uid is answered with what is there.
    CreateAnswersWhatIsThere => [a_taken_uid_already_exists, one_create_wins_a_uid],
    /// An append to an unknown session creates it.
    CreatesOnAppend => [an_unknown_session_is_not_found_and_not_created],
    /// An update clears what it does not name.
    UpdateClears => [an_update_changes_what_it_names],
    /// An update applies to whatever version there is.
    UpdateIgnoresVersion => [an_update_of_an_old_version_is_moved],
    /// An update that is refused is answered with the row.
    UpdateAnswersTheRow => [an_owner_is_set_once],
    /// A uid loses its last dot.
    CutsUids => [uids_that_start_alike_share_nothing],
    /// Lists are sorted by uid.
    ListsByUid => [a_list_is_newest_first_then_by_uid],
    /// A page after the first lacks its first row.
    SkipsARowBetweenPages => [
        pages_show_each_session_once, pages_during_creates_miss_none,
        pages_of_an_owner_during_creates_miss_none,
    ],
    /// Listed rows have no fold.
    ListsWithoutFold => [a_list_row_is_what_get_answers],
    /// A project lists those that start like it too.
    ListsByProjectPrefix => [a_list_has_one_project],
    /// Everybody's sessions are listed.
    ListIgnoresOwner => [a_list_filters_by_owner],
    /// A list of an owner has only what was created with them.
    ListForgetsAdopted => [an_owners_list_has_every_session_of_theirs],
    /// A list of open sessions keeps those that were open once.
    ListKeepsOpen => [an_open_list_moves_with_each_append],
    /// A list of open sessions has those alone that were appended to.
    ListForgetsInherited => [forks_and_imports_are_listed_as_open],
    /// A mark stays.
    MarksNeverGo => [marked_rows_are_found_in_every_project],
    /// All states are listed.
    ListIgnoresStates => [a_list_filters_by_state],
    /// All harnesses are listed.
    ListIgnoresHarness => [a_list_filters_by_harness],
    /// One of the labels is enough.
    ListsByOneLabel => [a_list_filters_by_all_labels],
    /// Sessions with ill-formed evidence are left out.
    ListsWellFormedAlone => [ill_formed_evidence_is_kept_and_never_fails_a_list],
    /// Records forget their fence.
    ReadLosesFences => [an_append_is_read_back, a_child_shows_its_own_first_fence],
    /// Records are written anew when they are read.
    ReadRecodes => [stored_bytes_are_the_hashed_ones],
    /// Notes are lost.
    ReadLosesNotes => [
        every_record_has_a_commit_time, notes_of_an_append_are_read_back,
        an_annotation_is_read_back_and_not_hashed, a_child_brings_the_notes_along,
    ],
    /// A page starts with the last record of the page before.
    ReadRepeatsARecord => [
        pages_of_any_size_make_the_journal, pages_during_appends_make_the_journal,
    ],
    /// A record larger than the limit is not returned.
    ReadRefusesLargeRecords => [a_read_stops_at_its_bytes_but_returns_one],
    /// A read beyond the end gives the last record.
    ReadClamps => [a_read_beyond_the_end_is_empty],
    /// A read from 0 gives nothing.
    ReadFromZeroIsEmpty => [a_read_from_zero_starts_at_one],
    /// The last record is not seen yet.
    ReadLags => [readers_see_whole_batches],
    /// The head is not seen yet.
    HeadLags => [head_row_and_records_agree, concurrent_operations_are_linearisable],
    /// A verification finds nothing to do.
    VerifiesNothing => [
        a_verification_ends_at_the_head, a_verification_goes_on_after_a_known_head,
    ],
    /// A verification starts over, whatever was known.
    VerifyIgnoresWhatIsKnown => [
        a_verification_after_another_head_is_tampered, a_journal_shorter_than_known_is_tampered,
    ],
    /// An append goes to wherever the journal ends.
    AppendIgnoresHead => [
        an_append_behind_the_head_conflicts, an_append_ahead_of_the_head_conflicts,
        a_refused_batch_leaves_no_part,
    ],
    /// Only the head's position is compared.
    AppendIgnoresHash => [an_append_at_another_hash_conflicts],
    /// The fence is tested first.
    TestsFenceFirst => [
        a_conflict_is_tested_before_the_fence,
        an_append_again_after_a_newer_fence_answers_the_same,
    ],
    /// No writer is ever fenced.
    IgnoresFence => [
        an_old_fence_is_fenced, a_mint_stops_the_writer_before,
        an_annotation_under_an_old_fence_is_fenced, fences_are_durable,
    ],
    /// A fence above the one in force becomes it.
    FenceAboveRaises => [a_fence_above_is_accepted_and_raises_nothing],
    /// A refused batch leaves its first record.
    TearsBatches => [
        a_refused_batch_leaves_no_part, refused_operations_leave_nothing_behind,
    ],
    /// A bound is not named.
    BoundHasNoName => [an_event_over_the_bound_is_refused_by_name],
    /// A batch above the bound is cut in pieces.
    SplitsLargeBatches => [a_batch_over_the_bound_is_refused],
    /// Bounds are tested last.
    TestsBoundsLast => [bounds_are_tested_first],
    /// Equal bytes are taken for the same append.
    TrustsEqualBytes => [equal_bytes_of_another_append_conflict],
    /// An append that lost is put at the end when it comes again.
    CountsOnRetry => [an_append_that_lost_never_counts],
    /// A conflict is answered with the head that would have been.
    AnswersLosersOk => [one_append_wins_each_position],
    /// The fold forgets how long the journal is.
    FoldLosesBytes => [
        the_row_moves_with_an_append, the_row_is_the_fold_of_its_journal,
        every_fork_position_folds_afresh, children_fold_what_they_inherited_and_added,
        well_formed_trees_have_no_fault, an_inherited_execution_goes_on_from_what_is_shown,
        an_import_folds_its_records, an_imported_session_goes_on,
    ],
    /// Nobody holds a fence.
    FenceLosesHolder => [
        fences_rise_by_one_and_name_their_holder, an_acquire_at_the_head_mints,
    ],
    /// A mint goes over whatever fence there is.
    MintIgnoresCurrent => [
        a_mint_over_a_moved_fence_is_moved, an_acquire_over_a_moved_fence_is_moved,
        one_mint_wins_each_fence,
    ],
    /// An acquire does not look at the head.
    AcquireIgnoresHead => [
        an_acquire_at_a_moved_head_changes_nothing, an_acquire_at_another_hash_conflicts,
    ],
    /// A child does not know its parent.
    ForkLosesParent => [a_fork_shares_the_prefix_and_adds_its_marker],
    /// Inherited records show the parent's fences.
    ForkSharesFences => [a_child_shows_its_own_first_fence],
    /// A fork takes the parent's fence away.
    ForkMintsParent => [a_fork_leaves_the_parent_as_it_was],
    /// There is no fork of nothing.
    ForkNeedsAPrefix => [a_fork_at_zero_has_its_marker_alone],
    /// A child cannot be forked.
    ForkOfForkFails => [
        forks_of_forks_hold_together, a_fork_below_an_old_fork_reaches_the_right_records,
    ],
    /// What a parent appends, its children append too.
    ForkSharesAppends => [parent_and_children_go_on_apart],
    /// A fork beyond the head is one at the head.
    ForkClamps => [a_fork_beyond_the_head_is_refused],
    /// Only the position of a fork is looked at.
    ForkIgnoresHash => [a_fork_at_another_hash_conflicts],
    /// Children are made one after the other.
    ForksOneByOne => [
        a_fork_makes_all_children_or_none, a_fork_with_one_uid_twice_makes_none,
        a_fork_makes_up_to_its_bound,
    ],
    /// A fork of a deleted session is an empty session.
    ForksDeleted => [a_deleted_parent_is_not_forked],
    /// An import loses the notes.
    ImportLosesNotes => [an_import_keeps_every_byte],
    /// An import happens now.
    ImportLosesTime => [an_import_keeps_the_row, a_list_is_newest_first_then_by_uid],
    /// The row that came with the head is not looked at.
    ImportIgnoresHeadRow => [an_import_takes_the_row_of_its_head],
    /// An import without records fails.
    ImportNeedsRecords => [an_import_of_nothing_is_an_empty_session],
    /// An import ends after a page.
    ImportKeepsOnePage => [an_import_of_many_pages_is_whole],
    /// Imported records lose their fences.
    ImportLosesFences => [an_import_has_its_highest_fence_in_force],
    /// An import writes hashes that hold, whatever came.
    ImportRelinks => [a_tampered_import_is_refused_at_its_place],
    /// The stated head is not compared.
    ImportIgnoresHead => [an_import_that_ends_elsewhere_is_refused],
    /// What came before the stream broke is published.
    ImportPublishesPart => [
        an_import_whose_stream_fails_leaves_nothing, refused_operations_leave_nothing_behind,
    ],
    /// Records that are not known are left out.
    ImportSkipsUnknown => [an_import_with_an_unknown_record_is_refused],
    /// An import of a taken uid is answered with what is there.
    ImportAnswersWhatIsThere => [an_import_over_a_session_is_refused, one_import_wins_a_uid],
    /// A note that is there is answered as if it had been replaced.
    AnnotatesOver => [an_annotation_is_made_once, a_note_of_the_append_stands],
    /// A note of no record is taken.
    AnnotatesNothing => [an_annotation_needs_its_record],
    /// An import begun with one journal is published with another.
    ImportTakesAnother => [
        an_import_does_not_go_on_with_another_journal,
        a_done_import_is_not_done_with_another_journal,
    ],
    /// A refused import leaves its records where it goes on.
    ImportKeepsRefused => [a_refused_import_can_go_on],
    /// A follow starts with its second record, twice.
    FollowSkips => [
        a_follower_sees_what_is_there_and_what_comes, a_slow_follower_gets_everything,
        followers_during_appends_see_each_record_once, a_followed_child_shows_its_prefix,
    ],
    /// A follower of nothing waits for ever, and so does one of a closed store.
    FollowNeverEnds => [a_follower_of_an_unknown_session_is_told, a_follower_ends_with_its_store],
    /// A follower is given whatever comes after that position.
    FollowIgnoresHash => [a_follower_after_another_head_is_tampered],
    /// A row is listed and read under its name alone.
    RowsHaveOneKind => [a_named_row_is_read_back, named_rows_are_listed_by_name],
    /// A row is put over whatever is there.
    RowsIgnoreVersion => [a_named_row_moves_by_its_version, one_put_wins_each_version],
    /// A removed row starts over.
    RowsForgetVersions => [a_removed_row_leaves_its_version],
    /// A value of any size is cut to its bound.
    RowsCutValues => [a_named_row_over_its_bound_is_refused],
    /// What is purged need not be deleted.
    PurgesTheLiving => [a_purge_needs_a_deletion],
    /// A purge leaves everything as it is.
    PurgesNothing => [
        a_purged_session_is_a_tombstone, a_purged_session_takes_nothing_more,
    ],
    /// A session can be purged once.
    PurgesOnce => [a_purge_again_answers_the_same],
    /// A purge takes the forks along.
    PurgesForks => [a_purge_keeps_what_forks_show],
    /// Everybody is alive.
    HoldersNeverDie => [a_holder_that_was_never_seen_is_dead],
    /// Only the last holder is known.
    LivesOnlyOne => [an_announced_holder_is_alive],
    /// It names a host that never was.
    NobodyIsWarm => [a_store_that_no_host_announced_has_no_warm_host],
    /// Where a host is reached is lost.
    WarmHostsHaveNoAddress => [a_warm_host_is_named_with_its_address],
    /// An address may be as long as it likes.
    TakesAnyAddress => [an_address_over_its_bound_is_refused],
}
