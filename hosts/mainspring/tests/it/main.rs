//! The binary, as its users run it.

#![expect(clippy::print_stdout, reason = "the crash host tells its parent what it passed")]

mod advice;
mod bad_input;
mod completing;
mod config;
mod crash;
mod crash_tools;
mod cut_off;
mod gates;
mod going_on;
mod journals;
mod kill_loop;
mod killed;
mod killed_tool;
mod mending;
mod parity;
mod quick_start;
mod readiness;
mod server;
mod stopping;
mod support;
mod terminal;
#[cfg(feature = "otel")]
mod traces;
mod watched;
mod whole_stores;
