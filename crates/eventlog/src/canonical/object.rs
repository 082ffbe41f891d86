//! Writing one message's members in sorted order.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use mainspring_api::{Json, JsonObject};

use super::Result;
use super::json::{write_json_object, write_string};

/// Writes the members of one object, which must come in sorted order.
pub(super) struct Object<'a> {
    out: &'a mut String,
    last: &'static str,
}

impl<'a> Object<'a> {
    pub(super) fn open(out: &'a mut String) -> Self {
        out.push('{');
        Self { out, last: "" }
    }

    pub(super) fn close(self) {
        self.out.push('}');
    }

    pub(super) fn key(&mut self, key: &'static str) -> &mut String {
        debug_assert!(self.last < key, "{key} after {}", self.last);
        if !self.last.is_empty() {
            self.out.push(',');
        }
        self.last = key;
        self.out.push('"');
        self.out.push_str(key);
        self.out.push_str("\":");
        self.out
    }

    pub(super) fn text(&mut self, key: &'static str, value: &str) {
        if !value.is_empty() {
            write_string(self.key(key), value);
        }
    }

    /// A name or decimal that needs no escaping.
    pub(super) fn plain(&mut self, key: &'static str, value: &str) {
        let out = self.key(key);
        out.push('"');
        out.push_str(value);
        out.push('"');
    }

    pub(super) fn int64(&mut self, key: &'static str, value: i64) {
        if value != 0 {
            let _ = write!(self.key(key), "\"{value}\"");
        }
    }

    pub(super) fn int32(&mut self, key: &'static str, value: i32) {
        if value != 0 {
            let _ = write!(self.key(key), "{value}");
        }
    }

    pub(super) fn flag(&mut self, key: &'static str, value: bool) {
        if value {
            self.key(key).push_str("true");
        }
    }

    pub(super) fn bytes(&mut self, key: &'static str, value: &[u8]) {
        let out = self.key(key);
        out.push('"');
        BASE64.encode_string(value, out);
        out.push('"');
    }

    pub(super) fn object(&mut self, key: &'static str, value: Option<&JsonObject>) -> Result<()> {
        if let Some(members) = value {
            Json::check_object(members, 0)?;
            write_json_object(self.key(key), members)?;
        }
        Ok(())
    }

    pub(super) fn list<T>(
        &mut self,
        key: &'static str,
        items: &[T],
        mut write: impl FnMut(&mut String, &T) -> Result<()>,
    ) -> Result<()> {
        if items.is_empty() {
            return Ok(());
        }
        let out = self.key(key);
        out.push('[');
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                out.push(',');
            }
            write(out, item)?;
        }
        out.push(']');
        Ok(())
    }
}
