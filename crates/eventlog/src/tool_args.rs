//! Normalisation of the arguments of host-mediated tool calls.

use mainspring_api::{Json, JsonObject};

/// Arguments that cannot be recorded. Carries no part of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("tool arguments cannot be recorded")]
pub struct InvalidToolArgs;

/// The largest integer that every JSON reader keeps exactly: 2^53 - 1.
const SAFE_INTEGER_MAX: f64 = 9_007_199_254_740_991.0;

/// Checks and returns the arguments in the form that is journaled.
///
/// # Errors
/// [`InvalidToolArgs`] for a number that is not finite, an integral number
/// beyond 2^53 - 1, or too many nested containers.
pub fn normalise_args(args: Option<&JsonObject>) -> Result<Option<JsonObject>, InvalidToolArgs> {
    let Some(members) = args else { return Ok(None) };
    Json::check_object(members, 0).map_err(|_| InvalidToolArgs)?;
    members.values().try_for_each(check_numbers)?;
    Ok(Some(members.clone()))
}

fn check_numbers(value: &Json) -> Result<(), InvalidToolArgs> {
    match value {
        Json::Number(n) if n.fract() == 0.0 && n.abs() > SAFE_INTEGER_MAX => Err(InvalidToolArgs),
        Json::Array(items) => items.iter().try_for_each(check_numbers),
        Json::Object(members) => members.values().try_for_each(check_numbers),
        _ => Ok(()),
    }
}
