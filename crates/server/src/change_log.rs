//! The last changes of zone definitions: those that operators made here, and those made elsewhere and seen here.
//!
//! This is for a quick look back; the audit log is for what must not be lost. Invariants: at most [`MOST`] changes are
//! remembered; a change made here is listed once, with its author, however often the bus reports it; a change that waits
//! for its store delays only other changes of the same zone, and never the list.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use admission::{Definition, Event, Moment, Schedule, ZoneId};
use events::{Bus, Kind, Kinds, Scope, SubscribeError, Subscription};
use gate::{Gate, definitions::DefinitionChange};
use store::Store;
use tokio::sync::{Mutex as AsyncMutex, Notify};

use crate::{access::Caller, clock::unix_ms};

/// The most changes that are remembered.
pub const MOST: usize = 200;

/// The most deleted events of a zone that are listed.
pub const DELETED_MOST: usize = 32;

const KINDS: Kinds = Kinds::of(&[Kind::ZoneAdded, Kind::ZoneRemoved, Kind::DefinitionChanged]);

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
        define: impl Future<Output = Result<DefinitionChange, E>>,
    ) -> Result<DefinitionChange, E> {
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

    /// The events that a zone has no longer, although they had begun: those that were deleted after their pre-queues had begun, and those
    /// that were moved to another beginning after people could enter. Each is as it was before that, with the time of the change in
    /// milliseconds since 1970. An event is its name and its beginning, so a name that is used again hides nothing. The last
    /// [`DELETED_MOST`], the newest first.
    #[must_use]
    pub fn deleted_events(&self, zone: &str, now: &Schedule) -> Vec<(u64, Event)> {
        let mut deleted: Vec<(u64, Event)> = Vec::new();
        for change in self.of(Some(zone)) {
            let none = Schedule::default();
            let [before, after] = [&change.before, &change.after]
                .map(|definition| definition.as_ref().map_or(&none, |it| &it.schedule));
            let had_come = |moment: &Moment| u64::from(moment.unix_s()) * 1_000 <= change.at_ms;
            for event in before.events() {
                let listed = deleted.iter().map(|(_, event)| event);
                let mut known = now.events().iter().chain(after.events()).chain(listed);
                let is_known = known.any(|other| other.is_same(event));
                // An event that is moved before anybody could enter is the same one: its people are in the event as it is now.
                let is_moved = after.get(event.id.as_str()).is_some();
                let had_begun = had_come(if is_moved { &event.begins } else { &event.prequeue_from });
                if had_begun && !is_known {
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
        let made = async { Ok::<_, ()>(DefinitionChange { before: Some(rate(1)), after: Some(rate(2)) }) };
        changes.make(by.clone(), &zone("A"), made).await.expect("made");
        let refused = async { Err::<DefinitionChange, _>(()) };
        changes.make(by.clone(), &zone("A"), refused).await.expect_err("refused");
        let nothing = async { Ok::<_, ()>(DefinitionChange { before: Some(rate(2)), after: Some(rate(2)) }) };
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

    /// An event of an hour in a year, with half an hour of pre-queue.
    fn event_in(year: u32, id: &str) -> Event {
        let at = |time: &str| format!("{year}-01-01T{time}:00Z");
        sample::event(serde_json::json!({
            "id": id, "prequeue_from": at("08:30"), "begins": at("09:00"), "ends": at("10:00"),
        }))
    }

    /// The years and names of the events that are gone from zone A, which had the events of `steps` one after the other.
    fn gone_after(steps: &[&[Event]]) -> Vec<String> {
        let [first, later @ ..] = steps else { panic!("a zone has some events first") };
        let log = ChangeLog::new(vec![(zone("A"), sample::zone_with(first.to_vec()))]);
        for next in later {
            log.lock().compare(vec![(zone("A"), sample::zone_with(next.to_vec()))]);
        }
        let now = sample::zone_with(steps[steps.len() - 1].to_vec()).schedule;
        assert!(log.deleted_events("B", &now).is_empty());
        let name = |(_, event): (u64, Event)| format!("{} {}", &event.begins.to_string()[..4], event.id);
        log.deleted_events("A", &now).into_iter().map(name).collect()
    }

    #[test]
    fn events_that_were_deleted_are_remembered() {
        let [old, other, coming] =
            [(2020, "old"), (2021, "other"), (2099, "new")].map(|(year, id)| event_in(year, id));
        let old = std::slice::from_ref(&old);
        let steps = [old, &[], &[coming], &[other], old, &[]];
        let gone = ["2020 old", "2021 other"];
        assert_eq!(gone_after(&steps), gone, "once each, and not the one that had not begun");
        assert_eq!(gone_after(&steps[..5]), ["2021 other"], "what is there is not deleted");
    }

    #[test]
    fn a_name_that_is_used_again_hides_no_past_event() {
        let [first, second, coming] = [2020, 2021, 2099].map(|year| event_in(year, "sale"));
        let (first, second, coming) = ([first], [second], [coming]);
        let both = ["2021 sale", "2020 sale"];
        assert_eq!(gone_after(&[&first, &[], &second, &[], &coming]), both, "deleted, and added again");
        assert_eq!(gone_after(&[&first, &second, &coming]), both, "moved");
        assert_eq!(gone_after(&[&first, &second, &first]), ["2021 sale"], "moved back");
        assert!(gone_after(&[&coming, &second]).is_empty(), "nothing of it had begun");
    }

    #[test]
    fn an_event_that_is_moved_in_its_pre_queue_is_the_same_one() {
        let prequeue = |from: u32, begins: u32| {
            let at = |year: u32| format!("{year}-01-01T00:00:00Z");
            sample::event(serde_json::json!({
                "id": "sale", "prequeue_from": at(from), "begins": at(begins), "ends": at(begins + 1),
            }))
        };
        let (soon, later) = ([prequeue(2020, 2098)], [prequeue(2020, 2099)]);
        assert!(gone_after(&[&soon, &later]).is_empty(), "its pre-queue goes on");
        assert!(
            gone_after(&[&soon, &[prequeue(2097, 2099)]]).is_empty(),
            "its pre-queue begins anew, and its start is to come"
        );
        assert_eq!(gone_after(&[&soon, &[]]), ["2098 sale"], "deleted");
        assert_eq!(gone_after(&[&[prequeue(2019, 2020)], &later]), ["2020 sale"], "people had entered");
    }

    #[tokio::test]
    async fn a_change_that_is_not_in_force_yet_is_listed_once() {
        let log = ChangeLog::new(vec![(zone("A"), rate(1))]);
        let by = Caller { name: "otto".into(), role: Role::Operator, authenticated: true };
        let made = async {
            // Somebody else changes the zone while this change waits for the store.
            log.lock().compare(vec![(zone("A"), rate(9))]);
            Ok::<_, ()>(DefinitionChange { before: Some(rate(9)), after: Some(rate(2)) })
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
