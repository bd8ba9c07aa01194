//! Rehearsals of a room behind `https` or HTTP/2: whom the generator believes, and what it sends.

use std::{
    convert::Infallible,
    fs,
    net::SocketAddr,
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use http_body_util::{BodyExt as _, Collected, Full};
use hyper::{
    Request, Response,
    body::Incoming,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{CertificateParams, CertifiedIssuer, KeyPair};
use rustls::{
    ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;

const HOST: &str = "shop.example";

/// A room that lets everybody in. It ends with the runtime.
struct Room {
    address: SocketAddr,
    /// The headers `x-rehearsal` of the calls.
    heard: Arc<Mutex<Vec<String>>>,
    /// The number of connections, that of the check before the run included.
    connections: Arc<AtomicUsize>,
    is_encrypted: bool,
    /// The certificate of the room's authority is in `ca.pem`, and a short profile in `short.toml`.
    dir: TempDir,
}

/// How the room speaks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Speaks {
    /// HTTP/1.1 over TLS, without ALPN.
    Https,
    /// HTTP/2 over TLS.
    Http2Tls,
    /// HTTP/1.1 over TLS, and it says so in the handshake.
    Http1Tls,
    /// HTTP/2, not encrypted.
    Http2,
    /// HTTP/1.1, not encrypted.
    Http1,
}

impl Room {
    async fn open(speaks: Speaks) -> Self {
        let key = KeyPair::generate().expect("a key");
        let authority = {
            let mut params = CertificateParams::new([]).expect("no names");
            params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
            CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority")
        };
        let certificate = CertificateParams::new([HOST.to_owned()])
            .and_then(|params| params.signed_by(&key, &authority))
            .expect("a certificate");
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join("ca.pem"), authority.pem()).expect("written");
        fs::write(
            dir.path().join("short.toml"),
            "users = 20\nsteps = [[1, 1.0], [1, 0.0]]\nfirst_sleep_s = [0, 0]\n",
        )
        .expect("written");
        let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
            )
            .expect("a key for the certificate");
        config.alpn_protocols = match speaks {
            Speaks::Http2Tls => vec![b"h2".to_vec()],
            Speaks::Http1Tls => vec![b"http/1.1".to_vec()],
            _ => Vec::new(),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let heard = Arc::<Mutex<Vec<String>>>::default();
        let connections = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&connections);
        let is_encrypted = !matches!(speaks, Speaks::Http1 | Speaks::Http2);
        let acceptor = is_encrypted.then(|| TlsAcceptor::from(Arc::new(config)));
        let noted = Arc::clone(&heard);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.expect("a connection");
                counted.fetch_add(1, Ordering::Relaxed);
                let (acceptor, noted) = (acceptor.clone(), Arc::clone(&noted));
                tokio::spawn(async move {
                    match acceptor {
                        None => serve(speaks, stream, noted).await,
                        Some(acceptor) => {
                            if let Ok(stream) = acceptor.accept(stream).await {
                                serve(speaks, stream, noted).await;
                            }
                        }
                    }
                });
            }
        });
        Self { address, heard, connections, is_encrypted, dir }
    }

    /// Rehearses with these arguments; gives the exit code and what was said on standard error.
    async fn rehearse(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let scheme = if self.is_encrypted { "https" } else { "http" };
        let target = format!("{scheme}://{HOST}:{}", self.address.port());
        let resolve = format!("{HOST}:{}:127.0.0.1", self.address.port());
        let mut command = Command::new(env!("CARGO_BIN_EXE_loadgen"));
        command
            .current_dir(self.dir.path())
            .args(["run", "--zone", "Z", "--profile", "short.toml", "--workers", "1"])
            .args(["--target", &target, "--resolve", &resolve])
            .args(arguments);
        let ended = tokio::task::spawn_blocking(move || command.output().expect("loadgen runs"));
        let ended = ended.await.expect("no panic");
        (ended.status.code(), String::from_utf8(ended.stderr).expect("text"))
    }
}

async fn serve(
    speaks: Speaks,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    noted: Arc<Mutex<Vec<String>>>,
) {
    let service = service_fn(move |request| reply(Arc::clone(&noted), request));
    if matches!(speaks, Speaks::Http2 | Speaks::Http2Tls) {
        drop(http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await);
    } else {
        drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
    }
}

async fn reply(
    heard: Arc<Mutex<Vec<String>>>,
    request: Request<Incoming>,
) -> Result<Response<Full<bytes::Bytes>>, Infallible> {
    let header = request.headers().get("x-rehearsal").map(|value| value.to_str().expect("text").to_owned());
    let call = {
        let mut heard = heard.lock().expect("unpoisoned");
        heard.push(header.unwrap_or_default());
        heard.len().to_string()
    };
    let host = request.headers().get("host").map(|host| host.to_str().expect("text"));
    let host = request.uri().authority().map(hyper::http::uri::Authority::as_str).or(host);
    assert!(host.is_some_and(|host| host.starts_with(HOST)), "{host:?}");
    let body = request.into_body().collect().await.map(Collected::to_bytes).unwrap_or_default();
    let body = serde_json::from_slice::<serde_json::Value>(&body).unwrap_or_default();
    // Each user has a pass of the own, and the token says which.
    let token = body["token"].as_str().unwrap_or(&call);
    let entered = serde_json::json!({"canEnter": true, "token": token, "pass": token});
    Ok(Response::new(Full::new(entered.to_string().into())))
}

#[tokio::test]
async fn a_certificate_of_a_given_authority_is_believed_and_headers_are_sent() {
    let room = Room::open(Speaks::Https).await;
    let (code, said) = room.rehearse(&["--ca", "ca.pem", "-H", "X-Rehearsal: yes"]).await;
    assert_eq!(code, Some(3), "the run itself succeeds, but nobody waits: {said}");
    let heard = room.heard.lock().expect("unpoisoned");
    assert!(heard.len() > 20 && heard.iter().all(|header| header == "yes"), "{heard:?}");
}

#[tokio::test]
async fn an_unknown_authority_ends_the_run_before_it_begins() {
    let room = Room::open(Speaks::Https).await;
    let (code, said) = room.rehearse(&[]).await;
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("--ca FILE") && said.lines().count() == 1, "{said}");
    assert!(room.heard.lock().expect("unpoisoned").is_empty());
}

#[tokio::test]
async fn who_believes_anybody_is_warned() {
    let room = Room::open(Speaks::Https).await;
    let (code, said) = room.rehearse(&["--insecure"]).await;
    assert_eq!(code, Some(3), "the run itself succeeds, but nobody waits: {said}");
    assert!(said.contains("WARNING: --insecure"), "{said}");
    assert!(room.heard.lock().expect("unpoisoned").len() > 20);
}

#[tokio::test]
async fn all_users_share_few_connections_over_http2() {
    for speaks in [Speaks::Http2Tls, Speaks::Http2] {
        let room = Room::open(speaks).await;
        let more: &[&str] = if room.is_encrypted { &["--ca", "ca.pem"] } else { &[] };
        let arguments = [&["--http2", "--connections", "2", "-H", "X-Rehearsal: yes"], more].concat();
        let (code, said) = room.rehearse(&arguments).await;
        assert_eq!(code, Some(3), "the run itself succeeds, but nobody waits: {said}");
        let heard = room.heard.lock().expect("unpoisoned");
        assert!(heard.len() > 20 && heard.iter().all(|header| header == "yes"), "{heard:?}");
        assert_eq!(
            room.connections.load(Ordering::Relaxed),
            4,
            "two of the users, one of the check before, and one that asked for the published rule"
        );
    }
}

#[tokio::test]
async fn a_target_without_http2_ends_the_run_before_it_begins() {
    for speaks in [Speaks::Https, Speaks::Http1Tls, Speaks::Http1] {
        let room = Room::open(speaks).await;
        let more: &[&str] = if room.is_encrypted { &["--ca", "ca.pem"] } else { &[] };
        let (code, said) = room.rehearse(&[&["--http2"], more].concat()).await;
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("--http2") && said.lines().count() == 1, "{said}");
        assert!(room.heard.lock().expect("unpoisoned").is_empty());
    }
}
