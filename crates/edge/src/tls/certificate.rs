//! A certificate with its key, from PEM.

use std::sync::Arc;

use rustls::{
    Error, InconsistentKeys,
    crypto::CryptoProvider,
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject as _},
    },
    sign::CertifiedKey,
};
use x509_cert::{Certificate as Parsed, der::Decode as _};

/// A certificate, those that lead to its root, and its key.
#[derive(Clone, Debug)]
pub struct Certificate {
    pub(super) key: Arc<CertifiedKey>,
    valid_from_s: u64,
    expires_at_s: u64,
}

/// Why a certificate cannot be used. The texts go on after the name of a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// The chain is not right.
    #[error("{0}")]
    Chain(String),
    /// The key is not right.
    #[error("{0}")]
    Key(String),
    /// Each is right, but they do not belong together.
    #[error("is not the key of the first certificate")]
    NotAPair,
}

impl Certificate {
    /// Reads the chain, the server's own certificate first, and the key: PKCS#8, SEC1 or PKCS#1, not encrypted. Both are PEM.
    ///
    /// # Errors
    /// A [`CertificateError`]. It shows nothing of the key.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, CertificateError> {
        let not_pem = |e: pem::Error| {
            let what = match e {
                // The error has the bytes as numbers.
                pem::Error::MissingSectionEnd { end_marker } => {
                    format!("the line `-----END {}-----` is missing", String::from_utf8_lossy(&end_marker))
                }
                pem::Error::IllegalSectionStart { line } => {
                    format!("the line `{}` begins no section", String::from_utf8_lossy(&line).trim_end())
                }
                e => e.to_string(),
            };
            CertificateError::Chain(format!("is not a chain of certificates in PEM: {what}"))
        };
        let chain: Vec<CertificateDer<'static>> =
            CertificateDer::pem_slice_iter(chain).collect::<Result<_, _>>().map_err(not_pem)?;
        let Some(own) = chain.first() else {
            return Err(CertificateError::Chain("has no certificate; write the chain as PEM".to_owned()));
        };
        let parsed = Parsed::from_der(own).map_err(|e| {
            CertificateError::Chain(format!("has a first certificate that cannot be read: {e}"))
        })?;
        let validity = parsed.tbs_certificate().validity();
        let [valid_from_s, expires_at_s] =
            [validity.not_before, validity.not_after].map(|time| time.to_unix_duration().as_secs());
        // The parser's error is not shown, because it could quote the key.
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| {
            CertificateError::Key("has no private key in PEM that is not encrypted".to_owned())
        })?;
        let provider = provider();
        let key = CertifiedKey::from_der(chain, key, &provider).map_err(|e| match e {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => CertificateError::NotAPair,
            Error::InvalidCertificate(e) => {
                CertificateError::Chain(format!("has a first certificate that cannot be used: {e}"))
            }
            e => CertificateError::Key(format!("is not a key for TLS: {e}")),
        })?;
        Ok(Self { key: Arc::new(key), valid_from_s, expires_at_s })
    }

    /// When the server's own certificate begins to be valid, in seconds since 1970.
    #[must_use]
    pub fn valid_from_s(&self) -> u64 {
        self.valid_from_s
    }

    /// When the server's own certificate expires, in seconds since 1970.
    #[must_use]
    pub fn expires_at_s(&self) -> u64 {
        self.expires_at_s
    }
}

pub(super) fn provider() -> CryptoProvider {
    rustls::crypto::aws_lc_rs::default_provider()
}
