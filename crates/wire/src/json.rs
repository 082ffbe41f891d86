//! Free-form JSON as `google.protobuf.Struct`.

use mainspring_api::{JSON_DEPTH_MAX, Json, JsonObject};
use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Value};

use crate::error::{FieldPath, WireError, Within as _};

fn check_level(level: usize) -> Result<(), WireError> {
    if level < JSON_DEPTH_MAX {
        return Ok(());
    }
    Err(WireError::TooDeep {
        path: FieldPath::default(),
        what: "json containers",
        depth_max: JSON_DEPTH_MAX,
    })
}

fn check_number(number: f64) -> Result<f64, WireError> {
    if number.is_finite() {
        return Ok(number);
    }
    Err(WireError::NotFinite { path: FieldPath::default() })
}

/// A JSON object as a struct.
///
/// # Errors
/// [`WireError::NotFinite`] and [`WireError::TooDeep`].
pub fn struct_from_json(object: JsonObject) -> Result<Struct, WireError> {
    object_to(object, 0)
}

/// A struct as a JSON object.
///
/// # Errors
/// [`WireError::NotFinite`], [`WireError::TooDeep`], and [`WireError::Missing`]
/// for a value without a kind.
pub fn json_from_struct(object: Struct) -> Result<JsonObject, WireError> {
    object_from(object, 0)
}

fn object_to(object: JsonObject, level: usize) -> Result<Struct, WireError> {
    check_level(level)?;
    let fields = object
        .into_iter()
        .map(|(key, value)| Ok((key, value_to(value, level + 1)?)))
        .collect::<Result<_, WireError>>()?;
    Ok(Struct { fields })
}

fn value_to(value: Json, level: usize) -> Result<Value, WireError> {
    let kind = match value {
        Json::Null => Kind::NullValue(0),
        Json::Bool(flag) => Kind::BoolValue(flag),
        Json::Number(number) => Kind::NumberValue(check_number(number)?),
        Json::String(text) => Kind::StringValue(text),
        Json::Array(items) => {
            check_level(level)?;
            let values = items
                .into_iter()
                .map(|item| value_to(item, level + 1))
                .collect::<Result<_, _>>()?;
            Kind::ListValue(ListValue { values })
        }
        Json::Object(members) => Kind::StructValue(object_to(members, level)?),
    };
    Ok(Value { kind: Some(kind) })
}

// Keys are content, so they do not appear in the path of an error.
fn object_from(object: Struct, level: usize) -> Result<JsonObject, WireError> {
    check_level(level)?;
    object
        .fields
        .into_iter()
        .map(|(key, value)| Ok((key, value_from(value, level + 1).within("fields")?)))
        .collect()
}

fn value_from(value: Value, level: usize) -> Result<Json, WireError> {
    Ok(match value.kind.ok_or_else(|| WireError::missing("kind"))? {
        Kind::NullValue(_) => Json::Null,
        Kind::BoolValue(flag) => Json::Bool(flag),
        Kind::NumberValue(number) => Json::Number(check_number(number)?),
        Kind::StringValue(text) => Json::String(text),
        Kind::ListValue(list) => {
            check_level(level)?;
            Json::Array(
                list.values
                    .into_iter()
                    .enumerate()
                    .map(|(index, item)| value_from(item, level + 1).within_item("values", index))
                    .collect::<Result<_, _>>()?,
            )
        }
        Kind::StructValue(object) => Json::Object(object_from(object, level)?),
    })
}
