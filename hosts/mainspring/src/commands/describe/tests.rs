//! The screen and the JSON of each sort of report.

use mainspring::api::{
    ComputeState, DeletionState, ExecState, ExecutionId, Seq, Session, SessionUid, Standing,
    StoreDurability, Timestamp,
};

use super::*;

fn session(exec_state: ExecState) -> Session {
    Session {
        uid: SessionUid::new("sess-1").unwrap(),
        project: "default".to_owned(),
        name: "n".to_owned(),
        harness: "gate".to_owned(),
        model: String::new(),
        version: 1,
        create_time: Timestamp::default(),
        update_time: Timestamp::default(),
        exec_state,
        compute_state: ComputeState::Cold,
        deletion_state: DeletionState::Active,
        pending_approval: None,
        last_seq: Seq::new(4),
        parent_uid: None,
        fork_seq: Seq::ZERO,
        identity: None,
        origin: None,
        labels: Default::default(),
        annotations: Default::default(),
        owner: None,
        fault: None,
    }
}

fn execution() -> ExecutionId {
    ExecutionId::new("0123456789abcdef").unwrap()
}

fn idle() -> DescribeReport {
    DescribeReport {
        session: session(ExecState::Pending),
        standing: Standing::Idle,
        summary: "it has no turn yet".to_owned(),
        execution_id: None,
        holder: None,
        running: None,
        open_call: None,
        last_error: None,
        durability: None,
        warm_host: None,
        next_commands: Vec::new(),
    }
}

fn parked() -> DescribeReport {
    DescribeReport {
        session: session(ExecState::Awaiting),
        standing: Standing::Parked,
        summary: "its turn waits for a decision\u{1b}[2J".to_owned(),
        execution_id: Some(execution()),
        holder: Some(FenceHolder {
            name: "pid/7".to_owned(),
            since: Some(Timestamp { seconds: 0, nanos: 0 }),
            is_here: false,
            is_alive: false,
        }),
        running: Some(RunningOperation {
            operation: "exec".to_owned(),
            since: Timestamp { seconds: 60, nanos: 0 },
            execution_id: Some(execution()),
        }),
        open_call: Some(OpenCall {
            execution_id: execution(),
            tool_call_id: "call-1".to_owned(),
            tool: "refund".to_owned(),
            seq: Seq::new(3),
            request_seq: Some(Seq::new(4)),
            digest: "sha256:00".to_owned(),
            expires: Some(Timestamp { seconds: 3_600, nanos: 0 }),
            approved: Some(false),
        }),
        last_error: Some(LastError { seq: Seq::new(2), code: 13, message: "a\nb".to_owned() }),
        durability: Some(StoreDurability {
            class: "replicated".to_owned(),
            summary: "replicated (3 replicas, 2 in sync)".to_owned(),
        }),
        warm_host: Some(WarmHost {
            name: "pid/8".to_owned(),
            address: "http://b:1".to_owned(),
            is_here: false,
        }),
        next_commands: vec!["mainspring deny".to_owned()],
    }
}

#[test]
fn a_session_that_moves_fits_on_four_lines() {
    let expected = "session sess-1 project=default name=n harness=gate last_seq=4 compute=COLD\n\
                    standing IDLE: it has no turn yet\n\
                    holder none yet\n\
                    next: nothing is to be done";
    assert_eq!(text(&idle(), &[]), expected);
}

#[test]
fn everything_that_keeps_a_session_is_on_the_screen_and_drives_no_terminal() {
    let expected = "session sess-1 project=default name=n harness=gate last_seq=4 compute=COLD \
                    exec=AWAITING\n\
                    standing PARKED: its turn waits for a decision [2J\n\
                    turn 0123456789abcdef\n\
                    holder pid/7 since=1970-01-01T00:00:00Z (another host, no sign of life)\n\
                    warm host pid/8 at http://b:1\n\
                    running exec since=1970-01-01T00:01:00Z execution=0123456789abcdef\n\
                    call tool=refund tool_call=call-1 execution=0123456789abcdef seq=3 \
                    request_seq=4 digest=sha256:00 expires=1970-01-01T01:00:00Z decision=denied\n\
                    last error seq=2 code=13: a b\n\
                    store replicated (3 replicas, 2 in sync)\n\
                    next: mainspring approve --server s\n  \
                    or: mainspring deny --server s";
    let next = ["approve", "deny"].map(|verb| format!("mainspring {verb} --server s"));
    assert_eq!(text(&parked(), &next), expected);
}

#[test]
fn the_json_has_every_field() {
    let json = report_json(&parked(), &["mainspring deny --server s".to_owned()]);
    assert_eq!(json["standing"], "PARKED");
    assert_eq!(json["execution_id"], "0123456789abcdef");
    assert_eq!(json["holder"]["since"], "1970-01-01T00:00:00Z");
    assert_eq!(json["holder"]["is_alive"], false);
    assert_eq!(json["running"]["operation"], "exec");
    assert_eq!(json["open_call"]["request_seq"], 4);
    assert_eq!(json["open_call"]["approved"], false);
    assert_eq!(json["last_error"]["code"], 13);
    assert_eq!(json["durability"]["class"], "replicated");
    assert_eq!(json["warm_host"]["address"], "http://b:1");
    assert_eq!(json["warm_host"]["is_here"], false);
    assert_eq!(json["next_commands"][0], "mainspring deny --server s");
    let json = report_json(&idle(), &[]);
    let absent =
        ["execution_id", "holder", "running", "open_call", "last_error", "durability", "warm_host"];
    assert!(absent.iter().all(|member| json[*member].is_null()), "{json}");
}

#[test]
fn a_warm_host_is_this_one_or_another_with_or_without_an_address() {
    let line = |address: &str, is_here| {
        warm_line(&WarmHost { name: "a/1".to_owned(), address: address.to_owned(), is_here })
    };
    assert_eq!(line("", false), "warm host a/1");
    assert_eq!(line("http://a:1", true), "warm host a/1 at http://a:1 (this host)");
}
