//! What is left in the zones: what servers that share a Redis can rely on. Each store object acts as a server.

use admission::ZoneId;
use store::redis::{
    Durability,
    stock::{Entry, StockSet},
};

use crate::backend::{InRedis, Servers};

const KEY: &str = "weir:v1:{zones}:stock";

/// Uses its own Redis, because the tests read and harm all entries.
pub(crate) async fn of_changes_of_stock_one_is_made(backend: &InRedis, zone: &ZoneId) {
    let servers = Servers::start(backend.servers.topology());
    let connect = async || servers.connect(&backend.settings(), Durability::Async).await;
    let (a, b) = (connect().await, connect().await);
    let mut at_us = 0;
    for round in 0..20 {
        let (one, other) = (format!("a{round}"), format!("b{round}"));
        let (by_a, by_b) = tokio::join!(
            a.set_stock(at_us, zone.as_str(), at_us, &one),
            b.set_stock(at_us, zone.as_str(), at_us, &other)
        );
        let (by_a, by_b) = (by_a.expect("answered"), by_b.expect("answered"));
        let made = match (by_a.set, by_b.set) {
            (StockSet::Done, StockSet::Otherwise) => one,
            (StockSet::Otherwise, StockSet::Done) => other,
            both => panic!("round {round}: {both:?}"),
        };
        let now = a.stock(at_us).await.expect("answered");
        let [Entry { zone: of, at_us: later_us, text }] = &now.entries[..] else {
            panic!("one entry: {now:?}")
        };
        assert_eq!((of.as_str(), text), (zone.as_str(), &made), "round {round}");
        assert!(*later_us > at_us && now.latest_us == *later_us, "instants only grow");
        at_us = *later_us;
    }
    assert!(b.stock(at_us).await.expect("answered").entries.is_empty(), "there is nothing later");
}

/// Of what servers write back the later entry of each zone counts, and a change after a loss is later than all that its server knew.
pub(crate) async fn lost_stock_is_written_back(backend: &InRedis, zone: &ZoneId) {
    let servers = Servers::start(backend.servers.topology());
    let connect = async || servers.connect(&backend.settings(), Durability::Async).await;
    let (a, b) = (connect().await, connect().await);
    let holder = servers.holder(KEY);
    let command = |parts: &[&str]| servers.command(holder, parts);
    let other = format!("{zone}-other");
    let old = a.set_stock(0, zone.as_str(), 0, "old").await.expect("answered").entries.remove(0);
    let new = a.set_stock(0, zone.as_str(), old.at_us, "new").await.expect("answered").entries.remove(0);
    let far = Entry {
        zone: other.clone(),
        at_us: new.at_us + 3_600_000_000,
        text: "from a clock ahead".to_owned(),
    };
    for (first, second) in [(&old, &new), (&new, &old)] {
        command(&["DEL", KEY]);
        a.restore_stock(std::slice::from_ref(first)).await.expect("answered");
        let all = b.restore_stock(&[second.clone(), far.clone()]).await.expect("answered");
        let texts: Vec<_> = all.entries.iter().map(|entry| entry.text.as_str()).collect();
        assert!(texts.len() == 2 && texts.contains(&"new") && texts.contains(&far.text.as_str()), "{all:?}");
        assert_eq!(all.latest_us, far.at_us);
    }
    // Also of a change by a clock that is behind.
    let changed = a.set_stock(0, zone.as_str(), new.at_us, "newest").await.expect("answered");
    assert!(changed.set == StockSet::Done && changed.latest_us > far.at_us, "{changed:?}");
    command(&["DEL", KEY]);
    let after = a.set_stock(changed.latest_us, zone.as_str(), 0, "after a loss").await.expect("answered");
    assert!(after.set == StockSet::Done && after.latest_us > changed.latest_us, "{after:?}");

    // What no server writes does not count, and a value of another type is replaced.
    let spoilt = [("a", ""), ("b", "x y"), ("c", "99"), ("d", "1.5 x"), ("e", "-1 x")];
    for (field, entry) in spoilt {
        command(&["HSET", KEY, field, entry]);
    }
    let all = a.stock(0).await.expect("answered");
    assert!(all.entries.iter().all(|entry| entry.zone == zone.as_str()), "{all:?}");
    command(&["SET", KEY, "x"]);
    assert_eq!(a.stock(0).await.expect("answered").latest_us, 0);
    let set = a.set_stock(0, zone.as_str(), 0, "again").await.expect("answered");
    assert_eq!((set.set, set.entries.len()), (StockSet::Done, 1));
}

/// The number of entries has a limit. Those that tell nothing any more make room after a day.
pub(crate) async fn the_number_of_stocks_is_limited(backend: &InRedis, zone: &ZoneId) {
    let servers = Servers::start(backend.servers.topology());
    let store = servers.connect(&backend.settings(), Durability::Async).await;
    let of = |at: usize, text: &str| Entry {
        zone: format!("{zone}-{at}"),
        at_us: 1_000 + at as u64,
        text: text.to_owned(),
    };
    let most: Vec<Entry> = (0..4_096).map(|at| of(at, "x")).collect();
    assert_eq!(store.restore_stock(&most).await.expect("answered").entries.len(), 4_096);
    let set =
        async |zone: &str, at_us: u64| store.set_stock(0, zone, at_us, "x").await.expect("answered").set;
    assert_eq!(set("ONE-MORE", 0).await, StockSet::TooMany);
    assert_eq!(
        set(&most[7].zone, most[7].at_us).await,
        StockSet::Done,
        "a zone that has an entry is changed"
    );
    // Each of these tells nothing, and was set long ago.
    store
        .restore_stock(&[Entry { at_us: 9_000, text: String::new(), ..most[9].clone() }])
        .await
        .expect("answered");
    assert_eq!(set("ONE-MORE", 0).await, StockSet::Done);
    assert_eq!(set("TWO-MORE", 0).await, StockSet::TooMany);
}
