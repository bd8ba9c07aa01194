//! How many polls a second there is room for.
//!
//! The law: `room = share of the processors / cost of a call - joins - appointments - strays`.
//! - The cost is measured: the processor time of the whole machine, divided by this server's calls. What others use beside a call, such as
//!   a proxy on the same machine, belongs to its cost. What they use anyway makes calls look dearer than they are; the room then settles
//!   where the machine as a whole uses the share. A higher cost is answered at once, and not by trial; a lower
//!   one over the longest period.
//! - Joins are calls that no reply asked for. Appointments are those of people near the front, who come when they have to. Strays
//!   are polls that nobody asked for then: of people who come when they like, or who were told by another server.
//! - When tasks run late or connections did not get in, the server's own use has a bound of a little less than it is. Repeating that does
//!   not lower the bound further while the use stays the same. It rises over the longest period, because what is told now is seen a whole
//!   period later.
//!
//! Invariants: the room is never less than a tenth of what all calls may take, so polls never stop; others who use the whole machine
//! leave this server a set part of it.

use std::{collections::VecDeque, fmt};

/// The share of the processors that is used at most. The rest is for what comes at once.
const SHARE: f64 = 0.7;

/// The part of that which this server uses in any case.
const LEAST: f64 = 0.2;

/// A server whose tasks run this late on average is busy, in seconds.
const LATE_S: f64 = 0.010;

/// What is left of the use when tasks run late.
const BACK: f64 = 0.9;

/// The time in which the bound rises again, and over which strays are averaged, in seconds: the longest period that is usual.
const PERIOD_S: f64 = 20.0;

/// The updates over which use and calls are measured.
const UPDATES: usize = 4;

/// Fewer calls than this in these updates say nothing about their cost.
const ENOUGH: u64 = 20;

/// A use of less than this share of the processors is mostly other work: a call costs less than it seems.
const IDLE: f64 = 0.02;

/// What was measured since the last update.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// How long ago that was, in seconds.
    pub elapsed_s: f64,
    /// The processor time that the server used, in seconds.
    pub cpu_s: f64,
    /// The processor time that others used of what this server could, in seconds.
    pub others_s: f64,
    /// How late its tasks ran, on average, in seconds.
    pub lag_s: f64,
    /// Connections did not get in, because the accept queue was full.
    pub overflowed: bool,
}

/// The calls since the last update.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Calls {
    /// All that were answered with a later one booked.
    pub(super) answered: u64,
    /// Those that took a place.
    pub(super) joins: u64,
    /// How many were expected.
    pub(super) booked: u64,
    /// Those that were booked for an instant that can't be another one.
    pub(super) fixed: u64,
}

/// Why a server is busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The share of the processors is in use.
    Processor,
    /// Its tasks run late.
    Lag,
    /// Connections did not get in.
    AcceptQueue,
}

impl Cause {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Processor, Self::Lag, Self::AcceptQueue];

    /// The word for it in metrics and in the admin API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Processor => "processor",
            Self::Lag => "lag",
            Self::AcceptQueue => "accept_queue",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a call costs, in processor seconds.
#[derive(Clone, Copy, Debug)]
struct Cost {
    own_s: f64,
    machine_s: f64,
}

/// What a call is taken to cost before there were enough of them: twice as much as on the machines that were measured.
const ASSUMED: Cost = Cost { own_s: 50e-6, machine_s: 100e-6 };

/// The law, and what it remembers.
pub(super) struct Control {
    processors: f64,
    /// The last updates.
    updates: VecDeque<(Load, Calls)>,
    cost: Cost,
    /// Whether the cost was measured.
    is_known: bool,
    /// Processor seconds a second that this server may use.
    bound: f64,
    strays_per_s: f64,
    cause: Cause,
}

impl Control {
    pub(super) fn new(processors: f64) -> Self {
        Self {
            processors,
            updates: VecDeque::with_capacity(UPDATES),
            cost: ASSUMED,
            is_known: false,
            bound: SHARE * processors,
            strays_per_s: 0.0,
            cause: Cause::Processor,
        }
    }

    /// Takes in an update. Returns the room for polls a second.
    pub(super) fn observe(&mut self, load: Load, calls: Calls) -> f64 {
        if self.updates.len() == UPDATES {
            self.updates.pop_front();
        }
        self.updates.push_back((load, calls));
        let most = SHARE * self.processors;
        self.measure_cost(load.elapsed_s);
        self.measure_bound(load, most);
        let elapsed_s = load.elapsed_s.max(1e-3);
        // Polls that come late are missed at first and too many later, so only the mean shows who comes unasked.
        let strays_per_s = (calls.answered as f64 - calls.joins as f64 - calls.booked as f64) / elapsed_s;
        self.strays_per_s += (strays_per_s - self.strays_per_s) * (elapsed_s / PERIOD_S).min(1.0);
        let taken_per_s =
            self.per_s(|(_, calls)| (calls.joins + calls.fixed) as f64) + self.strays_per_s.max(0.0);

        let cost = self.cost;
        let (of_machine, of_bound) = (most / cost.machine_s, self.bound / cost.own_s);
        let all_per_s = of_machine.max(LEAST * most / cost.own_s).min(of_bound);
        if of_machine <= of_bound {
            self.cause = Cause::Processor;
        }
        (all_per_s - taken_per_s).max(all_per_s / 10.0)
    }

    fn measure_cost(&mut self, load_s: f64) {
        let calls: u64 = self.updates.iter().map(|(_, calls)| calls.answered).sum();
        if calls < ENOUGH {
            return;
        }
        let sum = |of: fn(&Load) -> f64| self.updates.iter().map(|(load, _)| of(load)).sum::<f64>().max(1e-9);
        let (cpu_s, others_s, elapsed_s) =
            (sum(|load| load.cpu_s), sum(|load| load.others_s), sum(|load| load.elapsed_s));
        let is_idle = cpu_s < IDLE * self.processors * elapsed_s;
        // Calls are cheaper on a machine that is not busy. Nobody should be told so much at once that it becomes busy.
        let falls = (load_s / PERIOD_S).min(1.0);
        let mean = |before: f64, now: f64| match now < before {
            true => before + (now - before) * falls,
            false if is_idle => before,
            // An update's weight is small, so that one batch of something else does not count for much.
            false => before + (now - before) * 0.3,
        };
        let now = Cost { own_s: cpu_s / calls as f64, machine_s: (cpu_s + others_s) / calls as f64 };
        self.cost = match self.is_known || is_idle {
            true => Cost {
                own_s: mean(self.cost.own_s, now.own_s),
                machine_s: mean(self.cost.machine_s, now.machine_s),
            },
            false => now,
        };
        self.is_known |= !is_idle;
    }

    fn measure_bound(&mut self, load: Load, most: f64) {
        self.bound += (most - self.bound) * (load.elapsed_s / PERIOD_S).min(1.0);
        let back = (self.busy() * BACK).max(most * LEAST);
        if (load.lag_s > LATE_S || load.overflowed) && back < self.bound {
            self.bound = back;
            self.cause = if load.overflowed { Cause::AcceptQueue } else { Cause::Lag };
        }
    }

    /// Why there is no more room.
    pub(super) fn cause(&self) -> Cause {
        self.cause
    }

    /// The processors in use by this server, lately.
    pub(super) fn busy(&self) -> f64 {
        self.per_s(|(load, _)| load.cpu_s)
    }

    fn per_s(&self, of: fn(&(Load, Calls)) -> f64) -> f64 {
        let elapsed_s: f64 = self.updates.iter().map(|(load, _)| load.elapsed_s).sum();
        self.updates.iter().map(of).sum::<f64>() / elapsed_s.max(1e-3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A quarter of a second of a server with two processors, of which a call uses 100 us.
    const LOAD: Load = Load { elapsed_s: 0.25, cpu_s: 0.02, others_s: 0.0, lag_s: 0.0, overflowed: false };
    const CALLS: Calls = Calls { answered: 200, joins: 0, booked: 200, fixed: 0 };

    /// Updates of so many seconds. Returns the room at their end.
    fn run(control: &mut Control, seconds: u32, load: Load, calls: Calls) -> f64 {
        (0..seconds * 4).map(|_| control.observe(load, calls)).last().expect("an update")
    }

    fn is_near(room: f64, expected: f64) -> bool {
        (room / expected - 1.0).abs() < 0.01
    }

    #[test]
    fn a_cost_is_assumed_before_there_are_calls() {
        let few = Calls { answered: 1, booked: 1, ..CALLS };
        assert!(is_near(run(&mut Control::new(2.0), 10, Load { cpu_s: 0.1, ..LOAD }, few), 14_000.0));
    }

    #[test]
    fn the_share_of_the_processors_pays_for_the_room() {
        let load = Load { cpu_s: 0.01, ..LOAD };
        assert!(is_near(run(&mut Control::new(2.0), 200, load, CALLS), 28_000.0));
    }

    #[test]
    fn a_call_that_costs_twice_as_much_halves_the_room_and_one_that_costs_less_changes_it_slowly() {
        let (mut control, dear) = (Control::new(2.0), Load { cpu_s: 0.04, ..LOAD });
        run(&mut control, 10, LOAD, CALLS);
        assert!(is_near(run(&mut control, 5, dear, CALLS), 7_000.0));
        let room = run(&mut control, 20, LOAD, CALLS);
        assert!((10_000.0..11_000.0).contains(&room), "within the longest period: {room}");
    }

    #[test]
    fn an_idle_server_forgets_that_calls_were_dear() {
        let (mut control, few) = (Control::new(2.0), Calls { answered: 20, booked: 20, ..CALLS });
        assert!(is_near(run(&mut control, 10, Load { cpu_s: 0.2, ..LOAD }, few), 140.0));
        let room = run(&mut control, 200, Load { cpu_s: 0.002, ..LOAD }, few);
        assert!(is_near(room, 14_000.0), "{room}");
        let room = run(&mut control, 200, Load { cpu_s: 0.009, ..LOAD }, few);
        assert!(is_near(room, 14_000.0), "so little may be other work: {room}");
    }

    #[test]
    fn calls_that_nobody_asked_for_take_room() {
        let load = Load { cpu_s: 0.1, ..LOAD };
        let joins = Calls { answered: 1_000, joins: 650, booked: 350, fixed: 100 };
        assert!(is_near(run(&mut Control::new(2.0), 10, load, joins), 14_000.0 - 3_000.0));
        let strays = Calls { answered: 1_000, booked: 250, ..CALLS };
        assert!(is_near(run(&mut Control::new(2.0), 200, load, strays), 14_000.0 - 3_000.0));
        let many = Calls { answered: 10_000, joins: 10_000, ..Calls::default() };
        let room = run(&mut Control::new(2.0), 10, Load { cpu_s: 1.0, ..LOAD }, many);
        assert!(is_near(room, 1_400.0), "never less than a tenth: {room}");
    }

    #[test]
    fn polls_that_come_late_are_no_strays() {
        let mut control = Control::new(2.0);
        for _ in 0..100 {
            control.observe(LOAD, Calls { answered: 0, booked: 400, ..CALLS });
            control.observe(LOAD, Calls { answered: 400, booked: 0, ..CALLS });
        }
        assert!(control.strays_per_s.abs() < 20.0, "{}", control.strays_per_s);
    }

    #[test]
    fn what_others_use_beside_a_call_belongs_to_its_cost() {
        let load = Load { others_s: 0.02, ..LOAD };
        assert!(is_near(run(&mut Control::new(2.0), 10, load, CALLS), 7_000.0));
    }

    #[test]
    fn beside_others_the_machine_as_a_whole_uses_the_share() {
        // Somebody else uses one of the two processors. The calls follow the room.
        let (mut control, mut per_update) = (Control::new(2.0), 2_000.0);
        for _ in 0..1_000 {
            let load = Load { cpu_s: per_update * 1e-4, others_s: 0.25, ..LOAD };
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small")]
            let answered = per_update as u64;
            per_update = control.observe(load, Calls { answered, booked: answered, ..CALLS }) / 4.0;
        }
        assert!((980.0..=1_020.0).contains(&per_update), "0.4 processors are left: {per_update} calls");
    }

    #[test]
    fn others_who_take_all_leave_a_part() {
        let room = run(&mut Control::new(2.0), 100, Load { others_s: 0.48, ..LOAD }, CALLS);
        let own_s = 100e-6;
        assert!(is_near(room, 0.2 * 0.7 * 2.0 / own_s), "{room}");
    }

    #[test]
    fn late_tasks_take_a_tenth_of_the_use_and_no_more() {
        // 2,000 calls in a quarter of a second are 0.8 processors.
        let (mut control, many) = (Control::new(2.0), Calls { answered: 2_000, booked: 2_000, ..CALLS });
        let load = Load { cpu_s: 0.2, ..LOAD };
        let room = run(&mut control, 100, Load { lag_s: 0.020, ..load }, many);
        assert!(is_near(room, 0.9 * 8_000.0), "{room}");
        assert_eq!(control.cause(), Cause::Lag);
        let room = run(&mut control, 20, load, many);
        assert!(is_near(room, 14_000.0 - 6_800.0 / std::f64::consts::E), "within the longest period: {room}");
        let room = run(&mut control, 600, load, many);
        assert!(is_near(room, 14_000.0), "{room}");
        control.observe(Load { overflowed: true, ..load }, many);
        assert_eq!(control.cause(), Cause::AcceptQueue);
    }
}
