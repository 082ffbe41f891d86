//! The stored form of a registration.
//!
//! The value of the row `harness` / NAME is a line of JSON, a line feed, and
//! the spec's canonical bytes, which are what the digest covers:
//!
//! ```text
//! {"create_time":"2026-01-02T03:04:05Z",      RFC 3339, UTC
//!  "retire_reason":"moved",                   only when retired
//!  "retire_time":"2026-01-03T00:00:00Z",      only when retired
//!  "spec_digest":"sha256:<64 hex>",           of the bytes after the line feed
//!  "uid":"harness-<24 hex>",
//!  "version":"1"}                             (on one line, without spaces)
//! 0x0A
//! {"capabilities":{"resumability":"RESUMABILITY_STATELESS_REPLAY"},"remote":{"address":"h:1"}}
//! ```
//!
//! A line with another version, or with a member that this version does not
//! know, is not read: it may say what must not be lost when it is written back.

use mainspring_api::{
    Bytes, Capabilities, HarnessSpec, Json, JsonObject, Placement, Resumability, Timestamp,
};
use mainspring_eventlog::canonical::{json_text, rfc3339};
use mainspring_eventlog::reader::parse_rfc3339;
use mainspring_eventlog::{json, spec_bytes, spec_digest};

use super::spec;

const VERSION: &str = "1";

/// What is stored of one name.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Stored {
    /// A registration. Its spec may still be unreadable.
    Row(Row),
    /// Bytes whose first line cannot be read, and why.
    Damaged(&'static str),
}

/// A registration.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    pub(super) uid: String,
    pub(super) create_time: Timestamp,
    pub(super) digest: String,
    /// When it was retired, and why.
    pub(super) retired: Option<(Timestamp, String)>,
    /// The spec's canonical bytes.
    pub(super) spec: Vec<u8>,
}

impl Stored {
    pub(super) fn read(value: &[u8]) -> Self {
        Row::read(value).map_or_else(Self::Damaged, Self::Row)
    }

    pub(super) fn is_retired(&self) -> bool {
        matches!(self, Self::Row(row) if row.retired.is_some())
    }

    /// The spec, if this version knows all that it says.
    pub(super) fn spec(&self) -> Result<HarnessSpec, String> {
        match self {
            Self::Row(row) => row.read_spec(),
            Self::Damaged(reason) => Err((*reason).to_owned()),
        }
    }
}

impl Row {
    /// The bytes that are stored.
    pub(super) fn bytes(&self) -> Bytes {
        let mut line = JsonObject::new();
        let mut put = |name: &str, text: &str| {
            line.insert(name.to_owned(), Json::String(text.to_owned()));
        };
        put("version", VERSION);
        put("uid", &self.uid);
        put("create_time", &rfc3339(self.create_time));
        put("spec_digest", &self.digest);
        if let Some((time, reason)) = &self.retired {
            put("retire_time", &rfc3339(*time));
            put("retire_reason", reason);
        }
        let line = json_text(&Json::Object(line)).expect("it holds nothing but strings");
        let mut bytes = line.into_bytes();
        bytes.push(b'\n');
        bytes.extend_from_slice(&self.spec);
        bytes.into()
    }

    fn read(value: &[u8]) -> Result<Self, &'static str> {
        let end = value.iter().position(|byte| *byte == b'\n');
        let (line, spec) = value.split_at(end.ok_or("its row has no line of its own")?);
        let mut line = json::parse_object(line).map_err(|_| "its row is no JSON")?;
        let mut take = |name: &str| match line.remove(name) {
            Some(Json::String(text)) => Ok(Some(text)),
            Some(_) => Err("its row holds a value of another type"),
            None => Ok(None),
        };
        if take("version")?.as_deref() != Some(VERSION) {
            return Err("its row is of another version");
        }
        let missing = "its row lacks a value";
        let uid = take("uid")?.ok_or(missing)?;
        let create_time = take("create_time")?.ok_or(missing)?;
        let digest = take("spec_digest")?.ok_or(missing)?;
        let (time, reason) = (take("retire_time")?, take("retire_reason")?);
        if !line.is_empty() {
            return Err("its row holds what this version does not know");
        }
        let parse = |text: &str| parse_rfc3339(text).ok_or("its row holds a bad time");
        let retired = match (time, reason) {
            (None, None) => None,
            (Some(time), Some(reason)) => Some((parse(&time)?, reason)),
            _ => return Err(missing),
        };
        let create_time = parse(&create_time)?;
        Ok(Self { uid, create_time, digest, retired, spec: spec[1..].to_vec() })
    }

    fn read_spec(&self) -> Result<HarnessSpec, String> {
        let unknown = || "its spec holds what this version does not know".to_owned();
        let spec = read_spec(&self.spec).ok_or_else(unknown)?;
        // Whatever was passed over above is missing here.
        if spec_bytes(&spec) != self.spec {
            return Err(unknown());
        }
        if spec_digest(&spec) != self.digest {
            return Err("its spec is not the one of its digest".to_owned());
        }
        spec::check(&spec).map_err(|error| error.to_string())?;
        Ok(spec)
    }
}

/// What is known of a spec's canonical bytes; the caller checks that it is all.
fn read_spec(bytes: &[u8]) -> Option<HarnessSpec> {
    let members = json::parse_object(bytes).ok()?;
    let object = |members: &JsonObject, name: &str| match members.get(name) {
        Some(Json::Object(inner)) => Some(inner.clone()),
        _ => None,
    };
    let text = |members: &JsonObject, name: &str| match members.get(name) {
        Some(Json::String(text)) => text.clone(),
        _ => String::new(),
    };
    let remote = object(&members, "remote")
        .map(|remote| Placement::Remote { address: text(&remote, "address") });
    let substrate = object(&members, "substrate").map(|substrate| Placement::Substrate {
        atespace: text(&substrate, "atespace"),
        template: text(&substrate, "template"),
    });
    let capabilities = object(&members, "capabilities").map(|members| {
        let flag = |name: &str| matches!(members.get(name), Some(Json::Bool(true)));
        Capabilities {
            resumability: match text(&members, "resumability").as_str() {
                "RESUMABILITY_REQUIRES_MEMORY_SNAPSHOT" => Resumability::RequiresMemorySnapshot,
                _ => Resumability::StatelessReplay,
            },
            fork_safe: flag("fork_safe"),
            requires_gpu: flag("requires_gpu"),
            streaming: flag("streaming"),
            reasoning_replay: flag("reasoning_replay"),
        }
    });
    Some(HarnessSpec {
        placement: remote.or(substrate),
        capabilities,
        descriptor_id: text(&members, "descriptor_id"),
    })
}
