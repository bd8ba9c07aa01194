//! The zones of a store over their journal, without thread and clock.
//!
//! Calls are applied in memory, then [`Engine::commit`] makes the group durable; what they returned may be shown to
//! anybody only after that. Invariant: memory never holds what the journal refused. When a commit fails, the zones
//! are forgotten, the group has not happened as far as anybody may know, and the zones come back from the journal.

use std::collections::{BTreeMap, BTreeSet};

use admission::{
    Claim, Decided, Forecast, Image, Joined, Now, PagePolls, Policy, Verdict, View, Zone, ZoneId,
};

use crate::{Batch, Journal, JournalError, Loaded, StoreError};

/// How long a failed journal is left alone before it is tried again, in milliseconds.
pub const RELOAD_AFTER_MS: u64 = 250;

/// What a zone was last put with.
type Put = (Policy, u32);

/// A zone, and what is learnt about its line.
struct Line {
    zone: Zone,
    forecast: Forecast,
}

impl Line {
    /// A zone as the journal has it, or a new one.
    fn wake(policy: Policy, epoch: u32, image: Option<&Image>, now: Now) -> Result<Self, String> {
        let zone = match image {
            Some(image) => Zone::restore(policy, image.clone(), now).map_err(|fault| fault.to_string())?,
            None => Zone::new(policy, epoch, now),
        };
        Ok(Self { zone, forecast: Forecast::new(&policy, now.ms) })
    }

    fn beat(&mut self, marks: &[PagePolls], now: Now) -> View {
        let sight = self.zone.beat(marks, now);
        self.forecast.observe(sight, self.zone.window())
    }

    fn estimate(&mut self, verdicts: &mut [Verdict], at_ms: u64) {
        let entered =
            verdicts.iter().any(|verdict| matches!(verdict, Verdict::Entered(e) if e.at_ms == at_ms));
        self.forecast.estimate(verdicts, self.zone.window(), entered, at_ms);
    }
}

/// All zones of a store.
pub struct Engine<J> {
    journal: J,
    /// Zones that were put.
    zones: BTreeMap<ZoneId, Line>,
    /// Zones in the journal that nobody has put yet.
    asleep: BTreeMap<ZoneId, Image>,
    /// What the zones are to be woken with after the journal failed.
    puts: BTreeMap<ZoneId, Put>,
    /// Those of the group that is not committed.
    new_puts: Vec<(ZoneId, Put)>,
    /// Zones that may have changed since the last commit.
    touched: BTreeSet<ZoneId>,
    /// No instant before this one is believed.
    floor_ms: u64,
    /// Why there are no zones, while the journal is away.
    away: Option<String>,
    /// When the journal may be tried again.
    reload_ms: u64,
}

impl<J: Journal> Engine<J> {
    /// Reads the journal. All zones sleep until they are put.
    ///
    /// # Errors
    /// The journal's.
    pub fn new(mut journal: J) -> Result<Self, JournalError> {
        let Loaded { last_ms, images } = journal.load()?;
        Ok(Self {
            journal,
            zones: BTreeMap::new(),
            asleep: images,
            puts: BTreeMap::new(),
            new_puts: Vec::new(),
            touched: BTreeSet::new(),
            floor_ms: last_ms,
            away: None,
            reload_ms: 0,
        })
    }

    /// The journal.
    pub fn journal(&self) -> &J {
        &self.journal
    }

    /// The journal, to let it fail.
    pub fn journal_mut(&mut self) -> &mut J {
        &mut self.journal
    }

    /// See [`Store::put_zone`](crate::Store::put_zone). A zone that the journal doesn't know begins in `epoch`, which
    /// should be random: no other life of this line may have had it.
    ///
    /// # Errors
    /// [`StoreError::Away`] while the journal is away, or where it holds a state that no zone can have left.
    pub fn put_zone(
        &mut self,
        id: &ZoneId,
        policy: Policy,
        epoch: u32,
        now: Now,
    ) -> Result<View, StoreError> {
        let now = self.ready(now)?;
        if !self.zones.contains_key(id) {
            let line = Line::wake(policy, epoch, self.asleep.get(id), now).map_err(|why| away(id, &why))?;
            self.asleep.remove(id);
            self.zones.insert(id.clone(), line);
        }
        self.new_puts.push((id.clone(), (policy, epoch)));
        let line = self.line(id)?;
        line.zone.set_policy(policy, now);
        Ok(line.beat(&[], now))
    }

    /// See [`Store::join`](crate::Store::join).
    ///
    /// # Errors
    /// [`StoreError::UnknownZone`], [`StoreError::Away`].
    pub fn join(&mut self, id: &ZoneId, count: u32, now: Now) -> Result<Joined, StoreError> {
        let now = self.ready(now)?;
        let line = self.line(id)?;
        let mut joined = line.zone.join(count, now);
        line.estimate(&mut joined.verdicts, joined.at_ms);
        Ok(joined)
    }

    /// See [`Store::enter`](crate::Store::enter).
    ///
    /// # Errors
    /// [`StoreError::UnknownZone`], [`StoreError::Away`].
    pub fn enter(&mut self, id: &ZoneId, claims: &[Claim], now: Now) -> Result<Decided, StoreError> {
        let now = self.ready(now)?;
        let line = self.line(id)?;
        let mut decided = line.zone.enter(claims, now);
        line.estimate(&mut decided.verdicts, decided.at_ms);
        Ok(decided)
    }

    /// See [`Store::beat`](crate::Store::beat).
    ///
    /// # Errors
    /// [`StoreError::UnknownZone`], [`StoreError::Away`].
    pub fn beat(&mut self, id: &ZoneId, marks: &[PagePolls], now: Now) -> Result<View, StoreError> {
        let now = self.ready(now)?;
        Ok(self.line(id)?.beat(marks, now))
    }

    /// Makes durable what was applied since the last commit. Where nothing changed, the journal is not called.
    ///
    /// # Errors
    /// [`StoreError::Away`]: nothing that the group's calls returned may be shown to anybody.
    pub fn commit(&mut self, now: Now) -> Result<(), StoreError> {
        if let Some(why) = &self.away {
            return Err(StoreError::Away(why.clone()));
        }
        let now = self.not_before(now);
        let mut zones = Vec::new();
        for id in std::mem::take(&mut self.touched) {
            if let Some(changes) = self.zones.get_mut(&id).and_then(|line| line.zone.take_delta()) {
                zones.push((id, changes));
            }
        }
        if !zones.is_empty()
            && let Err(error) = self.journal.commit(&Batch { at_ms: now.ms, zones })
        {
            return Err(self.abandon(error.to_string()));
        }
        self.puts.extend(self.new_puts.drain(..));
        Ok(())
    }

    /// Forgets the zones and the group that is not committed; the zones come back from the journal with a later call.
    /// Returns the error to answer the group with. For a caller that can't tell any more what it applied.
    pub fn abandon(&mut self, why: String) -> StoreError {
        self.zones.clear();
        self.asleep.clear();
        self.new_puts.clear();
        self.touched.clear();
        self.away = Some(why.clone());
        StoreError::Away(why)
    }

    /// The time as it is believed here, with the zones at hand.
    fn ready(&mut self, now: Now) -> Result<Now, StoreError> {
        let now = self.not_before(now);
        let Some(why) = &self.away else { return Ok(now) };
        if now.ms < self.reload_ms {
            return Err(StoreError::Away(why.clone()));
        }
        // A journal that reads well and fails each write is reloaded no more often than one that does not read.
        self.reload_ms = now.ms + RELOAD_AFTER_MS;
        match self.reload(now) {
            Ok(()) => {
                self.away = None;
                Ok(now)
            }
            Err(why) => Err(self.abandon(why)),
        }
    }

    fn reload(&mut self, now: Now) -> Result<(), String> {
        let mut loaded = self.journal.load().map_err(|error| error.to_string())?;
        for (id, &(policy, epoch)) in &self.puts {
            let line = Line::wake(policy, epoch, loaded.images.remove(id).as_ref(), now)?;
            self.zones.insert(id.clone(), line);
            self.touched.insert(id.clone());
        }
        self.asleep = loaded.images;
        Ok(())
    }

    fn not_before(&mut self, now: Now) -> Now {
        self.floor_ms = self.floor_ms.max(now.ms);
        Now { ms: self.floor_ms, ..now }
    }

    fn line(&mut self, id: &ZoneId) -> Result<&mut Line, StoreError> {
        let line = self.zones.get_mut(id).ok_or(StoreError::UnknownZone)?;
        if !self.touched.contains(id) {
            self.touched.insert(id.clone());
        }
        Ok(line)
    }
}

fn away(id: &ZoneId, why: &str) -> StoreError {
    StoreError::Away(format!("zone {id} in the journal: {why}"))
}
