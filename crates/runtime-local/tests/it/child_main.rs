//! What this binary does when a test starts it as a harness.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::process::{Command, exit};
use std::thread;

use crate::support::{LOG, MODE};

/// No test of its own: the other tests start this binary with only this
/// "test" selected and a mode in the environment.
#[test]
fn entry() {
    let Ok(mode) = std::env::var(MODE) else {
        return;
    };
    note(&format!("started {}", std::process::id()));
    match mode.as_str() {
        "listen" => listen(),
        "die-soon" => {
            thread::spawn(listen);
            wait_for_stdin();
        }
        "fail" => {
            let mut stderr = std::io::stderr();
            let _ = writeln!(stderr, "{}THE END", "x".repeat(10_000));
            exit(3);
        }
        "mute" => wait_for_stdin(),
        "stubborn" => stubborn(),
        "leave-behind" => {
            #[expect(clippy::zombie_processes, reason = "it is to outlive this process")]
            let left = Command::new("sleep").arg("600").spawn().unwrap();
            note(&format!("left {}", left.id()));
            listen();
        }
        "show-environment" => {
            for name in ["HARNESS_ADDR", "HARNESS_SESSION", "CARGO_MANIFEST_DIR", "GIVEN"] {
                note(&format!("{name}={}", std::env::var(name).unwrap_or_default()));
            }
            listen();
        }
        other => panic!("mode {other}"),
    }
}

/// Serves until standard input closes, as the contract asks.
fn listen() {
    let listener = bind();
    thread::spawn(move || listener.incoming().for_each(drop));
    wait_for_stdin();
}

/// Does not end when its standard input closes, nor on SIGTERM.
fn stubborn() {
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    executor.block_on(async {
        let mut term =
            tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).unwrap();
        let _listener = bind();
        loop {
            term.recv().await;
            note("terminated in vain");
        }
    });
}

fn bind() -> UnixListener {
    let address = std::env::var("HARNESS_ADDR").unwrap();
    UnixListener::bind(address.strip_prefix("unix://").unwrap()).unwrap()
}

fn wait_for_stdin() {
    let _ = std::io::stdin().read(&mut [0u8]);
    exit(0);
}

fn note(line: &str) {
    let path = std::env::var(LOG).unwrap();
    let mut log = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
    // In one write: others append, too.
    log.write_all(format!("{line}\n").as_bytes()).unwrap();
}
