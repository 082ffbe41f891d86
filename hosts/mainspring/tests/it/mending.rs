//! Servers that do not run as their settings have it, and how they end.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Dir, Serving, session_of};

/// A server, what it says on standard error, and its first line.
fn served(dir: &Dir, args: &[&str]) -> (Child, impl Iterator<Item = String>, String) {
    let mut command = dir.command(&[&["serve"], args].concat());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let told = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    (child, told, line)
}

fn terminate(child: &Child) {
    kill_process(Pid::from_child(child), Signal::TERM).unwrap();
}

/// An HTTP/2 connection with a call whose message never comes.
fn unfinished_call(dir: &Dir, socket: &str, path: &str) -> UnixStream {
    let mut stream = UnixStream::connect(dir.path(socket)).unwrap();
    let header = |name: &str, value: &str, block: &mut Vec<u8>| {
        // A literal that is not indexed, and not compressed.
        block.extend([0, u8::try_from(name.len()).unwrap()]);
        block.extend(name.as_bytes());
        block.push(u8::try_from(value.len()).unwrap());
        block.extend(value.as_bytes());
    };
    let mut block = Vec::new();
    for (name, value) in [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "localhost"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ] {
        header(name, value, &mut block);
    }
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    // SETTINGS, of nothing; HEADERS of stream 1 with END_HEADERS; PING.
    bytes.extend([0, 0, 0, 4, 0, 0, 0, 0, 0]);
    bytes.extend([0, 0, u8::try_from(block.len()).unwrap(), 1, 4, 0, 0, 0, 1]);
    bytes.extend(block);
    bytes.extend([0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
    stream.write_all(&bytes).unwrap();
    // What comes before the answer to the ping was read before it.
    while let Some((kind, flags, _)) = frame(&mut stream) {
        if (kind, flags) == (6, 1) {
            break;
        }
    }
    stream
}

/// The next frame's type, flags and payload, until the connection is closed.
fn frame(stream: &mut UnixStream) -> Option<(u8, u8, Vec<u8>)> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).ok()?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let mut payload = vec![0; length as usize];
    stream.read_exact(&mut payload).ok()?;
    Some((head[3], head[4], payload))
}

/// What a client does that is there, and does nothing.
fn answer_pings(mut stream: UnixStream) {
    while let Some((kind, flags, payload)) = frame(&mut stream) {
        if (kind, flags) == (6, 0) {
            let mut answer = vec![0, 0, 8, 6, 1, 0, 0, 0, 0];
            answer.extend(payload);
            // It may be closed by now.
            let _ = stream.write_all(&answer);
        }
    }
}

/// Whether the other side has not closed it.
fn is_open(stream: &mut UnixStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let mut bytes = [0; 1 << 10];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        }
    }
}

/// TLS is for TCP, and the file system guards the socket.
#[test]
fn operators_on_a_unix_socket_are_served_beside_sessions_with_tls() {
    let dir = Dir::new();
    dir.write("c.pem", include_str!("data/test-only.pem"));
    dir.write("c.key", include_str!("data/test-only.key"));
    let file = "[tls]\ncertificate = \"c.pem\"\nkey = \"c.key\"\n";
    dir.write("s.toml", format!("registry_addr = \"unix:ops.sock\"\n{file}"));
    let serve = ["serve", "--addr", "127.0.0.1:0", "--config-file", "s.toml"];
    let server = Serving::start(&dir, &serve);
    assert!(server.line.ends_with(", operators on unix:ops.sock"), "{}", server.line);
    dir.run(&["harness", "list", "--server", "unix:ops.sock"]).ok();
    assert_eq!(server.terminate(), 0);
    // Certificates that nobody would be shown are refused.
    let unix = ["serve", "--addr", "unix:s.sock", "--config-file", "s.toml"];
    dir.run(&unix).fails(2, "every address here is a unix socket");
}

/// Sessions are told to end first, and a second signal is heard meanwhile.
#[test]
fn a_call_of_an_operator_does_not_put_off_the_drain_of_the_sessions() {
    let dir = Dir::new();
    std::fs::write(dir.path("s.toml"), "registry_addr = \"unix:ops.sock\"\n").unwrap();
    let args = ["--addr", "unix:s.sock", "--config-file", "s.toml"];
    let (mut server, mut told, line) = served(&dir, &args);
    assert_eq!(line, "serving on unix:s.sock, operators on unix:ops.sock\n");
    let path = "/agentsessions.v1.HarnessRegistry/ListHarnesses";
    let mut call = unfinished_call(&dir, "ops.sock", path);
    terminate(&server);
    assert!(told.any(|line| line.contains("draining")));
    assert!(is_open(&mut call), "the operators' calls were waited for");
    terminate(&server);
    assert_eq!(server.wait().unwrap().code(), Some(0));
}

/// Whoever watches the health of a server does not keep it from ending well.
#[test]
fn a_watch_of_health_does_not_fail_a_stop() {
    let dir = Dir::new();
    let (mut server, _told, _) = served(&dir, &["--addr", "unix:s.sock"]);
    let mut watch = unfinished_call(&dir, "s.sock", "/grpc.health.v1.Health/Watch");
    // DATA with END_STREAM, of an empty message; then the first status comes.
    watch.write_all(&[0, 0, 5, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0]).unwrap();
    while frame(&mut watch).unwrap().0 != 0 {}
    let client = std::thread::spawn(move || answer_pings(watch));
    terminate(&server);
    assert_eq!(server.wait().unwrap().code(), Some(0));
    client.join().unwrap();
}

#[test]
fn credentials_and_arguments_are_not_shown_with_the_settings() {
    let dir = Dir::new();
    let file = "model_base_url = \"https://s3cret@a.example/v1?k=s3cret\"\n\
                tool = [\"a=exec:./a --key s3cret\", \"b=http:https://h/p?k=s3cret\"]\n\
                [authn.oidc]\njwks_url = \"https://u:s3cret@i.example/keys\"\n\
                [[harness]]\nname = \"far\"\nruntime = \"child\"\ncommand = \"./far --key s3cret\"\n";
    dir.write("mainspring.toml", file);
    let text = dir.run(&["config", "show"]).ok();
    let json = dir.run(&["config", "show", "-o", "json"]).ok();
    for shown in [&text, &json] {
        assert!(!shown.contains("s3cret"), "{shown}");
        for part in ["redacted@a.example/v1?redacted", "a=exec:./a redacted", "./far redacted"] {
            assert!(shown.contains(part), "{part} is not in {shown}");
        }
    }
}

/// A key that is pressed changes nothing: what a journal needs is done by a
/// command that was run.
#[test]
fn completing_leaves_a_journal_as_it_is() {
    let dir = Dir::new();
    let session = dir.exec("hello");
    // As a process that was killed leaves it: not closed.
    let mut server = Serving::start(&dir, &["serve", "--addr", "unix:s.sock"]);
    let session_two =
        session_of(&dir.run(&["exec", "--input", "x", "--server", &server.address]).ok());
    server.kill();
    let before = std::fs::read(dir.path("mainspring.redb")).unwrap();
    let listed = |dir: &Dir| {
        let mut names: Vec<_> = std::fs::read_dir(dir.path("."))
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        names
    };
    let names = listed(&dir);
    let mut command = dir.command(&["--", "mainspring", "get", "--session", ""]);
    command.env("COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", "3");
    command.env("_CLAP_COMPLETE_COMP_TYPE", "9").env("_CLAP_COMPLETE_SPACE", "false");
    let out = command.env("_CLAP_IFS", "\n").env("TMPDIR", dir.path(".")).output().unwrap();
    let offered = String::from_utf8(out.stdout).unwrap();
    assert!(offered.contains(&session) && offered.contains(&session_two), "{offered}");
    assert!(std::fs::read(dir.path("mainspring.redb")).unwrap() == before, "it was written to");
    assert_eq!(listed(&dir), names, "nothing is left behind");
}
