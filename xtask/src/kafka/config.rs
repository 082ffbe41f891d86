//! The properties that a broker is started with.

use anyhow::{Result, bail};

use super::state::{Broker, State};
use super::tls;

/// What Kafka's classes log, and where.
pub(super) const LOG4J: &str = include_str!("log4j2.xml");
const NODE: &str = include_str!("node.properties");
const ONE: &str = include_str!("one.properties");
const THREE: &str = include_str!("three.properties");
const TLS: &str = include_str!("tls.properties");

/// The file with a broker's properties, in the cluster's folder. A broker runs in that folder, so the paths in its
/// properties are relative.
pub(super) fn properties_file(id: u8) -> String {
    format!("broker-{id}.properties")
}

/// The folder with a broker's data, in the cluster's folder.
pub(super) fn data_folder(id: u8) -> String {
    format!("broker-{id}")
}

/// The properties of one broker.
pub(super) fn render(state: &State, broker: &Broker) -> Result<String> {
    let mut template = NODE.to_owned() + if state.brokers.len() == 1 { ONE } else { THREE };
    if state.tls.is_some() {
        template.push_str(TLS);
    }
    let advertised = advertised(broker);
    let controller = format!("CONTROLLER://{}:{}", broker.host, broker.controller_port);
    let values = [
        ("id", broker.id.to_string()),
        ("voters", voters(state)),
        ("listeners", format!("{controller},{advertised}")),
        ("advertised", advertised),
        ("data", data_folder(broker.id)),
        ("keystore", tls::keystore_file(broker.id)),
        ("ca", tls::CA_FILE.to_owned()),
    ];
    fill(&template, &values)
}

fn voters(state: &State) -> String {
    let voter = |b: &Broker| format!("{}@{}:{}", b.id, b.host, b.controller_port);
    state.brokers.iter().map(voter).collect::<Vec<_>>().join(",")
}

fn advertised(broker: &Broker) -> String {
    let ports =
        [("PLAINTEXT", Some(broker.port)), ("SASL", broker.sasl_port), ("MTLS", broker.mtls_port)];
    let listeners = ports
        .iter()
        .filter_map(|(name, port)| port.map(|port| format!("{name}://{}:{port}", broker.host)));
    listeners.collect::<Vec<_>>().join(",")
}

/// Replaces each `{word}` by its value, once.
fn fill(template: &str, values: &[(&str, String)]) -> Result<String> {
    let mut filled = String::new();
    let mut rest = template;
    while let Some((before, from)) = rest.split_once('{') {
        let Some((word, after)) = from.split_once('}') else { bail!("a brace is not closed") };
        let Some((_, value)) = values.iter().find(|(name, _)| *name == word) else {
            bail!("nothing is known of `{{{word}}}`");
        };
        filled.push_str(before);
        filled.push_str(value);
        rest = after;
    }
    filled.push_str(rest);
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::super::state::tests::sample;
    use super::*;

    #[test]
    fn words_in_braces_are_replaced_once() {
        let values = [("a", "{b}".to_owned()), ("b", "2".to_owned())];
        assert_eq!("x={b},2\n", fill("x={a},{b}\n", &values).unwrap());
        assert!(fill("x={c}", &values).unwrap_err().to_string().contains("`{c}`"));
        assert!(fill("x={a", &values).is_err());
    }

    #[track_caller]
    fn holds(text: &str, line: &str) {
        assert!(text.lines().any(|l| l == line), "no line `{line}` in\n{text}");
    }

    #[test]
    fn one_broker_is_alone_in_everything() {
        let state = sample(1, false);
        let text = render(&state, &state.brokers[0]).unwrap();
        holds(&text, "node.id=1");
        holds(&text, "controller.quorum.voters=1@127.0.0.1:2001");
        holds(&text, "listeners=CONTROLLER://127.0.0.1:2001,PLAINTEXT://127.0.0.1:1001");
        holds(&text, "advertised.listeners=PLAINTEXT://127.0.0.1:1001");
        holds(&text, "log.dirs=broker-1");
        holds(&text, "min.insync.replicas=1");
        holds(&text, "broker.session.timeout.ms=1000");
        assert!(!text.contains("keystore"), "{text}");
    }

    #[test]
    fn three_brokers_know_each_other() {
        let state = sample(3, false);
        let text = render(&state, &state.brokers[2]).unwrap();
        holds(&text, "node.id=3");
        let voters = "1@127.0.0.1:2001,2@127.0.0.1:2002,3@127.0.0.1:2003";
        holds(&text, &format!("controller.quorum.voters={voters}"));
        holds(&text, "min.insync.replicas=2");
        holds(&text, "broker.session.timeout.ms=2000");
    }

    #[test]
    fn tls_opens_two_more_listeners() {
        let state = sample(1, true);
        let text = render(&state, &state.brokers[0]).unwrap();
        let expected = "PLAINTEXT://127.0.0.1:1001,SASL://127.0.0.1:3001,MTLS://127.0.0.1:4001";
        holds(&text, &format!("advertised.listeners={expected}"));
        holds(&text, "listener.name.mtls.ssl.client.auth=required");
        holds(&text, "ssl.keystore.location=tls/broker-1.pem");
        holds(&text, "ssl.truststore.location=tls/ca.pem");
    }

    #[test]
    fn no_property_is_given_twice() {
        for brokers in [1, 3] {
            let state = sample(brokers, true);
            let text = render(&state, &state.brokers[0]).unwrap();
            let lines = text.lines().filter(|line| !line.starts_with('#'));
            let mut keys: Vec<&str> = lines.filter_map(|l| Some(l.split_once('=')?.0)).collect();
            let given = keys.len();
            keys.sort_unstable();
            keys.dedup();
            assert_eq!(given, keys.len());
        }
    }
}
