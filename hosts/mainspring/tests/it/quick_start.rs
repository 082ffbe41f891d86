//! What the README shows.

use std::process::Command;

use crate::support::{BINARY, Dir, root, session_of};

#[test]
fn a_turn_runs_on_the_embedded_store_and_survives_restarts() {
    let dir = Dir::new();
    let out = dir.run(&["exec", "--input", "hello world"]).ok();
    let session = session_of(&out);
    let expected = format!(
        "session {session}\n\
         seq=1   EVENT_EXECUTION_START\n\
         seq=2   EVENT_INPUT  user: hello world\n\
         seq=3   EVENT_MODEL_CALL\n\
         seq=4   EVENT_OUTPUT  assistant: echo:hello world\n\
         seq=5   EVENT_END\n"
    );
    assert_eq!(out, expected);
    let again = dir.run(&["exec", "--session", &session, "--input", "again"]).ok();
    assert!(again.starts_with("seq=6   EVENT_EXECUTION_START\n"), "{again}");
    let list = dir.run(&["list"]).ok();
    assert_eq!(list, format!("{session}\tlast_seq=10\tcompute=LIVE\tharness=\tname=\n"));
}

/// Every command of the README's tour, in order, as it is written there.
#[test]
fn the_tour_of_the_readme_runs() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let tour = readme.split("## A tour").nth(1).unwrap();
    let block = tour.split("```sh\n").nth(1).unwrap().split("```").next().unwrap();
    let dir = Dir::new();
    let session = dir.exec("hello");
    let mut ran = 0;
    for line in block.lines() {
        let command = line.split('#').next().unwrap().trim();
        let command = command.replace("tools/", root().join("tools/").to_str().unwrap());
        let script = format!("mainspring() {{ {BINARY} \"$@\"; }}; S={session}; {command}");
        let out =
            Command::new("sh").arg("-ec").arg(&script).current_dir(dir.path("")).output().unwrap();
        assert!(out.status.success(), "{command}: {}", String::from_utf8_lossy(&out.stderr));
        ran += 1;
    }
    assert!(ran >= 10, "the tour has only {ran} commands");
}

/// The README's way through an approval, as it is written there: what parks, what runs, and what ran.
#[test]
fn the_approval_of_the_readme_runs() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let part = readme.split("### Tools and approvals").nth(1).unwrap();
    let block = part.split("```sh\n").nth(1).unwrap().split("```").next().unwrap();
    let dir = Dir::new();
    let mut session = String::new();
    let mut ran = 0;
    for line in block.lines() {
        let (command, comment) = line.split_once("  # ").unwrap_or((line, ""));
        let script = format!("mainspring() {{ {BINARY} \"$@\"; }}; S={session}; {command}");
        let out =
            Command::new("sh").arg("-ec").arg(&script).current_dir(dir.path("")).output().unwrap();
        let expected = if comment.contains("exit code 5") { 5 } else { 0 };
        let (stdout, stderr) =
            (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        assert_eq!(out.status.code(), Some(expected), "{command}: {stdout}{stderr}");
        if stdout.starts_with("session ") && session.is_empty() {
            session = session_of(&stdout);
        }
        if command.contains("mainspring list") {
            assert!(stdout.ends_with("\texec=AWAITING\n"), "{stdout}");
        }
        if command.contains("mainspring get") {
            assert!(stdout.contains("\"tool\":\"refund\""), "{stdout}");
        }
        ran += 1;
    }
    assert!(ran >= 6, "only {ran} commands");
    let refunds = std::fs::read_to_string(dir.path("refunds.txt")).unwrap();
    assert_eq!(refunds.matches("\"amount\":12").count(), 1, "{refunds}");
}

#[test]
fn every_command_has_help_and_a_version_is_shown() {
    let dir = Dir::new();
    for command in [
        "serve",
        "create",
        "list",
        "get",
        "exec",
        "replay",
        "fork",
        "suspend",
        "resume",
        "approve",
        "deny",
        "cancel",
        "resolve",
        "verify",
        "export",
        "import",
        "describe",
        "follow",
        "delete",
        "adopt",
        "config",
        "stats",
        "compact",
        "harness",
        "completions",
        "version",
    ] {
        let help = dir.run(&[command, "--help"]).ok();
        assert!(help.contains("Usage: mainspring"), "{command}: {help}");
    }
    assert!(dir.run(&["version"]).ok().starts_with("mainspring "));
    let completions = dir.run(&["completions", "bash"]).ok();
    assert!(completions.contains("mainspring"), "{completions}");
    assert!(!dir.path("mainspring.redb").exists(), "none of these opens a journal");
}
