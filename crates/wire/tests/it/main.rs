//! Conversions through bytes, and what they refuse.

mod events;
mod extensions;
mod operations;
mod refusals;
mod services;
mod strategy;
