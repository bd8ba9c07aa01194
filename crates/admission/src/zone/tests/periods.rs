//! Changes of the polling period and of the idle time while people wait of whom some have left.

use std::collections::BTreeMap;

use super::*;

/// 60 enter at once, the next 20 leave at `left_ms` without a word, and 20 behind them ask as often as they are told. Returns when each
/// of those enters, in milliseconds, if the policy is changed at the given instants.
fn entries_behind_leavers(first: Policy, left_ms: u64, changes: &[(u64, Policy)]) -> Vec<u64> {
    let mut zone = Zone::new(first, EPOCH, at(0));
    zone.join(60, at(0));
    zone.join(40, at(100));
    let (mut period_ms, mut stay, mut entered) =
        (first.polling_period_ms, (60..100).collect::<Vec<_>>(), Vec::new());
    let (mut front_end, mut polled) = (0, Vec::new());
    let mut next: BTreeMap<u64, u64> = stay.iter().map(|&seq| (seq, 100 + seq * 7 % 1_000)).collect();
    for t in (1_000..400_000).step_by(100) {
        if let Some(&(_, policy)) = changes.iter().find(|&&(at_ms, _)| at_ms == t) {
            zone.set_policy(policy, at(t));
            period_ms = policy.polling_period_ms;
        }
        if t >= left_ms {
            stay.retain(|&seq| seq >= 80);
        }
        let asking: Vec<u64> = stay.iter().copied().filter(|seq| next[seq] <= t).collect();
        // Those behind the front are answered from the view, which reports them with the next beat.
        let (front, behind): (Vec<u64>, Vec<u64>) = asking.into_iter().partition(|&seq| seq < front_end);
        next.extend(behind.iter().map(|&seq| (seq, t + u64::from(period_ms.min(3_000)))));
        polled.extend(behind);
        let claims: Vec<Claim> = front.iter().map(|&seq| claim(seq)).collect();
        let verdicts = zone.enter(&claims, at(t)).verdicts;
        for (&seq, verdict) in front.iter().zip(&verdicts) {
            match verdict {
                Verdict::Entered(_) => entered.push(t),
                Verdict::Waiting(position) => {
                    // All of them are near the front.
                    let in_ms = position.poll_in_ms.min(period_ms).min(3_000);
                    next.insert(seq, t + u64::from(in_ms));
                }
                Verdict::Gone => panic!("ticket {seq} asked as often as it was told, and is gone at {t} ms"),
            }
        }
        stay.retain(|&seq| zone.is_live(seq));
        if t % 1_000 == 0 {
            front_end = zone.beat(&polls(std::mem::take(&mut polled)), at(t)).front_end;
        }
    }
    assert!(stay.is_empty(), "{stay:?} wait for ever");
    entered
}

#[test]
fn who_was_silent_before_a_change_of_the_period_is_not_present_after_it() {
    let first = policy(60);
    let with = |period_ms| Policy { polling_period_ms: period_ms, ..first };
    for changes in [
        vec![(55_000, with(3_001))],
        vec![(55_000, with(2_000))],
        vec![(55_000, with(20_000)), (58_000, first)],
        vec![(30_000, with(10_000)), (55_000, with(500))],
        vec![(55_000, Policy { idle_timeout_s: 61, ..first })],
        vec![(55_000, Policy { idle_timeout_s: 20, ..first }), (57_000, first)],
        vec![(5_000, with(500)), (55_500, with(20_000))],
        vec![
            (5_000, with(500)),
            (10_000, with(20_000)),
            (16_000, with(1_000)),
            (35_000, with(3_000)),
            (44_000, with(20_000)),
            (51_000, with(500)),
        ],
        (50..60).map(|s: u32| (u64::from(s) * 1_000, with(3_000 + s))).collect(),
    ] {
        // Ages begin anew with another idle time, so who has just left counts as present for two more generations, and a poll.
        let is_idle = changes.iter().any(|(_, policy)| policy.idle_timeout_s != first.idle_timeout_s);
        let late_ms = if is_idle { 13_000 } else { 6_000 };
        for left_ms in [1_000, 49_000] {
            let undisturbed = entries_behind_leavers(first, left_ms, &[]);
            let entered = entries_behind_leavers(first, left_ms, &changes);
            assert!(
                entered[0] <= undisturbed[0] + late_ms && entered[19] <= undisturbed[19] + late_ms,
                "left at {left_ms} ms, {changes:?}: {entered:?}, and without a change {undisturbed:?}"
            );
        }
    }
}
