//! Journals in a topic of Kafka, on the cluster that `cargo xtask kafka up --name one` starts.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::support::{Dir, Serving, session_of};

/// How long a server may take to notice what happened to its topic.
const NOTICED_MAX: Duration = Duration::from_secs(60);

/// Makes topics that one broker can have.
const INIT: [&str; 6] = ["kafka", "init", "--replicas", "1", "--in-sync-min", "1"];

/// A topic of its own, and a folder to work in.
pub(crate) struct Topic {
    pub(crate) dir: Dir,
    brokers: String,
    name: String,
    pub(crate) journal: String,
}

impl Topic {
    /// `None`, and says so, without a broker.
    pub(crate) fn new() -> Option<Self> {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
        let Ok(state) = std::fs::read_to_string(target.join("kafka/one/cluster.json")) else {
            eprintln!("skipped: no Kafka; `cargo xtask kafka up --name one` starts it");
            return None;
        };
        let state: Value = serde_json::from_str(&state).unwrap();
        let brokers = state["bootstrap"].as_str().unwrap().to_owned();
        let dir = Dir::new();
        // The folder's name is random, too.
        let name = dir.path("").file_name().unwrap().to_string_lossy().replace('.', "h");
        let journal = format!("kafka://{brokers}/{name}");
        let topic = Self { dir, brokers, name, journal };
        let made = topic.run(&INIT).ok();
        assert!(made.contains("partitions_begun=4"), "{made}");
        Some(topic)
    }

    fn run(&self, args: &[&str]) -> crate::support::Done {
        self.dir.run(&[args, &["--journal", &self.journal]].concat())
    }
}

#[test]
fn topics_are_made_once_and_looked_at() {
    let Some(topic) = Topic::new() else { return };
    let again = topic.run(&[&INIT[..], &["-o", "json"]].concat()).ok();
    let again: Value = serde_json::from_str(&again).unwrap();
    assert_eq!(again["topics_made"], serde_json::json!([]));
    assert_eq!(
        (&again["partitions_begun"], &again["genesis"]["partitions"]),
        (&0.into(), &4.into())
    );
    let checked = topic.run(&["kafka", "check"]).ok();
    assert!(checked.contains("  retention.ms = -1\n"), "{checked}");
    assert!(checked.contains("durability flushed\nstore "), "{checked}");
    assert!(!checked.contains("FAULT"), "{checked}");
    let lines = topic.run(&["kafka", "check", "-o", "json"]).ok();
    for line in lines.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        assert!(line["holds"] == true || line["durability"] == "flushed", "{line}");
    }
    let other = format!("{}-b", topic.journal);
    topic.dir.run(&["kafka", "check", "--journal", &other]).fails(1, "[topic_missing]");
    topic.dir.run(&["list", "--journal", &other]).fails(1, "[topic_missing]");
    topic.dir.run(&["kafka", "check"]).fails(2, "kafka://HOST:PORT");
    let acls = topic.run(&["kafka", "acls", "--principal", "User:a b"]).ok();
    let name = &topic.name;
    let expected = format!(
        "--add --allow-principal 'User:a b' --operation READ --operation WRITE --operation DESCRIBE_CONFIGS --topic {name}.hosts"
    );
    assert!(acls.lines().count() == 3 && acls.contains(&expected), "{acls}");
    let wrong = ["kafka", "void-digest", "--partition", "4", "--offset", "9"];
    topic.run(&wrong).fails(2, "the log has 4 partitions");
    topic.run(&["kafka", "void-digest", "--partition", "3", "--offset", "9"]).ok();
}

#[test]
fn every_command_works_on_a_topic() {
    let Some(topic) = Topic::new() else { return };
    let session = session_of(&topic.run(&["exec", "--input", "hello"]).ok());
    let at = ["--session", &session];
    topic.run(&[&["exec", "--input", "again"], &at[..]].concat()).ok();
    let other = ["--kafka-view", "other.redb"];
    for view in [&[][..], &other] {
        let listed = topic.run(&[&["list"], view].concat()).ok();
        assert!(listed.contains(&session) && listed.contains("last_seq=10"), "{listed}");
        for command in ["get", "describe", "replay", "verify", "export", "stats"] {
            let shown = topic.run(&[&[command], &at[..], view].concat()).ok();
            assert!(!shown.is_empty());
        }
    }
    assert!(topic.dir.path("other.redb").exists());
    let exported = topic.run(&[&["export"], &at[..]].concat()).ok();
    let file = topic.dir.write("s.ndjson", &exported);
    topic.dir.run(&["import", "--file", &file, "--journal", "copy.redb"]).ok();
    topic.run(&["import", "--file", &file]).fails(6, "already_exists");
    topic.run(&["fork", "--session", &session, "--at", "5"]).ok();
    topic.run(&["delete", "--session", &session]).ok();
    topic.run(&["stats"]).fails(1, "does not support stats");
    topic.run(&["compact"]).fails(1, "does not support compact");
    // A view is no journal, and a journal no view.
    topic.dir.run(&["list", "--journal", "other.redb"]).fails(1, "damaged");
    topic.run(&["list", "--kafka-view", "copy.redb"]).fails(1, "[not_a_view]");
}

#[test]
fn a_damaged_view_is_put_aside_and_told_of_once() {
    let Some(topic) = Topic::new() else { return };
    let session = session_of(&topic.run(&["exec", "--input", "hello"]).ok());
    topic.dir.write("mainspring-view.redb", "x".repeat(5_000));
    let list = || {
        let mut command = topic.dir.command(&["list", "--journal", &topic.journal]);
        let out = command.env("MAINSPRING_LOG_LEVEL", "warn").output().unwrap();
        assert!(String::from_utf8(out.stdout).unwrap().contains(&session));
        String::from_utf8(out.stderr).unwrap()
    };
    let said = list();
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("WARN") && said.contains("mainspring-view.redb.damaged-"), "{said}");
    assert_eq!(list(), "");
}

/// A server with a page of metrics.
struct Watched {
    child: Child,
    page: String,
    stderr: BufReader<std::process::ChildStderr>,
}

impl Watched {
    fn start(topic: &Topic) -> Self {
        let args = ["serve", "--addr", "unix:s.sock", "--metrics-addr", "127.0.0.1:0"];
        let mut command = topic.dir.command(&[&args[..], &["--journal", &topic.journal]].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        let page = line.split("http://").nth(1).unwrap_or_else(|| panic!("{line}"));
        let page = page.split('/').next().unwrap().to_owned();
        line.clear();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("serving on "), "{line}");
        Self { child, page, stderr }
    }

    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.page).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Deletes a topic: API 20 in version 1.
fn delete_topic(brokers: &str, topic: &str) {
    let mut request = vec![0, 20, 0, 1, 0, 0, 0, 7, 0, 1, b't', 0, 0, 0, 1];
    request.extend(u16::try_from(topic.len()).unwrap().to_be_bytes());
    request.extend(topic.as_bytes());
    request.extend(30_000_u32.to_be_bytes());
    let mut stream = TcpStream::connect(brokers).unwrap();
    stream.write_all(&u32::try_from(request.len()).unwrap().to_be_bytes()).unwrap();
    stream.write_all(&request).unwrap();
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    let mut answer = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer[answer.len() - 2..], [0, 0], "{answer:?}");
}

#[test]
fn a_server_is_ready_counts_messages_and_ends_when_its_log_is_another_one() {
    let Some(topic) = Topic::new() else { return };
    let mut server = Watched::start(&topic);
    let address = format!("unix:{}", topic.dir.path("s.sock").display());
    topic.dir.run(&["exec", "--input", "hello", "--server", &address]).ok();
    // Beside the server: its view is held, and another one is not.
    topic.run(&["list"]).fails(7, "use --server");
    topic.run(&["list", "--kafka-view", "other.redb"]).ok();
    let ready = server.get("/readyz");
    assert!(ready.contains("200 OK") && ready.contains(r#""ready":true"#), "{ready}");
    let page = server.get("/metrics");
    let gauge = |name: &str| -> u64 {
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in {page}")).parse().unwrap()
    };
    let end = gauge("mainspring_kafka_end_messages");
    assert!(end > 4 && gauge("mainspring_kafka_folded_messages") <= end);

    delete_topic(&topic.brokers, &topic.name);
    let since = Instant::now();
    // The broker may tell of the old topic for a moment.
    while !topic.run(&INIT).stdout.contains("partitions_begun=4") {
        assert!(since.elapsed() < NOTICED_MAX, "the topic is not made anew");
    }
    let status = loop {
        if let Some(status) = server.child.try_wait().unwrap() {
            break status;
        }
        assert!(since.elapsed() < NOTICED_MAX, "the server goes on with another log");
        let refused = topic.dir.run(&["list", "--server", &address]);
        assert_ne!(refused.code, 0, "{}", refused.stdout);
    };
    let mut said = String::new();
    server.stderr.read_to_string(&mut said).unwrap();
    assert_eq!(status.code(), Some(1), "{said}");
    // Its view is kept for whoever finds out what happened to the log.
    assert!(said.contains("[log_") || said.contains("[topic_missing]"), "{said}");
    topic.run(&["list"]).fails(1, "[log_recreated]");
}

#[test]
fn two_servers_serve_one_log() {
    let Some(topic) = Topic::new() else { return };
    let serve = |socket: &str, view: &str| {
        let args = ["serve", "--addr", socket, "--kafka-view", view, "--journal", &topic.journal];
        Serving::start(&topic.dir, &args)
    };
    let (one, two) = (serve("unix:1.sock", "1.redb"), serve("unix:2.sock", "2.redb"));
    let out = topic.dir.run(&["exec", "--input", "hello", "--server", &one.address]).ok();
    let session = session_of(&out);
    let shown = topic.dir.run(&["get", "--session", &session, "--server", &two.address]).ok();
    assert!(shown.contains("last_seq=5"), "{shown}");
    let again = ["exec", "--input", "again", "--session", &session, "--server", &two.address];
    topic.dir.run(&again).ok();
    assert_eq!((one.terminate(), two.terminate()), (0, 0));
}

#[test]
fn a_password_is_read_from_where_it_is_and_never_shown() {
    let dir = Dir::new();
    dir.write("p", "s3cret\n");
    let file = "journal = \"kafka://h:1/t\"\n[kafka]\npassword_file = \"p\"\n";
    let twice = format!("{file}client = {{ \"sasl.password\" = \"s3cret\" }}\n");
    dir.write("mainspring.toml", &twice);
    dir.run(&["list"]).fails(2, "sasl.password is set in kafka.client");
    dir.write("mainspring.toml", file);
    let mut command = dir.command(&["config", "show"]);
    let shown = command.env("MAINSPRING_KAFKA_PASSWORD", "s3cret").output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("kafka.password = \"redacted\"\n"), "{shown}");
    assert!(!shown.contains("s3cret"), "{shown}");
    dir.write("mainspring.toml", file.replace("\"p\"", "\"q\""));
    dir.run(&["list"]).fails(2, "kafka.password_file q");
}
