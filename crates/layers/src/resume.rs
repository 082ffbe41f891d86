//! Resuming a turn over as many connections as it takes.
//!
//! A resume has no id that it could be sent again under. After a loss the
//! session says where its turn stands: the records that were missed are read,
//! and a turn that is still open is followed, or resumed once nobody drives it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use mainspring_api::{
    BoxStream, Caller, Condition, EventBody, ExecState, ExecStream, ExecUpdate, FollowRequest,
    FollowUpdate, LogRecord, ReplayRequest, ResumeRequest, Seq, Session, Sessions, SessionsError,
};

use crate::retry::{ReconnectOptions, Retry, cut, is_held, is_lost};

/// How long a turn that somebody else drives is followed before the session is
/// looked at again: its driver may be gone.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// What a resumed turn's updates come from now.
enum Source {
    /// The call itself.
    Resumed(ExecStream),
    /// Records that were missed, then the session as it was then.
    Missed(BoxStream<'static, Result<LogRecord, SessionsError>>, Box<Session>),
    /// A turn that somebody else drives.
    Followed(BoxStream<'static, Result<FollowUpdate, SessionsError>>),
    /// The session is to be looked at.
    Lost,
    /// The turn is over, and its session is to be passed on.
    Over(Box<Session>),
    Ended,
}

struct Resuming {
    inner: Arc<dyn Sessions>,
    caller: Caller,
    request: ResumeRequest,
    source: Source,
    /// The last record that was passed on, or that was there before.
    last: Seq,
    /// Whether a connection was lost.
    again: bool,
    retry: Retry,
}

/// Resumes, and goes on after each loss behind the last record.
pub(crate) async fn resume(
    inner: &Arc<dyn Sessions>,
    options: &Arc<ReconnectOptions>,
    caller: &Caller,
    request: ResumeRequest,
) -> Result<ExecStream, SessionsError> {
    // Where its records begin. Who may not read learns of it from the resume.
    let before = inner.get(caller, &request.session).await.ok();
    let resumed = inner.resume(caller, request.clone()).await?;
    let Some(before) = before else { return Ok(resumed) };
    let resuming = Resuming {
        inner: Arc::clone(inner),
        caller: caller.clone(),
        request,
        source: Source::Resumed(resumed),
        last: before.last_seq,
        again: false,
        retry: Retry::new(Arc::clone(options)),
    };
    Ok(Box::pin(stream::unfold(Some(resuming), async |state| {
        let mut resuming = state?;
        match resuming.next().await {
            Ok(None) => None,
            Ok(Some(update)) => Some((Ok(update), Some(resuming))),
            Err(error) => Some((Err(error), None)),
        }
    })))
}

impl Resuming {
    async fn next(&mut self) -> Result<Option<ExecUpdate>, SessionsError> {
        loop {
            match &mut self.source {
                Source::Ended => return Ok(None),
                Source::Over(_) => {
                    let over = std::mem::replace(&mut self.source, Source::Ended);
                    let Source::Over(session) = over else { continue };
                    self.retry.progress();
                    return Ok(Some(ExecUpdate::Session(session)));
                }
                Source::Lost => self.look().await?,
                Source::Resumed(stream) => match stream.next().await {
                    Some(Ok(ExecUpdate::Record(record))) => {
                        if self.again && record.seq > self.last.next() {
                            // Its driver before this one recorded something in between.
                            self.source = Source::Lost;
                        } else if let Some(update) = self.pass(record) {
                            return Ok(Some(update));
                        }
                    }
                    Some(Ok(ExecUpdate::Session(session))) => {
                        self.source = Source::Over(session);
                    }
                    Some(Ok(delta)) => {
                        self.retry.progress();
                        return Ok(Some(delta));
                    }
                    Some(Err(error)) if self.retry.goes_on(&error) => self.lose(error).await?,
                    Some(Err(error)) => return Err(error),
                    None => self.lose(cut()).await?,
                },
                Source::Missed(stream, session) => match stream.next().await {
                    Some(Ok(record)) => {
                        if let Some(update) = self.pass(Box::new(record)) {
                            return Ok(Some(update));
                        }
                    }
                    Some(Err(error)) if self.retry.goes_on(&error) => self.lose(error).await?,
                    Some(Err(error)) => return Err(error),
                    None if session.last_seq > self.last => self.lose(cut()).await?,
                    None => {
                        let session = session.clone();
                        self.stands(session).await?;
                    }
                },
                Source::Followed(stream) => {
                    let next = tokio::time::timeout(LOOK_AGAIN, stream.next()).await;
                    match next {
                        Ok(Some(Ok(FollowUpdate::Record(record)))) => {
                            let settles = settles(&record);
                            if record.seq > self.last.next() || settles {
                                // Read with the session as it is then.
                                self.source = Source::Lost;
                            } else if let Some(update) = self.pass(record) {
                                return Ok(Some(update));
                            }
                        }
                        Ok(Some(Ok(FollowUpdate::Delta(delta)))) => {
                            return Ok(Some(ExecUpdate::Delta(delta)));
                        }
                        Ok(Some(Ok(_))) => {}
                        Ok(Some(Err(error))) if self.retry.goes_on(&error) => {
                            self.lose(error).await?
                        }
                        Ok(Some(Err(error))) => return Err(error),
                        Ok(None) => self.lose(cut()).await?,
                        Err(_) => self.source = Source::Lost,
                    }
                }
            }
        }
    }

    /// A record, unless it was passed on before.
    fn pass(&mut self, record: Box<LogRecord>) -> Option<ExecUpdate> {
        if record.seq <= self.last {
            return None;
        }
        self.last = record.seq;
        self.retry.progress();
        Some(ExecUpdate::Record(record))
    }

    async fn lose(&mut self, error: SessionsError) -> Result<(), SessionsError> {
        self.source = Source::Lost;
        self.again = true;
        self.retry.wait(error).await
    }

    /// Looks where the session stands, and reads what was missed.
    async fn look(&mut self) -> Result<(), SessionsError> {
        self.again = true;
        let session = match self.inner.get(&self.caller, &self.request.session).await {
            Ok(session) => Box::new(session),
            Err(error) if is_lost(&error) => return self.lose(error).await,
            Err(error) => return Err(error),
        };
        self.retry.connected();
        if session.last_seq <= self.last {
            return self.stands(session).await;
        }
        let request = ReplayRequest {
            session: session.uid.clone(),
            from_seq: self.last.next().as_i64(),
            to_seq: session.last_seq.as_i64(),
            verify: false,
        };
        match self.inner.replay(&self.caller, request).await {
            Ok(stream) => self.source = Source::Missed(stream, session),
            Err(error) if is_lost(&error) => self.lose(error).await?,
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Everything up to this session was passed on: ends, or goes on with its turn.
    async fn stands(&mut self, session: Box<Session>) -> Result<(), SessionsError> {
        match session.exec_state {
            ExecState::Running => self.go_on().await,
            ExecState::Failed => {
                let message = "the turn failed while the connection was lost; describe says why";
                Err(SessionsError::new(Condition::HarnessFailed, message)
                    .on(&session.uid)
                    .with_outcome(mainspring_api::Outcome::Applied))
            }
            _ => {
                self.source = Source::Over(session);
                Ok(())
            }
        }
    }

    /// Resumes the turn again; while somebody else drives it, it is followed.
    async fn go_on(&mut self) -> Result<(), SessionsError> {
        let error = match self.inner.resume(&self.caller, self.request.clone()).await {
            Ok(stream) => {
                self.source = Source::Resumed(stream);
                return Ok(());
            }
            Err(error) => error,
        };
        if is_lost(&error) {
            return self.lose(error).await;
        }
        if !is_held(&error) {
            return Err(error);
        }
        let request = FollowRequest { session: self.request.session.clone(), after_seq: self.last };
        match self.inner.follow(&self.caller, request).await {
            Ok(stream) => {
                self.source = Source::Followed(stream);
                Ok(())
            }
            Err(error) if is_lost(&error) => self.lose(error).await,
            Err(error) => Err(error),
        }
    }
}

/// Whether a record may have changed where the turn stands.
fn settles(record: &LogRecord) -> bool {
    matches!(
        record.event.body,
        EventBody::End(_) | EventBody::ApprovalRequest(_) | EventBody::Error(_)
    )
}
