//! Turns on long journals, and long turns: in bounded memory, in process and
//! over the wire.
//!
//! Each runs in a process of its own, so that its memory can be measured. Host
//! and harness share it: what is measured is the sum of both.

mod host;
mod long_session;
mod long_turn;
