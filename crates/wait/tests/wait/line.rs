//! Lines in virtual time: the real zone, the real forecast, and people who come, poll, enter and leave.
//!
//! Nothing is faked but the people: whoever leaves is noticed by the zone as in reality, after some silence. A tick is 50 ms.

use std::collections::BTreeMap;

use admission::{Claim, Estimate, Now, PAGE_TICKETS, PAGE_WORDS, PagePolls, Policy, Verdict, Words, Zone};
use wait::{Forecast, Learned, Plan, View};

use crate::{
    law::{Arrivals, Dice, Law, Patience},
    previous::Previous,
};

const TICK_MS: u64 = 50;
/// Longer than any time until a poll.
const WHEEL: usize = 1_024;

/// A line, or some after each other.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) per_minute: u32,
    pub(crate) people: usize,
    pub(crate) arrivals: Arrivals,
    pub(crate) patience: Patience,
    /// The share of the people that leaves.
    pub(crate) leaving: f64,
    /// The share of the people that left the lines before, if it was another one.
    pub(crate) leaving_before: Option<f64>,
    /// The scale of the patience, in seconds, if it is not the one at which that share leaves.
    pub(crate) scale_s: Option<f64>,
    /// See [`Law::balks_s`].
    pub(crate) balks_s: f64,
    /// At this share of the expected time, the rate is multiplied by this factor.
    pub(crate) change: Option<(f64, f64)>,
    pub(crate) servers: usize,
    /// After so many seconds everybody leaves who is still there, within 10 s, as at the end of a rehearsal.
    pub(crate) vanish_s: Option<f64>,
    /// The servers start again before the last line. They keep what they learnt.
    pub(crate) restarts: bool,
    /// How many lines of such people there were before.
    pub(crate) lines_before: usize,
}

/// A wait that somebody was told, in seconds, with what others would have told and what happened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    pub(crate) at_ms: u64,
    pub(crate) rank: u64,
    /// The share of the line's people who had entered or left.
    pub(crate) gone: f64,
    /// The rank's share of the people of the line.
    pub(crate) place: f64,
    /// At the join, or later.
    pub(crate) at_join: bool,
    pub(crate) after_change: bool,
    /// The wait, and its range.
    pub(crate) ours: [f64; 3],
    pub(crate) previous: [f64; 3],
    pub(crate) naive_s: f64,
    pub(crate) last_entered_s: f64,
    /// The wait that is expected by who knows who is still there, how patient they are, and when slots come.
    pub(crate) floor_s: f64,
    pub(crate) actual_s: f64,
    pub(crate) user: usize,
    /// Which run of the scenario it was.
    pub(crate) seed: u64,
}

#[derive(Clone, Copy)]
pub(crate) struct User {
    pub(crate) joined_ms: u64,
    pub(crate) leaves_ms: u64,
    seq: u64,
    pub(crate) entered_ms: u64,
    told: bool,
}

struct Server {
    forecast: Forecast,
    view: Option<View>,
    polls: BTreeMap<u64, Box<Words>>,
    previous: Previous,
}

/// Runs the lines of a scenario. Returns what people of the last line were told who entered.
pub(crate) fn run(scenario: &Scenario, seed: u64) -> Vec<Told> {
    let mut world = World::new(scenario, seed);
    for line in 0..=scenario.lines_before {
        let measured = line == scenario.lines_before;
        if measured && scenario.restarts {
            world.restart();
        }
        world.play(measured);
    }
    world.told.iter_mut().for_each(|told| told.seed = seed);
    world.told
}

pub(crate) struct World<'a> {
    scenario: &'a Scenario,
    pub(crate) policy: Policy,
    dice: Dice,
    zone: Zone,
    servers: Vec<Server>,
    now_ms: u64,
    pub(crate) users: Vec<User>,
    /// Entries: instant and running total.
    pub(crate) entries: Vec<(u64, u64)>,
    pub(crate) told: Vec<Told>,
    left: usize,
    last_entered_s: f64,
    pub(crate) changed_ms: u64,
    begin_ms: u64,
}

fn now(ms: u64) -> Now {
    Now { ms, unix_ms: ms }
}

impl<'a> World<'a> {
    pub(crate) fn new(scenario: &'a Scenario, seed: u64) -> Self {
        let policy = Policy { admit_per_minute: scenario.per_minute, ..Policy::default() };
        let now_ms = 1_000_000;
        let server = |_| Server {
            forecast: Forecast::new(&policy, now_ms),
            view: None,
            polls: BTreeMap::new(),
            previous: Previous::new(),
        };
        Self {
            scenario,
            policy,
            dice: Dice::of(seed),
            zone: Zone::new(policy, 1, now(now_ms)),
            servers: (0..scenario.servers).map(server).collect(),
            now_ms,
            users: Vec::new(),
            entries: Vec::new(),
            told: Vec::new(),
            left: 0,
            last_entered_s: 0.0,
            changed_ms: u64::MAX,
            begin_ms: now_ms,
        }
    }

    /// Plays a line until nobody waits.
    pub(crate) fn play(&mut self, measured: bool) {
        let scenario = self.scenario;
        self.policy.admit_per_minute = scenario.per_minute;
        self.set_policy();
        let begin_ms = self.now_ms;
        self.begin_ms = begin_ms;
        let arrivals = scenario.arrivals.draw(scenario.people, &mut self.dice);
        let law = Law { patience: scenario.patience, scale_s: f64::INFINITY, balks_s: scenario.balks_s };
        let leaving = scenario.leaving_before.filter(|_| !measured).unwrap_or(scenario.leaving);
        let law = match scenario.scale_s {
            Some(scale_s) => Law { scale_s, ..law },
            None => law.scaled(leaving, &arrivals, f64::from(scenario.per_minute) / 60.0),
        };
        let change = scenario.change.filter(|_| measured);
        let stay = scenario.people as f64 * (1.0 - leaving);
        let length_ms = stay / f64::from(scenario.per_minute) * 60_000.0;
        let mut change = change.map(|(at, factor)| (begin_ms + (at * length_ms) as u64, factor));
        (self.users, self.entries, self.left, self.changed_ms) =
            (Vec::new(), vec![(begin_ms, 0)], 0, u64::MAX);
        let every = (scenario.people / 1_500).max(1);
        let mut wheel: Vec<Vec<u32>> = vec![Vec::new(); WHEEL];
        let mut next = 0;
        let (mut entered, mut tick) = (0_usize, 0_u64);
        let first_seq_user = |users: &[User]| users.first().map_or(0, |user| user.seq);
        let told_before = self.told.len();
        loop {
            self.now_ms += TICK_MS;
            tick += 1;
            let now_ms = self.now_ms;
            if let Some((at_ms, factor)) = change
                && at_ms <= now_ms
            {
                change = None;
                self.changed_ms = now_ms;
                self.policy.admit_per_minute = (f64::from(scenario.per_minute) * factor) as u32;
                self.set_policy();
            }
            let servers = self.servers.len() as u64;
            for server in 0..self.servers.len() {
                if tick % 20 == 20 / servers * server as u64 {
                    self.beat(server);
                }
            }
            let until = arrivals.partition_point(|&at_s| begin_ms + (at_s * 1_000.0) as u64 <= now_ms);
            if until > next {
                entered += self.join(until - next, &law, measured.then_some(every), &mut wheel, tick);
                next = until;
            }
            let due = std::mem::take(&mut wheel[tick as usize % WHEEL]);
            let first = first_seq_user(&self.users);
            entered += self.poll(due, first, &mut wheel, tick);
            if measured && tick % 1_200 == 0 {
                self.tell_everybody(every);
            }
            if next == scenario.people && entered + self.left >= scenario.people {
                break;
            }
            assert!(now_ms - begin_ms < 86_400_000, "the line does not end");
        }
        if measured {
            self.judge(&law, told_before);
        }
        // The last people who left are evicted, and the window is empty again.
        for _ in 0..100 {
            self.now_ms += 1_000;
            (0..self.servers.len()).for_each(|server| self.beat(server));
        }
    }

    /// What the first server learnt so far.
    pub(crate) fn learned_by_first_server(&self) -> Learned {
        self.servers[0].forecast.learned()
    }

    fn restart(&mut self) {
        for server in &mut self.servers {
            let bytes = server.forecast.learned().to_bytes();
            let learned = Learned::from_bytes(&bytes).expect("just written");
            server.forecast = Forecast::after(&learned, &self.policy, self.now_ms);
        }
    }

    fn set_policy(&mut self) {
        self.zone.set_policy(self.policy, now(self.now_ms));
        (0..self.servers.len()).for_each(|server| self.beat(server));
    }

    fn beat(&mut self, server: usize) {
        let server = &mut self.servers[server];
        let polls: Vec<_> = std::mem::take(&mut server.polls)
            .into_iter()
            .map(|(page, words)| PagePolls { page, words })
            .collect();
        let snapshot = self.zone.beat(&polls, now(self.now_ms));
        let view = server.forecast.observe(snapshot);
        server.previous.observe(self.now_ms, view.tally);
        server.view = Some(view);
    }

    fn join(
        &mut self,
        count: usize,
        law: &Law,
        every: Option<usize>,
        wheel: &mut [Vec<u32>],
        tick: u64,
    ) -> usize {
        let now_ms = self.now_ms;
        let mut joined = self.zone.join(count as u32, now(now_ms));
        let mut entered = 0;
        let servers = self.servers.len();
        let plan = Plan::new(self.zone.window(), &self.policy, now_ms);
        let which = self.users.len() % servers;
        let server = &mut self.servers[which];
        server.forecast.estimate(&mut joined.verdicts, &joined.slots, now_ms);
        for (i, verdict) in joined.verdicts.iter().enumerate() {
            let index = self.users.len();
            let mut user = User {
                joined_ms: now_ms,
                leaves_ms: u64::MAX,
                seq: joined.first + i as u64,
                entered_ms: u64::MAX,
                told: every.is_some_and(|every| index.is_multiple_of(every)),
            };
            match verdict {
                Verdict::Entered(_) => {
                    user.entered_ms = now_ms;
                    entered += 1;
                    self.entries.push((now_ms, self.entries[self.entries.len() - 1].1 + 1));
                }
                Verdict::Waiting(position) => {
                    let estimate = position.estimate.expect("the zone admits people");
                    let leaves_s = law.draw(estimate.wait_ms as f64 / 1_000.0, &mut self.dice);
                    if leaves_s < 1e9 {
                        user.leaves_ms = now_ms + (leaves_s * 1_000.0) as u64;
                    }
                    if let Some(after_s) = self.scenario.vanish_s {
                        let vanishes_ms = self.begin_ms + ((after_s + 10.0 * self.dice.part()) * 1e3) as u64;
                        user.leaves_ms = user.leaves_ms.min(vanishes_ms);
                    }
                    wheel[(tick + 1 + self.dice.bits() % 60) as usize % WHEEL].push(index as u32);
                    if user.told {
                        let previous = &self.servers[which].previous;
                        let previous = previous.wait_s(position.present_ahead, &plan, &self.policy, now_ms);
                        self.tell(index, true, position.rank, estimate, previous);
                    }
                }
                Verdict::Gone => panic!("a newcomer is not gone"),
            }
            self.users.push(user);
        }
        entered
    }

    fn poll(&mut self, mut due: Vec<u32>, first: u64, wheel: &mut [Vec<u32>], tick: u64) -> usize {
        let now_ms = self.now_ms;
        let mut claims = Vec::new();
        for &index in &due {
            let user = &self.users[index as usize];
            if user.leaves_ms <= now_ms {
                self.left += 1;
                continue;
            }
            let which = user.seq as usize % self.servers.len();
            let server = &mut self.servers[which];
            let behind =
                server.view.as_ref().is_some_and(|view| user.seq >= view.front_end && user.seq < view.next);
            if behind {
                let (page, within) = (user.seq / PAGE_TICKETS as u64, user.seq as usize % PAGE_TICKETS);
                let words = server.polls.entry(page).or_insert_with(|| Box::new([0; PAGE_WORDS]));
                words[within / 64] |= 1 << (within % 64);
                let pause_ms =
                    u64::from(self.policy.polling_period_ms) * (900 + self.dice.bits() % 201) / 1_000;
                wheel[(tick + pause_ms.div_ceil(TICK_MS)) as usize % WHEEL].push(index);
            } else {
                claims.push(Claim { epoch: 1, seq: user.seq });
            }
        }
        due.clear();
        wheel[tick as usize % WHEEL] = due;
        if claims.is_empty() {
            return 0;
        }
        let decided = self.zone.enter(&claims, now(now_ms));
        let mut entered = 0;
        for (claim, verdict) in claims.iter().zip(decided.verdicts) {
            let index = (claim.seq - first) as usize;
            match verdict {
                Verdict::Entered(_) => {
                    self.users[index].entered_ms = now_ms;
                    self.last_entered_s = (now_ms - self.users[index].joined_ms) as f64 / 1_000.0;
                    entered += 1;
                }
                Verdict::Waiting(position) => {
                    let pause_ms = u64::from(position.poll_in_ms) * (900 + self.dice.bits() % 201) / 1_000;
                    wheel[(tick + pause_ms.div_ceil(TICK_MS).max(1)) as usize % WHEEL].push(index as u32);
                }
                Verdict::Gone => panic!("{claim:?} is gone although its holder polls"),
            }
        }
        if entered > 0 {
            self.entries.push((now_ms, self.entries[self.entries.len() - 1].1 + entered as u64));
        }
        entered
    }

    fn tell_everybody(&mut self, every: usize) {
        for index in (0..self.users.len()).step_by(every) {
            let User { seq, entered_ms, leaves_ms, .. } = self.users[index];
            if entered_ms != u64::MAX || leaves_ms <= self.now_ms {
                continue;
            }
            let server = &self.servers[seq as usize % self.servers.len()];
            let Some(view) = &server.view else { continue };
            let Some(position) = view.position(seq, self.now_ms) else { continue };
            let previous =
                server.previous.wait_s(position.present_ahead, &view.plan, &self.policy, self.now_ms);
            let Some(estimate) = position.estimate else { continue };
            self.tell(index, false, position.rank, estimate, previous);
        }
    }

    fn tell(&mut self, user: usize, at_join: bool, rank: u64, estimate: Estimate, previous: [f64; 3]) {
        let gone = self.left as u64 + self.entries[self.entries.len() - 1].1;
        let ours = [estimate.wait_ms, estimate.low_ms, estimate.high_ms].map(|ms| ms as f64 / 1_000.0);
        // What a person is told is in whole seconds: the wait and the upper end rounded up.
        let ours = [ours[0].ceil().max(1.0), ours[1].floor(), ours[2].ceil()];
        self.told.push(Told {
            at_ms: self.now_ms,
            rank,
            gone: gone as f64 / self.scenario.people as f64,
            place: user as f64 / self.scenario.people as f64,
            at_join,
            after_change: self.changed_ms <= self.now_ms,
            ours: [ours[0], ours[1].min(ours[0]), ours[2].max(ours[0])],
            previous,
            naive_s: rank as f64 * 60.0 / f64::from(self.policy.admit_per_minute),
            last_entered_s: self.last_entered_s,
            floor_s: 0.0,
            actual_s: 0.0,
            user,
            seed: 0,
        });
    }
}
