//! Where a command runs: on a host inside of it, or on a server.

use std::sync::Arc;
use std::time::Duration;

use mainspring::api::{Caller, OsEntropy, RequestId, SessionUid, Sessions};
use mainspring::eventlog::{EventLog, OpenProgress};
use mainspring::{Host, HostBuilder, Stores};

use crate::args::{Global, HarnessArgs, ModelArgs};
use crate::error::CliError;
use crate::parts;
use crate::progress::Recovery;

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
                let setup = Setup { global, harnesses, model, approval_ttl: None };
                setup.check()?;
                let host = setup.host(open_log(journal(global, open)?).await?)?;
                Ok(Self { sessions: Arc::new(host.service().clone()), host: Some(host) })
            }
        }
    }

    /// The host inside this process, for what a server does not offer yet.
    pub(crate) fn embedded(&self, what: &str) -> Result<&Host, CliError> {
        self.host.as_ref().ok_or_else(|| CliError::unimplemented(&format!("{what} with --server")))
    }

    /// The command that goes on with a session, where this one worked.
    pub(crate) fn next(global: &Global, command: &str, session: &SessionUid) -> String {
        let place = match (&global.server, &global.journal) {
            (Some(server), _) => format!(" --server {}", quoted(server)),
            (None, Some(journal)) => format!(" --journal {}", quoted(journal)),
            (None, None) => String::new(),
        };
        format!("mainspring {command} --session {session}{place}")
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

/// How a host in this process is set up.
#[derive(Clone, Copy)]
pub(crate) struct Setup<'a> {
    pub(crate) global: &'a Global,
    pub(crate) harnesses: &'a HarnessArgs,
    pub(crate) model: Option<&'a ModelArgs>,
    /// How long requests for approval stay open when a call does not say.
    pub(crate) approval_ttl: Option<Duration>,
}

impl Setup<'_> {
    /// Refuses what can be refused before the journal is opened.
    pub(crate) fn check(self) -> Result<(), CliError> {
        self.host(stores().open("memory:", Default::default())?).map(drop)
    }

    /// The host, over an open log.
    pub(crate) fn host(self, log: Arc<dyn EventLog>) -> Result<Host, CliError> {
        let mut builder = HostBuilder::new(log).project(&self.global.project);
        if let Some(ttl) = self.approval_ttl {
            builder = builder.approval_ttl(ttl);
        }
        Ok(parts::configure(builder, self.harnesses, self.model)?.build()?)
    }
}

/// The stores of this build.
pub(crate) fn stores() -> Stores {
    Stores::with_defaults()
}

/// The journal that the command line names.
pub(crate) fn journal(global: &Global, open: Open) -> Result<&str, CliError> {
    let journal = global.journal.as_deref().unwrap_or(DEFAULT_JOURNAL);
    if open == Open::Existing {
        require(journal)?;
    }
    Ok(journal)
}

/// Opens a journal, with a bar while it recovers. The command can be
/// interrupted meanwhile: that leaves the journal to be recovered again.
pub(crate) async fn open_log(journal: &str) -> Result<Arc<dyn EventLog>, CliError> {
    let recovery = Recovery::default();
    let opened = open_log_with(journal, recovery.watch()).await;
    recovery.finish(opened.is_ok());
    opened
}

/// Opens a journal, off this thread, telling `progress` while it recovers.
pub(crate) async fn open_log_with(
    journal: &str,
    progress: OpenProgress,
) -> Result<Arc<dyn EventLog>, CliError> {
    let journal = journal.to_owned();
    Ok(blocking(move || stores().open_with(&journal, Default::default(), &progress)).await??)
}

/// Runs what blocks on a thread of its own.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, CliError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| CliError::internal(format!("a thread of the command: {error}")))
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
    if !harnesses.harness_at.is_empty()
        || model.is_some_and(|model| model.model.is_some() || !model.tool.is_empty())
    {
        return Err(CliError::usage(
            "--harness-at, --model and --tool set up a host in this process; with --server, set \
             them there",
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
    Caller::anonymous(method, RequestId::random(&OsEntropy))
}

/// A word that a shell reads as it is.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |ch: char| ch.is_ascii_alphanumeric() || "-_./:@%+=".contains(ch);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// A session uid from the command line.
pub(crate) fn uid(text: &str) -> Result<SessionUid, CliError> {
    SessionUid::new(text).map_err(|error| CliError::usage(error.to_string()))
}
