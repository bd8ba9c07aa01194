//! The table of commands, and the commands that fit every type.
//!
//! Invariant: a command that the model has answers as Redis 7 does, with the same texts of errors.

use std::fmt;

use super::{
    arguments::Arguments,
    bits, hashes,
    keys::{Caller, Keys},
    sorted, strings,
};

/// The answer of a command.
#[derive(Debug)]
pub(super) enum Reply<'a> {
    Nil,
    Int(i64),
    /// The status `OK`.
    Ok,
    Bytes(&'a [u8]),
    Text(String),
    List(Vec<Option<&'a [u8]>>),
    Ints(Vec<i64>),
    Texts(Vec<String>),
}

/// An error of Redis, with its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refusal(pub(super) &'static str);

impl Refusal {
    pub(super) const WRONG_TYPE: Self =
        Self("WRONGTYPE Operation against a key holding the wrong kind of value");
    pub(super) const NOT_AN_INTEGER: Self = Self("ERR value is not an integer or out of range");
    pub(super) const NOT_A_FLOAT: Self = Self("ERR value is not a valid float");
    pub(super) const RANGE_NOT_A_FLOAT: Self = Self("ERR min or max is not a float");
    pub(super) const SYNTAX: Self = Self("ERR syntax error");
    pub(super) const OFFSET: Self = Self("ERR offset is out of range");
    pub(super) const TOO_LONG: Self = Self("ERR string exceeds maximum allowed size (proto-max-bulk-len)");
    pub(super) const BIT_OFFSET: Self = Self("ERR bit offset is not an integer or out of range");
    pub(super) const BIT: Self = Self("ERR bit is not an integer or out of range");
    pub(super) const SET_EXPIRY: Self = Self("ERR invalid expire time in 'set' command");
    pub(super) const EXPIRY: Self = Self("ERR invalid expire time in 'pexpire' command");
    pub(super) const HSET_COUNT: Self = Self("ERR wrong number of arguments for 'hset' command");
    const COUNT: Self = Self("ERR Wrong number of args calling Redis command from script");
    const READ_ONLY: Self = Self("READONLY You can't write against a read only replica.");
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

pub(super) type Answer<'a> = Result<Reply<'a>, Refusal>;

type Run = for<'a> fn(&'a mut Keys, &'a Arguments) -> Answer<'a>;

/// How many arguments a command takes, its name included.
enum Count {
    Just(usize),
    AtLeast(usize),
}

use Count::{AtLeast, Just};

/// Runs a command.
pub(super) fn execute<'a>(keys: &'a mut Keys, arguments: &'a Arguments) -> Answer<'a> {
    let (count, writes, run): (Count, bool, Run) = match &arguments[0] {
        b"GET" => (Just(2), false, strings::get),
        b"MGET" => (AtLeast(2), false, strings::get_many),
        b"SET" => (AtLeast(3), true, strings::set),
        b"SETRANGE" => (Just(4), true, strings::set_range),
        b"GETRANGE" => (Just(4), false, strings::get_range),
        b"APPEND" => (Just(3), true, strings::append),
        b"SETBIT" => (Just(4), true, bits::set_bit),
        b"GETBIT" => (Just(3), false, bits::get_bit),
        b"BITCOUNT" => (AtLeast(2), false, bits::count),
        b"BITOP" => (AtLeast(4), true, bits::combine),
        b"BITFIELD" => (AtLeast(2), true, bits::field),
        b"HSET" => (AtLeast(4), true, hashes::set),
        b"HGET" => (Just(3), false, hashes::get),
        b"HMGET" => (AtLeast(3), false, hashes::get_many),
        b"HDEL" => (AtLeast(3), true, hashes::delete),
        b"HGETALL" => (Just(2), false, hashes::get_all),
        b"ZADD" => (AtLeast(4), true, sorted::add),
        b"ZREM" => (AtLeast(3), true, sorted::remove),
        b"ZSCORE" => (Just(3), false, sorted::score),
        b"ZRANGEBYSCORE" => (AtLeast(4), false, sorted::range),
        b"EXISTS" => (AtLeast(2), false, exists),
        b"DEL" | b"UNLINK" => (AtLeast(2), true, delete),
        b"PERSIST" => (Just(2), true, persist),
        b"PEXPIRE" => (AtLeast(3), true, expire_in),
        b"PEXPIREAT" if keys.caller == Caller::Primary => (Just(3), true, expire_at),
        b"TIME" => (Just(1), false, time),
        b"INFO" => (AtLeast(1), false, info),
        other => panic!("the model has no command {}", other.escape_ascii()),
    };
    let fits = match count {
        Just(count) => arguments.len() == count,
        AtLeast(least) => arguments.len() >= least,
    };
    if !fits {
        return Err(Refusal::COUNT);
    }
    if writes && keys.caller == Caller::ScriptOnReplica {
        return Err(Refusal::READ_ONLY);
    }
    run(keys, arguments)
}

fn exists<'a>(keys: &'a mut Keys, arguments: &'a Arguments) -> Answer<'a> {
    let found = arguments.from(1).filter(|key| keys.exists(key)).count();
    Ok(Reply::Int(length(found)))
}

fn delete<'a>(keys: &'a mut Keys, arguments: &'a Arguments) -> Answer<'a> {
    let removed = arguments.from(1).filter(|key| keys.remove(key)).count();
    if removed > 0 {
        keys.changed(arguments);
    }
    Ok(Reply::Int(length(removed)))
}

fn persist<'a>(keys: &'a mut Keys, arguments: &'a Arguments) -> Answer<'a> {
    let expired = keys.get(&arguments[1]).is_some_and(|entry| entry.expires_ms.take().is_some());
    if expired {
        keys.changed(arguments);
    }
    Ok(Reply::Int(i64::from(expired)))
}

fn expire_in<'a>(keys: &'a mut Keys, arguments: &'a Arguments) -> Answer<'a> {
    let in_ms = arguments.int(2)?;
    assert!(arguments.len() == 3, "the model has no options of PEXPIRE: {arguments:?}");
    let now_ms = i64::try_from(keys.now_ms()).expect("a date");
    let at_ms = now_ms.checked_add(in_ms).ok_or(Refusal::EXPIRY)?;
    let key = &arguments[1];
    let Some(entry) = keys.get(key) else { return Ok(Reply::Int(0)) };
    if at_ms <= now_ms {
        keys.remove(key);
        keys.changed_by(&[b"DEL", key]);
    } else {
        entry.expires_ms = u64::try_from(at_ms).ok();
        keys.changed_by(&[b"PEXPIREAT", key, at_ms.to_string().as_bytes()]);
    }
    Ok(Reply::Int(1))
}

/// Only as an effect.
fn expire_at<'a>(keys: &'a mut Keys, arguments: &'a Arguments) -> Answer<'a> {
    let at_ms = arguments.int(2)?;
    let Some(entry) = keys.get(&arguments[1]) else { return Ok(Reply::Int(0)) };
    entry.expires_ms = u64::try_from(at_ms).ok();
    Ok(Reply::Int(1))
}

fn time<'a>(keys: &'a mut Keys, _: &'a Arguments) -> Answer<'a> {
    let (seconds, rest) = (keys.unix_us / 1_000_000, keys.unix_us % 1_000_000);
    Ok(Reply::Texts(vec![seconds.to_string(), rest.to_string()]))
}

fn info<'a>(keys: &'a mut Keys, arguments: &'a Arguments) -> Answer<'a> {
    assert!(arguments.len() == 2, "the model answers INFO for one section: {arguments:?}");
    Ok(Reply::Text(if arguments.is(1, "server") {
        format!("# Server\r\nredis_version:7.0.15\r\nrun_id:{}\r\n", keys.run_id)
    } else if arguments.is(1, "replication") {
        let role = if keys.caller == Caller::ScriptOnPrimary { "master" } else { "slave" };
        format!(
            "# Replication\r\nrole:{role}\r\nconnected_slaves:{}\r\nmaster_replid:{}\r\n",
            keys.replicas, keys.replid
        )
    } else {
        panic!("the model has no section of {arguments:?}");
    }))
}

/// A length as Redis returns it.
pub(super) fn length(length: usize) -> i64 {
    i64::try_from(length).expect("fits in memory")
}
