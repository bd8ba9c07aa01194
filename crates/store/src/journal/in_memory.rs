//! A journal in memory, for tests and simulations. The journal on disk is compared with it.
//!
//! Invariant: it does what each journal must do, in the simplest way.

use std::{collections::BTreeMap, ops::Range};

use admission::{Delta, Entry, Header, Image, Words, ZoneId};

use super::{
    Batch, DrawKey, Journal, JournalError, Loaded, MINUTES_MAX, MINUTES_SWEPT, MinuteKey, swept_before,
};

/// Stores zones in memory.
#[derive(Clone, Debug, Default)]
pub struct MemoryJournal {
    last_ms: u64,
    zones: BTreeMap<ZoneId, Kept>,
    learned: BTreeMap<ZoneId, Vec<u8>>,
    draws: BTreeMap<DrawKey, Vec<u8>>,
    minutes: BTreeMap<MinuteKey, Vec<u8>>,
}

#[derive(Clone, Debug)]
struct Kept {
    header: Header,
    pages: BTreeMap<u64, Box<Words>>,
    entries: BTreeMap<u64, Entry>,
    bound: BTreeMap<u64, u64>,
}

impl Kept {
    fn apply(&mut self, changes: &Delta) {
        self.header = changes.header;
        self.pages.extend(changes.pages.iter().map(|(index, words)| (*index, Box::new(**words))));
        self.pages.retain(|index, _| !changes.dropped.contains(index));
        self.entries.extend(changes.entered.iter().copied());
        self.bound.extend(changes.bound.iter().copied());
        for seq in &changes.forgotten {
            self.entries.remove(seq);
            self.bound.remove(seq);
        }
    }

    fn image(&self) -> Image {
        Image {
            header: self.header,
            pages: self.pages.iter().map(|(&index, words)| (index, words.clone())).collect(),
            entries: self.entries.iter().map(|(&seq, &entry)| (seq, entry)).collect(),
            bound: self.bound.iter().map(|(&seq, &address)| (seq, address)).collect(),
        }
    }
}

impl Journal for MemoryJournal {
    fn load(&mut self) -> Result<Loaded, JournalError> {
        let images = self.zones.iter().map(|(id, kept)| (id.clone(), kept.image())).collect();
        Ok(Loaded { last_ms: self.last_ms, images, learned: self.learned.clone(), draws: self.draws.clone() })
    }

    fn commit(&mut self, batch: &Batch) -> Result<(), JournalError> {
        self.last_ms = batch.at_ms;
        for (id, changes) in &batch.zones {
            let new = || Kept {
                header: changes.header,
                pages: BTreeMap::new(),
                entries: BTreeMap::new(),
                bound: BTreeMap::new(),
            };
            self.zones.entry(id.clone()).or_insert_with(new).apply(changes);
        }
        self.learned.extend(batch.learned.iter().cloned());
        self.draws.extend(batch.draws.iter().cloned());
        self.minutes.extend(batch.minutes.iter().cloned());
        let swept_before = swept_before(batch);
        for _ in 0..MINUTES_SWEPT {
            let too_many = self.minutes.len() as u64 > MINUTES_MAX;
            let is_old = |((minute, _), _): (&MinuteKey, _)| *minute < swept_before;
            if !too_many && !self.minutes.first_key_value().is_some_and(is_old) {
                break;
            }
            self.minutes.pop_first();
        }
        Ok(())
    }

    fn minutes(&mut self, zone: &ZoneId, minutes: Range<u32>) -> Result<Vec<(u32, Vec<u8>)>, JournalError> {
        let kept = |minute| Some((minute, self.minutes.get(&(minute, zone.clone()))?.clone()));
        Ok(minutes.filter_map(kept).collect())
    }
}
