//! The operator's registry of harnesses.

use mainspring_api::{HarnessRegistration, HarnessSpec, Placement, RegisterOutcome};

use crate::enums::{
    harness_source_from, harness_source_to, harness_state_from, harness_state_to, outcome_from,
    outcome_to, resumability_said,
};
use crate::error::{FieldPath, WireError, Within as _, each, optional, required};
use crate::scalar::{timestamp_from, timestamp_to};
use crate::v1;

impl TryFrom<HarnessSpec> for v1::HarnessSpec {
    type Error = WireError;

    fn try_from(spec: HarnessSpec) -> Result<Self, WireError> {
        use v1::harness_spec::Placement as Wire;
        let placement = match spec.placement {
            None => None,
            Some(Placement::Remote { address }) => {
                Some(Wire::Remote(v1::RemotePlacement { address }))
            }
            Some(Placement::Substrate { atespace, template }) => {
                Some(Wire::Substrate(v1::SubstratePlacement { atespace, template }))
            }
            Some(_) => {
                return Err(WireError::NoForm { path: FieldPath::of("placement") });
            }
        };
        Ok(Self {
            placement,
            capabilities: spec.capabilities.map(Into::into),
            descriptor_id: spec.descriptor_id,
        })
    }
}

impl From<v1::HarnessSpec> for HarnessSpec {
    fn from(spec: v1::HarnessSpec) -> Self {
        use v1::harness_spec::Placement as Wire;
        Self {
            placement: spec.placement.map(|placement| match placement {
                Wire::Remote(remote) => Placement::Remote { address: remote.address },
                Wire::Substrate(substrate) => Placement::Substrate {
                    atespace: substrate.atespace,
                    template: substrate.template,
                },
            }),
            capabilities: spec.capabilities.map(Into::into),
            descriptor_id: spec.descriptor_id,
        }
    }
}

impl TryFrom<HarnessRegistration> for v1::HarnessRegistration {
    type Error = WireError;

    fn try_from(harness: HarnessRegistration) -> Result<Self, WireError> {
        Ok(Self {
            metadata: Some(v1::ResourceMetadata {
                name: harness.name,
                uid: harness.uid,
                create_time: optional("metadata.create_time", harness.create_time, timestamp_to)?,
                ..Default::default()
            }),
            spec: optional("spec", harness.spec, TryInto::try_into)?,
            spec_digest: harness.spec_digest,
            state: harness_state_to(harness.state),
            source: harness_source_to(harness.source),
            retire_time: optional("retire_time", harness.retire_time, timestamp_to)?,
            retire_reason: harness.retire_reason,
            observed: harness.observed.map(Into::into),
            observe_error: harness.observe_error,
            unservable_reason: harness.unservable_reason,
        })
    }
}

impl TryFrom<v1::HarnessRegistration> for HarnessRegistration {
    type Error = WireError;

    fn try_from(harness: v1::HarnessRegistration) -> Result<Self, WireError> {
        let metadata = harness.metadata.ok_or_else(|| WireError::missing("metadata"))?;
        Ok(Self {
            name: metadata.name,
            uid: metadata.uid,
            create_time: optional("metadata.create_time", metadata.create_time, timestamp_from)?,
            spec: harness.spec.map(Into::into),
            spec_digest: harness.spec_digest,
            state: harness_state_from("state", harness.state)?,
            source: harness_source_from("source", harness.source)?,
            retire_time: optional("retire_time", harness.retire_time, timestamp_from)?,
            retire_reason: harness.retire_reason,
            observed: optional("observed", harness.observed, TryInto::try_into)?,
            observe_error: harness.observe_error,
            unservable_reason: harness.unservable_reason,
        })
    }
}

/// The spec of a request to register: how the harness is brought back must be
/// said in it, where an answer may leave that to the default.
///
/// # Errors
/// [`WireError`] when the resumability is not said, or not known here.
pub fn spec_to_register(spec: v1::HarnessSpec) -> Result<HarnessSpec, WireError> {
    if let Some(capabilities) = &spec.capabilities {
        resumability_said("spec.capabilities.resumability", capabilities.resumability)?;
    }
    Ok(spec.into())
}

/// What a registration did, for the wire.
///
/// # Errors
/// As for a registration.
pub fn registered_to_wire(
    harness: HarnessRegistration,
    outcome: RegisterOutcome,
) -> Result<v1::RegisterHarnessResponse, WireError> {
    Ok(v1::RegisterHarnessResponse {
        harness: Some(harness.try_into().within("harness")?),
        outcome: outcome_to(outcome),
    })
}

/// What a registration did.
///
/// # Errors
/// As for a registration.
pub fn registered_from_wire(
    response: v1::RegisterHarnessResponse,
) -> Result<(HarnessRegistration, RegisterOutcome), WireError> {
    Ok((
        required("harness", response.harness, TryInto::try_into)?,
        outcome_from("outcome", response.outcome)?,
    ))
}

/// What an operator asks to register.
///
/// # Errors
/// [`WireError`] when the spec is missing, or its capabilities do not say how
/// the harness is resumed.
pub fn registration_from_wire(
    request: v1::RegisterHarnessRequest,
) -> Result<(String, HarnessSpec), WireError> {
    let spec = request.spec.ok_or_else(|| WireError::missing("spec"))?;
    Ok((request.name, spec_to_register(spec)?))
}

/// A page of registrations for the wire.
///
/// # Errors
/// As for a registration.
pub fn harnesses_to_wire(
    harnesses: Vec<HarnessRegistration>,
    next_page_token: String,
) -> Result<v1::ListHarnessesResponse, WireError> {
    Ok(v1::ListHarnessesResponse {
        harnesses: each("harnesses", harnesses, TryInto::try_into)?,
        next_page_token,
    })
}

/// A page of registrations, and the token of the next.
///
/// # Errors
/// As for a registration.
pub fn harnesses_from_wire(
    page: v1::ListHarnessesResponse,
) -> Result<(Vec<HarnessRegistration>, String), WireError> {
    Ok((each("harnesses", page.harnesses, TryInto::try_into)?, page.next_page_token))
}
