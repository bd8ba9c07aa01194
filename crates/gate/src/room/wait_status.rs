//! Fills in what a waiting holder is told ([`WaitStatus`]): rank, wait, why and when that wait may grow, and when to ask again.
//!
//! The token remembers what was told last. Invariant: a told wait counts down to the instant told before, or to an
//! earlier one. It moves to a later instant only beyond a tolerance, and together with a reason.

use admission::{Estimate, FirstTold, Position, Ticket};
use tokio::time::Instant;
use wait::View;

use super::current_view::CurrentView;
use crate::{
    pace::{Pace, Wish},
    reply::{Eta, Reason, WaitStatus},
};

impl WaitStatus {
    /// What the holder of `ticket` at `position` is told, by the store or by the view in use. The ticket remembers the wait. `now_ms` is
    /// on the store's clock. `pace` books the next poll, at this instant; a stream makes none.
    pub(super) fn new(
        ticket: &mut Ticket,
        position: &Position,
        current: &CurrentView,
        now_ms: u64,
        stale: bool,
        pace: Option<(&Pace, Instant)>,
    ) -> Self {
        let (view, causes) = (&current.view, &current.causes);
        let opens_in_ms = view.opens_in_ms(now_ms);
        // The range comes from how waits went before, which knows nothing of an opening: nobody enters before it.
        let from_opening = |told: Estimate| Estimate { low_ms: told.low_ms.max(opens_in_ms.into()), ..told };
        let why = |longer_s| causes.reason(view, now_ms, stale, longer_s);
        // Before the draw nobody has a rank: everybody may be the last one.
        let (rank, (eta, reason)) = match view.is_undrawn() {
            true => (view.tally.waiting.max(position.rank), (None, Some(Reason::Draw))),
            false => (position.rank, tell(ticket, position.estimate.map(from_opening), now_ms, why)),
        };
        // Multiplying by 2^64 over the golden ratio scatters neighbours (Knuth, The Art of Computer Programming, 6.4).
        let scattered = (ticket.seq ^ (now_ms << 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let scatter = u32::try_from(scattered).unwrap_or(0);
        let wish = next_poll(position, view, ticket.seq, scatter);
        let polling_period_ms = pace.map_or(wish.period_ms, |(pace, now)| pace.book(now, wish, scatter));
        Self { rank, eta, reason, polling_period_ms, stale, opens_in_ms }
    }
}

/// How much later than told an estimate may become before the told wait is corrected, in seconds: 2 s and a tenth of
/// the wait. Estimates of a line that moves as forecast stay well within (see the simulation's figures).
fn tolerance_s(wait_s: u64) -> u64 {
    2 + wait_s / 10
}

/// The wait to tell, which the ticket then remembers. `now_ms` is on the store's clock. `why` gives the reason for a wait that became so
/// many seconds longer.
fn tell(
    ticket: &mut Ticket,
    estimate: Option<Estimate>,
    now_ms: u64,
    why: impl FnOnce(u64) -> Reason,
) -> (Option<Eta>, Option<Reason>) {
    let Some(estimate) = estimate else { return (None, Some(Reason::Held)) };
    let been_ms = now_ms.saturating_sub(ticket.issued_ms);
    let seconds = |ms: u64| ms.div_ceil(1_000);
    let been_s = been_ms / 1_000;
    let expected_s = seconds(been_ms + estimate.wait_ms);
    let wait_s = seconds(estimate.wait_ms);
    let tolerance_s = tolerance_s(wait_s);
    let (told_s, reason) = match ticket.told_s.map(u64::from) {
        None => (expected_s, None),
        Some(told_s) if expected_s > told_s + tolerance_s && !growth_is_free() => {
            (expected_s, Some(why(expected_s - told_s)))
        }
        // Small differences are not told: the told wait counts down steadily.
        Some(told_s) if expected_s + tolerance_s / 2 < told_s || growth_is_free() => (expected_s, None),
        Some(told_s) => (told_s, None),
    };
    let told_s = u32::try_from(told_s).unwrap_or(u32::MAX).min(Ticket::NEVER_S - 1);
    ticket.told_s = Some(told_s);
    let whole = |s: u64| u32::try_from(s).unwrap_or(u32::MAX);
    let left_s = whole(u64::from(told_s).saturating_sub(been_s)).max(1);
    let low_s = whole(estimate.low_ms / 1_000).min(left_s);
    let high_s = whole(seconds(estimate.high_ms)).max(left_s);
    if ticket.first_told.is_none() {
        let from_join_s = |s: u32| whole(been_s).saturating_add(s);
        let told = FirstTold::rounded(from_join_s(left_s), from_join_s(low_s), from_join_s(high_s));
        ticket.first_told = Some(told);
    }
    (Some(Eta { seconds: left_s, low_s, high_s }), reason)
}

/// When the holder of ticket `seq` at `position` should ask again.
///
/// Long periods are shortened by a different 0 to 25 %, so that crowds spread out also while the server is not busy. At the front the
/// store's appointment counts, and near it the near period, however busy the server is.
fn next_poll(position: &Position, view: &View, seq: u64, scatter: u32) -> Wish {
    if position.slot_in_ms.is_some() {
        return Wish::exactly(position.poll_in_ms);
    }
    let near_ms = view.policy.near_period_ms();
    let period_ms = view.period_ms(seq).min(position.poll_in_ms);
    if view.is_near(seq) {
        return Wish::at_most(period_ms);
    }
    let spread_ms = u64::from(period_ms) - ((u64::from(period_ms / 4) * u64::from(scatter)) >> 32);
    let period_ms = u32::try_from(spread_ms).unwrap_or(u32::MAX).max(near_ms.min(period_ms));
    let longest_ms = view.policy.period_limit_ms();
    Wish { earliest_ms: period_ms, period_ms, allowed_ms: view.longest_period_ms.min(longest_ms), longest_ms }
}

#[cfg(feature = "sabotage")]
fn growth_is_free() -> bool {
    admission::sabotage::on(admission::sabotage::Rule::Growth)
}

#[cfg(not(feature = "sabotage"))]
const fn growth_is_free() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use admission::Policy;

    use super::*;
    use crate::room::current_view::before_the_first;

    fn estimate(wait_s: u64) -> Option<Estimate> {
        let wait_ms = wait_s * 1_000;
        Some(Estimate { wait_ms, low_ms: wait_ms * 9 / 10, high_ms: wait_ms * 5 / 4 })
    }

    #[test]
    fn a_long_period_is_spread_behind_and_short_near_the_front() {
        // 10,000 people wait; 100 of them belong to the front, and 400 approach it.
        let view = |period_ms: u32, longest_period_ms: u32| {
            let policy = Policy { polling_period_ms: period_ms, ..Policy::default() };
            let mut view = before_the_first(policy);
            let of = &mut view.snapshot;
            (of.next, of.front_end, of.approach_end, of.longest_period_ms) =
                (10_000, 100, 500, longest_period_ms);
            view
        };
        let wish = |view: &View, seq, slot_in_ms, poll_in_ms| {
            let position = Position { rank: 9, present_ahead: 8, estimate: None, poll_in_ms, slot_in_ms };
            next_poll(&position, view, seq, u32::try_from(seq).expect("small").wrapping_mul(0x9E37_79B9))
        };
        let long = view(20_000, 20_000);
        assert_eq!(wish(&long, 50, Some(7_000), 2_500), Wish::exactly(2_500), "an appointment stands");
        assert_eq!(
            wish(&long, 499, None, 20_000),
            Wish::at_most(3_000),
            "the view knows that the front is near"
        );
        let busy = view(3_000, 8_000);
        assert_eq!(wish(&busy, 499, None, 3_000), Wish::at_most(3_000));
        let stretched = Wish { earliest_ms: 3_000, period_ms: 3_000, allowed_ms: 8_000, longest_ms: 20_000 };
        assert_eq!(wish(&busy, 500, None, 3_000), stretched, "as long as the line knows of");
        assert_eq!(wish(&view(1_000, 1_000), 500, None, 1_000).period_ms, 1_000, "short ones stay");
        let mut tenths = [0_u32; 10];
        for seq in 500..10_500 {
            let told_ms = wish(&long, seq, None, 20_000).period_ms;
            assert!((15_000..=20_000).contains(&told_ms), "{told_ms} ms");
            tenths[usize::try_from((told_ms - 15_000) / 501).expect("small")] += 1;
        }
        assert!(tenths.iter().all(|count| (800..1_200).contains(count)), "spread evenly: {tenths:?}");
    }

    #[test]
    fn a_wait_counts_down_and_grows_with_a_reason_only() {
        let mut ticket = Ticket::new(1, 1, 5_000);
        let mut ask = |wait, at_s: u64| {
            let why = |longer_s| if longer_s > 20 { Reason::Slowed } else { Reason::Slower };
            let (eta, reason) = tell(&mut ticket, wait, 5_000 + at_s * 1_000, why);
            (eta.map(|eta| eta.seconds), reason)
        };
        assert_eq!(ask(estimate(100), 0), (Some(100), None));
        assert_eq!(ask(estimate(99), 3), (Some(97), None), "a little slower is not told");
        assert_eq!(ask(estimate(60), 10), (Some(60), None), "much faster is");
        assert_eq!(ask(estimate(90), 12), (Some(90), Some(Reason::Slowed)), "32 s longer");
        assert_eq!(ask(None, 20), (None, Some(Reason::Held)));
        assert_eq!(ask(estimate(1), 101), (Some(1), None));
        assert_eq!(ask(estimate(1), 103), (Some(1), None), "a waiting holder is told at least a second");
        let first = ticket.first_told.expect("it was told");
        let (wait_s, range_s) = (first.wait_s(), first.range_s());
        assert_eq!((wait_s, range_s), (100, Some((90, 124))), "kept, to compare it with the real wait");
    }
}
