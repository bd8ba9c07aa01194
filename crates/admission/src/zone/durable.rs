//! What of a zone has to outlive the process, and the way back.
//!
//! Durable are: `next` (or a number would be given out twice), `gone` (or somebody would enter twice, or be
//! overtaken by an evicted ticket), and who entered lately (for the same pass again, and for the window). Who polled
//! is not: after a restart everybody who waits has the whole idle time to be heard again.

use std::sync::Arc;

use super::{Entry, Zone};
use crate::{
    Now, PAGE_TICKETS, PAGE_WORDS, Policy, Words,
    segment::{PAGES, SEGMENT_TICKETS, Segment},
};

/// The few numbers of a zone that have to be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Which life of the line this is.
    pub epoch: u32,
    /// The next ticket number.
    pub next: u64,
    /// The first page that is kept; all tickets before are gone.
    pub base_page: u64,
}

/// What has to be durable before the replies go out.
#[derive(Clone, Debug)]
pub struct Delta {
    /// As it is now.
    pub header: Header,
    /// Pages whose `gone` bits changed, whole.
    pub segments: Vec<(u64, Arc<Words>)>,
    /// Pages that are not kept any more.
    pub dropped: std::ops::Range<u64>,
    /// Who entered.
    pub entered: Vec<(u64, Entry)>,
    /// Whose entry need not be remembered any more.
    pub forgotten: Vec<u64>,
}

/// A zone as it was kept.
#[derive(Clone, Debug)]
pub struct Image {
    /// Its numbers.
    pub header: Header,
    /// The pages from `base_page` on that have bits, in any order; one that is missing has none.
    pub segments: Vec<(u64, Box<Words>)>,
    /// Who entered, in any order.
    pub entries: Vec<(u64, Entry)>,
}

/// An image that no zone can have left behind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Inconsistent(pub String);

/// What changed since it was last kept.
#[derive(Clone)]
pub(super) struct Unsaved {
    header: Option<Header>,
    base_page: u64,
    pub(super) entered: Vec<(u64, Entry)>,
    pub(super) forgotten: Vec<u64>,
}

impl Unsaved {
    pub(super) fn new(base_page: u64) -> Self {
        Self { header: None, base_page, entered: Vec::new(), forgotten: Vec::new() }
    }
}

impl Zone {
    /// What changed since this was last asked; none where nothing did. A new zone has its header to keep.
    pub fn take_delta(&mut self) -> Option<Delta> {
        let base_page = self.base * PAGES as u64;
        let header = Header { epoch: self.epoch, next: self.next, base_page };
        let mut segments = Vec::new();
        for (segment, first_page) in self.segments.iter_mut().zip((base_page..).step_by(PAGES)) {
            for ((page, dirty), index) in segment.gone.iter().zip(&mut segment.dirty).zip(first_page..) {
                if std::mem::take(dirty) {
                    segments.push((index, Arc::clone(page)));
                }
            }
        }
        let nothing = segments.is_empty() && self.kept.entered.is_empty() && self.kept.forgotten.is_empty();
        if nothing && self.kept.header == Some(header) {
            return None;
        }
        let kept = std::mem::replace(&mut self.kept, Unsaved::new(base_page));
        self.kept.header = Some(header);
        Some(Delta {
            header,
            segments,
            dropped: kept.base_page..base_page,
            entered: kept.entered,
            forgotten: kept.forgotten,
        })
    }

    /// A zone that goes on from `image`. Everybody who waits counts as seen just now.
    ///
    /// # Errors
    /// [`Inconsistent`] where the image can't be a zone's.
    pub fn restore(policy: Policy, image: Image, now: Now) -> Result<Self, Inconsistent> {
        let header = image.header;
        let per_page = PAGE_TICKETS as u64;
        let inconsistent = |what: String| Err(Inconsistent(what));
        let Some(given) = header.next.checked_sub(header.base_page.saturating_mul(per_page)) else {
            return inconsistent(format!("the line starts at segment {}, after its end", header.base_page));
        };
        if given / per_page > MOST_PAGES {
            return inconsistent(format!("a line of {given} tickets is longer than any"));
        }
        // The line starts with a whole segment; the pages before the one it was kept from are gone.
        let base = header.base_page / PAGES as u64;
        let first_page = base * PAGES as u64;
        let segments = usize::try_from(header.next / SEGMENT_TICKETS as u64 - base + 1).unwrap_or(usize::MAX);
        let none = Arc::new([0; PAGE_WORDS]);
        let mut pages = vec![none; segments * PAGES];
        let before = usize::try_from(header.base_page - first_page).unwrap_or(usize::MAX);
        pages[..before].fill(Arc::new([u64::MAX; PAGE_WORDS]));
        for (index, words) in image.segments {
            let place = index.checked_sub(first_page).and_then(|i| usize::try_from(i).ok());
            match place.filter(|&i| i >= before).and_then(|i| pages.get_mut(i)) {
                Some(page) => *page = Arc::new(sabotaged(*words)),
                None => return inconsistent(format!("segment {index} is outside the line")),
            }
        }
        let mut zone = Self::at(policy, header.epoch, header.next, base, now.ms);
        let mut left = usize::try_from(header.next - base * SEGMENT_TICKETS as u64).unwrap_or(usize::MAX);
        for (gone, number) in pages.chunks_exact(PAGES).zip(base..) {
            let given = left.min(SEGMENT_TICKETS);
            left -= given;
            let gone = std::array::from_fn(|i| Arc::clone(&gone[i]));
            match Segment::restore(gone, given, zone.clock()) {
                Ok(segment) => zone.segments.push_back(segment),
                Err(page) => {
                    return inconsistent(format!(
                        "segment {}: a ticket is gone that was never given out",
                        number * PAGES as u64 + page as u64
                    ));
                }
            }
        }
        // Kept from an earlier page on now, so that those before have to be kept too.
        zone.segments[0].dirty[..before].fill(true);
        let mut entries = image.entries;
        entries.sort_unstable_by_key(|&(seq, entry)| (entry.at_ms, seq));
        for &(seq, entry) in &entries {
            if seq >= header.next || zone.is_live(seq) {
                if sabotaged([1; PAGE_WORDS]) == [0; PAGE_WORDS] {
                    continue;
                }
                return inconsistent(format!("ticket {seq} entered, and it still waits"));
            }
            // An entry later than now: the clock lost time. It counts as of now, so that the window stays shut at
            // least as long as it must.
            zone.window.record(entry.at_ms.min(now.ms), 1);
            zone.entries.insert(seq, entry);
            zone.entered.push_back((entry.at_ms, seq));
        }
        zone.window.advance(now.ms);
        zone.kept.header = Some(header);
        Ok(zone)
    }
}

/// A line of 268 million tickets: far beyond any, and what a damaged header must not make us allocate.
const MOST_PAGES: u64 = 1 << 15;

#[cfg(feature = "sabotage")]
fn sabotaged(words: Words) -> Words {
    if crate::sabotage::on(crate::sabotage::Rule::Restore) { [0; PAGE_WORDS] } else { words }
}

#[cfg(not(feature = "sabotage"))]
fn sabotaged(words: Words) -> Words {
    words
}
