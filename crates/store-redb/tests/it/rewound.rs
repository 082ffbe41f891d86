//! Rows that do not fit their records: restored, rewound or damaged behind the store's back.

use std::ops::ControlFlow;
use std::path::Path;

use mainspring_api::{Fence, Head, SessionUid};
use mainspring_eventlog::{Engine as _, EventLog, Keep, Level, LogError, Space};
use mainspring_store_redb::RedbStore;
use mainspring_testkit::{fold_all, read_all, sample, verify_all};

use crate::support::{filled, open, text_batch};

type Entry = (Vec<u8>, Vec<u8>);

fn entries(log: &RedbStore, space: Space) -> Vec<Entry> {
    let mut found = Vec::new();
    let read = log.engine().read(&mut |kv| {
        kv.scan(space, &[], &[0xff; 64], &mut |key, value| {
            found.push((key.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        })
    });
    read.unwrap();
    found
}

/// Puts the row back as it was after `rewound` of `len` records, as a bad
/// restore would, and opens the store again.
async fn rewound(path: &Path, len: usize, rewound: usize) -> (RedbStore, SessionUid, Head) {
    let log = open(path).unwrap();
    let (uid, mut at) = filled(&log, "s", rewound).await;
    let row = entries(&log, Space::Rows).remove(0);
    for number in rewound..len {
        let batch = text_batch(at, &format!("late {number}"));
        at = log.append(&uid, sample::fresh_id(), Fence::NONE, &batch).await.unwrap();
    }
    let written = log.engine().write(&mut |kv| {
        kv.put(Space::Rows, &row.0, &row.1)?;
        Ok(Keep::Yes)
    });
    written.unwrap();
    drop(log);
    (open(path).unwrap(), uid, at)
}

/// A row that is behind its records never lets one of them be written over:
/// it is folded forward from them.
#[tokio::test]
async fn b11_a_row_behind_its_records_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let (log, uid, at) = rewound(&dir.path().join("s.redb"), 8, 5).await;
    let before = entries(&log, Space::Records);
    let stale = log.get(&uid, Level::Strict).await.unwrap().view.head;
    let batch = text_batch(stale, "over what is there");
    let appended = log.append(&uid, sample::fresh_id(), Fence::NONE, &batch).await;
    assert!(matches!(appended, Err(LogError::Conflict { head, .. }) if head == at), "{appended:?}");
    assert!(entries(&log, Space::Records) == before, "a record was written over");
    assert_eq!(verify_all(&log, &uid).await.unwrap(), at);
    let row = log.get(&uid, Level::Strict).await.unwrap();
    assert_eq!(fold_all(&log, &uid).await.unwrap(), row.view);
}

/// A row that is ahead of its records is not appended to, and is told from a
/// journal that ends there.
#[tokio::test]
async fn b11_a_row_ahead_of_its_records_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(&dir.path().join("s.redb")).unwrap();
    let (uid, at) = filled(&log, "s", 8).await;
    let last = entries(&log, Space::Records).pop().unwrap();
    let written = log.engine().write(&mut |kv| {
        kv.delete(Space::Records, &last.0)?;
        Ok(Keep::Yes)
    });
    written.unwrap();
    drop(log);
    let log = open(&dir.path().join("s.redb")).unwrap();
    let verified = verify_all(&log, &uid).await;
    assert!(matches!(verified, Err(LogError::Tampered { .. })), "{verified:?}");
    let read = read_all(&log, &uid).await;
    assert!(matches!(read, Err(LogError::Tampered { .. })), "{read:?}");
    let late = text_batch(at, "after a gap");
    let appended = log.append(&uid, sample::fresh_id(), Fence::NONE, &late).await;
    assert!(matches!(appended, Err(LogError::Tampered { .. })), "{appended:?}");
}
