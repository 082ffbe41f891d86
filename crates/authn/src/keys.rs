//! The keys of an issuer, as it publishes them.

use jsonwebtoken::jwk::{
    AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, KeyOperations, PublicKeyUse,
};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind};
use serde::Deserialize;
use serde_json::Value;

/// The keys that one issuer may publish at a time.
pub const JWKS_KEYS_MAX: usize = 128;

/// The bits that the modulus of an RSA key may have.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2_048..=8_192;

/// Public keys that tokens may be signed with. Holds nothing secret.
#[derive(Debug, Default)]
pub(crate) struct KeySet {
    keys: Vec<Key>,
}

#[derive(Debug)]
struct Key {
    id: Option<String>,
    /// The only algorithm that it may be used with, if it says so.
    algorithm: Option<KeyAlgorithm>,
    /// The algorithm that its curve stands for.
    curve: Option<Algorithm>,
    key: DecodingKey,
}

/// What a set has for a token.
#[derive(Debug)]
pub(crate) enum Found<'a> {
    /// The key.
    Key(&'a DecodingKey),
    /// The key is there, and is not for this algorithm; or it is not said
    /// which of several keys that fit it is.
    Unfit,
    /// There is no such key; or none is named, and none fits.
    Unknown,
}

impl KeySet {
    /// Reads a JWK set. A key that is of no use for checking signatures is
    /// passed over: an issuer may publish others beside it.
    ///
    /// # Errors
    /// Says what is wrong with the set, and nothing that is in it.
    pub(crate) fn parse(document: &[u8]) -> Result<Self, &'static str> {
        #[derive(Deserialize)]
        struct Document {
            keys: Vec<Value>,
        }
        let document: Document =
            serde_json::from_slice(document).map_err(|_| "it is no set of keys")?;
        if document.keys.len() > JWKS_KEYS_MAX {
            return Err("it has more than 128 keys (JWKS_KEYS_MAX)");
        }
        Ok(Self { keys: document.keys.into_iter().filter_map(Key::read).collect() })
    }

    /// Whether nothing can be checked with it.
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The key that a token names. A token that names none is taken to mean
    /// the one key that fits its algorithm.
    pub(crate) fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Found<'_> {
        let Some(id) = id else {
            let mut fitting = self.keys.iter().filter(|key| key.fits(algorithm));
            return match (fitting.next(), fitting.next()) {
                (Some(key), None) => Found::Key(&key.key),
                (None, _) => Found::Unknown,
                _ => Found::Unfit,
            };
        };
        let mut named = self.keys.iter().filter(|key| key.id.as_deref() == Some(id)).peekable();
        if named.peek().is_none() {
            return Found::Unknown;
        }
        named.find(|key| key.fits(algorithm)).map_or(Found::Unfit, |key| Found::Key(&key.key))
    }
}

impl Key {
    fn read(value: Value) -> Option<Self> {
        let jwk: Jwk = serde_json::from_value(value).ok()?;
        let common = &jwk.common;
        let is_for_signatures =
            matches!(common.public_key_use, None | Some(PublicKeyUse::Signature))
                && common
                    .key_operations
                    .as_ref()
                    .is_none_or(|operations| operations.contains(&KeyOperations::Verify));
        let curve = match &jwk.algorithm {
            AlgorithmParameters::RSA(_) => None,
            AlgorithmParameters::EllipticCurve(key) => match key.curve {
                EllipticCurve::P256 => Some(Algorithm::ES256),
                EllipticCurve::P384 => Some(Algorithm::ES384),
                _ => return None,
            },
            AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
                Some(Algorithm::EdDSA)
            }
            _ => return None,
        };
        let key = DecodingKey::from_jwk(&jwk).ok()?;
        let id = common.key_id.clone();
        let key = Self { id, algorithm: common.key_algorithm, curve, key };
        (is_for_signatures && key.is_sound()).then_some(key)
    }

    /// Whether it has the size that its kind must have.
    fn is_sound(&self) -> bool {
        match (self.key.kind(), self.curve) {
            (DecodingKeyKind::RsaModulusExponent { n, .. }, None) => {
                let zeros = n.iter().take_while(|byte| **byte == 0).count();
                let bits = (n.len() - zeros) * 8
                    - n.get(zeros).map_or(0, |byte| byte.leading_zeros() as usize);
                RSA_BITS.contains(&bits)
            }
            (DecodingKeyKind::SecretOrDer(bytes), Some(Algorithm::ES256)) => bytes.len() == 65,
            (DecodingKeyKind::SecretOrDer(bytes), Some(Algorithm::ES384)) => bytes.len() == 97,
            (DecodingKeyKind::SecretOrDer(bytes), Some(_)) => bytes.len() == 32,
            _ => false,
        }
    }

    fn fits(&self, algorithm: Algorithm) -> bool {
        let by_kind = match self.curve {
            Some(curve) => curve == algorithm,
            None => algorithm.family() == AlgorithmFamily::Rsa,
        };
        by_kind && self.algorithm.is_none_or(|only| only == KeyAlgorithm::from(algorithm))
    }
}
