//! What a command is given, and what comes of what it writes.

use std::path::Path;

use mainspring_api::{Json, Outcome, Part, ToolExecutor as _, ToolResult, report};
use mainspring_tools_exec::{ToolEntry, Tools, ToolsOptions};

use crate::support::{KEY, SESSION, assert_error, call, object, run, scope, script, sh};

fn text(text: &str) -> ToolResult {
    ToolResult { content: vec![Part::Text(text.to_owned())], ..ToolResult::default() }
}

fn failed(error: &str) -> ToolResult {
    ToolResult { is_error: true, error: error.to_owned(), ..ToolResult::default() }
}

#[tokio::test]
async fn a_command_gets_arguments_key_session_tool_and_id() {
    let tools =
        sh(r#"printf '%s %s %s %s %s' "$MAINSPRING_IDEMPOTENCY_KEY" "$MAINSPRING_SESSION" \
           "$MAINSPRING_TOOL" "$MAINSPRING_TOOL_CALL_ID" "$(cat)""#);
    let args = object([("b", Json::Number(5.0)), ("a", Json::from("é"))]);
    for (args, input) in
        [(None, "null"), (Some(object([])), "{}"), (Some(args), r#"{"a":"é","b":5}"#)]
    {
        let result = tools.execute(&scope(), &call("t", args)).await.unwrap();
        let told = format!("{KEY} {SESSION} t call-1 {input}");
        assert_eq!(result, ToolResult { id: "call-1".to_owned(), ..text(&told) });
    }
}

#[tokio::test]
async fn what_is_written_decides_what_the_result_is() {
    let output = object([("a", Json::Array(vec![Json::Number(1.0), Json::Null]))]);
    let deep = |levels: usize| format!("{{\"a\":{}{}}}", "[".repeat(levels), "]".repeat(levels));
    let unrecordable = |error: &str, written: &str| ToolResult {
        content: vec![Part::Text(written.to_owned())],
        ..failed(&format!("result cannot be recorded as json: {error}"))
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("written");
    for (written, expected) in [
        ("", ToolResult::default()),
        (" \n\t\n", ToolResult::default()),
        ("done\n", text("done")),
        ("a\r\nb\r\n", text("a\r\nb")),
        ("  a\n\n", text("  a\n")),
        ("[1,2]", text("[1,2]")),
        ("null", text("null")),
        (" {\"a\":[1,null]}\n", ToolResult { output: Some(output), ..ToolResult::default() }),
        ("{}", ToolResult { output: Some(object([])), ..ToolResult::default() }),
        (
            "{\"a\":1,\"a\":2}\n",
            unrecordable("duplicate key in a json object", "{\"a\":1,\"a\":2}"),
        ),
        (&deep(24), unrecordable("json is nested deeper than 24 levels", &deep(24))),
    ] {
        std::fs::write(&file, written).unwrap();
        let tools = script("cat \"$0\"", &file, ToolsOptions::default());
        let result = run(&tools).await.unwrap();
        assert_eq!(result, ToolResult { id: "call-1".to_owned(), ..expected }, "{written:?}");
    }
    std::fs::write(&file, deep(23)).unwrap();
    let tools = script("cat \"$0\"", &file, ToolsOptions::default());
    assert!(run(&tools).await.unwrap().output.is_some(), "24 levels are recorded");
    for bad in ["{\"a\":\"\\ud800\"}", "{\"a\":1e999}", "{\"a\":NaN}", "{", "{} {}", "{a}"] {
        std::fs::write(&file, bad).unwrap();
        let result = run(&tools).await.unwrap();
        assert!(result.is_error && result.output.is_none(), "{bad}");
        assert!(
            result.error.starts_with("result cannot be recorded as json: invalid"),
            "{result:?}"
        );
        assert_eq!(result.content, [Part::Text(bad.to_owned())]);
    }
    std::fs::write(&file, b"\xff").unwrap();
    let expected = ToolResult { id: "call-1".to_owned(), ..failed("result is not utf-8") };
    assert_eq!(run(&tools).await.unwrap(), expected);
}

#[tokio::test]
async fn a_failure_of_the_command_is_a_result_that_says_so() {
    for (text, error) in [
        ("exit 3", "exit status 3".to_owned()),
        ("echo no such order >&2; exit 1", "exit status 1: no such order".to_owned()),
        ("echo '{\"a\":1}'; exit 1", "exit status 1".to_owned()),
        ("printf 'x\\377y' >&2; exit 1", "exit status 1: x\u{fffd}y".to_owned()),
    ] {
        let result = run(&sh(text)).await.unwrap();
        assert_eq!(result, ToolResult { id: "call-1".to_owned(), ..failed(&error) }, "{text}");
    }
    let mut options = ToolsOptions::default();
    options.error_bytes_max = 8;
    let tools = script("printf 0123456789abcdef >&2; exit 1", Path::new("sh"), options);
    assert_eq!(run(&tools).await.unwrap().error, "exit status 1: 89abcdef");
}

#[tokio::test]
async fn a_command_that_cannot_be_started_has_done_nothing() {
    let tools = Tools::parse(["t=exec:/nonexistent/tool --key s3cret"]).unwrap();
    let error = run(&tools).await.unwrap_err();
    assert_error(&error, Outcome::NotApplied, "tool \"t\": cannot start \"/nonexistent/tool\"");
    assert!(report(&error).contains("No such file"), "{}", report(&error));
    assert!(!report(&error).contains("s3cret"));

    let tools = sh("true");
    let mut odd = call("t", None);
    odd.idempotency_key = "a\0b".to_owned();
    let error = tools.execute(&scope(), &odd).await.unwrap_err();
    assert_error(&error, Outcome::NotApplied, "cannot start \"sh\"");
    let args = object([("a", Json::Number(f64::NAN))]);
    let error = tools.execute(&scope(), &call("t", Some(args))).await.unwrap_err();
    assert_error(&error, Outcome::NotApplied, "arguments cannot be written");
    odd.idempotency_key.clear();
    let error = tools.execute(&scope(), &odd).await.unwrap_err();
    assert_error(&error, Outcome::NotApplied, "call has no idempotency key");
}

#[tokio::test]
async fn an_unknown_tool_is_told_with_those_that_are_there() {
    let tools = Tools::parse(["b=exec:true", "a=exec:true"]).unwrap();
    let error = tools.execute(&scope(), &call("c", None)).await.unwrap_err();
    assert_error(&error, Outcome::NotApplied, "tool \"c\" is not configured; there are: a, b");
    let none = Tools::builder().build().unwrap();
    let error = none.execute(&scope(), &call("c", None)).await.unwrap_err();
    assert_error(&error, Outcome::NotApplied, "there are: none");
}

/// The variables of this process are what cargo and the test runner gave it.
#[tokio::test]
async fn what_is_withheld_is_not_inherited() {
    let mut options = ToolsOptions::default();
    assert_eq!(options.env_withheld, ["MODEL_API_KEY", "OPENAI_API_KEY"]);
    let tools = script("echo \"[$CARGO_MANIFEST_DIR]\"", Path::new("sh"), options.clone());
    let inherited = run(&tools).await.unwrap();
    assert_ne!(inherited.content, [Part::Text("[]".to_owned())]);
    options.env_withheld.push("CARGO_MANIFEST_DIR".to_owned());
    let tools = script("echo \"[$CARGO_MANIFEST_DIR]\"", Path::new("sh"), options);
    assert_eq!(run(&tools).await.unwrap().content, [Part::Text("[]".to_owned())]);
}

/// A process of its own, since no test may change the variables of this one.
#[test]
fn keys_and_settings_of_the_host_are_not_inherited() {
    let withheld = ["MODEL_API_KEY", "OPENAI_API_KEY", "MAINSPRING_JOURNAL", "MAINSPRING_SESSION"];
    let test = "commands::a_host_with_keys_runs_env";
    let mut host = std::process::Command::new(std::env::current_exe().unwrap());
    host.args(["--exact", "--nocapture", test]).env("TOOLS_EXEC_HOST", "1").env("KEPT", "s3cret");
    for name in withheld {
        host.env(name, "s3cret");
    }
    let output = host.output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{told}");
    let shown: Vec<&str> = told.lines().filter(|line| line.ends_with("=s3cret")).collect();
    assert_eq!(shown, ["KEPT=s3cret"]);
    assert!(told.contains(&format!("MAINSPRING_SESSION={SESSION}")), "{told}");
}

/// Runs `env` as a tool where the test above has set the variables.
#[tokio::test]
#[expect(clippy::print_stdout, reason = "the test above reads it")]
async fn a_host_with_keys_runs_env() {
    if std::env::var_os("TOOLS_EXEC_HOST").is_none() {
        return;
    }
    let result = run(&sh("env")).await.unwrap();
    let [Part::Text(text)] = &result.content[..] else { panic!("{result:?}") };
    println!("\n{text}");
}

#[tokio::test]
async fn a_tool_that_remembers_its_keys_does_its_work_once() {
    let ledger = tempfile::tempdir().unwrap();
    let text = r#"mkdir "$0/$MAINSPRING_SESSION-$MAINSPRING_IDEMPOTENCY_KEY" 2>/dev/null \
                  && echo paid >> "$0/effects"; echo '{"paid":true}'"#;
    let args = ["-c", text, ledger.path().to_str().unwrap()];
    let entry = ToolEntry::exec("pay", "sh", args).unwrap().durable();
    let tools = Tools::builder().tool(entry).build().unwrap();
    assert!(tools.is_repeatable("pay"));
    let first = tools.execute(&scope(), &call("pay", None)).await.unwrap();
    let again = tools.execute(&scope(), &call("pay", None)).await.unwrap();
    assert_eq!(first, again);
    let mut other = call("pay", None);
    other.idempotency_key = "00000000000000aa-2".to_owned();
    tools.execute(&scope(), &other).await.unwrap();
    let effects = std::fs::read_to_string(ledger.path().join("effects")).unwrap();
    assert_eq!(effects, "paid\npaid\n", "attempts 3, effects 2");
}
