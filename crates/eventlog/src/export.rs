//! Exported journals: one record a line, then the head.
//!
//! A record line is `{"content_hash","event","fence","notes"?,"prev_hash","seq"}`
//! with the event in canonical form; the last line is `{"head":{"hash","seq",
//! "session"}}`. Members are sorted, so the same journal always gives the same
//! bytes. Lines of other writers may have any member order and spacing.

mod verifier;

use std::collections::BTreeMap;

use mainspring_api::{
    Bytes, Fence, Hash, Head, IdentityRef, Json, JsonObject, Notes, Origin, Owner, Seq, SessionUid,
    Timestamp,
};

use crate::canonical::{json_text, rfc3339, write_string};
use crate::chain::StoredRecord;
use crate::error::LogError;
use crate::json;
use crate::log::{ImportRow, NewSession, SessionRow};
use crate::reader::{EVENT_DEPTH_MAX, parse_rfc3339};

pub use verifier::LineVerifier;

/// Bytes of one line: the largest event with every character escaped, its
/// notes, and what stands around it.
pub const LINE_BYTES_MAX: usize = 128 << 20;

/// Bytes of a vector file, which is one document and read whole.
pub const VECTOR_BYTES_MAX: usize = 64 << 20;

/// One line of an exported journal.
#[derive(Debug, Clone)]
pub enum Line {
    /// A record.
    Record(StoredRecord),
    /// The head, and the session's row.
    Head(Head, Option<Box<ImportRow>>),
}

/// The line of a record, with its line end.
#[must_use]
pub fn record_line(record: &StoredRecord) -> Bytes {
    let mut out = String::with_capacity(record.canonical.len() + 256);
    out.push_str("{\"content_hash\":\"");
    out.push_str(&record.hash.to_string());
    out.push_str("\",\"event\":");
    out.push_str(&String::from_utf8_lossy(&record.canonical));
    out.push_str(",\"fence\":\"");
    out.push_str(&record.fence.to_string());
    out.push('"');
    if !record.notes.is_empty() {
        out.push_str(",\"notes\":");
        out.push_str(&map_text(&record.notes));
    }
    out.push_str(",\"prev_hash\":\"");
    if let Some(hash) = &record.prev_hash {
        out.push_str(&hash.to_string());
    }
    out.push_str("\",\"seq\":\"");
    out.push_str(&record.seq.to_string());
    out.push_str("\"}\n");
    out.into()
}

fn map_text(map: &BTreeMap<String, String>) -> String {
    let mut out = String::from("{");
    for (index, (key, value)) in map.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        write_string(&mut out, key);
        out.push(':');
        write_string(&mut out, value);
    }
    out.push('}');
    out
}

/// The line of a head. What changes without the journal (update time, version,
/// fence, holder, operation ids, projections) is left out.
#[must_use]
pub fn head_line(row: &SessionRow) -> Bytes {
    let text = |value: &str| Json::String(value.to_owned());
    let map = |map: &BTreeMap<String, String>| {
        Json::Object(map.iter().map(|(key, value)| (key.clone(), text(value))).collect())
    };
    let s = &row.session;
    let mut session = JsonObject::new();
    let mut set = |key: &str, value: Json| session.insert(key.to_owned(), value);
    set("uid", text(s.uid.as_str()));
    set("project", text(&s.project));
    set("create_time", text(&rfc3339(row.create_time)));
    for (key, value) in [("name", &s.name), ("harness", &s.harness), ("model", &s.model)] {
        if !value.is_empty() {
            set(key, text(value));
        }
    }
    for (key, value) in [("labels", &s.labels), ("annotations", &s.annotations)] {
        if !value.is_empty() {
            set(key, map(value));
        }
    }
    let object = |members: Vec<(&str, Json)>| {
        Json::Object(members.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    };
    if let Some(o) = &s.origin {
        let attributes = ("attributes", map(&o.attributes));
        let texts = [("source", &o.source), ("subject", &o.subject), ("uri", &o.uri)];
        let mut members: Vec<_> = texts.map(|(key, value)| (key, text(value))).into();
        members.push(attributes);
        set("origin", object(members));
    }
    if let Some(i) = &s.identity {
        let texts = [("principal", &i.principal), ("issuer", &i.issuer), ("subject", &i.subject)];
        set("identity", object(texts.map(|(key, value)| (key, text(value))).into()));
    }
    if let Some(o) = &s.owner {
        let texts = [("issuer", &o.issuer), ("subject", &o.subject)];
        set("owner", object(texts.map(|(key, value)| (key, text(value))).into()));
    }
    if let Some((parent, seq)) = &row.parent {
        set("parent_uid", text(parent.as_str()));
        set("fork_seq", text(&seq.to_string()));
    }
    let head = object(vec![
        ("seq", text(&row.view.head.seq.to_string())),
        ("hash", text(&row.view.head.prev_hash())),
        ("session", Json::Object(session)),
    ]);
    let mut line = json_text(&object(vec![("head", head)])).expect("it holds no numbers");
    line.push('\n');
    line.into()
}

/// Refuses a line beyond its bound.
///
/// # Errors
/// [`LogError::TooLarge`].
pub fn check_line(line: &[u8]) -> Result<(), LogError> {
    within("line", line.len(), LINE_BYTES_MAX)
}

fn within(what: &'static str, bytes: usize, bytes_max: usize) -> Result<(), LogError> {
    if bytes <= bytes_max {
        return Ok(());
    }
    Err(LogError::TooLarge { what, bytes: bytes as u64, bytes_max: bytes_max as u64 })
}

/// Reads one line; `number` counts from 1 and is for messages.
///
/// # Errors
/// [`LogError::BadLine`]. The event of a record is not interpreted here: the
/// chain is judged before its content.
pub fn parse_line(number: u64, line: &[u8]) -> Result<Line, LogError> {
    let bad = |why: String| LogError::BadLine { line: number, why };
    let json = json::parse_within(line, EVENT_DEPTH_MAX + 1).map_err(|e| bad(e.to_string()))?;
    let Json::Object(mut members) = json else {
        return Err(bad("it is not an object".into()));
    };
    let line = match members.remove("head") {
        Some(Json::Object(head)) => read_head(head),
        Some(_) => Err("head is not an object"),
        None => read_record(&mut members),
    };
    let line = line.map_err(|why| bad(why.to_owned()))?;
    match members.keys().next() {
        None => Ok(line),
        Some(_) => Err(bad("it has a member that is not known".to_owned())),
    }
}

type Read<T> = Result<T, &'static str>;

fn take_text(members: &mut JsonObject, key: &str) -> Read<Option<String>> {
    match members.remove(key) {
        None => Ok(None),
        Some(Json::String(text)) => Ok(Some(text)),
        Some(_) => Err("a member that should be a string is not"),
    }
}

fn take_map(members: &mut JsonObject, key: &str) -> Read<BTreeMap<String, String>> {
    match members.remove(key) {
        None => Ok(BTreeMap::new()),
        Some(Json::Object(map)) => map
            .into_iter()
            .map(|(key, value)| match value {
                Json::String(text) => Ok((key, text)),
                _ => Err("a map holds something that is not a string"),
            })
            .collect(),
        Some(_) => Err("a member that should be a map is not"),
    }
}

fn take_number(members: &mut JsonObject, key: &str) -> Read<Option<u64>> {
    let Some(text) = take_text(members, key)? else {
        return Ok(None);
    };
    let number = text.parse::<u64>().ok().filter(|n| i64::try_from(*n).is_ok());
    number.map(Some).ok_or("a position or fence is not a decimal int64")
}

fn take_hash(members: &mut JsonObject, key: &str) -> Read<Option<Hash>> {
    match take_text(members, key)?.as_deref() {
        None | Some("") => Ok(None),
        Some(hex) => Hash::from_hex(hex).map(Some).map_err(|_| "a hash is not 64 hex characters"),
    }
}

fn read_record(members: &mut JsonObject) -> Read<Line> {
    let event = members.remove("event").ok_or("a record has no event")?;
    let canonical = json_text(&event).map_err(|_| "an event holds a number that is not finite")?;
    Ok(Line::Record(StoredRecord {
        seq: Seq::new(take_number(members, "seq")?.ok_or("a record has no seq")?),
        prev_hash: take_hash(members, "prev_hash")?,
        hash: take_hash(members, "content_hash")?.ok_or("a record has no content_hash")?,
        fence: Fence::new(take_number(members, "fence")?.unwrap_or(0)),
        canonical: canonical.into(),
        notes: take_map(members, "notes")? as Notes,
    }))
}

fn read_head(mut head: JsonObject) -> Read<Line> {
    let seq = take_number(&mut head, "seq")?.ok_or("the head has no seq")?;
    let hash = take_hash(&mut head, "hash")?;
    let at = match (seq, hash) {
        (0, None) => Head::EMPTY,
        (seq, Some(hash)) if seq > 0 => Head::at(Seq::new(seq), hash),
        _ => return Err("the head's seq and hash do not fit together"),
    };
    let row = match head.remove("session") {
        None => None,
        Some(Json::Object(session)) => Some(Box::new(read_session(session)?)),
        Some(_) => return Err("the head's session is not an object"),
    };
    if head.is_empty() { Ok(Line::Head(at, row)) } else { Err("the head has an unknown member") }
}

fn read_session(mut s: JsonObject) -> Read<ImportRow> {
    let uid = |text: String| SessionUid::new(&text).map_err(|_| "a session uid is ill-formed");
    let object = |s: &mut JsonObject, key: &str| match s.remove(key) {
        None => Ok(None),
        Some(Json::Object(members)) => Ok(Some(members)),
        Some(_) => Err("a member of the session should be an object"),
    };
    let text =
        |members: &mut JsonObject, key: &str| Ok(take_text(members, key)?.unwrap_or_default());
    let origin = match object(&mut s, "origin")? {
        None => None,
        Some(mut o) => Some(Origin {
            source: text(&mut o, "source")?,
            subject: text(&mut o, "subject")?,
            uri: text(&mut o, "uri")?,
            attributes: take_map(&mut o, "attributes")?,
        }),
    };
    let identity = match object(&mut s, "identity")? {
        None => None,
        Some(mut i) => Some(IdentityRef {
            principal: text(&mut i, "principal")?,
            issuer: text(&mut i, "issuer")?,
            subject: text(&mut i, "subject")?,
        }),
    };
    let owner = match object(&mut s, "owner")? {
        None => None,
        Some(mut o) => {
            Some(Owner { issuer: text(&mut o, "issuer")?, subject: text(&mut o, "subject")? })
        }
    };
    let create_time: Option<Timestamp> = match take_text(&mut s, "create_time")? {
        None => None,
        Some(text) => Some(parse_rfc3339(&text).ok_or("create_time is ill-formed")?),
    };
    let fork_seq = take_number(&mut s, "fork_seq")?;
    let parent = match take_text(&mut s, "parent_uid")? {
        None if fork_seq.is_some() => return Err("there is a fork_seq without its parent_uid"),
        None => None,
        Some(parent) => {
            let at = fork_seq.ok_or("there is a parent_uid without its fork_seq")?;
            Some((uid(parent)?, Seq::new(at)))
        }
    };
    let session = NewSession {
        uid: uid(take_text(&mut s, "uid")?.ok_or("the session has no uid")?)?,
        project: text(&mut s, "project")?,
        name: text(&mut s, "name")?,
        harness: text(&mut s, "harness")?,
        model: text(&mut s, "model")?,
        labels: take_map(&mut s, "labels")?,
        annotations: take_map(&mut s, "annotations")?,
        origin,
        identity,
        owner,
    };
    if s.is_empty() {
        Ok(ImportRow { session, create_time, parent })
    } else {
        Err("the session has a member that is not known")
    }
}

/// The lines of a vector file (`{"kind":"journal","records":[..]}`), or `None`
/// when `file` is not one.
///
/// # Errors
/// [`LogError::BadLine`] when it is one and ill-formed; [`LogError::TooLarge`].
pub fn vector_lines(file: &[u8]) -> Result<Option<Vec<Bytes>>, LogError> {
    within("vector file", file.len(), VECTOR_BYTES_MAX)?;
    // A vector file is one document; an export is several, so it does not parse.
    let Ok(Json::Object(mut members)) = json::parse_within(file, EVENT_DEPTH_MAX + 3) else {
        return Ok(None);
    };
    let Some(Json::Array(records)) = members.remove("records") else {
        return Ok(None);
    };
    let line = |record: &Json| json_text(record).map(|text| Bytes::from(text + "\n"));
    let lines: Result<Vec<Bytes>, _> = records.iter().map(line).collect();
    lines.map(Some).map_err(|error| LogError::BadLine { line: 1, why: error.to_string() })
}

/// What is no journal at all, not even an empty one with its head.
#[must_use]
pub fn no_lines() -> LogError {
    LogError::BadLine { line: 1, why: "there is neither a record nor a head".to_owned() }
}
