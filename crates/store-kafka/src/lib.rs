//! Log store on Apache Kafka: many hosts, one truth, no coordinator.
//!
//! The log decides. Every host folds each partition in offset order and comes to
//! the same verdict about every entry; the first valid writer wins.

mod access;
mod ahead;
mod answers;
mod begin;
mod checkpoint;
mod client;
mod config;
mod ends;
mod engine;
mod error;
mod fold;
mod frame;
mod hosts;
mod import;
mod judge;
mod lane;
mod lists;
mod log;
mod mark;
mod messages;
mod notes;
mod open;
mod parts;
mod progress;
mod shared;
mod states;
mod store;
mod sweep;
mod topic;
mod view;
mod watch;

pub use access::{Access, access};
pub use begin::{Begun, NewTopics, PARTITIONS_MAX, init, void_digest};
pub use config::KafkaConfig;
pub use error::Halt;
pub use frame::{Genesis, RULES_LEVEL};
pub use progress::CatchUp;
pub use store::KafkaStore;
pub use topic::{Finding, TopicReport, check};
