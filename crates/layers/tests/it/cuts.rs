//! 200 seeds, each with its own cuts: nothing is lost and nothing comes twice.

use std::sync::Arc;

use futures_util::StreamExt as _;
use mainspring_api::{
    ExecRequest, ExecStream, ExecUpdate, FollowRequest, FollowUpdate, ResumeRequest, Seq,
    Sessions as _,
};
use mainspring_layers::{Reconnect, ReconnectOptions};

use crate::double::{Double, caller, uid};

const SEEDS: u64 = 200;

fn reconnect(double: &Double) -> Reconnect {
    Reconnect::new(Arc::new(double.clone()), ReconnectOptions::default())
}

/// What a turn's stream gave.
#[derive(Debug, Default)]
struct Given {
    records: Vec<u64>,
    deltas: usize,
    /// Whether the last update is a session, and how many there were.
    ends_with_session: bool,
    sessions: usize,
}

async fn given(mut stream: ExecStream, seed: u64) -> Given {
    let mut given = Given::default();
    while let Some(update) = stream.next().await {
        given.ends_with_session = false;
        match update.unwrap_or_else(|error| panic!("seed {seed}: {error}")) {
            ExecUpdate::Record(record) => given.records.push(record.seq.get()),
            ExecUpdate::Delta(_) => given.deltas += 1,
            ExecUpdate::Session(_) => {
                given.sessions += 1;
                given.ends_with_session = true;
            }
        }
    }
    given
}

fn all() -> Vec<u64> {
    (4..=43).collect()
}

#[tokio::test(start_paused = true)]
async fn exec_loses_and_doubles_no_record_and_runs_one_turn() {
    let mut cuts = 0;
    for seed in 0..SEEDS {
        let double = Double::new(seed, 10);
        let session = seed.is_multiple_of(2).then(uid);
        let request = ExecRequest { session, ..ExecRequest::default() };
        let stream = reconnect(&double).exec(&caller(), request).await.unwrap();
        let given = given(stream, seed).await;
        assert_eq!(given.records, all(), "seed {seed}");
        let parks = double.with(|state| state.parks);
        assert_eq!(given.sessions, if parks { 2 } else { 1 }, "seed {seed}");
        assert_eq!(given.ends_with_session, parks, "seed {seed}");
        assert_eq!(double.with(|state| state.turns.len()), 1, "seed {seed}");
        cuts += double.with(|state| state.calls) - 1;
    }
    assert!(cuts > 200, "only {cuts} connections were cut");
}

#[tokio::test(start_paused = true)]
async fn follow_loses_and_doubles_no_record_and_says_where_deltas_are_missing() {
    let mut gaps = 0;
    for seed in 0..SEEDS {
        let double = Double::new(seed, 10);
        let request = FollowRequest { session: uid(), after_seq: Seq::new(1) };
        let follow = loop {
            // The first call has nothing to go on from.
            if let Ok(stream) = reconnect(&double).follow(&caller(), request.clone()).await {
                break stream;
            }
        };
        let before = double.with(|state| state.calls);
        let mut follow = follow;
        let (mut records, mut deltas, mut said) = (Vec::new(), 0, 0);
        while records.last() != Some(&43) {
            match follow.next().await.unwrap().unwrap() {
                FollowUpdate::Record(record) => records.push(record.seq.get()),
                FollowUpdate::Delta(_) => deltas += 1,
                FollowUpdate::DeltaGap => said += 1,
                FollowUpdate::Heartbeat => {}
            }
        }
        assert_eq!(records, (2..=43).collect::<Vec<_>>(), "seed {seed}");
        assert!(deltas > 0, "seed {seed}");
        let calls = double.with(|state| state.calls) - before;
        assert!(said <= calls, "seed {seed}: {said} gaps of {calls} new connections");
        gaps += said;
    }
    assert!(gaps > 200, "only {gaps} connections were cut");
}

#[tokio::test(start_paused = true)]
async fn resume_loses_and_doubles_no_record_and_ends_with_the_session() {
    let mut calls = 0;
    for seed in 0..SEEDS {
        let double = Double::new(seed, 10);
        let request = ResumeRequest { session: uid(), approval_ttl: None };
        let stream = loop {
            let resumed = reconnect(&double).resume(&caller(), request.clone()).await;
            if let Ok(stream) = resumed {
                break stream;
            }
        };
        let given = given(stream, seed).await;
        assert_eq!(given.records, all(), "seed {seed}");
        assert!(given.ends_with_session && given.sessions == 1, "seed {seed}: {given:?}");
        calls += double.with(|state| state.calls);
    }
    assert!(calls > 400, "only {calls} connections were made");
}
