//! The zones of the embedded store and their journal, without thread and clock.
//!
//! Calls are applied in memory. Then [`Engine::commit`] makes the group durable, and only then its results may be shown.
//!
//! A zone whose state in the journal cannot be used is refused alone: its puts fail, and its state stays in the journal.
//!
//! Invariant: the memory never holds what the journal refused. If a commit fails, the engine drops the zones and loads them
//! again from the journal, as if the group had not happened.

use std::collections::{BTreeMap, BTreeSet};

use admission::{
    Claim, Decided, Departure, Image, Joined, Leaver, Now, PagePolls, Policy, Verdict, Zone, ZoneId,
};
use wait::{Forecast, Learned, View};

use crate::{Batch, Journal, JournalError, Left, Loaded, StoreError, keeper::Keeper};

/// How long to wait before a failed journal is tried again, in milliseconds.
pub const RELOAD_AFTER_MS: u64 = 250;

/// The policy and the epoch of a zone's last put.
type Put = (Policy, u32);

/// What the journal has of a zone: its state, and what was learnt about its people.
type Known<'a> = (Option<&'a Image>, Option<&'a Learned>);

/// A zone and its forecast.
struct Line {
    zone: Zone,
    forecast: Forecast,
    keeper: Keeper,
    /// The people who waited at the last beat.
    waiting: u64,
}

impl Line {
    /// A zone from the journal's image, or a new one.
    fn load(policy: Policy, epoch: u32, (image, learned): Known<'_>, now: Now) -> Result<Self, String> {
        let zone = match image {
            Some(image) => Zone::restore(policy, image.clone(), now).map_err(|fault| fault.to_string())?,
            None => Zone::new(policy, epoch, now),
        };
        let learned = learned.cloned().unwrap_or_default();
        let forecast = Forecast::after(&learned, &policy, now.ms);
        Ok(Self { zone, forecast, keeper: Keeper::of(learned), waiting: 0 })
    }

    fn beat(&mut self, marks: &[PagePolls], told_ms: u32, now: Now) -> View {
        self.zone.note_told(told_ms, now);
        let snapshot = self.zone.beat(marks, now);
        self.waiting = snapshot.tally.waiting;
        self.forecast.observe(snapshot, self.zone.window())
    }

    fn estimate(&mut self, verdicts: &mut [Verdict], at_ms: u64) {
        let entered =
            verdicts.iter().any(|verdict| matches!(verdict, Verdict::Entered(e) if e.at_ms == at_ms));
        let state = (self.zone.window(), self.zone.occupancy());
        self.forecast.estimate(verdicts, state, entered, at_ms);
    }
}

/// All zones of a store.
pub struct Engine<J> {
    journal: J,
    /// The zones that were put.
    zones: BTreeMap<ZoneId, Line>,
    /// The zones of the journal that were not put yet, or whose state cannot be used.
    inactive: BTreeMap<ZoneId, Image>,
    /// What was learnt about the people of the zones, as it was read from the journal.
    learned: BTreeMap<ZoneId, Learned>,
    /// How to load the zones again after the journal failed.
    puts: BTreeMap<ZoneId, Put>,
    /// The puts of the group that is not committed yet.
    new_puts: Vec<(ZoneId, Put)>,
    /// The zones that may have changed since the last commit.
    touched: BTreeSet<ZoneId>,
    /// The latest instant seen. An earlier one is replaced by it.
    floor_ms: u64,
    /// Why there are no zones; `None` while the journal works.
    away: Option<String>,
    /// The earliest instant at which to try the journal again.
    reload_ms: u64,
}

impl<J: Journal> Engine<J> {
    /// Reads the journal. No zone is active until it is put.
    ///
    /// # Errors
    /// Those of [`Journal::load`].
    pub fn new(mut journal: J) -> Result<Self, JournalError> {
        let Loaded { last_ms, images, learned } = journal.load()?;
        Ok(Self {
            journal,
            zones: BTreeMap::new(),
            inactive: images,
            learned,
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

    /// The journal: for tests that let it fail.
    pub fn journal_mut(&mut self) -> &mut J {
        &mut self.journal
    }

    /// See [`Store::put_zone`](crate::Store::put_zone). A zone that the journal does not know starts in `epoch`. It must
    /// differ from the epochs of earlier lines of this zone, so choose it at random.
    ///
    /// # Errors
    /// [`StoreError::Away`] while the journal does not work; [`StoreError::Unreadable`] if its state of the zone is not
    /// valid.
    pub fn put_zone(
        &mut self,
        id: &ZoneId,
        policy: Policy,
        epoch: u32,
        now: Now,
    ) -> Result<View, StoreError> {
        let now = self.ready(now)?;
        if !self.zones.contains_key(id) {
            let known = (self.inactive.get(id), self.learned.get(id));
            let line = Line::load(policy, epoch, known, now).map_err(StoreError::Unreadable)?;
            self.inactive.remove(id);
            self.zones.insert(id.clone(), line);
        }
        self.new_puts.push((id.clone(), (policy, epoch)));
        let line = self.line(id)?;
        line.zone.set_policy(policy, now);
        Ok(line.beat(&[], 0, now))
    }

    /// See [`Store::join`](crate::Store::join).
    ///
    /// # Errors
    /// [`StoreError::UnknownZone`], [`StoreError::Away`]; [`StoreError::Full`] if the journal could not be read with more
    /// numbers.
    pub fn join(&mut self, id: &ZoneId, count: u32, now: Now) -> Result<Joined, StoreError> {
        let now = self.ready(now)?;
        let line = self.line(id)?;
        if !line.zone.has_numbers(count) {
            return Err(StoreError::Full);
        }
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
    pub fn beat(
        &mut self,
        id: &ZoneId,
        marks: &[PagePolls],
        told_ms: u32,
        now: Now,
    ) -> Result<View, StoreError> {
        let now = self.ready(now)?;
        Ok(self.line(id)?.beat(marks, told_ms, now))
    }

    /// See [`Store::visits`](crate::Store::visits).
    ///
    /// # Errors
    /// [`StoreError::UnknownZone`], [`StoreError::Away`].
    pub fn visits(&mut self, id: &ZoneId, seen: &[PagePolls], now: Now) -> Result<Left, StoreError> {
        let now = self.ready(now)?;
        let pages = self.line(id)?.zone.visits(seen, now);
        // The line has one epoch, which its view has.
        Ok(Left { pages, epochs: Vec::new() })
    }

    /// See [`Store::leave`](crate::Store::leave).
    ///
    /// # Errors
    /// [`StoreError::UnknownZone`], [`StoreError::Away`].
    pub fn leave(&mut self, id: &ZoneId, leavers: &[Leaver], now: Now) -> Result<Vec<Departure>, StoreError> {
        let now = self.ready(now)?;
        Ok(self.line(id)?.zone.leave(leavers, now))
    }

    /// See [`Store::bind`](crate::Store::bind).
    ///
    /// # Errors
    /// [`StoreError::UnknownZone`], [`StoreError::Away`].
    pub fn bind(&mut self, id: &ZoneId, claim: Claim, address: u64, now: Now) -> Result<u64, StoreError> {
        let now = self.ready(now)?;
        Ok(self.line(id)?.zone.bind(claim, address, now))
    }

    /// Makes all changes since the last commit durable. If nothing changed, the journal is not called.
    ///
    /// # Errors
    /// [`StoreError::Away`]: the results of the group's calls must not be shown.
    pub fn commit(&mut self, now: Now) -> Result<(), StoreError> {
        if let Some(why) = &self.away {
            return Err(StoreError::Away(why.clone()));
        }
        let now = self.not_before(now);
        let (mut zones, mut learned) = (Vec::new(), Vec::new());
        for id in std::mem::take(&mut self.touched) {
            let Some(line) = self.zones.get_mut(&id) else { continue };
            if let Some(known) = line.keeper.look(&line.forecast, line.waiting, now.ms)
                && line.keeper.is_news(&known)
            {
                line.keeper.note(known.clone());
                learned.push((id.clone(), known));
            }
            if let Some(changes) = line.zone.take_delta() {
                zones.push((id, changes));
            }
        }
        if (!zones.is_empty() || !learned.is_empty())
            && let Err(error) = self.journal.commit(&Batch { at_ms: now.ms, zones, learned })
        {
            return Err(self.abandon(error.to_string()));
        }
        self.puts.extend(self.new_puts.drain(..));
        Ok(())
    }

    /// Drops the zones and the uncommitted group. A later call loads the zones again from the journal. Returns the error
    /// for the calls of the group. Used when it is not known what was applied.
    pub fn abandon(&mut self, why: String) -> StoreError {
        self.zones.clear();
        self.inactive.clear();
        self.new_puts.clear();
        self.touched.clear();
        self.away = Some(why.clone());
        StoreError::Away(why)
    }

    /// Makes sure that the zones are loaded, and returns the time, which never goes back.
    fn ready(&mut self, now: Now) -> Result<Now, StoreError> {
        let now = self.not_before(now);
        let Some(why) = &self.away else { return Ok(now) };
        if now.ms < self.reload_ms {
            return Err(StoreError::Away(why.clone()));
        }
        // Also set after a successful load: a journal that loads but fails each write must not be reloaded with each call.
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
            match Line::load(policy, epoch, (loaded.images.get(id), loaded.learned.get(id)), now) {
                Ok(line) => {
                    loaded.images.remove(id);
                    self.zones.insert(id.clone(), line);
                    self.touched.insert(id.clone());
                }
                // It is no longer active, and its next put fails. The others work.
                Err(why) => tracing::error!(zone = %id, "{}", StoreError::Unreadable(why)),
            }
        }
        self.inactive = loaded.images;
        self.learned = loaded.learned;
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
