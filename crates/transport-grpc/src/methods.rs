//! Every method that is served here, as logs name it.

use mainspring_api::method as name;

use crate::call::RpcKind::{self, Stream, Unary};

pub(crate) const HARNESS_DESCRIBE: &str = "/agentsessions.v1.Harness/Describe";
pub(crate) const HARNESS_CONNECT: &str = "/agentsessions.v1.Harness/Connect";

const METHODS: [(&str, RpcKind); 26] = [
    (name::CREATE_SESSION, Unary),
    (name::GET_SESSION, Unary),
    (name::LIST_SESSIONS, Unary),
    (name::DELETE_SESSION, Unary),
    (name::EXEC, Stream),
    (name::REPLAY, Stream),
    (name::APPROVE, Unary),
    (name::CANCEL, Unary),
    (name::SUSPEND, Unary),
    (name::RESUME, Unary),
    (name::FORK, Unary),
    (name::REGISTER_HARNESS, Unary),
    (name::GET_HARNESS, Unary),
    (name::LIST_HARNESSES, Unary),
    (name::RETIRE_HARNESS, Unary),
    (name::DESCRIBE, Unary),
    (name::FOLLOW, Stream),
    (name::RESUME_STREAM, Stream),
    (name::FIND, Unary),
    (name::RESOLVE, Unary),
    (name::VERIFY, Stream),
    (name::EXPORT, Stream),
    (name::IMPORT, Stream),
    (name::ADOPT, Unary),
    (HARNESS_DESCRIBE, Unary),
    (HARNESS_CONNECT, Stream),
];

/// The method of a path, if there is one.
pub(crate) fn called(path: &str) -> Option<(&'static str, RpcKind)> {
    METHODS.into_iter().find(|(name, _)| *name == path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_of_every_service_is_there() {
        use mainspring_wire::FILE_DESCRIPTOR_SET;
        use prost::Message as _;
        let set = prost_types::FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap();
        let mut found = 0;
        for file in &set.file {
            for service in &file.service {
                for method in &service.method {
                    let path = format!("/{}.{}/{}", file.package(), service.name(), method.name());
                    let streams = method.client_streaming() || method.server_streaming();
                    let (_, kind) = called(&path).expect(&path);
                    assert_eq!(matches!(kind, Stream), streams, "{path}");
                    found += 1;
                }
            }
        }
        assert_eq!(found, METHODS.len());
    }
}
