//! A store on real brokers: `cargo xtask kafka up` starts them.

mod checkpoints;
mod conformance_one;
mod conformance_three;
mod faults;
mod raw;
mod rewound;
mod secure;
mod staged;
mod support;
mod topics;
