//! Where a command runs: on a host inside of it, or on a server.

use std::sync::Arc;

use mainspring::api::{Authorizer, Caller, Operations, OsEntropy, RequestId, SessionUid, Sessions};
use mainspring::eventlog::{EventLog, OpenProgress};
use mainspring::{Host, HostBuilder, MemoryFactory, Stores};

use crate::args::{Global, HarnessArgs, ModelArgs};
use crate::error::CliError;
use crate::progress::Recovery;
use crate::{parts, remote, standing};

/// The sessions service that a command talks to.
pub(crate) struct Context {
    pub(crate) sessions: Arc<dyn Sessions>,
    /// The way to the server, when there is one.
    link: Option<remote::Link>,
    /// The host inside this process, when there is no server.
    pub(crate) host: Option<Host>,
}

impl Context {
    /// Opens the journal here, or connects to the server. Commands that run
    /// turns say which flags there are for who answers model calls.
    pub(crate) async fn open(
        global: &Global,
        harnesses: &HarnessArgs,
        model: Option<&ModelArgs>,
        open: Open,
    ) -> Result<Self, CliError> {
        match &global.server {
            Some(server) => {
                refuse_host_flags(harnesses, model)?;
                let link = remote::Link::to(global, server);
                Ok(Self { sessions: link.sessions().await?, link: Some(link), host: None })
            }
            None => {
                let setup = Setup { global, runs_turns: model.is_some(), authorizer: None };
                setup.check()?;
                let host = setup.host(open_log(global, journal(global, open)?).await?)?;
                if setup.runs_turns {
                    // Other hosts of the store leave its turns alone then.
                    host.service().announce().await?;
                }
                // Harnesses that operators registered are served here, too.
                if setup.runs_turns || open == Open::OrCreate {
                    host.open_registry().await?;
                } else {
                    host.load_registrations().await?;
                }
                let sessions = Arc::new(host.service().clone());
                Ok(Self { sessions, link: None, host: Some(host) })
            }
        }
    }

    /// What operators and auditors do.
    pub(crate) async fn operations(&self) -> Result<Arc<dyn Operations>, CliError> {
        match (&self.link, &self.host) {
            (Some(link), _) => link.operations().await,
            (None, Some(host)) => Ok(Arc::new(host.service().clone())),
            (None, None) => unreachable!("a context has a server or a host"),
        }
    }

    /// The command that goes on with a session, where this one worked.
    pub(crate) fn next(global: &Global, command: &str, session: &SessionUid) -> String {
        Self::placed(global, &format!("mainspring {command} --session {session}"))
    }

    /// A whole command, with where this one worked.
    pub(crate) fn placed(global: &Global, command: &str) -> String {
        let mut placed = command.to_owned();
        let mut add = |flag: &str, value: &str| {
            placed.push_str(&format!(" {flag} {}", quoted(value)));
        };
        if let Some(config) = &global.config_flag {
            add("--config-file", &config.to_string_lossy());
        }
        match (&global.server, &global.journal) {
            (Some(server), _) => add("--server", server),
            (None, Some(journal)) => add("--journal", journal),
            (None, None) => {}
        }
        if let Some(view) = &global.kafka_view_flag {
            add("--kafka-view", &view.to_string_lossy());
        }
        if let Some(file) = &global.token_file_flag {
            add("--token-file", &file.to_string_lossy());
        }
        placed
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
#[derive(Clone)]
pub(crate) struct Setup<'a> {
    pub(crate) global: &'a Global,
    /// Whether it needs a model and tools.
    pub(crate) runs_turns: bool,
    /// Decides what callers may do; only a server has any.
    pub(crate) authorizer: Option<Arc<dyn Authorizer>>,
}

impl Setup<'_> {
    /// Refuses what can be refused before the journal is opened.
    pub(crate) fn check(&self) -> Result<(), CliError> {
        let memory = Stores::default().with(MemoryFactory);
        self.host(memory.open("memory:", Default::default())?).map(drop)
    }

    /// The host, over an open log.
    pub(crate) fn host(&self, log: Arc<dyn EventLog>) -> Result<Host, CliError> {
        let mut builder = HostBuilder::new(log).project(&self.global.project);
        if let Some(authorizer) = &self.authorizer {
            builder = builder.authorizer(Arc::clone(authorizer));
        }
        Ok(parts::configure(builder, &self.global.config, self.runs_turns)?.build()?)
    }
}

/// The journal that the command line names.
pub(crate) fn journal(global: &Global, open: Open) -> Result<&str, CliError> {
    let journal = &*global.config.journal;
    if open == Open::Existing {
        require(journal)?;
    }
    Ok(journal)
}

/// Opens a journal, with a bar while it recovers. The command can be
/// interrupted meanwhile: that leaves the journal to be recovered again.
pub(crate) async fn open_log(
    global: &Global,
    journal: &str,
) -> Result<Arc<dyn EventLog>, CliError> {
    let (stores, _) = standing::stores(&global.config)?;
    let recovery = Recovery::default();
    let opened = open_log_with(stores, journal, recovery.watch()).await;
    recovery.finish(opened.is_ok());
    opened
}

/// Opens a journal, off this thread, telling `progress` while it recovers.
pub(crate) async fn open_log_with(
    stores: Stores,
    journal: &str,
    progress: OpenProgress,
) -> Result<Arc<dyn EventLog>, CliError> {
    let journal = journal.to_owned();
    Ok(blocking(move || stores.open_with(&journal, Default::default(), &progress)).await??)
}

/// Runs what blocks on a thread of its own.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, CliError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| CliError::internal(format!("a thread of the command: {error}")))
}

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
    // What there is of topics, only their brokers know.
    let is_path = local.is_some()
        || !journal.starts_with("kafka:") && (!journal.contains(':') || journal.contains('/'));
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
