//! Reading a table, inside a transaction that writes or one that does not.

use mainspring_eventlog::{EngineError, Visit};
use redb::ReadableTable;

use crate::error::guarded;

type Bytes = &'static [u8];

/// The value of a key.
pub(crate) fn get_of(
    table: &impl ReadableTable<Bytes, Bytes>,
    key: &[u8],
) -> Result<Option<Vec<u8>>, EngineError> {
    guarded("read", || {
        Ok::<_, redb::StorageError>(table.get(key)?.map(|value| value.value().to_vec()))
    })
}

/// Entries with `from <= key < to`, until `visit` breaks.
pub(crate) fn scan_of(
    table: &impl ReadableTable<Bytes, Bytes>,
    from: &[u8],
    to: &[u8],
    visit: &mut Visit<'_>,
) -> Result<(), EngineError> {
    if from >= to {
        return Ok(());
    }
    let mut range = guarded("scan", || table.range(from..to))?;
    let mut next = || {
        range.next().transpose().inspect(|entry| {
            // Damage may show only now; the same calls below cannot fail any more.
            if let Some((key, value)) = entry {
                let _ = (key.value(), value.value());
            }
        })
    };
    while let Some((key, value)) = guarded("scan", &mut next)? {
        if visit(key.value(), value.value()).is_break() {
            break;
        }
    }
    Ok(())
}
