//! The people inside a zone: those who entered and have not left.
//!
//! They are counted like a line, by bitmaps with ages. A visitor's activity is one bit of a server's next report, so it costs the
//! store nothing at that moment. A visit ends when its holder leaves, or with the fourteenth generation that ends without
//! activity: thirteen whole ones have passed then ([`IDLE_AGE`]). A generation is 3/32 of `visit_idle_s`: twelve of them are nine
//! eighths of it, which is how long a visitor's own proof of the visit lasts.
//!
//! Time passes for a visit only while reports come: each report ends one generation at most. So nobody is taken for idle because
//! a server or a store stood still.
//!
//! Invariants: a visit is counted once. A visit that was left is not counted again for as long as its proof lasts. Only a number that
//! entered is ever marked as left.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    PAGE_WORDS, PagePolls, Policy, Words,
    policy::BLIND_MS,
    segment::{Ages, Bits, IDLE_AGE, PAGES, SEGMENT_WORDS, split},
};

/// Visitors who are inside and have not shown themselves since the state was lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unseen {
    /// How many there may be.
    pub count: u64,
    /// Until when they count.
    pub until_ms: u64,
    /// Whether the number was remembered. Otherwise nobody knows it, and nobody enters until then.
    pub is_told: bool,
}

/// The visits of one segment.
#[derive(Clone)]
struct Part {
    inside: Bits,
    ages: Ages,
    left: Bits,
    /// Until when `left` matters; 0 if nobody left.
    left_until_ms: u64,
    /// The generation up to which the ages count.
    generation: u64,
    /// The idle time by which they count.
    idle_s: u32,
}

impl Part {
    fn new(policy: &Policy, now_ms: u64) -> Box<Self> {
        let (none, generation) = ([0; SEGMENT_WORDS], now_ms / visit_generation_ms(policy));
        let idle_s = policy.visit_idle_s;
        Box::new(Self { inside: none, ages: Ages::NONE, left: none, left_until_ms: 0, generation, idle_s })
    }

    /// Goes on by the policy's idle time. If it is another one, ages count in another unit from now on, and proofs of visits end at another
    /// time: everybody counts as just active.
    fn count_by(&mut self, policy: &Policy, now_ms: u64) {
        if self.idle_s == policy.visit_idle_s {
            return;
        }
        (self.ages, self.idle_s) = (Ages::NONE, policy.visit_idle_s);
        self.generation = now_ms / visit_generation_ms(policy);
        if self.left_until_ms > 0 {
            self.left_until_ms = self.left_until_ms.max(now_ms + visit_ms(policy));
        }
    }

    fn count(&self) -> u64 {
        self.inside.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// Notes activity. Returns how many visits that were not counted are counted now.
    fn note_activity(&mut self, seen: &Bits) -> u64 {
        let mut new = 0;
        for (word, seen) in seen.iter().enumerate() {
            let seen = seen & !self.left[word];
            self.ages.reset_ages(word, seen);
            new += u64::from((seen & !self.inside[word]).count_ones());
            self.inside[word] |= seen;
        }
        new
    }

    /// Marks one ticket's holder as somebody who left, and ends the visit. Returns whether it was counted.
    fn mark_left(&mut self, word: usize, bit: u64, until_ms: u64) -> bool {
        if bit & !self.left[word] != 0 {
            self.left[word] |= bit;
            self.left_until_ms = until_ms;
        }
        let counted = bit & self.inside[word];
        self.end_visits(word, counted) > 0
    }

    /// Forgets who left once that does not matter any more.
    fn forget_left(&mut self, now_ms: u64) {
        if self.left_until_ms <= now_ms {
            (self.left, self.left_until_ms) = ([0; SEGMENT_WORDS], 0);
        }
    }

    /// Ends a generation. Returns how many visits that ends.
    fn end_generation(&mut self) -> u64 {
        let mut ended = 0;
        for word in 0..SEGMENT_WORDS {
            self.ages.grow_ages(word, self.inside[word]);
            let idle = self.inside[word] & self.ages.of_age(word, IDLE_AGE);
            ended += self.end_visits(word, idle);
        }
        ended
    }

    fn end_visits(&mut self, word: usize, bits: u64) -> u64 {
        self.inside[word] &= !bits;
        self.ages.reset_ages(word, bits);
        u64::from(bits.count_ones())
    }
}

/// The people inside one zone.
#[derive(Clone, Default)]
pub(crate) struct Inside {
    /// The segments in which anybody is inside or has left lately.
    parts: BTreeMap<u64, Box<Part>>,
    /// Visits that are counted.
    pub(crate) count: u64,
    /// Visits that have ended since they are counted.
    pub(crate) ended: u64,
    pub(crate) unseen: Unseen,
}

/// A visit that is counted, for tests that compare another implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DumpVisit {
    /// The number of the ticket that entered.
    pub seq: u64,
    /// Generations since the last activity, when the segment was last updated.
    pub age: u8,
}

/// The people inside, for tests that compare another implementation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DumpInside {
    /// The visits that are counted.
    pub visits: Vec<DumpVisit>,
    /// The visits of those who left, with the instant until which that matters.
    pub left: Vec<(u64, u64)>,
    /// Visits that have ended.
    pub ended: u64,
    /// Visitors who may be inside unseen.
    pub unseen: Unseen,
}

/// The length of a generation of visits, in milliseconds: 3/32 of the idle time.
fn visit_generation_ms(policy: &Policy) -> u64 {
    u64::from(policy.visit_idle_s) * 375 / 4
}

/// How long a visit is counted without activity, in milliseconds, while reports come.
pub(crate) fn visit_ms(policy: &Policy) -> u64 {
    visit_generation_ms(policy) * IDLE_AGE
}

impl Inside {
    /// Whether nobody is inside, and nobody left lately.
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// How many more people may be inside.
    pub(crate) fn room(&self, policy: &Policy, now_ms: u64) -> u64 {
        match policy.max_active {
            _ if sabotaged() => u64::MAX,
            0 => u64::MAX,
            _ if self.is_blind(now_ms) => 0,
            most => u64::from(most).saturating_sub(self.most_inside(now_ms)),
        }
    }

    /// Whether nobody knows yet how many people are inside.
    fn is_blind(&self, now_ms: u64) -> bool {
        self.blind_until_ms(now_ms) > 0
    }

    /// Until when nobody knows how many people are inside; 0 if it is known.
    pub(crate) fn blind_until_ms(&self, now_ms: u64) -> u64 {
        if !self.unseen.is_told && now_ms < self.unseen.until_ms { self.unseen.until_ms } else { 0 }
    }

    /// How many people may be inside, if that is known: what a restart remembers.
    pub(crate) fn known(&self, now_ms: u64) -> Option<u64> {
        (!self.is_blind(now_ms)).then(|| self.most_inside(now_ms))
    }

    /// How many people may be inside: those who are counted, and those who have not shown themselves.
    pub(crate) fn most_inside(&self, now_ms: u64) -> u64 {
        self.count + if now_ms < self.unseen.until_ms { self.unseen.count } else { 0 }
    }

    /// Begins to count. Nobody knows who is inside yet.
    pub(crate) fn begin_blind(&mut self, policy: &Policy, now_ms: u64) {
        self.unseen = Unseen { count: policy.max_active.into(), until_ms: now_ms + BLIND_MS, is_told: false };
    }

    /// Nobody counts any more. The next report forgets who was inside.
    pub(crate) fn stop(&mut self) {
        (self.ended, self.unseen) = (0, Unseen::default());
    }

    /// Counts people of whom only the number is known.
    pub(crate) fn expect(&mut self, count: u64, policy: &Policy, now_ms: u64) {
        self.unseen = Unseen { count, until_ms: now_ms + visit_ms(policy), is_told: true };
    }

    /// The holder of a ticket entered.
    pub(crate) fn begin_visit(&mut self, seq: u64, policy: &Policy, now_ms: u64) {
        if policy.max_active == 0 {
            return;
        }
        let (segment, ticket) = split(seq);
        let part = self.parts.entry(segment).or_insert_with(|| Part::new(policy, now_ms));
        let (word, bit) = (ticket / 64, 1 << (ticket % 64));
        self.count += u64::from((bit & !part.inside[word]).count_ones());
        part.inside[word] |= bit;
    }

    /// Whether the visit of a ticket is counted.
    pub(crate) fn has(&self, seq: u64) -> bool {
        let (segment, ticket) = split(seq);
        self.parts.get(&segment).is_some_and(|part| part.inside[ticket / 64] >> (ticket % 64) & 1 == 1)
    }

    /// Whether the visit of a ticket was left lately.
    pub(crate) fn has_left(&self, seq: u64, now_ms: u64) -> bool {
        let (segment, ticket) = split(seq);
        self.parts.get(&segment).is_some_and(|part| {
            part.left_until_ms > now_ms && part.left[ticket / 64] >> (ticket % 64) & 1 == 1
        })
    }

    /// The visit of a ticket that entered ends. If it was not counted, it was one of those who had not shown themselves.
    pub(crate) fn end_visit(&mut self, seq: u64, policy: &Policy, now_ms: u64) {
        if policy.max_active == 0 {
            return;
        }
        let (segment, ticket) = split(seq);
        let part = self.parts.entry(segment).or_insert_with(|| Part::new(policy, now_ms));
        part.forget_left(now_ms);
        let (word, bit) = (ticket / 64, 1 << (ticket % 64));
        let is_new = part.left[word] & bit == 0;
        if part.mark_left(word, bit, now_ms + visit_ms(policy)) {
            self.count -= 1;
            self.ended += 1;
        } else if is_new {
            self.unseen.count = self.unseen.count.saturating_sub(1);
        }
    }

    /// Takes in who was active since the last report, and ends idle visits, unless `spares`: then somebody may be active of whom no
    /// report has come.
    pub(crate) fn report(&mut self, seen: &[PagePolls], policy: &Policy, now_ms: u64, spares: bool) {
        if policy.max_active == 0 {
            self.parts.clear();
            self.count = 0;
            return;
        }
        let generation = now_ms / visit_generation_ms(policy);
        let seen = by_segment(seen);
        for segment in seen.keys() {
            self.parts.entry(*segment).or_insert_with(|| Part::new(policy, now_ms));
        }
        self.parts.retain(|segment, part| {
            part.forget_left(now_ms);
            part.count_by(policy, now_ms);
            let note_activity =
                |part: &mut Part| seen.get(segment).map_or(0, |seen| part.note_activity(seen));
            // A report may be late. Whoever was active before a generation ended must not be taken for idle by its end.
            let new = note_activity(part);
            self.count += new;
            self.unseen.count = self.unseen.count.saturating_sub(new);
            let mut ended = 0;
            if part.generation < generation && !spares {
                ended += part.end_generation();
            }
            part.generation = generation;
            note_activity(part);
            self.count -= ended;
            self.ended += ended;
            part.left_until_ms > 0 || part.count() > 0
        });
    }

    /// The pages with tickets whose holders left.
    pub(crate) fn left(&self) -> Vec<(u64, Arc<Words>)> {
        let mut pages = Vec::new();
        for (segment, part) in self.parts.iter().filter(|(_, part)| part.left_until_ms > 0) {
            let words = part.left.chunks_exact(PAGE_WORDS);
            for (words, page) in words.zip(segment * PAGES as u64..) {
                if let Ok(words) = Words::try_from(words)
                    && words != [0; PAGE_WORDS]
                {
                    pages.push((page, Arc::new(words)));
                }
            }
        }
        pages
    }

    /// Checks the module's invariants.
    pub(crate) fn check(&self) {
        assert_eq!(
            self.parts.values().map(|part| part.count()).sum::<u64>(),
            self.count,
            "each visit counts once"
        );
        for part in self.parts.values() {
            for word in 0..SEGMENT_WORDS {
                let (inside, left) = (part.inside[word], part.left[word]);
                assert_eq!(inside & left, 0, "whoever left is not inside");
                part.ages.check(word, inside);
            }
            let is_clean = part.left.iter().all(|word| *word == 0);
            assert!(part.left_until_ms > 0 || is_clean, "marks of who left have an end");
        }
    }

    /// For tests.
    pub(crate) fn dump(&self) -> DumpInside {
        let seqs = |segment: u64, bits: &Bits| -> Vec<(usize, u64)> {
            let set = (0..SEGMENT_WORDS * 64).filter(|i| bits[i / 64] >> (i % 64) & 1 == 1);
            set.map(|i| (i, segment * (SEGMENT_WORDS as u64 * 64) + i as u64)).collect()
        };
        let mut dump = DumpInside { ended: self.ended, unseen: self.unseen, ..DumpInside::default() };
        for (&segment, part) in &self.parts {
            let visits = seqs(segment, &part.inside).into_iter();
            dump.visits.extend(visits.map(|(ticket, seq)| DumpVisit { seq, age: part.ages.age(ticket) }));
            let left = seqs(segment, &part.left).into_iter();
            dump.left.extend(left.map(|(_, seq)| (seq, part.left_until_ms)));
        }
        dump
    }
}

/// The bits of pages, by segment.
fn by_segment(pages: &[PagePolls]) -> BTreeMap<u64, Box<Bits>> {
    let mut segments = BTreeMap::<u64, Box<Bits>>::new();
    for page in pages {
        let bits = segments.entry(page.page / PAGES as u64).or_insert_with(|| Box::new([0; SEGMENT_WORDS]));
        #[expect(clippy::cast_possible_truncation, reason = "below 8")]
        let first = (page.page % PAGES as u64) as usize * PAGE_WORDS;
        for (word, more) in bits[first..first + PAGE_WORDS].iter_mut().zip(*page.words) {
            *word |= more;
        }
    }
    segments
}

#[cfg(feature = "sabotage")]
fn sabotaged() -> bool {
    crate::sabotage::on(crate::sabotage::Rule::Inside)
}

#[cfg(not(feature = "sabotage"))]
const fn sabotaged() -> bool {
    false
}
