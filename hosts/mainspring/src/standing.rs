//! How a store stands that may not be able to serve although it is open.

use crate::config::Config;
use crate::error::CliError;
use mainspring::Stores;

/// What keeps a store from serving.
#[cfg(feature = "transport-grpc")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lack {
    /// Its name.
    pub(crate) name: &'static str,
    /// What there is to say, for people.
    pub(crate) why: String,
    /// Whether it never ends.
    pub(crate) for_good: bool,
}

/// What can be seen of the store of a process.
#[derive(Debug, Clone, Default)]
pub(crate) struct Standing {
    #[cfg(all(feature = "kafka", feature = "transport-grpc"))]
    kafka: mainspring::KafkaWatch,
}

/// The stores of this build, as they are configured, and what can be seen of the
/// one that is opened.
///
/// # Errors
/// A usage error for settings of the configured journal that cannot be.
pub(crate) fn stores(config: &Config) -> Result<(Stores, Standing), CliError> {
    #[cfg(feature = "kafka")]
    {
        let factory = factory(config)?;
        let standing = Standing {
            #[cfg(feature = "transport-grpc")]
            kafka: factory.watch(),
        };
        Ok((Stores::with_defaults().with(factory), standing))
    }
    #[cfg(not(feature = "kafka"))]
    {
        let _ = config;
        Ok((Stores::with_defaults(), Standing::default()))
    }
}

/// What opens a journal on Kafka.
///
/// # Errors
/// A usage error when the password is given twice or cannot be read.
#[cfg(feature = "kafka")]
pub(crate) fn factory(config: &Config) -> Result<mainspring::KafkaFactory, CliError> {
    use mainspring::store_kafka::KafkaConfig;
    use std::time::Duration;

    let kafka = &config.kafka;
    let mut settings = KafkaConfig::new("", "");
    let seconds = |seconds: u32| Duration::from_secs(seconds.into());
    settings.write_max = seconds(kafka.write_max);
    settings.read_max = seconds(kafka.read_max);
    settings.silence_max = seconds(kafka.silence_max);
    settings.allow_lossy = kafka.allow_lossy;
    let client = kafka.client.iter();
    settings.client = client.map(|(key, value)| (key.clone(), value.expose().to_owned())).collect();
    if let Some(setting) = settings.fixed_setting() {
        let why = format!("kafka.client: {setting} is not for setting: journals rest on it");
        return Err(CliError::usage(why));
    }
    // Other journals need no password.
    if config.journal.starts_with("kafka:")
        && let Some(password) = password(kafka)?
        && settings.client.insert("sasl.password".to_owned(), password).is_some()
    {
        return Err(CliError::usage(
            "sasl.password is set in kafka.client, and by kafka.password or kafka.password_file",
        ));
    }
    Ok(mainspring::KafkaFactory::new(settings, &kafka.view))
}

#[cfg(feature = "kafka")]
fn password(kafka: &crate::config::Kafka) -> Result<Option<String>, CliError> {
    if let Some(password) = &kafka.password {
        return Ok(Some(password.expose().to_owned()));
    }
    let Some(path) = &kafka.password_file else { return Ok(None) };
    let text = std::fs::read_to_string(path).map_err(|error| {
        CliError::file(&format!("kafka.password_file {}", path.display()), &error)
    })?;
    Ok(Some(text.trim_end_matches(['\r', '\n']).to_owned()))
}

#[cfg(feature = "transport-grpc")]
impl Standing {
    /// What keeps the store from serving, if it is open and something does.
    pub(crate) fn lack(&self) -> Option<Lack> {
        #[cfg(feature = "kafka")]
        {
            lack_of(self.kafka.halted().as_ref(), self.kafka.catch_up())
        }
        #[cfg(not(feature = "kafka"))]
        None
    }

    /// Sets the gauges of the store.
    pub(crate) fn measure(&self) {
        #[cfg(feature = "kafka")]
        if let Some(at) = self.kafka.catch_up() {
            use crate::telemetry::metrics::{KAFKA_END_MESSAGES, KAFKA_FOLDED_MESSAGES};
            metrics::gauge!(KAFKA_FOLDED_MESSAGES).set(at.folded as f64);
            metrics::gauge!(KAFKA_END_MESSAGES).set(at.end as f64);
        }
    }

    /// Waits until the store has stopped for good; says why.
    pub(crate) async fn stopped(&self) -> CliError {
        #[cfg(feature = "kafka")]
        loop {
            if let Some(halt) = self.kafka.halted() {
                return mainspring::eventlog::LogError::from(halt).into();
            }
            tokio::time::sleep(LOOKED_AT_EVERY).await;
        }
        #[cfg(not(feature = "kafka"))]
        std::future::pending().await
    }
}

/// How often a store is looked at that may stop by itself.
#[cfg(all(feature = "kafka", feature = "transport-grpc"))]
const LOOKED_AT_EVERY: std::time::Duration = std::time::Duration::from_millis(200);

#[cfg(all(feature = "kafka", feature = "transport-grpc"))]
fn lack_of(
    halted: Option<&mainspring::store_kafka::Halt>,
    at: Option<mainspring::store_kafka::CatchUp>,
) -> Option<Lack> {
    if let Some(halt) = halted {
        return Some(Lack { name: "store_goes_on", why: halt.to_string(), for_good: true });
    }
    let at = at.filter(|at| at.folded < at.end)?;
    let why = format!("the log is folded up to {} of {} messages", at.folded, at.end);
    Some(Lack { name: "store_caught_up", why, for_good: false })
}

#[cfg(all(test, feature = "kafka", feature = "transport-grpc"))]
mod tests {
    use mainspring::store_kafka::{CatchUp, Halt};

    use super::lack_of;

    #[test]
    fn a_store_that_stopped_lacks_more_than_one_that_catches_up() {
        let behind = Some(CatchUp { folded: 120, end: 400 });
        let lack = lack_of(None, behind).unwrap();
        assert_eq!((lack.name, lack.for_good), ("store_caught_up", false));
        assert_eq!(lack.why, "the log is folded up to 120 of 400 messages");
        let halt = Halt::TopicMissing("t".to_owned());
        let lack = lack_of(Some(&halt), behind).unwrap();
        assert!(lack.for_good && lack.why.starts_with("topic_missing: "), "{lack:?}");
        assert_eq!(lack_of(None, Some(CatchUp { folded: 4, end: 4 })), None);
        assert_eq!(lack_of(None, None), None);
    }
}
