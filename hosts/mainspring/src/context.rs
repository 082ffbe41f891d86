//! Where a command runs: on a host inside of it, or on a server.

use std::sync::Arc;

use mainspring::api::{Caller, OsEntropy, RequestId, SessionUid, Sessions};
use mainspring::{Host, HostBuilder, Stores};

use crate::args::{Global, HarnessArgs, ModelArgs};
use crate::error::CliError;
use crate::parts;

/// The sessions service that a command talks to.
pub(crate) struct Context {
    pub(crate) sessions: Arc<dyn Sessions>,
    /// The host, when it is inside this process.
    pub(crate) host: Option<Host>,
}

impl Context {
    /// Opens the journal here, or connects to the server. Commands that run
    /// turns say who answers model calls.
    pub(crate) async fn open(
        global: &Global,
        harnesses: &HarnessArgs,
        model: Option<&ModelArgs>,
        open: Open,
    ) -> Result<Self, CliError> {
        match &global.server {
            Some(server) => {
                refuse_host_flags(harnesses, model)?;
                Ok(Self { sessions: remote(server).await?, host: None })
            }
            None => {
                let host = embedded(global, harnesses, model, open)?;
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
    harnesses: &HarnessArgs,
    model: Option<&ModelArgs>,
    open: Open,
) -> Result<Host, CliError> {
    let configured = |log| {
        let builder = HostBuilder::new(log).project(&global.project);
        parts::configure(builder, harnesses, model)
    };
    // Everything that can be refused is refused before the journal is opened.
    let check = Stores::with_defaults().open("memory:", Default::default())?;
    configured(check)?.build()?;
    let journal = global.journal.as_deref().unwrap_or(DEFAULT_JOURNAL);
    if open == Open::Existing {
        require(journal)?;
    }
    let log = Stores::with_defaults().open(journal, Default::default())?;
    Ok(configured(log)?.build()?)
}

/// The journal of a command that names none.
const DEFAULT_JOURNAL: &str = "mainspring.redb";

/// Whether a command may make the journal that it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Open {
    /// It is created if it is not there.
    OrCreate,
    /// A mistyped path must not look like an empty store.
    Existing,
}

fn require(journal: &str) -> Result<(), CliError> {
    let local = ["redb:", "fjall:"].iter().find_map(|scheme| journal.strip_prefix(scheme));
    let path = local.unwrap_or(journal);
    let is_path = local.is_some() || !journal.contains(':') || journal.contains('/');
    if !is_path || std::path::Path::new(path).exists() {
        return Ok(());
    }
    Err(CliError {
        code: "journal_not_found".to_owned(),
        kind: mainspring::api::ErrorKind::NotFound,
        ..CliError::usage(format!(
            "there is no journal at {path}; create, exec or import makes one"
        ))
    })
}

fn refuse_host_flags(harnesses: &HarnessArgs, model: Option<&ModelArgs>) -> Result<(), CliError> {
    if model.is_some_and(|model| !model.tool.is_empty()) {
        return Err(CliError::unimplemented("--tool"));
    }
    if !harnesses.harness_at.is_empty() || model.is_some_and(|model| model.model.is_some()) {
        return Err(CliError::usage(
            "--harness-at and --model set up a host in this process; with --server, set them there",
        ));
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
