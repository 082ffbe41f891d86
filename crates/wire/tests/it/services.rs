//! Sessions, requests, frames and registrations.

use std::collections::BTreeMap;

use mainspring_api::{
    ApprovalRef, Capabilities, ComputeState, CreateRequest, DeletionState, Descriptor, Event,
    EventBody, ExecRequest, ExecState, ExecutionId, ForkRequest, HarnessRegistration,
    HarnessSource, HarnessSpec, HarnessState, IdentityRef, Mediation, Message, ModelReply, Origin,
    Placement, RegisterOutcome, Resumability, Seq, Session, SessionUid, Timestamp, ToolResult,
    ToolSpec, Usage,
};
use mainspring_wire::{
    CallFailure, ControllerFrame, Frame, HistoryPage, ModelResult, StartFrame,
    registered_from_wire, registered_to_wire, spec_to_register, v1,
};

fn identity() -> IdentityRef {
    IdentityRef { principal: "p".to_owned(), ..Default::default() }
}

fn map(key: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(key.to_owned(), "v".to_owned())])
}

pub(crate) fn session() -> Session {
    Session {
        uid: SessionUid::new("sess-1").unwrap(),
        project: "p".to_owned(),
        name: "n".to_owned(),
        harness: "echo".to_owned(),
        model: "m".to_owned(),
        version: 4,
        create_time: Timestamp { seconds: 5, nanos: 6 },
        update_time: Timestamp { seconds: 7, nanos: 8 },
        exec_state: ExecState::Awaiting,
        compute_state: ComputeState::Cold,
        deletion_state: DeletionState::Pending,
        pending_approval: Some(ApprovalRef {
            execution_id: "e".to_owned(),
            tool_call_id: "t".to_owned(),
            request_seq: 9,
        }),
        last_seq: Seq::new(10),
        parent_uid: Some(SessionUid::new("sess-0").unwrap()),
        fork_seq: Seq::new(3),
        identity: Some(identity()),
        origin: Some(Origin { source: "s".to_owned(), attributes: map("a"), ..Default::default() }),
        labels: map("l"),
        annotations: map("x"),
        owner: None,
        fault: None,
    }
}

#[test]
fn every_state_of_a_session_survives() {
    let check = |session: Session| {
        let wire = v1::Session::try_from(session.clone()).unwrap();
        assert_eq!(Session::try_from(wire).unwrap(), session);
    };
    check(session());
    for exec_state in ExecState::ALL {
        check(Session { exec_state, pending_approval: None, parent_uid: None, ..session() });
    }
    for compute_state in ComputeState::ALL {
        check(Session { compute_state, ..session() });
    }
}

#[test]
fn any_unknown_deletion_state_means_deleted() {
    let mut wire = v1::Session::try_from(session()).unwrap();
    let mut check = |number: i32, expected: DeletionState| {
        wire.deletion_state = number;
        let read = Session::try_from(wire.clone()).unwrap();
        assert_eq!(read.deletion_state, expected, "{number}");
    };
    check(0, DeletionState::Active);
    check(1, DeletionState::Active);
    check(2, DeletionState::Pending);
    check(3, DeletionState::Pending);
    check(-1, DeletionState::Pending);
}

#[test]
fn what_a_peer_leaves_out_reads_as_the_beginning() {
    let wire = v1::Session {
        metadata: Some(v1::ResourceMetadata { uid: "sess-1".to_owned(), ..Default::default() }),
        identity: Some(v1::IdentityRef::default()),
        origin: Some(v1::Origin::default()),
        ..Default::default()
    };
    let read = Session::try_from(wire).unwrap();
    assert_eq!(read.exec_state, ExecState::Pending);
    assert_eq!(read.compute_state, ComputeState::None);
    assert_eq!(read.create_time, Timestamp::default());
    assert_eq!((read.identity, read.origin), (None, None));
}

#[test]
fn a_fork_keeps_the_presence_of_an_empty_identity() {
    let wire = v1::ForkRequest {
        session: "s".to_owned(),
        identity: Some(v1::IdentityRef::default()),
        ..Default::default()
    };
    let read = ForkRequest::try_from(wire).unwrap();
    assert_eq!(read.identity, Some(IdentityRef::default()));
}

#[test]
fn create_ignores_what_a_caller_may_not_choose() {
    let full = v1::Session::try_from(session()).unwrap();
    let read = CreateRequest::from(v1::CreateSessionRequest { session: Some(full) });
    assert_eq!(read.project, "p");
    assert_eq!(read.labels, map("l"));
    assert_eq!(read.identity, Some(identity()));
    let again = CreateRequest::from(v1::CreateSessionRequest::from(read));
    assert_eq!((again.harness.as_str(), again.model.as_str()), ("echo", "m"));
    let empty = CreateRequest::from(v1::CreateSessionRequest::default());
    assert_eq!(empty.project, "");
}

#[test]
fn an_exec_request_keeps_the_presence_of_its_assertion() {
    for expected in [None, Some(0), Some(7)] {
        let request = ExecRequest {
            inputs: vec![Message::user("x")],
            expected_last_seq: expected,
            execution_id: Some(ExecutionId::new("e").unwrap()),
            ..Default::default()
        };
        let read = ExecRequest::try_from(v1::ExecRequest::try_from(request).unwrap()).unwrap();
        assert_eq!(read.expected_last_seq, expected);
        assert_eq!(read.session, None);
        assert_eq!(read.execution_id, None, "travels as metadata");
    }
}

#[test]
fn every_frame_survives() {
    let approval = mainspring_api::ApprovalResult {
        tool_call_id: "t".to_owned(),
        approved: true,
        reason: "r".to_owned(),
        request_seq: 3,
    };
    let frames = [
        Frame::Start(Box::new(StartFrame {
            config: "c".into(),
            history: vec![Event::of(EventBody::Output(Some(Message::assistant("h"))))],
            inputs: vec![Message::user("i")],
            resume_from_seq: 5,
            model: "m".to_owned(),
            history_head: 0,
        })),
        Frame::Start(Box::new(StartFrame { history_head: 100_000, ..StartFrame::default() })),
        Frame::Cancel(mainspring_api::CancelReason::Timeout),
        Frame::Approval(approval),
        Frame::Tool(Box::new(ToolResult { id: "t".to_owned(), ..Default::default() })),
        Frame::Model(Box::new(ModelResult {
            model_call_id: "c".to_owned(),
            reply: ModelReply {
                message: Message::assistant("x"),
                usage: Usage { input_tokens: 2, ..Default::default() },
            },
        })),
        Frame::Park(ApprovalRef {
            execution_id: "e".to_owned(),
            tool_call_id: "t".to_owned(),
            request_seq: 3,
        }),
        Frame::HistoryPage(Box::new(HistoryPage {
            from_seq: 7,
            events: vec![Event::of(EventBody::Input(Some(Message::user("h"))))],
            end: true,
        })),
        Frame::Failure(CallFailure {
            call_id: "c".to_owned(),
            code: "tool_failed".to_owned(),
            description: "it broke".to_owned(),
        }),
    ];
    for frame in frames {
        let frame =
            ControllerFrame { session: "s".to_owned(), execution_id: "e".to_owned(), frame };
        let wire = v1::ControllerFrame::try_from(frame.clone()).unwrap();
        assert_eq!(ControllerFrame::try_from(wire).unwrap(), frame);
    }
}

fn descriptor() -> Descriptor {
    Descriptor {
        id: "d".to_owned(),
        version: "2".to_owned(),
        models: vec!["m".to_owned()],
        tools: vec![ToolSpec {
            name: "t".to_owned(),
            description: "x".to_owned(),
            mediation: Mediation::RequiresApproval,
        }],
        capabilities: Capabilities {
            resumability: Resumability::RequiresMemorySnapshot,
            fork_safe: true,
            ..Default::default()
        },
    }
}

#[test]
fn descriptors_survive_and_unknown_resumability_reads_as_replay() {
    let wire = v1::HarnessDescriptor::from(descriptor());
    assert_eq!(Descriptor::try_from(wire.clone()).unwrap(), descriptor());
    for number in [0, 1, 7, -1] {
        let mut wire = wire.clone();
        wire.capabilities.as_mut().unwrap().resumability = number;
        let read = Descriptor::try_from(wire).unwrap();
        assert_eq!(read.capabilities.resumability, Resumability::StatelessReplay);
    }
    let bare = Descriptor::try_from(v1::HarnessDescriptor::default()).unwrap();
    assert_eq!(bare, Descriptor::default());
}

pub(crate) fn registration() -> HarnessRegistration {
    HarnessRegistration {
        name: "n".to_owned(),
        uid: "harness-1".to_owned(),
        create_time: Some(Timestamp { seconds: 1, nanos: 2 }),
        spec: Some(HarnessSpec {
            placement: None,
            capabilities: Some(Capabilities::default()),
            descriptor_id: "d".to_owned(),
        }),
        spec_digest: "sha256:x".to_owned(),
        state: HarnessState::Retired,
        source: HarnessSource::Registered,
        retire_time: Some(Timestamp { seconds: 3, nanos: 4 }),
        retire_reason: "r".to_owned(),
        observed: Some(descriptor()),
        observe_error: "o".to_owned(),
        unservable_reason: "u".to_owned(),
    }
}

#[test]
fn registrations_survive() {
    for placement in [
        None,
        Some(Placement::Remote { address: "h:1".to_owned() }),
        Some(Placement::Substrate { atespace: "a".to_owned(), template: "t".to_owned() }),
    ] {
        let spec = HarnessSpec { placement, ..registration().spec.unwrap() };
        let harness = HarnessRegistration { spec: Some(spec), ..registration() };
        let wire = registered_to_wire(harness.clone(), RegisterOutcome::Reactivated).unwrap();
        let read = registered_from_wire(wire).unwrap();
        assert_eq!(read, (harness, RegisterOutcome::Reactivated));
    }
}

/// A request to register says how its harness is brought back; the rest is the registry's to judge.
#[test]
fn a_spec_to_register_says_its_resumability() {
    let with = |resumability| v1::HarnessSpec {
        capabilities: Some(v1::Capabilities { resumability, ..Default::default() }),
        ..Default::default()
    };
    let refused = |number| spec_to_register(with(number)).unwrap_err().to_string();
    assert_eq!(refused(0), "spec.capabilities.resumability: missing");
    assert_eq!(refused(9), "spec.capabilities.resumability: unknown enum number 9");
    for (number, resumability) in
        [(1, Resumability::StatelessReplay), (2, Resumability::RequiresMemorySnapshot)]
    {
        let spec = spec_to_register(with(number)).unwrap();
        assert_eq!(spec.capabilities.unwrap().resumability, resumability);
    }
    assert_eq!(spec_to_register(v1::HarnessSpec::default()).unwrap().capabilities, None);
}
