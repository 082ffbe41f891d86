//! Golden journals (B32): every later version makes and re-executes them, byte for byte.
//!
//! `testdata/journals/README.md` says what may be done to the files.

mod harnesses;
mod host;
mod journals;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use futures_util::{StreamExt as _, stream};
use mainspring_api::{EventBody, Head};
use mainspring_eventlog::export::{Line, parse_line};
use mainspring_eventlog::{ImportRecord, ImportRow};
use mainspring_testkit::sample;

use crate::support::{Cell, Fixture, Kept, Reach, run};

/// Set to write the files that are missing. What is there is never written over.
const WRITE: &str = "MAINSPRING_WRITE_JOURNALS";

fn folder(version: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/journals").join(version)
}

/// The folder of the form that this version writes.
const CURRENT: &str = "v1";

fn check(path: &Path, made: &[u8]) {
    if !path.exists() && std::env::var_os(WRITE).is_some() {
        std::fs::write(path, made).unwrap();
    }
    let file = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let (file, made) = (String::from_utf8_lossy(&file), String::from_utf8_lossy(made));
    for (number, (ours, theirs)) in (1..).zip(made.lines().zip(file.lines())) {
        assert_eq!(ours, theirs, "{}, line {number}", path.display());
    }
    assert_eq!(made, file, "{}", path.display());
}

fn output_lines(outputs: &[String]) -> String {
    let line = |output: &String| serde_json::to_string(output).unwrap() + "\n";
    outputs.iter().map(line).collect()
}

/// Each family's session, driven once more with the same time and randomness, is the file's bytes.
#[test]
fn b32_golden_journals_are_made_again() {
    let cell = Cell { reach: Reach::InProcess, kept: Kept::Memory };
    run(cell, async |session| {
        for (name, make) in journals::all() {
            let host = make(session.clone()).await;
            let made = host.export().await;
            check(&folder(CURRENT).join(format!("{name}.ndjson")), &made);
            let outputs = output_lines(&host.replayed().await);
            check(&folder(CURRENT).join(format!("{name}.outputs")), outputs.as_bytes());
        }
    });
}

/// Every file that is kept, of whatever version.
fn files() -> Vec<PathBuf> {
    let mut files = Vec::new();
    for version in std::fs::read_dir(folder("")).unwrap().map(|entry| entry.unwrap().path()) {
        if version.is_dir() {
            files.extend(std::fs::read_dir(version).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    files.retain(|file| file.extension().is_some_and(|end| end == "ndjson"));
    files.sort();
    files
}

/// The file in the store of the session's cell; and the head that it states.
async fn imported(session: &Fixture, path: &Path) -> (Fixture, Head) {
    let file = std::fs::read_to_string(path).unwrap();
    let mut stated: Option<(Head, Box<ImportRow>)> = None;
    let mut records = Vec::new();
    for (number, line) in (1..).zip(file.lines()) {
        assert!(stated.is_none(), "the head line is the last");
        match parse_line(number, line.as_bytes()).unwrap() {
            Line::Record(record) => records.push(Ok(ImportRecord::Record(record))),
            Line::Head(head, row) => {
                let row = row.expect("an export's head line has the row");
                records.push(Ok(ImportRecord::Head(head, Some(row.clone()))));
                stated = Some((head, row));
            }
        }
    }
    let (head, row) = stated.expect("an export ends with its head");
    let imported = session.session(&row.session.uid);
    let records = stream::iter(records).boxed();
    imported.log.import(sample::fresh_id(), *row, records).await.unwrap();
    (imported, head)
}

/// The one harness that the journal names, with its version; empty for none.
async fn named(session: &Fixture) -> (String, String) {
    let events = session.events().await;
    let names: BTreeSet<_> = events
        .into_iter()
        .filter_map(|event| match event.body {
            EventBody::ExecutionStart(Some(start)) => Some((start.harness, start.harness_version)),
            _ => None,
        })
        .filter(|(name, _)| !name.is_empty())
        .collect();
    assert!(names.len() <= 1, "one harness replays a journal: {names:?}");
    names.into_iter().next().unwrap_or_default()
}

/// Every kept journal, of every version, re-executes to the outputs beside it, with no call and no change.
async fn b32_golden_journals_replay(session: Fixture) {
    let files = files();
    assert!(files.len() >= journals::all().len());
    let session = session.with_tools();
    for path in files {
        let what = path.display().to_string();
        let outputs = std::fs::read_to_string(path.with_extension("outputs")).unwrap();
        let outputs: Vec<String> =
            outputs.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let (session, head) = imported(&session, &path).await;
        assert_eq!(session.head().await, head, "{what}");
        let (name, version) = named(&session).await;
        let placed = session.place(harnesses::registered(&name, &version)).await;
        // Which also checks that neither model nor tool was called and nothing changed.
        let replayed = session.replay(&placed).await.unwrap_or_else(|e| panic!("{what}: {e:?}"));
        assert_eq!(replayed.outputs, outputs, "{what}");
        assert_eq!((session.head().await, session.model.calls()), (head, 0), "{what}");
        let resumed = session.resume(&placed).await;
        assert!(!resumed.resumed && resumed.result.is_ok(), "{what}: {resumed:?}");
        assert_eq!(session.records().await.last().map(|record| record.head()), Some(head));
    }
}

matrix! {
    run:
    everywhere {
        #[test] fn b32_golden_journals_replay;
    }
}
