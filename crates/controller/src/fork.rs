//! Children that share a journal's prefix.

use mainspring_api::{AppendId, Entropy, Event, EventBody, Head, Lifecycle, LifecycleKind, Seq};
use mainspring_eventlog::{ChainVerifier, Level, LogError, NewSession, SessionRow};

use crate::error::ControllerError;
use crate::journal::Journal;
use crate::writer::settle;

/// The marker that ends the inherited prefix of a child forked at `at`.
#[must_use]
pub fn fork_marker(at: Seq, compute_instance: &str) -> Event {
    Event::of(EventBody::Lifecycle(Some(Lifecycle {
        kind: LifecycleKind::Fork,
        // The literal word: a child's journal must not depend on the parent's name.
        detail: format!("parent@{at}"),
        compute_instance: compute_instance.to_owned(),
        ..Lifecycle::default()
    })))
}

/// Verifies the parent up to `at` and creates `children` there, all or none.
///
/// The prefix is read in full each time, so that an edit made behind a running
/// host's back does not reach a child. Damage after `at` is not looked at.
///
/// # Errors
/// - `InvalidExecutionLog` when `at` is beyond the head.
/// - A tampered prefix; a child that exists. Nothing was created.
pub async fn fork(
    parent: &Journal,
    at: Seq,
    children: Vec<NewSession>,
    entropy: &dyn Entropy,
) -> Result<Vec<SessionRow>, ControllerError> {
    let row = parent.log().get(parent.uid(), Level::Committed).await?;
    if at > row.view.head.seq {
        return Err(ControllerError::invalid(at, "the fork's position is beyond the head"));
    }
    let mut chain = ChainVerifier::after(Head::EMPTY);
    if at > Seq::ZERO {
        parent.read_range(Seq::new(1), at, |record| Ok(chain.check(&record)?)).await?;
    }
    if at == row.view.head.seq && chain.head() != row.view.head {
        let what = "the last hash is not the head's";
        return Err(LogError::Tampered { seq: at, what }.into());
    }
    let children =
        children.into_iter().map(|child| (child, fork_marker(at, ""))).collect::<Vec<_>>();
    let id = AppendId::random(entropy);
    let (log, at) = (parent.log(), chain.head());
    Ok(settle(|| log.fork(id, parent.uid(), at, children.clone())).await?)
}
