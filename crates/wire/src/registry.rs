//! The operator's registry of harnesses.

use mainspring_api::{HarnessRegistration, HarnessSpec, Placement, RegisterOutcome};

use crate::enums::{
    harness_source_from, harness_source_to, harness_state_from, harness_state_to, outcome_from,
    outcome_to,
};
use crate::error::{FieldPath, WireError, Within as _, optional, required};
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
        let path = "spec.capabilities.resumability";
        let number = capabilities.resumability;
        match v1::Resumability::try_from(number) {
            Ok(v1::Resumability::Unspecified) => return Err(WireError::missing(path)),
            Ok(_) => {}
            Err(_) => return Err(WireError::UnknownEnum { path: FieldPath::of(path), number }),
        }
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
