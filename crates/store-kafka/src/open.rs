//! Opening a store: from the view, or a checkpoint, or the log's start.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;

use mainspring_api::{Clock, Entropy as _, OsEntropy, SystemClock};
use mainspring_eventlog::replica::{Replica, unavailable};
use mainspring_eventlog::{Engine, EngineError, Keep, KvRead as _, LogError, Space};
use rdkafka::consumer::BaseConsumer;
use rdkafka::error::KafkaError;

use crate::config::KafkaConfig;
use crate::ends::Ends;
use crate::engine::{PartitionEngine, Records};
use crate::error::{Halt, unsent};
use crate::fold::{Fold, FoldParts};
use crate::frame::Genesis;
use crate::lane::Lanes;
use crate::log;
use crate::mark::Mark;
use crate::messages::Messages;
use crate::progress::Progress;
use crate::states::Cache;
use crate::store::{Core, KafkaStore};
use crate::view::{Input, Task, View, Writer, stands_at};

/// Messages that the fold may be ahead of the view.
const AHEAD_MAX: usize = 2_048;

/// The form of the view that this build writes. Another one is filled anew.
const VIEW_FORM: &[u8] = b"1";
const FORM_KEY: &[u8] = b"form";
const STORE_KEY: &[u8] = b"store";

fn client_failed(error: KafkaError) -> LogError {
    unsent("the client cannot be made of its settings", error)
}

impl KafkaStore {
    /// Opens the store of a topic, with the view that `view` holds, or fills it.
    ///
    /// Returns once the log was looked at; the fold then catches up by itself,
    /// and reads wait for it. Blocks: not for a thread of an async runtime.
    ///
    /// # Errors
    /// - `Halted`, by name: the topic is missing, not begun, lossy, or has other
    ///   partitions than its genesis says; or the view is ahead of the log, or
    ///   of another one. The view stays as it is.
    /// - `Unavailable` when no broker answers, or the view's engine fails.
    pub fn open(config: KafkaConfig, view: Arc<dyn Engine>) -> Result<Self, LogError> {
        let client: BaseConsumer = config.consumer().create().map_err(client_failed)?;
        let genesis = log::genesis(&client, &config.topic)?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let mut writer = [0; 16];
        OsEntropy.fill(&mut writer);
        let lanes =
            Lanes::new(&config, genesis.partitions, writer, clock).map_err(client_failed)?;
        let messages = Messages::new(&config).map_err(client_failed)?;
        let records: Arc<dyn Records> = Arc::clone(&messages) as _;
        let replicas: Vec<Replica<PartitionEngine>> = (0..genesis.partitions)
            .map(|partition| {
                let engine =
                    PartitionEngine::new(Arc::clone(&view), partition, Arc::clone(&records));
                Replica::over(engine, config.limits)
            })
            .collect();
        prepare(&genesis, &replicas)?;
        let mut marks = Vec::with_capacity(replicas.len());
        for (partition, replica) in (0..).zip(&replicas) {
            marks.push(start_of(&client, &config, &genesis, partition, replica)?);
        }
        let progress = Arc::new(Progress::new(genesis.partitions));
        for (partition, mark) in (0..).zip(&marks) {
            let (_, end) = log::bounds(&client, &config.topic, partition)?;
            progress.heard_end(partition, end);
            progress.set_applied(partition, mark.next);
        }
        drop(client);
        start(config, genesis, replicas, lanes, messages, progress, marks)
    }
}

#[expect(clippy::too_many_arguments, reason = "the parts of one store, made just above")]
fn start(
    config: KafkaConfig,
    genesis: Genesis,
    replicas: Vec<Replica<PartitionEngine>>,
    lanes: Arc<Lanes>,
    messages: Arc<Messages>,
    progress: Arc<Progress>,
    marks: Vec<Mark>,
) -> Result<KafkaStore, LogError> {
    let spawn_failed = |error: std::io::Error| LogError::unavailable(format!("thread: {error}"));
    let (to_view, input) = sync_channel(AHEAD_MAX);
    let (restarts, restarted) = sync_channel(4);
    let ends = Ends::start(&config.topic, Arc::clone(&lanes), Arc::clone(&progress))
        .map_err(spawn_failed)?;
    let views: Vec<PartitionEngine> =
        replicas.iter().map(|replica| replica.engine().clone()).collect();
    let refill = to_view.clone();
    let ahead = config.clone();
    let (again, from, of) = (config.clone(), replicas.clone(), genesis.clone());
    let fold = Fold::new(
        FoldParts {
            topic: config.topic.clone(),
            consumer: config.consumer().create().map_err(client_failed)?,
            lanes: Arc::clone(&lanes),
            messages,
            progress: Arc::clone(&progress),
            folded: to_view,
            restarts: restarted,
            caches: Box::new(move |partition| Cache::new(views[partition as usize].clone())),
            rebuild: Box::new(move || {
                let (config, replicas, genesis) = (again.clone(), from.clone(), of.clone());
                let task: Task = Box::new(move |_| refill_view(&config, &genesis, &replicas));
                // A view that has ended is filled when it is opened again.
                let _ = refill.send(Input::Refill(task));
            }),
            is_voided: Box::new(move |partition, offset| {
                log::is_voided(&ahead, partition, offset).unwrap_or_else(|error| {
                    tracing::error!(%error, "the log cannot be looked at ahead");
                    false
                })
            }),
        },
        marks.clone(),
    )
    .map_err(|error| unsent("the log cannot be read", error))?;
    let view = View { replicas: replicas.clone(), progress: Arc::clone(&progress) };
    let writer = Writer { view, input, restarts, run: 0, marks };
    let named = |name: &str| std::thread::Builder::new().name(name.to_owned());
    let threads: Vec<JoinHandle<()>> = vec![
        named("kafka-view").spawn(move || writer.run()).map_err(spawn_failed)?,
        named("kafka-fold").spawn(move || fold.run()).map_err(spawn_failed)?,
    ];
    let core = Core { config, genesis, replicas, lanes, progress, ends };
    Ok(KafkaStore::of(Arc::new(core), threads))
}

/// Makes sure that the view is of this store and in the form of this build, or
/// empty.
fn prepare(genesis: &Genesis, replicas: &[Replica<PartitionEngine>]) -> Result<(), LogError> {
    let Some(first) = replicas.first() else { return Ok(()) };
    let (mut form, mut store) = (None, None);
    first
        .engine()
        .read(&mut |kv| {
            (form, store) = (kv.get(Space::Meta, FORM_KEY)?, kv.get(Space::Meta, STORE_KEY)?);
            Ok(())
        })
        .map_err(unavailable)?;
    if let Some(known) = store.filter(|known| known != genesis.store_id.as_str().as_bytes()) {
        let known = String::from_utf8_lossy(&known).into_owned();
        return Err(
            Halt::LogRecreated { found: genesis.store_id.as_str().to_owned(), known }.into()
        );
    }
    if form.is_some_and(|form| form != VIEW_FORM) {
        tracing::warn!("the view is in the form of another version and is filled anew");
        clear(replicas).map_err(unavailable)?;
    }
    write_identity(genesis, first).map_err(unavailable)
}

fn write_identity(genesis: &Genesis, first: &Replica<PartitionEngine>) -> Result<(), EngineError> {
    first.engine().write(&mut |kv| {
        kv.put(Space::Meta, FORM_KEY, VIEW_FORM)?;
        kv.put(Space::Meta, STORE_KEY, genesis.store_id.as_str().as_bytes())?;
        Ok(Keep::Yes)
    })
}

/// Where the fold of a partition starts.
fn start_of(
    client: &BaseConsumer,
    config: &KafkaConfig,
    genesis: &Genesis,
    partition: u32,
    replica: &Replica<PartitionEngine>,
) -> Result<Mark, LogError> {
    let mark = match stands_at(replica) {
        Ok(mark) => mark,
        Err(error) => {
            tracing::warn!(partition, error = %mainspring_api::report(&error), "the view is damaged and is filled anew");
            clear(std::slice::from_ref(replica)).map_err(unavailable)?;
            if partition == 0 {
                write_identity(genesis, replica).map_err(unavailable)?;
            }
            Mark::START
        }
    };
    let (first, end) = log::bounds(client, &config.topic, partition)?;
    if first > 0 || mark.next > end {
        let folded = mark.next;
        return Err(Halt::LogTruncated { partition, first, end, folded }.into());
    }
    if let Some((offset, hash)) = mark.last {
        let message = log::message(client, &config.topic, partition, offset)?;
        if message.is_none_or(|message| Mark::hash_of(&message) != hash) {
            return Err(Halt::LogChanged { partition, offset }.into());
        }
    }
    if mark == Mark::START {
        crate::checkpoint::load(config, genesis, partition, replica)?;
        return stands_at(replica).map_err(unavailable);
    }
    Ok(mark)
}

/// Empties the view and fills it from the newest checkpoints.
fn refill_view(
    config: &KafkaConfig,
    genesis: &Genesis,
    replicas: &[Replica<PartitionEngine>],
) -> Result<(), EngineError> {
    clear(replicas)?;
    if let Some(first) = replicas.first() {
        write_identity(genesis, first)?;
    }
    for (partition, replica) in (0..).zip(replicas) {
        // Without one the fold starts with the log.
        if let Err(error) = crate::checkpoint::load(config, genesis, partition, replica) {
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
        for space in Space::ALL {
            while clear_step(replica.engine(), space)? {}
        }
        replica.forget();
    }
    Ok(())
}

fn clear_step(engine: &PartitionEngine, space: Space) -> Result<bool, EngineError> {
    let mut removed = 0;
    engine.write_stored(Keep::Behind, &mut |stored| {
        removed = stored.remove(space, CLEAR_KEYS)?;
        Ok(())
    })?;
    Ok(removed == CLEAR_KEYS)
}
