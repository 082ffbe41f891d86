//! The same commands over a server.

use crate::support::{Dir, Serving, session_of};

#[test]
fn every_command_of_a_client_works_over_a_server() {
    let dir = Dir::new();
    let mut server = Serving::start(&dir, &["serve", "--addr", "127.0.0.1:0"]);
    let run =
        |server: &Serving, args: &[&str]| dir.run(&[args, &["--server", &server.address]].concat());
    let session = session_of(&run(&server, &["exec", "--input", "hello"]).ok());
    let created = run(&server, &["create", "--name", "n", "--harness", "echo"]).ok();
    assert!(run(&server, &["list"]).ok().starts_with(created.trim_end()), "newest first");
    assert!(run(&server, &["get", "--session", &session]).ok().contains("last_seq=5"));
    let replayed = run(&server, &["replay", "--session", &session, "--re-execute"]).ok();
    assert_eq!(replayed, "echo:hello\nturns=1 model_calls=0\n");
    let verified = run(&server, &["verify", "--session", &session]).ok();
    assert!(verified.contains("head=5:"), "{verified}");
    let child = run(&server, &["fork", "--session", &session, "--at", "5", "--names", "c"]).ok();
    assert!(child.contains(&format!("parent={session} fork_seq=5 name=c")), "{child}");
    run(&server, &["suspend", "--session", &session]).ok();
    let resumed = run(&server, &["resume", "--session", &session]).ok();
    assert!(resumed.ends_with("resume compute=COMPUTE_LIVE last_seq=7\n"), "{resumed}");
    run(&server, &["exec", "--session", "sess-0", "--input", "x"]).fails(3, "session_not_found");
    run(&server, &["exec", "--input", "x", "--harness", "nope"]).fails(2, "served are: echo");
    let exported = run(&server, &["export", "--session", &session]).ok();
    dir.write("journal", &exported);
    run(&server, &["import", "--file", "journal"]).fails(6, "already_exists");
    let other = Dir::new();
    other.write("journal", &exported);
    let elsewhere = Serving::start(&other, &["serve", "--addr", "127.0.0.1:0"]);
    let imported = other.run(&["import", "--file", "journal", "--server", &elsewhere.address]);
    assert!(imported.ok().contains(&session));
    let again = other.run(&["export", "--session", &session, "--server", &elsewhere.address]);
    assert_eq!(again.ok(), exported);

    server.kill();
    let server = Serving::start(&dir, &["serve", "--addr", "unix:s.sock"]);
    let after = run(&server, &["exec", "--session", &session, "--input", "again"]).ok();
    assert!(after.starts_with("seq=8   EVENT_EXECUTION_START"), "{after}");
    assert_eq!(server.terminate(), 0);
}

/// A client that goes away detaches; the turn ends without it.
#[test]
fn a_lost_client_does_not_end_a_turn() {
    let dir = Dir::new();
    let server = Serving::start(&dir, &["serve", "--addr", "127.0.0.1:0"]);
    let at = ["--server", server.address.as_str()];
    let session = dir.run(&[&["create"], &at[..]].concat()).ok().trim_end().to_owned();
    let input = "x".repeat(1 << 20);
    let file = dir.write("input", input);
    let exec = ["exec", "--session", &session, "--input-file", &file];
    let mut client = dir.command(&[&exec, &at[..]].concat()).spawn().unwrap();
    // Wherever the kill lands, the session is either untouched or finishes by itself.
    client.kill().unwrap();
    client.wait().unwrap();
    let state = || dir.run(&[&["get", "-o", "json", "--session", &session], &at[..]].concat()).ok();
    let settled = (0..2_000)
        .map(|_| state())
        .find(|state| state.contains("EXEC_PENDING") || state.contains("EXEC_COMPLETED"));
    assert!(settled.is_some(), "the turn did not end: {}", state());
}

/// A detached turn is its server's, and its id is told.
#[test]
fn a_detached_turn_ends_without_its_client() {
    let dir = Dir::new();
    let server = Serving::start(&dir, &["serve", "--addr", "127.0.0.1:0"]);
    let at = ["--server", server.address.as_str()];
    let out = dir.run(&[&["exec", "--input", "hello", "--detach"], &at[..]].concat()).ok();
    let session = session_of(&out);
    let line = out.lines().nth(1).unwrap_or_default();
    let told = format!("detached session={session} execution=");
    assert!(line.starts_with(&told) && line.len() == told.len() + 16, "{out}");
    let get = [&["get", "-o", "json", "--session", &session], &at[..]].concat();
    let ended = (0..2_000).any(|_| dir.run(&get).ok().contains("EXEC_COMPLETED"));
    assert!(ended, "the turn did not end");
    let json = ["exec", "-o", "json", "--session", &session, "--input", "x", "--detach"];
    let out = dir.run(&[&json, &at[..]].concat()).ok();
    assert!(out.lines().last().unwrap().contains("\"detached\":{\"execution_id\":\""), "{out}");
}
