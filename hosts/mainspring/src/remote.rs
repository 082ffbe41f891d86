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
    use mainspring::layers::{Notice, Reconnect, ReconnectOptions};
    use mainspring::transport_grpc::{LinkOptions, RemoteSessions};

    use super::{Arc, CliError, Global, HarnessRegistry, Operations, Sessions};
    use crate::config::Config;
    use crate::output::Output;

    /// A connection to a server.
    pub(crate) struct Link {
        sessions: RemoteSessions,
        output: Output,
    }

    impl Link {
        /// Connects.
        pub(crate) async fn open(global: &Global, server: &str) -> Result<Self, CliError> {
            let options = link_options(&global.config)?;
            let sessions = RemoteSessions::connect(server, &options).await?;
            Ok(Self { sessions, output: Output::new(global.config.output) })
        }

        /// Sessions, whose streams outlive their connections.
        pub(crate) fn sessions(&self) -> Arc<dyn Sessions> {
            let output = self.output;
            let mut options = ReconnectOptions::default();
            options.on_notice = Some(Arc::new(move |notice| match notice {
                Notice::Reconnecting { attempt } => {
                    output.note(&format!("reconnecting ({attempt})"));
                }
                Notice::Reconnected => output.note("reconnected"),
                _ => {}
            }));
            Arc::new(Reconnect::new(Arc::new(self.sessions.clone()), options))
        }

        /// Operations: find, verify, export, import, adopt.
        pub(crate) fn operations(&self) -> Result<Arc<dyn Operations>, CliError> {
            Err(CliError::unimplemented("mainspring.v1.Operations with --server"))
        }

        /// The registry of harnesses, on an operators' listener.
        pub(crate) fn registry(&self) -> Result<Arc<dyn HarnessRegistry>, CliError> {
            Err(CliError::unimplemented("agentsessions.v1.HarnessRegistry with --server"))
        }
    }

    /// What a connection shows of its client, and whom it trusts.
    fn link_options(config: &Config) -> Result<LinkOptions, CliError> {
        if config.client.tls.is_set() {
            return Err(CliError::unimplemented("client.tls"));
        }
        if config.token.is_some() || config.token_file.is_some() {
            return Err(CliError::unimplemented("a bearer token (token, token_file)"));
        }
        Ok(LinkOptions::default())
    }
}

/// How long one call to the registry may take.
pub(crate) const REGISTRY_CALL_MAX: Duration = Duration::from_secs(30);

/// A connection that cannot be made.
#[cfg(not(feature = "transport-grpc"))]
pub(crate) enum Link {}

#[cfg(not(feature = "transport-grpc"))]
impl Link {
    pub(crate) async fn open(_global: &Global, _server: &str) -> Result<Self, CliError> {
        Err(CliError::usage("this build has no transport-grpc for --server"))
    }

    pub(crate) fn sessions(&self) -> Arc<dyn Sessions> {
        match *self {}
    }

    pub(crate) fn operations(&self) -> Result<Arc<dyn Operations>, CliError> {
        match *self {}
    }

    pub(crate) fn registry(&self) -> Result<Arc<dyn HarnessRegistry>, CliError> {
        match *self {}
    }
}
