//! Call metadata: what travels beside the messages.

use std::time::Duration;

use http::HeaderMap;
use mainspring_api::{
    Caller, Condition, Entropy, ExecutionId, OnDisconnect, RequestId, SessionsError,
};
use tonic::metadata::{Ascii, MetadataKey, MetadataMap, MetadataValue};

/// The call's id in logs.
pub const REQUEST_ID: &str = "x-request-id";
/// A chosen execution id; on Exec.
pub const EXECUTION_ID: &str = "x-execution-id";
/// What makes a call repeatable; on CreateSession and Exec.
pub const IDEMPOTENCY_KEY: &str = "x-idempotency-key";
/// What losing the stream does to the turn: `detach` or `cancel`; on Exec.
pub const ON_DISCONNECT: &str = "x-on-disconnect";
/// How long a request for approval is open.
pub const APPROVAL_TTL: &str = "x-approval-ttl";
/// Digest of the call that the approver was shown; on Approve.
pub const APPROVAL_DIGEST: &str = "x-approval-digest";
/// `1` verifies the chain before records are sent; on Replay.
pub const VERIFY: &str = "x-verify";
/// `1` sends the notes of records.
pub const NOTES: &str = "x-notes";

/// Asks for a heartbeat whenever a stream had nothing to send for so many
/// seconds, 1 to 3600; on Exec, Replay, Follow and the streamed Resume. A host
/// that sends them answers with the same key.
pub const HEARTBEAT: &str = "x-heartbeat";
/// What is ill-formed in a session's journal: printable ASCII, where `%XX` is
/// a byte of UTF-8; a trailer of GetSession.
pub const FAULT: &str = "x-mainspring-fault";
/// Which host has the session at hand: its address or, when it has told none,
/// its name, as printable ASCII where `%XX` is a byte of UTF-8; a trailer of the
/// calls of Sessions that name one, where many hosts serve one store.
pub const WARM_HOST: &str = "x-mainspring-warm-host";

/// Extensions of the Harness service: on Describe's answer those that the
/// harness offers, on Connect those that the host uses.
pub const HARNESS_EXTENSIONS: &str = "x-mainspring-harness";
/// SHA-256 of the harness's descriptor, in hex; on Connect's answer.
pub const DESCRIPTOR_DIGEST: &str = "x-mainspring-descriptor-digest";

/// Options that change what a call does. One that the method does not take is
/// refused, because ignoring it would do something else than was asked for.
const CALL_OPTIONS: [&str; 5] =
    [EXECUTION_ID, IDEMPOTENCY_KEY, ON_DISCONNECT, APPROVAL_TTL, APPROVAL_DIGEST];

/// The request id of a call: the first value if it is valid, else a fresh one.
pub(crate) fn request_id(headers: &HeaderMap, entropy: &dyn Entropy) -> RequestId {
    headers
        .get(REQUEST_ID)
        .and_then(|value| value.to_str().ok())
        .and_then(|text| RequestId::new(text).ok())
        .unwrap_or_else(|| RequestId::random(entropy))
}

/// Refuses options that the method does not take.
pub(crate) fn only(metadata: &MetadataMap, taken: &[&str]) -> Result<(), SessionsError> {
    let stray =
        CALL_OPTIONS.iter().find(|key| !taken.contains(key) && metadata.contains_key(**key));
    match stray {
        None => Ok(()),
        Some(key) => Err(SessionsError::new(
            Condition::Unimplemented,
            format!("{key} is not supported on this method"),
        )),
    }
}

fn malformed(key: &str, rule: &str) -> SessionsError {
    SessionsError::new(Condition::InvalidArgument, format!("{key}: {rule}"))
}

fn text<'a>(metadata: &'a MetadataMap, key: &str) -> Result<Option<&'a str>, SessionsError> {
    metadata
        .get(key)
        .map(|value| value.to_str().map_err(|_| malformed(key, "it is not ascii")))
        .transpose()
}

pub(crate) fn execution_id(metadata: &MetadataMap) -> Result<Option<ExecutionId>, SessionsError> {
    text(metadata, EXECUTION_ID)?
        .map(|text| {
            ExecutionId::chosen(text)
                .map_err(|_| malformed(EXECUTION_ID, "it is not 16 lowercase hex characters"))
        })
        .transpose()
}

pub(crate) fn idempotency_key(metadata: &MetadataMap) -> Result<Option<String>, SessionsError> {
    text(metadata, IDEMPOTENCY_KEY)?
        .map(|text| {
            // The alphabet and bound of request ids.
            RequestId::new(text).map(|key| key.as_str().to_owned()).map_err(|_| {
                malformed(IDEMPOTENCY_KEY, "it is not 1 to 128 characters of A-Z a-z 0-9 - _ .")
            })
        })
        .transpose()
}

pub(crate) fn on_disconnect(metadata: &MetadataMap) -> Result<OnDisconnect, SessionsError> {
    match text(metadata, ON_DISCONNECT)? {
        None | Some("detach") => Ok(OnDisconnect::Detach),
        Some("cancel") => Ok(OnDisconnect::Cancel),
        Some(_) => Err(malformed(ON_DISCONNECT, "it is not detach or cancel")),
    }
}

pub(crate) fn approval_digest(metadata: &MetadataMap) -> Result<Option<String>, SessionsError> {
    match text(metadata, APPROVAL_DIGEST)? {
        Some("") => Err(malformed(APPROVAL_DIGEST, "it is empty")),
        other => Ok(other.map(ToOwned::to_owned)),
    }
}

pub(crate) fn approval_ttl(metadata: &MetadataMap) -> Result<Option<Duration>, SessionsError> {
    text(metadata, APPROVAL_TTL)?
        .map(|text| match text.parse::<u32>() {
            Ok(seconds) if seconds > 0 => Ok(Duration::from_secs(seconds.into())),
            _ => Err(malformed(APPROVAL_TTL, "it is not a whole number of seconds from 1 on")),
        })
        .transpose()
}

/// A switch: `1` is on, absent and `0` are off.
pub(crate) fn switch(metadata: &MetadataMap, key: &str) -> Result<bool, SessionsError> {
    match text(metadata, key)? {
        None | Some("0") => Ok(false),
        Some("1") => Ok(true),
        Some(_) => Err(malformed(key, "it is not 0 or 1")),
    }
}

/// The bytes of a text that are sent in a header.
const TRAILER_BYTES_MAX: usize = 1024;

/// A text as the value of a trailer such as [`FAULT`].
pub(crate) fn printable(text: &str) -> String {
    let mut value = String::new();
    for byte in text.bytes().take(TRAILER_BYTES_MAX) {
        if byte == b'%' || !(b' '..=b'~').contains(&byte) {
            value.push_str(&format!("%{byte:02X}"));
        } else {
            value.push(char::from(byte));
        }
    }
    value
}

/// The fault that a peer sent, if it sent one.
pub(crate) fn fault(metadata: &MetadataMap) -> Option<String> {
    let value = metadata.get(FAULT)?.as_bytes();
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value;
    while let Some((first, tail)) = rest.split_first() {
        let escaped = (*first == b'%')
            .then(|| std::str::from_utf8(tail.get(..2)?).ok())
            .flatten()
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        rest = if escaped.is_some() { &tail[2..] } else { tail };
        bytes.push(escaped.unwrap_or(*first));
    }
    Some(String::from_utf8_lossy(&bytes).into_owned()).filter(|fault| !fault.is_empty())
}

/// The metadata of an outgoing call.
pub(crate) fn of_caller(caller: &Caller) -> MetadataMap {
    let mut metadata = MetadataMap::new();
    // The alphabet of request ids is a subset of what a header takes.
    if let Ok(value) = caller.request_id.as_str().parse() {
        metadata.insert(REQUEST_ID, value);
    }
    metadata
}

/// Sets an option of an outgoing call, replacing what is there.
pub(crate) fn set(
    metadata: &mut MetadataMap,
    key: &'static str,
    value: &str,
) -> Result<(), SessionsError> {
    let value: MetadataValue<Ascii> =
        value.parse().map_err(|_| malformed(key, "it cannot be sent as metadata"))?;
    metadata.insert(key, value);
    Ok(())
}

/// Pairs that go on every call of a connection, checked once.
#[derive(Debug, Clone, Default)]
pub(crate) struct CallMetadata(Vec<(MetadataKey<Ascii>, MetadataValue<Ascii>)>);

impl CallMetadata {
    pub(crate) fn new(pairs: &[(String, String)]) -> Result<Self, String> {
        pairs
            .iter()
            .map(|(key, value)| {
                let bad = || format!("call metadata {key:?} cannot be sent");
                let name = MetadataKey::from_bytes(key.as_bytes()).map_err(|_| bad())?;
                Ok((name, value.parse().map_err(|_| bad())?))
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Puts the pairs on a call. They win over what the call has under the same key.
    pub(crate) fn apply(&self, metadata: &mut MetadataMap) {
        for (key, _) in &self.0 {
            metadata.remove(key);
        }
        for (key, value) in &self.0 {
            metadata.append(key.clone(), value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_of_any_text_survives_a_header() {
        for fault in ["seq 3 does not hold", "100 % \u{e9}\n\u{1f600}", "%41%", "%zz"] {
            let mut metadata = MetadataMap::new();
            set(&mut metadata, FAULT, &printable(fault)).unwrap();
            assert_eq!(super::fault(&metadata).as_deref(), Some(fault));
        }
        assert_eq!(super::fault(&MetadataMap::new()), None);
    }
}
