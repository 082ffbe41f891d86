//! What went before, in bounded pages.

use mainspring_api::{Event, EventBody, HarnessError, History, Message};

/// Events asked for at a time.
pub const HISTORY_PAGE_EVENTS: usize = 256;

/// A walk over all events before an execution, one page in memory at a time.
#[derive(Debug)]
pub struct HistoryPages<'a> {
    history: &'a dyn History,
    next: u64,
}

impl<'a> HistoryPages<'a> {
    /// Starts at the first event.
    #[must_use]
    pub fn new(history: &'a dyn History) -> Self {
        Self { history, next: 0 }
    }

    /// The next events, in order; `None` after the last.
    ///
    /// # Errors
    /// - What the history itself reports.
    /// - [`HarnessError::Protocol`] when it ends before its own length: a turn
    ///   over half a conversation would be recorded as if it were whole.
    pub async fn next_page(&mut self) -> Result<Option<Vec<Event>>, HarnessError> {
        let left = self.history.len().saturating_sub(self.next);
        if left == 0 {
            return Ok(None);
        }
        let limit =
            usize::try_from(left).map_or(HISTORY_PAGE_EVENTS, |n| n.min(HISTORY_PAGE_EVENTS));
        let page = self.history.range(self.next, limit).await?;
        if page.is_empty() || page.len() > limit {
            let message = format!(
                "history of {} events gave {} at {} where 1 to {limit} were due",
                self.history.len(),
                page.len(),
                self.next,
            );
            return Err(HarnessError::Protocol { message });
        }
        self.next += page.len() as u64;
        Ok(Some(page))
    }
}

/// The messages of history's inputs and outputs, in order.
///
/// Only they are kept in memory; all other events are passed over.
///
/// # Errors
/// As [`HistoryPages::next_page`].
pub async fn conversation(history: &dyn History) -> Result<Vec<Message>, HarnessError> {
    let mut messages = Vec::new();
    let mut pages = HistoryPages::new(history);
    while let Some(page) = pages.next_page().await? {
        messages.extend(page.into_iter().filter_map(|event| match event.body {
            EventBody::Input(message) | EventBody::Output(message) => message,
            _ => None,
        }));
    }
    Ok(messages)
}
