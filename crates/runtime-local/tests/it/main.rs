//! The runtime contract on real child processes: this test binary plays them.

mod bounds;
mod cases;
mod child_main;
mod support;
