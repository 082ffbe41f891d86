//! Id-less journals of the first format: read, replayed and resumed.

use mainspring_api::{EventBody, ExecutionId, Message, Seq, SessionUid, ToolCall};
use mainspring_eventlog::{StoredRecord, go_json_string};
use sha2::{Digest as _, Sha256};

use crate::error::ControllerError;
use crate::journal::Journal;

/// The execution id that an id-less turn is run under; never journaled.
///
/// It is a hash over the session's uid and the turn's anchor record, so it is
/// stable across runs and differs between sessions.
#[must_use]
pub fn correlation_token(session: &SessionUid, anchor: &StoredRecord) -> ExecutionId {
    let mut text = String::from("{\"session_uid\":");
    go_json_string(&mut text, session.as_str());
    text.push_str(",\"seq\":\"");
    text.push_str(&anchor.seq.to_string());
    text.push_str("\",\"event\":");
    // Embedding re-escapes what the canonical form leaves literal; outside of
    // strings none of these characters occurs.
    for ch in String::from_utf8_lossy(&anchor.canonical).chars() {
        match ch {
            '<' => text.push_str("\\u003c"),
            '>' => text.push_str("\\u003e"),
            '&' => text.push_str("\\u0026"),
            '\u{2028}' => text.push_str("\\u2028"),
            '\u{2029}' => text.push_str("\\u2029"),
            other => text.push(other),
        }
    }
    text.push('}');
    let digest = mainspring_api::Hash::new(Sha256::digest(text.as_bytes()).into());
    ExecutionId::new(&format!("legacy-{digest}")).expect("it is not empty")
}

/// What the id-less records of a range say, besides their effects.
#[derive(Debug, Default)]
pub(crate) struct LegacyTurn {
    pub(crate) inputs: Vec<Message>,
    /// The last effect, if it is a tool call.
    pub(crate) unanswered: Option<(Seq, ToolCall)>,
}

/// Reads the id-less records `from..=to`.
pub(crate) async fn turn(
    journal: &Journal,
    from: Seq,
    to: Seq,
) -> Result<LegacyTurn, ControllerError> {
    let mut turn = LegacyTurn::default();
    journal
        .read_range(from, to, |stored| {
            let event = stored.event()?;
            if event.execution_id.is_some() {
                return Ok(());
            }
            match event.body {
                EventBody::Input(Some(message)) => turn.inputs.push(message),
                EventBody::ToolCall(Some(call)) => turn.unanswered = Some((stored.seq, call)),
                EventBody::ModelCall(_) | EventBody::Output(_) | EventBody::ToolResult(_) => {
                    turn.unanswered = None;
                }
                _ => {}
            }
            Ok(())
        })
        .await?;
    Ok(turn)
}

/// The token of a turn anchored at `anchor`; needs a session scope.
pub(crate) async fn token(
    journal: &Journal,
    session: Option<&SessionUid>,
    anchor: Seq,
) -> Result<ExecutionId, ControllerError> {
    let session = session.ok_or(ControllerError::MissingSessionUid)?;
    let mut token = None;
    journal
        .read_range(anchor, anchor, |stored| {
            token = Some(correlation_token(session, &stored));
            Ok(())
        })
        .await?;
    token.ok_or_else(|| ControllerError::invalid(anchor, "the anchor of a legacy turn is missing"))
}
