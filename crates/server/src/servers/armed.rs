//! Which events the servers have read: each says it by a mark for each event that comes or runs, in its registration.
//!
//! Invariants: a registration has at most 64 marks, those of the events that come first; an event that is changed has another
//! mark. What a server does not say counts as not known, and never as read.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use admission::{Definition, Event, ZoneId};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use tokio::time::Instant;

use super::Server;

/// The most marks of a registration, which has at most `ABOUT_MAX` bytes.
pub(super) const MARKS_MAX: usize = 64;

/// The bytes of a mark, and the characters that they take.
const MARK_BYTES: usize = 3;
const MARK_LEN: usize = 4;

/// How long after its end an event keeps its mark, in seconds: the clocks of servers differ.
const STAYS_S: u64 = 60;

/// How long a server may lack an event before that is trouble. A server says what it has read within about two seconds, and the others
/// hear it within five more.
const GRACE: Duration = Duration::from_secs(10);

/// The events that come first and are not over at `now_s` (seconds since 1970), at most 64. A server has a mark for each of them.
#[must_use]
pub fn coming(definitions: &[(ZoneId, Definition)], now_s: u64) -> Vec<(ZoneId, Event)> {
    let of_zone = |(zone, definition): &(ZoneId, Definition)| {
        let events = definition.schedule.events().iter();
        let ahead = events.filter(|event| u64::from(event.ends.unix_s()) + STAYS_S > now_s);
        ahead.map(|event| (zone.clone(), event.clone())).collect::<Vec<_>>()
    };
    let mut coming: Vec<_> = definitions.iter().flat_map(of_zone).collect();
    let order =
        |(zone, event): &(ZoneId, Event)| (event.prequeue_from.unix_s(), zone.clone(), event.id.clone());
    coming.sort_by_cached_key(order);
    coming.truncate(MARKS_MAX);
    coming
}

/// The marks of events, as a registration has them.
#[must_use]
pub(super) fn marks(coming: &[(ZoneId, Event)]) -> String {
    coming.iter().map(|(zone, event)| mark(zone, event)).collect()
}

/// The mark of an event of a zone: another one if anything of the event is another.
fn mark(zone: &ZoneId, event: &Event) -> String {
    let hash = blake3::hash(format!("{zone} {}", event.text()).as_bytes());
    URL_SAFE_NO_PAD.encode(&hash.as_bytes()[..MARK_BYTES])
}

/// Which servers have read an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Armed {
    /// How many have.
    pub with: usize,
    /// The names of those that have not.
    pub without: Vec<String>,
    /// The names of those that do not say it: they have another version, or too many events come before this one.
    pub unknown: Vec<String>,
}

impl Armed {
    /// Which of `servers` have read `event` of `zone`, as they say it. One that is stopping need not. `is_near` says that the event is
    /// [near](is_near), so that a server with as many marks as there can be would have one for it.
    #[must_use]
    pub fn of(servers: &[Server], zone: &ZoneId, event: &Event, is_near: bool) -> Self {
        let wanted = mark(zone, event);
        let mut armed = Self::default();
        for server in servers.iter().filter(|server| !server.draining) {
            match &server.marks {
                Some(marks) if has(marks, &wanted) => armed.with += 1,
                Some(marks) if is_near || marks.len() < MARKS_MAX * MARK_LEN => {
                    armed.without.push(server.title());
                }
                _ => armed.unknown.push(server.title()),
            }
        }
        armed
    }
}

/// Whether an event is in the first half of those that come first: servers that have read others before it have a mark for it, too.
#[must_use]
pub fn is_near(coming: &[(ZoneId, Event)], zone: &ZoneId, event: &Event) -> bool {
    coming.iter().take(MARKS_MAX / 2).any(|(of, near)| of == zone && near.id == event.id)
}

fn has(marks: &str, wanted: &str) -> bool {
    marks.as_bytes().chunks_exact(MARK_LEN).any(|mark| mark == wanted.as_bytes())
}

/// A server that has not read an event.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lack {
    /// The zone.
    pub zone: ZoneId,
    /// The event's id.
    pub event: ZoneId,
    /// The server's name and address.
    pub server: String,
}

/// What servers lack: since when, and whether it has become trouble.
#[derive(Debug, Default)]
pub(super) struct Lacks(BTreeMap<Lack, (Instant, bool)>);

/// What became trouble, and what was trouble and is over.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct News {
    pub(super) begun: Vec<Lack>,
    pub(super) over: Vec<Lack>,
}

impl Lacks {
    /// Takes in what `servers` lack of the events `coming` at `now`.
    pub(super) fn take_in(&mut self, servers: &[Server], coming: &[(ZoneId, Event)], now: Instant) -> News {
        let lacked = |(zone, event): &(ZoneId, Event)| {
            let lack = |server| Lack { zone: zone.clone(), event: event.id.clone(), server };
            Armed::of(servers, zone, event, is_near(coming, zone, event))
                .without
                .into_iter()
                .map(lack)
                .collect::<Vec<_>>()
        };
        let lacks: BTreeSet<Lack> = coming.iter().flat_map(lacked).collect();
        let mut news = News::default();
        self.0.retain(|lack, (_, is_trouble)| {
            let stays = lacks.contains(lack);
            if !stays && *is_trouble {
                news.over.push(lack.clone());
            }
            stays
        });
        for lack in lacks {
            let (since, is_trouble) = self.0.entry(lack.clone()).or_insert((now, false));
            if !*is_trouble && now.duration_since(*since) >= GRACE {
                *is_trouble = true;
                news.begun.push(lack);
            }
        }
        news
    }

    /// What is trouble now.
    pub(super) fn trouble(&self) -> impl Iterator<Item = &Lack> {
        self.0.iter().filter(|(_, (_, is_trouble))| *is_trouble).map(|(lack, _)| lack)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::sample::{self, zone_with};

    fn zone(name: &str) -> ZoneId {
        ZoneId::parse(name).expect("a name")
    }

    /// An event with a pre-queue of two minutes.
    fn event(id: &str, minute: u32) -> Event {
        let at = |minute: u32| format!("2026-12-01T{:02}:{:02}:00Z", 8 + minute / 60, minute % 60);
        let (begins, ends) = (at(minute + 2), at(minute + 3));
        sample::event(json!({ "id": id, "prequeue_from": at(minute), "begins": begins, "ends": ends }))
    }

    fn server(name: &str, marks: Option<String>) -> Server {
        Server { name: name.to_owned(), address: "a:1".to_owned(), marks, ..Server::default() }
    }

    #[test]
    fn a_server_has_an_event_only_as_it_is_now() {
        let old = coming(&[(zone("A"), zone_with(vec![event("sale", 5), event("next", 30)]))], 0);
        let new = coming(&[(zone("A"), zone_with(vec![event("sale", 6), event("next", 30)]))], 0);
        let servers = [
            server("a", Some(marks(&new))),
            server("b", Some(marks(&old))),
            server("c", Some(String::new())),
        ];
        let of = |(zone, event): &(ZoneId, Event)| Armed::of(&servers, zone, event, true);
        assert_eq!(
            of(&new[0]),
            Armed { with: 1, without: vec!["b (a:1)".to_owned(), "c (a:1)".to_owned()], unknown: Vec::new() }
        );
        assert_eq!((of(&new[1]).with, of(&new[1]).without.len()), (2, 1), "only what differs");
        assert_eq!(
            Armed::of(&servers, &zone("B"), &event("sale", 6), false).with,
            0,
            "the event of another zone"
        );
        // An older server does not say it.
        assert_eq!(Armed::of(&[server("o", None)], &zone("A"), &event("sale", 6), true).unknown, ["o (a:1)"]);
        // One that stops need not read it any more.
        let stopping = Server { draining: true, ..server("s", Some(String::new())) };
        assert_eq!(Armed::of(&[stopping], &zone("A"), &event("sale", 6), true), Armed::default());
    }

    #[test]
    fn the_next_events_are_marked_and_not_those_that_are_over() {
        let many = |from: u32| (from..from + 32).map(|n| event(&format!("e{n}"), 3 * n)).collect();
        let definitions = [
            (zone("B"), zone_with(many(32))),
            (zone("A"), zone_with(many(0))),
            (zone("C"), zone_with(many(64))),
        ];
        let next = coming(&definitions, 0);
        assert_eq!((next.len(), marks(&next).len()), (MARKS_MAX, MARKS_MAX * MARK_LEN));
        assert_eq!((next[0].1.id.as_str(), next[63].1.id.as_str()), ("e0", "e63"));
        // With as many marks as there can be, what has no mark is not known.
        let full = [server("a", Some(marks(&next)))];
        assert_eq!(Armed::of(&full, &zone("C"), &event("e64", 3 * 64), false).unknown.len(), 1);
        // But not of an event that comes before most of them.
        let moved = event("e3", 3 * 3 + 1);
        assert!(is_near(&next, &zone("A"), &moved) && !is_near(&next, &zone("B"), &event("e32", 3 * 32)));
        assert_eq!(Armed::of(&full, &zone("A"), &moved, true).without, ["a (a:1)"]);
        let ends_s = u64::from(next[0].1.ends.unix_s());
        assert_eq!(coming(&definitions, ends_s + STAYS_S - 1)[0].1.id.as_str(), "e0");
        assert_eq!(coming(&definitions, ends_s + STAYS_S)[0].1.id.as_str(), "e1");
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_server_lacks_becomes_trouble_after_a_while_and_ends() {
        let next = coming(&[(zone("A"), zone_with(vec![event("sale", 5)]))], 0);
        let (lacks, begun) = (&mut Lacks::default(), Instant::now());
        let [without, has] = [String::new(), marks(&next)].map(|marks| [server("b", Some(marks))]);
        let look = |lacks: &mut Lacks, servers: &[Server], at: Duration| {
            let news = lacks.take_in(servers, &next, begun + at);
            (news.begun.len(), news.over.len(), lacks.trouble().count())
        };
        assert_eq!(look(lacks, &without, Duration::ZERO), (0, 0, 0));
        assert_eq!(look(lacks, &without, GRACE - Duration::from_millis(1)), (0, 0, 0));
        assert_eq!(look(lacks, &without, GRACE), (1, 0, 1), "said once");
        assert_eq!(look(lacks, &without, 2 * GRACE), (0, 0, 1));
        assert_eq!(look(lacks, &has, 3 * GRACE), (0, 1, 0));
        assert_eq!(look(lacks, &without, 4 * GRACE), (0, 0, 0), "it begins anew");
        // A server that is gone lacks nothing.
        assert_eq!(look(lacks, &[], 6 * GRACE), (0, 0, 0));
    }
}
