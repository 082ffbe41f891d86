//! The reference harnesses by kind.

use std::sync::Arc;

use mainspring_api::Harness;

use crate::chat::Chat;
use crate::counter::Counter;
use crate::echo::Echo;
use crate::gate::Gate;

/// The kinds that [`reference()`] knows.
pub const REFERENCE_KINDS: [&str; 4] = [Echo::ID, Chat::ID, Counter::ID, Gate::ID];

/// A fresh reference harness of `kind`, for hosts that let a user name one.
///
/// `model` is what `chat` and `gate` ask for; empty leaves the choice to the host.
#[must_use]
pub fn reference(kind: &str, model: &str) -> Option<Arc<dyn Harness>> {
    match kind {
        Echo::ID => Some(Arc::new(Echo)),
        Chat::ID => Some(Arc::new(Chat::with_model(model))),
        Counter::ID => Some(Arc::new(Counter::new())),
        Gate::ID => Some(Arc::new(Gate::with_model(model))),
        _ => None,
    }
}
