//! Long journals, many sessions, deep forks: what they cost, and that nothing is lost.
//!
//! Each runs in a process of its own, so that its memory can be measured.

mod churn;
mod forks;
mod journal;
mod long;
mod many;
