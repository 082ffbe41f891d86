//! Tokens of list pages: opaque to clients, unsigned.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mainspring_api::{SessionUid, Timestamp};

use crate::log::PageKey;

/// The token of a page that starts after `key`.
#[must_use]
pub fn encode(key: &PageKey) -> String {
    URL_SAFE_NO_PAD.encode(format!("{}\0{}", key.create_time.unix_nanos(), key.uid))
}

/// Reads a token; `None` when it is not one.
#[must_use]
pub fn decode(token: &str) -> Option<PageKey> {
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(token).ok()?).ok()?;
    let (nanos, uid) = text.split_once('\0')?;
    let parsed: i64 = nanos.parse().ok()?;
    if parsed.to_string() != nanos {
        return None;
    }
    Some(PageKey {
        create_time: Timestamp::from_unix_nanos(parsed),
        uid: SessionUid::new(uid).ok()?,
    })
}

/// The token of a page that starts after a name.
#[must_use]
pub fn encode_name(name: &str) -> String {
    URL_SAFE_NO_PAD.encode(name)
}

/// Reads the token of a page of names; `None` when it is not one. The empty
/// name is no place in a list.
#[must_use]
pub fn decode_name(token: &str) -> Option<String> {
    let name = String::from_utf8(URL_SAFE_NO_PAD.decode(token).ok()?).ok()?;
    (!name.is_empty()).then_some(name)
}
