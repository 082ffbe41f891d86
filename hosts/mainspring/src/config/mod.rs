//! The configuration: one TOML file, the environment, and the command line.
//!
//! A flag goes before a variable, that before the file, and that before the
//! default. A key or a variable that is no setting is refused by its name.

mod settings;
mod show;
mod typed;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use mainspring::api::Action;
use toml::{Table, Value};

use crate::error::CliError;
use settings::{Form, OTHER_VARIABLES, PREFIX, SETTINGS, Setting, is_of_a_service, setting};

pub(crate) use show::show;
#[cfg(feature = "kafka")]
pub(crate) use typed::Kafka;
#[cfg(feature = "transport-grpc")]
pub(crate) use typed::{ClientAuth, Listed, PolicyKind};
pub(crate) use typed::{Config, ExecStateView, HarnessConfig, HarnessRuntime, Log, LogFormat};

/// The file of a command that names none, if it is there.
const DEFAULT_FILE: &str = "mainspring.toml";

/// What is allowed by lists; owners do the rest, or nobody does.
const LISTED_ACTIONS: [Action; 8] = [
    Action::Create,
    Action::List,
    Action::Approve,
    Action::Adopt,
    Action::RegistryRead,
    Action::RegistryList,
    Action::RegistryRegister,
    Action::RegistryRetire,
];

/// The largest file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Where a setting's value comes from. Later ones go before earlier ones.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    Default,
    File(PathBuf),
    Variable(String),
    Flag,
}

impl Origin {
    /// Its place in the order of precedence.
    const fn rank(&self) -> u8 {
        match self {
            Self::Default => 0,
            Self::File(_) => 1,
            Self::Variable(_) => 2,
            Self::Flag => 3,
        }
    }
}

/// Settings that the command line gives.
#[derive(Debug, Clone, Default)]
pub(crate) struct Flags(Vec<(&'static str, Value)>);

impl Flags {
    /// Adds one that was given.
    pub(crate) fn set(&mut self, key: &'static str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.0.push((key, value.into()));
        }
    }

    /// Adds a list that was given.
    pub(crate) fn list(&mut self, key: &'static str, values: Vec<Value>) {
        if !values.is_empty() {
            self.0.push((key, Value::Array(values)));
        }
    }
}

/// Every setting with where it came from.
#[derive(Debug, Clone)]
pub(crate) struct Loaded {
    pub(crate) config: Config,
    values: BTreeMap<&'static str, Value>,
    origins: BTreeMap<&'static str, Origin>,
}

impl Loaded {
    /// Where a setting came from.
    pub(crate) fn origin(&self, key: &str) -> &Origin {
        self.origins.get(key).unwrap_or(&Origin::Default)
    }

    /// The server that a client command talks to. A journal that was named
    /// more closely (by a flag, where the server is the file's) goes before it.
    pub(crate) fn server(&self) -> Option<&str> {
        let server = self.config.server.as_deref()?;
        let closer = self.origin("journal").rank() > self.origin("server").rank();
        (!closer).then_some(server)
    }
}

/// Reads every source and lays them over each other.
///
/// # Errors
/// A usage error that names the file and line, the variable or the setting.
pub(crate) fn load(
    file: Option<&Path>,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
    flags: Flags,
) -> Result<Loaded, CliError> {
    let variables = Variables::read(variables)?;
    let mut layers = Layers::default();
    for setting in SETTINGS {
        if let Some(default) = setting.default {
            let value = parsed(default).expect("every default is a TOML value");
            layers.put(setting, value, Origin::Default);
        }
    }
    if let Some((path, text)) = find_file(file, variables.file.as_deref())? {
        let table = file_table(&path, &text)?;
        for setting in SETTINGS {
            if let Some(value) = lookup(&table, setting.key) {
                layers.put(setting, value.clone(), Origin::File(path.clone()));
            }
        }
    }
    for (setting, name, value) in variables.settings {
        layers.put(setting, value, Origin::Variable(name));
    }
    for (key, value) in flags.0 {
        let setting = setting(key).expect("a flag's key is a setting's");
        layers.put(setting, value, Origin::Flag);
    }
    layers.one_of("token", "token_file")?;
    layers.one_of("kafka.password", "kafka.password_file")?;
    let config = typed(&layers.values).map_err(|error| CliError::usage(error.to_string()))?;
    let Layers { values, origins } = layers;
    let loaded = Loaded { config, values, origins };
    check(&loaded)?;
    Ok(loaded)
}

#[derive(Debug, Default)]
struct Layers {
    values: BTreeMap<&'static str, Value>,
    origins: BTreeMap<&'static str, Origin>,
}

impl Layers {
    fn put(&mut self, setting: &'static Setting, value: Value, origin: Origin) {
        self.values.insert(setting.key, value);
        self.origins.insert(setting.key, origin);
    }

    /// Of two settings that stand for the same thing, leaves the one of the
    /// closer source. What is further away is laid over, as if it were the same.
    fn one_of(&mut self, first: &'static str, second: &'static str) -> Result<(), CliError> {
        let rank = |key: &str| self.origins.get(key).map(Origin::rank);
        let (Some(one), Some(other)) = (rank(first), rank(second)) else { return Ok(()) };
        let further = match one.cmp(&other) {
            Ordering::Less => first,
            Ordering::Greater => second,
            Ordering::Equal => {
                let message = format!("{first} and {second} are both set: only one is used");
                return Err(CliError::usage(message));
            }
        };
        self.values.remove(further);
        self.origins.remove(further);
        Ok(())
    }
}

/// The typed configuration of flat values.
fn typed(values: &BTreeMap<&'static str, Value>) -> Result<Config, toml::de::Error> {
    let mut root = Table::new();
    for (key, value) in values {
        let mut table = &mut root;
        let mut parts = key.split('.').peekable();
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                table.insert(part.to_owned(), value.clone());
                break;
            }
            let inner = table.entry(part).or_insert_with(|| Value::Table(Table::new()));
            match inner {
                Value::Table(inner) => table = inner,
                _ => unreachable!("a setting's key is no other's table"),
            }
        }
    }
    root.try_into()
}

/// What no single value can break.
fn check(loaded: &Loaded) -> Result<(), CliError> {
    let config = &loaded.config;
    if config.approval_ttl == Some(0) {
        return Err(CliError::usage("approval_ttl is 0; it is at least 1 s"));
    }
    let kafka = &config.kafka;
    for (key, seconds) in [
        ("kafka.write_max", kafka.write_max),
        ("kafka.read_max", kafka.read_max),
        ("kafka.silence_max", kafka.silence_max),
    ] {
        if seconds == 0 {
            return Err(CliError::usage(format!("{key} is 0; it is at least 1 s")));
        }
    }
    for name in config.authz.allow.keys() {
        if !LISTED_ACTIONS.map(Action::name).contains(&name.as_str()) {
            let actions = LISTED_ACTIONS.map(Action::name).join(", ");
            let message = format!("authz.allow has a list for {name:?}; there are: {actions}");
            return Err(CliError::usage(message));
        }
    }
    for key in ["model_base_url", "model_path", "model_auth_header"] {
        if config.model.is_none() && *loaded.origin(key) == Origin::Flag {
            let flag = key.replace('_', "-");
            return Err(CliError::usage(format!("--{flag} needs --model, or model in the file")));
        }
    }
    Ok(())
}

/// The file's path and text; a file that was named must be there.
fn find_file(
    flag: Option<&Path>,
    variable: Option<&Path>,
) -> Result<Option<(PathBuf, String)>, CliError> {
    use std::io::Read as _;
    let named = flag.or(variable);
    let path = named.unwrap_or(Path::new(DEFAULT_FILE));
    let name = path.display().to_string();
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if named.is_none() && error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(None);
        }
        Err(error) => return Err(CliError::file(&name, &error)),
    };
    let mut text = String::new();
    let read = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
    read.map_err(|error| CliError::file(&name, &error))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(CliError::usage(format!("{name} is larger than {FILE_BYTES_MAX} bytes")));
    }
    Ok(Some((path.to_owned(), text)))
}

/// The file as a table, once it is known to hold nothing else than settings of
/// their form. What is wrong is told without the line, which may hold a secret.
fn file_table(path: &Path, text: &str) -> Result<Table, CliError> {
    let wrong = |error: &toml::de::Error| {
        let at = error.span().map_or(0, |span| span.start.min(text.len()));
        let line = text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
        let message = error.message();
        CliError::usage(format!("{}, line {line}: {message}", path.display()))
    };
    toml::from_str::<Config>(text).map_err(|error| wrong(&error))?;
    text.parse::<Table>().map_err(|error| wrong(&error))
}

fn lookup<'a>(table: &'a Table, key: &str) -> Option<&'a Value> {
    match key.split_once('.') {
        None => table.get(key),
        Some((first, rest)) => lookup(table.get(first)?.as_table()?, rest),
    }
}

/// What the environment sets.
struct Variables {
    file: Option<PathBuf>,
    settings: Vec<(&'static Setting, String, Value)>,
}

impl Variables {
    fn read(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Result<Self, CliError> {
        let mut this = Self { file: None, settings: Vec::new() };
        let mut older_level = None;
        for (name, value) in variables {
            let Some(name) = name.to_str().filter(|name| name.starts_with(PREFIX)) else {
                continue;
            };
            let found = SETTINGS.iter().find(|setting| setting.variable().as_deref() == Some(name));
            if found.is_none() && is_of_a_service(name) {
                continue;
            }
            if found.is_none() && !OTHER_VARIABLES.contains(&name) {
                let message = format!("{name} in the environment is no setting");
                return Err(CliError::usage(message));
            }
            // Set to nothing is not set, as everywhere in a shell.
            if value.is_empty() {
                continue;
            }
            if name == "MAINSPRING_CONFIG" {
                this.file = Some(PathBuf::from(value));
                continue;
            }
            let text = value.to_str();
            let text = text.ok_or_else(|| CliError::usage(format!("{name} is not UTF-8")))?;
            if name == "MAINSPRING_LOG" {
                older_level = Some(text.to_owned());
            }
            if let Some(setting) = found {
                let value = variable_value(setting, name, text)?;
                this.settings.push((setting, name.to_owned(), value));
            }
        }
        let has_level = this.settings.iter().any(|(setting, ..)| setting.key == "log.level");
        if let (false, Some(level)) = (has_level, older_level) {
            let setting = setting("log.level").expect("the level is a setting");
            this.settings.push((setting, "MAINSPRING_LOG".to_owned(), Value::String(level)));
        }
        Ok(this)
    }
}

/// A variable's text in its setting's form. The text itself is never told: it
/// may be a secret.
fn variable_value(setting: &'static Setting, name: &str, text: &str) -> Result<Value, CliError> {
    let wrong = |what: &str| CliError::usage(format!("{name} is {what}"));
    let value = match setting.form {
        Form::Text => Value::String(text.to_owned()),
        Form::Number => Value::Integer(text.parse().map_err(|_| wrong("not a whole number"))?),
        Form::Switch => Value::Boolean(text.parse().map_err(|_| wrong("neither true nor false"))?),
        Form::Texts if text.starts_with('[') => match parsed(text) {
            Some(value @ Value::Array(_)) => value,
            _ => return Err(wrong("not an array of TOML")),
        },
        Form::Texts => Value::Array(vec![Value::String(text.to_owned())]),
        Form::Table => unreachable!("a table has no variable"),
    };
    // Alone, so that what is wrong is this variable's.
    typed(&BTreeMap::from([(setting.key, value.clone())])).map_err(|error| {
        // A secret is text of any form, and never wrong.
        CliError::usage(format!("{name}: {}", error.message()))
    })?;
    Ok(value)
}

/// A TOML value on its own.
fn parsed(text: &str) -> Option<Value> {
    format!("value = {text}").parse::<Table>().ok()?.remove("value")
}

#[cfg(test)]
mod tests;
