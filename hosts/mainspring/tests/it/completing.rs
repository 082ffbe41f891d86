//! Shell completion, as its scripts ask for it.

use crate::support::Dir;

/// What bash is offered for the last of these words.
fn offered(dir: &Dir, words: &[&str]) -> Vec<String> {
    let index = words.len().to_string();
    let mut command = dir.command(&[&["--", "mainspring"], words].concat());
    command.env("COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", index);
    command.env("_CLAP_COMPLETE_COMP_TYPE", "9").env("_CLAP_COMPLETE_SPACE", "false");
    let out = command.env("_CLAP_IFS", "\n").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&out.stderr), "", "nothing is said meanwhile");
    let stdout = String::from_utf8(out.stdout).unwrap();
    stdout.lines().map(|word| word.trim_end().to_owned()).collect()
}

#[test]
fn sessions_and_harnesses_are_offered_where_they_are_asked_for() {
    let dir = Dir::new();
    let first = dir.run(&["create"]).ok().trim_end().to_owned();
    let second = dir.run(&["create", "--harness", "gate"]).ok().trim_end().to_owned();
    let all = offered(&dir, &["get", "--session", ""]);
    assert!(all.contains(&first) && all.contains(&second), "{all:?}");
    assert_eq!(offered(&dir, &["describe", "--session", &first[..10]]), [first.as_str()]);
    let approve = offered(&dir, &["approve", "sess-"]);
    assert!(approve.contains(&first), "{approve:?}");
    assert_eq!(offered(&dir, &["exec", "--harness", "ga"]), ["gate"]);
    // Another journal, another list.
    dir.run(&["create", "--journal", "b.redb"]).ok();
    let other = offered(&dir, &["--journal", "b.redb", "get", "--session", ""]);
    assert!(other.len() == 1 && !all.contains(&other[0]), "{other:?}");
}

#[test]
fn what_cannot_be_had_is_not_offered_and_not_complained_of() {
    let dir = Dir::new();
    assert!(offered(&dir, &["get", "--session", "x"]).is_empty());
    assert!(!dir.path("mainspring.redb").exists(), "completing makes no journal");
    assert!(offered(&dir, &["--server", "127.0.0.1:1", "get", "--session", "x"]).is_empty());
    dir.write("mainspring.toml", "nope = 1\n");
    assert!(offered(&dir, &["get", "--session", "x"]).is_empty());
    assert_eq!(offered(&dir, &["descr"]), ["describe"]);
}

#[test]
fn every_shell_has_a_script() {
    let dir = Dir::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = dir.run(&["completions", shell]).ok();
        assert!(script.contains("COMPLETE") && script.contains("mainspring"), "{shell}: {script}");
    }
}
