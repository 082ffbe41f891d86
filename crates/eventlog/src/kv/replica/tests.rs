//! Steps of any size come to the same, and put each row once.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Mutex;

use mainspring_api::{AppendId, EventBody, ExecutionStart, Fence, HarnessEnd};

use super::*;
use crate::engine::{EngineUsage, Keep, Visit};
use crate::log::{Holder, RowPatch};
use crate::memory::MemoryEngine;

/// An engine that counts how often each key is put.
#[derive(Debug, Default)]
struct Counting {
    engine: MemoryEngine,
    puts: Mutex<BTreeMap<(&'static str, Vec<u8>), usize>>,
}

struct Puts<'a>(&'a mut dyn KvWrite, &'a Counting);

impl KvRead for Puts<'_> {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        self.0.get(space, key)
    }

    fn scan(
        &self,
        space: Space,
        from: &[u8],
        to: &[u8],
        visit: &mut Visit<'_>,
    ) -> Result<(), EngineError> {
        self.0.scan(space, from, to, visit)
    }
}

impl KvWrite for Puts<'_> {
    fn put(&mut self, space: Space, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        let mut puts = self.1.puts.lock().expect("not poisoned");
        *puts.entry((space.name(), key.to_vec())).or_default() += 1;
        self.0.put(space, key, value)
    }

    fn delete(&mut self, space: Space, key: &[u8]) -> Result<(), EngineError> {
        self.0.delete(space, key)
    }
}

impl Engine for Counting {
    fn read(
        &self,
        f: &mut dyn FnMut(&dyn KvRead) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        self.engine.read(f)
    }

    fn write(
        &self,
        f: &mut dyn FnMut(&mut dyn KvWrite) -> Result<Keep, EngineError>,
    ) -> Result<(), EngineError> {
        self.engine.write(&mut |kv| f(&mut Puts(kv, self)))
    }

    fn reopen(&self) -> Result<(), EngineError> {
        self.engine.reopen()
    }

    fn is_durable(&self) -> bool {
        self.engine.is_durable()
    }

    fn backup(&self, label: &str) -> Result<Option<std::path::PathBuf>, EngineError> {
        self.engine.backup(label)
    }

    fn usage(&self) -> Result<EngineUsage, EngineError> {
        self.engine.usage()
    }
}

fn uid(name: &str) -> SessionUid {
    SessionUid::new(name).expect("a uid")
}

fn id(number: u8) -> AppendId {
    AppendId::new([number; 16])
}

/// What many writers came to: sessions that are written to in turn, one of which
/// breaks, and one that starts after it did.
fn history() -> Vec<Op> {
    let mut ops = Vec::new();
    let mut heads: BTreeMap<&str, Head> = BTreeMap::new();
    let mut number = 0;
    let mut next = || {
        number += 1;
        id(number)
    };
    for name in ["one", "two", "broken"] {
        let session = Box::new(NewSession::bare(uid(name), "default"));
        ops.push(Op::Create { id: next(), session });
        heads.insert(name, Head::EMPTY);
    }
    for round in 0..4_u64 {
        for name in ["one", "two", "broken"] {
            let execution = ExecutionId::new(&format!("exec-{name}-{}", round / 2)).expect("an id");
            let body = if round % 2 == 0 {
                EventBody::ExecutionStart(Some(ExecutionStart::default()))
            } else {
                EventBody::End(Some(HarnessEnd::completed()))
            };
            let event = Event::in_execution(&execution, body);
            let at = if name == "broken" && round == 2 { Head::EMPTY } else { heads[name] };
            let batch = Batch::link(at, vec![event.into()]).expect("it links");
            heads.insert(name, batch.head());
            ops.push(Op::Append { id: next(), session: uid(name), fence: Fence::NONE, batch });
        }
    }
    let holder = Holder { id: "h".to_owned(), name: "host".to_owned() };
    let (current, session) = (Fence::NONE, uid("two"));
    ops.push(Op::Mint { id: next(), session, current, head: None, holder });
    let patch = RowPatch { name: Some("renamed".to_owned()), ..RowPatch::default() };
    ops.push(Op::Update { id: next(), session: uid("one"), version: 1, patch });
    let session = Box::new(NewSession::bare(uid("late"), "default"));
    ops.push(Op::Create { id: next(), session });
    ops
}

/// Applies a history in steps of this size; what is stored, and what was answered.
fn applied(ops: &[Op], step: usize) -> (Arc<Counting>, Vec<String>) {
    let engine = Arc::new(Counting::default());
    let replica = Replica::over(Arc::clone(&engine), Limits::default(), 1);
    let mut answers = Vec::new();
    for ops in ops.chunks(step) {
        let time = Timestamp { seconds: 1, nanos: 0 };
        let decided: Vec<Decided<'_>> = ops.iter().map(|op| Decided::Op(op, time)).collect();
        let mut step = Vec::new();
        let written = engine.write(&mut |kv| {
            step = replica.apply(kv, &decided, &|_| {})?;
            Ok(Keep::Yes)
        });
        written.expect("memory");
        replica.committed(&decided, &step);
        answers.extend(step.iter().map(|answer| format!("{answer:?}")));
    }
    (engine, answers)
}

fn stored(engine: &Counting) -> Vec<(Space, Vec<u8>, Vec<u8>)> {
    let mut all = Vec::new();
    let read = engine.read(&mut |kv| {
        all.clear();
        for space in Space::ALL {
            kv.scan(space, &[], &[0xff; 64], &mut |key, value| {
                all.push((space, key.to_vec(), value.to_vec()));
                ControlFlow::Continue(())
            })?;
        }
        Ok(())
    });
    read.expect("memory");
    all
}

#[test]
fn steps_of_every_size_come_to_the_same() {
    let ops = history();
    let (alone, answers) = applied(&ops, 1);
    let expected = stored(&alone);
    let row = |name: &str| {
        let found = expected
            .iter()
            .find(|(space, key, _)| *space == Space::Rows && *key == keys::row(&uid(name)));
        &found.expect("a row").2
    };
    assert!(row("broken").starts_with(b"!"), "it is left behind as broken");
    assert!(answers.iter().any(|answer| answer.contains("Conflict")), "{answers:?}");
    for step in 2..=ops.len() {
        let (engine, told) = applied(&ops, step);
        assert_eq!(stored(&engine), expected, "in steps of {step}");
        assert_eq!(told, answers, "in steps of {step}");
    }
}

#[test]
fn a_step_puts_each_row_once() {
    let ops = history();
    let (engine, _) = applied(&ops, ops.len());
    let puts = engine.puts.lock().expect("not poisoned");
    let rows: Vec<_> = puts.iter().filter(|((space, _), _)| *space == "rows").collect();
    assert_eq!(rows.len(), 4);
    for ((_, key), times) in rows {
        // The broken one is marked so for each thing that is done to it later.
        let broken = *key == keys::row(&uid("broken"));
        assert_eq!(*times == 1, !broken, "{key:?}: {times} times");
    }
}
