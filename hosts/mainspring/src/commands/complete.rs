//! Shell completion: flags and commands, and what there is to name.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use clap::CommandFactory as _;
use clap_complete::Shell;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use clap_complete::env::{CompleteEnv, Shells};
use mainspring::api::{ListRequest, OsEntropy, Session, method, random_hex};

use crate::args::{Cli, Global, HarnessArgs};
use crate::config::{self, Flags};
use crate::context::{Context, Open, caller};
use crate::error::CliError;
use crate::output::shown_line;

/// How long a person waits for candidates at most.
const COMPLETE_MAX: Duration = Duration::from_secs(1);

/// Sessions that are offered at most: the newest.
const CANDIDATES_MAX: i32 = 200;

/// The largest journal that is looked into for sessions, in bytes.
const COPY_BYTES_MAX: u64 = 32 << 20;

/// The variable by which a completion script asks.
const VARIABLE: &str = "COMPLETE";

/// Answers a completion script, if it is one that asks, and ends the process.
pub(crate) fn answer() {
    CompleteEnv::with_factory(Cli::command).var(VARIABLE).complete();
}

/// Writes the script of a shell.
pub(crate) fn script(shell: Shell) -> Result<(), CliError> {
    let shells = Shells::builtins();
    let completer = shells.completer(&shell.to_string());
    let completer =
        completer.ok_or_else(|| CliError::usage(format!("{shell} has no completion script")))?;
    let name = "mainspring";
    let mut out = std::io::stdout().lock();
    let written = completer.write_registration(VARIABLE, name, name, name, &mut out);
    written.map_err(|error| CliError::file("standard output", &error))
}

/// Uids of sessions, where the command line so far says.
pub(crate) fn sessions() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let listed = listed().unwrap_or_default();
        let candidates = listed.into_iter().map(|session| {
            let about = format!(
                "{} {} {}",
                session.harness,
                session.exec_state.name().to_lowercase(),
                session.name
            );
            let about = shown_line(about.trim());
            CompletionCandidate::new(session.uid.to_string()).help(Some(about.into()))
        });
        begin_with(candidates, current)
    })
}

/// Names of harnesses: the built-in ones, the configured ones, and those of sessions.
pub(crate) fn harnesses() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let mut names: BTreeSet<String> = ["echo", "gate", "chat"].map(str::to_owned).into();
        if let Ok(global) = global() {
            names.extend(global.config.harness.into_iter().map(|harness| harness.name));
        }
        let listed = listed().unwrap_or_default();
        names.extend(listed.into_iter().map(|session| session.harness));
        names.remove("");
        begin_with(names.into_iter().map(CompletionCandidate::new), current)
    })
}

fn begin_with(
    candidates: impl Iterator<Item = CompletionCandidate>,
    current: &OsStr,
) -> Vec<CompletionCandidate> {
    let Some(current) = current.to_str() else { return Vec::new() };
    candidates
        .filter(|candidate| {
            let value = candidate.get_value().to_str();
            // A word that would drive a terminal is no word to complete.
            value.is_some_and(|value| {
                value.starts_with(current) && !value.chars().any(char::is_control)
            })
        })
        .collect()
}

/// The newest sessions, unless they cannot be had in time. What is wrong is
/// told by the command itself, and not in the middle of a command line.
fn listed() -> Option<Vec<Session>> {
    let global = global().ok()?;
    // Removed when this returns, also when what reads it is still at work.
    let folder = Folder::new()?;
    let copy = folder.0.join("journal");
    let (tell, told) = mpsc::sync_channel(1);
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let listed = runtime.ok().and_then(|runtime| runtime.block_on(list(global, copy)));
        let _ = tell.send(listed);
    });
    told.recv_timeout(COMPLETE_MAX).ok().flatten()
}

async fn list(mut global: Global, copy: PathBuf) -> Option<Vec<Session>> {
    if global.server.is_none() {
        copy_of(&global.config.journal, &copy)?;
        global.config.journal = copy.to_str()?.to_owned();
    }
    let context = Context::open(&global, &HarnessArgs::default(), None, Open::Existing).await;
    let context = context.ok()?;
    let request = ListRequest {
        project: global.project.clone(),
        page_size: CANDIDATES_MAX,
        page_token: String::new(),
    };
    let page = context.sessions.list(&caller(method::LIST_SESSIONS), request).await;
    context.close().await;
    Some(page.ok()?.sessions)
}

/// Copies a journal's file, so that pressing a key neither repairs nor migrates
/// it: opening it may do both. One that a process holds, that is larger than
/// [`COPY_BYTES_MAX`], or that is no single file is left alone.
fn copy_of(journal: &str, copy: &Path) -> Option<()> {
    let path = journal.strip_prefix("redb:").unwrap_or(journal);
    let is_whole = |bytes: u64| bytes <= COPY_BYTES_MAX;
    // Looked at by its name first: opening a pipe would wait for its other end.
    std::fs::metadata(path).ok().filter(|found| found.is_file() && is_whole(found.len()))?;
    let file = File::open(path).ok()?;
    file.try_lock_shared().ok()?;
    let mut new = File::create_new(copy).ok()?;
    let copied = std::io::copy(&mut (&file).take(COPY_BYTES_MAX + 1), &mut new).ok()?;
    is_whole(copied).then_some(())
}

/// A folder of this process alone, removed when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Option<Self> {
        let name = format!("mainspring-complete-{}", random_hex(&OsEntropy, 16));
        let path = std::env::temp_dir().join(name);
        std::fs::DirBuilder::new().mode(0o700).create(&path).ok()?;
        Some(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left of it is for whoever empties the folder of such folders.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Where the command line that is being written works. It is not whole yet, so
/// only the flags that say so are looked for.
fn global() -> Result<Global, CliError> {
    let words: Vec<String> =
        std::env::args_os().filter_map(|word| word.into_string().ok()).collect();
    let mut flags = Flags::default();
    for (flag, key) in [("--server", "server"), ("--journal", "journal"), ("--project", "project")]
    {
        flags.set(key, value_of(&words, flag));
    }
    let file = value_of(&words, "--config-file").map(PathBuf::from);
    let loaded = config::load(file.as_deref(), std::env::vars_os(), flags)?;
    Ok(Global::new(&loaded, file))
}

/// The value of a flag among words, in either form.
fn value_of<'a>(words: &'a [String], flag: &str) -> Option<&'a str> {
    let joined = format!("{flag}=");
    words.iter().enumerate().find_map(|(at, word)| match word.strip_prefix(&joined) {
        Some(value) => Some(value),
        None if word == flag => words.get(at + 1).map(String::as_str),
        None => None,
    })
}
