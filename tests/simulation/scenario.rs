//! What happens in a run. Everything follows from the seed.

use admission::Policy;

use crate::seed::Random;

/// An interval of virtual time, in milliseconds from the start.
pub(crate) type Interval = (u64, u64);

/// One user's plan.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) joins_ms: u64,
    /// When the user leaves, counted from the join.
    pub(crate) leaves_after_ms: Option<u64>,
    /// When the user loses the network, counted from the join, and for how long.
    pub(crate) nap: Option<(u64, u64)>,
    /// The delay in one direction.
    pub(crate) network_ms: u64,
    /// Percentage of requests that are lost, and percentage of replies that are lost.
    pub(crate) lost_percent: u64,
    /// The app keeps the first token and ignores later ones.
    pub(crate) keeps_first_token: bool,
    /// How often the app asks again after the entry.
    pub(crate) repeats: u64,
    /// The user sometimes calls with a forged token.
    pub(crate) cheats: bool,
    /// The server refuses every poll of the user, and reports it.
    pub(crate) never_claims: bool,
    /// What the user does inside, where the people inside are limited.
    pub(crate) stay: Stay,
}

/// A visit.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stay {
    pub(crate) for_ms: u64,
    /// The time between two requests, less than the idle time.
    pub(crate) every_ms: u64,
    /// At the end the user says so. Otherwise nothing is heard any more.
    pub(crate) says: bool,
}

/// Random choices that follow from the seed.
struct Dice(Random);

impl Dice {
    fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.0.bits() % (to - from + 1)
    }

    fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.0.below(of.len())]
    }
}

/// A run.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) policy: Policy,
    pub(crate) users: Vec<Plan>,
    /// How many tickets the zone issued before, which are all gone. It puts the line across the end of a page or segment.
    pub(crate) tickets_before: u64,
    /// The server is killed at the start of each interval and starts again at its end.
    pub(crate) downs: Vec<Interval>,
    /// The disk of the store is full.
    pub(crate) full_disks: Vec<Interval>,
    /// The store does not answer.
    pub(crate) stalls: Vec<Interval>,
    /// The zone is held.
    pub(crate) holds: Vec<Interval>,
    /// Steps of the wall clock: when, and by how many seconds.
    pub(crate) clock_steps: Vec<(u64, i64)>,
    /// When the operator changes the polling period, and to what.
    pub(crate) periods: Vec<(u64, u32)>,
    /// The longest delay of a store call.
    pub(crate) store_ms: u64,
    /// When a call costs the server so much, in milliseconds of its one processor. Otherwise calls cost nearly nothing.
    pub(crate) busy: Vec<(Interval, f64)>,
}

impl Scenario {
    /// The run that belongs to a seed.
    pub(crate) fn of(seed: u64) -> Self {
        let mut dice = Dice(Random::of(seed ^ 0x57E1_4A00_0000_0000));
        let small = |n: u64| u32::try_from(n).expect("small");
        let n = dice.one_of(&[2, 5, 10, 30, 60, 120, 300, 600]);
        let policy = Policy {
            admit_per_minute: n,
            sub_windows: small(dice.one_of(&[10, 10, 10, 1, 4, 7, 60])),
            polling_period_ms: small(dice.one_of(&[3_000, 3_000, 3_000, 1_000, 5_000, 10_000, 20_000])),
            idle_timeout_s: small(dice.one_of(&[60, 60, 60, 30, 90])),
            pass_ttl_s: 300,
            ..Policy::default()
        };
        let longest_ms = policy.idle_timeout_s * 1_000 / 3;
        let policy = Policy { polling_period_ms: policy.polling_period_ms.min(longest_ms), ..policy };
        let policy = policy.check().expect("in range");
        let leaving = dice.one_of(&[0, 35, 60]);
        let napping = dice.one_of(&[0, 5, 20]);
        let lost_percent = dice.one_of(&[0, 1, 5]);
        let network_ms = dice.one_of(&[20, 50, 150, 400]);
        // The burst of a minute, and a line of at most a few minutes behind it.
        let users = u64::from(n) + dice.between(5, (u64::from(n) * 3 / 2).clamp(12, 150));
        let spread_ms = dice.one_of(&[100, 3_000, 60_000]);
        let line_ms = 120_000;
        let users = (0..users).map(|_| Plan {
            joins_ms: dice.between(0, spread_ms),
            leaves_after_ms: (dice.between(1, 100) <= leaving).then(|| dice.between(0, line_ms)),
            nap: (dice.between(1, 100) <= napping).then(|| {
                (
                    dice.between(0, line_ms),
                    dice.between(1_000, u64::from(policy.idle_timeout_s) * 1_000 - 8_000),
                )
            }),
            network_ms: dice.between(5, network_ms),
            lost_percent,
            keeps_first_token: dice.between(1, 10) == 1,
            repeats: dice.between(0, 2),
            cheats: dice.between(1, 20) == 1,
            never_claims: false,
            stay: Stay::default(),
        });
        let users = users.collect();
        let mut intervals = |chance: u64, longest_ms: u64| -> Vec<Interval> {
            let count = if dice.between(1, 100) <= chance { dice.between(1, 3) } else { 0 };
            let mut found: Vec<_> = (0..count)
                .map(|_| {
                    let from = dice.between(1_000, 150_000);
                    (from, from + dice.between(0, longest_ms))
                })
                .collect();
            found.sort_unstable();
            found.dedup_by(|later, earlier| later.0 <= earlier.1 + 1_000);
            found
        };
        let downs = intervals(30, 8_000);
        let full_disks = intervals(20, 15_000);
        let stalls = intervals(20, 20_000);
        let holds = intervals(15, 20_000);
        let clock_steps = intervals(40, 0).into_iter().map(|(at, _)| at).collect::<Vec<_>>();
        let clock_steps =
            clock_steps.into_iter().map(|at| (at, dice.one_of(&[-86_400, -61, 61, 3_600, 90_000]))).collect();
        let mut scenario = Self {
            policy,
            users,
            periods: Vec::new(),
            tickets_before: if dice.between(1, 3) == 1 {
                dice.one_of(&[8_192, 65_536]) * dice.between(1, 1 << 30) - dice.between(1, 60)
            } else {
                0
            },
            downs,
            full_disks,
            stalls,
            holds,
            clock_steps,
            store_ms: dice.one_of(&[1, 5, 50]),
            busy: Vec::new(),
        };
        if dice.0.below(5) < 2 {
            // A server with so much to do that the users would have to poll every few seconds.
            for _ in 0..=dice.0.below(2) {
                let from = dice.between(0, 100_000);
                let period_s = dice.between(2, 30);
                #[expect(clippy::cast_precision_loss, reason = "small")]
                let cost_ms = 700.0 * period_s as f64 / scenario.users.len() as f64;
                scenario.busy.push(((from, from + dice.between(5_000, 200_000)), cost_ms));
            }
        }
        if policy.polling_period_ms > 3_000 && dice.0.below(2) == 0 {
            // The worst instant is the end of a hold, during which everybody was told the longer period.
            let held = scenario.holds.first().map_or(0, |&(_, to)| to.saturating_sub(dice.between(0, 2_000)));
            let at = if held > 0 { held } else { dice.between(1_000, 100_000) };
            scenario.periods.push((at, small(dice.one_of(&[500, 3_000]))));
        }
        // With dice of their own, so that the rest of a seed's run stays as it was.
        let mut dice = Dice(Random::of(seed ^ 0x1251_DE00_0000_0000));
        if dice.one_of(&[true, false, false]) {
            let most = dice.between(1, 2 * u64::from(n));
            scenario.limit_inside(small(most), &mut dice, 60_000);
        }
        scenario
    }

    /// Limits the people inside, who stay for up to `longest_ms`.
    fn limit_inside(&mut self, max_active: u32, dice: &mut Dice, longest_ms: u64) {
        self.policy = Policy { max_active, visit_idle_s: 30, ..self.policy };
        for user in &mut self.users {
            user.stay = Stay {
                for_ms: dice.between(0, longest_ms),
                every_ms: dice.between(500, 25_000),
                says: dice.between(1, 10) <= 7,
            };
        }
    }

    /// A burst on a zone in which 100 people may be at a time. All say that they leave. Some walk away from the line.
    pub(crate) fn full(seed: u64, users: u64, leaving_percent: u64) -> Self {
        let mut scenario = Self::burst(seed, users, leaving_percent, 50);
        scenario.limit_inside(100, &mut Dice(Random::of(seed)), 60_000);
        scenario.users.iter_mut().for_each(|user| user.stay.says = true);
        scenario
    }

    /// How long all users need at most who can only enter when others leave.
    pub(crate) fn longest_turnover_ms(&self) -> u64 {
        let longest_ms = self.users.iter().map(|user| user.stay.for_ms).max().unwrap_or(0) + 60_000;
        match self.policy.max_active {
            0 => 0,
            most => longest_ms * (2 + self.users.len() as u64 / u64::from(most)),
        }
    }

    /// What a call costs the server at `now_ms`, in seconds.
    pub(crate) fn cost_s(&self, now_ms: u64) -> f64 {
        let at = self.busy.iter().find(|((from, to), _)| (*from..*to).contains(&now_ms));
        at.map_or(1e-5, |(_, cost_ms)| cost_ms / 1_000.0)
    }

    /// A burst on a zone that admits 600 per minute. Polls come every 3 s +-10 %, some users leave at random times, and
    /// there are no faults. The figures of slots and waits are measured on it.
    pub(crate) fn burst(seed: u64, users: u64, leaving_percent: u64, network_ms: u64) -> Self {
        let mut dice = Dice(Random::of(seed));
        let wait_ms = users * 100;
        let users = (0..users).map(|_| Plan {
            joins_ms: dice.between(0, 2_000),
            leaves_after_ms: (dice.between(1, 100) <= leaving_percent).then(|| dice.between(0, wait_ms)),
            nap: None,
            network_ms,
            lost_percent: 0,
            keeps_first_token: false,
            repeats: 0,
            cheats: false,
            never_claims: false,
            stay: Stay::default(),
        });
        Self {
            policy: Policy { admit_per_minute: 600, ..Policy::default() },
            users: users.collect(),
            tickets_before: 0,
            downs: Vec::new(),
            full_disks: Vec::new(),
            stalls: Vec::new(),
            holds: Vec::new(),
            clock_steps: Vec::new(),
            periods: Vec::new(),
            store_ms: 1,
            busy: Vec::new(),
        }
    }
}
