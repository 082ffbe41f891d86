//! The rows of the table, one file each.

pub(crate) mod append;
pub(crate) mod bytes;
pub(crate) mod fold;
pub(crate) mod idle;
