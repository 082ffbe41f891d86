//! What is left of a session that was deleted, and of one that was purged.

use std::time::Duration;

use crate::support::{Dir, Done, Serving, session_of};

struct Deleted {
    dir: Dir,
    server: Serving,
    session: String,
}

impl Deleted {
    /// A session that was deleted on a server with these settings.
    fn on(settings: &str) -> Self {
        let dir = Dir::new();
        dir.write("mainspring.toml", format!("addr = \"127.0.0.1:0\"\n{settings}"));
        let server = Serving::start(&dir, &["serve"]);
        let at = ["--server", server.address.as_str()];
        let run = |args: &[&str]| dir.run(&[args, &at].concat()).ok();
        let session = session_of(&run(&["exec", "--input", "hello"]));
        run(&["delete", "--session", &session]);
        Self { dir, server, session }
    }

    fn run(&self, args: &[&str]) -> Done {
        self.dir.run(&[args, &["--server", &self.server.address]].concat())
    }

    fn described(&self) -> String {
        self.run(&["describe", "--session", &self.session]).ok()
    }
}

#[test]
fn a_deleted_session_is_kept_whole_without_a_retention_or_within_it() {
    for settings in ["", "[delete]\nretention_days = 1\n"] {
        let deleted = Deleted::on(settings);
        let on = ["--session", &deleted.session];
        let shown = deleted.described();
        assert!(shown.contains("standing DELETED: The session is to be deleted.\n"), "{shown}");
        assert!(deleted.run(&["list"]).ok().ends_with("\tdeletion=PENDING\n"));
        let replayed = deleted.run(&[&["replay"], &on[..]].concat()).ok();
        assert_eq!(replayed.lines().count(), 6);
        let exported = deleted.run(&[&["export"], &on[..]].concat()).ok();
        assert_eq!(exported.lines().count(), 7);
        deleted.run(&[&["verify"], &on[..]].concat()).ok();
        deleted.run(&["exec", "--input", "x", on[0], on[1]]).fails(5, "delet");
    }
}

#[test]
fn a_purged_session_answers_by_name() {
    let deleted = Deleted::on("[delete]\nretention_days = 0\n");
    let gone = "standing DELETED: The session was deleted, and its records are gone.\n";
    let purged = (0..200).any(|_| {
        let shown = deleted.described();
        let purged = shown.contains(gone);
        assert!(!purged || shown.ends_with("\nnext: nothing is to be done\n"), "{shown}");
        if !purged {
            std::thread::sleep(Duration::from_millis(50));
        }
        purged
    });
    assert!(purged, "{}", deleted.described());
    for command in ["replay", "export", "verify", "follow", "fork", "resume"] {
        let done = deleted.run(&[command, "--session", &deleted.session]);
        assert_eq!(done.stdout, "", "{command}");
        done.fails(5, "is deleted [session_deleted]");
    }
    // What is left says what it was.
    let left = deleted.run(&["get", "--session", &deleted.session]).ok();
    assert!(left.ends_with("last_seq=6 compute=LIVE deletion=PENDING\n"), "{left}");
    deleted.run(&["delete", "--session", &deleted.session]).ok();
}
