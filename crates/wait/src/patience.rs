//! How patient the people of a zone are: the rate at which they leave, by the time that they have waited. Those who leave at once
//! do so because of the wait that they were told, so that rate depends on it, too.
//!
//! Counts of people who left and of the time that people waited are kept by age. Those of this line decay into those of
//! earlier lines. Where this line has counts they decide. For the ages that it has not reached, a mixture of shapes does: how
//! earlier lines went on, and some that are known from published studies (constant, Weibull, a share that never leaves). Each
//! shape weighs as much as the counts speak for it, and its level follows the counts.
//!
//! Invariants: rates are finite and not negative; what is learnt has a fixed size.

use std::{cmp::Ordering, sync::LazyLock};

use crate::NINE_OF_TEN;

/// The ages: the lower bound of each, in seconds.
pub(crate) const BOUNDS_S: [f64; AGES] = [
    0.0, 5.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 180.0, 240.0, 360.0, 480.0, 720.0, 960.0,
    1_440.0, 1_920.0, 2_880.0, 3_840.0, 5_760.0, 7_680.0, 11_520.0, 15_360.0,
];
/// The number of ages.
pub(crate) const AGES: usize = 24;
/// The number of classes of the wait that was told: below a minute, and each twice as long as the one before.
pub(crate) const TOLD: usize = 8;

/// People leave at most at this rate, per second.
const MOST_PER_S: f64 = 0.2;
/// The rate of a crowd that nothing is known about, per second.
const USUAL_PER_S: f64 = 2e-4;

/// Somebody who leaves at the front is taken for present for a while, and takes the slots along that come within so many seconds.
const LOST_S: f64 = 2.5;

/// The age class of a time waited.
pub(crate) fn age_class(age_s: f64) -> usize {
    BOUNDS_S.partition_point(|&bound| bound <= age_s).saturating_sub(1)
}

/// The class of a wait that was told.
pub(crate) fn told_class(told_s: f64) -> usize {
    let mut class = 0;
    let mut bound = 60.0;
    while class + 1 < TOLD && told_s >= bound {
        class += 1;
        bound *= 2.0;
    }
    class
}

fn upper_s(age: usize) -> f64 {
    BOUNDS_S.get(age + 1).copied().unwrap_or(2.0 * BOUNDS_S[AGES - 1])
}

/// Events, and how many were to be expected or the time in which they happened.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Count {
    pub(crate) left: f64,
    pub(crate) exposed: f64,
}

impl Count {
    fn add(&mut self, other: Self, share: f64) {
        self.left += other.left * share;
        self.exposed += other.exposed * share;
    }
}

/// What was counted of a crowd.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Counts {
    /// By age: how many left, and the person-seconds.
    pub(crate) ages: [Count; AGES],
    /// By the wait that was told: how many left at once, and how many were expected to.
    pub(crate) first_5s_by_told_wait: [Count; TOLD],
}

impl Counts {
    fn each(&mut self) -> impl Iterator<Item = &mut Count> {
        self.ages.iter_mut().chain(&mut self.first_5s_by_told_wait)
    }

    /// Adds a share of other counts.
    pub(crate) fn add(&mut self, other: &Self, share: f64) {
        let others = other.ages.iter().chain(&other.first_5s_by_told_wait);
        for (count, other) in self.each().zip(others) {
            count.add(*other, share);
        }
    }

    fn scale(&mut self, by: f64) {
        for count in self.each() {
            count.left *= by;
            count.exposed *= by;
        }
    }

    /// How much the counts tell, in people who left. A time in which hardly anybody left counts as if so many had left as usual.
    pub(crate) fn weight(&self) -> f64 {
        self.left().max(self.waited_s() * USUAL_PER_S)
    }

    fn left(&self) -> f64 {
        self.ages.iter().map(|count| count.left).sum()
    }

    fn waited_s(&self) -> f64 {
        self.ages.iter().map(|count| count.exposed).sum()
    }
}

/// The rates at which people leave.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Hazard {
    /// By age, per second.
    per_s: [f64; AGES],
    /// The sum of the rates up to the lower bound of each age.
    before: [f64; AGES],
    /// How much more often people leave at once who were told this wait.
    pub(crate) first_5s_by_told_wait: [f64; TOLD],
    /// Somebody who leaves at the front takes the slots along that come within so many seconds.
    lost_s: f64,
}

impl Hazard {
    fn new(per_s: [f64; AGES], first_5s_by_told_wait: [f64; TOLD]) -> Self {
        let mut hazard = Self { per_s, before: [0.0; AGES], first_5s_by_told_wait, lost_s: LOST_S };
        for age in 1..AGES {
            let length_s = BOUNDS_S[age] - BOUNDS_S[age - 1];
            hazard.before[age] = hazard.before[age - 1] + hazard.per_s[age - 1] * length_s;
        }
        hazard
    }

    /// The rate at an age, per second.
    pub(crate) fn per_s(&self, age: usize) -> f64 {
        self.per_s[age]
    }

    /// The share of the slots that is lost where people of this age get them. Somebody who leaves at the front is taken for present for a
    /// while.
    pub(crate) fn lost(&self, age_s: f64) -> f64 {
        self.lost_s * self.per_s[age_class(age_s)]
    }

    /// The sum of the rates up to an age.
    fn until(&self, age_s: f64) -> f64 {
        let age = age_class(age_s);
        self.before[age] + self.per_s[age] * (age_s - BOUNDS_S[age])
    }

    /// The sum of the rates over the ages from `from_s` to `to_s`, for people who were told a wait of `told_s` when they came.
    pub(crate) fn between(&self, from_s: f64, to_s: f64, told_s: f64) -> f64 {
        let (from_s, to_s) = (from_s.max(0.0), to_s.max(0.0));
        if to_s <= from_s {
            return 0.0;
        }
        let at_once_s = BOUNDS_S[1];
        let at_once = self.until(to_s.min(at_once_s)) - self.until(from_s.min(at_once_s));
        let later = self.until(to_s.max(at_once_s)) - self.until(from_s.max(at_once_s));
        at_once * self.first_5s_by_told_wait[told_class(told_s)] + later
    }
}

/// The rates that are expected, and a low and a high guess: one of twenty crowds leaves more slowly, one of twenty faster.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rates {
    pub(crate) expected: Hazard,
    pub(crate) slow: Hazard,
    pub(crate) fast: Hazard,
    /// This line has shown how patient its people are.
    pub(crate) known: bool,
}

#[cfg(test)]
impl Rates {
    /// The same rates for sure.
    pub(crate) fn steady(per_s: [f64; AGES]) -> Self {
        let hazard = Hazard { lost_s: 0.0, ..Hazard::new(per_s, [1.0; TOLD]) };
        Self { expected: hazard.clone(), slow: hazard.clone(), fast: hazard, known: true }
    }
}

/// A shape with the posterior of its level.
struct Fitted {
    per_s: [f64; AGES],
    weight: f64,
    /// The weight in a range. No shape is exact, so the counts speak less clearly for one than if one was.
    weight_in_range: f64,
    /// The relative variance of the level.
    variance: f64,
}

/// What was learnt about the patience of a zone's people.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Patience {
    /// This line, lately.
    pub(crate) recent: Counts,
    /// Earlier lines, and what this line showed some time ago.
    pub(crate) lasting: Counts,
}

impl Patience {
    /// The counts of a line lose this share per second to the lasting ones: half of them in ten minutes.
    const FADING_PER_S: f64 = 0.001_155;
    /// The lasting counts are scaled down to the weight of this many people who left, so that they can change.
    const MOST_LASTING: f64 = 20_000.0;
    /// The counts of an age weigh at most as much as so many people who left, when shapes are compared: no shape is exact, and in
    /// the first seconds neither is the time at which somebody left. The last one goes for all later ages.
    const MOST_EVIDENCE: [f64; 4] = [0.0, 0.0, 300.0, 1_000.0];
    /// The spread of guesses about ages that nobody has reached, for each doubling of the age.
    const UNKNOWN_SPREAD: f64 = 0.2;
    /// The fast guess about a crowd of which nothing is known: 60 % leave within the first minute.
    const UNKNOWN_FAST_S: f64 = 60.0;
    const UNKNOWN_FAST_PER_S: f64 = 0.916 / Self::UNKNOWN_FAST_S;
    /// The slow guess of a class behind which nobody leaves any more is lower by this part.
    const MOST_DROP: f64 = 0.6;
    /// The weight of the mean when a class is estimated, in people who left.
    const PRIOR_WEIGHT: f64 = 30.0;
    /// The same for a class of earlier lines. The published curves know little about where people stop leaving.
    const EARLIER_LINES_WEIGHT: f64 = 3.0;
    /// The weight of the usual behaviour of those who were told a wait, in people who left at once.
    const TOLD_WAIT_WEIGHT: f64 = 50.0;

    /// Lets `past_s` seconds pass.
    pub(crate) fn fade(&mut self, past_s: f64) {
        self.move_share(1.0 - (-past_s * Self::FADING_PER_S).exp());
    }

    /// The line is over. The next one may be of other people.
    pub(crate) fn end_line(&mut self) {
        self.move_share(1.0);
    }

    fn move_share(&mut self, share: f64) {
        self.lasting.add(&self.recent, share);
        self.recent.scale(1.0 - share);
        let weight = self.lasting.weight();
        if weight > Self::MOST_LASTING {
            self.lasting.scale(Self::MOST_LASTING / weight);
        }
    }

    /// The rates. `pending` counts the people who left lately, as far as that is known already.
    pub(crate) fn rates(&self, pending: &Counts) -> Rates {
        let mut line = self.recent.clone();
        line.add(pending, 1.0);
        let mut all = line.clone();
        all.add(&self.lasting, 1.0);

        // How earlier lines went on, completed by what is known of such curves.
        let mut shapes = PUBLISHED.clone();
        // That nobody left is known, too.
        let lasting_left = self.lasting.left() + self.lasting.waited_s() * USUAL_PER_S;
        if lasting_left > 1.0 {
            let known_mean = mean_of(&mixture(&all.ages, PUBLISHED.clone()));
            let warm: [f64; AGES] = std::array::from_fn(|age| {
                let count = self.lasting.ages[age];
                let mean = known_mean[age].max(1e-7);
                (count.left + Self::EARLIER_LINES_WEIGHT)
                    / (count.exposed + Self::EARLIER_LINES_WEIGHT / mean)
            });
            let trust = lasting_left / (lasting_left + 20.0);
            for shape in &mut shapes {
                shape.prior *= 1.0 - 0.995 * trust;
            }
            // Most crowds leave about as often as the ones before (a standard deviation of 16 %), and one of four differs more (32 %).
            for (prior, prior_left) in [(0.25, 10.0), (0.745, 40.0)] {
                shapes.push(Shape { per_s: warm, prior: prior * trust, prior_left, prior_level: 1.0 });
            }
        }
        let fitted = mixture(&line.ages, shapes);
        let mean = mean_of(&fitted);
        let seen = all.left() + all.waited_s() * USUAL_PER_S;
        let trust = seen / (seen + 20.0);
        let reached = oldest(&all.ages);
        // The part of the last age that people have reached.
        let people = |age: usize| all.ages[age].exposed / (upper_s(age) - BOUNDS_S[age]);
        let part_reached =
            if reached == 0 { 0.0 } else { (people(reached) / people(reached - 1).max(1e-9)).min(1.0) };
        let mut rates = [[0.0; AGES]; 3];
        for age in 0..AGES {
            let count = line.ages[age];
            let weight = count.left + Self::PRIOR_WEIGHT;
            let expected = weight / (count.exposed + Self::PRIOR_WEIGHT / mean[age].max(1e-7));
            // Of a crowd of which nothing is known, a tenth leaves, however long the wait is.
            let expected = expected * (trust + (1.0 - trust) / (1.0 + BOUNDS_S[age] / 600.0).powi(2));
            rates[0][age] = expected.clamp(0.0, MOST_PER_S);
            // The slow guess: of a crowd of which nothing is known nobody leaves, and nobody who is still there at an age that none
            // has reached.
            let slow = match age.cmp(&reached) {
                Ordering::Less => trust,
                Ordering::Equal => trust * part_reached * part_reached,
                Ordering::Greater => 0.0,
            };
            rates[1][age] = rates[0][age] * slow;
            rates[2][age] = rates[0][age];
        }
        let (low, high) = guesses(&fitted, &mean, &line.ages, &rates[0], reached);
        for age in 0..AGES {
            rates[1][age] = (rates[1][age] * low[age]).min(MOST_PER_S);
            rates[2][age] = (rates[2][age] * high[age]).min(MOST_PER_S);
            if BOUNDS_S[age] < Self::UNKNOWN_FAST_S {
                rates[2][age] = rates[2][age].max((1.0 - trust) * Self::UNKNOWN_FAST_PER_S);
            }
        }
        // Where people stop leaving, it is not known when: somewhere in a class, and it is noticed late. In a crowd that leaves
        // more and more slowly, rates of neighbours differ little, and their square not at all.
        for age in 0..reached {
            let drop = (1.0 - rates[0][age + 1] / rates[0][age].max(1e-12)).max(0.0);
            rates[1][age] *= 1.0 - Self::MOST_DROP * drop * drop;
        }
        let at_once = std::array::from_fn(|class| {
            let count = all.first_5s_by_told_wait[class];
            ((count.left + Self::TOLD_WAIT_WEIGHT) / (count.exposed + Self::TOLD_WAIT_WEIGHT))
                .clamp(0.1, 10.0)
        });
        let [expected, slow, fast] = rates.map(|per_s| Hazard::new(per_s, at_once));
        Rates { expected, slow, fast, known: line.left() + line.waited_s() * USUAL_PER_S >= 100.0 }
    }
}

/// The oldest age that people have reached; the first if hardly anybody is there.
fn oldest(ages: &[Count; AGES]) -> usize {
    (0..AGES).rev().find(|&age| ages[age].exposed > 100.0).unwrap_or(0)
}

/// A low and a high guess at the rates by age, as factors of the expected ones. One of twenty crowds leaves less up to an age, and
/// one of twenty more. The shapes and their levels are uncertain where this line has no counts. Counts of different ages are
/// wrong independently of each other.
fn guesses(
    fitted: &[Fitted],
    mean: &[f64; AGES],
    line: &[Count; AGES],
    expected: &[f64; AGES],
    reached: usize,
) -> ([f64; AGES], [f64; AGES]) {
    let mut factors = [[1.0; AGES]; 2];
    // From the age that this line has reached on, and back from there.
    let now = oldest(line);
    // Each shape at each level: the sum of its rates, its weight, and its number.
    let mut points: Vec<(f64, f64, usize)> = fitted
        .iter()
        .flat_map(|fit| LEVELS.map(|(_, part)| fit.weight_in_range * part))
        .enumerate()
        .map(|(number, weight)| (0.0, weight, number))
        .collect();
    let weights: f64 = points.iter().map(|(_, weight, _)| weight).sum();
    for ages in [(now..AGES).collect::<Vec<_>>(), (0..now).rev().collect()] {
        let mut sums = vec![[0.0; LEVELS.len()]; fitted.len()];
        let (mut sum, mut noise, mut before) = (0.0, 0.0, [0.0; 2]);
        for age in ages {
            let (count, length_s) = (line[age], upper_s(age) - BOUNDS_S[age]);
            let all = count.left + Patience::PRIOR_WEIGHT;
            let unseen = Patience::PRIOR_WEIGHT / all;
            let each = expected[age] * length_s;
            let beyond = (BOUNDS_S[age] / upper_s(reached)).log2().max(0.0) * Patience::UNKNOWN_SPREAD;
            // A shape at a level speaks only for what the counts of this line leave open: its factor to that power. Powers take most of
            // the time, so shapes and levels have theirs apart.
            let (mut levels, least) = ((f64::NAN, [0.0; LEVELS.len()]), 1e-6_f64.powf(unseen));
            for (fit, sums) in fitted.iter().zip(&mut sums) {
                let off = fit.per_s[age] / mean[age].max(1e-12);
                let of_shape = if unseen < 1.0 { off.powf(unseen) } else { off };
                // Most shapes have the same variance.
                if levels.0 != fit.variance {
                    let sd = (fit.variance + beyond * beyond).sqrt();
                    levels = (fit.variance, LEVELS.map(|(z, _)| (z * sd * unseen).exp()));
                }
                for (level, sum) in levels.1.iter().zip(sums) {
                    *sum += each * (of_shape * level).max(least);
                }
            }
            sum += each;
            noise += each * each * count.left / (all * all);
            for point in &mut points {
                point.0 = sums[point.2 / LEVELS.len()][point.2 % LEVELS.len()];
            }
            sort_again(&mut points);
            for (side, sign) in [-1.0, 1.0].into_iter().enumerate() {
                let quantile = quantile(&points, weights, 0.5 + 0.45 * sign);
                let off = sign * (sign * (quantile - sum)).max(0.0).hypot(NINE_OF_TEN * noise.sqrt());
                factors[side][age] = (1.0 + (off - before[side]) / each.max(1e-12)).max(0.0);
                before[side] = off;
            }
        }
    }
    let [low, high] = factors;
    (low, high)
}

/// Sorts points by value and number. They were sorted at the age before, so few of them change places.
fn sort_again(points: &mut [(f64, f64, usize)]) {
    for end in 1..points.len() {
        let point = points[end];
        let mut at = end;
        while at > 0 && points[at - 1].0.total_cmp(&point.0).then(points[at - 1].2.cmp(&point.2)).is_gt() {
            points[at] = points[at - 1];
            at -= 1;
        }
        points[at] = point;
    }
}

/// Levels of a shape, in standard deviations of their logarithm, and how probable each is.
const LEVELS: [(f64, f64); 7] =
    [(-2.1, 0.035), (-1.4, 0.115), (-0.7, 0.22), (0.0, 0.26), (0.7, 0.22), (1.4, 0.115), (2.1, 0.035)];

/// The value up to which `part` of the weights lies, whose sum is `all`. `points` are values with weights, in order; between them the line
/// is straight.
fn quantile(points: &[(f64, f64, usize)], all: f64, part: f64) -> f64 {
    let (mut sum, mut last) = (0.0, None);
    for &(value, weight, _) in points {
        let middle = (sum + weight / 2.0) / all;
        if middle >= part {
            return match last {
                Some((value_then, middle_then)) if middle > middle_then => {
                    value_then + (value - value_then) * (part - middle_then) / (middle - middle_then)
                }
                _ => value,
            };
        }
        sum += weight;
        last = Some((value, middle));
    }
    points.last().map_or(0.0, |&(value, ..)| value)
}

/// A curve of rates, known but for its level.
#[derive(Clone)]
struct Shape {
    per_s: [f64; AGES],
    /// How probable it is before anything was counted.
    prior: f64,
    /// The level before anything was counted, and its weight in people who left.
    prior_level: f64,
    prior_left: f64,
}

/// The shapes that studies of abandonment found: Weibull (decreasing, constant and increasing rates), and rates that decrease
/// exponentially, as where a share of the people never leaves.
static PUBLISHED: LazyLock<Vec<Shape>> = LazyLock::new(|| {
    let weibull = [
        (0.5, 0.08),
        (0.6, 0.08),
        (0.7, 0.08),
        (0.85, 0.08),
        (1.0, 0.25),
        (1.2, 0.04),
        (1.5, 0.03),
        (2.0, 0.02),
    ];
    let fading = [30.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1_920.0];
    let curve = |until: &dyn Fn(f64) -> f64| {
        let per_s: [f64; AGES] = std::array::from_fn(|age| {
            (until(upper_s(age)) - until(BOUNDS_S[age])) / (upper_s(age) - BOUNDS_S[age])
        });
        // One on average over the first five minutes.
        let mean = until(300.0) / 300.0;
        per_s.map(|rate| rate / mean)
    };
    // The level may be far from the usual one. With a heavier weight, a crowd of which many leave would speak for shapes that fade soon,
    // because the same rates at the beginning mean a lower level then.
    let shape = |per_s, prior| Shape { per_s, prior, prior_level: USUAL_PER_S, prior_left: 0.1 };
    let mut shapes: Vec<_> =
        weibull.iter().map(|&(k, prior)| shape(curve(&|s: f64| s.powf(k)), prior)).collect();
    shapes.extend(fading.iter().map(|&scale: &f64| shape(curve(&|s: f64| -(-s / scale).exp_m1()), 0.05)));
    shapes
});

/// How much the counts speak for a shape in a range, as a part of what they would if one of the shapes was exact.
const RANGE_EVIDENCE: f64 = 0.1;
/// The level of a shape is never taken for less certain than after so many people who left.
const LEAST_LEFT: f64 = 0.5;

/// Weighs shapes by counts. Given a shape, people leave as a Poisson process whose level has a gamma prior.
fn mixture(ages: &[Count; AGES], shapes: Vec<Shape>) -> Vec<Fitted> {
    // Who leaves at once has heard the wait, and says nothing about the patience of the others.
    let ages: [Count; AGES] = std::array::from_fn(|age| {
        let count = ages[age];
        let most = Patience::MOST_EVIDENCE[age.min(3)];
        let trust = most / (most + count.left).max(1.0);
        Count { left: count.left * trust, exposed: count.exposed * trust }
    });
    let left: f64 = ages.iter().map(|count| count.left).sum();
    let mut fitted: Vec<(f64, Fitted)> = shapes
        .into_iter()
        .map(|shape| {
            let (alpha, beta) = (shape.prior_left, shape.prior_left / shape.prior_level);
            let expected: f64 = ages.iter().zip(shape.per_s).map(|(count, rate)| count.exposed * rate).sum();
            let level = (alpha + left) / (beta + expected);
            let of_counts: f64 = ages
                .iter()
                .zip(shape.per_s)
                .filter(|(count, _)| count.left > 0.0)
                .map(|(count, rate)| count.left * rate.max(1e-12).ln())
                .sum();
            let log = of_counts + alpha * beta.ln() - (alpha + left) * (beta + expected).ln()
                + ln_gamma(alpha + left)
                - ln_gamma(alpha);
            let fit = Fitted {
                per_s: shape.per_s.map(|rate| rate * level),
                weight: shape.prior,
                weight_in_range: shape.prior,
                variance: 1.0 / (alpha + left).max(LEAST_LEFT),
            };
            (log, fit)
        })
        .collect();
    let best = fitted.iter().map(|(log, _)| *log).fold(f64::NEG_INFINITY, f64::max);
    for (log, fit) in &mut fitted {
        fit.weight *= (*log - best).exp();
        fit.weight_in_range *= (RANGE_EVIDENCE * (*log - best)).exp();
    }
    let sum: f64 = fitted.iter().map(|(_, fit)| fit.weight).sum();
    fitted
        .into_iter()
        .map(|(_, mut fit)| {
            fit.weight /= sum;
            fit
        })
        .collect()
}

/// The logarithm of the gamma function, by Stirling's series. For `x > 0`.
fn ln_gamma(x: f64) -> f64 {
    let (mut x, mut product) = (x, 1.0);
    while x < 8.0 {
        product *= x;
        x += 1.0;
    }
    let series = 1.0 / (12.0 * x) - 1.0 / (360.0 * x.powi(3)) + 1.0 / (1_260.0 * x.powi(5));
    (x - 0.5) * x.ln() - x + 0.5 * std::f64::consts::TAU.ln() + series - product.ln()
}

/// The mean of shapes.
fn mean_of(fitted: &[Fitted]) -> [f64; AGES] {
    std::array::from_fn(|age| fitted.iter().map(|fit| fit.weight * fit.per_s[age]).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts of 10,000 people who leave by `until(age)`, the sum of the rates, up to an age.
    fn counts(until: impl Fn(f64) -> f64, reached_s: f64) -> Counts {
        let mut counts = Counts::default();
        for (age, count) in counts.ages.iter_mut().enumerate() {
            let (from_s, to_s) = (BOUNDS_S[age], upper_s(age).min(reached_s));
            if from_s < to_s {
                let exposed = 10_000.0 * (to_s - from_s) * (-until((from_s + to_s) / 2.0)).exp();
                *count = Count { left: exposed * (until(to_s) - until(from_s)) / (to_s - from_s), exposed };
            }
        }
        counts
    }

    /// The rate at an age compared with the law's.
    fn off(rates: &Rates, age: usize, until: impl Fn(f64) -> f64) -> f64 {
        let (from_s, to_s) = (BOUNDS_S[age], upper_s(age));
        rates.expected.per_s(age) * (to_s - from_s) / (until(to_s) - until(from_s))
    }

    #[test]
    fn of_an_unknown_crowd_a_tenth_leaves_at_most() {
        let hazard = Patience::default().rates(&Counts::default()).expected;
        let leave = |s: f64| 1.0 - (-hazard.between(0.0, s, s)).exp();
        assert!((0.02..0.15).contains(&leave(600.0)), "{}", leave(600.0));
        assert!((0.05..0.2).contains(&leave(86_400.0)), "{}", leave(86_400.0));
    }

    #[test]
    fn ages_that_nobody_reached_follow_the_shape_of_the_others() {
        for shape in [0.6, 0.85, 1.0, 1.5] {
            let until = |s: f64| (s / 300.0_f64).powf(shape);
            let patience = Patience { recent: counts(until, 90.0), ..Patience::default() };
            let rates = patience.rates(&Counts::default());
            for s in [20.0, 45.0, 60.0, 90.0, 120.0] {
                let off = off(&rates, age_class(s), until);
                assert!((0.7..1.35).contains(&off), "shape {shape}, {s} s: {off:.2}");
            }
        }
    }

    #[test]
    fn a_line_like_an_earlier_one_goes_on_like_it() {
        // A third leaves evenly over ten minutes, and then nobody.
        let until = |s: f64| -(1.0 - 0.35 * (s / 600.0).min(1.0)).ln();
        let mut patience = Patience { recent: counts(until, 1_900.0), ..Patience::default() };
        patience.end_line();
        assert_eq!(patience.recent, Counts::default());
        // The next crowd leaves half as often.
        patience.recent = counts(|s| until(s) / 2.0, 60.0);
        let rates = patience.rates(&Counts::default());
        for s in [100.0, 200.0, 400.0] {
            let off = 2.0 * off(&rates, age_class(s), until);
            assert!((0.85..1.15).contains(&off), "{s} s: {off:.2}");
        }
        assert!(rates.expected.per_s(age_class(1_000.0)) < 2e-5, "nobody leaves after ten minutes");
    }

    #[test]
    fn what_was_learnt_stays_bounded_and_can_change() {
        let mut patience = Patience::default();
        for _ in 0..100 {
            patience.recent = counts(|s| s / 300.0, 600.0);
            patience.end_line();
            assert!(patience.lasting.left() <= Patience::MOST_LASTING * 1.001);
        }
        for _ in 0..100 {
            patience.recent = counts(|_| 0.0, 6_000.0);
            patience.end_line();
            let waited_s = patience.lasting.waited_s();
            assert!(waited_s <= 1.001 * Patience::MOST_LASTING / USUAL_PER_S, "{waited_s} s");
        }
        for _ in 0..30 {
            patience.recent = counts(|s| s / 900.0, 600.0);
            patience.end_line();
        }
        let rate = patience.rates(&Counts::default()).expected.per_s(age_class(100.0));
        assert!((rate * 900.0 - 1.0).abs() < 0.3, "{rate} per second, and not {} as now", 1.0 / 900.0);
    }

    #[test]
    fn who_is_told_a_long_wait_leaves_at_once_more_often() {
        let mut patience = Patience { recent: counts(|s| s / 300.0, 600.0), ..Patience::default() };
        patience.recent.first_5s_by_told_wait[told_class(100.0)] = Count { left: 100.0, exposed: 400.0 };
        patience.recent.first_5s_by_told_wait[told_class(2_000.0)] =
            Count { left: 3_000.0, exposed: 1_000.0 };
        let hazard = patience.rates(&Counts::default()).expected;
        assert!(hazard.between(0.0, 5.0, 100.0) < hazard.between(0.0, 5.0, 500.0));
        assert!(hazard.between(0.0, 5.0, 500.0) < hazard.between(0.0, 5.0, 2_000.0));
        assert_eq!(hazard.between(50.0, 80.0, 100.0), hazard.between(50.0, 80.0, 2_000.0));
    }
}
