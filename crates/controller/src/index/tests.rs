//! What the index keeps of executions, and what it forgets.

use mainspring_api::{EndState, ExecutionId, Seq};
use mainspring_eventlog::{ExecutionTable as _, ExecutionView, GateView, StartView};

use super::{Executions, Extent, Index};

fn id(number: u64) -> ExecutionId {
    ExecutionId::chosen(&format!("{number:016x}")).unwrap()
}

/// An execution at `first..=last` of harness `name`, version `version`.
fn view(number: u64, (first, last): (u64, u64), (name, version): (&str, &str)) -> ExecutionView {
    ExecutionView {
        id: id(number),
        first_seq: Seq::new(first),
        last_seq: Seq::new(last),
        start: Some(StartView {
            seq: Seq::new(first),
            input_count: Some(2),
            harness: name.to_owned(),
            harness_version: version.to_owned(),
            model: "forgotten".to_owned(),
        }),
        inputs: 2,
        end: Some((Seq::new(last), Some(EndState::Completed))),
        trailing_error: None,
        gate: None,
        unanswered: Some(Seq::new(last)),
    }
}

fn gate(call: u64) -> GateView {
    GateView {
        call_id: "c1".to_owned(),
        call: Seq::new(call),
        request: None,
        decision: None,
        receipt: None,
    }
}

fn extent(first: u64, last: u64, gated: bool) -> Extent {
    Extent { first: Seq::new(first), last: Seq::new(last), gated }
}

/// A loaded execution is the stored one, without what only the latest one needs.
#[test]
fn an_execution_is_loaded_as_it_was_stored() {
    let mut index = Index::default();
    assert_eq!(index.load(&id(1)).unwrap(), None);
    let stored = view(1, (3, 9), ("agent", "1"));
    index.store(&stored).unwrap();
    let start = stored.start.clone().map(|start| StartView { model: String::new(), ..start });
    let kept = ExecutionView { start, unanswered: None, ..stored };
    assert_eq!(index.load(&id(1)).unwrap(), Some(kept));
}

/// Counts that are absent, zero or negative, no start, and each way to end are told apart.
#[test]
fn starts_and_ends_keep_their_kind() {
    for count in [None, Some(0), Some(-1), Some(i64::MAX)] {
        for end in [None, Some(None), Some(Some(EndState::Completed))] {
            let mut index = Index::default();
            let mut stored = view(1, (1, 4), ("", ""));
            stored.start.as_mut().unwrap().input_count = count;
            stored.end = end.map(|state| (Seq::new(4), state));
            index.store(&stored).unwrap();
            let loaded = index.load(&id(1)).unwrap().unwrap();
            assert_eq!(loaded.start.unwrap().input_count, count);
            assert_eq!(loaded.end, stored.end);
        }
    }
    let mut index = Index::default();
    index.store(&ExecutionView { start: None, ..view(1, (1, 4), ("", "")) }).unwrap();
    assert_eq!(index.load(&id(1)).unwrap().unwrap().start, None);
}

/// Completed executions come by first appearance; others only if they have a gate.
#[test]
fn executions_come_in_order() {
    let mut index = Index::default();
    let failed = Some((Seq::new(0), Some(EndState::Failed)));
    index.store(&view(3, (9, 30), ("agent", "1"))).unwrap();
    index.store(&view(1, (1, 40), ("agent", "1"))).unwrap();
    index.store(&ExecutionView { end: None, ..view(2, (5, 8), ("other", "1")) }).unwrap();
    let gated = Some(gate(21));
    index
        .store(&ExecutionView { end: None, gate: gated.clone(), ..view(4, (20, 22), ("x", "")) })
        .unwrap();
    index
        .store(&ExecutionView { end: failed, gate: gated.clone(), ..view(5, (12, 14), ("", "")) })
        .unwrap();
    index.store(&ExecutionView { gate: gated, ..view(6, (31, 33), ("", "")) }).unwrap();
    let Executions { completed, gated, harnesses } = index.executions();
    assert_eq!(completed, [extent(1, 40, false), extent(9, 30, false), extent(31, 33, true)]);
    assert_eq!(gated, [extent(12, 14, true), extent(20, 22, true)]);
    let pair = |name: &str, version: &str| (name.to_owned(), version.to_owned());
    assert_eq!(Vec::from_iter(harnesses), [pair("", ""), pair("agent", "1")]);
}

/// A gate is remembered when a later record of its execution is stored without it.
#[test]
fn a_gate_is_remembered() {
    let mut index = Index::default();
    let begun = ExecutionView { end: None, gate: Some(gate(2)), ..view(1, (1, 3), ("", "")) };
    index.store(&begun).unwrap();
    let mut loaded = index.load(&id(1)).unwrap().unwrap();
    loaded.last_seq = Seq::new(9);
    loaded.end = Some((Seq::new(9), Some(EndState::Completed)));
    index.store(&loaded).unwrap();
    assert_eq!(index.executions().completed, [extent(1, 9, true)]);
}

/// A thousand executions of two harnesses hold each pair of name and version once.
#[test]
fn names_are_kept_once() {
    let mut index = Index::default();
    for number in 0..1_000 {
        let names = if number % 2 == 0 { ("agent", "1") } else { ("agent", "2") };
        index.store(&view(number, (number * 4 + 1, number * 4 + 4), names)).unwrap();
    }
    assert_eq!((index.harnesses.len(), index.entries.len()), (2, 1_000));
    let executions = index.executions();
    assert_eq!((executions.completed.len(), executions.harnesses.len()), (1_000, 2));
    assert!(executions.completed.is_sorted());
}
