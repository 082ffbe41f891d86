//! The reference harnesses and the helpers, through their contracts.

mod harnesses;
mod helpers;
mod support;
