//! One tool: its name, where it is, and whether it may be repeated.

use std::fmt;

use mainspring_support_process::split;
use reqwest::Url;

use crate::config::ToolsConfigError;

/// How long a tool's name may be.
const NAME_BYTES_MAX: usize = 128;

/// What a tool ends with that deduplicates by its key.
const DURABLE: &str = ",durable";

/// A tool and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolEntry {
    pub(crate) name: String,
    pub(crate) place: Place,
    pub(crate) is_durable: bool,
}

/// Where a tool is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// A command of this machine.
    Exec { program: String, args: Vec<String> },
    /// An address.
    Http(Address),
}

/// An address that may hold keys; its `Debug` shows scheme, host and port.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Address(pub(crate) Url);

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/...", self.0.origin().ascii_serialization())
    }
}

impl ToolEntry {
    /// `NAME=exec:CMD` or `NAME=http:URL`, either with `,durable` at its end.
    ///
    /// A command that itself ends so has its last word in quotes, an address
    /// its comma as `%2C`.
    ///
    /// # Errors
    /// [`ToolsConfigError`], naming the rule; it quotes the name alone.
    ///
    /// # Examples
    /// ```
    /// use mainspring_tools_exec::ToolEntry;
    ///
    /// let refund = ToolEntry::parse("refund=exec:./refund --live,durable")?;
    /// assert!(refund.is_durable());
    /// let quote = ToolEntry::parse("quote=http:https://prices.example/quote")?;
    /// assert_eq!((quote.name(), quote.is_durable()), ("quote", false));
    /// # Ok::<(), mainspring_tools_exec::ToolsConfigError>(())
    /// ```
    pub fn parse(spec: &str) -> Result<Self, ToolsConfigError> {
        let (name, rest) = spec.split_once('=').ok_or(ToolsConfigError::NotATool)?;
        let (place, is_durable) = match rest.strip_suffix(DURABLE) {
            Some(place) => (place, true),
            None => (rest, false),
        };
        let entry = if let Some(line) = place.strip_prefix("exec:") {
            let words = split(line)
                .map_err(|why| ToolsConfigError::CommandLine { name: name.to_owned(), why })?;
            let mut words = words.into_iter();
            Self::exec(name, words.next().unwrap_or_default(), words)?
        } else if let Some(url) = place.strip_prefix("http:") {
            Self::http(name, url)?
        } else {
            return Err(match checked_name(name.to_owned()) {
                Ok(name) => ToolsConfigError::NoPlace { name },
                Err(error) => error,
            });
        };
        Ok(Self { is_durable, ..entry })
    }

    /// A program with arguments, looked up in `PATH` if it has no slash.
    ///
    /// # Errors
    /// [`ToolsConfigError`], naming the rule.
    pub fn exec(
        name: impl Into<String>,
        program: impl Into<String>,
        args: impl IntoIterator<Item = impl Into<String>>,
    ) -> Result<Self, ToolsConfigError> {
        let name = checked_name(name.into())?;
        let program = program.into();
        let args: Vec<String> = args.into_iter().map(Into::into).collect();
        if program.is_empty() {
            return Err(ToolsConfigError::NoProgram { name });
        }
        if program.contains('\0') || args.iter().any(|arg| arg.contains('\0')) {
            return Err(ToolsConfigError::Unspawnable { name });
        }
        Ok(Self { name, place: Place::Exec { program, args }, is_durable: false })
    }

    /// An address that takes a POST. User info in it becomes basic
    /// authorisation; it and the query are treated as secrets.
    ///
    /// # Errors
    /// [`ToolsConfigError`], naming the rule.
    pub fn http(name: impl Into<String>, url: &str) -> Result<Self, ToolsConfigError> {
        let name = checked_name(name.into())?;
        let refuse = |why| Err(ToolsConfigError::Url { name: name.clone(), why });
        let Ok(url) = Url::parse(url) else {
            return refuse("is not an absolute one");
        };
        if !matches!(url.scheme(), "http" | "https") {
            return refuse("has a scheme other than http and https");
        }
        if url.fragment().is_some() {
            return refuse("has a fragment");
        }
        Ok(Self { name, place: Place::Http(Address(url)), is_durable: false })
    }

    /// Says that the tool deduplicates durably by session and key, or that
    /// repeating it does no harm: a call whose outcome is unknown may then be
    /// sent again under its key.
    #[must_use]
    pub fn durable(self) -> Self {
        Self { is_durable: true, ..self }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it was declared durable.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.is_durable
    }
}

/// Names travel in headers and variables, and models are given them.
fn checked_name(name: String) -> Result<String, ToolsConfigError> {
    let takes = |b: u8| b.is_ascii_alphanumeric() || b"_-./:".contains(&b);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(takes) {
        return Err(ToolsConfigError::Name { name, bytes_max: NAME_BYTES_MAX });
    }
    Ok(name)
}
