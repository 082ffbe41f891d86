//! The reckoning, where its answer is known otherwise.

use super::*;

const COSTS: Costs = Costs {
    round_trip_us: 2_000.0,
    message_bytes: 48.0,
    append_bytes: 150.0,
    record_bytes: 10.0,
    mint_bytes: 130.0,
    create_bytes: 400.0,
    view_session_bytes: 500.0,
    view_record_bytes: 60.0,
    checkpoint_session_bytes: 450.0,
    checkpoint_record_bytes: 50.0,
    checkpoint_saved_a_second: 50e6,
    checkpoint_loaded_a_second: 20e6,
    host_memory_bytes: 100e6,
    session_memory_bytes: 100.0,
    fold_message_us: 20.0,
    fold_append_us: 20.0,
    fold_record_us: 10.0,
};

const LOAD: Load = Load {
    sessions: 1e6,
    turns_a_day: 10.0,
    appends_a_turn: 9.0,
    records_a_turn: 9.0,
    bytes_a_record: 300.0,
    peak: 1.0,
    days: 30.0,
};

const CELL: Cell = Cell { partitions: 64.0, hosts: 4.0, busy_max: 0.5 };

#[track_caller]
fn near(found: f64, expected: f64, share: f64) {
    assert!((found - expected).abs() <= expected * share, "{found} is not near {expected}");
}

#[test]
fn without_company_each_write_is_a_message() {
    let quiet = Load { sessions: 1_000.0, ..LOAD };
    let hour = hour(&quiet, &CELL, &COSTS, 3);
    let writes = 1_000.0 * 10.0 * 10.0 / 86_400.0;
    near(hour.writes, writes, 0.03);
    near(hour.messages, hour.writes, 0.01);
    // Nine appends with a record and a mint of ten writes.
    near(hour.busy, writes * (20.0 + 20.0 + 9.0) / 1e6, 0.03);
    near(hour.bytes, writes * (123.0 + 0.9 * 460.0 + 0.1 * 130.0), 0.03);
    near(hour.p99_ms, 2.05, 0.02);
}

#[test]
fn in_one_lane_messages_are_as_many_as_round_trips() {
    let cell = Cell { partitions: 1.0, hosts: 1.0, busy_max: 0.5 };
    let hour = hour(&LOAD, &cell, &COSTS, 3);
    // What goes out comes back after the round trip and its fold.
    let trip = 0.002 + (20.0 + 29.0 * hour.writes / hour.messages) / 1e6;
    near(hour.messages, 1.0 / trip, 0.06);
    assert!(hour.writes / hour.messages > 2.0);
}

#[test]
fn a_fold_that_is_too_slow_is_seen() {
    let slow = Costs { fold_record_us: 2_000.0, ..COSTS };
    let hour = hour(&LOAD, &CELL, &slow, 3);
    assert!(hour.busy > 1.0 && hour.p99_ms > 1_000.0, "{hour:?}");
}

#[test]
fn stores_are_as_many_as_folds_are_needed() {
    let one = capacity(&LOAD, &CELL, &COSTS);
    // Alone in their messages writes take 49 us: 10,200 a second in half the time.
    let alone = 0.5e6 / 49.0 / (10.0 * 10.0 / 86_400.0);
    assert!(one.sessions_a_cell_max > alone, "{one:?}");
    near(one.cells, (1e6 / one.sessions_a_cell_max).ceil(), 0.0);
    let many = capacity(&Load { sessions: 1e8, ..LOAD }, &CELL, &COSTS);
    near(many.cells, (1e8 / one.sessions_a_cell_max).ceil(), 0.03);
    assert!(many.peak.busy <= 0.52, "{many:?}");
}

#[test]
fn sizes_are_sums_of_unit_costs() {
    let one = capacity(&LOAD, &CELL, &COSTS);
    let records = 1e6 * 10.0 * 9.0 * 30.0;
    near(one.view_bytes, 1e6 * 500.0 + records * 60.0, 0.001);
    near(one.checkpoint_bytes, 1e6 * 450.0 + records * 50.0, 0.001);
    near(one.memory_bytes, 100e6 + 131_072.0 * 100.0, 0.001);
    near(one.log_bytes, one.bytes_a_day * 30.0 + 1e6 * 523.0, 0.001);
    assert!(one.rebuilt_after > one.checkpoint_bytes / 20e6);
    assert!(one.folded_after > one.rebuilt_after);
}
