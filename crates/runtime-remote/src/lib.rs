//! Harnesses at a configured address.
