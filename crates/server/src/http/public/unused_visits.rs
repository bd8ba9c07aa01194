//! Visits whose cookie has not come back yet, where the people inside are limited.
//!
//! Whoever sends requests without cookies begins a visit with each, and nobody uses them; they would fill the zone until they are idle.
//! A visitor's second request shows that the visit is used, also one for a file that does not wait. Invariant: one client has at most an
//! eighth of a zone's places in visits that began at this server and were not used, or [`LEAST`] if that is more, whatever cookies its
//! requests carry, and also if they come at the same time.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{
        Mutex, MutexGuard, PoisonError,
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
    /// How many each client has, with those that are kept for places which are asked for now.
    clients: HashMap<IpAddr, u32>,
}

impl OfZone {
    fn remove(&mut self, key: Key) -> bool {
        let Some((client, _)) = self.visits.remove(&key) else { return false };
        self.release(client);
        true
    }

    fn release(&mut self, client: IpAddr) {
        if let Some(count) = self.clients.get_mut(&client) {
            *count -= 1;
            if *count == 0 {
                self.clients.remove(&client);
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.visits.is_empty() && self.clients.is_empty()
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
pub struct UnusedVisits {
    zones: Mutex<HashMap<ZoneId, OfZone>>,
    /// How many there are, so that a check where there is none looks no further.
    count: AtomicUsize,
}

impl UnusedVisits {
    fn lock(&self) -> MutexGuard<'_, HashMap<ZoneId, OfZone>> {
        self.zones.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps one of the unused visits that `client` may have for a place that is asked for now; none if it has as many as it may. In a
    /// zone that limits no one inside, each may have any number.
    pub(super) fn permit(
        &self,
        zone: &ZoneId,
        policy: &Policy,
        client: IpAddr,
        now: Instant,
    ) -> Option<Permit<'_>> {
        let ends = now + Duration::from_secs(u64::from(policy.visit_idle_s) * 4 / 3);
        let mut permit = Permit { unused: self, zone: zone.clone(), client, ends, is_held: false };
        if policy.max_active == 0 {
            return Some(permit);
        }
        let most = (policy.max_active / 8).max(LEAST);
        let mut zones = self.lock();
        let of_zone = zones.entry(zone.clone()).or_default();
        let has_room = |of_zone: &OfZone| of_zone.clients.get(&client).is_none_or(|count| *count < most);
        // More than may be inside are not inside any more.
        if !has_room(of_zone) || of_zone.visits.len() >= policy.max_active as usize {
            self.count.fetch_sub(of_zone.forget_old(now), Ordering::Relaxed);
        }
        if !has_room(of_zone) {
            return None;
        }
        *of_zone.clients.entry(client).or_default() += 1;
        permit.is_held = true;
        Some(permit)
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
        let mut zones = self.lock();
        let Some(of_zone) = zones.get_mut(zone) else { return };
        if of_zone.remove((visit.epoch, visit.seq)) {
            self.count.fetch_sub(1, Ordering::Relaxed);
            if of_zone.is_empty() {
                zones.remove(zone);
            }
        }
    }
}

/// A client may begin one more visit. It is kept until the answer is known, so that requests at the same time get no more than the
/// client may have; what is dropped without a visit is free again.
pub(super) struct Permit<'a> {
    unused: &'a UnusedVisits,
    zone: ZoneId,
    client: IpAddr,
    /// When the zone counts the visit no more if nobody uses it: it is counted for up to 4/3 of the idle time.
    ends: Instant,
    is_held: bool,
}

impl Permit<'_> {
    /// The visit began, and its cookie goes out.
    pub(super) fn began(mut self, visit: &Visit) {
        if !std::mem::take(&mut self.is_held) {
            return;
        }
        let mut zones = self.unused.lock();
        let of_zone = zones.entry(self.zone.clone()).or_default();
        match of_zone.visits.insert((visit.epoch, visit.seq), (self.client, self.ends)) {
            None => drop(self.unused.count.fetch_add(1, Ordering::Relaxed)),
            Some((before, _)) => of_zone.release(before),
        }
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        if !self.is_held {
            return;
        }
        let mut zones = self.unused.lock();
        let Some(of_zone) = zones.get_mut(&self.zone) else { return };
        of_zone.release(self.client);
        if of_zone.is_empty() {
            zones.remove(&self.zone);
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
            seqs.map_while(|seq| {
                unused.permit(&zone, &policy, client, now).map(|permit| permit.began(&visit(seq)))
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
        assert!(unused.permit(&zone, &unlimited, eve, now).is_some());
        for seq in (50..53).chain(70..80) {
            unused.is_used(&zone, &visit(seq));
        }
        assert!(unused.is_empty() && unused.zones.lock().expect("a lock").is_empty());
    }

    #[test]
    fn requests_at_the_same_time_begin_no_more_visits_than_one_after_another() {
        let (unused, zone) = (UnusedVisits::default(), ZoneId::parse("Z").expect("a name"));
        let policy = Policy { max_active: 2, visit_idle_s: 60, ..Policy::default() };
        let (eve, now) = (IpAddr::from([203, 0, 113, 1]), Instant::now());
        let ask = || unused.permit(&zone, &policy, eve, now);
        let held: Vec<_> = (0..LEAST).map(|_| ask().expect("may have it")).collect();
        assert!(ask().is_none());
        drop(held);
        assert!(unused.zones.lock().expect("a lock").is_empty(), "nobody entered");
        // Two of the same visit are one.
        let visit = Visit { epoch: 7, seq: 1, began_s: 0, seen_s: 0, address: 0 };
        for _ in 0..2 * LEAST {
            ask().expect("one is used").began(&visit);
        }
        unused.is_used(&zone, &visit);
        assert!(unused.is_empty() && unused.zones.lock().expect("a lock").is_empty());
    }
}
