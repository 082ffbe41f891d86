//! The configuration, as its users write it.

use serde_json::Value;

use crate::support::{Dir, Serving, session_of};

fn shown(stdout: &str, key: &str) -> Value {
    let lines = stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.into_iter().find(|line| line["key"] == key).unwrap()
}

#[test]
fn every_setting_is_shown_with_where_it_came_from_and_no_secret() {
    let dir = Dir::new();
    let file = "token = \"s3cret\"\nproject = \"filed\"\n[log]\nformat = \"json\"\n[[harness]]\n\
                name = \"far\"\nruntime = \"remote\"\naddress = \"127.0.0.1:1\"\n";
    dir.write("mainspring.toml", file);
    let mut command = dir.command(&["config", "show", "--origin", "-o", "json"]);
    let out = command.env("MAINSPRING_PROJECT", "varied").output().unwrap();
    let stdout = String::from_utf8(out.stdout).unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(!stdout.contains("s3cret"), "{stdout}");
    assert_eq!(shown(&stdout, "token")["value"], "redacted");
    assert_eq!(shown(&stdout, "token")["origin"]["path"], "mainspring.toml");
    assert_eq!(shown(&stdout, "project")["value"], "varied");
    assert_eq!(shown(&stdout, "project")["origin"]["name"], "MAINSPRING_PROJECT");
    assert_eq!(shown(&stdout, "output")["origin"]["kind"], "flag");
    assert_eq!(shown(&stdout, "addr")["origin"]["kind"], "default");
    assert_eq!(shown(&stdout, "harness")["value"][0]["name"], "far");
    assert_eq!(shown(&stdout, "model")["value"], Value::Null);
    let text = dir.run(&["config", "show", "--origin"]).ok();
    assert!(text.contains("project = \"filed\"  # mainspring.toml\n"), "{text}");
    assert!(text.contains("token = \"redacted\"  # mainspring.toml\n"), "{text}");
    assert!(text.contains("addr = \"127.0.0.1:8080\"  # default\n"), "{text}");
    assert!(text.contains("# model is not set\n"), "{text}");
    let plain = dir.run(&["config", "show"]).ok();
    assert!(plain.contains("project = \"filed\"\n"), "{plain}");
}

#[test]
fn a_wrong_file_or_variable_stops_every_command_before_it_does_anything() {
    let dir = Dir::new();
    dir.write("mainspring.toml", "journal = \"a.redb\"\nnope = 1\n");
    dir.run(&["create"]).fails(2, "mainspring.toml, line 2: unknown field `nope`");
    assert!(!dir.path("a.redb").exists());
    dir.run(&["version"]).ok();
    let other = Dir::new();
    let out = other.command(&["create"]).env("MAINSPRING_JURNAL", "x").output().unwrap();
    assert_eq!(out.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&out.stderr).contains("MAINSPRING_JURNAL"));
    assert!(!other.path("mainspring.redb").exists());
}

#[test]
fn a_file_sets_up_a_server_and_its_clients() {
    let dir = Dir::new();
    let harness = Serving::start(&dir, &["harness", "serve", "--addr", "127.0.0.1:0"]);
    let file = format!(
        "journal = \"set.redb\"\naddr = \"unix:set.sock\"\nserver = \"unix:set.sock\"\n[[harness]]\n\
         name = \"far\"\nruntime = \"remote\"\naddress = \"{}\"\n",
        harness.address
    );
    dir.write("mainspring.toml", file);
    let server = Serving::start(&dir, &["serve"]);
    assert!(dir.path("set.redb").exists());
    let out = dir.run(&["exec", "--harness", "far", "--input", "hello"]).ok();
    let session = session_of(&out);
    let shown = dir.run(&["get", "--session", &session]).ok();
    assert!(shown.contains("harness=far"), "{shown}");
    assert_eq!(server.terminate(), 0);
    // A journal that is named goes before the file's server.
    dir.run(&["verify", "--session", &session, "--journal", "set.redb"]).ok();
    // The same harness serves a host inside a command.
    let embedded = ["exec", "--harness", "far", "--input", "x", "--journal", "set.redb"];
    dir.run(&embedded).ok();
}

#[test]
fn what_cannot_be_served_is_refused_by_name_before_the_journal_is_opened() {
    let dir = Dir::new();
    let tls = "[tls]\ncertificate='c'\nkey='k'\nclient_ca='a'\n";
    let mtls = format!("{tls}[authn.mtls]\ntrust_domain='d'\n");
    let oidc = "[authn.oidc]\nissuer='i'\naudiences=['a']\njwks_file='f'\n";
    for (file, code, says) in [
        ("[[harness]]\nname='a'\nruntime='pod'\nimage='i'\n".to_owned(), 2, "runtime \"pod\""),
        ("[[harness]]\nname='a'\nruntime='vm'\ntemplate='t'\n".to_owned(), 2, "runtime \"vm\""),
        ("[[harness]]\nname='a'\nruntime='child'\n".to_owned(), 2, "a child has a command"),
        (
            "[[harness]]\nname='a'\nruntime='remote'\naddress='127.0.0.1:1'\nimage='i'\n"
                .to_owned(),
            2,
            "for pods and VMs",
        ),
        (tls.to_owned(), 2, "c"),
        (format!("{oidc}[authz]\npolicy='owner'\n"), 2, "authn: "),
        (format!("{mtls}[authz]\npolicy='owner+allowlist'\nallow.exec=[]\n"), 2, "exec"),
        (format!("{mtls}[authz]\npolicy='cedar'\ncedar_policies='p'\n"), 1, "no cedar"),
        ("[log]\nlevel = 'a=b=c'\n".to_owned(), 2, "log.level"),
    ] {
        dir.write("c.toml", &file);
        let done = dir.run(&["serve", "--addr", "127.0.0.1:0", "--config-file", "c.toml"]);
        assert_eq!(done.code, code, "{file}: {}", done.stderr);
        assert!(done.stderr.contains(says), "{file}: {}", done.stderr);
        assert!(!dir.path("mainspring.redb").exists(), "{file}");
    }
}

#[test]
fn the_next_command_names_the_file_that_this_one_was_given() {
    let dir = Dir::new();
    dir.write("c.toml", "journal = \"other.redb\"\n");
    let exec = ["exec", "--harness", "gate", "--input", "refund 12", "--config-file", "c.toml"];
    dir.run(&exec).fails(5, " --config-file c.toml --journal other.redb (or deny)");
}

#[test]
fn a_list_shows_what_its_filters_let_through() {
    let dir = Dir::new();
    let run = dir.exec("hello");
    let fresh = dir.run(&["create", "--harness", "gate"]).ok().trim_end().to_owned();
    let uids = |args: &[&str]| -> Vec<String> {
        let out = dir.run(&[&["list"], args].concat()).ok();
        out.lines().map(|line| line.split('\t').next().unwrap().to_owned()).collect()
    };
    assert_eq!(uids(&["--state", "completed"]), [run.as_str()]);
    assert_eq!(uids(&["--state", "pending"]), [fresh.as_str()]);
    assert_eq!(uids(&["--state", "pending", "--state", "completed"]).len(), 2);
    assert_eq!(uids(&["--harness", "gate"]), [fresh.as_str()]);
    assert!(uids(&["--label", "a=b"]).is_empty());
    assert_eq!(uids(&["--owner", "me", "--page-size", "1"]).len(), 2, "nobody is known here");
}
