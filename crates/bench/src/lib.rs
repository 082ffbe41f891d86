//! What the benches share: figures over rounds, and the tables that show them.
//!
//! The benches themselves are in `benches/`, one folder each. They are built
//! only with their features, which `cargo xtask bench` switches on. What is
//! here has no heavy dependency, and is tested with everything else.
//!
//! A figure never stands alone: a [`Line`] holds what was measured, its floor
//! from the same rounds, and the ratio of both, with the target it is held to.

mod costs;
mod generated;
mod report;
#[cfg(feature = "_base")]
pub mod run;
pub mod scale;
mod stats;

pub use costs::{Costs, NoCosts};
pub use generated::{Generated, NoMarkers};
pub use report::{Line, Report, Target, Unit, show_lengths};
pub use stats::{Direction, Spread, percentile};
