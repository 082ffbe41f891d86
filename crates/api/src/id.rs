//! Identifiers, positions and hashes, as newtypes that cannot be mixed up.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::clock::Entropy;

/// Why a text is not the identifier it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid {what}: {why}")]
pub struct IdError {
    /// The kind of identifier, such as `session uid`.
    pub what: &'static str,
    /// The rule that the text breaks.
    pub why: &'static str,
}

fn check_token(what: &'static str, text: &str) -> Result<(), IdError> {
    if text.is_empty() {
        return Err(IdError { what, why: "it is empty" });
    }
    if text.len() > 128 {
        return Err(IdError { what, why: "it is longer than 128 characters" });
    }
    if !text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.')) {
        return Err(IdError { what, why: "only letters, digits, '-', '_' and '.' are allowed" });
    }
    Ok(())
}

/// `bytes` random bytes as lowercase hex.
#[must_use]
pub fn random_hex(entropy: &dyn Entropy, bytes: usize) -> String {
    let mut raw = vec![0u8; bytes];
    entropy.fill(&mut raw);
    hex(&raw)
}

fn hex_into(raw: &[u8], out: &mut [u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (byte, pair) in raw.iter().zip(out.chunks_exact_mut(2)) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
}

fn hex(raw: &[u8]) -> String {
    let mut out = vec![0; raw.len() * 2];
    hex_into(raw, &mut out);
    String::from_utf8(out).expect("hex digits are ASCII")
}

fn unhex<const N: usize>(what: &'static str, text: &str) -> Result<[u8; N], IdError> {
    let bad = IdError { what, why: "it is not lowercase hex of the right length" };
    if text.len() != N * 2 {
        return Err(bad);
    }
    let digit = |b: u8| match b {
        b'0'..=b'9' => Ok(b - b'0'),
        b'a'..=b'f' => Ok(b - b'a' + 10),
        _ => Err(bad.clone()),
    };
    let mut out = [0u8; N];
    for (slot, pair) in out.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *slot = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Ok(out)
}

/// The uid of a session: 1 to 128 characters of `A-Z a-z 0-9 - _ .`.
///
/// Ours are `sess-` and 24 lowercase hex characters; an imported session keeps
/// the uid that it came with.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionUid(Arc<str>);

impl SessionUid {
    /// Checks and wraps `text`.
    ///
    /// # Errors
    /// [`IdError`] when it is empty, too long, or has a character outside the alphabet.
    pub fn new(text: &str) -> Result<Self, IdError> {
        check_token("session uid", text)?;
        Ok(Self(text.into()))
    }

    /// A fresh uid: `sess-` and 12 random bytes in hex.
    #[must_use]
    pub fn random(entropy: &dyn Entropy) -> Self {
        Self(format!("sess-{}", random_hex(entropy, 12)).into())
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for SessionUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for SessionUid {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        Self::new(text)
    }
}

/// The id of one execution (turn) of a session. Never empty.
///
/// Ours are 16 lowercase hex characters; journals of other writers may hold
/// any text, which is kept as it is.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExecutionId(Arc<str>);

impl ExecutionId {
    /// Wraps a recorded id.
    ///
    /// # Errors
    /// [`IdError`] when it is empty: an id-less event has no `ExecutionId` at all.
    pub fn new(text: &str) -> Result<Self, IdError> {
        if text.is_empty() {
            return Err(IdError { what: "execution id", why: "it is empty" });
        }
        Ok(Self(text.into()))
    }

    /// Wraps an id that a caller chose: exactly 16 lowercase hex characters.
    ///
    /// # Errors
    /// [`IdError`] for any other form.
    pub fn chosen(text: &str) -> Result<Self, IdError> {
        unhex::<8>("execution id", text)?;
        Ok(Self(text.into()))
    }

    /// A fresh id: 8 random bytes in hex.
    #[must_use]
    pub fn random(entropy: &dyn Entropy) -> Self {
        Self(random_hex(entropy, 8).into())
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ExecutionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ExecutionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The id of one call, for logs: 1 to 128 characters of `A-Z a-z 0-9 - _ .`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestId(String);

impl RequestId {
    /// Checks and wraps `text`.
    ///
    /// # Errors
    /// [`IdError`] when it is empty, too long, or has a character outside the alphabet.
    pub fn new(text: &str) -> Result<Self, IdError> {
        check_token("request id", text)?;
        Ok(Self(text.to_owned()))
    }

    /// A fresh id of 24 hex characters.
    #[must_use]
    pub fn random(entropy: &dyn Entropy) -> Self {
        Self(random_hex(entropy, 12))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A position in a journal. The first record is 1; 0 is "before the first".
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(u64);

impl Seq {
    /// Before the first record.
    pub const ZERO: Self = Self(0);

    /// Wraps a position. Positions never exceed `i64::MAX`, so that they travel as `int64`.
    #[must_use]
    pub const fn new(n: u64) -> Self {
        Self(n)
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The number as the wire carries it.
    #[must_use]
    pub fn as_i64(self) -> i64 {
        i64::try_from(self.0).unwrap_or(i64::MAX)
    }

    /// Reads a wire number; negative ones are no position.
    #[must_use]
    pub fn from_i64(n: i64) -> Option<Self> {
        u64::try_from(n).ok().map(Self)
    }

    /// The next position.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // `pad` semantics matter for record lines such as `seq=%-3d`.
        fmt::Display::fmt(&self.0, f)
    }
}

/// A fencing token: each new writer of a session gets a larger one.
///
/// 0 means that none was minted yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(u64);

impl Fence {
    /// No fence was minted yet.
    pub const NONE: Self = Self(0);

    /// Wraps a token.
    #[must_use]
    pub const fn new(n: u64) -> Self {
        Self(n)
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The next token.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A SHA-256 digest; displayed as 64 lowercase hex characters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash([u8; 32]);

impl Hash {
    /// Wraps a digest.
    #[must_use]
    pub const fn new(raw: [u8; 32]) -> Self {
        Self(raw)
    }

    /// The digest.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Its 64 lowercase hex characters.
    #[must_use]
    pub fn to_hex(&self) -> [u8; 64] {
        let mut out = [0; 64];
        hex_into(&self.0, &mut out);
        out
    }

    /// Reads 64 lowercase hex characters.
    ///
    /// # Errors
    /// [`IdError`] for any other form.
    pub fn from_hex(text: &str) -> Result<Self, IdError> {
        Ok(Self(unhex::<32>("hash", text)?))
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.to_hex()).expect("hex digits are ASCII"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

/// The end of a journal: position and hash of its last record.
///
/// The compare-and-swap of every append is on the whole head, so two histories
/// of equal length are never taken for each other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Head {
    /// Position of the last record; 0 when empty.
    pub seq: Seq,
    /// Hash of the last record; `None` exactly when the journal is empty.
    pub hash: Option<Hash>,
}

impl Head {
    /// The head of an empty journal.
    pub const EMPTY: Self = Self { seq: Seq::ZERO, hash: None };

    /// The head after a record.
    #[must_use]
    pub const fn at(seq: Seq, hash: Hash) -> Self {
        Self { seq, hash: Some(hash) }
    }

    /// `prev_hash` of the record that follows: empty before the first record.
    #[must_use]
    pub fn prev_hash(&self) -> String {
        self.hash.map_or_else(String::new, |hash| hash.to_string())
    }
}

impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.hash {
            Some(hash) => write!(f, "{}:{hash}", self.seq),
            None => write!(f, "{}:", self.seq),
        }
    }
}

impl FromStr for Head {
    type Err = IdError;

    /// Reads `SEQ:HASH`; the hash is empty exactly when SEQ is 0.
    fn from_str(text: &str) -> Result<Self, IdError> {
        let bad = IdError { what: "head", why: "it is not SEQ:HASH" };
        let (seq, hash) = text.split_once(':').ok_or_else(|| bad.clone())?;
        let seq: u64 = seq.parse().map_err(|_| bad.clone())?;
        match (seq, hash) {
            (0, "") => Ok(Self::EMPTY),
            (0, _) | (_, "") => Err(bad),
            (n, hash) => Ok(Self::at(Seq::new(n), Hash::from_hex(hash)?)),
        }
    }
}

/// A random 16-byte id that makes a store operation repeatable.
///
/// Sending the same operation again under the same id settles an unknown outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AppendId([u8; 16]);

impl AppendId {
    /// A fresh id.
    #[must_use]
    pub fn random(entropy: &dyn Entropy) -> Self {
        let mut raw = [0u8; 16];
        entropy.fill(&mut raw);
        Self(raw)
    }

    /// Wraps an id that was stored or derived.
    #[must_use]
    pub const fn new(raw: [u8; 16]) -> Self {
        Self(raw)
    }

    /// Reads 32 lowercase hex characters.
    ///
    /// # Errors
    /// [`IdError`] for any other form.
    pub fn from_hex(text: &str) -> Result<Self, IdError> {
        Ok(Self(unhex::<16>("append id", text)?))
    }

    /// Its bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for AppendId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

/// The random id of a store, drawn when it was created. All compute is labelled with it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StoreId(Arc<str>);

impl StoreId {
    /// Checks and wraps a stored id.
    ///
    /// # Errors
    /// [`IdError`] when it is empty, too long, or has a character outside the alphabet.
    pub fn new(text: &str) -> Result<Self, IdError> {
        check_token("store id", text)?;
        Ok(Self(text.into()))
    }

    /// A fresh id of 32 hex characters.
    #[must_use]
    pub fn random(entropy: &dyn Entropy) -> Self {
        Self(random_hex(entropy, 16).into())
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::OsEntropy;

    #[test]
    fn ids_have_the_documented_forms() {
        let uid = SessionUid::random(&OsEntropy);
        assert_eq!(uid.as_str().len(), 29);
        assert!(SessionUid::new("a/b").is_err());
        assert!(SessionUid::new("").is_err());
        assert!(SessionUid::new(&"x".repeat(129)).is_err());
        assert!(ExecutionId::chosen("0123456789abcdef").is_ok());
        assert!(ExecutionId::chosen("0123456789ABCDEF").is_err());
        assert!(ExecutionId::chosen("0123").is_err());
    }

    #[test]
    fn head_reads_what_it_prints() {
        let head = Head::at(Seq::new(7), Hash::new([0xab; 32]));
        assert_eq!(head.to_string().parse::<Head>().unwrap(), head);
        assert_eq!("0:".parse::<Head>().unwrap(), Head::EMPTY);
        for bad in ["", "7", "7:", "0:ab", "x:ab", "7:zz"] {
            assert!(bad.parse::<Head>().is_err(), "{bad}");
        }
    }
}
