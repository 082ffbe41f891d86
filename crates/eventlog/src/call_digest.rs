//! The digest of a tool call, by which a decision names what it was shown.

use mainspring_api::{Hash, ToolCall};
use sha2::{Digest as _, Sha256};

use crate::canonical::{CanonicalError, tool_call_bytes};

/// `sha256:` and the digest of the call's canonical form in hex.
///
/// # Errors
/// [`CanonicalError`] when its arguments have no canonical form.
pub fn tool_call_digest(call: &ToolCall) -> Result<String, CanonicalError> {
    Ok(format!("sha256:{}", Hash::new(Sha256::digest(tool_call_bytes(call)?).into())))
}
