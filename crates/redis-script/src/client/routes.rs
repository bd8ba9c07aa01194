//! The map of slots, and the way of a call to its server. It is the same for both libraries.
//!
//! Invariant: a call waits only for the server that has its key, so a server that is down does not delay calls to other
//! servers. The map is refreshed when a call fails or is redirected, and every [`REFRESH`]; never more often than every
//! [`REFRESH_GAP`]. Each refresh asks at most [`ASKED`] servers.
//!
//! docs/decisions/fred-cluster-client.md says why this exists.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use ::fred::util::redis_keyslot;
use bytes::Bytes;
use tokio::{
    sync::{Notify, Semaphore},
    task::{AbortHandle, JoinSet},
    time::{Instant, sleep, timeout},
};
use tracing::instrument::WithSubscriber as _;

use super::{
    ClientError, Confirm, Script, Value,
    link::{Answer, Command, Link},
    server::{Access, HostPort, SendError, Server},
    topology::{self, Kind, Layout, sentinel_form},
};
use crate::address::{Address, Settings, Topology, authority};

/// How old the map may become while nothing fails.
const REFRESH: Duration = Duration::from_secs(10);

/// The least time between two refreshes.
const REFRESH_GAP: Duration = Duration::from_millis(200);

/// How many servers one refresh asks for the map. The next refresh asks the next ones.
const ASKED: usize = 8;

/// How often a call is sent at most. A server may redirect it or ask for the script's text, or a connection may break.
const ATTEMPTS: u32 = 6;

/// A client over connections of type `L`.
pub(super) struct Routes<L> {
    pub(super) shared: Arc<Shared<L>>,
    in_flight: Semaphore,
    refresher: AbortHandle,
}

pub(super) struct Shared<L> {
    pub(super) access: Arc<Access>,
    map: RwLock<Arc<Map<L>>>,
    /// Servers that calls were redirected to since the last refresh, and that the map does not have.
    redirects: Mutex<BTreeMap<HostPort, Arc<Server<L>>>>,
    /// Notified when the map may be out of date.
    pub(super) stale: Notify,
    /// A server of a Redis that was taken for a single one has said that it belongs to a cluster.
    is_cluster_after_all: AtomicBool,
    /// The log has said that it belongs to a cluster.
    is_cluster_told: AtomicBool,
}

/// How it was found that a server belongs to a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// It sent a call to another server: the address is not enough, and its servers are used as a cluster.
    ByRedirect,
    /// It says so. As long as it answers all calls itself, the address is used as it is.
    BySaying,
}

/// Which server has which slots. Outside of a cluster one server has all of them.
struct Map<L> {
    /// Ranges of slots in ascending order: first slot, last slot, server.
    ranges: Vec<(u16, u16, Arc<Server<L>>)>,
    /// All known servers, replicas included.
    known: BTreeSet<HostPort>,
}

impl<L> Drop for Routes<L> {
    fn drop(&mut self) {
        self.refresher.abort();
    }
}

impl<L: Link> Routes<L> {
    pub(super) async fn connect(address: &Address, settings: &Settings) -> Result<Self, ClientError> {
        let access = Arc::new(Access { address: address.clone(), settings: settings.clone() });
        let shared = Arc::new(Shared {
            access,
            map: RwLock::new(Arc::new(Map { ranges: Vec::new(), known: BTreeSet::new() })),
            redirects: Mutex::default(),
            stale: Notify::new(),
            is_cluster_after_all: AtomicBool::new(false),
            is_cluster_told: AtomicBool::new(false),
        });
        match timeout(settings.connect_timeout, shared.connect()).await {
            Ok(connected) => connected.map_err(ClientError::Away)?,
            Err(_) => return Err(ClientError::Away(shared.late_connect())),
        }
        // What it logs goes where the caller's log goes.
        let keep_fresh = keep_fresh(Arc::clone(&shared)).with_current_subscriber();
        let refresher = tokio::spawn(keep_fresh).abort_handle();
        let in_flight = Semaphore::new(settings.max_in_flight.min(Semaphore::MAX_PERMITS));
        Ok(Self { shared, in_flight, refresher })
    }

    pub(super) async fn run(
        &self,
        script: &'static Script,
        keys: Vec<Bytes>,
        args: Vec<Bytes>,
        confirm: Option<Confirm>,
    ) -> Result<Value, ClientError> {
        let slot = keys.first().map_or(0, |key| redis_keyslot(key));
        let commands = |with_text, asking| commands(script, &keys, &args, with_text, asking, confirm);
        self.send(slot, commands, confirm).await
    }

    /// Publishes `message` on a sharded channel, at the server that has its slot.
    pub(super) async fn publish(&self, channel: Bytes, message: Bytes) -> Result<(), ClientError> {
        let slot = redis_keyslot(&channel);
        // A slot that is being moved takes its channels along at the end, so there is no `ASK`.
        let command = |_, _| vec![Command { name: "SPUBLISH", args: vec![channel.clone(), message.clone()] }];
        self.send(slot, command, None).await.map(drop)
    }

    /// Sends commands to the server that has `slot`. `commands(with_text, asking)` makes them: `with_text` asks for the
    /// script's text in place of its digest, and `asking` for `ASKING` in front.
    async fn send(
        &self,
        slot: u16,
        commands: impl Fn(bool, bool) -> Vec<Command>,
        confirm: Option<Confirm>,
    ) -> Result<Value, ClientError> {
        let _permit = self.in_flight.try_acquire().map_err(|_| ClientError::Busy)?;
        let limit = self.shared.access.settings.command_timeout
            + Duration::from_millis(confirm.map_or(0, |confirm| u64::from(confirm.timeout_ms)));
        let deadline = Instant::now() + limit;
        let mut redirect: Option<Target<L>> = None;
        let mut with_text = false;
        let mut reconnected = false;
        let mut reason = String::new();
        for _ in 0..ATTEMPTS {
            let Target { server, asking } = match redirect.take() {
                Some(target) => target,
                None => Target { server: self.shared.server(slot)?, asking: false },
            };
            let commands = commands(with_text, asking);
            let sent = match confirm {
                None => server.send(commands, deadline).await,
                Some(_) => server.send_exclusive(commands, deadline).await,
            };
            let answers = match sent {
                Ok(answers) => answers,
                Err(error) => {
                    self.shared.stale.notify_one();
                    let no = match error {
                        SendError::Lost(why) => {
                            reason = why;
                            continue;
                        }
                        SendError::Down(why) => return Err(ClientError::Away(why)),
                        SendError::Unconnected => "connection",
                        SendError::Late => "answer",
                    };
                    let server = authority(server.host_port());
                    let text = format!("{server}: no {no} within {} ms", limit.as_millis());
                    return Err(ClientError::Away(text));
                }
            };
            let mut answers = answers.into_iter().skip(usize::from(asking));
            let Some(answer) = answers.next() else { return Err(ClientError::Away("no answer".to_owned())) };
            let text = match answer {
                Ok(value) => return confirmed(value, confirm, answers.next()),
                Err(text) => text,
            };
            match text.split(' ').next().unwrap_or_default() {
                "NOSCRIPT" if !with_text => {
                    with_text = true;
                    redirect = Some(Target { server, asking });
                }
                code @ ("MOVED" | "ASK") => {
                    if code == "MOVED" {
                        self.shared.note_cluster(server.host_port());
                        self.shared.stale.notify_one();
                    }
                    let Some(to) = redirected(&text, server.host_port()) else { return Err(refused(text)) };
                    redirect = Some(Target { server: self.shared.at(&to), asking: code == "ASK" });
                }
                // Nothing was written. The host's name, or a proxy, may lead to another server by now.
                code if is_not_the_primary(code) && !reconnected => {
                    reconnected = true;
                    self.shared.stale.notify_one();
                    server.reconnect();
                }
                code => {
                    if is_not_the_primary(code) {
                        server.reconnect();
                    }
                    let error = refused(text);
                    if matches!(error, ClientError::Away(_)) {
                        self.shared.stale.notify_one();
                    }
                    return Err(error);
                }
            }
            reason = text;
        }
        Err(ClientError::Away(reason))
    }
}

/// The server that a call goes to next.
struct Target<L> {
    server: Arc<Server<L>>,
    /// Whether `ASKING` has to come first, because the slot is being moved to this server.
    asking: bool,
}

fn commands(
    script: &'static Script,
    keys: &[Bytes],
    args: &[Bytes],
    with_text: bool,
    asking: bool,
    confirm: Option<Confirm>,
) -> Vec<Command> {
    let (name, script) = if with_text { ("EVAL", &script.text) } else { ("EVALSHA", &script.sha1) };
    let mut all = Vec::with_capacity(2 + keys.len() + args.len());
    all.extend([Bytes::from_static(script.as_bytes()), Bytes::from(keys.len().to_string())]);
    all.extend(keys.iter().chain(args).cloned());
    let mut commands = Vec::with_capacity(1 + usize::from(asking) + usize::from(confirm.is_some()));
    if asking {
        commands.push(Command::new("ASKING", []));
    }
    commands.push(Command { name, args: all });
    if let Some(Confirm { replicas, timeout_ms }) = confirm {
        let numbers = [replicas, timeout_ms.max(1)].map(|number| Bytes::from(number.to_string()));
        commands.push(Command { name: "WAIT", args: numbers.to_vec() });
    }
    commands
}

fn confirmed(value: Value, confirm: Option<Confirm>, waited: Option<Answer>) -> Result<Value, ClientError> {
    let Some(Confirm { replicas: asked, .. }) = confirm else { return Ok(value) };
    match waited {
        Some(Ok(Value::Int(count))) => match u32::try_from(count) {
            Ok(confirmed) if confirmed < asked => {
                Err(ClientError::Unconfirmed { confirmed, asked, reply: value })
            }
            _ => Ok(value),
        },
        Some(Err(text)) => Err(ClientError::Away(text)),
        _ => Err(ClientError::Away("no answer to WAIT".to_owned())),
    }
}

/// Whether an error's code says that the server is not the primary that it was, or one that was left alone.
fn is_not_the_primary(code: &str) -> bool {
    matches!(code, "READONLY" | "MASTERDOWN" | "NOREPLICAS")
}

/// Converts an error reply: either the server can't serve the call, or the script returned the error.
fn refused(text: String) -> ClientError {
    /// Codes that come from the server and not from a script: it, or the cluster, can't serve calls now, or refuses us.
    const AWAY: [&str; 16] = [
        "LOADING",
        "CLUSTERDOWN",
        "MOVED",
        "ASK",
        "TRYAGAIN",
        "READONLY",
        "MASTERDOWN",
        "NOREPLICAS",
        "MISCONF",
        "BUSY",
        "OOM",
        "NOSCRIPT",
        "NOAUTH",
        "WRONGPASS",
        "NOPERM",
        "UNBLOCKED",
    ];
    let code = text.split(' ').next().unwrap_or_default();
    if AWAY.contains(&code) { ClientError::Away(text) } else { ClientError::Script(text) }
}

/// The server in `MOVED 3999 10.0.0.1:6381`. If the host is empty, it is the host of the server that said so.
pub(super) fn redirected(text: &str, by: &HostPort) -> Option<HostPort> {
    let (host, port) = text.split(' ').nth(2)?.rsplit_once(':')?;
    let host = if host.is_empty() { &by.0 } else { host };
    Some((host.to_owned(), port.parse().ok()?))
}

impl<L: Link> Shared<L> {
    /// Fetches the first map, and waits until one server is connected.
    async fn connect(&self) -> Result<(), String> {
        let mut turn = 0;
        while let Err(reason) = self.refresh(turn).await {
            turn += 1;
            if turn * ASKED >= self.access.address.hosts.len() {
                return Err(reason);
            }
        }
        let servers = self.map().servers();
        let mut attempts = JoinSet::new();
        for server in servers.into_values() {
            attempts.spawn(async move { server.first_attempt().await });
        }
        let mut reasons = Vec::new();
        while let Some(attempt) = attempts.join_next().await {
            match attempt {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(reason)) => reasons.push(reason),
                Err(error) => reasons.push(error.to_string()),
            }
        }
        Err(reasons.join("; "))
    }

    /// Why there is no connection when the time to connect is over. Names the servers that were tried: those that the hosts of the
    /// address told of, if they did.
    fn late_connect(&self) -> String {
        const NAMED: usize = 5;
        let Access { address, settings } = &*self.access;
        let limit_ms = settings.connect_timeout.as_millis();
        let servers = self.map().servers();
        let told_of = servers.keys().filter(|server| !address.hosts.contains(server));
        let names: Vec<_> = told_of.map(authority).collect();
        match names.as_slice() {
            [] => format!("no connection to {address} within {limit_ms} ms"),
            names => format!(
                "no connection within {limit_ms} ms to {}{}, of which {address} told",
                names[..names.len().min(NAMED)].join(", "),
                if names.len() > NAMED { " and others" } else { "" }
            ),
        }
    }

    /// Notes that a server answered as those of a cluster do. Says so if the address has it otherwise.
    fn note_cluster(&self, server: &HostPort) {
        self.note_cluster_of(server, Found::ByRedirect);
    }

    fn note_cluster_of(&self, server: &HostPort, found: Found) {
        let address = &self.access.address;
        if address.topology == Topology::Cluster {
            return;
        }
        if found == Found::ByRedirect {
            self.is_cluster_after_all.store(true, Ordering::Relaxed);
        }
        if !self.is_cluster_told.swap(true, Ordering::Relaxed) {
            let written = Address { topology: Topology::Cluster, service: None, ..address.clone() };
            let server = authority(server);
            tracing::warn!(
                "the store is {address}, and {server} belongs to a cluster: write store = \"{written}\", with more \
                 than one of its servers"
            );
        }
    }

    /// Asks the server of a `redis://` once what it is. A cluster of one server redirects no call, so it would say nothing by itself
    /// until it grows; a Sentinel keeps no data. Only warns: the address decides.
    async fn warn_of_another_kind(&self) {
        let address = &self.access.address;
        let Some(server) = self.map().servers().into_keys().next() else { return };
        if address.topology != Topology::Standalone {
            return;
        }
        let asked = timeout(self.access.settings.connect_timeout, topology::kind::<L>(&self.access, &server));
        // A user who may not ask is no reason to warn.
        let Ok(Some(kind)) = asked.await else { return };
        match kind {
            Kind::Alone => {}
            Kind::Cluster => self.note_cluster_of(&server, Found::BySaying),
            Kind::Sentinel => tracing::warn!(
                "the store is {address}, and {} is a Sentinel, which keeps no data: write store = \
                 \"{}\" with the name of its service",
                authority(&server),
                sentinel_form(address)
            ),
        }
    }

    /// How the servers are organised: as the address says, or as they said themselves.
    fn topology(&self) -> Topology {
        match self.is_cluster_after_all.load(Ordering::Relaxed) {
            true => Topology::Cluster,
            false => self.access.address.topology,
        }
    }

    fn map(&self) -> Arc<Map<L>> {
        Arc::clone(&self.map.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Host and port of the server that has a slot.
    pub(super) fn owner(&self, slot: u16) -> Result<HostPort, ClientError> {
        self.server(slot).map(|server| server.host_port().clone())
    }

    /// The server that has a slot.
    fn server(&self, slot: u16) -> Result<Arc<Server<L>>, ClientError> {
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        let index = map.ranges.partition_point(|(_, last, _)| *last < slot);
        match map.ranges.get(index) {
            Some((first, _, server)) if *first <= slot => Ok(Arc::clone(server)),
            _ => {
                self.stale.notify_one();
                Err(ClientError::Away(format!("no server has slot {slot}")))
            }
        }
    }

    /// The server that a call was redirected to.
    fn at(&self, to: &HostPort) -> Arc<Server<L>> {
        if let Some(known) = self.map().servers().remove(to) {
            return known;
        }
        let mut redirects = self.redirects.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(redirects.entry(to.clone()).or_insert_with(|| self.start(to.clone())))
    }

    fn start(&self, host_port: HostPort) -> Arc<Server<L>> {
        Arc::new(Server::start(host_port, Arc::clone(&self.access)))
    }

    /// Refreshes the map. Asks the `turn`-th group of servers, and adopts the first answer from a server that is in
    /// touch with its cluster; only without such an answer, another one.
    async fn refresh(&self, turn: usize) -> Result<(), String> {
        let address = &self.access.address;
        let hosts = || address.hosts.iter().cloned();
        let topology = self.topology();
        let asked: Vec<HostPort> = match topology {
            // A single host needs no map.
            Topology::Standalone if address.hosts.len() == 1 => {
                let ranges = hosts().map(|host| (0, u16::MAX, host)).collect();
                self.adopt(Layout { ranges, known: BTreeSet::new(), certain: true });
                return Ok(());
            }
            Topology::Standalone | Topology::Sentinel => hosts().collect(),
            Topology::Cluster => {
                let map = self.map();
                let others = map.known.iter().filter(|host| !address.hosts.contains(host)).cloned();
                let all: Vec<HostPort> = hosts().chain(others).collect();
                let from = turn * ASKED % all.len().next_multiple_of(ASKED);
                all.into_iter().skip(from).take(ASKED).collect()
            }
        };
        let mut answers = JoinSet::new();
        for host in asked {
            let access = Arc::clone(&self.access);
            answers.spawn(async move { topology::ask::<L>(&access, topology, host).await });
        }
        let mut reasons = Vec::new();
        let mut doubtful = None;
        while let Some(answer) = answers.join_next().await {
            match answer.unwrap_or_else(|error| Err(error.to_string())) {
                Ok(layout) if layout.certain => {
                    self.adopt(layout);
                    return Ok(());
                }
                Ok(layout) => doubtful = Some(layout),
                Err(reason) => reasons.push(reason),
            }
        }
        match doubtful {
            Some(layout) => {
                self.adopt(layout);
                Ok(())
            }
            None => Err(reasons.join("; ")),
        }
    }

    /// Makes a layout the map. Servers that stay keep their connections.
    fn adopt(&self, layout: Layout) {
        let mut servers = self.map().servers();
        servers.append(&mut self.redirects.lock().unwrap_or_else(PoisonError::into_inner));
        let mut ranges = Vec::with_capacity(layout.ranges.len());
        for (first, last, primary) in layout.ranges {
            let server = servers.entry(primary).or_insert_with_key(|primary| self.start(primary.clone()));
            ranges.push((first, last, Arc::clone(server)));
        }
        ranges.sort_unstable_by_key(|(first, _, _)| *first);
        *self.map.write().unwrap_or_else(PoisonError::into_inner) =
            Arc::new(Map { ranges, known: layout.known });
    }
}

impl<L: Link> Map<L> {
    fn servers(&self) -> BTreeMap<HostPort, Arc<Server<L>>> {
        self.ranges.iter().map(|(_, _, server)| (server.host_port().clone(), Arc::clone(server))).collect()
    }
}

async fn keep_fresh<L: Link>(shared: Arc<Shared<L>>) {
    shared.warn_of_another_kind().await;
    let mut turn = 0;
    loop {
        sleep(REFRESH_GAP).await;
        drop(timeout(REFRESH, shared.stale.notified()).await);
        match timeout(shared.access.settings.connect_timeout, shared.refresh(turn)).await {
            Ok(Ok(())) => {}
            // The old map stays. Calls report it if their server is down.
            Ok(Err(reason)) => {
                tracing::debug!(reason, "no server of Redis could say which server has which slots");
            }
            Err(_) => tracing::debug!("no server of Redis said in time which server has which slots"),
        }
        turn += 1;
    }
}
