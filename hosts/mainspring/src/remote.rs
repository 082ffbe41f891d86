//! A server that commands talk to: its services, each where it is made.

use std::sync::Arc;
use std::time::Duration;

use mainspring::api::{HarnessRegistry, Operations, Sessions};

use crate::args::Global;
use crate::error::CliError;

#[cfg(feature = "transport-grpc")]
pub(crate) use with_grpc::Link;

#[cfg(feature = "transport-grpc")]
mod with_grpc {
    use std::path::PathBuf;

    use mainspring::api::{Condition, Secret, SessionsError, async_trait};
    use mainspring::layers::{Notice, Reconnect, ReconnectOptions};
    use mainspring::transport_grpc::{
        ClientTls, ConnectOptions, RemoteHarnessRegistry, RemoteOperations, RemoteSessions,
        SILENT_INTERVALS_MAX, TokenSource,
    };

    use super::{Arc, CliError, Duration, Global, HarnessRegistry, Operations, Sessions};
    use crate::config::Config;
    use crate::output::Output;

    /// A server, and how it is reached. Its services connect when they are asked for.
    pub(crate) struct Link {
        server: String,
        options: ConnectOptions,
        output: Output,
        reconnect_max: Duration,
    }

    impl Link {
        /// How the configuration says that `server` is reached.
        pub(crate) fn to(global: &Global, server: &str) -> Self {
            let options = connect_options(&global.config);
            let output = Output::new(global.config.output);
            let reconnect_max = Duration::from_secs(global.config.client.reconnect_max.into());
            Self { server: server.to_owned(), options, output, reconnect_max }
        }

        /// Sessions, whose streams outlive their connections.
        pub(crate) async fn sessions(&self) -> Result<Arc<dyn Sessions>, CliError> {
            let output = self.output;
            let mut options = ReconnectOptions::default();
            options.reconnect_max = self.reconnect_max;
            options.silence_max = self.options.heartbeat.map(|beat| beat * SILENT_INTERVALS_MAX);
            options.on_notice = Some(Arc::new(move |notice| match notice {
                Notice::Reconnecting { attempt } => {
                    output.note(&format!("reconnecting ({attempt})"));
                }
                Notice::Reconnected => output.note("reconnected"),
                _ => {}
            }));
            let sessions = RemoteSessions::connect(&self.server, &self.options).await?;
            Ok(Arc::new(Reconnect::new(Arc::new(sessions), options)))
        }

        /// Operations: find, verify, export, import, adopt.
        pub(crate) async fn operations(&self) -> Result<Arc<dyn Operations>, CliError> {
            Ok(Arc::new(RemoteOperations::connect(&self.server, &self.options).await?))
        }

        /// The registry of harnesses, on an operators' listener.
        pub(crate) async fn registry(&self) -> Result<Arc<dyn HarnessRegistry>, CliError> {
            Ok(Arc::new(RemoteHarnessRegistry::connect(&self.server, &self.options).await?))
        }
    }

    /// What a connection shows of its client, and whom it trusts.
    fn connect_options(config: &Config) -> ConnectOptions {
        let mut options = ConnectOptions::default();
        let tls = &config.client.tls;
        options.tls = tls.is_set().then(|| ClientTls {
            ca: tls.ca.clone(),
            certificate: tls.certificate.clone(),
            key: tls.key.clone(),
            server_name: tls.server_name.clone(),
        });
        options.bearer = match (&config.token, &config.token_file) {
            (Some(token), _) => Some(Arc::new(token.clone())),
            (None, Some(path)) => Some(Arc::new(TokenFile(path.clone()))),
            (None, None) => None,
        };
        options
    }

    /// A token in a file, which is read for every call: whoever renews it need
    /// not tell the command.
    #[derive(Debug)]
    struct TokenFile(PathBuf);

    #[async_trait]
    impl TokenSource for TokenFile {
        async fn token(&self) -> Result<Secret, SessionsError> {
            let read = tokio::fs::read_to_string(&self.0).await;
            let text = read.map_err(|error| {
                let message = format!("token_file {}: {error}", self.0.display());
                SessionsError::new(Condition::Unauthenticated, message)
            })?;
            Ok(Secret::new(text.trim().to_owned()))
        }
    }
}

/// How long one call to the registry may take.
pub(crate) const REGISTRY_CALL_MAX: Duration = Duration::from_secs(30);

/// A connection that cannot be made.
#[cfg(not(feature = "transport-grpc"))]
pub(crate) struct Link;

#[cfg(not(feature = "transport-grpc"))]
impl Link {
    pub(crate) fn to(_global: &Global, _server: &str) -> Self {
        Self
    }

    pub(crate) async fn sessions(&self) -> Result<Arc<dyn Sessions>, CliError> {
        Err(unbuilt())
    }

    pub(crate) async fn operations(&self) -> Result<Arc<dyn Operations>, CliError> {
        Err(unbuilt())
    }

    pub(crate) async fn registry(&self) -> Result<Arc<dyn HarnessRegistry>, CliError> {
        Err(unbuilt())
    }
}

#[cfg(not(feature = "transport-grpc"))]
fn unbuilt() -> CliError {
    CliError::usage("this build has no transport-grpc for --server")
}
