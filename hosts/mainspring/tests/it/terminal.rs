//! Progress is shown on a terminal, and nowhere else.

use std::fs::{File, OpenOptions};
use std::io::Read as _;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::support::Dir;

/// What a command shows on a terminal that is its standard error.
fn on_a_terminal(dir: &Dir, args: &[&str]) -> String {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let side = OpenOptions::new().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    let size = rustix::termios::Winsize { ws_row: 24, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(&side, size).unwrap();
    let mut command = dir.command(args);
    command.env("TERM", "xterm").stdout(std::process::Stdio::null()).stderr(side);
    let mut child = command.spawn().unwrap();
    // The command holds this side too; reading ends when nobody does any more.
    drop(command);
    let mut shown = Vec::new();
    let mut terminal = File::from(terminal);
    let mut piece = [0; 4_096];
    while let Ok(read @ 1..) = terminal.read(&mut piece) {
        shown.extend_from_slice(&piece[..read]);
    }
    assert!(child.wait().unwrap().success());
    String::from_utf8_lossy(&shown).into_owned()
}

#[test]
fn long_work_shows_a_bar_on_a_terminal_and_nothing_in_a_pipe() {
    let dir = Dir::new();
    let session = dir.exec("hello");
    dir.run(&["export", "--session", &session, "--file", "e"]).ok();
    let export = ["export", "--session", &session, "--file", "f"];
    let commands: [(&[&str], &str); 4] = [
        (&["stats"], "stats"),
        (&["compact"], "compact"),
        (&["verify", "--file", "e"], "verify"),
        (&export, "export"),
    ];
    for (args, says) in commands {
        let shown = on_a_terminal(&dir, args);
        assert!(shown.contains(says), "{args:?}: {shown:?}");
        assert_eq!(dir.run(args).stderr, "", "{args:?}");
    }
}
