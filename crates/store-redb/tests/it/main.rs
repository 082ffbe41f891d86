//! What is particular to redb: files, versions, holders, and faults of the disk.

mod commit_errors;
mod damaged;
mod held;
mod migrated;
mod random_faults;
mod support;
mod versions;
