//! What readers and transactions see, at the engine's own boundary.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mainspring_api::SystemClock;
use mainspring_eventlog::{Engine, EngineError, Keep, KvRead, Space};
use mainspring_store_fjall::FjallEngine;
use mainspring_testkit::SeededRng;

use crate::support::small;

fn engine(path: &Path) -> FjallEngine {
    FjallEngine::open(&small(path), &SystemClock).unwrap()
}

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

fn scan(kv: &dyn KvRead, space: Space, from: &[u8], to: &[u8], max: usize) -> Entries {
    let mut found = Vec::new();
    kv.scan(space, from, to, &mut |key, value| {
        found.push((key.to_vec(), value.to_vec()));
        if found.len() == max { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
    .unwrap();
    found
}

/// Random transactions, kept, dropped and failed, beside a map.
#[test]
fn a_transaction_reads_what_it_wrote() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(&dir.path().join("a"));
    let mut rng = SeededRng::new(7);
    let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let key = |number: usize| format!("{number:02}").into_bytes();
    let range = |model: &BTreeMap<Vec<u8>, Vec<u8>>, from: &[u8], to: &[u8], max: usize| {
        let within = model.iter().filter(|(key, _)| from <= &key[..] && &key[..] < to);
        within.take(max).map(|(key, value)| (key.clone(), value.clone())).collect::<Entries>()
    };
    for round in 0..200 {
        let mut changed = model.clone();
        let end = rng.below(3);
        let result = engine.write(&mut |kv| {
            for step in 0..12 {
                let name = key(rng.below(40));
                match rng.below(5) {
                    0 | 1 => {
                        let value = format!("{round} {step}").into_bytes();
                        kv.put(Space::Notes, &name, &value)?;
                        changed.insert(name, value);
                    }
                    2 => {
                        kv.delete(Space::Notes, &name)?;
                        changed.remove(&name);
                    }
                    3 => assert_eq!(kv.get(Space::Notes, &name)?.as_ref(), changed.get(&name)),
                    _ => {
                        let (to, max) = (key(rng.below(40)), 1 + rng.below(20));
                        let found = scan(kv, Space::Notes, &name, &to, max);
                        assert_eq!(found, range(&changed, &name, &to, max));
                    }
                }
                assert_eq!(kv.get(Space::Named, b"01")?, None, "spaces are apart");
            }
            match end {
                0 => Ok(Keep::Yes),
                1 => Ok(Keep::No),
                _ => Err(EngineError { message: "given up".to_owned(), source: None }),
            }
        });
        assert_eq!(result.is_err(), end == 2);
        if end == 0 {
            model = changed;
        }
        engine
            .read(&mut |kv| {
                assert_eq!(
                    scan(kv, Space::Notes, b"", b"\xff", 99),
                    range(&model, b"", b"\xff", 99)
                );
                Ok(())
            })
            .unwrap();
    }
    engine.reopen().unwrap();
    engine
        .read(&mut |kv| {
            assert_eq!(scan(kv, Space::Notes, b"", b"\xff", 99), range(&model, b"", b"\xff", 99));
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_key_that_cannot_be_stored_fails_its_transaction_alone() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(&dir.path().join("a"));
    for bad in [b"".as_slice(), &[1; 65_536]] {
        let swallowed = engine.write(&mut |kv| {
            kv.put(Space::Notes, b"a", b"x")?;
            assert!(kv.put(Space::Notes, bad, b"x").is_err());
            Ok(Keep::Yes)
        });
        assert!(swallowed.is_err());
        engine
            .read(&mut |kv| {
                assert_eq!(kv.get(Space::Notes, b"a")?, None);
                assert_eq!(kv.get(Space::Notes, bad)?, None);
                Ok(())
            })
            .unwrap();
    }
    let long = [1; 65_535];
    let put = engine.write(&mut |kv| kv.put(Space::Notes, &long, b"x").map(|()| Keep::Yes));
    put.unwrap();
}

/// Each commit sets forty keys in two spaces to one number, while tables are
/// written and merged; no reader ever sees two numbers, or an older one again.
#[test]
fn no_reader_sees_a_part_of_a_commit() {
    const COMMITS: u64 = 1_500;
    let dir = tempfile::tempdir().unwrap();
    let engine = Arc::new(engine(&dir.path().join("a")));
    let done = Arc::new(AtomicBool::new(false));
    let set = |number: u64| {
        let value = number.to_be_bytes().repeat(40);
        engine
            .write(&mut |kv| {
                for key in 0..20_u8 {
                    kv.put(Space::Records, &[key], &value)?;
                    kv.put(Space::Rows, &[key], &value)?;
                }
                Ok(Keep::Yes)
            })
            .unwrap();
    };
    set(0);
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (engine, done) = (Arc::clone(&engine), Arc::clone(&done));
            std::thread::spawn(move || {
                let (mut last, mut reads) = (Vec::new(), 0);
                while !done.load(Ordering::Acquire) {
                    engine
                        .read(&mut |kv| {
                            let first = kv.get(Space::Records, &[0])?.unwrap();
                            for space in [Space::Records, Space::Rows, Space::Records] {
                                let all = scan(kv, space, &[0], &[0xff], 99);
                                assert_eq!(all.len(), 20);
                                assert!(all.iter().all(|(_, value)| *value == first));
                            }
                            assert!(last <= first, "time went backwards");
                            last = first;
                            reads += 1;
                            Ok(())
                        })
                        .unwrap();
                }
                reads
            })
        })
        .collect();
    for number in 1..COMMITS {
        set(number);
    }
    done.store(true, Ordering::Release);
    let reads: u64 = readers.into_iter().map(|reader| reader.join().unwrap()).sum();
    assert!(reads > 100, "{reads} reads");
}
