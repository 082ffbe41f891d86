//! A strict JSON parser: no duplicate keys, no lone surrogates, bounded depth.
//!
//! Numbers become doubles, as in `google.protobuf.Value`; integers beyond 2^53
//! lose precision there and here alike.

use std::cell::Cell;
use std::fmt;

use mainspring_api::{JSON_DEPTH_MAX, Json, JsonObject};
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

/// Why a text is not the JSON that is accepted. Carries no part of the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JsonError {
    /// It is not JSON: syntax, encoding, a lone surrogate, or a number out of range.
    #[error("invalid json at line {line} column {column}: {why}")]
    Syntax {
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// The parser's words, which quote nothing.
        why: String,
    },
    /// A key stands twice in one object.
    #[error("duplicate key in a json object")]
    DuplicateKey,
    /// Too many nested containers.
    #[error("json is nested deeper than {depth_max} levels")]
    TooDeep {
        /// The bound.
        depth_max: usize,
    },
    /// It should be an object.
    #[error("json is not an object")]
    NotAnObject,
}

/// Parses a free-form value, at most [`JSON_DEPTH_MAX`] containers deep.
///
/// # Errors
/// [`JsonError`], naming the rule.
pub fn parse(text: &[u8]) -> Result<Json, JsonError> {
    parse_within(text, JSON_DEPTH_MAX)
}

/// Parses a free-form object.
///
/// # Errors
/// [`JsonError`], naming the rule.
pub fn parse_object(text: &[u8]) -> Result<JsonObject, JsonError> {
    match parse(text)? {
        Json::Object(members) => Ok(members),
        _ => Err(JsonError::NotAnObject),
    }
}

/// Parses a value of at most `depth_max` (below 100) nested containers.
///
/// # Errors
/// [`JsonError`], naming the rule.
pub fn parse_within(text: &[u8], depth_max: usize) -> Result<Json, JsonError> {
    let refused = Cell::new(None);
    let mut de = serde_json::Deserializer::from_slice(text);
    let seed = ValueSeed { depth: 0, depth_max, refused: &refused };
    let parsed = seed.deserialize(&mut de).and_then(|value| de.end().map(|()| value));
    parsed.map_err(|error| {
        refused.take().unwrap_or_else(|| JsonError::Syntax {
            line: error.line(),
            column: error.column(),
            why: words(&error),
        })
    })
}

/// The parser's message without its position, which is reported beside it.
fn words(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or_default().to_owned()
}

#[derive(Clone, Copy)]
struct ValueSeed<'a> {
    depth: usize,
    depth_max: usize,
    refused: &'a Cell<Option<JsonError>>,
}

impl ValueSeed<'_> {
    fn descend<E: serde::de::Error>(self) -> Result<Self, E> {
        if self.depth >= self.depth_max {
            self.refused.set(Some(JsonError::TooDeep { depth_max: self.depth_max }));
            return Err(E::custom("too deep"));
        }
        Ok(Self { depth: self.depth + 1, ..self })
    }
}

impl<'de> DeserializeSeed<'de> for ValueSeed<'_> {
    type Value = Json;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Json, D::Error> {
        deserializer.deserialize_any(self)
    }
}

#[expect(clippy::cast_precision_loss, reason = "doubles are the only numbers of the format")]
impl<'de> Visitor<'de> for ValueSeed<'_> {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a json value")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Number(value as f64))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(Json::Number(value as f64))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Json, E> {
        if value.is_finite() {
            Ok(Json::Number(value))
        } else {
            Err(E::custom("number out of range"))
        }
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(Json::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Json, E> {
        Ok(Json::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Json, A::Error> {
        let inner = self.descend()?;
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(inner)? {
            items.push(item);
        }
        Ok(Json::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
        let inner = self.descend()?;
        let mut members = JsonObject::new();
        while let Some(key) = map.next_key::<String>()? {
            let value = map.next_value_seed(inner)?;
            if members.insert(key, value).is_some() {
                self.refused.set(Some(JsonError::DuplicateKey));
                return Err(A::Error::custom("duplicate key"));
            }
        }
        Ok(Json::Object(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_be_lost_or_misread_is_refused() {
        let deep = |n: usize| "[".repeat(n) + &"]".repeat(n);
        assert!(parse(deep(24).as_bytes()).is_ok());
        for n in [25, 10_000] {
            assert_eq!(parse(deep(n).as_bytes()), Err(JsonError::TooDeep { depth_max: 24 }));
        }
        assert_eq!(parse(br#"{"a":1,"b":{"c":1,"c":2}}"#), Err(JsonError::DuplicateKey));
        assert_eq!(parse(br#"{"a":1,"\u0061":2}"#), Err(JsonError::DuplicateKey));
        for bad in [r#""\ud800""#, "NaN", "[Infinity]", "1e999", "01", "{}x", "", "\"\u{1}\""] {
            assert!(matches!(parse(bad.as_bytes()), Err(JsonError::Syntax { .. })), "{bad}");
        }
        assert!(matches!(parse(b"\"\xff\""), Err(JsonError::Syntax { .. })));
        assert_eq!(parse_object(b"[]"), Err(JsonError::NotAnObject));
    }
}
