//! `kafka://BROKER,BROKER/TOPIC`: a log on Apache Kafka, with a view of it in a file.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use mainspring_api::{Clock, report};
use mainspring_eventlog::holder::{FileId, with_suffix};
use mainspring_eventlog::{
    Engine, EngineError, EventLog, Keep, KvOptions, LogError, Mark, OpenProgress, Recovering,
    SCHEMA_VERSION, Space,
};
use mainspring_store_kafka::{CatchUp, Halt, KafkaConfig, KafkaStore};
use mainspring_store_redb::{RedbConfig, RedbEngine};

use crate::stores::StoreFactory;

/// `kafka://BROKER,BROKER/TOPIC`.
///
/// Opening waits until the log is folded as far as it went when that began, and
/// tells how far it is.
#[derive(Debug, Clone)]
pub struct KafkaFactory {
    settings: KafkaConfig,
    view: PathBuf,
    watch: KafkaWatch,
}

impl KafkaFactory {
    /// Opens topics with these settings, but for the brokers and the topic, which
    /// the address names. The view is the file `view`; a view is of one topic and
    /// one process at a time.
    #[must_use]
    pub fn new(settings: KafkaConfig, view: impl Into<PathBuf>) -> Self {
        Self { settings, view: view.into(), watch: KafkaWatch::default() }
    }

    /// What can be seen of the store that it opens, also while that is opened.
    #[must_use]
    pub fn watch(&self) -> KafkaWatch {
        self.watch.clone()
    }

    /// The settings of the store at `rest`, the address without its scheme.
    ///
    /// # Errors
    /// `NotAStore` when it is not `//BROKER,BROKER/TOPIC`.
    pub fn config(&self, rest: &str) -> Result<KafkaConfig, LogError> {
        let parts = rest.strip_prefix("//").and_then(|rest| rest.split_once('/'));
        let parts = parts.filter(|(brokers, topic)| {
            !brokers.is_empty() && !topic.is_empty() && topic.chars().all(of_a_topic)
        });
        let (brokers, topic) = parts.ok_or_else(|| LogError::NotAStore {
            path: format!("kafka:{rest}"),
            why: "an address on Kafka is kafka://HOST:PORT,HOST:PORT/TOPIC".to_owned(),
        })?;
        let mut config = self.settings.clone();
        (config.brokers, config.topic) = (brokers.to_owned(), topic.to_owned());
        Ok(config)
    }
}

/// Whether Kafka takes this in the name of a topic.
fn of_a_topic(ch: char) -> bool {
    ch.is_ascii_alphanumeric() || matches!(ch, '.' | '_' | '-')
}

impl StoreFactory for KafkaFactory {
    fn scheme(&self) -> &'static str {
        "kafka"
    }

    fn open(&self, rest: &str, options: KvOptions) -> Result<Arc<dyn EventLog>, LogError> {
        self.open_with(rest, options, &OpenProgress::ignored())
    }

    fn open_with(
        &self,
        rest: &str,
        options: KvOptions,
        progress: &OpenProgress,
    ) -> Result<Arc<dyn EventLog>, LogError> {
        let config = self.config(rest)?;
        let view: Arc<dyn Engine> = Arc::new(open_view(&self.view, &*options.clock)?);
        let store = on_a_runtime(async {
            let store = Arc::new(KafkaStore::open(config, view).await?);
            self.watch.set(&store);
            caught_up(&store, progress).await?;
            Ok::<_, LogError>(store)
        })??;
        Ok(store)
    }
}

/// Runs `work` on a thread and a runtime of its own: whoever opens a store may
/// have none, or must not block it.
fn on_a_runtime<T: Send>(work: impl Future<Output = T> + Send) -> Result<T, LogError> {
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let runtime =
            runtime.map_err(|error| LogError::unavailable(format!("runtime: {error}")))?;
        Ok(runtime.block_on(work))
    };
    std::thread::scope(|scope| match scope.spawn(run).join() {
        Ok(done) => done,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// How often it is told how far a store is.
const TOLD_EVERY: Duration = Duration::from_millis(100);

/// Waits until the fold has what was in the log when this began.
async fn caught_up(store: &KafkaStore, progress: &OpenProgress) -> Result<(), LogError> {
    let start = store.catch_up();
    if start.folded >= start.end {
        return Ok(());
    }
    let all = (start.end - start.folded) as f64;
    let tell = || {
        let done = store.catch_up().folded.saturating_sub(start.folded) as f64;
        progress.tell(Recovering { fraction: done / all });
    };
    loop {
        let before = store.catch_up().folded;
        // A read waits for everything that was committed when it began.
        let mut read = pin!(store.marked(Mark::Awaiting, None, 1));
        let read = loop {
            tell();
            tokio::select! {
                read = &mut read => break read,
                () = tokio::time::sleep(TOLD_EVERY) => {}
            }
        };
        match read {
            Ok(_) => return Ok(()),
            // It takes long, and goes on.
            Err(LogError::Unavailable { .. }) if store.catch_up().folded > before => {}
            Err(error) => return Err(error),
        }
    }
}

/// What can be seen of a store on Kafka while it is open. Holds nothing open.
#[derive(Clone, Default)]
pub struct KafkaWatch(Arc<Mutex<Weak<KafkaStore>>>);

impl KafkaWatch {
    fn set(&self, store: &Arc<KafkaStore>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(store);
    }

    fn store(&self) -> Option<Arc<KafkaStore>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).upgrade()
    }

    /// How far the store has folded its log.
    #[must_use]
    pub fn catch_up(&self) -> Option<CatchUp> {
        self.store().map(|store| store.catch_up())
    }

    /// Why the store stopped, if it has.
    #[must_use]
    pub fn halted(&self) -> Option<Halt> {
        self.store().and_then(|store| store.halted().cloned())
    }
}

impl fmt::Debug for KafkaWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KafkaWatch").field(&self.catch_up()).finish()
    }
}

/// What says that a file is a view. No key of a partition begins like it.
const VIEW: &[u8] = b"view";
/// The version of the stored form, where every store has it.
const SCHEMA: &[u8] = b"schema";

/// Opens the view in the file at `path`, or makes one. A file that cannot be a
/// view is put aside: the log has everything that was in it.
fn open_view(path: &Path, clock: &dyn Clock) -> Result<RedbEngine, LogError> {
    if path.is_dir() {
        let why = "is a folder; a view is a file";
        return Err(not_a_view(path, why));
    }
    let looked_at = file_id(path);
    let why = match RedbEngine::open(&RedbConfig::at(path), clock) {
        Ok(engine) => match identify(&engine, path)? {
            Identity::View => return Ok(engine),
            Identity::Older => "it is in an older form".to_owned(),
        },
        Err(error @ (LogError::NotAStore { .. } | LogError::Corrupt { .. })) => report(&error),
        Err(error) => return Err(error),
    };
    // Another process may have put a fresh one there meanwhile.
    if looked_at.is_some() && looked_at == file_id(path) {
        let aside = put_aside(path, clock)?;
        let (view, aside) = (path.display(), aside.display());
        tracing::warn!(%view, %aside, why, "the view cannot be used, and is filled anew");
    }
    let engine = RedbEngine::open(&RedbConfig::at(path), clock)?;
    match identify(&engine, path)? {
        Identity::View => Ok(engine),
        Identity::Older => Err(not_a_view(path, "was replaced by an older view meanwhile")),
    }
}

fn file_id(path: &Path) -> Option<FileId> {
    fs::metadata(path).ok().map(|found| FileId::of(&found))
}

fn put_aside(path: &Path, clock: &dyn Clock) -> Result<PathBuf, LogError> {
    let now = clock.now().seconds;
    let free = (now..).map(|seconds| with_suffix(path, &format!(".damaged-{seconds}")));
    let aside = free.into_iter().find(|aside| !aside.exists());
    let aside = aside.unwrap_or_else(|| unreachable!("some second has no file of its name"));
    fs::rename(path, &aside).map_err(|error| {
        LogError::unavailable(format!("{} cannot be put aside: {error}", path.display()))
    })?;
    Ok(aside)
}

enum Identity {
    /// A view in the form of this build.
    View,
    /// A view in the form of an older one.
    Older,
}

/// Whether an engine holds a view, or nothing yet: then it is made one.
fn identify(engine: &RedbEngine, path: &Path) -> Result<Identity, LogError> {
    let unavailable = |error: EngineError| LogError::unavailable(report(&error));
    let (mut view, mut schema) = (None, None);
    engine
        .read(&mut |kv| {
            (view, schema) = (kv.get(Space::Meta, VIEW)?, kv.get(Space::Meta, SCHEMA)?);
            Ok(())
        })
        .map_err(unavailable)?;
    let current = SCHEMA_VERSION.to_string();
    match (view, schema) {
        (Some(_), Some(schema)) if schema == current.as_bytes() => Ok(Identity::View),
        (Some(_), _) => Ok(Identity::Older),
        (None, Some(_)) => Err(not_a_view(path, "is a journal, and no view of a log on Kafka")),
        (None, None) => {
            engine
                .write(&mut |kv| {
                    kv.put(Space::Meta, VIEW, b"kafka")?;
                    kv.put(Space::Meta, SCHEMA, current.as_bytes())?;
                    Ok(Keep::Yes)
                })
                .map_err(unavailable)?;
            Ok(Identity::View)
        }
    }
}

fn not_a_view(path: &Path, why: &str) -> LogError {
    LogError::Halted { code: "not_a_view", why: format!("not_a_view: {} {why}", path.display()) }
}

#[cfg(test)]
mod tests;
