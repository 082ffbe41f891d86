//! When following ends.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::stream;
use mainspring::api::{
    ApproveRequest, Approved, BoxStream, Caller, CancelRequest, ComputeState, Condition,
    CreateRequest, DeletionState, DescribeReport, Event, ExecRequest, ExecStream, Fence,
    ForkRequest, Hash, ListPage, ListRequest, ReplayRequest, ResolveRequest, ResumeRequest,
    Session, SessionsError, Timestamp, async_trait,
};

use super::*;
use crate::args::Format;

/// A session whose rows and updates are written down.
#[derive(Debug)]
struct Double {
    /// State and head at each look; the last one stays.
    rows: Vec<(ExecState, u64)>,
    looks: AtomicUsize,
    /// Positions and kinds of its records.
    records: Vec<(u64, EventBody)>,
}

impl Double {
    fn new(rows: &[(ExecState, u64)], records: Vec<(u64, EventBody)>) -> Self {
        Self { rows: rows.to_vec(), looks: AtomicUsize::new(0), records }
    }
}

fn none<T>() -> Result<T, SessionsError> {
    Err(SessionsError::new(Condition::Unimplemented, "the double does not do it"))
}

fn record(seq: u64, body: EventBody) -> LogRecord {
    LogRecord {
        seq: Seq::new(seq),
        prev_hash: None,
        hash: Hash::new([0; 32]),
        fence: Fence::NONE,
        event: Event::of(body),
        notes: Default::default(),
    }
}

#[async_trait]
impl Sessions for Double {
    async fn create(&self, _: &Caller, _: CreateRequest) -> Result<Session, SessionsError> {
        none()
    }

    async fn get(&self, _: &Caller, uid: &SessionUid) -> Result<Session, SessionsError> {
        let look = self.looks.fetch_add(1, Ordering::Relaxed).min(self.rows.len() - 1);
        let (exec_state, last_seq) = self.rows[look];
        Ok(Session {
            uid: uid.clone(),
            project: String::new(),
            name: String::new(),
            harness: String::new(),
            model: String::new(),
            version: 1,
            create_time: Timestamp::default(),
            update_time: Timestamp::default(),
            exec_state,
            compute_state: ComputeState::None,
            deletion_state: DeletionState::Active,
            pending_approval: None,
            last_seq: Seq::new(last_seq),
            parent_uid: None,
            fork_seq: Seq::ZERO,
            identity: None,
            origin: None,
            labels: Default::default(),
            annotations: Default::default(),
            owner: None,
            fault: None,
        })
    }

    async fn list(&self, _: &Caller, _: ListRequest) -> Result<ListPage, SessionsError> {
        none()
    }

    async fn describe(&self, _: &Caller, _: &SessionUid) -> Result<DescribeReport, SessionsError> {
        none()
    }

    async fn exec(&self, _: &Caller, _: ExecRequest) -> Result<ExecStream, SessionsError> {
        none()
    }

    async fn resume(&self, _: &Caller, _: ResumeRequest) -> Result<ExecStream, SessionsError> {
        none()
    }

    async fn follow(
        &self,
        _: &Caller,
        request: FollowRequest,
    ) -> Result<BoxStream<'static, Result<FollowUpdate, SessionsError>>, SessionsError> {
        let records = self.records.iter().filter(|(seq, _)| *seq > request.after_seq.get());
        let updates: Vec<_> = records
            .map(|(seq, body)| Ok(FollowUpdate::Record(Box::new(record(*seq, body.clone())))))
            .collect();
        // What comes after them is that the stream is alive, and then its loss.
        let lost = Err(SessionsError::new(Condition::Unavailable, "lost"));
        Ok(Box::pin(stream::iter(updates.into_iter().chain([Ok(FollowUpdate::Heartbeat), lost]))))
    }

    async fn replay(
        &self,
        _: &Caller,
        _: ReplayRequest,
    ) -> Result<BoxStream<'static, Result<LogRecord, SessionsError>>, SessionsError> {
        none()
    }

    async fn approve(&self, _: &Caller, _: ApproveRequest) -> Result<Approved, SessionsError> {
        none()
    }

    async fn resolve(&self, _: &Caller, _: ResolveRequest) -> Result<Session, SessionsError> {
        none()
    }

    async fn suspend(&self, _: &Caller, _: &SessionUid) -> Result<Session, SessionsError> {
        none()
    }

    async fn fork(&self, _: &Caller, _: ForkRequest) -> Result<Vec<Session>, SessionsError> {
        none()
    }

    async fn cancel(&self, _: &Caller, _: CancelRequest) -> Result<Session, SessionsError> {
        none()
    }

    async fn delete(&self, _: &Caller, _: &SessionUid) -> Result<Session, SessionsError> {
        none()
    }
}

fn turn(end: EventBody) -> Vec<(u64, EventBody)> {
    vec![(1, EventBody::ExecutionStart(None)), (2, EventBody::Output(None)), (3, end)]
}

async fn followed(double: &Double, after: u64, until_idle: bool) -> Result<(), CliError> {
    let args = Follow { session: "sess-1".to_owned(), after, until_idle };
    let session = SessionUid::new("sess-1").unwrap();
    show(double, &session, &args, Output::new(Format::Text)).await
}

/// The stream's own end is an error here: an idle session ends it before.
#[tokio::test]
async fn until_idle_ends_where_the_latest_turn_has_ended_or_waits() {
    use ExecState::{Awaiting, Completed, Failed, Pending, Running};
    for (rows, records) in [
        (vec![(Pending, 0)], vec![]),
        (vec![(Completed, 3)], turn(EventBody::End(None))),
        (vec![(Running, 1), (Completed, 3)], turn(EventBody::End(None))),
        (vec![(Running, 1), (Failed, 3)], turn(EventBody::Error(None))),
        (vec![(Running, 1), (Awaiting, 3)], turn(EventBody::ApprovalRequest(None))),
    ] {
        let double = Double::new(&rows, records);
        followed(&double, 0, true).await.unwrap_or_else(|error| panic!("{rows:?}: {error}"));
    }
    // All of it is known already.
    let double = Double::new(&[(Completed, 3)], turn(EventBody::End(None)));
    followed(&double, 3, true).await.unwrap();
}

#[tokio::test]
async fn a_turn_that_goes_on_is_followed_on() {
    use ExecState::{Completed, Running};
    // The next turn had begun when the end of this one was seen.
    let double = Double::new(&[(Running, 1), (Running, 4)], turn(EventBody::End(None)));
    assert_eq!(followed(&double, 0, true).await.unwrap_err().exit_code(), 7);
    let double = Double::new(&[(Completed, 3)], turn(EventBody::End(None)));
    assert_eq!(followed(&double, 0, false).await.unwrap_err().exit_code(), 7);
    assert_eq!(double.looks.load(Ordering::Relaxed), 0, "nobody asked where it stands");
}
