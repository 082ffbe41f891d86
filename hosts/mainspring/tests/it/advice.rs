//! What commands say of what stands still, and what to run next.

use serde_json::Value;

use crate::support::{Dir, session_of};

fn json(line: &str) -> Value {
    serde_json::from_str(line).unwrap()
}

fn parked(dir: &Dir) -> String {
    let exec = dir.run(&["exec", "--harness", "gate", "--input", "refund 12"]);
    assert_eq!(exec.code, 5, "{}", exec.stderr);
    session_of(&exec.stdout)
}

/// A wrong call says in JSON all that it says in text, on its one line.
#[test]
fn a_wrong_call_is_explained_in_json() {
    let dir = Dir::new();
    for (args, says) in [
        (&["approve"][..], "were not provided: <UID>"),
        (&["resolve", "--session", "s"], "not provided: --tool-call <ID> <--result <JSON>|"),
        (&["serve", "--addr"], "'--addr <ADDR>' but none was supplied"),
    ] {
        let done = dir.run(&[args, &["-o", "json"]].concat());
        assert_eq!(done.code, 2, "{done:?}");
        let error = json(done.stderr.trim_end());
        let message = error["error"]["message"].as_str().unwrap();
        assert!(message.contains(says), "{message}");
        assert!(!message.contains("Usage") && !message.contains("--help"), "{message}");
    }
}

/// Who decides sees what is decided, and until when.
#[test]
fn a_request_shows_its_arguments_and_its_expiry() {
    let dir = Dir::new();
    let script = r#"{"steps":[{"gate":"pay","args":{"to":"a\u202eb\u001b[2J\u009bc"}}]}"#;
    let exec = ["exec", "--harness", "gate", "--input", "x", "--config", script];
    let done = dir.run(&[&exec[..], &["--approval-ttl", "3600"]].concat());
    let session = session_of(&done.stdout);
    done.fails(5, "of tool \"pay\"");
    let text = dir.run(&["get", "--session", &session]).ok();
    let args = r#"args {"to":"a\u202eb\u001b[2J\u009bc"}"#;
    assert_eq!(text.lines().nth(2), Some(args), "{text}");
    let shown = json(&dir.run(&["get", "-o", "json", "--session", &session]).ok());
    let expires = shown["pending_approval"]["expires"].as_str().unwrap();
    assert!(text.contains(&format!(" expires={expires}\n")), "{text}");
}

/// A name cannot turn around what is read after it.
#[test]
fn foreign_text_does_not_change_the_direction_of_a_line() {
    let dir = Dir::new();
    dir.run(&["create", "--name", "a\u{202e}b\u{2066}c\u{2028}d"]).ok();
    let list = dir.run(&["list"]).ok();
    assert!(list.ends_with("\tname=a b c d\n"), "{list}");
}

/// A turn is not begun while another waits: to be decided, or to go on.
#[test]
fn a_blocked_exec_says_what_unblocks_it() {
    let dir = Dir::new();
    let session = parked(&dir);
    let exec = ["exec", "--session", &session, "--input", "x"];
    dir.run(&exec).fails(5, &format!("next: mainspring approve --session {session} (or deny)"));
    dir.run(&["approve", &session, "--no-resume"]).ok();
    let blocked = dir.run(&exec);
    assert!(blocked.stderr.contains("approval_blocked"), "{}", blocked.stderr);
    blocked.fails(5, &format!("next: mainspring resume --session {session}"));
}

/// A tool that died.
#[test]
fn a_failed_tool_says_what_to_run_next_and_shows_in_lists() {
    let dir = Dir::new();
    dir.write("dies.sh", "kill -9 $$\n");
    let tool = ["--tool", "refund=exec:sh dies.sh"];
    let exec = ["exec", "--harness", "gate", "--input", "tool refund"];
    let failed = dir.run(&[&exec[..], &tool].concat());
    let session = session_of(&failed.stdout);
    assert!(failed.stderr.contains("[tool_failed]"), "{}", failed.stderr);
    failed.fails(1, &format!("next: mainspring resume --session {session}, which says"));
    assert!(dir.run(&["list"]).ok().ends_with("\texec=FAILED\n"));
    assert!(dir.run(&["get", "--session", &session]).ok().ends_with(" exec=FAILED\n"));
    let resume = dir.run(&[&["resume", "--session", &session], &tool[..]].concat());
    resume.fails(5, &format!("resolve --session {session} --tool-call call-1 (with --result"));
}
