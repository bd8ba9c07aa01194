//! Visits whose cookie has not come back yet, where the people inside are limited.
//!
//! Whoever sends requests without cookies begins a visit with each, and nobody uses them; they would fill the zone until they are idle.
//! A visitor's second request shows that the visit is used. Invariant: one client has at most an eighth of a zone's places in visits
//! that began at this server and were not used, and at least [`LEAST`].

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use admission::{Policy, Visit, ZoneId};
use tokio::time::Instant;

/// How many unused visits one client may always have.
const LEAST: u32 = 4;

/// The visit of a zone: epoch and number.
type Key = (u32, u64);

#[derive(Default)]
struct OfZone {
    visits: HashMap<Key, (IpAddr, Instant)>,
    clients: HashMap<IpAddr, u32>,
}

impl OfZone {
    fn remove(&mut self, key: Key) -> bool {
        let Some((client, _)) = self.visits.remove(&key) else { return false };
        if let Some(count) = self.clients.get_mut(&client) {
            *count -= 1;
            if *count == 0 {
                self.clients.remove(&client);
            }
        }
        true
    }

    /// Removes those that the zone counts no more.
    fn forget_old(&mut self, now: Instant) -> usize {
        let old: Vec<Key> =
            self.visits.iter().filter(|(_, (_, ends))| *ends <= now).map(|(key, _)| *key).collect();
        old.iter().filter(|key| self.remove(**key)).count()
    }
}

/// The unused visits of all zones.
#[derive(Default)]
pub(super) struct UnusedVisits {
    zones: Mutex<HashMap<ZoneId, OfZone>>,
    /// How many there are, so that a check where there is none looks no further.
    count: AtomicUsize,
}

impl UnusedVisits {
    /// Whether `client` may begin another visit.
    pub(super) fn allow(&self, zone: &ZoneId, policy: &Policy, client: IpAddr, now: Instant) -> bool {
        if policy.max_active == 0 || self.is_empty() {
            return true;
        }
        let mut zones = self.zones.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(of_zone) = zones.get_mut(zone) else { return true };
        let most = (policy.max_active / 8).max(LEAST);
        let has_room = |of_zone: &OfZone| of_zone.clients.get(&client).is_none_or(|count| *count < most);
        if has_room(of_zone) {
            return true;
        }
        self.count.fetch_sub(of_zone.forget_old(now), Ordering::Relaxed);
        has_room(of_zone)
    }

    /// A visit began, and the cookie has gone out.
    pub(super) fn began(&self, zone: &ZoneId, policy: &Policy, client: IpAddr, visit: &Visit, now: Instant) {
        if policy.max_active == 0 {
            return;
        }
        let mut zones = self.zones.lock().unwrap_or_else(PoisonError::into_inner);
        let of_zone = zones.entry(zone.clone()).or_default();
        // More than may be inside are not inside any more.
        if of_zone.visits.len() >= policy.max_active as usize {
            self.count.fetch_sub(of_zone.forget_old(now), Ordering::Relaxed);
        }
        // A visit is counted for up to 4/3 of the idle time after it was last seen.
        let ends = now + Duration::from_secs(u64::from(policy.visit_idle_s) * 4 / 3);
        if of_zone.visits.insert((visit.epoch, visit.seq), (client, ends)).is_none() {
            *of_zone.clients.entry(client).or_default() += 1;
            self.count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// A visitor has shown the visit, or left.
    pub(super) fn is_used(&self, zone: &ZoneId, visit: &Visit) {
        if self.is_empty() {
            return;
        }
        let mut zones = self.zones.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(of_zone) = zones.get_mut(zone) else { return };
        if of_zone.remove((visit.epoch, visit.seq)) {
            self.count.fetch_sub(1, Ordering::Relaxed);
            if of_zone.visits.is_empty() {
                zones.remove(zone);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_has_few_unused_visits_and_others_are_not_kept_out() {
        let (unused, zone) = (UnusedVisits::default(), ZoneId::parse("Z").expect("a name"));
        let policy = Policy { max_active: 80, visit_idle_s: 60, ..Policy::default() };
        let [eve, ada] = [[203, 0, 113, 1], [203, 0, 113, 2]].map(IpAddr::from);
        let visit = |seq| Visit { epoch: 7, seq, began_s: 0, seen_s: 0, address: 0 };
        let now = Instant::now();
        let begin = |client, seqs: std::ops::Range<u64>, now| {
            seqs.take_while(|&seq| {
                let may = unused.allow(&zone, &policy, client, now);
                if may {
                    unused.began(&zone, &policy, client, &visit(seq), now);
                }
                may
            })
            .count()
        };
        assert_eq!(begin(eve, 0..50, now), 10, "an eighth");
        assert_eq!(begin(ada, 50..53, now), 3);
        unused.is_used(&zone, &visit(4));
        unused.is_used(&zone, &visit(4));
        assert_eq!(begin(eve, 60..70, now), 1, "one of them was used");
        let later = now + Duration::from_secs(80);
        assert_eq!(begin(eve, 70..90, later), 10, "the zone counts the old ones no more");
        let unlimited = Policy { max_active: 0, ..policy };
        assert!(unused.allow(&zone, &unlimited, eve, now));
        let small = Policy { max_active: 2, ..policy };
        assert!(unused.allow(&ZoneId::parse("Y").expect("a name"), &small, eve, now));
        for seq in (50..53).chain(70..80) {
            unused.is_used(&zone, &visit(seq));
        }
        assert_eq!(unused.count.load(Ordering::Relaxed), 0);
    }
}
