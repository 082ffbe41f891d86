//! The sessions service over Kafka.

use std::sync::Arc;

use mainspring_conformance::sessions::{Client, Parts, Subject};
use mainspring_eventlog::EventLog;
use mainspring_sessions::Service;

use crate::stores::{empty_view, host as open_host};
use crate::{host, small_topic};

#[derive(Debug)]
struct OnKafka(Service);

impl Subject for OnKafka {
    async fn open(parts: Parts) -> Self {
        Self(host::open(parts).0)
    }

    async fn client(&self, who: &'static str) -> Client {
        let service = Arc::new(self.0.clone());
        Client { sessions: service.clone(), operations: service, caller: host::caller, who }
    }

    async fn log() -> Option<Arc<dyn EventLog>> {
        let config = small_topic().await?;
        Some(open_host(&config, empty_view()).await)
    }
}

mainspring_conformance::sessions_conformance!(OnKafka);
