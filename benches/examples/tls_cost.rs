//! What TLS costs a server: processor time of a poll and of a handshake, and memory of an idle connection; plain, and
//! encrypted with HTTP/1.1 and HTTP/2.
//!
//! It starts one `weir` of each kind. 64 connections poll one after the other without a pause; the kinds take turns, and the
//! medians are printed. Only the processor time of the server counts.
//!
//! `cargo build --profile dist && cargo run --profile dist -p weir-benches --example tls_cost [ROUNDS [SECONDS]]`
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "it prints what it found")]

use std::{
    fs, io,
    net::SocketAddr,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{
    Request,
    client::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{CertificateParams, KeyPair};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName},
};
use tokio::{
    net::TcpStream,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use weir_benches::Served;

const CONNECTIONS: usize = 64;
const IDLE: usize = 2_000;
const HANDSHAKES: u32 = 1_000;
/// Longer than an idle connection keeps its engine.
const UNTIL_PARKED: Duration = Duration::from_secs(3);

const ZONE: &str = "
[[zone]]
id = \"Z\"
admit_per_minute = 60
sub_windows = 60
idle_timeout_s = 600
mode = \"hold\"
";
const TLS: &str = "max_connections_per_client = 0\n[tls]\ncertificate = \"CERT\"\nkey = \"KEY\"\n";

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Plain,
    One,
    Two,
}

const KINDS: [(Kind, &str); 3] =
    [(Kind::Plain, "plain, HTTP/1.1"), (Kind::One, "TLS, HTTP/1.1"), (Kind::Two, "TLS, HTTP/2")];

fn main() -> ExitCode {
    let limit = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut args = std::env::args().skip(1).map(|arg| arg.parse().unwrap_or(5));
    let (rounds, seconds) = (args.next().unwrap_or(5), args.next().unwrap_or(5));
    match raised.map_err(io::Error::from).and_then(|()| runtime.block_on(measure(rounds, seconds))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tls_cost: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn measure(rounds: u64, seconds: u64) -> io::Result<()> {
    let dir = tempfile::tempdir()?;
    let certificate = certify(dir.path())?;
    for (kind, name) in KINDS {
        let site = Site::start(kind, &certificate)?;
        println!("{name}: {:.1} KB for an idle connection", site.idle().await? / 1e3);
    }
    let sites = KINDS.map(|(kind, name)| Site::start(kind, &certificate).map(|site| (name, site)));
    let sites = sites.into_iter().collect::<io::Result<Vec<_>>>()?;
    for resumed in [false, true] {
        let what = if resumed { "resumed" } else { "full" };
        println!("TLS: {:.0} us for a {what} handshake", sites[1].1.handshake(resumed).await? * 1e6);
    }
    let mut found = vec![Vec::new(); sites.len()];
    for _ in 0..rounds {
        for ((_, site), found) in sites.iter().zip(&mut found) {
            found.push(site.poll(Duration::from_secs(seconds)).await?);
        }
    }
    for ((name, _), found) in sites.iter().zip(&mut found) {
        found.sort_by(f64::total_cmp);
        let (low, high) = (found[0], found[found.len() - 1]);
        println!("{name}: {:.1} us for a poll ({low:.1} to {high:.1})", found[found.len() / 2]);
    }
    Ok(())
}

/// Writes a certificate and its key (P-256).
fn certify(dir: &std::path::Path) -> io::Result<CertificateDer<'static>> {
    use std::os::unix::fs::PermissionsExt as _;
    let key = KeyPair::generate().map_err(io::Error::other)?;
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).map_err(io::Error::other)?;
    let certificate = params.self_signed(&key).map_err(io::Error::other)?;
    let (cert_file, key_file) = (dir.join("cert.pem"), dir.join("key.pem"));
    fs::write(&cert_file, certificate.pem())?;
    fs::write(&key_file, key.serialize_pem())?;
    fs::set_permissions(&key_file, fs::Permissions::from_mode(0o600))?;
    CERT_DIR.set(dir.display().to_string()).map_err(io::Error::other)?;
    Ok(certificate.der().clone())
}

static CERT_DIR: std::sync::OnceLock<String> = std::sync::OnceLock::new();

/// A server, and how its clients speak.
struct Site {
    kind: Kind,
    server: Served,
    config: Arc<ClientConfig>,
    certificate: CertificateDer<'static>,
    _dir: tempfile::TempDir,
}

/// A connection that asks one thing at a time.
enum Client {
    One(http1::SendRequest<Full<Bytes>>),
    Two(http2::SendRequest<Full<Bytes>>),
}

impl Site {
    fn start(kind: Kind, certificate: &CertificateDer<'static>) -> io::Result<Self> {
        let dir = tempfile::tempdir()?;
        let files = CERT_DIR.get().map_or("", String::as_str);
        let tls =
            TLS.replace("CERT", &format!("{files}/cert.pem")).replace("KEY", &format!("{files}/key.pem"));
        let settings = if kind == Kind::Plain { "max_connections_per_client = 0\n".to_owned() } else { tls };
        let server = Served::start(dir.path(), &format!("{settings}{ZONE}"), None)?;
        let config = client(kind, certificate)?;
        Ok(Self { kind, server, config, certificate: certificate.clone(), _dir: dir })
    }

    async fn connect(&self) -> io::Result<Client> {
        let stream = TcpStream::connect(self.server.address).await?;
        stream.set_nodelay(true)?;
        let failed = io::Error::other::<hyper::Error>;
        Ok(match self.kind {
            Kind::Plain => {
                let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
                tokio::spawn(connection);
                Client::One(sender)
            }
            Kind::One => {
                let stream = encrypt(stream, Arc::clone(&self.config)).await?;
                let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
                tokio::spawn(connection);
                Client::One(sender)
            }
            Kind::Two => {
                let stream = encrypt(stream, Arc::clone(&self.config)).await?;
                let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
                let (sender, connection) = handshake.await.map_err(failed)?;
                tokio::spawn(connection);
                Client::Two(sender)
            }
        })
    }

    /// Bytes of the server for an idle connection that has polled.
    async fn idle(&self) -> io::Result<f64> {
        let mut first = self.connect().await?;
        let token = first.join(self.server.address).await?;
        let mut held = vec![first];
        // The first connections fill the allocator's caches.
        while held.len() < IDLE / 10 {
            let mut client = self.connect().await?;
            client.poll(self.server.address, &token).await?;
            held.push(client);
        }
        sleep(UNTIL_PARKED).await;
        let (before, from) = (self.server.resident()?, held.len());
        while held.len() < from + IDLE {
            let mut client = self.connect().await?;
            client.poll(self.server.address, &token).await?;
            held.push(client);
        }
        sleep(UNTIL_PARKED).await;
        let grown = self.server.resident()?.saturating_sub(before);
        #[expect(clippy::cast_precision_loss, reason = "small")]
        return Ok(grown as f64 / IDLE as f64);
    }

    /// Seconds of the server's processor for a handshake.
    async fn handshake(&self, resumed: bool) -> io::Result<f64> {
        let before = self.server.cpu_time()?;
        for _ in 0..HANDSHAKES {
            let config =
                if resumed { Arc::clone(&self.config) } else { client(self.kind, &self.certificate)? };
            let mut stream = encrypt(TcpStream::connect(self.server.address).await?, config).await?;
            // A ticket for the next one comes after the handshake.
            let mut byte = [0];
            let _ = timeout(Duration::from_millis(2), tokio::io::AsyncReadExt::read(&mut stream, &mut byte))
                .await;
        }
        Ok((self.server.cpu_time()? - before).as_secs_f64() / f64::from(HANDSHAKES))
    }

    /// Microseconds of the server's processor for a poll.
    async fn poll(&self, time: Duration) -> io::Result<f64> {
        let (polls, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let mut tasks = JoinSet::new();
        let address = self.server.address;
        for _ in 0..CONNECTIONS {
            let mut client = self.connect().await?;
            let (polls, over) = (Arc::clone(&polls), Arc::clone(&over));
            tasks.spawn(async move {
                let token = client.join(address).await?;
                while !over.load(Relaxed) {
                    client.poll(address, &token).await?;
                    polls.fetch_add(1, Relaxed);
                }
                io::Result::Ok(())
            });
        }
        sleep(Duration::from_secs(1)).await;
        let (from, before, cpu) = (Instant::now(), polls.load(Relaxed), self.server.cpu_time()?);
        sleep(time.saturating_sub(from.elapsed())).await;
        let (made, used) = (polls.load(Relaxed) - before, self.server.cpu_time()? - cpu);
        over.store(true, Relaxed);
        while let Some(task) = tasks.join_next().await {
            task.map_err(io::Error::other)??;
        }
        #[expect(clippy::cast_precision_loss, reason = "small")]
        return Ok(used.as_secs_f64() * 1e6 / made as f64);
    }
}

impl Client {
    async fn join(&mut self, server: SocketAddr) -> io::Result<String> {
        let reply = self.ask(server, "/traffic/wait", r#"{"zoneId":"Z"}"#.to_owned()).await?;
        let reply = String::from_utf8_lossy(&reply).into_owned();
        let token = reply.split_once("\"token\":\"").and_then(|(_, rest)| rest.get(..52));
        token.map(str::to_owned).ok_or_else(|| io::Error::other(reply.clone()))
    }

    async fn poll(&mut self, server: SocketAddr, token: &str) -> io::Result<()> {
        let reply =
            self.ask(server, "/traffic/entry", format!(r#"{{"zoneId":"Z","token":"{token}"}}"#)).await?;
        if reply.starts_with(b"{\"canEnter\":false") { Ok(()) } else { Err(io::Error::other("not a wait")) }
    }

    async fn ask(&mut self, server: SocketAddr, path: &str, body: String) -> io::Result<Bytes> {
        let uri = match self {
            Self::One(_) => path.to_owned(),
            Self::Two(_) => format!("https://{server}{path}"),
        };
        let request = Request::post(uri).header("content-type", "application/json");
        let request = match self {
            Self::One(_) => request.header("host", "bench"),
            Self::Two(_) => request,
        };
        let request = request.body(Full::from(body)).map_err(io::Error::other)?;
        let reply = match self {
            Self::One(sender) => {
                sender.ready().await.map_err(io::Error::other)?;
                sender.send_request(request).await
            }
            Self::Two(sender) => {
                sender.ready().await.map_err(io::Error::other)?;
                sender.send_request(request).await
            }
        };
        let body = reply.map_err(io::Error::other)?.into_body().collect().await;
        Ok(body.map_err(io::Error::other)?.to_bytes())
    }
}

fn client(kind: Kind, certificate: &CertificateDer<'static>) -> io::Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).map_err(io::Error::other)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let alpn: &[u8] = if kind == Kind::Two { b"h2" } else { b"http/1.1" };
    config.alpn_protocols = vec![alpn.to_vec()];
    Ok(Arc::new(config))
}

async fn encrypt(stream: TcpStream, config: Arc<ClientConfig>) -> io::Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from("127.0.0.1").map_err(io::Error::other)?;
    TlsConnector::from(config).connect(name, stream).await
}
