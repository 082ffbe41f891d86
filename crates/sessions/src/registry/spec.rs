//! What a registration must say.

use mainspring_api::{HarnessSpec, Placement, SessionsError};
use mainspring_eventlog::spec_bytes;

use crate::service::invalid;

/// The bytes that the canonical form of a spec may have.
pub const SPEC_BYTES_MAX: usize = 4_096;

/// Refuses a spec that says too little or too much.
pub(super) fn check(spec: &HarnessSpec) -> Result<(), SessionsError> {
    let needed = |what: &str, text: &str| match text.is_empty() {
        true => Err(invalid(format!("spec.{what} is empty"))),
        false => Ok(()),
    };
    match &spec.placement {
        None => return Err(invalid("spec.placement is not set")),
        Some(Placement::Remote { address }) => needed("remote.address", address)?,
        Some(Placement::Substrate { atespace, template }) => {
            needed("substrate.atespace", atespace)?;
            needed("substrate.template", template)?;
        }
        Some(_) => return Err(invalid("spec.placement is of an unknown sort")),
    }
    if spec.capabilities.is_none() {
        return Err(invalid("spec.capabilities.resumability is not set"));
    }
    let bytes = spec_bytes(spec).len();
    if bytes > SPEC_BYTES_MAX {
        return Err(invalid(format!(
            "spec is {bytes} bytes in its canonical form, at most {SPEC_BYTES_MAX} are stored \
             (SPEC_BYTES_MAX)"
        )));
    }
    Ok(())
}
