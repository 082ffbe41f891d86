//! A log that stops a host at a named point.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use mainspring_api::Outcome;
use mainspring_eventlog::{EventLog, LogError};

use crate::hooked::{HookedLog, LogCall, LogHook};

/// Just before the operation, or once it is durable and not yet answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CutSide {
    /// Nothing of it was done.
    Before,
    /// All of it was done.
    After,
}

macro_rules! cut_ops {
    ($($(#[$doc:meta])* $op:ident = $name:literal),* $(,)?) => {
        /// A writing operation of a log.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum CutOp {
            $($(#[$doc])* $op,)*
        }

        impl CutOp {
            /// Every operation.
            pub const ALL: &'static [Self] = &[$(Self::$op),*];

            /// Its name in a cut point.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$op => $name,)*
                }
            }
        }
    };
}

cut_ops! {
    /// [`EventLog::append`].
    Append = "append",
    /// [`EventLog::create`].
    Create = "create",
    /// [`EventLog::update`].
    Update = "update",
    /// [`EventLog::mint`] and [`EventLog::acquire_if_head`].
    Mint = "mint",
    /// [`EventLog::fork`].
    Fork = "fork",
    /// [`EventLog::import`].
    Import = "import",
    /// [`EventLog::annotate`].
    Annotate = "annotate",
}

impl CutOp {
    /// The writing operation that `call` is.
    const fn of(call: LogCall) -> Option<Self> {
        Some(match call {
            LogCall::Append(_) => Self::Append,
            LogCall::Create => Self::Create,
            LogCall::Update => Self::Update,
            LogCall::Mint => Self::Mint,
            LogCall::Fork => Self::Fork,
            LogCall::Import => Self::Import,
            LogCall::Annotate => Self::Annotate,
            LogCall::Read | LogCall::Verify => return None,
        })
    }
}

/// Where a host stops, written `before-append-3`: before the third append.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CutPoint {
    /// Which side of it.
    pub side: CutSide,
    /// Which operation.
    pub op: CutOp,
    /// Which of them, from 1, over all sessions.
    pub nth: u64,
}

impl fmt::Display for CutPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = match self.side {
            CutSide::Before => "before",
            CutSide::After => "after",
        };
        write!(f, "{side}-{}-{}", self.op.name(), self.nth)
    }
}

/// A text that names no cut point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidCut(String);

impl fmt::Display for InvalidCut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a cut point such as before-append-3", self.0)
    }
}

impl std::error::Error for InvalidCut {}

impl FromStr for CutPoint {
    type Err = InvalidCut;

    fn from_str(text: &str) -> Result<Self, InvalidCut> {
        let read = || {
            let mut parts = text.splitn(3, '-');
            let side = match parts.next()? {
                "before" => CutSide::Before,
                "after" => CutSide::After,
                _ => return None,
            };
            let name = parts.next()?;
            let op = *CutOp::ALL.iter().find(|op| op.name() == name)?;
            let nth = parts.next()?.parse().ok().filter(|nth| *nth > 0)?;
            Some(Self { side, op, nth })
        };
        read().ok_or_else(|| InvalidCut(text.to_owned()))
    }
}

/// What happens at the cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CutMode {
    /// That one operation fails: before it with nothing applied, after it with
    /// outcome unknown. What follows works.
    Error,
    /// It fails so, and every later operation and read does: the host has lost
    /// its store and can only give up.
    Dead,
    /// It never returns, and neither does any later one.
    Hang,
    /// The process ends on the spot, as by `kill -9`.
    Abort,
}

/// A log in front of another, which stops at one point.
pub type CutStore = HookedLog<Cut>;

/// The hook of a [`CutStore`].
#[derive(Debug, Default)]
pub struct Cut {
    at: Option<(CutPoint, CutMode)>,
    seen: [AtomicU64; CutOp::ALL.len()],
    gone: AtomicBool,
}

impl HookedLog<Cut> {
    /// Stops `inner` at `point`.
    #[must_use]
    pub fn new(inner: Arc<dyn EventLog>, point: CutPoint, mode: CutMode) -> Self {
        Self::with_hook(inner, Cut { at: Some((point, mode)), ..Cut::default() })
    }

    /// Never stops, and counts: a run of it tells which points there are.
    #[must_use]
    pub fn counting(inner: Arc<dyn EventLog>) -> Self {
        Self::with_hook(inner, Cut::default())
    }

    /// Every cut point that was passed so far, in the order of [`CutOp::ALL`].
    #[must_use]
    pub fn points(&self) -> Vec<CutPoint> {
        let mut points = Vec::new();
        for op in CutOp::ALL {
            for nth in 1..=self.hook().seen[*op as usize].load(Ordering::SeqCst) {
                for side in [CutSide::Before, CutSide::After] {
                    points.push(CutPoint { side, op: *op, nth });
                }
            }
        }
        points
    }

    /// Whether the cut was reached.
    #[must_use]
    pub fn reached(&self) -> bool {
        self.hook().gone.load(Ordering::SeqCst)
    }
}

impl Cut {
    /// Once the store is gone in a mode that lasts, nothing is answered.
    async fn alive(&self) -> Result<(), LogError> {
        match self.at {
            Some((_, CutMode::Dead)) if self.gone.load(Ordering::SeqCst) => {
                Err(LogError::unavailable("the store is gone"))
            }
            Some((_, CutMode::Hang)) if self.gone.load(Ordering::SeqCst) => {
                std::future::pending().await
            }
            _ => Ok(()),
        }
    }

    async fn stop(&self, mode: CutMode, outcome: Outcome) -> LogError {
        self.gone.store(true, Ordering::SeqCst);
        match mode {
            CutMode::Abort => std::process::abort(),
            CutMode::Hang => std::future::pending().await,
            CutMode::Error | CutMode::Dead => {
                LogError::Unavailable { message: "cut".to_owned(), outcome, source: None }
            }
        }
    }
}

impl LogHook for Cut {
    async fn around<T: Send>(
        &self,
        call: LogCall,
        run: impl Future<Output = Result<T, LogError>> + Send,
    ) -> Result<T, LogError> {
        self.alive().await?;
        let Some(op) = CutOp::of(call) else { return run.await };
        let nth = self.seen[op as usize].fetch_add(1, Ordering::SeqCst) + 1;
        let cut = self.at.filter(|(point, _)| point.op == op && point.nth == nth);
        match cut {
            Some((CutPoint { side: CutSide::Before, .. }, mode)) => {
                Err(self.stop(mode, Outcome::NotApplied).await)
            }
            Some((CutPoint { side: CutSide::After, .. }, mode)) => {
                let applied = run.await;
                // What was refused was not applied; its answer would have been lost all the same.
                drop(applied);
                Err(self.stop(mode, Outcome::Unknown).await)
            }
            None => run.await,
        }
    }
}
