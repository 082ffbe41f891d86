//! How far a host is, and whether it goes on.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use event_listener::{Event, EventListener, Listener as _};
use mainspring_eventlog::LogError;

use crate::error::Halt;

/// How far the fold and the view of each partition are.
#[derive(Debug)]
pub(crate) struct Progress {
    partitions: Vec<Positions>,
    changed: Event,
    /// How often the fold was told to go on from elsewhere.
    run: AtomicU64,
    /// Those who wait for the view.
    waiting: AtomicUsize,
    /// Tells the view that somebody waits for it.
    asked: Event,
    over: Event,
    halted: OnceLock<Halt>,
    closed: AtomicBool,
}

#[derive(Debug, Default)]
struct Positions {
    /// The next message to be judged.
    judged: AtomicU64,
    /// The next message to be applied to the view.
    applied: AtomicU64,
    /// The log's end, as far as this host has heard.
    end: AtomicU64,
}

/// How far a host has folded the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CatchUp {
    /// Messages that are folded, of all partitions.
    pub folded: u64,
    /// Messages that were in the log when it was last looked at.
    pub end: u64,
}

impl Progress {
    pub(crate) fn new(partitions: u32) -> Self {
        Self {
            partitions: (0..partitions).map(|_| Positions::default()).collect(),
            changed: Event::new(),
            run: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            asked: Event::new(),
            over: Event::new(),
            halted: OnceLock::new(),
            closed: AtomicBool::new(false),
        }
    }

    /// How many partitions there are.
    pub(crate) fn partitions(&self) -> u32 {
        u32::try_from(self.partitions.len()).expect("partitions are a u32")
    }

    /// Whether the log has messages that the fold has not judged.
    pub(crate) fn is_behind(&self) -> bool {
        self.partitions
            .iter()
            .any(|at| at.judged.load(Ordering::Acquire) < at.end.load(Ordering::Acquire))
    }

    /// The next message of a partition that the fold will judge.
    pub(crate) fn next_judged(&self, partition: u32) -> u64 {
        self.partitions[partition as usize].judged.load(Ordering::Acquire)
    }

    pub(crate) fn judged(&self, partition: u32, next: u64) {
        let positions = &self.partitions[partition as usize];
        positions.judged.store(next, Ordering::Release);
        positions.end.fetch_max(next, Ordering::AcqRel);
    }

    pub(crate) fn applied(&self, partition: u32) -> u64 {
        self.partitions[partition as usize].applied.load(Ordering::Acquire)
    }

    pub(crate) fn set_applied(&self, partition: u32, next: u64) {
        self.partitions[partition as usize].applied.store(next, Ordering::Release);
        self.changed.notify(usize::MAX);
    }

    pub(crate) fn heard_end(&self, partition: u32, end: u64) {
        self.partitions[partition as usize].end.fetch_max(end, Ordering::AcqRel);
    }

    pub(crate) fn catch_up(&self) -> CatchUp {
        let sum = |position: fn(&Positions) -> &AtomicU64| {
            self.partitions.iter().map(|p| position(p).load(Ordering::Acquire)).sum()
        };
        CatchUp { folded: sum(|p| &p.applied), end: sum(|p| &p.end) }
    }

    /// Stops the host for good. The first reason stays.
    pub(crate) fn halt(&self, why: Halt) {
        tracing::error!(code = why.code(), "{why}");
        let _ = self.halted.set(why);
        self.changed.notify(usize::MAX);
        self.over.notify(usize::MAX);
    }

    pub(crate) fn halted(&self) -> Option<&Halt> {
        self.halted.get()
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.changed.notify(usize::MAX);
        self.over.notify(usize::MAX);
    }

    /// Whether the threads are to end.
    pub(crate) fn is_over(&self) -> bool {
        self.closed.load(Ordering::Acquire) || self.halted.get().is_some()
    }

    /// Waits until the threads are to end.
    pub(crate) async fn until_over(&self) {
        loop {
            let over = self.over.listen();
            if self.is_over() {
                return;
            }
            over.await;
        }
    }

    /// Waits on this thread until the threads are to end, or for `max`.
    #[expect(clippy::disallowed_methods, reason = "bounds a wait on this thread")]
    pub(crate) fn wait_over(&self, max: Duration) {
        let until = std::time::Instant::now() + max;
        loop {
            let over = self.over.listen();
            if self.is_over() || over.wait_deadline(until).is_none() {
                return;
            }
        }
    }

    /// Refuses when the host goes on no more.
    pub(crate) fn check(&self) -> Result<(), LogError> {
        if let Some(why) = self.halted.get() {
            return Err(why.clone().into());
        }
        if self.closed.load(Ordering::Acquire) {
            return Err(LogError::unavailable("the store is closed"));
        }
        Ok(())
    }

    /// Which run of the fold counts: what an earlier one judged is forgotten.
    pub(crate) fn run(&self) -> u64 {
        self.run.load(Ordering::Acquire)
    }

    pub(crate) fn next_run(&self) -> u64 {
        self.run.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Tells the view that somebody waits for it.
    pub(crate) fn ask(&self) {
        self.asked.notify(1);
    }

    /// Hears from here on when somebody waits for the view.
    pub(crate) fn asked(&self) -> EventListener {
        self.asked.listen()
    }

    /// Whether somebody waits for the view.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }

    /// Waits until the view has everything before `end`; `false` when that takes
    /// longer than `max`.
    pub(crate) async fn wait(
        &self,
        partition: u32,
        end: u64,
        max: Duration,
    ) -> Result<bool, LogError> {
        if self.applied(partition) >= end {
            return self.check().map(|()| true);
        }
        let _waiting = Waiting::of(&self.waiting);
        self.ask();
        let reached = async {
            loop {
                let changed = self.changed.listen();
                self.check()?;
                if self.applied(partition) >= end {
                    return Ok(());
                }
                changed.await;
            }
        };
        match tokio::time::timeout(max, reached).await {
            Ok(reached) => reached.map(|()| true),
            Err(_) => Ok(false),
        }
    }
}

/// Counts one who waits, for as long as it does.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn of(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
