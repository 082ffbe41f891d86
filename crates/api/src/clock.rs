//! Injected time and randomness.

use std::fmt;
use std::time::{Duration, UNIX_EPOCH};

/// A point in time with nanoseconds, in the range of RFC 3339 (years 1 to 9999).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// Whole seconds since 1970-01-01T00:00:00Z; negative before.
    pub seconds: i64,
    /// Nanoseconds after `seconds`, below 1,000,000,000.
    pub nanos: u32,
}

impl Timestamp {
    /// The first second that RFC 3339 can name.
    pub const SECONDS_MIN: i64 = -62_135_596_800;
    /// The last second that RFC 3339 can name.
    pub const SECONDS_MAX: i64 = 253_402_300_799;

    /// From nanoseconds since the epoch.
    #[must_use]
    pub fn from_unix_nanos(nanos: i64) -> Self {
        Self {
            seconds: nanos.div_euclid(1_000_000_000),
            nanos: u32::try_from(nanos.rem_euclid(1_000_000_000)).unwrap_or(0),
        }
    }

    /// Nanoseconds since the epoch, saturating at the ends of `i64`.
    #[must_use]
    pub fn unix_nanos(self) -> i64 {
        self.seconds.saturating_mul(1_000_000_000).saturating_add(i64::from(self.nanos))
    }

    /// Whether RFC 3339 can name it.
    #[must_use]
    pub fn is_valid(self) -> bool {
        (Self::SECONDS_MIN..=Self::SECONDS_MAX).contains(&self.seconds)
            && self.nanos < 1_000_000_000
    }
}

/// The wall clock.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Now.
    fn now(&self) -> Timestamp;
}

/// The clock of the machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads it")]
    fn now(&self) -> Timestamp {
        let since = std::time::SystemTime::now().duration_since(UNIX_EPOCH);
        let since = since.unwrap_or(Duration::ZERO);
        Timestamp {
            seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
            nanos: since.subsec_nanos(),
        }
    }
}

/// A source of random bytes.
pub trait Entropy: fmt::Debug + Send + Sync + 'static {
    /// Fills `out`.
    fn fill(&self, out: &mut [u8]);
}

/// The operating system's random source.
#[derive(Debug, Clone, Copy, Default)]
pub struct OsEntropy;

impl Entropy for OsEntropy {
    fn fill(&self, out: &mut [u8]) {
        getrandom::fill(out)
            .expect("the operating system's random source never fails once it is up");
    }
}
