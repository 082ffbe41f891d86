//! The optional part `rows`.

use futures_util::future::join_all;
use mainspring_api::Bytes;
use mainspring_eventlog::{LogError, NAMED_ROW_BYTES_MAX, NamedRow, ROW_KEY_BYTES_MAX, RowKey};
use mainspring_testkit::sample;

use super::Subject;
use super::support::assert_refused;

fn key(kind: &str, name: &str) -> RowKey {
    RowKey::new(kind, name).unwrap()
}

fn value(text: &str) -> Option<Bytes> {
    Some(Bytes::copy_from_slice(text.as_bytes()))
}

fn row(version: u64, text: &str) -> NamedRow {
    NamedRow { version, value: Bytes::copy_from_slice(text.as_bytes()) }
}

/// "A row, as it was last put."
pub async fn a_named_row_is_read_back<S: Subject>(subject: S) {
    let log = subject.log();
    let Some(rows) = log.rows() else { return };
    let (a, b) = (key("harness", "a"), key("harness", "b"));
    assert_eq!(rows.named(&a).await.unwrap(), None);
    assert_eq!(rows.put_named(sample::fresh_id(), &a, 0, value("1")).await.unwrap(), 1);
    assert_eq!(rows.put_named(sample::fresh_id(), &b, 0, value("")).await.unwrap(), 1);
    assert_eq!(rows.put_named(sample::fresh_id(), &a, 1, value("two")).await.unwrap(), 2);
    assert_eq!(rows.named(&a).await.unwrap(), Some(row(2, "two")));
    assert_eq!(rows.named(&b).await.unwrap(), Some(row(1, "")));
    assert_eq!(rows.named(&key("reserved", "a")).await.unwrap(), None, "kinds are apart");
}

/// "If its version is still `version`; 0 where there never was one."
pub async fn a_named_row_moves_by_its_version<S: Subject>(subject: S) {
    let log = subject.log();
    let Some(rows) = log.rows() else { return };
    let a = key("harness", "a");
    let early = rows.put_named(sample::fresh_id(), &a, 1, value("x")).await;
    assert_refused!(early, LogError::Moved { .. });
    rows.put_named(sample::fresh_id(), &a, 0, value("1")).await.unwrap();
    for stale in [0, 2] {
        let moved = rows.put_named(sample::fresh_id(), &a, stale, value("x")).await;
        assert_refused!(moved, LogError::Moved { .. });
        let moved = rows.put_named(sample::fresh_id(), &a, stale, None).await;
        assert_refused!(moved, LogError::Moved { .. });
    }
    assert_eq!(rows.named(&a).await.unwrap(), Some(row(1, "1")));
}

/// "Versions of a key only rise, also over its removal."
pub async fn a_removed_row_leaves_its_version<S: Subject>(subject: S) {
    let log = subject.log();
    let Some(rows) = log.rows() else { return };
    let a = key("harness", "a");
    rows.put_named(sample::fresh_id(), &a, 0, value("1")).await.unwrap();
    assert_eq!(rows.put_named(sample::fresh_id(), &a, 1, None).await.unwrap(), 2);
    assert_eq!(rows.named(&a).await.unwrap(), None);
    assert!(rows.named_of("harness", "", 10).await.unwrap().is_empty());
    let again = rows.put_named(sample::fresh_id(), &a, 0, value("x")).await;
    assert_refused!(again, LogError::Moved { .. });
    assert_eq!(rows.put_named(sample::fresh_id(), &a, 2, value("3")).await.unwrap(), 3);
    assert_eq!(rows.named(&a).await.unwrap(), Some(row(3, "3")));
}

/// "Send the same operation again, with the same id and arguments."
pub async fn a_named_row_put_again_answers_the_same<S: Subject>(subject: S) {
    let log = subject.log();
    let Some(rows) = log.rows() else { return };
    let (a, id) = (key("harness", "a"), sample::fresh_id());
    for _ in 0..3 {
        assert_eq!(rows.put_named(id, &a, 0, value("1")).await.unwrap(), 1);
    }
    let id = sample::fresh_id();
    for _ in 0..3 {
        assert_eq!(rows.put_named(id, &a, 1, None).await.unwrap(), 2);
    }
    assert_eq!(rows.named(&a).await.unwrap(), None);
}

/// "Up to `limit` rows of a kind, by name, after the name `after`."
pub async fn named_rows_are_listed_by_name<S: Subject>(subject: S) {
    let log = subject.log();
    let Some(rows) = log.rows() else { return };
    for name in ["b", "a", "a.b", "ab", "c"] {
        rows.put_named(sample::fresh_id(), &key("kind", name), 0, value(name)).await.unwrap();
    }
    for kind in ["kin", "kind2", "a"] {
        rows.put_named(sample::fresh_id(), &key(kind, "x"), 0, value("x")).await.unwrap();
    }
    let names = ["a", "a.b", "ab", "b", "c"];
    for limit in 1..=6 {
        let mut seen = Vec::new();
        loop {
            let after = seen.last().map_or("", |(name, _): &(String, NamedRow)| name.as_str());
            let page = rows.named_of("kind", after, limit).await.unwrap();
            assert!(page.len() <= limit);
            if page.is_empty() {
                break;
            }
            seen.extend(page);
        }
        assert_eq!(seen.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), names);
        assert!(seen.iter().all(|(name, found)| *found == row(1, name)));
    }
}

/// "`TooLarge` for a value over the bound"; a key is empty, long or split nowhere.
pub async fn a_named_row_over_its_bound_is_refused<S: Subject>(subject: S) {
    let log = subject.log();
    let Some(rows) = log.rows() else { return };
    let a = key("harness", "a");
    let large = |bytes: usize| Some(Bytes::from(vec![7; bytes]));
    let over = rows.put_named(sample::fresh_id(), &a, 0, large(NAMED_ROW_BYTES_MAX + 1)).await;
    assert_refused!(over, LogError::TooLarge { .. });
    assert_eq!(rows.named(&a).await.unwrap(), None);
    rows.put_named(sample::fresh_id(), &a, 0, large(NAMED_ROW_BYTES_MAX)).await.unwrap();
    let longest = "n".repeat(ROW_KEY_BYTES_MAX);
    rows.put_named(sample::fresh_id(), &key("k", &longest), 0, value("1")).await.unwrap();
    for (kind, name) in [("", "a"), ("k", ""), ("k", "a\0b"), ("k", &*format!("{longest}n"))] {
        assert!(matches!(RowKey::new(kind, name), Err(LogError::Invalid(_))), "{kind} {name}");
    }
}

/// "If its version is still `version`": of many puts at one version one wins.
pub async fn one_put_wins_each_version<S: Subject>(subject: S) {
    let log = subject.log();
    if log.rows().is_none() {
        return;
    }
    for version in 0..4 {
        let puts = (0..16).map(|writer: usize| {
            let log = log.clone();
            tokio::spawn(async move {
                let rows = log.rows().expect("it has rows");
                let text = value(&writer.to_string());
                rows.put_named(sample::fresh_id(), &key("k", "n"), version, text).await
            })
        });
        let puts = join_all(puts.collect::<Vec<_>>()).await;
        let won: Vec<usize> = (0..16).filter(|n| matches!(puts[*n], Ok(Ok(_)))).collect();
        assert_eq!(won.len(), 1);
        let found = log.rows().expect("it has rows").named(&key("k", "n")).await.unwrap();
        assert_eq!(found, Some(row(version + 1, &won[0].to_string())));
        for lost in puts.into_iter().map(|joined| joined.unwrap()).filter(Result::is_err) {
            assert_refused!(lost, LogError::Moved { .. });
        }
    }
}
