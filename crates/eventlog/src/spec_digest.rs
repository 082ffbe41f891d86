//! The digest of a registered harness's spec.

use mainspring_api::{Capabilities, HarnessSpec, Hash, Json, JsonObject, Placement, Resumability};
use sha2::{Digest as _, Sha256};

use crate::canonical::json_text;

/// The canonical bytes of a spec: what is stored, and what the digest covers.
#[must_use]
pub fn spec_bytes(spec: &HarnessSpec) -> Vec<u8> {
    let mut members = JsonObject::new();
    if let Some(capabilities) = &spec.capabilities {
        members.insert("capabilities".to_owned(), Json::Object(capabilities_json(capabilities)));
    }
    put_text(&mut members, "descriptor_id", &spec.descriptor_id);
    let placement = match &spec.placement {
        None => None,
        Some(Placement::Remote { address }) => Some(("remote", vec![("address", address)])),
        Some(Placement::Substrate { atespace, template }) => {
            Some(("substrate", vec![("atespace", atespace), ("template", template)]))
        }
        Some(_) => None,
    };
    if let Some((name, texts)) = placement {
        let mut inner = JsonObject::new();
        texts.into_iter().for_each(|(key, value)| put_text(&mut inner, key, value));
        members.insert(name.to_owned(), Json::Object(inner));
    }
    json_text(&Json::Object(members)).expect("a spec holds no numbers").into_bytes()
}

/// `sha256:` and the digest of [`spec_bytes`] in hex.
#[must_use]
pub fn spec_digest(spec: &HarnessSpec) -> String {
    format!("sha256:{}", Hash::new(Sha256::digest(spec_bytes(spec)).into()))
}

fn capabilities_json(capabilities: &Capabilities) -> JsonObject {
    let mut members = JsonObject::new();
    let resumability = match capabilities.resumability {
        Resumability::StatelessReplay => "RESUMABILITY_STATELESS_REPLAY",
        Resumability::RequiresMemorySnapshot => "RESUMABILITY_REQUIRES_MEMORY_SNAPSHOT",
    };
    put_text(&mut members, "resumability", resumability);
    for (key, value) in [
        ("fork_safe", capabilities.fork_safe),
        ("requires_gpu", capabilities.requires_gpu),
        ("streaming", capabilities.streaming),
        ("reasoning_replay", capabilities.reasoning_replay),
    ] {
        if value {
            members.insert(key.to_owned(), Json::Bool(true));
        }
    }
    members
}

fn put_text(members: &mut JsonObject, key: &str, value: &str) {
    if !value.is_empty() {
        members.insert(key.to_owned(), Json::String(value.to_owned()));
    }
}
