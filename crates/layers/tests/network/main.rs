//! Clients of a real host, over a network that fails.

mod cuts;
mod many;
mod stalls;
mod world;
