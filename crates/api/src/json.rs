//! Free-form JSON: tool arguments, tool output, data parts, schemas.

use std::collections::BTreeMap;

/// How many containers may be nested in free-form JSON.
///
/// Protobuf decoders stop at about 100 levels and each JSON level costs three,
/// so a deeper value could be stored but never travel.
pub const JSON_DEPTH_MAX: usize = 24;

/// A JSON object. Keys are unique by construction.
pub type JsonObject = BTreeMap<String, Json>;

/// A JSON value. All numbers are doubles, as in `google.protobuf.Value`.
#[derive(Debug, Clone, PartialEq)]
pub enum Json {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number; must be finite to be recorded.
    Number(f64),
    /// A string.
    String(String),
    /// An array.
    Array(Vec<Json>),
    /// An object.
    Object(JsonObject),
}

/// Why a free-form value cannot be recorded. Carries no part of the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidJson {
    /// NaN or an infinity.
    #[error("a number is not finite")]
    NotFinite,
    /// More than [`JSON_DEPTH_MAX`] nested containers.
    #[error("json is nested deeper than {JSON_DEPTH_MAX} levels")]
    TooDeep,
}

impl Json {
    /// Checks that the value can be recorded when it stands `level` containers deep.
    ///
    /// # Errors
    /// [`InvalidJson`], naming the rule.
    pub fn check(&self, level: usize) -> Result<(), InvalidJson> {
        match self {
            Self::Null | Self::Bool(_) | Self::String(_) => Ok(()),
            Self::Number(n) if n.is_finite() => Ok(()),
            Self::Number(_) => Err(InvalidJson::NotFinite),
            Self::Array(_) | Self::Object(_) if level >= JSON_DEPTH_MAX => {
                Err(InvalidJson::TooDeep)
            }
            Self::Array(items) => items.iter().try_for_each(|item| item.check(level + 1)),
            Self::Object(members) => Self::check_object(members, level),
        }
    }

    /// [`Json::check`] for an object that stands `level` containers deep.
    ///
    /// # Errors
    /// [`InvalidJson`], naming the rule.
    pub fn check_object(members: &JsonObject, level: usize) -> Result<(), InvalidJson> {
        if level >= JSON_DEPTH_MAX {
            return Err(InvalidJson::TooDeep);
        }
        members.values().try_for_each(|value| value.check(level + 1))
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Self {
        Self::String(text.to_owned())
    }
}

impl From<f64> for Json {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(levels: usize) -> Json {
        (0..levels).fold(Json::Null, |inner, _| Json::Array(vec![inner]))
    }

    #[test]
    fn depth_is_bounded_by_containers() {
        assert_eq!(nested(24).check(0), Ok(()));
        assert_eq!(nested(25).check(0), Err(InvalidJson::TooDeep));
        assert_eq!(Json::Number(f64::NAN).check(0), Err(InvalidJson::NotFinite));
        let inside = Json::Array(vec![Json::Number(f64::INFINITY)]);
        assert_eq!(inside.check(0), Err(InvalidJson::NotFinite));
    }
}
