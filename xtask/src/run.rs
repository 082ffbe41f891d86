//! Runs steps: one after the other, with a header and a time for each, until one fails.

use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::plan::{Step, Task};
use crate::workspace::{Workspace, show};

/// How long a command that ran out of time has to clean up after itself.
const GRACE: Duration = Duration::from_secs(10);
/// How often a running command is looked at.
const POLL: Duration = Duration::from_millis(50);

/// How a step ended.
enum Verdict {
    Passed,
    Skipped(String),
}

/// Runs `steps` until one fails. The last line that it prints says how many passed and failed.
pub(crate) fn steps(steps: Vec<Step>, workspace: &Workspace) -> ExitCode {
    let names: Vec<&str> = steps.iter().map(|step| step.name).collect();
    let mut times = Vec::new();
    let (mut passed, mut skipped) = (0, 0);
    let mut failure = None;
    for (index, step) in steps.into_iter().enumerate() {
        let name = step.name;
        println!("\n=== {name} ({} of {})", index + 1, names.len());
        let started = now();
        let verdict = run(step, workspace);
        let took = started.elapsed().as_secs_f64();
        let word = match &verdict {
            Ok(Verdict::Passed) => "passed",
            Ok(Verdict::Skipped(_)) => "skipped",
            Err(_) => "FAILED",
        };
        println!("=== {name}: {word} in {took:.1} s");
        times.push(format!("{took:8.1} s  {word:<8}  {name}"));
        match verdict {
            Ok(Verdict::Passed) => passed += 1,
            Ok(Verdict::Skipped(why)) => {
                println!("    {why}");
                skipped += 1;
            }
            Err(error) => {
                failure = Some(error.context(format!("the step `{name}` failed")));
                break;
            }
        }
    }
    let not_run = &names[times.len()..];
    println!("\n{}", times.join("\n"));
    if !not_run.is_empty() {
        println!("not run: {}", not_run.join(", "));
    }
    let error = failure.as_ref().map(|error| format!("error: {error:#}\n")).unwrap_or_default();
    println!("\n{error}{}", closing_line(passed, usize::from(failure.is_some()), skipped));
    if failure.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The line that tools read.
fn closing_line(passed: usize, failed: usize, skipped: usize) -> String {
    let mut line = format!("{passed} passed, {failed} failed");
    if skipped > 0 {
        line.push_str(&format!(", {skipped} skipped"));
    }
    line
}

fn run(step: Step, workspace: &Workspace) -> Result<Verdict> {
    let mut verdict = Ok(Verdict::Passed);
    for task in step.tasks {
        match perform(task, workspace) {
            Ok(Verdict::Passed) => {}
            Ok(skipped) => verdict = Ok(skipped),
            Err(error) => {
                verdict = Err(error);
                break;
            }
        }
    }
    for task in step.undo {
        if let Err(error) = perform(task, workspace) {
            // What failed first counts; this is told at least.
            println!("{error:#}");
            verdict = verdict.and(Err(error));
        }
    }
    verdict
}

fn perform(task: Task, workspace: &Workspace) -> Result<Verdict> {
    match task {
        Task::Command(command, limit) => command_within(command, limit)?,
        Task::Check(check) => check(workspace)?,
        Task::Missing(what) => bail!("{what}"),
        Task::Absent(what) => return Ok(Verdict::Skipped(what)),
    }
    Ok(Verdict::Passed)
}

fn command_within(mut command: Command, limit: Duration) -> Result<()> {
    let shown = show(&command);
    println!("$ {shown}");
    let mut child =
        command.stdin(Stdio::null()).spawn().with_context(|| format!("cannot start `{shown}`"))?;
    let Some(status) = wait(&mut child, limit)? else {
        stop(&mut child)?;
        bail!("`{shown}` was stopped after its limit of {} s", limit.as_secs());
    };
    if !status.success() {
        bail!("`{shown}` ended with {status}");
    }
    Ok(())
}

/// The child's status, or nothing if it still runs after `limit`.
fn wait(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let started = now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if started.elapsed() >= limit {
            return Ok(None);
        }
        std::thread::sleep(POLL);
    }
}

/// Asks a child to end, so that it can end its own children, and then makes it.
fn stop(child: &mut Child) -> Result<()> {
    let asked = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    if !asked.is_ok_and(|status| status.success()) || wait(child, GRACE)?.is_none() {
        child.kill()?;
        child.wait()?;
    }
    Ok(())
}

/// The time, to measure how long something takes.
#[expect(clippy::disallowed_methods, reason = "this program measures how long real commands take")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn the_closing_line_has_the_form_that_is_read() {
        assert_eq!("12 passed, 0 failed", closing_line(12, 0, 0));
        assert_eq!("3 passed, 1 failed, 2 skipped", closing_line(3, 1, 2));
    }

    #[test]
    fn what_a_step_did_is_undone_however_it_ended() {
        let folder = std::env::temp_dir().join(format!("xtask-undo-{}", std::process::id()));
        let at = folder.display();
        let task = |script: String| Task::Command(sh(&script), Duration::from_secs(60));
        let none = Workspace { packages: Vec::new(), root: "/w".into(), target: "/t".into() };
        for end in ["true", "false"] {
            let step = Step {
                name: "x",
                tasks: vec![task(format!("mkdir {at}")), task(end.to_owned())],
                undo: vec![task("false".to_owned()), task(format!("rmdir {at}"))],
            };
            let error = run(step, &none).map(drop).unwrap_err();
            assert!(error.to_string().contains("false"), "{error}");
            assert!(!folder.exists());
        }
    }

    #[test]
    fn a_command_passes_fails_or_cannot_start() {
        let limit = Duration::from_secs(60);
        command_within(sh("exit 0"), limit).unwrap();
        let error = command_within(sh("exit 3"), limit).unwrap_err().to_string();
        assert!(error.contains("exit status: 3"), "{error}");
        let error =
            command_within(Command::new("/no/such/program"), limit).unwrap_err().to_string();
        assert!(error.contains("cannot start `/no/such/program`"), "{error}");
    }

    #[test]
    fn a_command_that_outlives_its_limit_is_stopped() {
        let error = command_within(sh("exec sleep 600"), Duration::ZERO).unwrap_err().to_string();
        assert!(error.contains("stopped after its limit"), "{error}");
    }

    #[test]
    fn an_absent_part_skips_and_a_missing_tool_fails() {
        let workspace = serde_json::from_str(
            r#"{"packages": [], "workspace_root": "/", "target_directory": "/t"}"#,
        )
        .unwrap();
        let of = |task| Step { name: "s", tasks: vec![task], undo: Vec::new() };
        assert!(matches!(run(of(Task::Absent("x".into())), &workspace), Ok(Verdict::Skipped(_))));
        assert!(run(of(Task::Missing("y is not installed".into())), &workspace).is_err());
        assert!(matches!(run(of(Task::Check(|_| Ok(()))), &workspace), Ok(Verdict::Passed)));
    }
}
