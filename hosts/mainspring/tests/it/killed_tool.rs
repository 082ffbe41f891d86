//! A host that is killed while its tool runs.

use std::process::Stdio;

use serde_json::{Value, json};

use crate::support::{Dir, session_of};

/// A tool that says that it runs, and then takes its time.
const SLOW: &str = "#!/bin/sh\ncat >> calls.txt\necho $$ > running\nexec sleep 600\n";
/// The same tool when nothing holds it up.
const QUICK: &str = "#!/bin/sh\ncat >> calls.txt\necho '{\"refunded\":true}'\n";

struct Shop {
    dir: Dir,
    session: String,
}

impl Shop {
    /// A refund that was approved, and whose host was killed inside of the tool.
    fn killed() -> Self {
        let dir = Dir::new();
        dir.write("refund.sh", SLOW);
        let exec = dir.run(&["exec", "--harness", "gate", "--input", "refund 12"]);
        assert_eq!(exec.code, 5, "{}", exec.stderr);
        let session = session_of(&exec.stdout);
        dir.run(&["approve", &session, "--no-resume"]).ok();
        let mut resume = dir
            .command(&["resume", "--session", &session, "--tool", "refund=exec:sh refund.sh"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let running = dir.path("running");
        while !std::fs::read_to_string(&running).is_ok_and(|pid| pid.ends_with('\n')) {
            assert!(resume.try_wait().unwrap().is_none(), "the resume has ended");
            std::thread::yield_now();
        }
        resume.kill().unwrap();
        resume.wait().unwrap();
        // Its host is gone; the tool itself is nobody's child any more.
        let pid: i32 = std::fs::read_to_string(&running).unwrap().trim().parse().unwrap();
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        dir.write("refund.sh", QUICK);
        Self { dir, session }
    }

    fn resume(&self) -> crate::support::Done {
        let tool = ["--tool", "refund=exec:sh refund.sh"];
        self.dir.run(&[&["resume", "--session", &self.session][..], &tool].concat())
    }

    fn resolve(&self, word: &[&str]) -> crate::support::Done {
        let resolve = ["resolve", "--session", &self.session, "--tool-call", "call-1"];
        self.dir.run(&[&resolve[..], word].concat())
    }

    fn calls(&self) -> usize {
        std::fs::read_to_string(self.dir.path("calls.txt")).unwrap().matches("amount").count()
    }

    /// The receipt in the journal.
    fn receipt(&self) -> Value {
        let records = self.dir.run(&["replay", "-o", "json", "--session", &self.session]).ok();
        let results = records.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        results.filter_map(|record| record["event"].get("result").cloned()).next_back().unwrap()
    }
}

/// Nobody knows whether it refunded: a resume refuses, runs nothing, and says what to do.
#[test]
fn an_approved_tool_that_was_cut_is_unknown_until_a_person_says() {
    let shop = Shop::killed();
    for _ in 0..2 {
        shop.resume().fails(5, "unanswered_tool_call");
    }
    let resolve = format!("mainspring resolve --session {} --tool-call call-1 (", shop.session);
    shop.resume().fails(5, &resolve);
    shop.resume().fails(5, "tool \"refund\", call \"call-1\", under its idempotency key \"");
    let call = shop.dir.run(&["replay", "-o", "json", "--session", &shop.session]).ok();
    let (_, key) = call.split_once(r#""idempotency_key":""#).unwrap();
    shop.resume().fails(5, key.split('"').next().unwrap());
    shop.resume().fails(5, "may still be running if its host was killed");
    // So does the resume of a decision that is repeated.
    let (_, execution) = call.split_once(r#""execution_id":""#).unwrap();
    let execution = execution.split('"').next().unwrap();
    let tuple = ["--execution", execution, "--tool-call", "call-1", "--request-seq", "4"];
    let tool = ["--tool", "refund=exec:sh refund.sh"];
    let again = shop.dir.run(&[&["approve", &shop.session][..], &tuple, &tool].concat());
    assert!(again.stderr.contains(&resolve), "{}", again.stderr);
    again.fails(5, "the decision is committed at seq 6 [unanswered_tool_call]");
    assert_eq!(shop.calls(), 1, "it was not run again");
    shop.resolve(&["--result", r#"{"output":{"refunded":true}}"#]).ok();
    let done = shop.resume().ok();
    assert!(done.contains("assistant: refund: done"), "{done}");
    assert_eq!(shop.calls(), 1);
    assert_eq!(shop.receipt()["output"], json!({"refunded": true}));
    shop.dir.run(&["verify", "--session", &shop.session]).ok();
    let replayed = shop.dir.run(&["replay", "--session", &shop.session, "--re-execute"]).ok();
    assert!(replayed.contains("turns=1 model_calls=0"), "{replayed}");
}

/// A person who found that nothing happened may say so, and the turn goes on with that.
#[test]
fn an_approved_tool_that_was_cut_may_have_failed() {
    let shop = Shop::killed();
    shop.resolve(&["--failed", "the bank knows nothing of it"]).ok();
    let done = shop.resume().ok();
    assert!(done.contains("refund: failed: the bank knows nothing of it"), "{done}");
    assert_eq!((shop.calls(), &shop.receipt()["code"]), (1, &json!("EXECUTOR_ERROR")));
}

/// One more start is allowed, under the same key, and no further one.
#[test]
fn an_approved_tool_that_was_cut_may_be_run_once_more() {
    let shop = Shop::killed();
    shop.resolve(&["--retry"]).ok();
    let done = shop.resume().ok();
    assert!(done.contains("assistant: refund: done"), "{done}");
    assert_eq!(shop.calls(), 2);
    shop.resolve(&["--retry"]).fails(5, "open turn");
}
