//! Floors that several rows stand beside: SHA-256 over a journal's record
//! bytes, and the store's own verification.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use futures_util::StreamExt as _;
use mainspring_api::{Head, Seq, SessionUid};
use mainspring_eventlog::{EventLog, Level, ReadLimit, Verified, record_bytes};
use sha2::{Digest as _, Sha256};

/// The bytes that each record's hash is of.
///
/// # Errors
/// The log's.
pub async fn record_bytes_of(log: &dyn EventLog, uid: &SessionUid) -> Result<Vec<Vec<u8>>> {
    let mut out = Vec::new();
    let mut from = Seq::new(1);
    loop {
        let page = log.read(uid, from, ReadLimit::default(), Level::Committed).await?;
        let Some(last) = page.last() else { return Ok(out) };
        from = last.seq.next();
        out.extend(page.iter().map(|r| record_bytes(&r.canonical, r.prev_hash.as_ref(), r.seq)));
    }
}

/// One loop of SHA-256.
pub fn hash(records: &[Vec<u8>]) {
    for record in records {
        std::hint::black_box(Sha256::digest(record));
    }
}

/// Verifies a journal from its first record.
///
/// # Errors
/// The log's.
pub async fn verify(log: &Arc<dyn EventLog>, uid: &SessionUid) -> Result<()> {
    let mut steps = log.verify(uid, Head::EMPTY);
    while let Some(step) = steps.next().await {
        if let Verified::Done(_) = step? {
            return Ok(());
        }
    }
    None.context("the verification did not end")
}
