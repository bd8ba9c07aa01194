//! A stream to a server, with TLS if the address asks for it.
//!
//! Invariant: the caller sets the time limit. Of several addresses of a name, the first that takes a connection is used; one whose
//! packets are dropped does not delay the others.

use std::{io, net::SocketAddr, sync::Arc};

use rustls::{
    ClientConfig, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
};
use rustls_native_certs::load_native_certs;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, lookup_host},
    task::JoinSet,
};
use tokio_rustls::TlsConnector;

use crate::address::{Address, Settings};

/// How many addresses of one name are tried.
const MAX_ADDRESSES: usize = 16;

/// A stream to a server.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Connects to a server.
pub(super) async fn open(
    host: &str,
    port: u16,
    address: &Address,
    settings: &Settings,
) -> Result<Box<dyn Stream>, String> {
    let said = |error: io::Error| error.to_string();
    let (tcp, _) = first_of(addresses(host, port).await.map_err(said)?).await.map_err(said)?;
    tcp.set_nodelay(true).map_err(said)?;
    if !address.tls {
        return Ok(Box::new(tcp));
    }
    let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
    let connector = TlsConnector::from(Arc::new(tls(settings)?));
    Ok(Box::new(connector.connect(name, tcp).await.map_err(said)?))
}

/// The addresses of a host.
pub(super) async fn addresses(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    Ok(lookup_host((host, port)).await?.take(MAX_ADDRESSES).collect())
}

/// The first of several addresses to take a connection.
///
/// # Errors
/// Why the last one took none.
pub(super) async fn first_of(addresses: Vec<SocketAddr>) -> io::Result<(TcpStream, SocketAddr)> {
    let mut attempts = JoinSet::new();
    for address in addresses {
        attempts.spawn(async move { TcpStream::connect(address).await.map(|stream| (stream, address)) });
    }
    let mut last = io::Error::other("the name has no address");
    while let Some(attempt) = attempts.join_next().await {
        match attempt.unwrap_or_else(|panic| Err(io::Error::other(panic))) {
            Ok(connected) => return Ok(connected),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Whom to trust, and who we are.
pub(super) fn tls(settings: &Settings) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    let certificates = match &settings.ca_pem {
        Some(pem) => CertificateDer::pem_slice_iter(pem)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| format!("the PEM of the certificates: {error}"))?,
        None => load_native_certs().certs,
    };
    for certificate in certificates {
        roots.add(certificate).map_err(|error| format!("a certificate: {error}"))?;
    }
    let config = ClientConfig::builder_with_provider(aws_lc_rs::default_provider().into())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots);
    match &settings.identity {
        None => Ok(config.with_no_client_auth()),
        Some(identity) => {
            let chain = CertificateDer::pem_slice_iter(&identity.certificate_pem).collect::<Result<_, _>>();
            let chain = chain.map_err(|error| format!("the PEM of the client's certificate: {error}"))?;
            let key = PrivateKeyDer::from_pem_slice(&identity.key_pem)
                .map_err(|error| format!("the PEM of the client's key: {error}"))?;
            config.with_client_auth_cert(chain, key).map_err(|error| error.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name may have an address where nobody listens, such as `[::1]`, and one whose packets are dropped.
    #[tokio::test]
    async fn all_addresses_of_a_name_are_tried() {
        let local = |address: &str| -> SocketAddr { address.parse().expect("an address") };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let there = listener.local_addr().expect("it is bound");
        let refused = local(&format!("[::1]:{}", there.port()));
        let refused_too = local(&format!("127.0.0.2:{}", there.port()));
        // TEST-NET-1: no machine has this address.
        let dropped = local("192.0.2.1:6379");
        for before in [vec![refused], vec![refused_too, dropped], vec![dropped, refused]] {
            let found = first_of(before.into_iter().chain([there]).collect()).await;
            assert_eq!(found.expect("one takes it").1, there);
        }
        let error = first_of(vec![refused, refused_too]).await.expect_err("nobody listens");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        first_of(Vec::new()).await.expect_err("no address, no stream");
    }
}
