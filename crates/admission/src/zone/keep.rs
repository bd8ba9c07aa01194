//! What of a zone has to outlive the process, and the way back.
//!
//! Durable are: `next` (or a number would be given out twice), `gone` (or somebody would enter twice, or be
//! overtaken by an evicted ticket), and who entered lately (for the same pass again, and for the window). Who polled
//! is not: after a restart everybody who waits has the whole idle time to be heard again.

use std::sync::Arc;

use super::{Entry, Zone};
use crate::{Now, Policy, SEGMENT_TICKETS, SEGMENT_WORDS, Words, segment::Segment};

/// The few numbers of a zone that have to be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Which life of the line this is.
    pub epoch: u32,
    /// The next ticket number.
    pub next: u64,
    /// The first segment that is kept; all tickets before are gone.
    pub base_segment: u64,
}

/// What has to be durable before the replies go out.
#[derive(Clone, Debug)]
pub struct Changes {
    /// As it is now.
    pub header: Header,
    /// Segments whose `gone` bits changed, whole.
    pub segments: Vec<(u64, Arc<Words>)>,
    /// Segments that are not kept any more.
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
    /// The segments from `base_segment` on that have bits, in any order; one that is missing has none.
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
pub(super) struct Unkept {
    header: Option<Header>,
    base_segment: u64,
    pub(super) entered: Vec<(u64, Entry)>,
    pub(super) forgotten: Vec<u64>,
}

impl Unkept {
    pub(super) fn new(base_segment: u64) -> Self {
        Self { header: None, base_segment, entered: Vec::new(), forgotten: Vec::new() }
    }
}

impl Zone {
    /// What changed since this was last asked; none where nothing did. A new zone has its header to keep.
    pub fn take_changes(&mut self) -> Option<Changes> {
        let header = Header { epoch: self.epoch, next: self.next, base_segment: self.base_segment };
        let base_segment = self.base_segment;
        let dirty = self.segments.iter_mut().zip(base_segment..).filter(|(segment, _)| segment.dirty);
        let segments: Vec<_> = dirty
            .map(|(segment, index)| {
                segment.dirty = false;
                (index, Arc::clone(&segment.gone))
            })
            .collect();
        let nothing = segments.is_empty() && self.kept.entered.is_empty() && self.kept.forgotten.is_empty();
        if nothing && self.kept.header == Some(header) {
            return None;
        }
        let kept = std::mem::replace(&mut self.kept, Unkept::new(base_segment));
        self.kept.header = Some(header);
        Some(Changes {
            header,
            segments,
            dropped: kept.base_segment..base_segment,
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
        let per_segment = SEGMENT_TICKETS as u64;
        let inconsistent = |what: String| Err(Inconsistent(what));
        let Some(given) = header.next.checked_sub(header.base_segment.saturating_mul(per_segment)) else {
            return inconsistent(format!(
                "the line starts at segment {}, after its end",
                header.base_segment
            ));
        };
        let count = usize::try_from(given / per_segment).unwrap_or(usize::MAX);
        if count > MAX_SEGMENTS {
            return inconsistent(format!("a line of {given} tickets is longer than any"));
        }
        let mut gone: Vec<Option<Box<Words>>> = vec![None; count + 1];
        for (index, words) in image.segments {
            let place = index.checked_sub(header.base_segment).and_then(|i| usize::try_from(i).ok());
            match place.and_then(|i| gone.get_mut(i)) {
                Some(slot) => *slot = Some(words),
                None => return inconsistent(format!("segment {index} is outside the line")),
            }
        }
        let mut zone = Self::at(policy, header, now.ms);
        for (i, words) in gone.into_iter().enumerate() {
            let given =
                if i < count { SEGMENT_TICKETS } else { usize::try_from(given % per_segment).unwrap_or(0) };
            let words = words.map_or([0; SEGMENT_WORDS], |words| *words);
            match Segment::restore(sabotaged(words), given) {
                Ok(segment) => zone.segments.push_back(segment),
                Err(what) => {
                    return inconsistent(format!("segment {}: {what}", header.base_segment + i as u64));
                }
            }
        }
        let mut entries = image.entries;
        entries.sort_unstable_by_key(|&(seq, entry)| (entry.at_ms, seq));
        for &(seq, entry) in &entries {
            if seq >= header.next || zone.is_live(seq) {
                if sabotaged([1; SEGMENT_WORDS]) == [0; SEGMENT_WORDS] {
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
        zone.ideal = zone.window.clone();
        zone.plan_is_old = true;
        zone.kept.header = Some(header);
        zone.see_everybody();
        let span = zone.presence();
        for segment in &mut zone.segments {
            segment.count(span);
        }
        zone.watched.0 = zone.now_ms;
        Ok(zone)
    }
}

/// A line of 268 million tickets: far beyond any, and what a damaged header must not make us allocate.
const MAX_SEGMENTS: usize = 1 << 15;

#[cfg(feature = "sabotage")]
fn sabotaged(words: Words) -> Words {
    if crate::sabotage::on(crate::sabotage::Rule::Restore) { [0; SEGMENT_WORDS] } else { words }
}

#[cfg(not(feature = "sabotage"))]
fn sabotaged(words: Words) -> Words {
    words
}
