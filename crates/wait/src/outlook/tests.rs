use super::*;
use crate::{patience::AGES, plan::tests::plan_after};
use admission::Window;

/// A line of `people` who came `age_s` ago, cut into slices. All leave at `per_s`.
fn line(people: u32, age_s: f64, per_s: f64) -> Line {
    let slice = |end: u32| Slice { end: end.into(), counted: 2.0, here: 2.0, seen_s: age_s, age_s };
    let rates = Rates::steady([per_s; AGES]);
    let factors = [Factors { early: 1.0, late: 1.0 }; KINDS];
    Line {
        slices: (1..=people / 2).map(|i| slice(2 * i)).collect(),
        slots_used: 1.0,
        rates,
        factors,
        period_ms: 0.0,
    }
}

/// One slot a second.
fn plan() -> Plan {
    let policy = Policy { admit_per_minute: 60, sub_windows: 60, ..Policy::default() };
    let mut window = Window::new(&policy);
    window.record(0, 1);
    Plan::new(&window, &policy, 0)
}

/// The distribution of the wait of a person with `ahead` people ahead who leave at `per_s`, computed exactly: the chance of each
/// number of people ahead is carried from slot to slot. Returns the mean and the 5th and 95th percentile, in seconds.
fn exactly(ahead: usize, per_s: f64, plan: &Plan) -> (f64, f64, f64) {
    let mut chance = vec![0.0; ahead + 1];
    chance[ahead] = 1.0;
    let (mut then_s, mut mean, mut entered) = (0.0, 0.0, 0.0);
    let (mut low, mut high) = (None, None);
    for slot in 0.. {
        let at_s = plan.slot_ms(slot) as f64 / 1_000.0;
        let stay = (-per_s * (at_s - then_s)).exp();
        then_s = at_s;
        // Each of the people ahead stays or leaves, independently: a binomial distribution for each number.
        let mut thinned = vec![0.0; ahead + 1];
        for (count, &weight) in chance.iter().enumerate().filter(|(_, weight)| **weight > 1e-15) {
            let mut binomial = stay.powi(count as i32);
            for stayed in (0..=count).rev() {
                thinned[stayed] += weight * binomial;
                if stayed > 0 {
                    binomial *= (1.0 - stay) / stay * stayed as f64 / (count - stayed + 1) as f64;
                }
            }
        }
        // The slot is for the first of those who are left. If nobody is, it is the own one.
        mean += thinned[0] * at_s;
        entered += thinned[0];
        low = low.or((entered >= 0.05).then_some(at_s));
        high = high.or((entered >= 0.95).then_some(at_s));
        if entered > 1.0 - 1e-9 {
            break;
        }
        thinned.remove(0);
        thinned.push(0.0);
        chance = thinned;
    }
    (mean, low.expect("somebody entered"), high.expect("nearly everybody entered"))
}

#[test]
fn the_walk_agrees_with_an_exact_computation() {
    let plan = plan();
    for people in [10, 30, 60] {
        for per_s in [0.0, 0.003, 0.01, 0.03] {
            let outlook = Outlook::new(line(people, 100.0, per_s), &plan, 0);
            let need = outlook.need(people.into());
            let wait_s = plan.slot_ms(need.slots.round() as u64) as f64 / 1_000.0;
            let (mean_s, low_s, high_s) = exactly(people as usize, per_s, &plan);
            let case =
                format!("{people} people, {per_s} leave per second: {wait_s:.1} s, exactly {mean_s:.1} s");
            assert!((wait_s - mean_s).abs() <= 1.0 + 0.02 * mean_s, "{case}");
            let (from_s, to_s) = (wait_s - need.early_ms / 1_000.0, wait_s + need.late_ms / 1_000.0);
            assert!((from_s - low_s).abs() <= 2.1, "{case}: from {from_s:.1} s, exactly {low_s:.1} s");
            assert!((to_s - high_s).abs() <= 2.1, "{case}: to {to_s:.1} s, exactly {high_s:.1} s");
        }
    }
}

#[test]
fn slots_never_fall_along_the_line_and_go_on_behind_it() {
    let plan = plan();
    let outlook = Outlook::new(line(400, 30.0, 0.004), &plan, 0);
    let mut before = 0.0;
    for ahead in (0..1_000_000).step_by(37) {
        let need = outlook.need(ahead);
        assert!(need.slots >= before, "{ahead} ahead: {} after {before}", need.slots);
        assert!(need.early_ms >= 0.0 && need.late_ms >= 0.0);
        before = need.slots;
    }
    assert!(outlook.knots.len() <= MOST_KNOTS, "{} knots", outlook.knots.len());
}

#[test]
fn nobody_leaves_in_an_unknown_line() {
    for ahead in [0, 1, 7, 1_000_000] {
        assert_eq!(Outlook::unknown().need(ahead).slots, ahead as f64);
    }
}

#[test]
fn people_wait_until_a_burst_has_left_the_window() {
    for n in [2, 10, 60, 600, 10_000] {
        let (plan, policy) = plan_after(n, n);
        let wait = |ahead| Outlook::unknown().estimate(ahead, &plan, &policy, 2_000).expect("auto").wait_ms;
        assert_eq!(wait(0), 59_001, "N = {n}: the burst slides out 60 s after 1 s");
        let sub = u64::from(policy.admit_per_sub_window());
        assert_eq!(wait(sub - 1), 59_001, "N = {n}: one sub-window's worth enters then");
        assert_eq!(wait(sub), 59_001 + 6_001, "N = {n}: the next one enters a sub-window later");
        assert_eq!(wait(u64::from(n)), 59_001 + 60_001, "N = {n}: a minute's worth takes a minute");
    }
}

#[test]
fn there_is_no_estimate_while_nobody_is_admitted() {
    let (plan, policy) = plan_after(600, 0);
    let wait =
        |mode| Outlook::unknown().estimate(5, &plan, &Policy { mode, ..policy }, 2_000).map(|e| e.wait_ms);
    assert_eq!(wait(Mode::Hold), None);
    assert_eq!(wait(Mode::Closed), None);
    assert_eq!(wait(Mode::Open), Some(0));
}
