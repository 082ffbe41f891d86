//! Exports, imports, verification, and the recorded journals.

use crate::support::{Dir, root, session_of};

fn vector(name: &str) -> String {
    root().join(format!("testdata/vectors/journals/{name}.json")).to_str().unwrap().to_owned()
}

/// Imports a recorded journal into a fresh store; returns its uid.
fn imported(dir: &Dir, name: &str) -> String {
    let out = dir.run(&["import", "--file", &vector(name), "--harness", "echo"]).ok();
    out.split_whitespace().nth(1).unwrap().to_owned()
}

fn exported(dir: &Dir) -> (String, Vec<String>) {
    let session = dir.exec("one");
    dir.run(&["exec", "--session", &session, "--input", "two"]).ok();
    let out = dir.run(&["export", "--session", &session]).ok();
    (session, out.lines().map(|line| format!("{line}\n")).collect())
}

#[test]
fn recorded_journals_verify() {
    let dir = Dir::new();
    for name in [
        "completed",
        "crashed-input",
        "crashed-model",
        "mixed-completed",
        "multi-turn",
        "upgraded-resume",
    ] {
        let out = dir.run(&["verify", "--file", &vector(name)]).ok();
        assert!(out.contains("head not attested"), "{name}: {out}");
    }
    assert!(!dir.path("mainspring.redb").exists(), "a file is verified without a store");
}

#[test]
fn recorded_journals_do_what_they_hold() {
    let dir = Dir::new();
    let replay = |uid: &str| dir.run(&["replay", "--re-execute", "--session", uid]);
    let resume = |uid: &str| dir.run(&["resume", "--session", uid]);

    let uid = imported(&dir, "completed");
    assert_eq!(replay(&uid).ok(), "echo:hello\nturns=1 model_calls=0\n");
    let out = resume(&uid).ok();
    assert!(out.starts_with("seq=5   EVENT_LIFECYCLE\n"), "only the resume itself: {out}");

    let uid = imported(&dir, "crashed-input");
    let out = resume(&uid).ok();
    assert!(
        out.contains("seq=3   EVENT_OUTPUT  assistant: echo:hello\nseq=4   EVENT_END"),
        "{out}"
    );
    let records = dir.run(&["replay", "--session", &uid, "-o", "json"]).ok();
    assert!(!records.contains("execution_id"), "an id-less turn is finished id-less: {records}");

    let uid = imported(&dir, "crashed-model");
    resume(&uid).fails(5, "expected a recorded completion");
    let records = dir.run(&["replay", "--session", &uid]).ok();
    assert!(
        records.ends_with("seq=3   EVENT_ERROR  expected a recorded completion\n"),
        "{records}"
    );

    let uid = imported(&dir, "mixed-completed");
    assert_eq!(replay(&uid).ok(), "echo:hello\necho:new\nturns=2 model_calls=0\n");

    let uid = imported(&dir, "multi-turn");
    replay(&uid).fails(5, "replay_diverged");

    let uid = imported(&dir, "upgraded-resume");
    assert_eq!(replay(&uid).ok(), "echo:hello\nturns=1 model_calls=0\n");
    dir.run(&["verify", "--session", &uid]).ok();
}

#[test]
fn an_export_imports_into_another_store_and_exports_the_same_bytes() {
    let dir = Dir::new();
    let (session, lines) = exported(&dir);
    let file = dir.write("e.ndjson", lines.concat());
    dir.run(&["import", "--file", &file, "--journal", "other.redb"]).ok();
    let again = dir.run(&["export", "--session", &session, "--journal", "other.redb"]).ok();
    assert_eq!(again, lines.concat());
    // And once more, from a pipe into a third.
    let from_pipe = ["import", "--journal", "third.redb"];
    dir.run_with_input(&from_pipe, lines.concat().as_bytes()).ok();
    let third = dir.run(&["export", "--session", &session, "--journal", "third.redb"]).ok();
    assert_eq!(third, lines.concat());
    // The imported session goes on, and its fences stay above the imported ones.
    dir.run(&["exec", "--session", &session, "--input", "x", "--journal", "other.redb"]).ok();
    dir.run(&["verify", "--session", &session, "--journal", "other.redb"]).ok();
    dir.run(&["import", "--file", &file, "--journal", "other.redb"]).fails(6, "already exists");
}

#[test]
fn a_fjall_folder_is_used_as_a_file_is() {
    let dir = Dir::new();
    let on = |args: &[&str]| dir.run(&[args, &["--journal", "fjall:sessions"]].concat());
    on(&["list"]).fails(3, "there is no journal at sessions");
    assert!(!dir.path("sessions").exists(), "a command that reads creates nothing");
    let session = session_of(&on(&["exec", "--input", "hello"]).ok());
    on(&["exec", "--session", &session, "--input", "again"]).ok();
    let list = on(&["list"]).ok();
    assert_eq!(list, format!("{session}\tlast_seq=10\tcompute=LIVE\tharness=\tname=\n"));
    on(&["verify", "--session", &session]).ok();
    assert_eq!(
        on(&["replay", "--re-execute", "--session", &session]).ok(),
        "echo:hello\necho:again\nturns=2 model_calls=0\n"
    );
    // From one kind of store to the other and back, byte by byte.
    let exported = on(&["export", "--session", &session]).ok();
    let file = dir.write("e.ndjson", &exported);
    dir.run(&["import", "--file", &file]).ok();
    assert_eq!(dir.run(&["export", "--session", &session]).ok(), exported);
    let other = ["--journal", "fjall:other"];
    dir.run(&[&["import", "--file", &file], &other[..]].concat()).ok();
    let again = dir.run(&[&["export", "--session", &session], &other[..]].concat()).ok();
    assert_eq!(again, exported);
    assert!(dir.path("sessions/mainspring.json").exists());
    dir.run(&["list", "--journal", "sessions"]).fails(1, "is not a journal store");
}

#[test]
fn any_change_to_an_export_is_named_and_imports_nothing() {
    let dir = Dir::new();
    let (_, lines) = exported(&dir);
    let check = |lines: &[String], seq: usize, what: &str| {
        let file = dir.write("bad.ndjson", lines.concat());
        let says = format!("journal is tampered at seq {seq}:");
        let verified = dir.run(&["verify", "--file", &file]);
        assert!(verified.stderr.contains(&says), "{what} at {seq}: {}", verified.stderr);
        assert_eq!(verified.code, 1, "{what} at {seq}");
        dir.run(&["import", "--file", &file, "--journal", "in.redb"]).fails(1, &says);
    };
    for at in 0..lines.len() - 1 {
        let mut edited = lines.clone();
        edited[at] = edited[at].replacen("\"kind\":\"", "\"schema_version\":3,\"kind\":\"", 1);
        check(&edited, at + 1, "edited");
        let mut dropped = lines.clone();
        dropped.remove(at);
        check(&dropped, at + 1, "dropped");
        if at + 2 < lines.len() {
            let mut swapped = lines.clone();
            swapped.swap(at, at + 1);
            check(&swapped, at + 1, "swapped");
        }
    }
    assert_eq!(dir.run(&["list", "--journal", "in.redb"]).ok(), "");
}

#[test]
fn a_cut_tail_is_caught_by_the_expected_head() {
    let dir = Dir::new();
    let (session, mut lines) = exported(&dir);
    let out = dir.run(&["verify", "--session", &session]).ok();
    let head = out.trim_end().rsplit_once("head=").unwrap().1.to_owned();
    lines.truncate(lines.len() - 3);
    let file = dir.write("cut.ndjson", lines.concat());
    let out = dir.run(&["verify", "--file", &file]).ok();
    assert!(out.contains("head not attested"), "{out}");
    dir.run(&["verify", "--file", &file, "--expect-head", &head])
        .fails(1, "records are missing at the end");
    dir.run(&["verify", "--session", &session, "--expect-head", &head]).ok();
    dir.run(&["verify", "--session", &session, "--expect-head", "3"]).fails(2, "--expect-head");
}

#[test]
fn a_line_cut_in_the_middle_is_refused() {
    let dir = Dir::new();
    let (_, lines) = exported(&dir);
    let whole = lines.concat();
    let file = dir.write("cut.ndjson", &whole[..whole.len() / 2]);
    dir.run(&["verify", "--file", &file]).fails(1, "is not a line of a journal");
    dir.run(&["import", "--file", &file, "--journal", "in.redb"]).fails(1, "bad_line");
    assert_eq!(dir.run(&["list", "--journal", "in.redb"]).ok(), "");
}

#[test]
fn an_import_is_bounded_and_says_what_it_is_for() {
    let dir = Dir::new();
    let (_, lines) = exported(&dir);
    let import = |lines: &[String], args: &[&str]| {
        let file = dir.write("in.ndjson", lines.concat());
        let base = ["import", "--file", &file, "--journal", "in.redb"];
        dir.run(&[&base[..], args].concat())
    };
    let with = |at: usize, from: &str, to: &str| {
        let mut lines = lines.clone();
        lines[at] = lines[at].replacen(from, to, 1);
        lines
    };
    let fence = with(0, "\"fence\":\"1\"", "\"fence\":\"9223372036854775807\"");
    import(&fence, &[]).fails(2, "fence");
    let notes = with(0, "\"notes\":{", &format!("\"notes\":{{\"x\":\"{}\",", "n".repeat(70_000)));
    import(&notes, &[]).fails(2, "notes");
    let last = lines.len() - 1;
    let orphan = with(last, "\"project\"", "\"fork_seq\":\"1\",\"project\"");
    import(&orphan, &[]).fails(1, "fork_seq");
    import(&lines, &["--name", "mine"]).fails(1, "names its own");
    let mut more = lines.clone();
    more.push(lines[0].clone());
    import(&more, &[]).fails(1, "follows the head line");
    import(&[], &[]).fails(1, "neither a record nor a head");
    let empty = dir.write("empty", "");
    dir.run(&["verify", "--file", &empty]).fails(1, "neither a record nor a head");
    assert_eq!(dir.run(&["list", "--journal", "in.redb"]).ok(), "");
}
