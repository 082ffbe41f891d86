//! The rows of the table, one file each.

pub(crate) mod append;
pub(crate) mod cost;
pub(crate) mod fork;
pub(crate) mod group;
pub(crate) mod length;
pub(crate) mod memory;
pub(crate) mod scan;
pub(crate) mod verify;
