//! Where a command runs: on a host inside of it, or on a server.

use std::sync::Arc;

use mainspring::api::{Caller, OsEntropy, RequestId, SessionUid, Sessions};
use mainspring::{Host, HostBuilder, Stores};

use crate::args::{EmbeddedArgs, Global};
use crate::error::CliError;
use crate::parts;

/// The sessions service that a command talks to.
pub(crate) struct Context {
    pub(crate) sessions: Arc<dyn Sessions>,
    /// The host, when it is inside this process.
    pub(crate) host: Option<Host>,
}

impl Context {
    /// Opens the journal here, or connects to the server.
    pub(crate) async fn open(global: &Global, host: &EmbeddedArgs) -> Result<Self, CliError> {
        match &global.server {
            Some(server) => {
                refuse_host_flags(host)?;
                Ok(Self { sessions: remote(server).await?, host: None })
            }
            None => {
                let host = embedded(global, &host.harness_at, &host.model)?;
                Ok(Self { sessions: Arc::new(host.service().clone()), host: Some(host) })
            }
        }
    }

    /// The host inside this process, for what a server does not offer yet.
    pub(crate) fn embedded(&self, what: &str) -> Result<&Host, CliError> {
        self.host.as_ref().ok_or_else(|| CliError::unimplemented(&format!("{what} with --server")))
    }

    /// Ends what this process started.
    pub(crate) async fn close(self) {
        if let Some(host) = self.host {
            host.service().drain();
            host.service().idle().await;
            host.close().await;
        }
    }
}

/// A host over the journal that the command line names.
pub(crate) fn embedded(
    global: &Global,
    harnesses: &[String],
    model: &crate::args::ModelArgs,
) -> Result<Host, CliError> {
    // Everything that can be refused is refused before the journal is opened.
    let check = Stores::with_defaults().open("memory:", Default::default())?;
    let configured =
        |log| parts::configure(HostBuilder::new(log).project(&global.project), harnesses, model);
    configured(check)?.build()?;
    let log = Stores::with_defaults().open(&global.journal, Default::default())?;
    Ok(configured(log)?.build()?)
}

fn refuse_host_flags(host: &EmbeddedArgs) -> Result<(), CliError> {
    if !host.harness_at.is_empty() || host.model.model.is_some() {
        return Err(CliError::usage(
            "--harness-at and --model set up a host in this process; with --server, set them there",
        ));
    }
    if !host.model.tool.is_empty() {
        return Err(CliError::unimplemented("--tool"));
    }
    Ok(())
}

#[cfg(feature = "transport-grpc")]
async fn remote(server: &str) -> Result<Arc<dyn Sessions>, CliError> {
    use mainspring::transport_grpc::{LinkOptions, RemoteSessions};
    Ok(Arc::new(RemoteSessions::connect(server, &LinkOptions::default()).await?))
}

#[cfg(not(feature = "transport-grpc"))]
async fn remote(_server: &str) -> Result<Arc<dyn Sessions>, CliError> {
    Err(CliError::usage("this build has no transport-grpc for --server"))
}

/// The caller of one command.
pub(crate) fn caller(method: &'static str) -> Caller {
    Caller { identity: None, method, request_id: RequestId::random(&OsEntropy) }
}

/// A session uid from the command line.
pub(crate) fn uid(text: &str) -> Result<SessionUid, CliError> {
    SessionUid::new(text).map_err(|error| CliError::usage(error.to_string()))
}
