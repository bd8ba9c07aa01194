//! A Redis Cluster.

use std::{fmt, time::Duration};

use rustix::process::Signal;

use super::{
    Proxy,
    node::{Kind, Node, Options, USERS, source},
    proxy::Division,
    standalone::wait_replicas,
    wire::Reply,
};
use crate::clock::eventually;

/// A cluster. Servers are numbered: first the primaries, in the order of their slots, then the replicas of the first
/// primary, of the second, and so on.
pub(crate) struct Cluster {
    nodes: Vec<Node>,
    primaries: usize,
}

impl Cluster {
    /// Starts one that keeps nothing on disk, and waits until all of it works. The slots are spread evenly.
    pub(crate) fn start(primaries: usize, replicas_each: usize) -> Self {
        Self::start_with(primaries, replicas_each, &Options::new())
    }

    /// Starts one with options for all servers.
    pub(crate) fn start_with(primaries: usize, replicas_each: usize, options: &Options) -> Self {
        Self::start_each(primaries, replicas_each, |_| options.clone())
    }

    /// Starts one with options for each server, by its number.
    pub(crate) fn start_each(
        primaries: usize,
        replicas_each: usize,
        options: impl Fn(usize) -> Options,
    ) -> Self {
        let count = primaries * (1 + replicas_each);
        let nodes: Vec<Node> = (0..count).map(|i| Node::start(&options(i), &Kind::Cluster(i))).collect();
        let cluster = Self { nodes, primaries };
        let ok = |i: usize, parts: &[&str]| {
            let reply = cluster.command(i, parts);
            assert_eq!(reply, Reply::Bytes(b"OK".to_vec()), "{parts:?}");
        };
        for i in 0..count {
            ok(i, &["CLUSTER", "SET-CONFIG-EPOCH", &(i + 1).to_string()]);
        }
        for i in 0..primaries {
            let (from, end) = (16_384 * i / primaries, 16_384 * (i + 1) / primaries);
            ok(i, &["CLUSTER", "ADDSLOTSRANGE", &from.to_string(), &(end - 1).to_string()]);
        }
        for i in 1..count {
            let (port, bus) = (cluster.nodes[i].client_port(), cluster.nodes[i].bus_port());
            ok(0, &["CLUSTER", "MEET", "127.0.0.1", &port.to_string(), &bus.to_string()]);
        }
        cluster.wait_met();
        for i in primaries..count {
            ok(i, &["CLUSTER", "REPLICATE", &cluster.id((i - primaries) / replicas_each)]);
        }
        cluster.wait_ok();
        for i in 0..primaries {
            wait_replicas(&cluster.nodes[i], replicas_each);
        }
        eventually("all servers know the replicas", || {
            let knows = |i| {
                cluster.command(i, &["CLUSTER", "NODES"]).text().matches("slave").count() == count - primaries
            };
            (0..count).all(knows).then_some(())
        });
        cluster
    }

    /// Starts one more server, a primary without slots, and waits until all know it. Returns its number.
    pub(crate) fn add(&mut self) -> usize {
        let new = self.nodes.len();
        self.nodes.push(Node::start(&Options::new(), &Kind::Cluster(new)));
        let (port, bus) = (self.nodes[new].client_port(), self.nodes[new].bus_port());
        self.command(0, &["CLUSTER", "MEET", "127.0.0.1", &port.to_string(), &bus.to_string()]);
        self.wait_met();
        self.wait_ok();
        new
    }

    fn wait_met(&self) {
        let ids: Vec<String> = (0..self.nodes.len()).map(|i| self.id(i)).collect();
        eventually("all servers have met", || {
            let met = |i| {
                let known = self.command(i, &["CLUSTER", "NODES"]).text();
                ids.iter().all(|id| known.contains(id)) && !known.contains("handshake")
            };
            (0..ids.len()).all(met).then_some(())
        });
    }

    /// Its address. The seeds are the first primaries.
    pub(crate) fn url(&self) -> String {
        let nodes = &self.nodes[..self.primaries];
        let hosts = nodes.iter().map(|node| node.address().1.to_string()).collect::<Vec<_>>().join(",");
        format!("redis{}-cluster://{hosts}", nodes[0].address().0)
    }

    /// Its address for one of [`USERS`].
    pub(crate) fn url_for(&self, user: &str) -> String {
        self.url().replacen("://", &format!("://{user}:any@"), 1)
    }

    /// Divides the network: server `alone` and the clients that call as `user` are in one part, all others in the other. The
    /// cluster bus is cut like all other connections. See [`Options::divisible`].
    pub(crate) fn divide(&self, alone: usize, user: &str) {
        assert!(USERS.contains(&user), "a divided network does not know {user}");
        let few = vec![source(alone), user.to_owned()];
        for (i, node) in self.nodes.iter().enumerate() {
            let division = Division { few: few.clone(), server_is_few: i == alone };
            for proxy in node.proxies() {
                proxy.divide(Some(division.clone()));
            }
        }
    }

    /// Makes the network whole again.
    pub(crate) fn heal(&self) {
        self.nodes.iter().flat_map(Node::proxies).for_each(|proxy| proxy.divide(None));
    }

    /// Waits until a primary has so many replicas that take part: they are online and confirmed its state.
    pub(crate) fn wait_replicas(&self, primary: usize, count: usize) {
        wait_replicas(&self.nodes[primary], count);
    }

    /// Waits until a server is a primary, in its own eyes.
    pub(crate) fn wait_promoted(&self, i: usize) {
        eventually("the replica was promoted", || {
            (self.info(i, "replication", "role") == "master").then_some(())
        });
    }

    /// A server's own port, not that of a proxy.
    pub(crate) fn port(&self, i: usize) -> u16 {
        self.nodes[i].port
    }

    /// A server's proxy; see [`Options::proxied`].
    pub(crate) fn proxy(&self, i: usize) -> &Proxy {
        self.nodes[i].proxy.as_ref().expect("started with Options::proxied")
    }

    /// A server's id in the cluster.
    pub(crate) fn id(&self, i: usize) -> String {
        self.command(i, &["CLUSTER", "MYID"]).text()
    }

    /// Sends a server a command, not through the proxy. Panics if it does not answer.
    #[track_caller]
    pub(crate) fn command<A: AsRef<[u8]>>(&self, i: usize, parts: &[A]) -> Reply {
        self.nodes[i].command(parts)
    }

    /// A field of a server's `INFO section`.
    pub(crate) fn info(&self, i: usize, section: &str, name: &str) -> String {
        self.nodes[i].info(section, name)
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self, i: usize) {
        self.nodes[i].kill();
    }

    /// SIGSTOP: the process exists, and does nothing.
    pub(crate) fn stop(&self, i: usize) {
        self.nodes[i].signal(Signal::STOP);
    }

    /// SIGCONT.
    pub(crate) fn cont(&self, i: usize) {
        self.nodes[i].signal(Signal::CONT);
    }

    /// Kills a server if it runs, and starts it empty on the same port, with its old id in the cluster.
    pub(crate) fn restart(&mut self, i: usize) {
        self.nodes[i].restart();
    }

    /// Processor time, user and system.
    pub(crate) fn cpu_time(&self, i: usize) -> Duration {
        self.nodes[i].cpu_time()
    }

    /// The memory that a server reports to use, in bytes.
    pub(crate) fn used_memory(&self, i: usize) -> u64 {
        self.info(i, "memory", "used_memory").parse().expect("a number of bytes")
    }

    /// The slot of a key.
    pub(crate) fn slot(&self, key: &str) -> u16 {
        let any = self.running().next().expect("a server runs");
        u16::try_from(self.command(any, &["CLUSTER", "KEYSLOT", key]).int()).expect("a slot")
    }

    /// The server that has a slot. Waits until all running servers agree.
    pub(crate) fn primary_of(&self, slot: u16) -> usize {
        eventually("the servers agree on a primary", || {
            let mut ports = self.running().map(|i| self.owner(i, slot));
            let first = ports.next()??;
            ports.all(|port| port == Some(first)).then_some(())?;
            self.nodes.iter().position(|node| node.client_port() == first)
        })
    }

    /// The port of the server that has `slot`, as server `i` knows it.
    fn owner(&self, i: usize, slot: u16) -> Option<u16> {
        let ranges = self.nodes[i].try_command(&["CLUSTER", "SLOTS"]).ok()?;
        let range = ranges.parts().iter().find(|range| {
            let (from, to) = (range.parts()[0].int(), range.parts()[1].int());
            (from..=to).contains(&i64::from(slot))
        })?;
        u16::try_from(range.parts()[2].parts()[1].int()).ok()
    }

    /// The servers that were neither killed nor frozen.
    fn running(&self) -> impl Iterator<Item = usize> {
        (0..self.nodes.len()).filter(|i| {
            let Some(child) = &self.nodes[*i].child else { return false };
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
            !stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with(['T', 'Z']))
        })
    }

    /// Waits until all running servers report that the cluster works and each slot has a primary that answers.
    pub(crate) fn wait_ok(&self) {
        eventually("the cluster works", || {
            let fine = |i: usize| {
                let info = self.nodes[i].try_command(&["CLUSTER", "INFO"]).ok()?.text();
                let fine = info.contains("cluster_state:ok") && info.contains("cluster_slots_ok:16384");
                fine.then_some(())
            };
            self.running().all(|i| fine(i).is_some()).then_some(())
        });
    }

    /// Waits until all running servers agree that another server than `old` has the slot. Returns which one.
    pub(crate) fn wait_failover(&self, slot: u16, old: usize) -> usize {
        eventually("a replica took over", || {
            let new = self.primary_of(slot);
            (new != old).then_some(new)
        })
    }

    /// Begins to move a slot: its primary redirects to server `to`, by `ASK`, for keys that it does not have.
    pub(crate) fn begin_move(&self, slot: u16, to: usize) {
        let (from, slot) = (self.primary_of(slot), slot.to_string());
        self.command(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &self.id(from)]);
        self.command(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &self.id(to)]);
    }

    /// Moves all keys of a slot that is being moved to server `to`.
    pub(crate) fn move_keys(&self, slot: u16, to: usize) {
        let (from, slot, port) = (self.primary_of(slot), slot.to_string(), self.port(to).to_string());
        loop {
            let keys = self.command(from, &["CLUSTER", "GETKEYSINSLOT", &slot, "100"]);
            let keys: Vec<_> = keys.parts().iter().map(Reply::text).collect();
            if keys.is_empty() {
                return;
            }
            let mut command: Vec<_> =
                ["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"].map(str::to_owned).into();
            command.extend(keys);
            let reply = self.command(from, &command);
            assert!(!matches!(reply, Reply::Error(_)), "keys were not moved: {reply:?}");
        }
    }

    /// Ends the move of a slot whose old primary has no keys of it, and waits until all know. From then on the old primary
    /// answers `MOVED`.
    pub(crate) fn end_move(&self, slot: u16, to: usize) {
        let (from, slot_text, id) = (self.primary_of(slot), slot.to_string(), self.id(to));
        for i in [to, from] {
            let reply = self.command(i, &["CLUSTER", "SETSLOT", &slot_text, "NODE", &id]);
            assert_eq!(reply, Reply::Bytes(b"OK".to_vec()));
        }
        eventually("the slot has moved", || (self.primary_of(slot) == to).then_some(()));
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url())
    }
}
