//! From a session to a harness that runs its turn.
//!
//! - [`Guard`] hands out one [`Lease`] per session: whoever holds it may drive.
//! - A [`Placer`] turns a session into compute, a connection and a fence, in
//!   the order in which a refusal costs least, and runs turns on it.
//! - [`Harnesses`] routes names to placers.
//!
//! Placement knows no transport and no backend: a runtime gives an address, a
//! connector turns it into a harness.

mod connectors;
mod error;
mod guard;
mod harnesses;
mod history;
mod observe;
mod park;
mod placer;

pub use connectors::Connectors;
pub use error::PlacementError;
pub use guard::{Changes, Guard, Held, Lease, Operation, Told};
pub use harnesses::{Harnesses, Registered};
pub use history::JournalHistory;
pub use placer::{Call, Placer, PlacerOptions, can_place};
