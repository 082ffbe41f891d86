//! What is particular to redb: files, versions, holders, and faults of the disk.

mod commit_errors;
mod compacting;
mod damaged;
mod held;
mod killed;
mod migrated;
mod random_faults;
mod recovering;
mod reports;
mod rewound;
mod support;
mod versions;
