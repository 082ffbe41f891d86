//! Following, by cursor.

use std::sync::Arc;

use futures_util::{StreamExt as _, stream};
use mainspring_api::{BoxStream, Caller, FollowRequest, FollowUpdate, Sessions, SessionsError};

use crate::retry::{ReconnectOptions, Retry, cut, is_lost};

type Followed = BoxStream<'static, Result<FollowUpdate, SessionsError>>;

struct Following {
    inner: Arc<dyn Sessions>,
    options: Arc<ReconnectOptions>,
    caller: Caller,
    /// Its cursor is the last record that was passed on.
    request: FollowRequest,
    stream: Option<Followed>,
    retry: Retry,
}

/// Follows, and goes on after each loss behind the last record.
pub(crate) async fn follow(
    inner: &Arc<dyn Sessions>,
    options: &Arc<ReconnectOptions>,
    caller: &Caller,
    request: FollowRequest,
) -> Result<Followed, SessionsError> {
    // What cannot be begun fails as it does without this layer.
    let begun = inner.follow(caller, request.clone()).await?;
    let following = Following {
        inner: Arc::clone(inner),
        options: Arc::clone(options),
        caller: caller.clone(),
        request,
        stream: Some(begun),
        retry: Retry::new(Arc::clone(options)),
    };
    Ok(Box::pin(stream::unfold(Some(following), async |state| {
        let mut following = state?;
        match following.next().await {
            Ok(update) => Some((Ok(update), Some(following))),
            Err(error) => Some((Err(error), None)),
        }
    })))
}

impl Following {
    async fn next(&mut self) -> Result<FollowUpdate, SessionsError> {
        loop {
            let Some(stream) = &mut self.stream else {
                match self.inner.follow(&self.caller, self.request.clone()).await {
                    Ok(stream) => {
                        self.stream = Some(stream);
                        self.retry.connected();
                        // What was not recorded meanwhile is gone.
                        return Ok(FollowUpdate::DeltaGap);
                    }
                    Err(error) if is_lost(&error) => self.retry.wait(error).await?,
                    Err(error) => return Err(error),
                }
                continue;
            };
            let next = match self.options.silence_max {
                None => stream.next().await,
                Some(max) => tokio::time::timeout(max, stream.next()).await.unwrap_or(None),
            };
            let error = match next {
                Some(Ok(FollowUpdate::Record(record))) => {
                    let after = self.request.after_seq;
                    if record.seq <= after {
                        continue;
                    }
                    if record.seq == after.next() {
                        self.request.after_seq = record.seq;
                        self.retry.progress();
                        return Ok(FollowUpdate::Record(record));
                    }
                    // A position was left out: it is asked for again.
                    cut()
                }
                Some(Ok(update)) => {
                    self.retry.progress();
                    return Ok(update);
                }
                Some(Err(error)) if self.retry.goes_on(&error) => error,
                Some(Err(error)) => return Err(error),
                // It has no end but its reader's.
                None => cut(),
            };
            self.stream = None;
            self.retry.wait(error).await?;
        }
    }
}
