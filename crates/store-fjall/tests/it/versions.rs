//! Folders of other versions and other programs, and folders that are not there.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use mainspring_api::{Classify as _, ErrorKind, Outcome, SystemClock};
use mainspring_eventlog::{Engine as _, EventLog as _, Keep, LogError, SCHEMA_VERSION, Space};
use mainspring_store_fjall::{FjallConfig, FjallEngine};
use mainspring_testkit::{create, sample};

use crate::support::{contents, copy, filled, open};

/// Refuses to open `path`, leaving its bytes as they are.
#[track_caller]
fn refuse(path: &Path) -> LogError {
    let before = contents(path);
    let error = open(path).unwrap_err();
    assert_eq!(error.outcome(), Outcome::NotApplied);
    assert!(before == contents(path), "a refused open changed something");
    error
}

#[tokio::test]
async fn a_newer_version_is_refused_untouched() {
    let dir = tempfile::tempdir().unwrap();
    let (path, crashed) = (dir.path().join("a"), dir.path().join("crashed"));
    filled(&open(&path).unwrap(), "s", 20).await;
    let engine = FjallEngine::open(&FjallConfig::at(&path), &SystemClock).unwrap();
    let newer = (SCHEMA_VERSION + 1).to_string();
    engine
        .write(&mut |kv| {
            kv.put(Space::Meta, b"schema", newer.as_bytes())?;
            Ok(Keep::Yes)
        })
        .unwrap();
    copy(&path, &crashed);
    drop(engine);
    for folder in [&path, &crashed] {
        let error = refuse(folder);
        assert!(matches!(error, LogError::UnsupportedSchema { found, supported }
            if found == SCHEMA_VERSION + 1 && supported == SCHEMA_VERSION));
        assert_eq!(error.code(), "unsupported_schema");
    }
}

#[tokio::test]
async fn a_folder_that_was_not_closed_is_opened_with_all_it_had() {
    let dir = tempfile::tempdir().unwrap();
    let (path, crashed) = (dir.path().join("a"), dir.path().join("crashed"));
    let store = open(&path).unwrap();
    let (uid, at) = filled(&store, "s", 20).await;
    copy(&path, &crashed);
    drop(store);
    for folder in [&path, &crashed] {
        let store = open(folder).unwrap();
        assert_eq!(store.head(&uid, Default::default()).await.unwrap(), at);
        create(&store, &sample::session("t")).await.unwrap();
    }
}

#[test]
fn a_marker_that_cannot_be_read_is_damage() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    drop(open(&path).unwrap());
    let marker = path.join("mainspring.json");
    let good = std::fs::read_to_string(&marker).unwrap();
    let schema = format!("\"schema\":{SCHEMA_VERSION},");
    let spaces = |count: usize| format!("\"spaces\":{count}");
    for odd in [
        String::new(),
        good[..good.len() - 1].to_owned(),
        good.replace(&schema, "\"schema\":-1,"),
        good.replace(&schema, r#""schema":"one","#),
        good.replace("data-1", "data-7"),
        good.replace("data-1", "../a/data-1"),
        good.replace("data-1", ".."),
        good.replace(&spaces(Space::ALL.len()), &spaces(Space::ALL.len() + 1)),
    ] {
        assert_ne!(odd, good);
        std::fs::write(&marker, &odd).unwrap();
        assert!(matches!(refuse(&path), LogError::Corrupt { .. }), "{odd}");
    }
    for foreign in [r#"{"name": "my-package"}"#.to_owned(), " ".repeat(5_000)] {
        std::fs::write(&marker, foreign).unwrap();
        assert!(matches!(refuse(&path), LogError::NotAStore { .. }));
    }
    std::fs::write(&marker, good).unwrap();
    open(&path).unwrap();
}

#[test]
fn other_files_and_folders_are_refused_untouched() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "x").unwrap();
    assert!(matches!(open(&file).unwrap_err(), LogError::NotAStore { .. }));
    assert_eq!(std::fs::read(&file).unwrap(), b"x");

    let notes = dir.path().join("notes");
    std::fs::create_dir(&notes).unwrap();
    std::fs::write(notes.join("a.txt"), "x").unwrap();
    let foreign = dir.path().join("foreign");
    drop(fjall::Database::builder(&foreign).open().unwrap());
    for folder in [&notes, &foreign] {
        let error = refuse(folder);
        assert!(matches!(&error, LogError::NotAStore { why, .. } if why.contains("without")));
        assert_eq!(error.code(), "not_a_store");
    }
}

/// What a crash during creation may leave, step by step.
#[tokio::test]
async fn a_folder_that_was_not_created_to_the_end_becomes_a_store() {
    let dir = tempfile::tempdir().unwrap();
    let whole = dir.path().join("whole");
    drop(open(&whole).unwrap());
    let steps: [&dyn Fn(&Path); 5] = [
        &|path| std::fs::create_dir(path).unwrap(),
        &|path| std::fs::write(path.join("lock"), "").unwrap(),
        &|path| {
            std::fs::create_dir(path.join("data-1.new")).unwrap();
            std::fs::write(path.join("data-1.new/0.jnl"), "").unwrap();
        },
        &|path| {
            std::fs::remove_dir_all(path.join("data-1.new")).unwrap();
            copy(&whole.join("data-1"), &path.join("data-1"));
        },
        &|path| std::fs::write(path.join("mainspring.json.new"), "{").unwrap(),
    ];
    for count in 0..=steps.len() {
        let path = dir.path().join(count.to_string());
        for step in &steps[..count] {
            step(&path);
        }
        create(&open(&path).unwrap(), &sample::session("s")).await.unwrap();
        let store = open(&path).unwrap();
        store.get(&sample::session("s"), Default::default()).await.unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        assert!(!path.join("data-1.new").exists());
    }
}

#[test]
fn a_missing_directory_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let error = open(&dir.path().join("no/such")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("its directory must exist"), "{error}");
    assert!(!dir.path().join("no").exists());
}

/// Of several that create one folder at once, one has it and the others are told.
#[test]
fn one_creator_wins() {
    for _ in 0..5 {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let path = path.clone();
                std::thread::spawn(move || open(&path))
            })
            .collect();
        let opened: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        for refused in opened.iter().filter_map(|opened| opened.as_ref().err()) {
            assert!(matches!(refused, LogError::Held { .. }), "{refused}");
        }
        assert_eq!(opened.iter().filter(|opened| opened.is_ok()).count(), 1);
        drop(opened);
        open(&path).unwrap();
    }
}
