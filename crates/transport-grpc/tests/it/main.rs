//! Both services, both sides, over real sockets.

mod address_book;
mod failure_replies;
mod fake;
mod gate_vectors;
mod harness_bridge;
mod harness_client;
mod harness_extensions;
mod harness_server;
mod history_range;
mod operations;
mod park_handoff;
mod raw;
mod script;
mod serving;
mod sessions;
mod status_table;
