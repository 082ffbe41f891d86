//! The binary, as its users run it.

#![expect(clippy::print_stdout, reason = "the crash host tells its parent what it passed")]

mod bad_input;
mod crash;
mod journals;
mod kill_loop;
mod killed;
mod parity;
mod quick_start;
mod server;
mod support;
