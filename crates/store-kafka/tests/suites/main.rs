//! The controller's cases and the suite of the sessions service, on Kafka.
//!
//! The cases themselves are those of `mainspring-conformance`, whose tests run
//! them on the other stores. Left out are those that pause time, which the
//! brokers do not, and those that edit a store's bytes.

#[macro_use]
#[path = "../../../conformance/tests/controller/support/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "some of it is for the cases that are left out"
)]
mod support;

/// Makes a `#[test]` of each case, in process and on Kafka.
macro_rules! matrix {
    (
        $run:ident:
        everywhere { $(#[test] fn $all:ident;)* }
        in_process { $(#[test] fn $here:ident;)* }
    ) => {
        mod kafka {
            use crate::support::{Cell, Kept, Reach, $run};

            const CELL: Cell = Cell { reach: Reach::InProcess, kept: Kept::Elsewhere };

            $(
                #[test]
                fn $all() {
                    crate::on_kafka();
                    $run(CELL, super::$all);
                }
            )*
            $(
                #[test]
                fn $here() {
                    crate::on_kafka();
                    $run(CELL, super::$here);
                }
            )*
        }
    };
    ($run:ident: everywhere { $($all:tt)* }) => {
        matrix! { $run: everywhere { $($all)* } in_process {} }
    };
    ($run:ident: in_process { $($here:tt)* }) => {
        matrix! { $run: everywhere {} in_process { $($here)* } }
    };
}

#[path = "../../../conformance/tests/controller/a_live.rs"]
mod a_live;
#[path = "../../../conformance/tests/controller/a_tools.rs"]
mod a_tools;
#[path = "../../../conformance/tests/controller/b_replay.rs"]
mod b_replay;
#[path = "../../../conformance/tests/controller/b_reports.rs"]
mod b_reports;
#[path = "../../../conformance/tests/controller/c_history.rs"]
mod c_history;
#[path = "../../../conformance/tests/controller/cancel.rs"]
mod cancel;
#[path = "../../../conformance/tests/controller/cut_tools.rs"]
mod cut_tools;
#[path = "../../../conformance/tests/controller/d_evidence.rs"]
mod d_evidence;
#[path = "../../../conformance/tests/controller/d_start.rs"]
mod d_start;
#[path = "../../../conformance/tests/controller/e_cuts.rs"]
mod e_cuts;
#[path = "../../../conformance/tests/controller/e_more_cuts.rs"]
mod e_more_cuts;
#[path = "../../../conformance/tests/controller/f_tools.rs"]
mod f_tools;
#[path = "../../../conformance/tests/controller/g_identity.rs"]
mod g_identity;
#[path = "../../../conformance/tests/controller/golden/mod.rs"]
mod golden;
#[path = "../../../conformance/tests/controller/h_guard.rs"]
mod h_guard;
#[path = "../../../conformance/tests/controller/h_park.rs"]
mod h_park;
#[path = "../../../conformance/tests/controller/i_evidence.rs"]
mod i_evidence;
#[path = "../../../conformance/tests/controller/i_inspect.rs"]
mod i_inspect;
#[path = "../../../conformance/tests/controller/j_decide.rs"]
mod j_decide;
#[path = "../../../conformance/tests/controller/j_refuse.rs"]
mod j_refuse;
#[path = "../../../conformance/tests/controller/journals.rs"]
mod journals;
#[path = "../../../conformance/tests/controller/k_faults.rs"]
mod k_faults;
#[path = "../../../conformance/tests/controller/k_gate.rs"]
mod k_gate;
#[path = "../../../conformance/tests/controller/k_recovery.rs"]
mod k_recovery;
#[path = "../../../conformance/tests/controller/l_gates.rs"]
mod l_gates;
#[path = "../../../conformance/tests/controller/l_identity.rs"]
mod l_identity;
#[path = "../../../conformance/tests/controller/m_fork.rs"]
mod m_fork;
#[path = "../../../conformance/tests/controller/m_intent.rs"]
mod m_intent;
#[path = "../../../conformance/tests/controller/n_instance.rs"]
mod n_instance;
#[path = "../../../conformance/tests/controller/p_legacy.rs"]
mod p_legacy;
#[path = "../../../conformance/tests/controller/p_tools.rs"]
mod p_tools;
#[path = "../../../conformance/tests/controller/parity.rs"]
mod parity;
#[path = "../../../conformance/tests/controller/q_streams.rs"]
mod q_streams;
#[path = "../../../conformance/tests/controller/r_usage.rs"]
mod r_usage;
#[path = "../../../conformance/tests/controller/reports_history.rs"]
mod reports_history;
#[path = "../../../conformance/tests/controller/reports_turns.rs"]
mod reports_turns;
#[path = "../../../conformance/tests/controller/resolve.rs"]
mod resolve;
#[path = "../../../conformance/tests/controller/s_policy.rs"]
mod s_policy;
#[path = "../../../conformance/tests/controller/s_turns.rs"]
mod s_turns;
#[path = "../../../conformance/tests/controller/started.rs"]
mod started;
#[path = "../../../conformance/tests/controller/w_reference.rs"]
mod w_reference;
#[path = "../../../conformance/tests/controller/x_logs.rs"]
mod x_logs;
#[path = "../../../conformance/tests/controller/x_scope.rs"]
mod x_scope;

#[path = "../../../conformance/tests/sessions/host.rs"]
mod host;
mod sessions;
#[path = "../it/support.rs"]
#[allow(dead_code, reason = "some of it is for other tests")]
mod stores;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use mainspring_eventlog::EventLog;
use mainspring_store_kafka::{KafkaConfig, NewTopics};

use crate::stores::{Cluster, empty_view, fresh_topic_of, host as open_host};

/// Says where the cases of this program keep their journals.
fn on_kafka() {
    support::ELSEWHERE.get_or_init(|| open);
}

/// A topic of one partition: any session may be a fork's child there, and many
/// of them weigh little on a broker.
async fn small_topic() -> Option<KafkaConfig> {
    let new = NewTopics { partitions: 1, replicas: 1, in_sync_min: 1 };
    fresh_topic_of(Cluster::One, new).await
}

/// A host with an empty view on the topic of that name.
fn open(name: PathBuf) -> support::Opening {
    static TOPICS: Mutex<Option<HashMap<PathBuf, KafkaConfig>>> = Mutex::new(None);
    Box::pin(async move {
        let known = TOPICS.lock().unwrap().get_or_insert_default().get(&name).cloned();
        let config = match known {
            Some(config) => config,
            None => small_topic().await?,
        };
        TOPICS.lock().unwrap().get_or_insert_default().insert(name, config.clone());
        let log: Arc<dyn EventLog> = open_host(&config, empty_view()).await;
        Some(log)
    })
}
