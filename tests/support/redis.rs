//! Real Redis servers: started on free ports, each in its own directory, and killed when they are dropped.
//!
//! The helpers use plain RESP over TCP, so no `redis-cli` is needed.
#![allow(dead_code, unused_imports, reason = "each test uses its part")]

#[path = "redis/cluster.rs"]
mod cluster;
#[path = "redis/false_clock.rs"]
mod false_clock;
#[path = "redis/node.rs"]
mod node;
#[path = "redis/proxy.rs"]
mod proxy;
#[path = "redis/standalone.rs"]
mod standalone;
#[path = "redis/wire.rs"]
mod wire;

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

pub(crate) use self::{
    cluster::Cluster,
    node::{Options, USERS, cpu_time},
    proxy::{Division, Flow, Proxy},
    standalone::Standalone,
    wire::{Reply, Wire},
};

/// How long a single command may take. A frozen server fails the test after this time.
const PATIENCE: Duration = Duration::from_secs(10);

fn local(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}
