//! The frozen form of a message. Drawn in `docs/format.md`.
//!
//! A message is a frame of entries. An entry has terms, which decide about it,
//! and a payload, which nothing here looks at. A frame that is not exactly in
//! this form is void, for every host alike.

use mainspring_api::{AppendId, Bytes, Fence, Hash, Head, Seq, SessionUid, StoreId, Timestamp};
use mainspring_eventlog::RowKey;
use mainspring_eventlog::replica::{Child, Terms};

/// Starts every frame: a name, and the version of the frame's own form.
const MAGIC: [u8; 4] = *b"MSJ\x01";

/// The rules that this build judges by, and the highest that it knows.
pub const RULES_LEVEL: u16 = 1;

/// Entries of one frame.
pub(crate) const ENTRIES_MAX: usize = 4_096;

/// Bytes of a frame before its entries, without a signature.
pub(crate) const FRAME_HEAD_BYTES: usize = 48;

/// The random id of one incarnation of a host that writes.
pub(crate) type Writer = [u8; 16];

/// A message, taken apart.
#[derive(Debug, Clone)]
pub(crate) struct Frame {
    /// The rules level that its writer wrote by.
    pub(crate) level: u16,
    pub(crate) writer: Writer,
    /// Its number among the frames of its writer.
    pub(crate) number: u64,
    /// By its writer's clock. Decides nothing.
    pub(crate) time: Timestamp,
    pub(crate) entries: Vec<Entry>,
    pub(crate) bytes: Bytes,
}

/// One statement of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) id: AppendId,
    pub(crate) statement: Statement,
    /// Where its head stands in the frame.
    head: (usize, usize),
    payload: (usize, usize),
}

/// What an entry states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Statement {
    /// An operation on a session, a row or an import.
    Op(Terms),
    /// Starts a partition.
    Genesis(Genesis),
    /// Nothing: whoever reads it back has read everything before it.
    Barrier,
    /// What the fold's digest was after the message at `offset`.
    Digest { offset: u64, digest: [u8; 32] },
    /// From here on frames of this level count.
    Activate { level: u16 },
    /// An operator's word that the digest in the message at `offset` is wrong.
    VoidDigest { offset: u64 },
}

/// What a partition starts with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Genesis {
    /// The store's random id.
    pub store_id: StoreId,
    /// The id of the cluster that it was created on; empty when it told none.
    pub cluster_id: String,
    /// How many partitions hold sessions, for ever.
    pub partitions: u32,
    /// The partition that this one starts.
    pub partition: u32,
    /// The rules level that is active from the start.
    pub level: u16,
}

impl Frame {
    /// Takes a message apart; `None` when it is not exactly a frame.
    pub(crate) fn read(bytes: Bytes) -> Option<Self> {
        let mut input = Input { bytes: &bytes, at: 0 };
        if input.array::<4>()? != MAGIC {
            return None;
        }
        let level = input.u16()?;
        if input.u16()? != 0 {
            return None;
        }
        let writer = input.array()?;
        let number = input.u64()?;
        let time = Timestamp::from_unix_nanos(input.u64()?.cast_signed());
        let count = input.u32()? as usize;
        // Reserved for a signature over what follows.
        let signature = usize::from(input.u16()?);
        input.skip(2 + signature)?;
        if count > ENTRIES_MAX {
            return None;
        }
        let mut entries = Vec::with_capacity(count);
        for _ in 0..count {
            let head = input.part()?;
            let payload = input.part()?;
            let mut terms = Input { bytes: &bytes[..head.1], at: head.0 };
            let id = AppendId::new(terms.array()?);
            let statement = read_statement(&mut terms)?;
            if terms.at != head.1 {
                return None;
            }
            entries.push(Entry { id, statement, head, payload });
        }
        if input.at != bytes.len() {
            return None;
        }
        Some(Self { level, writer, number, time, entries, bytes })
    }

    /// About what it takes in memory, taken apart and judged.
    pub(crate) const fn memory(&self) -> usize {
        // An entry with its names, its verdict and the state that it left behind.
        const ENTRY: usize = 512;
        self.bytes.len() + self.entries.len() * ENTRY
    }

    /// The payload of one of its entries.
    pub(crate) fn payload(&self, entry: &Entry) -> &[u8] {
        &self.bytes[entry.payload.0..entry.payload.1]
    }

    /// The bytes that decide about one of its entries.
    pub(crate) fn head(&self, entry: &Entry) -> &[u8] {
        &self.bytes[entry.head.0..entry.head.1]
    }
}

/// An entry that is not in a frame yet.
#[derive(Debug, Clone)]
pub(crate) struct Draft {
    head: Vec<u8>,
    payload: Vec<u8>,
}

impl Draft {
    pub(crate) fn new(id: AppendId, statement: &Statement, payload: Vec<u8>) -> Self {
        let mut head = Vec::with_capacity(192);
        head.extend_from_slice(id.as_bytes());
        write_statement(&mut head, statement);
        Self { head, payload }
    }

    /// What it takes in a frame.
    pub(crate) fn bytes(&self) -> usize {
        self.head.len() + self.payload.len() + 8
    }
}

/// A frame of these entries.
pub(crate) fn write<'a>(
    writer: &Writer,
    number: u64,
    time: Timestamp,
    drafts: impl ExactSizeIterator<Item = &'a Draft> + Clone,
) -> Vec<u8> {
    let bytes: usize = drafts.clone().map(Draft::bytes).sum();
    let mut out = Vec::with_capacity(FRAME_HEAD_BYTES + bytes);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&RULES_LEVEL.to_be_bytes());
    out.extend_from_slice(&[0; 2]);
    out.extend_from_slice(writer);
    out.extend_from_slice(&number.to_be_bytes());
    out.extend_from_slice(&time.unix_nanos().to_be_bytes());
    put_length(&mut out, drafts.len());
    out.extend_from_slice(&[0; 4]);
    for draft in drafts {
        put_part(&mut out, &draft.head);
        put_part(&mut out, &draft.payload);
    }
    out
}

fn put_length(out: &mut Vec<u8>, length: usize) {
    let length = u32::try_from(length).expect("a message is far below 4 GiB");
    out.extend_from_slice(&length.to_be_bytes());
}

fn put_part(out: &mut Vec<u8>, part: &[u8]) {
    put_length(out, part.len());
    out.extend_from_slice(part);
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    let length = u16::try_from(text.len()).expect("names are bounded far below 64 KiB");
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn put_head(out: &mut Vec<u8>, head: Head) {
    out.extend_from_slice(&head.seq.get().to_be_bytes());
    match head.hash {
        None => out.push(0),
        Some(hash) => {
            out.push(1);
            out.extend_from_slice(hash.as_bytes());
        }
    }
}

fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_be_bytes());
}

fn write_statement(out: &mut Vec<u8>, statement: &Statement) {
    match statement {
        Statement::Genesis(genesis) => {
            out.push(1);
            put_text(out, genesis.store_id.as_str());
            put_text(out, &genesis.cluster_id);
            out.extend_from_slice(&genesis.partitions.to_be_bytes());
            out.extend_from_slice(&genesis.partition.to_be_bytes());
            out.extend_from_slice(&genesis.level.to_be_bytes());
        }
        Statement::Barrier => out.push(2),
        Statement::Digest { offset, digest } => {
            out.push(3);
            put_u64(out, *offset);
            out.extend_from_slice(digest);
        }
        Statement::Activate { level } => {
            out.push(4);
            out.extend_from_slice(&level.to_be_bytes());
        }
        Statement::VoidDigest { offset } => {
            out.push(5);
            put_u64(out, *offset);
        }
        Statement::Op(terms) => write_terms(out, terms),
    }
}

fn write_terms(out: &mut Vec<u8>, terms: &Terms) {
    let mut start = |kind: u8, name: &str| {
        out.push(kind);
        put_text(out, name);
    };
    match terms {
        Terms::Create { session, owned } => {
            start(16, session.as_str());
            out.push(u8::from(*owned));
        }
        Terms::Update { session, version, sets_owner } => {
            start(17, session.as_str());
            put_u64(out, *version);
            out.push(u8::from(*sets_owner));
        }
        Terms::Append { session, base, head, fence, deletes } => {
            start(18, session.as_str());
            put_head(out, *base);
            put_head(out, *head);
            put_u64(out, fence.get());
            out.push(u8::from(*deletes));
        }
        Terms::Mint { session, current, at } => {
            start(19, session.as_str());
            put_u64(out, current.get());
            out.push(u8::from(at.is_some()));
            if let Some(at) = at {
                put_head(out, *at);
            }
        }
        Terms::Fork { parent, at, children } => {
            start(20, parent.as_str());
            put_u64(out, at.get());
            put_length(out, children.len());
            for child in children {
                put_text(out, child.session.as_str());
                put_head(out, child.head);
                out.push(u8::from(child.owned));
            }
        }
        Terms::Annotate { session, seq, fence, notes } => {
            start(21, session.as_str());
            put_u64(out, seq.get());
            put_u64(out, fence.get());
            put_u64(out, *notes);
        }
        Terms::BeginImport { store, generation } => {
            start(22, store.as_str());
            put_u64(out, *generation);
        }
        Terms::Stage { store, generation, after, head, fence, deletes } => {
            start(23, store.as_str());
            put_u64(out, *generation);
            put_head(out, *after);
            put_head(out, *head);
            put_u64(out, fence.get());
            out.push(u8::from(*deletes));
        }
        Terms::Publish { store, generation, session, head, owned } => {
            start(24, store.as_str());
            put_u64(out, *generation);
            put_text(out, session.as_str());
            put_head(out, *head);
            out.push(u8::from(*owned));
        }
        Terms::Unstage { store, generation } => {
            start(25, store.as_str());
            put_u64(out, *generation);
        }
        Terms::PutNamed { key, version } => {
            start(26, key.kind());
            put_text(out, key.name());
            put_u64(out, *version);
        }
    }
}

fn read_statement(input: &mut Input<'_>) -> Option<Statement> {
    Some(match input.u8()? {
        1 => Statement::Genesis(Genesis {
            store_id: StoreId::new(&input.text()?).ok()?,
            cluster_id: input.text()?,
            partitions: input.u32()?,
            partition: input.u32()?,
            level: input.u16()?,
        }),
        2 => Statement::Barrier,
        3 => Statement::Digest { offset: input.u64()?, digest: input.array()? },
        4 => Statement::Activate { level: input.u16()? },
        5 => Statement::VoidDigest { offset: input.u64()? },
        kind => Statement::Op(read_terms(kind, input)?),
    })
}

fn read_terms(kind: u8, input: &mut Input<'_>) -> Option<Terms> {
    Some(match kind {
        16 => Terms::Create { session: input.uid()?, owned: input.bool()? },
        17 => Terms::Update {
            session: input.uid()?,
            version: input.u64()?,
            sets_owner: input.bool()?,
        },
        18 => Terms::Append {
            session: input.uid()?,
            base: input.head()?,
            head: input.head()?,
            fence: Fence::new(input.u64()?),
            deletes: input.bool()?,
        },
        19 => Terms::Mint {
            session: input.uid()?,
            current: Fence::new(input.u64()?),
            at: if input.bool()? { Some(input.head()?) } else { None },
        },
        20 => {
            let (parent, at) = (input.uid()?, Seq::new(input.u64()?));
            let count = input.u32()? as usize;
            let child = |_| {
                Some(Child { session: input.uid()?, head: input.head()?, owned: input.bool()? })
            };
            // Each child takes bytes, so that a count alone allocates nothing.
            let children = (0..count).map(child).collect::<Option<_>>()?;
            Terms::Fork { parent, at, children }
        }
        21 => Terms::Annotate {
            session: input.uid()?,
            seq: Seq::new(input.u64()?),
            fence: Fence::new(input.u64()?),
            notes: input.u64()?,
        },
        22 => Terms::BeginImport { store: input.uid()?, generation: input.u64()? },
        23 => Terms::Stage {
            store: input.uid()?,
            generation: input.u64()?,
            after: input.head()?,
            head: input.head()?,
            fence: Fence::new(input.u64()?),
            deletes: input.bool()?,
        },
        24 => Terms::Publish {
            store: input.uid()?,
            generation: input.u64()?,
            session: input.uid()?,
            head: input.head()?,
            owned: input.bool()?,
        },
        25 => Terms::Unstage { store: input.uid()?, generation: input.u64()? },
        26 => Terms::PutNamed {
            key: RowKey::new(&input.text()?, &input.text()?).ok()?,
            version: input.u64()?,
        },
        _ => return None,
    })
}

struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Input<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(length)?)?;
        self.at += length;
        Some(taken)
    }

    fn skip(&mut self, length: usize) -> Option<()> {
        self.take(length).map(drop)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    fn bool(&mut self) -> Option<bool> {
        match self.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// A part with its length in front: where it stands.
    fn part(&mut self) -> Option<(usize, usize)> {
        let length = self.u32()? as usize;
        let from = self.at;
        self.skip(length)?;
        Some((from, self.at))
    }

    fn text(&mut self) -> Option<String> {
        let length = usize::from(self.u16()?);
        String::from_utf8(self.take(length)?.to_vec()).ok()
    }

    fn uid(&mut self) -> Option<SessionUid> {
        SessionUid::new(&self.text()?).ok()
    }

    fn head(&mut self) -> Option<Head> {
        let seq = Seq::new(self.u64()?);
        if self.bool()? {
            return (seq > Seq::ZERO).then_some(Head::at(seq, Hash::new(self.array()?)));
        }
        (seq == Seq::ZERO).then_some(Head::EMPTY)
    }
}

#[cfg(test)]
mod golden;
#[cfg(test)]
mod tests;
