//! The list of servers that share a Redis. Each store object acts as a server.

use std::time::Duration;

use admission::ZoneId;
use store::redis::{
    Durability, Redis,
    servers::{ABOUT_MAX, SERVERS_MAX, SILENCE},
};

use crate::backend::{InRedis, Servers};

const KEY: &str = "weir:v1:{zones}:servers";

async fn here(store: &Redis, id: &str, about: &str) -> Vec<(String, String)> {
    let mut heard = store.say_here(id, about).await.expect("answered");
    assert!(heard.iter().all(|heard| heard.ago <= SILENCE), "{heard:?}");
    heard.sort_unstable_by(|a, b| a.id.cmp(&b.id));
    heard.into_iter().map(|heard| (heard.id, heard.about)).collect()
}

/// Uses its own Redis, because the test counts all servers.
pub(crate) async fn servers_hear_of_each_other_until_they_are_silent(backend: &InRedis, _: &ZoneId) {
    let servers = Servers::start(backend.servers.topology());
    let holder = servers.holder(KEY);
    let command = |parts: &[&str]| servers.command(holder, parts);
    let now_ms: u64 = {
        let time = command(&["TIME"]);
        let [s, us] = [0, 1].map(|i| time.parts()[i].text().parse::<u64>().expect("a number"));
        s * 1_000 + us / 1_000
    };
    let connect = async || servers.connect(&backend.settings(), Durability::Async).await;
    let (a, b) = (connect().await, connect().await);
    let pair = |id: &str, about: &str| (id.to_owned(), about.to_owned());
    assert_eq!(here(&a, "a", "one").await, [pair("a", "one")]);
    assert_eq!(here(&b, "b", "한 번").await, [pair("a", "one"), pair("b", "한 번")]);
    assert_eq!(here(&a, "a", "two").await, [pair("a", "two"), pair("b", "한 번")]);

    // A server that was silent for too long, one with another clock, and entries that no version of Weir writes.
    let silence_ms = u64::try_from(SILENCE.as_millis()).expect("short");
    for (id, at_ms) in [("old", now_ms - silence_ms - 1), ("later", now_ms + 2 * silence_ms)] {
        command(&["HSET", KEY, id, &format!("{at_ms} x")]);
    }
    let long = format!("{now_ms} {}", "x".repeat(ABOUT_MAX + 1));
    for (id, entry) in [("garbled", "x y"), ("long", &long), ("empty", "")] {
        command(&["HSET", KEY, id, entry]);
    }
    command(&["HSET", KEY, "late", &format!("{} x", now_ms - 10_000)]);
    let all = [pair("a", "two"), pair("b", "한 번"), pair("late", "x")];
    assert_eq!(here(&b, "b", "한 번").await, all);
    let late = b.say_here("b", "한 번").await.expect("answered").into_iter().find(|heard| heard.id == "late");
    assert!(late.is_some_and(|late| late.ago >= Duration::from_secs(10)));
    for gone in ["old", "later", "garbled", "empty"] {
        assert_eq!(command(&["HEXISTS", KEY, gone]).int(), 0, "{gone}");
    }
    assert!((1..=30_000).contains(&command(&["PTTL", KEY]).int()), "the list expires when no server is left");

    // At most SERVERS_MAX servers are listed.
    for n in 0..SERVERS_MAX {
        command(&["HSET", KEY, &format!("s{n}"), &format!("{now_ms} x")]);
    }
    let kept = command(&["HLEN", KEY]).int();
    assert!(here(&a, "new", "x").await.contains(&pair("new", "x")), "it knows of itself");
    assert_eq!(command(&["HEXISTS", KEY, "new"]).int(), 0);
    assert_eq!(command(&["HLEN", KEY]).int(), kept);
}
