//! The optional part `liveness`.

use mainspring_testkit::sample;

use super::Subject;
use super::support::soon;

/// "One that was never seen is dead."
pub async fn a_holder_that_was_never_seen_is_dead<S: Subject>(subject: S) {
    let log = subject.log();
    let Some(liveness) = log.liveness() else { return };
    liveness.announce(&sample::holder("other")).await.unwrap();
    assert!(!liveness.is_alive(&sample::holder("h").id).await.unwrap());
    assert!(!liveness.is_alive("").await.unwrap());
}

/// "Gives signs of life for `holder` from now on": what was announced lives.
pub async fn an_announced_holder_is_alive<S: Subject>(subject: S) {
    let log = subject.log();
    let Some(liveness) = log.liveness() else { return };
    let (a, b) = (sample::holder("a"), sample::holder("b"));
    liveness.announce(&a).await.unwrap();
    liveness.announce(&b).await.unwrap();
    // Other hosts see a sign of life once it has reached them.
    for holder in [&a, &b] {
        soon("a sign of life", async {
            while !liveness.is_alive(&holder.id).await.unwrap() {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}
