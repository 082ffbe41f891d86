//! Reading journals of lines, bounded, from a file or from standard input.

use mainspring::api::{Bytes, SessionsError};
use mainspring::eventlog::LogError;
use mainspring::eventlog::export::{LINE_BYTES_MAX, VECTOR_BYTES_MAX, check_line, vector_lines};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};

use crate::error::CliError;

/// What is read at a time.
const BUFFER_BYTES: usize = 256 << 10;

/// A journal as it is read.
pub(crate) enum Journal {
    /// An export, line by line.
    Lines(Lines),
    /// A vector file, which is one document.
    Vector(Vec<Bytes>),
}

impl Journal {
    /// Opens a file, or standard input for `-`.
    pub(crate) async fn open(path: &str) -> Result<Self, CliError> {
        let mut lines = if path == "-" {
            Lines::of(path, Box::new(tokio::io::stdin()), None)
        } else {
            let failed = |error: std::io::Error| CliError::file(path, &error);
            let file = tokio::fs::File::open(path).await.map_err(failed)?;
            let found = file.metadata().await.map_err(failed)?;
            Lines::of(path, Box::new(file), found.is_file().then_some(found.len()))
        };
        // A vector file is one document that starts with a lone brace; an
        // export has a whole document on its first line.
        let mut document = match lines.next().await? {
            Some(first) if first.trim_ascii() == b"{" => first,
            first => {
                lines.first = first;
                return Ok(Self::Lines(lines));
            }
        };
        let rest = (VECTOR_BYTES_MAX + 1 - document.len()) as u64;
        let read = (&mut lines.reader).take(rest).read_to_end(&mut document).await;
        read.map_err(|error| CliError::file(path, &error))?;
        match vector_lines(&document)? {
            Some(lines) => Ok(Self::Vector(lines)),
            None => Err(LogError::BadLine {
                line: 1,
                why: format!("{path} is neither an export nor a vector file"),
            }
            .into()),
        }
    }
}

/// Lines, each with its end unless the file ends before it.
pub(crate) struct Lines {
    reader: BufReader<Box<dyn AsyncRead + Unpin + Send>>,
    path: String,
    /// The first line, where it was looked at already.
    first: Option<Vec<u8>>,
    /// Bytes of the whole, where they are known.
    pub(crate) bytes: Option<u64>,
    /// Bytes that were read.
    pub(crate) done: u64,
    /// Whether it could not be read to its end, or ended within a line.
    pub(crate) cut: bool,
}

/// Why there is no next line.
pub(crate) enum ReadError {
    /// The file cannot be read.
    Io(String),
    /// The line exceeds its bound.
    TooLong(LogError),
}

impl Lines {
    pub(crate) fn of(
        path: &str,
        source: Box<dyn AsyncRead + Unpin + Send>,
        bytes: Option<u64>,
    ) -> Self {
        Self {
            reader: BufReader::with_capacity(BUFFER_BYTES, source),
            path: path.to_owned(),
            first: None,
            bytes,
            done: 0,
            cut: false,
        }
    }

    /// The next line; no more than its bound is held in memory.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<u8>>, ReadError> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        let mut line = Vec::new();
        let mut bounded = (&mut self.reader).take(LINE_BYTES_MAX as u64 + 1);
        if let Err(error) = bounded.read_until(b'\n', &mut line).await {
            self.cut = true;
            return Err(ReadError::Io(format!("{}: {error}", self.path)));
        }
        check_line(&line).map_err(ReadError::TooLong)?;
        if line.is_empty() {
            return Ok(None);
        }
        self.done += line.len() as u64;
        self.cut = !line.ends_with(b"\n");
        Ok(Some(line))
    }
}

impl From<ReadError> for CliError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Io(message) => Self::usage(message),
            ReadError::TooLong(error) => error.into(),
        }
    }
}

impl From<ReadError> for SessionsError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Io(message) => {
                Self::new(mainspring::api::Condition::InvalidArgument, message)
            }
            ReadError::TooLong(error) => Self::because(std::sync::Arc::new(error)),
        }
    }
}
