//! What a local runtime serves, and its bounds.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mainspring_api::Harness;
use mainspring_support_process::split;

use crate::command::CommandLauncher;
use crate::error::LocalConfigError;
use crate::launcher::Launcher;
use crate::runtime::LocalRuntime;

/// How a harness is started as a child process.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChildSpec {
    /// The program, looked up in `PATH` if it has no slash.
    pub program: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables that it gets besides the host's.
    pub env: BTreeMap<String, String>,
}

impl ChildSpec {
    /// A program without arguments.
    #[must_use]
    pub fn new(program: impl Into<String>) -> Self {
        Self { program: program.into(), args: Vec::new(), env: BTreeMap::new() }
    }

    /// A command line, split into words as a shell would, with nothing expanded.
    ///
    /// # Errors
    /// [`LocalConfigError::NoProgram`], or [`LocalConfigError::CommandLine`].
    pub fn parse(line: &str) -> Result<Self, LocalConfigError> {
        let mut words = split(line)?.into_iter();
        let program = words.next().ok_or(LocalConfigError::NoProgram)?;
        Ok(Self::new(program).args(words))
    }

    /// Adds arguments.
    #[must_use]
    pub fn args(mut self, args: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets a variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    fn check(&self) -> Result<(), LocalConfigError> {
        if self.program.is_empty() {
            return Err(LocalConfigError::NoProgram);
        }
        let nul = |text: &String| text.contains('\0');
        let bad = |what| Err(LocalConfigError::Unspawnable { what });
        if nul(&self.program) {
            return bad("program");
        }
        if self.args.iter().any(nul) {
            return bad("argument");
        }
        if self.env.iter().any(|(k, v)| k.is_empty() || k.contains('=') || nul(k) || nul(v)) {
            return bad("environment variable");
        }
        Ok(())
    }
}

/// The bounds of a local runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LocalOptions {
    /// How long a child may take until its socket accepts; 10 s.
    pub ready_within: Duration,
    /// How long a child may take to end after its standard input was closed,
    /// and again after SIGTERM; 2 s.
    pub stop_grace: Duration,
    /// How many sessions may have a child at a time; 256.
    pub children_max: usize,
    /// Where the private folder of sockets is made; the system's temporary
    /// folder. Its path must leave a socket path below 108 bytes.
    pub socket_parent: Option<PathBuf>,
    /// Variables of the host that no child sees: `MODEL_API_KEY` and
    /// `OPENAI_API_KEY`, since model calls are the host's to make.
    pub env_withheld: Vec<String>,
}

impl Default for LocalOptions {
    fn default() -> Self {
        Self {
            ready_within: Duration::from_secs(10),
            stop_grace: Duration::from_secs(2),
            children_max: 256,
            socket_parent: None,
            env_withheld: vec!["MODEL_API_KEY".to_owned(), "OPENAI_API_KEY".to_owned()],
        }
    }
}

/// Collects what a local runtime serves.
#[derive(Debug)]
pub struct LocalRuntimeBuilder {
    pub(crate) built_in: Vec<(String, Arc<dyn Harness>)>,
    pub(crate) children: Vec<(String, ChildSpec)>,
    pub(crate) launcher: Arc<dyn Launcher>,
    pub(crate) options: LocalOptions,
}

impl Default for LocalRuntimeBuilder {
    fn default() -> Self {
        Self {
            built_in: Vec::new(),
            children: Vec::new(),
            launcher: Arc::new(CommandLauncher),
            options: LocalOptions::default(),
        }
    }
}

impl LocalRuntimeBuilder {
    /// Serves `harness` in this process.
    #[must_use]
    pub fn built_in(mut self, name: impl Into<String>, harness: Arc<dyn Harness>) -> Self {
        self.built_in.push((name.into(), harness));
        self
    }

    /// Serves a harness as one child process per session.
    #[must_use]
    pub fn child(mut self, name: impl Into<String>, spec: ChildSpec) -> Self {
        self.children.push((name.into(), spec));
        self
    }

    /// Starts children in another way than as plain commands.
    #[must_use]
    pub fn launcher(mut self, launcher: Arc<dyn Launcher>) -> Self {
        self.launcher = launcher;
        self
    }

    /// Sets the bounds.
    #[must_use]
    pub fn options(mut self, options: LocalOptions) -> Self {
        self.options = options;
        self
    }

    /// The runtime. Nothing is started yet.
    ///
    /// # Errors
    /// [`LocalConfigError`], naming the rule.
    pub fn build(self) -> Result<LocalRuntime, LocalConfigError> {
        let mut names: Vec<&String> = self.built_in.iter().map(|(name, _)| name).collect();
        names.extend(self.children.iter().map(|(name, _)| name));
        names.sort();
        if names.iter().any(|name| name.is_empty()) {
            return Err(LocalConfigError::NoName);
        }
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(LocalConfigError::Duplicate { name: twice[0].clone() });
        }
        self.children.iter().try_for_each(|(_, spec)| spec.check())?;
        Ok(LocalRuntime::from_builder(self))
    }
}
