//! What callers may do.
//!
//! - [`OwnerPolicy`]: a caller may do everything that is done to a session, to
//!   the sessions that it owns, and nothing else.
//! - [`OwnerAllowlistPolicy`]: that, and what a list allows it by name.
//! - `CedarPolicy`, with the feature `cedar`: what a file of policies says.
//!
//! Identities are compared byte for byte, and one of which a part is empty is
//! nobody's. What a policy does not know it denies.
//!
//! ```
//! use mainspring_api::{Action, CallerIdentity};
//! use mainspring_authz::{Allowlist, OwnerAllowlistPolicy};
//!
//! let alice =
//!     CallerIdentity { issuer: "https://id.example".into(), subject: "alice".into() };
//! let allowlist = Allowlist::default().allow(Action::Create, alice);
//! let policy = OwnerAllowlistPolicy::new(allowlist);
//! # drop(policy);
//! ```

#[cfg(feature = "cedar")]
mod cedar;
mod owner;

#[cfg(feature = "cedar")]
pub use cedar::{CedarError, CedarPolicy, POLICIES_BYTES_MAX, SCHEMA};
pub use owner::{Allowlist, LISTED_ACTIONS, OwnerAllowlistPolicy, OwnerPolicy};
