//! A file that is written beside its name and gets it when it is whole.
//!
//! What was written before an interruption is kept, and can be gone on from.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufWriter, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use mainspring::api::{ErrorKind, Head};
use mainspring::eventlog::export::LineVerifier;

use crate::error::CliError;
use crate::lines::Lines;
use crate::output::Output;

/// How often a file is claimed that is replaced meanwhile.
const CLAIMS_MAX: usize = 8;

/// An export under way. Two of one name cannot be: its file is locked.
pub(crate) struct Partial {
    path: PathBuf,
    partial: PathBuf,
    file: BufWriter<File>,
    output: Output,
    whole: bool,
}

/// Up to where a partial export verifies.
pub(crate) struct Kept {
    /// The head before its last record.
    pub(crate) before: Head,
    /// The line of its last record.
    pub(crate) last: Vec<u8>,
    /// Where that line begins.
    at: u64,
}

impl Partial {
    /// Claims the partial file of `path`, and leaves its content as it is.
    pub(crate) fn claim(path: PathBuf, output: Output) -> Result<Self, CliError> {
        let mut partial = path.clone().into_os_string();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        let failed = |error: io::Error| CliError::file(&partial.display().to_string(), &error);
        for _ in 0..CLAIMS_MAX {
            if std::fs::symlink_metadata(&partial).is_ok_and(|found| !found.is_file()) {
                return Err(CliError::usage(format!("{} is not a file", partial.display())));
            }
            // A journal is its owner's alone, and so is its export.
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).mode(0o600);
            let file = options.open(&partial).map_err(failed)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(busy(&partial)),
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
            // Who had it before may have finished: then this is the whole file,
            // under its own name.
            let locked = file.metadata().map_err(failed)?;
            let named = std::fs::symlink_metadata(&partial);
            let id = |found: &std::fs::Metadata| (found.dev(), found.ino());
            if named.is_ok_and(|named| id(&named) == id(&locked)) {
                let file = BufWriter::with_capacity(256 << 10, file);
                return Ok(Self { path, partial, file, output, whole: false });
            }
        }
        Err(busy(&partial))
    }

    /// Its name, for people.
    pub(crate) fn name(&self) -> String {
        self.partial.display().to_string()
    }

    fn failed(&self, error: &io::Error) -> CliError {
        CliError::file(&self.name(), error)
    }

    /// Verifies what an earlier export left. A line that was cut, and a head,
    /// count for nothing; where nothing counts there is nothing to go on with.
    pub(crate) async fn kept(&self) -> Result<Option<Kept>, CliError> {
        let mut file = self.file.get_ref().try_clone().map_err(|error| self.failed(&error))?;
        file.seek(SeekFrom::Start(0)).map_err(|error| self.failed(&error))?;
        let source = Box::new(tokio::fs::File::from_std(file));
        let mut lines = Lines::of(&self.name(), source, None);
        let mut verifier = LineVerifier::default();
        let mut kept = None;
        loop {
            let (before, at) = (verifier.records_head(), lines.done);
            let Some(line) = lines.next().await? else { return Ok(kept) };
            if lines.cut {
                return Ok(kept);
            }
            verifier.push(&line)?;
            if verifier.records_head() == before {
                return Ok(kept);
            }
            kept = Some(Kept { before, last: line, at });
        }
    }

    /// Begins to write: after what is kept but its last record, or anew.
    pub(crate) fn begin(&mut self, kept: Option<&Kept>) -> Result<(), CliError> {
        let at = kept.map_or(0, |kept| kept.at);
        let file = self.file.get_mut();
        let begun = file.set_len(at).and_then(|()| file.seek(SeekFrom::Start(at)));
        begun.map(drop).map_err(|error| self.failed(&error))
    }

    pub(crate) fn write(&mut self, line: &[u8]) -> Result<(), CliError> {
        self.file.write_all(line).map_err(|error| CliError::file(&self.name(), &error))
    }

    /// Gives the whole file its name.
    pub(crate) fn finish(&mut self) -> Result<(), CliError> {
        let done = self.file.flush().and_then(|()| self.file.get_ref().sync_all());
        done.and_then(|()| std::fs::rename(&self.partial, &self.path))
            .map_err(|error| self.failed(&error))?;
        self.whole = true;
        let parent = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(parent.unwrap_or(Path::new(".")))
            .and_then(|directory| directory.sync_all())
            .map_err(|error| self.failed(&error))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if self.whole {
            return;
        }
        let _ = self.file.flush();
        match self.file.get_ref().metadata() {
            Ok(found) if found.len() > 0 => {
                self.output.note(&format!("{} is kept: run again with --resume", self.name()));
            }
            _ => drop(std::fs::remove_file(&self.partial)),
        }
    }
}

fn busy(partial: &Path) -> CliError {
    CliError {
        code: "export_busy".to_owned(),
        kind: ErrorKind::Busy,
        ..CliError::usage(format!("another export writes {}", partial.display()))
    }
}
