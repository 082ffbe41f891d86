//! What operators do on their own listener, and what only callers may do.

use serde_json::Value;

use crate::identities::{ISSUER, Secured};
use crate::support::{Dir, Serving, session_of};

/// Where operators are listened to.
#[derive(Clone, Copy)]
enum Over {
    Unix,
    Loopback,
}

/// A server with operators, and a harness that it does not know yet.
struct Operated {
    dir: Dir,
    over: Over,
    server: Serving,
    operators: String,
    _harness: Serving,
}

impl Operated {
    fn new(over: Over) -> Self {
        let dir = Dir::new();
        let socket = format!("unix:{}", dir.path("far.sock").display());
        let far = ["harness", "serve", "--kind", "echo", "--addr", &socket];
        let harness = Serving::start(&dir, &far);
        let capabilities = r#"{"resumability":"RESUMABILITY_STATELESS_REPLAY","fork_safe":true}"#;
        let spec = format!(
            r#"{{"remote":{{"address":"{}"}},"capabilities":{capabilities}}}"#,
            harness.address
        );
        dir.write("spec.json", spec);
        let (server, operators) = Self::serve(&dir, over);
        Self { dir, over, server, operators, _harness: harness }
    }

    fn serve(dir: &Dir, over: Over) -> (Serving, String) {
        let operators = match over {
            Over::Unix => "unix:ops.sock",
            Over::Loopback => "127.0.0.1:0",
        };
        let args = ["serve", "--addr", "127.0.0.1:0", "--registry-addr", operators];
        let server = Serving::start(dir, &args);
        let operators = server.line.rsplit_once(" on ").unwrap().1.to_owned();
        (server, operators)
    }

    fn restart(&mut self) {
        self.server.kill();
        (self.server, self.operators) = Self::serve(&self.dir, self.over);
    }

    /// On the sessions' listener.
    fn run(&self, args: &[&str]) -> crate::support::Done {
        self.dir.run(&[args, &["--server", &self.server.address]].concat())
    }

    /// On the operators' listener.
    fn operate(&self, args: &[&str]) -> crate::support::Done {
        self.dir.run(&[args, &["--server", &self.operators]].concat())
    }

    fn register(&self) -> Value {
        let args = ["harness", "register", "--name", "far", "--spec", "spec.json", "-o", "json"];
        serde_json::from_str(&self.operate(&args).ok()).unwrap()
    }
}

fn a_harness_comes_and_goes(over: Over) {
    let mut operated = Operated::new(over);
    let exec = ["exec", "--harness", "far", "--input", "hello"];
    operated.run(&exec).fails(2, "far");
    assert_eq!(operated.register()["outcome"], "REGISTER_OUTCOME_CREATED");
    assert_eq!(operated.register()["outcome"], "REGISTER_OUTCOME_UNCHANGED");
    // It serves at once.
    let first = operated.run(&exec).ok();
    assert!(first.contains("user: hello"), "{first}");
    let session = session_of(&first);
    let get = ["harness", "get", "--name", "far", "--observe", "-o", "json"];
    let got: Value = serde_json::from_str(&operated.operate(&get).ok()).unwrap();
    assert_eq!(got["state"], "HARNESS_STATE_ACTIVE");
    assert_eq!(got["observed"]["id"], "echo", "{got}");
    let listed = operated.operate(&["harness", "list", "-o", "json"]).ok();
    let names: Vec<Value> = listed
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["metadata"]["name"].clone())
        .collect();
    assert!(names.contains(&"far".into()) && names.contains(&"echo".into()), "{names:?}");

    operated.restart();
    let on = ["exec", "--session", &session, "--input", "again"];
    operated.run(&on).ok();
    operated.run(&exec).ok();

    let retire = ["harness", "retire", "--name", "far", "--reason", "too old"];
    operated.operate(&retire).ok();
    operated.run(&["create", "--harness", "far"]).fails(5, "far");
    operated.run(&exec).fails(5, "far");
    // What it began goes on, and so do forks of it.
    operated.run(&on).ok();
    let child = operated.run(&["fork", "--session", &session]).ok();
    let child = child.strip_prefix("child ").unwrap().split(' ').next().unwrap();
    operated.run(&["exec", "--session", child, "--input", "on"]).ok();
    assert!(!operated.operate(&["harness", "list"]).ok().contains("far.sock"));
    let all = operated.operate(&["harness", "list", "--include-retired"]).ok();
    assert!(all.contains("too old"), "{all}");
    operated.restart();
    operated.run(&exec).fails(5, "far");
    operated.run(&on).ok();
    assert_eq!(operated.register()["outcome"], "REGISTER_OUTCOME_REACTIVATED");
    operated.run(&exec).ok();
}

#[test]
fn a_harness_is_registered_and_retired_over_a_socket() {
    a_harness_comes_and_goes(Over::Unix);
}

#[test]
fn a_harness_is_registered_and_retired_over_loopback() {
    a_harness_comes_and_goes(Over::Loopback);
}

#[test]
fn a_registration_that_cannot_be_is_refused_by_name() {
    let operated = Operated::new(Over::Unix);
    let register = |name: &str, spec: &str| {
        operated.dir.write("other.json", spec);
        let args = ["harness", "register", "--name", name, "--spec", "other.json"];
        operated.operate(&args)
    };
    let spec = std::fs::read_to_string(operated.dir.path("spec.json")).unwrap();
    register("echo", &spec).fails(6, "echo");
    register("No", &spec).fails(2, "name");
    register("far", "{").fails(2, "--spec other.json");
    register("far", r#"{"remote":{"address":"x:1"},"more":1}"#).fails(2, "unknown field `more`");
    let pods = spec.replacen(
        "\"remote\":{",
        "\"substrate\":{\"template\":\"t\",\"atespace\":\"s\"},\"x\":{",
        1,
    );
    register("far", &pods).fails(2, "unknown field `x`");
    operated.register();
    register("far", &spec.replace("far.sock", "near.sock")).fails(6, "far");
    let get = |name: &str| operated.operate(&["harness", "get", "--name", name]);
    get("nope").fails(3, "nope");
    operated.operate(&["harness", "retire", "--name", "echo"]).fails(5, "echo");
    operated.operate(&["harness", "retire", "--name", "nope"]).fails(3, "nope");
    operated.dir.run(&["harness", "list"]).fails(2, "--server is needed");
}

/// Each listener serves its own services, and names what it does not serve.
#[test]
fn callers_and_operators_have_listeners_of_their_own() {
    let operated = Operated::new(Over::Loopback);
    let session = operated.run(&["create"]).ok().trim_end().to_owned();
    let unserved = "[unimplemented]";
    for args in [
        &["harness", "list"][..],
        &["harness", "get", "--name", "echo"],
        &["harness", "register", "--name", "far", "--spec", "spec.json"],
        &["harness", "retire", "--name", "echo"],
        &["adopt", "--session", &session, "--issuer", "i", "--subject", "s"],
    ] {
        operated.run(args).fails(1, unserved);
    }
    for args in [
        &["create"][..],
        &["list"],
        &["get", "--session", &session],
        &["describe", "--session", &session],
        &["exec", "--session", &session, "--input", "x"],
        &["export", "--session", &session],
        &["delete", "--session", &session],
    ] {
        operated.operate(args).fails(1, unserved);
    }
    assert!(operated.run(&["get", "--session", &session]).ok().contains("last_seq=0"));
}

/// What was made before callers were known is nobody's until it is given away.
#[test]
fn a_session_without_an_owner_is_given_to_one() {
    let secured = Secured::new();
    let session = secured.dir.exec("hello");
    let (server, operators) = secured.serve();
    let alice = secured.client_with_token_file("alice", &server.address);
    let operating = secured.client("olga", &operators, "token_file = \"olga.token\"", "");
    secured.dir.write("olga.token", secured.token("olga"));
    let get = ["get", "--session", &session];
    secured.run(&alice, &get).fails(4, "[permission_denied]");
    let adopt = ["adopt", "--session", &session, "--issuer", ISSUER, "--subject", "alice"];
    // Not by herself, wherever she asks.
    secured.run(&alice, &adopt).fails(1, "[unimplemented]");
    let token = "token_file = \"alice.token\"";
    let reaching = secured.client("alice-operates", &operators, token, "");
    secured.run(&reaching, &adopt).fails(4, "[permission_denied]");
    secured.run(&reaching, &["harness", "list"]).fails(4, "[permission_denied]");
    let adopted = secured.run(&operating, &adopt).ok();
    assert_eq!(adopted, format!("session {session} adopt issuer={ISSUER} subject=alice\n"));
    assert!(secured.run(&alice, &get).ok().contains("last_seq=5"));
    secured.run(&alice, &["exec", "--session", &session, "--input", "more"]).ok();
    // Once is all.
    let again = ["adopt", "--session", &session, "--issuer", ISSUER, "--subject", "bob"];
    let done = secured.run(&operating, &again);
    assert_ne!(done.code, 0, "{done:?}");
    secured.run(&alice, &get).ok();
    assert!(secured.run(&operating, &["harness", "list"]).ok().contains("\"echo\""));
}
