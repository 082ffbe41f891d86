//! Tests of the journal's forms and of the store over an engine in memory.

mod canonical;
mod store;
mod vectors;
mod view;
