//! One key of a zone vanishes, gets another value, or goes back to an earlier one, and all others stay: by a hand, or by a slot that
//! was being moved when a node died. It is a loss like any other: nobody who asks loses the place or the entry, and the zone goes on.

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use admission::{Joined, Mode, Policy, Verdict, ZoneId};
use store::{
    Line as _, Store as _,
    redis::{Durability, Redis, address::Settings},
};
use tokio::task::JoinSet;

use crate::{
    backend::{InRedis, Servers},
    behaviour::{claims, entry, eventually, inside, pages, place, policy, ranks},
};

/// All keys of a zone with one segment.
const KEYS: [&str; 24] = [
    "z", "log", "due", "seg", "on", "t1", "t2", "srv", "learned", "0:live", "0:here", "0:a0", "0:a1", "0:a2",
    "0:a3", "0:entry", "0:lost", "0:in", "0:i0", "0:i1", "0:i2", "0:i3", "0:left", "0:bound",
];

/// What happens to a key.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Harm {
    Vanishes,
    HasAnotherType,
    /// It has a text that no script has written.
    IsSpoiled,
    /// It has the value that it had before people joined.
    GoesBack,
}

/// People who entered, and people who wait behind them.
const ENTERED: u32 = 10;
const WAITING: u32 = 20;

/// Whom an entry is bound to.
const ADDRESS: u64 = 7;

fn limited(mode: Mode) -> Policy {
    Policy { max_active: 1_000, polling_period_ms: 1_000, mode, ..policy() }
}

pub(crate) async fn each_key_may_vanish_alone(backend: &InRedis, zone: &ZoneId) {
    each_key_suffers(backend, zone, Harm::Vanishes).await;
}

pub(crate) async fn each_key_may_get_a_value_of_another_type(backend: &InRedis, zone: &ZoneId) {
    each_key_suffers(backend, zone, Harm::HasAnotherType).await;
}

/// The bits of who is present, of ages and of who was lost are left out: what is wrong there costs nobody the place, and ends by itself.
pub(crate) async fn each_key_may_be_spoiled(backend: &InRedis, zone: &ZoneId) {
    keys_suffer(backend, zone, Harm::IsSpoiled, &["z", "log", "seg", "srv", "0:live", "0:entry"]).await;
}

pub(crate) async fn each_key_may_go_back(backend: &InRedis, zone: &ZoneId) {
    keys_suffer(backend, zone, Harm::GoesBack, &["z", "log", "seg", "srv"]).await;
}

async fn each_key_suffers(backend: &InRedis, zone: &ZoneId, harm: Harm) {
    keys_suffer(backend, zone, harm, &KEYS).await;
}

async fn keys_suffer(backend: &InRedis, zone: &ZoneId, harm: Harm, keys: &'static [&'static str]) {
    let mut all = JoinSet::new();
    for key in keys {
        let own = ZoneId::parse(&format!("{zone}-{}", key.replace(':', "-"))).expect("a name");
        let (servers, settings) = (Arc::clone(&backend.servers), backend.settings());
        all.spawn(async move { key_suffers(&servers, &settings, &own, key, harm).await });
    }
    all.join_all().await;
}

fn harm_key(servers: &Servers, zone: &ZoneId, key: &str, harm: Harm) {
    let whole = format!("weir:v1:{{{zone}}}:{key}");
    let holder = servers.holder(&whole);
    let is_string = !["due", "seg", "srv", "0:bound"].contains(&key);
    match harm {
        Harm::GoesBack => {
            servers.command(holder, &["COPY", &earlier(zone, key), &whole, "REPLACE"]);
        }
        Harm::IsSpoiled if key == "z" => {
            servers.command(holder, &["SETRANGE", &whole, "0", "garbagegarbage"]);
        }
        Harm::IsSpoiled if is_string => {
            servers.command(holder, &["SET", &whole, "hello"]);
        }
        Harm::IsSpoiled => {
            servers.command(holder, &["HSET", &whole, "0", "garbage"]);
        }
        Harm::Vanishes | Harm::HasAnotherType => {
            servers.command(holder, &["DEL", &whole]);
        }
    }
    if harm == Harm::HasAnotherType {
        let other: &[&str] = if is_string { &["HSET", &whole, "f", "v"] } else { &["SET", &whole, "x"] };
        servers.command(holder, other);
    }
}

/// A key in the slot of the zone.
fn earlier(zone: &ZoneId, key: &str) -> String {
    format!("earlier:{{{zone}}}:{key}")
}

async fn key_suffers(
    servers: &Arc<LazyLock<Servers>>,
    settings: &Settings,
    zone: &ZoneId,
    key: &str,
    harm: Harm,
) {
    let what = format!("{key} {harm:?}");
    let connect = async || servers.connect(settings, Durability::Async).await;
    let [a, b] = [connect().await, connect().await];
    a.line(zone).put(limited(Mode::Auto)).await.expect("put");
    b.line(zone).open(limited(Mode::Auto)).await.expect("opened");
    let inside_before = u64::from(harm == Harm::GoesBack);
    if harm == Harm::GoesBack {
        b.line(zone).join(1).await.expect("joins");
        let whole = format!("weir:v1:{{{zone}}}:{key}");
        servers.command(servers.holder(&whole), &["COPY", &whole, &earlier(zone, key)]);
    }
    let Joined { epoch, first, verdicts, .. } = a.line(zone).join(ENTERED).await.expect("joins");
    let entries: Vec<_> = verdicts.iter().map(entry).collect();
    let had = claims(epoch, first..first + u64::from(ENTERED));
    b.line(zone).put(limited(Mode::Hold)).await.expect("put");
    // A server that writes a lost policy back must know this one.
    a.zones().await.expect("the register");
    let waiting = b.line(zone).join(WAITING).await.expect("joins");
    let line = claims(epoch, waiting.first..waiting.first + u64::from(WAITING));
    for server in [&a, &b] {
        server.line(zone).beat(Vec::new(), 0).await.expect("beats");
        server.line(zone).visits(pages(&[first])).await.expect("reports");
    }
    assert_eq!(a.line(zone).bind(had[0], ADDRESS).await, Ok(ADDRESS));

    harm_key(servers, zone, key, harm);

    // Who asks never hears that the place is gone.
    for server in [&b, &a] {
        let verdicts =
            server.line(zone).enter(line.clone()).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        for verdict in &verdicts.verdicts {
            assert!(matches!(verdict, Verdict::Waiting(_)), "{what}: {verdict:?}");
        }
        let again =
            server.line(zone).enter(had.clone()).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(again.verdicts.iter().all(|verdict| *verdict != Verdict::Gone), "{what}: {again:?}");
    }
    assert_eq!(a.line(zone).bind(had[0], ADDRESS).await, Ok(ADDRESS), "{what}");
    // With what both servers remember, all places and entries are there.
    for server in [&a, &b] {
        eventually(&what, || async {
            server.line(zone).visits(pages(&[first])).await.unwrap_or_else(|error| panic!("{what}: {error}"));
            let view =
                server.line(zone).beat(Vec::new(), 0).await.unwrap_or_else(|error| panic!("{what}: {error}"));
            let decided = server.line(zone).enter(line.clone()).await.expect("decided").verdicts;
            let repeated = server.line(zone).enter(had.clone()).await.expect("decided").verdicts;
            (ranks(&decided).into_iter().eq(1..=u64::from(WAITING))
                && repeated.iter().zip(&entries).all(|(verdict, entry)| *verdict == Verdict::Entered(*entry))
                && view.tally.waiting == u64::from(WAITING)
                && view.tally.entered == inside_before + u64::from(ENTERED)
                && inside(&view).1 == inside_before + u64::from(ENTERED)
                && (harm != Harm::GoesBack || inside(&view).0 == inside(&view).1))
                .then_some(())
        })
        .await;
    }
    goes_on(&b, zone, &line, &what).await;
}

/// A server that has not looked for a while does not know how many people are inside. It gives back whom it let in, and these were among
/// those who had not shown themselves since the state was mended.
pub(crate) async fn people_inside_are_counted_once_after_a_mend(backend: &InRedis, zone: &ZoneId) {
    let connect = async || backend.servers.connect(&backend.settings(), Durability::Async).await;
    let [watches, stood_still] = [connect().await, connect().await];
    watches.line(zone).put(limited(Mode::Auto)).await.expect("put");
    stood_still.line(zone).open(limited(Mode::Auto)).await.expect("opened");
    let Joined { epoch, first, .. } = stood_still.line(zone).join(ENTERED).await.expect("joins");
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(3)).await;
    tokio::time::resume();
    let view = watches.line(zone).beat(Vec::new(), 0).await.expect("beats");
    assert_eq!(inside(&view), (ENTERED.into(), ENTERED.into()));

    harm_key(&backend.servers, zone, "0:in", Harm::Vanishes);
    watches.line(zone).visits(pages(&[])).await.expect("reports");
    let view = watches.line(zone).beat(Vec::new(), 0).await.expect("beats");
    assert_eq!(inside(&view).1, u64::from(ENTERED));
    let had = claims(epoch, first..first + u64::from(ENTERED));
    stood_still.line(zone).enter(had).await.expect("decided");
    let view = stood_still.line(zone).beat(Vec::new(), 0).await.expect("beats");
    assert_eq!(inside(&view), (ENTERED.into(), ENTERED.into()));
}

/// The header goes back, and everything else stays, also the log: nobody entered meanwhile. The bits of who is inside are right then.
pub(crate) async fn a_count_that_goes_back_follows_the_bits(backend: &InRedis, zone: &ZoneId) {
    let server = backend.servers.connect(&backend.settings(), Durability::Async).await;
    let line = server.line(zone);
    line.put(Policy { max_active: 0, ..limited(Mode::Auto) }).await.expect("put");
    let Joined { first, .. } = line.join(ENTERED).await.expect("joins");
    line.put(limited(Mode::Auto)).await.expect("put");
    let header = format!("weir:v1:{{{zone}}}:z");
    let holder = backend.servers.holder(&header);
    backend.servers.command(holder, &["COPY", &header, &earlier(zone, "z")]);
    let seen = || {
        let all: Vec<u64> = (first..first + u64::from(ENTERED)).collect();
        line.visits(pages(&all))
    };
    seen().await.expect("reports");
    let counted = async || inside(&line.beat(Vec::new(), 0).await.expect("beats")).0;
    assert_eq!(counted().await, u64::from(ENTERED));

    harm_key(&backend.servers, zone, "z", Harm::GoesBack);
    seen().await.expect("reports");
    assert_eq!(counted().await, u64::from(ENTERED), "they are inside all the same");
}

/// People enter again, and the minute's share of those who entered before is kept.
async fn goes_on(server: &Arc<Redis>, zone: &ZoneId, line: &[admission::Claim], what: &str) {
    server.line(zone).put(limited(Mode::Auto)).await.expect("put");
    eventually(what, || async {
        server.line(zone).beat(Vec::new(), 0).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        let decided = server.line(zone).enter(line.to_vec()).await.expect("decided").verdicts;
        decided.iter().all(|verdict| matches!(verdict, Verdict::Entered(_))).then_some(())
    })
    .await;
    let joined = server.line(zone).join(1).await.expect("joins");
    eventually(what, || async {
        server.line(zone).beat(Vec::new(), 0).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        let decided =
            server.line(zone).enter(claims(joined.epoch, [joined.first])).await.expect("decided").verdicts;
        if let Verdict::Waiting(_) = decided[0] {
            place(&decided[0]);
            return None;
        }
        entry(&decided[0]);
        Some(())
    })
    .await;
}
