//! The policies, asked everything.

#[cfg(feature = "cedar")]
mod cedar;
mod owner;
mod support;
