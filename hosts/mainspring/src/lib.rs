//! The mainspring binary.
