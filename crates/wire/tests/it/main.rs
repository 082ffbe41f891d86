//! Conversions through bytes, and what they refuse.

mod events;
mod refusals;
mod services;
mod strategy;
