//! Turns that another live host drives.

use mainspring_api::{Classify as _, Condition, SessionUid, SessionsError};
use mainspring_eventlog::{Holder, SessionRow, SessionView};

use crate::service::{Inner, log_failed};

/// Who may be driving the session's latest turn: the one who holds its fence.
/// `None` where nobody can be, by the journal alone.
///
/// A turn has a driver while it has neither end nor trailing error, waits for
/// no decision, and neither a suspend nor a fork follows it. One whose decision
/// nothing follows yet waits for whoever resumes it.
pub(crate) fn possible_driver(row: &SessionRow) -> Option<&Holder> {
    is_under_way(&row.view).then_some(row.fence.holder.as_ref()).flatten()
}

fn is_under_way(view: &SessionView) -> bool {
    let Some(latest) = view.pending().filter(|latest| latest.trailing_error.is_none()) else {
        return false;
    };
    let last = latest.last_seq;
    let marked = [view.last_suspend.as_ref().map(|suspend| suspend.seq), view.last_fork];
    let decided = latest.gate.as_ref().and_then(|gate| gate.decision);
    view.pending_gate().is_none()
        && marked.into_iter().flatten().all(|seq| seq < last)
        && decided.is_none_or(|(seq, _)| seq < last)
}

impl Inner {
    /// Whether a holder of fences gives signs of life. It is advice: the fence
    /// alone decides. A store without that part is exclusive to one process, so
    /// any other holder is dead.
    pub(crate) async fn is_alive(&self, holder: &Holder) -> Result<bool, SessionsError> {
        match self.options.log.liveness() {
            None => Ok(false),
            Some(liveness) => liveness.is_alive(&holder.id).await.map_err(log_failed),
        }
    }

    /// Refuses what would supersede a turn that another live host drives, and
    /// says which host, and for how long.
    pub(crate) async fn refuse_driven_elsewhere(
        &self,
        row: &SessionRow,
    ) -> Result<(), SessionsError> {
        let uid = &row.session.uid;
        let holder = possible_driver(row).filter(|holder| holder.id != self.options.holder.id);
        let Some(holder) = holder else { return Ok(()) };
        match self.is_alive(holder).await {
            Ok(false) => Ok(()),
            Ok(true) => Err(self.busy_elsewhere(uid, holder, row)),
            Err(error) => {
                tracing::warn!(
                    session = %uid, code = error.code(),
                    "cannot tell whether another host drives this session"
                );
                Err(error.on(uid))
            }
        }
    }

    fn busy_elsewhere(
        &self,
        session: &SessionUid,
        holder: &Holder,
        row: &SessionRow,
    ) -> SessionsError {
        let since = row.fence.since.unwrap_or(row.update_time).seconds;
        let age = self.options.clock.now().seconds.saturating_sub(since).max(0);
        let execution = row.view.latest.as_ref().map_or("", |latest| latest.id.as_str());
        let message = format!(
            "session is busy: host {} has been driving execution {execution} for {age} s",
            holder.name
        );
        SessionsError::new(Condition::SessionBusy, message).on(session)
    }
}
