//! Simulation of whole systems: everything that happens, and in which order, is decided by one seed.
//!
//! The simulations are the tests of this crate: it has no code that others could use.
//!
//! `tests/sim` lets several hosts drive one session at once. Each runs turns of a random script, resumes, decides,
//! cancels, drains and dies, while every operation of the log, of the model and of the tools waits at a turnstile that
//! lets one through at a time. Then the faults end, and one more host must bring the session to rest. What must hold is
//! checked on the journal, on the executor's own ledger, and on every record that a host was told of.
//!
//! `cargo xtask sim --seeds N` runs more seeds than the tests do, and `--seed K` one of them. A failure names its
//! seed; the fix adds it to the rows in `tests/sim/main.rs`.
