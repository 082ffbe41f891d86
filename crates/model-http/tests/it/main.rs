//! The provider against a server on this machine.

mod answers;
mod errors;
mod requests;
mod server;
mod streams;
