//! `stats` and `compact`: a whole store, offline.

use std::os::unix::fs::PermissionsExt as _;

use mainspring::eventlog::{Engine as _, Keep, Space};
use mainspring::store_redb::{RedbConfig, RedbEngine};

use crate::support::{Dir, Serving};

/// Writes behind the store's back.
fn write(dir: &Dir, space: Space, key: &[u8], value: Option<&[u8]>) {
    let config = RedbConfig::at(dir.path("mainspring.redb"));
    let engine = RedbEngine::open(&config, &mainspring::api::SystemClock).unwrap();
    let done = engine.write(&mut |kv| {
        match value {
            Some(value) => kv.put(space, key, value)?,
            None => kv.delete(space, key)?,
        }
        Ok(Keep::Yes)
    });
    done.unwrap();
}

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn totals_are_those_of_the_sessions() {
    let dir = Dir::new();
    let session = dir.exec("hello");
    dir.run(&["exec", "--session", &session, "--input", &"long ".repeat(1_000)]).ok();
    dir.run(&["create", "--project", "other"]).ok();
    dir.run(&["fork", "--session", &session, "--at", "5"]).ok();

    let shown = dir.run(&["stats"]).ok();
    let stats = json(&dir.run(&["stats", "-o", "json"]).ok());
    assert_eq!(stats["sessions"], 3);
    assert_eq!(stats["sessions_by_state"]["EXEC_COMPLETED"], 2);
    assert_eq!(stats["sessions_by_state"]["EXEC_PENDING"], 1);
    // Ten, and five that are the fork's too, with its marker.
    assert_eq!((&stats["records"], &stats["shared_records"]), (&16.into(), &5.into()));
    assert_eq!(stats["largest"]["session"], session.as_str());
    assert_eq!(stats["schema_version"], mainspring::eventlog::SCHEMA_VERSION);
    let disk = std::fs::metadata(dir.path("mainspring.redb")).unwrap().len();
    assert_eq!(stats["disk_bytes"], disk);
    let id = stats["store_id"].as_str().unwrap();
    let schema = mainspring::eventlog::SCHEMA_VERSION;
    assert!(shown.starts_with(&format!("store {id} schema={schema}\nsessions=3 ")), "{shown}");
    assert!(shown.contains("\nrecords=16 shared=5 canonical_bytes="), "{shown}");

    let one = json(&dir.run(&["stats", "--session", &session, "-o", "json"]).ok());
    assert_eq!(one["records"], 10);
    assert_eq!(one["canonical_bytes"], stats["largest"]["canonical_bytes"]);
    let line = dir.run(&["stats", "--session", &session]).ok();
    assert!(line.starts_with(&format!("session {session} records=10 canonical_bytes=")), "{line}");
}

#[test]
fn a_compacted_store_holds_the_same_and_is_smaller() {
    let dir = Dir::new();
    dir.exec("first");
    write(&dir, Space::Named, b"junk", Some(&vec![7; 3_000_000]));
    let session = dir.exec("hello");
    write(&dir, Space::Named, b"junk", None);
    let before = dir.run(&["export", "--session", &session]).ok();
    dir.write("mainspring.redb.compact", "of a compaction that was killed");
    let done = json(&dir.run(&["compact", "-o", "json"]).ok());
    let bytes = |name: &str| done[name].as_u64().unwrap();
    assert!(bytes("after_bytes") < bytes("before_bytes"), "{done}");
    assert_eq!(bytes("freed_bytes"), bytes("before_bytes") - bytes("after_bytes"));
    assert_eq!(dir.run(&["export", "--session", &session]).ok(), before);
    assert!(!dir.path("mainspring.redb.compact").exists());
    let mode = dir.path("mainspring.redb").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let again = dir.run(&["compact", "--journal", "redb:mainspring.redb"]).ok();
    assert!(again.starts_with("compacted redb:mainspring.redb before="), "{again}");
    dir.run(&["exec", "--session", &session, "--input", "again"]).ok();
}

#[test]
fn what_is_no_store_of_ours_or_is_held_is_refused_and_left_alone() {
    let dir = Dir::new();
    let foreign = dir.write("foreign", vec![b'x'; 10_000]);
    for command in ["stats", "compact"] {
        dir.run(&[command]).fails(3, "journal_not_found");
        dir.run(&[command, "--journal", "no/such/a.redb"]).fails(3, "journal_not_found");
        dir.run(&[command, "--journal", &foreign]).fails(1, "not_a_store");
        dir.run(&[command, "--journal", "nowhere:x"]).fails(1, "present are: fjall, ");
        dir.run(&[command, "--journal", "memory:"]).fails(1, "does not support");
        dir.run(&[command, "--server", "127.0.0.1:1"]).fails(2, "takes no --server");
        dir.run(&[command, "--nope"]).fails(2, "--nope");
    }
    dir.run(&["compact", "--journal", &foreign, "-o", "json"]).fails(1, "\"not_a_store\"");
    assert_eq!(std::fs::read(&foreign).unwrap(), vec![b'x'; 10_000]);
    assert!(!dir.path("mainspring.redb").exists(), "none was created");

    let server = Serving::start(&dir, &["serve", "--addr", "127.0.0.1:0"]);
    for command in ["stats", "compact"] {
        dir.run(&[command]).fails(7, "store_held");
    }
    assert_eq!(server.terminate(), 0);
    dir.run(&["stats", "--session", "sess-0"]).fails(3, "session_not_found");
    dir.run(&["stats", "--session", "a/b"]).fails(2, "invalid session uid");
}

#[test]
fn a_newer_store_is_refused_untouched() {
    let dir = Dir::new();
    dir.exec("hello");
    let path = dir.path("mainspring.redb");
    write(&dir, Space::Meta, b"schema", Some(b"99"));
    let before = std::fs::read(&path).unwrap();
    for command in ["stats", "compact"] {
        dir.run(&[command]).fails(1, "unsupported_schema");
    }
    assert!(std::fs::read(&path).unwrap() == before);
}
