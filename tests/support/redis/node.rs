//! One `redis-server` process, and how it is started.
//!
//! Invariant: a started server answers, and is the process that was started here. It is killed when it is dropped.

use std::{
    env,
    ffi::OsString,
    hash::{BuildHasher as _, RandomState},
    io::{self, Write as _},
    net::{SocketAddr, TcpListener},
    process::{Child, Command, Stdio},
    sync::{Mutex, PoisonError},
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::{
    Proxy, false_clock, local,
    wire::{Reply, Wire},
};
use crate::clock::eventually;

/// How much higher the port of the cluster bus is than the one for clients.
const BUS: u16 = 10_000;

/// The range of ports. They, and the ports of the cluster bus, are below the ports that the system gives to outgoing
/// connections.
const PORTS: std::ops::Range<u16> = 11_000..22_000;

/// The ACL users of clients that a divided network tells apart. Any password is right.
pub(crate) const USERS: [&str; 2] = ["server0", "server1"];

/// Options for starting servers.
#[derive(Clone, Default)]
pub(crate) struct Options {
    args: Vec<OsString>,
    proxied: bool,
    divisible: bool,
    tls: bool,
    clock_ahead_s: i64,
}

/// The kind of a server.
pub(super) enum Kind<'a> {
    Standalone,
    /// A server of a cluster, with its number.
    Cluster(usize),
    /// A Sentinel with this configuration.
    Sentinel(&'a str),
}

impl Options {
    /// A server that stores nothing on disk.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Adds arguments of `redis-server`, for example `--maxmemory 1mb`. If a name is repeated, the last one counts.
    pub(crate) fn arg(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(OsString::from));
        self
    }

    /// Puts a [`Proxy`] in front of each server. Clients and replicas use its port; the cluster bus is direct.
    pub(crate) fn proxied(mut self) -> Self {
        self.proxied = true;
        self
    }

    /// Puts a [`Proxy`] also in front of the cluster bus of each server, so that
    /// [`Cluster::divide`](super::Cluster::divide) can cut the bus, too. Clients call as one of [`USERS`].
    pub(crate) fn divisible(mut self) -> Self {
        self.divisible = true;
        self.proxied()
    }

    /// Gives the server a clock that is so many seconds ahead of the machine's; behind it, if negative.
    pub(crate) fn clock_ahead(mut self, seconds: i64) -> Self {
        self.clock_ahead_s = seconds;
        self
    }

    /// Lets clients use TLS, on another port. [`arg`](Self::arg) names the certificates.
    pub(crate) fn tls(mut self) -> Self {
        self.tls = true;
        self
    }
}

/// One `redis-server`.
pub(super) struct Node {
    dir: TempDir,
    pub(super) port: u16,
    tls_port: Option<u16>,
    args: Vec<OsString>,
    pub(super) child: Option<Child>,
    wire: Mutex<Option<Wire>>,
    pub(super) proxy: Option<Proxy>,
    /// In front of the cluster bus.
    pub(super) bus_proxy: Option<Proxy>,
    clock_ahead_s: i64,
}

/// The address from which a server of a divisible cluster opens connections. Proxies know the server by it.
pub(super) fn source(number: usize) -> String {
    format!("127.0.1.{}", number + 1)
}

impl Node {
    /// Starts a server on free ports.
    pub(super) fn start(options: &Options, kind: &Kind<'_>) -> Self {
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
                bus_proxy: options.divisible.then(|| Proxy::start(local(port + BUS))),
                clock_ahead_s: options.clock_ahead_s,
            };
            if node.clock_ahead_s != 0 {
                false_clock::compile(node.dir.path());
            }
            node.args = node.arguments(options, kind);
            node.child = Some(node.spawn());
            if node.answers() {
                node.check_clock();
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
        if let Kind::Cluster(number) = kind {
            let bus = (self.port + BUS).to_string();
            add(&["--cluster-enabled", "yes", "--cluster-port", &bus, "--cluster-node-timeout", "1500"]);
            add(&["--cluster-replica-validity-factor", "0", "--cluster-require-full-coverage", "no"]);
            add(&["--cluster-allow-replica-migration", "no"]);
            if self.tls_port.is_some() {
                add(&["--tls-cluster", "yes", "--tls-replication", "yes"]);
            }
            if let Some(proxy) = &self.proxy {
                let port = proxy.port().to_string();
                add(&["--cluster-announce-ip", "127.0.0.1", "--cluster-announce-port", &port]);
                add(&["--cluster-announce-bus-port", &self.bus_port().to_string()]);
            }
            if self.bus_proxy.is_some() {
                add(&["--bind-source-addr", &source(*number)]);
                for user in USERS {
                    add(&["--user", user, "on", "nopass", "~*", "&*", "+@all"]);
                }
            }
        }
        args.extend(options.args.iter().cloned());
        args
    }

    fn spawn(&self) -> Child {
        let binary = env::var_os("REDIS_SERVER").unwrap_or_else(|| "redis-server".into());
        let log = fs_log(&self.dir);
        let mut command = Command::new(&binary);
        if self.clock_ahead_s != 0 {
            command.envs(false_clock::environment(self.dir.path(), self.clock_ahead_s));
        }
        command
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

    /// Waits until the server answers. Returns false if it ended because another process took its port.
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
            // An error such as LOADING is an answer, too. The process id shows that no other server has the port.
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

    /// Panics if the server's clock is not as far ahead as it should be.
    fn check_clock(&self) {
        if self.clock_ahead_s != 0 {
            let time = self.command(&["TIME"]);
            let seconds = time.parts()[0].text().parse().expect("seconds");
            false_clock::check(seconds, self.clock_ahead_s);
        }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(self.child.as_ref().expect("the server runs"))
    }

    pub(super) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("our own child");
    }

    pub(super) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("our own child");
            child.wait().expect("our own child");
        }
        self.wire.get_mut().expect("no test panicked with it").take();
    }

    pub(super) fn restart(&mut self) {
        self.kill();
        self.child = Some(self.spawn());
        assert!(self.answers(), "another process took port {} while its server was restarted", self.port);
        self.check_clock();
    }

    /// Sends a command over the kept connection, and again over a new one if that broke.
    pub(super) fn try_command<A: AsRef<[u8]>>(&self, parts: &[A]) -> io::Result<Reply> {
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
    pub(super) fn command<A: AsRef<[u8]>>(&self, parts: &[A]) -> Reply {
        match self.try_command(parts) {
            Ok(reply) => reply,
            Err(error) => panic!("the server on port {} does not answer: {error}", self.port),
        }
    }

    /// A field of `INFO`.
    pub(super) fn info(&self, section: &str, name: &str) -> String {
        let text = self.command(&["INFO", section]).text();
        field(&text, name).unwrap_or_else(|| panic!("no {name} in INFO {section}")).to_owned()
    }

    pub(super) fn cpu_time(&self) -> Duration {
        cpu_time(self.child.as_ref().expect("the server runs").id())
    }

    /// The port for clients without TLS.
    pub(super) fn client_port(&self) -> u16 {
        self.proxy.as_ref().map_or(self.port, Proxy::port)
    }

    /// Its proxies: for clients and replicas, and for the cluster bus.
    pub(super) fn proxies(&self) -> impl Iterator<Item = &Proxy> {
        self.proxy.iter().chain(&self.bus_proxy)
    }

    /// The port of the cluster bus for other servers.
    pub(super) fn bus_port(&self) -> u16 {
        self.bus_proxy.as_ref().map_or(self.port + BUS, Proxy::port)
    }

    /// The end of the scheme (`s` for TLS), and the address for clients.
    pub(super) fn address(&self) -> (&'static str, SocketAddr) {
        let tls = if self.tls_port.is_some() { "s" } else { "" };
        (tls, local(self.tls_port.unwrap_or(self.client_port())))
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

/// The processor time of a process, user and system, in steps of 10 ms.
pub(crate) fn cpu_time(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process runs");
    let (_, after) = stat.rsplit_once(')').expect("the name is in brackets");
    let ticks: u64 =
        after.split_whitespace().skip(11).take(2).map(|text| text.parse::<u64>().expect("ticks")).sum();
    // Linux reports 100 ticks a second to programs, whatever it counts internally.
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

/// Ports that were just free, together with their bus ports, in random order. Panics after one hundred.
fn free_ports() -> impl Iterator<Item = u16> {
    let random = RandomState::new();
    let free =
        |port: u16| TcpListener::bind(local(port)).is_ok() && TcpListener::bind(local(port + BUS)).is_ok();
    let span = u64::from(PORTS.end - PORTS.start);
    let tried =
        (0_u32..).map(move |time| PORTS.start + u16::try_from(random.hash_one(time) % span).expect("small"));
    tried
        .filter(move |port| free(*port))
        .take(100)
        .chain(std::iter::from_fn(|| panic!("no free port for redis-server")))
}
