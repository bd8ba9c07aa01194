//! Real Redis servers: started on free ports with a directory of their own, killed when dropped, whether the test passed
//! or not. Everything is spoken in RESP over plain TCP; no `redis-cli` is needed.
//!
//! Invariant: a server that is handed out answers, and is the process that was started here.
#![allow(dead_code, reason = "each test uses its part")]

use std::{
    env,
    ffi::OsString,
    fmt,
    hash::{BuildHasher as _, RandomState},
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::clock::{eventually, now};

/// For how long a single command to a server may take; a frozen server fails the test no later.
const PATIENCE: Duration = Duration::from_secs(10);

/// Ports are chosen from here: below those that the system gives to outgoing connections, and so that the bus port, 10,000
/// higher, is too.
const PORTS: std::ops::Range<u16> = 11_000..22_000;

/// What a server answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Nil,
    Int(i64),
    Bytes(Vec<u8>),
    Error(String),
    Array(Vec<Reply>),
}

impl Reply {
    /// The number that this is.
    #[track_caller]
    pub(crate) fn int(&self) -> i64 {
        match self {
            Self::Int(number) => *number,
            other => panic!("a number was expected, not {other:?}"),
        }
    }

    /// The text that this is.
    #[track_caller]
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            other => panic!("a text was expected, not {other:?}"),
        }
    }

    /// The parts that this has.
    #[track_caller]
    pub(crate) fn parts(&self) -> &[Reply] {
        match self {
            Self::Array(parts) => parts,
            other => panic!("an array was expected, not {other:?}"),
        }
    }
}

/// A connection that speaks RESP.
pub(crate) struct Wire(BufReader<TcpStream>);

impl Wire {
    /// To a server on this machine.
    pub(crate) fn connect(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&local(port), PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Sends a command and reads its reply.
    pub(crate) fn command<A: AsRef<[u8]>>(&mut self, parts: &[A]) -> io::Result<Reply> {
        self.send(parts)?;
        self.read()
    }

    /// Sends a command; its reply is yet to be read.
    pub(crate) fn send<A: AsRef<[u8]>>(&mut self, parts: &[A]) -> io::Result<()> {
        let mut bytes = format!("*{}\r\n", parts.len()).into_bytes();
        for part in parts {
            bytes.extend(format!("${}\r\n", part.as_ref().len()).bytes());
            bytes.extend(part.as_ref());
            bytes.extend(b"\r\n");
        }
        self.0.get_mut().write_all(&bytes)
    }

    /// Reads one reply.
    pub(crate) fn read(&mut self) -> io::Result<Reply> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        let odd = || io::Error::new(io::ErrorKind::InvalidData, format!("not RESP: {line:?}"));
        let text = line.strip_suffix("\r\n").ok_or_else(odd)?;
        let kind = text.get(..1).ok_or_else(odd)?;
        let number = || text[1..].parse::<i64>().map_err(|_| odd());
        Ok(match kind {
            "+" => Reply::Bytes(text[1..].into()),
            "-" => Reply::Error(text[1..].to_owned()),
            ":" => Reply::Int(number()?),
            "$" | "*" if number()? < 0 => Reply::Nil,
            "$" => {
                let mut bytes = vec![0; usize::try_from(number()?).expect("not negative") + 2];
                self.0.read_exact(&mut bytes)?;
                bytes.truncate(bytes.len() - 2);
                Reply::Bytes(bytes)
            }
            "*" => Reply::Array((0..number()?).map(|_| self.read()).collect::<io::Result<_>>()?),
            _ => return Err(odd()),
        })
    }
}

fn local(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// How servers are started.
#[derive(Clone, Default)]
pub(crate) struct Options {
    args: Vec<OsString>,
    proxied: bool,
    tls: bool,
}

/// What a server is to be.
enum Kind<'a> {
    Standalone,
    Cluster,
    /// A Sentinel with this configuration.
    Sentinel(&'a str),
}

impl Options {
    /// A server that keeps nothing on disk.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// One more argument of `redis-server`, as `--maxmemory 1mb`; the last one of a name counts.
    pub(crate) fn arg(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(OsString::from));
        self
    }

    /// Puts a [`Proxy`] before each server: clients are told its port, replicas too; the bus is direct.
    pub(crate) fn proxied(mut self) -> Self {
        self.proxied = true;
        self
    }

    /// Clients speak TLS, on a port of its own; the certificates are said by [`arg`](Self::arg).
    pub(crate) fn tls(mut self) -> Self {
        self.tls = true;
        self
    }
}

/// One `redis-server`.
struct Node {
    dir: TempDir,
    port: u16,
    tls_port: Option<u16>,
    args: Vec<OsString>,
    child: Option<Child>,
    wire: Mutex<Option<Wire>>,
    proxy: Option<Proxy>,
}

impl Node {
    /// Starts one on ports that nobody uses.
    fn start(options: &Options, kind: &Kind<'_>) -> Self {
        let mut ports = free_ports();
        loop {
            let port = ports.next().expect("it panics before it ends");
            let mut node = Self {
                dir: tempfile::Builder::new().prefix("weir-redis-").tempdir().expect("a temporary directory"),
                port,
                tls_port: options.tls.then(|| ports.next().expect("it panics before it ends")),
                args: Vec::new(),
                child: None,
                wire: Mutex::new(None),
                proxy: options.proxied.then(|| Proxy::start(local(port))),
            };
            node.args = node.arguments(options, kind);
            node.child = Some(node.spawn());
            if node.answers() {
                return node;
            }
        }
    }

    fn arguments(&self, options: &Options, kind: &Kind<'_>) -> Vec<OsString> {
        let port = self.port.to_string();
        let mut args = Vec::new();
        let mut add = |more: &[&str]| args.extend(more.iter().map(OsString::from));
        if let Kind::Sentinel(text) = kind {
            std::fs::write(self.dir.path().join("sentinel.conf"), text)
                .expect("the temporary directory takes files");
            add(&["sentinel.conf", "--sentinel", "--port", &port, "--bind", "127.0.0.1"]);
            return args;
        }
        add(&["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
        add(&["--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"]);
        if let Some(port) = self.tls_port {
            add(&["--tls-port", &port.to_string()]);
        }
        if let Kind::Cluster = kind {
            let bus = (self.port + 10_000).to_string();
            add(&["--cluster-enabled", "yes", "--cluster-port", &bus, "--cluster-node-timeout", "1500"]);
            add(&["--cluster-replica-validity-factor", "0", "--cluster-require-full-coverage", "no"]);
            add(&["--cluster-allow-replica-migration", "no"]);
            if self.tls_port.is_some() {
                add(&["--tls-cluster", "yes", "--tls-replication", "yes"]);
            }
            if let Some(proxy) = &self.proxy {
                let port = proxy.port().to_string();
                add(&["--cluster-announce-ip", "127.0.0.1", "--cluster-announce-port", &port]);
                add(&["--cluster-announce-bus-port", &bus]);
            }
        }
        args.extend(options.args.iter().cloned());
        args
    }

    fn spawn(&self) -> Child {
        let binary = env::var_os("REDIS_SERVER").unwrap_or_else(|| "redis-server".into());
        let log = fs_log(&self.dir);
        Command::new(&binary)
            .args(&self.args)
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a file's handle"))
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| {
                panic!(
                    "{} does not start ({error}); these tests need Redis 7 or later: apt-get install redis-server, or \
                     name the binary in REDIS_SERVER",
                    binary.display()
                )
            })
    }

    /// Waits until it answers; false where it ended because somebody else took its port.
    fn answers(&mut self) -> bool {
        let (port, dir) = (self.port, self.dir.path().join("log"));
        let child = self.child.as_mut().expect("started just now");
        let ours = i64::from(child.id()).to_string();
        eventually("redis-server answers", || {
            if child.try_wait().expect("our own child").is_some() {
                let log = std::fs::read_to_string(&dir).unwrap_or_default();
                assert!(log.contains("Address already in use"), "redis-server ended:\n{log}");
                return Some(false);
            }
            // Loading and the like are answers too; that it is this process is asked, since ports are anybody's.
            let info = Wire::connect(port).ok()?.command(&["INFO", "server"]).ok()?;
            match info {
                Reply::Bytes(text) => {
                    let text = String::from_utf8_lossy(&text).into_owned();
                    field(&text, "process_id").is_none_or(|id| id == ours).then_some(true)
                }
                Reply::Error(text) if text.starts_with("NOAUTH") => Some(true),
                _ => None,
            }
        })
    }

    fn pid(&self) -> Pid {
        Pid::from_child(self.child.as_ref().expect("the server runs"))
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("our own child");
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("our own child");
            child.wait().expect("our own child");
        }
        self.wire.get_mut().expect("no test panicked with it").take();
    }

    fn restart(&mut self) {
        self.kill();
        self.child = Some(self.spawn());
        assert!(self.answers(), "somebody took port {} while its server was restarted", self.port);
    }

    /// Asks over a connection that is kept, and once more over a new one if that broke.
    fn try_command<A: AsRef<[u8]>>(&self, parts: &[A]) -> io::Result<Reply> {
        let mut kept = self.wire.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mut wire) = kept.take()
            && let Ok(reply) = wire.command(parts)
        {
            *kept = Some(wire);
            return Ok(reply);
        }
        let mut wire = Wire::connect(self.port)?;
        let reply = wire.command(parts)?;
        *kept = Some(wire);
        Ok(reply)
    }

    #[track_caller]
    fn command<A: AsRef<[u8]>>(&self, parts: &[A]) -> Reply {
        match self.try_command(parts) {
            Ok(reply) => reply,
            Err(error) => panic!("the server on port {} does not answer: {error}", self.port),
        }
    }

    /// A field of `INFO`.
    fn info(&self, section: &str, name: &str) -> String {
        let text = self.command(&["INFO", section]).text();
        field(&text, name).unwrap_or_else(|| panic!("no {name} in INFO {section}")).to_owned()
    }

    fn cpu_time(&self) -> Duration {
        cpu_time(self.child.as_ref().expect("the server runs").id())
    }

    /// The port that it is known by where no TLS is spoken.
    fn told_port(&self) -> u16 {
        self.proxy.as_ref().map_or(self.port, Proxy::port)
    }

    /// The end of a scheme, and where clients connect to.
    fn address(&self) -> (&'static str, SocketAddr) {
        let tls = if self.tls_port.is_some() { "s" } else { "" };
        (tls, local(self.tls_port.unwrap_or(self.told_port())))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if thread::panicking() {
            let log = std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
            let tail = log.lines().rev().take(15).collect::<Vec<_>>();
            let tail = tail.into_iter().rev().collect::<Vec<_>>().join("\n");
            drop(writeln!(io::stderr(), "--- log of redis-server on port {}\n{tail}\n---", self.port));
        }
        if let Some(mut child) = self.child.take() {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// The processor time of a process so far, user and system, by ticks of 10 ms.
pub(crate) fn cpu_time(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process runs");
    let (_, after) = stat.rsplit_once(')').expect("the name is in brackets");
    let ticks: u64 =
        after.split_whitespace().skip(11).take(2).map(|text| text.parse::<u64>().expect("ticks")).sum();
    // 100 ticks a second: what Linux shows to programs, whatever it counts with.
    Duration::from_millis(ticks * 10)
}

fn fs_log(dir: &TempDir) -> std::fs::File {
    let path = dir.path().join("log");
    std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .expect("the temporary directory takes files")
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// Ports that were free with their bus ports a moment ago, in a random order; it panics after two hundred.
fn free_ports() -> impl Iterator<Item = u16> {
    let random = RandomState::new();
    let free =
        |port: u16| TcpListener::bind(local(port)).is_ok() && TcpListener::bind(local(port + 10_000)).is_ok();
    let span = u64::from(PORTS.end - PORTS.start);
    let tried =
        (0_u32..).map(move |time| PORTS.start + u16::try_from(random.hash_one(time) % span).expect("small"));
    tried
        .filter(move |port| free(*port))
        .take(100)
        .chain(std::iter::from_fn(|| panic!("no free port for redis-server")))
}

/// A single server.
pub(crate) struct Standalone(Node);

impl Standalone {
    /// Starts one that keeps nothing on disk.
    pub(crate) fn start() -> Self {
        Self::start_with(&Options::new())
    }

    /// Starts one with options.
    pub(crate) fn start_with(options: &Options) -> Self {
        Self(Node::start(options, &Kind::Standalone))
    }

    /// A Sentinel that watches `primary` under the name `name`, alone: it decides by itself, within a second or two.
    pub(crate) fn sentinel(name: &str, primary: &Self) -> Self {
        let port = primary.port();
        let text = format!(
            "sentinel monitor {name} 127.0.0.1 {port} 1\nsentinel down-after-milliseconds {name} 500\n\
             sentinel failover-timeout {name} 3000\n"
        );
        Self(Node::start(&Options::new(), &Kind::Sentinel(&text)))
    }

    /// Its address, as [`redis_script::Address`] reads it.
    pub(crate) fn url(&self) -> String {
        let (tls, address) = self.0.address();
        format!("redis{tls}://{address}")
    }

    /// Its own port, past any proxy.
    pub(crate) fn port(&self) -> u16 {
        self.0.port
    }

    /// What stands before it; see [`Options::proxied`].
    pub(crate) fn proxy(&self) -> &Proxy {
        self.0.proxy.as_ref().expect("started with Options::proxied")
    }

    /// Asks it, past any proxy; it must answer.
    #[track_caller]
    pub(crate) fn command<A: AsRef<[u8]>>(&self, parts: &[A]) -> Reply {
        self.0.command(parts)
    }

    /// A field of `INFO section`.
    pub(crate) fn info(&self, section: &str, name: &str) -> String {
        self.0.info(section, name)
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.0.kill();
    }

    /// SIGSTOP: it is there, and does nothing.
    pub(crate) fn stop(&self) {
        self.0.signal(Signal::STOP);
    }

    /// SIGCONT.
    pub(crate) fn cont(&self) {
        self.0.signal(Signal::CONT);
    }

    /// Kills it if it runs, and starts it on the same port; what it did not keep on disk is gone.
    pub(crate) fn restart(&mut self) {
        self.0.restart();
    }

    /// Processor time so far, user and system.
    pub(crate) fn cpu_time(&self) -> Duration {
        self.0.cpu_time()
    }

    /// Bytes of memory in use by its account.
    pub(crate) fn used_memory(&self) -> u64 {
        self.0.info("memory", "used_memory").parse().expect("a number of bytes")
    }

    /// Waits until so many replicas are in step.
    pub(crate) fn wait_replicas(&self, count: usize) {
        wait_replicas(&self.0, count);
    }
}

fn wait_replicas(node: &Node, count: usize) {
    eventually("the replicas are online", || {
        let text = node.command(&["INFO", "replication"]).text();
        (text.matches("state=online").count() >= count).then_some(())
    });
}

/// A cluster. Servers are numbered: the primaries first, in the order of their slots, then the replicas of the first one,
/// of the second…
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
        let count = primaries * (1 + replicas_each);
        let nodes: Vec<Node> = (0..count).map(|_| Node::start(options, &Kind::Cluster)).collect();
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
            let (port, bus) = (cluster.nodes[i].port, cluster.nodes[i].port + 10_000);
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

    /// Starts one more server, a primary without slots, and waits until all know it; answers its number.
    pub(crate) fn add(&mut self) -> usize {
        self.nodes.push(Node::start(&Options::new(), &Kind::Cluster));
        let new = self.nodes.len() - 1;
        let (port, bus) = (self.nodes[new].port, self.nodes[new].port + 10_000);
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

    /// Its address, with all primaries of the start as seeds.
    pub(crate) fn url(&self) -> String {
        let nodes = &self.nodes[..self.primaries];
        let hosts = nodes.iter().map(|node| node.address().1.to_string()).collect::<Vec<_>>().join(",");
        format!("redis{}-cluster://{hosts}", nodes[0].address().0)
    }

    /// A server's own port, past any proxy.
    pub(crate) fn port(&self, i: usize) -> u16 {
        self.nodes[i].port
    }

    /// What stands before a server; see [`Options::proxied`].
    pub(crate) fn proxy(&self, i: usize) -> &Proxy {
        self.nodes[i].proxy.as_ref().expect("started with Options::proxied")
    }

    /// A server's name in the cluster.
    pub(crate) fn id(&self, i: usize) -> String {
        self.command(i, &["CLUSTER", "MYID"]).text()
    }

    /// Asks a server, past any proxy; it must answer.
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

    /// SIGSTOP: it is there, and does nothing.
    pub(crate) fn stop(&self, i: usize) {
        self.nodes[i].signal(Signal::STOP);
    }

    /// SIGCONT.
    pub(crate) fn cont(&self, i: usize) {
        self.nodes[i].signal(Signal::CONT);
    }

    /// Kills a server if it runs, and starts it empty on the same port, as the member of the cluster that it was.
    pub(crate) fn restart(&mut self, i: usize) {
        self.nodes[i].restart();
    }

    /// Processor time so far, user and system.
    pub(crate) fn cpu_time(&self, i: usize) -> Duration {
        self.nodes[i].cpu_time()
    }

    /// Bytes of memory in use by a server's account.
    pub(crate) fn used_memory(&self, i: usize) -> u64 {
        self.info(i, "memory", "used_memory").parse().expect("a number of bytes")
    }

    /// The slot of a key.
    pub(crate) fn slot(&self, key: &str) -> u16 {
        let any = self.running().next().expect("a server runs");
        u16::try_from(self.command(any, &["CLUSTER", "KEYSLOT", key]).int()).expect("a slot")
    }

    /// The server that has a slot now, as those that run agree; waits until they do.
    pub(crate) fn primary_of(&self, slot: u16) -> usize {
        eventually("the servers agree on a primary", || {
            let mut ports = self.running().map(|i| self.owner(i, slot));
            let first = ports.next()??;
            ports.all(|port| port == Some(first)).then_some(())?;
            self.nodes.iter().position(|node| node.told_port() == first)
        })
    }

    /// The port of the server that has `slot`, by the account of server `i`.
    fn owner(&self, i: usize, slot: u16) -> Option<u16> {
        let ranges = self.nodes[i].try_command(&["CLUSTER", "SLOTS"]).ok()?;
        let range = ranges.parts().iter().find(|range| {
            let (from, to) = (range.parts()[0].int(), range.parts()[1].int());
            (from..=to).contains(&i64::from(slot))
        })?;
        u16::try_from(range.parts()[2].parts()[1].int()).ok()
    }

    /// Those that were not killed, and are not frozen.
    fn running(&self) -> impl Iterator<Item = usize> {
        (0..self.nodes.len()).filter(|i| {
            let Some(child) = &self.nodes[*i].child else { return false };
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
            !stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with(['T', 'Z']))
        })
    }

    /// Waits until all servers that run say that the cluster works and each slot has a primary that answers.
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

    /// Waits until another server than `old` has the slot, in the eyes of all that run; answers which.
    pub(crate) fn wait_failover(&self, slot: u16, old: usize) -> usize {
        eventually("a replica took over", || {
            let new = self.primary_of(slot);
            (new != old).then_some(new)
        })
    }

    /// Begins to move a slot: keys that its primary does not have are looked for at server `to`, which is told by `ASK`.
    pub(crate) fn begin_move(&self, slot: u16, to: usize) {
        let (from, slot) = (self.primary_of(slot), slot.to_string());
        self.command(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &self.id(from)]);
        self.command(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &self.id(to)]);
    }

    /// Takes the keys of a slot that is on its way to server `to` there, all of them.
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

    /// Ends the move of a slot whose old primary has no keys of it, and waits until all know; from then on it is `MOVED`.
    pub(crate) fn end_move(&self, slot: u16, to: usize) {
        let (from, slot_text, id) = (self.primary_of(slot), slot.to_string(), self.id(to));
        for i in [to, from] {
            let reply = self.command(i, &["CLUSTER", "SETSLOT", &slot_text, "NODE", &id]);
            assert_eq!(reply, Reply::Bytes(b"OK".to_vec()));
        }
        eventually("the slot has moved", || (self.primary_of(slot) == to).then_some(()));
    }
}

/// What a [`Proxy`] does with bytes of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// Passes them on, each after so long.
    Pass(Duration),
    /// Keeps them until it passes again.
    Hold,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Flows {
    to_server: Flow,
    to_client: Flow,
}

struct Shared {
    flows: Mutex<Flows>,
    changed: Condvar,
    open: Mutex<Vec<TcpStream>>,
    closed: AtomicBool,
}

/// Stands before a server, and can hold up or delay what passes, or cut connections. New connections are always taken.
pub(crate) struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

impl Proxy {
    /// Before a server that need not run yet.
    pub(crate) fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind(local(0)).expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let pass = Flow::Pass(Duration::ZERO);
        let shared = Arc::new(Shared {
            flows: Mutex::new(Flows { to_server: pass, to_client: pass }),
            changed: Condvar::new(),
            open: Mutex::new(Vec::new()),
            closed: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(client) = client else { return };
                if accepting.closed.load(Ordering::Acquire) {
                    return;
                }
                // A server that is not there: the client's connection is closed.
                let Ok(server) = TcpStream::connect_timeout(&server, PATIENCE) else { continue };
                drop((client.set_nodelay(true), server.set_nodelay(true)));
                let (Ok(from_client), Ok(from_server)) = (client.try_clone(), server.try_clone()) else {
                    continue;
                };
                let mut open = accepting.open.lock().expect("no thread panics with it");
                open.extend([client.try_clone(), server.try_clone()].into_iter().flatten());
                drop(open);
                pump(from_client, server, Arc::clone(&accepting), |flows| flows.to_server);
                pump(from_server, client, Arc::clone(&accepting), |flows| flows.to_client);
            }
        });
        Self { port, shared }
    }

    /// Where clients connect to.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// What happens to bytes from now on, each way.
    pub(crate) fn set(&self, to_server: Flow, to_client: Flow) {
        *self.shared.flows.lock().expect("no thread panics with it") = Flows { to_server, to_client };
        self.shared.changed.notify_all();
    }

    /// Passes everything at once; what was held goes out.
    pub(crate) fn pass(&self) {
        self.delay(Duration::ZERO);
    }

    /// Passes everything, each way after so long.
    pub(crate) fn delay(&self, each_way: Duration) {
        self.set(Flow::Pass(each_way), Flow::Pass(each_way));
    }

    /// Nothing passes, either way; connections stay open.
    pub(crate) fn cut(&self) {
        self.set(Flow::Hold, Flow::Hold);
    }

    /// The server hears, and its replies are held.
    pub(crate) fn cut_replies(&self) {
        self.set(Flow::Pass(Duration::ZERO), Flow::Hold);
    }

    /// Closes the connections that there are.
    pub(crate) fn sever(&self) {
        for stream in self.shared.open.lock().expect("no thread panics with it").drain(..) {
            drop(stream.shutdown(std::net::Shutdown::Both));
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
        self.sever();
        self.pass();
        // Wakes the accepting thread.
        drop(TcpStream::connect_timeout(&local(self.port), PATIENCE));
    }
}

/// Moves bytes one way: a thread takes them in with the time, another gives them out when they are due.
fn pump(mut from: TcpStream, mut to: TcpStream, shared: Arc<Shared>, flow: fn(&Flows) -> Flow) {
    let (sender, receiver) = mpsc::channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        let mut buffer = vec![0; 64 * 1_024];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            if sender.send((now(), buffer[..count].to_vec())).is_err() {
                return;
            }
        }
    });
    thread::spawn(move || {
        for (taken, bytes) in receiver {
            let mut flows = shared.flows.lock().expect("no thread panics with it");
            loop {
                let left = match flow(&flows) {
                    Flow::Pass(delay) => (taken + delay).saturating_duration_since(now()),
                    Flow::Hold => PATIENCE,
                };
                if left.is_zero() {
                    break;
                }
                flows = shared.changed.wait_timeout(flows, left).expect("no thread panics with it").0;
            }
            drop(flows);
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        drop(to.shutdown(std::net::Shutdown::Both));
    });
}

impl fmt::Debug for Standalone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url())
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url())
    }
}
