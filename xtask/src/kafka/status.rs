//! How a cluster does, as a table or as JSON.

use anyhow::Result;
use serde_json::{Value, json};

use super::cluster::Place;
use super::net;
use super::state::{Broker, State};

/// Prints a line per broker, or `cluster.json` with what cannot be written down.
pub(super) fn print(place: &Place, json: bool) -> Result<()> {
    let state = place.state()?;
    if json {
        println!("{}", serde_json::to_string_pretty(&as_json(&state)?)?);
    } else {
        print!("{}", as_table(&state)?);
    }
    Ok(())
}

fn as_json(state: &State) -> Result<Value> {
    let mut whole = serde_json::to_value(state)?;
    for (index, broker) in state.brokers.iter().enumerate() {
        whole["brokers"][index]["state"] = json!(broker.health()?);
        whole["brokers"][index]["link"] = json!(link(state, broker)?);
    }
    Ok(whole)
}

fn as_table(state: &State) -> Result<String> {
    let mut table =
        format!("{:<8}{:<10}{:<10}{:<22}{}\n", "broker", "pid", "state", "address", "link");
    for broker in &state.brokers {
        let pid = broker.process.map_or_else(|| "-".to_owned(), |process| process.pid.to_string());
        let (id, health, address) = (broker.id, broker.health()?, broker.address().to_string());
        let link = link(state, broker)?.unwrap_or("-");
        table.push_str(&format!("{id:<8}{pid:<10}{health:<10}{address:<22}{link}\n"));
    }
    if let Some(tls) = &state.tls {
        let rows = [
            ("authority", &tls.ca),
            ("client certificate", &tls.client_certificate),
            ("client key", &tls.client_key),
            ("client principal", &tls.client_principal),
            ("MTLS bootstrap", &tls.mtls_bootstrap),
            ("SCRAM-SHA-512 user", &tls.user),
            ("SCRAM-SHA-512 password", &tls.password),
            ("SASL_SSL bootstrap", &tls.sasl_bootstrap),
        ];
        for (name, value) in rows {
            table.push_str(&format!("{name:<24}{value}\n"));
        }
    }
    table.push_str(&format!("bootstrap={}\n", state.bootstrap));
    Ok(table)
}

/// How a broker is linked to others, in a cluster whose links can be cut.
fn link(state: &State, broker: &Broker) -> Result<Option<&'static str>> {
    state.subnet.map(|subnet| net::link(subnet, broker.id)).transpose()
}

#[cfg(test)]
mod tests {
    use super::super::state::tests::sample;
    use super::*;

    #[test]
    fn a_broker_has_a_line() {
        let table = as_table(&sample(3, false)).unwrap();
        let expected = "2       -         dead      127.0.0.1:1002        -";
        assert_eq!(Some(expected), table.lines().nth(2));
        assert_eq!(5, table.lines().count());
        assert!(table.ends_with("bootstrap=127.0.0.1:1001,127.0.0.1:1002,127.0.0.1:1003\n"));
    }

    #[test]
    fn credentials_are_told() {
        let table = as_table(&sample(1, true)).unwrap();
        assert!(table.contains("SCRAM-SHA-512 password  p\n"), "{table}");
        assert!(table.contains("SASL_SSL bootstrap      127.0.0.1:3001\n"), "{table}");
    }

    #[test]
    fn json_has_the_states_too() {
        let json = as_json(&sample(1, false)).unwrap();
        assert_eq!("dead", json["brokers"][0]["state"]);
        assert_eq!(Value::Null, json["brokers"][0]["link"]);
        assert_eq!(1001, json["brokers"][0]["port"]);
    }
}
