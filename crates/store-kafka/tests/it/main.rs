//! A store on real brokers: `cargo xtask kafka up` starts them.

mod conformance_one;
mod conformance_three;
mod secure;
mod support;
mod topics;
