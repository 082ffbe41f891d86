//! Concurrent operations against a model: one journal and one fence, changed
//! at one moment between each call and its answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use mainspring_api::{Fence, Head, Seq, SessionUid};
use mainspring_eventlog::{Batch, Level, LogError};
use mainspring_testkit::{SeededRng, sample, verify_all};

use super::Subject;
use super::support::{Log, head, records, row, send, session, texts};

/// A clock that tells what came before what.
#[derive(Default)]
struct Moments(AtomicU64);

impl Moments {
    fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst)
    }
}

/// What one call saw or did, and when it was under way.
struct Call {
    from: u64,
    to: u64,
    what: What,
}

enum What {
    Appended { fence: Fence, base: Head, head: Head },
    SawHead(Head),
    Minted(Fence),
    SawFence(Fence),
}

/// The moments at which each value of something that only rises may have come
/// into being, by its number; number 0 was there from the start.
struct Steps {
    earliest: Vec<u64>,
    latest: Vec<u64>,
}

impl Steps {
    /// `calls[n]` is the call that made value n + 1.
    fn of(calls: &[&Call]) -> Self {
        let mut earliest = vec![0];
        for call in calls {
            let at = call.from.max(*earliest.last().expect("never empty"));
            assert!(at <= call.to, "calls took effect in another order than they were made");
            earliest.push(at);
        }
        let mut latest = vec![u64::MAX];
        for call in calls.iter().rev() {
            latest.push(call.to.min(*latest.last().expect("never empty")));
        }
        // The first in reverse is the value that never came.
        latest.reverse();
        Self { earliest, latest }
    }

    /// Whether value `number` may have been there within a call.
    fn seen(&self, number: usize, call: &Call) -> bool {
        let begun = self.earliest[number] <= call.to;
        // `latest[n]` is when value n + 1 replaced value n at the latest.
        begun && call.from <= self.latest[number]
    }
}

async fn client(log: Log, uid: SessionUid, moments: Arc<Moments>, seed: u64) -> Vec<Call> {
    let mut rng = SeededRng::new(seed);
    let mut calls = Vec::new();
    let (mut at, mut fence) = (Head::EMPTY, Fence::NONE);
    for step in 0..60 {
        let from = moments.next();
        let what = match rng.below(6) {
            0 => {
                at = log.head(&uid, Level::Strict).await.unwrap();
                What::SawHead(at)
            }
            1 => {
                fence = row(&log, &uid).await.fence.fence;
                What::SawFence(fence)
            }
            2 => match log.mint(&uid, sample::fresh_id(), fence, sample::holder("h")).await {
                Ok(minted) => {
                    fence = minted;
                    What::Minted(minted)
                }
                Err(LogError::Moved { .. }) => continue,
                Err(error) => panic!("{error}"),
            },
            _ => {
                let batch = texts(at, &[&format!("{seed} {step}")]);
                match send(&log, &uid, sample::fresh_id(), fence, &batch).await {
                    Ok(head) => {
                        at = head;
                        What::Appended { fence, base: batch.base(), head }
                    }
                    Err(LogError::Conflict { head, .. }) => {
                        at = head;
                        What::SawHead(head)
                    }
                    Err(LogError::Fenced { current }) => {
                        assert!(current > fence);
                        fence = current;
                        What::SawFence(current)
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        };
        calls.push(Call { from, to: moments.next(), what });
    }
    calls
}

/// "Methods may run concurrently": whatever many callers do, there is one order
/// of their calls, within the times that they took, that explains each answer.
pub async fn concurrent_operations_are_linearisable<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session(&log, "s").await;
    let moments = Arc::new(Moments::default());
    let clients = (0..8)
        .map(|seed| tokio::spawn(client(log.clone(), uid.clone(), Arc::clone(&moments), seed)));
    let joined = join_all(clients.collect::<Vec<_>>()).await;
    let calls: Vec<Call> = joined.into_iter().flat_map(|calls| calls.unwrap()).collect();

    let all = records(&log, &uid).await;
    let number = |head: Head| usize::try_from(head.seq.get()).unwrap();
    let mut appends: Vec<&Call> = Vec::new();
    let mut mints: Vec<&Call> = Vec::new();
    for call in &calls {
        match call.what {
            What::Appended { .. } => appends.push(call),
            What::Minted(_) => mints.push(call),
            _ => {}
        }
    }
    let head_of = |call: &Call| match call.what {
        What::Appended { head, .. } => head,
        _ => unreachable!("these are appends"),
    };
    let fence_of = |call: &Call| match call.what {
        What::Minted(fence) => fence.get(),
        _ => unreachable!("these are mints"),
    };
    appends.sort_by_key(|call| head_of(call).seq);
    mints.sort_by_key(|call| fence_of(call));
    assert_eq!(appends.len(), all.len(), "what was acknowledged is what is there");
    for (record, call) in all.iter().zip(&appends) {
        assert_eq!(record.head(), head_of(call));
    }
    let minted: Vec<u64> = mints.iter().map(|call| fence_of(call)).collect();
    assert_eq!(minted, (1..=minted.len() as u64).collect::<Vec<_>>(), "each fence was minted once");

    let (heads, fences) = (Steps::of(&appends), Steps::of(&mints));
    for call in &calls {
        let explained = match call.what {
            What::SawHead(head) => {
                assert!(head == Head::EMPTY || all[number(head) - 1].head() == head);
                heads.seen(number(head), call)
            }
            What::SawFence(fence) => fences.seen(usize::try_from(fence.get()).unwrap(), call),
            What::Appended { fence, base, .. } => {
                assert!(base == Head::EMPTY || all[number(base) - 1].head() == base);
                // Its fence was in force at some moment of it.
                fences.seen(usize::try_from(fence.get()).unwrap(), call)
            }
            What::Minted(_) => true,
        };
        assert!(
            explained,
            "an answer that no order explains, between {} and {}",
            call.from, call.to
        );
    }
}

/// Sends an append whose reply may be lost at any moment, until it is judged.
async fn settle(
    log: &Log,
    uid: &SessionUid,
    batch: &Batch,
    rng: &mut SeededRng,
) -> Result<Head, LogError> {
    let id = sample::fresh_id();
    for _ in 0..rng.below(3) {
        let mut sent = log.append(uid, id, Fence::NONE, batch);
        for _ in 0..rng.below(4) {
            if (&mut sent).now_or_never().is_some() {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    log.append(uid, id, Fence::NONE, batch).await
}

/// "If the first copy took effect, the answer is the one that it would have
/// given": many writers whose replies get lost, and each text is there once.
pub async fn lost_replies_are_settled_by_sending_again<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session(&log, "s").await;
    let writers = (0..8).map(|writer: u64| {
        let (log, uid) = (log.clone(), uid.clone());
        tokio::spawn(async move {
            let mut rng = SeededRng::new(writer);
            let mut won: Vec<(Seq, String)> = Vec::new();
            let mut at = Head::EMPTY;
            while won.len() < 12 {
                let text = format!("{writer} {}", won.len());
                match settle(&log, &uid, &texts(at, &[&text]), &mut rng).await {
                    Ok(after) => {
                        won.push((after.seq, text));
                        at = after;
                    }
                    Err(LogError::Conflict { .. }) => at = head(&log, &uid).await,
                    Err(error) => panic!("{error}"),
                }
            }
            won
        })
    });
    let won = join_all(writers.collect::<Vec<_>>()).await;
    let mut won: Vec<_> = won.into_iter().flat_map(|won| won.unwrap()).collect();
    won.sort();
    let all = records(&log, &uid).await;
    let there: Vec<_> = all.iter().map(|record| (record.seq, record.event().unwrap())).collect();
    let acknowledged: Vec<_> =
        won.into_iter().map(|(seq, text)| (seq, sample::input(&text))).collect();
    assert_eq!(there, acknowledged, "each acknowledged text is there, once, where it was said");
    verify_all(&*log, &uid).await.unwrap();
}
