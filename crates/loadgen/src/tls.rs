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
            Trust::Authorities(pem) => builder.with_root_certificates(of_file(pem)?).with_no_client_auth(),
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

fn of_file(pem: &str) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate = certificate.map_err(|_| "--ca: is not PEM".to_owned())?;
        roots.add(certificate).map_err(|error| format!("--ca: {error}"))?;
    }
    if roots.is_empty() {
        return Err("--ca: has no certificate; it must be PEM".to_owned());
    }
    Ok(roots)
}

/// What to say about a connection that was not encrypted; none if `error` has another cause.
pub(crate) fn failure(error: &io::Error) -> Option<String> {
    let error = error.get_ref()?.downcast_ref::<Error>()?;
    Some(match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "the certificate is of an authority that is not trusted; give its certificate with --ca FILE"
                .to_owned()
        }
        Error::AlertReceived(AlertDescription::NoApplicationProtocol) => {
            "the server does not speak the version of HTTP that was asked for; with --http2 that is HTTP/2"
                .to_owned()
        }
        Error::InvalidMessage(_) => "the server does not speak TLS".to_owned(),
        // The verifier has no kind of its own for it.
        error if error.to_string().contains("CaUsedAsEndEntity") => {
            "the certificate is that of an authority, not one that it signed for the server".to_owned()
        }
        error => format!("TLS: {error}"),
    })
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
