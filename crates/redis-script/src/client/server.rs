//! One server, and the connection to it that is kept up.
//!
//! Invariant: who asks for the connection has it, or hears within the time that it waits for the first attempt that
//! there is none. Nothing is queued for a server that is away.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{Semaphore, watch},
    task::AbortHandle,
    time::{Instant, sleep, timeout, timeout_at},
};

use super::link::{Answer, Command, Link};
use crate::address::{Address, Settings};

/// The pauses between attempts to connect: twice as long each time.
pub(super) const PAUSES: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(50)..=Duration::from_secs(1);

/// How many confirmed runs a server has under way, each on a connection of its own; others wait.
const CONFIRMING: usize = 64;

/// Host and port.
pub(super) type Place = (String, u16);

/// Why a server gave no answers.
pub(super) enum Trouble {
    /// There was no connection; nothing was sent.
    Down(String),
    /// The connection was lost meanwhile; worth another try.
    Lost(String),
    /// The deadline has passed.
    Late,
}

/// What connections need to be opened.
pub(super) struct Access {
    pub(super) address: Address,
    pub(super) settings: Settings,
}

impl Access {
    /// Opens a connection, within the time for that. It has been used once: a frozen server lets anybody connect.
    pub(super) async fn open<L: Link>(&self, (host, port): &Place) -> Result<L, String> {
        let limit = self.settings.connect_timeout;
        let open = async {
            let link = L::open(host, *port, &self.address, &self.settings).await?;
            match link.send(vec![Command::new("PING", [])]).await?.pop() {
                Some(Err(text)) if text.starts_with("NOAUTH") => Err(text),
                _ => Ok(link),
            }
        };
        let opened = match timeout(limit, open).await {
            Ok(opened) => opened,
            Err(_) => Err(format!("no connection within {} ms", limit.as_millis())),
        };
        opened.map_err(|error| format!("{host}:{port}: {error}"))
    }

    /// The same without user and password.
    pub(super) fn anonymous(&self) -> Self {
        let address = Address { user: None, password: None, ..self.address.clone() };
        Self { address, settings: self.settings.clone() }
    }
}

/// A server. Its connection is closed when it is dropped.
pub(super) struct Server<L> {
    state: Arc<State<L>>,
    keeper: AbortHandle,
}

struct State<L> {
    place: Place,
    access: Arc<Access>,
    line: watch::Sender<Line<L>>,
    idle: Mutex<Vec<L>>,
    confirming: Semaphore,
}

/// The connection.
enum Line<L> {
    /// It is being opened, and was not found impossible lately.
    Opening,
    Up(Arc<Open<L>>),
    /// The last attempt failed, for this reason.
    Down(String),
}

struct Open<L> {
    link: L,
    since: Instant,
    /// When an answer came last, in milliseconds after `since`.
    heard_ms: AtomicU64,
}

impl<L> Open<L> {
    fn new(link: L) -> Self {
        Self { link, since: Instant::now(), heard_ms: AtomicU64::new(0) }
    }

    fn ms(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl<L> Drop for Server<L> {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

impl<L: Link> Server<L> {
    /// Begins to connect, and keeps at it.
    pub(super) fn start(place: Place, access: Arc<Access>) -> Self {
        let state = Arc::new(State {
            place,
            access,
            line: watch::Sender::new(Line::Opening),
            idle: Mutex::default(),
            confirming: Semaphore::new(CONFIRMING),
        });
        let keeper = tokio::spawn(keep(Arc::clone(&state))).abort_handle();
        Self { state, keeper }
    }

    /// Where it is.
    pub(super) fn place(&self) -> &Place {
        &self.state.place
    }

    /// Waits until the first attempt to connect has ended, and says how.
    pub(super) async fn settled(&self) -> Result<(), String> {
        match self.state.open().await {
            Ok(_) => Ok(()),
            Err(reason) => Err(reason),
        }
    }

    /// Sends commands over the connection that all share.
    pub(super) async fn send(
        &self,
        commands: Vec<Command>,
        deadline: Instant,
    ) -> Result<Vec<Answer>, Trouble> {
        let open = self.up(deadline).await?;
        let sent_ms = open.ms();
        match timeout_at(deadline, open.link.send(commands)).await {
            Ok(Ok(answers)) => {
                open.heard_ms.store(open.ms(), Ordering::Relaxed);
                Ok(answers)
            }
            Ok(Err(reason)) => {
                self.state.lost(&open);
                Err(Trouble::Lost(self.state.named(&reason)))
            }
            Err(_) => {
                // Answers come in order: with none since this was sent, and time enough, nobody is there.
                let waited_ms = open.ms() - sent_ms;
                let enough = self.state.access.settings.command_timeout / 2;
                if open.heard_ms.load(Ordering::Relaxed) <= sent_ms
                    && u128::from(waited_ms) >= enough.as_millis()
                {
                    self.state.lost(&open);
                }
                Err(Trouble::Late)
            }
        }
    }

    /// Sends commands over a connection that nobody else uses meanwhile: `WAIT` holds up whatever comes after it.
    pub(super) async fn send_alone(
        &self,
        commands: Vec<Command>,
        deadline: Instant,
    ) -> Result<Vec<Answer>, Trouble> {
        let state = &*self.state;
        self.up(deadline).await?;
        let Ok(permit) = timeout_at(deadline, state.confirming.acquire()).await else {
            return Err(Trouble::Late);
        };
        let _permit = permit.expect("the semaphore is never closed");
        let kept = state.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let link = match kept {
            Some(link) => link,
            None => match timeout_at(deadline, state.access.open(&state.place)).await {
                Ok(opened) => opened.map_err(Trouble::Down)?,
                Err(_) => return Err(Trouble::Late),
            },
        };
        match timeout_at(deadline, link.send(commands)).await {
            Ok(Ok(answers)) => {
                state.idle.lock().unwrap_or_else(PoisonError::into_inner).push(link);
                Ok(answers)
            }
            Ok(Err(reason)) => {
                // The others that are kept were open then too.
                state.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
                Err(Trouble::Lost(state.named(&reason)))
            }
            Err(_) => Err(Trouble::Late),
        }
    }

    async fn up(&self, deadline: Instant) -> Result<Arc<Open<L>>, Trouble> {
        match timeout_at(deadline, self.state.open()).await {
            Ok(Ok(open)) => Ok(open),
            Ok(Err(reason)) => Err(Trouble::Down(reason)),
            Err(_) => Err(Trouble::Late),
        }
    }
}

impl<L> State<L> {
    /// The connection, once the attempt under way has ended.
    async fn open(&self) -> Result<Arc<Open<L>>, String> {
        let now = |line: &Line<L>| match line {
            Line::Up(open) => Some(Ok(Arc::clone(open))),
            Line::Down(reason) => Some(Err(reason.clone())),
            Line::Opening => None,
        };
        if let Some(known) = now(&self.line.borrow()) {
            return known;
        }
        let mut changes = self.line.subscribe();
        match changes.wait_for(|line| !matches!(line, Line::Opening)).await {
            Ok(line) => now(&line).unwrap_or_else(|| Err(self.named("still connecting"))),
            Err(_) => Err(self.named("given up")),
        }
    }

    /// This connection is of no use any more; another may have taken its place already.
    fn lost(&self, open: &Arc<Open<L>>) {
        self.line.send_if_modified(|line| match line {
            Line::Up(current) if Arc::ptr_eq(current, open) => {
                *line = Line::Opening;
                true
            }
            _ => false,
        });
    }

    fn named(&self, reason: &str) -> String {
        format!("{}:{}: {reason}", self.place.0, self.place.1)
    }
}

/// Connects, and again whenever the connection is lost. A server that lets us in and out again is not asked faster than
/// one that does not answer.
async fn keep<L: Link>(state: Arc<State<L>>) {
    let mut changes = state.line.subscribe();
    let mut pause = *PAUSES.start();
    loop {
        match state.access.open::<L>(&state.place).await {
            Ok(link) => {
                let open = Arc::new(Open::new(link));
                let since = open.since;
                state.line.send_replace(Line::Up(open));
                if changes.wait_for(|line| matches!(line, Line::Opening)).await.is_err() {
                    return;
                }
                if since.elapsed() > *PAUSES.end() {
                    pause = *PAUSES.start();
                    continue;
                }
            }
            Err(reason) => {
                state.line.send_replace(Line::Down(reason));
            }
        }
        sleep(pause).await;
        pause = (pause * 2).min(*PAUSES.end());
    }
}
