//! Following a session. Going away never stops its turn.

use futures_util::StreamExt as _;
use mainspring::api::{
    EventBody, ExecState, FollowRequest, FollowUpdate, LogRecord, Seq, SessionUid, Sessions, method,
};
use serde_json::json;

use crate::args::{Follow, Global, HarnessArgs};
use crate::context::{Context, Open, caller, uid};
use crate::error::CliError;
use crate::output::Output;

pub(crate) async fn follow(global: &Global, args: Follow, output: Output) -> Result<(), CliError> {
    let session = uid(&args.session)?;
    let context = Context::open(global, &HarnessArgs::default(), None, Open::Existing).await?;
    if context.host.is_some() && !args.until_idle {
        output.note("nothing else is recorded while this command has the journal open");
    }
    let followed = show(&*context.sessions, &session, &args, output).await;
    context.close().await;
    followed
}

async fn show(
    sessions: &dyn Sessions,
    session: &SessionUid,
    args: &Follow,
    output: Output,
) -> Result<(), CliError> {
    let mut idle = Idle { last: Seq::new(args.after), at: None };
    if args.until_idle {
        idle.look(sessions, session).await?;
    }
    if idle.is_reached() {
        return Ok(());
    }
    let request = FollowRequest { session: session.clone(), after_seq: Seq::new(args.after) };
    let mut updates = sessions.follow(&caller(method::FOLLOW), request).await?;
    // Whether a line was begun that is not ended yet.
    let mut within_line = false;
    while let Some(update) = updates.next().await {
        match update? {
            FollowUpdate::Record(record) => {
                if std::mem::take(&mut within_line) && !output.is_json() {
                    output.line(String::new, || json!(null));
                }
                output.record(&record, Some("record"))?;
                idle.last = record.seq;
                if args.until_idle && settles(&record) {
                    idle.look(sessions, session).await?;
                }
                if idle.is_reached() {
                    return Ok(());
                }
            }
            FollowUpdate::Delta(delta) => {
                within_line = !delta.done;
                output.chunk(delta.execution_id.as_str(), &delta.chunk, delta.done);
            }
            FollowUpdate::DeltaGap if output.is_json() => {
                output.line(String::new, || json!({"delta_gap": true}));
            }
            FollowUpdate::DeltaGap => output.note("some output that is not recorded was missed"),
            FollowUpdate::Heartbeat => {}
        }
    }
    Ok(())
}

/// Where a session has nothing open any more.
struct Idle {
    /// The last record that was shown, or was known before.
    last: Seq,
    /// The head at which it was seen idle.
    at: Option<Seq>,
}

impl Idle {
    /// Looks whether its latest turn has ended, or waits for a decision.
    async fn look(
        &mut self,
        sessions: &dyn Sessions,
        session: &SessionUid,
    ) -> Result<(), CliError> {
        let found = sessions.get(&caller(method::GET_SESSION), session).await?;
        self.at = (found.exec_state != ExecState::Running).then_some(found.last_seq);
        Ok(())
    }

    fn is_reached(&self) -> bool {
        self.at.is_some_and(|at| self.last >= at)
    }
}

/// Whether a record may end a turn, or park it.
fn settles(record: &LogRecord) -> bool {
    matches!(
        record.event.body,
        EventBody::End(_) | EventBody::ApprovalRequest(_) | EventBody::Error(_)
    )
}

#[cfg(test)]
mod tests;
