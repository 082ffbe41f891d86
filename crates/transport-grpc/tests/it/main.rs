//! Both services, both sides, over real sockets.

mod address_book;
mod authentication;
mod cut;
mod failure_replies;
mod fake;
mod fake_operations;
mod frozen;
mod gate_vectors;
mod harness_bridge;
mod harness_client;
mod harness_extensions;
mod harness_server;
mod heartbeats;
mod history_range;
mod journals;
mod limits;
mod logs;
mod operations;
mod park_handoff;
mod raw;
mod registry;
mod script;
mod serving;
mod sessions;
mod status_table;
mod tls;
