//! The binary, as its users run it.

#![expect(clippy::print_stdout, reason = "the crash host tells its parent what it passed")]

mod advice;
mod bad_input;
mod completing;
mod config;
mod crash;
mod crash_tools;
mod cut_off;
mod deleting;
mod describing;
mod disclosure;
mod gates;
mod going_on;
mod identities;
mod journals;
mod kill_loop;
mod killed;
mod killed_tool;
#[cfg(feature = "kafka")]
mod many_hosts;
mod mending;
#[cfg(feature = "kafka")]
mod on_kafka;
mod operating;
mod parity;
mod quick_start;
mod readiness;
mod restarts;
mod rolling;
mod secured;
mod server;
mod stopping;
mod support;
mod terminal;
#[cfg(feature = "otel")]
mod traces;
mod watched;
mod whole_stores;
