//! Opening a store: from the view, or a checkpoint, or the log's start.

use std::ops::ControlFlow;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use mainspring_api::{Clock, Entropy as _, OsEntropy, SystemClock};
use mainspring_eventlog::replica::{Replica, is_broken, unavailable};
use mainspring_eventlog::{Durability, Engine, EngineError, Keep, LogError, SCHEMA_VERSION, Space};
use rdkafka::error::KafkaError;

use crate::client::Reader;
use crate::config::KafkaConfig;
use crate::ends::Ends;
use crate::engine::{PartitionEngine, Records, prefixed};
use crate::error::{Halt, unsent};
use crate::fold::{Fold, FoldParts};
use crate::frame::Genesis;
use crate::lane::Lanes;
use crate::log;
use crate::mark::Mark;
use crate::messages::Messages;
use crate::progress::Progress;
use crate::shared::Core;
use crate::states::Cache;
use crate::store::KafkaStore;
use crate::view::{Input, Task, View, Writer, stands_at};
use crate::watch::refusal;

/// Messages that the fold may be ahead of the view.
const AHEAD_MAX: usize = 2_048;

/// Pause before the log is looked at ahead again.
const LOOK_AGAIN: std::time::Duration = std::time::Duration::from_secs(1);

/// Rows of all partitions that are kept in memory, and again as many older ones.
const ROWS_MAX: usize = 2_048;
/// Rows of a partition that are kept at the least.
const ROWS_MIN: usize = 16;

/// The form of the view that this build writes. Another one is filled anew.
const VIEW_FORM: &[u8] = b"1";
const FORM_KEY: &[u8] = b"form";
const STORE_KEY: &[u8] = b"store";
/// The build that a view was last opened by: another may read what it could not.
const BUILD_KEY: &[u8] = b"build";
const BUILD: &[u8] = env!("CARGO_PKG_VERSION").as_bytes();

fn client_failed(error: KafkaError) -> LogError {
    unsent("the client cannot be made of its settings", error)
}

impl KafkaStore {
    /// Opens the store of a topic, with the view that `view` holds, or fills it.
    ///
    /// Returns once the log was looked at; the fold then catches up by itself,
    /// and reads wait for it. Threads of its own look at the topics now and then.
    ///
    /// # Errors
    /// - `Halted`, by name: the topic is missing, not begun, lossy, or has other
    ///   partitions than its genesis says; or the view is ahead of the log, or
    ///   of another one. The view stays as it is.
    /// - `Unavailable` when no broker answers, or the view's engine fails.
    pub async fn open(config: KafkaConfig, view: Arc<dyn Engine>) -> Result<Self, LogError> {
        if config.fixed_setting().is_some() {
            return Err(LogError::Invalid("a client setting that the store alone sets"));
        }
        let report = crate::topic::check(&config).await?;
        if let Some(why) = refusal(&report, None) {
            return Err(why.into());
        }
        let durability = report.durability;
        blocking::unblock(move || open(config, view, durability)).await
    }
}

fn open(
    config: KafkaConfig,
    view: Arc<dyn Engine>,
    durability: Durability,
) -> Result<KafkaStore, LogError> {
    let client: Reader = config.open_reader().map_err(client_failed)?;
    let genesis = log::genesis(&client, &config)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let mut writer = [0; 16];
    OsEntropy.fill(&mut writer);
    let lanes = Lanes::new(&config, genesis.partitions, writer, clock).map_err(client_failed)?;
    let messages = Messages::new(&config).map_err(client_failed)?;
    let records: Arc<dyn Records> = Arc::clone(&messages) as _;
    let rows = (ROWS_MAX / genesis.partitions as usize).max(ROWS_MIN);
    let replicas: Vec<Replica<PartitionEngine>> = (0..genesis.partitions)
        .map(|partition| {
            let engine = PartitionEngine::new(Arc::clone(&view), partition, Arc::clone(&records));
            Replica::over(engine, config.limits, rows)
        })
        .collect();
    prepare(&view, &genesis, &replicas)?;
    let mut marks = Vec::with_capacity(replicas.len());
    let progress = Arc::new(Progress::new(genesis.partitions));
    for (partition, replica) in (0..).zip(&replicas) {
        let (mark, end) = start_of(&client, &config, &genesis, partition, replica)?;
        progress.heard_end(partition, end);
        progress.set_applied(partition, mark.next);
        replica.engine().promise(mark.next);
        marks.push(mark);
    }
    check_last(&client, &config, &marks)?;
    drop(client);
    start(Parts { config, genesis, durability, replicas, lanes, messages, progress }, marks)
}

/// What a store is made of.
struct Parts {
    config: KafkaConfig,
    genesis: Genesis,
    durability: Durability,
    replicas: Vec<Replica<PartitionEngine>>,
    lanes: Arc<Lanes>,
    messages: Arc<Messages>,
    progress: Arc<Progress>,
}

fn start(parts: Parts, marks: Vec<Mark>) -> Result<KafkaStore, LogError> {
    let Parts { config, genesis, durability, replicas, lanes, messages, progress } = parts;
    let spawn_failed = |error: std::io::Error| LogError::unavailable(format!("thread: {error}"));
    let (to_view, input) = sync_channel(AHEAD_MAX);
    let (restarts, restarted) = sync_channel(4);
    let ends = Ends::start(&config.topic, Arc::clone(&lanes), Arc::clone(&progress))
        .map_err(spawn_failed)?;
    let views: Vec<PartitionEngine> =
        replicas.iter().map(|replica| replica.engine().clone()).collect();
    let (refill, looking) = (to_view.clone(), Arc::clone(&progress));
    let (ahead, opened) = (config.clone(), config.clone());
    let (again, from, of) = (config.clone(), replicas.clone(), genesis.clone());
    let fold = Fold::new(
        FoldParts {
            topic: config.topic.clone(),
            consumer: config.open_consumer().map_err(client_failed)?,
            open: Box::new(move || opened.open_consumer()),
            lanes: Arc::clone(&lanes),
            messages,
            progress: Arc::clone(&progress),
            folded: to_view,
            ahead: Arc::default(),
            restarts: restarted,
            caches: Box::new(move |partition| {
                Cache::new(views[partition as usize].clone(), views.len())
            }),
            rebuild: Box::new(move || {
                let (config, replicas, genesis) = (again.clone(), from.clone(), of.clone());
                let task: Task = Box::new(move |_| refill_view(&config, &genesis, &replicas));
                // A view that has ended is filled when it is opened again.
                let _ = refill.send(Input::Refill(task));
            }),
            is_voided: Box::new(move |partition, offset| {
                while !looking.is_over() {
                    match log::is_voided(&ahead, partition, offset) {
                        Ok(is_voided) => return is_voided,
                        Err(error) => {
                            tracing::error!(%error, "the log cannot be looked at ahead");
                        }
                    }
                    looking.wait_over(LOOK_AGAIN);
                }
                false
            }),
        },
        marks.clone(),
    )
    .map_err(|error| unsent("the log cannot be read", error))?;
    let view = View { replicas: replicas.clone(), progress: Arc::clone(&progress) };
    let writer = Writer { view, input, restarts, marks };
    let named = |name: &str| std::thread::Builder::new().name(name.to_owned());
    let mut threads: Vec<JoinHandle<()>> = vec![
        named("kafka-view").spawn(move || writer.run()).map_err(spawn_failed)?,
        named("kafka-fold").spawn(move || fold.run()).map_err(spawn_failed)?,
    ];
    let hosts = OnceLock::new();
    let core = Core { config, genesis, durability, replicas, lanes, progress, ends, hosts };
    let core = Arc::new(core);
    let (of, looked, known) = (Arc::downgrade(&core), core.config.clone(), core.genesis.clone());
    let watched = Arc::clone(&core.progress);
    let watch = move || crate::watch::run(&of, &looked, &known, &watched);
    threads.push(named("kafka-watch").spawn(watch).map_err(spawn_failed)?);
    let saver = crate::checkpoint::Saver::new(&core);
    threads.push(named("kafka-checkpoint").spawn(move || saver.run()).map_err(spawn_failed)?);
    Ok(KafkaStore::of(core, threads))
}

/// The part of the view that says what it is a view of.
const IDENTITY: u32 = u32::MAX;

/// Makes sure that the view is of this store and in the form of this build, or
/// empty.
fn prepare(
    view: &Arc<dyn Engine>,
    genesis: &Genesis,
    replicas: &[Replica<PartitionEngine>],
) -> Result<(), LogError> {
    let key = |name| prefixed(IDENTITY, name);
    let (mut form, mut build, mut store) = (None, None, None);
    view.read(&mut |kv| {
        form = kv.get(Space::Meta, &key(FORM_KEY))?;
        build = kv.get(Space::Meta, &key(BUILD_KEY))?;
        store = kv.get(Space::Meta, &key(STORE_KEY))?;
        Ok(())
    })
    .map_err(unavailable)?;
    if let Some(known) = store.filter(|known| known != genesis.store_id.as_str().as_bytes()) {
        let known = String::from_utf8_lossy(&known).into_owned();
        return Err(
            Halt::LogRecreated { found: genesis.store_id.as_str().to_owned(), known }.into()
        );
    }
    if form.as_deref().is_some_and(|form| form != VIEW_FORM) {
        tracing::warn!("the view is in the form of another version and is filled anew");
        clear(replicas).map_err(unavailable)?;
    }
    let is_of_this_build = build.as_deref() == Some(BUILD);
    if form.as_deref() == Some(VIEW_FORM) && is_of_this_build {
        return Ok(());
    }
    if !is_of_this_build {
        forget_broken(replicas).map_err(unavailable)?;
    }
    view.write(&mut |kv| {
        // By it an engine knows its own files; a store that is no view needs an id besides.
        kv.put(Space::Meta, b"schema", SCHEMA_VERSION.to_string().as_bytes())?;
        kv.put(Space::Meta, &key(FORM_KEY), VIEW_FORM)?;
        kv.put(Space::Meta, &key(BUILD_KEY), BUILD)?;
        kv.put(Space::Meta, &key(STORE_KEY), genesis.store_id.as_str().as_bytes())?;
        Ok(Keep::Yes)
    })
    .map_err(unavailable)
}

/// Empties the partitions with sessions that the build before could not read.
fn forget_broken(replicas: &[Replica<PartitionEngine>]) -> Result<(), EngineError> {
    for (partition, replica) in (0..).zip(replicas) {
        let mut broken = 0;
        replica.engine().read_stored(&mut |stored| {
            broken = 0;
            stored.scan(Space::Rows, &mut |_, row| {
                broken += usize::from(is_broken(row));
                ControlFlow::Continue(())
            })
        })?;
        if broken > 0 {
            tracing::warn!(
                partition,
                broken,
                "sessions that another build could not read: the view is filled anew"
            );
            clear(std::slice::from_ref(replica))?;
        }
    }
    Ok(())
}

/// Where the fold of a partition starts: where the view stands, or a checkpoint,
/// or the log's first message; and where the log ends.
fn start_of(
    client: &Reader,
    config: &KafkaConfig,
    genesis: &Genesis,
    partition: u32,
    replica: &Replica<PartitionEngine>,
) -> Result<(Mark, u64), LogError> {
    let mut mark = stands_at(replica).unwrap_or_else(|error| {
        let error = mainspring_api::report(&error);
        tracing::warn!(partition, %error, "the view is damaged and is filled anew");
        Mark::START
    });
    let (first, end) = log::bounds(client, &config.topic, partition)?;
    if first > 0 || mark.next > end {
        let folded = mark.next;
        return Err(Halt::LogTruncated { partition, first, end, folded }.into());
    }
    if mark == Mark::START {
        // One that was filled in part stands at the start, too.
        clear(std::slice::from_ref(replica)).map_err(unavailable)?;
        crate::checkpoint::load(client, config, genesis, partition, replica)?;
        mark = stands_at(replica).map_err(unavailable)?;
    }
    Ok((mark, end))
}

/// Checks that the last message that each view has is the one that is there.
fn check_last(client: &Reader, config: &KafkaConfig, marks: &[Mark]) -> Result<(), LogError> {
    let lasts = || (0..).zip(marks).filter_map(|(partition, mark)| Some((partition, mark.last?)));
    let places: Vec<(u32, u64)> =
        lasts().map(|(partition, (offset, _))| (partition, offset)).collect();
    let found = log::messages(client, config, &places)?;
    for (partition, (offset, hash)) in lasts() {
        if found.get(&partition).is_none_or(|message| Mark::hash_of(message) != hash) {
            return Err(Halt::LogChanged { partition, offset }.into());
        }
    }
    Ok(())
}

/// Empties the view and fills it from the newest checkpoints.
fn refill_view(
    config: &KafkaConfig,
    genesis: &Genesis,
    replicas: &[Replica<PartitionEngine>],
) -> Result<(), EngineError> {
    clear(replicas)?;
    let client = match config.open_reader() {
        Ok(client) => client,
        Err(error) => {
            tracing::warn!(%error, "the checkpoints cannot be read");
            return Ok(());
        }
    };
    for (partition, replica) in (0..).zip(replicas) {
        // Without one the fold starts with the log.
        if let Err(error) = crate::checkpoint::load(&client, config, genesis, partition, replica) {
            tracing::warn!(partition, %error, "the checkpoint cannot be read");
        }
    }
    Ok(())
}

/// Keys that one step removes.
const CLEAR_KEYS: usize = 10_000;

/// Empties the view of some partitions.
pub(crate) fn clear(replicas: &[Replica<PartitionEngine>]) -> Result<(), EngineError> {
    for replica in replicas {
        while clear_step(replica.engine())? {}
        replica.forget();
    }
    Ok(())
}

/// Removes some of what is there; whether there may be more.
fn clear_step(engine: &PartitionEngine) -> Result<bool, EngineError> {
    let mut left = CLEAR_KEYS;
    engine.write_stored(Keep::Behind, &mut |stored| {
        left = CLEAR_KEYS;
        for space in Space::ALL {
            if left > 0 {
                left -= stored.remove(space, left)?;
            }
        }
        Ok(())
    })?;
    Ok(left == 0)
}
