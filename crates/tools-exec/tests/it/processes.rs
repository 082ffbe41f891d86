//! How a command ends, and that nothing of it is left.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use mainspring_api::{Json, Outcome, Part, ToolExecutor as _};
use mainspring_tools_exec::ToolsOptions;
use tempfile::TempDir;

use crate::support::{assert_error, call, lives, object, run, scope, script, sh, until, within_ms};

/// Starts a process in the background that outlives its shell, and notes both ids.
const FORKS: &str = r#"sleep 600 & echo "$$ $!" > "$0.new"; mv "$0.new" "$0"; "#;

struct Pids {
    _folder: TempDir,
    file: PathBuf,
}

impl Pids {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pids");
        Self { _folder: folder, file }
    }

    fn read(&self) -> Vec<u32> {
        let text = std::fs::read_to_string(&self.file).unwrap();
        text.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
    }

    async fn are_gone(&self) {
        let pids = self.read();
        assert_eq!(pids.len(), 2);
        until("the whole group is gone", || !pids.iter().copied().any(lives)).await;
    }
}

#[tokio::test]
async fn out_of_time_the_whole_group_is_killed() {
    let pids = Pids::new();
    let tools = script(&format!("{FORKS} wait"), &pids.file, within_ms(1000));
    let error = run(&tools).await.unwrap_err();
    assert_error(&error, Outcome::Unknown, "no result within 1s, the bound call_within");
    pids.are_gone().await;
}

#[tokio::test]
async fn a_command_that_closed_its_output_or_writes_for_ever_is_out_of_time_too() {
    for text in ["exec >&- 2>&-; sleep 600", "exec yes >&2", "trap '' TERM; sleep 600"] {
        let error = run(&script(text, Path::new("sh"), within_ms(300))).await.unwrap_err();
        assert_error(&error, Outcome::Unknown, "call_within");
    }
}

#[tokio::test]
async fn a_dropped_call_kills_the_whole_group() {
    let pids = Pids::new();
    let tools = Arc::new(script(&format!("{FORKS} wait"), &pids.file, ToolsOptions::default()));
    let calling = tokio::spawn({
        let tools = Arc::clone(&tools);
        async move { run(&tools).await }
    });
    until("the command runs", || pids.file.exists()).await;
    assert!(pids.read().iter().copied().all(lives));
    calling.abort();
    pids.are_gone().await;
}

#[tokio::test]
async fn what_a_command_left_behind_does_not_hold_the_call() {
    let pids = Pids::new();
    let tools = script(&format!("{FORKS} echo done"), &pids.file, ToolsOptions::default());
    let result = run(&tools).await.unwrap();
    assert_eq!(result.content, [Part::Text("done".to_owned())]);
    pids.are_gone().await;
}

/// Starts a process that leaves the group with the output open, and notes its id.
const LEAVES: &str = r#"setsid sh -c 'echo "$$" > "$0.new"; mv "$0.new" "$0"; exec sleep 600' "$0" &
                        while ! [ -e "$0" ]; do sleep 0.01; done; echo done"#;

#[tokio::test]
async fn one_that_left_the_group_holds_the_call_for_a_bounded_time() {
    let pids = Pids::new();
    let result = run(&script(LEAVES, &pids.file, ToolsOptions::default())).await.unwrap();
    assert_eq!(result.content, [Part::Text("done".to_owned())]);
    let [left] = pids.read()[..] else { panic!("one process left the group") };
    assert!(lives(left), "it is not the call's to kill");
    kill(left);
}

fn kill(pid: u32) {
    std::process::Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
}

#[tokio::test]
async fn a_killed_command_leaves_the_outcome_unknown() {
    let error = run(&sh("kill -9 $$")).await.unwrap_err();
    assert_error(&error, Outcome::Unknown, "ended by signal 9");
    let pids = Pids::new();
    let tools = script(&format!("{FORKS} kill -9 $$"), &pids.file, ToolsOptions::default());
    run(&tools).await.unwrap_err();
    pids.are_gone().await;
}

#[tokio::test]
async fn arguments_that_are_not_read_block_nothing() {
    // Larger than any pipe's buffer.
    let args = object([("a", Json::String("x".repeat(4 << 20)))]);
    for (text, expected) in [
        ("echo done", "done"),
        ("exec <&-; echo done", "done"),
        ("head -c 6", "{\"a\":\""),
        ("cat | wc -c", "4194312"),
    ] {
        let result = sh(text).execute(&scope(), &call("t", Some(args.clone()))).await.unwrap();
        assert_eq!(result.content, [Part::Text(expected.to_owned())], "{text}");
    }
    let tools = script("sleep 600", Path::new("sh"), within_ms(200));
    let error = tools.execute(&scope(), &call("t", Some(args))).await.unwrap_err();
    assert_error(&error, Outcome::Unknown, "call_within");
}

#[tokio::test]
async fn output_ends_at_its_bound() {
    let mut options = ToolsOptions::default();
    assert_eq!(options.output_bytes_max, 1 << 20);
    options.output_bytes_max = 100_000;
    for (bytes, fits) in [(99_999, true), (100_000, true), (100_001, false)] {
        let text = format!("head -c {bytes} /dev/zero | tr '\\0' x");
        let told = run(&script(&text, Path::new("sh"), options.clone())).await;
        match told {
            Ok(result) => {
                assert!(fits, "{bytes}");
                assert_eq!(result.content, [Part::Text("x".repeat(bytes))]);
            }
            Err(error) => {
                assert!(!fits, "{bytes}: {error}");
                let words = "larger than 100000 bytes, the bound output_bytes_max";
                assert_error(&error, Outcome::Unknown, words);
            }
        }
    }
    let pids = Pids::new();
    let tools = script(&format!("{FORKS} exec yes"), &pids.file, options);
    assert_error(&run(&tools).await.unwrap_err(), Outcome::Unknown, "output_bytes_max");
    pids.are_gone().await;
}

#[tokio::test]
async fn a_call_that_finds_no_room_in_time_has_done_nothing() {
    let pids = Pids::new();
    let mut options = within_ms(800);
    options.calls_max = 1;
    let tools = Arc::new(script(LEAVES, &pids.file, options));
    let first = tokio::spawn({
        let tools = Arc::clone(&tools);
        async move { run(&tools).await }
    });
    until("the first runs", || pids.file.exists()).await;
    // What left the group holds the first for a second longer.
    let second = run(&tools).await.unwrap_err();
    let words = "1 calls, the bound calls_max, ran for all of 800ms";
    assert_error(&second, Outcome::NotApplied, words);
    assert!(!first.await.unwrap().unwrap().is_error);
    kill(pids.read()[0]);
}
