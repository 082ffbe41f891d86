//! Wrong calls, wrong inputs and wrong files: a typed error, and nothing changed.

use crate::support::{Dir, Serving};

#[test]
fn wrong_calls_are_refused_by_name() {
    let dir = Dir::new();
    let session = dir.exec("hello");
    let table: &[(&[&str], i32, &str)] = &[
        (&["exec", "--nope"], 2, "--nope"),
        (&["nope"], 2, "nope"),
        (&["get", "--session", "sess-000000000000000000000000"], 3, "session_not_found"),
        (&["exec", "--session", "sess-000000000000000000000000", "--input", "x"], 3, "not_found"),
        (&["replay", "--session", "sess-000000000000000000000000"], 3, "session_not_found"),
        (&["fork", "--session", "sess-000000000000000000000000"], 3, "session_not_found"),
        (&["suspend", "--session", "sess-000000000000000000000000"], 3, "session_not_found"),
        (&["resume", "--session", "sess-000000000000000000000000"], 3, "session_not_found"),
        (&["export", "--session", "sess-000000000000000000000000"], 3, "session_not_found"),
        (&["verify", "--session", "sess-000000000000000000000000"], 3, "session_not_found"),
        (&["get", "--session", "a/b"], 2, "invalid session uid"),
        (&["exec", "--input", "x", "--harness", "nope"], 2, "served are: echo"),
        (&["create", "--harness", "nope"], 2, "served are: chat, echo, gate"),
        (&["exec", "--input", "x", "--expected-last-seq", "4"], 6, "conflict"),
        (
            &["exec", "--session", &session, "--input", "x", "--expected-last-seq", "4"],
            6,
            "conflict",
        ),
        (
            &["exec", "--session", &session, "--input", "x", "--expected-last-seq", "-1"],
            2,
            "expected_last_seq",
        ),
        (&["fork", "--session", &session, "--at", "6"], 2, "the journal ends at 5"),
        (&["fork", "--session", &session, "--count", "129"], 2, "at most 128"),
        (&["fork", "--session", &session, "--count", "2", "--names", "a"], 2, "child_names"),
        (&["verify"], 2, "--session"),
        (&["verify", "--file", "nope"], 2, "nope"),
        (&["exec", "--input", "x", "--detach"], 2, "--detach needs a server"),
        (&["exec", "--input", "x", "--execution-id", "0123456789ABCDEF"], 2, "--execution-id"),
        (&["exec", "--execution-id", "0123456789abcdef", "--idempotency-key", "k"], 2, "key"),
        (&["exec", "--input", "x", "--tool", "a=exec:"], 2, "a"),
        (&["exec", "--input", "x", "--tool", "a=ftp:b"], 2, "a"),
        (&["exec", "--input", "x", "--tool", "a=exec:b", "--tool", "a=exec:c"], 2, "a"),
        (&["serve", "--addr", "0.0.0.0:0"], 2, "needs TLS"),
        (&["serve", "--harness", "echo=127.0.0.1:1"], 2, "built-in"),
        (&["serve", "--harness", "x"], 2, "NAME=ADDR"),
        (&["serve", "--harness", "x=http://127.0.0.1:1"], 2, "x"),
        (&["list", "--server", "127.0.0.1:1"], 7, "127.0.0.1:1"),
        (&["list", "--journal", "nowhere:x"], 1, "present are: fjall, "),
        #[cfg(not(feature = "kafka"))]
        (&["list", "--journal", "kafka://h:1/t"], 1, "it needs the feature kafka"),
        #[cfg(not(feature = "kafka"))]
        (&["kafka", "check", "--journal", "kafka://h:1/t"], 2, "no feature kafka"),
        #[cfg(feature = "kafka")]
        (&["list", "--journal", "kafka:t"], 1, "kafka://HOST:PORT"),
        (&["list", "--journal", "no/such/folder/a.redb"], 3, "journal_not_found"),
        (&["list", "--journal", "fjall:nothing"], 3, "journal_not_found"),
        (&["create", "--journal", "no/such/folder/a.redb"], 7, "no/such/folder"),
        (&["list", "--journal", "a.redb", "--server", "127.0.0.1:1"], 2, "--server"),
        (&["exec", "--input", "x", "--model-path", "/x"], 2, "--model"),
        (&["replay", "--session", "sess-0", "--re-execute", "--from", "2"], 2, "--from"),
        (&["delete", "--session", "a/b"], 2, "invalid session uid"),
        (&["describe"], 2, "--session"),
        (&["follow", "--session", "a/b"], 2, "invalid session uid"),
        (&["follow", "--session", "sess-0", "--after", "-1"], 2, "-1"),
        (&["list", "--state", "nope"], 2, "possible values: pending"),
        (&["list", "--owner", "you"], 2, "me"),
        (&["list", "--label", "a"], 2, "K=V"),
        (&["list", "--label", "a=b", "--label", "a=c"], 2, "twice"),
        (&["adopt", "--session", "sess-0", "--issuer", "", "--subject", "s"], 2, "--issuer"),
        (&["harness", "list"], 2, "--server is needed"),
        (&["harness", "get", "--name", "x"], 2, "--server is needed"),
        (&["harness", "retire", "--name", "x"], 2, "--server is needed"),
        (&["harness", "register", "--name", "x", "--spec", "nope"], 2, "nope"),
        (&["list", "--config-file", "nope.toml"], 2, "nope.toml"),
        (&["stats", "--server", "127.0.0.1:1"], 2, "stats works on a journal"),
        (&["serve", "--server", "127.0.0.1:1"], 2, "--server"),
        (&["serve", "--addr", "127.0.0.1:1", "--registry-addr", "127.0.0.1:1"], 2, "share a port"),
        (&["serve", "--registry-addr", "0.0.0.0:1"], 2, "missing: TLS"),
        (&["serve", "--metrics-addr", "0.0.0.0:1"], 2, "literal loopback"),
        (&["serve", "--addr", "nonsense"], 2, "HOST:PORT"),
        (&["harness", "serve", "--kind", "nope", "--addr", "unix:x"], 2, "echo"),
    ];
    for (args, code, says) in table {
        let done = dir.run(args);
        assert_eq!(done.code, *code, "{args:?}: {}{}", done.stdout, done.stderr);
        assert!(done.stderr.contains(says), "{args:?}: {says:?} is not in {}", done.stderr);
    }
    let list = dir.run(&["list"]).ok();
    assert_eq!(list.lines().count(), 1, "nothing was created: {list}");
    assert!(list.contains("last_seq=5\t"), "nothing was recorded: {list}");
}

#[test]
fn errors_are_json_when_asked_for() {
    let dir = Dir::new();
    dir.exec("hello");
    let done = dir.run(&["get", "-o", "json", "--session", "sess-0"]);
    assert_eq!(done.code, 3);
    let error: serde_json::Value = serde_json::from_str(&done.stderr).unwrap();
    assert_eq!(error["error"]["code"], "session_not_found");
    assert_eq!(error["error"]["outcome"], "not_applied");
    assert_eq!(error["error"]["session"], "sess-0");
}

#[test]
fn messages_that_would_be_lost_or_misread_are_refused() {
    let dir = Dir::new();
    let data =
        |json: &str| format!(r#"{{"role":"user","parts":[{{"data":{{"data":{{"a":{json}}}}}}}]}}"#);
    let deep = |n: usize| "[".repeat(n) + &"]".repeat(n);
    // The object around it is the first level.
    dir.run(&["exec", "--message", &data(&deep(23))]).ok();
    let table = [
        (data("NaN"), "invalid json"),
        (data("1e999"), "invalid json"),
        (data(r#"{"b":1,"b":2}"#), "duplicate key"),
        (data(r#""\ud800""#), "invalid json"),
        (data(&deep(24)), "nested"),
        (data(&deep(10_000)), "nested"),
        (r#"{"role":"user","parts":[{"video":{}}]}"#.to_owned(), "video"),
        (r#"{"role":"user","extra":1}"#.to_owned(), "extra"),
        ("[]".to_owned(), "not an object"),
        (String::new(), "invalid json"),
    ];
    for (message, says) in table {
        dir.run(&["exec", "--message", &message]).fails(2, says);
    }
    assert_eq!(dir.run(&["list"]).ok().lines().count(), 1, "no session was left behind");
}

#[test]
fn a_large_input_works_and_one_above_the_bound_is_refused_before_any_effect() {
    let dir = Dir::new();
    let five = dir.write("five", "a".repeat(5 << 20));
    let out = dir.run(&["exec", "-o", "json", "--input-file", &five]).ok();
    assert!(out.contains("EVENT_END"), "the turn ended");
    let twenty = dir.write("twenty", "a".repeat(20 << 20));
    dir.run(&["exec", "--input-file", &twenty]).fails(2, "event is ");
    let list = dir.run(&["list"]).ok();
    assert_eq!(list.lines().count(), 1, "no session was created for it: {list}");
    let session = list.split('\t').next().unwrap();
    dir.run(&["exec", "--session", session, "--input-file", &twenty]).fails(2, "value_too_large");
    assert!(dir.run(&["list"]).ok().contains("last_seq=5\t"));
    // And over the wire, where a message may be larger than gRPC's default.
    let server = Serving::start(&dir, &["serve", "--addr", "127.0.0.1:0", "--journal", "s.redb"]);
    let at = ["--server", &server.address];
    let out = dir.run(&[&["exec", "-o", "json", "--input-file", &five], &at[..]].concat()).ok();
    assert!(out.contains("EVENT_END"));
    let refused = dir.run(&[&["exec", "--input-file", &twenty], &at[..]].concat());
    refused.fails(2, "event is ");
    let not_text = dir.write("bytes", [0xff, 0xfe]);
    dir.run(&["exec", "--input-file", &not_text]).fails(2, "UTF-8");
}

#[test]
fn files_that_are_not_stores_are_left_as_they_are() {
    let dir = Dir::new();
    for content in [b"not a store".to_vec(), vec![0; 8192], vec![b'x'; 100_000]] {
        let path = dir.write("other", &content);
        let done = dir.run(&["list", "--journal", &path]);
        assert_eq!(done.code, 1, "{}", done.stderr);
        assert!(done.stderr.contains("not_a_store"), "{}", done.stderr);
        assert_eq!(std::fs::read(&path).unwrap(), content);
    }
}

#[test]
fn a_store_held_by_another_process_says_who_holds_it() {
    let dir = Dir::new();
    let server = Serving::start(&dir, &["serve", "--addr", "127.0.0.1:0"]);
    let done = dir.run(&["list"]);
    assert_eq!(done.code, 7, "{}", done.stderr);
    assert!(done.stderr.contains("--server"), "{}", done.stderr);
    assert!(done.stderr.contains("store_held"), "{}", done.stderr);
    assert_eq!(dir.run(&["list", "--server", &server.address]).ok(), "");
    assert_eq!(server.terminate(), 0);
    dir.run(&["list"]).ok();
}

#[test]
fn a_wrong_call_is_json_when_asked_for() {
    let dir = Dir::new();
    let done = dir.run(&["-o", "json", "list", "--nope"]);
    assert_eq!(done.code, 2);
    let error: serde_json::Value = serde_json::from_str(&done.stderr).unwrap();
    assert_eq!(error["error"]["code"], "invalid_argument");
}

/// A reader that goes away does not cut the turn.
#[test]
fn a_closed_pipe_ends_nothing() {
    let dir = Dir::new();
    let mut command = dir.command(&["exec", "--input", "hello"]);
    let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
    assert!(dir.run(&["list"]).ok().contains("last_seq=5\t"));
}

/// Nobody reads standard error: a command that fails ends with its own code.
#[test]
fn a_closed_standard_error_changes_no_exit_code() {
    let dir = Dir::new();
    let mut child = dir
        .command(&["get", "--session", "nobody"])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stderr.take());
    assert_eq!(child.wait().unwrap().code(), Some(3));
}

/// A full disk is no mistake in the command.
#[test]
fn an_export_that_cannot_be_written_is_unavailable() {
    if !std::path::Path::new("/dev/full").exists() {
        println!("skipped: there is no /dev/full here");
        return;
    }
    let dir = Dir::new();
    let session = dir.exec("hello");
    let export = ["export", "--session", &session, "--file"];
    dir.run(&[&export[..], &["/dev/full"]].concat()).fails(7, "unavailable");
    dir.run(&[&export[..], &["no/such/folder/a.nd"]].concat()).fails(2, "invalid_argument");
}

#[test]
fn what_others_wrote_cannot_forge_lines() {
    let dir = Dir::new();
    dir.run(&["create", "--name", "x\nforged\tlast_seq=99\u{1b}[31m"]).ok();
    let list = dir.run(&["list"]).ok();
    assert_eq!(list.lines().count(), 1, "{list}");
    assert!(!list.contains('\u{1b}'), "{list:?}");
}

/// An export replaces a file whole, and writes through what is none.
#[test]
fn an_export_replaces_files_alone() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    let dir = Dir::new();
    let session = dir.exec("hello");
    let real = dir.write("real", "old");
    symlink(&real, dir.path("link")).unwrap();
    dir.run(&["export", "--session", &session, "--file", "link"]).ok();
    assert!(dir.path("link").symlink_metadata().unwrap().is_symlink());
    assert!(std::fs::read_to_string(&real).unwrap().contains("\"head\""));
    dir.run(&["export", "--session", &session, "--file", "fresh"]).ok();
    let mode = dir.path("fresh").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let shown = dir.run(&["export", "--session", &session, "--file", "-"]).ok();
    assert_eq!(shown, std::fs::read_to_string(dir.path("fresh")).unwrap());
    assert!(!dir.path("-").exists());
    dir.run(&["export", "--session", "sess-0", "--file", "none"]).fails(3, "session_not_found");
    assert!(!dir.path("none").exists());
}
