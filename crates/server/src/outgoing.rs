//! Connections to other servers over HTTP: relays of drand, and a collector of OpenTelemetry.
//!
//! Invariants: an address holds no user and no password, so it may be shown; a connection ends with its [`Link`]. How long a call may take
//! and how long a reply may be is the caller's concern.

use std::{fmt, sync::Arc};

use hyper::{Uri, body::Body, client::conn::http1};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    task::JoinSet,
};
use tokio_rustls::TlsConnector;

/// `https://HOST` or `http://HOST:PORT`, perhaps with a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    uri: Uri,
    text: String,
}

/// An open connection.
pub struct Link<B> {
    /// Sends one request after the other.
    pub sender: http1::SendRequest<B>,
    /// Reads and writes; ends when this is dropped.
    _connection: JoinSet<()>,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Address {
    /// Reads an address; `None` if the text is none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let uri: Uri = text.parse().ok()?;
        let is_right = matches!(uri.scheme_str(), Some("http" | "https"))
            && uri.host().is_some_and(|host| !host.is_empty())
            && uri.query().is_none()
            && !uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
        is_right.then(|| Self { uri, text: text.to_owned() })
    }

    /// The value of the header `Host`.
    #[must_use]
    pub fn authority(&self) -> &str {
        self.uri.authority().map_or("", |authority| authority.as_str())
    }

    /// The host, without a port and without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        self.uri.host().unwrap_or_default().trim_matches(['[', ']'])
    }

    /// The path, without a slash at its end.
    #[must_use]
    pub fn path(&self) -> &str {
        self.uri.path().trim_end_matches('/')
    }

    /// Whether connections are encrypted.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.uri.scheme_str() == Some("https")
    }

    /// Opens a connection. Certificates are checked against the roots of the system.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn open<B>(&self) -> Result<Link<B>, String>
    where
        B: Body<Data: Send, Error: std::error::Error + Send + Sync> + Send + 'static,
    {
        let port = self.uri.port_u16().unwrap_or(if self.is_encrypted() { 443 } else { 80 });
        let stream = TcpStream::connect((self.host(), port)).await.map_err(|why| why.to_string())?;
        let _ = stream.set_nodelay(true);
        if !self.is_encrypted() {
            return link(stream).await;
        }
        let name = ServerName::try_from(self.host().to_owned()).map_err(|why| why.to_string())?;
        let connector = TlsConnector::from(trust()?);
        link(connector.connect(name, stream).await.map_err(|why| why.to_string())?).await
    }
}

async fn link<B>(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Result<Link<B>, String>
where
    B: Body<Data: Send, Error: std::error::Error + Send + Sync> + Send + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|why| why.to_string())?;
    let mut task = JoinSet::new();
    task.spawn(async {
        // The sender hears of it, too.
        let _ = connection.await;
    });
    Ok(Link { sender, _connection: task })
}

/// The settings of TLS, with the roots of the system.
fn trust() -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|why| why.to_string())?;
    Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked() {
        for right in ["https://api.drand.sh", "http://127.0.0.1:8080/relay", "http://[::1]:81"] {
            assert_eq!(Address::parse(right).map(|address| address.to_string()).as_deref(), Some(right));
        }
        for wrong in ["", "api.drand.sh", "ftp://a", "https://", "https://u:p@a", "https://a?b=c"] {
            assert_eq!(Address::parse(wrong), None, "{wrong}");
        }
        let address = Address::parse("https://[::1]:81/base/").expect("right");
        assert_eq!((address.host(), address.authority(), address.path()), ("::1", "[::1]:81", "/base"));
    }
}
