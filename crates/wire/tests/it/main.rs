//! Conversions through bytes, and what they refuse.

mod events;
mod extensions;
mod refusals;
mod services;
mod strategy;
