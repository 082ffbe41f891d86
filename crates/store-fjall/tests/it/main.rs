//! What is particular to fjall: folders, versions, holders, crashes, views and compaction.

mod commit_errors;
mod compact;
mod damaged;
mod held;
mod kill;
mod support;
mod versions;
mod views;
