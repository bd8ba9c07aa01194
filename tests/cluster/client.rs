//! The way of a server's calls to the nodes: delays, lost links, redirects, repeated calls and timeouts.
//!
//! It behaves as the real client does (`redis_script::client`): a call ends within the timeout, the map of slots is
//! renewed when a call fails, and a call whose connection breaks may run twice. Invariant: what a call waits for is
//! virtual time, or a node.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
};

use admission::Lots;
use bytes::Bytes;
use redis_script::client::{Client, ClientError, Confirm, Script, Value};
use tokio::time::{Duration, Instant, sleep, timeout};

use crate::{
    auditor::{Auditor, Ticket},
    cluster::{Cluster, Served},
    follow::Follow,
    plan::Plan,
    seed::Random,
    sound,
};

/// How long a call may take.
const TIMEOUT_MS: u64 = 2_000;

/// How often a call is sent at most.
const ATTEMPTS: usize = 6;

/// A server's process, as the network sees it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ServerProcess {
    /// Counts the processes in this place.
    pub(crate) number: u64,
    pub(crate) up: bool,
    pub(crate) frozen_until: u64,
    /// The node that it takes for the zone's primary.
    primary: usize,
    refreshing: bool,
}

/// Everything below the store's port.
pub(crate) struct Net {
    pub(crate) cluster: Cluster,
    pub(crate) servers: Vec<ServerProcess>,
    pub(crate) auditor: Auditor,
    random: Random,
    /// What was learnt about the people is compared beside the line's calls. Its delays must not change theirs.
    random_of_learned: Random,
    delay_ms: u64,
    repeats: u64,
    start: Instant,
    pub(crate) scripts: u64,
    /// The epoch that each node answered with last.
    epochs: Vec<u64>,
    /// The first epoch of the line that each node answered with last.
    lines: Vec<u64>,
    /// How many people a minute each node admits, as its last reply said.
    rates: Vec<u64>,
    /// How far the zone's clock was from the true time at the last answer.
    clock_ms: i64,
    /// What the draw gave to whom, once it took place.
    pub(crate) lots: Option<Arc<Lots>>,
    /// Whether no key of the zone vanishes, so that its state is sound after each script.
    is_whole: bool,
    followed: Option<Follow>,
}

impl Net {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self {
            cluster: Cluster::new(plan),
            servers: vec![ServerProcess::default(); plan.servers],
            auditor: Auditor::new(plan),
            random: Random::of(plan.seed ^ 0xDE1A),
            random_of_learned: Random::of(plan.seed ^ 0x1EA2),
            delay_ms: plan.delay_ms,
            repeats: plan.repeats,
            start: Instant::now(),
            scripts: 0,
            epochs: vec![0; plan.data_nodes + plan.voters],
            lines: vec![0; plan.data_nodes + plan.voters],
            rates: vec![0; plan.data_nodes + plan.voters],
            clock_ms: 0,
            lots: None,
            is_whole: !plan.faults.iter().any(|(_, fault)| fault.takes_keys()),
            followed: Follow::from_setting(),
        }
    }

    /// Tells what a script changed of the place that the story follows.
    fn follow(&mut self, now: u64, (server, node): (usize, usize), script: &Script) {
        let Some(followed) = &mut self.followed else { return };
        if let Some(said) = followed.after(self.cluster.data(node), PREFIX) {
            self.cluster
                .tell(now, format!("{said}, at node {node} after a {} of server {server}", script.name));
        }
    }

    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).expect("short")
    }

    /// The ticket with the number that was given out: whoever drew another number has that, too.
    pub(crate) fn given_out(&self, (epoch, seq): Ticket) -> Ticket {
        let origin = self.lots.as_ref().and_then(|lots| lots.origin(seq));
        (epoch, origin.unwrap_or(seq))
    }

    /// The ticket with the number by which the store knows it: that of the draw, if it gave one.
    pub(crate) fn dealt(&self, (epoch, seq): Ticket) -> Ticket {
        let number = self.lots.as_ref().and_then(|lots| lots.number(seq));
        (epoch, number.unwrap_or(seq))
    }

    /// A server reads tickets by these lots from now on.
    pub(crate) fn draws(&mut self, server: usize, lots: &Arc<Lots>) {
        let now = self.now();
        let before = self.lots.get_or_insert_with(|| Arc::clone(lots));
        self.auditor.draws(now, server, before, lots);
    }

    fn random_of(&mut self, script: &Script) -> &mut Random {
        if script.name == "learned" { &mut self.random_of_learned } else { &mut self.random }
    }

    fn delay(&mut self, script: &Script) -> Duration {
        let delay_ms = self.delay_ms;
        let random = self.random_of(script);
        // Most messages are quick.
        let slow = random.below(20) == 0;
        Duration::from_micros(200 + random.bits() % (1_000 * if slow { delay_ms * 4 } else { delay_ms }))
    }
}

pub(crate) type Shared = Arc<Mutex<Net>>;

pub(crate) fn lock(net: &Shared) -> MutexGuard<'_, Net> {
    net.lock().expect("nobody panics here")
}

/// The client of one server's process.
#[derive(Clone)]
pub(crate) struct SimClient {
    pub(crate) net: Shared,
    pub(crate) server: usize,
    /// Of this process.
    pub(crate) number: u64,
}

/// How one attempt ended.
enum Attempt {
    Done(Result<Value, ClientError>),
    Moved(usize),
    /// The node is a replica.
    ReadOnly(String),
    /// The connection broke, and the call is sent again.
    Lost,
}

impl SimClient {
    /// Waits until the server's process runs; for ever if it has ended.
    pub(crate) async fn runs(&self) {
        loop {
            let until = {
                let net = lock(&self.net);
                let server = net.servers[self.server];
                if !server.up || server.number != self.number {
                    None
                } else if server.frozen_until <= net.now() {
                    return;
                } else {
                    Some(server.frozen_until - net.now())
                }
            };
            match until {
                Some(ms) => sleep(Duration::from_millis(ms)).await,
                None => std::future::pending::<()>().await,
            }
        }
    }

    async fn attempt(
        &self,
        node: usize,
        script: &'static Script,
        keys: &[Bytes],
        args: &[Bytes],
        confirm: Option<Confirm>,
    ) -> Attempt {
        let delay = lock(&self.net).delay(script);
        sleep(delay).await;
        loop {
            let wait_ms = {
                let net = lock(&self.net);
                let now = net.now();
                if !net.cluster.is_linked(self.server, node) {
                    // The packet is lost; the caller's timeout ends the wait.
                    None
                } else if !net.cluster.is_up(node) {
                    return Attempt::Done(Err(ClientError::Away("connection refused".to_owned())));
                } else {
                    match net.cluster.frozen_until(node, now) {
                        Some(until) => Some(until - now),
                        None => break,
                    }
                }
            };
            match wait_ms {
                Some(ms) => sleep(Duration::from_millis(ms)).await,
                None => std::future::pending().await,
            }
        }
        let (served, back, breaks, offset, ran_ms) = {
            let mut net = lock(&self.net);
            let now = net.now();
            net.cluster.pump(now);
            net.scripts += 1;
            let served = net.cluster.serve(node, now, script, keys, args);
            if let Served::Ran(Ok(value)) = &served {
                tap(&mut net, now, (self.server, node), script, (keys, args), value);
                net.follow(now, (self.server, node), script);
                if script.name == "zones" {
                    net.auditor.reads_register(now, self.server);
                }
                if net.is_whole && net.scripts.is_multiple_of(JUDGE_EACH) && OF_A_ZONE.contains(&script.name)
                {
                    let data = net.cluster.data(node);
                    let (fault, taken) = (sound::fault(data, PREFIX), sound::taken(data, PREFIX));
                    net.auditor.state_after(now, script.name, fault, taken);
                }
                if net.cluster.lacks_keys(node) {
                    net.auditor.wipe(now);
                }
            }
            let repeats = net.repeats;
            let breaks = repeats > 0 && net.random_of(script).bits().is_multiple_of(repeats);
            (served, net.delay(script), breaks, net.cluster.offset(node), now)
        };
        if breaks {
            return Attempt::Lost;
        }
        if let (Served::Ran(Ok(reply)), Some(confirm)) = (&served, confirm) {
            let deadline = Instant::now() + Duration::from_millis(confirm.timeout_ms.into());
            loop {
                let confirmed = {
                    let mut net = lock(&self.net);
                    let now = net.now();
                    net.cluster.pump(now);
                    if net.cluster.is_up(node) { net.cluster.confirmed(node, offset) } else { 0 }
                };
                if confirmed >= confirm.replicas {
                    break;
                }
                if Instant::now() >= deadline {
                    lock(&self.net).auditor.untold(ran_ms, self.server);
                    return Attempt::Done(Err(ClientError::Unconfirmed {
                        confirmed,
                        asked: confirm.replicas,
                        reply: reply.clone(),
                    }));
                }
                sleep(Duration::from_millis(2)).await;
            }
        }
        sleep(back).await;
        let is_heard = {
            let mut net = lock(&self.net);
            let is_heard = net.cluster.is_linked(self.server, node);
            if !is_heard {
                net.auditor.untold(ran_ms, self.server);
            }
            is_heard
        };
        if !is_heard {
            std::future::pending::<()>().await;
        }
        match served {
            Served::Ran(Ok(value)) => Attempt::Done(Ok(value)),
            Served::Ran(Err(text)) => Attempt::Done(Err(ClientError::Script(text))),
            Served::Moved(to) => Attempt::Moved(to),
            Served::ReadOnly(text) => Attempt::ReadOnly(text),
            Served::Refused(text) => Attempt::Done(Err(ClientError::Away(text.to_owned()))),
        }
    }

    async fn call(
        &self,
        script: &'static Script,
        keys: &[Bytes],
        args: &[Bytes],
        confirm: Option<Confirm>,
    ) -> Result<Value, ClientError> {
        let mut node = lock(&self.net).servers[self.server].primary;
        let mut reconnected = false;
        for _ in 0..ATTEMPTS {
            match self.attempt(node, script, keys, args, confirm).await {
                Attempt::Done(result) => return result,
                Attempt::Lost => {}
                Attempt::ReadOnly(text) => {
                    self.refresh();
                    // The host's name may lead to another node by now.
                    if std::mem::replace(&mut reconnected, true) {
                        return Err(ClientError::Away(text));
                    }
                    node = lock(&self.net).servers[self.server].primary;
                }
                Attempt::Moved(to) if to == node => break,
                Attempt::Moved(to) => {
                    self.refresh();
                    node = to;
                }
            }
        }
        Err(ClientError::Away("redirected too often".to_owned()))
    }

    /// Asks the nodes who is the primary, soon.
    fn refresh(&self) {
        {
            let mut net = lock(&self.net);
            if std::mem::replace(&mut net.servers[self.server].refreshing, true) {
                return;
            }
        }
        let client = self.clone();
        tokio::spawn(async move {
            sleep(Duration::from_millis(200)).await;
            client.runs().await;
            let mut net = lock(&client.net);
            let now = net.now();
            net.servers[client.server].refreshing = false;
            let count = net.cluster.count();
            let first = net.random.below(count);
            let answers: Vec<_> = (0..count)
                .map(|i| (first + i) % count)
                .filter(|&node| {
                    net.cluster.is_linked(client.server, node)
                        && net.cluster.is_up(node)
                        && net.cluster.frozen_until(node, now).is_none()
                })
                .map(|node| net.cluster.view_of(node))
                .collect();
            // The first answer of a node that is in touch with its cluster; otherwise any.
            if let Some((primary, _)) = answers.iter().find(|(_, ok)| *ok).or(answers.first()) {
                net.servers[client.server].primary = *primary;
            }
        });
    }
}

impl Client for SimClient {
    async fn run(
        &self,
        script: &'static Script,
        keys: Vec<Bytes>,
        args: Vec<Bytes>,
        confirm: Option<Confirm>,
    ) -> Result<Value, ClientError> {
        self.runs().await;
        let limit =
            Duration::from_millis(TIMEOUT_MS + confirm.map_or(0, |confirm| u64::from(confirm.timeout_ms)));
        let result = timeout(limit, self.call(script, &keys, &args, confirm)).await;
        self.runs().await;
        let result = result.unwrap_or_else(|_| Err(ClientError::Away("no answer in time".to_owned())));
        if matches!(result, Err(ClientError::Away(_))) {
            self.refresh();
        }
        result
    }
}

/// The keys of the zone begin with this.
const PREFIX: &str = "weir:v1:{ZONE}:";

/// One state in so many is judged: it takes as long as the script itself.
const JUDGE_EACH: u64 = 5;

/// The scripts that read and write a zone's state. Each returns its header first.
const OF_A_ZONE: [&str; 11] =
    ["join", "enter", "beat", "visits", "leave", "retire", "policy", "restore", "mend", "census", "deal"];

/// Where the header has the first epoch of the line.
const BORN: usize = 37;

/// Where the memory that `restore` is given says the line that it is of, and its log; the entries come next.
const LINE_OF_MEMORY: usize = 5;
const LOG_OF_MEMORY: usize = 23;

/// Where it has the draw that decides the order, and the one by which the line was dealt last.
const DRAW: usize = 57;

/// Reads on the wire what a call decided, for the auditor: which tickets entered by it, and when.
fn tap(
    net: &mut Net,
    now: u64,
    (server, node): (usize, usize),
    script: &Script,
    (keys, args): (&[Bytes], &[Bytes]),
    value: &Value,
) {
    // The other scripts are of no zone's state, and return no header.
    if !OF_A_ZONE.contains(&script.name) {
        return;
    }
    let Value::Array(parts) = value else { return };
    let bytes = |i: usize| match parts.get(i) {
        Some(Value::Bytes(bytes)) => bytes.clone(),
        Some(Value::Int(number)) => number.to_string().into(),
        _ => Bytes::new(),
    };
    let number = |i: usize| String::from_utf8_lossy(&bytes(i)).parse::<u64>().unwrap_or(0);
    let header = bytes(0);
    let long = |bytes: &[u8]| bytes.iter().fold(0, |n, &byte| n << 8 | u64::from(byte));
    let field = |i: usize| header.get(i * 8..i * 8 + 8).map_or(0, long);
    let short = |number: u64| u32::try_from(number).unwrap_or(0);
    let epoch = short(field(0));
    if std::mem::replace(&mut net.epochs[node], field(0)) != field(0) {
        let line = format!(
            "node {node} has epoch {}, next number {}, after a {} of server {server}",
            field(0),
            field(4),
            script.name
        );
        net.cluster.tell(now, line);
        net.auditor.epoch_begins(epoch, short(field(BORN)));
        // A line begins with the epoch that it is named after.
        if script.name == "policy" && field(BORN) == field(0) {
            net.auditor.line_begins(now, (epoch, field(4)), net.cluster.clock_ahead_ms(node));
        }
    }
    let line_before = std::mem::replace(&mut net.lines[node], field(BORN));
    if std::mem::replace(&mut net.rates[node], field(29)) != field(29) {
        let line =
            format!("node {node} admits {} a minute, after a {} of server {server}", field(29), script.name);
        net.cluster.tell(now, line);
    }
    let now_ms = field(2);
    let before = std::mem::replace(&mut net.clock_ms, now_ms.cast_signed() - now.cast_signed());
    let by_ms = net.clock_ms - before;
    if before != 0 && by_ms.abs() > 1_000 {
        let line = format!(
            "the zone's clock moves by {by_ms} ms at node {node}, after a {} of server {server}",
            script.name
        );
        net.cluster.tell(now, line);
    }
    if field(DRAW) > 0 {
        net.auditor.dealt(now, field(DRAW) == field(DRAW + 1));
    }
    let mut entered = |epoch: u32, seq: u64, (at_ms, unix_s): (u64, u64), by_join: bool| {
        if at_ms == now_ms {
            let line = format!("node {node} lets ticket ({epoch}, {seq}) in, for server {server}");
            net.cluster.tell(now, line);
            let ticket = net.given_out((epoch, seq));
            net.auditor.decided(
                now,
                server,
                ticket,
                (at_ms, unix_s),
                (by_join, net.cluster.cut_off_since(node)),
            );
        }
    };
    match script.name {
        "join" => {
            let (first, count, unix_s) = (number(3), number(4), number(5));
            for seq in first..first + count {
                entered(epoch, seq, (now_ms, unix_s), true);
            }
            // The keys of joins are the last ones.
            let tickets = bytes(9);
            let own = &keys[keys.len() - tickets.len() / 16..];
            for (key, ticket) in own.iter().zip(tickets.chunks_exact(16)) {
                let earlier = (short(long(&ticket[..4])), long(&ticket[4..10]));
                net.auditor.joins_with(now, key, (earlier.0 > 0).then_some(earlier));
            }
        }
        "enter" => {
            let Some(claims) = args.last() else { return };
            for (claim, verdict) in claims.chunks_exact(10).zip(bytes(3).chunks_exact(21)) {
                if verdict[0] == 1 {
                    let entry = (long(&verdict[1..7]), long(&verdict[7..11]));
                    entered(short(long(&claim[..4])), long(&claim[4..]), entry, false);
                }
            }
        }
        "restore" if number(3) == 1 => {
            let segments = String::from_utf8_lossy(&args[6]).parse::<usize>().unwrap_or(0);
            let memory = &args[7 + segments..];
            let line: u64 = String::from_utf8_lossy(&memory[LINE_OF_MEMORY]).parse().unwrap_or(0);
            let mut slots = BTreeMap::new();
            for record in memory[LOG_OF_MEMORY].chunks_exact(10) {
                slots.insert(long(&record[..6]), long(&record[6..]));
            }
            for entry in memory[LOG_OF_MEMORY + 1].chunks_exact(18) {
                slots.entry(long(&entry[6..12])).and_modify(|count| *count = count.saturating_sub(1));
            }
            net.auditor.merges_slots_of_nobody(now, (line, line_before), slots);
        }
        _ => {}
    }
}
