//! The last changes of zone definitions: those that operators made here, and those made elsewhere and seen here.
//!
//! This is for a quick look back; the audit log is for what must not be lost. Invariants: at most [`MOST`] changes are
//! remembered; a change made here is listed once, with its author, however often the bus reports it; a change that waits
//! for its store delays only other changes of the same zone, and never the list.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use admission::{Definition, Schedule, ZoneId};
use events::{Bus, Kind, Kinds, Scope, SubscribeError, Subscription};
use gate::{Gate, definitions::Change};
use store::Store;
use tokio::{
    sync::{Mutex as AsyncMutex, Notify},
    time::sleep,
};

use crate::{access::Caller, clock::unix_ms};

/// The most changes that are remembered.
pub const MOST: usize = 200;

/// The most deleted events of a zone that are listed.
pub const DELETED_MOST: usize = 32;

/// How often the definitions are compared without an event of the bus: a change of events alone changes no policy now.
const EVERY: Duration = Duration::from_secs(5);

const KINDS: Kinds =
    Kinds::of(&[Kind::ZoneAdded, Kind::ZoneRemoved, Kind::PolicyChanged, Kind::NoticeChanged]);

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastChange {
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// Who made it, if it was made here.
    pub by: Option<Caller>,
    /// The zone.
    pub zone: ZoneId,
    /// The definition before; none where the zone did not exist.
    pub before: Option<Definition>,
    /// The definition after; none where the zone is deleted.
    pub after: Option<Definition>,
}

/// The last changes.
pub struct ChangeLog {
    /// Held for moments only, and never while a store is awaited.
    state: Mutex<State>,
    /// Notified when a change made here is over, so that the definitions in force are compared again.
    over: Notify,
}

struct State {
    /// The definitions that the listed changes led to.
    known: BTreeMap<ZoneId, Definition>,
    /// The newest first.
    changes: VecDeque<PastChange>,
    /// Zones that are being changed here, and the turn of each. Others' changes of these zones are listed afterwards.
    making: HashMap<ZoneId, Arc<AsyncMutex<()>>>,
    /// Zones whose change was made here and may not be in force yet: the definition of before.
    outdated: HashMap<ZoneId, Option<Definition>>,
}

impl ChangeLog {
    /// An empty log. `known` are the definitions now.
    #[must_use]
    pub fn new(known: Vec<(ZoneId, Definition)>) -> Arc<Self> {
        let state = State {
            known: known.into_iter().collect(),
            changes: VecDeque::new(),
            making: HashMap::new(),
            outdated: HashMap::new(),
        };
        Arc::new(Self { state: Mutex::new(state), over: Notify::new() })
    }

    /// Subscribes for [`ChangeLog::follow`]. Call this before [`ChangeLog::new`], so that no change is missed.
    ///
    /// # Errors
    /// [`SubscribeError::TooMany`].
    pub fn subscribe(bus: &Bus) -> Result<Subscription, SubscribeError> {
        bus.subscribe("changes", Scope::Federated, KINDS)
    }

    /// Lists what others change, until the bus ends.
    pub async fn follow<S: Store>(self: Arc<Self>, mut events: Subscription, gate: Arc<Gate<S>>) {
        loop {
            tokio::select! {
                batch = events.next() => if batch.is_none() { return },
                () = self.over.notified() => {}
                () = sleep(EVERY) => {}
            }
            // Events may arrive in another order. The definitions in force are the truth.
            self.lock().compare(gate.definitions());
        }
    }

    /// Awaits `define`, which changes a zone, and lists the change with its author.
    ///
    /// # Errors
    /// Those of `define`.
    pub async fn make<E>(
        &self,
        by: Caller,
        zone: &ZoneId,
        define: impl Future<Output = Result<Change, E>>,
    ) -> Result<Change, E> {
        let making = self.begin(zone);
        // Changes of one zone are listed in the order in which they are made.
        let _turn = making.turn.lock().await;
        let change = define.await?;
        if change.before != change.after {
            let mut state = self.lock();
            state.outdated.insert(zone.clone(), change.before.clone());
            state.note(Some(by), zone.clone(), change.before.clone(), change.after.clone());
        }
        Ok(change)
    }

    /// The changes of one zone, or of all, the newest first.
    pub fn of(&self, zone: Option<&str>) -> Vec<PastChange> {
        let state = self.lock();
        let wanted = |change: &&PastChange| zone.is_none_or(|zone| change.zone.as_str() == zone);
        state.changes.iter().filter(wanted).cloned().collect()
    }

    /// The events of a zone that were deleted after their pre-queues had begun and are not in `now`, as they were before that, each with
    /// the time of the deletion in milliseconds since 1970. The last [`DELETED_MOST`], the newest first.
    #[must_use]
    pub fn deleted_events(&self, zone: &str, now: &Schedule) -> Vec<(u64, admission::Event)> {
        let mut deleted: Vec<(u64, admission::Event)> = Vec::new();
        for change in self.of(Some(zone)) {
            let none = Schedule::default();
            let schedule =
                |of: &Option<Definition>| of.as_ref().map_or(none.clone(), |it| it.schedule.clone());
            let after = schedule(&change.after);
            for event in schedule(&change.before).events() {
                let id = event.id.as_str();
                let is_known =
                    now.get(id).is_some() || deleted.iter().any(|(_, known)| known.id.as_str() == id);
                let had_begun = u64::from(event.prequeue_from.unix_s()) * 1_000 <= change.at_ms;
                if after.get(id).is_none() && had_begun && !is_known {
                    deleted.push((change.at_ms, event.clone()));
                }
            }
        }
        deleted.truncate(DELETED_MOST);
        deleted
    }

    /// Marks a zone as being changed here, until the result is dropped.
    fn begin(&self, zone: &ZoneId) -> Making<'_> {
        let turn = Arc::clone(self.lock().making.entry(zone.clone()).or_default());
        Making { log: self, zone: zone.clone(), turn }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A change that is being made. Ends when it is dropped, even if its caller has gone.
struct Making<'a> {
    log: &'a ChangeLog,
    zone: ZoneId,
    turn: Arc<AsyncMutex<()>>,
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        let mut state = self.log.lock();
        // The map has one reference and this has one. More are others' who change the same zone.
        if Arc::strong_count(&self.turn) == 2 {
            state.making.remove(&self.zone);
        }
        drop(state);
        self.log.over.notify_one();
    }
}

impl State {
    /// Lists how the definitions in force differ from those known, unless a change of this server explains it.
    fn compare(&mut self, in_force: Vec<(ZoneId, Definition)>) {
        let in_force: BTreeMap<_, _> = in_force.into_iter().collect();
        let names: BTreeSet<ZoneId> = self.known.keys().chain(in_force.keys()).cloned().collect();
        for zone in names {
            if self.making.contains_key(&zone) {
                continue;
            }
            let (before, after) = (self.known.get(&zone), in_force.get(&zone));
            if before == after {
                self.outdated.remove(&zone);
            } else if self.outdated.get(&zone).is_none_or(|outdated| outdated.as_ref() != after) {
                let (before, after) = (before.cloned(), after.cloned());
                self.outdated.remove(&zone);
                self.note(None, zone, before, after);
            }
        }
    }

    fn note(
        &mut self,
        by: Option<Caller>,
        zone: ZoneId,
        before: Option<Definition>,
        after: Option<Definition>,
    ) {
        match &after {
            Some(definition) => drop(self.known.insert(zone.clone(), definition.clone())),
            None => drop(self.known.remove(&zone)),
        }
        self.changes.truncate(MOST - 1);
        self.changes.push_front(PastChange { at_ms: unix_ms(), by, zone, before, after });
    }
}

#[cfg(test)]
mod tests {
    use admission::Policy;

    use super::*;
    use crate::access::Role;
    use crate::sample;

    fn zone(name: &str) -> ZoneId {
        ZoneId::parse(name).expect("a name")
    }

    fn rate(admit_per_minute: u32) -> Definition {
        Policy { admit_per_minute, ..Policy::default() }.into()
    }

    #[tokio::test]
    async fn changes_made_here_have_an_author() {
        let changes = ChangeLog::new(vec![(zone("A"), rate(1)), (zone("B"), rate(1))]);
        let by = Caller { name: "otto".into(), role: Role::Operator, authenticated: true };
        let made = async { Ok::<_, ()>(Change { before: Some(rate(1)), after: Some(rate(2)) }) };
        changes.make(by.clone(), &zone("A"), made).await.expect("made");
        let refused = async { Err::<Change, _>(()) };
        changes.make(by.clone(), &zone("A"), refused).await.expect_err("refused");
        let nothing = async { Ok::<_, ()>(Change { before: Some(rate(2)), after: Some(rate(2)) }) };
        changes.make(by.clone(), &zone("A"), nothing).await.expect("nothing to do");
        // The bus reports the change of A too. Somebody else deleted B and made C.
        changes.lock().compare(vec![(zone("A"), rate(2)), (zone("C"), rate(3))]);
        changes.lock().compare(vec![(zone("A"), rate(2)), (zone("C"), rate(3))]);
        let told: Vec<_> = changes.of(None).into_iter().map(|c| (c.zone, c.by, c.before, c.after)).collect();
        assert_eq!(
            told,
            [
                (zone("C"), None, None, Some(rate(3))),
                (zone("B"), None, Some(rate(1)), None),
                (zone("A"), Some(by), Some(rate(1)), Some(rate(2))),
            ]
        );
        assert_eq!(changes.of(Some("B")).len(), 1);
        for n in 0..=u32::try_from(2 * MOST).expect("a small number") {
            changes.lock().compare(vec![(zone("A"), rate(2)), (zone("C"), rate(4 + n))]);
        }
        assert_eq!(changes.of(None).len(), MOST);
    }

    #[tokio::test]
    async fn events_that_were_deleted_are_remembered() {
        let event = |id: &str, from: &str| {
            let (begins, ends) = ("2099-12-01T09:00:00Z", "2099-12-02T09:00:00Z");
            sample::event(
                serde_json::json!({ "id": id, "prequeue_from": from, "begins": begins, "ends": ends }),
            )
        };
        let (begun, later) = ("2026-01-01T00:00:00Z", "2099-12-01T08:00:00Z");
        let log = ChangeLog::new(vec![(zone("A"), sample::zone_with(vec![event("old", begun)]))]);
        for next in [
            vec![],
            vec![event("new", later)],
            vec![event("other", begun)],
            vec![event("old", begun)],
            vec![],
        ] {
            log.lock().compare(vec![(zone("A"), sample::zone_with(next))]);
        }
        let names = |now: &Schedule| -> Vec<String> {
            log.deleted_events("A", now).into_iter().map(|(_, event)| event.id.to_string()).collect()
        };
        assert_eq!(
            names(&Schedule::default()),
            ["old", "other"],
            "once each, and not the one that had not begun"
        );
        assert_eq!(
            names(&sample::zone_with(vec![event("old", begun)]).schedule),
            ["other"],
            "what is there is not deleted"
        );
        assert!(log.deleted_events("B", &Schedule::default()).is_empty());
    }

    #[tokio::test]
    async fn a_change_that_is_not_in_force_yet_is_listed_once() {
        let log = ChangeLog::new(vec![(zone("A"), rate(1))]);
        let by = Caller { name: "otto".into(), role: Role::Operator, authenticated: true };
        let made = async {
            // Somebody else changes the zone while this change waits for the store.
            log.lock().compare(vec![(zone("A"), rate(9))]);
            Ok::<_, ()>(Change { before: Some(rate(9)), after: Some(rate(2)) })
        };
        log.make(by, &zone("A"), made).await.expect("made");
        for in_force in [9, 9, 2, 2] {
            log.lock().compare(vec![(zone("A"), rate(in_force))]);
            assert_eq!(log.of(None).len(), 1, "{in_force} is in force");
        }
        // The same definition again, later, is somebody else's change.
        log.lock().compare(vec![(zone("A"), rate(9))]);
        assert_eq!(log.of(None).len(), 2);
        assert!(log.lock().making.is_empty() && log.lock().outdated.is_empty());
    }
}
