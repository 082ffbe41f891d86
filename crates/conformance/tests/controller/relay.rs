//! Observers that block, behind a relay.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use mainspring_api::{Delta, LogRecord, Message, ModelReply, Seq};
use mainspring_controller::{
    Controller, Journal, Lag, Observer, Options, RELAY_QUEUE_MAX, Relayed, RelayedObserver,
};
use mainspring_eventlog::LogError;
use mainspring_testkit::sample;

use crate::support::{Fixture, Probe, ask, turn};

/// What an observer was told.
#[derive(Debug, Clone, PartialEq)]
enum Told {
    Record(Seq),
    Delta,
    Lag(Lag),
    Lost(Seq),
}

/// Remembers what it is told, and blocks in its first call until it is let go.
#[derive(Debug, Default)]
struct Stuck {
    told: Mutex<Vec<Told>>,
    free: Mutex<bool>,
    freed: Condvar,
}

impl Stuck {
    fn let_go(&self) {
        *self.free.lock().unwrap() = true;
        self.freed.notify_all();
    }

    fn told(&self) -> Vec<Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn tell(&self, told: Told) {
        let free = self.free.lock().unwrap();
        drop(self.freed.wait_while(free, |free| !*free).unwrap());
        self.told.lock().unwrap().push(told);
    }

    fn records(&self) -> Vec<u64> {
        let seq = |told| if let Told::Record(seq) = told { Some(seq.get()) } else { None };
        self.told().into_iter().filter_map(seq).collect()
    }
}

impl Observer for Stuck {
    fn on_record(&self, record: &LogRecord) {
        self.tell(Told::Record(record.seq));
    }

    fn on_delta(&self, _delta: Delta) {
        self.tell(Told::Delta);
    }
}

impl RelayedObserver for Stuck {
    fn on_lag(&self, lag: Lag) {
        self.tell(Told::Lag(lag));
    }

    fn on_lost(&self, from: Seq, _error: &LogError) {
        self.tell(Told::Lost(from));
    }
}

/// Outputs of one turn: more than a relay keeps.
const OUTPUTS: usize = 2 * RELAY_QUEUE_MAX;

/// Records of that turn: start, input and end, too.
const RECORDS: u64 = OUTPUTS as u64 + 3;

fn talkative() -> Probe {
    Probe::new(|_, sink| async move {
        for number in 0..OUTPUTS {
            sink.output(format!("line {number}")).await?;
        }
        Ok(())
    })
}

fn relay(fixture: &Fixture, stuck: &Arc<Stuck>) -> Arc<Relayed> {
    Arc::new(Relayed::start(fixture.journal(), Arc::clone(stuck) as Arc<_>).unwrap())
}

/// Runs a turn whose observer is the relay.
async fn exec(fixture: &Fixture, relay: &Arc<Relayed>, probe: Probe) {
    let placed = fixture.place(probe).await;
    let options = Options { observer: Arc::clone(relay) as Arc<_>, ..fixture.options() };
    let controller = Controller::new(fixture.journal(), options).await.unwrap();
    controller.exec(&placed.harness, turn(&["go"])).await.unwrap();
}

/// An observer that never returns holds up neither the turn nor, for longer
/// than its bound, the end of the relay.
async fn an_observer_that_blocks_for_ever_cannot_stall_a_turn(fixture: Fixture) {
    tokio::time::pause();
    let stuck = Arc::<Stuck>::default();
    let relay = relay(&fixture, &stuck);
    exec(&fixture, &relay, talkative()).await;
    assert_eq!(fixture.head().await.seq.get(), RECORDS);
    assert!(!relay.close().await, "not all was told");
    assert_eq!(stuck.told(), []);
    stuck.let_go();
    assert!(!relay.close().await, "and never will be");
    assert!(stuck.told().len() <= 1, "only the call that had begun goes on");
}

/// What does not fit into the queue is said to come late, and comes from the log.
async fn a_slow_observer_gets_every_record_once_and_in_order(fixture: Fixture) {
    let stuck = Arc::<Stuck>::default();
    let relay = relay(&fixture, &stuck);
    exec(&fixture, &relay, talkative()).await;
    stuck.let_go();
    assert!(relay.close().await);
    assert_eq!(stuck.records(), (1..=RECORDS).collect::<Vec<_>>());
    let told = stuck.told();
    let lags: Vec<_> = (0..told.len()).filter(|at| matches!(told[*at], Told::Lag(_))).collect();
    let [at] = lags[..] else { panic!("it lagged {} times", lags.len()) };
    let Told::Record(next) = told[at + 1] else { panic!("no record after the lag") };
    assert_eq!(told[at], Told::Lag(Lag { from: Some(next), deltas_lost: 0 }));
    // One may be in the observer's hands already.
    let kept = at - RELAY_QUEUE_MAX;
    assert!(kept <= 1, "{kept} more than the queue holds were kept");
}

/// An observer that keeps up never lags.
async fn a_quick_observer_is_told_as_it_happens(fixture: Fixture) {
    let stuck = Arc::<Stuck>::default();
    stuck.let_go();
    let relay = relay(&fixture, &stuck);
    exec(&fixture, &relay, Probe::saying(&["a", "b"])).await;
    assert!(relay.close().await);
    let expected: Vec<_> = (1..=5).map(|seq| Told::Record(Seq::new(seq))).collect();
    assert_eq!(stuck.told(), expected);
}

/// Deltas are nowhere to be read again: how many were dropped is said.
async fn deltas_that_do_not_fit_are_dropped_and_counted(fixture: Fixture) {
    let stuck = Arc::<Stuck>::default();
    fixture.model.stream_chunks();
    fixture.model.respond(|_| async {
        let message = Message::assistant(":".repeat(2 * RELAY_QUEUE_MAX));
        Ok(ModelReply { message, ..ModelReply::default() })
    });
    let relay = relay(&fixture, &stuck);
    let asking = Probe::new(|_, sink| async move {
        ask(&*sink, "go").await?;
        Ok(())
    });
    exec(&fixture, &relay, asking).await;
    stuck.let_go();
    assert!(relay.close().await);
    let told = stuck.told();
    let lost: u64 =
        told.iter().map(|told| if let Told::Lag(lag) = told { lag.deltas_lost } else { 0 }).sum();
    let deltas = told.iter().filter(|told| **told == Told::Delta).count() as u64;
    assert!(lost > 0, "some were dropped");
    // One for each chunk, and the last one, which ends the stream.
    assert_eq!(deltas + lost, 2 * RELAY_QUEUE_MAX as u64 + 1);
    assert_eq!(stuck.records(), (1..=5).collect::<Vec<_>>());
}

/// A closed relay tells nothing, and neither does one that is gone.
async fn nothing_is_told_after_the_end(fixture: Fixture) {
    let stuck = Arc::<Stuck>::default();
    stuck.let_go();
    let relay = relay(&fixture, &stuck);
    exec(&fixture, &relay, Probe::saying(&["a"])).await;
    assert!(relay.close().await);
    assert_eq!(stuck.records().len(), 4);
    exec(&fixture, &relay, Probe::saying(&["b"])).await;
    assert!(relay.close().await, "closing again changes nothing");
    assert_eq!(stuck.records().len(), 4);
}

/// Where the log cannot be read, the observer is told so, and nothing else.
async fn a_lag_that_cannot_be_made_up_is_said(fixture: Fixture) {
    let stuck = Arc::<Stuck>::default();
    let nowhere = Journal::new(Arc::clone(&fixture.log), sample::session("nowhere"));
    let relay = Arc::new(Relayed::start(nowhere, Arc::clone(&stuck) as Arc<_>).unwrap());
    exec(&fixture, &relay, talkative()).await;
    stuck.let_go();
    assert!(!relay.close().await, "not all was told");
    let told = stuck.told();
    let [.., Told::Lag(Lag { from: Some(from), .. }), Told::Lost(lost)] = told[..] else {
        panic!("it ended with {:?}", told.last());
    };
    assert_eq!(from, lost);
    assert_eq!(stuck.records(), (1..from.get()).collect::<Vec<_>>());
}

matrix! {
    run:
    in_process {
        #[test] fn a_slow_observer_gets_every_record_once_and_in_order;
        #[test] fn a_quick_observer_is_told_as_it_happens;
        #[test] fn deltas_that_do_not_fit_are_dropped_and_counted;
        #[test] fn nothing_is_told_after_the_end;
        #[test] fn a_lag_that_cannot_be_made_up_is_said;
    }
}

mod paused {
    use super::an_observer_that_blocks_for_ever_cannot_stall_a_turn as blocked;
    use crate::support::{Cell, Kept, Reach, run_on_one_thread};

    #[test]
    fn an_observer_that_blocks_for_ever_cannot_stall_a_turn() {
        for kept in [Kept::Memory, Kept::Redb, Kept::Fjall] {
            run_on_one_thread(Cell { reach: Reach::InProcess, kept }, blocked);
        }
    }
}
