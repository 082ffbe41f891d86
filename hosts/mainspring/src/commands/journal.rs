//! Exporting and importing journals.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::StreamExt as _;
use indicatif::ProgressBar;
use mainspring::api::{
    AppendId, BoxStream, Bytes, Classify as _, Condition, ErrorKind, ExportRequest, Head,
    ImportRequest, Operations, OsEntropy, Outcome, SessionUid, SessionsError, method,
};
use serde_json::json;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

use crate::args::{Export, Global, HarnessArgs, Import};
use crate::context::{Context, Open, caller, uid};
use crate::error::CliError;
use crate::lines::{Journal, Lines};
use crate::output::{Output, session_json};
use crate::partial::{Kept, Partial};
use crate::progress;

type LineStream = BoxStream<'static, Result<Bytes, SessionsError>>;

pub(crate) async fn export(global: &Global, args: Export, output: Output) -> Result<(), CliError> {
    let session = uid(&args.session)?;
    let context = Context::open(global, &HarnessArgs::default(), None, Open::Existing).await?;
    let journal = Exported { operations: context.operations().await?, session };
    // A session that is not there leaves no file.
    drop(journal.lines(Head::EMPTY).await?);
    let (name, exported) = match Target::of(args.file) {
        Target::Whole(path) => {
            let mut partial = Partial::claim(path.clone(), output)?;
            let records = journal.write_file(&mut partial, args.resume, output).await?;
            (path.display().to_string(), Some(records))
        }
        _ if args.resume => {
            return Err(CliError::usage("--resume needs a plain file as --file"));
        }
        Target::Through(path) => {
            let name = path.display().to_string();
            let opened = tokio::fs::OpenOptions::new().write(true).open(&path).await;
            let out = opened.map_err(|error| CliError::file(&name, &error))?;
            let records = journal.write_to(&name, Box::new(out)).await?;
            (name, Some(records))
        }
        Target::Stdout => {
            let name = "standard output".to_owned();
            journal.write_to(&name, Box::new(tokio::io::stdout())).await?;
            (name, None)
        }
    };
    if let Some(records) = exported {
        let session = &journal.session;
        output.line(
            || format!("exported {session} records={records} file={name}"),
            || json!({"session": session.as_str(), "records": records, "file": name}),
        );
    }
    context.close().await;
    Ok(())
}

/// A session's journal on its way out.
struct Exported {
    operations: Arc<dyn Operations>,
    session: SessionUid,
}

impl Exported {
    async fn lines(&self, after: Head) -> Result<LineStream, SessionsError> {
        let request = ExportRequest { session: self.session.clone(), after };
        self.operations.export(&caller(method::EXPORT), request).await
    }

    /// Writes everything, and returns how many records there are.
    async fn write_to(
        &self,
        name: &str,
        mut out: Box<dyn AsyncWrite + Unpin + Send>,
    ) -> Result<u64, CliError> {
        let failed = |error: std::io::Error| CliError::file(name, &error);
        let mut lines = self.lines(Head::EMPTY).await?;
        let bar = progress::counter("export");
        while let Some(line) = lines.next().await {
            out.write_all(&line?).await.map_err(failed)?;
            bar.inc(1);
        }
        out.flush().await.map_err(failed)?;
        bar.finish_and_clear();
        // The last line is the head.
        Ok(bar.position().saturating_sub(1))
    }

    /// Writes what is missing, and gives the file its name.
    async fn write_file(
        &self,
        partial: &mut Partial,
        resume: bool,
        output: Output,
    ) -> Result<u64, CliError> {
        let resumed = if resume { self.resume(partial, output).await? } else { None };
        let (kept, mut lines) = match resumed {
            Some((kept, lines)) => (Some(kept), lines),
            None => (None, self.lines(Head::EMPTY).await?),
        };
        partial.begin(kept.as_ref())?;
        let bar = progress::counter("export");
        let mut records = kept.map_or(0, |kept| kept.before.seq.get());
        bar.set_position(records);
        while let Some(line) = lines.next().await {
            partial.write(&line?)?;
            records += 1;
            bar.inc(1);
        }
        partial.finish()?;
        bar.finish_and_clear();
        Ok(records.saturating_sub(1))
    }

    /// What of a partial file is kept, and the lines from its last record on;
    /// `None` when the journal does not continue it, which is said.
    ///
    /// That record is read once more and must give the same line: its hash says
    /// that the journal is the same up to it, and its line that the fence and
    /// the notes are.
    async fn resume(
        &self,
        partial: &Partial,
        output: Output,
    ) -> Result<Option<(Kept, LineStream)>, CliError> {
        let anew = |why: &str| {
            output.note(&format!("{why}: starting with the first record"));
            Ok(None)
        };
        let name = partial.name();
        let kept = match partial.kept().await {
            Ok(Some(kept)) => kept,
            Ok(None) => return anew(&format!("{name} holds no whole record")),
            Err(error) => return anew(&format!("{name} does not verify ({error})")),
        };
        let other = format!("{name} is not a part of this journal");
        let mut lines = match self.lines(kept.before).await {
            Ok(lines) => lines,
            Err(error) if error.condition() == Condition::Conflict => return anew(&other),
            Err(error) => return Err(error.into()),
        };
        match lines.next().await.transpose()? {
            Some(first) if first == kept.last => {
                let first = futures_util::stream::iter([Ok(first)]);
                Ok(Some((kept, Box::pin(first.chain(lines)))))
            }
            _ => anew(&other),
        }
    }
}

/// Where an export goes.
enum Target {
    Stdout,
    /// A new file appears under its name only when it is whole.
    Whole(PathBuf),
    /// What is there and is no plain file (a device, a pipe, a link) is written
    /// to, never replaced.
    Through(PathBuf),
}

impl Target {
    fn of(path: Option<PathBuf>) -> Self {
        let Some(path) = path.filter(|path| path.as_os_str() != "-") else {
            return Self::Stdout;
        };
        match std::fs::symlink_metadata(&path) {
            Ok(found) if !found.is_file() => Self::Through(path),
            _ => Self::Whole(path),
        }
    }
}

pub(crate) async fn import(global: &Global, args: Import, output: Output) -> Result<(), CliError> {
    let resumed = args.resume.as_deref().map(AppendId::from_hex).transpose();
    let resumed = resumed.map_err(|error| CliError::usage(format!("--resume: {error}")))?;
    let id = resumed.unwrap_or_else(|| AppendId::random(&OsEntropy));
    let request = ImportRequest {
        session: args.session.as_deref().map(uid).transpose()?,
        harness: args.harness.clone(),
        project: global.project.clone(),
        name: args.name.clone(),
        id: Some(id),
    };
    let context = Context::open(global, &HarnessArgs::default(), None, Open::OrCreate).await?;
    let operations = context.operations().await?;
    let journal = Journal::open(&args.file).await?;
    let cut = Arc::new(AtomicBool::new(false));
    let mut staged = Staged { id, output, kept: true };
    let lines = line_stream(journal, Arc::clone(&cut));
    let imported = operations.import(&caller(method::IMPORT), request, lines).await;
    staged.kept = imported.as_ref().err().is_some_and(|error| {
        let refused = matches!(error.kind(), ErrorKind::Unauthenticated | ErrorKind::Denied);
        !refused && (cut.load(Ordering::Relaxed) || may_be_repeated(error))
    });
    drop(staged);
    context.close().await;
    let session = imported?;
    output.line(
        || format!("session {} last_seq={}", session.uid, session.last_seq),
        || session_json(&session),
    );
    Ok(())
}

/// Whether the same lines may well be imported another time.
fn may_be_repeated(error: &SessionsError) -> bool {
    let passing = matches!(
        error.kind(),
        ErrorKind::Unavailable | ErrorKind::Deadline | ErrorKind::Cancelled | ErrorKind::Internal
    );
    passing || error.outcome() == Outcome::Unknown
}

/// Tells how to go on with an import that did not come to its end, also when
/// the command is interrupted.
struct Staged {
    id: AppendId,
    output: Output,
    kept: bool,
}

impl Drop for Staged {
    fn drop(&mut self) {
        if self.kept {
            let id = self.id;
            self.output.note(&format!("import {id} is kept: run again with --resume {id}"));
        }
    }
}

/// A journal's lines as they are read. `cut` is set when they end too early.
fn line_stream(journal: Journal, cut: Arc<AtomicBool>) -> LineStream {
    let lines = match journal {
        Journal::Vector(lines) => {
            return Box::pin(futures_util::stream::iter(lines.into_iter().map(Ok)));
        }
        Journal::Lines(lines) => lines,
    };
    let bar = progress::bytes("import", lines.bytes);
    Box::pin(futures_util::stream::unfold(Some((lines, bar, cut)), async |state| {
        let (mut lines, bar, cut): (Lines, ProgressBar, Arc<AtomicBool>) = state?;
        let line = lines.next().await;
        cut.store(lines.cut, Ordering::Relaxed);
        bar.set_position(lines.done);
        match line {
            Ok(Some(line)) => Some((Ok(line.into()), Some((lines, bar, cut)))),
            Ok(None) => {
                bar.finish_and_clear();
                None
            }
            Err(error) => Some((Err(error.into()), None)),
        }
    }))
}
