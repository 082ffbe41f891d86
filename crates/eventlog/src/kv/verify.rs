//! Verifying a journal, page by page.

use std::sync::Arc;

use mainspring_api::{Head, SessionUid};

use super::committer::Shared;
use super::{read, read_shared, row};
use crate::chain::ChainVerifier;
use crate::engine::Engine;
use crate::error::LogError;
use crate::log::{ReadLimit, Verified};

/// What is checked at a time, between two steps of progress.
const PAGE: ReadLimit = ReadLimit { records: 16_384, bytes: 8 << 20 };

/// A verification under way.
pub(super) struct Verification<E> {
    shared: Arc<Shared<E>>,
    session: SessionUid,
    at: Step,
}

enum Step {
    Start(Head),
    Pages(Box<row::KvRow>, ChainVerifier),
    Ended,
}

impl<E: Engine> Verification<E> {
    /// Verifies what follows `after`, which is known to hold.
    pub(super) fn new(shared: Arc<Shared<E>>, session: SessionUid, after: Head) -> Self {
        Self { shared, session, at: Step::Start(after) }
    }

    pub(super) async fn next(mut self) -> Option<(Result<Verified, LogError>, Self)> {
        let step = std::mem::replace(&mut self.at, Step::Ended);
        let (row, chain) = match step {
            Step::Ended => return None,
            Step::Start(after) => match self.start(after).await {
                Ok(row) => (Box::new(row), ChainVerifier::after(after)),
                Err(error) => return Some((Err(error), self)),
            },
            Step::Pages(row, chain) => (row, chain),
        };
        let head = row.row.view.head;
        if chain.head().seq == head.seq {
            let done = self.end(&row, chain.head()).await;
            if let Ok(Some(caught_up)) = done {
                self.at = Step::Pages(caught_up, chain);
                return Some((Ok(Verified::Checked { seq: head.seq, head: head.seq }), self));
            }
            return Some((done.map(|_| Verified::Done(head)), self));
        }
        let (start, session_row) = (chain, row.clone());
        // Where the page is read, so that only the outcome changes threads.
        let checked = read_shared(Arc::clone(&self.shared), move |kv| {
            let mut chain = start.clone();
            read::check_page(kv, &session_row, &mut chain, PAGE)?;
            Ok(chain)
        })
        .await;
        Some(match checked {
            Ok(chain) => {
                let seq = chain.head().seq;
                self.at = Step::Pages(row, chain);
                (Ok(Verified::Checked { seq, head: head.seq }), self)
            }
            Err(error) => (Err(error), self),
        })
    }

    /// At the row's head: it must be the chain's, and nothing may follow it. A
    /// row that is behind its records is folded forward and returned.
    async fn end(
        &self,
        row: &row::KvRow,
        checked: Head,
    ) -> Result<Option<Box<row::KvRow>>, LogError> {
        let head = row.row.view.head;
        if checked != head {
            let what = "the last hash is not the head's";
            return Err(LogError::Tampered { seq: head.seq, what });
        }
        let session = self.session.clone();
        let behind = read_shared(Arc::clone(&self.shared), move |kv| {
            let one = ReadLimit { records: 1, bytes: 1 };
            let now = read::load_row(kv, &session)?;
            // Appends may have gone on meanwhile, and moved the row.
            Ok(now.row.view.head == head && !read::records_after(kv, &now, one)?.is_empty())
        })
        .await?;
        if !behind {
            return Ok(None);
        }
        let (shared, session) = (Arc::clone(&self.shared), self.session.clone());
        blocking::unblock(move || shared.catch_up(&session)).await?;
        let session = self.session.clone();
        let row = read_shared(Arc::clone(&self.shared), move |kv| read::load_row(kv, &session));
        Ok(Some(Box::new(row.await?)))
    }

    async fn start(&self, after: Head) -> Result<row::KvRow, LogError> {
        let uid = self.session.clone();
        let row = read_shared(Arc::clone(&self.shared), move |kv| read::load_row(kv, &uid)).await?;
        let head = row.row.view.head;
        if head.seq < after.seq {
            return Err(LogError::Tampered {
                seq: head.seq.next(),
                what: "the journal is shorter than it was",
            });
        }
        Ok(row)
    }
}
