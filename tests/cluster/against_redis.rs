//! Compares the model of Redis with a real server: the same commands and the same scripts must give the same replies, errors
//! and keys.
//!
//! `WEIR_TRACE_CALLS` sets how many calls each test makes, and `WEIR_SEED` repeats a run.

mod commands;
mod scripts;

use std::env;

use bytes::Bytes;
use redis_script::client::{Script, Value};

use crate::{plain::Connection, redis::Dumped};

/// A key as [`crate::redis::Data::dump`] shows it.
type Key = (Bytes, Dumped, Option<u64>);

fn calls(otherwise: usize) -> usize {
    env::var("WEIR_TRACE_CALLS").map_or(otherwise, |text| text.parse().expect("WEIR_TRACE_CALLS is a number"))
}

/// A real server.
struct Real {
    connection: Connection,
    run_id: String,
    replid: String,
    /// Whether the texts of errors are those that the model has. Other versions word some of them in another way.
    has_our_texts: bool,
}

impl Real {
    fn new(connection: Connection) -> Self {
        let about = connection.command(&[b"INFO"]).expect("answers");
        let Value::Bytes(about) = about else { panic!("INFO returns {about:?}") };
        let about = String::from_utf8_lossy(&about).into_owned();
        let field = |name: &str| {
            let line = about.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.unwrap_or_default().to_owned()
        };
        Self {
            connection,
            run_id: field("run_id"),
            replid: field("master_replid"),
            has_our_texts: field("redis_version").starts_with("7.0."),
        }
    }

    fn command(&self, parts: &[&[u8]]) -> Value {
        self.connection.command(parts).unwrap_or_else(|error| panic!("{}: {error}", parts[0].escape_ascii()))
    }

    /// Runs a script, as clients do.
    fn run(&self, script: &Script, keys: &[Bytes], args: &[Bytes]) -> Result<Value, String> {
        let count = keys.len().to_string();
        let sent = |command: &str, what: &str| {
            let mut parts: Vec<&[u8]> = vec![command.as_bytes(), what.as_bytes(), count.as_bytes()];
            parts.extend(keys.iter().chain(args).map(|part| &**part));
            self.connection.command(&parts)
        };
        match sent("EVALSHA", &script.sha1) {
            Err(error) if error.starts_with("NOSCRIPT") => sent("EVAL", &script.text),
            other => other,
        }
    }

    /// The clock of the server, in microseconds.
    fn unix_us(&self) -> u64 {
        let [seconds, rest] = list(self.command(&[b"TIME"])).try_into().expect("two numbers");
        number(&seconds) * 1_000_000 + number(&rest)
    }

    /// All keys in the order of their names.
    fn dump(&self) -> Vec<Key> {
        let mut names = list(self.command(&[b"KEYS", b"*"]));
        names.sort_unstable();
        names.into_iter().map(|name| (name.clone(), self.value(&name), self.expiry(&name))).collect()
    }

    fn value(&self, name: &[u8]) -> Dumped {
        match &*bytes(self.command(&[b"TYPE", name])) {
            b"string" => Dumped::Text(bytes(self.command(&[b"GET", name])).to_vec()),
            b"hash" => {
                let mut fields = pairs(list(self.command(&[b"HGETALL", name])));
                fields.sort_unstable();
                Dumped::Hash(fields)
            }
            b"zset" => {
                let members = pairs(list(self.command(&[b"ZRANGE", name, b"0", b"-1", b"WITHSCORES"])));
                let score = |score: Bytes| String::from_utf8_lossy(&score).parse().expect("an integer");
                Dumped::Sorted(members.into_iter().map(|(name, of)| (name, score(of))).collect())
            }
            other => panic!("the type of {} is {}", name.escape_ascii(), other.escape_ascii()),
        }
    }

    fn expiry(&self, name: &[u8]) -> Option<u64> {
        match self.command(&[b"PEXPIRETIME", name]) {
            Value::Int(at_ms) => u64::try_from(at_ms).ok(),
            other => panic!("PEXPIRETIME returns {other:?}"),
        }
    }
}

fn bytes(value: Value) -> Bytes {
    match value {
        Value::Bytes(bytes) => bytes,
        other => panic!("a string was expected, not {other:?}"),
    }
}

fn list(value: Value) -> Vec<Bytes> {
    match value {
        Value::Array(parts) => parts.into_iter().map(bytes).collect(),
        other => panic!("a list was expected, not {other:?}"),
    }
}

fn pairs(parts: Vec<Bytes>) -> Vec<(Bytes, Bytes)> {
    parts.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
}

fn number(text: &[u8]) -> u64 {
    String::from_utf8_lossy(text).parse().expect("a number")
}

/// Sorts the pairs of a reply that begins with `head` other parts: a server returns the fields of a hash in any order.
fn sorted(value: Value, head: usize) -> Value {
    let Value::Array(mut parts) = value else { return value };
    let mut pairs: Vec<Vec<Value>> =
        parts.split_off(head.min(parts.len())).chunks(2).map(<[_]>::to_vec).collect();
    pairs.sort_unstable_by_key(|pair| format!("{pair:?}"));
    parts.extend(pairs.into_iter().flatten());
    Value::Array(parts)
}

/// Fails if the keys differ. Expiries may differ by `slack_ms`.
#[track_caller]
fn same_keys(what: &str, real: &[Key], model: &[Key], slack_ms: u64) {
    let names = |keys: &[Key]| keys.iter().map(|(name, ..)| name.clone()).collect::<Vec<_>>();
    assert_eq!(names(real), names(model), "{what}: the names of the keys");
    for ((name, real, real_at), (_, model, model_at)) in real.iter().zip(model) {
        assert_eq!(real, model, "{what}: {name:?}");
        let near = match (real_at, model_at) {
            (Some(real), Some(model)) => real.abs_diff(*model) <= slack_ms,
            (real, model) => real == model,
        };
        assert!(near, "{what}: {name:?} expires at {real_at:?} in Redis, at {model_at:?} in the model");
    }
}
