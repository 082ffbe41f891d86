//! Workspace checks.
