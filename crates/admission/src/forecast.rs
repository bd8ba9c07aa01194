//! What a server makes of what its store shows: how the line moves, when slots will fall free, and what waits to tell.
//!
//! A store knows places, not waits: several servers of one store each learn for themselves, from the same sights.
//! Invariant: nothing here decides anything; a forecast that is lost is learnt again within minutes.

use std::sync::Arc;

use crate::{Mode, Plan, Policy, Snapshot, Tally, Verdict, View, ViewPage, Window, estimate::Watch};

/// What is learnt about a zone's line.
#[derive(Clone, Debug)]
pub struct Forecast {
    policy: Policy,
    /// The window as it were, had the line used each slot at once: what the slots offered are counted with.
    ideal: Window,
    /// The instant `ideal` has come to.
    ideal_ms: u64,
    /// Present tickets that `ideal` may still take before the next sight.
    ideal_line: u64,
    slots_offered: u64,
    plan: Arc<Plan>,
    plan_is_old: bool,
    watch: Watch,
    /// The last sight: when, the totals then, and how many were absent.
    last: Option<(u64, Tally, u64)>,
}

impl Forecast {
    /// Knows nothing of the line yet.
    #[must_use]
    pub fn new(policy: &Policy, now_ms: u64) -> Self {
        let window = Window::new(policy);
        Self {
            policy: *policy,
            plan: Arc::new(Plan::new(&window, policy, now_ms)),
            ideal: window,
            ideal_ms: now_ms,
            ideal_line: 0,
            slots_offered: 0,
            plan_is_old: true,
            watch: Watch::new(),
            last: None,
        }
    }

    /// Takes in a sight, and the window as of that sight: learns, and makes the view.
    pub fn show(&mut self, sight: Snapshot, window: &Window) -> View {
        self.offer(&sight, window);
        let tally = Tally { slots_offered: self.slots_offered, ..sight.tally };
        self.look_back(sight.now_ms, tally);
        self.plan = Arc::new(Plan::new(window, &self.policy, sight.now_ms));
        self.plan_is_old = false;
        let (mut live_before, mut present_before) = (0, 0);
        let pages = sight.pages.into_iter().map(|page| {
            let view_page = ViewPage {
                gone: page.gone,
                live_before,
                present_before,
                live: page.live,
                present: page.present,
            };
            live_before += u64::from(page.live);
            present_before += u64::from(page.present);
            view_page
        });
        View {
            now_ms: sight.now_ms,
            policy: sight.policy,
            epoch: sight.epoch,
            base: sight.base,
            next: sight.next,
            front_end: sight.front_end,
            pages: pages.collect(),
            pace: self.watch.pace(),
            plan: Arc::clone(&self.plan),
            tally,
        }
    }

    /// Fills in the waits of places decided at `now_ms`, given the window as it was after the decision, and whether that
    /// changed since this last saw it.
    pub fn estimate(&mut self, verdicts: &mut [Verdict], window: &Window, window_changed: bool, now_ms: u64) {
        self.plan_is_old |= window_changed;
        let pace = self.watch.pace();
        for verdict in verdicts {
            let Verdict::Waiting(place) = verdict else { continue };
            if std::mem::take(&mut self.plan_is_old) {
                self.plan = Arc::new(Plan::new(window, &self.policy, now_ms));
            }
            place.estimate = self.plan.tell(place.rank, place.present_ahead, &pace, &self.policy, now_ms);
        }
    }

    /// Counts the slots that a line which uses each at once would have taken since the last sight.
    fn offer(&mut self, sight: &Snapshot, window: &Window) {
        let (from_ms, now_ms) = (self.ideal_ms, sight.now_ms);
        let mut taken = Vec::new();
        let mut line = self.ideal_line;
        if self.policy.mode == Mode::Auto {
            for (at_ms, count) in self.ideal.upcoming(from_ms) {
                if at_ms > now_ms || line == 0 {
                    break;
                }
                let count = count.min(u32::try_from(line).unwrap_or(u32::MAX));
                line -= u64::from(count);
                self.slots_offered += u64::from(count);
                taken.push((at_ms, count));
            }
        }
        for (at_ms, count) in taken {
            self.ideal.advance(at_ms);
            self.ideal.record(at_ms, count);
        }
        self.ideal.advance(now_ms);
        // Without a line, newcomers take slots of which nothing else tells.
        if self.ideal_line == 0 || sight.tally.present == 0 || sight.policy != self.policy {
            self.ideal = window.clone();
        }
        self.policy = sight.policy;
        self.ideal_ms = now_ms;
        self.ideal_line = sight.tally.present;
    }

    /// Learns from what happened since the last sight.
    fn look_back(&mut self, now_ms: u64, tally: Tally) {
        let absent = tally.waiting.saturating_sub(tally.present);
        if let Some((then_ms, then, absent_then)) = self.last.replace((now_ms, tally, absent)) {
            let since = |now: u64, then: u64| number(now.saturating_sub(then));
            // Who is evicted was absent before: both together are the people who went, less those who came back.
            let went = since(tally.evicted, then.evicted) + number(absent) - number(absent_then);
            self.watch.observe(
                since(now_ms, then_ms) / 1_000.0,
                number(tally.present),
                went,
                since(tally.slots_used, then.slots_used),
                since(tally.slots_offered, then.slots_offered),
            );
        }
    }
}

fn number(n: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "counts are below 2^52")]
    let number = n as f64;
    number
}
