//! Reads the state of a zone from Redis, in the form in which the rules dump theirs.

use std::collections::BTreeMap;

use admission::{Dump, DumpInside, DumpSegment, DumpTicket, DumpVisit, LastDeal, LongestPeriod, Unseen};
use store::redis::client::Value;

use crate::{header, plain::Connection};

fn string(connection: &Connection, key: &str) -> Vec<u8> {
    match connection.command(&[b"GET", key.as_bytes()]).expect("a string") {
        Value::Bytes(bytes) => bytes.to_vec(),
        Value::Nil => Vec::new(),
        other => panic!("{other:?}"),
    }
}

fn list(connection: &Connection, command: &[&[u8]]) -> Vec<String> {
    match connection.command(command).expect("a list") {
        Value::Array(parts) => parts
            .into_iter()
            .map(|part| match part {
                Value::Bytes(bytes) => String::from_utf8(bytes.to_vec()).expect("text"),
                other => panic!("{other:?}"),
            })
            .collect(),
        other => panic!("{other:?}"),
    }
}

fn bit(bytes: &[u8], ticket: usize) -> bool {
    bytes.get(ticket / 8).is_some_and(|byte| byte >> (7 - ticket % 8) & 1 == 1)
}

fn number<T: TryFrom<i64>>(number: i64) -> T {
    T::try_from(number).unwrap_or_else(|_| panic!("{number} is out of range"))
}

/// The state of `zone`, without the entries that can be repeated.
pub(crate) fn dump(zone: &str, connection: &Connection) -> Dump {
    let z = header::numbers(&string(connection, &format!("weir:v1:{{{zone}}}:z")));
    let get = |name: &str| number::<u64>(*z.get(name).unwrap_or_else(|| panic!("no {name} in the header")));
    let key = |name: &str| format!("weir:v1:{{{zone}}}:{name}");
    let rows = list(connection, &[b"HGETALL", key("seg").as_bytes()]);
    let mut segments: Vec<DumpSegment> = rows
        .chunks_exact(2)
        .filter(|row| row[0].starts_with(|first: char| first.is_ascii_digit()))
        .map(|row| {
            let counts: Vec<u64> = row[1].split(' ').map(|count| count.parse().expect("a count")).collect();
            DumpSegment {
                index: row[0].parse().expect("a segment"),
                live: u32::try_from(counts[0]).expect("fits"),
                present: u32::try_from(counts[1]).expect("fits"),
                generation: counts[2],
                seen_all: counts[3],
                front: usize::try_from(counts[5]).expect("fits"),
                near: usize::try_from(counts[6]).expect("fits"),
            }
        })
        .collect();
    segments.sort_unstable_by_key(|segment| segment.index);
    let mut tickets = Vec::new();
    for segment in &segments {
        let bits = |name: &str| string(connection, &key(&format!("{}:{name}", segment.index)));
        let (live, here) = (bits("live"), bits("here"));
        let ages = ["a0", "a1", "a2", "a3"].map(bits);
        for ticket in (0..65_536).filter(|&ticket| bit(&live, ticket)) {
            tickets.push(DumpTicket {
                seq: segment.index * 65_536 + ticket as u64,
                age: ages.iter().rev().fold(0, |age, plane| age << 1 | u8::from(bit(plane, ticket))),
                here: bit(&here, ticket),
            });
        }
    }
    let records = string(connection, &key("log"));
    let mut before = get("total_first");
    let window = records.chunks_exact(12).map(|record| {
        let read = |bytes: &[u8]| bytes.iter().fold(0, |number, &byte| number << 8 | u64::from(byte));
        let (at_ms, total) = (read(&record[..6]), read(&record[6..]));
        let count = total - std::mem::replace(&mut before, total);
        (at_ms, u32::try_from(count).expect("fits"))
    });
    let window = window.filter(|(at_ms, _)| at_ms + 60_000 >= get("now")).collect();
    let dues = list(connection, &[b"ZRANGE", key("due").as_bytes(), b"0", b"-1", b"WITHSCORES"]);
    let mut appointments: Vec<_> = dues
        .chunks_exact(2)
        .map(|due| {
            let score: u64 = due[1].parse().unwrap_or_else(|_| panic!("a due of {}", due[1]));
            let (stored_due, poll_in) = (score / 65_536 + get("due_base"), score % 65_536);
            (due[0].parse().expect("a ticket"), stored_due, poll_in)
        })
        .collect();
    appointments.sort_unstable();
    Dump {
        epoch: u32::try_from(get("epoch")).expect("fits"),
        next: get("next"),
        base: get("base") * 65_536,
        now_ms: get("now"),
        lateness_ms: z["lateness"],
        paused_ms: get("paused"),
        seen_all: get("seen_all"),
        // A header without an opening does not say it.
        opens_ms: z.get("opens").map_or(0, |&opens| number(opens)),
        longest_period: LongestPeriod::from_parts(
            number(z["told"]),
            get("told_until"),
            number(z["told_next"]),
        ),
        tally: admission::Tally {
            waiting: get("live"),
            present: get("present"),
            joined: get("joined"),
            entered: get("entered"),
            evicted: get("evicted"),
            slots_offered: 0,
            slots_used: get("used"),
        },
        window,
        segments,
        tickets,
        appointments,
        entries: Vec::new(),
        inside: inside(&rows, &z, |name| string(connection, &key(name))),
        drawn: drawn(&z),
    }
}

/// By which draw the line was dealt last. A header without a draw does not say it.
fn drawn(z: &BTreeMap<&str, i64>) -> LastDeal {
    let get = |name: &str| z.get(name).copied().unwrap_or(0);
    LastDeal { draw: number(get("drawn")), from: number(get("drawn_from")), end: number(get("drawn_end")) }
}

/// The people inside, from the rows of segments, the header, and the bitmaps.
fn inside(rows: &[String], z: &BTreeMap<&str, i64>, bits: impl Fn(&str) -> Vec<u8>) -> DumpInside {
    // The header of a zone that does not count them lacks these.
    let get = |name: &str| number::<u64>(z.get(name).copied().unwrap_or(0));
    let (count, until_ms) = (get("unseen"), get("unseen_until"));
    let unseen = Unseen { count, until_ms, is_told: get("unseen_told") == 1 };
    let mut dump = DumpInside { ended: get("ended"), unseen, ..DumpInside::default() };
    let mut segments: Vec<(u64, u64)> = rows
        .chunks_exact(2)
        .filter_map(|row| {
            let left_until = row[1].split(' ').nth(2).and_then(|number| number.parse().ok());
            Some((row[0].strip_prefix('v')?.parse().expect("a segment"), left_until.expect("three numbers")))
        })
        .collect();
    segments.sort_unstable();
    for (segment, left_until) in segments {
        let of = |name: &str| bits(&format!("{segment}:{name}"));
        let (inside, left, ages) = (of("in"), of("left"), ["i0", "i1", "i2", "i3"].map(of));
        for ticket in 0..65_536 {
            let seq = segment * 65_536 + ticket as u64;
            if bit(&inside, ticket) {
                let age = ages.iter().rev().fold(0, |age, plane| age << 1 | u8::from(bit(plane, ticket)));
                dump.visits.push(DumpVisit { seq, age });
            }
            if bit(&left, ticket) {
                dump.left.push((seq, left_until));
            }
        }
    }
    assert_eq!(dump.visits.len() as u64, get("inside"), "the header counts them");
    dump
}
