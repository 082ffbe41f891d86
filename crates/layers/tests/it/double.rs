//! A sessions service whose connections are cut where a seed says.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use futures_util::{StreamExt as _, stream};
use mainspring_api::{
    ApproveRequest, Approved, BoxStream, Caller, CancelRequest, ComputeState, Condition,
    CreateRequest, DeletionState, Delta, DescribeReport, Event, EventBody, ExecRequest, ExecState,
    ExecStream, ExecUpdate, ExecutionId, Fence, FollowRequest, FollowUpdate, ForkRequest, Hash,
    ListPage, ListRequest, LogRecord, Message, Notes, Outcome, ReplayRequest, RequestId,
    ResolveRequest, ResumeRequest, Seq, Session, SessionUid, Sessions, SessionsError, Timestamp,
    async_trait,
};

pub(crate) const EXECUTION: &str = "0123456789abcdef";

pub(crate) fn uid() -> SessionUid {
    SessionUid::new("sess-1").unwrap()
}

pub(crate) fn caller() -> Caller {
    Caller::anonymous("test", RequestId::new("test").unwrap())
}

pub(crate) fn cut() -> SessionsError {
    SessionsError::new(Condition::Unavailable, "cut").with_outcome(Outcome::Unknown)
}

/// A small random source.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// What the server makes of a turn's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Names {
    Known,
    Refused,
    /// It does not read them.
    Unread,
}

/// What the server has, and what was asked of it.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) random: Random,
    /// Connections that are still cut.
    pub(crate) cuts: u32,
    /// Records so far.
    pub(crate) head: u64,
    /// Where the turn begins, after which record.
    pub(crate) start: u64,
    /// Where it ends.
    pub(crate) end: u64,
    pub(crate) parks: bool,
    /// Whether somebody drives the turn.
    pub(crate) driven: bool,
    /// Names of the turns that were asked for.
    pub(crate) turns: BTreeSet<String>,
    pub(crate) names: Names,
    /// The turn's id.
    pub(crate) execution: Option<ExecutionId>,
    /// Whether every connection is refused.
    pub(crate) dead: bool,
    /// Items after which the credentials of the first connection run out; those
    /// of the second last twice as long, and so on.
    pub(crate) expires: Option<u64>,
    /// Whether a resume was taken.
    pub(crate) begun: bool,
    /// Calls of exec, resume and follow.
    pub(crate) calls: u32,
}

#[derive(Debug, Clone)]
pub(crate) struct Double(pub(crate) Arc<Mutex<State>>);

impl Double {
    pub(crate) fn new(seed: u64, cuts: u32) -> Self {
        Self(Arc::new(Mutex::new(State {
            random: Random(seed),
            cuts,
            head: 3,
            start: 3,
            end: 43,
            parks: seed.is_multiple_of(3),
            driven: true,
            turns: BTreeSet::new(),
            names: Names::Known,
            execution: Some(ExecutionId::new(EXECUTION).unwrap()),
            dead: false,
            expires: None,
            begun: false,
            calls: 0,
        })))
    }

    pub(crate) fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.0.lock().unwrap())
    }

    fn session(&self) -> Session {
        self.with(|state| {
            let exec_state = match state.head {
                head if head < state.end => ExecState::Running,
                _ if state.parks => ExecState::Awaiting,
                _ => ExecState::Completed,
            };
            Session {
                uid: uid(),
                project: "default".to_owned(),
                name: String::new(),
                harness: "echo".to_owned(),
                model: String::new(),
                version: 1,
                create_time: Timestamp::default(),
                update_time: Timestamp::default(),
                exec_state,
                compute_state: ComputeState::None,
                deletion_state: DeletionState::Active,
                pending_approval: None,
                last_seq: Seq::new(state.head),
                parent_uid: None,
                fork_seq: Seq::ZERO,
                identity: None,
                origin: None,
                labels: Default::default(),
                annotations: Default::default(),
                owner: None,
                fault: None,
            }
        })
    }

    fn record(&self, seq: u64) -> LogRecord {
        let body = match self.with(|state| (seq == state.end, state.parks)) {
            (true, true) => EventBody::ApprovalRequest(Some(Default::default())),
            (true, false) => EventBody::End(None),
            _ => EventBody::Output(Some(Message::assistant(seq.to_string()))),
        };
        LogRecord {
            seq: Seq::new(seq),
            prev_hash: None,
            hash: Hash::new([0; 32]),
            fence: Fence::NONE,
            event: Event {
                execution_id: self.with(|state| state.execution.clone()),
                ..Event::of(body)
            },
            notes: Notes::default(),
        }
    }

    /// How many items this connection lives for; `None` for a whole one.
    fn budget(&self) -> Option<u64> {
        self.with(|state| {
            state.calls += 1;
            if state.dead {
                return Some(0);
            }
            if let Some(items) = state.expires {
                return Some(items * u64::from(state.calls));
            }
            if state.cuts == 0 {
                return None;
            }
            state.cuts -= 1;
            Some(state.random.below(12))
        })
    }

    /// How a connection ends before its time.
    fn lost(&self) -> SessionsError {
        match self.with(|state| state.expires) {
            Some(_) => SessionsError::new(Condition::Unauthenticated, "it has run out"),
            None => cut(),
        }
    }

    /// Records after a position, as they come: each look at the stream may
    /// commit one more.
    fn updates(&self, after: u64) -> BoxStream<'static, FollowUpdate> {
        let this = self.clone();
        Box::pin(stream::unfold((this, after), async |(this, at)| {
            let committed = this.with(|state| {
                if state.driven && state.head < state.end {
                    state.head += 1;
                }
                (at < state.head, state.random.below(4) == 0)
            });
            match committed {
                _ if at >= this.with(|state| state.end) => None,
                (true, true) | (false, _) => Some((FollowUpdate::Delta(delta()), (this, at))),
                (true, false) => {
                    let record = Box::new(this.record(at + 1));
                    Some((FollowUpdate::Record(record), (this, at + 1)))
                }
            }
        }))
    }

    fn turn(&self, after: u64, first: bool) -> Result<ExecStream, SessionsError> {
        let budget = self.budget();
        if budget == Some(0) {
            return Err(self.lost());
        }
        let records = self.updates(after).filter_map(async |update| match update {
            FollowUpdate::Record(record) => Some(Ok(ExecUpdate::Record(record))),
            FollowUpdate::Delta(delta) => Some(Ok(ExecUpdate::Delta(delta))),
            _ => None,
        });
        let session = ExecUpdate::Session(Box::new(self.session()));
        let begin = stream::iter(first.then_some(Ok(session)));
        let this = self.clone();
        let end = stream::once(async move {
            let shown = !first || this.with(|state| state.parks);
            shown.then(|| Ok(ExecUpdate::Session(Box::new(this.session()))))
        });
        let whole = begin.chain(records).chain(end.filter_map(async |end| end));
        Ok(limited(Box::pin(whole), budget, self.lost()))
    }
}

fn delta() -> Delta {
    Delta {
        execution_id: ExecutionId::new(EXECUTION).unwrap(),
        part_index: 0,
        chunk: "x".to_owned(),
        done: false,
    }
}

/// A stream that is cut after so many items.
fn limited<T: Send + 'static>(
    whole: BoxStream<'static, Result<T, SessionsError>>,
    budget: Option<u64>,
    lost: SessionsError,
) -> BoxStream<'static, Result<T, SessionsError>> {
    match budget {
        None => whole,
        // One that ended before is not cut.
        Some(budget) => Box::pin(stream::unfold(
            (Some(whole), budget, lost),
            async |(whole, left, lost)| match (whole?, left) {
                (_, 0) => Some((Err(lost.clone()), (None, 0, lost))),
                (mut whole, left) => Some((whole.next().await?, (Some(whole), left - 1, lost))),
            },
        )),
    }
}

fn none<T>() -> Result<T, SessionsError> {
    Err(SessionsError::new(Condition::Unimplemented, "the double does not do it"))
}

#[async_trait]
impl Sessions for Double {
    async fn create(&self, _: &Caller, _: CreateRequest) -> Result<Session, SessionsError> {
        none()
    }

    async fn get(&self, _: &Caller, _: &SessionUid) -> Result<Session, SessionsError> {
        Ok(self.session())
    }

    async fn list(&self, _: &Caller, _: ListRequest) -> Result<ListPage, SessionsError> {
        none()
    }

    async fn describe(&self, _: &Caller, _: &SessionUid) -> Result<DescribeReport, SessionsError> {
        none()
    }

    async fn exec(&self, _: &Caller, request: ExecRequest) -> Result<ExecStream, SessionsError> {
        if self.with(|state| state.names == Names::Refused)
            && (request.execution_id.is_some() || request.idempotency_key.is_some())
        {
            return none();
        }
        let named = request.execution_id.clone();
        if self.with(|state| state.names == Names::Known) {
            self.with(|state| state.execution = named);
        }
        let name = request.execution_id.map(|id| id.to_string()).or(request.idempotency_key);
        let start = self.with(|state| {
            let fresh = format!("turn {}", state.turns.len());
            state.turns.insert(match state.names {
                Names::Known => name.expect("a turn that can be attached to has a name"),
                _ => fresh,
            });
            state.start
        });
        self.turn(start, true)
    }

    async fn resume(&self, _: &Caller, _: ResumeRequest) -> Result<ExecStream, SessionsError> {
        // Somebody else drives it for a while after each loss.
        let (held, head) = self.with(|state| {
            let held = state.begun && state.head < state.end && state.random.below(2) == 0;
            if !state.begun {
                return (held, state.head);
            }
            // It recorded something before it let go, or the first record comes again.
            state.head = (state.head + state.random.below(3)).min(state.end);
            (held, state.head - state.random.below(2))
        });
        if held {
            return Err(SessionsError::new(Condition::SessionBusy, "driven"));
        }
        let turn = self.turn(head, false)?;
        self.with(|state| state.begun = true);
        Ok(turn)
    }

    async fn follow(
        &self,
        _: &Caller,
        request: FollowRequest,
    ) -> Result<BoxStream<'static, Result<FollowUpdate, SessionsError>>, SessionsError> {
        let budget = self.budget();
        if budget == Some(0) {
            return Err(self.lost());
        }
        let after = request.after_seq.get();
        // A server that keeps no promise: it repeats a record, or leaves one out.
        let after = self.with(|state| match state.random.below(4) {
            0 => after.saturating_sub(1),
            1 if state.calls > 1 && after + 1 < state.head => after + 1,
            _ => after,
        });
        let updates = self.updates(after).map(Ok);
        let live = stream::pending();
        Ok(limited(Box::pin(updates.chain(live)), budget, self.lost()))
    }

    async fn replay(
        &self,
        _: &Caller,
        request: ReplayRequest,
    ) -> Result<BoxStream<'static, Result<LogRecord, SessionsError>>, SessionsError> {
        let this = self.clone();
        let seqs = request.from_seq.unsigned_abs()..=request.to_seq.unsigned_abs();
        let records = stream::iter(seqs.map(move |seq| Ok(this.record(seq))));
        Ok(limited(Box::pin(records), self.budget(), self.lost()))
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
