//! A single Redis, or a Sentinel.

use std::{fmt, time::Duration};

use rustix::process::Signal;

use super::{
    Proxy,
    node::{Kind, Node, Options},
    wire::Reply,
};
use crate::clock::eventually;

/// A single server.
pub(crate) struct Standalone(Node);

impl Standalone {
    /// Starts a server that stores nothing on disk.
    pub(crate) fn start() -> Self {
        Self::start_with(&Options::new())
    }

    /// Starts a server with options.
    pub(crate) fn start_with(options: &Options) -> Self {
        Self(Node::start(options, &Kind::Standalone))
    }

    /// Starts a Sentinel that watches `primary` under the name `name`. It is the only one, so it decides alone, within a
    /// second or two.
    pub(crate) fn sentinel(name: &str, primary: &Self) -> Self {
        Self::sentinel_with(name, primary, "")
    }

    /// The same, with more lines of configuration.
    pub(crate) fn sentinel_with(name: &str, primary: &Self, more: &str) -> Self {
        let port = primary.port();
        let text = format!(
            "sentinel monitor {name} 127.0.0.1 {port} 1\nsentinel down-after-milliseconds {name} 500\n\
             sentinel failover-timeout {name} 3000\n{more}"
        );
        Self(Node::start(&Options::new(), &Kind::Sentinel(&text)))
    }

    /// Its address, as [`redis_script::Address`] parses it.
    pub(crate) fn url(&self) -> String {
        let (tls, address) = self.0.address();
        format!("redis{tls}://{address}")
    }

    /// Its own port, not that of a proxy.
    pub(crate) fn port(&self) -> u16 {
        self.0.port
    }

    /// Its proxy; see [`Options::proxied`].
    pub(crate) fn proxy(&self) -> &Proxy {
        self.0.proxy.as_ref().expect("started with Options::proxied")
    }

    /// Sends it a command, not through the proxy. Panics if it does not answer.
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

    /// SIGSTOP: the process exists, and does nothing.
    pub(crate) fn stop(&self) {
        self.0.signal(Signal::STOP);
    }

    /// SIGCONT.
    pub(crate) fn cont(&self) {
        self.0.signal(Signal::CONT);
    }

    /// Kills it if it runs, and starts it on the same port. Data that was not on disk is lost.
    pub(crate) fn restart(&mut self) {
        self.0.restart();
    }

    /// Processor time, user and system.
    pub(crate) fn cpu_time(&self) -> Duration {
        self.0.cpu_time()
    }

    /// The memory that it reports to use, in bytes.
    pub(crate) fn used_memory(&self) -> u64 {
        self.0.info("memory", "used_memory").parse().expect("a number of bytes")
    }

    /// Waits until so many replicas take part: they are online and confirmed the primary's state.
    pub(crate) fn wait_replicas(&self, count: usize) {
        wait_replicas(&self.0, count);
    }
}

pub(super) fn wait_replicas(node: &Node, count: usize) {
    eventually("the replicas are online", || {
        let text = node.command(&["INFO", "replication"]).text();
        // A replica whose first confirmation is missing is listed as online, but gets no writes yet. Its offset is 0.
        let is_ready = |line: &&str| line.contains("state=online") && !line.contains("offset=0,");
        (text.lines().filter(is_ready).count() >= count).then_some(())
    });
}

impl fmt::Debug for Standalone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url())
    }
}
