//! What a server tells of itself: health, metrics, logs.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::support::{Dir, session_of};

/// A server with a page of metrics.
struct Watched {
    child: Child,
    address: String,
    page: String,
    stderr: BufReader<std::process::ChildStderr>,
}

fn start(dir: &Dir, more: &[&str]) -> Watched {
    let args = ["serve", "--addr", "unix:s.sock", "--metrics-addr", "127.0.0.1:0"];
    let mut command = dir.command(&[&args[..], more].concat());
    command.env("MAINSPRING_LOG_FORMAT", "json").env("MAINSPRING_LOG_LEVEL", "info");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    let page = loop {
        line.clear();
        assert!(stderr.read_line(&mut line).unwrap() > 0, "no page was told of");
        if let Some(page) = line.split("http://").nth(1) {
            break page.split('/').next().unwrap().to_owned();
        }
    };
    line.clear();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim_end().rsplit_once(" on ").unwrap().1.to_owned();
    Watched { child, address, page, stderr }
}

impl Watched {
    /// Status and body of a page.
    fn get(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.page).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        let body = answer.split_once("\r\n\r\n").unwrap().1.to_owned();
        (status, body)
    }

    /// Ends it, and gives what it logged.
    fn end(mut self) -> Vec<Value> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let mut logged = String::new();
        self.stderr.read_to_string(&mut logged).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0), "{logged}");
        logged.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }
}

#[test]
fn calls_are_counted_by_method_and_code_and_never_by_session() {
    let dir = Dir::new();
    let server = start(&dir, &[]);
    let at = ["--server", &server.address];
    let out = dir.run(&[&["exec", "--input", "prompt-text"], &at[..]].concat()).ok();
    let session = session_of(&out);
    dir.run(&[&["get", "--session", "sess-0"], &at[..]].concat()).fails(3, "session_not_found");
    let (status, page) = server.get("/metrics");
    assert_eq!(status, 200);
    let get = "method=\"/agentsessions.v1.Sessions/GetSession\",code=\"NotFound\"} 1";
    assert!(page.contains(&format!("mainspring_rpc_total{{{get}\n")), "{page}");
    let exec = "mainspring_rpc_duration_seconds_count{method=\"/agentsessions.v1.Sessions/Exec\"}";
    assert!(page.contains(exec), "{page}");
    assert!(page.contains("mainspring_ready 1\n"), "{page}");
    assert!(page.contains("mainspring_store_durability{class=\"local\"} 1\n"), "{page}");
    assert!(page.contains("mainspring_build_info{version=\""), "{page}");
    assert!(!page.contains(&session) && !page.contains("sess-"), "{page}");
    for line in page.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let value = line.rsplit(' ').next().unwrap();
        value.parse::<f64>().unwrap_or_else(|_| panic!("{line}"));
    }
    let logged = server.end();
    let finished: Vec<_> =
        logged.iter().filter(|line| line["message"] == "operation finished").collect();
    let exec =
        finished.iter().find(|line| line["operation"] == "Exec" && line["outcome"] == "success");
    let exec = exec.unwrap_or_else(|| panic!("{logged:?}"));
    assert_eq!(exec["component"], "grpc");
    assert_eq!(exec["rpc_kind"], "stream");
    assert!(exec["duration_ms"].is_u64() && exec["request_id"].is_string(), "{exec}");
    assert!(!format!("{logged:?}").contains("prompt-text"));
}

#[test]
fn health_is_told_without_credentials_and_says_what_is_missing() {
    let dir = Dir::new();
    let server = start(&dir, &[]);
    assert_eq!(server.get("/livez"), (200, "ok\n".to_owned()));
    let ready = "{\"missing\":[],\"ready\":true}\n".to_owned();
    assert_eq!(server.get("/readyz"), (200, ready));
    assert_eq!(server.get("/else").0, 404);
    server.end();
}
