//! Fetches rounds of drand from a relay over HTTP.
//!
//! What a relay says is not trusted: the caller verifies the round's signature. Invariants: a call takes at most [`WITHIN`], and reads at
//! most [`MAX_BODY`] bytes.

use std::{fmt, sync::Arc, time::Duration};

use ::draw::QUICKNET;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::{
    Request, Uri,
    client::conn::http1,
    header::{HOST, USER_AGENT},
};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore, pki_types::ServerName};
use serde::Deserialize;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;

/// How long a call may take.
const WITHIN: Duration = Duration::from_secs(3);

/// The longest answer, in bytes. One of a relay has 300.
const MAX_BODY: usize = 16 << 10;

/// A relay of drand, by its address: `https://HOST` or `http://HOST:PORT`, perhaps with a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relay {
    uri: Uri,
    text: String,
}

/// Why a relay has no round.
#[derive(Debug, thiserror::Error)]
pub enum RelayFault {
    /// It cannot be reached.
    #[error("{0}")]
    Unreachable(String),
    /// It answered with this status.
    #[error("it answered with status {0}")]
    Status(u16),
    /// Its answer is no round.
    #[error("its answer is not that round: {0}")]
    NoRound(String),
}

/// The part of an answer that counts.
#[derive(Deserialize)]
struct Round {
    round: u64,
    signature: String,
}

impl fmt::Display for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Relay {
    /// A relay at this address; `None` if the text is none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let uri: Uri = text.parse().ok()?;
        let is_right = matches!(uri.scheme_str(), Some("http" | "https"))
            && uri.host().is_some_and(|host| !host.is_empty())
            && uri.query().is_none()
            && !uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
        is_right.then(|| Self { uri, text: text.to_owned() })
    }

    /// The signature of a round, in hex. The caller verifies it.
    ///
    /// # Errors
    /// [`RelayFault`].
    pub async fn fetch(&self, round: u64) -> Result<String, RelayFault> {
        let unreachable = |why: &dyn fmt::Display| RelayFault::Unreachable(why.to_string());
        match timeout(WITHIN, self.ask(round)).await {
            Ok(answer) => answer,
            Err(_) => Err(unreachable(&format_args!("it did not answer within {} s", WITHIN.as_secs()))),
        }
    }

    async fn ask(&self, round: u64) -> Result<String, RelayFault> {
        let unreachable = |why: &dyn fmt::Display| RelayFault::Unreachable(why.to_string());
        let host = self.uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let is_tls = self.uri.scheme_str() == Some("https");
        let port = self.uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let stream = TcpStream::connect((host, port)).await.map_err(|why| unreachable(&why))?;
        let bytes = if is_tls {
            let name = ServerName::try_from(host.to_owned()).map_err(|why| unreachable(&why))?;
            let connector = TlsConnector::from(client()?);
            let stream = connector.connect(name, stream).await.map_err(|why| unreachable(&why))?;
            self.get(stream, round).await?
        } else {
            self.get(stream, round).await?
        };
        let read: Round =
            serde_json::from_slice(&bytes).map_err(|why| RelayFault::NoRound(why.to_string()))?;
        if read.round != round {
            return Err(RelayFault::NoRound(format!("it is round {}", read.round)));
        }
        Ok(read.signature)
    }

    async fn get(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        round: u64,
    ) -> Result<Bytes, RelayFault> {
        let unreachable = |why: &dyn fmt::Display| RelayFault::Unreachable(why.to_string());
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|why| unreachable(&why))?;
        let connection = tokio::spawn(connection);
        let path = format!("{}/{}/public/{round}", self.uri.path().trim_end_matches('/'), QUICKNET.hash);
        let host = self.uri.authority().map_or("", |authority| authority.as_str());
        let request = Request::get(path).header(HOST, host).header(USER_AGENT, "weir");
        let request = request.body(Empty::<Bytes>::new()).map_err(|why| unreachable(&why))?;
        let response = sender.send_request(request).await.map_err(|why| unreachable(&why))?;
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), MAX_BODY).collect().await;
        connection.abort();
        if status != 200 {
            return Err(RelayFault::Status(status));
        }
        Ok(body.map_err(|why| RelayFault::NoRound(why.to_string()))?.to_bytes())
    }
}

/// The settings of TLS, with the roots of the system.
fn client() -> Result<Arc<ClientConfig>, RelayFault> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|why| RelayFault::Unreachable(why.to_string()))?;
    Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;

    #[test]
    fn addresses_of_relays_are_checked() {
        for right in ["https://api.drand.sh", "http://127.0.0.1:8080/relay", "http://[::1]:81"] {
            assert_eq!(Relay::parse(right).map(|relay| relay.to_string()).as_deref(), Some(right));
        }
        for wrong in ["", "api.drand.sh", "ftp://a", "https://", "https://u:p@a", "https://a?b=c"] {
            assert_eq!(Relay::parse(wrong), None, "{wrong}");
        }
    }

    /// A relay that answers one call with this.
    async fn relay(answer: &str) -> (Relay, tokio::task::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let at = listener.local_addr().expect("an address");
        let answer = answer.to_owned();
        let asked = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a caller");
            let mut head = vec![0; 1_024];
            let count = stream.read(&mut head).await.expect("reads");
            stream.write_all(answer.as_bytes()).await.expect("writes");
            head.truncate(count);
            String::from_utf8_lossy(&head).into_owned()
        });
        (Relay::parse(&format!("http://{at}/base/")).expect("an address"), asked)
    }

    fn ok(body: &str) -> String {
        format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
    }

    #[tokio::test]
    async fn a_round_is_fetched_and_others_are_refused() {
        let (right, asked) = relay(&ok(r#"{"round":7,"randomness":"00","signature":"ab"}"#)).await;
        assert_eq!(right.fetch(7).await.expect("there"), "ab");
        let asked = asked.await.expect("answered");
        assert!(asked.starts_with(&format!("GET /base/{}/public/7 HTTP/1.1", QUICKNET.hash)), "{asked}");
        for (answer, why) in [
            (ok(r#"{"round":8,"signature":"ab"}"#), "it is round 8"),
            (ok("[]"), "not that round"),
            ("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_owned(), "status 404"),
            (ok(&"x".repeat(MAX_BODY + 1)), "not that round"),
            (String::new(), "connection"),
        ] {
            let (wrong, _asked) = relay(&answer).await;
            let fault = wrong.fetch(7).await.expect_err("refused").to_string();
            assert!(fault.contains(why), "{fault}");
        }
    }
}
