//! Encryption of the connections to an `https` target.
//!
//! Invariant: the server's certificate is verified, unless the command line says otherwise.

use std::{io, sync::Arc};

use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore,
    SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _},
};
use serde::{Deserialize, Serialize};

/// Whom to believe that a server is the one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Trust {
    /// The authorities that this machine trusts.
    #[default]
    System,
    /// Only these authorities: certificates as PEM.
    Authorities(String),
    /// Whoever answers.
    Anybody,
}

/// How the server proves who it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tls {
    /// The name or the address that its certificate must have.
    pub name: String,
    /// Who may sign the certificate.
    pub trust: Trust,
}

impl Tls {
    /// The settings of encrypted connections for HTTP/1.1, and the name to verify.
    ///
    /// # Errors
    /// If the name can have no certificate, or there are no certificates to trust.
    pub fn client(&self) -> Result<(Arc<ClientConfig>, ServerName<'static>), String> {
        let name = ServerName::try_from(self.name.clone())
            .map_err(|_| format!("{}: no certificate can have this name", self.name))?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let mut config = match &self.trust {
            Trust::System => builder.with_root_certificates(of_this_machine()?).with_no_client_auth(),
            Trust::Authorities(pem) => {
                let roots = of_file(pem).map_err(|error| format!("--ca: {error}"))?;
                builder.with_root_certificates(roots).with_no_client_auth()
            }
            Trust::Anybody => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(Anybody(provider)))
                .with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok((Arc::new(config), name))
    }
}

fn of_this_machine() -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err("this machine trusts no authority; install ca-certificates, or give --ca FILE".to_owned());
    }
    Ok(roots)
}

/// The authorities of a file.
///
/// # Errors
/// If it has none that can be trusted.
pub(crate) fn of_file(pem: &str) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate = certificate.map_err(|_| "is not PEM".to_owned())?;
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    if roots.is_empty() {
        return Err("has no certificate; it must be PEM".to_owned());
    }
    Ok(roots)
}

/// What to say about a connection that was not encrypted; none if `error` has another cause.
pub(crate) fn failure(error: &io::Error) -> Option<String> {
    let error = error.get_ref()?.downcast_ref::<Error>()?;
    Some(match error {
        Error::InvalidCertificate(error) => not_verified(error),
        Error::AlertReceived(AlertDescription::NoApplicationProtocol) => {
            "the server does not speak the version of HTTP that was asked for; with --http2 that is HTTP/2"
                .to_owned()
        }
        Error::InvalidMessage(_) => "the server does not speak TLS".to_owned(),
        error => format!("TLS: {error}"),
    })
}

/// Why a certificate was not verified, and what to do. The texts of the verifier are for its developers.
fn not_verified(error: &CertificateError) -> String {
    let (why, instead) = match error {
        CertificateError::UnknownIssuer => {
            ("is of an authority that is not trusted", "give the authority's certificate with --ca FILE")
        }
        // The verifier has no kind of its own for it.
        error if error.to_string().contains("CaUsedAsEndEntity") => (
            "is self-signed: it is that of an authority, not one that it signed for the server",
            "use one that an authority signed, and give the authority's with --ca FILE",
        ),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => (
            "is for another name",
            "write one of its names in --target, and that name's address in --resolve HOST:PORT:ADDRESS",
        ),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => ("has expired", "renew it"),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            ("is not valid yet", "correct the clock of this machine or the certificate")
        }
        _ => ("cannot be verified", "use one that a trusted authority signed"),
    };
    format!("the certificate {why}; {instead}, or believe any certificate with --insecure")
}

/// Believes whoever answers. The handshake's signatures are still verified.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustls::OtherError;

    use super::*;

    /// Each failure is a sentence that says what to do, without the names of types.
    #[test]
    fn a_certificate_that_is_not_verified_says_what_to_do() {
        let time = UnixTime::since_unix_epoch(Duration::ZERO);
        let other =
            |text: &str| CertificateError::Other(OtherError(Arc::new(io::Error::other(text.to_owned()))));
        for (error, advice) in [
            (CertificateError::UnknownIssuer, "--ca FILE"),
            (other("CaUsedAsEndEntity"), "--ca FILE"),
            (other("UnsupportedCertVersion"), "authority"),
            (CertificateError::NotValidForName, "--resolve"),
            (CertificateError::ExpiredContext { time, not_after: time }, "renew"),
            (CertificateError::NotValidYetContext { time, not_before: time }, "clock"),
            (CertificateError::BadSignature, "authority"),
        ] {
            let said = failure(&io::Error::other(Error::InvalidCertificate(error.clone()))).expect("TLS");
            assert!(said.contains(advice) && said.contains("--insecure"), "{error:?}: {said}");
            assert!(!said.contains("Error") && !said.contains('\n'), "{error:?}: {said}");
        }
    }
}
