//! Running a turn, once, over as many connections as it takes.

use std::sync::Arc;

use futures_util::{StreamExt as _, stream};
use mainspring_api::{
    Caller, Condition, ExecRequest, ExecStream, ExecUpdate, ExecutionId, OnDisconnect, Seq,
    Sessions, SessionsError, random_hex,
};

use crate::retry::{ReconnectOptions, Retry, cut, is_held, is_lost};

struct Running {
    inner: Arc<dyn Sessions>,
    caller: Caller,
    /// Names its execution, so that it can be sent again.
    request: ExecRequest,
    /// Whether that name was chosen here, and not by the caller.
    chosen: bool,
    /// Whether the server knows the turn by that name: only then is it sent again.
    attaches: bool,
    stream: Option<ExecStream>,
    /// The last record that was passed on.
    last: Seq,
    /// Sessions that were passed on: the first one, and that of a park.
    sessions: u8,
    /// Whether this connection's first session is still to come.
    expects_session: bool,
    /// A loss with an unknown outcome that was no lost connection; met twice
    /// without anything new, it is the turn's own.
    unknown: Option<Condition>,
    retry: Retry,
}

/// Runs a turn, and attaches to it again after each loss.
pub(crate) async fn exec(
    inner: &Arc<dyn Sessions>,
    options: &Arc<ReconnectOptions>,
    caller: &Caller,
    mut request: ExecRequest,
) -> Result<ExecStream, SessionsError> {
    if request.on_disconnect == OnDisconnect::Cancel {
        // A turn that a loss cancels is not begun again by whoever lost it.
        return inner.exec(caller, request).await;
    }
    let chosen = request.execution_id.is_none() && request.idempotency_key.is_none();
    if chosen {
        match request.session {
            Some(_) => request.execution_id = Some(ExecutionId::random(&*options.entropy)),
            // Names the session, too, that is created with it.
            None => request.idempotency_key = Some(random_hex(&*options.entropy, 16)),
        }
    }
    let mut running = Running {
        inner: Arc::clone(inner),
        caller: caller.clone(),
        request,
        chosen,
        attaches: true,
        stream: None,
        last: Seq::ZERO,
        sessions: 0,
        expects_session: false,
        unknown: None,
        retry: Retry::new(Arc::clone(options)),
    };
    running.begin().await?;
    Ok(Box::pin(stream::unfold(Some(running), async |state| {
        let mut running = state?;
        match running.next().await {
            Ok(None) => None,
            Ok(Some(update)) => Some((Ok(update), Some(running))),
            Err(error) => Some((Err(error), None)),
        }
    })))
}

impl Running {
    /// The first call. One that may have been taken is made again; one that
    /// was not fails as it does without this layer.
    async fn begin(&mut self) -> Result<(), SessionsError> {
        use mainspring_api::{Classify as _, Outcome};
        match self.connect().await {
            Err(error) if error.outcome() == Outcome::Unknown => self.lose(error).await,
            Err(error) if self.chosen && error.condition() == Condition::Unimplemented => {
                // It cannot be attached to, but it can be run.
                self.attaches = false;
                self.request.execution_id = None;
                self.request.idempotency_key = None;
                self.connect().await
            }
            begun => begun,
        }
    }

    async fn connect(&mut self) -> Result<(), SessionsError> {
        self.stream = Some(self.inner.exec(&self.caller, self.request.clone()).await?);
        self.expects_session = true;
        Ok(())
    }

    /// Waits, unless a turn that is told of the same way again is told of.
    async fn lose(&mut self, error: SessionsError) -> Result<(), SessionsError> {
        self.stream = None;
        if !self.attaches {
            return Err(error);
        }
        let condition = error.condition();
        let is_connection = matches!(condition, Condition::Unavailable | Condition::OutcomeUnknown);
        if !is_connection && !is_lost_host(condition) {
            if self.unknown == Some(condition) {
                return Err(error);
            }
            self.unknown = Some(condition);
        }
        self.retry.wait(error).await
    }

    async fn next(&mut self) -> Result<Option<ExecUpdate>, SessionsError> {
        loop {
            let Some(stream) = &mut self.stream else {
                match self.connect().await {
                    Ok(()) => self.retry.connected(),
                    Err(error) if is_lost(&error) || is_held(&error) => self.lose(error).await?,
                    Err(error) => return Err(error),
                }
                continue;
            };
            match stream.next().await {
                Some(Ok(ExecUpdate::Session(session))) => {
                    let is_first = std::mem::take(&mut self.expects_session);
                    if is_first && self.sessions > 0 {
                        continue;
                    }
                    self.sessions = self.sessions.saturating_add(1);
                    self.progress();
                    return Ok(Some(ExecUpdate::Session(session)));
                }
                Some(Ok(ExecUpdate::Record(record))) => {
                    if record.seq <= self.last {
                        continue;
                    }
                    self.last = record.seq;
                    // A server that knows nothing of such names made up its own:
                    // the same again would be another turn.
                    if let (Some(named), Some(is)) =
                        (&self.request.execution_id, &record.event.execution_id)
                    {
                        self.attaches &= named == is;
                    }
                    self.progress();
                    return Ok(Some(ExecUpdate::Record(record)));
                }
                Some(Ok(ExecUpdate::Delta(delta))) => {
                    self.progress();
                    return Ok(Some(ExecUpdate::Delta(delta)));
                }
                // The session of a park is the last word.
                Some(Err(error)) if is_lost(&error) && self.sessions > 1 => return Ok(None),
                Some(Err(error)) if self.retry.goes_on(&error) => self.lose(error).await?,
                Some(Err(error)) => return Err(error),
                // A server that answers at all begins with the session.
                None if self.sessions == 0 => self.lose(cut()).await?,
                None => return Ok(None),
            }
        }
    }

    fn progress(&mut self) {
        self.unknown = None;
        self.retry.progress();
    }
}

/// Whether the host went away, or is about to.
fn is_lost_host(condition: Condition) -> bool {
    matches!(
        condition,
        Condition::Draining
            | Condition::StoreRecovering
            | Condition::Interrupted
            | Condition::TurnStarting
            | Condition::SessionBusy
    )
}
