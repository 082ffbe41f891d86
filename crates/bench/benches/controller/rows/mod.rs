//! The rows of the table, one file each; `exec` and `resume` share theirs.

pub(crate) mod fork;
pub(crate) mod length;
pub(crate) mod replay;
pub(crate) mod turn;
