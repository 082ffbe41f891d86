//! Tools as real processes, and as an endpoint on this machine.

mod commands;
mod endpoints;
mod processes;
mod server;
mod specs;
mod support;
