//! What each suite adds to the plan of a seed.
//!
//! Invariant: a suite's choices come from its own random numbers, so the rest of the plan stays as it is.

use admission::{Mode, Policy};

use super::{Copied, Cut, Dice, Fault, Kind, OPENS_AFTER_S, Plan, Stay, User};
use crate::{cluster::START_UNIX_MS, seed::Random};

/// What a suite adds to a plan.
type Addition = fn(Plan) -> Plan;

impl Plan {
    /// The same run in which keys of the zone vanish, one at a time.
    pub(crate) fn with_keys_lost(mut self) -> Self {
        let mut dice = Dice(Random::of(self.seed ^ 0x0105_7E55));
        for _ in 0..=dice.below(3) {
            let at_ms = dice.between(5_000, self.ends_ms - 90_000);
            self.faults.push((at_ms, Fault::LoseKey { number: dice.0.bits() }));
        }
        self.faults.sort_by_key(|(at_ms, _)| *at_ms);
        self
    }

    /// The same run in which the zone's slot is left half moved, and primaries are demoted.
    pub(crate) fn with_moves(mut self) -> Self {
        let mut dice = Dice(Random::of(self.seed ^ 0x3A1F_0E0D));
        for _ in 0..=dice.below(3) {
            let at_ms = dice.between(5_000, self.ends_ms - 90_000);
            let for_ms = dice.between(500, 12_000);
            let half_move = Fault::HalfMove { number: dice.0.bits(), for_ms };
            let demote = Fault::Demote { by_force: dice.chance(50), for_ms };
            let fault =
                if self.data_nodes > 1 { dice.one_of(&[half_move, demote, demote]) } else { half_move };
            self.faults.push((at_ms, fault));
        }
        self.faults.sort_by_key(|(at_ms, _)| *at_ms);
        self
    }

    /// The same run with a period of 20 s, which an operator changes in some runs. People near the front are told 3 s.
    pub(crate) fn with_long_periods(mut self) -> Self {
        let mut dice = Dice(Random::of(self.seed ^ 0x10_6E27));
        self.policy.polling_period_ms = 20_000;
        for user in &mut self.users {
            // Together with a period and its delays, no longer than the idle time.
            if let Kind::Naps(_, lasts_ms) = &mut user.kind {
                *lasts_ms = (*lasts_ms).min(30_000);
            }
        }
        for _ in 0..dice.one_of(&[0, 0, 1, 3]) {
            let at_ms = dice.between(5_000, self.ends_ms - 80_000);
            let period_ms = dice.one_of(&[500, 3_000, 3_001, 10_000, 20_000]);
            self.faults.push((at_ms, Fault::Set { name: "polling_period_ms", value: period_ms }));
        }
        self.faults.sort_by_key(|(at_ms, _)| *at_ms);
        self
    }

    /// The same run with servers that are busy at times, so that their users would have to poll every few seconds.
    #[expect(clippy::cast_precision_loss, reason = "small")]
    pub(crate) fn with_busy_servers(mut self) -> Self {
        let mut dice = Dice(Random::of(self.seed ^ 0xB057));
        for server in 0..self.servers {
            for _ in 0..=dice.below(2) {
                let from = dice.between(0, 100_000);
                let period_s = dice.between(2, 30);
                let cost_ms =
                    700.0 * (period_s * self.servers as u64) as f64 / self.users.len().max(1) as f64;
                self.busy.push((server, (from, from + dice.between(5_000, 200_000)), cost_ms));
            }
        }
        for user in &mut self.users {
            // Together with a period and its delays, no longer than the idle time.
            if let Kind::Naps(_, lasts_ms) = &mut user.kind {
                *lasts_ms = (*lasts_ms).min(30_000);
            }
        }
        self
    }

    /// The same run with a zone that a configuration file defines. More often than by chance, the store is emptied, and a server
    /// that has just started is the first to call.
    pub(crate) fn with_a_file(mut self) -> Self {
        let mut dice = Dice(Random::of(self.seed ^ 0xF11E));
        self.from_file = true;
        let times = if self.servers > 1 { dice.one_of(&[0, 1, 1, 2]) } else { 0 };
        for _ in 0..times {
            let at_ms = dice.between(5_000, self.ends_ms - 100_000);
            let new = dice.below(self.servers);
            self.faults.push((at_ms, Fault::KillServer { server: new, for_ms: dice.between(100, 1_000) }));
            for server in (0..self.servers).filter(|server| *server != new) {
                let for_ms = dice.between(500, 8_000);
                let cut = Fault::Cut { cut: Cut::Server(server), for_ms };
                self.faults.push((at_ms, dice.one_of(&[cut, Fault::FreezeServer { server, for_ms }])));
            }
            self.faults.push((at_ms + dice.between(0, 100), Fault::Flush));
        }
        self.faults.sort_by_key(|(at_ms, _)| *at_ms);
        self
    }

    /// The same run with users who all ask one server, so that the others know little of the zone. More often than by chance, that
    /// server ends or is cut off, and the store is emptied.
    pub(crate) fn with_one_asked(mut self) -> Self {
        let mut dice = Dice(Random::of(self.seed ^ 0x0A5C_ED00));
        self.servers = self.servers.max(2);
        self.server_sides = (0..self.servers).map(|server| server % 2).collect();
        self.in_turn_ms = dice.between(20_000, 90_000);
        for _ in 0..dice.one_of(&[1, 1, 2]) {
            let at_ms = dice.between(5_000, self.ends_ms - 100_000);
            let server = self.asked_at(at_ms).unwrap_or(0);
            let for_ms = dice.between(100, 10_000);
            let fault = dice.one_of(&[
                None,
                Some(Fault::KillServer { server, for_ms }),
                Some(Fault::StopServer { server, for_ms }),
                Some(Fault::Cut { cut: Cut::Server(server), for_ms }),
            ]);
            self.faults.extend(fault.map(|fault| (at_ms, fault)));
            self.faults.push((at_ms + dice.between(0, 500), Fault::Flush));
        }
        self.faults.sort_by_key(|(at_ms, _)| *at_ms);
        self
    }

    /// The same run with one fault soon after the other, so that a state is lost while a loss before it is not over. People are dropped soon,
    /// passes are short, and many people ask on when theirs have ended.
    pub(crate) fn with_storms(mut self) -> Self {
        let mut dice = Dice(Random::of(self.seed ^ 0x5708_3A11));
        self.policy.polling_period_ms = 1_000;
        self.policy.idle_timeout_s = 10;
        self.policy.pass_ttl_s = 60;
        self.checked = true;
        // Whoever reaches no server for as long as a division lasts is dropped.
        self.faults.retain(|(_, fault)| fault.lasts_ms() == 0);
        for user in &mut self.users {
            match &mut user.kind {
                // Together with a period and its delays, no longer than the idle time.
                Kind::Naps(_, lasts_ms) => *lasts_ms = (*lasts_ms).min(5_000),
                kind @ (Kind::Stays | Kind::Returns) if dice.chance(50) => *kind = Kind::Insists,
                _ => {}
            }
        }
        let mut at_ms = dice.between(15_000, 60_000);
        while at_ms < self.ends_ms - 90_000 {
            let for_ms = dice.one_of(&[300, 2_000, 8_000]) * dice.between(5, 15) / 10;
            let server = dice.below(self.servers);
            let frozen = Fault::FreezeServer { server, for_ms: dice.between(5_000, 50_000) };
            let fault = dice.one_of(&[
                Fault::KillPrimary { for_ms },
                Fault::KillPrimary { for_ms },
                Fault::FreezePrimary { for_ms },
                Fault::Flush,
                frozen,
            ]);
            let second = dice.one_of(&[None, Some(Fault::Flush), Some(frozen)]);
            self.faults.push((at_ms, fault));
            self.faults.extend(second.map(|second| (at_ms + dice.between(0, 3_000), second)));
            at_ms += dice.between(2_000, 30_000);
        }
        self.faults.sort_by_key(|(at_ms, _)| *at_ms);
        self
    }

    /// The same run with a limit of the people inside, who stay for a while and are active at most every ten seconds.
    pub(crate) fn with_people_inside(mut self) -> Self {
        let mut dice = Dice(Random::of(self.seed ^ 0x1251_DE00));
        self.policy.visit_idle_s = 30;
        self.policy.max_active = self.policy.admit_per_minute * dice.one_of(&[1, 2, 3]) / 3;
        for user in &mut self.users {
            user.stay = Stay {
                for_ms: dice.between(1_000, 60_000),
                every_ms: dice.between(1_000, 10_000),
                says: dice.chance(70),
            };
        }
        self
    }

    /// The same run with a zone that opens a while after most people have come. The instant is one of the nodes' clocks, which differ.
    pub(crate) fn with_an_opening(mut self) -> Self {
        let mut dice = Dice(Random::of(self.seed ^ 0x09E4_1245));
        let opens_s = dice.between(20, 100);
        self.policy.opens_at =
            u32::try_from(START_UNIX_MS / 1_000 + opens_s.cast_signed()).expect("before 2106").into();
        self
    }

    /// The same run with an event whose order is drawn. Most people come before it begins, and more of the faults happen around that time.
    pub(crate) fn with_a_draw(mut self) -> Self {
        let mut dice = Dice(Random::of(self.seed ^ 0xD4A3_0FF5));
        self.draw_s = dice.between(10, 70);
        let begins_ms = self.draw_s * 1_000;
        if dice.chance(60) {
            for user in &mut self.users {
                user.joins_ms = user.joins_ms * begins_ms / self.ends_ms * dice.between(1, 3);
            }
        }
        for (at_ms, _) in &mut self.faults {
            if dice.chance(50) {
                *at_ms = begins_ms + dice.between(0, 12_000) - 4_000;
            }
        }
        self.faults.sort_by_key(|(at_ms, _)| *at_ms);
        self
    }

    /// The same run in which tickets are copied, and servers have different seal keys for a while: because one has a wrong one, or
    /// because the key is changed. In some runs the people inside are limited, too.
    pub(crate) fn with_tickets_misused(mut self) -> Self {
        let mut dice = Dice(Random::of(self.seed ^ 0x71C4_E750));
        if dice.chance(50) {
            self = self.with_people_inside();
        }
        self.servers = self.servers.max(2);
        self.server_sides = (0..self.servers).map(|server| server % 2).collect();
        // Half of the runs have none of the other faults, so that no tolerance hides anything.
        if dice.chance(50) {
            self.faults.clear();
        }
        let (has_wrong, changes) = dice.one_of(&[(true, false), (true, false), (false, true), (true, true)]);
        if has_wrong {
            let at_ms = dice.between(5_000, self.ends_ms - 120_000);
            let server = dice.below(self.servers);
            self.faults.push((at_ms, Fault::WrongKey { server, for_ms: dice.between(3_000, 40_000) }));
        }
        if changes {
            let (at_ms, every_ms) = (dice.between(5_000, 30_000), dice.between(200, 3_000));
            self.faults.push((at_ms, Fault::ChangeKey { every_ms }));
            if dice.chance(50) {
                // Whoever asked within the idle time has a token of the next key by then.
                let at_ms = at_ms + 2 * every_ms * self.servers as u64 + 75_000;
                self.faults.push((at_ms, Fault::ForgetKey { every_ms }));
            }
        }
        self.faults.sort_by_key(|(at_ms, _)| *at_ms);
        for user in &mut self.users {
            if user.kind != Kind::NeverClaims && dice.chance(30) {
                user.copied = Some(Copied {
                    after_ms: dice.between(0, 60_000),
                    every_ms: dice.between(500, 15_000),
                    side: dice.below(2),
                });
            }
        }
        self
    }

    /// The same run with other numbers: few or many entries a minute, odd sub-windows, and up to five servers.
    fn with_other_sizes(mut self) -> Self {
        let mut dice = Dice(Random::of(self.seed ^ 0x512E_5000));
        let n = dice.one_of(&[1, 2, 3, 7, 100, 250]);
        self.policy.admit_per_minute = n;
        self.policy.sub_windows = dice.one_of(&[1, 2, 3, 7, 10, 60]);
        self.policy.pass_ttl_s = dice.one_of(&[60, 61, 600, 3_600]);
        self.policy.idle_timeout_s = dice.one_of(&[60, 60, 75, 180]);
        self.servers = self.servers.max(usize::try_from(dice.between(1, 5)).expect("few"));
        self.server_sides = (0..self.servers).map(|server| server % 2).collect();
        // In some runs nobody ever waits for long.
        self.users.truncate(dice.one_of(&[3, 12, 80, usize::MAX]));
        for (_, fault) in &mut self.faults {
            if let Fault::Change { n: changed, .. } = fault {
                *changed = dice.one_of(&[n, n * 2, n.div_ceil(2)]);
            }
        }
        self
    }

    /// The same run with an operator who changes everything that a policy says of who may enter.
    pub(crate) fn with_changes(mut self) -> Self {
        let mut dice = Dice(Random::of(self.seed ^ 0xC4A2_6E50));
        if dice.chance(30) {
            self = self.with_people_inside();
        }
        let Policy { admit_per_minute: n, max_active, polling_period_ms, .. } = self.policy;
        let periods = self.values_of("polling_period_ms");
        // At least three polling periods. And whoever reaches no server that reaches the store is dropped after that time.
        let longest_s =
            self.faults.iter().map(|(_, fault)| fault.lasts_ms()).max().unwrap_or(0).div_ceil(500);
        let polls_s = (3 * periods.chain([polling_period_ms]).max().unwrap_or(0)).div_ceil(1_000);
        let least_idle_s = u64::from(polls_s).max(longest_s.min(60));
        let idle_times: Vec<u32> =
            [10, 20, 60, 120].into_iter().filter(|idle_s| u64::from(*idle_s) >= least_idle_s).collect();
        for _ in 0..dice.between(1, 5) {
            let at_ms = dice.between(3_000, self.ends_ms - 90_000);
            let n = dice.one_of(&[1, n, n.div_ceil(2), n * 2, n * 5]);
            let mode = dice.one_of(&[Mode::Auto, Mode::Auto, Mode::Hold, Mode::Open, Mode::Closed]);
            let change = Fault::Change { n, mode };
            let of = |name, value| Fault::Set { name, value };
            let sub_windows = of("sub_windows", dice.one_of(&[1, 2, 4, 10, 60]));
            let idle = of("idle_timeout_s", dice.one_of(&idle_times));
            let opens = of(OPENS_AFTER_S, dice.one_of(&[0, 30, 60, 90, 120]));
            let inside =
                of("max_active", dice.one_of(&[0, 1, max_active.div_ceil(2), max_active, max_active * 2]));
            let last = if max_active > 0 { inside } else { change };
            let recreate = Fault::Recreate { for_ms: dice.between(0, 5_000) };
            // The event of a draw says when the zone opens, and keeps it from being deleted.
            let [opens, recreate] = if self.draw_s > 0 { [change; 2] } else { [opens, recreate] };
            let fault = dice.one_of(&[change, change, sub_windows, idle, opens, recreate, last]);
            self.faults.push((at_ms, fault));
            // And back.
            if let (Fault::Change { .. }, true) = (fault, dice.chance(60)) {
                let after_ms = dice.one_of(&[500, 10_000, 40_000]);
                let at_ms = at_ms + dice.between(0, after_ms);
                self.faults
                    .push((at_ms, Fault::Change { n: self.policy.admit_per_minute, mode: Mode::Auto }));
            }
        }
        self.faults.sort_by_key(|(at_ms, _)| *at_ms);
        self
    }

    /// The same run with what two to four of the suites add, because what they add comes together, too.
    pub(crate) fn mixed(self) -> Self {
        let mut dice = Dice(Random::of(self.seed ^ 0x0313_0D1F));
        // One of those that contradict each other: a zone has one period, and begins once.
        let all: [&[Addition]; 11] = [
            &[Self::with_other_sizes],
            &[Self::with_storms, Self::with_long_periods],
            &[Self::with_a_file],
            &[Self::with_one_asked],
            &[Self::with_busy_servers],
            &[Self::with_people_inside],
            &[Self::with_a_draw, Self::with_an_opening],
            &[Self::with_keys_lost],
            &[Self::with_moves],
            &[Self::with_tickets_misused],
            &[Self::with_changes],
        ];
        let mut wanted = dice.between(2, 4);
        let mut left = all.len() as u64;
        let mut plan = self;
        for group in all {
            let add = group[dice.below(group.len())];
            if dice.between(1, left) <= wanted {
                plan = add(plan);
                wanted -= 1;
            }
            left -= 1;
        }
        plan
    }

    /// A run near this one, of a fault that was mended: events come at other times, last shorter, or not at all, or twice, and the people
    /// are others. In a third of the runs, what happened in another one comes on top. What a mend forgot is near the fault.
    pub(crate) fn varied(mut self, seed: u64, other: &Self) -> Self {
        let mut dice = Dice(Random::of(seed ^ 0x0EA7_0B1E));
        self.seed ^= if dice.chance(50) { seed } else { 0 };
        self.persistent ^= dice.chance(10);
        self.replicated ^= dice.chance(10);
        let apart_ms = dice.one_of(&[0, 100, 1_000, 5_000, 20_000]);
        // A key that is forgotten too early is a mistake of the operator.
        let changes_keys = |fault: Fault| {
            matches!(fault, Fault::WrongKey { .. } | Fault::ChangeKey { .. } | Fault::ForgetKey { .. })
        };
        if dice.chance(33) && other.data_nodes <= self.data_nodes && other.voters <= self.voters {
            // These fit the run that they come from.
            let is_of_policy = |fault: Fault| {
                matches!(fault, Fault::Set { name: "idle_timeout_s" | "max_active" | OPENS_AFTER_S, .. })
            };
            let can_come = |fault: Fault| {
                let is_here = fault.server().is_none_or(|server| server < self.servers);
                // Whoever reaches no server for the idle time is dropped.
                let is_short = fault.lasts_ms() < u64::from(self.shortest_idle_s()) * 300;
                is_here && is_short && !changes_keys(fault) && !is_of_policy(fault)
            };
            let others: Vec<_> = other.faults.iter().copied().filter(|(_, fault)| can_come(*fault)).collect();
            self.faults.extend(others);
        }
        let mut faults = Vec::new();
        for &(at_ms, fault) in &self.faults {
            if changes_keys(fault) {
                faults.push((at_ms, fault));
                continue;
            }
            let times = dice.one_of(&[0, 1, 1, 1, 1, 1, 1, 1, 1, 2]);
            for time in 0..times {
                let apart_ms = apart_ms + 10_000 * time;
                let at_ms = (at_ms + dice.between(0, 2 * apart_ms)).saturating_sub(apart_ms);
                let shorter = if dice.chance(50) { dice.between(30, 100) } else { 100 };
                faults.push((at_ms.clamp(1_000, self.ends_ms - 80_000), fault.scaled(shorter)));
            }
        }
        faults.sort_by_key(|(at_ms, _)| *at_ms);
        self.faults = faults;
        let apart_ms = apart_ms.min(5_000);
        for user in &mut self.users {
            if dice.chance(50) {
                user.seed = dice.0.bits();
                user.joins_ms = (user.joins_ms + dice.between(0, 2 * apart_ms)).saturating_sub(apart_ms);
            }
        }
        for _ in 0..dice.below(10) {
            let joins_ms = dice.between(0, self.ends_ms / 2);
            let leaves = Kind::Leaves(dice.between(0, 60_000));
            let kind = dice.one_of(&[Kind::Stays, Kind::Stays, Kind::Insists, leaves]);
            let (seed, side) = (dice.0.bits(), dice.below(2));
            self.users.push(User { seed, joins_ms, kind, side, stay: Stay::default(), copied: None });
        }
        self
    }
}
