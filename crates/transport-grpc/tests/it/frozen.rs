//! A connection that stands still without being closed is left for a new one.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use mainspring_api::{
    Condition, ExecRequest, FollowRequest, ReplayRequest, Seq, Sessions as _, SessionsError,
};
use mainspring_testkit::Proxy;
use mainspring_transport_grpc::{
    ClientAuth, ConnectOptions, RemoteSessions, ServeOptions, ServerTls,
};
use tokio::time::Instant;

use crate::address_book::{Over, Running};
use crate::fake::{Fake, assert_condition, caller, uid};
use crate::tls::Authority;

const HEARTBEAT: Duration = Duration::from_secs(10);

/// A proxy before a host, and a client through it, with TLS where an authority
/// is given. Pings would judge the connection in its place.
async fn connected(authority: Option<&Authority>) -> (Running, Proxy, RemoteSessions) {
    let mut options = ServeOptions::default();
    options.link.keep_alive_interval = None;
    options.tls = authority
        .map(|authority| ServerTls::load(authority.server(ClientAuth::None, None)).unwrap());
    let running = Running::sessions_with(Over::Tcp, Arc::new(Fake::default()), options).await;
    let proxy = Proxy::to(running.address.parse().unwrap()).await.unwrap();
    let mut options = ConnectOptions::default();
    options.link.keep_alive_interval = None;
    options.heartbeat = Some(HEARTBEAT);
    options.tls = authority.map(Authority::client);
    let remote = RemoteSessions::connect(&proxy.address().to_string(), options).await.unwrap();
    (running, proxy, remote)
}

fn hang() -> FollowRequest {
    FollowRequest { session: uid("hang"), after_seq: Seq::ZERO }
}

fn assert_silent(error: &SessionsError) {
    assert_condition(error, Condition::Unavailable);
    assert_eq!(error.to_string(), "no heartbeat for 30 s");
}

async fn goes_on_over_a_new_connection(authority: Option<&Authority>) {
    let (_running, proxy, remote) = connected(authority).await;
    let clone = remote.clone();
    let mut updates = remote.follow(&caller(), hang()).await.unwrap();
    updates.next().await.unwrap().unwrap();
    proxy.freeze();
    let error = loop {
        if let Err(error) = updates.next().await.unwrap() {
            break error;
        }
    };
    assert_silent(&error);
    let noticed = Instant::now();
    // Calls of all kinds, and of clones that were made before.
    clone.get(&caller(), &uid("s")).await.unwrap();
    let exec = ExecRequest { harness: "hang".to_owned(), ..Default::default() };
    assert!(remote.exec(&caller(), exec).await.unwrap().next().await.unwrap().is_ok());
    assert!(clone.follow(&caller(), hang()).await.unwrap().next().await.unwrap().is_ok());
    let replay = ReplayRequest { session: uid("hang"), from_seq: 1, to_seq: 0, verify: false };
    assert!(remote.replay(&caller(), replay).await.unwrap().next().await.unwrap().is_ok());
    assert!(noticed.elapsed() < HEARTBEAT * 2, "{:?}", noticed.elapsed());
    assert_eq!(proxy.connections(), 2);
}

#[tokio::test(start_paused = true)]
async fn after_a_silent_stream_every_call_goes_over_a_new_connection() {
    goes_on_over_a_new_connection(None).await;
}

#[tokio::test(start_paused = true)]
async fn a_new_connection_has_tls_as_the_old_one_had() {
    goes_on_over_a_new_connection(Some(&Authority::new("ours"))).await;
}

/// Several streams find out at about the same time: one new connection is enough.
#[tokio::test(start_paused = true)]
async fn streams_that_stall_together_make_one_new_connection() {
    let (_running, proxy, remote) = connected(None).await;
    let mut streams = Vec::new();
    for _ in 0..4 {
        let mut updates = remote.follow(&caller(), hang()).await.unwrap();
        updates.next().await.unwrap().unwrap();
        streams.push(updates);
    }
    proxy.freeze();
    let mut again = Vec::new();
    for mut updates in streams {
        let last = async {
            loop {
                if let Err(error) = updates.next().await.unwrap() {
                    break error;
                }
            }
        };
        assert_silent(&last.await);
        let mut updates = remote.follow(&caller(), hang()).await.unwrap();
        updates.next().await.unwrap().unwrap();
        again.push(updates);
    }
    assert_eq!(proxy.connections(), 2);
}

/// A call that is not answered at all, once the host has agreed to beats.
#[tokio::test(start_paused = true)]
async fn an_answer_that_does_not_begin_is_given_up_and_asked_for_anew() {
    let (_running, proxy, remote) = connected(None).await;
    drop(remote.follow(&caller(), hang()).await.unwrap());
    proxy.freeze();
    let asked = Instant::now();
    let exec = ExecRequest { harness: "hang".to_owned(), ..Default::default() };
    let Err(error) = remote.exec(&caller(), exec.clone()).await else { panic!("it was answered") };
    assert_silent(&error);
    assert!(asked.elapsed() <= HEARTBEAT * 4, "{:?}", asked.elapsed());
    assert!(remote.exec(&caller(), exec).await.unwrap().next().await.unwrap().is_ok());
    assert_eq!(proxy.connections(), 2);
}
