//! Records as lines.

use mainspring::api::{EventBody, LogRecord, Message};
use mainspring::eventlog::{StoredRecord, canonical, export};

use crate::error::CliError;
use crate::output::shown_line;

/// `seq=%-3d KIND`, then `role: text` when it has a message.
pub(crate) fn text_line(record: &LogRecord) -> String {
    let line = format!("seq={:<3} {}", record.seq, record.event.kind().name());
    match &record.event.body {
        EventBody::Input(Some(message)) | EventBody::Output(Some(message)) => {
            format!("{line}  {}", message_text(message))
        }
        EventBody::Error(Some(error)) => format!("{line}  {}", shown_line(&error.description)),
        _ => line,
    }
}

fn message_text(message: &Message) -> String {
    format!("{}: {}", shown_line(&message.role), shown_line(&message.plain_text()))
}

/// The record in the form in which it is stored.
pub(crate) fn stored(record: &LogRecord) -> Result<StoredRecord, CliError> {
    let canonical = canonical::event_bytes(&record.event)
        .map_err(|error| CliError::internal(format!("record {}: {error}", record.seq)))?;
    Ok(StoredRecord {
        seq: record.seq,
        prev_hash: record.prev_hash,
        hash: record.hash,
        fence: record.fence,
        canonical: canonical.into(),
        notes: record.notes.clone(),
    })
}

/// The record as an exported line, without its line end.
pub(crate) fn json_line(record: &LogRecord) -> Result<String, CliError> {
    let line = export::record_line(&stored(record)?);
    Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
}
