//! What the commands tell those who may not know.

use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};

use crate::support::{Dir, Done, Serving, session_of};

const ISSUER: &str = "https://issuer.example";
const UNKNOWN: &str = "sess-000000000000000000000000";
/// Seconds since 1970, beyond any run of this test.
const LATER: i64 = 4_000_000_000;
const PAST: i64 = 1_000_000_000;

fn b64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

struct Signer(EcdsaKeyPair);

impl Signer {
    fn new() -> Self {
        let (random, how) = (SystemRandom::new(), &ECDSA_P256_SHA256_FIXED_SIGNING);
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(how, &random).unwrap();
        Self(EcdsaKeyPair::from_pkcs8(how, pkcs8.as_ref(), &random).unwrap())
    }

    fn jwks(&self) -> String {
        let point = self.0.public_key().as_ref();
        let (x, y) = (b64(&point[1..33]), b64(&point[33..]));
        let key = json!({"kty": "EC", "kid": "k", "crv": "P-256", "x": x, "y": y});
        json!({ "keys": [key] }).to_string()
    }

    fn token(&self, subject: &str, changes: &Value) -> String {
        let mut claims = json!({"iss": ISSUER, "sub": subject, "aud": "mainspring", "exp": LATER});
        for (name, value) in changes.as_object().unwrap() {
            claims[name] = value.clone();
        }
        let header = json!({"alg": "ES256", "kid": "k"}).to_string();
        let message = format!("{}.{}", b64(header), b64(claims.to_string()));
        let signature = self.0.sign(&SystemRandom::new(), message.as_bytes()).unwrap();
        format!("{message}.{}", b64(signature))
    }
}

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn certified(dir: &Dir, name: &str, authority: &Authority) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    dir.write(&format!("{name}.pem"), params.signed_by(&key, authority).unwrap().pem());
    dir.write(&format!("{name}.key"), key.serialize_pem());
}

/// A server, and somebody who calls it.
struct World {
    dir: Dir,
    server: Serving,
    signer: Signer,
}

impl World {
    fn new() -> Self {
        let (dir, signer, ours) = (Dir::new(), Signer::new(), authority());
        certified(&dir, "server", &ours);
        certified(&dir, "stranger", &authority());
        dir.write("ca.pem", ours.pem());
        dir.write("keys.json", signer.jwks());
        let person = |subject| format!("{{ issuer = {ISSUER:?}, subject = {subject:?} }}");
        let people = [person("alice"), person("mallory")].join(", ");
        let config = format!(
            r#"
                registry_addr = "unix:operators.sock"
                [tls]
                certificate = "server.pem"
                key = "server.key"
                client_ca = "ca.pem"
                [authn.oidc]
                issuer = {ISSUER:?}
                audiences = ["mainspring"]
                jwks_file = "keys.json"
                [authz]
                policy = "owner+allowlist"
                [authz.allow]
                create = [{people}]
                list = [{people}]
                approve = [{people}]
            "#
        );
        dir.write("server.toml", config);
        let serve = ["serve", "--addr", "127.0.0.1:0", "--config-file", "server.toml"];
        let server = Serving::start(&dir, &serve);
        let world = Self { dir, server, signer };
        for subject in ["alice", "mallory"] {
            world.dir.write(subject, world.signer.token(subject, &json!({})));
        }
        world
    }

    fn address(&self, row: &Row) -> &str {
        if row.is_operators() { "unix:operators.sock" } else { &self.server.address }
    }

    fn run(
        &self,
        at: &str,
        token: Option<&str>,
        args: &[&str],
        change: impl Fn(&mut Command),
    ) -> Done {
        let mut args = [args, &["--server", at]].concat();
        if let Some(token) = token {
            args.extend(["--token-file", token]);
        }
        let mut command = self.dir.command(&args);
        if !at.starts_with("unix:") {
            command.env("MAINSPRING_CLIENT_TLS_CA", self.dir.path("ca.pem"));
        }
        change(&mut command);
        let out = command.output().unwrap();
        Done {
            code: out.status.code().unwrap_or(-1),
            stdout: String::from_utf8(out.stdout).unwrap(),
            stderr: String::from_utf8(out.stderr).unwrap(),
        }
    }

    fn alice(&self, args: &[&str]) -> String {
        self.run(&self.server.address, Some("alice"), args, |_| {}).ok()
    }

    /// What every session of Alice's shows of itself to her.
    fn shown(&self, sessions: &[String]) -> Vec<String> {
        let show = |session: &String| {
            let of = ["--session", session];
            let get = self.alice(&[&["get", "-o", "json"], &of[..]].concat());
            get + &self.alice(&[&["replay"], &of[..]].concat())
        };
        sessions.iter().map(show).chain([self.alice(&["list"])]).collect()
    }
}

/// A command line, where UID stands for a session.
struct Row(&'static [&'static str]);

impl Row {
    fn is_operators(&self) -> bool {
        ["adopt", "harness"].contains(&self.0[0])
    }

    fn args<'a>(&self, uid: &'a str) -> Vec<&'a str> {
        self.0.iter().map(|arg| if *arg == "UID" { uid } else { *arg }).collect()
    }
}

const APPROVAL: [&str; 6] =
    ["--execution", "00000000000000aa", "--tool-call", "call-1", "--request-seq", "4"];

const ROWS: &[Row] = &[
    Row(&["create"]),
    Row(&["list"]),
    Row(&["get", "--session", "UID"]),
    Row(&["describe", "--session", "UID"]),
    Row(&["exec", "--session", "UID", "--input", "x"]),
    Row(&["exec", "--session", "UID", "--input", "x", "--harness", "nobody"]),
    Row(&["exec", "--session", "UID", "--input", "x", "--idempotency-key", "k"]),
    Row(&["follow", "--session", "UID", "--until-idle"]),
    Row(&["replay", "--session", "UID"]),
    Row(&["replay", "--session", "UID", "--re-execute"]),
    Row(&["fork", "--session", "UID"]),
    Row(&["suspend", "--session", "UID"]),
    Row(&["resume", "--session", "UID"]),
    Row(&["approve", "UID"]),
    Row(&[
        "approve",
        "UID",
        APPROVAL[0],
        APPROVAL[1],
        APPROVAL[2],
        APPROVAL[3],
        APPROVAL[4],
        APPROVAL[5],
    ]),
    Row(&["deny", "UID"]),
    Row(&["cancel", "--session", "UID"]),
    Row(&["cancel", "--session", "UID", "--execution", "00000000000000aa"]),
    Row(&["delete", "--session", "UID"]),
    Row(&["resolve", "--session", "UID", "--tool-call", "call-1", "--retry"]),
    Row(&["verify", "--session", "UID"]),
    Row(&["export", "--session", "UID"]),
    Row(&["import", "--file", "journal", "--resume", "11111111111111111111111111111111"]),
    Row(&["adopt", "--session", "UID", "--issuer", "i", "--subject", "s"]),
    Row(&["harness", "get", "--name", "echo"]),
    Row(&["harness", "list"]),
    Row(&["harness", "retire", "--name", "echo"]),
    Row(&["harness", "register", "--name", "new", "--spec", "spec.json"]),
];

/// What calls no server, or is one.
const ELSEWHERE: [&str; 8] =
    ["serve", "stats", "compact", "config", "completions", "version", "help", "kafka"];

#[test]
fn every_command_has_a_row() {
    let help = Dir::new().run(&["--help"]).ok();
    let commands = help.split_once("Commands:").unwrap().1.split_once("\n\n").unwrap().0;
    let mut seen = 0;
    for line in commands.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   ")) {
        let name = line.split_whitespace().next().unwrap();
        let has_row = ROWS.iter().any(|row| row.0[0] == name);
        assert!(has_row != ELSEWHERE.contains(&name), "{name}");
        seen += 1;
    }
    assert!(seen > 20, "{help}");
}

/// Alice's sessions: done, waiting, deleted.
fn sessions(world: &World) -> Vec<String> {
    let done = session_of(&world.alice(&["exec", "--input", "hello"]));
    let gate = world.run(
        &world.server.address,
        Some("alice"),
        &["exec", "--harness", "gate", "--input", "refund 5"],
        |_| {},
    );
    let waiting = session_of(&gate.stdout);
    let deleted = session_of(&world.alice(&["exec", "--input", "hello"]));
    world.alice(&["delete", "--session", &deleted]);
    let journal = world.alice(&["export", "--session", &done]);
    let lines: Vec<_> = journal.lines().collect();
    world.dir.write("journal", lines[..lines.len() - 1].join("\n"));
    world.dir.write("spec.json", r#"{"remote": {"address": "127.0.0.1:1"}, "capabilities": {"resumability": "RESUMABILITY_STATELESS_REPLAY"}}"#);
    vec![done, waiting, deleted]
}

#[test]
fn commands_on_a_foreign_session_say_what_they_say_of_an_unknown_one() {
    let world = World::new();
    let sessions = sessions(&world);
    let before = world.shown(&sessions);
    for row in ROWS.iter().filter(|row| row.0.contains(&"UID")) {
        let said = |uid: &str| {
            let done = world.run(world.address(row), Some("mallory"), &row.args(uid), |_| {});
            (done.code, done.stdout.replace(uid, "UID"), done.stderr.replace(uid, "UID"))
        };
        let unknown = said(UNKNOWN);
        assert!(unknown.2.contains("permission_denied"), "{:?}: {unknown:?}", row.0);
        for uid in &sessions {
            assert_eq!(said(uid), unknown, "{:?}", row.0);
        }
    }
    let listed = world.run(&world.server.address, Some("mallory"), &["list"], |_| {});
    assert_eq!(listed.ok(), "");
    assert_eq!(world.shown(&sessions), before, "nothing was changed");
}

#[test]
fn commands_without_good_credentials_say_one_thing() {
    let world = World::new();
    let sessions = sessions(&world);
    let before = world.shown(&sessions);
    let signer = &world.signer;
    let tokens = [
        ("garbage", "garbage".to_owned()),
        ("expired", signer.token("alice", &json!({"exp": PAST}))),
        ("early", signer.token("alice", &json!({"nbf": LATER}))),
        ("signature", Signer::new().token("alice", &json!({}))),
        ("audience", signer.token("alice", &json!({"aud": "elsewhere"}))),
        ("issuer", signer.token("alice", &json!({"iss": "https://evil.example"}))),
    ];
    for (name, token) in &tokens {
        world.dir.write(name, token);
    }
    for row in ROWS {
        let mut first = None;
        let names = tokens.iter().map(|(name, _)| Some(*name)).chain([None]);
        // Each kind meets another session: none of them is told anything.
        let uids = sessions.iter().map(String::as_str).chain([UNKNOWN]).cycle();
        for (name, uid) in names.zip(uids) {
            let done = world.run(world.address(row), name, &row.args(uid), |_| {});
            let said = (done.code, done.stdout, done.stderr.replace(uid, "UID"));
            assert!(said.2.contains("unauthenticated"), "{:?} {name:?}: {said:?}", row.0);
            assert_eq!(&said, first.get_or_insert_with(|| said.clone()), "{:?} {name:?}", row.0);
        }
    }
    // A certificate of somebody else's authority does not get as far.
    for row in ROWS.iter().filter(|row| !row.is_operators()) {
        let with_certificate = |command: &mut Command| {
            // A follow would try for minutes to be connected again.
            command
                .env("MAINSPRING_CLIENT_RECONNECT_MAX", "0")
                .env("MAINSPRING_CLIENT_TLS_CERTIFICATE", world.dir.path("stranger.pem"))
                .env("MAINSPRING_CLIENT_TLS_KEY", world.dir.path("stranger.key"));
        };
        let done =
            world.run(world.address(row), Some("alice"), &row.args(&sessions[0]), with_certificate);
        assert_ne!(done.code, 0, "{:?}", row.0);
        // The refusal may come after the call was sent: then the client cannot tell.
        let lost = ["unavailable", "outcome_unknown"];
        assert!(lost.iter().any(|code| done.stderr.contains(code)), "{:?}: {}", row.0, done.stderr);
        assert_eq!(done.stdout, "", "{:?}", row.0);
    }
    assert_eq!(world.shown(&sessions), before, "nothing was changed");
}
