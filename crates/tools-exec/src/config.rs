//! The bounds of calls, and what cannot be configured.

use std::time::Duration;

use mainspring_api::{Classify, Condition, ErrorKind};
use mainspring_support_http::HttpClientError;
use mainspring_support_process::CommandLineError;

/// The bounds of tool calls, and what commands do not see.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ToolsOptions {
    /// How long one call may take; 60 s. It covers the wait for its turn, and
    /// for a command the time until it ends, for an address the last byte of
    /// the answer.
    pub call_within: Duration,
    /// How long a connection may take; 10 s.
    pub connect_within: Duration,
    /// How large a result may be; 1 MiB.
    pub output_bytes_max: usize,
    /// How much of a failure is shown: of the end of a command's standard
    /// error, or of the start of a refusal's body; 4 KiB.
    pub error_bytes_max: usize,
    /// How many calls run at a time; others wait; 64.
    pub calls_max: usize,
    /// Variables of the host that no command sees, besides all that begin with
    /// `MAINSPRING_`; `MODEL_API_KEY` and `OPENAI_API_KEY`.
    pub env_withheld: Vec<String>,
}

impl Default for ToolsOptions {
    fn default() -> Self {
        Self {
            call_within: Duration::from_secs(60),
            connect_within: Duration::from_secs(10),
            output_bytes_max: 1 << 20,
            error_bytes_max: 4 << 10,
            calls_max: 64,
            env_withheld: vec!["MODEL_API_KEY".to_owned(), "OPENAI_API_KEY".to_owned()],
        }
    }
}

impl ToolsOptions {
    pub(crate) fn check(&self) -> Result<(), ToolsConfigError> {
        for (bound, is_zero) in [
            ("call_within", self.call_within.is_zero()),
            ("connect_within", self.connect_within.is_zero()),
            ("output_bytes_max", self.output_bytes_max == 0),
            ("calls_max", self.calls_max == 0),
        ] {
            if is_zero {
                return Err(ToolsConfigError::ZeroBound { bound });
            }
        }
        Ok(())
    }
}

/// Why tools cannot be set up. Quotes names alone: an address may hold a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ToolsConfigError {
    /// Not of the form that [`ToolEntry::parse`](crate::ToolEntry::parse) takes.
    #[error("a tool is not NAME=exec:CMD or NAME=http:URL")]
    NotATool,
    /// A name that no tool can have.
    #[error(
        "tool name {name:?} is not 1 to {bytes_max} ascii letters, digits, '_', '-', '.', '/' or ':'"
    )]
    Name {
        /// The name.
        name: String,
        /// How long one may be.
        bytes_max: usize,
    },
    /// Neither a command nor an address.
    #[error("tool {name:?} is neither exec:CMD nor http:URL")]
    NoPlace {
        /// The tool.
        name: String,
    },
    /// Two tools of one name.
    #[error("tool {name:?} is configured twice")]
    Duplicate {
        /// The name.
        name: String,
    },
    /// A command without a program.
    #[error("tool {name:?}: command is empty")]
    NoProgram {
        /// The tool.
        name: String,
    },
    /// A command line that does not split into words.
    #[error("tool {name:?}: {why}")]
    CommandLine {
        /// The tool.
        name: String,
        /// The rule that it breaks.
        why: CommandLineError,
    },
    /// A program or an argument that no process can be given.
    #[error("tool {name:?}: command holds a zero character")]
    Unspawnable {
        /// The tool.
        name: String,
    },
    /// An address that cannot be called.
    #[error("tool {name:?}: its url {why}")]
    Url {
        /// The tool.
        name: String,
        /// The rule that it breaks.
        why: &'static str,
    },
    /// A bound that lets nothing through.
    #[error("{bound} is zero")]
    ZeroBound {
        /// Its name.
        bound: &'static str,
    },
    /// The HTTP client cannot be set up.
    #[error(transparent)]
    Client(#[from] HttpClientError),
}

impl Classify for ToolsConfigError {
    fn kind(&self) -> ErrorKind {
        self.condition().kind()
    }

    fn code(&self) -> &'static str {
        self.condition().code()
    }
}

impl ToolsConfigError {
    fn condition(&self) -> Condition {
        match self {
            Self::Client(_) => Condition::Internal,
            _ => Condition::InvalidArgument,
        }
    }
}
