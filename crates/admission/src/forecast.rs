//! Makes views from a store's snapshots: measures how the line moves, plans the next slots, and estimates waits.
//!
//! A store knows positions, not waits. Each server of a store learns the pace by itself, from the same snapshots.
//! Invariant: nothing here decides who enters. A lost forecast is learnt again within minutes.

use std::sync::Arc;

use crate::{Mode, Plan, Policy, Snapshot, Tally, Verdict, View, ViewPage, Window, estimate::PaceMeter};

/// What a server has learnt about one zone's line.
#[derive(Clone, Debug)]
pub struct Forecast {
    policy: Policy,
    /// The window if the line had used each slot at once. It counts the offered slots.
    ideal: Window,
    /// The instant up to which `ideal` was advanced.
    ideal_ms: u64,
    /// The present tickets that `ideal` may still admit before the next snapshot.
    ideal_line: u64,
    slots_offered: u64,
    plan: Arc<Plan>,
    plan_is_old: bool,
    meter: PaceMeter,
    /// The last snapshot: its instant, its totals, and its number of absent tickets.
    last: Option<(u64, Tally, u64)>,
}

impl Forecast {
    /// A forecast that knows nothing about the line yet.
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
            meter: PaceMeter::new(),
            last: None,
        }
    }

    /// Learns from a snapshot and the window at the same instant, and makes the view.
    pub fn observe(&mut self, snapshot: Snapshot, window: &Window) -> View {
        self.offer(&snapshot, window);
        let tally = Tally { slots_offered: self.slots_offered, ..snapshot.tally };
        self.measure(snapshot.now_ms, tally);
        self.plan = Arc::new(Plan::new(window, &self.policy, snapshot.now_ms));
        self.plan_is_old = false;
        let (mut live_before, mut present_before) = (0, 0);
        let pages = snapshot.pages.into_iter().map(|page| {
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
            now_ms: snapshot.now_ms,
            policy: snapshot.policy,
            epoch: snapshot.epoch,
            base: snapshot.base,
            next: snapshot.next,
            front_end: snapshot.front_end,
            approach_end: snapshot.approach_end,
            told_ms: snapshot.told_ms,
            pages: pages.collect(),
            pace: self.meter.pace(),
            plan: Arc::clone(&self.plan),
            tally,
        }
    }

    /// Fills in the estimates of positions that were decided at `now_ms`. `window` is the window after that decision;
    /// `window_changed` says whether it changed since the last call.
    pub fn estimate(&mut self, verdicts: &mut [Verdict], window: &Window, window_changed: bool, now_ms: u64) {
        self.plan_is_old |= window_changed;
        let pace = self.meter.pace();
        for verdict in verdicts {
            let Verdict::Waiting(position) = verdict else { continue };
            if std::mem::take(&mut self.plan_is_old) {
                self.plan = Arc::new(Plan::new(window, &self.policy, now_ms));
            }
            position.estimate = self.plan.estimate(position.present_ahead, &pace, &self.policy, now_ms);
        }
    }

    /// Counts the slots that a line would have used since the last snapshot, had it used each one at once.
    fn offer(&mut self, snapshot: &Snapshot, window: &Window) {
        let (from_ms, now_ms) = (self.ideal_ms, snapshot.now_ms);
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
        // Without a line, newcomers use slots that no snapshot reports. Start again from the real window.
        if self.ideal_line == 0 || snapshot.tally.present == 0 || snapshot.policy != self.policy {
            self.ideal = window.clone();
        }
        self.policy = snapshot.policy;
        self.ideal_ms = now_ms;
        self.ideal_line = snapshot.tally.present;
    }

    /// Measures the pace since the last snapshot.
    fn measure(&mut self, now_ms: u64, tally: Tally) {
        let absent = tally.waiting.saturating_sub(tally.present);
        if let Some((then_ms, then, absent_then)) = self.last.replace((now_ms, tally, absent)) {
            let since = |now: u64, then: u64| number(now.saturating_sub(then));
            // A ticket is absent before it is evicted. The people who gave up are therefore the newly evicted plus the
            // newly absent, less those who came back.
            let left = since(tally.evicted, then.evicted) + number(absent) - number(absent_then);
            self.meter.observe(
                since(now_ms, then_ms) / 1_000.0,
                number(tally.present),
                left,
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
