//! What tests do to brokers: an end without notice, a clock that stands still, a link that is cut.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::Signal;

use super::cluster::Place;
use super::net;
use super::process::Health;
use super::state::{Broker, State};

/// How long a process has to follow a signal that it cannot refuse.
pub(super) const SIGNAL_LIMIT: Duration = Duration::from_secs(10);

/// Ends brokers without notice.
pub(super) fn kill(place: &Place, ids: &[u8]) -> Result<()> {
    signal_each(place, ids, Signal::KILL, Health::Dead)
}

/// Stops the clock of brokers.
pub(super) fn pause(place: &Place, ids: &[u8]) -> Result<()> {
    signal_each(place, ids, Signal::STOP, Health::Paused)
}

/// Lets paused brokers go on.
pub(super) fn resume(place: &Place, ids: &[u8]) -> Result<()> {
    signal_each(place, ids, Signal::CONT, Health::Running)
}

/// Signals change no state file, so that a broker can be killed while another starts.
fn signal_each(place: &Place, ids: &[u8], number: Signal, then: Health) -> Result<()> {
    let state = place.state()?;
    let brokers: Vec<&Broker> = ids.iter().map(|id| state.broker(*id)).collect::<Result<_>>()?;
    for broker in &brokers {
        if broker.health()? == Health::Dead {
            bail!("broker {} is dead", broker.id);
        }
    }
    for broker in brokers {
        signal(broker, number, then)?;
    }
    Ok(())
}

/// Sends a signal to a broker and waits until it has followed.
pub(super) fn signal(broker: &Broker, number: Signal, then: Health) -> Result<()> {
    let id = broker.id;
    let Some(process) = broker.process else { bail!("broker {id} is dead") };
    if !process.signal(number)? {
        bail!("broker {id} is dead");
    }
    if !process.wait_for(then, SIGNAL_LIMIT)? {
        bail!("broker {id} is not {then} after {number:?}");
    }
    Ok(())
}

/// Cuts brokers from everybody, or from each other broker.
pub(super) fn cut(place: &Place, ids: &[u8], from_peers: bool) -> Result<()> {
    let state = place.state()?;
    let subnet = network(&state, &place.name)?;
    for &id in ids {
        state.broker(id)?;
        if from_peers {
            let peers = state.brokers.iter().map(|broker| broker.id).filter(|peer| *peer != id);
            net::cut_from(subnet, id, peers)?;
        } else {
            net::cut(subnet, id)?;
        }
    }
    Ok(())
}

/// Undoes every cut of brokers.
pub(super) fn heal(place: &Place, ids: &[u8]) -> Result<()> {
    let state = place.state()?;
    let subnet = network(&state, &place.name)?;
    for &id in ids {
        state.broker(id)?;
        net::heal(subnet, id)?;
    }
    Ok(())
}

fn network(state: &State, name: &str) -> Result<u8> {
    if !state.netns {
        bail!("the cluster `{name}` has no network that can be cut: start it with `up --netns`");
    }
    net::check()?;
    state.subnet.with_context(|| format!("the cluster `{name}` is down"))
}

#[cfg(test)]
mod tests {
    use super::super::state::tests::sample;
    use super::*;

    #[test]
    fn links_are_cut_only_where_there_are_any() {
        let error = network(&sample(3, false), "x").unwrap_err().to_string();
        assert!(error.contains("start it with `up --netns`"), "{error}");
    }
}
