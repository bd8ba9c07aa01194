//! A connection by fred.
//!
//! One fred client serves one connection to one server. Its reconnecting and its cluster routing are not used: while one
//! server of a cluster is down, fred's router serves none of them (docs/decisions/fred-cluster-client.md), and its
//! queue has no limit.
//!
//! Invariant: when the connection is lost, fred's task ends, and so does every call. Without a connection, fred still
//! accepts commands but answers none. Therefore each call also waits for the end of the task.

use std::net::SocketAddr;

use ::fred::{
    clients::Client,
    error::Error,
    interfaces::ClientLike as _,
    types::{
        Builder, ClusterHash, ConnectHandle, CustomCommand, Resp3Frame, Value as Arg,
        config::{Config, Server, ServerConfig, TcpConfig, TlsConfig, TlsConnector},
    },
};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use rustls_native_certs::load_native_certs;
use tokio::{
    net::{TcpStream, lookup_host},
    sync::watch,
    task::{AbortHandle, JoinSet},
};

use super::{
    Value,
    link::{Answer, Command, Link},
};
use crate::address::{Address, Password, Settings};

/// How many addresses of one name are tried.
const MAX_ADDRESSES: usize = 16;

/// A connection.
pub(super) struct Connection {
    client: Client,
    router: Router,
}

/// fred's task. It ends when the connection is lost; dropping this closes the connection.
struct Router {
    task: AbortHandle,
    /// Why the task has ended; `None` while it runs.
    end: watch::Receiver<Option<String>>,
}

impl Router {
    fn watch(task: ConnectHandle) -> Self {
        let (sender, end) = watch::channel(None);
        let router = Self { task: task.abort_handle(), end };
        tokio::spawn(async move {
            let reason = match task.await {
                Ok(Err(error)) => said(&error),
                _ => "the connection was closed".to_owned(),
            };
            sender.send_replace(Some(reason));
        });
        router
    }

    /// Waits until the task has ended, and returns why.
    async fn ended(&self) -> String {
        let mut end = self.end.clone();
        let reason = end.wait_for(Option::is_some).await.ok().and_then(|reason| reason.clone());
        // Without a reason, the runtime is shutting down.
        reason.unwrap_or_else(|| "the connection was closed".to_owned())
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Link for Connection {
    async fn open(host: &str, port: u16, address: &Address, settings: &Settings) -> Result<Self, String> {
        let config = Config {
            username: address.user.clone(),
            password: address.password.as_ref().map(Password::reveal),
            server: ServerConfig::Centralized { server: reachable(host, port).await },
            tls: if address.tls { Some(tls(settings)?) } else { None },
            ..Config::default()
        };
        let mut builder = Builder::from_config(config);
        builder.with_connection_config(|connection| {
            // The caller gives up long before, with a better message, also on a machine that is busy; fred may have sent a
            // command by then.
            connection.connection_timeout = settings.connect_timeout * 20;
            connection.internal_command_timeout = settings.connect_timeout * 20;
            connection.max_command_attempts = 1;
            connection.tcp = TcpConfig { nodelay: Some(true), ..TcpConfig::default() };
        });
        let client = builder.build().map_err(|error| said(&error))?;
        // The first command waits for the connection. fred's own `wait_for_connect` may wait for ever: it reads the state, and
        // subscribes to changes later.
        let router = Router::watch(client.connect());
        Ok(Self { client, router })
    }

    async fn send(&self, commands: Vec<Command>) -> Result<Vec<Answer>, String> {
        tokio::select! {
            biased;
            answers = exchange(&self.client, commands) => answers,
            // fred cancels the commands of its queue and ends its task later. It never answers a command that arrives
            // in between.
            reason = self.router.ended() => Err(reason),
        }
    }
}

/// An error of fred in words. fred writes an error of the system as it is in the program: `Os { code: 111, kind: …, message: "…" }`.
fn said(error: &Error) -> String {
    let text = error.to_string();
    match in_words(&text) {
        Some(words) => words,
        None => text,
    }
}

fn in_words(text: &str) -> Option<String> {
    if let Some((_, of_system)) = text.split_once("Os { code: ") {
        let (code, rest) = of_system.split_once(',')?;
        let message = rest.split_once("message: \"")?.1.rsplit_once("\" }")?.0;
        return Some(format!("{message} (os error {code})"));
    }
    let (_, custom) = text.split_once("Custom { kind: ")?;
    let words = custom.split_once(", error: ")?.1.rsplit_once(" }")?.0;
    Some(words.trim_matches('"').to_owned())
}

/// The server, by one of its name's addresses that takes a connection. fred itself waits for each of them in turn, for ever where
/// packets are dropped.
async fn reachable(host: &str, port: u16) -> Server {
    let mut server = Server::new(host, port);
    let Ok(found) = lookup_host((host, port)).await else { return server };
    if let Some(address) = first_of(found.take(MAX_ADDRESSES).collect()).await {
        server.host = address.ip().to_string().into();
        // Its certificate has the name.
        server.tls_server_name = Some(host.into());
    }
    server
}

/// The first of several addresses to take a connection; none if there is no choice.
async fn first_of(addresses: Vec<SocketAddr>) -> Option<SocketAddr> {
    if addresses.len() < 2 {
        return None;
    }
    let mut attempts = JoinSet::new();
    for address in addresses {
        attempts.spawn(async move { TcpStream::connect(address).await.map(|_| address) });
    }
    while let Some(attempt) = attempts.join_next().await {
        if let Ok(Ok(address)) = attempt {
            return Some(address);
        }
    }
    None
}

/// Sends commands, and waits for fred's answers.
async fn exchange(client: &Client, mut commands: Vec<Command>) -> Result<Vec<Answer>, String> {
    if commands.len() == 1
        && let Some(command) = commands.pop()
    {
        let (command, args) = parts(command);
        let frame = client.custom_raw(command, args).await.map_err(|error| said(&error))?;
        return Ok(vec![answer(frame)?]);
    }
    let pipeline = client.pipeline();
    let count = commands.len();
    for command in commands {
        let (command, args) = parts(command);
        // fred itself answers `QUEUED` here.
        pipeline.custom_raw(command, args).await.map_err(|error| said(&error))?;
    }
    let results = pipeline.try_all::<Arg>().await;
    if let (true, Some(Err(error))) = (results.len() != count, results.first()) {
        return Err(said(error));
    }
    let answers = results.into_iter().map(|result| match result {
        Ok(arg) => Ok(Ok(value(arg)?)),
        Err(error) => Ok(Err(error.details().to_owned())),
    });
    answers.collect()
}

fn parts(command: Command) -> (CustomCommand, Vec<Arg>) {
    let name = CustomCommand::new_static(command.name, ClusterHash::Random, false);
    (name, command.args.into_iter().map(Arg::Bytes).collect())
}

fn tls(settings: &Settings) -> Result<TlsConfig, String> {
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
    let config = match &settings.identity {
        None => config.with_no_client_auth(),
        Some(identity) => {
            let chain = CertificateDer::pem_slice_iter(&identity.certificate_pem).collect::<Result<_, _>>();
            let chain = chain.map_err(|error| format!("the PEM of the client's certificate: {error}"))?;
            let key = PrivateKeyDer::from_pem_slice(&identity.key_pem)
                .map_err(|error| format!("the PEM of the client's key: {error}"))?;
            config.with_client_auth_cert(chain, key).map_err(|error| error.to_string())?
        }
    };
    Ok(TlsConnector::from(config).into())
}

/// Converts a frame. The outer error is for replies that scripts cannot give.
fn answer(frame: Resp3Frame) -> Result<Answer, String> {
    Ok(Ok(match frame {
        Resp3Frame::Null => Value::Nil,
        Resp3Frame::Number { data, .. } => Value::Int(data),
        Resp3Frame::BlobString { data, .. } | Resp3Frame::SimpleString { data, .. } => Value::Bytes(data),
        Resp3Frame::Array { data, .. } => {
            let parts = data.into_iter().map(answer).collect::<Result<Result<_, _>, _>>()?;
            match parts {
                Ok(parts) => Value::Array(parts),
                Err(text) => return Ok(Err(text)),
            }
        }
        Resp3Frame::SimpleError { data, .. } => return Ok(Err(data.to_string())),
        other => return Err(format!("an unexpected kind of reply: {other:?}")),
    }))
}

/// Converts a value of a pipeline.
fn value(arg: Arg) -> Result<Value, String> {
    Ok(match arg {
        Arg::Null => Value::Nil,
        Arg::Integer(number) => Value::Int(number),
        Arg::Bytes(bytes) => Value::Bytes(bytes),
        Arg::String(text) => Value::Bytes(text.into_inner()),
        Arg::Array(parts) => Value::Array(parts.into_iter().map(value).collect::<Result<_, _>>()?),
        other => return Err(format!("an unexpected kind of reply: {:?}", other.kind())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_words_and_no_debug_text() {
        use std::io::{Error as IoError, ErrorKind};
        let refused = IoError::from_raw_os_error(111);
        assert_eq!(said(&Error::from(refused)), "Connection refused (os error 111)");
        let custom = IoError::new(ErrorKind::InvalidData, "invalid peer certificate: UnknownIssuer");
        assert_eq!(said(&Error::from(custom)), "invalid peer certificate: UnknownIssuer");
        let own = Error::new(::fred::error::ErrorKind::Auth, "WRONGPASS invalid password");
        assert!(said(&own).ends_with("WRONGPASS invalid password"));
    }

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
            assert_eq!(found, Some(there));
        }
        assert_eq!(first_of(vec![refused, refused_too]).await, None);
    }

    /// A client without a task keeps commands for ever, as one does whose task is about to end.
    #[tokio::test]
    async fn a_call_that_fred_never_answers_ends_with_the_connection() {
        for count in [1, 2] {
            let client = Builder::default_centralized().build().expect("a client");
            let router = Router::watch(tokio::spawn(std::future::pending()));
            let task = router.task.clone();
            let connection = Connection { client, router };
            let mut call = std::pin::pin!(connection.send(vec![Command::new("PING", []); count]));
            tokio::select! {
                biased;
                answers = &mut call => panic!("there is no connection, but an answer: {answers:?}"),
                () = tokio::task::yield_now() => task.abort(),
            }
            let ended = tokio::time::timeout(std::time::Duration::from_secs(10), call).await;
            assert_eq!(ended, Ok(Err("the connection was closed".to_owned())), "{count} commands");
        }
    }
}
