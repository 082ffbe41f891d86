//! The plan, for workspaces and machines of several kinds.

use super::*;
use crate::workspace::show;

fn workspace() -> Workspace {
    let package = |name: &str, place: &str, features: &str| {
        format!(
            r#"{{"name": "{name}", "manifest_path": "/w/{place}/Cargo.toml", "features": {{{features}}},
                "dependencies": [], "targets": []}}"#
        )
    };
    let packages = [
        package("mainspring", "crates/facade", r#""default": ["store-redb"], "store-redb": []"#),
        package("mainspring-api", "crates/api", ""),
        package("mainspring-host", "hosts/mainspring", r#""transport-grpc": []"#),
        package("mainspring-testkit", "crates/testkit", r#""redb": []"#),
        package("mainspring-x", "crates/x", r#""run": []"#).replace(
            r#""targets": []"#,
            r#""targets": [{"name": "log", "kind": ["bench"], "src_path": "/w/b.rs", "required-features": ["run"]}]"#,
        ),
    ];
    let json = format!(
        r#"{{"packages": [{}], "workspace_root": "/w", "target_directory": "/t"}}"#,
        packages.join(",")
    );
    serde_json::from_str(&json).unwrap()
}

fn shown(task: &Task) -> String {
    match task {
        Task::Command(command, _) => show(command),
        Task::Check(_) => "check".to_owned(),
        Task::Missing(what) => format!("missing: {what}"),
        Task::Absent(what) => format!("absent: {what}"),
    }
}

#[track_caller]
fn tasks(steps: &[Step], name: &str) -> Vec<String> {
    let step = steps.iter().find(|step| step.name == name).unwrap();
    step.tasks.iter().map(shown).collect()
}

fn facts(workspace: &Workspace, tools: bool, scripts: &[&str]) -> Vec<Step> {
    let brokers = Brokers::None("no java".to_owned());
    with_brokers(workspace, tools, scripts, brokers)
}

fn with_brokers(
    workspace: &Workspace,
    tools: bool,
    scripts: &[&str],
    brokers: Brokers,
) -> Vec<Step> {
    let scripts = scripts.iter().map(PathBuf::from).collect();
    Facts { workspace, nextest: tools, deny: tools, scripts, brokers }.ci()
}

#[test]
fn the_steps_are_in_order() {
    let workspace = workspace();
    let names: Vec<&str> = facts(&workspace, true, &[]).iter().map(|step| step.name).collect();
    let first =
        ["format", "clippy", "layers", "tidy", "dependencies", "features", "crates alone", "docs"];
    assert_eq!(first, names[..8]);
    assert_eq!(["brokers", "tests", "claims", "doctests", "release binary"], names[8..13]);
    assert_eq!(SCRIPTS.len(), names[13..].len());
}

#[test]
fn brokers_are_started_for_the_tests_and_those_of_others_stay() {
    let workspace = workspace();
    let brokers = Brokers::Clusters(vec![(&CLUSTERS[0], true), (&CLUSTERS[1], false)]);
    let steps = with_brokers(&workspace, true, &[], brokers);
    let started = tasks(&steps, "tests");
    assert_eq!("cargo xtask kafka up --name one", started[0]);
    assert_eq!("cargo xtask kafka up --name three --brokers 3", started[1]);
    assert_eq!(3, started.len());
    let tests = steps.iter().find(|step| step.name == "tests").unwrap();
    let undone: Vec<String> = tests.undo.iter().map(shown).collect();
    assert_eq!(["cargo xtask kafka down --purge --name three"], *undone);
    assert!(steps.iter().all(|step| step.name != "brokers"));
}

#[test]
fn a_missing_tool_is_named_or_replaced() {
    let workspace = workspace();
    let steps = facts(&workspace, false, &[]);
    assert!(tasks(&steps, "dependencies")[0].starts_with("missing: cargo-deny is not installed"));
    assert!(tasks(&steps, "tests")[0].starts_with("cargo test --workspace --features"));
    let steps = facts(&workspace, true, &[]);
    assert!(tasks(&steps, "dependencies")[0].starts_with("cargo deny"));
    assert!(tasks(&steps, "tests")[0].starts_with("cargo nextest run --workspace"));
}

#[test]
fn features_are_checked_one_by_one() {
    let workspace = workspace();
    let steps = facts(&workspace, true, &[]);
    let expected = [
        "cargo check --package mainspring --no-default-features",
        "cargo check --package mainspring --no-default-features --features store-redb",
        "cargo check --package mainspring-host --no-default-features",
        "cargo check --package mainspring-host --no-default-features --features transport-grpc",
        "cargo check --package mainspring-testkit --no-default-features",
        "cargo check --package mainspring-testkit --no-default-features --features redb",
        "cargo check --package mainspring-x --no-default-features",
        "cargo check --package mainspring-x --no-default-features --features run --benches",
    ];
    assert_eq!(expected, *tasks(&steps, "features"));
    assert_eq!(["cargo check --package mainspring-api"], *tasks(&steps, "crates alone"));
}

#[test]
fn scripts_get_the_binary_and_absent_ones_are_told() {
    let workspace = workspace();
    let scripts = [
        "tools/test_verify_chain.py",
        "examples/python/run.sh",
        "tools/kill_smoke",
        "tools/smoke.py",
    ];
    let steps = facts(&workspace, true, &scripts);
    let binary = "/t/release/mainspring";
    let python = format!("python3 tools/test_verify_chain.py {binary}");
    assert_eq!([python], *tasks(&steps, "journal verifier in Python"));
    assert_eq!(
        [format!("bash examples/python/run.sh {binary}")],
        *tasks(&steps, "Python client and harness")
    );
    let smoke =
        [format!("/w/tools/kill_smoke {binary}"), format!("python3 tools/smoke.py {binary}")];
    assert_eq!(smoke, *tasks(&steps, "smoke tests"));
    assert_eq!(
        ["absent: there is no examples/aimock/check.sh"],
        *tasks(&steps, "chat against a mock model")
    );
}

#[test]
fn patterns_stay_in_their_folder() {
    assert!(matches("tools/*smoke*", Path::new("tools/a_smoke.sh")));
    assert!(!matches("tools/*smoke*", Path::new("tools/smoke/x.sh")));
    assert!(!matches("tools/*smoke*", Path::new("tools/x.sh")));
    assert!(matches("a/b.sh", Path::new("a/b.sh")));
    assert!(!matches("a/b.sh", Path::new("a/bb.sh")));
}
