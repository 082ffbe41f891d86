//! How far the opening of a store is that was not closed cleanly.

use std::fmt;
use std::sync::Arc;

/// A store that is being recovered.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Recovering {
    /// What is done of it, from 0 to 1.
    pub fraction: f64,
}

/// Told as a store recovers, from the thread that opens it. A store that was
/// closed cleanly tells nothing.
#[derive(Clone)]
pub struct OpenProgress(Arc<dyn Fn(Recovering) + Send + Sync>);

impl OpenProgress {
    /// Tells `watch`.
    pub fn new(watch: impl Fn(Recovering) + Send + Sync + 'static) -> Self {
        Self(Arc::new(watch))
    }

    /// Tells nobody.
    #[must_use]
    pub fn ignored() -> Self {
        Self::new(|_| {})
    }

    /// The store has come this far.
    pub fn tell(&self, recovering: Recovering) {
        (self.0)(recovering);
    }

    /// As `self`, for a step that begins when `from` of the whole is done and
    /// ends at `to`.
    #[must_use]
    pub fn part(&self, from: f64, to: f64) -> Self {
        let whole = self.clone();
        Self::new(move |Recovering { fraction }| {
            whole.tell(Recovering { fraction: from + fraction * (to - from) });
        })
    }
}

impl fmt::Debug for OpenProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OpenProgress").finish()
    }
}
