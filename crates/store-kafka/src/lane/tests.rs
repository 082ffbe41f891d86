//! What becomes of writes when the brokers refuse the client itself. Injected:
//! a healthy broker does not.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use mainspring_api::SystemClock;
use rdkafka::consumer::Consumer as _;
use rdkafka::message::Message as _;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use rdkafka::{Offset, TopicPartitionList};

use super::*;
use crate::frame::Frame;

const TOPIC: &str = "lanes";

/// Lanes on brokers that fail as they are told, and who reads back what was sent.
struct Subject {
    cluster: MockCluster<'static, DefaultProducerContext>,
    lanes: Arc<Lanes>,
    over: Arc<AtomicBool>,
    reading: Option<JoinHandle<HashMap<AppendId, usize>>>,
}

impl Subject {
    /// `errors` are what the next requests for a producer's id are answered with.
    fn with(errors: &[RDKafkaRespErr]) -> Self {
        let cluster = MockCluster::new(1).expect("brokers in this process");
        cluster.create_topic(TOPIC, 1, 1).expect("a topic");
        cluster.request_errors(RDKafkaApiKey::InitProducerId, errors);
        let mut config = KafkaConfig::new(&cluster.bootstrap_servers(), TOPIC);
        config.write_max = Duration::from_secs(5);
        let lanes = Lanes::new(&config, 1, [7; 16], Arc::new(SystemClock)).expect("a client");
        let over = Arc::new(AtomicBool::new(false));
        let reading = read_back(&config, Arc::clone(&lanes), Arc::clone(&over));
        Self { cluster, lanes, over, reading: Some(reading) }
    }

    async fn write(&self, id: u8) -> Result<Judged, LogError> {
        self.lanes.write(0, AppendId::new([id; 16]), &Statement::Barrier, None, false).await
    }

    /// How often each entry is in the log.
    fn log(mut self) -> HashMap<AppendId, usize> {
        // What was sent late has come by then.
        std::thread::sleep(Duration::from_millis(500));
        self.over.store(true, Ordering::Release);
        self.reading.take().expect("it is taken once").join().expect("the reader goes on")
    }
}

/// What a fold does for those who wait.
fn read_back(
    config: &KafkaConfig,
    lanes: Arc<Lanes>,
    over: Arc<AtomicBool>,
) -> JoinHandle<HashMap<AppendId, usize>> {
    let consumer = config.open_reader().expect("a client that reads");
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(TOPIC, 0, Offset::Beginning).expect("a partition");
    consumer.assign(&list).expect("it is read");
    std::thread::spawn(move || {
        let mut seen = HashMap::new();
        while !over.load(Ordering::Acquire) {
            let Some(Ok(message)) = consumer.poll(Duration::from_millis(20)) else { continue };
            let bytes = mainspring_api::Bytes::copy_from_slice(message.payload().expect("bytes"));
            let frame = Frame::read(bytes).expect("only frames are sent");
            frame.entries.iter().for_each(|entry| *seen.entry(entry.id).or_default() += 1);
            let number = lanes.own(&frame).expect("nobody else sends");
            lanes.read_back(0, number);
            let next = message.offset().cast_unsigned() + 1;
            for mut sent in lanes.judged(0, number).into_iter().flatten() {
                sent.tell(Ok(Judged { verdict: Ok(()), next, reply: None }));
            }
        }
        seen
    })
}

#[tokio::test]
async fn b46_a_client_that_gets_its_id_late_and_twice_writes_once() {
    let busy = [
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS,
        // The connection is cut instead of an answer: the id may have been given.
        RDKafkaRespErr::RD_KAFKA_RESP_ERR__TRANSPORT,
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_COORDINATOR_NOT_AVAILABLE,
    ];
    let subject = Subject::with(&busy);
    for id in 1..=3 {
        subject.write(id).await.expect("a client asks for its id until it has one");
    }
    let log = subject.log();
    assert_eq!(log.len(), 3);
    assert!(log.values().all(|times| *times == 1), "{log:?}");
}

#[tokio::test]
async fn b46_a_client_that_failed_for_good_is_made_anew_and_guesses_nothing() {
    let refused = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED];
    let subject = Subject::with(&refused);
    let failed = subject.write(1).await.expect_err("its client may not write");
    let outcome = match failed {
        LogError::Unavailable { outcome, .. } => outcome,
        other => panic!("{other}"),
    };
    // A client that failed for good takes nothing more, and that is known.
    let later = subject.write(2).await.expect_err("the same client");
    assert!(
        matches!(later, LogError::Unavailable { outcome: Outcome::NotApplied, .. }),
        "{later:?}"
    );
    // Not at once: one that fails each time would be made anew all the time.
    subject.lanes.renew_if_lost(Duration::from_secs(3_600), false);
    subject.write(3).await.expect_err("still the same client");
    subject.lanes.renew_if_lost(Duration::ZERO, false);
    subject.write(4).await.expect("a client of its own id");
    subject.cluster.clear_request_errors(RDKafkaApiKey::InitProducerId);
    let log = subject.log();
    let times = |id| log.get(&AppendId::new([id; 16])).copied().unwrap_or_default();
    assert_eq!((times(2), times(3), times(4)), (0, 0, 1), "{log:?}");
    assert!(outcome == Outcome::Unknown || times(1) == 0, "{outcome:?}, {log:?}");
}
