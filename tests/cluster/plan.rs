//! What happens in a run: the topology, the users, and the faults. Everything follows from the seed.
//!
//! Invariant: a plan is a value. A run depends on nothing else, so a plan with fewer users or faults can be run again.

mod suites;

use admission::{Definition, Event, FIELDS, Mode, Moment, Policy, Schedule};

use crate::{cluster::START_UNIX_MS, drawn::drawn_event, seed::Random};

/// How one user behaves.
#[derive(Clone, Debug)]
pub(crate) struct User {
    /// Decides the user's servers, network and lateness.
    pub(crate) seed: u64,
    pub(crate) joins_ms: u64,
    pub(crate) kind: Kind,
    /// On which side of a partition the user is: 0 or 1.
    pub(crate) side: usize,
    /// What the user does inside, where the people inside are limited.
    pub(crate) stay: Stay,
    /// Who else shows the ticket, if somebody does.
    pub(crate) copied: Option<Copied>,
}

/// Another device, or another person, that shows a user's ticket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copied {
    /// When it begins, after the user got the ticket.
    pub(crate) after_ms: u64,
    /// The time between two calls, unless it keeps to what it is told.
    pub(crate) every_ms: u64,
    pub(crate) side: usize,
}

/// A visit.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stay {
    pub(crate) for_ms: u64,
    /// The time between two requests.
    pub(crate) every_ms: u64,
    /// At the end the user says so. Otherwise nothing is heard any more.
    pub(crate) says: bool,
}

/// The kinds of users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Polls as told until the entry, and asks again a few times after it.
    Stays,
    /// Leaves so long after the join.
    Leaves(u64),
    /// Loses the network so long after the join, for so long.
    Naps(u64, u64),
    /// Asks a client limit to refuse each poll: the server notes the poll and never asks the store.
    NeverClaims,
    /// Asks again for a long time after the entry.
    Returns,
    /// The same until the run is over, also when the pass has ended.
    Insists,
}

/// Parts of the network that are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The cluster is split in two: side 0 and side 1, with servers and users.
    Sides,
    /// A node's links to other nodes.
    Bus(usize),
    /// A node's links to servers.
    Clients(usize),
    /// Messages from a node to other nodes. It hears them.
    From(usize),
    /// All links of one server to nodes.
    Server(usize),
}

/// What happens to the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A node's process ends, and starts again so many milliseconds later, with what it has on disk.
    Kill {
        node: usize,
        for_ms: u64,
    },
    /// Like `Kill` for the zone's primary, whichever it is then.
    KillPrimary {
        for_ms: u64,
    },
    /// A node's process stops and continues later.
    Freeze {
        node: usize,
        for_ms: u64,
    },
    /// The zone's primary stops and continues later.
    FreezePrimary {
        for_ms: u64,
    },
    Cut {
        cut: Cut,
        for_ms: u64,
    },
    /// The replicas fall behind.
    Lag {
        lag_ms: u64,
        for_ms: u64,
    },
    /// Somebody empties the store.
    Flush,
    /// Somebody deletes a key of the zone, chosen by this number.
    LoseKey {
        number: u64,
    },
    /// A node's clock is set.
    ClockJump {
        node: usize,
        by_ms: i64,
    },
    /// A server ends, and another one starts in its place.
    KillServer {
        server: usize,
        for_ms: u64,
    },
    /// A server stops as it does on SIGTERM: it says so to the store. Another one starts in its place.
    StopServer {
        server: usize,
        for_ms: u64,
    },
    /// A server stands still and continues later.
    FreezeServer {
        server: usize,
        for_ms: u64,
    },
    /// An operator changes the zone.
    Change {
        n: u32,
        mode: Mode,
    },
    /// An operator changes a number of the policy, by its name in configuration files; or [`OPENS_AFTER_S`].
    Set {
        name: &'static str,
        value: u32,
    },
    /// An operator deletes the zone, and defines it again. Its line stays.
    Recreate {
        for_ms: u64,
    },
    /// The move of the zone's slot stops half-way: some of its keys, chosen by this number, are at another primary. Later they are
    /// moved back.
    HalfMove {
        number: u64,
        for_ms: u64,
    },
    /// An operator makes a replica the primary. The demoted node stays up and refuses writes, where clients still have its address.
    /// By force, the replica does not wait for the last writes.
    Demote {
        by_force: bool,
        for_ms: u64,
    },
    /// An operator starts a server again with another seal key than the others have, and later with the right one.
    WrongKey {
        server: usize,
        for_ms: u64,
    },
    /// An operator changes the seal key: the servers learn the next one in turn, and then seal with it in turn.
    ChangeKey {
        every_ms: u64,
    },
    /// The servers forget the key before, in turn, long after the last one sealed with it.
    ForgetKey {
        every_ms: u64,
    },
}

impl Fault {
    /// The server that it is about.
    pub(crate) fn server(self) -> Option<usize> {
        match self {
            Self::KillServer { server, .. }
            | Self::StopServer { server, .. }
            | Self::FreezeServer { server, .. }
            | Self::WrongKey { server, .. }
            | Self::Cut { cut: Cut::Server(server), .. } => Some(server),
            _ => None,
        }
    }

    /// Whether keys of the zone vanish by it.
    pub(crate) fn takes_keys(self) -> bool {
        matches!(self, Self::LoseKey { .. } | Self::HalfMove { .. })
    }

    /// Whether the server can't tell the store anything while the fault lasts.
    pub(crate) fn silences(self, server: usize) -> bool {
        match self {
            Self::Cut { cut: Cut::Sides, .. } => true,
            Self::Cut { cut: Cut::Server(of), .. } | Self::FreezeServer { server: of, .. } => of == server,
            _ => false,
        }
    }

    /// The same for so many percent of the time.
    fn scaled(mut self, percent: u64) -> Self {
        if let Some(for_ms) = self.time_ms() {
            *for_ms = *for_ms * percent / 100;
        }
        self
    }

    /// When the fault ends, after its start.
    pub(crate) fn lasts_ms(mut self) -> u64 {
        self.time_ms().map_or(0, |for_ms| *for_ms)
    }

    /// For how long the fault lasts, if it does not end at once.
    fn time_ms(&mut self) -> Option<&mut u64> {
        match self {
            Self::Kill { for_ms, .. }
            | Self::KillPrimary { for_ms }
            | Self::Freeze { for_ms, .. }
            | Self::FreezePrimary { for_ms }
            | Self::Cut { for_ms, .. }
            | Self::Lag { for_ms, .. }
            | Self::KillServer { for_ms, .. }
            | Self::StopServer { for_ms, .. }
            | Self::FreezeServer { for_ms, .. }
            | Self::HalfMove { for_ms, .. }
            | Self::Recreate { for_ms }
            | Self::WrongKey { for_ms, .. }
            | Self::Demote { for_ms, .. } => Some(for_ms),
            Self::Flush
            | Self::LoseKey { .. }
            | Self::ClockJump { .. }
            | Self::Change { .. }
            | Self::Set { .. }
            | Self::ChangeKey { .. }
            | Self::ForgetKey { .. } => None,
        }
    }
}

/// A run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Decides delays and elections.
    pub(crate) seed: u64,
    pub(crate) policy: Policy,
    /// Nodes that can have the zone: the first one has it at the start.
    pub(crate) data_nodes: usize,
    /// Other primaries, which only vote.
    pub(crate) voters: usize,
    /// Nodes keep their data on disk, up to a second late.
    pub(crate) persistent: bool,
    /// A call's changes count once a replica confirmed them.
    pub(crate) replicated: bool,
    pub(crate) servers: usize,
    /// The servers' configuration file defines the zone, so that nobody knows whether it is new. Otherwise an operator does.
    pub(crate) from_file: bool,
    /// On which side of a partition each node and each server is.
    pub(crate) node_sides: Vec<usize>,
    pub(crate) server_sides: Vec<usize>,
    /// How far each node's clock is from the true time.
    pub(crate) clock_offsets_ms: Vec<i64>,
    pub(crate) users: Vec<User>,
    pub(crate) faults: Vec<(u64, Fault)>,
    /// The longest delay of a message between a server and a node.
    pub(crate) delay_ms: u64,
    /// When a call costs a server so much, in milliseconds of its one processor: server, interval, cost. Otherwise calls cost nearly
    /// nothing.
    pub(crate) busy: Vec<(usize, (u64, u64), f64)>,
    /// One call in so many is sent twice, because its connection broke; 0 for none.
    pub(crate) repeats: u64,
    /// The order is drawn by an event that begins so many seconds after the start; 0 for none.
    pub(crate) draw_s: u64,
    /// All users ask one server, and after so many milliseconds the next one; 0 if each asks any. The others know little.
    pub(crate) in_turn_ms: u64,
    /// Load balancers send nobody to a server that stands still.
    pub(crate) checked: bool,
    pub(crate) ends_ms: u64,
}

/// Instead of the name of a field: so many seconds after the start of the run the zone opens; 0 opens it.
pub(crate) const OPENS_AFTER_S: &str = "opens_after_s";

/// The fields that do not say who may enter.
pub(crate) const QUIET_FIELDS: [&str; 2] = ["pass_ttl_s", "polling_period_ms"];

/// What a list and a plan call a field that [`Fault::Set`] changes.
pub(crate) fn set_name(name: &str) -> Option<&'static str> {
    let fields = FIELDS.iter().map(|field| field.name);
    fields.chain([OPENS_AFTER_S]).find(|of| *of == name)
}

/// The policy with this value.
pub(crate) fn with_value(mut policy: Policy, name: &str, value: u32) -> Policy {
    if name == OPENS_AFTER_S {
        let start_s = u32::try_from(START_UNIX_MS / 1_000).expect("before 2106");
        policy.opens_at = if value == 0 { 0 } else { start_s + value }.into();
    } else {
        let field = FIELDS.iter().find(|field| field.name == name).expect("a field");
        assert!(field.set(&mut policy, value), "{name} can be {value}");
    }
    policy
}

/// So many seconds after [`START_UNIX_MS`], which is 2026-09-21 14:13:20 in UTC. At most six hours.
fn moment(after_s: u64) -> Moment {
    let of_day = 14 * 3_600 + 13 * 60 + 20 + after_s;
    let text = format!("2026-09-21T{:02}:{:02}:{:02}Z", of_day / 3_600, of_day / 60 % 60, of_day % 60);
    Moment::parse(&text).expect("an instant")
}

/// How long the nodes wait before they take another one for dead.
pub(crate) const NODE_TIMEOUT_MS: u64 = 5_000;

struct Dice(Random);

impl Dice {
    fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.0.bits() % (to - from + 1)
    }
    fn below(&mut self, end: usize) -> usize {
        self.0.below(end)
    }
    fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.0.below(of.len())]
    }
    fn chance(&mut self, percent: u64) -> bool {
        self.between(1, 100) <= percent
    }
    fn signed(&mut self, most: i64) -> i64 {
        let most = u64::try_from(most).expect("positive");
        i64::try_from(self.between(0, 2 * most)).expect("small") - i64::try_from(most).expect("small")
    }
}

impl Plan {
    /// Nothing: no nodes, no servers, and nobody.
    pub(crate) fn empty() -> Self {
        Self {
            seed: 0,
            policy: Policy::default(),
            data_nodes: 0,
            voters: 0,
            persistent: false,
            replicated: false,
            servers: 0,
            from_file: false,
            node_sides: Vec::new(),
            server_sides: Vec::new(),
            clock_offsets_ms: Vec::new(),
            users: Vec::new(),
            faults: Vec::new(),
            delay_ms: 0,
            busy: Vec::new(),
            repeats: 0,
            draw_s: 0,
            in_turn_ms: 0,
            checked: false,
            ends_ms: 0,
        }
    }

    /// The run that belongs to a seed.
    pub(crate) fn of(seed: u64) -> Self {
        let mut dice = Dice(Random::of(seed ^ 0xC1A5_7E12));
        let n = dice.one_of(&[6, 10, 20, 30, 60]);
        let policy = Policy {
            admit_per_minute: n,
            sub_windows: dice.one_of(&[10, 10, 10, 1, 4]),
            polling_period_ms: dice.one_of(&[3_000, 3_000, 1_000, 5_000]),
            idle_timeout_s: 60,
            pass_ttl_s: dice.one_of(&[60, 120, 300]),
            ..Policy::default()
        };
        let policy = policy.check().expect("in range");
        let data_nodes = dice.one_of(&[1, 2, 2, 2, 3, 3]);
        let voters = if data_nodes > 1 { 2 } else { 0 };
        let servers = dice.one_of(&[1, 2, 2, 3]);
        let nodes = data_nodes + voters;
        // The promised case: the zone's primary is alone on its side, with a server.
        let node_sides = (0..nodes).map(|node| usize::from(node > 0)).collect();
        let server_sides = (0..servers).map(|server| server % 2).collect();
        let clock_offsets_ms = (0..nodes)
            .map(|_| match dice.below(4) {
                0 => dice.signed(120_000),
                1 => dice.signed(2_000),
                _ => 0,
            })
            .collect();
        let lasts_ms = dice.between(100_000, 200_000);
        let count = u64::from(n) * dice.between(2, 4);
        let spread_ms = dice.one_of(&[1_000, 20_000, lasts_ms]);
        let leaving = dice.one_of(&[0, 0, 35]);
        let napping = dice.one_of(&[0, 10]);
        let hostile = dice.one_of(&[0, 0, 0, 20]);
        let returning = dice.one_of(&[0, 20]);
        let users = (0..count)
            .map(|_| {
                let joins_ms = dice.between(0, spread_ms);
                let kind = match () {
                    () if dice.chance(leaving) => Kind::Leaves(dice.between(0, 90_000)),
                    () if dice.chance(napping) => {
                        Kind::Naps(dice.between(0, 60_000), dice.between(1_000, 50_000))
                    }
                    () if dice.chance(hostile) => Kind::NeverClaims,
                    () if dice.chance(returning) => Kind::Returns,
                    () => Kind::Stays,
                };
                let seed = dice.0.bits();
                let kind = if kind == Kind::Returns && seed.is_multiple_of(2) { Kind::Insists } else { kind };
                User { seed, joins_ms, kind, side: dice.below(2), stay: Stay::default(), copied: None }
            })
            .collect();
        let mut faults = Vec::new();
        let mut at_ms = dice.between(5_000, 40_000);
        while at_ms < lasts_ms - 30_000 && faults.len() < 5 {
            let fault = Self::fault(&mut dice, n, nodes, data_nodes, servers);
            faults.push((at_ms, fault));
            // Two faults together, or a pause between them.
            let pause_ms = dice.one_of(&[0, 100, 1_000, 3_000, 8_000]);
            at_ms += dice.between(0, pause_ms);
            if dice.chance(40) {
                at_ms += fault.lasts_ms() + dice.between(5_000, 40_000);
            }
        }
        Self {
            seed,
            policy,
            data_nodes,
            voters,
            persistent: dice.chance(50),
            replicated: dice.chance(25) && data_nodes > 1,
            servers,
            from_file: false,
            node_sides,
            server_sides,
            clock_offsets_ms,
            users,
            faults,
            delay_ms: dice.one_of(&[1, 3, 20]),
            busy: Vec::new(),
            repeats: dice.one_of(&[0, 0, 50]),
            draw_s: 0,
            in_turn_ms: 0,
            checked: false,
            ends_ms: lasts_ms + 60_000,
        }
    }

    /// The zone with this policy, and with its event if the order is drawn.
    pub(crate) fn definition(&self, policy: Policy) -> Definition {
        let mut definition = Definition::from(policy);
        if self.draw_s > 0 {
            let event = Event { begins: moment(self.draw_s), ..drawn_event("sale") };
            definition.schedule = Schedule::new(vec![event], &policy).expect("it fits the policy");
        }
        definition
    }

    /// The idle times of a run, in seconds: that of the start, and what an operator changes it to.
    fn idle_times_s(&self) -> impl Iterator<Item = u32> {
        self.values_of("idle_timeout_s").chain([self.policy.idle_timeout_s])
    }

    /// What an operator sets this field to.
    fn values_of(&self, field: &str) -> impl Iterator<Item = u32> {
        self.faults.iter().filter_map(move |(_, fault)| match fault {
            Fault::Set { name, value } if *name == field => Some(*value),
            _ => None,
        })
    }

    pub(crate) fn shortest_idle_s(&self) -> u32 {
        self.idle_times_s().min().unwrap_or(0)
    }

    pub(crate) fn longest_idle_s(&self) -> u32 {
        self.idle_times_s().max().unwrap_or(0)
    }

    /// The server that all users ask at an instant, if they ask one.
    pub(crate) fn asked_at(&self, now_ms: u64) -> Option<usize> {
        let turn = now_ms.checked_div(self.in_turn_ms)?;
        usize::try_from(turn).ok().map(|turn| turn % self.servers)
    }

    /// What a call costs a server at `now_ms`, in seconds.
    pub(crate) fn cost_s(&self, of: usize, now_ms: u64) -> f64 {
        let at =
            self.busy.iter().find(|(server, (from, to), _)| *server == of && (*from..*to).contains(&now_ms));
        at.map_or(1e-5, |(.., cost_ms)| cost_ms / 1_000.0)
    }

    fn fault(dice: &mut Dice, n: u32, nodes: usize, data_nodes: usize, servers: usize) -> Fault {
        let short_ms = dice.between(100, 4_000);
        let long_ms = dice.between(4_000, 35_000);
        let for_ms = dice.one_of(&[short_ms, long_ms]);
        match dice.below(20) {
            0 => Fault::Kill { node: dice.below(nodes), for_ms },
            1..=4 => Fault::KillPrimary { for_ms },
            5 => Fault::Freeze { node: dice.below(nodes), for_ms },
            6 | 7 => Fault::FreezePrimary { for_ms },
            8 | 9 => Fault::Cut { cut: Cut::Sides, for_ms: long_ms },
            10 => {
                let node = dice.below(data_nodes);
                let cut = dice.one_of(&[Cut::Bus(node), Cut::Clients(node), Cut::From(node)]);
                Fault::Cut { cut, for_ms: long_ms }
            }
            11 => Fault::Cut { cut: Cut::Server(dice.below(servers)), for_ms },
            12 => Fault::Lag { lag_ms: dice.between(100, 3_000), for_ms: long_ms },
            13 => Fault::Flush,
            14 => Fault::ClockJump { node: dice.below(data_nodes), by_ms: dice.signed(100_000) },
            15 => Fault::KillServer { server: dice.below(servers), for_ms: short_ms },
            16 => Fault::StopServer { server: dice.below(servers), for_ms: short_ms },
            17 => Fault::FreezeServer { server: dice.below(servers), for_ms: dice.between(1_000, 80_000) },
            18 => {
                let mode = dice.one_of(&[Mode::Auto, Mode::Auto, Mode::Hold]);
                Fault::Change { n: dice.one_of(&[n, n * 2, n.div_ceil(2)]), mode }
            }
            _ => Fault::Set { name: "pass_ttl_s", value: dice.one_of(&[60, 120, 300, 600]) },
        }
    }
}
