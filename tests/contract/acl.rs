//! The Redis user that `deploy/redis/weir.acl` describes. All tests over Redis log in as this user, so its rights are enough
//! for every script; the test here shows that it has no more.

use bytes::Bytes;
use limiter::{Bandwidth, Decision, Limit, Limiter, OnFailure};
use store::redis::{
    address::{Address, Library, Settings},
    client::{AnyClient, ChannelEvent, Client as _, ClientError, Script},
};

use crate::{
    backend::Servers,
    redis::{Options, Reply},
};

/// The rules, as words of `ACL SETUSER`.
fn rules() -> Vec<&'static str> {
    let lines = include_str!("../../deploy/redis/weir.acl").lines();
    lines.filter(|line| !line.starts_with('#')).flat_map(str::split_whitespace).collect()
}

/// Servers with this user.
pub(crate) fn options() -> Options {
    Options::new().arg(&["--user", "weir", "on", ">word"]).arg(&rules())
}

/// The address, with this user's login.
pub(crate) fn with_login(url: &str) -> String {
    url.replacen("://", "://weir:word@", 1)
}

/// Commands that no user of a waiting room needs.
const REFUSED: &[&str] = &[
    "FLUSHALL",
    "FLUSHDB",
    "KEYS *",
    "SCAN 0",
    "RANDOMKEY",
    "DBSIZE",
    "CONFIG GET *",
    "CONFIG SET save x",
    "CONFIG REWRITE",
    "DEBUG SLEEP 1",
    "SHUTDOWN",
    "SAVE",
    "BGSAVE",
    "BGREWRITEAOF",
    "REPLICAOF NO ONE",
    "FAILOVER",
    "CLUSTER FAILOVER",
    "CLUSTER RESET",
    "CLUSTER FORGET x",
    "CLUSTER SETSLOT 1 STABLE",
    "ACL LIST",
    "ACL SETUSER weir +@all",
    "CLIENT KILL TYPE normal",
    "CLIENT LIST",
    "MONITOR",
    "SLOWLOG GET",
    "MEMORY PURGE",
    "MODULE LIST",
    "SCRIPT FLUSH",
    "SCRIPT KILL",
    "FUNCTION LOAD x",
    "FUNCTION FLUSH",
    "MIGRATE h 1 k 0 1",
    "RESTORE weir:v1:{Z}:z 0 x",
    "DUMP weir:v1:{Z}:z",
    "RENAME weir:v1:{Z}:z weir:v1:{Z}:y",
    "SWAPDB 0 1",
    "SELECT 1",
    "SUBSCRIBE weir:v1:x",
    "PSUBSCRIBE *",
    "PUBLISH weir:v1:x y",
    "SSUBSCRIBE other",
    "SPUBLISH other x",
    "GET other",
    "SET other x",
    "SET weir:v2:{Z}:z x",
    "DEL other",
    "EVAL x 1 other",
    "BITOP AND weir:v1:{Z}:z weir:v1:{Z}:z other",
];

/// What the client sends besides the scripts, and what people look at with this user.
const ALLOWED: &[&str] = &[
    "PING",
    "INFO",
    "ROLE",
    "TIME",
    "ASKING",
    "WAIT 1 100",
    "CLUSTER INFO",
    "CLUSTER SLOTS",
    "SCRIPT LOAD x",
    "EVAL x 1 weir:v1:{Z}:z",
    "EVALSHA x 1 weir:limit:1:{1}:wait:x",
    "SPUBLISH weir:v1:{zones}:changed x",
    "SSUBSCRIBE weir:v1:{zones}:changed",
];

/// What the scripts of zones do not show: limits, messages and confirmations work, too. Everything else is refused, also
/// inside a script.
pub(crate) async fn least_rights_are_enough_and_no_more(servers: &Servers, library: Library) {
    let allowed = |command: &str| {
        let words: Vec<&str> = ["ACL", "DRYRUN", "weir"].into_iter().chain(command.split(' ')).collect();
        servers.command(0, &words) == Reply::Bytes(b"OK".to_vec())
    };
    for command in ALLOWED {
        assert!(allowed(command), "{command} is refused");
    }
    for command in REFUSED {
        assert!(!allowed(command), "{command} is allowed");
    }

    let address = Address::parse(&servers.url()).expect("an address");
    let settings = Settings { library, ..Settings::default() };
    let client = AnyClient::connect(&address, &settings).await.expect("the user may log in");
    let run = async |text: &str, key: &'static str| {
        let script: &'static Script = Box::leak(Box::new(Script::new("test", text)));
        client.run(script, vec![Bytes::from_static(key.as_bytes())], Vec::new(), None).await
    };
    let own = "weir:v1:{Z}:z";
    assert!(run("return redis.call('SET', KEYS[1], 'x')", own).await.is_ok());
    for text in [
        "return redis.call('FLUSHALL')",
        "return redis.call('KEYS', '*')",
        "return redis.call('CONFIG', 'GET', '*')",
        "return redis.call('GET', 'other{Z}')",
        "return redis.call('SET', 'other{Z}', 'x')",
        "return redis.call('PUBLISH', 'other', 'x')",
    ] {
        assert!(matches!(run(text, own).await, Err(ClientError::Script(_) | ClientError::Away(_))), "{text}");
    }
    assert!(run("return 1", "other").await.is_err(), "a key of somebody else");

    let limits =
        limiter::RedisSettings { client: settings, prefix: "weir:limit:".to_owned(), ..Default::default() };
    let limiter = Limiter::in_redis(&address, &limits, OnFailure::Closed).await.expect("a limiter");
    let limit = Limit::new("wait/Z", [Bandwidth::per_minute(5)]).expect("a limit");
    let decision = limiter.ask(&limit, b"client", 1).await;
    assert!(matches!(decision, Decision::Allowed(_)), "{decision:?}");

    let channel = Bytes::from_static(b"weir:v1:{zones}:changed");
    let mut listener = client.listen(channel.clone(), 100);
    loop {
        match listener.next().await {
            Some(ChannelEvent::Listening) => {
                client.publish(channel.clone(), Bytes::from_static(b"hello")).await.expect("published");
            }
            Some(ChannelEvent::Message(message)) => break assert_eq!(&message[..], b"hello"),
            other => panic!("{other:?}"),
        }
    }
}
