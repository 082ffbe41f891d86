//! What a host and a harness agree on beyond `agentsessions.v1`.
//!
//! A harness announces what it can do in the initial metadata of its Describe
//! answer. A host names what it uses of that in the request metadata of
//! Connect. Nothing can be negotiated inside Connect: many gRPC servers send
//! their headers only with their first message.

use mainspring_wire::v1;
use prost::Message as _;
use sha2::{Digest as _, Sha256};
use tonic::metadata::MetadataMap;

use crate::metadata::{DESCRIPTOR_DIGEST, HARNESS_EXTENSIONS};

/// The extensions of the Harness service that one side offers.
///
/// A harness announces them, a host uses those that are announced; with none
/// in common the plain contract holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct HarnessExtensions {
    /// `history-range`: the start carries only the length of the history, and
    /// the harness reads what it needs of it in pages.
    pub history_range: bool,
    /// `failure-replies`: a failed model or tool call is answered, so that the
    /// harness can handle it, as in process. Without it, it ends the turn.
    pub failure_replies: bool,
    /// `descriptor-digest`: the harness that runs a turn shows that it is the
    /// one that was described.
    pub descriptor_digest: bool,
}

type Field = fn(&mut HarnessExtensions) -> &mut bool;

/// Names as they travel.
const NAMES: [(&str, Field); 3] = [
    ("history-range", |extensions| &mut extensions.history_range),
    ("failure-replies", |extensions| &mut extensions.failure_replies),
    ("descriptor-digest", |extensions| &mut extensions.descriptor_digest),
];

impl Default for HarnessExtensions {
    fn default() -> Self {
        Self::ALL
    }
}

impl HarnessExtensions {
    /// All of them.
    pub const ALL: Self =
        Self { history_range: true, failure_replies: true, descriptor_digest: true };

    /// The plain contract.
    pub const NONE: Self =
        Self { history_range: false, failure_replies: false, descriptor_digest: false };

    fn has(mut self, field: Field) -> bool {
        *field(&mut self)
    }

    /// What both have.
    pub(crate) fn and(self, other: Self) -> Self {
        let mut both = Self::NONE;
        for (_, field) in NAMES {
            *field(&mut both) = self.has(field) && other.has(field);
        }
        both
    }

    /// What a Describe answer announces. Names of newer peers are left out.
    pub(crate) fn announced(metadata: &MetadataMap) -> Self {
        let mut announced = Self::NONE;
        for name in named(metadata).into_iter().flatten() {
            if let Some((_, field)) = NAMES.iter().find(|(known, _)| *known == name) {
                *field(&mut announced) = true;
            }
        }
        announced
    }

    /// What a call asks for, of that which is `offered`; or the name of
    /// something else.
    pub(crate) fn asked_for(metadata: &MetadataMap, offered: Self) -> Result<Self, String> {
        let mut asked = Self::NONE;
        for name in named(metadata) {
            let name = name.ok_or_else(|| "a name that is not ascii".to_owned())?;
            match NAMES.iter().find(|(known, field)| *known == name && offered.has(*field)) {
                Some((_, field)) => *field(&mut asked) = true,
                None => return Err(name.to_owned()),
            }
        }
        Ok(asked)
    }

    /// Puts the names on a call or an answer, in place of whatever is there.
    pub(crate) fn write(self, metadata: &mut MetadataMap) {
        metadata.remove(HARNESS_EXTENSIONS);
        let names: Vec<_> =
            NAMES.iter().filter(|(_, field)| self.has(*field)).map(|(name, _)| *name).collect();
        if names.is_empty() {
            return;
        }
        let value = names.join(",").parse().expect("the names are ascii");
        metadata.insert(HARNESS_EXTENSIONS, value);
    }
}

/// The names in a list; `None` for a value that is no text.
fn named(metadata: &MetadataMap) -> Vec<Option<&str>> {
    let mut all = Vec::new();
    for value in metadata.get_all(HARNESS_EXTENSIONS) {
        match value.to_str() {
            Ok(text) => {
                let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
                all.extend(names.map(Some));
            }
            Err(_) => all.push(None),
        }
    }
    all
}

/// What a host has learnt of the harness on its connection.
#[derive(Debug, Clone)]
pub(crate) struct Agreement {
    /// What the turns of this connection use.
    pub(crate) extensions: HarnessExtensions,
    /// Digest of the descriptor that was answered.
    digest: String,
}

impl Agreement {
    /// The plain contract: what holds before the harness was asked.
    pub(crate) const fn plain() -> Self {
        Self { extensions: HarnessExtensions::NONE, digest: String::new() }
    }

    pub(crate) fn of(extensions: HarnessExtensions, descriptor: &v1::HarnessDescriptor) -> Self {
        Self { extensions, digest: digest(descriptor) }
    }

    /// Checks the headers of a Connect answer, if that was agreed.
    pub(crate) fn check(&self, metadata: &MetadataMap) -> Result<(), &'static str> {
        if !self.extensions.descriptor_digest {
            return Ok(());
        }
        match metadata.get(DESCRIPTOR_DIGEST) {
            Some(value) if value.as_bytes() == self.digest.as_bytes() => Ok(()),
            Some(_) => Err("the harness that took the turn has another descriptor digest"),
            None => Err("the harness that took the turn shows no descriptor digest"),
        }
    }
}

/// The digest of a descriptor, over its protobuf form: fields in order, and
/// maps in order too, so that equal descriptors have equal digests.
pub(crate) fn digest(descriptor: &v1::HarnessDescriptor) -> String {
    let digest = Sha256::digest(descriptor.encode_to_vec());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Shows `digest` on the answer to a Connect.
pub(crate) fn show(digest: &str, metadata: &mut MetadataMap) {
    metadata.insert(DESCRIPTOR_DIGEST, digest.parse().expect("hex is ascii"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(values: &[&str]) -> MetadataMap {
        let mut metadata = MetadataMap::new();
        for value in values {
            metadata.append(HARNESS_EXTENSIONS, value.parse().unwrap());
        }
        metadata
    }

    #[test]
    fn lists_are_read_as_they_are_written() {
        let mut written = metadata(&["stale"]);
        HarnessExtensions::ALL.write(&mut written);
        let value = written.get(HARNESS_EXTENSIONS).unwrap();
        assert_eq!(value, "history-range,failure-replies,descriptor-digest");
        assert_eq!(HarnessExtensions::announced(&written), HarnessExtensions::ALL);
        HarnessExtensions::NONE.write(&mut written);
        assert!(written.is_empty());

        let some = HarnessExtensions { failure_replies: false, ..HarnessExtensions::ALL };
        for values in [
            &["history-range,descriptor-digest"][..],
            &[" descriptor-digest , history-range,, "],
            &["history-range", "descriptor-digest", "history-range"],
        ] {
            assert_eq!(HarnessExtensions::announced(&metadata(values)), some);
            let asked = HarnessExtensions::asked_for(&metadata(values), HarnessExtensions::ALL);
            assert_eq!(asked, Ok(some));
        }
    }

    #[test]
    fn unknown_names_are_ignored_when_announced_and_refused_when_asked_for() {
        let newer = metadata(&["time-travel,history-range"]);
        let range = HarnessExtensions { history_range: true, ..HarnessExtensions::NONE };
        assert_eq!(HarnessExtensions::announced(&newer), range);
        let asked = HarnessExtensions::asked_for(&newer, HarnessExtensions::ALL);
        assert_eq!(asked, Err("time-travel".to_owned()));
        let ours = metadata(&["history-range"]);
        let asked = HarnessExtensions::asked_for(&ours, HarnessExtensions::NONE);
        assert_eq!(asked, Err("history-range".to_owned()));
    }

    #[test]
    fn the_digest_is_of_the_protobuf_form() {
        let descriptor = v1::HarnessDescriptor { id: "echo".to_owned(), ..Default::default() };
        let again = v1::HarnessDescriptor::decode(&b"\x0a\x04echo"[..]).unwrap();
        assert_eq!(digest(&descriptor), digest(&again));
        // printf '\n\004echo' | sha256sum
        assert_eq!(
            digest(&descriptor),
            "3c658ee869ad26cd24f32685bee043862f9554215f3a58fef76af6660f87d3a7"
        );
    }
}
