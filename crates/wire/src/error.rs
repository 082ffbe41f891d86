//! Why a message cannot be converted.

use std::fmt;

use mainspring_api::{Classify, Condition, ErrorKind, IdError, InvalidJson};

/// The place of a field inside the message that was converted, such as
/// `event.message.parts[2].data`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldPath(String);

impl FieldPath {
    pub(crate) fn of(field: &str) -> Self {
        Self(field.to_owned())
    }

    fn within(self, outer: &str) -> Self {
        if self.0.is_empty() {
            return Self::of(outer);
        }
        Self(format!("{outer}.{}", self.0))
    }

    /// The path as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a message cannot be converted. Names the field, and carries no part of
/// its content.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// A number that the enum does not have.
    #[error("{path}: unknown enum number {number}")]
    UnknownEnum {
        /// Where.
        path: FieldPath,
        /// The number.
        number: i32,
    },
    /// A field that the message has and the schema does not.
    #[error("{path}: unknown field {number}")]
    UnknownField {
        /// The message; empty for the one that was converted.
        path: FieldPath,
        /// The field's number.
        number: u32,
    },
    /// A text that is none of the names allowed there.
    #[error("{path}: not one of {expected}")]
    UnknownName {
        /// Where.
        path: FieldPath,
        /// The names.
        expected: &'static str,
    },
    /// An event whose body belongs to another kind.
    #[error("{path}: event of kind {kind} has the body of {body}")]
    BodyMismatch {
        /// Where.
        path: FieldPath,
        /// The event's kind.
        kind: &'static str,
        /// The kind that the body belongs to.
        body: &'static str,
    },
    /// A number that is negative, or too large for its type on the other side.
    #[error("{path}: {value} is out of range")]
    OutOfRange {
        /// Where.
        path: FieldPath,
        /// The number.
        value: i128,
    },
    /// Not 64 lowercase hex characters.
    #[error("{path}: not a hash of 64 lowercase hex characters")]
    BadHash {
        /// Where.
        path: FieldPath,
    },
    /// A time that RFC 3339 cannot name.
    #[error("{path}: timestamp is out of range")]
    BadTimestamp {
        /// Where.
        path: FieldPath,
    },
    /// NaN or an infinity in free-form JSON.
    #[error("{path}: {}", InvalidJson::NotFinite)]
    NotFinite {
        /// Where.
        path: FieldPath,
    },
    /// Free-form JSON beyond `JSON_DEPTH_MAX`, or parts beyond `PART_DEPTH_MAX`.
    #[error("{path}: {what} are nested deeper than {depth_max} levels")]
    TooDeep {
        /// Where.
        path: FieldPath,
        /// What is nested.
        what: &'static str,
        /// The bound.
        depth_max: usize,
    },
    /// A message or member that must be there.
    #[error("{path}: missing")]
    Missing {
        /// Where.
        path: FieldPath,
    },
    /// An identifier of the wrong form.
    #[error("{path}: {error}")]
    BadId {
        /// Where.
        path: FieldPath,
        /// The rule that it breaks. Part of the text, hence not a source.
        error: IdError,
    },
    /// A sign of life where a value was expected.
    #[error("{path}: a heartbeat is no value")]
    Heartbeat {
        /// Where.
        path: FieldPath,
    },
    /// A value that this schema has no field for.
    #[error("{path}: has no form in agentsessions.v1")]
    NoForm {
        /// Where.
        path: FieldPath,
    },
}

impl WireError {
    /// The field that is at fault.
    #[must_use]
    pub const fn path(&self) -> &FieldPath {
        match self {
            Self::UnknownEnum { path, .. }
            | Self::UnknownField { path, .. }
            | Self::UnknownName { path, .. }
            | Self::BodyMismatch { path, .. }
            | Self::OutOfRange { path, .. }
            | Self::BadHash { path }
            | Self::BadTimestamp { path }
            | Self::NotFinite { path }
            | Self::TooDeep { path, .. }
            | Self::Missing { path }
            | Self::BadId { path, .. }
            | Self::Heartbeat { path }
            | Self::NoForm { path } => path,
        }
    }

    fn path_mut(&mut self) -> &mut FieldPath {
        match self {
            Self::UnknownEnum { path, .. }
            | Self::UnknownField { path, .. }
            | Self::UnknownName { path, .. }
            | Self::BodyMismatch { path, .. }
            | Self::OutOfRange { path, .. }
            | Self::BadHash { path }
            | Self::BadTimestamp { path }
            | Self::NotFinite { path }
            | Self::TooDeep { path, .. }
            | Self::Missing { path }
            | Self::BadId { path, .. }
            | Self::Heartbeat { path }
            | Self::NoForm { path } => path,
        }
    }

    /// The same error, of a message that is itself the field `outer`.
    #[must_use]
    pub fn within(mut self, outer: &str) -> Self {
        let path = self.path_mut();
        *path = std::mem::take(path).within(outer);
        self
    }

    pub(crate) fn missing(field: &str) -> Self {
        Self::Missing { path: FieldPath::of(field) }
    }

    pub(crate) fn unknown_enum(field: &str, number: i32) -> Self {
        Self::UnknownEnum { path: FieldPath::of(field), number }
    }

    pub(crate) fn heartbeat(field: &str) -> Self {
        Self::Heartbeat { path: FieldPath::of(field) }
    }

    pub(crate) fn out_of_range(field: &str, value: impl Into<i128>) -> Self {
        Self::OutOfRange { path: FieldPath::of(field), value: value.into() }
    }

    pub(crate) fn bad_id(field: &str, error: IdError) -> Self {
        Self::BadId { path: FieldPath::of(field), error }
    }
}

impl Classify for WireError {
    fn kind(&self) -> ErrorKind {
        ErrorKind::InvalidInput
    }

    fn code(&self) -> &'static str {
        Condition::InvalidArgument.code()
    }
}

/// Adds the outer field to the path of a failed conversion.
pub(crate) trait Within<T> {
    fn within(self, outer: &str) -> Result<T, WireError>;
    fn within_item(self, outer: &str, index: usize) -> Result<T, WireError>;
}

impl<T> Within<T> for Result<T, WireError> {
    fn within(self, outer: &str) -> Self {
        self.map_err(|error| error.within(outer))
    }

    fn within_item(self, outer: &str, index: usize) -> Self {
        self.map_err(|error| error.within(&format!("{outer}[{index}]")))
    }
}

/// Converts every item of a list, naming the one that fails.
pub(crate) fn each<A, B>(
    field: &str,
    items: Vec<A>,
    convert: impl Fn(A) -> Result<B, WireError>,
) -> Result<Vec<B>, WireError> {
    items
        .into_iter()
        .enumerate()
        .map(|(index, item)| convert(item).within_item(field, index))
        .collect()
}

/// Converts an optional message, naming it if it fails.
pub(crate) fn optional<A, B>(
    field: &str,
    item: Option<A>,
    convert: impl FnOnce(A) -> Result<B, WireError>,
) -> Result<Option<B>, WireError> {
    item.map(convert).transpose().within(field)
}

/// Converts a message that must be there, naming it if it is not or fails.
pub(crate) fn required<A, B>(
    field: &str,
    item: Option<A>,
    convert: impl FnOnce(A) -> Result<B, WireError>,
) -> Result<B, WireError> {
    optional(field, item, convert)?.ok_or_else(|| WireError::missing(field))
}
