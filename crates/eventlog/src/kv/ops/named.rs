//! Small named rows.

use mainspring_api::{AppendId, Bytes};

use super::{Reply, Result, Transaction};
use crate::engine::{KvRead, Space};
use crate::error::LogError;
use crate::kv::keys;
use crate::log::{NAMED_ROW_BYTES_MAX, NamedRow, RowKey};

/// A named row as it is stored: `version, operation id, 00 | 01 value`.
pub(in crate::kv) struct StoredNamed {
    pub(in crate::kv) version: u64,
    pub(in crate::kv) id: AppendId,
    pub(in crate::kv) value: Option<Bytes>,
}

pub(in crate::kv) fn decode_named(stored: &[u8]) -> Result<StoredNamed> {
    let parts = || {
        let (version, rest) = stored.split_first_chunk::<8>()?;
        let (id, rest) = rest.split_first_chunk::<16>()?;
        let value = match rest.split_first()? {
            (0, []) => None,
            (1, value) => Some(Bytes::copy_from_slice(value)),
            _ => return None,
        };
        Some(StoredNamed { version: u64::from_be_bytes(*version), id: AppendId::new(*id), value })
    };
    parts().ok_or_else(|| LogError::Corrupt { what: "named row".to_owned() }.into())
}

/// The row, unless it was removed.
pub(in crate::kv) fn live_named(stored: StoredNamed) -> Option<NamedRow> {
    let version = stored.version;
    stored.value.map(|value| NamedRow { version, value })
}

pub(in crate::kv) fn stored_named(kv: &dyn KvRead, key: &RowKey) -> Result<Option<StoredNamed>> {
    kv.get(Space::Named, &keys::named(key.kind(), key.name()))?
        .map(|stored| decode_named(&stored))
        .transpose()
}

impl Transaction<'_> {
    pub(super) fn put_named(
        &mut self,
        id: AppendId,
        key: &RowKey,
        version: u64,
        value: Option<&Bytes>,
    ) -> Result<Reply> {
        let bytes = value.map_or(0, Bytes::len);
        if bytes > NAMED_ROW_BYTES_MAX {
            return Err(LogError::TooLarge {
                what: "named row",
                bytes: bytes as u64,
                bytes_max: NAMED_ROW_BYTES_MAX as u64,
            }
            .into());
        }
        let current = stored_named(self.kv, key)?.map_or(0, |stored| stored.version);
        if current != version {
            return Err(LogError::Moved { what: "the row's version" }.into());
        }
        let next = version + 1;
        let mut stored = next.to_be_bytes().to_vec();
        stored.extend_from_slice(id.as_bytes());
        stored.push(u8::from(value.is_some()));
        stored.extend_from_slice(value.map_or(&[], |value| value.as_ref()));
        self.kv.put(Space::Named, &keys::named(key.kind(), key.name()), &stored)?;
        self.wrote = true;
        Ok(Reply::Version(next))
    }
}
