//! What is known of a cluster, in the file `cluster.json` of its folder, and the lock of those who change it.

use std::fs::{File, TryLockError};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::process::{Health, Process};

/// The file's name.
const FILE: &str = "cluster.json";

/// A cluster, as `cluster.json` tells of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct State {
    /// Of Kafka.
    pub(super) version: String,
    pub(super) cluster_id: String,
    /// The addresses of the plain listeners, with commas between them.
    pub(super) bootstrap: String,
    /// Whether each broker has a network of its own.
    pub(super) netns: bool,
    /// The x of 10.231.x.0/24, while that network exists.
    pub(super) subnet: Option<u8>,
    pub(super) brokers: Vec<Broker>,
    pub(super) tls: Option<Tls>,
}

/// One broker, which is a controller too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Broker {
    pub(super) id: u8,
    /// Its last process, if it was started since the cluster was last down.
    #[serde(flatten)]
    pub(super) process: Option<Process>,
    pub(super) host: IpAddr,
    pub(super) port: u16,
    pub(super) controller_port: u16,
    /// The listeners for SCRAM over TLS and for client certificates, in a cluster with TLS.
    pub(super) sasl_port: Option<u16>,
    pub(super) mtls_port: Option<u16>,
}

/// What a client of a cluster with TLS needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tls {
    /// Who signed the certificates of brokers and client.
    pub(super) ca: String,
    pub(super) client_certificate: String,
    pub(super) client_key: String,
    /// The principal that the client certificate makes.
    pub(super) client_principal: String,
    /// The SCRAM-SHA-512 user, and that user's password.
    pub(super) user: String,
    pub(super) password: String,
    pub(super) sasl_bootstrap: String,
    pub(super) mtls_bootstrap: String,
}

impl State {
    /// Reads the state of the cluster in `folder`, if there is one.
    pub(super) fn load(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(FILE);
        match std::fs::read_to_string(&path) {
            Ok(text) => {
                let state = serde_json::from_str(&text);
                Ok(Some(state.with_context(|| format!("{} has another form", path.display()))?))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    /// Writes the state; a reader sees the file before or after it.
    pub(super) fn save(&self, folder: &Path) -> Result<()> {
        let path = folder.join(FILE);
        let part = folder.join(format!("{FILE}.part"));
        std::fs::write(&part, serde_json::to_string_pretty(self)? + "\n")
            .and_then(|()| std::fs::rename(&part, &path))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// The broker of this number.
    pub(super) fn broker(&self, id: u8) -> Result<&Broker> {
        let Some(broker) = self.brokers.iter().find(|broker| broker.id == id) else {
            bail!("there is no broker {id}: they are 1 to {}", self.brokers.len());
        };
        Ok(broker)
    }

    /// The numbers of the brokers that do as `wanted`.
    pub(super) fn those(&self, wanted: Health) -> Result<Vec<u8>> {
        let mut ids = Vec::new();
        for broker in &self.brokers {
            if broker.health()? == wanted {
                ids.push(broker.id);
            }
        }
        Ok(ids)
    }

    /// The addresses at which `port` of every broker is reached.
    pub(super) fn addresses(&self, port: impl Fn(&Broker) -> Option<u16>) -> String {
        let addresses = self
            .brokers
            .iter()
            .filter_map(|broker| Some(SocketAddr::new(broker.host, port(broker)?).to_string()));
        addresses.collect::<Vec<_>>().join(",")
    }
}

impl Broker {
    /// Where clients reach it.
    pub(super) fn address(&self) -> SocketAddr {
        SocketAddr::new(self.host, self.port)
    }

    /// How its process does.
    pub(super) fn health(&self) -> Result<Health> {
        self.process.map_or(Ok(Health::Dead), Process::health)
    }
}

/// Held by the one who changes something; it ends with its holder.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    /// Waits until nobody else holds the lock at `path`.
    pub(super) fn take(path: &Path) -> Result<Self> {
        let shown = path.display();
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("cannot make {}", folder.display()))?;
        }
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)
            .with_context(|| format!("cannot open {shown}"))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                eprintln!("waiting for another command that holds {shown}");
                file.lock().with_context(|| format!("cannot lock {shown}"))?;
            }
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("cannot lock {shown}"));
            }
        }
        Ok(Self { _file: file })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    /// A cluster that never ran.
    pub(in crate::kafka) fn sample(brokers: u8, tls: bool) -> State {
        let broker = |id| Broker {
            id,
            process: None,
            host: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 1000 + u16::from(id),
            controller_port: 2000 + u16::from(id),
            sasl_port: tls.then_some(3000 + u16::from(id)),
            mtls_port: tls.then_some(4000 + u16::from(id)),
        };
        let mut state = State {
            version: "4.4.0".to_owned(),
            cluster_id: "0123456789abcdef01234A".to_owned(),
            bootstrap: String::new(),
            netns: false,
            subnet: None,
            brokers: (1..=brokers).map(broker).collect(),
            tls: None,
        };
        state.bootstrap = state.addresses(|broker| Some(broker.port));
        state.tls = tls.then(|| Tls {
            ca: "/c/tls/ca.pem".to_owned(),
            client_certificate: "/c/tls/client.pem".to_owned(),
            client_key: "/c/tls/client.key".to_owned(),
            client_principal: "User:CN=x".to_owned(),
            user: "x".to_owned(),
            password: "p".to_owned(),
            sasl_bootstrap: state.addresses(|broker| broker.sasl_port),
            mtls_bootstrap: state.addresses(|broker| broker.mtls_port),
        });
        state
    }

    #[test]
    fn a_state_is_read_as_it_was_written() {
        for (brokers, tls) in [(1, false), (3, true)] {
            let mut state = sample(brokers, tls);
            state.brokers[0].process = Some(Process { pid: 12, start_time: 34 });
            let text = serde_json::to_string(&state).unwrap();
            assert_eq!(state, serde_json::from_str::<State>(&text).unwrap());
        }
    }

    #[test]
    fn a_process_stands_beside_its_broker() {
        let mut state = sample(1, false);
        state.brokers[0].process = Some(Process { pid: 12, start_time: 34 });
        let json = serde_json::to_value(&state).unwrap();
        assert_eq!(12, json["brokers"][0]["pid"]);
        assert_eq!(34, json["brokers"][0]["start_time"]);
        assert_eq!("127.0.0.1:1001", json["bootstrap"]);
    }

    #[test]
    fn brokers_are_found_by_their_numbers() {
        let state = sample(3, false);
        assert_eq!("127.0.0.1:1001,127.0.0.1:1002,127.0.0.1:1003", state.bootstrap);
        assert_eq!(2, state.broker(2).unwrap().id);
        let error = state.broker(4).unwrap_err().to_string();
        assert_eq!("there is no broker 4: they are 1 to 3", error);
        assert_eq!(vec![1, 2, 3], state.those(Health::Dead).unwrap());
    }
}
