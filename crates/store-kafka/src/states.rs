//! What the entries before left behind: in memory for what is written to now,
//! in the view for the rest.

use std::collections::HashMap;

use mainspring_eventlog::{Engine as _, EngineError, Space};

use crate::engine::PartitionEngine;
use crate::judge::{Name, State, States};

/// States of one generation of all partitions; two are kept. A state takes about
/// 200 bytes.
const GENERATION_MAX: usize = 65_536;
/// States of one generation of a partition, at the least.
const GENERATION_MIN: usize = 256;

/// The states of one partition.
#[derive(Debug)]
pub(crate) struct Cache {
    view: PartitionEngine,
    young: HashMap<Name, Known>,
    old: HashMap<Name, Known>,
    generation_max: usize,
    /// The message that is judged.
    offset: u64,
    /// What it has changed so far.
    changed: Vec<(Name, State)>,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    state: State,
    /// The message that changed it last; 0 for one that was read from the view.
    offset: u64,
}

impl Cache {
    /// The states of one of `partitions` partitions.
    pub(crate) fn new(view: PartitionEngine, partitions: usize) -> Self {
        Self {
            view,
            generation_max: (GENERATION_MAX / partitions.max(1)).max(GENERATION_MIN),
            young: HashMap::new(),
            old: HashMap::new(),
            offset: 0,
            changed: Vec::new(),
        }
    }

    /// A message is to be judged. `applied` is how far the view is: what is
    /// newer than that must be kept in memory.
    pub(crate) fn begin(&mut self, offset: u64, applied: u64) {
        self.offset = offset;
        if self.young.len() > self.generation_max {
            let gone = std::mem::take(&mut self.old);
            self.old = std::mem::take(&mut self.young);
            self.young = gone.into_iter().filter(|(_, known)| known.offset >= applied).collect();
        }
    }

    /// What the message has changed, in order.
    pub(crate) fn take_changed(&mut self) -> Vec<(Name, State)> {
        std::mem::take(&mut self.changed)
    }
}

impl States for Cache {
    type Error = EngineError;

    fn get(&mut self, name: &Name) -> Result<Option<State>, EngineError> {
        if let Some(known) = self.young.get(name) {
            return Ok(Some(known.state));
        }
        if let Some(known) = self.old.remove(name) {
            self.young.insert(name.clone(), known);
            return Ok(Some(known.state));
        }
        let mut stored = None;
        self.view.read_for_fold(&mut |kv| {
            stored = kv.get(Space::Judged, name.as_bytes())?;
            Ok(())
        })?;
        let Some(state) = decoded(stored)? else { return Ok(None) };
        self.young.insert(name.clone(), Known { state, offset: 0 });
        Ok(Some(state))
    }

    fn put(&mut self, name: Name, state: State) {
        let known = Known { state, offset: self.offset };
        match self.young.get_mut(&name) {
            Some(young) => *young = known,
            None => {
                self.old.remove(&name);
                self.young.insert(name.clone(), known);
            }
        }
        self.changed.push((name, state));
    }
}

/// The state of a name as the view has it.
pub(crate) fn read(view: &PartitionEngine, name: &Name) -> Result<Option<State>, EngineError> {
    let mut stored = None;
    view.read(&mut |kv| {
        stored = kv.get(Space::Judged, name.as_bytes())?;
        Ok(())
    })?;
    decoded(stored)
}

fn decoded(stored: Option<Vec<u8>>) -> Result<Option<State>, EngineError> {
    let unreadable = || crate::messages::refused("a state in the view cannot be read".to_owned());
    stored.map(|stored| State::decode(&stored).ok_or_else(unreadable)).transpose()
}
