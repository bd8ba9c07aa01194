//! Which server has a key, and the way there: the part of a client that is the same whatever library speaks.
//!
//! Invariant: a call waits for the one server that has its key and for no other, so a server that is away holds up
//! nobody else's calls. Where the servers belong to each other is asked anew when a call fails or is sent elsewhere, and
//! every [`REFRESH`]; never more often than every [`REFRESH_GAP`], and of [`ASKED`] servers at most.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::Duration,
};

use ::fred::util::redis_keyslot;
use bytes::Bytes;
use tokio::{
    sync::{Notify, Semaphore},
    task::{AbortHandle, JoinSet},
    time::{Instant, sleep, timeout},
};

use super::{
    ClientError, Confirm, Script, Value,
    link::{Answer, Command, Link},
    listener::Listener,
    server::{Access, Place, Server, Trouble},
};
use crate::address::{Address, Settings, Topology};

/// How old the map of the servers becomes when nothing fails.
const REFRESH: Duration = Duration::from_secs(10);

/// The least time between two refreshes.
const REFRESH_GAP: Duration = Duration::from_millis(200);

/// How many servers are asked at once for the map; the next refresh asks the next ones.
const ASKED: usize = 8;

/// How often a call is sent: it may be told of another server, or to bring the script's text, and a connection may break.
const ATTEMPTS: u32 = 6;

/// A client but for the library.
pub(super) struct Routes<L> {
    shared: Arc<Shared<L>>,
    in_flight: Semaphore,
    refresher: AbortHandle,
}

pub(super) struct Shared<L> {
    pub(super) access: Arc<Access>,
    map: RwLock<Arc<Map<L>>>,
    /// Servers that calls were told of since the map was made, and that it does not have.
    told: Mutex<BTreeMap<Place, Arc<Server<L>>>>,
    pub(super) stale: Notify,
}

/// Who has which slots. Outside of a cluster one server has them all.
struct Map<L> {
    /// Ranges of slots, both ends in them, in their order.
    ranges: Vec<(u16, u16, Arc<Server<L>>)>,
    /// All servers heard of, replicas too.
    known: BTreeSet<Place>,
}

/// What a server said of who has which slots.
struct Layout {
    ranges: Vec<(u16, u16, Place)>,
    known: BTreeSet<Place>,
    /// Whether the server that says so is itself in touch with the others.
    certain: bool,
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
            told: Mutex::default(),
            stale: Notify::new(),
        });
        match timeout(settings.connect_timeout, shared.begin()).await {
            Ok(begun) => begun.map_err(ClientError::Away)?,
            Err(_) => {
                let text =
                    format!("no connection to {address} within {} ms", settings.connect_timeout.as_millis());
                return Err(ClientError::Away(text));
            }
        }
        let refresher = tokio::spawn(keep_fresh(Arc::clone(&shared))).abort_handle();
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
        let commands = |text_too, asking| commands(script, &keys, &args, text_too, asking, confirm);
        self.send(slot, commands, confirm).await
    }

    /// Says `message` on a sharded channel, where its slot is.
    pub(super) async fn publish(&self, channel: Bytes, message: Bytes) -> Result<(), ClientError> {
        let slot = redis_keyslot(&channel);
        // A slot that is on its way takes its channels along at the end: nobody says `ASK`.
        let command = |_, _| vec![Command { name: "SPUBLISH", args: vec![channel.clone(), message.clone()] }];
        self.send(slot, command, None).await.map(drop)
    }

    /// Listens to a sharded channel, wherever its slot is from now on.
    pub(super) fn listen(&self, channel: Bytes, max_len: usize) -> Listener {
        Listener::start(Arc::clone(&self.shared), channel, max_len)
    }

    /// Sends what `commands` makes to the server that has a slot. It is told whether a script's text is to be sent along,
    /// and whether `ASKING` comes first.
    async fn send(
        &self,
        slot: u16,
        commands: impl Fn(bool, bool) -> Vec<Command>,
        confirm: Option<Confirm>,
    ) -> Result<Value, ClientError> {
        let _permit = self.in_flight.try_acquire().map_err(|_| ClientError::Busy)?;
        let patience = self.shared.access.settings.command_timeout
            + Duration::from_millis(confirm.map_or(0, |confirm| u64::from(confirm.timeout_ms)));
        let deadline = Instant::now() + patience;
        let mut told: Option<Told<L>> = None;
        let mut text_too = false;
        let mut reason = String::new();
        for _ in 0..ATTEMPTS {
            let Told { server, asking } = match told.take() {
                Some(told) => told,
                None => Told { server: self.shared.server(slot)?, asking: false },
            };
            let commands = commands(text_too, asking);
            let sent = match confirm {
                None => server.send(commands, deadline).await,
                Some(_) => server.send_alone(commands, deadline).await,
            };
            let answers = match sent {
                Ok(answers) => answers,
                Err(trouble) => {
                    self.shared.stale.notify_one();
                    match trouble {
                        Trouble::Lost(why) => {
                            reason = why;
                            continue;
                        }
                        Trouble::Down(why) => return Err(ClientError::Away(why)),
                        Trouble::Late => {
                            let text = format!("no answer within {} ms", patience.as_millis());
                            return Err(ClientError::Away(text));
                        }
                    }
                }
            };
            let mut answers = answers.into_iter().skip(usize::from(asking));
            let Some(answer) = answers.next() else { return Err(ClientError::Away("no answer".to_owned())) };
            let text = match answer {
                Ok(value) => return confirmed(value, confirm, answers.next()),
                Err(text) => text,
            };
            match text.split(' ').next().unwrap_or_default() {
                "NOSCRIPT" if !text_too => {
                    text_too = true;
                    told = Some(Told { server, asking });
                }
                code @ ("MOVED" | "ASK") => {
                    if code == "MOVED" {
                        self.shared.stale.notify_one();
                    }
                    let Some(place) = redirected(&text, server.place()) else { return Err(refused(text)) };
                    told = Some(Told { server: self.shared.at(&place), asking: code == "ASK" });
                }
                _ => {
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

/// Where a call was told to go.
struct Told<L> {
    server: Arc<Server<L>>,
    /// Whether that server has to be told that it was asked to: the slot is on its way there.
    asking: bool,
}

fn commands(
    script: &'static Script,
    keys: &[Bytes],
    args: &[Bytes],
    text_too: bool,
    asking: bool,
    confirm: Option<Confirm>,
) -> Vec<Command> {
    let (name, script) = if text_too { ("EVAL", &script.text) } else { ("EVALSHA", &script.sha1) };
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
            Ok(confirmed) if confirmed < asked => Err(ClientError::Unconfirmed { confirmed, asked }),
            _ => Ok(value),
        },
        Some(Err(text)) => Err(ClientError::Away(text)),
        _ => Err(ClientError::Away("no answer to WAIT".to_owned())),
    }
}

/// The error that a server's error reply stands for: its own trouble, or the script's.
fn refused(text: String) -> ClientError {
    /// What no script chose to say: the server, or the cluster, can't do its work now, or does not let us.
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

/// The place in `MOVED 3999 10.0.0.1:6381`; without a host it is that of the server that says so.
pub(super) fn redirected(text: &str, by: &Place) -> Option<Place> {
    let (host, port) = text.split(' ').nth(2)?.rsplit_once(':')?;
    let host = if host.is_empty() { &by.0 } else { host };
    Some((host.to_owned(), port.parse().ok()?))
}

impl<L: Link> Shared<L> {
    /// Learns where everything is, and waits until a server is connected to.
    async fn begin(&self) -> Result<(), String> {
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
            attempts.spawn(async move { server.settled().await });
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

    fn map(&self) -> Arc<Map<L>> {
        Arc::clone(&self.map.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Where the server is that has a slot.
    pub(super) fn owner(&self, slot: u16) -> Result<Place, ClientError> {
        self.server(slot).map(|server| server.place().clone())
    }

    /// The server that has a slot.
    fn server(&self, slot: u16) -> Result<Arc<Server<L>>, ClientError> {
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        let place = map.ranges.partition_point(|(_, last, _)| *last < slot);
        match map.ranges.get(place) {
            Some((first, _, server)) if *first <= slot => Ok(Arc::clone(server)),
            _ => {
                self.stale.notify_one();
                Err(ClientError::Away(format!("no server has slot {slot}")))
            }
        }
    }

    /// The server at a place that a call was told of.
    fn at(&self, place: &Place) -> Arc<Server<L>> {
        if let Some(known) = self.map().servers().remove(place) {
            return known;
        }
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(told.entry(place.clone()).or_insert_with(|| self.start(place.clone())))
    }

    fn start(&self, place: Place) -> Arc<Server<L>> {
        Arc::new(Server::start(place, Arc::clone(&self.access)))
    }

    /// Asks where everything is, servers from the `turn`-th group on, and goes by the first answer that can be relied on.
    async fn refresh(&self, turn: usize) -> Result<(), String> {
        let address = &self.access.address;
        let hosts = || address.hosts.iter().cloned();
        let asked: Vec<Place> = match address.topology {
            // There is nothing to ask.
            Topology::Standalone if address.hosts.len() == 1 => {
                let ranges = hosts().map(|place| (0, u16::MAX, place)).collect();
                self.adopt(Layout { ranges, known: BTreeSet::new(), certain: true });
                return Ok(());
            }
            Topology::Standalone | Topology::Sentinel => hosts().collect(),
            Topology::Cluster => {
                let map = self.map();
                let others = map.known.iter().filter(|place| !address.hosts.contains(place)).cloned();
                let all: Vec<Place> = hosts().chain(others).collect();
                let from = turn * ASKED % all.len().next_multiple_of(ASKED);
                all.into_iter().skip(from).take(ASKED).collect()
            }
        };
        let mut answers = JoinSet::new();
        for place in asked {
            let access = Arc::clone(&self.access);
            answers.spawn(async move { ask::<L>(&access, place).await });
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

    /// Makes a layout the map; servers that stay keep their connections.
    fn adopt(&self, layout: Layout) {
        let mut servers = self.map().servers();
        servers.append(&mut self.told.lock().unwrap_or_else(PoisonError::into_inner));
        let mut ranges = Vec::with_capacity(layout.ranges.len());
        for (first, last, place) in layout.ranges {
            let server = servers.entry(place).or_insert_with_key(|place| self.start(place.clone()));
            ranges.push((first, last, Arc::clone(server)));
        }
        ranges.sort_unstable_by_key(|(first, _, _)| *first);
        *self.map.write().unwrap_or_else(PoisonError::into_inner) =
            Arc::new(Map { ranges, known: layout.known });
    }
}

impl<L: Link> Map<L> {
    fn servers(&self) -> BTreeMap<Place, Arc<Server<L>>> {
        self.ranges.iter().map(|(_, _, server)| (server.place().clone(), Arc::clone(server))).collect()
    }
}

async fn keep_fresh<L: Link>(shared: Arc<Shared<L>>) {
    let mut turn = 0;
    loop {
        sleep(REFRESH_GAP).await;
        drop(timeout(REFRESH, shared.stale.notified()).await);
        match timeout(shared.access.settings.connect_timeout, shared.refresh(turn)).await {
            Ok(Ok(())) => {}
            // The map that there was goes on; those who call hear of it if their server is away.
            Ok(Err(reason)) => {
                tracing::debug!(reason, "the servers of Redis could not be asked for their map");
            }
            Err(_) => tracing::debug!("no server of Redis told the map in time"),
        }
        turn += 1;
    }
}

/// Asks a server who has which slots, over a connection for this question alone.
async fn ask<L: Link>(access: &Access, place: Place) -> Result<Layout, String> {
    let odd = |what: &str| format!("{}:{}: {what}", place.0, place.1);
    let whole =
        |place: Place| Layout { ranges: vec![(0, u16::MAX, place)], known: BTreeSet::new(), certain: true };
    match access.address.topology {
        Topology::Standalone => {
            let link: L = access.open(&place).await?;
            let role = link.send(vec![Command::new("ROLE", [])]).await?.pop();
            match role {
                Some(Ok(Value::Array(parts)))
                    if parts.first().and_then(text).as_deref() == Some("master") =>
                {
                    Ok(whole(place))
                }
                Some(Err(error)) => Err(odd(&error)),
                _ => Err(odd("is not the primary")),
            }
        }
        Topology::Sentinel => {
            // Sentinels may have the servers' password, or none.
            let link: L = match access.open(&place).await {
                Err(_) if access.address.password.is_some() => access.anonymous().open(&place).await?,
                opened => opened?,
            };
            let service = access.address.service.clone().unwrap_or_default();
            let args = vec![Bytes::from_static(b"GET-MASTER-ADDR-BY-NAME"), Bytes::from(service)];
            match link.send(vec![Command { name: "SENTINEL", args }]).await?.pop() {
                Some(Ok(Value::Array(parts))) => {
                    match parts.iter().map(text).collect::<Option<Vec<_>>>().as_deref() {
                        Some([host, port]) => {
                            Ok(whole((host.clone(), port.parse().map_err(|_| odd("names no port"))?)))
                        }
                        _ => Err(odd("names no primary")),
                    }
                }
                Some(Err(error)) => Err(odd(&error)),
                _ => Err(odd("does not know the service")),
            }
        }
        Topology::Cluster => {
            let link: L = access.open(&place).await?;
            let commands = vec![Command::new("CLUSTER", ["INFO"]), Command::new("CLUSTER", ["SLOTS"])];
            let answers = link.send(commands).await?.into_iter().collect::<Result<Vec<_>, _>>();
            let answers = answers.map_err(|error| odd(&error))?;
            let [info, Value::Array(ranges)] = answers.as_slice() else { return Err(odd("no answer")) };
            let certain = text(info).is_some_and(|info| info.contains("cluster_state:ok"));
            let layout = layout(ranges, &place, certain)
                .ok_or_else(|| odd("the answer to CLUSTER SLOTS is unknown"))?;
            if layout.ranges.is_empty() { Err(odd("its cluster has no slots")) } else { Ok(layout) }
        }
    }
}

/// Reads the answer of `CLUSTER SLOTS`: `[first, last, [host, port, id…], replicas…]` for each range.
fn layout(ranges: &[Value], by: &Place, certain: bool) -> Option<Layout> {
    let mut layout = Layout { ranges: Vec::with_capacity(ranges.len()), known: BTreeSet::new(), certain };
    for range in ranges {
        let Value::Array(parts) = range else { return None };
        let [Value::Int(first), Value::Int(last), servers @ ..] = parts.as_slice() else { return None };
        let places = servers.iter().map(|server| place(server, by)).collect::<Option<Vec<_>>>()?;
        let primary = places.first()?.clone();
        layout.ranges.push((u16::try_from(*first).ok()?, u16::try_from(*last).ok()?, primary));
        layout.known.extend(places);
    }
    Some(layout)
}

/// A server in `CLUSTER SLOTS`; without a host it is that of the server that says so.
fn place(server: &Value, by: &Place) -> Option<Place> {
    let Value::Array(parts) = server else { return None };
    let [host, Value::Int(port), ..] = parts.as_slice() else { return None };
    let host = text(host).filter(|host| !host.is_empty() && host != "?").unwrap_or_else(|| by.0.clone());
    Some((host, u16::try_from(*port).ok()?))
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::Bytes(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    }
}
