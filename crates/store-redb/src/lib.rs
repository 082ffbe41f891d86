//! The embedded journal store: one redb file.
