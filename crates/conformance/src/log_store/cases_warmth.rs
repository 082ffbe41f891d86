//! The optional part `warmth`.

use mainspring_eventlog::{HOST_ADDRESS_BYTES_MAX, LogError, WarmHost};
use mainspring_testkit::{create, sample};

use super::Subject;
use super::support::soon;

/// "`None` when no host that gives signs of life is known to."
pub async fn a_store_that_no_host_announced_has_no_warm_host<S: Subject>(subject: S) {
    let log = subject.log();
    let Some(warmth) = log.warmth() else { return };
    assert_eq!(warmth.warm_host(&sample::session("s")), None);
}

/// "Tells the other hosts where clients reach this one", and the last one told
/// is the one in force. A host that is alone has every session at hand.
pub async fn a_warm_host_is_named_with_its_address<S: Subject>(subject: S) {
    let log = subject.log();
    let Some(warmth) = log.warmth() else { return };
    let holder = sample::holder("a");
    if let Some(liveness) = log.liveness() {
        liveness.announce(&holder).await.unwrap();
    }
    let session = sample::session("s");
    create(&*log, &session).await.unwrap();
    for address in ["http://a.example:7777", "http://b.example:7777"] {
        warmth.advertise(address).await.unwrap();
        let expected = WarmHost { holder: holder.clone(), address: address.to_owned() };
        soon("a warm host", async {
            while warmth.warm_host(&session).as_ref() != Some(&expected) {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}

/// "`Invalid` for an address over" its bound.
pub async fn an_address_over_its_bound_is_refused<S: Subject>(subject: S) {
    let log = subject.log();
    let Some(warmth) = log.warmth() else { return };
    warmth.advertise(&"a".repeat(HOST_ADDRESS_BYTES_MAX)).await.unwrap();
    let refused = warmth.advertise(&"a".repeat(HOST_ADDRESS_BYTES_MAX + 1)).await;
    assert!(matches!(refused, Err(LogError::Invalid(_))), "{refused:?}");
}
