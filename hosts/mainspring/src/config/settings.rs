//! Every setting by its key: its environment variable, its form, its default.

/// What a setting's value looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Text.
    Text,
    /// A whole number.
    Number,
    /// `true` or `false`.
    Switch,
    /// Texts: in the environment one text, or a TOML array of them.
    Texts,
    /// A table or a list of tables: the file's alone.
    Table,
}

/// How much of a setting is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shows {
    /// All of it.
    Whole,
    /// That it is set.
    Nothing,
    /// A URL without what may be a credential in it.
    Url,
    /// Tools, each without its arguments and without credentials.
    Tools,
    /// Harnesses, each without the arguments of its command.
    Harnesses,
    /// Settings of a Kafka client, without those that may be secrets.
    KafkaClient,
}

/// One setting.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setting {
    /// Where it stands in the file, with dots between tables.
    pub(crate) key: &'static str,
    pub(crate) form: Form,
    /// As it would be written in the file; `None` leaves it unset.
    pub(crate) default: Option<&'static str>,
    /// How much of it is shown.
    pub(crate) shows: Shows,
    /// Whether the environment can set it.
    has_variable: bool,
}

impl Setting {
    const fn new(key: &'static str, form: Form) -> Self {
        let has_variable = !matches!(form, Form::Table);
        Self { key, form, default: None, shows: Shows::Whole, has_variable }
    }

    const fn text(key: &'static str) -> Self {
        Self::new(key, Form::Text)
    }

    const fn default(mut self, default: &'static str) -> Self {
        self.default = Some(default);
        self
    }

    const fn shows(mut self, shows: Shows) -> Self {
        self.shows = shows;
        self
    }

    const fn without_variable(mut self) -> Self {
        self.has_variable = false;
        self
    }

    /// Its environment variable, such as `MAINSPRING_TLS_KEY`.
    pub(crate) fn variable(&self) -> Option<String> {
        let name = || format!("{PREFIX}{}", self.key.replace('.', "_").to_uppercase());
        self.has_variable.then(name)
    }
}

/// What every environment variable of a setting begins with.
pub(crate) const PREFIX: &str = "MAINSPRING_";

/// Variables with that prefix that are no settings: where the file is, the older
/// name of `log.level`, and what a host tells the tools that it runs, which may
/// run this program in turn.
pub(crate) const OTHER_VARIABLES: [&str; 6] = [
    "MAINSPRING_CONFIG",
    "MAINSPRING_LOG",
    "MAINSPRING_TOOL",
    "MAINSPRING_TOOL_CALL_ID",
    "MAINSPRING_SESSION",
    "MAINSPRING_IDEMPOTENCY_KEY",
];

/// Whether a variable is what Kubernetes sets in every pod beside a Service that
/// is named mainspring. No setting has such a name.
pub(crate) fn is_of_a_service(variable: &str) -> bool {
    let rest = variable.strip_prefix(PREFIX).unwrap_or_default();
    rest == "PORT" || rest.starts_with("PORT_") || rest.starts_with("SERVICE_")
}

/// Every setting, as `config show` lists them.
pub(crate) const SETTINGS: &[Setting] = &[
    // Where commands work, and how they show it.
    Setting::text("server"),
    Setting::text("journal").default("\"mainspring.redb\""),
    Setting::text("project").default("\"default\""),
    Setting::text("output").default("\"text\""),
    Setting::text("token").shows(Shows::Nothing),
    Setting::text("token_file"),
    Setting::new("client.reconnect_max", Form::Number).default("300"),
    Setting::text("client.tls.ca"),
    Setting::text("client.tls.certificate"),
    Setting::text("client.tls.key"),
    Setting::text("client.tls.server_name"),
    // A journal on Kafka.
    Setting::text("kafka.view").default("\"mainspring-view.redb\""),
    Setting::new("kafka.client", Form::Table).shows(Shows::KafkaClient),
    Setting::text("kafka.password").shows(Shows::Nothing),
    Setting::text("kafka.password_file"),
    Setting::new("kafka.allow_lossy", Form::Switch).default("false"),
    Setting::new("kafka.write_max", Form::Number).default("10"),
    Setting::new("kafka.read_max", Form::Number).default("30"),
    Setting::new("kafka.silence_max", Form::Number).default("3"),
    // A host: a server's, or the one inside a command.
    Setting::new("harness", Form::Table).shows(Shows::Harnesses),
    Setting::new("replace_builtin", Form::Switch).default("false"),
    Setting::text("model"),
    Setting::text("model_base_url").default("\"https://api.openai.com/v1\"").shows(Shows::Url),
    Setting::text("model_path").default("\"/chat/completions\""),
    Setting::text("model_auth_header").default("\"Authorization\""),
    // MAINSPRING_TOOL is what a tool is told.
    Setting::new("tool", Form::Texts).shows(Shows::Tools).without_variable(),
    Setting::new("approval_ttl", Form::Number),
    Setting::text("exec_state").default("\"derived\""),
    // A server.
    Setting::text("addr").default("\"127.0.0.1:8080\""),
    Setting::text("registry_addr"),
    Setting::text("advertise"),
    Setting::new("drain_max", Form::Number).default("30"),
    Setting::new("resume_interrupted", Form::Switch).default("true"),
    Setting::text("tls.certificate"),
    Setting::text("tls.key"),
    Setting::text("tls.client_ca"),
    Setting::text("tls.client_auth").default("\"optional\""),
    Setting::text("authn.oidc.issuer"),
    Setting::new("authn.oidc.audiences", Form::Texts),
    Setting::text("authn.oidc.jwks_url").shows(Shows::Url),
    Setting::text("authn.oidc.jwks_file"),
    Setting::new("authn.oidc.algorithms", Form::Texts),
    Setting::text("authn.mtls.trust_domain"),
    Setting::text("authz.policy"),
    Setting::new("authz.allow", Form::Table),
    Setting::text("authz.cedar_policies"),
    Setting::new("delete.retention_days", Form::Number),
    // What is told of it.
    Setting::text("log.format").default("\"text\""),
    Setting::text("log.level"),
    Setting::text("metrics.addr"),
    Setting::text("otel.endpoint").shows(Shows::Url),
];

/// A setting by its key. Keys in code are of the table.
pub(crate) fn setting(key: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.key == key)
}
