//! The part of a zone's state that must survive the process, and how to restore it.
//!
//! Durable are `next` (otherwise a number would be issued twice), `gone` (otherwise a holder would enter twice, or be
//! overtaken by an evicted ticket), and the recent entries (for repeated passes and for the window). Polls are not durable:
//! after a restart every holder has the whole idle time to poll again, and counts as told the longest period.
//!
//! Invariant: an image that received every delta of a zone restores the same tickets and entries.

use std::{cmp::Reverse, sync::Arc};

use super::{Entry, MOST_NUMBERS, Zone};
use crate::{
    LastDeal, Now, PAGE_TICKETS, PAGE_WORDS, Policy, Tally, Window, Words,
    segment::{PAGES, SEGMENT, SEGMENT_TICKETS, Segment},
};

/// The numbers of a zone that must be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The line's epoch.
    pub epoch: u32,
    /// The next ticket to be issued.
    pub next: u64,
    /// The first page that is kept. All tickets before it are gone.
    pub base_page: u64,
    /// How many people are inside; `None` where nobody counts, or where nobody knows it yet.
    pub inside: Option<u64>,
    /// By which draw the line was dealt last.
    pub drawn: LastDeal,
    /// What has happened in the zone so far.
    pub totals: Totals,
}

/// The totals of a zone that only grow. They change only with a ticket, so they are durable without a write more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Issued tickets.
    pub joined: u64,
    /// Entries.
    pub entered: u64,
    /// Places that ended without an entry: the holder was silent, or gave up.
    pub evicted: u64,
    /// Entries from the line.
    pub slots_used: u64,
}

impl From<&Tally> for Totals {
    fn from(tally: &Tally) -> Self {
        let Tally { joined, entered, evicted, slots_used, .. } = *tally;
        Self { joined, entered, evicted, slots_used }
    }
}

/// The changes that must be durable before the replies are sent.
#[derive(Clone, Debug)]
pub struct Delta {
    /// The zone's numbers after the changes.
    pub header: Header,
    /// The pages whose `gone` bits changed, whole, by number.
    pub pages: Vec<(u64, Arc<Words>)>,
    /// The numbers of the pages that are not needed any more.
    pub dropped: std::ops::Range<u64>,
    /// New entries, by ticket, and those that were left, with a life of 0.
    pub entered: Vec<(u64, Entry)>,
    /// The addresses that entries were bound to, by ticket. They are forgotten with the entry.
    pub bound: Vec<(u64, u64)>,
    /// The tickets whose entries have expired.
    pub forgotten: Vec<u64>,
}

/// A zone's durable state.
#[derive(Clone, Debug)]
pub struct Image {
    /// The zone's numbers.
    pub header: Header,
    /// The pages from `base_page` on, by number, in any order. A missing page has no bits.
    pub pages: Vec<(u64, Box<Words>)>,
    /// The entries, by ticket, in any order.
    pub entries: Vec<(u64, Entry)>,
    /// The addresses that entries are bound to, by ticket, in any order.
    pub bound: Vec<(u64, u64)>,
}

/// The longest time for which the window counts an entry, in milliseconds.
const MINUTE_MS: u64 = 60_000;

/// An image is not the state of any zone; says why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Inconsistent(pub String);

/// The changes since the last [`Zone::take_delta`].
#[derive(Clone)]
pub(super) struct Unsaved {
    header: Option<Header>,
    base_page: u64,
    pub(super) entered: Vec<(u64, Entry)>,
    pub(super) bound: Vec<(u64, u64)>,
    pub(super) forgotten: Vec<u64>,
}

impl Unsaved {
    pub(super) fn new(base_page: u64) -> Self {
        Self { header: None, base_page, entered: Vec::new(), bound: Vec::new(), forgotten: Vec::new() }
    }
}

impl Zone {
    /// Returns the changes since the last call; `None` if there are none. A new zone has its header to save.
    pub fn take_delta(&mut self) -> Option<Delta> {
        let base_page = self.base * PAGES as u64;
        // Who they are is not kept: they show themselves.
        let counts = self.policy.max_active > 0;
        let inside = self.inside.known(self.now_ms).filter(|_| counts);
        let totals = Totals::from(&self.tally);
        let header =
            Header { epoch: self.epoch, next: self.next, base_page, inside, drawn: self.drawn, totals };
        let mut pages = Vec::new();
        for (segment, first_page) in self.segments.iter_mut().zip((base_page..).step_by(PAGES)) {
            for ((page, dirty), index) in segment.gone.iter().zip(&mut segment.dirty).zip(first_page..) {
                if std::mem::take(dirty) {
                    pages.push((index, Arc::clone(page)));
                }
            }
        }
        let unsaved = &self.unsaved;
        let nothing = pages.is_empty()
            && unsaved.entered.is_empty()
            && unsaved.bound.is_empty()
            && unsaved.forgotten.is_empty();
        if nothing && unsaved.header == Some(header) {
            return None;
        }
        let unsaved = std::mem::replace(&mut self.unsaved, Unsaved::new(base_page));
        self.unsaved.header = Some(header);
        Some(Delta {
            header,
            pages,
            dropped: unsaved.base_page..base_page,
            entered: unsaved.entered,
            bound: unsaved.bound,
            forgotten: unsaved.forgotten,
        })
    }

    /// Restores a zone from `image`. Every waiting holder counts as just heard.
    ///
    /// # Errors
    /// [`Inconsistent`] if the image cannot be a zone's state.
    pub fn restore(policy: Policy, image: Image, now: Now) -> Result<Self, Inconsistent> {
        let header = image.header;
        let per_page = PAGE_TICKETS as u64;
        let inconsistent = |why: String| Err(Inconsistent(why));
        let Some(issued) = header.next.checked_sub(header.base_page.saturating_mul(per_page)) else {
            return inconsistent(format!("the line starts at page {}, after its end", header.base_page));
        };
        if issued > MOST_NUMBERS {
            return inconsistent(format!(
                "its line spans {issued} numbers; a store keeps at most {MOST_NUMBERS}"
            ));
        }
        // A line starts with a whole segment. The pages of that segment before `base_page` are gone.
        let base = header.base_page / PAGES as u64;
        let first_page = base * PAGES as u64;
        let segments = usize::try_from(header.next / SEGMENT - base + 1).unwrap_or(usize::MAX);
        let none = Arc::new([0; PAGE_WORDS]);
        let mut pages = vec![none; segments * PAGES];
        let before = usize::try_from(header.base_page - first_page).unwrap_or(usize::MAX);
        pages[..before].fill(Arc::new([u64::MAX; PAGE_WORDS]));
        for (index, words) in image.pages {
            let at = index.checked_sub(first_page).and_then(|i| usize::try_from(i).ok());
            match at.filter(|&i| i >= before).and_then(|i| pages.get_mut(i)) {
                Some(page) => *page = Arc::new(sabotaged(*words)),
                None => return inconsistent(format!("page {index} is outside the line")),
            }
        }
        let mut zone = Self::at(policy, header.epoch, header.next, base, now);
        let mut left = usize::try_from(header.next - base * SEGMENT).unwrap_or(usize::MAX);
        for (gone, number) in pages.chunks_exact(PAGES).zip(base..) {
            let issued = left.min(SEGMENT_TICKETS);
            left -= issued;
            let gone = std::array::from_fn(|i| Arc::clone(&gone[i]));
            match Segment::restore(gone, issued, zone.clock()) {
                Ok(segment) => zone.segments.push_back(segment),
                Err(page) => {
                    return inconsistent(format!(
                        "page {}: a ticket is gone that was never issued",
                        number * PAGES as u64 + page as u64
                    ));
                }
            }
        }
        // The line now starts at an earlier page than the image, so the pages before `base_page` must be saved.
        zone.segments[0].dirty[..before].fill(true);
        let mut entries = image.entries;
        entries.sort_unstable_by_key(|&(seq, entry)| (entry.at_ms, seq));
        let mut window = Window::clone(&zone.window);
        for &(seq, entry) in &entries {
            if seq >= header.next || zone.is_live(seq) {
                if sabotaged([1; PAGE_WORDS]) == [0; PAGE_WORDS] {
                    continue;
                }
                return inconsistent(format!("ticket {seq} entered, and it still waits"));
            }
            // An entry in the future means that the clock lost time. It counts as an entry at `now`, so that the window
            // stays closed at least as long as it must.
            window.record(entry.at_ms.min(now.ms), 1);
            zone.entries.insert(seq, entry);
            // An entry that was left still counts in the window.
            zone.expiries.push(Reverse((entry.expires_ms().max(entry.at_ms + MINUTE_MS), seq)));
        }
        let of_entries = image.bound.into_iter().filter(|(seq, _)| zone.entries.contains_key(seq));
        zone.bound = of_entries.collect();
        window.advance(now.ms);
        zone.window = Arc::new(window);
        // What people were told is not durable. A busy server may have told them the longest period.
        zone.note_longest_period(policy.period_limit_ms(), now);
        zone.marks.clear();
        match header.inside {
            _ if policy.max_active == 0 => {}
            Some(count) => zone.inside.expect(count, &policy, now.ms),
            None => zone.inside.begin_blind(&policy, now.ms),
        }
        zone.drawn = header.drawn;
        let Totals { joined, entered, evicted, slots_used } = header.totals;
        zone.tally = Tally { joined, entered, evicted, slots_used, ..zone.tally };
        zone.unsaved.header = Some(header);
        Ok(zone)
    }
}

#[cfg(feature = "sabotage")]
fn sabotaged(words: Words) -> Words {
    if crate::sabotage::on(crate::sabotage::Rule::Restore) { [0; PAGE_WORDS] } else { words }
}

#[cfg(not(feature = "sabotage"))]
fn sabotaged(words: Words) -> Words {
    words
}
