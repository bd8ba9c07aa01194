//! The nodes of a Redis Cluster on a virtual clock: replication, failure detection, elections, crashes and clocks.
//!
//! One shard has the zone: `data_nodes` nodes, one of which is the primary. The other primaries only vote. The rules follow
//! the [specification](https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/):
//! a node that was silent for the node timeout is suspected; a majority of primaries that suspect a primary make it fail; a
//! replica of a failed primary asks all primaries for their votes, which each gives once in an epoch; a primary that reaches
//! no majority for the node timeout refuses calls, and for a while after it reaches one again; the higher epoch owns the slots.
//!
//! Replication carries effects, in order and late. Invariant: time comes from the caller, and chance from the plan's seed.

mod moves;

use std::collections::VecDeque;

use bytes::Bytes;
use redis_script::client::{Script, Value};

use crate::{
    plan::{Cut, NODE_TIMEOUT_MS, Plan},
    redis::{Data, Effect, Interpreter, Process},
    seed::Random,
};

/// 2026-09-21, in milliseconds since 1970.
pub(crate) const START_UNIX_MS: i64 = 1_790_000_000_000;

/// How long a node takes to fetch all data of its primary.
const RESYNC_MS: u64 = 300;

/// How long a primary refuses calls after it reached a majority again.
const REJOIN_MS: u64 = NODE_TIMEOUT_MS;

/// How old the data on disk may be.
const FSYNC_MS: u64 = 1_000;

/// One process, or the place where one runs.
struct Node {
    up: bool,
    /// When its process started, if it did in the run.
    started_ms: Option<u64>,
    frozen_until: u64,
    run_id: String,
    replid: String,
    clock_ms: i64,
    data: Data,
    disk: Data,
    /// Effects that are not on disk yet.
    unsynced: VecDeque<(u64, Effect)>,
    /// Whom it takes for the zone's primary, and since which epoch.
    primary: usize,
    epoch: u64,
    /// The last epoch in which it voted.
    voted: u64,
    /// When it last heard each node.
    heard: Vec<u64>,
    /// The history that its data belongs to, and how much of it it has.
    history: u64,
    offset: usize,
    /// When a full copy that is under way ends.
    resync_at: Option<u64>,
    /// When it stands for election.
    election_at: Option<u64>,
    /// When it last reached no majority.
    minority_ms: Option<u64>,
    /// Since when it suspects nodes continuously; used for the state of the cluster as it sees it.
    cluster_ok: bool,
    /// Until when it answers as a replica that clients take for the primary.
    read_only_until: u64,
}

/// What a node does with a call.
pub(crate) enum Served {
    /// The script ran.
    Ran(Result<Value, String>),
    /// Another node has the slot.
    Moved(usize),
    /// It is a replica, and the script writes.
    ReadOnly(String),
    /// It can't serve calls now.
    Refused(&'static str),
}

/// All nodes.
pub(crate) struct Cluster {
    nodes: Vec<Node>,
    data_nodes: usize,
    persistent: bool,
    random: Random,
    /// The effects of the running histories: when they were made, and what.
    histories: Vec<Vec<(u64, Effect)>>,
    /// Cuts that are in force, with the side of each node.
    pub(crate) cuts: Vec<Cut>,
    node_sides: Vec<usize>,
    server_sides: Vec<usize>,
    pub(crate) lag_ms: u64,
    pub(crate) story: Vec<(u64, String)>,
    pub(crate) failovers: u64,
    /// Whether a node became the primary that had nothing, since somebody asked.
    leads_empty: bool,
    started: u64,
    /// How often a node became a primary.
    reigns: u64,
    half_moved: Option<moves::HalfMoved>,
}

impl Cluster {
    pub(crate) fn new(plan: &Plan) -> Self {
        let count = plan.data_nodes + plan.voters;
        let mut cluster = Self {
            nodes: Vec::new(),
            data_nodes: plan.data_nodes,
            persistent: plan.persistent,
            random: Random::of(plan.seed ^ 0x5EED),
            histories: vec![Vec::new()],
            cuts: Vec::new(),
            node_sides: plan.node_sides.clone(),
            server_sides: plan.server_sides.clone(),
            lag_ms: 2,
            story: Vec::new(),
            failovers: 0,
            leads_empty: false,
            started: 0,
            reigns: 0,
            half_moved: None,
        };
        for node in 0..count {
            let (run_id, replid) = (cluster.next_run_id(), cluster.next_replid());
            cluster.nodes.push(Node {
                up: true,
                started_ms: None,
                frozen_until: 0,
                run_id,
                replid,
                clock_ms: plan.clock_offsets_ms[node],
                data: Data::default(),
                disk: Data::default(),
                unsynced: VecDeque::new(),
                primary: 0,
                epoch: 1,
                voted: 1,
                heard: vec![0; count],
                history: 0,
                offset: 0,
                resync_at: None,
                election_at: None,
                minority_ms: None,
                cluster_ok: true,
                read_only_until: 0,
            });
        }
        cluster
    }

    /// The first digits differ: a script reads no others.
    fn next_replid(&mut self) -> String {
        self.reigns += 1;
        format!("{0:012x}{0:028x}", self.reigns)
    }

    fn next_run_id(&mut self) -> String {
        self.started += 1;
        format!("{:016x}{:016x}{:08x}", self.random.bits(), self.random.bits(), self.started)
    }

    pub(crate) fn tell(&mut self, now: u64, line: String) {
        self.story.push((now, line));
    }

    pub(crate) fn count(&self) -> usize {
        self.nodes.len()
    }

    /// The node that the most recent election made the primary.
    pub(crate) fn primary(&self) -> usize {
        let newest = (0..self.data_nodes)
            .max_by_key(|&node| (self.nodes[node].epoch, self.nodes[node].primary == node));
        newest.map_or(0, |node| self.nodes[node].primary)
    }

    /// Whether a message from one node reaches another.
    fn hears(&self, from: usize, to: usize) -> bool {
        self.cuts.iter().all(|cut| match *cut {
            Cut::Sides => self.node_sides[from] == self.node_sides[to],
            Cut::Bus(node) => from != node && to != node,
            Cut::From(node) => from != node,
            Cut::Clients(_) | Cut::Server(_) => true,
        })
    }

    /// Whether a server and a node reach each other.
    pub(crate) fn is_linked(&self, server: usize, node: usize) -> bool {
        self.cuts.iter().all(|cut| match *cut {
            Cut::Sides => self.server_sides[server] == self.node_sides[node],
            Cut::Clients(cut) => node != cut,
            Cut::Server(cut) => server != cut,
            Cut::Bus(_) | Cut::From(_) => true,
        })
    }

    pub(crate) fn is_up(&self, node: usize) -> bool {
        self.nodes[node].up
    }

    /// When a frozen node continues, if it is frozen now.
    pub(crate) fn frozen_until(&self, node: usize, now: u64) -> Option<u64> {
        Some(self.nodes[node].frozen_until).filter(|&until| until > now)
    }

    /// When a node started, if it has reached no majority since. As a primary it serves calls until it suspects the others.
    pub(crate) fn cut_off_since(&self, node: usize) -> Option<u64> {
        let of = &self.nodes[node];
        let voters = self.voters(node);
        of.started_ms.filter(|&started_ms| {
            let reached = voters.iter().filter(|&&voter| voter == node || of.heard[voter] > started_ms);
            reached.count() < voters.len() / 2 + 1
        })
    }

    fn runs(&self, node: usize, now: u64) -> bool {
        self.nodes[node].up && self.nodes[node].frozen_until <= now
    }

    /// How far a node's clock is ahead.
    pub(crate) fn clock_ahead_ms(&self, node: usize) -> i64 {
        self.nodes[node].clock_ms
    }

    /// What a node's clock shows, in microseconds since 1970.
    fn unix_us(&self, node: usize, now: u64) -> u64 {
        let unix_ms = START_UNIX_MS + i64::try_from(now).expect("short") + self.nodes[node].clock_ms;
        u64::try_from(unix_ms).expect("after 1970") * 1_000
    }

    /// The data of a node.
    pub(crate) fn data(&self, node: usize) -> &Data {
        &self.nodes[node].data
    }

    /// Which node this node takes for the primary, and whether it is in touch with its cluster.
    pub(crate) fn view_of(&self, node: usize) -> (usize, bool) {
        (self.nodes[node].primary, self.nodes[node].cluster_ok)
    }

    /// Runs a script at a node.
    pub(crate) fn serve(
        &mut self,
        node: usize,
        now: u64,
        script: &Script,
        keys: &[Bytes],
        args: &[Bytes],
    ) -> Served {
        let (primary, ok) = self.view_of(node);
        let is_primary = primary == node;
        if !is_primary && self.nodes[node].read_only_until <= now {
            return Served::Moved(primary);
        }
        if !ok {
            return Served::Refused("CLUSTERDOWN The cluster is down");
        }
        if let Some(answer) = self.not_whole(node, now, keys) {
            return answer;
        }
        let replicas = (0..self.data_nodes).filter(|&other| {
            other != node
                && self.nodes[other].primary == node
                && self.nodes[other].history == self.nodes[node].history
        });
        let replicas = u32::try_from(replicas.count()).expect("few");
        let unix_us = self.unix_us(node, now);
        let at = &mut self.nodes[node];
        let process = Process { unix_us, run_id: &at.run_id, replid: &at.replid, replicas, is_primary };
        let (result, effects) = Interpreter::with(|lua| lua.run(&mut at.data, script, keys, args, &process));
        if !is_primary {
            assert!(effects.is_empty(), "a replica changes nothing");
            if let Err(text) = result {
                return Served::ReadOnly(text);
            }
        }
        self.spread(node, now, effects);
        Served::Ran(result)
    }

    /// How many replicas have everything that a node has.
    pub(crate) fn confirmed(&self, node: usize, offset: usize) -> u32 {
        let has = |&other: &usize| {
            other != node
                && self.nodes[other].up
                && self.nodes[other].history == self.nodes[node].history
                && self.nodes[other].offset >= offset
                && self.hears(other, node)
        };
        u32::try_from((0..self.data_nodes).filter(has).count()).expect("few")
    }

    pub(crate) fn offset(&self, node: usize) -> usize {
        self.nodes[node].offset
    }

    /// What each node does ten times a second.
    pub(crate) fn cron(&mut self, now: u64) {
        self.ping(now);
        for node in 0..self.nodes.len() {
            if self.runs(node, now) {
                self.judge(node, now);
            }
        }
        for node in 0..self.data_nodes {
            if self.runs(node, now) && self.nodes[node].primary != node {
                self.follow(node, now);
            }
        }
        for node in 0..self.data_nodes {
            self.sync_disk(node, now);
        }
    }

    fn ping(&mut self, now: u64) {
        for to in 0..self.nodes.len() {
            for from in 0..self.nodes.len() {
                // A ping and its answer, which say who owns the slots.
                if from != to && self.runs(from, now) && self.runs(to, now) && self.hears(from, to) {
                    if self.hears(to, from) {
                        self.nodes[to].heard[from] = now;
                    }
                    let (epoch, primary) = (self.nodes[from].epoch, self.nodes[from].primary);
                    if epoch > self.nodes[to].epoch {
                        if self.nodes[to].primary == to && to < self.data_nodes && primary != to {
                            self.tell(
                                now,
                                format!(
                                    "node {to} learns that node {primary} is the primary, and follows it"
                                ),
                            );
                        }
                        (self.nodes[to].epoch, self.nodes[to].primary) = (epoch, primary);
                        self.nodes[to].election_at = None;
                    }
                }
            }
        }
    }

    fn suspects(&self, node: usize, other: usize, now: u64) -> bool {
        now.saturating_sub(self.nodes[node].heard[other]) > NODE_TIMEOUT_MS
    }

    /// The primaries as a node knows them.
    fn voters(&self, node: usize) -> Vec<usize> {
        let mut voters = vec![self.nodes[node].primary];
        voters.extend(self.data_nodes..self.nodes.len());
        voters
    }

    /// A node's own judgement: is the cluster whole, and should it stand for election?
    fn judge(&mut self, node: usize, now: u64) {
        let voters = self.voters(node);
        if voters.len() == 1 {
            return;
        }
        let majority = voters.len() / 2 + 1;
        let reached =
            voters.iter().filter(|&&voter| voter == node || !self.suspects(node, voter, now)).count();
        let was_ok = self.nodes[node].cluster_ok;
        if reached < majority {
            self.nodes[node].minority_ms = Some(now);
            self.nodes[node].cluster_ok = false;
        } else {
            let rejoins = self.nodes[node].minority_ms.is_some_and(|at| now < at + REJOIN_MS);
            self.nodes[node].cluster_ok = !rejoins;
        }
        if was_ok != self.nodes[node].cluster_ok && self.nodes[node].primary == node {
            let says = if was_ok { "reaches no majority, and refuses calls" } else { "serves calls again" };
            self.tell(now, format!("primary {node} {says}"));
        }
        let primary = self.nodes[node].primary;
        if node >= self.data_nodes || primary == node {
            return;
        }
        let say_failed = voters
            .iter()
            .filter(|&&voter| {
                voter != primary
                    && self.runs(voter, now)
                    && self.hears(voter, node)
                    && self.suspects(voter, primary, now)
            })
            .count();
        if !self.suspects(node, primary, now) || say_failed < majority || self.nodes[node].resync_at.is_some()
        {
            self.nodes[node].election_at = None;
            return;
        }
        match self.nodes[node].election_at {
            None => {
                let rank = (0..self.data_nodes)
                    .filter(|&other| {
                        other != node
                            && self.runs(other, now)
                            && self.nodes[other].primary == primary
                            && self.hears(other, node)
                            && self.nodes[other].offset > self.nodes[node].offset
                    })
                    .count();
                let delay_ms = 500 + self.random.bits() % 500 + 1_000 * rank as u64;
                self.nodes[node].election_at = Some(now + delay_ms);
            }
            Some(at) if at <= now => self.elect(node, &voters, majority, now),
            Some(_) => {}
        }
    }

    fn elect(&mut self, node: usize, voters: &[usize], majority: usize, now: u64) {
        let primary = self.nodes[node].primary;
        let epoch = 1 + self.nodes.iter().map(|other| other.voted.max(other.epoch)).max().unwrap_or(0);
        let mut votes = 0;
        for &voter in voters {
            let agrees = voter != primary
                && self.runs(voter, now)
                && self.hears(node, voter)
                && self.hears(voter, node)
                && self.suspects(voter, primary, now)
                && self.nodes[voter].epoch == self.nodes[node].epoch;
            if agrees && self.nodes[voter].voted < epoch {
                self.nodes[voter].voted = epoch;
                votes += 1;
            }
        }
        if votes >= majority {
            self.lead(node, epoch, now);
        } else {
            self.nodes[node].election_at = None;
        }
    }

    /// A replica becomes the primary.
    fn lead(&mut self, node: usize, epoch: u64, now: u64) {
        let history = self.histories.len() as u64;
        self.histories.push(Vec::new());
        let lost = self.histories[usize::try_from(self.nodes[node].history).expect("few")].len()
            - self.nodes[node].offset;
        let replid = self.next_replid();
        let at = &mut self.nodes[node];
        at.replid = replid;
        (at.primary, at.epoch, at.history, at.offset, at.election_at) = (node, epoch, history, 0, None);
        self.failovers += 1;
        self.leads_empty |= self.nodes[node].data.keys() == 0;
        self.tell(now, format!("node {node} is elected in epoch {epoch}; it lacks {lost} writes"));
    }

    /// A replica takes in what its primary sent.
    fn follow(&mut self, node: usize, now: u64) {
        let primary = self.nodes[node].primary;
        let linked = self.runs(primary, now)
            && self.hears(primary, node)
            && self.hears(node, primary)
            && self.nodes[primary].primary == primary;
        if !linked {
            self.nodes[node].resync_at = None;
            return;
        }
        if self.nodes[node].history != self.nodes[primary].history {
            match self.nodes[node].resync_at {
                None => self.nodes[node].resync_at = Some(now + RESYNC_MS),
                Some(at) if at <= now => {
                    let (data, history, offset) = (
                        self.nodes[primary].data.clone(),
                        self.nodes[primary].history,
                        self.nodes[primary].offset,
                    );
                    let at = &mut self.nodes[node];
                    at.disk = data.clone();
                    at.unsynced.clear();
                    (at.data, at.history, at.offset, at.resync_at) = (data, history, offset, None);
                }
                Some(_) => {}
            }
            return;
        }
        self.replicate(node, now);
    }

    /// Applies the effects that are old enough to have arrived.
    fn replicate(&mut self, node: usize, now: u64) {
        let lag_ms = self.lag_ms;
        let persistent = self.persistent;
        let unix_us = self.unix_us(node, now);
        let at = &mut self.nodes[node];
        let history = &self.histories[usize::try_from(at.history).expect("few")];
        while let Some((made, effect)) = history.get(at.offset)
            && made + lag_ms <= now
        {
            at.data.apply(effect, unix_us);
            if persistent {
                at.unsynced.push_back((now, effect.clone()));
            }
            at.offset += 1;
        }
    }

    fn sync_disk(&mut self, node: usize, now: u64) {
        let at = &mut self.nodes[node];
        while let Some((made, _)) = at.unsynced.front()
            && made + FSYNC_MS <= now
            && let Some((_, effect)) = at.unsynced.pop_front()
        {
            at.disk.apply(&effect, 0);
        }
    }

    /// Lets the replicas take in what arrived, between two crons.
    pub(crate) fn pump(&mut self, now: u64) {
        for node in 0..self.data_nodes {
            let primary = self.nodes[node].primary;
            if primary != node
                && self.runs(node, now)
                && self.runs(primary, now)
                && self.hears(primary, node)
                && self.nodes[node].history == self.nodes[primary].history
                && self.nodes[primary].primary == primary
            {
                self.replicate(node, now);
            }
        }
    }

    /// Whether a node became the primary that had nothing, since the last such question: the state is lost.
    pub(crate) fn has_led_empty(&mut self) -> bool {
        std::mem::take(&mut self.leads_empty)
    }

    pub(crate) fn kill(&mut self, node: usize, now: u64) {
        self.pump(now);
        self.nodes[node].up = false;
        self.tell(
            now,
            format!("node {node} is killed{}", if self.primary() == node { " (the primary)" } else { "" }),
        );
    }

    pub(crate) fn start(&mut self, node: usize, now: u64) {
        let (run_id, replid) = (self.next_run_id(), self.next_replid());
        let history = self.histories.len() as u64;
        self.histories.push(Vec::new());
        let (persistent, alone) = (self.persistent, self.nodes.len() == 1);
        let at = &mut self.nodes[node];
        (at.up, at.run_id, at.replid, at.frozen_until) = (true, run_id, replid, 0);
        at.unsynced.clear();
        at.data = if persistent { at.disk.clone() } else { Data::default() };
        at.disk = at.data.clone();
        (at.history, at.offset, at.resync_at, at.election_at) = (history, 0, None, None);
        at.heard.fill(now);
        at.started_ms = Some(now);
        // A node that starts is not trusted with calls before it heard the others.
        at.minority_ms = (!alone).then_some(now.saturating_sub(REJOIN_MS - 2_000));
        self.tell(
            now,
            format!("node {node} starts again, {}", if persistent { "with its disk" } else { "empty" }),
        );
    }

    pub(crate) fn freeze(&mut self, node: usize, now: u64, for_ms: u64) {
        self.pump(now);
        self.nodes[node].frozen_until = now + for_ms;
        self.tell(
            now,
            format!(
                "node {node} stops for {for_ms} ms{}",
                if self.primary() == node { " (the primary)" } else { "" }
            ),
        );
    }

    pub(crate) fn jump(&mut self, node: usize, now: u64, by_ms: i64) {
        self.nodes[node].clock_ms += by_ms;
        self.tell(now, format!("node {node}'s clock is set by {by_ms} ms"));
    }

    /// Empties the zone's primary, and so its replicas.
    pub(crate) fn flush(&mut self, now: u64) {
        let node = self.primary();
        self.replace_data(node, Data::default());
        self.tell(now, format!("somebody empties the store at node {node}"));
    }

    /// A key of the zone vanishes at its primary, and so at its replicas. Returns its name, if the zone has one.
    pub(crate) fn lose_key(&mut self, now: u64, number: u64) -> Option<String> {
        let node = self.primary();
        let mut data = self.nodes[node].data.clone();
        let key = String::from_utf8_lossy(&data.lose("{ZONE}", number)?).into_owned();
        self.replace_data(node, data);
        self.tell(now, format!("somebody deletes {key} at node {node}"));
        Some(key)
    }

    /// A node has other data from now on, in memory and on disk. Its replicas copy them.
    fn replace_data(&mut self, node: usize, data: Data) {
        let history = self.histories.len() as u64;
        self.histories.push(Vec::new());
        let at = &mut self.nodes[node];
        (at.data, at.disk) = (data.clone(), data);
        at.unsynced.clear();
        (at.history, at.offset) = (history, 0);
    }
}
