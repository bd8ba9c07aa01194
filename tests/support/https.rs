//! Certificates, and a client that speaks HTTP/1.1 and HTTP/2 over TLS. It returns what the other suites' client returns.

use std::{
    fs, io,
    net::{Ipv4Addr, SocketAddr},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    sync::Arc,
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{
    Method, Request, Response, Version,
    body::Incoming,
    client::conn::{http1, http2},
    header::{CONTENT_TYPE, HOST, HeaderName},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::{
    ClientConfig, RootCertStore, SupportedProtocolVersion,
    pki_types::{CertificateDer, ServerName},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
    runtime::Runtime,
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::{app::body, client::Reply, clock::DEADLINE, sse::Reader, sse::StreamEvent};

/// A new runtime of this thread.
pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// A root that clients trust.
pub(crate) struct Root(CertifiedIssuer<'static, KeyPair>);

/// A pair of files in PEM, and the certificate that clients see.
pub(crate) struct Pair {
    pub(crate) chain: String,
    pub(crate) key: String,
    pub(crate) der: CertificateDer<'static>,
}

impl Root {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        Self(CertifiedIssuer::self_signed(params, key).expect("a certificate"))
    }

    /// Its own certificate.
    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate of the server that expires at the start of that year.
    pub(crate) fn certify(&self, year: i32) -> Pair {
        self.certify_between(1_975, year)
    }

    /// The same, valid from the start of a year.
    pub(crate) fn certify_between(&self, from: i32, year: i32) -> Pair {
        let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
        let mut params = CertificateParams::new(names).expect("these are names");
        params.distinguished_name.push(DnType::CommonName, "server");
        params.not_before = rcgen::date_time_ymd(from, 1, 1);
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.0).expect("a certificate");
        Pair { chain: certificate.pem(), key: key.serialize_pem(), der: certificate.der().clone() }
    }

    /// A client that offers these protocols.
    pub(crate) fn client(&self, alpn: &[&str]) -> Arc<ClientConfig> {
        self.client_of(rustls::DEFAULT_VERSIONS, alpn)
    }

    /// A client with these versions of TLS.
    pub(crate) fn client_of(
        &self,
        versions: &[&'static SupportedProtocolVersion],
        alpn: &[&str],
    ) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).expect("a root");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .expect("these versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        Arc::new(config)
    }
}

impl Pair {
    /// Puts the pair into this directory, as `cert.pem` and `key.pem`.
    pub(crate) fn write(&self, dir: &Path) {
        write(dir, &self.chain, &self.key);
    }
}

/// Writes both files. Each is complete at any time.
pub(crate) fn write(dir: &Path, chain: &str, key: &str) {
    for (name, text) in [("cert.pem", chain), ("key.pem", key)] {
        let new = dir.join("new.pem");
        fs::write(&new, text).expect("the temporary directory takes files");
        fs::set_permissions(&new, fs::Permissions::from_mode(0o600)).expect("our own file");
        fs::rename(new, dir.join(name)).expect("renamed");
    }
}

/// The TLS connection alone.
pub(crate) async fn handshake(to: SocketAddr, config: Arc<ClientConfig>) -> io::Result<TlsStream<TcpStream>> {
    over(TcpStream::connect(to).await?, config).await
}

/// The same over a connection.
pub(crate) async fn over(stream: TcpStream, config: Arc<ClientConfig>) -> io::Result<TlsStream<TcpStream>> {
    stream.set_nodelay(true)?;
    let name = ServerName::try_from("127.0.0.1").expect("an address");
    timeout(DEADLINE, TlsConnector::from(config).connect(name, stream)).await?
}

/// A TLS connection from another address of this machine.
pub(crate) async fn handshake_from(
    source: Ipv4Addr,
    to: SocketAddr,
    config: Arc<ClientConfig>,
) -> io::Result<TlsStream<TcpStream>> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((source, 0).into())?;
    over(socket.connect(to).await?, config).await
}

/// A connection of a client.
pub(crate) struct Secure {
    sender: Sender,
    /// The certificate that the server showed.
    pub(crate) certificate: CertificateDer<'static>,
    /// Ends with the connection.
    pub(crate) end: tokio::task::JoinHandle<hyper::Result<()>>,
}

enum Sender {
    One(http1::SendRequest<Full<Bytes>>),
    Two(http2::SendRequest<Full<Bytes>>),
}

impl Secure {
    /// Connects, and speaks what was agreed on.
    pub(crate) async fn connect(to: SocketAddr, config: Arc<ClientConfig>) -> io::Result<Self> {
        Ok(Self::speak(handshake(to, config).await?, &http2::Builder::new(TokioExecutor::new())).await)
    }

    pub(crate) async fn speak(stream: TlsStream<TcpStream>, two: &http2::Builder<TokioExecutor>) -> Self {
        let session = stream.get_ref().1;
        let certificate = session.peer_certificates().expect("the server has one")[0].clone().into_owned();
        let is_two = session.alpn_protocol() == Some(b"h2");
        let io = TokioIo::new(stream);
        let (sender, end) = if is_two {
            let (sender, connection) = two.handshake(io).await.expect("a connection");
            (Sender::Two(sender), tokio::spawn(connection))
        } else {
            let (sender, connection) = http1::handshake(io).await.expect("a connection");
            (Sender::One(sender), tokio::spawn(connection))
        };
        Self { sender, certificate, end }
    }

    /// The version that was agreed on.
    pub(crate) fn version(&self) -> Version {
        match self.sender {
            Sender::One(_) => Version::HTTP_11,
            Sender::Two(_) => Version::HTTP_2,
        }
    }

    /// Sends a request, and returns the head of its reply.
    pub(crate) async fn send(
        &mut self,
        mut request: Request<Full<Bytes>>,
    ) -> hyper::Result<Response<Incoming>> {
        let reply = match &mut self.sender {
            Sender::One(sender) => {
                request.headers_mut().insert(HOST, "test".parse().expect("a name"));
                sender.ready().await?;
                timeout(DEADLINE, sender.send_request(request)).await
            }
            Sender::Two(sender) => {
                let uri = format!("https://test{}", request.uri());
                *request.uri_mut() = uri.parse().expect("an address");
                sender.ready().await?;
                timeout(DEADLINE, sender.send_request(request)).await
            }
        };
        reply.expect("a reply within the deadline")
    }

    /// Sends a request, and reads its whole reply.
    pub(crate) async fn ask(&mut self, request: Request<Full<Bytes>>) -> hyper::Result<Reply> {
        let (head, body) = self.send(request).await?.into_parts();
        let body = body.collect().await?.to_bytes().to_vec();
        let text = |value: &hyper::header::HeaderValue| value.to_str().expect("text").to_owned();
        let headers =
            head.headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect();
        Ok(Reply { version: format!("{:?}", head.version), status: head.status.as_u16(), headers, body })
    }

    /// Polls, or joins without a token.
    pub(crate) async fn poll(&mut self, token: Option<&str>) -> hyper::Result<Reply> {
        let path = if token.is_some() { "/traffic/entry" } else { "/traffic/wait" };
        self.ask(post(path, &body("Z", token))).await
    }

    /// Opens the stream of a ticket.
    pub(crate) async fn stream(&mut self, token: &str) -> Stream {
        let reply = self.send(get(&format!("/traffic/stream?zone=Z&token={token}"))).await.expect("a reply");
        Stream::of(reply)
    }

    /// Waits until the connection ends.
    pub(crate) async fn ended(self) -> hyper::Result<()> {
        let ended = timeout(DEADLINE, self.end).await;
        ended.expect("the connection ends within the deadline").expect("no panic")
    }
}

pub(crate) fn get(path: &str) -> Request<Full<Bytes>> {
    Request::builder().uri(path).body(Full::default()).expect("a request")
}

pub(crate) fn post(path: &str, body: &str) -> Request<Full<Bytes>> {
    let request = Request::builder().method(Method::POST).uri(path).header(CONTENT_TYPE, "application/json");
    request.body(Full::from(body.to_owned())).expect("a request")
}

/// A user's stream.
pub(crate) struct Stream {
    reply: Response<Incoming>,
    unread: String,
    pub(crate) reader: Reader,
}

impl Stream {
    pub(crate) fn of(reply: Response<Incoming>) -> Self {
        assert_eq!(reply.status(), 200, "{reply:?}");
        let field = |name: &'static str| reply.headers().get(HeaderName::from_static(name));
        assert_eq!(field("content-type").expect("a type"), "text/event-stream");
        assert_eq!(field("cache-control").expect("a policy"), "no-store");
        assert!(field("content-length").is_none(), "{reply:?}");
        Self { reply, unread: String::new(), reader: Reader::default() }
    }

    /// The next event; none at the end of the stream.
    pub(crate) async fn next(&mut self) -> hyper::Result<Option<StreamEvent>> {
        loop {
            while let Some((block, rest)) = self.unread.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.unread = rest;
                if let Some(event) = self.reader.stream_event(&block) {
                    return Ok(Some(event));
                }
            }
            let frame = timeout(DEADLINE, self.reply.body_mut().frame()).await.expect("an event in time");
            let Some(frame) = frame.transpose()? else {
                assert_eq!(self.unread, "", "half an event");
                return Ok(None);
            };
            let data = frame.into_data().expect("no trailers");
            self.unread.push_str(std::str::from_utf8(&data).expect("UTF-8"));
        }
    }

    /// The rank that the next event tells. It must be `wait`.
    pub(crate) async fn rank(&mut self) -> u64 {
        match self.next().await {
            Ok(Some(StreamEvent::Wait(waiting))) => waiting.rank,
            other => panic!("not a wait: {other:?}"),
        }
    }
}

/// Sends bytes over TLS, and reads until the server closes.
pub(crate) async fn exchange(mut stream: TlsStream<TcpStream>, bytes: &[u8]) -> Vec<u8> {
    // The server may refuse before everything is sent.
    drop(stream.write_all(bytes).await);
    let mut reply = Vec::new();
    drop(timeout(DEADLINE, stream.read_to_end(&mut reply)).await.expect("an end within the deadline"));
    reply
}
