//! What a fold of a partition came to, up to some message.

use mainspring_eventlog::{EngineError, KvRead, KvWrite, Space};
use sha2::{Digest as _, Sha256};

use crate::judge::FoldDigest;

const KEY: &[u8] = b"fold";

/// Where a fold stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The next message.
    pub(crate) next: u64,
    /// The rules level that is active.
    pub(crate) level: u16,
    pub(crate) digest: FoldDigest,
    /// The last message that was folded, and the hash of its bytes.
    pub(crate) last: Option<(u64, [u8; 32])>,
}

impl Mark {
    /// Before the first message.
    pub(crate) const START: Self =
        Self { next: 0, level: 0, digest: FoldDigest([0; 32]), last: None };

    pub(crate) fn hash_of(message: &[u8]) -> [u8; 32] {
        Sha256::digest(message).into()
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(90);
        out.extend_from_slice(&self.next.to_be_bytes());
        out.extend_from_slice(&self.level.to_be_bytes());
        out.extend_from_slice(&self.digest.0);
        if let Some((offset, hash)) = &self.last {
            out.extend_from_slice(&offset.to_be_bytes());
            out.extend_from_slice(hash);
        }
        out
    }

    pub(crate) fn decode(stored: &[u8]) -> Option<Self> {
        let (next, rest) = stored.split_first_chunk::<8>()?;
        let (level, rest) = rest.split_first_chunk::<2>()?;
        let (digest, rest) = rest.split_first_chunk::<32>()?;
        let last = match rest {
            [] => None,
            rest => {
                let (offset, hash) = rest.split_first_chunk::<8>()?;
                Some((u64::from_be_bytes(*offset), hash.try_into().ok()?))
            }
        };
        Some(Self {
            next: u64::from_be_bytes(*next),
            level: u16::from_be_bytes(*level),
            digest: FoldDigest(*digest),
            last,
        })
    }

    /// Where the view of a partition stands.
    pub(crate) fn load(kv: &dyn KvRead) -> Result<Self, EngineError> {
        match kv.get(Space::Meta, KEY)? {
            None => Ok(Self::START),
            Some(stored) => Self::decode(&stored).ok_or_else(|| {
                crate::messages::refused("the view's position cannot be read".to_owned())
            }),
        }
    }

    pub(crate) fn store(&self, kv: &mut dyn KvWrite) -> Result<(), EngineError> {
        kv.put(Space::Meta, KEY, &self.encode())
    }
}
