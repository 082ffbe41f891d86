//! One session of a million records.

use std::sync::Arc;

use mainspring_api::{Head, Seq};
use mainspring_eventlog::{EventLog as _, Level};
use mainspring_testkit::scale::{Phases, in_child};
use mainspring_testkit::{create, sample};

use crate::journal::{append_turns, export, import, open, page, same_bytes, verify};

const RECORDS: u64 = 1_000_000;
const TURNS: u64 = RECORDS / 5;

/// Pages of any size, read while appends go on, are the log: every record,
/// once, in order. The whole takes no more memory than a short journal does.
#[test]
fn b10_a_million_records_are_paged_verified_exported_and_imported() {
    in_child("long::b10_a_million_records_are_paged_verified_exported_and_imported", async |dir| {
        let path = dir.path().join("long.redb");
        let log = open(&path);
        let uid = sample::session("long");
        create(&*log, &uid).await.unwrap();
        let mut phases = Phases::start();

        let (writer, its_uid) = (Arc::clone(&log), uid.clone());
        let appends = tokio::spawn(async move {
            append_turns(&writer, &its_uid, Head::EMPTY, 0..TURNS, 500).await
        });
        let reader = |size| {
            let (log, uid) = (Arc::clone(&log), uid.clone());
            tokio::spawn(
                async move { page(&log, &uid, Head::EMPTY, Seq::new(RECORDS), size).await },
            )
        };
        let readers = [reader(7), reader(1_000)];
        let (single, its_uid) = (Arc::clone(&log), uid.clone());
        let one_by_one =
            tokio::spawn(
                async move { page(&single, &its_uid, Head::EMPTY, Seq::new(2_000), 1).await },
            );
        let head = appends.await.unwrap();
        phases.done("append, with readers behind", &path);
        assert_eq!(head.seq.get(), RECORDS);
        assert_eq!(one_by_one.await.unwrap().seq.get(), 2_000);
        for reader in readers {
            assert_eq!(reader.await.unwrap(), head);
        }
        phases.done("the rest of the readers", &path);

        assert_eq!(verify(&log, &uid).await, head);
        phases.done("verify", &path);
        let exported = dir.path().join("long.ndjson");
        let row = export(&log, &uid, &exported).await;
        phases.done("export", &exported);
        drop(log);
        std::fs::remove_file(&path).unwrap();

        let path = dir.path().join("imported.redb");
        let log = open(&path);
        let imported = import(&log, &exported).await;
        phases.done("import", &path);
        assert_eq!(imported.view, row.view);
        assert_eq!(log.head(&uid, Level::Strict).await.unwrap(), head);
        let again = dir.path().join("again.ndjson");
        export(&log, &uid, &again).await;
        assert!(same_bytes(&exported, &again), "what is exported again is the same");
        phases.done("export again", &again);
        phases.check();
    });
}
