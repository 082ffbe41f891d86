//! Exporting and importing journals.

use std::path::PathBuf;

use futures_util::StreamExt as _;
use mainspring::api::{Bytes, ImportRequest, Operations as _, SessionsError};
use mainspring::eventlog::export::vector_lines;
use serde_json::json;
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _,
};

use crate::args::{Export, Global, HarnessArgs, Import};
use crate::context::{Context, Open, caller, uid};
use crate::error::CliError;
use crate::output::{Output, session_json};
use crate::progress;

pub(crate) async fn export(global: &Global, args: Export, output: Output) -> Result<(), CliError> {
    let session = uid(&args.session)?;
    let context = Context::open(global, &HarnessArgs::default(), None, Open::Existing).await?;
    let host = context.embedded("export")?;
    let mut lines = host.service().export(&caller("mainspring export"), &session).await?;
    let target = Target::of(args.file)?;
    let path = target.name();
    let failed = |error: std::io::Error| CliError::file(&path, &error);
    let mut out = target.open().await.map_err(failed)?;
    let bar = progress::counter("export");
    let mut records: u64 = 0;
    while let Some(line) = lines.next().await {
        out.write_all(&line?).await.map_err(failed)?;
        records += 1;
        bar.inc(1);
    }
    out.flush().await.map_err(failed)?;
    bar.finish_and_clear();
    drop(out);
    if target.finish().await.map_err(failed)? {
        let records = records.saturating_sub(1);
        output.line(
            || format!("exported {session} records={records} file={path}"),
            || json!({"session": session.as_str(), "records": records, "file": path}),
        );
    }
    drop(lines);
    context.close().await;
    Ok(())
}

pub(crate) async fn import(global: &Global, args: Import, output: Output) -> Result<(), CliError> {
    let request = ImportRequest {
        session: args.session.as_deref().map(uid).transpose()?,
        harness: args.harness.clone(),
        project: global.project.clone(),
        name: args.name.clone(),
    };
    let context = Context::open(global, &HarnessArgs::default(), None, Open::OrCreate).await?;
    let host = context.embedded("import")?;
    let lines = read_lines(&args.file).await?;
    let imported = host.service().import(&caller("mainspring import"), request, lines).await;
    context.close().await;
    let session = imported?;
    output.line(
        || format!("session {} last_seq={}", session.uid, session.last_seq),
        || session_json(&session),
    );
    Ok(())
}

type Lines = mainspring::api::BoxStream<'static, Result<Bytes, SessionsError>>;

/// The lines of an exported file as they are read, or those of a vector file.
async fn read_lines(path: &str) -> Result<Lines, CliError> {
    let failed = |error: std::io::Error| CliError::file(path, &error);
    let source: Box<dyn AsyncRead + Unpin + Send> = if path == "-" {
        Box::new(tokio::io::stdin())
    } else {
        Box::new(tokio::fs::File::open(path).await.map_err(failed)?)
    };
    let mut reader = tokio::io::BufReader::new(source);
    let mut first = Vec::new();
    reader.read_until(b'\n', &mut first).await.map_err(failed)?;
    if first.trim_ascii() == b"{" {
        reader.read_to_end(&mut first).await.map_err(failed)?;
        let lines = vector_lines(&first)?.ok_or_else(|| {
            CliError::usage(format!("{path} is neither an export nor a vector file"))
        })?;
        return Ok(Box::pin(futures_util::stream::iter(lines.into_iter().map(Ok))));
    }
    let bar = progress::counter("import");
    let state = (reader, Some(first), bar, path.to_owned());
    Ok(Box::pin(futures_util::stream::unfold(state, async |(mut reader, first, bar, path)| {
        let mut line = first.unwrap_or_default();
        if line.is_empty()
            && let Err(error) = reader.read_until(b'\n', &mut line).await
        {
            let message = format!("{path}: {error}");
            let condition = mainspring::api::Condition::InvalidArgument;
            return Some((Err(SessionsError::new(condition, message)), (reader, None, bar, path)));
        }
        if line.is_empty() {
            bar.finish_and_clear();
            return None;
        }
        bar.inc(1);
        Some((Ok(line.into()), (reader, None, bar, path)))
    })))
}

/// Where an export goes.
enum Target {
    Stdout,
    /// A new file appears under its name only when it is whole.
    Whole {
        path: PathBuf,
        partial: PathBuf,
    },
    /// What is there and is no plain file (a device, a pipe, a link) is written
    /// to, never replaced.
    Through(PathBuf),
}

impl Target {
    fn of(path: Option<PathBuf>) -> Result<Self, CliError> {
        let Some(path) = path.filter(|path| path.as_os_str() != "-") else {
            return Ok(Self::Stdout);
        };
        match std::fs::symlink_metadata(&path) {
            Ok(found) if !found.is_file() => Ok(Self::Through(path)),
            _ => {
                let mut partial = path.clone().into_os_string();
                partial.push(format!(".partial-{}", std::process::id()));
                Ok(Self::Whole { path, partial: partial.into() })
            }
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Stdout => "standard output".to_owned(),
            Self::Whole { path, .. } | Self::Through(path) => path.display().to_string(),
        }
    }

    async fn open(&self) -> std::io::Result<Box<dyn AsyncWrite + Unpin + Send>> {
        let mut options = tokio::fs::OpenOptions::new();
        Ok(match self {
            Self::Stdout => Box::new(tokio::io::stdout()),
            // A journal is its owner's alone, and so is its export.
            Self::Whole { partial, .. } => {
                Box::new(options.write(true).create_new(true).mode(0o600).open(partial).await?)
            }
            Self::Through(path) => Box::new(options.write(true).open(path).await?),
        })
    }

    /// Puts a whole file in its place. Returns whether there is a file to speak of.
    async fn finish(&self) -> std::io::Result<bool> {
        match self {
            Self::Stdout => Ok(false),
            Self::Through(_) => Ok(true),
            Self::Whole { path, partial } => {
                tokio::fs::File::open(partial).await?.sync_all().await?;
                tokio::fs::rename(partial, path).await?;
                Ok(true)
            }
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Self::Whole { partial, .. } = self {
            // Gone already when the export was whole.
            let _ = std::fs::remove_file(partial);
        }
    }
}
