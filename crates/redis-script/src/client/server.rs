//! One server, and the shared connection to it, which reconnects by itself.
//!
//! Invariant: a caller gets the connection, or an error as soon as the current attempt to connect has failed. No call
//! is queued for a server that is down.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::AsyncReadExt as _,
    net::TcpStream,
    sync::{Semaphore, watch},
    task::AbortHandle,
    time::{Instant, sleep, timeout, timeout_at},
};

use super::link::{Answer, Command, Link};
use crate::address::{Address, Password, Settings, authority};

/// The shortest and the longest pause between two attempts to connect. Each pause is twice as long as the one before.
pub(super) const BACKOFF: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(50)..=Duration::from_secs(1);

/// How many calls with `WAIT` a server may have in flight, each on its own connection. Further calls wait.
const MAX_CONFIRMING: usize = 64;

/// A server's host and port.
pub(super) type HostPort = (String, u16);

/// Why a server did not answer.
pub(super) enum SendError {
    /// There was no connection. Nothing was sent. The text names the server.
    Down(String),
    /// The connection was lost after the call was sent. The caller may try again.
    Lost(String),
    /// The deadline passed before there was a connection. Nothing was sent.
    Unconnected,
    /// The deadline passed.
    Late,
}

/// What it takes to open a connection.
pub(super) struct Access {
    pub(super) address: Address,
    pub(super) settings: Settings,
}

impl Access {
    /// Opens a connection, within the connect timeout, and sends a PING: the kernel accepts connections for a frozen
    /// server, too.
    pub(super) async fn open<L: Link>(&self, server: &HostPort) -> Result<L, String> {
        let (host, port) = server;
        let limit = self.settings.connect_timeout;
        let open = async {
            let link = L::open(host, *port, &self.address, &self.settings).await?;
            match link.send(vec![Command::new("PING", [])]).await?.pop() {
                Some(Err(text)) if is_refused(&text) => Err(text),
                _ => Ok(link),
            }
        };
        let opened = match timeout(limit, open).await {
            Ok(Err(error)) if is_cut(&error) => Err(refusal_at_once(host, *port).await.unwrap_or(error)),
            Ok(opened) => opened,
            Err(_) if accepts(host, *port).await => {
                Err(format!("no answer within {} ms, though connections are accepted", limit.as_millis()))
            }
            Err(_) => Err(format!("no connection within {} ms", limit.as_millis())),
        };
        opened.map_err(|error| format!("{}: {error}", authority(server)))
    }

    /// Opens a connection to a Sentinel: with the Sentinels' own login, or else with that of the servers, or without one.
    pub(super) async fn open_sentinel<L: Link>(&self, host: &HostPort) -> Result<L, String> {
        if let Some(login) = self.settings.sentinel.clone() {
            return self.with_login(login.user, Some(login.password)).open(host).await;
        }
        match self.open(host).await {
            Err(refused) if self.address.password.is_some() => {
                self.with_login(None, None).open(host).await.map_err(|_| refused)
            }
            opened => opened,
        }
    }

    fn with_login(&self, user: Option<String>, password: Option<Password>) -> Self {
        let address = Address { user, password, ..self.address.clone() };
        Self { address, settings: self.settings.clone() }
    }
}

/// Whether somebody accepts connections at this address: the kernel does for a frozen server, and nobody does where packets are lost.
async fn accepts(host: &str, port: u16) -> bool {
    const LIMIT: Duration = Duration::from_millis(250);
    matches!(timeout(LIMIT, TcpStream::connect((host, port))).await, Ok(Ok(_)))
}

/// Whether a server that answers this to a PING serves nobody over this connection: a login is missing, it has too many clients, or it is
/// in protected mode. In the last two cases it has closed the connection.
fn is_refused(error: &str) -> bool {
    error.starts_with("NOAUTH") || error.starts_with("DENIED") || error.contains("max number of clients")
}

/// Whether an error only says that the other side closed the connection.
fn is_cut(error: &str) -> bool {
    let error = error.to_lowercase();
    ["broken pipe", "reset by peer", "unexpected end", "eof", "closed"]
        .iter()
        .any(|word| error.contains(word))
}

/// What a server says to whom it does not serve, before it closes the connection: it has too many clients, or is in protected mode.
/// A client that has written something by then may get an error of the system, and lose the text.
async fn refusal_at_once(host: &str, port: u16) -> Option<String> {
    const LIMIT: Duration = Duration::from_millis(250);
    const MAX_LEN: u64 = 1_024;
    let read = async {
        let mut text = Vec::new();
        let stream = TcpStream::connect((host, port)).await.ok()?;
        stream.take(MAX_LEN).read_to_end(&mut text).await.ok()?;
        Some(text)
    };
    let text = timeout(LIMIT, read).await.ok().flatten()?;
    let line = text.strip_prefix(b"-")?.split(|byte| matches!(byte, b'\r' | b'\n')).next()?;
    Some(String::from_utf8_lossy(line).into_owned())
}

/// A server. Dropping it closes its connections.
pub(super) struct Server<L> {
    state: Arc<State<L>>,
    connector: AbortHandle,
}

struct State<L> {
    host_port: HostPort,
    access: Arc<Access>,
    /// The connection that all calls without `WAIT` share.
    shared: watch::Sender<Status<L>>,
    /// Connections for calls with `WAIT` that no call uses now.
    idle: Mutex<Vec<L>>,
    confirming: Semaphore,
}

/// The state of the shared connection.
enum Status<L> {
    /// The first attempt, or the first one after a lost connection, has not ended yet.
    Opening,
    Up(Arc<Open<L>>),
    /// The last attempt failed, for this reason.
    Down(String),
}

struct Open<L> {
    link: L,
    since: Instant,
    /// When the last answer came, in milliseconds after `since`.
    last_answer_ms: AtomicU64,
}

impl<L> Open<L> {
    fn new(link: L) -> Self {
        Self { link, since: Instant::now(), last_answer_ms: AtomicU64::new(0) }
    }

    /// How long the connection has been open, in milliseconds.
    fn age_ms(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl<L> Drop for Server<L> {
    fn drop(&mut self) {
        self.connector.abort();
    }
}

impl<L: Link> Server<L> {
    /// Starts to connect, and reconnects until it is dropped.
    pub(super) fn start(host_port: HostPort, access: Arc<Access>) -> Self {
        let state = Arc::new(State {
            host_port,
            access,
            shared: watch::Sender::new(Status::Opening),
            idle: Mutex::default(),
            confirming: Semaphore::new(MAX_CONFIRMING),
        });
        let connector = tokio::spawn(keep_connected(Arc::clone(&state))).abort_handle();
        Self { state, connector }
    }

    /// The server's host and port.
    pub(super) fn host_port(&self) -> &HostPort {
        &self.state.host_port
    }

    /// Waits until the first attempt to connect has ended, and returns its result.
    pub(super) async fn first_attempt(&self) -> Result<(), String> {
        match self.state.open().await {
            Ok(_) => Ok(()),
            Err(reason) => Err(reason),
        }
    }

    /// Sends commands over the shared connection.
    pub(super) async fn send(
        &self,
        commands: Vec<Command>,
        deadline: Instant,
    ) -> Result<Vec<Answer>, SendError> {
        let open = self.up(deadline).await?;
        let sent_ms = open.age_ms();
        match timeout_at(deadline, open.link.send(commands)).await {
            Ok(Ok(answers)) => {
                open.last_answer_ms.store(open.age_ms(), Ordering::Relaxed);
                Ok(answers)
            }
            Ok(Err(reason)) => {
                self.state.lost(&open);
                Err(SendError::Lost(self.state.named(&reason)))
            }
            Err(_) => {
                // Answers come in order. If none came since this call was sent, and the call waited long enough, the
                // server does not answer any more.
                let waited_ms = open.age_ms() - sent_ms;
                let enough = self.state.access.settings.command_timeout / 2;
                if open.last_answer_ms.load(Ordering::Relaxed) <= sent_ms
                    && u128::from(waited_ms) >= enough.as_millis()
                {
                    self.state.lost(&open);
                }
                Err(SendError::Late)
            }
        }
    }

    /// Sends commands over a connection that no other call uses meanwhile: `WAIT` blocks all that follows it on the
    /// same connection.
    pub(super) async fn send_exclusive(
        &self,
        commands: Vec<Command>,
        deadline: Instant,
    ) -> Result<Vec<Answer>, SendError> {
        let state = &*self.state;
        self.up(deadline).await?;
        let Ok(permit) = timeout_at(deadline, state.confirming.acquire()).await else {
            return Err(SendError::Late);
        };
        let _permit = permit.expect("the semaphore is never closed");
        let kept = state.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let link = match kept {
            Some(link) => link,
            None => match timeout_at(deadline, state.access.open(&state.host_port)).await {
                Ok(opened) => opened.map_err(SendError::Down)?,
                Err(_) => return Err(SendError::Late),
            },
        };
        match timeout_at(deadline, link.send(commands)).await {
            Ok(Ok(answers)) => {
                state.idle.lock().unwrap_or_else(PoisonError::into_inner).push(link);
                Ok(answers)
            }
            Ok(Err(reason)) => {
                // The idle connections were open at the same time, so they are probably lost, too.
                state.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
                Err(SendError::Lost(state.named(&reason)))
            }
            Err(_) => Err(SendError::Late),
        }
    }

    /// Gives up the connections, because the server at their other end is not what it was. The next ones are opened to the host by
    /// its name, which may lead elsewhere now.
    pub(super) fn reconnect(&self) {
        self.state.shared.send_if_modified(|status| {
            let is_up = matches!(status, Status::Up(_));
            if is_up {
                *status = Status::Opening;
            }
            is_up
        });
        self.state.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    async fn up(&self, deadline: Instant) -> Result<Arc<Open<L>>, SendError> {
        match timeout_at(deadline, self.state.open()).await {
            Ok(Ok(open)) => Ok(open),
            Ok(Err(reason)) => Err(SendError::Down(reason)),
            Err(_) => Err(SendError::Unconnected),
        }
    }
}

impl<L> State<L> {
    /// The shared connection. Waits for the current attempt to connect.
    async fn open(&self) -> Result<Arc<Open<L>>, String> {
        let result = |status: &Status<L>| match status {
            Status::Up(open) => Some(Ok(Arc::clone(open))),
            Status::Down(reason) => Some(Err(reason.clone())),
            Status::Opening => None,
        };
        if let Some(known) = result(&self.shared.borrow()) {
            return known;
        }
        let mut changes = self.shared.subscribe();
        match changes.wait_for(|status| !matches!(status, Status::Opening)).await {
            Ok(status) => result(&status).unwrap_or_else(|| Err(self.named("still connecting"))),
            Err(_) => Err(self.named("the client was dropped")),
        }
    }

    /// Gives up a connection that does not work any more, unless it was replaced already.
    fn lost(&self, open: &Arc<Open<L>>) {
        self.shared.send_if_modified(|status| match status {
            Status::Up(current) if Arc::ptr_eq(current, open) => {
                *status = Status::Opening;
                true
            }
            _ => false,
        });
    }

    fn named(&self, reason: &str) -> String {
        format!("{}: {reason}", authority(&self.host_port))
    }
}

/// Connects, and reconnects when the connection is lost. A server that accepts connections and closes them at once is
/// not asked more often than one that does not answer.
async fn keep_connected<L: Link>(state: Arc<State<L>>) {
    let mut changes = state.shared.subscribe();
    let mut pause = *BACKOFF.start();
    loop {
        match state.access.open::<L>(&state.host_port).await {
            Ok(link) => {
                let open = Arc::new(Open::new(link));
                let since = open.since;
                state.shared.send_replace(Status::Up(open));
                if changes.wait_for(|status| matches!(status, Status::Opening)).await.is_err() {
                    return;
                }
                if since.elapsed() > *BACKOFF.end() {
                    pause = *BACKOFF.start();
                    continue;
                }
            }
            Err(reason) => {
                state.shared.send_replace(Status::Down(reason));
            }
        }
        sleep(pause).await;
        pause = (pause * 2).min(*BACKOFF.end());
    }
}
