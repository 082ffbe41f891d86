//! Streams over a connection that is cut at random places.

mod cuts;
mod double;
mod rules;
