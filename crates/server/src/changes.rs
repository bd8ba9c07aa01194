//! The last changes of zones' definitions: those that operators made here, and those that were made elsewhere and seen.
//!
//! The audit log is for what must not be lost; this is for a look back. Invariants: at most [`MOST`] are remembered; a change
//! that was made here is told once, with its name, however often the bus tells of it.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use admission::{Definition, ZoneId};
use events::{Bus, Kind, Kinds, Scope, SubscribeError, Subscription};
use gate::{Gate, definitions::Change};
use store::Store;
use tokio::sync::Mutex;

use crate::{access::Caller, audit::unix_ms};

/// The most changes that are remembered.
pub const MOST: usize = 200;

const KINDS: Kinds =
    Kinds::of(&[Kind::ZoneAdded, Kind::ZoneRemoved, Kind::PolicyChanged, Kind::NoticeChanged]);

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastChange {
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// Who made it, where that was here.
    pub by: Option<Caller>,
    /// Of which zone.
    pub zone: ZoneId,
    /// What was defined before; none where there was no such zone.
    pub before: Option<Definition>,
    /// What is defined since; none where it is gone.
    pub after: Option<Definition>,
}

/// The last changes.
pub struct Changes(Mutex<State>);

struct State {
    /// What is defined, as far as was told.
    known: BTreeMap<ZoneId, Definition>,
    /// The newest first.
    changes: VecDeque<PastChange>,
}

impl Changes {
    /// None yet, where these are the zones there are.
    #[must_use]
    pub fn new(known: Vec<(ZoneId, Definition)>) -> Arc<Self> {
        let known = known.into_iter().collect();
        Arc::new(Self(Mutex::new(State { known, changes: VecDeque::new() })))
    }

    /// To be asked for before [`Changes::new`] is told the zones, for [`Changes::follow`].
    ///
    /// # Errors
    /// [`SubscribeError::TooMany`].
    pub fn subscribe(bus: &Bus) -> Result<Subscription, SubscribeError> {
        bus.subscribe("changes", Scope::Federated, KINDS)
    }

    /// Follows what others change until the bus ends.
    pub async fn follow<S: Store>(self: Arc<Self>, mut told: Subscription, gate: Arc<Gate<S>>) {
        while told.next().await.is_some() {
            let state = &mut *self.0.lock().await;
            // What is in force says more than what was told of it, perhaps in another order.
            state.look(gate.definitions());
        }
    }

    /// Has `define` change a zone, and notes who did.
    ///
    /// # Errors
    /// Those of `define`.
    pub async fn make<E>(
        &self,
        by: Caller,
        zone: &ZoneId,
        define: impl Future<Output = Result<Change, E>>,
    ) -> Result<Change, E> {
        // Whoever follows waits meanwhile: what is in force is not to be told before it is known whose it is.
        let mut state = self.0.lock().await;
        let change = define.await?;
        if change.before != change.after {
            state.note(Some(by), zone.clone(), change.before.clone(), change.after.clone());
        }
        Ok(change)
    }

    /// Those of a zone, or of all, the newest first.
    pub async fn of(&self, zone: Option<&str>) -> Vec<PastChange> {
        let state = self.0.lock().await;
        let wanted = |change: &&PastChange| zone.is_none_or(|zone| change.zone.as_str() == zone);
        state.changes.iter().filter(wanted).cloned().collect()
    }
}

impl State {
    fn look(&mut self, in_force: Vec<(ZoneId, Definition)>) {
        let in_force: BTreeMap<_, _> = in_force.into_iter().collect();
        let names: BTreeSet<ZoneId> = self.known.keys().chain(in_force.keys()).cloned().collect();
        for zone in names {
            let (before, after) = (self.known.get(&zone), in_force.get(&zone));
            if before != after {
                let (before, after) = (before.cloned(), after.cloned());
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

    fn zone(name: &str) -> ZoneId {
        ZoneId::parse(name).expect("a name")
    }

    fn rate(admit_per_minute: u32) -> Definition {
        Policy { admit_per_minute, ..Policy::default() }.into()
    }

    #[tokio::test]
    async fn changes_have_a_name_where_they_were_made_here() {
        let changes = Changes::new(vec![(zone("A"), rate(1)), (zone("B"), rate(1))]);
        let by = Caller { name: "otto".into(), role: Role::Operator, authenticated: true };
        let made = async { Ok::<_, ()>(Change { before: Some(rate(1)), after: Some(rate(2)) }) };
        changes.make(by.clone(), &zone("A"), made).await.expect("made");
        let refused = async { Err::<Change, _>(()) };
        changes.make(by.clone(), &zone("A"), refused).await.expect_err("refused");
        let nothing = async { Ok::<_, ()>(Change { before: Some(rate(2)), after: Some(rate(2)) }) };
        changes.make(by.clone(), &zone("A"), nothing).await.expect("nothing to do");
        // The bus tells of the change of A, too; B is gone and C is there by somebody else.
        changes.0.lock().await.look(vec![(zone("A"), rate(2)), (zone("C"), rate(3))]);
        changes.0.lock().await.look(vec![(zone("A"), rate(2)), (zone("C"), rate(3))]);
        let told: Vec<_> =
            changes.of(None).await.into_iter().map(|c| (c.zone, c.by, c.before, c.after)).collect();
        assert_eq!(
            told,
            [
                (zone("C"), None, None, Some(rate(3))),
                (zone("B"), None, Some(rate(1)), None),
                (zone("A"), Some(by), Some(rate(1)), Some(rate(2))),
            ]
        );
        assert_eq!(changes.of(Some("B")).await.len(), 1);
        for n in 0..=u32::try_from(2 * MOST).expect("a small number") {
            changes.0.lock().await.look(vec![(zone("A"), rate(2)), (zone("C"), rate(4 + n))]);
        }
        assert_eq!(changes.of(None).await.len(), MOST);
    }
}
