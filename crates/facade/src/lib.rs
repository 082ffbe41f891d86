//! Durable agent sessions: re-exports and defaults.
