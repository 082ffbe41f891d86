//! The protobuf form of `agentsessions.v1`, and its conversions.
//!
//! [`v1`] is generated from the proto files in this crate, clients and servers
//! included (without a transport: they take any tower service). Its fields from
//! 1000 upwards are extensions of ours, which are sent when both sides agreed
//! on them and never journaled. [`operations_v1`] is our own service beside it. The rest are
//! conversions between those messages and the values of `mainspring-api`, as
//! `From` and `TryFrom`; where a conversion takes a parameter it is a function.
//! What the domain cannot hold is refused with a [`WireError`] that names the
//! field.
//!
//! ```
//! use mainspring_api::{Event, EventBody, Message};
//! use mainspring_wire::{v1, WireError};
//!
//! let event = Event::of(EventBody::Input(Some(Message::user("hello"))));
//! let wire = v1::Event::try_from(event.clone())?;
//! assert_eq!(wire.kind(), v1::EventKind::EventInput);
//! assert_eq!(Event::try_from(wire)?, event);
//! # Ok::<(), WireError>(())
//! ```
//!
//! This crate knows nothing of hashes over events, connections, or status
//! codes.

mod describe;
mod enums;
mod error;
mod event;
mod harness;
mod history;
mod journal;
mod json;
mod message;
mod model;
mod operations;
mod registry;
mod requests;
mod scalar;
mod session;
mod tool;
mod unknown;
mod update;

pub use error::{FieldPath, WireError};
pub use harness::{CallFailure, ControllerFrame, Frame, ModelResult, StartFrame};
pub use history::{HistoryPage, HistoryRequest};
pub use json::{json_from_struct, struct_from_json};
pub use message::PART_DEPTH_MAX;
pub use registry::{
    harnesses_from_wire, harnesses_to_wire, registered_from_wire, registered_to_wire,
    registration_from_wire, spec_to_register,
};
pub use requests::approved_to_wire;
pub use scalar::session_uid;
pub use session::{NotesField, record_to_wire};
pub use unknown::registration_fields;
pub use update::{follow_to_wire, update_to_wire};

/// The generated code refers from one package to the other by this nesting.
#[allow(
    missing_docs,
    unreachable_pub,
    rustdoc::all,
    clippy::all,
    clippy::pedantic,
    reason = "generated code"
)]
mod generated {
    pub mod agentsessions {
        pub mod v1 {
            tonic::include_proto!("agentsessions.v1");
        }
    }

    pub mod mainspring {
        pub mod v1 {
            tonic::include_proto!("mainspring.v1");
        }
    }
}

/// The messages, clients and servers of `agentsessions.v1`.
#[doc(inline)]
pub use generated::agentsessions::v1;
/// The messages, clients and servers of `mainspring.v1`: what a host offers
/// beyond `agentsessions.v1`.
#[doc(inline)]
pub use generated::mainspring::v1 as operations_v1;

/// The encoded file descriptor set of the proto files, for reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
