//! Fields that say what they must not.

use mainspring_wire::FILE_DESCRIPTOR_SET;
use prost::encoding::{WireType, encode_key, encode_varint};
use prost_reflect::{DescriptorPool, FieldDescriptor, Kind, MessageDescriptor, MethodDescriptor};

/// How deep messages in messages are looked into.
const DEPTH_MAX: usize = 3;

/// What is wrong with a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// Text that is not UTF-8.
    NotText,
    /// Far more than any name has.
    Huge,
    /// -1.
    Negative,
    /// A value that the enum does not have.
    NoSuchValue,
    /// Bytes that are no message.
    NotAMessage,
    /// Another wire type than the field's.
    OtherType,
}

/// A field of a request with something wrong in it.
pub(crate) struct Malformed {
    /// Its names, from the request on.
    pub(crate) path: Vec<String>,
    /// Those, and of the choices that it is one of.
    pub(crate) names: Vec<String>,
    pub(crate) wrong: Wrong,
    /// To be appended to a request: the last value of a field counts.
    pub(crate) bytes: Vec<u8>,
}

/// Every method of every service in the descriptors, by path.
pub(crate) fn methods() -> Vec<(String, MethodDescriptor)> {
    let pool = DescriptorPool::decode(FILE_DESCRIPTOR_SET).unwrap();
    let services: Vec<_> = pool.services().collect();
    let methods = services.iter().flat_map(|service| {
        let name = service.full_name().to_owned();
        service.methods().map(move |method| (format!("/{name}/{}", method.name()), method))
    });
    methods.collect()
}

fn delimited(number: u32, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_key(number, WireType::LengthDelimited, &mut bytes);
    encode_varint(value.len() as u64, &mut bytes);
    bytes.extend_from_slice(value);
    bytes
}

fn varint(number: u32, value: i64) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_key(number, WireType::Varint, &mut bytes);
    encode_varint(value.cast_unsigned(), &mut bytes);
    bytes
}

/// A field that no schema of ours has.
pub(crate) fn unknown() -> Vec<u8> {
    delimited(15_000, b"?")
}

fn of_field(field: &FieldDescriptor) -> Vec<(Wrong, Vec<u8>)> {
    let n = field.number();
    let huge = vec![b'a'; 64 << 10];
    match field.kind() {
        Kind::String => vec![
            (Wrong::NotText, delimited(n, b"\xff\xfe")),
            (Wrong::Huge, delimited(n, &huge)),
            (Wrong::OtherType, varint(n, 1)),
        ],
        Kind::Bytes => vec![(Wrong::Huge, delimited(n, &huge)), (Wrong::OtherType, varint(n, 1))],
        Kind::Enum(_) => {
            vec![(Wrong::NoSuchValue, varint(n, 99)), (Wrong::NoSuchValue, varint(n, -1))]
        }
        Kind::Message(_) => vec![(Wrong::NotAMessage, delimited(n, b"\xff"))],
        Kind::Bool => vec![(Wrong::OtherType, delimited(n, b"?"))],
        _ => vec![(Wrong::Negative, varint(n, -1)), (Wrong::OtherType, delimited(n, b"?"))],
    }
}

/// Every field of a message, and of those in it, with everything wrong that
/// there is.
pub(crate) fn malformed(message: &MessageDescriptor) -> Vec<Malformed> {
    within(message, DEPTH_MAX)
}

fn within(message: &MessageDescriptor, depth: usize) -> Vec<Malformed> {
    let mut all = Vec::new();
    for field in message.fields() {
        let path = vec![field.name().to_owned()];
        let choice = field.containing_oneof().map(|choice| choice.name().to_owned());
        let names: Vec<String> = path.iter().cloned().chain(choice).collect();
        let own = of_field(&field).into_iter();
        all.extend(own.map(|(wrong, bytes)| Malformed {
            path: path.clone(),
            names: names.clone(),
            wrong,
            bytes,
        }));
        let Kind::Message(inner) = field.kind() else { continue };
        // The well-known types have conversions of their own, which are tested with them.
        if depth == 0 || inner.full_name().starts_with("google.protobuf.") {
            continue;
        }
        all.extend(within(&inner, depth - 1).into_iter().map(|inner| Malformed {
            path: [path.clone(), inner.path].concat(),
            names: [names.clone(), inner.names].concat(),
            wrong: inner.wrong,
            bytes: delimited(field.number(), &inner.bytes),
        }));
    }
    all
}
