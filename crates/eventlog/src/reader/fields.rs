//! Taking typed members out of a parsed object, until none is left.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use mainspring_api::{Bytes, InvalidJson, Json, JsonObject, Timestamp};

use super::ReadError;
use crate::canonical::rfc3339;

/// The members of one object that were not taken yet.
pub(super) struct Fields {
    members: JsonObject,
    path: String,
}

type Result<T> = std::result::Result<T, ReadError>;

impl Fields {
    pub(super) fn of(json: Json, path: String) -> Result<Self> {
        match json {
            Json::Object(members) => Ok(Self { members, path }),
            _ => Err(ReadError::Malformed { path, why: "it is not an object" }),
        }
    }

    /// Every member must have been taken: what is left is not known here.
    pub(super) fn end(self) -> Result<()> {
        match self.members.keys().next() {
            None => Ok(()),
            Some(key) => Err(self.unsupported("field", key)),
        }
    }

    pub(super) fn unsupported(&self, what: &'static str, key: &str) -> ReadError {
        // A member name is the writer's schema, not its payload; cut it all the same.
        let key: String = key.chars().take(64).collect();
        ReadError::Unsupported { what, path: format!("{}.{key}", self.path) }
    }

    fn malformed(&self, key: &str, why: &'static str) -> ReadError {
        ReadError::Malformed { path: format!("{}.{key}", self.path), why }
    }

    pub(super) fn text(&mut self, key: &str) -> Result<String> {
        Ok(self.optional_text(key)?.unwrap_or_default())
    }

    pub(super) fn optional_text(&mut self, key: &str) -> Result<Option<String>> {
        match self.members.remove(key) {
            None => Ok(None),
            Some(Json::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.malformed(key, "it is not a string")),
        }
    }

    pub(super) fn flag(&mut self, key: &str) -> Result<bool> {
        match self.members.remove(key) {
            None => Ok(false),
            Some(Json::Bool(flag)) => Ok(flag),
            Some(_) => Err(self.malformed(key, "it is not a boolean")),
        }
    }

    pub(super) fn int64(&mut self, key: &str) -> Result<i64> {
        Ok(self.optional_int64(key)?.unwrap_or(0))
    }

    pub(super) fn optional_int64(&mut self, key: &str) -> Result<Option<i64>> {
        let Some(text) = self.optional_text(key)? else {
            return Ok(None);
        };
        let number: i64 =
            text.parse().map_err(|_| self.malformed(key, "it is not a decimal int64"))?;
        if number.to_string() == text {
            Ok(Some(number))
        } else {
            Err(self.malformed(key, "it is not a decimal int64"))
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "checked to be integral and in range")]
    pub(super) fn int32(&mut self, key: &str) -> Result<i32> {
        match self.members.remove(key) {
            None => Ok(0),
            Some(Json::Number(n))
                if n.fract() == 0.0
                    && n.abs() <= f64::from(i32::MAX) + 1.0
                    && n as i64 <= i64::from(i32::MAX) =>
            {
                Ok(n as i32)
            }
            Some(_) => Err(self.malformed(key, "it is not an int32")),
        }
    }

    pub(super) fn bytes(&mut self, key: &str) -> Result<Option<Bytes>> {
        let Some(text) = self.optional_text(key)? else {
            return Ok(None);
        };
        let bytes =
            BASE64.decode(text).map_err(|_| self.malformed(key, "it is not padded base64"))?;
        Ok(Some(bytes.into()))
    }

    /// An enum by its declared name. A number is how a newer value is rendered.
    pub(super) fn name<T: Copy>(
        &mut self,
        key: &str,
        values: &[T],
        name: impl Fn(T) -> &'static str,
    ) -> Result<T> {
        match self.members.remove(key) {
            None => Ok(values[0]),
            Some(Json::String(text)) => values
                .iter()
                .copied()
                .find(|value| name(*value) == text)
                .ok_or_else(|| self.unsupported("value", key)),
            Some(Json::Number(_)) => Err(self.unsupported("value", key)),
            Some(_) => Err(self.malformed(key, "it is not an enum name")),
        }
    }

    pub(super) fn object(&mut self, key: &str) -> Result<Option<Self>> {
        match self.members.remove(key) {
            None => Ok(None),
            Some(json) => Self::of(json, format!("{}.{key}", self.path)).map(Some),
        }
    }

    pub(super) fn list(&mut self, key: &str) -> Result<Vec<Self>> {
        match self.members.remove(key) {
            None => Ok(Vec::new()),
            Some(Json::Array(items)) => items
                .into_iter()
                .enumerate()
                .map(|(index, item)| Self::of(item, format!("{}.{key}[{index}]", self.path)))
                .collect(),
            Some(_) => Err(self.malformed(key, "it is not a list")),
        }
    }

    pub(super) fn free(&mut self, key: &str) -> Result<Option<JsonObject>> {
        match self.members.remove(key) {
            None => Ok(None),
            Some(Json::Object(members)) => match Json::check_object(&members, 0) {
                Ok(()) => Ok(Some(members)),
                Err(InvalidJson::TooDeep) => Err(self.malformed(key, "it is nested too deep")),
                Err(_) => Err(self.malformed(key, "it cannot be recorded")),
            },
            Some(_) => Err(self.malformed(key, "it is not an object")),
        }
    }

    pub(super) fn strings(
        &mut self,
        key: &str,
    ) -> Result<std::collections::BTreeMap<String, String>> {
        match self.members.remove(key) {
            None => Ok(std::collections::BTreeMap::new()),
            Some(Json::Object(members)) => members
                .into_iter()
                .map(|(name, value)| match value {
                    Json::String(text) => Ok((name, text)),
                    _ => Err(self.malformed(key, "a value is not a string")),
                })
                .collect(),
            Some(_) => Err(self.malformed(key, "it is not an object")),
        }
    }

    pub(super) fn timestamp(&mut self, key: &str) -> Result<Option<Timestamp>> {
        let Some(text) = self.optional_text(key)? else {
            return Ok(None);
        };
        parse_rfc3339(&text)
            .map(Some)
            .ok_or_else(|| self.malformed(key, "it is not a canonical RFC 3339 UTC time"))
    }

    pub(super) fn too_deep(&self) -> ReadError {
        ReadError::Malformed { path: self.path.clone(), why: "parts are nested too deep" }
    }

    pub(super) fn both_set(&self) -> ReadError {
        ReadError::Malformed { path: self.path.clone(), why: "two members of a oneof are set" }
    }

    /// The members that were not taken, for "exactly one of" checks.
    pub(super) fn one_key(&self) -> Result<Option<String>> {
        match self.members.len() {
            0 => Ok(None),
            1 => Ok(self.members.keys().next().cloned()),
            _ => Err(ReadError::Malformed {
                path: self.path.clone(),
                why: "more than one member of a part is set",
            }),
        }
    }
}

/// Reads exactly what [`rfc3339`] writes.
#[must_use]
pub fn parse_rfc3339(text: &str) -> Option<Timestamp> {
    let digits = |range: std::ops::Range<usize>| -> Option<i64> {
        let part = text.get(range)?;
        part.bytes().all(|b| b.is_ascii_digit()).then(|| part.parse().ok()).flatten()
    };
    let (year, month, day) = (digits(0..4)?, digits(5..7)?, digits(8..10)?);
    let (hour, minute, second) = (digits(11..13)?, digits(14..16)?, digits(17..19)?);
    let fraction = text.get(19..)?.strip_suffix('Z')?;
    let nanos = match fraction.strip_prefix('.') {
        None if fraction.is_empty() => 0,
        Some(f) if matches!(f.len(), 3 | 6 | 9) && f.bytes().all(|b| b.is_ascii_digit()) => {
            format!("{f:0<9}").parse().ok()?
        }
        _ => return None,
    };
    let shifted_year = if month <= 2 { year - 1 } else { year };
    let era = shifted_year.div_euclid(400);
    let year_of_era = shifted_year.rem_euclid(400);
    let day_of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = era * 146_097 + day_of_era - 719_468;
    let ts = Timestamp { seconds: days * 86_400 + hour * 3600 + minute * 60 + second, nanos };
    // Rendering it back catches impossible dates and every non-canonical form.
    (ts.is_valid() && rfc3339(ts) == text).then_some(ts)
}
