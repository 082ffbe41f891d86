//! The executor: tools by name.

use std::collections::BTreeMap;

use mainspring_api::{
    Json, JsonObject, Outcome, ToolCall, ToolError, ToolExecutor, ToolResult, ToolScope,
    async_trait,
};
use mainspring_eventlog::canonical::json_text;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use crate::config::{ToolsConfigError, ToolsOptions};
use crate::entry::{Place, ToolEntry};
use crate::error::CallError;
use crate::exec;
use crate::http::Endpoint;

/// Tools by name, as commands and as addresses.
#[derive(Debug)]
pub struct Tools {
    tools: BTreeMap<String, Tool>,
    options: ToolsOptions,
    room: Semaphore,
}

#[derive(Debug)]
struct Tool {
    action: Action,
    is_durable: bool,
}

#[derive(Debug)]
enum Action {
    Exec { program: String, args: Vec<String> },
    Http(Box<Endpoint>),
}

impl Tools {
    /// Collects tools. None is started or called before a call asks for it.
    #[must_use]
    pub fn builder() -> ToolsBuilder {
        ToolsBuilder::default()
    }

    /// The tools of `specs`, each as [`ToolEntry::parse`] takes it, with the
    /// bounds of [`ToolsOptions::default`].
    ///
    /// # Errors
    /// [`ToolsConfigError`], naming the rule.
    pub fn parse<S: AsRef<str>>(
        specs: impl IntoIterator<Item = S>,
    ) -> Result<Self, ToolsConfigError> {
        let mut builder = Self::builder();
        for spec in specs {
            builder = builder.tool(ToolEntry::parse(spec.as_ref())?);
        }
        builder.build()
    }

    /// The names of the tools, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tools.keys().map(String::as_str)
    }

    async fn run(
        &self,
        tool: &Tool,
        scope: &ToolScope,
        call: &ToolCall,
    ) -> Result<ToolResult, CallError> {
        if call.idempotency_key.is_empty() {
            return Err(CallError::NoKey);
        }
        let input = input(call.args.as_ref())?;
        let options = &self.options;
        let began = Instant::now();
        let no_room =
            CallError::NoRoom { calls_max: options.calls_max, within: options.call_within };
        let room = timeout(options.call_within, self.room.acquire()).await.map_err(|_| no_room)?;
        let _room = room.expect("the semaphore is never closed");
        let within = options.call_within.saturating_sub(began.elapsed());
        match &tool.action {
            Action::Exec { program, args } => {
                exec::execute(program, args, options, within, scope, call, &input).await
            }
            Action::Http(endpoint) => endpoint.execute(options, within, scope, call, input).await,
        }
    }

    fn unknown(&self, tool: &str) -> ToolError {
        let names: Vec<&str> = self.names().collect();
        let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let message = format!("tool {tool:?} is not configured; there are: {there}");
        ToolError { message, outcome: Outcome::NotApplied, source: None }
    }
}

#[async_trait]
impl ToolExecutor for Tools {
    /// # Cancellation
    /// A dropped future kills the command with all that it started, or closes
    /// the connection. The outcome is then unknown.
    async fn execute(&self, scope: &ToolScope, call: &ToolCall) -> Result<ToolResult, ToolError> {
        let tool = self.tools.get(&call.tool).ok_or_else(|| self.unknown(&call.tool))?;
        let result = self.run(tool, scope, call).await;
        let result = result.map_err(|error| error.of_tool(&call.tool))?;
        Ok(ToolResult { id: call.id.clone(), ..result })
    }

    fn is_repeatable(&self, tool: &str) -> bool {
        self.tools.get(tool).is_some_and(|tool| tool.is_durable)
    }

    fn offers(&self, tool: &str) -> bool {
        self.tools.contains_key(tool)
    }
}

/// What a tool is given: its arguments as one JSON object, `null` for none.
fn input(args: Option<&JsonObject>) -> Result<Vec<u8>, CallError> {
    let args = args.map_or(Json::Null, |members| Json::Object(members.clone()));
    json_text(&args).map(String::into_bytes).map_err(CallError::Args)
}

/// Collects tools.
#[derive(Debug, Clone, Default)]
pub struct ToolsBuilder {
    entries: Vec<ToolEntry>,
    options: ToolsOptions,
}

impl ToolsBuilder {
    /// Adds a tool.
    #[must_use]
    pub fn tool(mut self, entry: ToolEntry) -> Self {
        self.entries.push(entry);
        self
    }

    /// Sets the bounds.
    #[must_use]
    pub fn options(mut self, options: ToolsOptions) -> Self {
        self.options = options;
        self
    }

    /// The executor.
    ///
    /// # Errors
    /// [`ToolsConfigError`]: a bound of zero, a name that is there twice, or a
    /// machine without certificate authorities for an https address.
    pub fn build(self) -> Result<Tools, ToolsConfigError> {
        let options = self.options;
        options.check()?;
        let mut tools = BTreeMap::new();
        for ToolEntry { name, place, is_durable } in self.entries {
            let action = match place {
                Place::Exec { program, args } => Action::Exec { program, args },
                Place::Http(address) => Action::Http(Box::new(Endpoint::new(address, &options)?)),
            };
            if tools.insert(name.clone(), Tool { action, is_durable }).is_some() {
                return Err(ToolsConfigError::Duplicate { name });
            }
        }
        let room = Semaphore::new(options.calls_max.min(Semaphore::MAX_PERMITS));
        Ok(Tools { tools, options, room })
    }
}
