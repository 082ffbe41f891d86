//! The service in this process.

use std::sync::Arc;

use mainspring_conformance::sessions::{Client, Parts, Subject};
use mainspring_sessions::Service;

use crate::host;

#[derive(Debug)]
struct Embedded(Service);

impl Subject for Embedded {
    async fn open(parts: Parts) -> Self {
        Self(host::open(parts).0)
    }

    async fn client(&self, who: &'static str) -> Client {
        let service = Arc::new(self.0.clone());
        Client { sessions: service.clone(), operations: service, caller: host::caller, who }
    }
}

mainspring_conformance::sessions_conformance!(Embedded);
