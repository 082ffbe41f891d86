//! Signatures, checked by ring.
//!
//! `jsonwebtoken` leaves the choice of cryptography to the process. If nothing
//! has been chosen, this is: the same library that TLS uses.

use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::signature::{self, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind, EncodingKey};
use ring::signature as ring_signature;
use ring::signature::{RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey};

/// Makes sure that signatures can be checked at all.
pub(crate) fn install() {
    if CryptoProvider::try_get_default().is_none() {
        // Lost only to another thread that chose at the same time.
        let _ = PROVIDER.install_default();
    }
}

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: no_signer,
    verifier_factory: verifier,
    key_utils: KeyUtils::new_unimplemented(),
};

/// Nothing is signed here.
fn no_signer(_: &Algorithm, _: &EncodingKey) -> Result<Box<dyn JwtSigner>, Error> {
    Err(ErrorKind::UnsupportedAlgorithm.into())
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>, Error> {
    let how = match algorithm {
        Algorithm::RS256 => How::Rsa(&ring_signature::RSA_PKCS1_2048_8192_SHA256),
        Algorithm::RS384 => How::Rsa(&ring_signature::RSA_PKCS1_2048_8192_SHA384),
        Algorithm::RS512 => How::Rsa(&ring_signature::RSA_PKCS1_2048_8192_SHA512),
        Algorithm::PS256 => How::Rsa(&ring_signature::RSA_PSS_2048_8192_SHA256),
        Algorithm::PS384 => How::Rsa(&ring_signature::RSA_PSS_2048_8192_SHA384),
        Algorithm::PS512 => How::Rsa(&ring_signature::RSA_PSS_2048_8192_SHA512),
        Algorithm::ES256 => How::Other(&ring_signature::ECDSA_P256_SHA256_FIXED),
        Algorithm::ES384 => How::Other(&ring_signature::ECDSA_P384_SHA384_FIXED),
        Algorithm::EdDSA => How::Other(&ring_signature::ED25519),
        _ => return Err(ErrorKind::UnsupportedAlgorithm.into()),
    };
    if key.family() != algorithm.family() {
        return Err(ErrorKind::InvalidKeyFormat.into());
    }
    Ok(Box::new(RingVerifier { algorithm: *algorithm, how, key: key.clone() }))
}

enum How {
    Rsa(&'static RsaParameters),
    Other(&'static dyn ring_signature::VerificationAlgorithm),
}

struct RingVerifier {
    algorithm: Algorithm,
    how: How,
    key: DecodingKey,
}

impl Verifier<Vec<u8>> for RingVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        let verified = match (&self.how, self.key.kind()) {
            (How::Rsa(parameters), DecodingKeyKind::RsaModulusExponent { n, e }) => {
                RsaPublicKeyComponents { n, e }.verify(parameters, message, signature)
            }
            (How::Other(algorithm), DecodingKeyKind::SecretOrDer(key)) => {
                UnparsedPublicKey::new(*algorithm, key).verify(message, signature)
            }
            _ => return Err(signature::Error::new()),
        };
        verified.map_err(|_| signature::Error::new())
    }
}

impl JwtVerifier for RingVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}
