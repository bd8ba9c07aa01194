//! The servers of this installation, as far as this server knows them.
//!
//! Servers that share a store register with each cell every few seconds. The same call returns the others. Invariants: this
//! server is always listed, from its own state; another server that was silent for [`SILENCE`] is not listed; the data of
//! other servers is displayed and not used otherwise.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use gate::{cells::Cell, pace::Pacing};
use serde::{Deserialize, Serialize};
use store::redis::{
    Redis,
    servers::{Heard, SILENCE},
};
use tokio::time::{Instant, sleep};

use crate::{clock::unix_ms, fanout::SenderId};

/// How often a server registers.
const EVERY: Duration = Duration::from_secs(5);

/// The longest server name, in characters.
const NAME_MAX: usize = 64;

/// One server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// The machine's name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The address of its public listener.
    pub address: String,
    /// When it started, in milliseconds since 1970 by its clock.
    pub started_at_ms: u64,
    /// When it was last heard, in milliseconds since 1970 by this server's clock.
    pub seen_at_ms: u64,
    /// Whether it is this server.
    pub here: bool,
    /// Whether it takes no new work.
    pub draining: bool,
    /// The number of zones it serves.
    pub zones: u64,
    /// The number of its open connections from apps.
    pub connections: u64,
    /// The longest polling period that it told lately because it is busy, in milliseconds; 0 if it is not busy.
    pub polling_period_ms: u32,
    /// Why it is busy, as [`gate::pace::Cause`] says it; empty if it is not.
    pub busy: String,
}

/// A server's registration. Other servers may have another version, so fields may be added but never removed.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct About {
    name: String,
    version: String,
    address: String,
    started_at_ms: u64,
    draining: bool,
    zones: u64,
    connections: u64,
    #[serde(default)]
    polling_period_ms: u32,
    #[serde(default)]
    busy: String,
}

impl About {
    fn server(self, seen_at_ms: u64, here: bool) -> Server {
        let Self {
            name,
            version,
            address,
            started_at_ms,
            draining,
            zones,
            connections,
            polling_period_ms,
            busy,
        } = self;
        Server {
            name,
            version,
            address,
            started_at_ms,
            seen_at_ms,
            here,
            draining,
            zones,
            connections,
            polling_period_ms,
            busy,
        }
    }
}

/// The part of a registration that changes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct State {
    /// Whether the server takes no new work.
    pub draining: bool,
    /// The number of zones it serves.
    pub zones: usize,
    /// The number of its open connections from apps.
    pub connections: usize,
    /// How it paces polls.
    pub pacing: Pacing,
}

/// The list of servers.
pub struct Servers {
    id: String,
    name: String,
    address: SocketAddr,
    started_at_ms: u64,
    state: Box<dyn Fn() -> State + Send + Sync>,
    /// Each cell's last answer, and when it came.
    heard: Mutex<BTreeMap<String, (Instant, Vec<Heard>)>>,
}

impl Servers {
    /// A list with this server, whose public listener is at `address`. `state` is called for each registration.
    ///
    /// # Panics
    /// If the system has no random numbers.
    pub fn new(address: SocketAddr, state: impl Fn() -> State + Send + Sync + 'static) -> Self {
        let machine = rustix::system::uname();
        let name = machine.nodename().to_string_lossy().chars().take(NAME_MAX).collect();
        let (id, started_at_ms) = (SenderId::new().to_string(), unix_ms());
        Self { id, name, address, started_at_ms, state: Box::new(state), heard: Mutex::default() }
    }

    /// The name of this server's machine.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// This server and those heard recently, sorted by name and address.
    #[must_use]
    pub fn list(&self) -> Vec<Server> {
        let (now_ms, mut others) = (unix_ms(), BTreeMap::<String, (Duration, About)>::new());
        for (at, heard) in self.heard.lock().unwrap_or_else(PoisonError::into_inner).values() {
            for Heard { id, ago, about } in heard.iter().filter(|heard| heard.id != self.id) {
                let ago = *ago + at.elapsed();
                let newer = others.get(id).is_none_or(|(other, _)| ago < *other);
                if newer
                    && ago <= SILENCE
                    && let Ok(about) = serde_json::from_str(about)
                {
                    others.insert(id.clone(), (ago, about));
                }
            }
        }
        let ms = |ago: Duration| u64::try_from(ago.as_millis()).unwrap_or(u64::MAX);
        let mut servers: Vec<_> = others
            .into_values()
            .map(|(ago, about)| about.server(now_ms.saturating_sub(ms(ago)), false))
            .collect();
        servers.push(self.about().server(now_ms, true));
        servers.sort_by(|a, b| (&a.name, &a.address).cmp(&(&b.name, &b.address)));
        servers
    }

    /// Registers with a cell and takes in the others, for ever.
    pub async fn run(self: Arc<Self>, cell: Arc<Cell<Redis>>) {
        let name = &cell.health().name;
        loop {
            let about = serde_json::to_string(&self.about()).expect("texts and numbers are JSON");
            match cell.connected().await.say_here(&self.id, &about).await {
                Ok(heard) => self.take_in(name, heard),
                Err(error) => tracing::debug!(cell = name, %error, "the servers are not heard"),
            }
            sleep(EVERY).await;
        }
    }

    fn take_in(&self, cell: &str, heard: Vec<Heard>) {
        let mut all = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(cell.to_owned(), (Instant::now(), heard));
    }

    fn about(&self) -> About {
        let State { draining, zones, connections, pacing } = (self.state)();
        About {
            name: self.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            address: self.address.to_string(),
            started_at_ms: self.started_at_ms,
            draining,
            zones: zones as u64,
            connections: connections as u64,
            polling_period_ms: pacing.period_ms,
            busy: pacing.cause.map(|cause| cause.to_string()).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use gate::pace::Cause;

    use super::*;

    fn servers() -> Servers {
        let pacing = Pacing { period_ms: 8_000, cause: Some(Cause::Lag), ..Pacing::default() };
        let state = move || State { draining: true, zones: 3, connections: 7, pacing };
        Servers::new("127.0.0.1:8080".parse().expect("an address"), state)
    }

    fn heard(id: &str, ago_s: u64, about: &str) -> Heard {
        Heard { id: id.to_owned(), ago: Duration::from_secs(ago_s), about: about.to_owned() }
    }

    fn about(name: &str, more: &str) -> String {
        format!(
            r#"{{"name":"{name}","version":"9","address":"a:1","started_at_ms":5,"draining":false,"zones":1,"connections":2{more}}}"#
        )
    }

    #[tokio::test(start_paused = true)]
    async fn this_server_is_listed_and_others_until_they_are_silent() {
        let servers = servers();
        let [alone] = &servers.list()[..] else { panic!("no other server was heard") };
        assert_eq!((alone.here, alone.draining, alone.zones, alone.connections), (true, true, 3, 7));
        assert_eq!((alone.polling_period_ms, alone.busy.as_str()), (8_000, "lag"));
        assert_eq!((alone.name.as_str(), alone.address.as_str()), (servers.name(), "127.0.0.1:8080"));
        assert!(!alone.name.is_empty() && alone.seen_at_ms >= alone.started_at_ms);

        // Accept unknown fields of a later version; drop entries that are not JSON.
        let of_later = about("later", r#","colour":"red""#);
        let mine = heard(&servers.id, 0, &about("mine, from the cell", ""));
        let answer = vec![
            heard("b", 10, &about("b, older", "")),
            mine,
            heard("c", 0, "no JSON"),
            heard("l", 1, &of_later),
        ];
        servers.take_in("one", answer);
        servers.take_in("two", vec![heard("b", 2, &about("b, newer", "")), heard("d", 31, &about("d", ""))]);
        let names = || {
            let others: Vec<_> = servers.list().into_iter().filter(|server| !server.here).collect();
            others.into_iter().map(|server| server.name).collect::<Vec<_>>()
        };
        assert_eq!(names(), ["b, newer", "later"]);
        let b = servers.list().into_iter().find(|server| server.name == "b, newer").expect("listed");
        assert_eq!((b.here, b.started_at_ms, b.connections), (false, 5, 2));
        tokio::time::advance(Duration::from_millis(28_500)).await;
        assert_eq!(names(), ["later"], "an old answer of a silent cell expires");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(names(), [""; 0]);
    }
}
