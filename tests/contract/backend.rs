//! The back ends that the tests run over.
//!
//! Invariant: two store objects over one back end act as two servers that share one state, at the same time or one after the
//! other.

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use store::{
    Embedded, JournalError, Store,
    redis::{
        Durability, Redis,
        address::{Address, Library, Settings, Topology},
    },
};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::{
    acl,
    redis::{Cluster, Reply, Standalone},
};

/// How long a directory may be in use after the last store object over it ended.
const FREE_WITHIN: Duration = Duration::from_secs(30);

/// A back end.
pub(crate) trait Backend: Send + 'static {
    type Store: Store;

    /// Makes a new store object over it.
    async fn open(&self) -> Arc<Self::Store>;
}

/// A directory for the embedded store. Only one store object may use it at a time.
pub(crate) struct Files(TempDir);

impl Files {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }
}

impl Backend for Files {
    type Store = Embedded;

    /// Waits for the directory to be free: a process that another test starts has copies of this process's locks until it runs its own
    /// program.
    async fn open(&self) -> Arc<Embedded> {
        let until = Instant::now() + FREE_WITHIN;
        loop {
            match Embedded::open(self.0.path()) {
                Err(JournalError::InUse { .. }) if Instant::now() < until => {
                    sleep(Duration::from_millis(1)).await;
                }
                opened => return Arc::new(opened.expect("the directory is free")),
            }
        }
    }
}

/// Servers of Redis.
pub(crate) enum Servers {
    One(Standalone),
    Three(Cluster),
}

impl Servers {
    /// Starts servers with the user of [`acl`].
    pub(crate) fn start(topology: Topology) -> Self {
        match topology {
            Topology::Cluster => Self::Three(Cluster::start_with(3, 0, &acl::options())),
            _ => Self::One(Standalone::start_with(&acl::options())),
        }
    }

    pub(crate) fn topology(&self) -> Topology {
        match self {
            Self::One(_) => Topology::Standalone,
            Self::Three(_) => Topology::Cluster,
        }
    }

    /// Their address, with the login of [`acl`].
    pub(crate) fn url(&self) -> String {
        acl::with_login(&match self {
            Self::One(server) => server.url(),
            Self::Three(cluster) => cluster.url(),
        })
    }

    /// The index of the server that has `key`.
    pub(crate) fn holder(&self, key: &str) -> usize {
        match self {
            Self::One(_) => 0,
            Self::Three(cluster) => cluster.primary_of(cluster.slot(key)),
        }
    }

    pub(crate) fn command(&self, server: usize, parts: &[&str]) -> Reply {
        match self {
            Self::One(one) => one.command(parts),
            Self::Three(cluster) => cluster.command(server, parts),
        }
    }

    /// SIGSTOP.
    pub(crate) fn stop(&self, server: usize) {
        match self {
            Self::One(one) => one.stop(),
            Self::Three(cluster) => cluster.stop(server),
        }
    }

    /// SIGCONT.
    pub(crate) fn cont(&self, server: usize) {
        match self {
            Self::One(one) => one.cont(),
            Self::Three(cluster) => cluster.cont(server),
        }
    }

    async fn connected(&self, settings: &Settings, durability: Durability) -> Redis {
        let address = Address::parse(&self.url()).expect("an address");
        Redis::connect(&address, settings, durability).await.expect("Redis answers")
    }

    /// Connects a store to them. They must answer.
    pub(crate) async fn connect(&self, settings: &Settings, durability: Durability) -> Arc<Redis> {
        Arc::new(self.connected(settings, durability).await)
    }
}

/// Redis with one client library.
pub(crate) struct InRedis {
    pub(crate) servers: Arc<LazyLock<Servers>>,
    pub(crate) library: Library,
    /// How many segments one call passes at most; `None` for the default.
    pub(crate) max_segments: Option<usize>,
}

/// How long a call waits for the servers, so that a machine that is busy with other things fails no test.
const PATIENCE: Duration = Duration::from_secs(30);

impl InRedis {
    /// With a patience that no test waits for. Tests of what happens when Redis does not answer shorten it.
    pub(crate) fn settings(&self) -> Settings {
        Settings {
            library: self.library,
            connect_timeout: PATIENCE,
            command_timeout: PATIENCE,
            ..Settings::default()
        }
    }
}

impl Backend for InRedis {
    type Store = Redis;

    async fn open(&self) -> Arc<Redis> {
        let store = self.servers.connected(&self.settings(), Durability::Async).await;
        Arc::new(match self.max_segments {
            Some(most) => store.with_max_segments(most),
            None => store,
        })
    }
}
