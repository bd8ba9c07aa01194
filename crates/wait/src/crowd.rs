//! Watches a line's snapshots: who left, after what time, and where those stand who are still there.
//!
//! A snapshot shows a person who left only later. First the ticket counts as absent, but a snapshot has only the number of
//! absent tickets. When the ticket is evicted its place is known too. So the counts by age are exact up to the lag of an
//! eviction. The newly absent tickets of the time since then are spread over the ages as the rates expect. Silence is counted in
//! generations, so people who left are counted when a generation ends.
//!
//! Invariants: at most [`MOST_PENDING`] generations are kept. Nobody is counted twice: a
//! generation's absent tickets are forgotten when its evictions are counted.

mod lags;

use std::{collections::VecDeque, sync::Arc};

use admission::{IDLE_AGE, PAGE_TICKETS, Snapshot, Words};

use crate::{
    arrivals::Arrivals,
    number,
    outlook::{MOST_SLICES, Slice},
    patience::{AGES, BOUNDS_S, Count, Counts, Patience, Rates, age_class, told_class},
};

use lags::Lags;

/// The generations in which absent tickets are not evicted yet, at most.
const MOST_PENDING: usize = 16;

/// People who stand next to each other, as a snapshot shows them.
#[derive(Clone, Copy, Debug, Default)]
struct Stretch {
    first: u64,
    end: u64,
    live: f64,
    /// The tickets that are taken for present, spread evenly over the live ones.
    counted: f64,
    /// The tickets that were evicted since the last snapshot.
    evicted: f64,
    age_s: f64,
    /// The wait from now.
    wait_s: f64,
}

impl Stretch {
    /// The wait that its people were told when they came, as far as it is known.
    fn told_s(&self) -> f64 {
        self.age_s + self.wait_s
    }
}

/// The people who became absent in a generation.
#[derive(Clone, Debug)]
struct PendingGeneration {
    /// They left before this instant.
    until_ms: f64,
    counts: Counts,
}

/// The state at the end of a generation.
#[derive(Clone, Copy, Debug)]
struct GenerationEnd {
    generation: u64,
    absent: f64,
    evicted: u64,
    front_end: u64,
    /// The people who had entered.
    slots_used: u64,
    /// The tickets that were taken for present, in the whole line and in its front.
    counted: f64,
    in_front: f64,
}

/// The last snapshot.
#[derive(Clone, Copy, Debug)]
struct Last {
    epoch: u32,
    draw: u32,
    now_ms: u64,
    front_end: u64,
    absent: f64,
    evicted: u64,
}

/// What was seen of a line.
#[derive(Clone, Debug)]
pub(crate) struct Crowd {
    patience: Patience,
    rates: Rates,
    arrivals: Arrivals,
    /// The pages of the last snapshot, the number of the first, and its epoch.
    pages: Vec<Arc<Words>>,
    first_page: u64,
    /// The newly absent of the last generations, the oldest first.
    pending: VecDeque<PendingGeneration>,
    last_end: Option<GenerationEnd>,
    last: Option<Last>,
    /// The people who had entered by the last snapshot.
    slots_used: u64,
    /// The ticket in the middle of those who entered since the snapshot before.
    entered: Option<u64>,
    /// Everybody before this ticket who is still there is absent: people behind have entered.
    overtaken_until: u64,
    /// Until when absences say nothing, because all holders were treated as just heard.
    unsettled_until_ms: u64,
}

impl Crowd {
    /// A crowd of which nothing was seen yet.
    pub(crate) fn new() -> Self {
        let patience = Patience::default();
        Self {
            rates: patience.rates(&Counts::default()),
            patience,
            arrivals: Arrivals::default(),
            pages: Vec::new(),
            first_page: 0,
            pending: VecDeque::new(),
            last_end: None,
            last: None,
            slots_used: 0,
            entered: None,
            overtaken_until: 0,
            unsettled_until_ms: 0,
        }
    }

    /// What this line and earlier ones showed.
    pub(crate) fn counts(&self) -> Counts {
        let mut counts = self.patience.lasting.clone();
        counts.add(&self.patience.recent, 1.0);
        counts
    }

    /// Goes on from what another server learnt of this line and earlier ones.
    pub(crate) fn relearn(&mut self, lasting: Counts) {
        self.patience = Patience { lasting, ..Patience::default() };
        self.rates = self.patience.rates(&Counts::default());
    }

    /// The rates at which people leave.
    pub(crate) fn rates(&self) -> &Rates {
        &self.rates
    }

    /// Learns from a snapshot. Returns the line as it is now. `wait_s` is the wait of a place with so many present people
    /// ahead, in seconds.
    pub(crate) fn observe(&mut self, snapshot: &Snapshot, wait_s: impl Fn(f64) -> f64) -> Vec<Slice> {
        let now_ms = snapshot.now_ms;
        let lags = Lags::of(snapshot);
        // A line that was dealt anew is another one, too.
        let is_other = |last: Last| (last.epoch, last.draw) != (snapshot.epoch, snapshot.drawn.draw);
        if self.last.is_some_and(is_other) {
            self.arrivals = Arrivals::default();
            self.pages.clear();
        }
        self.arrivals.note(snapshot.base, snapshot.next, now_ms);
        let absent = number(snapshot.tally.waiting.saturating_sub(snapshot.tally.present));
        let (then_ms, front_then) = match self.last {
            Some(last) => {
                // Absent tickets that are evicted are no surprise.
                let evicted = number(snapshot.tally.evicted.saturating_sub(last.evicted));
                let collapsed = last.absent > 20.0 && absent + evicted < last.absent / 2.0;
                if is_other(last) || collapsed {
                    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "minutes")]
                    let settles_ms = now_ms + (lags.evicted_s * 1_000.0) as u64;
                    self.unsettled_until_ms = self.unsettled_until_ms.max(settles_ms);
                    self.pending.clear();
                    self.overtaken_until = 0;
                }
                (last.now_ms, last.front_end)
            }
            None => (now_ms, snapshot.front_end),
        };
        let front_end = front_then.max(snapshot.front_end);
        let mut line = self.stretches(snapshot, front_end);
        let mut ahead = 0.0;
        for stretch in &mut line {
            ahead += stretch.counted;
            stretch.wait_s = wait_s(ahead);
        }
        let (front_end_now, evicted) = (snapshot.front_end, snapshot.tally.evicted);
        self.last = Some(Last {
            epoch: snapshot.epoch,
            draw: snapshot.drawn.draw,
            now_ms,
            front_end: front_end_now,
            absent,
            evicted,
        });
        self.pages = snapshot.pages.iter().map(|page| Arc::clone(&page.gone)).collect();
        self.first_page = snapshot.base / PAGE_TICKETS as u64;
        self.patience.fade(number(now_ms.saturating_sub(then_ms)) / 1_000.0);
        if snapshot.tally.waiting == 0 {
            self.patience.end_line();
            self.pending.clear();
        }
        let past_s = number(now_ms % snapshot.policy.generation_ms()) / 1_000.0;
        let here = self.here(&line, lags, past_s, absent);
        let generation = now_ms / snapshot.policy.generation_ms();
        let front = snapshot.front_end;
        let counted = |end: u64| -> f64 {
            line.iter().filter(|stretch| stretch.first < end).map(|stretch| stretch.counted).sum()
        };
        let end = GenerationEnd {
            generation,
            absent,
            evicted: snapshot.tally.evicted,
            front_end: front,
            slots_used: snapshot.tally.slots_used,
            counted: counted(u64::MAX),
            in_front: counted(front),
        };
        match self.last_end {
            Some(last) if last.generation == generation && last.evicted <= end.evicted => {}
            last => {
                self.last_end = Some(end);
                if let Some(last) = last.filter(|_| now_ms >= self.unsettled_until_ms) {
                    let seen = Seen { line: &line, here: &here, lags, front_end, past_s };
                    let known = self.end_generation(now_ms, last, end, &seen);
                    if let Some(end) = &mut self.last_end {
                        end.absent = known;
                    }
                }
            }
        }
        let mut pending = Counts::default();
        for generation in &self.pending {
            pending.add(&generation.counts, 1.0);
        }
        self.rates = self.patience.rates(&pending);
        let slice = |(stretch, &here): (&Stretch, &f64)| Slice {
            end: stretch.end,
            counted: stretch.counted,
            here,
            seen_s: stretch.age_s - past_s - lags.absent_s,
            age_s: stretch.age_s,
        };
        line.iter().zip(&here).map(slice).collect()
    }

    /// The ticket in the middle of those who entered lately, if anybody did.
    pub(crate) fn entered(&self) -> Option<u64> {
        self.entered
    }

    /// Cuts the line into stretches of about equally many live tickets.
    fn stretches(&mut self, snapshot: &Snapshot, front_end: u64) -> Vec<Stretch> {
        let each = (number(snapshot.tally.waiting) / (MOST_SLICES as f64 - 2.0)).max(1.0);
        let mut line: Vec<Stretch> = Vec::with_capacity(MOST_SLICES);
        let mut open = Stretch::default();
        let mut gone_in_front = Vec::new();
        let oldest_eviction_ms =
            number(snapshot.now_ms) - number((IDLE_AGE - 1) * snapshot.policy.generation_ms());
        for (page, first) in snapshot.pages.iter().zip((snapshot.base..).step_by(PAGE_TICKETS)) {
            let number_of_page = first / PAGE_TICKETS as u64;
            let before = number_of_page
                .checked_sub(self.first_page)
                .and_then(|i| self.pages.get(usize::try_from(i).ok()?));
            let changed = before.is_none_or(|before| !Arc::ptr_eq(before, &page.gone));
            if page.live == 0 && !changed {
                if (first + 1..=first + PAGE_TICKETS as u64).contains(&self.overtaken_until)
                    && open.live > 0.0
                {
                    line.push(std::mem::take(&mut open));
                }
                continue;
            }
            let counted = f64::from(page.present) / f64::from(page.live.max(1));
            for (i, (&gone, seq)) in page.gone.iter().zip((first..).step_by(64)).enumerate() {
                let issued = match snapshot.next.saturating_sub(seq) {
                    0 => break,
                    64.. => u64::MAX,
                    some => (1 << some) - 1,
                };
                let live = f64::from((issued & !gone).count_ones());
                let newly = gone & !before.map_or(gone, |before| before[i]);
                // Behind the front nobody enters. Who has just come and is gone entered at once.
                let evicted = seq >= front_end && newly != 0 && self.arrivals.of(seq) <= oldest_eviction_ms;
                if newly != 0 && seq < front_end {
                    gone_in_front.extend((0..64).filter(|bit| newly >> bit & 1 == 1).map(|bit| seq + bit));
                }
                if seq < self.overtaken_until && self.overtaken_until <= seq + 64 && open.live > 0.0 {
                    line.push(std::mem::take(&mut open));
                }
                if live > 0.0 {
                    if open.live == 0.0 {
                        open.first = seq;
                    }
                    open.end = (seq + 64).min(snapshot.next);
                    open.live += live;
                    open.counted += live * counted;
                }
                if evicted {
                    open.evicted += f64::from(newly.count_ones());
                }
                if open.live >= each {
                    line.push(std::mem::take(&mut open));
                }
            }
        }
        if open.live > 0.0 {
            line.push(open);
        }
        // The others of them were evicted, and had been passed before.
        let entered = snapshot.tally.slots_used.saturating_sub(self.slots_used);
        self.slots_used = snapshot.tally.slots_used;
        let entered = usize::try_from(entered).unwrap_or(usize::MAX).min(gone_in_front.len());
        self.entered = gone_in_front
            .len()
            .checked_sub(entered.div_ceil(2))
            .filter(|_| entered > 0)
            .map(|i| gone_in_front[i]);
        self.overtaken_until = self.overtaken_until.max(self.entered.unwrap_or(0));
        for stretch in &mut line {
            let middle = stretch.first + (stretch.end - stretch.first) / 2;
            stretch.age_s = (number(snapshot.now_ms) - self.arrivals.of(middle)).max(0.0) / 1_000.0;
        }
        line
    }

    /// The people of each stretch who do not count as absent. The absent ones are where the rates expect them.
    fn here(&self, line: &[Stretch], lags: Lags, past_s: f64, absent: f64) -> Vec<f64> {
        let silent = |stretch: &Stretch| {
            let age_s = stretch.age_s - past_s;
            let rate =
                self.rates.expected.between(age_s - lags.evicted_s, age_s - lags.absent_s, stretch.told_s());
            stretch.live * -(-rate).exp_m1()
        };
        let behind = || line.iter().filter(|stretch| stretch.end > self.overtaken_until);
        let passed: f64 = line
            .iter()
            .filter(|stretch| stretch.end <= self.overtaken_until)
            .map(|stretch| stretch.live)
            .sum();
        let absent = (absent - passed).max(0.0);
        let all: f64 = behind().map(silent).sum();
        let live: f64 = behind().map(|stretch| stretch.live).sum();
        let here = |stretch: &Stretch| {
            if stretch.end <= self.overtaken_until {
                return 0.0;
            }
            let share = if all > 0.0 { silent(stretch) / all } else { stretch.live / live.max(1.0) };
            (stretch.live - absent * share).max(0.0)
        };
        line.iter().map(here).collect()
    }

    /// Counts who left, at the end of a generation. Returns the number of absent tickets that are counted now.
    fn end_generation(
        &mut self,
        now_ms: u64,
        last: GenerationEnd,
        end: GenerationEnd,
        seen: &Seen<'_>,
    ) -> f64 {
        let length_s = number(end.generation.saturating_sub(last.generation)) * seen.lags.generation_s;
        let (mut expected, mut parts) = (0.0, Vec::new());
        for (stretch, here) in seen.line.iter().zip(seen.here) {
            let told_s = stretch.told_s();
            let age_s = stretch.age_s - seen.past_s;
            if stretch.first >= seen.front_end {
                let until_s = age_s - seen.lags.evicted_s;
                let shares = spread(until_s - length_s, until_s, &self.rates);
                let sum: f64 = shares.iter().map(|&(_, _, weight)| weight).sum();
                for &(age, lasts_s, weight) in &shares {
                    let left = stretch.evicted * weight / sum.max(1e-12);
                    add(
                        &mut self.patience.recent,
                        &self.rates,
                        age,
                        told_s,
                        left,
                        (stretch.live + stretch.evicted / 2.0) * lasts_s,
                    );
                }
                if shares.is_empty() && stretch.evicted > 0.0 {
                    // Who left at once may seem to have left before coming.
                    add(&mut self.patience.recent, &self.rates, 0, told_s, stretch.evicted, 0.0);
                }
            }
            // Nobody will be evicted there any more who leaves now.
            let enters = stretch.wait_s + seen.lags.absent_s < seen.lags.evicted_s;
            // In the front it is known sooner.
            let lag_s = |end: u64| if stretch.first < end { seen.lags.front_s } else { seen.lags.absent_s };
            let (from_s, to_s) = (age_s - lag_s(last.front_end) - length_s, age_s - lag_s(end.front_end));
            for (age, lasts_s, weight) in spread(from_s, to_s, &self.rates) {
                let weight = weight * factor(&self.rates, age, told_s) * here;
                expected += weight;
                parts.push((age, told_s, weight, here * lasts_s, enters));
            }
        }
        // Who entered meanwhile could have left until then. So far their time was counted only up to the lag before the end of the last generation.
        let entered = number(end.slots_used.saturating_sub(last.slots_used)).min(last.counted);
        if entered > 0.0 {
            let front = last.in_front.min(entered) / entered;
            let lag_s = front * seen.lags.front_s + (1.0 - front) * seen.lags.absent_s;
            let age_s = (number(now_ms) - self.arrivals.of(self.overtaken_until)) / 1_000.0 - seen.past_s;
            for (age, lasts_s, weight) in spread(age_s - length_s / 2.0 - lag_s, age_s, &self.rates) {
                let weight = weight * factor(&self.rates, age, age_s) * entered;
                expected += weight;
                parts.push((age, age_s, weight, entered * lasts_s, true));
            }
        }
        let exact_ms = number(now_ms) - (seen.past_s + seen.lags.evicted_s) * 1_000.0;
        let generation_ms = seen.lags.generation_s * 1_000.0;
        self.pending.retain(|generation| generation.until_ms > exact_ms + generation_ms / 10.0);
        let newly = end.absent - last.absent + number(end.evicted) - number(last.evicted);
        if expected <= 0.0 {
            // Nobody should be absent yet. They are counted next time.
            return last.absent - number(end.evicted) + number(last.evicted);
        }
        let ratio = newly.max(0.0) / expected;
        let mut counts = Counts::default();
        for (age, told_s, weight, exposed, enters) in parts {
            let counts = if enters { &mut self.patience.recent } else { &mut counts };
            // Half of those who left in this time were still there on average.
            let left = weight * ratio;
            add(counts, &self.rates, age, told_s, left, exposed + left * length_s / 2.0);
        }
        let until_ms = number(now_ms) - (seen.past_s + seen.lags.absent_s) * 1_000.0;
        self.pending.push_back(PendingGeneration { until_ms, counts });
        if self.pending.len() > MOST_PENDING {
            self.pending.pop_front();
        }
        // People who came back are not counted again when they leave.
        end.absent - newly.min(0.0)
    }
}

/// A line at the end of a generation.
struct Seen<'a> {
    line: &'a [Stretch],
    /// The people of each stretch who do not count as absent.
    here: &'a [f64],
    lags: Lags,
    front_end: u64,
    /// How long ago the generation ended, in seconds.
    past_s: f64,
}

/// Cuts a time of life into ages: each with its length in seconds, and the chance to leave in it.
fn spread(from_s: f64, to_s: f64, rates: &Rates) -> Vec<(usize, f64, f64)> {
    let from_s = from_s.max(0.0);
    let part = |age: usize| {
        let lower_s = BOUNDS_S[age].max(from_s);
        let upper_s = BOUNDS_S.get(age + 1).map_or(to_s, |bound| bound.min(to_s));
        (age, upper_s - lower_s, (upper_s - lower_s) * rates.expected.per_s(age))
    };
    (age_class(from_s)..AGES).map(part).take_while(|&(_, lasts_s, _)| lasts_s > 0.0).collect()
}

/// How much more often people of this age leave who were told this wait.
fn factor(rates: &Rates, age: usize, told_s: f64) -> f64 {
    if age == 0 { rates.expected.first_5s_by_told_wait[told_class(told_s)] } else { 1.0 }
}

/// Adds people of an age who left, and the time in which they could.
fn add(counts: &mut Counts, rates: &Rates, age: usize, told_s: f64, left: f64, exposed: f64) {
    let of_age = &mut counts.ages[age];
    let weighted = exposed * factor(rates, age, told_s);
    *of_age = Count { left: of_age.left + left, exposed: of_age.exposed + weighted };
    if age == 0 {
        let of_wait = &mut counts.first_5s_by_told_wait[told_class(told_s)];
        let expected = exposed * rates.expected.per_s(age);
        *of_wait = Count { left: of_wait.left + left, exposed: of_wait.exposed + expected };
    }
}
