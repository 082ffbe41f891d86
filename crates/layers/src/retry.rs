//! When to try again, and when to give up.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use mainspring_api::{Classify as _, Condition, Entropy, OsEntropy, Outcome, SessionsError};
use tokio::time::Instant;

/// How long a stream may make no progress before its last error is passed on.
pub const RECONNECT_MAX: Duration = Duration::from_secs(300);

/// The pause before the first new attempt.
const DELAY_MIN: Duration = Duration::from_millis(100);

/// The longest pause between two attempts.
const DELAY_MAX: Duration = Duration::from_secs(10);

/// What a person who watches a stream may want to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// The connection is lost, and is tried again.
    Reconnecting {
        /// Which attempt since the last progress; the first is 1.
        attempt: u32,
    },
    /// The stream goes on.
    Reconnected,
}

/// Is told of lost connections. It is called from inside the stream, and must not block.
pub type OnNotice = Arc<dyn Fn(Notice) + Send + Sync>;

/// How a lost connection is dealt with.
#[derive(Clone)]
#[non_exhaustive]
pub struct ReconnectOptions {
    /// How long a stream may make no progress before its last error is passed
    /// on. Default [`RECONNECT_MAX`], 5 min.
    pub reconnect_max: Duration,
    /// How long a followed stream may be silent, heartbeats included, before it
    /// counts as lost; `None` leaves that to the transport. Default `None`.
    pub silence_max: Option<Duration>,
    /// Where ids and the jitter of pauses come from.
    pub entropy: Arc<dyn Entropy>,
    /// Is told of lost connections.
    pub on_notice: Option<OnNotice>,
}

impl Default for ReconnectOptions {
    fn default() -> Self {
        Self {
            reconnect_max: RECONNECT_MAX,
            silence_max: None,
            entropy: Arc::new(OsEntropy),
            on_notice: None,
        }
    }
}

impl fmt::Debug for ReconnectOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReconnectOptions")
            .field("reconnect_max", &self.reconnect_max)
            .field("silence_max", &self.silence_max)
            .finish_non_exhaustive()
    }
}

/// Whether an error says that the connection, or the host behind it, went away
/// while what was asked for may still go on.
pub(crate) fn is_lost(error: &SessionsError) -> bool {
    error.outcome() == Outcome::Unknown
        || matches!(
            error.condition(),
            Condition::Unavailable
                | Condition::Draining
                | Condition::StoreRecovering
                | Condition::Interrupted
                | Condition::OutcomeUnknown
        )
}

/// Whether an error says that the session is still in other hands, as after a
/// loss that the server has not noticed yet.
pub(crate) fn is_held(error: &SessionsError) -> bool {
    matches!(error.condition(), Condition::TurnStarting | Condition::SessionBusy)
}

/// A stream that ended without a word.
pub(crate) fn cut() -> SessionsError {
    SessionsError::new(Condition::Unavailable, "the stream ended early")
}

/// The attempts of one stream since it last made progress.
#[derive(Debug)]
pub(crate) struct Retry {
    options: Arc<ReconnectOptions>,
    attempt: u32,
    /// Since when there is no progress.
    since: Option<Instant>,
    /// Whether credentials ran out since then.
    ran_out: bool,
}

impl Retry {
    pub(crate) fn new(options: Arc<ReconnectOptions>) -> Self {
        Self { options, attempt: 0, since: None, ran_out: false }
    }

    /// Something new came.
    pub(crate) fn progress(&mut self) {
        if std::mem::take(&mut self.attempt) > 0 {
            self.tell(Notice::Reconnected);
        }
        self.since = None;
        self.ran_out = false;
    }

    /// Whether a stream that ended with this error goes on: it is lost, or its
    /// credentials ran out, which may have been renewed where they come from.
    /// That is tried once until something new comes.
    pub(crate) fn goes_on(&mut self, error: &SessionsError) -> bool {
        let ran_out = error.condition() == Condition::Unauthenticated;
        is_lost(error) || (ran_out && !std::mem::replace(&mut self.ran_out, true))
    }

    /// Waits before the next attempt.
    ///
    /// # Errors
    /// `error` itself once there was no progress for too long.
    pub(crate) async fn wait(&mut self, error: SessionsError) -> Result<(), SessionsError> {
        let now = Instant::now();
        let since = *self.since.get_or_insert(now);
        let spent = now.duration_since(since);
        let left = self.options.reconnect_max.saturating_sub(spent);
        if left.is_zero() {
            return Err(error);
        }
        self.attempt = self.attempt.saturating_add(1);
        self.tell(Notice::Reconnecting { attempt: self.attempt });
        tokio::time::sleep(self.delay().min(left)).await;
        Ok(())
    }

    /// Doubled with each attempt, and of that a random part of at least a half:
    /// clients that lost one server do not come back all at once.
    fn delay(&self) -> Duration {
        let doubled = DELAY_MIN.saturating_mul(1 << (self.attempt - 1).min(16)).min(DELAY_MAX);
        let mut random = [0u8; 4];
        self.options.entropy.fill(&mut random);
        let part = f64::from(u32::from_le_bytes(random)) / f64::from(u32::MAX);
        doubled.mul_f64(0.5 + part / 2.0)
    }

    fn tell(&self, notice: Notice) {
        if let Some(on_notice) = &self.options.on_notice {
            on_notice(notice);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Fixed(u8);

    impl Entropy for Fixed {
        fn fill(&self, out: &mut [u8]) {
            out.fill(self.0);
        }
    }

    fn delays(byte: u8) -> Vec<u128> {
        let entropy: Arc<dyn Entropy> = Arc::new(Fixed(byte));
        let options = ReconnectOptions { entropy, ..ReconnectOptions::default() };
        let mut retry = Retry::new(Arc::new(options));
        (1..=10)
            .map(|attempt| {
                retry.attempt = attempt;
                retry.delay().as_millis()
            })
            .collect()
    }

    #[test]
    fn pauses_double_up_to_a_bound_and_vary_by_a_half() {
        let most = [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000, 10_000];
        assert_eq!(delays(0xff), most);
        assert_eq!(delays(0), most.map(|most| most / 2));
    }

    #[tokio::test(start_paused = true)]
    async fn without_progress_the_last_error_is_passed_on() {
        let mut retry = Retry::new(Arc::new(ReconnectOptions::default()));
        let begun = Instant::now();
        let error = loop {
            if let Err(error) = retry.wait(cut()).await {
                break error;
            }
        };
        assert_eq!(error.condition(), Condition::Unavailable);
        assert_eq!(begun.elapsed().as_secs(), RECONNECT_MAX.as_secs());
        retry.progress();
        retry.wait(cut()).await.unwrap();
    }
}
