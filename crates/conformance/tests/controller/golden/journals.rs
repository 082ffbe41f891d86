//! The families of golden journals, and how each is made.

use std::sync::Arc;

use mainspring_api::{BoxFuture, CancelReason, LifecycleKind, ModelPolicy, ModelReply, Seq};
use mainspring_controller::{Cancellation, Options, cancel, fork};
use mainspring_eventlog::{ImportRecord, ImportRow, NewSession};
use mainspring_testkit::sample;

use super::harnesses;
use super::host::{Host, MADE};
use crate::support::raw::{self, some_usage, vector};
use crate::support::{Fixture, TestModel, parked};

type Make = fn(Fixture) -> BoxFuture<'static, Host>;

/// Every family by name.
pub(super) fn all() -> Vec<(&'static str, Make)> {
    vec![
        ("a-live", |cell| Box::pin(a_live(cell))),
        ("b-replay", |cell| Box::pin(b_replay(cell))),
        ("c-history", |cell| Box::pin(c_history(cell))),
        ("e-cut", |cell| Box::pin(e_cut(cell))),
        ("f-tools", |cell| Box::pin(f_tools(cell))),
        ("h-outputs", |cell| Box::pin(h_outputs(cell))),
        ("k-approved", |cell| Box::pin(gate(cell, "approved"))),
        ("k-denied", |cell| Box::pin(gate(cell, "denied"))),
        ("k-failed", |cell| Box::pin(gate(cell, "failed"))),
        ("m-fork", |cell| Box::pin(m_fork(cell))),
        ("n-instance", |cell| Box::pin(n_instance(cell))),
        ("p-legacy", |cell| Box::pin(p_legacy(cell))),
        ("r-usage", |cell| Box::pin(r_usage(cell))),
        ("s-policy", |cell| Box::pin(s_policy(cell))),
        ("cancel", |cell| Box::pin(canceled(cell))),
    ]
}

async fn a_live(cell: Fixture) -> Host {
    let host = Host::new(&cell, "a-live").await;
    host.exec("ask look say report").await.unwrap();
    host
}

async fn b_replay(cell: Fixture) -> Host {
    let host = Host::new(&cell, "b-replay").await;
    host.exec("ask look ask count").await.unwrap();
    host.exec("look look ask").await.unwrap();
    host
}

/// A failed turn, one that was cut, and lifecycle records stand between turns that send their history.
async fn c_history(cell: Fixture) -> Host {
    let host = Host::new(&cell, "c-history").await;
    host.exec("converse").await.unwrap();
    host.exec("say fail").await.unwrap_err();
    host.append(raw::echo_turn(&raw::execution(7), "cut").into_iter().take(3).collect()).await;
    for kind in [LifecycleKind::Suspend, LifecycleKind::Resume] {
        let body = mainspring_api::EventBody::Lifecycle(Some(raw::lifecycle(kind)));
        host.append(vec![mainspring_api::Event::of(body)]).await;
    }
    host.exec("converse").await.unwrap();
    host.exec("").await.unwrap();
    host
}

/// A model that fails, twice, before it answers.
async fn e_cut(cell: Fixture) -> Host {
    let host = Host::new(&cell, "e-cut").await;
    host.session.model.fail(2);
    host.exec("say ask").await.unwrap_err();
    host.resume().await.result.unwrap_err();
    host.resume().await.result.unwrap();
    host
}

/// A tool that fails, and is run again because it may be.
async fn f_tools(cell: Fixture) -> Host {
    let host = Host::new(&cell, "f-tools").await;
    host.session.executor().declare("look");
    host.session.executor().fail(1);
    host.exec("look").await.unwrap_err();
    host.resume().await.result.unwrap();
    host
}

async fn h_outputs(cell: Fixture) -> Host {
    let host = Host::new(&cell, "h-outputs").await;
    host.exec("say say say").await.unwrap();
    host
}

async fn gate(cell: Fixture, how: &str) -> Host {
    let host = Host::new(&cell, &format!("k-{how}")).await;
    let park = parked(host.exec("ask deploy say").await);
    host.decide(&park, how != "denied").await;
    host.session.executor().fail(usize::from(how == "failed"));
    host.resume().await.result.unwrap();
    host
}

/// A child of a child, each with a turn of its own.
async fn m_fork(cell: Fixture) -> Host {
    let mut host = Host::new(&cell, "m-fork").await;
    host.exec("converse").await.unwrap();
    for name in ["m-child", "m-grandchild"] {
        let uid = sample::session(name);
        let at: Seq = host.session.head().await.seq;
        let new = NewSession::bare(uid.clone(), "default");
        fork(&host.session.journal(), at, vec![new], &*host.entropy).await.unwrap();
        host = host.at(&uid);
        host.exec("converse").await.unwrap();
    }
    host
}

async fn n_instance(cell: Fixture) -> Host {
    let change = |options| Options { compute_instance: "instance-1".to_owned(), ..options };
    let host = Host { change, ..Host::new(&cell, "n-instance").await };
    host.exec("ask").await.unwrap();
    host.exec("converse").await.unwrap();
    host
}

/// Id-less turns of the first format, and a turn with ids after them.
async fn p_legacy(cell: Fixture) -> Host {
    let host = Host::bare(&cell, "p-legacy").await;
    let records: Vec<_> =
        vector("mixed-completed").into_iter().map(|one| Ok(ImportRecord::Record(one))).collect();
    let session = NewSession::bare(host.session.uid.clone(), "default");
    let row = ImportRow { session, create_time: Some(MADE), parent: None };
    let records = Box::pin(futures_util::stream::iter(records));
    host.session.log.import(host.id(), row, records).await.unwrap();
    let placed = host.session.place(harnesses::registered("", "")).await;
    Host { placed, ..host }
}

async fn r_usage(cell: Fixture) -> Host {
    let host = Host::new(&cell, "r-usage").await;
    host.session.model.respond(|request| async move {
        Ok(ModelReply { usage: some_usage(), ..TestModel::echo(&request) })
    });
    host.exec("ask count ask count").await.unwrap();
    host.exec("ask say").await.unwrap();
    host
}

async fn s_policy(cell: Fixture) -> Host {
    let change = |options| Options {
        policy: Some(ModelPolicy {
            default: "model-1".to_owned(),
            allowed: vec!["model-1".to_owned(), "echo".to_owned()],
        }),
        ..options
    };
    let host = Host { change, ..Host::new(&cell, "s-policy").await };
    host.exec("ask-default ask").await.unwrap();
    host
}

/// A turn that was cancelled at its gate, and a turn after it.
async fn canceled(cell: Fixture) -> Host {
    let host = Host::new(&cell, "cancel").await;
    let park = parked(host.exec("say deploy").await);
    let request = Cancellation {
        execution: mainspring_api::ExecutionId::new(&park.execution_id).unwrap(),
        reason: CancelReason::User,
        holder: sample::holder("canceler"),
        clock: Arc::clone(&host.clock) as Arc<_>,
        entropy: Arc::clone(&host.entropy) as Arc<_>,
        observer: Arc::clone(&host.session.watcher) as Arc<_>,
    };
    cancel(&host.session.journal(), &request).await.unwrap();
    host.exec("converse").await.unwrap();
    host
}
