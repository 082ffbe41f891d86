//! TLS, SCRAM and client certificates, and what a host must be allowed.
//!
//! On a cluster of its own: `cargo xtask kafka up --name secure --tls`.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use mainspring_api::{AppendId, Classify as _, Entropy as _, OsEntropy, SessionUid};
use mainspring_eventlog::{EventLog as _, Level, LogError, NewSession};
use mainspring_store_kafka::{Access, KafkaConfig, KafkaStore, NewTopics, access, check, init};
use serde_json::Value;
use tokio::time::Instant;

use crate::support::empty_view;

/// How long a broker may take until it goes by other rules.
const TOLD_MAX: Duration = Duration::from_secs(20);

/// The cluster's state, and a principal on it with what a client says to be it.
struct Secure {
    plain: String,
    principal: String,
    config: KafkaConfig,
}

/// How a client shows who it is.
#[derive(Clone, Copy)]
enum By {
    Password,
    Certificate,
}

fn secure(by: By) -> Option<Secure> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent()?;
    let Ok(state) = std::fs::read_to_string(target.join("kafka/secure/cluster.json")) else {
        eprintln!("skipped: no Kafka; `cargo xtask kafka up --name secure --tls` starts it");
        return None;
    };
    let state: Value = serde_json::from_str(&state).unwrap();
    let tls = |key: &str| state["tls"][key].as_str().unwrap().to_owned();
    let mut random = [0; 6];
    OsEntropy.fill(&mut random);
    let topic = format!("s{}", random.map(|byte| format!("{byte:02x}")).concat());
    let (bootstrap, principal, settings) = match by {
        By::Password => (
            tls("sasl_bootstrap"),
            format!("User:{}", tls("user")),
            vec![
                ("security.protocol", "SASL_SSL".to_owned()),
                ("sasl.mechanism", "SCRAM-SHA-512".to_owned()),
                ("sasl.username", tls("user")),
                ("sasl.password", tls("password")),
            ],
        ),
        By::Certificate => (
            tls("mtls_bootstrap"),
            tls("client_principal"),
            vec![
                ("security.protocol", "SSL".to_owned()),
                ("ssl.certificate.location", tls("client_certificate")),
                ("ssl.key.location", tls("client_key")),
            ],
        ),
    };
    let mut config = KafkaConfig::new(&bootstrap, &topic);
    config.client = settings.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    config.client.insert("ssl.ca.location".to_owned(), tls("ca"));
    let plain = state["bootstrap"].as_str().unwrap().to_owned();
    Some(Secure { plain, principal, config })
}

/// Kafka's number of an operation.
fn number_of(operation: &str) -> u8 {
    match operation {
        "READ" => 3,
        "WRITE" => 4,
        "CREATE" => 5,
        "DESCRIBE_CONFIGS" => 10,
        other => panic!("{other} is not known here"),
    }
}

impl Secure {
    /// Everything that the list names, one by one.
    fn rules(&self, with_init: bool) -> Vec<(Access, &'static str)> {
        let rules = access(&self.config).into_iter().flat_map(|access| {
            let init: &[&str] = if with_init { access.init_operations } else { &[] };
            let all = access.operations.iter().chain(init).copied();
            all.map(|operation| (access.clone(), operation)).collect::<Vec<_>>()
        });
        rules.collect()
    }

    fn allow(&self, access: &Access, operation: &str) {
        let rule = self.rule(access, operation);
        // API 30, CreateAcls.
        ask(&self.plain, 30, &[&1_u32.to_be_bytes()[..], &rule].concat());
    }

    fn forbid(&self, access: &Access, operation: &str) {
        let rule = self.rule(access, operation);
        // API 31, DeleteAcls.
        ask(&self.plain, 31, &[&1_u32.to_be_bytes()[..], &rule].concat());
    }

    fn rule(&self, access: &Access, operation: &str) -> Vec<u8> {
        let (topic, literal, allow) = (2, 3, 3);
        let mut rule = vec![topic];
        put_text(&mut rule, &access.topic);
        rule.push(literal);
        put_text(&mut rule, &self.principal);
        put_text(&mut rule, "*");
        rule.extend([number_of(operation), allow]);
        rule
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend(u16::try_from(text.len()).unwrap().to_be_bytes());
    out.extend(text.as_bytes());
}

/// Asks as the cluster's administrator, in version 1 of an API whose answer
/// begins with a throttle, a count and the first error.
fn ask(address: &str, api: u16, body: &[u8]) {
    let mut request = [api.to_be_bytes(), 1_u16.to_be_bytes()].concat();
    request.extend(7_u32.to_be_bytes());
    put_text(&mut request, "test");
    request.extend(body);
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TOLD_MAX)).unwrap();
    stream.write_all(&u32::try_from(request.len()).unwrap().to_be_bytes()).unwrap();
    stream.write_all(&request).unwrap();
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    let mut answer = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut answer).unwrap();
    // After the number of the request.
    assert_eq!(answer[8..12], 1_u32.to_be_bytes(), "{answer:?}");
    assert_eq!(answer[12..14], [0, 0], "{}", String::from_utf8_lossy(&answer[14..]));
}

/// Waits until something goes well, or fails as it should.
async fn wait_for<T, F: Future<Output = Result<T, String>>>(mut done: impl FnMut() -> F) -> T {
    let since = Instant::now();
    loop {
        match done().await {
            Ok(done) => return done,
            Err(error) => assert!(since.elapsed() < TOLD_MAX, "{error}"),
        }
    }
}

const NEW: NewTopics = NewTopics { partitions: 2, replicas: 1, in_sync_min: 1 };

/// Opens the store, writes to it, and reads that with another host.
async fn works(config: &KafkaConfig) -> Result<(), LogError> {
    let uid = SessionUid::random(&OsEntropy);
    let store = KafkaStore::open(config.clone(), empty_view()).await?;
    let session = NewSession::bare(uid.clone(), "default");
    store.create(AppendId::random(&OsEntropy), session).await?;
    drop(store);
    let store = KafkaStore::open(config.clone(), empty_view()).await?;
    store.get(&uid, Level::Strict).await.map(drop)
}

async fn everything_by(by: By) {
    let Some(secure) = secure(by) else { return };
    let config = &secure.config;
    let error = init(config, NEW).await.unwrap_err();
    assert!(error.to_string().contains("may not CREATE topic"), "{error}");
    for (access, operation) in secure.rules(true) {
        secure.allow(&access, operation);
    }
    wait_for(async || init(config, NEW).await.map_err(|error| error.to_string())).await;
    // What only the first of all needs.
    for access in access(config) {
        for operation in access.init_operations {
            secure.forbid(&access, operation);
        }
    }
    wait_for(async || match init(config, NEW).await {
        // Topics that are there are not created, whoever asks.
        Err(error) if !error.to_string().contains("may not CREATE") => Err(error.to_string()),
        _ => Ok(()),
    })
    .await;
    assert_eq!(check(config).await.unwrap().faults().count(), 0);
    works(config).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_with_a_password_does_everything_with_the_listed_rules() {
    everything_by(By::Password).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_with_a_certificate_does_everything_with_the_listed_rules() {
    everything_by(By::Certificate).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_that_is_missing_is_named_and_hangs_nobody() {
    let Some(secure) = secure(By::Password) else { return };
    let config = &secure.config;
    for (access, operation) in secure.rules(true) {
        secure.allow(&access, operation);
    }
    wait_for(async || init(config, NEW).await.map_err(|error| error.to_string())).await;
    for (access, operation) in secure.rules(false) {
        let name = &access.topic;
        // Checkpoints and signs of life are written behind whoever calls.
        if *name != config.topic && operation != "DESCRIBE_CONFIGS" {
            continue;
        }
        secure.forbid(&access, operation);
        let error = wait_for(async || match works(config).await {
            Ok(()) => Err(format!("it works without {operation} on {name}")),
            Err(error) => Ok(error),
        })
        .await;
        let text = mainspring_api::report(&error);
        match operation {
            "DESCRIBE_CONFIGS" => {
                assert_eq!(error.code(), "access_refused", "{text}");
                assert!(text.contains(&format!("may not {operation} topic {name}")), "{text}");
            }
            "WRITE" => assert!(text.contains("TopicAuthorizationFailed"), "{text}"),
            _ => assert!(["access_refused", "unavailable"].contains(&error.code()), "{text}"),
        }
        secure.allow(&access, operation);
        wait_for(async || works(config).await.map_err(|error| format!("{name}: {error}"))).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_and_a_foreign_authority_get_nowhere_and_hang_nobody() {
    let Some(secure) = secure(By::Password) else { return };
    let mut wrong = secure.config.clone();
    wrong.client.insert("sasl.password".to_owned(), "wrong".to_owned());
    let error = check(&wrong).await.unwrap_err();
    assert_eq!(error.code(), "unavailable", "{error}");
    let mut foreign = secure.config;
    foreign.client.remove("ssl.ca.location");
    let error = check(&foreign).await.unwrap_err();
    assert_eq!(error.code(), "unavailable", "{error}");
}
