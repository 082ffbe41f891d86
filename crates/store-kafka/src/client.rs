//! Clients of the brokers, which say once what they would say ten times a second.

use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, ConsumerContext};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::ProducerContext;

use crate::config::KafkaConfig;

/// A context whose client is heard at the level of details: what an error comes
/// to is told by whoever asked.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Quiet;

impl ClientContext for Quiet {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        tracing::debug!(?level, facility, "{message}");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, "{reason}");
    }
}

/// Makes a context of another kind as quiet as [`Quiet`].
macro_rules! quiet {
    ($context:ty) => {
        impl rdkafka::ClientContext for $context {
            fn log(&self, level: rdkafka::config::RDKafkaLogLevel, facility: &str, message: &str) {
                $crate::client::Quiet.log(level, facility, message);
            }

            fn error(&self, error: rdkafka::error::KafkaError, reason: &str) {
                $crate::client::Quiet.error(error, reason);
            }
        }
    };
}
pub(crate) use quiet;

impl ConsumerContext for Quiet {}

impl ProducerContext for Quiet {
    type DeliveryOpaque = ();

    fn delivery(&self, _: &DeliveryResult<'_>, (): ()) {}
}

/// A client that reads.
pub(crate) type Reader = BaseConsumer<Quiet>;

impl KafkaConfig {
    /// A client for messages that are read by their offset.
    pub(crate) fn open_reader(&self) -> KafkaResult<Reader> {
        self.reader().create_with_context(Quiet)
    }

    /// A client that reads on for as long as it is open.
    pub(crate) fn open_consumer(&self) -> KafkaResult<Reader> {
        self.consumer().create_with_context(Quiet)
    }
}

/// The monotonic clock, by which this host measures how long it hears nothing.
#[expect(clippy::disallowed_methods, reason = "waits of threads are bounded by it")]
pub(crate) fn now() -> std::time::Instant {
    std::time::Instant::now()
}

/// Drops a client on a thread of its own: one that has lost its brokers may take
/// long to close, or for ever.
pub(crate) fn let_go<T: Send + 'static>(client: T) {
    let closing = std::thread::Builder::new().name("kafka-close".to_owned());
    if let Err(error) = closing.spawn(move || drop(client)) {
        tracing::warn!(%error, "a client is closed here, for want of a thread");
    }
}
