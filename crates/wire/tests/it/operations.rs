//! The messages of `mainspring.v1`, both ways.

use std::collections::BTreeMap;
use std::fmt::Debug;

use mainspring_api::{
    AdoptRequest, AppendId, Delta, DescribeReport, Event, EventBody, ExecState, ExecUpdate,
    ExecutionId, ExportRequest, Fence, FenceHolder, FindRequest, FollowRequest, FollowUpdate, Hash,
    Head, ImportRequest, LastError, ListPage, LogRecord, Message, OpenCall, Owner, ResumeRequest,
    RunningOperation, Seq, Session, SessionUid, Standing, StoreDurability, Timestamp,
    VerifyProgress, VerifyReport, VerifyRequest, WarmHost,
};
use mainspring_wire::operations_v1 as wire;
use mainspring_wire::operations_v1::import_request::Target;
use mainspring_wire::{
    NotesField, WireError, follow_to_wire, harnesses_from_wire, harnesses_to_wire,
    registration_fields, registration_from_wire, v1,
};
use prost::Message as _;

use crate::services::session;

fn uid(text: &str) -> SessionUid {
    SessionUid::new(text).unwrap()
}

fn execution() -> ExecutionId {
    ExecutionId::new("e").unwrap()
}

fn owner() -> Owner {
    Owner { issuer: "i".to_owned(), subject: "s".to_owned() }
}

fn time(seconds: i64) -> Timestamp {
    Timestamp { seconds, nanos: 7 }
}

fn record() -> LogRecord {
    LogRecord {
        seq: Seq::new(2),
        prev_hash: Some(Hash::new([1; 32])),
        hash: Hash::new([2; 32]),
        fence: Fence::new(1),
        event: Event::of(EventBody::Input(Some(Message::user("hello")))),
        notes: BTreeMap::from([("commit_time".to_owned(), "now".to_owned())]),
    }
}

#[track_caller]
fn survives<A, B>(value: A)
where
    A: Debug + Clone + TryFrom<B>,
    B: TryFrom<A>,
    <A as TryFrom<B>>::Error: Debug,
    <B as TryFrom<A>>::Error: Debug,
{
    let wire = B::try_from(value.clone()).unwrap();
    // Some of the types have no equality of their own, and their text has every field.
    assert_eq!(format!("{:?}", A::try_from(wire).unwrap()), format!("{value:?}"));
}

#[track_caller]
fn refused<T: Debug>(result: Result<T, WireError>, path: &str) {
    let error = result.expect_err("must be refused");
    assert_eq!(error.path().as_str(), path, "{error}");
    assert!(error.to_string().starts_with(path), "{error}");
}

fn report() -> DescribeReport {
    DescribeReport {
        session: Session { fault: Some("seq 3 does not hold".to_owned()), ..session() },
        standing: Standing::Parked,
        summary: "waits".to_owned(),
        execution_id: Some(execution()),
        holder: Some(FenceHolder {
            name: "h".to_owned(),
            since: Some(time(5)),
            is_here: true,
            is_alive: false,
        }),
        running: Some(RunningOperation {
            operation: "exec".to_owned(),
            since: time(6),
            execution_id: Some(execution()),
        }),
        open_call: Some(OpenCall {
            execution_id: execution(),
            tool_call_id: "t".to_owned(),
            tool: "pay".to_owned(),
            seq: Seq::new(4),
            request_seq: Some(Seq::new(5)),
            digest: "d".to_owned(),
            expires: Some(time(8)),
            approved: Some(false),
        }),
        last_error: Some(LastError { seq: Seq::new(9), code: 13, message: "m".to_owned() }),
        durability: Some(StoreDurability {
            class: "replicated".to_owned(),
            summary: "replicated (3 replicas, 2 in sync)".to_owned(),
        }),
        warm_host: Some(WarmHost {
            name: "w".to_owned(),
            address: "http://w:1".to_owned(),
            is_here: true,
        }),
        next_commands: vec!["approve".to_owned(), "deny".to_owned()],
    }
}

#[test]
fn a_description_survives_with_and_without_its_parts() {
    survives::<_, wire::DescribeResponse>(report());
    for standing in Standing::ALL {
        survives::<_, wire::DescribeResponse>(DescribeReport {
            session: session(),
            standing,
            summary: String::new(),
            execution_id: None,
            holder: None,
            running: None,
            open_call: None,
            last_error: None,
            durability: None,
            warm_host: None,
            next_commands: Vec::new(),
        });
    }
    let call = OpenCall {
        request_seq: None,
        expires: None,
        approved: None,
        ..report().open_call.unwrap()
    };
    let holder = FenceHolder { since: None, ..report().holder.unwrap() };
    let running = RunningOperation { execution_id: None, ..report().running.unwrap() };
    survives::<_, wire::DescribeResponse>(DescribeReport {
        open_call: Some(call),
        holder: Some(holder),
        running: Some(running),
        ..report()
    });
}

#[test]
fn a_description_is_refused_by_field() {
    let check = |edit: fn(&mut wire::DescribeResponse), path: &str| {
        let mut bad = wire::DescribeResponse::try_from(report()).unwrap();
        edit(&mut bad);
        refused(DescribeReport::try_from(bad), path);
    };
    check(|d| d.standing = 0, "standing");
    check(|d| d.standing = 99, "standing");
    check(|d| d.session = None, "session");
    check(|d| d.running.as_mut().unwrap().since = None, "running.since");
    check(|d| d.open_call.as_mut().unwrap().execution_id.clear(), "open_call.execution_id");
    check(|d| d.open_call.as_mut().unwrap().request_seq = -1, "open_call.request_seq");
    check(|d| d.last_error.as_mut().unwrap().seq = -1, "last_error.seq");
    check(|d| d.holder.as_mut().unwrap().since.as_mut().unwrap().nanos = -1, "holder.since");
}

#[test]
fn every_update_of_a_followed_session_survives() {
    let delta =
        Delta { execution_id: execution(), part_index: 0, chunk: "c".to_owned(), done: false };
    let updates = [
        FollowUpdate::Record(Box::new(record())),
        FollowUpdate::Delta(delta),
        FollowUpdate::DeltaGap,
        FollowUpdate::Heartbeat,
    ];
    for update in updates {
        let wire = follow_to_wire(update.clone(), NotesField::Send).unwrap();
        let back = FollowUpdate::try_from(wire).unwrap();
        assert_eq!(format!("{back:?}"), format!("{update:?}"));
    }
    let bare = follow_to_wire(FollowUpdate::Record(Box::new(record())), NotesField::Omit).unwrap();
    let Some(wire::follow_update::Update::Record(bare)) = bare.update else {
        panic!("a record");
    };
    assert!(bare.notes.is_empty(), "nobody asked");
    refused(FollowUpdate::try_from(wire::FollowUpdate::default()), "update");
}

#[test]
fn a_heartbeat_is_never_taken_for_a_value() {
    let record = v1::LogRecord { heartbeat: Some(v1::Heartbeat {}), ..Default::default() };
    refused(LogRecord::try_from(record), "heartbeat");
    let update = v1::exec_update::Update::Heartbeat(v1::Heartbeat {});
    refused(ExecUpdate::try_from(v1::ExecUpdate { update: Some(update) }), "heartbeat");
}

#[test]
fn requests_survive() {
    survives::<_, wire::FollowRequest>(FollowRequest { session: uid("s"), after_seq: Seq::new(3) });
    survives::<_, wire::ResumeRequest>(ResumeRequest { session: uid("s"), approval_ttl: None });
    survives::<_, wire::AdoptRequest>(AdoptRequest { session: uid("s"), owner: owner() });
    survives::<_, wire::FindRequest>(FindRequest::default());
    survives::<_, wire::FindRequest>(FindRequest {
        project: "p".to_owned(),
        owner: Some(owner()),
        states: ExecState::ALL.to_vec(),
        labels: BTreeMap::from([("k".to_owned(), "v".to_owned())]),
        harness: "h".to_owned(),
        page_size: -1,
        page_token: "t".to_owned(),
    });
    let page = ListPage { sessions: vec![session()], next_page_token: "t".to_owned() };
    survives::<_, wire::FindResponse>(page);
    let head = Head::at(Seq::new(4), Hash::new([3; 32]));
    for expect_head in [None, Some(Head::EMPTY), Some(head)] {
        survives::<_, wire::VerifyRequest>(VerifyRequest { session: uid("s"), expect_head });
    }
    for after in [Head::EMPTY, head] {
        survives::<_, wire::ExportRequest>(ExportRequest { session: uid("s"), after });
    }
    survives::<_, wire::VerifyProgress>(VerifyProgress::Checked { records: 1, total: 2 });
    for head in [Head::EMPTY, head] {
        let report = VerifyReport { session: None, head, head_attested: true };
        survives::<_, wire::VerifyProgress>(VerifyProgress::Done(report));
    }
    survives::<_, Target>(ImportRequest::default());
    survives::<_, Target>(ImportRequest {
        session: Some(uid("s")),
        harness: "h".to_owned(),
        project: "p".to_owned(),
        name: "n".to_owned(),
        id: Some(AppendId::new([9; 16])),
    });
}

#[test]
fn requests_are_refused_by_field() {
    let follow = wire::FollowRequest { session: "s".to_owned(), after_seq: -1 };
    refused(FollowRequest::try_from(follow), "after_seq");
    refused(FollowRequest::try_from(wire::FollowRequest::default()), "session");
    refused(ResumeRequest::try_from(wire::ResumeRequest::default()), "session");
    let find = |states: Vec<i32>| wire::FindRequest { states, ..Default::default() };
    refused(FindRequest::try_from(find(vec![1, 0])), "states[1]");
    refused(FindRequest::try_from(find(vec![77])), "states[0]");
    let half = wire::FindRequest { owner_issuer: "i".to_owned(), ..Default::default() };
    refused(FindRequest::try_from(half), "owner_subject");
    let half = wire::FindRequest { owner_subject: "s".to_owned(), ..Default::default() };
    refused(FindRequest::try_from(half), "owner_issuer");
    let nobody = Owner { issuer: String::new(), subject: String::new() };
    let find = FindRequest { owner: Some(nobody), ..Default::default() };
    refused(wire::FindRequest::try_from(find), "owner_issuer");
    let adopt = wire::AdoptRequest { session: "s".to_owned(), ..Default::default() };
    refused(AdoptRequest::try_from(adopt), "owner_issuer");
    refused(AdoptRequest::try_from(wire::AdoptRequest::default()), "session");

    let head = |seq, hash: &str| wire::JournalHead { seq, hash: hash.to_owned() };
    let verify = |head| wire::VerifyRequest { session: "s".to_owned(), expect_head: Some(head) };
    let hash = Hash::new([3; 32]).to_string();
    refused(VerifyRequest::try_from(verify(head(0, &hash))), "expect_head.hash");
    refused(VerifyRequest::try_from(verify(head(1, ""))), "expect_head.hash");
    refused(VerifyRequest::try_from(verify(head(-1, &hash))), "expect_head.seq");
    refused(wire::JournalHead::try_from(Head { seq: Seq::new(1), hash: None }), "hash");
    let export = wire::ExportRequest { session: "s".to_owned(), after: Some(head(1, "x")) };
    refused(ExportRequest::try_from(export), "after.hash");
    refused(VerifyProgress::try_from(wire::VerifyProgress::default()), "progress");
    let checked = wire::verify_progress::Checked { records: -1, total: 0 };
    let progress = wire::verify_progress::Progress::Checked(checked);
    let update = wire::VerifyProgress { progress: Some(progress) };
    refused(VerifyProgress::try_from(update), "checked.records");
    refused(ImportRequest::try_from(Target { id: "zz".to_owned(), ..Default::default() }), "id");
    let bad = Target { session: "a/b".to_owned(), ..Default::default() };
    refused(ImportRequest::try_from(bad), "session");
}

#[test]
fn a_registration_says_how_its_harness_is_resumed() {
    let request = |resumability| v1::RegisterHarnessRequest {
        name: "n".to_owned(),
        spec: Some(v1::HarnessSpec {
            capabilities: Some(v1::Capabilities { resumability, ..Default::default() }),
            ..Default::default()
        }),
    };
    refused(registration_from_wire(request(0)), "spec.capabilities.resumability");
    refused(registration_from_wire(request(9)), "spec.capabilities.resumability");
    refused(registration_from_wire(v1::RegisterHarnessRequest::default()), "spec");
    let (name, spec) = registration_from_wire(request(1)).unwrap();
    assert_eq!(name, "n");
    assert!(spec.capabilities.is_some());
}

#[test]
fn a_page_of_registrations_survives() {
    let page = vec![crate::services::registration()];
    let wire = harnesses_to_wire(page.clone(), "t".to_owned()).unwrap();
    assert_eq!(harnesses_from_wire(wire.clone()).unwrap(), (page, "t".to_owned()));
    let mut bad = wire;
    bad.harnesses[0].state = 44;
    refused(harnesses_from_wire(bad), "harnesses[0].state");
}

#[test]
fn a_registration_has_no_field_that_is_not_known() {
    let good = v1::RegisterHarnessRequest {
        name: "n".to_owned(),
        spec: Some(v1::HarnessSpec {
            placement: Some(v1::harness_spec::Placement::Remote(v1::RemotePlacement {
                address: "h:1".to_owned(),
            })),
            capabilities: Some(v1::Capabilities {
                resumability: 1,
                fork_safe: true,
                requires_gpu: true,
                streaming: true,
                reasoning_replay: true,
            }),
            descriptor_id: "d".to_owned(),
        }),
    };
    registration_fields(&good.encode_to_vec()).unwrap();
    registration_fields(b"").unwrap();
    registration_fields(b"\xff\xff").unwrap();
    // Field 15, a number, put behind each of the messages within each other.
    let unknown = [0x78, 0x01];
    let wrap = |number: u8, inner: &[u8]| {
        let mut bytes = vec![number << 3 | 2, u8::try_from(inner.len()).unwrap()];
        bytes.extend(inner);
        bytes
    };
    refused(registration_fields(&[&good.encode_to_vec()[..], &unknown].concat()), "");
    refused(registration_fields(&wrap(2, &unknown)), "spec");
    refused(registration_fields(&wrap(2, &wrap(1, &unknown))), "spec.remote");
    refused(registration_fields(&wrap(2, &wrap(3, &unknown))), "spec.capabilities");
}
