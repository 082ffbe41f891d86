//! The same turn, wherever its harness runs.

use mainspring::api::{Json, JsonObject};
use mainspring::eventlog::canonical::json_text;

use crate::support::{BINARY, Dir, Serving, object, records};

/// What may differ: ids, and the name that the harness has on the host.
fn comparable(records: &[JsonObject]) -> Vec<String> {
    records
        .iter()
        .map(|record| {
            let mut event = object(record["event"].clone());
            event.remove("execution_id");
            for (member, id) in [("model", "id"), ("execution_start", "harness")] {
                if let Some(Json::Object(body)) = event.get_mut(member) {
                    body.remove(id);
                }
            }
            json_text(&Json::Object(event)).unwrap()
        })
        .collect()
}

fn turns(dir: &Dir, journal: &str, args: &[&str]) -> Vec<String> {
    let first = ["exec", "--input", "hello", "-o", "json", "--journal", journal];
    let out = dir.run(&[&first, args].concat()).ok();
    let session = out.lines().next().unwrap().split("\"uid\":\"").nth(1).unwrap();
    let session = session.split('"').next().unwrap().to_owned();
    let message =
        r#"{"role":"user","parts":[{"text":{"text":"<é😀>"}},{"data":{"data":{"n":-0.0}}}]}"#;
    let second = ["exec", "--session", &session, "--message", message, "--journal", journal];
    dir.run(&[&second, args].concat()).ok();
    dir.run(&["verify", "--session", &session, "--journal", journal]).ok();
    let replay = ["replay", "--re-execute", "--session", &session, "--journal", journal];
    let replayed = dir.run(&[&replay, args].concat()).ok();
    assert!(replayed.ends_with("turns=2 model_calls=0\n"), "{replayed}");
    let all = dir.run(&["replay", "--session", &session, "-o", "json", "--journal", journal]).ok();
    comparable(&records(&all))
}

#[test]
fn a_turn_is_the_same_in_process_in_a_child_over_a_socket_and_over_tcp() {
    let dir = Dir::new();
    let here = turns(&dir, "here.redb", &[]);
    assert_eq!(here.len(), 10);
    let child = format!("away=exec:{BINARY} harness serve --kind echo");
    let at = |place: &str| format!("away={place}");
    let unix =
        Serving::start(&dir, &["harness", "serve", "--kind", "echo", "--addr", "unix:e.sock"]);
    let tcp = Serving::start(&dir, &["harness", "serve", "--addr", "127.0.0.1:0"]);
    let socket = format!("unix://{}", dir.path("e.sock").display());
    for (journal, place) in
        [("child.redb", child), ("unix.redb", at(&socket)), ("tcp.redb", at(&tcp.address))]
    {
        let there = turns(&dir, journal, &["--harness", "away", "--harness-at", &place]);
        assert_eq!(there, here, "{place}");
    }
    drop(unix);
}

#[test]
fn a_memory_harness_is_refused_where_memory_cannot_be_kept() {
    let dir = Dir::new();
    let counter =
        Serving::start(&dir, &["harness", "serve", "--kind", "counter", "--addr", "127.0.0.1:0"]);
    let place = format!("counter={}", counter.address);
    let args = ["exec", "--harness", "counter", "--replace-builtin", "--harness-at", &place];
    dir.run(&[&args[..], &["--input", "x"]].concat()).fails(5, "unplaceable");
}
