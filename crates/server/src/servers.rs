//! The servers of this installation, as far as this server knows them.
//!
//! Servers that share a store register with each cell every few seconds. The same call returns the others. Invariants: this
//! server is always listed, from its own state; another server that was silent for [`SILENCE`], or that another one at its
//! address has replaced, is not listed; the data of
//! other servers is displayed, and logged where their seal keys differ from ours or they have not read an event, and not used
//! otherwise.

mod armed;
mod away;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use admission::{Event, ZoneId};
use gate::{cells::Cell, pace::Pacing};
use metrics::Gauge;
use serde::{Deserialize, Serialize};
use store::redis::{
    Redis,
    servers::{ABOUT_MAX, RegisteredServer, SILENCE},
};
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};

use armed::Lacks;
pub use armed::{Armed, Lack, coming, is_near};
pub use away::{AllAway, ZoneAway, away};

use crate::{clock::unix_ms, fanout::SenderId};

/// How often a server registers.
const EVERY: Duration = Duration::from_secs(5);

/// How often a server looks whether the events that it says it has read are others, so that it says it at once.
const LOOK: Duration = Duration::from_secs(1);

/// The longest server name, in characters.
const NAME_MAX: usize = 64;

/// One server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// Whether this server and that one accept each other's tokens. Otherwise their seal keys differ, and people lose their places.
    pub keys_agree: bool,
    /// The number of its zones whose store is away.
    pub zones_away: u64,
    /// Which events it has read, as [`Armed`] reads it; `None` if an older server does not say.
    pub marks: Option<String>,
}

impl Server {
    /// Its name and address, as the log and lists have it.
    #[must_use]
    pub fn title(&self) -> String {
        format!("{} ({})", self.name, self.address)
    }
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
    /// As [`crate::keys::fingerprints`] names them. Empty if an older server does not say.
    #[serde(default)]
    seal_keys: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    away: Vec<ZoneAway>,
    #[serde(default, skip_serializing_if = "is_zero")]
    more_away: u64,
    /// Which events it has read. Not there if an older server does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    marks: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Whether servers with these keys accept each other's tokens, if both say their keys.
fn agree(one: &[String], other: &[String]) -> bool {
    let (Some(of_one), Some(of_other)) = (one.first(), other.first()) else { return true };
    one.contains(of_other) && other.contains(of_one)
}

/// The names of the servers of a register that do not accept the tokens which a server with these keys seals, or the other way round.
#[must_use]
pub fn strangers(heard: &[RegisteredServer], seal_keys: &[String]) -> Vec<String> {
    let others = heard.iter().filter(|heard| heard.ago <= SILENCE);
    let others = others.filter_map(|heard| serde_json::from_str::<About>(&heard.about).ok());
    let others = others.filter(|other| !agree(seal_keys, &other.seal_keys));
    others.map(|other| format!("{} ({})", other.name, other.address)).collect()
}

/// Drops servers that were last heard before another one started at their address: they were restarted.
fn drop_replaced(servers: &mut Vec<Server>) {
    let started: Vec<_> = servers
        .iter()
        .map(|server| (server.name.clone(), server.address.clone(), server.started_at_ms))
        .collect();
    servers.retain(|server| {
        let of_another = |(name, address, started_at_ms): &&(String, String, u64)| {
            *name == server.name && *address == server.address && *started_at_ms > server.started_at_ms
        };
        let next_ms = started.iter().filter(of_another).map(|(.., at_ms)| *at_ms).max();
        next_ms.is_none_or(|next_ms| server.seen_at_ms >= next_ms)
    });
}

impl About {
    fn server(self, seen_at_ms: u64, here: bool, seal_keys: &[String]) -> Server {
        let keys_agree = here || agree(seal_keys, &self.seal_keys);
        let zones_away = self.away.len() as u64 + self.more_away;
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
            seal_keys: _,
            away: _,
            more_away: _,
            marks,
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
            keys_agree,
            zones_away,
            marks,
        }
    }

    /// As it is registered: at most [`ABOUT_MAX`] bytes. Zones that are away give way first, and are only counted then.
    fn text(mut self) -> String {
        loop {
            let text = serde_json::to_string(&self).expect("texts and numbers are JSON");
            if text.len() <= ABOUT_MAX || self.away.pop().is_none() {
                return text;
            }
            self.more_away += 1;
        }
    }
}

/// The part of a registration that changes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    /// Whether the server takes no new work.
    pub draining: bool,
    /// The number of zones it serves.
    pub zones: usize,
    /// The number of its open connections from apps.
    pub connections: usize,
    /// How it paces polls.
    pub pacing: Pacing,
    /// As [`crate::keys::fingerprints`] names its seal keys.
    pub seal_keys: Vec<String>,
    /// Its zones whose store is away.
    pub away: AllAway,
    /// The events that it has read, as [`coming`] orders them.
    pub coming: Vec<(ZoneId, Event)>,
}

/// The list of servers.
pub struct Servers {
    id: String,
    name: String,
    address: SocketAddr,
    started_at_ms: u64,
    state: Box<dyn Fn() -> State + Send + Sync>,
    /// Each cell's last answer, and when it came.
    heard: Mutex<BTreeMap<String, (Instant, Vec<RegisteredServer>)>>,
    /// Changes when the servers should hear of this one at once.
    news: watch::Sender<()>,
    /// Those of which the log said that their seal keys differ.
    strangers: Mutex<BTreeSet<String>>,
    /// What other servers have not read of the events of this one.
    lacks: Mutex<Lacks>,
    /// How many servers that are.
    unarmed: Gauge,
}

impl Servers {
    /// A list with this server, whose public listener is at `address`. `state` is called for each registration, and `unarmed` shows how
    /// many servers have not read an event.
    ///
    /// # Panics
    /// If the system has no random numbers.
    pub fn new(
        address: SocketAddr,
        unarmed: Gauge,
        state: impl Fn() -> State + Send + Sync + 'static,
    ) -> Self {
        let machine = rustix::system::uname();
        let name = machine.nodename().to_string_lossy().chars().take(NAME_MAX).collect();
        let (id, started_at_ms) = (SenderId::new().to_string(), unix_ms());
        Self {
            id,
            name,
            address,
            started_at_ms,
            state: Box::new(state),
            heard: Mutex::default(),
            news: watch::Sender::new(()),
            strangers: Mutex::default(),
            lacks: Mutex::default(),
            unarmed,
        }
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
            for RegisteredServer { id, ago, about } in heard.iter().filter(|heard| heard.id != self.id) {
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
        let own = self.about();
        let mut servers: Vec<_> = others
            .into_values()
            .map(|(ago, about)| about.server(now_ms.saturating_sub(ms(ago)), false, &own.seal_keys))
            .collect();
        servers.push(own.server(now_ms, true, &[]));
        drop_replaced(&mut servers);
        servers.sort_by(|a, b| (&a.name, &a.address).cmp(&(&b.name, &b.address)));
        servers
    }

    /// Registers again now, because the state changed in a way that operators look at: the server drains, or no longer does.
    pub fn announce(&self) {
        self.news.send_replace(());
    }

    /// Registers with a cell and takes in the others, for ever.
    pub async fn run(self: Arc<Self>, cell: Arc<Cell<Redis>>) {
        let (name, mut news) = (&cell.health().name, self.news.subscribe());
        loop {
            let about = self.about();
            let (marks, about) = (about.marks.clone(), about.text());
            match cell.connected().await.say_here(&self.id, &about).await {
                Ok(heard) => {
                    self.take_in(name, heard);
                    self.warn_of_strangers();
                    self.warn_of_unarmed();
                }
                Err(error) => tracing::debug!(cell = name, %error, "the servers are not heard"),
            }
            let due = Instant::now() + EVERY;
            // The sender lives as long as `self`.
            while timeout(LOOK, news.changed()).await.is_err() {
                if Instant::now() >= due || self.about().marks != marks {
                    break;
                }
            }
        }
    }

    fn take_in(&self, cell: &str, heard: Vec<RegisteredServer>) {
        let mut all = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(cell.to_owned(), (Instant::now(), heard));
    }

    /// Says once of each server that its seal keys differ, and once that they do no more. Returns those of now.
    fn warn_of_strangers(&self) -> BTreeSet<String> {
        let servers = self.list().into_iter().filter(|server| !server.keys_agree);
        let now: BTreeSet<_> = servers.map(|server| server.title()).collect();
        let mut before = self.strangers.lock().unwrap_or_else(PoisonError::into_inner);
        for other in now.difference(&before) {
            tracing::error!(
                %other,
                "this server and another one of the store have different seal keys: each refuses the places that the other one gives \
                 (401); copy the same seal.key_file to all servers, or take one of them out of service"
            );
        }
        for other in before.difference(&now) {
            tracing::info!(%other, "the seal keys of that server do not differ any more, or it is gone");
        }
        before.clone_from(&now);
        now
    }

    /// Says once that a server has not read an event for a while, and once that this is over.
    fn warn_of_unarmed(&self) {
        let (servers, coming) = (self.list(), (self.state)().coming);
        let now_s = unix_ms() / 1_000;
        let ahead: Vec<_> =
            coming.into_iter().filter(|(_, event)| u64::from(event.ends.unix_s()) > now_s).collect();
        let mut lacks = self.lacks.lock().unwrap_or_else(PoisonError::into_inner);
        let news = lacks.take_in(&servers, &ahead, Instant::now());
        self.unarmed.set(lacks.trouble().map(|lack| &lack.server).collect::<BTreeSet<_>>().len() as f64);
        drop(lacks);
        for Lack { zone, event, server } in news.begun {
            tracing::warn!(
                %zone, %event, %server,
                "a server of the store has not read this event as it is now, so the people who ask that server are not told of it; it may \
                 be older, frozen or cut off from the store: look at its log, and upgrade it, restart it or take it out of service"
            );
        }
        for Lack { zone, event, server } in news.over {
            tracing::info!(%zone, %event, %server, "that server has read the event now, or it is gone");
        }
    }

    /// What other servers have not read for a while.
    #[must_use]
    pub fn unarmed(&self) -> Vec<Lack> {
        let lacks = self.lacks.lock().unwrap_or_else(PoisonError::into_inner);
        lacks.trouble().cloned().collect()
    }

    fn about(&self) -> About {
        let State { draining, zones, connections, pacing, seal_keys, away, coming } = (self.state)();
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
            seal_keys,
            away: away.zones,
            more_away: away.more,
            marks: Some(armed::marks(&coming)),
        }
    }
}

#[cfg(test)]
mod tests {
    use gate::pace::Cause;

    use super::*;

    fn servers() -> Servers {
        let pacing = Pacing { period_ms: 8_000, cause: Some(Cause::Lag), ..Pacing::default() };
        let seal_keys = || ["k2", "k1"].map(str::to_owned).to_vec();
        let state = move || State {
            draining: true,
            zones: 3,
            connections: 7,
            pacing,
            seal_keys: seal_keys(),
            away: AllAway::default(),
            coming: Vec::new(),
        };
        Servers::new("127.0.0.1:8080".parse().expect("an address"), Gauge::noop(), state)
    }

    fn heard(id: &str, ago_s: u64, about: &str) -> RegisteredServer {
        RegisteredServer { id: id.to_owned(), ago: Duration::from_secs(ago_s), about: about.to_owned() }
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

    #[test]
    fn a_server_that_was_restarted_is_listed_once() {
        let servers = servers();
        let mine = |started_ago_ms: u64| {
            let About { name, address, .. } = servers.about();
            let started = servers.started_at_ms - started_ago_ms;
            about(&name, "")
                .replace("a:1", &address)
                .replace(r#""started_at_ms":5"#, &format!(r#""started_at_ms":{started}"#))
        };
        // Two runs before this one at its address, heard for the last time before this one started; and two runs of another server.
        let [older, newer] = [20, 1].map(|ago_s| {
            about("b", "")
                .replace(r#""started_at_ms":5"#, &format!(r#""started_at_ms":{}"#, unix_ms() - 1_000 * ago_s))
        });
        servers.take_in(
            "one",
            vec![
                heard("x", 20, &mine(90_000)),
                heard("y", 2, &mine(60_000)),
                heard("b1", 3, &older),
                heard("b2", 0, &newer),
            ],
        );
        let listed = servers.list();
        assert_eq!(listed.len(), 2, "{listed:?}");
        assert!(listed.iter().any(|server| server.here) && listed.iter().any(|server| server.name == "b"));
        // Two that run at the same time, with one name and address: behind a load balancer, or in two containers.
        let now = unix_ms();
        let both = [30, 10].map(|ago_s| {
            about("b", "")
                .replace(r#""started_at_ms":5"#, &format!(r#""started_at_ms":{}"#, now - 1_000 * ago_s))
        });
        servers.take_in("one", vec![heard("b1", 1, &both[0]), heard("b2", 1, &both[1])]);
        assert_eq!(servers.list().len(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn servers_with_other_seal_keys_are_named_once() {
        let servers = servers();
        let with =
            |name: &str, keys: &str| heard(name, 0, &about(name, &format!(r#","seal_keys":[{keys}]"#)));
        // Each step of a rotation agrees: all know the next key before one seals with it.
        let rotating = [with("a", r#""k1","k2""#), with("b", r#""k2","k1""#), with("old", "")];
        let apart = [with("c", r#""k1""#), with("d", r#""k3""#), with("e", r#""k3","k2""#)];
        let all = [&rotating[..], &apart].concat();
        assert_eq!(strangers(&all, &["k2".to_owned(), "k1".to_owned()]), ["c (a:1)", "d (a:1)", "e (a:1)"]);
        servers.take_in("one", all);
        let differing: Vec<_> = servers.list().into_iter().filter(|server| !server.keys_agree).collect();
        assert_eq!(differing.iter().map(|server| &*server.name).collect::<Vec<_>>(), ["c", "d", "e"]);
        assert_eq!(servers.warn_of_strangers().len(), 3);
        servers.take_in("one", rotating.to_vec());
        assert_eq!(servers.warn_of_strangers().len(), 0);
    }

    #[test]
    fn zones_that_are_away_are_registered_as_far_as_there_is_room() {
        let zone = |n: usize| ZoneAway {
            zone: format!("{n}{}", "z".repeat(63)),
            since_ms: 1_795_333_440_000,
            cause: "no_replica".to_owned(),
            why: "w\"".repeat(80),
        };
        let away_of = |about: &str| away(&[heard("a", 0, about)]);
        let with = |zones: usize| {
            let away = AllAway { zones: (0..zones).map(zone).collect(), more: 7 };
            let state = move || State { away: away.clone(), ..State::default() };
            let address = "127.0.0.1:8080".parse().expect("an address");
            let servers = Servers::new(address, Gauge::noop(), state);
            let about = servers.about().text();
            assert!(about.len() <= ABOUT_MAX, "{}", about.len());
            (servers.list()[0].zones_away, away_of(&about))
        };
        let (count, said) = with(4);
        let [(server, said)] = &said[..] else { panic!("one server") };
        assert_eq!((count, said.count()), (11, 11), "none is forgotten");
        assert!(server.ends_with("(127.0.0.1:8080)") && !said.zones.is_empty() && said.zones.len() < 4);
        assert_eq!(said.zones[0], zone(0));
        // Without any, and of an older server.
        let servers = servers();
        assert_eq!(away_of(&servers.about().text()), []);
        assert_eq!(away_of(&about("older", "")), []);
    }
}
