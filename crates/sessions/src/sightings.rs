//! Which hosts were seen, and when one may be taken for dead.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use mainspring_eventlog::{Liveness, LogError};
use tokio::time::Instant;

/// How long a host is waited for that this one has never seen alive, or not
/// since it was itself cut off: what it gave may not have come here yet.
const GRACE: Duration = Duration::from_secs(3);

/// Hosts that are remembered.
const HOLDERS_MAX: usize = 4_096;

/// What is to be thought of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Alive,
    /// It gives no sign of life, and did, or was waited for.
    Dead,
    /// It cannot be told yet.
    Unknown,
}

#[derive(Debug)]
struct Sighting {
    /// Since when it is waited for.
    since: Instant,
    /// Whether it gave a sign of life since then.
    seen: bool,
    /// What the last round found.
    verdict: Verdict,
}

/// The hosts that hold open turns, as this one knows them.
#[derive(Debug, Default)]
pub(crate) struct Sightings {
    holders: HashMap<String, Sighting>,
    /// Whether this host's own signs of life come back to it: one that does not
    /// hear itself does not hear the others either.
    hears: bool,
}

impl Sightings {
    /// Asks after every known host. Whether one has died since the last round.
    pub(crate) async fn ask(
        &mut self,
        liveness: &dyn Liveness,
        own: &str,
        now: Instant,
    ) -> Result<bool, LogError> {
        let hears = liveness.is_alive(own).await;
        self.hears = matches!(hears, Ok(true));
        if !self.hears {
            self.wait_again(now);
        }
        hears?;
        let mut has_died = false;
        for (holder, sighting) in &mut self.holders {
            let is_alive = liveness.is_alive(holder).await?;
            has_died |= sighting.judge(is_alive, self.hears, now);
        }
        Ok(has_died)
    }

    /// Waits for every host anew: this one was cut off.
    pub(crate) fn wait_again(&mut self, now: Instant) {
        for sighting in self.holders.values_mut() {
            *sighting = Sighting { since: now, seen: false, verdict: Verdict::Unknown };
        }
    }

    /// What is to be thought of a host, which is asked after from now on.
    pub(crate) async fn verdict(
        &mut self,
        liveness: &dyn Liveness,
        holder: &str,
        now: Instant,
    ) -> Result<Verdict, LogError> {
        if let Some(known) = self.holders.get(holder) {
            return Ok(known.verdict);
        }
        if self.holders.len() >= HOLDERS_MAX
            && let Some(forgotten) = self.holders.keys().next().cloned()
        {
            self.holders.remove(&forgotten);
        }
        let mut sighting = Sighting { since: now, seen: false, verdict: Verdict::Unknown };
        sighting.judge(liveness.is_alive(holder).await?, self.hears, now);
        let verdict = sighting.verdict;
        self.holders.insert(holder.to_owned(), sighting);
        Ok(verdict)
    }

    /// Forgets the dead that hold none of what is open any more.
    pub(crate) fn keep(&mut self, holders: &HashSet<String>) {
        self.holders.retain(|id, known| known.verdict == Verdict::Alive || holders.contains(id));
    }
}

impl Sighting {
    /// Whether it is dead, and was not at the last round.
    fn judge(&mut self, is_alive: bool, hears: bool, now: Instant) -> bool {
        let before = self.verdict;
        self.seen |= is_alive;
        self.verdict = match is_alive {
            true => Verdict::Alive,
            false if hears && (self.seen || now - self.since >= GRACE) => Verdict::Dead,
            false => Verdict::Unknown,
        };
        self.verdict == Verdict::Dead && before != Verdict::Dead
    }
}
