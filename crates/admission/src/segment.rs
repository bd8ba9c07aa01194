//! Sets of tickets as bitmaps.
//!
//! A line consists of segments of 65,536 tickets. Each segment records up to which instant it was updated, because time
//! passes for a segment only when it is touched. Data that leaves the zone (views, polls, the journal) is cut into pages of
//! 8,192 tickets.
//!
//! A ticket costs six bits: *gone* (entered or evicted), *here* (its holder is present), and four bits of *age*, bit-sliced:
//! the number of generations since its holder was last heard. A generation is a twelfth of the idle time. `Segment::end_generation` evicts
//! people who stop asking.
//!
//! The first tickets of a segment may belong to the front of the line. Their holders claim when they poll, so only a claim
//! makes them present. A report of their polls keeps them from eviction, and nothing more.
//!
//! A full segment in which nobody waits is *freed*: nobody will ever wait there again, so it keeps its counts and no bitmaps.
//!
//! Invariants: `live` counts the issued tickets that are not gone; `present` counts the bits of `here`; a present ticket is
//! live; a ticket that is not live has age 0.

use std::sync::{Arc, LazyLock};

use crate::CensusSegment;

/// The tickets of a page.
pub const PAGE_TICKETS: usize = 8_192;
/// The words of a page's bitmap.
pub const PAGE_WORDS: usize = PAGE_TICKETS / 64;
/// A bitmap over a page's tickets: ticket `i` is bit `i % 64` of word `i / 64`.
pub type Words = [u64; PAGE_WORDS];

/// The pages of a segment.
pub(crate) const PAGES: usize = 8;
/// The tickets of a segment.
pub(crate) const SEGMENT_TICKETS: usize = PAGES * PAGE_TICKETS;
/// The tickets of a segment, to compute with ticket numbers.
pub const SEGMENT: u64 = SEGMENT_TICKETS as u64;
/// The words of a segment's bitmap.
pub const SEGMENT_WORDS: usize = PAGES * PAGE_WORDS;

/// A ticket of this age is evicted: fourteen generations have ended since a report of its holder, so thirteen whole ones have passed. Twelve
/// are the idle time; the other one is for the next report. Whoever asks just before the idle time is over is reported up to a second after it.
pub const IDLE_AGE: u64 = 14;

/// The unit of [`Clock::seen_all`] for holders who were all treated as just heard.
pub(crate) const HEARD: u64 = 1 << 16;

/// The most generations that one touch applies. After that many, every ticket is evicted.
const MOST_MISSED: u64 = 16;

/// A page in which every ticket is gone. Freed segments share it.
static ALL_GONE: LazyLock<Arc<Words>> = LazyLock::new(|| Arc::new([u64::MAX; PAGE_WORDS]));

/// A bitmap over a segment's tickets.
pub(crate) type Bits = [u64; SEGMENT_WORDS];

/// The ages of a segment's tickets, in generations. A ticket of which nothing is kept has age 0.
#[derive(Clone)]
pub(crate) struct Ages {
    /// Plane `i` holds bit `i` of each ticket's age.
    planes: [Bits; 4],
}

impl Ages {
    pub(crate) const NONE: Self = Self { planes: [[0; SEGMENT_WORDS]; 4] };

    /// The tickets of a word that have this age.
    pub(crate) fn of_age(&self, word: usize, age: u64) -> u64 {
        let plane = |i: usize| if age >> i & 1 == 1 { self.planes[i][word] } else { !self.planes[i][word] };
        (0..self.planes.len()).fold(u64::MAX, |of_age, i| of_age & plane(i))
    }

    /// The tickets of a word that are older than this.
    fn older_than(&self, word: usize, age: u64) -> u64 {
        let (mut older, mut equal) = (0, u64::MAX);
        for i in (0..self.planes.len()).rev() {
            let plane = self.planes[i][word];
            if age >> i & 1 == 1 {
                equal &= plane;
            } else {
                older |= equal & plane;
                equal &= !plane;
            }
        }
        older
    }

    pub(crate) fn age(&self, ticket: usize) -> u8 {
        let bits = self.planes.iter().rev().map(|plane| plane[ticket / 64] >> (ticket % 64) & 1);
        bits.fold(0, |age, bit| age << 1 | u8::from(bit == 1))
    }

    /// Adds 1 to the ages in `bits`.
    pub(crate) fn grow_ages(&mut self, word: usize, bits: u64) {
        let mut carry = bits;
        for plane in &mut self.planes {
            let sum = plane[word] ^ carry;
            carry &= plane[word];
            plane[word] = sum;
        }
    }

    /// Checks that only these tickets have an age, and none one at which it is evicted.
    pub(crate) fn check(&self, word: usize, have: u64) {
        let [one, two, four, eight] = self.planes.each_ref().map(|plane| plane[word]);
        assert_eq!((one | two | four | eight) & !have, 0, "a ticket of which nothing is kept has no age");
        assert_eq!(two & four & eight, 0, "of age 14 or 15 is nobody");
    }

    /// Whether no ticket from this word on has an age.
    fn are_none_from(&self, word: usize) -> bool {
        self.planes.iter().flat_map(|plane| &plane[word..]).fold(0, |all, word| all | word) == 0
    }

    pub(crate) fn reset_ages(&mut self, word: usize, bits: u64) {
        for plane in &mut self.planes {
            plane[word] &= !bits;
        }
    }
}

/// What is known of the holders of a segment's live tickets.
#[derive(Clone)]
struct Holders {
    here: Bits,
    ages: Ages,
}

impl Holders {
    const NONE: Self = Self { here: [0; SEGMENT_WORDS], ages: Ages::NONE };
}

/// The zone's time, as its segments need it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// The running generation.
    pub(crate) generation: u64,
    /// How often all holders were treated as just heard, times [`HEARD`], and how often since then their ages began anew, because
    /// generations have another length: that leaves everybody as present or absent as before.
    pub(crate) seen_all: u64,
    /// The highest age at which a holder is present.
    pub(crate) present_age: u64,
    /// The same for holders who approach the front, and were told so (see [`Segment::near`]).
    pub(crate) near_age: u64,
    /// Whether nobody is evicted now. Ages stop at the last one before eviction.
    pub(crate) spares: bool,
}

#[derive(Clone)]
pub(crate) struct Segment {
    pub(crate) gone: [Arc<Words>; PAGES],
    /// The pages whose `gone` bits changed since they were last saved.
    pub(crate) dirty: [bool; PAGES],
    /// `None` in a freed segment.
    holders: Option<Box<Holders>>,
    /// Tickets issued in this segment. Only the last segment has fewer than [`SEGMENT_TICKETS`].
    pub(crate) issued: usize,
    pub(crate) live: u32,
    pub(crate) present: u32,
    /// The tickets below this number belong to the front, as of the last beat.
    pub(crate) front: usize,
    /// The holders of tickets below this number have been told the near period.
    pub(crate) near: usize,
    /// The generation up to which this segment was updated.
    pub(crate) generation: u64,
    /// The [`Clock::seen_all`] up to which this segment was updated.
    pub(crate) seen_all: u64,
}

impl Segment {
    pub(crate) fn new(clock: Clock) -> Self {
        let none = Arc::new([0; PAGE_WORDS]);
        Self {
            gone: std::array::from_fn(|_| Arc::clone(&none)),
            dirty: [false; PAGES],
            holders: Some(Box::new(Holders::NONE)),
            issued: 0,
            live: 0,
            present: 0,
            front: 0,
            near: 0,
            generation: clock.generation,
            seen_all: clock.seen_all,
        }
    }

    /// Restores a saved segment with `issued` tickets. Every waiting holder counts as just heard.
    ///
    /// # Errors
    /// The page, if a ticket is gone that was never issued.
    pub(crate) fn restore(gone: [Arc<Words>; PAGES], issued: usize, clock: Clock) -> Result<Self, usize> {
        let mut segment = Self { gone, issued, ..Self::new(clock) };
        if let Some(word) = (0..SEGMENT_WORDS).find(|&w| segment.gone_in(w) & !segment.issued_in(w) != 0) {
            return Err(word / PAGE_WORDS);
        }
        segment.live = (0..SEGMENT_WORDS).map(|w| segment.live_in(w).count_ones()).sum();
        segment.hear_everybody();
        segment.free_bitmaps();
        Ok(segment)
    }

    /// A whole segment in which these people wait, as they were listed. Every one of them counts as just heard.
    pub(crate) fn dealt(listed: &CensusSegment, clock: Clock) -> Self {
        let mut segment = Self { issued: SEGMENT_TICKETS, dirty: [true; PAGES], ..Self::new(clock) };
        let mut holders = Box::new(Holders::NONE);
        for (word, (live, here)) in listed.live.iter().zip(&listed.here).enumerate().take(SEGMENT_WORDS) {
            segment.set_gone(word, !live);
            segment.live += live.count_ones();
            holders.here[word] = here & live;
            segment.present += (here & live).count_ones();
        }
        segment.holders = Some(holders);
        segment.free_bitmaps();
        segment
    }

    /// The same people in a whole segment, without those below a ticket.
    pub(crate) fn behind(&self, ticket: usize, clock: Clock) -> Self {
        let (mut live, mut here) = self.bits();
        for word in 0..SEGMENT_WORDS {
            let others = below(ticket, word);
            live[word] &= !others;
            here[word] &= !others;
        }
        let mut moved = Self::dealt(&CensusSegment { index: 0, live, here }, clock);
        if let (Some(from), Some(to)) = (&self.holders, &mut moved.holders) {
            to.ages = from.ages.clone();
            for word in 0..SEGMENT_WORDS {
                let gone = moved.gone[word / PAGE_WORDS][word % PAGE_WORDS];
                to.ages.reset_ages(word, gone);
            }
        }
        moved
    }

    /// Who waits, and who of them is present.
    pub(crate) fn bits(&self) -> (Vec<u64>, Vec<u64>) {
        let live = (0..SEGMENT_WORDS).map(|word| self.live_in(word)).collect();
        let here =
            self.holders.as_ref().map_or_else(|| vec![0; SEGMENT_WORDS], |holders| holders.here.to_vec());
        (live, here)
    }

    /// Frees the bitmaps if nobody waits in the segment, and nobody ever will again.
    pub(crate) fn free_bitmaps(&mut self) {
        if self.issued == SEGMENT_TICKETS && self.live == 0 && self.holders.is_some() {
            self.holders = None;
            self.gone = std::array::from_fn(|_| Arc::clone(&ALL_GONE));
        }
    }

    /// Whether the bitmaps are freed.
    pub(crate) fn is_freed(&self) -> bool {
        self.holders.is_none()
    }

    /// Checks the module's invariants.
    pub(crate) fn check(&self) {
        let (mut live, mut present) = (0, 0);
        let used = self.issued.div_ceil(64);
        for word in 0..used {
            let alive = self.live_in(word);
            live += alive.count_ones();
            let Some(holders) = &self.holders else { continue };
            present += holders.here[word].count_ones();
            assert_eq!(holders.here[word] & !alive, 0, "a present ticket is live");
            holders.ages.check(word, alive);
        }
        if let Some(holders) = &self.holders {
            let none_here = holders.here[used..].iter().fold(0, |all, word| all | word) == 0;
            assert!(none_here && holders.ages.are_none_from(used), "a number that nobody has is nobody's");
        }
        assert_eq!((live, present), (self.live, self.present));
        assert!(
            !self.is_freed() || (live == 0 && self.issued == SEGMENT_TICKETS),
            "somebody waits here, or will"
        );
    }

    fn gone_in(&self, word: usize) -> u64 {
        self.gone[word / PAGE_WORDS][word % PAGE_WORDS]
    }

    fn issued_in(&self, word: usize) -> u64 {
        below(self.issued, word)
    }

    fn live_in(&self, word: usize) -> u64 {
        self.issued_in(word) & !self.gone_in(word)
    }

    pub(crate) fn is_live(&self, ticket: usize) -> bool {
        self.live_in(ticket / 64) >> (ticket % 64) & 1 == 1
    }

    pub(crate) fn is_here(&self, ticket: usize) -> bool {
        self.holders.as_ref().is_some_and(|holders| holders.here[ticket / 64] >> (ticket % 64) & 1 == 1)
    }

    pub(crate) fn age(&self, ticket: usize) -> u8 {
        self.holders.as_ref().map_or(0, |holders| holders.ages.age(ticket))
    }

    /// Updates the segment to `clock`, and returns how many tickets that evicts.
    pub(crate) fn touch(&mut self, clock: Clock) -> u32 {
        let mut evicted = 0;
        if self.seen_all / HEARD < clock.seen_all / HEARD {
            self.hear_everybody();
        } else if self.seen_all < clock.seen_all {
            self.restart_ages();
        } else {
            let missed = clock.generation.saturating_sub(self.generation).min(MOST_MISSED);
            for _ in 0..missed {
                evicted += self.end_generation(clock);
            }
        }
        (self.generation, self.seen_all) = (clock.generation, clock.seen_all);
        evicted
    }

    fn hear_everybody(&mut self) {
        let Some(mut holders) = self.holders.take() else { return };
        for word in 0..SEGMENT_WORDS {
            holders.here[word] = self.live_in(word);
        }
        holders.ages = Holders::NONE.ages;
        self.holders = Some(holders);
        self.present = self.live;
        (self.front, self.near) = (0, 0);
    }

    fn restart_ages(&mut self) {
        if let Some(holders) = &mut self.holders {
            holders.ages = Ages::NONE;
        }
    }

    /// Ends one generation, and returns how many tickets that evicts.
    fn end_generation(&mut self, Clock { present_age, near_age, spares, .. }: Clock) -> u32 {
        let (mut evicted, mut present) = (0, 0);
        if self.live == 0 {
            return 0;
        }
        let Some(mut holders) = self.holders.take() else { return 0 };
        for word in 0..SEGMENT_WORDS {
            let live = self.live_in(word);
            if live == 0 {
                continue;
            }
            holders.ages.grow_ages(word, live);
            let silent = evicting_age().map_or(0, |age| live & holders.ages.of_age(word, age));
            if spares {
                // 14 becomes 13.
                holders.ages.planes[0][word] ^= silent;
                holders.ages.planes[1][word] ^= silent;
            } else if silent != 0 {
                evicted += silent.count_ones();
                self.set_gone(word, silent);
                holders.here[word] &= !silent;
                holders.ages.reset_ages(word, silent);
            }
            if !sabotaged_presence() {
                // Some are much older after the period was shortened.
                holders.here[word] &= !holders.ages.older_than(word, present_age);
                holders.here[word] &= !(holders.ages.of_age(word, near_age + 1) & below(self.near, word));
            }
            present += holders.here[word].count_ones();
        }
        self.holders = Some(holders);
        self.live -= evicted;
        self.present = present;
        evicted
    }

    fn set_gone(&mut self, word: usize, bits: u64) {
        let page = word / PAGE_WORDS;
        Arc::make_mut(&mut self.gone[page])[word % PAGE_WORDS] |= bits;
        self.dirty[page] = true;
    }

    /// Issues the next ticket. Its holder is present, or the ticket is gone at once.
    pub(crate) fn issue(&mut self, gone: bool) {
        let ticket = self.issued;
        self.issued += 1;
        if gone {
            self.set_gone(ticket / 64, 1 << (ticket % 64));
        } else {
            self.live += 1;
            self.hear(ticket);
        }
    }

    /// The holder of a live ticket joined or claimed.
    pub(crate) fn hear(&mut self, ticket: usize) {
        let (word, bits) = (ticket / 64, 1 << (ticket % 64));
        self.hear_word(word, bits, bits);
    }

    fn hear_word(&mut self, word: usize, bits: u64, present: u64) {
        if let Some(holders) = &mut self.holders {
            holders.ages.reset_ages(word, bits);
            self.present += (present & !holders.here[word]).count_ones();
            holders.here[word] |= present;
        }
    }

    /// Servers report that the holders whose bits are set in `polls` polled.
    pub(crate) fn hear_polls(&mut self, page: usize, polls: &Words) {
        for (word, polls) in (page * PAGE_WORDS..).zip(polls) {
            let polled = polls & self.live_in(word);
            if polled != 0 {
                self.hear_word(word, polled, polled & !self.front_in(word));
            }
        }
    }

    fn front_in(&self, word: usize) -> u64 {
        if sabotaged_presence() { 0 } else { below(self.front, word) }
    }

    /// The holder did not claim until the appointment. In the front, such a holder is not present any more.
    pub(crate) fn note_overdue(&mut self, ticket: usize) {
        if ticket < self.front
            && self.is_here(ticket)
            && !sabotaged_presence()
            && let Some(holders) = &mut self.holders
        {
            holders.here[ticket / 64] &= !(1 << (ticket % 64));
            self.present -= 1;
        }
    }

    /// From now on, the tickets below `end` belong to the front. Returns the present ones that did not before.
    pub(crate) fn set_front(&mut self, end: usize) -> Vec<usize> {
        let before = std::mem::replace(&mut self.front, end);
        (before..end).filter(|&ticket| self.is_here(ticket)).collect()
    }

    /// From now on, the holders below `end` count as told the near period. Those who have been silent for too long for that
    /// are not present any more.
    pub(crate) fn set_near(&mut self, end: usize, near_age: u64) {
        let before = std::mem::replace(&mut self.near, end);
        let moves = end > before && !sabotaged_presence();
        let Some(holders) = self.holders.as_mut().filter(|_| moves) else { return };
        for word in before / 64..end.div_ceil(64) {
            let silent = holders.here[word] & holders.ages.older_than(word, near_age) & below(end, word);
            holders.here[word] &= !silent;
            self.present -= silent.count_ones();
        }
    }

    /// The holder of a present ticket enters: the ticket is gone.
    pub(crate) fn enter(&mut self, ticket: usize) {
        debug_assert!(self.is_live(ticket) && self.is_here(ticket), "the holder has just asked");
        let (word, bit) = (ticket / 64, 1 << (ticket % 64));
        self.set_gone(word, bit);
        if let Some(holders) = &mut self.holders {
            holders.here[word] &= !bit;
            holders.ages.reset_ages(word, bit);
        }
        self.live -= 1;
        self.present -= 1;
    }

    /// The holder of a live ticket gives up the place.
    pub(crate) fn give_up(&mut self, ticket: usize) {
        debug_assert!(self.is_live(ticket), "the caller looked");
        let (word, bit) = (ticket / 64, 1 << (ticket % 64));
        self.set_gone(word, bit);
        if let Some(holders) = &mut self.holders {
            self.present -= u32::from(holders.here[word] & bit != 0);
            holders.here[word] &= !bit;
            holders.ages.reset_ages(word, bit);
        }
        self.live -= 1;
    }

    /// How many of the tickets in `bits` of a word are live, and how many are present.
    pub(crate) fn count(&self, word: usize, bits: u64) -> (u64, u64) {
        let count = |of: u64| u64::from((of & bits).count_ones());
        (count(self.live_in(word)), self.holders.as_ref().map_or(0, |holders| count(holders.here[word])))
    }

    /// The number of the present ticket that has `before` present tickets before it.
    pub(crate) fn nth_present(&self, before: u32) -> usize {
        let mut before = before;
        for (word, &here) in self.holders.iter().flat_map(|holders| &holders.here).enumerate() {
            let count = here.count_ones();
            if before < count {
                let rest = (0..before).fold(here, |rest, _| rest & (rest - 1));
                return word * 64 + rest.trailing_zeros() as usize;
            }
            before -= count;
        }
        SEGMENT_TICKETS - 1
    }
}

/// The segment of a ticket, and the ticket's number there.
pub(crate) fn split(seq: u64) -> (u64, usize) {
    (seq / SEGMENT, (seq % SEGMENT) as usize)
}

/// The bits of a word that stand for tickets below `end`.
fn below(end: usize, word: usize) -> u64 {
    match end.saturating_sub(word * 64) {
        64.. => u64::MAX,
        some => (1 << some) - 1,
    }
}

#[cfg(feature = "sabotage")]
fn sabotaged_presence() -> bool {
    crate::sabotage::on(crate::sabotage::Rule::Presence)
}

#[cfg(not(feature = "sabotage"))]
const fn sabotaged_presence() -> bool {
    false
}

/// The age at which a ticket is evicted; `None` for never.
#[cfg(feature = "sabotage")]
fn evicting_age() -> Option<u64> {
    use crate::sabotage::{Rule, on};
    match () {
        () if on(Rule::EarlySweep) => Some(IDLE_AGE / 2 + 1),
        () if on(Rule::NoSweep) => None,
        () => Some(IDLE_AGE),
    }
}

#[cfg(not(feature = "sabotage"))]
const fn evicting_age() -> Option<u64> {
    Some(IDLE_AGE)
}
