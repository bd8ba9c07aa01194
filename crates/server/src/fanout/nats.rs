//! Messages by [NATS](https://nats.io): one subject per cell, core publish and subscribe.
//!
//! This module reconnects by itself, with a new client of async-nats each time. That client's own reconnecting stops for
//! ever after the server once refuses the login, as it does while it is being set up again. Invariants: a caller that
//! publishes waits for `NATS_TIMEOUT` at most; a connection that is lost, or answers no pings, is replaced; no `Debug`,
//! `Display`, error or log line contains a password.

use std::{
    fmt,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_nats::{Client, ConnectOptions, Event, ServerAddr, Subscriber};
use bytes::Bytes;
use futures_core::Stream as _;
use percent_encoding::percent_decode_str;
use rustls::crypto::aws_lc_rs;
use tokio::{
    sync::{mpsc, watch},
    task::AbortHandle,
    time::{Instant, sleep, timeout},
};

use super::{ChannelEvent, cut};

/// The most messages that wait to be read. Further messages are lost and counted. The number is small, because a NATS
/// server accepts messages of 1 MB.
const QUEUE: usize = 64;

/// How long a message may wait for a connection.
const NATS_TIMEOUT: Duration = Duration::from_secs(1);

/// How long an attempt to connect may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// How often the server is pinged. Two pings without an answer end the connection.
const PING: Duration = Duration::from_secs(1);

/// The pause after the server refused the subscription.
const REFUSED: Duration = Duration::from_secs(10);

/// The first and the longest pause between attempts to connect. Each pause is twice as long as the one before.
const PAUSES: std::ops::RangeInclusive<Duration> = Duration::from_millis(50)..=Duration::from_secs(1);

/// The address of NATS. `Debug` and `Display` leave the password out.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    tls: bool,
    /// Host and port, as in `[::1]:4222`; at least one.
    hosts: Vec<String>,
    login: Login,
}

#[derive(Clone, PartialEq, Eq)]
enum Login {
    Nobody,
    Token(String),
    User(String, String),
}

/// Why a text is not an address: what to write instead. It never contains the text, which may hold a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AddressFault(&'static str);

impl Address {
    /// Reads `nats://[user:password@]host:port[,host:port…]`, or with a token instead of user and password; `tls://` is
    /// NATS over TLS. User, password and token may be percent-encoded.
    ///
    /// # Errors
    /// What to write instead.
    pub fn parse(text: &str) -> Result<Self, AddressFault> {
        const FORM: AddressFault = AddressFault(
            "an address of NATS has the form nats://[user:password@]host:port[,host:port…], or tls://…",
        );
        let (tls, rest) = match text.split_once("://") {
            Some(("nats", rest)) => (false, rest),
            Some(("tls", rest)) => (true, rest),
            _ => return Err(FORM),
        };
        // From the end, because a password may contain `@`.
        let (login, hosts) = rest.rsplit_once('@').map_or((None, rest), |(login, rest)| (Some(login), rest));
        // A host there would count as a part of the password, and be lost.
        let has_host = |login: &str| {
            let mut before_commas = login.match_indices(',').map(|(at, _)| &login[..at]);
            before_commas.any(|before| before.rsplit_once('@').is_some_and(|(_, host)| is_host(host)))
        };
        if login.is_some_and(has_host) {
            return Err(AddressFault(
                "the login stands once, before the first host: nats://user:password@host:port,host:port; an @ that belongs to \
                 the password is written %40",
            ));
        }
        let decoded = |text: &str| {
            let decoded = percent_decode_str(text).decode_utf8();
            decoded.map(String::from).map_err(|_| AddressFault("the login is not UTF-8 once percent-decoded"))
        };
        let login = match login.map(|login| login.split_once(':').ok_or(login)) {
            None => Login::Nobody,
            Some(Ok((user, password))) => Login::User(decoded(user)?, decoded(password)?),
            Some(Err(token)) => Login::Token(decoded(token)?),
        };
        let hosts: Vec<String> = hosts.split(',').map(str::to_owned).collect();
        if hosts.iter().all(|host| is_host(host)) { Ok(Self { tls, hosts, login }) } else { Err(FORM) }
    }

    fn servers(&self) -> Vec<ServerAddr> {
        let scheme = if self.tls { "tls" } else { "nats" };
        self.hosts.iter().filter_map(|host| format!("{scheme}://{host}").parse().ok()).collect()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.tls { "tls://" } else { "nats://" })?;
        match &self.login {
            Login::Nobody => {}
            Login::Token(_) => f.write_str("***@")?,
            Login::User(user, _) => write!(f, "{user}:***@")?,
        }
        f.write_str(&self.hosts.join(","))
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A connection that is replaced when it is lost.
pub struct Nats {
    shared: Arc<Shared>,
    keeper: AbortHandle,
}

struct Shared {
    address: Address,
    line: watch::Sender<Line>,
    /// How many messages of all subjects were lost so far because they were not read in time. Each subject counts them.
    missed: AtomicU64,
}

/// The state of the connection.
#[derive(Clone)]
enum Line {
    Up(Client),
    Down(String),
}

impl Drop for Nats {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

impl Nats {
    /// Starts to connect, and reconnects whenever the connection is lost. Must be called on a tokio runtime.
    #[must_use]
    pub fn start(address: Address) -> Arc<Self> {
        let line = watch::Sender::new(Line::Down("not connected yet".to_owned()));
        let shared = Arc::new(Shared { address, line, missed: AtomicU64::new(0) });
        let keeper = tokio::spawn(keep(Arc::clone(&shared))).abort_handle();
        Arc::new(Self { shared, keeper })
    }
}

/// Why a connection must be replaced.
#[derive(Clone)]
enum Lost {
    Closed,
    /// The server refused the subscription.
    Refused(String),
}

/// Connects, and reconnects whenever the connection is lost.
async fn keep(shared: Arc<Shared>) {
    let mut pause = *PAUSES.start();
    loop {
        let (lost, mut losing) = watch::channel(None);
        let line = match connect(&shared, lost).await {
            Ok(client) => Line::Up(client),
            Err(reason) => Line::Down(reason),
        };
        let up = matches!(line, Line::Up(_));
        shared.line.send_replace(line);
        if up {
            let since = Instant::now();
            // The end of the events is the end of the connection.
            let lost = losing.wait_for(Option::is_some).await.map(|lost| lost.clone()).ok().flatten();
            let (reason, rest) = match lost {
                Some(Lost::Refused(reason)) => (reason, REFUSED),
                _ => ("the connection is lost".to_owned(), Duration::ZERO),
            };
            shared.line.send_replace(Line::Down(reason));
            sleep(rest).await;
            // A server that accepts connections and closes them at once is not asked more often than one that does not answer.
            if since.elapsed() > *PAUSES.end() {
                pause = *PAUSES.start();
            }
        }
        sleep(pause).await;
        pause = (pause * 2).min(*PAUSES.end());
    }
}

async fn connect(shared: &Arc<Shared>, lost: watch::Sender<Option<Lost>>) -> Result<Client, String> {
    if shared.address.tls {
        // async-nats uses the process's default provider of cryptography. One that is set already stays.
        drop(aws_lc_rs::default_provider().install_default());
    }
    let (counting, servers) = (Arc::clone(shared), shared.address.servers());
    let options = ConnectOptions::new()
        .name("weir")
        .connection_timeout(CONNECT_TIMEOUT)
        .ping_interval(PING)
        .subscription_capacity(QUEUE)
        .client_capacity(QUEUE)
        .ignore_discovered_servers()
        // The client makes one attempt. Further attempts are made here.
        .max_reconnects(servers.len())
        .reconnect_delay_callback(|_| Duration::ZERO)
        .event_callback(move |event| {
            match event {
                Event::Disconnected | Event::Closed => {
                    lost.send_replace(Some(Lost::Closed));
                }
                // The server refuses a subscription only by this event. The connection stays open, and no messages come.
                Event::ServerError(error) if is_refusal(&error.to_string()) => {
                    lost.send_replace(Some(Lost::Refused(error.to_string())));
                }
                Event::SlowConsumer(_) => {
                    counting.missed.fetch_add(1, Ordering::Relaxed);
                }
                _ => {}
            }
            std::future::ready(())
        });
    let options = match shared.address.login.clone() {
        Login::Nobody => options,
        Login::Token(token) => options.token(token),
        Login::User(user, password) => options.user_and_password(user, password),
    };
    options.connect(servers).await.map_err(|error| error.to_string())
}

fn is_refusal(error: &str) -> bool {
    error.to_lowercase().contains("permissions violation for subscription")
}

impl Shared {
    /// Waits for a connection.
    async fn client(&self) -> Result<Client, String> {
        let mut line = self.line.subscribe();
        let up = line.wait_for(|line| matches!(line, Line::Up(_))).await;
        match up.as_deref() {
            Ok(Line::Up(client)) => Ok(client.clone()),
            _ => Err("given up".to_owned()),
        }
    }

    fn reason(&self) -> String {
        match &*self.line.borrow() {
            Line::Down(reason) => reason.clone(),
            Line::Up(_) => "the connection was replaced".to_owned(),
        }
    }
}

/// The subject of one cell.
pub struct Subject {
    nats: Arc<Nats>,
    name: String,
}

impl Subject {
    /// The subject of the cell of this name: `weir.CELL.zones`, with `%` for the dots of the name.
    #[must_use]
    pub fn new(nats: &Arc<Nats>, cell: &str) -> Self {
        Self { nats: Arc::clone(nats), name: format!("weir.{}.zones", cell.replace('.', "%")) }
    }

    /// Whether there is a connection now.
    #[must_use]
    pub fn is_up(&self) -> bool {
        matches!(*self.nats.shared.line.borrow(), Line::Up(_))
    }

    /// Sends a message as soon as there is a connection. Success means that it was sent, not that it was received.
    pub(super) async fn say(&self, message: Bytes) -> Result<(), String> {
        let say = async {
            let client = self.nats.shared.client().await?;
            client.publish(self.name.clone(), message).await.map_err(|error| error.to_string())?;
            client.flush().await.map_err(|error| error.to_string())
        };
        match timeout(NATS_TIMEOUT, say).await {
            Ok(said) => said,
            Err(_) => Err(self.nats.shared.reason()),
        }
    }

    /// Receives messages over the current connection, and over each one that replaces it.
    pub(super) async fn listen(&self, hears: mpsc::Sender<ChannelEvent>) {
        let shared = &*self.nats.shared;
        let mut missed = shared.missed.load(Ordering::Relaxed);
        loop {
            let mut line = shared.line.subscribe();
            let now = line.borrow_and_update().clone();
            let (up, reason) = match now {
                Line::Down(reason) => (false, reason),
                Line::Up(client) => match subscribe(&client, &self.name).await {
                    Err(reason) => (true, reason),
                    Ok(mut messages) => {
                        if hears.send(ChannelEvent::Listening).await.is_err() {
                            return;
                        }
                        tokio::select! {
                            open = shared.pass_on(&mut messages, &hears, &mut missed) => if !open { return },
                            _ = line.changed() => {}
                        }
                        continue;
                    }
                },
            };
            if hears.send(ChannelEvent::Silent(reason)).await.is_err() {
                return;
            }
            tokio::select! {
                open = line.changed() => if open.is_err() { return },
                () = sleep(*PAUSES.end()), if up => {}
            }
        }
    }
}

async fn subscribe(client: &Client, subject: &str) -> Result<Subscriber, String> {
    let subscribe = async {
        let messages = client.subscribe(subject.to_owned()).await.map_err(|error| error.to_string())?;
        client.flush().await.map_err(|error| error.to_string())?;
        Ok(messages)
    };
    timeout(NATS_TIMEOUT, subscribe).await.unwrap_or_else(|_| Err("no subscription in time".to_owned()))
}

impl Shared {
    /// Passes messages on until the subscription ends. Returns false if the receiver is gone. `known` is how many were lost before.
    async fn pass_on(
        &self,
        messages: &mut Subscriber,
        hears: &mpsc::Sender<ChannelEvent>,
        known: &mut u64,
    ) -> bool {
        while let Some(message) = std::future::poll_fn(|cx| Pin::new(&mut *messages).poll_next(cx)).await {
            let missed = self.missed.load(Ordering::Relaxed);
            let more = missed - std::mem::replace(known, missed);
            let missed = (more > 0).then_some(ChannelEvent::Missed(more));
            for heard in [ChannelEvent::Message(cut(message.payload))].into_iter().chain(missed) {
                if hears.send(heard).await.is_err() {
                    return false;
                }
            }
        }
        true
    }
}

/// Whether this is a host with a port.
fn is_host(host: &str) -> bool {
    let port = host.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
    let plain = !host.contains(|c: char| c.is_whitespace() || c.is_control() || "/?#@".contains(c));
    port.is_some_and(|port| port > 0) && plain && host.parse::<ServerAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_before_a_second_host_is_refused_because_the_first_host_would_be_lost() {
        for text in [
            "nats://u:secret@h:1,u:secret@h2:2",
            "tls://secret@h:1,secret@[::1]:2",
            "nats://u:secret@h:1,h2:2,u:secret@h3:3",
        ] {
            let said = Address::parse(text).expect_err("refused").to_string();
            assert!(
                said.contains("stands once, before the first host") && !said.contains("secret"),
                "{said}"
            );
        }
        assert!(Address::parse("nats://u:a@b,c@h:1").is_ok(), "a password");
    }

    #[test]
    fn addresses_are_read_and_shown_without_the_login() {
        for (text, shown) in [
            ("nats://127.0.0.1:4222", "nats://127.0.0.1:4222"),
            ("tls://a.example:4222,[::1]:4223", "tls://a.example:4222,[::1]:4223"),
            ("nats://weir:p%40ss@w:word@h:1", "nats://weir:***@h:1"),
            ("nats://secret@h:1", "nats://***@h:1"),
        ] {
            let address = Address::parse(text).expect("it is an address");
            assert_eq!(address.to_string(), shown);
            assert_eq!(format!("{address:?}"), shown);
            assert_eq!(address.servers().len(), address.hosts.len());
        }
        let address = Address::parse("nats://weir:p%40ss@w:word@h:1").expect("it is an address");
        assert!(address.login == Login::User("weir".to_owned(), "p@ss@w:word".to_owned()));
    }

    #[test]
    fn what_is_no_address_is_not_shown() {
        for text in [
            "nats",
            "nats://",
            "nats://h",
            "nats://h:0",
            "nats://h:65536",
            "nats://h:1,",
            "nats://h:1/secret",
            "nats://secret",
            "http://h:1",
            "nats://u:secret@h",
            "nats://%ff:secret@h:1",
            "nats://a b:1",
        ] {
            let fault = Address::parse(text).expect_err("it is faulty").to_string();
            assert!(!fault.contains("secret"), "{fault}");
        }
    }
}
