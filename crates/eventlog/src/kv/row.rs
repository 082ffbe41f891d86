//! The stored form of a row and of an execution: JSON, readable by people.
//!
//! Domain types carry no serde, so this module mirrors them.

use std::borrow::Cow;
use std::collections::BTreeMap;

use mainspring_api::{
    ComputeState, DeletionState, EndState, ExecutionId, Fence, Head, IdentityRef, Origin, Owner,
    Seq, SessionUid, SnapshotRef, Timestamp,
};
use serde::{Deserialize, Serialize};

use super::index::Indexed;
use crate::error::LogError;
use crate::log::{FenceRow, Holder, NewSession, SessionRow};
use crate::view::{
    ExecutionView, Fault, GateView, InstanceView, LegacyView, SessionView, StartView, SuspendView,
    UsageTotals,
};

/// What most rows take, stored.
const ROW_BYTES: usize = 1_536;

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
    /// Whether this process knows that the records end where the row says. Not stored.
    pub(super) ends_at_head: bool,
    /// In which lists it stands now. Not stored: it follows from the stored row.
    pub(super) indexed: Indexed,
    /// Whether the transaction under way puts it at its end. Not stored.
    pub(super) unwritten: bool,
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
        let mut out = Vec::with_capacity(ROW_BYTES);
        serde_json::to_writer(&mut out, &StoredRow::from(self))
            .expect("a row has only string keys");
        out
    }

    pub(super) fn decode(uid: &SessionUid, bytes: &[u8]) -> Result<Self, LogError> {
        serde_json::from_slice::<StoredRow<'_>>(bytes)
            .ok()
            .and_then(StoredRow::into_row)
            .ok_or_else(|| LogError::Corrupt { what: unreadable(uid, bytes) })
    }
}

/// Starts what stands in the place of a row that an operation could not be
/// applied to; why follows.
const BROKEN: &[u8] = b"!";

pub(super) fn broken_row(error: &LogError) -> Vec<u8> {
    [BROKEN, error.to_string().as_bytes()].concat()
}

/// Whether a stored row stands for one that an operation could not be applied to.
#[must_use]
pub fn is_broken(row: &[u8]) -> bool {
    row.starts_with(BROKEN)
}

fn unreadable(uid: &SessionUid, bytes: &[u8]) -> String {
    match bytes.strip_prefix(BROKEN) {
        Some(why) => format!("row of session {uid}: {}", String::from_utf8_lossy(why)),
        None => format!("row of session {uid}"),
    }
}

pub(super) fn encode_execution(view: &ExecutionView) -> Vec<u8> {
    serde_json::to_vec(&StoredExecution::from(view)).expect("an execution has only string keys")
}

pub(super) fn decode_execution(bytes: &[u8]) -> Result<ExecutionView, LogError> {
    serde_json::from_slice::<StoredExecution<'_>>(bytes)
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

pub(super) type Map = BTreeMap<String, String>;
pub(super) type Text<'a> = Cow<'a, str>;
pub(super) type StoredOrigin<'a> = (Text<'a>, Text<'a>, Text<'a>, Cow<'a, Map>);
pub(super) type StoredIdentity<'a> = (Text<'a>, Text<'a>, Text<'a>);
pub(super) type StoredOwner<'a> = (Text<'a>, Text<'a>);

pub(super) fn origin_out(o: &Origin) -> StoredOrigin<'_> {
    let attributes = Cow::Borrowed(&o.attributes);
    ((&o.source).into(), (&o.subject).into(), (&o.uri).into(), attributes)
}

pub(super) fn origin_in((source, subject, uri, attributes): StoredOrigin<'_>) -> Origin {
    Origin {
        source: source.into_owned(),
        subject: subject.into_owned(),
        uri: uri.into_owned(),
        attributes: attributes.into_owned(),
    }
}

pub(super) fn identity_out(i: &IdentityRef) -> StoredIdentity<'_> {
    ((&i.principal).into(), (&i.issuer).into(), (&i.subject).into())
}

pub(super) fn identity_in((principal, issuer, subject): StoredIdentity<'_>) -> IdentityRef {
    IdentityRef {
        principal: principal.into_owned(),
        issuer: issuer.into_owned(),
        subject: subject.into_owned(),
    }
}

pub(super) fn owner_out(o: &Owner) -> StoredOwner<'_> {
    ((&o.issuer).into(), (&o.subject).into())
}

pub(super) fn owner_in((issuer, subject): StoredOwner<'_>) -> Owner {
    Owner { issuer: issuer.into_owned(), subject: subject.into_owned() }
}

#[derive(Serialize, Deserialize)]
struct StoredRow<'a> {
    uid: Text<'a>,
    project: Text<'a>,
    name: Text<'a>,
    harness: Text<'a>,
    model: Text<'a>,
    labels: Cow<'a, Map>,
    annotations: Cow<'a, Map>,
    origin: Option<StoredOrigin<'a>>,
    identity: Option<StoredIdentity<'a>>,
    owner: Option<StoredOwner<'a>>,
    version: u64,
    created: (i64, u32),
    updated: (i64, u32),
    fence: u64,
    holder: Option<(Text<'a>, Text<'a>)>,
    since: Option<(i64, u32)>,
    parent: Option<(Text<'a>, u64)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    store: Option<Text<'a>>,
    segments: Cow<'a, [Segment]>,
    ops: Cow<'a, Ops>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    purged: bool,
    view: StoredView<'a>,
}

/// The fold of a journal.
#[derive(Serialize, Deserialize)]
pub(super) struct StoredView<'a> {
    #[serde(with = "text")]
    head: Head,
    bytes: u64,
    executions: u64,
    latest: Option<StoredExecution<'a>>,
    legacy: Option<StoredLegacy>,
    last_fork: Option<u64>,
    last_suspend: Option<(u64, Text<'a>, Text<'a>, bool, bool)>,
    instance: Option<(Text<'a>, u64, Text<'a>)>,
    compute: u8,
    deleted: bool,
    usage: (i64, i64, i64),
    legacy_fault: Option<(u64, Text<'a>)>,
    evidence_fault: Option<(u64, Text<'a>)>,
}

#[derive(Serialize, Deserialize)]
struct StoredExecution<'a> {
    id: Text<'a>,
    first: u64,
    last: u64,
    start: Option<(u64, Option<i64>, Text<'a>, Text<'a>, Text<'a>)>,
    inputs: u64,
    end: Option<(u64, Option<u8>)>,
    error: Option<u64>,
    gate: Option<StoredGate<'a>>,
    unanswered: Option<u64>,
}

#[derive(Serialize, Deserialize)]
struct StoredGate<'a> {
    id: Text<'a>,
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

impl<'a> From<&'a KvRow> for StoredRow<'a> {
    fn from(kv: &'a KvRow) -> Self {
        let SessionRow {
            session: s,
            version,
            create_time,
            update_time,
            fence,
            parent,
            purged,
            view,
        } = &kv.row;
        Self {
            uid: s.uid.as_str().into(),
            project: (&s.project).into(),
            name: (&s.name).into(),
            harness: (&s.harness).into(),
            model: (&s.model).into(),
            labels: Cow::Borrowed(&s.labels),
            annotations: Cow::Borrowed(&s.annotations),
            origin: s.origin.as_ref().map(origin_out),
            identity: s.identity.as_ref().map(identity_out),
            owner: s.owner.as_ref().map(owner_out),
            version: *version,
            created: time_out(*create_time),
            updated: time_out(*update_time),
            fence: fence.fence.get(),
            holder: fence.holder.as_ref().map(|h| ((&h.id).into(), (&h.name).into())),
            since: fence.since.map(time_out),
            parent: parent.as_ref().map(|(uid, seq)| (uid.as_str().into(), seq.get())),
            store: (kv.store != s.uid).then(|| kv.store.as_str().into()),
            segments: Cow::Borrowed(&kv.segments),
            ops: Cow::Borrowed(&kv.ops),
            purged: *purged,
            view: StoredView::from(view),
        }
    }
}

impl StoredRow<'_> {
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
        let owned = Cow::into_owned;
        let row = SessionRow {
            session: NewSession {
                uid,
                project: owned(self.project),
                name: owned(self.name),
                harness: owned(self.harness),
                model: owned(self.model),
                labels: self.labels.into_owned(),
                annotations: self.annotations.into_owned(),
                origin: self.origin.map(origin_in),
                identity: self.identity.map(identity_in),
                owner: self.owner.map(owner_in),
            },
            version: self.version,
            create_time: time_in(self.created),
            update_time: time_in(self.updated),
            fence: FenceRow {
                fence: Fence::new(self.fence),
                holder: self.holder.map(|(id, name)| Holder { id: owned(id), name: owned(name) }),
                since: self.since.map(time_in),
            },
            parent,
            purged: self.purged,
            view: self.view.into_view()?,
        };
        Some(KvRow {
            indexed: Indexed::of(&row),
            row,
            store,
            segments: self.segments.into_owned(),
            ops: self.ops.into_owned(),
            ends_at_head: false,
            unwritten: false,
        })
    }
}

impl<'a> From<&'a SessionView> for StoredView<'a> {
    fn from(v: &'a SessionView) -> Self {
        let fault = |fault: &'a Option<Fault>| {
            fault.as_ref().map(|f| (f.seq.get(), Cow::from(f.what.as_str())))
        };
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
            last_suspend: v.last_suspend.as_ref().map(|SuspendView { seq, snapshot: s }| {
                (seq.get(), (&s.local).into(), (&s.external_uri).into(), s.memory, s.sealed)
            }),
            instance: v
                .instance
                .as_ref()
                .map(|i| ((&i.instance).into(), i.seq.get(), (&i.harness).into())),
            compute: v.compute_state as u8,
            deleted: v.deletion == DeletionState::Pending,
            usage: (v.usage.input_tokens, v.usage.output_tokens, v.usage.reasoning_tokens),
            legacy_fault: fault(&v.legacy_fault),
            evidence_fault: fault(&v.evidence_fault),
        }
    }
}

impl StoredView<'_> {
    pub(super) fn into_view(self) -> Option<SessionView> {
        let latest = match self.latest {
            Some(latest) => Some(latest.into_view()?),
            None => None,
        };
        let fault = |fault: Option<(u64, Text<'_>)>| {
            fault.map(|(seq, what)| Fault { seq: Seq::new(seq), what: what.into_owned() })
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
            last_suspend: self.last_suspend.map(|(seq, local, uri, memory, sealed)| {
                let (local, external_uri) = (local.into_owned(), uri.into_owned());
                let snapshot = SnapshotRef { local, external_uri, memory, sealed };
                SuspendView { seq: Seq::new(seq), snapshot }
            }),
            instance: self.instance.map(|(instance, seq, harness)| InstanceView {
                instance: instance.into_owned(),
                seq: Seq::new(seq),
                harness: harness.into_owned(),
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

impl<'a> From<&'a ExecutionView> for StoredExecution<'a> {
    fn from(v: &'a ExecutionView) -> Self {
        Self {
            id: v.id.as_str().into(),
            first: v.first_seq.get(),
            last: v.last_seq.get(),
            start: v.start.as_ref().map(|s| {
                let harness = (&s.harness).into();
                let version = (&s.harness_version).into();
                (s.seq.get(), s.input_count, harness, version, (&s.model).into())
            }),
            inputs: v.inputs,
            end: end_out(v.end),
            error: seq_out(v.trailing_error),
            gate: v.gate.as_ref().map(|g| StoredGate {
                id: (&g.call_id).into(),
                call: g.call.get(),
                request: seq_out(g.request),
                decision: g.decision.map(|(seq, approved)| (seq.get(), approved)),
                receipt: seq_out(g.receipt),
            }),
            unanswered: seq_out(v.unanswered),
        }
    }
}

impl StoredExecution<'_> {
    fn into_view(self) -> Option<ExecutionView> {
        Some(ExecutionView {
            id: ExecutionId::new(&self.id).ok()?,
            first_seq: Seq::new(self.first),
            last_seq: Seq::new(self.last),
            start: self.start.map(|(seq, input_count, harness, version, model)| StartView {
                seq: Seq::new(seq),
                input_count,
                harness: harness.into_owned(),
                harness_version: version.into_owned(),
                model: model.into_owned(),
            }),
            inputs: self.inputs,
            end: end_in(self.end),
            trailing_error: seq_in(self.error),
            gate: self.gate.map(|g| GateView {
                call_id: g.id.into_owned(),
                call: Seq::new(g.call),
                request: seq_in(g.request),
                decision: g.decision.map(|(seq, approved)| (Seq::new(seq), approved)),
                receipt: seq_in(g.receipt),
            }),
            unanswered: seq_in(self.unanswered),
        })
    }
}
