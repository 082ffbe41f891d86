//! The stored form of a row and of an execution: JSON, readable by people.
//!
//! Domain types carry no serde, so this module mirrors them.

use std::collections::BTreeMap;

use mainspring_api::{
    ComputeState, DeletionState, EndState, ExecutionId, Fence, Head, IdentityRef, Origin, Owner,
    Seq, SessionUid, SnapshotRef, Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::error::LogError;
use crate::log::{FenceRow, Holder, NewSession, SessionRow};
use crate::view::{
    ExecutionView, Fault, GateView, InstanceView, LegacyView, SessionView, StartView, SuspendView,
    UsageTotals,
};

/// A row with what the store alone needs.
#[derive(Debug, Clone)]
pub(super) struct KvRow {
    pub(super) row: SessionRow,
    /// The name that the session's own records are kept under: its uid, or the
    /// name that an import staged them under.
    pub(super) store: SessionUid,
    /// Whose records hold which part of the journal, before this session's own.
    pub(super) segments: Vec<Segment>,
    /// Ids of the last operations, so that the same again answers the same.
    pub(super) ops: Ops,
}

/// Records up to `upto` are kept under `uid`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Segment {
    #[serde(with = "text")]
    pub(super) uid: SessionUid,
    pub(super) upto: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ops {
    pub(super) create: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) update: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) mint: String,
}

impl KvRow {
    /// The fence under which readers see inherited records.
    pub(super) const CHILD_FENCE: Fence = Fence::new(1);

    /// Where the session's own records start.
    pub(super) fn own_from(&self) -> Seq {
        self.segments.last().map_or(Seq::new(1), |last| Seq::new(last.upto + 1))
    }

    /// Whose records hold `seq`.
    pub(super) fn holder_of(&self, seq: Seq) -> &SessionUid {
        self.segments
            .iter()
            .find(|segment| seq.get() <= segment.upto)
            .map_or(&self.store, |segment| &segment.uid)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(&StoredRow::from(self)).expect("a row has only string keys")
    }

    pub(super) fn decode(uid: &SessionUid, bytes: &[u8]) -> Result<Self, LogError> {
        serde_json::from_slice::<StoredRow>(bytes)
            .ok()
            .and_then(StoredRow::into_row)
            .ok_or_else(|| LogError::Corrupt { what: format!("row of session {uid}") })
    }
}

pub(super) fn encode_execution(view: &ExecutionView) -> Vec<u8> {
    serde_json::to_vec(&StoredExecution::from(view)).expect("an execution has only string keys")
}

pub(super) fn decode_execution(bytes: &[u8]) -> Result<ExecutionView, LogError> {
    serde_json::from_slice::<StoredExecution>(bytes)
        .ok()
        .and_then(StoredExecution::into_view)
        .ok_or_else(|| LogError::Corrupt { what: "execution table".to_owned() })
}

mod text {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};
    use std::fmt::Display;
    use std::str::FromStr;

    pub(super) fn serialize<T: Display, S: Serializer>(value: &T, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(value)
    }

    pub(super) fn deserialize<'de, T, D>(d: D) -> Result<T, D::Error>
    where
        T: FromStr,
        T::Err: Display,
        D: Deserializer<'de>,
    {
        String::deserialize(d)?.parse().map_err(D::Error::custom)
    }
}

type Map = BTreeMap<String, String>;

#[derive(Serialize, Deserialize)]
struct StoredRow {
    uid: String,
    project: String,
    name: String,
    harness: String,
    model: String,
    labels: Map,
    annotations: Map,
    origin: Option<(String, String, String, Map)>,
    identity: Option<(String, String, String)>,
    owner: Option<(String, String)>,
    version: u64,
    created: (i64, u32),
    updated: (i64, u32),
    fence: u64,
    holder: Option<(String, String)>,
    since: Option<(i64, u32)>,
    parent: Option<(String, u64)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    store: Option<String>,
    segments: Vec<Segment>,
    ops: Ops,
    view: StoredView,
}

#[derive(Serialize, Deserialize)]
struct StoredView {
    #[serde(with = "text")]
    head: Head,
    bytes: u64,
    executions: u64,
    latest: Option<StoredExecution>,
    legacy: Option<StoredLegacy>,
    last_fork: Option<u64>,
    last_suspend: Option<(u64, String, String, bool, bool)>,
    instance: Option<(String, u64, String)>,
    compute: u8,
    deleted: bool,
    usage: (i64, i64, i64),
    legacy_fault: Option<(u64, String)>,
    evidence_fault: Option<(u64, String)>,
}

#[derive(Serialize, Deserialize)]
struct StoredExecution {
    id: String,
    first: u64,
    last: u64,
    start: Option<(u64, Option<i64>, String, String, String)>,
    inputs: u64,
    end: Option<(u64, Option<u8>)>,
    error: Option<u64>,
    gate: Option<StoredGate>,
    unanswered: Option<u64>,
}

#[derive(Serialize, Deserialize)]
struct StoredGate {
    id: String,
    call: u64,
    request: Option<u64>,
    decision: Option<(u64, bool)>,
    receipt: Option<u64>,
}

#[derive(Serialize, Deserialize)]
struct StoredLegacy {
    first: u64,
    first_input: Option<u64>,
    last_input: Option<u64>,
    last: u64,
    end: Option<(u64, Option<u8>)>,
    last_settled: Option<u64>,
    settled: bool,
    failed: bool,
}

const ENDS: [EndState; 3] = [EndState::Completed, EndState::Failed, EndState::Canceled];

fn end_out(end: Option<(Seq, Option<EndState>)>) -> Option<(u64, Option<u8>)> {
    end.map(|(seq, state)| {
        let index = state.and_then(|state| ENDS.iter().position(|end| *end == state));
        (seq.get(), index.and_then(|index| u8::try_from(index).ok()))
    })
}

fn end_in(end: Option<(u64, Option<u8>)>) -> Option<(Seq, Option<EndState>)> {
    end.map(|(seq, state)| {
        (Seq::new(seq), state.and_then(|index| ENDS.get(usize::from(index)).copied()))
    })
}

fn seq_out(seq: Option<Seq>) -> Option<u64> {
    seq.map(Seq::get)
}

fn seq_in(seq: Option<u64>) -> Option<Seq> {
    seq.map(Seq::new)
}

const fn time_out(ts: Timestamp) -> (i64, u32) {
    (ts.seconds, ts.nanos)
}

const fn time_in((seconds, nanos): (i64, u32)) -> Timestamp {
    Timestamp { seconds, nanos }
}

impl From<&KvRow> for StoredRow {
    fn from(kv: &KvRow) -> Self {
        let SessionRow { session: s, version, create_time, update_time, fence, parent, view } =
            &kv.row;
        Self {
            uid: s.uid.to_string(),
            project: s.project.clone(),
            name: s.name.clone(),
            harness: s.harness.clone(),
            model: s.model.clone(),
            labels: s.labels.clone(),
            annotations: s.annotations.clone(),
            origin: s.origin.clone().map(|o| (o.source, o.subject, o.uri, o.attributes)),
            identity: s.identity.clone().map(|i| (i.principal, i.issuer, i.subject)),
            owner: s.owner.clone().map(|o| (o.issuer, o.subject)),
            version: *version,
            created: time_out(*create_time),
            updated: time_out(*update_time),
            fence: fence.fence.get(),
            holder: fence.holder.clone().map(|h| (h.id, h.name)),
            since: fence.since.map(time_out),
            parent: parent.as_ref().map(|(uid, seq)| (uid.to_string(), seq.get())),
            store: (kv.store != s.uid).then(|| kv.store.to_string()),
            segments: kv.segments.clone(),
            ops: kv.ops.clone(),
            view: StoredView::from(view),
        }
    }
}

impl StoredRow {
    fn into_row(self) -> Option<KvRow> {
        let parent = match self.parent {
            Some((parent, seq)) => Some((SessionUid::new(&parent).ok()?, Seq::new(seq))),
            None => None,
        };
        let uid = SessionUid::new(&self.uid).ok()?;
        let store = match self.store {
            Some(store) => SessionUid::new(&store).ok()?,
            None => uid.clone(),
        };
        Some(KvRow {
            store,
            row: SessionRow {
                session: NewSession {
                    uid,
                    project: self.project,
                    name: self.name,
                    harness: self.harness,
                    model: self.model,
                    labels: self.labels,
                    annotations: self.annotations,
                    origin: self.origin.map(|(source, subject, uri, attributes)| Origin {
                        source,
                        subject,
                        uri,
                        attributes,
                    }),
                    identity: self.identity.map(|(principal, issuer, subject)| IdentityRef {
                        principal,
                        issuer,
                        subject,
                    }),
                    owner: self.owner.map(|(issuer, subject)| Owner { issuer, subject }),
                },
                version: self.version,
                create_time: time_in(self.created),
                update_time: time_in(self.updated),
                fence: FenceRow {
                    fence: Fence::new(self.fence),
                    holder: self.holder.map(|(id, name)| Holder { id, name }),
                    since: self.since.map(time_in),
                },
                parent,
                view: self.view.into_view()?,
            },
            segments: self.segments,
            ops: self.ops,
        })
    }
}

impl From<&SessionView> for StoredView {
    fn from(v: &SessionView) -> Self {
        let fault = |fault: &Option<Fault>| fault.clone().map(|f| (f.seq.get(), f.what));
        Self {
            head: v.head,
            bytes: v.bytes,
            executions: v.executions,
            latest: v.latest.as_ref().map(StoredExecution::from),
            legacy: v.legacy.as_ref().map(|l| StoredLegacy {
                first: l.first_seq.get(),
                first_input: seq_out(l.first_input),
                last_input: seq_out(l.last_input),
                last: l.last_seq.get(),
                end: end_out(l.last_end),
                last_settled: seq_out(l.last_settled),
                settled: l.settled,
                failed: l.failed,
            }),
            last_fork: seq_out(v.last_fork),
            last_suspend: v.last_suspend.clone().map(|SuspendView { seq, snapshot: s }| {
                (seq.get(), s.local, s.external_uri, s.memory, s.sealed)
            }),
            instance: v.instance.clone().map(|i| (i.instance, i.seq.get(), i.harness)),
            compute: v.compute_state as u8,
            deleted: v.deletion == DeletionState::Pending,
            usage: (v.usage.input_tokens, v.usage.output_tokens, v.usage.reasoning_tokens),
            legacy_fault: fault(&v.legacy_fault),
            evidence_fault: fault(&v.evidence_fault),
        }
    }
}

impl StoredView {
    fn into_view(self) -> Option<SessionView> {
        let latest = match self.latest {
            Some(latest) => Some(latest.into_view()?),
            None => None,
        };
        let fault = |fault: Option<(u64, String)>| {
            fault.map(|(seq, what)| Fault { seq: Seq::new(seq), what })
        };
        let (input_tokens, output_tokens, reasoning_tokens) = self.usage;
        Some(SessionView {
            head: self.head,
            bytes: self.bytes,
            executions: self.executions,
            latest,
            legacy: self.legacy.map(|l| LegacyView {
                first_seq: Seq::new(l.first),
                first_input: seq_in(l.first_input),
                last_input: seq_in(l.last_input),
                last_seq: Seq::new(l.last),
                last_end: end_in(l.end),
                last_settled: seq_in(l.last_settled),
                settled: l.settled,
                failed: l.failed,
            }),
            last_fork: seq_in(self.last_fork),
            last_suspend: self.last_suspend.map(|(seq, local, external_uri, memory, sealed)| {
                SuspendView {
                    seq: Seq::new(seq),
                    snapshot: SnapshotRef { local, external_uri, memory, sealed },
                }
            }),
            instance: self.instance.map(|(instance, seq, harness)| InstanceView {
                instance,
                seq: Seq::new(seq),
                harness,
            }),
            compute_state: ComputeState::ALL
                .get(usize::from(self.compute))
                .copied()
                .unwrap_or_default(),
            deletion: if self.deleted { DeletionState::Pending } else { DeletionState::Active },
            usage: UsageTotals { input_tokens, output_tokens, reasoning_tokens },
            legacy_fault: fault(self.legacy_fault),
            evidence_fault: fault(self.evidence_fault),
        })
    }
}

impl From<&ExecutionView> for StoredExecution {
    fn from(v: &ExecutionView) -> Self {
        Self {
            id: v.id.to_string(),
            first: v.first_seq.get(),
            last: v.last_seq.get(),
            start: v
                .start
                .clone()
                .map(|s| (s.seq.get(), s.input_count, s.harness, s.harness_version, s.model)),
            inputs: v.inputs,
            end: end_out(v.end),
            error: seq_out(v.trailing_error),
            gate: v.gate.clone().map(|g| StoredGate {
                id: g.call_id,
                call: g.call.get(),
                request: seq_out(g.request),
                decision: g.decision.map(|(seq, approved)| (seq.get(), approved)),
                receipt: seq_out(g.receipt),
            }),
            unanswered: seq_out(v.unanswered),
        }
    }
}

impl StoredExecution {
    fn into_view(self) -> Option<ExecutionView> {
        Some(ExecutionView {
            id: ExecutionId::new(&self.id).ok()?,
            first_seq: Seq::new(self.first),
            last_seq: Seq::new(self.last),
            start: self.start.map(|(seq, input_count, harness, harness_version, model)| {
                StartView { seq: Seq::new(seq), input_count, harness, harness_version, model }
            }),
            inputs: self.inputs,
            end: end_in(self.end),
            trailing_error: seq_in(self.error),
            gate: self.gate.map(|g| GateView {
                call_id: g.id,
                call: Seq::new(g.call),
                request: seq_in(g.request),
                decision: g.decision.map(|(seq, approved)| (Seq::new(seq), approved)),
                receipt: seq_in(g.receipt),
            }),
            unanswered: seq_in(self.unanswered),
        })
    }
}
