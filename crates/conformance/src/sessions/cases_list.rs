//! ListSessions and Find.

use std::collections::BTreeMap;

use mainspring_api::{
    CancelReason, Condition, CreateRequest, ExecState, FindRequest, ListRequest, SessionUid, method,
};

use super::support::{refused, turn, until};
use super::{Client, Setup, Subject};

async fn all(client: &Client, request: ListRequest) -> Vec<SessionUid> {
    let mut found = Vec::new();
    let mut request = request;
    loop {
        let page = client.list(request.clone()).await.unwrap();
        found.extend(page.sessions.into_iter().map(|session| session.uid));
        if page.next_page_token.is_empty() {
            return found;
        }
        request.page_token = page.next_page_token;
    }
}

async fn find(client: &Client, request: FindRequest) -> Vec<SessionUid> {
    let mut found = Vec::new();
    let mut request = request;
    loop {
        let caller = client.as_caller(method::FIND);
        let page = client.operations.find(&caller, request.clone()).await.unwrap();
        found.extend(page.sessions.into_iter().map(|session| session.uid));
        if page.next_page_token.is_empty() {
            return found;
        }
        request.page_token = page.next_page_token;
    }
}

/// "Exact project (empty -> default project, never "all")."
pub async fn a_list_has_one_project<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let here = world.me.created().await;
    let request = CreateRequest { project: "default-2".to_owned(), ..CreateRequest::default() };
    let there = world.me.create(request).await.unwrap().uid;
    assert_eq!(all(&world.me, ListRequest::default()).await, [here]);
    let other = ListRequest { project: "default-2".to_owned(), ..ListRequest::default() };
    assert_eq!(all(&world.me, other).await, [there]);
    let none = ListRequest { project: "default-".to_owned(), ..ListRequest::default() };
    assert!(all(&world.me, none).await.is_empty());
}

/// "Order created_at descending, then uid ascending." and "Keyset: rows strictly after (created_at, uid)."
pub async fn pages_are_newest_first_and_whole<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let mut made = Vec::new();
    for _ in 0..7 {
        made.push(world.me.create(CreateRequest::default()).await.unwrap());
    }
    made.sort_by(|a, b| b.create_time.cmp(&a.create_time).then_with(|| a.uid.cmp(&b.uid)));
    let made: Vec<_> = made.into_iter().map(|session| session.uid).collect();
    for page_size in [1, 2, 3, 7, 8] {
        let request = ListRequest { page_size, ..ListRequest::default() };
        assert_eq!(all(&world.me, request).await, made, "pages of {page_size}");
    }
}

/// "Size: <= 0 -> 50, above 500 -> 500; negative is not an error. Next token only when one more row exists."
pub async fn a_page_has_its_bounds<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    for _ in 0..51 {
        world.me.created().await;
    }
    for (page_size, rows, more) in
        [(0, 50, true), (-3, 50, true), (51, 51, false), (501, 51, false)]
    {
        let request = ListRequest { page_size, ..ListRequest::default() };
        let page = world.me.list(request).await.unwrap();
        assert_eq!(page.sessions.len(), rows, "page_size {page_size}");
        assert_eq!(!page.next_page_token.is_empty(), more, "page_size {page_size}");
    }
}

/// "Unparseable -> INVALID_ARGUMENT, never page one."
pub async fn a_foreign_page_token_is_refused<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    world.me.created().await;
    for token in ["x", "!!", "c2Vzcy0x", "MTIz"] {
        let request = ListRequest { page_token: token.to_owned(), ..ListRequest::default() };
        refused(world.me.list(request).await, Condition::InvalidArgument);
    }
}

/// Filters: "state, harness, label"; "other filters scan under a budget and may return a short page with a token".
pub async fn a_find_has_what_matches_and_nothing_else<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let me = &world.me;
    let labels = BTreeMap::from([("team".to_owned(), "a".to_owned())]);
    let labelled = CreateRequest { labels: labels.clone(), ..CreateRequest::default() };
    let labelled = me.create(labelled).await.unwrap().uid;
    let other = CreateRequest { harness: "other".to_owned(), ..CreateRequest::default() };
    let other = me.create(other).await.unwrap().uid;
    let (parked, _) = me.parked("").await;
    let done = me.ran("out a").await;
    let running = me.created().await;
    let mut stream = me.exec(turn(&running, "hold here")).await.unwrap();
    until(&mut stream, "IN").await;
    let by = |states: &[ExecState]| FindRequest { states: states.to_vec(), ..Default::default() };
    assert_eq!(find(me, by(&[ExecState::Awaiting])).await, std::slice::from_ref(&parked));
    assert_eq!(find(me, by(&[ExecState::Running])).await, std::slice::from_ref(&running));
    assert_eq!(find(me, by(&[ExecState::Completed])).await, [done]);
    let mut open = find(me, by(&[ExecState::Awaiting, ExecState::Running])).await;
    open.sort();
    let mut expected = vec![parked, running.clone()];
    expected.sort();
    assert_eq!(open, expected);
    let by_label = FindRequest { labels, ..FindRequest::default() };
    assert_eq!(find(me, by_label).await, [labelled]);
    let by_harness = FindRequest { harness: "other".to_owned(), ..FindRequest::default() };
    assert_eq!(find(me, by_harness).await, [other]);
    // A state is left as the journal moves on.
    let execution = world.execution(&running).await;
    me.cancel(&running, &execution, CancelReason::User).await.unwrap();
    assert!(find(me, by(&[ExecState::Running])).await.is_empty());
    assert_eq!(find(me, by(&[ExecState::Canceled])).await, [running]);
}
