//! Exports and imports that were interrupted and go on.

use std::io::Write as _;
use std::process::Stdio;

use crate::support::{Dir, session_of};

/// A session of a few turns, and its whole export.
fn exported(dir: &Dir) -> (String, Vec<u8>) {
    let session = dir.exec("one");
    for input in ["two", "three \u{1f600}"] {
        dir.run(&["exec", "--session", &session, "--input", input]).ok();
    }
    let whole = dir.run(&["export", "--session", &session]).ok();
    (session, whole.into_bytes())
}

#[test]
fn an_export_goes_on_from_wherever_it_was_cut() {
    let dir = Dir::new();
    let (session, whole) = exported(&dir);
    let args = ["export", "--session", &session, "--file", "e", "--resume"];
    let ends: Vec<usize> =
        whole.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at).collect();
    let around = ends.iter().flat_map(|end| [*end, end + 1, end + 2]);
    let cuts = (0..whole.len()).step_by(211).chain(around).filter(|cut| *cut <= whole.len());
    for cut in cuts {
        dir.write("e.partial", &whole[..cut]);
        let done = dir.run(&args);
        let anew = done.stderr.contains("starting with the first record");
        assert_eq!(anew, cut <= ends[0], "cut at {cut}: {}", done.stderr);
        let shown = done.ok();
        assert!(shown.contains("records=15 file=e"), "cut at {cut}: {shown}");
        assert!(std::fs::read(dir.path("e")).unwrap() == whole, "cut at {cut}");
        assert!(!dir.path("e.partial").exists());
        std::fs::remove_file(dir.path("e")).unwrap();
    }
}

#[test]
fn what_is_no_part_of_the_journal_is_not_gone_on_from() {
    let dir = Dir::new();
    let (session, whole) = exported(&dir);
    let lines: Vec<&[u8]> = whole.split_inclusive(|byte| *byte == b'\n').collect();
    let (other, theirs) = exported(&dir);
    assert_ne!(session, other);
    let half = theirs.len() / 2;
    let edited = String::from_utf8(lines[..4].concat()).unwrap().replacen("one", "two", 1);
    let swapped = [lines[1], lines[0]].concat();
    let fenced = String::from_utf8(lines[..3].concat()).unwrap();
    let last = fenced.rfind("\"fence\":\"1\"").unwrap();
    let fenced = format!("{}\"fence\":\"2\"{}", &fenced[..last], &fenced[last + 11..]);
    for (partial, says) in [
        (&theirs[..half], "is not a part of this journal"),
        (edited.as_bytes(), "does not verify"),
        (&swapped, "does not verify"),
        (fenced.as_bytes(), "is not a part of this journal"),
        (b"no journal\n", "does not verify"),
        (b"", "holds no whole record"),
    ] {
        dir.write("e.partial", partial);
        let done = dir.run(&["export", "--session", &session, "--file", "e", "--resume"]);
        assert!(done.stderr.contains(says), "{says:?} is not in {}", done.stderr);
        done.ok();
        assert!(std::fs::read(dir.path("e")).unwrap() == whole, "{says}");
    }
    // Without --resume it starts with the first record, and says nothing.
    dir.write("e.partial", &theirs[..half]);
    let done = dir.run(&["export", "--session", &session, "--file", "e"]);
    assert_eq!(done.stderr, "");
    done.ok();
    assert!(std::fs::read(dir.path("e")).unwrap() == whole);
}

#[test]
fn two_exports_to_one_file_do_not_mix() {
    let dir = Dir::new();
    let (session, whole) = exported(&dir);
    dir.write("e.partial", &whole[..whole.len() / 2]);
    let first = std::fs::File::open(dir.path("e.partial")).unwrap();
    first.lock().unwrap();
    for resume in [&["--resume"][..], &[]] {
        let args = ["export", "--session", &session, "--file", "e"];
        dir.run(&[&args, resume].concat()).fails(6, "another export writes e.partial");
    }
    assert_eq!(std::fs::read(dir.path("e.partial")).unwrap(), &whole[..whole.len() / 2]);
    drop(first);
    dir.run(&["export", "--session", &session, "--file", "e", "--resume"]).ok();
    assert!(std::fs::read(dir.path("e")).unwrap() == whole);
}

#[test]
fn an_export_that_fails_keeps_what_it_has_and_says_how_to_go_on() {
    let dir = Dir::new();
    let (session, whole) = exported(&dir);
    // The name is taken by a folder when the file is whole.
    std::fs::create_dir(dir.path("e.partial")).unwrap();
    let args = ["export", "--session", &session, "--file", "e"];
    dir.run(&args).fails(2, "is not a file");
    std::fs::remove_dir(dir.path("e.partial")).unwrap();
    dir.run(&["export", "--session", &session, "--resume"]).fails(2, "--file");
    dir.run(&["export", "--session", &session, "--resume", "--file", "-"]).fails(2, "plain file");
    dir.run(&["export", "--session", "sess-0", "--file", "e", "--resume"]).fails(3, "not_found");
    assert!(!dir.path("e.partial").exists());

    // A journal that is damaged at its end fails after its first records.
    damage_record(&dir, &session, 12);
    let failed = dir.run(&args);
    assert!(failed.stderr.contains("e.partial is kept: run again with --resume"), "{failed:?}");
    assert_eq!(failed.code, 1);
    let kept = std::fs::read(dir.path("e.partial")).unwrap();
    assert!(whole.starts_with(&kept) && kept.ends_with(b"\n") && !kept.is_empty());
    assert!(!dir.path("e").exists());
    let failed = dir.run(&[&args[..], &["-o", "json"]].concat());
    for line in failed.stderr.lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap();
    }
}

/// Overwrites a record of a session in its store.
fn damage_record(dir: &Dir, session: &str, seq: u64) {
    use mainspring::eventlog::{Engine as _, Keep, Space};
    use mainspring::store_redb::{RedbConfig, RedbEngine};
    let config = RedbConfig::at(dir.path("mainspring.redb"));
    let engine = RedbEngine::open(&config, &mainspring::api::SystemClock).unwrap();
    let key = [session.as_bytes(), &[0], &seq.to_be_bytes()].concat();
    let done = engine.write(&mut |kv| {
        kv.put(Space::Records, &key, b"damaged")?;
        Ok(Keep::Yes)
    });
    done.unwrap();
}

/// The id that a failed import tells.
#[track_caller]
fn kept_id(stderr: &str) -> String {
    let (_, id) = stderr.split_once("is kept: run again with --resume ").unwrap_or_else(|| {
        panic!("no id in {stderr}");
    });
    id.split_whitespace().next().unwrap().to_owned()
}

#[test]
fn an_import_whose_source_ends_early_can_go_on() {
    let dir = Dir::new();
    let (session, whole) = exported(&dir);
    let import = ["import", "--journal", "in.redb"];
    let cut = dir.run_with_input(&import, &whole[..whole.len() / 2]);
    assert_eq!(cut.code, 1, "{}", cut.stderr);
    let id = kept_id(&cut.stderr);
    assert_eq!(dir.run(&["list", "--journal", "in.redb"]).ok(), "");
    dir.run_with_input(&[&import[..], &["--resume", &id]].concat(), &whole).ok();
    let again = dir.run(&["export", "--session", &session, "--journal", "in.redb"]).ok();
    assert!(again.into_bytes() == whole);
    // What is published already answers the same.
    dir.run_with_input(&[&import[..], &["--resume", &id]].concat(), &whole).ok();
    dir.run(&["import", "--resume", "xyz"]).fails(2, "--resume");
    // Bad input is not worth another try.
    let bad = dir.run_with_input(&import, b"{}\n");
    assert!(!bad.stderr.contains("is kept"), "{}", bad.stderr);
}

#[test]
fn an_interrupted_import_says_how_to_go_on() {
    let dir = Dir::new();
    let big = dir.write("big", "x".repeat(400_000));
    let session = session_of(&dir.run(&["exec", "--input-file", &big]).ok());
    let whole = dir.run(&["export", "--session", &session]).ok().into_bytes();
    let mut command = dir.command(&["import", "--journal", "in.redb"]);
    command.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // More than a pipe holds: when it is written, the import is under way.
    stdin.write_all(&whole[..300_000]).unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let out = child.wait_with_output().unwrap();
    assert_eq!(out.status.code(), Some(130));
    drop(stdin);
    let id = kept_id(&String::from_utf8(out.stderr).unwrap());
    let args = ["import", "--journal", "in.redb", "--resume", &id];
    dir.run_with_input(&args, &whole).ok();
    let again = dir.run(&["export", "--session", &session, "--journal", "in.redb"]).ok();
    assert!(again.into_bytes() == whole);
}

/// A line without an end is refused at its bound, and not held in memory beyond it.
#[test]
fn a_line_or_a_vector_file_beyond_its_bound_is_refused() {
    let dir = Dir::new();
    let endless = std::fs::File::create(dir.path("endless")).unwrap();
    endless.set_len(1 << 40).unwrap();
    dir.run(&["verify", "--file", "endless"]).fails(2, "the bound is 134217728");
    dir.run(&["import", "--file", "endless"]).fails(2, "value_too_large");
    dir.write("vector", "{\n");
    let vector = std::fs::OpenOptions::new().write(true).open(dir.path("vector")).unwrap();
    vector.set_len(1 << 40).unwrap();
    dir.run(&["verify", "--file", "vector"]).fails(2, "vector file is 67108865 bytes");
    dir.run(&["import", "--file", "vector"]).fails(2, "value_too_large");
}
