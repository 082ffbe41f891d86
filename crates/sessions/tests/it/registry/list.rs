//! Finding, listing and asking harnesses.

use std::time::Duration;

use mainspring_api::{Condition, ErrorKind, HarnessRegistry as _, HarnessSource, HarnessState};

use super::{Host, assert_is, put_row, remote};
use crate::support::{World, caller};

#[tokio::test(start_paused = true)]
async fn a_harness_is_found_by_its_name() {
    let host = Host::new().await;
    host.registered("agent").await;
    assert_is(host.get("").await, Condition::InvalidArgument);
    for name in ["other", "a\0b", "NOT A NAME", &"n".repeat(10_000)] {
        let said = assert_is(host.get(name).await, Condition::HarnessNotFound);
        assert!(said.len() < 200);
    }
    assert_eq!(Condition::HarnessNotFound.kind(), ErrorKind::NotFound);
    let own = host.get("scripted").await.unwrap();
    assert_eq!((own.state, own.source), (HarnessState::Active, HarnessSource::Static));
    assert_eq!((own.uid, own.spec, own.spec_digest), (String::new(), None, String::new()));
    assert_eq!(own.create_time, None);
}

#[tokio::test(start_paused = true)]
async fn observing_asks_the_harness_and_never_fails() {
    let host = Host::new().await;
    host.registered("agent").await;
    host.register("silent", remote("silent:1")).await.unwrap();
    put_row(&host.world, "harness", "damaged", "?").await;
    let observed = async |name: &str| host.registry.get(&caller(), name, true).await.unwrap();
    for name in ["agent", "scripted"] {
        let found = observed(name).await;
        assert_eq!(found.observed.unwrap().id, "scripted");
        assert_eq!(found.observe_error, "");
    }
    assert_eq!(host.get("agent").await.unwrap().observed, None, "only when it is asked for");

    let began = tokio::time::Instant::now();
    let found = observed("silent").await;
    assert_eq!(began.elapsed(), Duration::from_secs(10));
    assert_eq!(found.observed, None);
    assert!(found.observe_error.contains("no answer within 10 s"), "{}", found.observe_error);

    let found = observed("damaged").await;
    assert_eq!((found.observed, found.observe_error.as_str()), (None, "it is not served here"));
}

#[tokio::test(start_paused = true)]
async fn pages_show_every_harness_once_by_name() {
    let host = Host::on(&World::new(), &["m", "b", "z"], None).await.unwrap();
    for name in ["a", "c", "d", "n", "y"] {
        host.registered(name).await;
    }
    host.retire("d").await.unwrap();
    host.retire("y").await.unwrap();
    for (include_retired, all) in [(true, "abcdmnyz"), (false, "abcmnz")] {
        for size in 1..=9 {
            let (mut seen, mut token, mut pages) = (String::new(), String::new(), 0);
            loop {
                let page = host.registry.list(&caller(), size, &token, include_retired).await;
                let (page, next) = page.unwrap();
                assert!(!page.is_empty() && page.len() <= usize::try_from(size).unwrap());
                seen.extend(page.into_iter().map(|harness| harness.name));
                pages += 1;
                token = next;
                if token.is_empty() {
                    break;
                }
            }
            assert_eq!(seen, all, "pages of {size}");
            assert_eq!(pages, all.len().div_ceil(usize::try_from(size).unwrap()));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_token_is_the_last_name() {
    let host = Host::new().await;
    host.registered("agent").await;
    let (page, next) = host.registry.list(&caller(), 1, "", false).await.unwrap();
    assert_eq!((page[0].name.as_str(), next.as_str()), ("agent", "YWdlbnQ"));
    // A name that is not there is a place in the list as well.
    let (page, next) = host.registry.list(&caller(), 1, "Yg", false).await.unwrap();
    assert_eq!((page[0].name.as_str(), next.as_str()), ("scripted", ""));
}

#[tokio::test(start_paused = true)]
async fn a_page_has_50_unless_asked_and_500_at_most() {
    let host = Host::new().await;
    for number in 0..501 {
        put_row(&host.world, "harness", &format!("h{number:03}"), "?").await;
    }
    for (asked, found) in [(0, 50), (1, 1), (500, 500), (501, 500), (i32::MAX, 500)] {
        let (page, next) = host.registry.list(&caller(), asked, "", false).await.unwrap();
        assert_eq!(page.len(), found, "asked for {asked}");
        assert!(!next.is_empty());
    }
    let negative = host.registry.list(&caller(), -1, "", false).await;
    assert_is(negative, Condition::InvalidArgument);
    for token in ["!", "YQ==", "_w", " "] {
        let answer = host.registry.list(&caller(), 0, token, false).await;
        assert_is(answer, Condition::InvalidArgument);
    }
}
