//! Why waits became longer, as far as this server saw it.
//!
//! Views show what changed: an operator made the line slower, the store had not answered, or people came back who had
//! been silent. A holder hears of a longer wait with the next poll, so a cause counts for as long as a silent place is kept.
//! Invariant: a cause explains a longer wait; it never makes one.

use admission::{Mode, Policy};
use wait::View;

use crate::reply::Reason;

/// The epoch before the first view; lines begin with 1.
pub(super) const NO_EPOCH: u32 = 0;

/// Whether a store reported this view.
pub(super) fn is_of_store(view: &View) -> bool {
    view.epoch != NO_EPOCH
}

/// The time in which half of those who came back are forgotten, in seconds.
const HALF_LIFE_S: f64 = 30.0;

/// What happened lately in a zone. Instants are on the store's clock, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Causes {
    /// Until when it counts that an operator made the line slower.
    slowed_until_ms: u64,
    /// Until when it counts that the store had not answered.
    interrupted_until_ms: u64,
    /// How many people came back, less those who became silent in the same second.
    returned: f64,
}

impl Causes {
    /// The causes when `view` replaces `before`. `was_stale`: until now the store had not renewed the view in time.
    pub(super) fn next(&self, before: &View, view: &View, was_stale: bool) -> Self {
        let (now_ms, mut next) = (view.now_ms, *self);
        if !is_of_store(before) {
            return next;
        }
        // Whoever still waits has asked by then. A shorter idle time counts only for those who heard of it.
        let idle_s = before.policy.idle_timeout_s.max(view.policy.idle_timeout_s);
        let until_ms = now_ms + u64::from(idle_s) * 1_000;
        let opens_later = view.policy.opens_at.unix_s > before.policy.opens_at.unix_s;
        if slows(&before.policy, &view.policy) || opens_later && view.opens_in_ms(now_ms) > 0 {
            next.slowed_until_ms = until_ms;
        }
        let is_other_line = view.epoch != before.epoch;
        if was_stale || is_other_line {
            next.interrupted_until_ms = until_ms;
        }
        let passed_s = now_ms.saturating_sub(before.now_ms) as f64 / 1_000.0;
        next.returned *= (-passed_s / HALF_LIFE_S).exp2();
        // After a pause of the store everybody counts as present: nobody came back.
        if !was_stale && !is_other_line && view.policy == before.policy {
            let (old, new) = (&before.tally, &view.tally);
            let came = new.joined.saturating_sub(old.joined) + old.present;
            let stayed = new.entered.saturating_sub(old.entered) + new.present;
            next.returned += stayed.saturating_sub(came) as f64;
        }
        next
    }

    /// The reason to tell for a wait that became `longer_s` seconds longer than told.
    pub(super) fn reason(&self, view: &View, now_ms: u64, stale: bool, longer_s: u64) -> Reason {
        let returned_s = self.returned * 60.0 / f64::from(view.policy.admit_per_minute.max(1));
        if now_ms <= self.slowed_until_ms {
            Reason::Slowed
        } else if stale || now_ms <= self.interrupted_until_ms {
            Reason::Interrupted
        } else if returned_s * 2.0 >= longer_s as f64 {
            Reason::Returned
        } else {
            Reason::Slower
        }
    }
}

/// Whether a line may wait longer after this change. When a hold ends, the line has waited for as long. Other sub-windows give out
/// the slots of the minute at other instants.
fn slows(before: &Policy, after: &Policy) -> bool {
    let most_inside = |policy: &Policy| match policy.max_active {
        0 => u32::MAX,
        most => most,
    };
    after.admit_per_minute < before.admit_per_minute
        || most_inside(after) < most_inside(before)
        || after.sub_windows != before.sub_windows
        || (after.mode != before.mode && after.mode != Mode::Open)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use admission::{Tally, Window};
    use wait::Plan;

    use super::*;
    use crate::room::current_view::before_the_first;

    /// A line of 1,000 at 60 a minute, of whom `present` poll.
    fn view(now_s: u64, present: u64) -> View {
        let policy = Policy { admit_per_minute: 60, ..Policy::default() };
        let tally = Tally { waiting: 1_000, present, joined: 1_000, ..Tally::default() };
        let mut view = before_the_first(policy);
        (view.snapshot.now_ms, view.snapshot.epoch, view.snapshot.tally) = (now_s * 1_000, 1, tally);
        view
    }

    /// An operator who also shortens the idle time.
    #[test]
    fn whoever_keeps_a_place_by_the_idle_time_before_hears_the_cause() {
        let before = view(10, 900);
        let after = with(view(11, 900), |policy| {
            policy.admit_per_minute = 15;
            policy.idle_timeout_s = 10;
        });
        let causes = Causes::default().next(&before, &after, false);
        assert_eq!(reason(causes, &after, 40), Reason::Slowed);
    }

    fn with(mut view: View, change: impl FnOnce(&mut Policy)) -> View {
        change(&mut view.snapshot.policy);
        view
    }

    fn reason(causes: Causes, view: &View, after_s: u64) -> Reason {
        causes.reason(view, view.now_ms + after_s * 1_000, false, 20)
    }

    #[test]
    fn an_operator_who_slows_the_line_is_the_reason_while_places_are_kept() {
        let before = view(10, 900);
        let changes: [fn(&mut Policy); 5] = [
            |policy| policy.admit_per_minute = 30,
            |policy| policy.sub_windows = 1,
            |policy| policy.max_active = 100,
            |policy| policy.mode = Mode::Hold,
            |policy| policy.mode = Mode::Closed,
        ];
        for change in changes {
            let after = with(view(11, 900), change);
            let causes = Causes::default().next(&before, &after, false);
            assert_eq!(reason(causes, &after, 60), Reason::Slowed);
            assert_eq!(reason(causes, &after, 61), Reason::Slower, "a silent place is not kept for longer");
            // The way back: after a hold the line has waited for as long, and a faster line waits less.
            let back = Causes::default().next(&after, &view(12, 900), false);
            let is_faster = after.policy.mode == Mode::Auto && after.policy.sub_windows == 10;
            assert_eq!(reason(back, &before, 0) == Reason::Slower, is_faster);
        }
        let opened = with(view(11, 900), |policy| policy.mode = Mode::Open);
        assert_eq!(Causes::default().next(&before, &opened, false), Causes::default());
    }

    /// An event whose beginning is moved.
    #[test]
    fn an_operator_who_opens_the_zone_later_is_the_reason() {
        let opening = |opens_s: u32| {
            let mut view = with(view(10, 900), |policy| policy.opens_at = opens_s.into());
            let mut window = Window::new(&view.policy);
            window.set_opening(u64::from(opens_s) * 1_000, view.now_ms);
            view.plan = Arc::new(Plan::new(&window, &view.policy, view.now_ms));
            view
        };
        let of = |from, to| {
            let after = opening(to);
            reason(Causes::default().next(&opening(from), &after, false), &after, 0)
        };
        assert_eq!(of(20, 30), Reason::Slowed);
        assert_eq!([of(30, 20), of(2, 5)], [Reason::Slower; 2], "it opens earlier, or is open already");
    }

    #[test]
    fn a_store_that_was_away_is_the_reason() {
        let (before, after) = (view(10, 900), view(20, 1_000));
        let causes = Causes::default().next(&before, &after, true);
        assert_eq!(reason(causes, &after, 10), Reason::Interrupted, "and nobody came back");
        assert_eq!(Causes::default().reason(&before, before.now_ms, true, 20), Reason::Interrupted);
        let mut other_line = view(11, 900);
        other_line.snapshot.epoch = 2;
        let causes = Causes::default().next(&before, &other_line, false);
        assert_eq!(reason(causes, &other_line, 0), Reason::Interrupted);
        // A server that starts has not seen what was before.
        let causes = Causes::default().next(&before_the_first(before.policy), &before, true);
        assert_eq!(causes, Causes::default());
    }

    #[test]
    fn people_who_come_back_are_the_reason_if_they_explain_it() {
        let mut causes = Causes::default();
        let mut last = view(10, 900);
        for second in 11..15 {
            let after = view(second, last.tally.present + 3);
            causes = causes.next(&last, &after, false);
            last = after;
        }
        // 12 people are 12 seconds.
        let of = |longer_s| causes.reason(&last, last.now_ms, false, longer_s);
        assert_eq!([of(5), of(20), of(30)], [Reason::Returned, Reason::Returned, Reason::Slower]);
        let later = view(120, last.tally.present);
        let causes = causes.next(&last, &later, false);
        assert_eq!(causes.reason(&later, later.now_ms, false, 5), Reason::Slower, "that was long ago");
    }

    #[test]
    fn newcomers_and_entries_are_nobody_who_came_back() {
        let before = view(10, 900);
        let mut after = view(11, 900 + 50 - 20);
        after.snapshot.tally.joined += 50;
        after.snapshot.tally.entered += 20;
        assert_eq!(Causes::default().next(&before, &after, false), Causes::default());
        after.snapshot.tally.present -= 100;
        assert_eq!(Causes::default().next(&before, &after, false), Causes::default(), "people became silent");
    }
}
