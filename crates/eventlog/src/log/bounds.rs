//! What a session's metadata may be: checked before anything of a request is
//! queued, so that no request reaches an engine with a key that it refuses.

use std::collections::BTreeMap;

use mainspring_api::Owner;

use super::{ListQuery, NewSession, RowPatch};
use crate::error::LogError;

/// Bytes of a project's name: it stands in keys.
pub const PROJECT_BYTES_MAX: usize = 256;

/// Bytes of an owner_issuer, of its subject, and of a session's name, harness
/// and model, each.
pub const SESSION_NAME_BYTES_MAX: usize = 1_024;

/// Bytes of all of a session's metadata together.
pub const SESSION_METADATA_BYTES_MAX: usize = 64 << 10;

/// Bytes of rows after which a page of a list ends.
pub const LIST_PAGE_BYTES_MAX: usize = 4 << 20;

impl NewSession {
    /// Bytes of its metadata: names, labels, annotations, origin, identity and owner.
    #[must_use]
    pub fn metadata_bytes(&self) -> usize {
        let names = [&self.project, &self.name, &self.harness, &self.model];
        let owner = self.owner.as_ref().map_or(0, |o| o.issuer.len() + o.subject.len());
        let parts = self.unbounded_parts().map(|(bytes, _)| bytes);
        names.map(String::len).iter().sum::<usize>() + owner + parts.iter().sum::<usize>()
    }

    /// The parts without a bound of their own, each as the largest is named.
    fn unbounded_parts(&self) -> [(usize, &'static str); 4] {
        let origin = self.origin.as_ref().map_or(0, |o| {
            o.source.len() + o.subject.len() + o.uri.len() + map_bytes(&o.attributes)
        });
        let identity = self.identity.as_ref();
        let identity = identity.map_or(0, |i| i.principal.len() + i.issuer.len() + i.subject.len());
        [
            (map_bytes(&self.labels), "session metadata (mostly labels)"),
            (map_bytes(&self.annotations), "session metadata (mostly annotations)"),
            (origin, "session metadata (mostly origin)"),
            (identity, "session metadata (mostly identity)"),
        ]
    }

    /// Refuses what no store takes.
    ///
    /// # Errors
    /// `TooLarge`, naming the field and its bound; `Invalid` for a project that
    /// is empty.
    pub fn check(&self) -> Result<(), LogError> {
        if self.project.is_empty() {
            return Err(LogError::Invalid("a session has no project"));
        }
        project(&self.project)?;
        within("name", &self.name)?;
        within("harness", &self.harness)?;
        within("model", &self.model)?;
        self.owner.as_ref().map_or(Ok(()), owner)?;
        let largest = self.unbounded_parts().into_iter().max().map_or("", |(_, what)| what);
        at_most(largest, self.metadata_bytes(), SESSION_METADATA_BYTES_MAX)
    }
}

impl RowPatch {
    /// Refuses what no row takes, whatever it holds.
    pub(crate) fn check(&self) -> Result<(), LogError> {
        self.name.as_ref().map_or(Ok(()), |name| within("name", name))?;
        self.owner.as_ref().map_or(Ok(()), owner)
    }

    /// A session's metadata with these changes.
    ///
    /// # Errors
    /// `Invalid` when it has an owner already; as [`NewSession::check`].
    pub fn applied_to(&self, session: &NewSession) -> Result<NewSession, LogError> {
        if self.owner.is_some() && session.owner.is_some() {
            return Err(LogError::Invalid("the session has an owner already"));
        }
        let mut changed = session.clone();
        let Self { name, labels, annotations, owner } = self;
        if let Some(name) = name {
            changed.name.clone_from(name);
        }
        if let Some(labels) = labels {
            changed.labels.clone_from(labels);
        }
        if let Some(annotations) = annotations {
            changed.annotations.clone_from(annotations);
        }
        if owner.is_some() {
            changed.owner.clone_from(owner);
        }
        // What an older version took may still be given to an owner.
        if name.is_some() || labels.is_some() || annotations.is_some() {
            changed.check()?;
        }
        Ok(changed)
    }
}

impl ListQuery {
    /// Refuses a query that no row can answer.
    ///
    /// # Errors
    /// As [`NewSession::check`].
    pub fn check(&self) -> Result<(), LogError> {
        project(&self.project)?;
        within("harness", &self.harness)?;
        self.owner.as_ref().map_or(Ok(()), owner)?;
        at_most("labels", map_bytes(&self.labels), SESSION_METADATA_BYTES_MAX)
    }
}

fn project(project: &str) -> Result<(), LogError> {
    at_most("project", project.len(), PROJECT_BYTES_MAX)
}

fn owner(owner: &Owner) -> Result<(), LogError> {
    within("owner_issuer", &owner.issuer)?;
    within("owner_subject", &owner.subject)
}

fn within(what: &'static str, text: &str) -> Result<(), LogError> {
    at_most(what, text.len(), SESSION_NAME_BYTES_MAX)
}

fn at_most(what: &'static str, bytes: usize, bytes_max: usize) -> Result<(), LogError> {
    if bytes <= bytes_max {
        return Ok(());
    }
    Err(LogError::TooLarge { what, bytes: bytes as u64, bytes_max: bytes_max as u64 })
}

fn map_bytes(map: &BTreeMap<String, String>) -> usize {
    map.iter().map(|(key, value)| key.len() + value.len()).sum()
}
