//! The reference harnesses and the helpers, through their contracts.

mod gate;
mod harnesses;
mod helpers;
mod support;
