//! A server that knows its callers, and what each of them may do.

use std::time::Duration;

use crate::identities::Secured;
use crate::support::{Dir, session_of};

/// Says that it was done.
const REFUND: &str = "cat > /dev/null\necho '{\"refunded\":true}'\n";

/// Every command of a client, by one caller on sessions of its own.
fn every_command_works(secured: &Secured, client: &str) {
    let run = |args: &[&str]| secured.run(client, args);
    secured.dir.write("refund.sh", REFUND);
    let created = run(&["create", "--name", "n"]).ok().trim_end().to_owned();
    let session = session_of(&run(&["exec", "--input", "hello", "--harness", "echo"]).ok());
    let on = ["--session", session.as_str()];
    run(&["exec", on[0], on[1], "--input", "more"]).ok();
    let got = run(&["get", on[0], on[1]]).ok();
    assert!(got.contains("last_seq=10"), "{got}");
    let listed = run(&["list"]).ok();
    assert!(listed.contains(&session) && listed.contains(&created), "{listed}");
    let completed = run(&["list", "--state", "completed", "--harness", "echo"]).ok();
    assert!(completed.contains(&session) && !completed.contains(&created), "{completed}");
    let mine = run(&["list", "--owner", "me", "--state", "pending"]).ok();
    assert!(mine.contains(&created) && !mine.contains(&session), "{mine}");
    let described = run(&["describe", on[0], on[1]]).ok();
    assert!(described.contains("standing IDLE"), "{described}");
    let followed = run(&["follow", "--until-idle", on[0], on[1]]).ok();
    let replayed = run(&["replay", on[0], on[1]]).ok();
    assert_eq!(followed, replayed);
    assert_eq!(replayed.lines().count(), 10);
    let again = run(&["replay", "--re-execute", on[0], on[1]]).ok();
    assert!(again.ends_with("turns=2 model_calls=0\n"), "{again}");
    let child = run(&["fork", on[0], on[1], "--at", "5", "--names", "c"]).ok();
    let child = child.strip_prefix("child ").unwrap().split(' ').next().unwrap().to_owned();
    // The child is its maker's too.
    run(&["exec", "--session", &child, "--input", "on"]).ok();
    run(&["suspend", on[0], on[1]]).ok();
    run(&["resume", on[0], on[1]]).ok();
    run(&["verify", on[0], on[1]]).ok();
    let parked = run(&["exec", "--harness", "gate", "--input", "refund 12"]);
    let gated = session_of(&parked.stdout);
    parked.fails(5, "next: mainspring approve");
    let approved = run(&["approve", &gated]).ok();
    assert!(approved.contains("refund: done"), "{approved}");
    let parked = run(&["exec", "--harness", "gate", "--input", "refund 13"]);
    let cancelled = session_of(&parked.stdout);
    run(&["cancel", "--session", &cancelled]).ok();
    let canceled = run(&["list", "--state", "canceled"]).ok();
    assert!(canceled.contains(&cancelled), "{canceled}");
    let exported = run(&["export", on[0], on[1]]).ok();
    secured.dir.write("e.ndjson", exported);
    run(&["verify", "--file", "e.ndjson"]).ok();
    run(&["import", "--file", "e.ndjson"]).fails(6, "already_exists");
    run(&["delete", "--session", &created]).ok();
    let deleted = run(&["list"]).ok();
    let deleted = deleted.lines().find(|line| line.starts_with(&created));
    assert!(deleted.is_some_and(|line| line.ends_with("\tdeletion=PENDING")), "{deleted:?}");
}

#[test]
fn every_command_works_for_the_owner_with_a_token_file() {
    let secured = Secured::new();
    let (server, _) = secured.serve();
    let alice = secured.client_with_token_file("alice", &server.address);
    every_command_works(&secured, &alice);
    assert_eq!(server.terminate(), 0);
}

#[test]
fn every_command_works_for_the_owner_with_a_certificate() {
    let secured = Secured::new();
    let (server, _) = secured.serve();
    let carol = secured.client_with_certificate(&server.address);
    every_command_works(&secured, &carol);
}

/// What is imported is its importer's, and nobody else's.
#[test]
fn an_import_belongs_to_who_imported_it() {
    let (here, there) = (Secured::new(), Secured::new());
    let (one, _) = here.serve();
    let (two, _) = there.serve();
    let client = here.client_with_token_file("alice", &one.address);
    let session = session_of(&here.run(&client, &["exec", "--input", "hello"]).ok());
    let exported = here.run(&client, &["export", "--session", &session]).ok();
    there.dir.write("e.ndjson", &exported);
    let bob = there.client_with_token_file("bob", &two.address);
    let alice = there.client_with_token_file("alice", &two.address);
    let imported = there.run(&bob, &["import", "--file", "e.ndjson"]).ok();
    assert!(imported.contains(&session), "{imported}");
    let again = there.run(&bob, &["export", "--session", &session]).ok();
    // Everything but the owner is as it was.
    assert_eq!(again, exported.replace("\"subject\":\"alice\"", "\"subject\":\"bob\""));
    there.run(&alice, &["get", "--session", &session]).fails(4, "permission_denied");
}

/// A session of somebody else cannot be told from one that never was.
#[test]
fn a_foreign_session_answers_as_one_that_does_not_exist() {
    let secured = Secured::new();
    let (server, _) = secured.serve();
    // This token stands in the file itself.
    let token = format!("token = \"{}\"", secured.token("alice"));
    let alice = secured.client("alice", &server.address, &token, "");
    let bob = secured.client_with_token_file("bob", &server.address);
    let carol = secured.client_with_certificate(&server.address);
    let session = session_of(&secured.run(&alice, &["exec", "--input", "hello"]).ok());
    let missing = "sess-00000000000000000000000000000000";
    let commands: [&[&str]; 15] = [
        &["get", "--session"],
        &["describe", "--session"],
        &["exec", "--input", "x", "--session"],
        &["follow", "--until-idle", "--session"],
        &["follow", "--session"],
        &["replay", "--session"],
        &["replay", "--re-execute", "--session"],
        &["fork", "--session"],
        &["suspend", "--session"],
        &["resume", "--session"],
        &["approve"],
        &["cancel", "--session"],
        &["delete", "--session"],
        &["verify", "--session"],
        &["export", "--session"],
    ];
    for client in [&bob, &carol] {
        for command in commands {
            let foreign = secured.run(client, &[command, &[session.as_str()]].concat());
            let unknown = secured.run(client, &[command, &[missing]].concat());
            assert_eq!((foreign.code, unknown.code), (4, 4), "{command:?} {foreign:?} {unknown:?}");
            assert_eq!((&*foreign.stdout, &*unknown.stdout), ("", ""), "{command:?}");
            assert_eq!(foreign.stderr.replace(&session, missing), unknown.stderr, "{command:?}");
        }
        assert_eq!(secured.run(client, &["list"]).ok(), "");
    }
    // Nothing of all that touched it.
    let got = secured.run(&alice, &["get", "--session", &session]).ok();
    assert!(got.contains("last_seq=5"), "{got}");
}

#[test]
fn a_caller_without_a_good_token_is_nobody() {
    let secured = Secured::new();
    let (server, operators) = secured.serve();
    let expired = format!("token = \"{}\"", secured.expired_token("alice"));
    let forged = format!("token = \"{}\"", Secured::new().token("alice"));
    for address in [&server.address, &operators] {
        for (name, token) in [("none", ""), ("expired", &expired), ("forged", &forged)] {
            let client = secured.client(name, address, token, "");
            let commands: &[&[&str]] = match address == &operators {
                true => &[&["harness", "list"]],
                false => &[
                    &["create"],
                    &["list"],
                    &["exec", "--input", "x"],
                    &["get", "--session", "s"],
                    &["describe", "--session", "s"],
                    &["follow", "--session", "s"],
                    &["export", "--session", "s"],
                ],
            };
            for command in commands {
                let done = secured.run(&client, command);
                assert!(
                    done.stderr.ends_with(" [unauthenticated]\n"),
                    "{name} {command:?} {done:?}"
                );
                assert!(!done.stderr.contains("reconnecting"), "{name} {command:?} {done:?}");
                assert_eq!((done.code, &*done.stdout), (4, ""), "{name} {command:?} {done:?}");
            }
        }
    }
    let missing = secured.client("gone", &server.address, "token_file = \"gone.token\"", "");
    secured.run(&missing, &["list"]).fails(4, "token_file gone.token");
    // Somebody who is known, and on no list.
    let mallory = secured.client_with_token_file("mallory", &server.address);
    for command in [&["create"][..], &["list"], &["exec", "--input", "x"]] {
        secured.run(&mallory, command).fails(4, "[permission_denied]");
    }
    // Bob is on no list of those who approve, and owns the session.
    let bob = secured.client_with_token_file("bob", &server.address);
    let parked = secured.run(&bob, &["exec", "--harness", "gate", "--input", "refund 12"]);
    let session = session_of(&parked.stdout);
    secured.run(&bob, &["approve", &session]).fails(4, "[permission_denied]");
}

#[test]
fn a_token_does_not_leave_the_machine_in_plain_text() {
    let dir = Dir::new();
    dir.write("token", "s3cret");
    let get = ["get", "--session", "s", "--token-file", "token", "--server"];
    for address in ["host.example:1", "10.0.0.1:1", "http://host.example:1"] {
        let done = dir.run(&[&get[..], &[address]].concat());
        assert!(!done.stderr.contains("s3cret"), "{done:?}");
        done.fails(2, "a bearer token is not sent in plain text to another machine");
    }
}

/// A credential that runs out ends a follow, and a new one in the same file is taken.
#[test]
fn a_follow_ends_with_its_token() {
    let secured = Secured::new();
    let (server, _) = secured.serve();
    let alice = secured.client_with_token_file("alice", &server.address);
    let session = session_of(&secured.run(&alice, &["exec", "--input", "hello"]).ok());
    // Of the 60 s of skew that it is granted, three are left.
    let short = format!("token = \"{}\"", secured.token_for("alice", -57));
    let short = secured.client("short", &server.address, &short, "");
    let done = secured.run(&short, &["follow", "--session", &session]);
    assert_eq!(done.stdout.lines().count(), 5, "{done:?}");
    // It may have been renewed, which is tried once.
    assert_eq!(done.stderr.matches("reconnecting").count(), 1, "{done:?}");
    done.fails(4, "[unauthenticated]");
}

#[test]
fn certificates_can_be_required() {
    let secured = Secured::new();
    let text = std::fs::read_to_string(secured.dir.path("server.toml")).unwrap();
    let required = "client_ca = \"ca.pem\"\nclient_auth = \"required\"\n";
    secured.dir.write("server.toml", text.replace("client_ca = \"ca.pem\"\n", required));
    let (server, _) = secured.serve();
    let alice = secured.client_with_token_file("alice", &server.address);
    let carol = secured.client_with_certificate(&server.address);
    let refused = secured.run(&alice, &["list"]);
    assert_eq!(refused.code, 7, "{refused:?}");
    secured.run(&carol, &["exec", "--input", "hello"]).ok();
}

/// Renewed files are taken by themselves.
#[test]
fn a_new_certificate_is_served_without_a_restart() {
    let secured = Secured::new();
    let (server, _) = secured.serve();
    let alice = secured.client_with_token_file("alice", &server.address);
    secured.run(&alice, &["list"]).ok();
    // The next one is of an authority that the client does not know yet.
    let next = Secured::new();
    for file in ["ca.pem", "server.pem", "server.key"] {
        let content = std::fs::read(next.dir.path(file)).unwrap();
        let name = if file == "ca.pem" { "next-ca.pem" } else { file };
        secured.dir.write(name, content);
    }
    let tls = "ca = \"next-ca.pem\"";
    let text = std::fs::read_to_string(secured.dir.path(&alice)).unwrap();
    secured.dir.write("next.toml", text.replace("ca = \"ca.pem\"", tls));
    let taken = (0..120).any(|_| {
        std::thread::sleep(Duration::from_millis(100));
        secured.run("next.toml", &["list"]).code == 0
    });
    assert!(taken, "the new certificate is not served");
    secured.run(&alice, &["list"]).fails(7, "invalid peer certificate");
    assert_eq!(server.terminate(), 0);
}

#[test]
fn a_server_that_is_set_up_in_part_does_not_start() {
    let secured = Secured::new();
    let whole = std::fs::read_to_string(secured.dir.path("server.toml")).unwrap();
    let without = |text: &str| {
        assert!(whole.contains(text), "{text}");
        whole.replace(text, "")
    };
    let beyond = |text: &str| text.replacen("127.0.0.1:0", "0.0.0.0:0", 1);
    let files = "certificate = \"server.pem\"\nkey = \"server.key\"\nclient_ca = \"ca.pem\"\n";
    let mtls = "[authn.mtls]\ntrust_domain = \"spiffe://example.org\"\n";
    let until_authz = whole.split("[authz]").next().unwrap().to_owned();
    for (text, says) in [
        (beyond("addr = \"127.0.0.1:0\"\n"), "missing: TLS (tls.certificate and tls.key), an auth"),
        (beyond(&without(files).replace(mtls, "")), "missing: TLS"),
        (beyond(&until_authz), "need a policy (authz.policy)"),
        (without("key = \"server.key\"\n"), "tls.certificate and tls.key come together"),
        (without("client_ca = \"ca.pem\"\n"), "authn.mtls needs tls.client_ca"),
        (without("audiences = [\"mainspring\"]\n"), "authn.oidc needs audiences"),
        (whole.replace("server.key", "gone.key"), "gone.key"),
        (whole.replace("server.key", "carol.key"), "KeyMismatch"),
        (whole.replace("jwks.json", "gone.json"), "gone.json"),
        (whole.replace("\ncreate =", "\nmint ="), "authz.allow has a list for \"mint\""),
        (whole.replace("\"owner+allowlist\"", "\"owner\""), "authz.allow needs authz.policy"),
        (whole.replace("\"owner+allowlist\"", "\"all\""), "unknown variant `all`"),
        (format!("metrics = {{ addr = \"0.0.0.0:0\" }}\n{whole}"), "metrics.addr 0.0.0.0:0 is not"),
    ] {
        secured.dir.write("part.toml", text);
        secured.run("part.toml", &["serve"]).fails(2, says);
        assert!(!secured.dir.path("mainspring.redb").exists(), "{says}");
    }
    // Whole, it listens anywhere.
    secured.dir.write("server.toml", beyond(&whole));
    let (server, _) = secured.serve();
    assert!(server.line.starts_with("serving on 0.0.0.0:"), "{}", server.line);
}

#[test]
fn the_configuration_is_shown_without_its_secrets() {
    let secured = Secured::new();
    let token = secured.token("alice");
    let client = secured.client("alice", "127.0.0.1:1", &format!("token = \"{token}\""), "");
    for output in ["text", "json"] {
        let shown = secured.run(&client, &["config", "show", "--origin", "-o", output]).ok();
        assert!(!shown.contains(&token) && shown.contains("redacted"), "{shown}");
        assert!(shown.contains("alice.toml"), "{shown}");
    }
    let shown = secured.run("server.toml", &["config", "show", "--origin"]).ok();
    for line in [
        "tls.key = \"server.key\"  # server.toml\n",
        "authn.oidc.issuer = \"https://issuer.example\"  # server.toml\n",
        "authz.policy = \"owner+allowlist\"  # server.toml\n",
    ] {
        assert!(shown.contains(line), "{line} is not in {shown}");
    }
    assert!(!shown.contains("PRIVATE KEY"), "{shown}");
}
