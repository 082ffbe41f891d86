//! The proto-JSON form of registered harnesses, with proto field names.

use mainspring::api::{
    Capabilities, Descriptor, HarnessRegistration, HarnessSource, HarnessSpec, HarnessState,
    Mediation, Placement, Resumability,
};
use mainspring::eventlog::canonical::rfc3339;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::CliError;

/// A spec as a file has it; a member that it does not have is refused.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Spec {
    remote: Option<Remote>,
    substrate: Option<Substrate>,
    capabilities: Option<CapabilitiesJson>,
    #[serde(default, alias = "descriptorId")]
    descriptor_id: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Remote {
    #[serde(default)]
    address: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Substrate {
    #[serde(default)]
    atespace: String,
    #[serde(default)]
    template: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CapabilitiesJson {
    resumability: ResumabilityJson,
    #[serde(default, alias = "forkSafe")]
    fork_safe: bool,
    #[serde(default, alias = "requiresGpu")]
    requires_gpu: bool,
    #[serde(default)]
    streaming: bool,
    #[serde(default, alias = "reasoningReplay")]
    reasoning_replay: bool,
}

#[derive(Debug, Deserialize)]
enum ResumabilityJson {
    #[serde(rename = "RESUMABILITY_STATELESS_REPLAY")]
    StatelessReplay,
    #[serde(rename = "RESUMABILITY_REQUIRES_MEMORY_SNAPSHOT")]
    RequiresMemorySnapshot,
}

/// A spec out of a file.
///
/// # Errors
/// A usage error that names the file, and what is wrong where.
pub(crate) fn spec_from_json(name: &str, json: &[u8]) -> Result<HarnessSpec, CliError> {
    let wrong = |why: &str| CliError::usage(format!("--spec {name}: {why}"));
    let spec: Spec = serde_json::from_slice(json).map_err(|error| wrong(&error.to_string()))?;
    let placement = match (spec.remote, spec.substrate) {
        (Some(remote), None) => Placement::Remote { address: remote.address },
        (None, Some(substrate)) => {
            Placement::Substrate { atespace: substrate.atespace, template: substrate.template }
        }
        (None, None) => return Err(wrong("it has neither remote nor substrate")),
        (Some(_), Some(_)) => return Err(wrong("it has both remote and substrate")),
    };
    let capabilities = spec.capabilities.map(|given| Capabilities {
        resumability: match given.resumability {
            ResumabilityJson::StatelessReplay => Resumability::StatelessReplay,
            ResumabilityJson::RequiresMemorySnapshot => Resumability::RequiresMemorySnapshot,
        },
        fork_safe: given.fork_safe,
        requires_gpu: given.requires_gpu,
        streaming: given.streaming,
        reasoning_replay: given.reasoning_replay,
    });
    Ok(HarnessSpec { placement: Some(placement), capabilities, descriptor_id: spec.descriptor_id })
}

/// An object without its members that have proto3's default.
fn object<const N: usize>(members: [(&str, Value); N]) -> Value {
    let is_default = |value: &Value| match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(values) => values.is_empty(),
        _ => false,
    };
    let kept = members.into_iter().filter(|(_, value)| !is_default(value));
    Value::Object(kept.map(|(name, value)| (name.to_owned(), value)).collect())
}

/// A registration.
pub(crate) fn registration_json(harness: &HarnessRegistration) -> Value {
    object([
        (
            "metadata",
            object([
                ("name", json!(harness.name)),
                ("uid", json!(harness.uid)),
                ("create_time", json!(harness.create_time.map(rfc3339))),
            ]),
        ),
        ("spec", harness.spec.as_ref().map_or(Value::Null, spec_json)),
        ("spec_digest", json!(harness.spec_digest)),
        (
            "state",
            json!(match harness.state {
                HarnessState::Active => "HARNESS_STATE_ACTIVE",
                HarnessState::Retired => "HARNESS_STATE_RETIRED",
            }),
        ),
        (
            "source",
            json!(match harness.source {
                HarnessSource::Static => "HARNESS_SOURCE_STATIC",
                HarnessSource::Registered => "HARNESS_SOURCE_REGISTERED",
            }),
        ),
        ("retire_time", json!(harness.retire_time.map(rfc3339))),
        ("retire_reason", json!(harness.retire_reason)),
        ("observed", harness.observed.as_ref().map_or(Value::Null, descriptor_json)),
        ("observe_error", json!(harness.observe_error)),
        ("unservable_reason", json!(harness.unservable_reason)),
    ])
}

fn spec_json(spec: &HarnessSpec) -> Value {
    let (remote, substrate) = match &spec.placement {
        Some(Placement::Remote { address }) => (object([("address", json!(address))]), Value::Null),
        Some(Placement::Substrate { atespace, template }) => {
            (Value::Null, object([("atespace", json!(atespace)), ("template", json!(template))]))
        }
        _ => (Value::Null, Value::Null),
    };
    object([
        ("remote", remote),
        ("substrate", substrate),
        ("capabilities", spec.capabilities.as_ref().map_or(Value::Null, capabilities_json)),
        ("descriptor_id", json!(spec.descriptor_id)),
    ])
}

fn capabilities_json(capabilities: &Capabilities) -> Value {
    object([
        (
            "resumability",
            json!(match capabilities.resumability {
                Resumability::StatelessReplay => "RESUMABILITY_STATELESS_REPLAY",
                Resumability::RequiresMemorySnapshot => "RESUMABILITY_REQUIRES_MEMORY_SNAPSHOT",
            }),
        ),
        ("fork_safe", json!(capabilities.fork_safe)),
        ("requires_gpu", json!(capabilities.requires_gpu)),
        ("streaming", json!(capabilities.streaming)),
        ("reasoning_replay", json!(capabilities.reasoning_replay)),
    ])
}

fn descriptor_json(descriptor: &Descriptor) -> Value {
    let tools: Vec<_> = descriptor
        .tools
        .iter()
        .map(|tool| {
            object([
                ("name", json!(tool.name)),
                ("description", json!(tool.description)),
                ("mediation", json!(mediation_name(tool.mediation))),
            ])
        })
        .collect();
    object([
        ("id", json!(descriptor.id)),
        ("models", json!(descriptor.models)),
        ("tools", json!(tools)),
        ("capabilities", capabilities_json(&descriptor.capabilities)),
        ("version", json!(descriptor.version)),
    ])
}

const fn mediation_name(mediation: Mediation) -> &'static str {
    match mediation {
        Mediation::Unspecified => "",
        Mediation::InHarnessReported => "MEDIATION_IN_HARNESS_REPORTED",
        Mediation::ControllerMediated => "MEDIATION_CONTROLLER_MEDIATED",
        Mediation::RequiresApproval => "MEDIATION_REQUIRES_APPROVAL",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spec_is_read_as_it_is_shown() {
        let json = json!({
            "remote": {"address": "10.0.0.1:9"},
            "capabilities": {"resumability": "RESUMABILITY_STATELESS_REPLAY", "fork_safe": true},
            "descriptor_id": "d",
        });
        let spec = spec_from_json("f", json.to_string().as_bytes()).unwrap();
        assert_eq!(spec_json(&spec), json);
        let json = json!({"substrate": {"atespace": "a", "template": "t"}});
        let spec = spec_from_json("f", json.to_string().as_bytes()).unwrap();
        assert_eq!(spec_json(&spec), json);
    }

    #[test]
    fn a_spec_with_something_else_is_refused_by_name() {
        for (json, says) in [
            (r#"{}"#, "neither remote nor substrate"),
            (r#"{"remote":{},"substrate":{}}"#, "both"),
            (r#"{"remote":{"address":"a","port":1}}"#, "`port`"),
            (r#"{"remote":{"address":"a"},"pod":{}}"#, "`pod`"),
            (r#"{"remote":{"address":"a"},"capabilities":{}}"#, "`resumability`"),
            (
                r#"{"remote":{"address":"a"},"capabilities":{"resumability":"X"}}"#,
                "unknown variant `X`",
            ),
            (r#"{"remote":{"address":1}}"#, "line 1"),
            ("nonsense", "line 1"),
        ] {
            let error = spec_from_json("f", json.as_bytes()).unwrap_err();
            assert!(error.message.contains(says), "{json}: {}", error.message);
            assert!(error.message.starts_with("--spec f: "), "{}", error.message);
        }
    }
}
