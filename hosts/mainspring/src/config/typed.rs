//! The configuration as the program reads it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use mainspring::api::Secret;
use serde::{Deserialize, Deserializer};

use crate::args::Format;

/// Every setting, once all its sources are laid over each other. The defaults
/// stand in the table of settings, not here.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    /// The server that client commands talk to.
    pub(crate) server: Option<String>,
    /// The journal that is opened here.
    pub(crate) journal: String,
    /// Project of calls that name none.
    pub(crate) project: String,
    /// How results are shown.
    pub(crate) output: Format,
    /// The bearer token of client commands.
    #[serde(deserialize_with = "secret")]
    pub(crate) token: Option<Secret>,
    /// A file that holds it.
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) client: Client,
    /// A journal on Kafka.
    pub(crate) kafka: Kafka,
    /// Harnesses beside the built-in ones.
    pub(crate) harness: Vec<HarnessConfig>,
    /// Whether they may take a built-in's name.
    pub(crate) replace_builtin: bool,
    /// The model that answers; the built-in echo unless set.
    pub(crate) model: Option<String>,
    pub(crate) model_base_url: String,
    pub(crate) model_path: String,
    /// The header that carries the key.
    pub(crate) model_auth_header: String,
    /// Tools, as `--tool` takes them.
    pub(crate) tool: Vec<String>,
    /// Seconds that a request for approval stays open; for good unless set.
    pub(crate) approval_ttl: Option<u32>,
    pub(crate) exec_state: ExecStateView,
    /// Where to listen.
    pub(crate) addr: String,
    /// Where operators are listened to; nowhere unless set.
    pub(crate) registry_addr: Option<String>,
    /// Where clients reach this host, for the others of its store; where it
    /// listens unless set.
    pub(crate) advertise: Option<String>,
    /// Seconds that turns may run on once the host is told to stop.
    pub(crate) drain_max: u32,
    /// Whether a server goes on with turns that were cut when it starts.
    pub(crate) resume_interrupted: bool,
    pub(crate) tls: Tls,
    pub(crate) authn: Authn,
    pub(crate) authz: Authz,
    pub(crate) delete: Delete,
    pub(crate) log: Log,
    pub(crate) metrics: Metrics,
    pub(crate) otel: Otel,
}

/// Where a harness runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum HarnessRuntime {
    /// A process that the host starts.
    Child,
    /// An address.
    Remote,
    /// Known by name, and not part of this build.
    #[serde(alias = "pods", alias = "kubernetes")]
    Pod,
    /// The same.
    #[serde(alias = "kata", alias = "firecracker")]
    Vm,
}

/// One harness.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HarnessConfig {
    pub(crate) name: String,
    pub(crate) runtime: HarnessRuntime,
    /// A child's command line.
    pub(crate) command: Option<String>,
    /// A remote one's address.
    pub(crate) address: Option<String>,
    /// Of a pod or VM, so that those are refused for what they are.
    pub(crate) image: Option<String>,
    pub(crate) template: Option<String>,
    pub(crate) limits: Option<toml::Table>,
}

/// Which state of its turns a session is shown with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ExecStateView {
    /// What its journal says.
    #[default]
    Derived,
    /// What the reference shows.
    Reference,
}

/// Whom client commands trust, and what they show.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Client {
    /// Seconds that a stream from a server may make no progress, while it is
    /// connected to again, before the command gives up.
    pub(crate) reconnect_max: u32,
    pub(crate) tls: ClientTls,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ClientTls {
    /// PEM of the authorities that a server's certificate may come from.
    pub(crate) ca: Option<PathBuf>,
    /// PEM of the client's own certificate chain.
    pub(crate) certificate: Option<PathBuf>,
    /// PEM of its key.
    pub(crate) key: Option<PathBuf>,
    /// The name that the server's certificate must have; the address's unless set.
    pub(crate) server_name: Option<String>,
}

#[cfg(feature = "transport-grpc")]
impl ClientTls {
    /// Whether anything of it is set.
    pub(crate) fn is_set(&self) -> bool {
        *self != Self::default()
    }
}

/// How a journal on Kafka is got at.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Kafka {
    /// The file of this host's view of it.
    pub(crate) view: PathBuf,
    /// Settings of the client, by librdkafka's names.
    #[serde(deserialize_with = "client_settings")]
    pub(crate) client: BTreeMap<String, Secret>,
    /// `sasl.password` of the client.
    #[serde(deserialize_with = "secret")]
    pub(crate) password: Option<Secret>,
    /// A file that holds it.
    pub(crate) password_file: Option<PathBuf>,
    /// Whether a topic is taken that may lose what it acknowledged.
    pub(crate) allow_lossy: bool,
    /// Seconds that a write waits to read its own message back.
    pub(crate) write_max: u32,
    /// Seconds that a read waits for what was committed when it began.
    pub(crate) read_max: u32,
    /// Seconds that a host may be silent before it counts as dead.
    pub(crate) silence_max: u32,
}

/// Whether clients show a certificate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ClientAuth {
    /// They may.
    #[default]
    Optional,
    /// They must.
    Required,
}

/// What a server shows of itself, and whose certificates it takes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Tls {
    /// PEM of the certificate chain.
    pub(crate) certificate: Option<PathBuf>,
    /// PEM of its key.
    pub(crate) key: Option<PathBuf>,
    /// PEM of the authorities of client certificates.
    pub(crate) client_ca: Option<PathBuf>,
    pub(crate) client_auth: ClientAuth,
}

/// Who callers are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Authn {
    pub(crate) oidc: Option<Oidc>,
    pub(crate) mtls: Option<Mtls>,
}

/// Bearer tokens of one issuer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Oidc {
    pub(crate) issuer: Option<String>,
    /// Audiences, one of which a token must be for.
    pub(crate) audiences: Vec<String>,
    pub(crate) jwks_url: Option<String>,
    pub(crate) jwks_file: Option<PathBuf>,
    /// Signature algorithms that are taken; those of public keys unless set.
    pub(crate) algorithms: Vec<String>,
}

/// Client certificates.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Mtls {
    /// The issuer of the identities that they give.
    pub(crate) trust_domain: Option<String>,
}

/// Which policy decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(crate) enum PolicyKind {
    /// Owners may do with their sessions what is theirs to do.
    #[serde(rename = "owner")]
    Owner,
    /// And who is listed may do the rest.
    #[serde(rename = "owner+allowlist")]
    OwnerAllowlist,
    /// Written policies decide.
    #[serde(rename = "cedar")]
    Cedar,
}

/// One identity of a list.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Listed {
    pub(crate) issuer: String,
    pub(crate) subject: String,
}

/// What callers may do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Authz {
    pub(crate) policy: Option<PolicyKind>,
    /// Who may do what, by the action's name.
    pub(crate) allow: BTreeMap<String, Vec<Listed>>,
    /// File of Cedar policies.
    pub(crate) cedar_policies: Option<PathBuf>,
}

/// What deleting leaves.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Delete {
    /// Days that a deleted session's records are kept.
    pub(crate) retention_days: Option<u32>,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Logs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Log {
    pub(crate) format: LogFormat,
    /// A level, or filter directives such as `info,mainspring_sessions=debug`.
    pub(crate) level: Option<String>,
}

/// Metrics.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Metrics {
    /// Loopback address of the page, and of `/livez` and `/readyz`.
    pub(crate) addr: Option<String>,
}

/// Traces.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Otel {
    /// OTLP endpoint that spans are sent to.
    pub(crate) endpoint: Option<String>,
}

/// Settings of a Kafka client as text. A key with dots may also be written as
/// tables, as TOML reads it without quotes.
fn client_settings<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, Secret>, D::Error> {
    let mut settings = BTreeMap::new();
    let mut left = vec![(String::new(), toml::Table::deserialize(deserializer)?)];
    while let Some((prefix, table)) = left.pop() {
        for (key, value) in table {
            let key = format!("{prefix}{key}");
            let text = match value {
                toml::Value::String(text) => text,
                toml::Value::Integer(number) => number.to_string(),
                toml::Value::Boolean(switch) => switch.to_string(),
                toml::Value::Table(table) => {
                    left.push((format!("{key}."), table));
                    continue;
                }
                _ => {
                    let message = format!("kafka.client: {key} is no text, number or switch");
                    return Err(serde::de::Error::custom(message));
                }
            };
            settings.insert(key, Secret::new(text));
        }
    }
    Ok(settings)
}

fn secret<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Secret>, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.map(Secret::new))
}
