//! Lists over all partitions: each partition's page, merged.

use futures_util::future::try_join_all;
use mainspring_api::SessionUid;
use mainspring_eventlog::replica::Replica;
use mainspring_eventlog::{ListQuery, LogError, Mark, Page, PageKey, SessionRow};

use crate::engine::PartitionEngine;

/// A page of rows, newest first and then by uid.
///
/// A partition whose own page is short and goes on bounds the merged page: what
/// comes after its last row may stand before what another one has.
pub(crate) async fn page(
    replicas: &[Replica<PartitionEngine>],
    query: ListQuery,
) -> Result<Page, LogError> {
    let size = query.page_size.clamp(1, 500);
    let pages = try_join_all(replicas.iter().map(|replica| replica.list(query.clone()))).await?;
    let bound = pages.iter().filter_map(|page| page.next.clone()).min_by(in_order);
    let mut rows: Vec<SessionRow> = pages.into_iter().flat_map(|page| page.rows).collect();
    rows.sort_by(|a, b| in_order(&key(a), &key(b)));
    let found = rows.len();
    if let Some(bound) = &bound {
        rows.retain(|row| in_order(&key(row), bound).is_le());
    }
    rows.truncate(size);
    let more = rows.len() < found || bound.is_some();
    let next = match rows.last() {
        _ if !more => None,
        Some(last) if rows.len() == size || bound.is_none() => Some(key(last)),
        // Everything up to the bound is here.
        _ => bound,
    };
    Ok(Page { rows, next })
}

/// Rows that carry a mark, by uid.
pub(crate) async fn marked(
    replicas: &[Replica<PartitionEngine>],
    mark: Mark,
    after: Option<&SessionUid>,
    limit: usize,
) -> Result<Vec<SessionRow>, LogError> {
    let pages = replicas.iter().map(|replica| replica.marked(mark, after, limit));
    let mut rows: Vec<SessionRow> = try_join_all(pages).await?.into_iter().flatten().collect();
    rows.sort_by(|a, b| a.session.uid.cmp(&b.session.uid));
    // Each partition gave its first ones, so the first of all are among them.
    rows.truncate(limit);
    Ok(rows)
}

fn key(row: &SessionRow) -> PageKey {
    PageKey { create_time: row.create_time, uid: row.session.uid.clone() }
}

fn in_order(a: &PageKey, b: &PageKey) -> std::cmp::Ordering {
    b.create_time.cmp(&a.create_time).then_with(|| a.uid.as_str().cmp(b.uid.as_str()))
}
