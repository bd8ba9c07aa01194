//! The zones of the embedded store and their journal, without thread and clock.
//!
//! Calls are applied in memory. Then [`Engine::commit`] makes the group durable, and only then its results may be shown.
//!
//! A zone whose state in the journal cannot be used is refused alone: its puts fail, and its state stays in the journal.
//!
//! Invariant: the memory never holds what the journal refused. If a commit fails, the engine drops the zones and loads them
//! again from the journal, as if the group had not happened.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use admission::{
    Census, Claim, Deal, Dealt, Decided, Departure, Image, JoinKey, Joined, Leaver, Now, PagePolls, Policy,
    Snapshot, Ticket, Zone, ZoneId,
};

use crate::{
    Batch, DrawKey, JoinedOnce, Journal, JournalError, LeftVisits, Loaded, StoreError,
    journal::MinuteKey,
    minutes::{KeptMinute, OfferedMinute, Row},
    recent_joins::RecentJoins,
};

/// How long to wait before a failed journal is tried again, in milliseconds.
pub const RELOAD_AFTER_MS: u64 = 250;

/// The policy and the epoch of a zone's last put.
type Put = (Policy, u32);

/// A zone from the journal's image, or a new one.
fn load_zone(policy: Policy, epoch: u32, image: Option<&Image>, now: Now) -> Result<Zone, String> {
    match image {
        Some(image) => Zone::restore(policy, image.clone(), now).map_err(|fault| fault.to_string()),
        None => Ok(Zone::new(policy, epoch, now)),
    }
}

/// All zones of a store.
pub struct Engine<J> {
    journal: J,
    /// The zones that were put.
    zones: BTreeMap<ZoneId, Zone>,
    /// The zones of the journal that were not put yet, or whose state cannot be used.
    inactive: BTreeMap<ZoneId, Image>,
    /// What servers learnt about the people of the zones.
    learned: BTreeMap<ZoneId, Vec<u8>>,
    /// The zones of which that changed since the last commit.
    newly_learned: BTreeSet<ZoneId>,
    /// The records of the zones' draws.
    draws: BTreeMap<DrawKey, Vec<u8>>,
    /// Those that changed since the last commit.
    new_draws: BTreeSet<DrawKey>,
    /// The minutes that changed since the last commit. The others are in the journal only, because there are many.
    new_minutes: BTreeMap<MinuteKey, Row>,
    /// How to load the zones again after the journal failed.
    puts: BTreeMap<ZoneId, Put>,
    /// The puts of the group that is not committed yet.
    new_puts: Vec<(ZoneId, Put)>,
    /// Who joined lately under which key.
    recent_joins: BTreeMap<ZoneId, RecentJoins>,
    /// The zones that may have changed since the last commit.
    touched: BTreeSet<ZoneId>,
    /// The latest instant seen. An earlier one is replaced by it.
    floor_ms: u64,
    /// Why there are no zones; `None` while the journal works.
    away: Option<String>,
    /// The earliest instant at which to try the journal again.
    reload_ms: u64,
    /// The journal failed, and has written nothing since. A call that changes nothing does not show that it works again.
    is_unproved: bool,
}

impl<J: Journal> Engine<J> {
    /// Reads the journal. No zone is active until it is put.
    ///
    /// # Errors
    /// Those of [`Journal::load`].
    pub fn new(mut journal: J) -> Result<Self, JournalError> {
        let Loaded { last_ms, images, learned, draws } = journal.load()?;
        Ok(Self {
            journal,
            zones: BTreeMap::new(),
            inactive: images,
            learned,
            newly_learned: BTreeSet::new(),
            draws,
            new_draws: BTreeSet::new(),
            new_minutes: BTreeMap::new(),
            puts: BTreeMap::new(),
            new_puts: Vec::new(),
            recent_joins: BTreeMap::new(),
            touched: BTreeSet::new(),
            floor_ms: last_ms,
            away: None,
            reload_ms: 0,
            is_unproved: false,
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

    /// See [`Line::put`](crate::Line::put). A zone that the journal does not know starts in `epoch`. It must
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
    ) -> Result<Snapshot, StoreError> {
        let now = self.ready(now)?;
        if !self.zones.contains_key(id) {
            let zone =
                load_zone(policy, epoch, self.inactive.get(id), now).map_err(StoreError::Unreadable)?;
            self.inactive.remove(id);
            self.zones.insert(id.clone(), zone);
        }
        self.new_puts.push((id.clone(), (policy, epoch)));
        let zone = self.zone(id)?;
        zone.set_policy(policy, now);
        Ok(zone.beat(&[], now))
    }

    /// See [`Line::join`](crate::Line::join).
    ///
    /// # Errors
    /// [`StoreError::UnknownZone`], [`StoreError::Away`]; [`StoreError::Full`] if the journal could not be read with more
    /// numbers.
    pub fn join(&mut self, id: &ZoneId, count: u32, now: Now) -> Result<Joined, StoreError> {
        let now = self.ready(now)?;
        let zone = self.zone(id)?;
        if !zone.has_numbers(count) {
            return Err(StoreError::Full);
        }
        Ok(zone.join(count, now))
    }

    /// See [`Line::join_once`](crate::Line::join_once). Keys are in memory only: they are forgotten with the process, and when the journal
    /// fails.
    ///
    /// # Errors
    /// As [`Self::join`].
    pub fn join_once(
        &mut self,
        id: &ZoneId,
        keys: &[Option<JoinKey>],
        now: Now,
    ) -> Result<JoinedOnce, StoreError> {
        let now = self.ready(now)?;
        let mut recent = self.recent_joins.remove(id).unwrap_or_default();
        let joined = recent.join(keys, now.ms, |count| self.join(id, count, now));
        self.recent_joins.insert(id.clone(), recent);
        joined
    }

    /// See [`Line::joined_before`](crate::Line::joined_before).
    ///
    /// # Errors
    /// [`StoreError::UnknownZone`], [`StoreError::Away`].
    pub fn joined_before(
        &mut self,
        id: &ZoneId,
        keys: &[JoinKey],
        now: Now,
    ) -> Result<Vec<Option<Ticket>>, StoreError> {
        let now = self.ready(now)?;
        self.zone(id)?;
        let recent = self.recent_joins.get_mut(id);
        Ok(recent.map_or_else(|| vec![None; keys.len()], |recent| recent.find(keys, now.ms)))
    }

    /// See [`Line::enter`](crate::Line::enter).
    ///
    /// # Errors
    /// [`StoreError::UnknownZone`], [`StoreError::Away`].
    pub fn enter(&mut self, id: &ZoneId, claims: &[Claim], now: Now) -> Result<Decided, StoreError> {
        let now = self.ready(now)?;
        Ok(self.zone(id)?.enter(claims, now))
    }

    /// See [`Line::beat`](crate::Line::beat).
    ///
    /// # Errors
    /// [`StoreError::UnknownZone`], [`StoreError::Away`].
    pub fn beat(
        &mut self,
        id: &ZoneId,
        marks: &[PagePolls],
        longest_period_ms: u32,
        now: Now,
    ) -> Result<Snapshot, StoreError> {
        let now = self.ready(now)?;
        let zone = self.zone(id)?;
        zone.note_longest_period(longest_period_ms, now);
        Ok(zone.beat(marks, now))
    }

    /// See [`Line::visits`](crate::Line::visits).
    ///
    /// # Errors
    /// [`StoreError::UnknownZone`], [`StoreError::Away`].
    pub fn visits(&mut self, id: &ZoneId, seen: &[PagePolls], now: Now) -> Result<LeftVisits, StoreError> {
        let now = self.ready(now)?;
        let pages = self.zone(id)?.visits(seen, now);
        // The line has one epoch, which its snapshot has.
        Ok(LeftVisits { pages, epochs: Vec::new() })
    }

    /// See [`Line::leave`](crate::Line::leave).
    ///
    /// # Errors
    /// [`StoreError::UnknownZone`], [`StoreError::Away`].
    pub fn leave(&mut self, id: &ZoneId, leavers: &[Leaver], now: Now) -> Result<Vec<Departure>, StoreError> {
        let now = self.ready(now)?;
        Ok(self.zone(id)?.leave(leavers, now))
    }

    /// See [`Line::bind`](crate::Line::bind).
    ///
    /// # Errors
    /// [`StoreError::UnknownZone`], [`StoreError::Away`].
    pub fn bind(&mut self, id: &ZoneId, claim: Claim, address: u64, now: Now) -> Result<u64, StoreError> {
        let now = self.ready(now)?;
        Ok(self.zone(id)?.bind(claim, address, now))
    }

    /// See [`Line::exchange_learned`](crate::Line::exchange_learned).
    ///
    /// # Errors
    /// [`StoreError::Away`].
    pub fn exchange_learned(
        &mut self,
        id: &ZoneId,
        new: Option<Vec<u8>>,
        now: Now,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        self.ready(now)?;
        let Some(new) = new else { return Ok(self.learned.get(id).cloned()) };
        self.newly_learned.insert(id.clone());
        Ok(self.learned.insert(id.clone(), new))
    }

    /// See [`Line::census`](crate::Line::census).
    ///
    /// # Errors
    /// [`StoreError::UnknownZone`], [`StoreError::Away`].
    pub fn census(&mut self, id: &ZoneId, now: Now) -> Result<Census, StoreError> {
        let now = self.ready(now)?;
        Ok(self.zone(id)?.census(now))
    }

    /// See [`Line::deal`](crate::Line::deal).
    ///
    /// # Errors
    /// [`StoreError::UnknownZone`], [`StoreError::Away`].
    pub fn deal(&mut self, id: &ZoneId, deal: &Deal, anyway: bool, now: Now) -> Result<Dealt, StoreError> {
        let now = self.ready(now)?;
        Ok(self.zone(id)?.deal(deal, anyway, now))
    }

    /// See [`Line::keep_draw`](crate::Line::keep_draw).
    ///
    /// # Errors
    /// [`StoreError::Away`].
    pub fn keep_draw(
        &mut self,
        id: &ZoneId,
        draw: u32,
        new: Option<Vec<u8>>,
        now: Now,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        self.ready(now)?;
        let key = (id.clone(), draw);
        let kept = self.draws.get(&key);
        let is_later = |new: &Vec<u8>| kept.is_none_or(|kept| new.first() > kept.first());
        if let Some(new) = new.filter(is_later) {
            self.draws.insert(key.clone(), new);
            self.new_draws.insert(key.clone());
        }
        Ok(self.draws.get(&key).cloned())
    }

    /// See [`Line::keep_minutes`](crate::Line::keep_minutes).
    ///
    /// # Errors
    /// [`StoreError::Away`].
    pub fn keep_minutes(
        &mut self,
        id: &ZoneId,
        server: u64,
        offered: &[OfferedMinute],
        now: Now,
    ) -> Result<(), StoreError> {
        self.ready(now)?;
        for offered in offered {
            let key = (offered.minute, id.clone());
            let mut row = match self.new_minutes.remove(&key) {
                Some(row) => row,
                None => self.rows(id, offered.minute..offered.minute + 1)?.pop().unwrap_or_default().1,
            };
            row.merge(server, offered);
            self.new_minutes.insert(key, row);
        }
        Ok(())
    }

    /// See [`Line::minutes`](crate::Line::minutes).
    ///
    /// # Errors
    /// [`StoreError::Away`].
    pub fn minutes(
        &mut self,
        id: &ZoneId,
        minutes: Range<u32>,
        now: Now,
    ) -> Result<Vec<KeptMinute>, StoreError> {
        self.ready(now)?;
        let mut rows: BTreeMap<u32, Row> = self.rows(id, minutes.clone())?.into_iter().collect();
        let of_zone =
            self.new_minutes.iter().filter(|((minute, of), _)| of == id && minutes.contains(minute));
        rows.extend(of_zone.map(|((minute, _), row)| (*minute, row.clone())));
        Ok(rows.into_iter().filter_map(|(minute, row)| row.kept(minute)).collect())
    }

    /// The rows of the journal.
    fn rows(&mut self, id: &ZoneId, minutes: Range<u32>) -> Result<Vec<(u32, Row)>, StoreError> {
        let rows = self.journal.minutes(id, minutes).map_err(|error| StoreError::Away(error.to_string()))?;
        Ok(rows.into_iter().map(|(minute, bytes)| (minute, Row::from_bytes(&bytes))).collect())
    }

    /// Makes all changes since the last commit durable. If nothing changed, the journal is not called, unless it failed and has written
    /// nothing since.
    ///
    /// # Errors
    /// [`StoreError::Away`]: the results of the group's calls must not be shown.
    pub fn commit(&mut self, now: Now) -> Result<(), StoreError> {
        if let Some(why) = &self.away {
            return Err(StoreError::Away(why.clone()));
        }
        let now = self.not_before(now);
        let mut zones = Vec::new();
        for id in std::mem::take(&mut self.touched) {
            if let Some(changes) = self.zones.get_mut(&id).and_then(Zone::take_delta) {
                zones.push((id, changes));
            }
        }
        let of_zone = |id: ZoneId| self.learned.get(&id).map(|learned| (id, learned.clone()));
        let learned: Vec<_> =
            std::mem::take(&mut self.newly_learned).into_iter().filter_map(of_zone).collect();
        let of_draw = |key: DrawKey| self.draws.get(&key).map(|record| (key, record.clone()));
        let draws: Vec<_> = std::mem::take(&mut self.new_draws).into_iter().filter_map(of_draw).collect();
        let minutes: Vec<_> = std::mem::take(&mut self.new_minutes)
            .into_iter()
            .map(|(key, row)| (key, row.to_bytes()))
            .collect();
        let has_changes =
            !zones.is_empty() || !learned.is_empty() || !draws.is_empty() || !minutes.is_empty();
        if (has_changes || self.is_unproved)
            && let Err(error) = self.journal.commit(&Batch { at_ms: now.ms, zones, learned, draws, minutes })
        {
            return Err(self.abandon(error.to_string()));
        }
        self.is_unproved = false;
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
        self.newly_learned.clear();
        self.new_draws.clear();
        self.new_minutes.clear();
        self.away = Some(why.clone());
        self.is_unproved = true;
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
        // They may have tickets that the journal refused.
        self.recent_joins.clear();
        for (id, &(policy, epoch)) in &self.puts {
            match load_zone(policy, epoch, loaded.images.get(id), now) {
                Ok(zone) => {
                    loaded.images.remove(id);
                    self.zones.insert(id.clone(), zone);
                    self.touched.insert(id.clone());
                }
                // It is no longer active, and its next put fails. The others work.
                Err(why) => tracing::error!(zone = %id, "{}", StoreError::Unreadable(why)),
            }
        }
        self.inactive = loaded.images;
        self.learned = loaded.learned;
        self.draws = loaded.draws;
        Ok(())
    }

    fn not_before(&mut self, now: Now) -> Now {
        self.floor_ms = self.floor_ms.max(now.ms);
        Now { ms: self.floor_ms, ..now }
    }

    fn zone(&mut self, id: &ZoneId) -> Result<&mut Zone, StoreError> {
        let zone = self.zones.get_mut(id).ok_or(StoreError::UnknownZone)?;
        if !self.touched.contains(id) {
            self.touched.insert(id.clone());
        }
        Ok(zone)
    }
}
