//! What a host tells those who may not know: nothing, whatever they call.
//!
//! A table walks every RPC with every kind of credential, every kind of
//! session, and every kind of malformed field, over TLS, and compares what is
//! answered byte by byte.

mod credentials;
mod fields;
mod foreign;
mod host;
mod imports;
mod malformed;
mod people;
mod rows;
mod wire;

use std::collections::BTreeSet;

/// The services of a host; a harness has its own.
const SERVICES: [&str; 4] = [
    "agentsessions.v1.Sessions",
    "agentsessions.v1.HarnessRegistry",
    "mainspring.v1.Operations",
    "mainspring.v1.Administration",
];

#[test]
fn every_rpc_has_a_row() {
    let methods = fields::methods();
    let (mut named, mut others) = (BTreeSet::new(), BTreeSet::new());
    for (path, method) in &methods {
        let service = method.parent_service();
        match SERVICES.contains(&service.full_name()) {
            true => named.insert(path.as_str()),
            false => others.insert(service.full_name().to_owned()),
        };
    }
    assert_eq!(others, BTreeSet::from(["agentsessions.v1.Harness".to_owned()]));
    let rows: BTreeSet<_> = rows::rows().iter().map(|row| row.path).collect();
    assert_eq!(rows, named);
    for row in rows::rows() {
        let (_, method) = methods.iter().find(|(path, _)| path == row.path).unwrap();
        assert_eq!(row.is_stream, method.is_server_streaming(), "{}", row.path);
    }
}
