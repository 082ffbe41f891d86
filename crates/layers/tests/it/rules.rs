//! What is tried again, and what is not.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt as _;
use mainspring_api::{
    Condition, ExecRequest, ExecUpdate, ExecutionId, FollowRequest, FollowUpdate, OnDisconnect,
    Seq, Sessions as _,
};
use mainspring_layers::{Notice, RECONNECT_MAX, Reconnect, ReconnectOptions};
use tokio::time::Instant;

use crate::double::{Double, EXECUTION, Names, caller, uid};

fn follow() -> FollowRequest {
    FollowRequest { session: uid(), after_seq: Seq::ZERO }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stays_away_is_given_up_after_the_bound() {
    let double = Double::new(7, 0);
    let mut options = ReconnectOptions::default();
    // The end of the turn is followed by silence, which is a loss here.
    options.silence_max = Some(Duration::from_secs(1));
    let reconnect = Reconnect::new(Arc::new(double.clone()), options);
    let mut stream = reconnect.follow(&caller(), follow()).await.unwrap();
    stream.next().await.unwrap().unwrap();
    double.with(|state| state.dead = true);
    let begun = Instant::now();
    let error = loop {
        if let Err(error) = stream.next().await.unwrap() {
            break error;
        }
    };
    assert_eq!(error.condition(), Condition::Unavailable);
    // The silence that it was noticed by comes before.
    assert_eq!(begun.elapsed().as_secs(), RECONNECT_MAX.as_secs() + 1);
    assert!(stream.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_never_begun_fails_as_it_does_without_the_layer() {
    let double = Double::new(1, u32::MAX);
    double.with(|state| state.dead = true);
    let reconnect = Reconnect::new(Arc::new(double.clone()), ReconnectOptions::default());
    let begun = Instant::now();
    assert!(reconnect.follow(&caller(), follow()).await.is_err());
    assert_eq!((begun.elapsed(), double.with(|state| state.calls)), (Duration::ZERO, 1));
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_a_loss_cancels_is_not_begun_again() {
    let double = Double::new(1, u32::MAX);
    let reconnect = Reconnect::new(Arc::new(double.clone()), ReconnectOptions::default());
    let request = ExecRequest {
        session: Some(uid()),
        execution_id: Some(ExecutionId::new(EXECUTION).unwrap()),
        on_disconnect: OnDisconnect::Cancel,
        ..ExecRequest::default()
    };
    if let Ok(mut stream) = reconnect.exec(&caller(), request).await {
        while let Some(Ok(_)) = stream.next().await {}
    }
    assert_eq!(double.with(|state| state.calls), 1);
}

#[tokio::test(start_paused = true)]
async fn who_watches_is_told_of_each_attempt_and_of_the_return() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let mut options = ReconnectOptions::default();
    let seen = Arc::clone(&told);
    options.on_notice = Some(Arc::new(move |notice| seen.lock().unwrap().push(notice)));
    let double = Double::new(3, 3);
    let reconnect = Reconnect::new(Arc::new(double.clone()), options);
    let request = ExecRequest { session: Some(uid()), ..ExecRequest::default() };
    let mut stream = reconnect.exec(&caller(), request).await.unwrap();
    while let Some(update) = stream.next().await {
        update.unwrap();
    }
    let told = told.lock().unwrap();
    let lost = told.iter().filter(|notice| matches!(notice, Notice::Reconnecting { .. })).count();
    assert_eq!(lost, 3, "{told:?}");
    assert_eq!(told.first(), Some(&Notice::Reconnecting { attempt: 1 }));
    assert_eq!(told.last(), Some(&Notice::Reconnected));
}

/// Whoever renews a token does it where it is read, and tells nobody.
#[tokio::test(start_paused = true)]
async fn a_stream_whose_credentials_ran_out_is_connected_once_more() {
    let double = Double::new(1, 0);
    let reconnect = Reconnect::new(Arc::new(double.clone()), ReconnectOptions::default());
    double.with(|state| state.expires = Some(4));
    let mut stream = reconnect.follow(&caller(), follow()).await.unwrap();
    let mut last = Seq::ZERO;
    while last < Seq::new(43) {
        if let FollowUpdate::Record(record) = stream.next().await.unwrap().unwrap() {
            assert_eq!(record.seq, last.next());
            last = record.seq;
        }
    }
    assert!(double.with(|state| state.calls) > 2);

    let double = Double::new(1, 0);
    let reconnect = Reconnect::new(Arc::new(double.clone()), ReconnectOptions::default());
    double.with(|state| state.expires = Some(8));
    let request = ExecRequest { session: Some(uid()), ..ExecRequest::default() };
    let mut stream = reconnect.exec(&caller(), request).await.unwrap();
    while let Some(update) = stream.next().await {
        update.unwrap();
    }
    assert_eq!(double.with(|state| state.turns.len()), 1);
    assert!(double.with(|state| state.calls) > 2);
}

#[tokio::test(start_paused = true)]
async fn credentials_that_stay_bad_end_a_stream_at_once() {
    let double = Double::new(1, 0);
    let reconnect = Reconnect::new(Arc::new(double.clone()), ReconnectOptions::default());
    double.with(|state| state.expires = Some(4));
    let mut stream = reconnect.follow(&caller(), follow()).await.unwrap();
    stream.next().await.unwrap().unwrap();
    double.with(|state| state.expires = Some(0));
    let begun = Instant::now();
    let error = loop {
        if let Err(error) = stream.next().await.unwrap() {
            break error;
        }
    };
    assert_eq!(error.condition(), Condition::Unauthenticated);
    assert!(begun.elapsed() < Duration::from_secs(1));
    assert_eq!(double.with(|state| state.calls), 2);

    // A turn's stream that gives nothing new until it runs out again.
    let double = Double::new(1, 0);
    let reconnect = Reconnect::new(Arc::new(double.clone()), ReconnectOptions::default());
    double.with(|state| (state.expires, state.driven) = (Some(1), false));
    let request = ExecRequest { session: Some(uid()), ..ExecRequest::default() };
    let mut stream = reconnect.exec(&caller(), request).await.unwrap();
    stream.next().await.unwrap().unwrap();
    double.with(|state| state.expires = Some(0));
    let error = stream.next().await.unwrap().unwrap_err();
    assert_eq!(error.condition(), Condition::Unauthenticated);
    assert_eq!(double.with(|state| state.calls), 2);
}

#[tokio::test(start_paused = true)]
async fn a_silent_stream_is_lost_after_its_bound() {
    let double = Double::new(5, 0);
    double.with(|state| state.head = state.end);
    let mut options = ReconnectOptions::default();
    options.silence_max = Some(Duration::from_secs(15));
    let reconnect = Reconnect::new(Arc::new(double.clone()), options);
    let request = FollowRequest { session: uid(), after_seq: Seq::new(43) };
    let mut stream = reconnect.follow(&caller(), request).await.unwrap();
    let begun = Instant::now();
    // The stream was made anew.
    stream.next().await.unwrap().unwrap();
    assert_eq!(begun.elapsed().as_secs(), 15);
    assert_eq!(double.with(|state| state.calls), 2);
}

/// The same again would be another turn.
#[tokio::test(start_paused = true)]
async fn a_turn_that_a_server_knows_by_another_name_is_not_begun_again() {
    let mut lost = 0;
    for names in [Names::Refused, Names::Unread] {
        for seed in 0..50 {
            let double = Double::new(seed, 0);
            double.with(|state| state.names = names);
            let reconnect = Reconnect::new(Arc::new(double.clone()), ReconnectOptions::default());
            let request = ExecRequest { session: Some(uid()), ..ExecRequest::default() };
            let mut stream = reconnect.exec(&caller(), request.clone()).await.unwrap();
            while let Some(update) = stream.next().await {
                update.unwrap();
            }
            // Cut behind its first record, the turn is lost, and said to be.
            double.with(|state| (state.cuts, state.head) = (1, state.start));
            let mut stream = match reconnect.exec(&caller(), request).await {
                Ok(stream) => stream,
                Err(_) => continue,
            };
            let mut records = 0;
            let error = loop {
                match stream.next().await {
                    Some(Ok(ExecUpdate::Record(_))) => records += 1,
                    Some(Ok(_)) => {}
                    Some(Err(error)) => break Some(error),
                    None => break None,
                }
            };
            // A loss before its first word is met by asking again.
            if let (1.., Some(error)) = (records, error) {
                assert_eq!(error.condition(), Condition::Unavailable);
                assert_eq!(double.with(|state| state.turns.len()), 2, "seed {seed}");
                lost += 1;
            }
        }
    }
    assert!(lost > 50, "only {lost} were lost");
}
