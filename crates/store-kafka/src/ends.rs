//! Where the log ends: one question for all who ask at the same time.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use futures_channel::oneshot;
use mainspring_eventlog::LogError;
use rdkafka::producer::Producer as _;

use crate::error::unsent;
use crate::lane::Lanes;
use crate::progress::Progress;

struct Question {
    partition: u32,
    answer: oneshot::Sender<Result<u64, LogError>>,
}

/// A thread that asks the broker for ends.
#[derive(Debug)]
pub(crate) struct Ends {
    questions: Option<Sender<Question>>,
    thread: Option<JoinHandle<()>>,
}

/// How long the broker may take.
const ASK_MAX: Duration = Duration::from_secs(5);

/// How long it may take for one that did not answer the last time: those of
/// others wait behind it.
const AGAIN_MAX: Duration = Duration::from_secs(2);

/// How long who asks waits at the most: others may be asked after first.
const ANSWER_MAX: Duration = Duration::from_secs(10);

impl Ends {
    pub(crate) fn start(
        topic: &str,
        lanes: Arc<Lanes>,
        progress: Arc<Progress>,
    ) -> std::io::Result<Self> {
        let (questions, asked) = channel();
        let topic = topic.to_owned();
        let thread = std::thread::Builder::new()
            .name("kafka-ends".to_owned())
            .spawn(move || run(&topic, &lanes, &progress, &asked))?;
        Ok(Self { questions: Some(questions), thread: Some(thread) })
    }

    /// The end of a partition, asked after this call began.
    ///
    /// # Errors
    /// `Unavailable` when no broker answers.
    pub(crate) async fn of(&self, partition: u32) -> Result<u64, LogError> {
        let closed = || LogError::unavailable("the store is closed");
        let (answer, end) = oneshot::channel();
        let questions = self.questions.as_ref().ok_or_else(closed)?;
        questions.send(Question { partition, answer }).map_err(|_| closed())?;
        match tokio::time::timeout(ANSWER_MAX, end).await {
            Ok(end) => end.map_err(|_| closed())?,
            Err(_) => Err(LogError::unavailable("the log's end was not told in time")),
        }
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        drop(self.questions.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// How long the client may hear nothing before it is made anew.
const DEAF_MAX: Duration = Duration::from_secs(8);
/// How long the thread waits for a question before it asks one of its own.
const IDLE: Duration = Duration::from_secs(1);

fn run(topic: &str, lanes: &Lanes, progress: &Progress, asked: &Receiver<Question>) {
    let partitions = progress.partitions();
    let mut next = 0;
    let mut failing = HashSet::new();
    loop {
        // All of these were asked before the broker is.
        let mut by_partition: HashMap<u32, Vec<Question>> = HashMap::new();
        match asked.recv_timeout(IDLE) {
            Ok(first) => {
                for question in std::iter::once(first).chain(asked.try_iter()) {
                    by_partition.entry(question.partition).or_default().push(question);
                }
            }
            Err(RecvTimeoutError::Disconnected) => return,
            // So that a fold that reads nothing knows whether there is something.
            Err(RecvTimeoutError::Timeout) => {
                by_partition.insert(next, Vec::new());
                next = (next + 1) % partitions.max(1);
            }
        }
        for (partition, mut questions) in by_partition {
            let asked = !questions.is_empty();
            questions.retain(|question| !question.answer.is_canceled());
            if asked && questions.is_empty() {
                continue;
            }
            let client = lanes.producer();
            let max = if failing.contains(&partition) { AGAIN_MAX } else { ASK_MAX };
            let end = client.client().fetch_watermarks(topic, partition.cast_signed(), max);
            let failed = end.is_err();
            if failed {
                failing.insert(partition);
            } else {
                failing.remove(&partition);
            }
            let end = end
                .map(|(_, end)| end.cast_unsigned())
                .map_err(|error| unsent("the log's end cannot be asked for", error));
            if let Ok(end) = end {
                lanes.heard();
                progress.heard_end(partition, end);
            }
            for question in questions {
                // Who asked may have gone.
                let _ = question.answer.send(end.clone());
            }
            lanes.renew_if_lost(DEAF_MAX, failed);
        }
    }
}
