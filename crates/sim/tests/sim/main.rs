//! Several hosts at one session, in an order that a seed decides.
//!
//! `MAINSPRING_SIM_SEEDS` says how many seeds are run (1,000), `MAINSPRING_SIM_SEED` runs one and prints its journal.

#![expect(clippy::print_stdout, reason = "one seed that is asked for shows its journal")]

mod checks;
mod host;
mod script;
mod turnstile;
mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use mainspring_api::Harness;
use mainspring_controller::ApprovedRetry;
use mainspring_eventlog::{EventLog, KvOptions, KvStore, MemoryEngine};
use mainspring_testkit::{SeededEntropy, SeededRng, sample};

use crate::host::Host;
use crate::script::{Script, Scripted};
use crate::turnstile::Turnstile;
use crate::world::{Ledger, Told};

/// Seeds that failed once.
///
/// - 13919, 17614: a superseded host's note "started" was settled by the note of
///   the host that superseded it, and both ran the tool.
const REGRESSIONS: [u64; 2] = [13_919, 17_614];

/// What a seed came to: enough to compare two runs of it.
#[derive(Debug, PartialEq, Eq)]
struct Trace {
    kinds: String,
    fences: u64,
}

fn simulate(seed: u64) -> Result<Trace, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .map_err(|error| error.to_string())?;
    let result = runtime.block_on(run(seed));
    runtime.shutdown_background();
    result
}

async fn run(seed: u64) -> Result<Trace, String> {
    let mut rng = SeededRng::new(seed);
    let store: Arc<dyn EventLog> = Arc::new(
        KvStore::open(MemoryEngine::default(), KvOptions::default())
            .map_err(|error| error.to_string())?,
    );
    let uid = sample::session("sim");
    mainspring_testkit::create(&*store, &uid).await.map_err(|error| error.to_string())?;
    let script = Script::random(&mut rng);
    let harness: Arc<dyn Harness> = Arc::new(Scripted(script));
    let retry = if rng.percent(50) { ApprovedRetry::DeclaredOnly } else { ApprovedRetry::Always };
    let turnstile = Turnstile::new(rng.next_u64());
    let (ledger, told) = (Ledger::default(), Told::default());
    let host = |id: usize| Host {
        id,
        uid: uid.clone(),
        turnstile: turnstile.clone(),
        ledger: ledger.clone(),
        told: told.clone(),
        store: Arc::clone(&store),
        harness: Arc::clone(&harness),
        entropy: Arc::new(SeededEntropy::new(seed.wrapping_mul(31).wrapping_add(id as u64))),
        retry,
    };

    let hosts = 2 + rng.below(2);
    let ready: Arc<Vec<AtomicBool>> =
        Arc::new((0..hosts).map(|_| AtomicBool::new(false)).collect());
    for id in 0..hosts {
        let (host, ready) = (host(id), Arc::clone(&ready));
        let operations = 3 + rng.below(6);
        tokio::spawn(async move {
            host.live(operations).await;
            ready[id].store(true, Ordering::SeqCst);
        });
    }
    // One of them may be killed at any point.
    let doomed = rng.percent(60).then(|| (rng.below(hosts), rng.below(200)));
    let steps = AtomicUsize::new(0);
    turnstile
        .turn_until(|| {
            let step = steps.fetch_add(1, Ordering::SeqCst);
            if let Some((victim, _)) = doomed.filter(|(_, at)| *at == step) {
                turnstile.kill(victim);
                ready[victim].store(true, Ordering::SeqCst);
            }
            ready.iter().all(|ready| ready.load(Ordering::SeqCst))
        })
        .await;
    // From here on nobody but one more host does anything.
    (0..hosts).for_each(|id| turnstile.kill(id));
    checks::journal(&*store, &uid, &told, &ledger, retry).await?;

    turnstile.calm();
    let last = host(hosts);
    let done = Arc::new(std::sync::Mutex::new(None));
    let result = Arc::clone(&done);
    tokio::spawn(async move {
        let recovered = last.recover().await;
        *result.lock().expect("nobody panics with it") = Some(recovered);
    });
    let is_done = || done.lock().expect("nobody panics with it").is_some();
    turnstile.turn_until(is_done).await;
    done.lock().expect("nobody panics with it").take().expect("it is done")?;
    checks::journal(&*store, &uid, &told, &ledger, retry).await?;
    checks::replay(&store, &uid, &harness).await?;
    checks::trace(&*store, &uid).await
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("it is a number"))
}

/// Runs seeds on all cores, and names every one that fails.
fn run_all(seeds: &[u64]) {
    let next = AtomicUsize::new(0);
    let failed = std::sync::Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::SeqCst)) {
                    let result = std::panic::catch_unwind(|| simulate(*seed));
                    let why = match result {
                        Ok(Ok(_)) => continue,
                        Ok(Err(why)) => why,
                        Err(panic) => panic
                            .downcast_ref::<String>()
                            .cloned()
                            .unwrap_or_else(|| "it panicked".to_owned()),
                    };
                    failed.lock().expect("nobody panics with it").push((*seed, why));
                }
            });
        }
    });
    let failed = failed.into_inner().expect("nobody panics with it");
    assert!(failed.is_empty(), "{} seeds failed: {failed:#?}", failed.len());
}

/// As many seeds as are asked for, or the one.
#[test]
fn hosts_at_one_session_keep_it_legal_and_it_comes_to_rest() {
    match number("MAINSPRING_SIM_SEED") {
        Some(seed) => println!("seed {seed}: {:#?}", simulate(seed).unwrap()),
        None => {
            let seeds = number("MAINSPRING_SIM_SEEDS").unwrap_or(1_000);
            run_all(&(0..seeds).collect::<Vec<_>>());
        }
    }
}

/// What failed once stays mended.
#[test]
fn seeds_that_failed_once_pass() {
    run_all(&REGRESSIONS);
}

/// The same seed is the same run.
#[test]
fn a_seed_decides_everything() {
    for seed in [1, 7, 42] {
        assert_eq!(simulate(seed), simulate(seed), "seed {seed}");
    }
}
