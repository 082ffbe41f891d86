//! Author SDK and reference harnesses.
