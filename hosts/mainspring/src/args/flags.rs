//! The flags that are settings too.

use toml::{Table, Value};

use super::kafka::{Kafka, KafkaInit};
use super::{Cli, Command, Format, GlobalArgs, HarnessArgs, ModelArgs, Serve};
use crate::config::Flags;
use crate::error::CliError;

impl Cli {
    /// The settings that the command line gives.
    ///
    /// # Errors
    /// A usage error for a flag that has not the form of its setting.
    pub(crate) fn flags(&self) -> Result<Flags, CliError> {
        let mut flags = Flags::default();
        self.global.add_to(&mut flags)?;
        match &self.command {
            Command::Serve(args) => args.add_to(&mut flags)?,
            Command::Create(args) => args.host.add_to(&mut flags)?,
            Command::Get(args) | Command::Suspend(args) | Command::Delete(args) => {
                args.host.add_to(&mut flags)?;
            }
            Command::Replay(args) => args.host.add_to(&mut flags)?,
            Command::Fork(args) => args.host.add_to(&mut flags)?,
            Command::Exec(args) => args.turn.add_to(&mut flags)?,
            Command::Resume(args) => args.turn.add_to(&mut flags)?,
            Command::Kafka(args) => args.add_to(&mut flags),
            Command::Approve(args) | Command::Deny(args) => args.turn.add_to(&mut flags)?,
            _ => {}
        }
        Ok(flags)
    }
}

impl GlobalArgs {
    fn add_to(&self, flags: &mut Flags) -> Result<(), CliError> {
        flags.set("server", self.server.as_deref());
        flags.set("journal", self.journal.as_deref());
        flags.set("kafka.view", self.kafka_view.as_deref());
        flags.set("project", self.project.as_deref());
        flags.set("output", self.output.map(Format::name));
        if let Some(path) = &self.token_file {
            let path = path.to_str();
            let path = path.ok_or_else(|| CliError::usage("--token-file is not UTF-8"))?;
            flags.set("token_file", Some(path));
        }
        Ok(())
    }
}

impl Format {
    /// As the file writes it.
    const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }
}

impl Serve {
    fn add_to(&self, flags: &mut Flags) -> Result<(), CliError> {
        flags.set("addr", self.addr.as_deref());
        flags.set("registry_addr", self.registry_addr.as_deref());
        flags.set("advertise", self.advertise.as_deref());
        flags.list("harness", harnesses(&self.harness)?);
        flags.set("replace_builtin", self.replace_builtin.then_some(true));
        flags.set("drain_max", self.drain_max);
        flags.set("approval_ttl", self.approval.seconds());
        flags.set("metrics.addr", self.metrics_addr.as_deref());
        self.model.add_to(flags);
        Ok(())
    }
}

impl Kafka {
    fn add_to(&self, flags: &mut Flags) {
        let (Self::Init(KafkaInit { allow_lossy, .. }) | Self::Check { allow_lossy }) = self else {
            return;
        };
        flags.set("kafka.allow_lossy", allow_lossy.then_some(true));
    }
}

impl super::TurnArgs {
    fn add_to(&self, flags: &mut Flags) -> Result<(), CliError> {
        self.model.add_to(flags);
        self.host.add_to(flags)
    }
}

impl HarnessArgs {
    fn add_to(&self, flags: &mut Flags) -> Result<(), CliError> {
        flags.list("harness", harnesses(&self.harness_at)?);
        flags.set("replace_builtin", self.replace_builtin.then_some(true));
        Ok(())
    }
}

impl ModelArgs {
    fn add_to(&self, flags: &mut Flags) {
        flags.set("model", self.model.as_deref());
        flags.set("model_base_url", self.model_base_url.as_deref());
        flags.set("model_path", self.model_path.as_deref());
        flags.set("model_auth_header", self.model_auth_header.as_deref());
        flags.list("tool", self.tool.iter().map(|tool| Value::from(tool.as_str())).collect());
    }
}

/// Harnesses as the file has them, from NAME=ADDR.
fn harnesses(specs: &[String]) -> Result<Vec<Value>, CliError> {
    specs.iter().map(|spec| harness(spec)).collect()
}

fn harness(spec: &str) -> Result<Value, CliError> {
    let (name, place) = spec
        .split_once('=')
        .filter(|(name, place)| !name.is_empty() && !place.is_empty())
        .ok_or_else(|| CliError::usage(format!("harness {spec:?} is not NAME=ADDR")))?;
    let (runtime, key, value) = match place.strip_prefix("exec:") {
        Some(command) => ("child", "command", command),
        None => ("remote", "address", place),
    };
    Ok(Value::Table(Table::from_iter([
        ("name".to_owned(), Value::from(name)),
        ("runtime".to_owned(), Value::from(runtime)),
        (key.to_owned(), Value::from(value)),
    ])))
}
