//! How people inside make room for others: how many there are, and how fast they leave.
//!
//! Visits are taken to end at a constant rate. Before the first ends, a visit may last for seconds or for an hour, and each length is as
//! likely as its double. Each end of a visit, and each second in which none ended, makes that narrower (Bayes; with many ends, the
//! gamma distribution of the rate).
//!
//! Invariants: what is measured decides about nobody. It only tells when those who wait may expect to enter. `fast_s <= stay_s <= slow_s`.

use std::array;

use admission::{BLIND_MS, Occupancy, Policy};

use crate::{NINE_OF_TEN, number};

/// What was seen so long ago, in seconds, counts 1/e. Longer where visits last long.
const MEMORY_S: f64 = 180.0;

/// The shortest and the longest mean visit that is thought possible before any has ended, in seconds. The longest one is at least
/// some idle times, because whoever does not say goodbye is inside for one.
const SHORTEST_S: f64 = 5.0;
const LONGEST_S: f64 = 3_600.0;
const LONGEST_IDLE_TIMES: f64 = 4.0;
/// The lengths between them that are compared.
const LENGTHS: usize = 48;
/// After so many ends the gamma distribution is used, because the lengths are too far apart.
const MANY: f64 = 12.0;

/// Measures how fast visits end, with sums that decay.
#[derive(Clone, Debug)]
pub(crate) struct StayMeter {
    ended: f64,
    /// The time that all visitors together were inside, in seconds.
    stayed_s: f64,
    last: Option<(u64, Occupancy)>,
}

impl StayMeter {
    /// Knows nothing yet.
    pub(crate) const fn new() -> Self {
        Self { ended: 0.0, stayed_s: 0.0, last: None }
    }

    /// Takes in the people inside at `now_ms`. Returns how many more could enter since the last time, as far as they are
    /// limited by who is inside.
    pub(crate) fn observe(&mut self, occupancy: Option<Occupancy>, policy: &Policy, now_ms: u64) -> u64 {
        let Some(now) = occupancy else {
            *self = Self::new();
            return u64::MAX;
        };
        let Some((then_ms, then)) = self.last.replace((now_ms, now)) else { return 0 };
        let past_s = number(now_ms.saturating_sub(then_ms)) / 1_000.0;
        // Idle visits end a generation at a time, so the memory is longer than some generations.
        let decay = (-past_s / (f64::from(policy.visit_idle_s) / 2.0).max(MEMORY_S)).exp();
        let ended = now.ended.saturating_sub(then.ended);
        self.ended = self.ended * decay + number(ended);
        self.stayed_s = self.stayed_s * decay + number(then.inside + now.inside) / 2.0 * past_s;
        u64::from(policy.max_active).saturating_sub(then.most) + ended
    }

    /// How it goes on with these people at `at_ms`.
    pub(crate) fn turnover(&self, occupancy: Occupancy, policy: &Policy, at_ms: u64) -> Turnover {
        let [fast_s, stay_s, slow_s] = if self.ended < MANY {
            self.by_lengths(LONGEST_S.max(LONGEST_IDLE_TIMES * f64::from(policy.visit_idle_s)))
        } else {
            let mean_s = self.stayed_s / self.ended;
            [NINE_OF_TEN, 0.0, -NINE_OF_TEN].map(|deviations| mean_s / of_mean(self.ended, deviations))
        };
        // Who does not show up until then counts no more.
        let is_blind = occupancy.blind_until_ms > at_ms;
        let (most, from_ms) =
            if is_blind { (occupancy.inside, occupancy.blind_until_ms) } else { (occupancy.most, 0) };
        Turnover { most, at_ms, from_ms, fast_s, stay_s, slow_s, max_active: occupancy.max_active }
    }

    /// The mean visit in seconds: the length that only one of twenty mean visits falls short of, the median, and the one that one of
    /// twenty exceeds.
    fn by_lengths(&self, longest_s: f64) -> [f64; 3] {
        let last = number(LENGTHS as u64 - 1);
        let step = (longest_s / SHORTEST_S).ln() / last;
        let length_s = |i: f64| SHORTEST_S * (step * i).exp();
        // The logarithms of the probability of what was seen, if visits last so long.
        let likelihoods: [f64; LENGTHS] = array::from_fn(|i| {
            let length_s = length_s(number(i as u64));
            -self.ended * length_s.ln() - self.stayed_s / length_s
        });
        let most = likelihoods.into_iter().fold(f64::NEG_INFINITY, f64::max);
        let weights = likelihoods.map(|likelihood| (likelihood - most).exp());
        let all: f64 = weights.iter().sum();
        [0.05, 0.5, 0.95].map(|part| {
            let (mut below, mut at) = (0.0, 0.0);
            for weight in weights {
                if below + weight >= part * all {
                    at += (part * all - below) / weight - 0.5;
                    break;
                }
                (below, at) = (below + weight, at + 1.0);
            }
            length_s(at.clamp(0.0, last))
        })
    }
}

/// A quantile of the gamma distribution of so many events, as a multiple of its mean: so many standard deviations from the median
/// (Wilson and Hilferty, 1931).
fn of_mean(events: f64, deviations: f64) -> f64 {
    (1.0 - 1.0 / (9.0 * events) + deviations / (3.0 * events.sqrt())).max(0.03).powi(3)
}

/// How people inside make room for others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Turnover {
    /// How many may be inside at `at_ms`.
    most: u64,
    at_ms: u64,
    /// Nobody enters before, because nobody knows who is inside; 0 if it is known.
    from_ms: u64,
    /// The mean visit, in seconds, and the shortest and the longest one that nine of ten are within.
    stay_s: f64,
    fast_s: f64,
    slow_s: f64,
    max_active: u32,
}

impl Turnover {
    /// If `policy` begins to limit the people inside at `now_ms`; nothing if it does not limit them.
    pub(crate) fn beginning(policy: &Policy, now_ms: u64) -> Option<Self> {
        let most = policy.max_active.into();
        let people = Occupancy {
            inside: 0,
            most,
            ended: 0,
            max_active: policy.max_active,
            blind_until_ms: now_ms + BLIND_MS,
        };
        (policy.max_active > 0).then(|| StayMeter::new().turnover(people, policy, now_ms))
    }

    /// The same people under another policy; nothing if that does not limit them.
    pub(crate) fn under(self, policy: &Policy) -> Option<Self> {
        (policy.max_active > 0).then_some(Self { max_active: policy.max_active, ..self })
    }

    /// Whether nobody may enter at `now_ms`.
    pub(crate) fn is_full(&self, now_ms: u64) -> bool {
        self.room() == 0 || now_ms < self.from_ms
    }

    /// How many more may enter once it is known who is inside.
    fn room(&self) -> u64 {
        u64::from(self.max_active).saturating_sub(self.most)
    }

    /// How many visits have to end before so many others have entered and one more may; none if there is room.
    fn leavers(&self, before: u64) -> Option<f64> {
        (before + 1).checked_sub(self.room()).filter(|&leavers| leavers > 0).map(number)
    }

    /// How long so many visits take to end, in seconds.
    fn expected_s(&self, leavers: f64) -> f64 {
        leavers * self.stay_s / f64::from(self.max_active.max(1))
    }

    /// So many seconds from `at_ms`.
    fn after_s(&self, wait_s: f64) -> u64 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "not negative, and `as` saturates"
        )]
        let wait_ms = (wait_s * 1_000.0) as u64;
        self.at_ms + wait_ms.min(1 << 40)
    }

    /// The instant at which so many others have entered and one more may.
    pub(crate) fn slot_ms(&self, before: u64) -> u64 {
        self.leavers(before).map_or(0, |leavers| self.after_s(self.expected_s(leavers))).max(self.from_ms)
    }

    /// The range of [`Turnover::slot_ms`]: nine of ten slots come within. How long visits last is uncertain, and so is who leaves when.
    pub(crate) fn range_ms(&self, before: u64) -> (u64, u64) {
        if self.from_ms > 0 {
            // Whoever shows up until then may leave nobody room.
            let all = Self { most: self.max_active.into(), at_ms: self.from_ms, from_ms: 0, ..*self };
            return (self.slot_ms(before), all.range_ms(before).1);
        }
        let Some(leavers) = self.leavers(before) else { return (0, 0) };
        let wait_s = self.expected_s(leavers);
        let part = |length_s: f64, deviations| {
            (length_s / self.stay_s).ln().hypot(of_mean(leavers, deviations).ln())
        };
        let (early, late) = (part(self.fast_s, -NINE_OF_TEN), part(self.slow_s, NINE_OF_TEN));
        (self.after_s(wait_s * (-early).exp()), self.after_s(wait_s * late.exp()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> Policy {
        Policy { max_active: 600, visit_idle_s: 600, ..Policy::default() }
    }

    /// The turnover after an hour in which `per_minute` visits ended in each minute.
    fn after(per_minute: u64) -> Turnover {
        let mut meter = StayMeter::new();
        let people = |ended| Occupancy { inside: 600, most: 600, max_active: 600, ended, blind_until_ms: 0 };
        for second in 0..3_600 {
            meter.observe(Some(people(second * per_minute / 60)), &policy(), second * 1_000);
        }
        meter.turnover(people(0), &policy(), 3_599_000)
    }

    #[test]
    fn the_next_to_enter_waits_until_people_have_left() {
        let turnover = after(120);
        for (before, expected_s) in [(0, 0.5), (119, 60.0), (1_199, 600.0)] {
            let wait_s = number(turnover.slot_ms(before) - 3_599_000) / 1_000.0;
            assert!(
                (wait_s / expected_s - 1.0).abs() < 0.06,
                "{before} before: {wait_s} s for {expected_s} s"
            );
        }
        let more = turnover.under(&Policy { max_active: 650, ..policy() }).expect("limited");
        assert_eq!((more.room(), more.slot_ms(49)), (50, 0), "50 may enter now");
        assert!(turnover.under(&Policy::default()).is_none());
    }

    /// Two may be inside, and each stays for `stay_s`. The range of the next slot in seconds, `after_s` after the first two came.
    fn next_of_two(stay_s: u64, after_s: u64) -> (f64, f64, f64) {
        let (mut meter, mut ended) = (StayMeter::new(), 0);
        let policy = Policy { max_active: 2, visit_idle_s: 900, ..Policy::default() };
        let mut people = Occupancy { inside: 2, most: 2, ended, max_active: 2, blind_until_ms: 0 };
        for second in 0..=after_s {
            ended = second / stay_s * 2;
            people = Occupancy { ended, ..people };
            meter.observe(Some(people), &policy, second * 1_000);
        }
        let turnover = meter.turnover(people, &policy, after_s * 1_000);
        let from_s = |ms: u64| (number(ms) - number(after_s * 1_000)) / 1_000.0;
        let (low_ms, high_ms) = turnover.range_ms(0);
        (from_s(low_ms), from_s(turnover.slot_ms(0)), from_s(high_ms))
    }

    #[test]
    fn before_anybody_left_the_range_covers_short_visits_and_long_ones() {
        let (low_s, wait_s, high_s) = next_of_two(15, 0);
        assert!(
            low_s < 2.0 && (30.0..120.0).contains(&wait_s) && high_s > 900.0,
            "{low_s} {wait_s} {high_s}"
        );
        let later = next_of_two(1_000_000, 600);
        assert!(later.1 > 2.0 * wait_s && later.2 > high_s / 2.0, "nobody left in ten minutes: {later:?}");
    }

    #[test]
    fn the_first_who_leave_show_how_long_visits_last() {
        let mut widths = Vec::new();
        for after_s in [0, 20, 50, 100, 300] {
            let (low_s, wait_s, high_s) = next_of_two(15, after_s);
            assert!(low_s <= wait_s && wait_s <= high_s);
            assert!(
                after_s < 50 || (4.0..16.0).contains(&wait_s),
                "7.5 s on average: {wait_s} s after {after_s} s"
            );
            widths.push(high_s / low_s);
        }
        assert!(
            widths.is_sorted_by(|before, after| before > after),
            "the ranges become narrower: {widths:?}"
        );
    }

    /// When a limit begins, nobody enters for a minute, and the wait counts down to its end.
    #[test]
    fn while_nobody_knows_who_is_inside_the_first_wait_until_that_is_known() {
        let policy = Policy { max_active: 2, visit_idle_s: 900, ..Policy::default() };
        let turnover = Turnover::beginning(&policy, 10_000).expect("limited");
        assert!(turnover.is_full(10_000) && !turnover.is_full(70_000));
        assert_eq!([0, 1].map(|before| turnover.slot_ms(before)), [70_000; 2]);
        assert!(turnover.slot_ms(2) > 70_000, "the third one waits for somebody to leave");
        let (low_ms, high_ms) = turnover.range_ms(0);
        assert!(low_ms == 70_000 && high_ms > 600_000, "others may be inside: {low_ms} to {high_ms}");

        // A second before, one has shown up.
        let people = Occupancy { inside: 1, most: 2, ended: 0, max_active: 2, blind_until_ms: 70_000 };
        let later = StayMeter::new().turnover(people, &policy, 69_000);
        assert_eq!(later.slot_ms(0), 70_000);
        assert!(later.slot_ms(1) > 70_000);
        assert!(Turnover::beginning(&Policy::default(), 0).is_none());
    }

    #[test]
    fn many_leavers_are_surer_than_one() {
        let turnover = after(120);
        let part = |before| {
            let (low_ms, high_ms) = turnover.range_ms(before);
            number(high_ms - low_ms) / number(turnover.slot_ms(before) - 3_599_000)
        };
        assert!((2.5..3.5).contains(&part(0)), "{}", part(0));
        assert!(part(1_199) < 0.25, "{}", part(1_199));
        assert_eq!(
            turnover.under(&Policy { max_active: 601, ..policy() }).expect("limited").range_ms(0),
            (0, 0)
        );
    }

    #[test]
    fn entries_are_limited_by_room_and_by_those_who_leave() {
        let mut meter = StayMeter::new();
        let people = |inside, ended| {
            Some(Occupancy { inside, most: inside, ended, max_active: 600, blind_until_ms: 0 })
        };
        assert_eq!(meter.observe(people(500, 7), &policy(), 0), 0, "nothing is known before");
        assert_eq!(meter.observe(people(600, 10), &policy(), 1_000), 103);
        assert_eq!(meter.observe(None, &Policy::default(), 2_000), u64::MAX, "no limit");
    }
}
