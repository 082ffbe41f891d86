//! Test doubles: clocks, randomness from a seed, sample journals, faults.
//!
//! Everything here is deterministic: time moves when a test says so, and a
//! seed decides the rest, so that a failure can be run again.
//!
//! ```
//! use mainspring_api::{Clock, Entropy, Head};
//! use mainspring_eventlog::Batch;
//! use mainspring_testkit::{ManualClock, SeededEntropy, sample};
//!
//! let clock = ManualClock::at_unix(1_800_000_000);
//! clock.advance(std::time::Duration::from_millis(5));
//! assert_eq!(clock.now().nanos, 5_000_000);
//!
//! let (mut a, mut b) = ([0; 8], [0; 8]);
//! SeededEntropy::new(7).fill(&mut a);
//! SeededEntropy::new(7).fill(&mut b);
//! assert_eq!(a, b);
//!
//! let turn = sample::turn(&sample::execution(1), "hello");
//! let batch = Batch::link(Head::EMPTY, sample::records(turn)).unwrap();
//! assert_eq!(batch.len(), 5);
//! ```
//!
//! What is here:
//! - [`ManualClock`], [`SeededEntropy`], [`SeededRng`];
//! - [`sample`]: events, whole turns, random journals, sessions, ids;
//! - [`fold_all`], [`read_all`], [`verify_all`]: a journal looked at from outside;
//! - [`SharedMemory`]: an engine that outlives the store on it;
//! - [`HookedLog`]: a log with a hook around each operation;
//! - [`CutStore`]: a log that stops a host at a named point;
//! - with the feature `net`, `Proxy`: a line that cuts, delays and stalls;
//! - with the feature `redb`, `FaultyDisk`: a disk that fails, tears writes and
//!   loses power;
//! - with the feature `scale`, a module `scale`: tests in processes of their own,
//!   with their memory measured.

mod clock;
mod cut;
#[cfg(feature = "redb")]
mod disk;
mod hooked;
mod journal;
mod memory;
#[cfg(feature = "net")]
mod proxy;
mod random;
pub mod sample;
#[cfg(feature = "scale")]
pub mod scale;

pub use clock::ManualClock;
pub use cut::{Cut, CutMode, CutOp, CutPoint, CutSide, CutStore, InvalidCut};
#[cfg(feature = "redb")]
pub use disk::{DiskFault, DiskOp, FaultyBackend, FaultyDisk};
pub use hooked::{HookedLog, LogCall, LogHook};
pub use journal::{append, append_turns, create, fold_all, read_all, verify_all};
pub use memory::SharedMemory;
#[cfg(feature = "net")]
pub use proxy::{Line, Proxy};
pub use random::{SeededEntropy, SeededRng};
