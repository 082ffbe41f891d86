//! One partition's fold.

use std::collections::VecDeque;
use std::time::Duration;

use mainspring_eventlog::EngineError;

use crate::error::Halt;
use crate::frame::{Frame, Genesis, RULES_LEVEL, Statement};
use crate::judge::{FoldDigest, Place, Verdict, Void, judge};
use crate::lane::Lanes;
use crate::mark::Mark;
use crate::progress::Progress;
use crate::states::Cache;

/// Messages between two digests in the log.
const DIGEST_EVERY: u64 = 4_096;
/// Digests that are remembered, to compare with what others state.
const DIGESTS_MAX: usize = 1_024;
/// Pause before the view is asked again.
const AGAIN: Duration = Duration::from_millis(100);

/// One partition's fold.
pub(super) struct Partition {
    pub(super) place: Place,
    pub(super) mark: Mark,
    pub(super) cache: Cache,
    digests: VecDeque<(u64, FoldDigest)>,
    /// Messages since the last digest in the log.
    undigested: u64,
}

/// Why a message is not folded.
pub(super) enum Stop {
    Halt(Halt),
    Disagrees,
}

impl Partition {
    pub(super) fn new(place: Place, mark: Mark, cache: Cache) -> Self {
        Self { place, mark, cache, digests: VecDeque::new(), undigested: 0 }
    }

    /// Whether this host can go on with a message that states this.
    pub(super) fn check(&self, offset: u64, statement: &Statement) -> Result<(), Stop> {
        let partition = self.place.partition;
        match statement {
            Statement::Activate { level } | Statement::Genesis(Genesis { level, .. })
                if *level > RULES_LEVEL =>
            {
                let (level, known) = (*level, RULES_LEVEL);
                Err(Stop::Halt(Halt::RulesUnknown { partition, offset, level, known }))
            }
            Statement::Digest { offset: of, digest } => {
                let known = self.digests.iter().rev().find(|(known, _)| known == of);
                match known {
                    Some((_, known)) if known.0 != *digest => Err(Stop::Disagrees),
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// What becomes of an entry; `None` when the store is closed first.
    pub(super) fn judge(
        &mut self,
        progress: &Progress,
        run: u64,
        offset: u64,
        statement: &Statement,
    ) -> Option<Verdict> {
        match statement {
            Statement::Op(terms) => {
                settle(progress, run, || judge(&mut self.cache, self.place, terms))
            }
            Statement::Genesis(_) if offset > 0 => Some(Err(Void::Misplaced)),
            Statement::Digest { .. } => {
                self.undigested = 0;
                Some(Ok(()))
            }
            Statement::Genesis(_)
            | Statement::Activate { .. }
            | Statement::Barrier
            | Statement::VoidDigest { .. } => Some(Ok(())),
        }
    }

    /// Moves beyond a message that was judged.
    pub(super) fn advance(
        &mut self,
        offset: u64,
        bytes: usize,
        frame: Option<&Frame>,
        verdicts: &[Verdict],
    ) {
        let void = [(&[][..], Err(Void::Frame))];
        self.mark.digest = match frame {
            None => self.mark.digest.after(offset, void.into_iter()),
            Some(frame) => {
                let heads = frame.entries.iter().map(|entry| frame.head(entry));
                self.mark.digest.after(offset, heads.zip(verdicts.iter().copied()))
            }
        };
        for entry in frame.iter().flat_map(|frame| &frame.entries) {
            match &entry.statement {
                Statement::Genesis(genesis) if offset == 0 => self.mark.level = genesis.level,
                Statement::Activate { level } => self.mark.level = self.mark.level.max(*level),
                _ => {}
            }
        }
        self.mark.next = offset + 1;
        self.mark.bytes += bytes as u64;
        self.mark.last = None;
        self.digests.push_back((offset, self.mark.digest));
        if self.digests.len() > DIGESTS_MAX {
            self.digests.pop_front();
        }
        self.undigested += 1;
    }

    /// States the digest in the log, when none was for long.
    pub(super) fn state_digest(&mut self, lanes: &Lanes) {
        if self.undigested < DIGEST_EVERY {
            return;
        }
        self.undigested = 0;
        if let Some((offset, digest)) = self.digests.back() {
            let statement = Statement::Digest { offset: *offset, digest: digest.0 };
            lanes.post(self.place.partition, &statement);
        }
    }
}

/// Judges until what was left behind can be looked up: without it the fold
/// cannot go on. `None` when the store is closed first, or the fold is to go on
/// from elsewhere.
fn settle(
    progress: &Progress,
    run: u64,
    mut judge: impl FnMut() -> Result<Verdict, EngineError>,
) -> Option<Verdict> {
    loop {
        match judge() {
            Ok(verdict) => return Some(verdict),
            Err(error) => {
                tracing::error!(error = %mainspring_api::report(&error), "the view cannot be read");
                if progress.is_over() || progress.run() != run {
                    return None;
                }
                std::thread::sleep(AGAIN);
            }
        }
    }
}
