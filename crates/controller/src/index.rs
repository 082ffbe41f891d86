//! Every execution of a journal, small enough to keep for all of them.

use std::collections::{BTreeSet, HashMap};

use mainspring_api::{EndState, ExecutionId, Seq};
use mainspring_eventlog::{ExecutionTable, ExecutionView, LogError, StartView};
use sha2::{Digest as _, Sha256};

/// Executions by a digest of their id: some 60 bytes each, whatever they hold.
///
/// What a view holds beyond that is not kept. It is needed only while an
/// execution is the latest one, and of those that ended for comparing harnesses.
#[derive(Debug, Default)]
pub(crate) struct Index {
    entries: HashMap<[u8; 16], Entry>,
    /// Harness and version of executions, each pair once.
    harnesses: Vec<(String, String)>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    first: u64,
    last: u64,
    inputs: u64,
    declared: i64,
    /// Which of the pairs.
    harness: u32,
    flags: u8,
}

const STARTED: u8 = 1;
const GATED: u8 = 2;
const ENDED: u8 = 4;
const COMPLETED: u8 = 8;
/// The start declares how many inputs there are.
const DECLARED: u8 = 16;

/// Where an execution lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Extent {
    /// Its first record.
    pub(crate) first: Seq,
    /// Its last record.
    pub(crate) last: Seq,
    /// Whether it has a gated tool call.
    pub(crate) gated: bool,
}

/// What a replay must know of a journal's executions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Executions {
    /// The completed ones, by first appearance.
    pub(crate) completed: Vec<Extent>,
    /// The others that have a gated tool call, by first appearance.
    pub(crate) gated: Vec<Extent>,
    /// The harnesses that completed ones record, with their versions.
    pub(crate) harnesses: BTreeSet<(String, String)>,
}

fn key(id: &ExecutionId) -> [u8; 16] {
    let digest = Sha256::digest(id.as_str().as_bytes());
    std::array::from_fn(|at| digest[at])
}

impl Index {
    /// The executions that a replay runs, or checks.
    pub(crate) fn executions(self) -> Executions {
        let (mut completed, mut gated) = (Vec::new(), Vec::new());
        let mut recorded = BTreeSet::new();
        for entry in self.entries.values() {
            let extent = Extent {
                first: Seq::new(entry.first),
                last: Seq::new(entry.last),
                gated: entry.flags & GATED != 0,
            };
            if entry.flags & COMPLETED != 0 {
                recorded.insert(entry.harness);
                completed.push(extent);
            } else if extent.gated {
                gated.push(extent);
            }
        }
        completed.sort_unstable();
        gated.sort_unstable();
        let name = |index: u32| self.harnesses[index as usize].clone();
        Executions { completed, gated, harnesses: recorded.into_iter().map(name).collect() }
    }

    /// The number of a pair. There are few: a session changes its harness by hand.
    fn harness(&mut self, start: Option<&StartView>) -> u32 {
        let name = start.map_or("", |start| &start.harness);
        let version = start.map_or("", |start| &start.harness_version);
        let known = self.harnesses.iter().position(|(n, v)| n == name && v == version);
        let index = known.unwrap_or_else(|| {
            self.harnesses.push((name.to_owned(), version.to_owned()));
            self.harnesses.len() - 1
        });
        u32::try_from(index).expect("a journal has fewer executions than that")
    }
}

impl ExecutionTable for Index {
    fn load(&mut self, id: &ExecutionId) -> Result<Option<ExecutionView>, LogError> {
        let Some(entry) = self.entries.get(&key(id)) else { return Ok(None) };
        let has = |flag| entry.flags & flag != 0;
        let (harness, harness_version) = self.harnesses[entry.harness as usize].clone();
        let start = has(STARTED).then(|| StartView {
            seq: Seq::new(entry.first),
            input_count: has(DECLARED).then_some(entry.declared),
            harness,
            harness_version,
            model: String::new(),
        });
        let state = has(COMPLETED).then_some(EndState::Completed);
        Ok(Some(ExecutionView {
            id: id.clone(),
            first_seq: Seq::new(entry.first),
            last_seq: Seq::new(entry.last),
            start,
            inputs: entry.inputs,
            end: has(ENDED).then_some((Seq::new(entry.last), state)),
            trailing_error: None,
            gate: None,
            unanswered: None,
        }))
    }

    fn store(&mut self, view: &ExecutionView) -> Result<(), LogError> {
        let known = self.entries.get(&key(&view.id)).map_or(0, |entry| entry.flags);
        let mut flags = known & GATED;
        let mut set = |flag, on| flags |= if on { flag } else { 0 };
        let declared = view.start.as_ref().and_then(|start| start.input_count);
        let completed = matches!(view.end, Some((_, Some(EndState::Completed))));
        set(STARTED, view.start.is_some());
        set(DECLARED, declared.is_some());
        set(GATED, view.gate.is_some());
        set(ENDED, view.end.is_some());
        set(COMPLETED, completed);
        let harness = self.harness(view.start.as_ref());
        let entry = Entry {
            first: view.first_seq.get(),
            last: view.last_seq.get(),
            inputs: view.inputs,
            declared: declared.unwrap_or_default(),
            harness,
            flags,
        };
        self.entries.insert(key(&view.id), entry);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
