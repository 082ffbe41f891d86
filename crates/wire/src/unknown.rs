//! Fields that a message has and its schema does not.
//!
//! Elsewhere they are left out, as protobuf has it. What an operator registers
//! is hashed and kept, and must not mean more than was read.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use prost::Message as _;
use prost::bytes::Buf as _;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use prost_types::FileDescriptorSet;

use crate::FILE_DESCRIPTOR_SET;
use crate::error::{FieldPath, WireError};

const REGISTER: &str = ".agentsessions.v1.RegisterHarnessRequest";

/// A field of a message: its name, and its type if that is a message.
struct Field {
    name: String,
    message: Option<String>,
}

type Messages = BTreeMap<String, BTreeMap<u32, Field>>;

/// The top-level messages of the schema, which are all that a registration has.
fn messages() -> &'static Messages {
    static MESSAGES: OnceLock<Messages> = OnceLock::new();
    MESSAGES.get_or_init(|| {
        let set = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET)
            .expect("the build wrote the descriptors");
        let mut messages = Messages::new();
        for file in set.file {
            let package = file.package().to_owned();
            for message in file.message_type {
                let name = format!(".{package}.{}", message.name());
                let fields = message.field.into_iter().filter_map(|field| {
                    let message = field.type_name.clone().filter(|_| {
                        field.r#type() == prost_types::field_descriptor_proto::Type::Message
                    });
                    let number = u32::try_from(field.number()).ok()?;
                    Some((number, Field { name: field.name().to_owned(), message }))
                });
                messages.insert(name, fields.collect());
            }
        }
        messages
    })
}

/// Checks that the bytes of a `RegisterHarnessRequest` have no field that this
/// schema does not know. Bytes that are no message pass: who decodes them says so.
///
/// # Errors
/// [`WireError::UnknownField`], naming the message and the number.
pub fn registration_fields(bytes: &[u8]) -> Result<(), WireError> {
    check(REGISTER, bytes)
}

fn check(message: &str, mut bytes: &[u8]) -> Result<(), WireError> {
    let Some(fields) = messages().get(message) else {
        return Ok(());
    };
    while bytes.has_remaining() {
        let Ok((number, wire_type)) = decode_key(&mut bytes) else {
            return Ok(());
        };
        let Some(field) = fields.get(&number) else {
            return Err(WireError::UnknownField { path: FieldPath::default(), number });
        };
        if wire_type != WireType::LengthDelimited {
            if skip_field(wire_type, number, &mut bytes, DecodeContext::default()).is_err() {
                return Ok(());
            }
            continue;
        }
        let length = decode_varint(&mut bytes).ok().and_then(|length| usize::try_from(length).ok());
        let Some((inner, rest)) = length.and_then(|length| bytes.split_at_checked(length)) else {
            return Ok(());
        };
        if let Some(message) = &field.message {
            check(message, inner).map_err(|error| error.within(&field.name))?;
        }
        bytes = rest;
    }
    Ok(())
}
