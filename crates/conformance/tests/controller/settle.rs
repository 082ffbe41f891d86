//! Appends whose reply is lost: settled by sending the same again, and only so.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use mainspring_api::{AppendId, BoxFuture, Classify as _, Outcome, Seq};
use mainspring_eventlog::LogError;
use mainspring_testkit::{HookedLog, LogCall, LogHook};

use crate::support::raw::{self, execution, kind};
use crate::support::{Fixture, Probe, Told};

/// What becomes of one attempt of an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It is applied, and the reply is lost.
    Applied,
    /// It is not applied, and the reply is lost.
    Lost,
    /// As `Lost`, and then somebody else does something.
    Overtaken,
}

type Overtake = dyn Fn() -> BoxFuture<'static, ()> + Send + Sync;

/// Gives appends fates: the attempts of the nth append, in order.
struct Unlucky {
    fates: Mutex<BTreeMap<usize, Vec<Fate>>>,
    overtake: Box<Overtake>,
    /// The appends seen, by id, with how often each was sent.
    sent: Mutex<Vec<(AppendId, usize)>>,
}

impl fmt::Debug for Unlucky {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Unlucky")
    }
}

impl Unlucky {
    /// Takes the fate of this attempt.
    fn fate(&self, id: AppendId) -> Option<Fate> {
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        let append = match sent.iter().position(|(seen, _)| *seen == id) {
            Some(append) => append,
            None => {
                sent.push((id, 0));
                sent.len() - 1
            }
        };
        let attempt = sent[append].1;
        sent[append].1 += 1;
        let fates = self.fates.lock().unwrap_or_else(PoisonError::into_inner);
        fates.get(&append).and_then(|fates| fates.get(attempt)).copied()
    }

    /// How often each append was sent.
    fn attempts(&self) -> Vec<usize> {
        let sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        sent.iter().map(|(_, attempts)| *attempts).collect()
    }
}

fn lost() -> LogError {
    LogError::Unavailable {
        message: "reply lost".to_owned(),
        outcome: Outcome::Unknown,
        source: None,
    }
}

impl LogHook for Unlucky {
    async fn around<T: Send>(
        &self,
        call: LogCall,
        run: impl Future<Output = Result<T, LogError>> + Send,
    ) -> Result<T, LogError> {
        let fate = match call {
            LogCall::Append(id) => self.fate(id),
            _ => None,
        };
        match fate {
            Some(Fate::Applied) => {
                // Whatever is answered is lost, a refusal too.
                drop(run.await);
                Err(lost())
            }
            Some(Fate::Lost) => Err(lost()),
            Some(Fate::Overtaken) => {
                (self.overtake)().await;
                Err(lost())
            }
            None => run.await,
        }
    }
}

const WHOLE: &str = "ES IN MC OUT END";

/// The session seen through a log in which the nth append (from 0) has `fates`.
fn unlucky(
    session: &Fixture,
    nth: usize,
    fates: &[Fate],
    overtake: impl Fn() -> BoxFuture<'static, ()> + Send + Sync + 'static,
) -> (Fixture, Arc<HookedLog<Unlucky>>) {
    let unlucky = Unlucky {
        fates: Mutex::new([(nth, fates.to_vec())].into()),
        overtake: Box::new(overtake),
        sent: Mutex::default(),
    };
    let log = Arc::new(HookedLog::with_hook(Arc::clone(&session.log), unlucky));
    // The settling waits between its attempts; nothing else here needs time.
    tokio::time::pause();
    (session.through(Arc::clone(&log) as Arc<_>), log)
}

fn nobody() -> BoxFuture<'static, ()> {
    Box::pin(async {})
}

/// A reply that was lost once or often, applied or not, costs nothing: one record, one call, a completed turn.
async fn a_lost_reply_is_settled(session: Fixture) {
    use Fate::{Applied, Lost};
    for nth in 0..4 {
        for fates in [&[Applied][..], &[Lost], &[Lost, Applied], &[Applied, Lost, Applied, Lost]] {
            let session = Fixture::open(session.cell).await;
            let (through, log) = unlucky(&session, nth, fates, nobody);
            let echo = through.place(Probe::echo()).await;
            through.exec(&echo, &["hello"]).await.unwrap();
            tokio::time::resume();
            assert_eq!(session.kinds().await, WHOLE, "append {nth}, {fates:?}");
            assert_eq!(session.model.calls(), 1);
            let mut expected = vec![1; 4];
            expected[nth] += fates.len();
            assert_eq!(log.hook().attempts(), expected, "the same append, sent again");
            let told = session.watcher.take();
            assert_eq!(told.len(), 5, "each record is told once: {told:?}");
            session.replay_check(&echo, 1, &["echo:hello"]).await;
        }
    }
}

/// An append that never landed and that another writer overtook is a conflict, or fenced, once it is judged.
async fn a_lost_append_that_was_overtaken_is_refused(session: Fixture) {
    for (expected, fenced) in [("conflict", false), ("fenced", true)] {
        let session = Fixture::open(session.cell).await;
        let intruder = session.clone();
        let overtake = move || -> BoxFuture<'static, ()> {
            let intruder = intruder.clone();
            Box::pin(async move {
                if fenced {
                    intruder.take_over().await;
                } else {
                    intruder.append(raw::echo_turn(&execution(9), "theirs")).await;
                }
            })
        };
        // The third append is the completion's.
        let (through, log) = unlucky(&session, 2, &[Fate::Overtaken], overtake);
        let echo = through.place(Probe::echo()).await;
        let error = through.exec(&echo, &["hello"]).await.unwrap_err();
        tokio::time::resume();
        assert_eq!((error.code(), error.outcome()), (expected, Outcome::NotApplied));
        let theirs = if fenced { "" } else { " ES IN MC OUT END" };
        assert_eq!(session.kinds().await, format!("ES IN MC{theirs}"), "and leaves no mark");
        assert_eq!(log.hook().attempts(), [1, 1, 2, 1], "judged once, and one error record tried");
        assert_eq!(session.model.calls(), 1);
        let told = session.watcher.take();
        assert_eq!(told.len(), 3, "{told:?}");
    }
}

/// An applied append that another writer followed is ours: the turn then loses at its next record.
async fn an_applied_append_that_was_followed_counts(session: Fixture) {
    let intruder = session.clone();
    let overtake = move || -> BoxFuture<'static, ()> {
        let intruder = intruder.clone();
        Box::pin(async move { intruder.append(raw::echo_turn(&execution(9), "theirs")).await })
    };
    let fates = [Fate::Applied, Fate::Overtaken];
    let (through, log) = unlucky(&session, 2, &fates, overtake);
    let echo = through.place(Probe::echo()).await;
    let error = through.exec(&echo, &["hello"]).await.unwrap_err();
    tokio::time::resume();
    assert_eq!(error.code(), "conflict", "{error:?}");
    assert_eq!(session.kinds().await, "ES IN MC OUT ES IN MC OUT END");
    assert_eq!(log.hook().attempts()[..3], [1, 1, 3]);
    let told: Vec<_> = session.watcher.take();
    let last = kind(&session.events().await[3]);
    assert_eq!(told.last(), Some(&Told::Record(Seq::new(4), last)), "it is told as recorded");
}

/// An outcome that stays unknown is told as unknown, nothing follows it, and a resume finds what happened.
async fn an_outcome_that_stays_unknown_ends_the_writer(session: Fixture) {
    for (fate, journal, calls) in [(Fate::Applied, "ES IN MC OUT", 1), (Fate::Lost, "ES IN MC", 2)]
    {
        let session = Fixture::open(session.cell).await;
        let (through, log) = unlucky(&session, 2, &[fate; 100], nobody);
        let echo = through.place(Probe::echo()).await;
        let error = through.exec(&echo, &["hello"]).await.unwrap_err();
        tokio::time::resume();
        assert_eq!((error.code(), error.outcome()), ("outcome_unknown", Outcome::Unknown));
        assert_eq!(session.kinds().await, journal, "no error record follows what is not known");
        let attempts = log.hook().attempts();
        assert!(attempts.len() == 3 && attempts[2] > 1, "{attempts:?}");
        session.resume(&echo).await.result.unwrap();
        assert_eq!((session.kinds().await.as_str(), session.model.calls()), (WHOLE, calls));
        session.replay_check(&echo, 1, &["echo:hello"]).await;
    }
}

matrix! {
    run_on_one_thread:
    everywhere {
        #[test] fn a_lost_reply_is_settled;
        #[test] fn a_lost_append_that_was_overtaken_is_refused;
        #[test] fn an_applied_append_that_was_followed_counts;
        #[test] fn an_outcome_that_stays_unknown_ends_the_writer;
    }
}
