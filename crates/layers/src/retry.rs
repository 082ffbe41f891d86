//! When to try again, and when to give up.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use mainspring_api::{Classify as _, Condition, Entropy, OsEntropy, Outcome, SessionsError};
use tokio::time::Instant;

/// How long a stream may be without a connection before its last error is
/// passed on.
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
        /// Which attempt since the stream last went on; the first is 1. A
        /// connection that is lost again at once does not count.
        attempt: u32,
    },
    /// There is a connection again, whether or not something new has come yet.
    Reconnected,
}

/// Is told of lost connections. It is called from inside the stream, and must not block.
pub type OnNotice = Arc<dyn Fn(Notice) + Send + Sync>;

/// How a lost connection is dealt with.
#[derive(Clone)]
#[non_exhaustive]
pub struct ReconnectOptions {
    /// How long a stream may be without a connection before its last error is
    /// passed on. While there is one, nothing new need come; connections that
    /// bring nothing new and are lost again add up to one time without. Default
    /// [`RECONNECT_MAX`], 5 min.
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

/// The attempts of one stream since it last went on.
#[derive(Debug)]
pub(crate) struct Retry {
    options: Arc<ReconnectOptions>,
    attempt: u32,
    /// Since when nothing new has come, but for the time with a connection.
    since: Option<Instant>,
    /// Since when there is a connection that has brought nothing new.
    connected: Option<Instant>,
    /// Whether the last thing told was a loss.
    is_away: bool,
    /// Whether credentials ran out since something new came.
    ran_out: bool,
}

impl Retry {
    pub(crate) fn new(options: Arc<ReconnectOptions>) -> Self {
        Self { options, attempt: 0, since: None, connected: None, is_away: false, ran_out: false }
    }

    /// Something new came.
    pub(crate) fn progress(&mut self) {
        self.is_back();
        self.attempt = 0;
        self.since = None;
        self.connected = None;
        self.ran_out = false;
    }

    /// Whether a stream that ended with this error goes on: it is lost, or its
    /// credentials ran out, which may have been renewed where they come from.
    /// That is tried once until something new comes.
    pub(crate) fn goes_on(&mut self, error: &SessionsError) -> bool {
        let ran_out = error.condition() == Condition::Unauthenticated;
        is_lost(error) || (ran_out && !std::mem::replace(&mut self.ran_out, true))
    }

    /// The server has answered. From here on there is a connection, until
    /// [`wait`](Self::wait) is called.
    pub(crate) fn connected(&mut self) {
        self.is_back();
        self.connected.get_or_insert_with(Instant::now);
    }

    /// Waits before the next attempt.
    ///
    /// # Errors
    /// `error` itself once there was no connection for too long.
    pub(crate) async fn wait(&mut self, error: SessionsError) -> Result<(), SessionsError> {
        let now = Instant::now();
        if let Some(connected) = self.connected.take()
            && let Some(since) = &mut self.since
        {
            let held = now.duration_since(connected);
            *since += held;
            if held >= DELAY_MAX {
                self.attempt = 0;
            }
        }
        let since = *self.since.get_or_insert(now);
        let spent = now.duration_since(since);
        let left = self.options.reconnect_max.saturating_sub(spent);
        if left.is_zero() {
            return Err(error);
        }
        self.attempt = self.attempt.saturating_add(1);
        self.is_away = true;
        self.tell(Notice::Reconnecting { attempt: self.attempt });
        tokio::time::sleep(self.delay().min(left)).await;
        Ok(())
    }

    fn is_back(&mut self) {
        if std::mem::take(&mut self.is_away) {
            self.tell(Notice::Reconnected);
        }
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
    async fn without_a_connection_the_last_error_is_passed_on() {
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

    #[tokio::test(start_paused = true)]
    async fn the_time_with_a_connection_does_not_count() {
        let mut retry = Retry::new(Arc::new(ReconnectOptions::default()));
        for _ in 0..100 {
            retry.wait(cut()).await.unwrap();
            retry.connected();
            tokio::time::sleep(RECONNECT_MAX).await;
            assert_eq!(retry.attempt, 1, "such a connection has held");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn connections_that_do_not_hold_are_no_end_of_the_search() {
        let mut retry = Retry::new(Arc::new(ReconnectOptions::default()));
        let mut connections = 0;
        while retry.wait(cut()).await.is_ok() {
            retry.connected();
            connections += 1;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        // Those at the longest pause, and a few before it.
        assert!((30..80).contains(&connections), "{connections}");
    }
}
