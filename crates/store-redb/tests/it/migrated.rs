//! Files of an older version: copied aside, then migrated.

use std::os::unix::fs::PermissionsExt as _;

use mainspring_testkit::{fold_all, read_all, verify_all};

use crate::support::{filled, open};
use crate::versions::edit_schema;

#[tokio::test]
async fn an_older_file_is_copied_aside_and_migrated() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.redb");
    let (uid, at) = filled(&open(&path).unwrap(), "s", 20).await;
    edit_schema(&path, b"1");
    let store = open(&path).unwrap();
    assert_eq!(verify_all(&store, &uid).await.unwrap(), at);
    assert_eq!(fold_all(&store, &uid).await.unwrap().head, at);
    let all = read_all(&store, &uid).await.unwrap();
    drop(store);
    let copy = dir.path().join("s.redb.schema-1");
    assert_eq!(std::fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(open(&path).is_ok());

    // What the copy holds is all there: it is a store of its own.
    let elsewhere = dir.path().join("back.redb");
    std::fs::copy(&copy, &elsewhere).unwrap();
    let back = open(&elsewhere).unwrap();
    assert_eq!(read_all(&back, &uid).await.unwrap(), all);
    assert!(dir.path().join("back.redb.schema-1").exists(), "it was of the older version");
}

/// A migration that is tried again keeps the first copy: that is the older one.
#[tokio::test]
async fn a_copy_that_is_there_stays() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.redb");
    filled(&open(&path).unwrap(), "s", 2).await;
    edit_schema(&path, b"1");
    let copy = dir.path().join("s.redb.schema-1");
    std::fs::write(&copy, "of before").unwrap();
    std::fs::write(dir.path().join("s.redb.schema-1.partial"), "of a crash").unwrap();
    assert!(open(&path).is_ok());
    assert_eq!(std::fs::read(&copy).unwrap(), b"of before");
}
