//! 64 callers, each with one record in flight on a session of its own:
//! throughput beside the same callers on a bare group committer.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use async_channel::{Receiver, Sender};
use futures_channel::oneshot;
use mainspring_bench::run::peer::{Bare, Peer, Txn};
use mainspring_bench::run::store::Store;
use mainspring_bench::run::twin::Twin;
use mainspring_bench::run::workload::{EVENT_BYTES, Events, Writer, now};
use mainspring_bench::{Line, Report, Target, Unit};
use mainspring_eventlog::EventLog;

use crate::Plan;

const ROW: &str = "64 callers";
const CALLERS: usize = 64;
/// The part of a row's appends that each of the callers makes in a round.
const PART: usize = 4;

/// A thread that drains its queue into one commit: as little as a group
/// committer can be.
struct Committer {
    queue: Sender<(Txn, oneshot::Sender<()>)>,
}

impl Committer {
    fn start(mut bare: Box<dyn Bare>) -> Self {
        let (queue, jobs) = async_channel::bounded(4_096);
        std::thread::spawn(move || Self::run(&mut *bare, &jobs));
        Self { queue }
    }

    /// Ends when the queue is closed; a failed commit leaves its callers unanswered.
    fn run(bare: &mut dyn Bare, jobs: &Receiver<(Txn, oneshot::Sender<()>)>) {
        while let Ok((txn, reply)) = jobs.recv_blocking() {
            let (mut txns, mut replies) = (vec![txn], vec![reply]);
            while let Ok((txn, reply)) = jobs.try_recv() {
                txns.push(txn);
                replies.push(reply);
            }
            if bare.commit(&txns).is_err() {
                return;
            }
            for reply in replies {
                let _ = reply.send(());
            }
        }
    }

    async fn commit(&self, txn: Txn) -> Result<()> {
        let (reply, answer) = oneshot::channel();
        self.queue.send((txn, reply)).await.ok().context("the committer ended")?;
        answer.await.context("the commit failed")
    }
}

pub(crate) async fn run(plan: &Plan, report: &mut Report) -> Result<()> {
    let dir = plan.folder()?;
    let appends = plan.appends / PART;
    let events = Events::of_bytes(EVENT_BYTES)?;
    let twin = Twin::new()?;
    let mut shadows = callers(&twin.log, &events).await?;
    let created = twin.take();
    let mut floors = Vec::new();
    for peer in [Peer::File, Peer::Redb, Peer::Fjall, Peer::Sqlite] {
        let mut bare = peer.open(dir.path())?;
        bare.commit(std::slice::from_ref(&created))?;
        floors.push((peer, Arc::new(Committer::start(bare)), Vec::new()));
    }
    let mut subjects = Vec::new();
    for store in Store::durable() {
        let log = store.open(dir.path())?;
        let writers = callers(&log, &events).await?;
        subjects.push((store, log, writers, Vec::new()));
    }
    for _ in 0..plan.rounds {
        let mut queues = Vec::with_capacity(CALLERS);
        for shadow in &mut shadows {
            let mut queue = Vec::with_capacity(appends);
            for _ in 0..appends {
                shadow.append_one(&*twin.log).await?;
                queue.push(twin.take());
            }
            queues.push(queue);
        }
        for (_, committer, rates) in &mut floors {
            rates.push(bare_round(committer, queues.clone()).await?);
        }
        for (_, log, writers, rates) in &mut subjects {
            rates.push(round(log, writers, appends).await?);
        }
        floors.reverse();
        subjects.reverse();
    }
    let floor = |peer: Peer| {
        let found = floors.iter().find(|(other, ..)| *other == peer);
        &found.expect("every peer took part").2
    };
    for (store, _, _, rates) in &subjects {
        for peer in [store.peer(), Peer::File, Peer::Sqlite] {
            let bound = store.promise().filter(|p| p.floor == peer).map(|p| p.grouped);
            let line = Line::alone(ROW, store.name(), Unit::PerSecond, rates);
            let beside = format!("{}, grouped", peer.name());
            report
                .push(line.beside(beside, rates, floor(peer)).held_to(bound.map(Target::at_least)));
        }
    }
    let (fjall, file) = (floor(Peer::Fjall), floor(Peer::File));
    let line = Line::alone(ROW, "bare fjall, grouped", Unit::PerSecond, fjall);
    report.push(line.beside("write + fdatasync, grouped", fjall, file));
    Ok(())
}

async fn callers(log: &Arc<dyn EventLog>, events: &Events) -> Result<Vec<Writer>> {
    let mut writers = Vec::with_capacity(CALLERS);
    for number in 0..CALLERS {
        writers.push(Writer::create(&**log, &format!("bench-{number}"), events).await?);
    }
    Ok(writers)
}

/// Records a second.
async fn round(log: &Arc<dyn EventLog>, writers: &mut Vec<Writer>, appends: usize) -> Result<f64> {
    let begun = now();
    let tasks: Vec<_> = writers
        .drain(..)
        .map(|mut writer| {
            let log = Arc::clone(log);
            tokio::spawn(async move {
                for _ in 0..appends {
                    writer.append_one(&*log).await?;
                }
                anyhow::Ok(writer)
            })
        })
        .collect();
    for task in tasks {
        writers.push(task.await??);
    }
    Ok(rate(appends, begun.elapsed()))
}

async fn bare_round(committer: &Arc<Committer>, queues: Vec<Vec<Txn>>) -> Result<f64> {
    let appends = queues.first().map_or(0, Vec::len);
    let begun = now();
    let tasks: Vec<_> = queues
        .into_iter()
        .map(|queue| {
            let committer = Arc::clone(committer);
            tokio::spawn(async move {
                for txn in queue {
                    committer.commit(txn).await?;
                }
                anyhow::Ok(())
            })
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    Ok(rate(appends, begun.elapsed()))
}

fn rate(appends: usize, took: std::time::Duration) -> f64 {
    (CALLERS * appends) as f64 / took.as_secs_f64()
}
