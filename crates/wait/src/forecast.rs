//! Makes views from a store's snapshots: measures how the line moves, plans the next slots, and estimates waits.
//!
//! A store knows positions, not waits. Each server of a store learns the pace by itself, from the same snapshots.
//! Invariant: nothing here decides who enters. A lost forecast is learnt again within minutes.

use std::sync::Arc;

use admission::{Estimate, Mode, Occupancy, Policy, SlotState, Snapshot, Tally, Verdict, Window};

use crate::{
    Learned, Outlook, Plan, View,
    calibration::{Calibration, kind},
    crowd::Crowd,
    number,
    offered::Offered,
    outlook::{Line, Slice},
    plan::SlotMeter,
    turnover::StayMeter,
};

/// A line that begins is walked over again after this time, in milliseconds, because the first people use the free slots.
const WALK_AGAIN_MS: u64 = 50;

/// The time between two notes of what is expected, in milliseconds.
const NOTE_MS: u64 = 5_000;

/// What a server has learnt about one zone's line.
#[derive(Clone, Debug)]
pub struct Forecast {
    policy: Policy,
    offered: Offered,
    /// The share of the slots that is lost now, because people leave who stand at the front.
    front_loss_share: f64,
    plan: Arc<Plan>,
    /// The last entry that the plan knows of; `None` before the first plan.
    planned_after: Option<Option<(u64, u32)>>,
    meter: SlotMeter,
    stays: StayMeter,
    crowd: Crowd,
    outlook: Arc<Outlook>,
    calibration: Calibration,
    noted_ms: u64,
    walked_ms: u64,
    line_was_empty: bool,
    /// Whether a draw is to decide the order, as of the last snapshot. Nobody has a rank before.
    is_undrawn: bool,
    /// The last snapshot: its instant and its totals.
    last: Option<(u64, Tally)>,
}

impl Forecast {
    /// A forecast that knows nothing about the line yet.
    #[must_use]
    pub fn new(policy: &Policy, now_ms: u64) -> Self {
        let window = Window::new(policy);
        Self {
            policy: *policy,
            plan: Arc::new(Plan::new(&window, policy, now_ms)),
            offered: Offered::new(window, now_ms),
            front_loss_share: 0.0,
            planned_after: None,
            meter: SlotMeter::new(),
            stays: StayMeter::new(),
            crowd: Crowd::new(),
            outlook: Arc::new(Outlook::unknown()),
            calibration: Calibration::new(),
            noted_ms: 0,
            walked_ms: 0,
            line_was_empty: true,
            is_undrawn: false,
            last: None,
        }
    }

    /// A forecast for a zone of whose earlier lines something is known.
    #[must_use]
    pub fn after(learned: &Learned, policy: &Policy, now_ms: u64) -> Self {
        let mut forecast = Self::new(policy, now_ms);
        forecast.relearn(learned);
        forecast
    }

    /// Goes on from what another server learnt about the zone, in place of what this one did.
    pub fn relearn(&mut self, learned: &Learned) {
        self.crowd.relearn(learned.counts.clone());
        self.calibration.set_factors(learned.factors);
        self.walked_ms = 0;
    }

    /// The people who wait, as of the last snapshot.
    pub(crate) fn waiting(&self) -> u64 {
        self.last.map_or(0, |(_, tally)| tally.waiting)
    }

    /// What this line and earlier ones taught.
    #[must_use]
    pub fn learned(&self) -> Learned {
        Learned { counts: self.crowd.counts(), factors: *self.calibration.factors() }
    }

    /// Learns from a snapshot, and makes the view.
    pub fn observe(&mut self, snapshot: Snapshot) -> View {
        let window = &*snapshot.window;
        let room = self.stays.observe(snapshot.occupancy, &snapshot.policy, snapshot.now_ms);
        self.offer(&snapshot, room);
        let tally = Tally { slots_offered: self.offered.slots(), ..snapshot.tally };
        self.measure(snapshot.now_ms, tally);
        self.plan = Arc::new(self.plan_of(window, snapshot.occupancy, snapshot.now_ms));
        self.planned_after = Some(window.last());
        self.look_out(&snapshot);
        let snapshot = Snapshot { tally, ..snapshot };
        let view = View { snapshot, outlook: Arc::clone(&self.outlook), plan: Arc::clone(&self.plan) };
        view.check();
        view
    }

    fn plan_of(&self, window: &Window, occupancy: Option<Occupancy>, now_ms: u64) -> Plan {
        let turnover = occupancy.map(|people| self.stays.turnover(people, &self.policy, now_ms));
        Plan::new(window, &self.policy, now_ms).within(turnover)
    }

    /// Fills in the estimates of positions that were decided at `now_ms`. `slots` are those after that decision.
    pub fn estimate(&mut self, verdicts: &mut [Verdict], slots: &SlotState, now_ms: u64) {
        let last = Some(slots.window.last());
        let held_ms = slots.held_until_ms.saturating_sub(now_ms);
        for verdict in verdicts {
            let Verdict::Waiting(position) = verdict else { continue };
            if self.planned_after != last {
                self.planned_after = last;
                self.plan = Arc::new(self.plan_of(&slots.window, slots.occupancy, now_ms));
                if self.line_was_empty && self.walked_ms + WALK_AGAIN_MS <= now_ms {
                    // The first people of a line came and used the slots that the last walk knew of.
                    self.walk(Vec::new(), now_ms);
                }
            }
            if self.is_undrawn {
                continue;
            }
            let outlook = || self.outlook.estimate(position.present_ahead, &self.plan, &self.policy, now_ms);
            position.estimate =
                match position.slot_in_ms.map(|wait_ms| Estimate::at_the_front(wait_ms, &self.policy)) {
                    // The store knows it exactly.
                    Some(exact) if position.present_ahead == 0 || exact.wait_ms <= self.policy.front_ms() => {
                        Some(exact)
                    }
                    // Until the slot comes, people ahead may leave, and then it comes earlier.
                    Some(exact) => outlook().map(|outlook| outlook.at_most(exact)),
                    None => outlook(),
                };
            if let Some(estimate) = &mut position.estimate {
                estimate.wait_ms = estimate.wait_ms.max(held_ms);
                estimate.high_ms = estimate.high_ms.max(estimate.wait_ms);
            }
        }
    }

    /// Learns who leaves, and walks over the line as the snapshot shows it.
    fn look_out(&mut self, snapshot: &Snapshot) {
        let (plan, before) = (&*self.plan, &*self.outlook);
        let wait_s = |ahead: f64| before.wait_s(ahead, plan, snapshot.now_ms);
        let slices = self.crowd.observe(snapshot, wait_s);
        self.line_was_empty = slices.is_empty();
        self.walk(slices, snapshot.now_ms);
        self.compare(snapshot);
    }

    /// Compares earlier estimates with the entries, and notes some estimates of now.
    fn compare(&mut self, snapshot: &Snapshot) {
        let outlook = Arc::clone(&self.outlook);
        let slices = outlook.slices();
        let now_ms = snapshot.now_ms;
        if let Some(seq) = self.crowd.entered() {
            self.calibration.reach(number(seq), number(now_ms));
        }
        if snapshot.mode() != Mode::Auto || slices.is_empty() {
            self.calibration.forget();
            return;
        }
        if now_ms < self.noted_ms + NOTE_MS {
            return;
        }
        self.noted_ms = now_ms;
        let known = self.crowd.rates().known;
        let mut ahead = 0.0;
        let mut quarter = 1;
        for (i, slice) in slices.iter().enumerate() {
            ahead += slice.counted;
            if (i + 1) * 4 < quarter * slices.len() {
                continue;
            }
            quarter += 1;
            let wait_s = self.outlook.wait_s(ahead, &self.plan, now_ms);
            let expected_ms = number(now_ms) + wait_s * 1_000.0;
            self.calibration.note(slice.end, kind(wait_s, known), expected_ms, self.outlook.halves(ahead));
        }
    }

    fn walk(&mut self, slices: Vec<Slice>, now_ms: u64) {
        self.front_loss_share =
            slices.first().map_or(0.0, |slice| self.crowd.rates().expected.lost(slice.age_s));
        let line = Line {
            slices,
            slots_used: self.meter.slots_used(),
            rates: self.crowd.rates().clone(),
            factors: *self.calibration.factors(),
            period_ms: f64::from(self.policy.near_period_ms()),
        };
        self.outlook = Arc::new(Outlook::new(line, &self.plan, now_ms));
        self.walked_ms = now_ms;
    }

    /// Counts the slots that fell free since the last snapshot. At most `room` people could enter, because of those inside.
    fn offer(&mut self, snapshot: &Snapshot, room: u64) {
        let admits = self.policy.mode == Mode::Auto && !self.is_undrawn;
        self.offered.count(snapshot, if admits { room } else { 0 });
        if snapshot.policy != self.policy || snapshot.is_undrawn() != self.is_undrawn {
            self.offered.start_again(snapshot);
            self.calibration.forget();
        }
        self.is_undrawn = snapshot.is_undrawn();
        self.policy = snapshot.policy;
    }

    /// Measures the pace since the last snapshot.
    fn measure(&mut self, now_ms: u64, tally: Tally) {
        if let Some((then_ms, then)) = self.last.replace((now_ms, tally))
            && self.offered.is_comparable(now_ms)
        {
            let since = |now: u64, then: u64| number(now.saturating_sub(then));
            self.meter.observe(
                since(now_ms, then_ms) / 1_000.0,
                since(tally.slots_used, then.slots_used),
                since(tally.slots_offered, then.slots_offered) * (1.0 - self.front_loss_share),
            );
        }
        if tally.waiting == 0 {
            // If the last line ended because all of its people left, their slots were lost. That says nothing about the next one.
            self.meter = SlotMeter::new();
        }
    }
}
