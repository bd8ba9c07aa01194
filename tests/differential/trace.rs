//! One trace: the same random calls to the store in Redis and to the rules, at the same instants.

use std::{collections::BTreeMap, fmt, future::Future, sync::Arc, task};

use admission::{
    Census, Claim, Dealt, Definition, Departure, Dump, Event, Joined, LastDeal, Leaver, Lots, Mode, Moment,
    Now, Opening, PAGE_TICKETS, PAGE_WORDS, Page, PagePolls, Policy, Proof, Schedule, SlotState, Snapshot,
    Verdict, Zone, ZoneId,
};
use store::{
    Defined, Expected, Line as _, Store as _,
    redis::{Durability, Redis},
};
use wait::{Forecast, View};

use crate::{
    drawn::drawn_event,
    plain::{Connection, Plain},
    seed::Random,
    state,
};

/// How often each case happened, to show that a run covers all cases.
#[derive(Default)]
pub(crate) struct Kinds(BTreeMap<&'static str, u64>);

impl Kinds {
    fn note(&mut self, kind: &'static str, count: u64) {
        *self.0.entry(kind).or_default() += count;
    }

    /// Fails if a long run missed a case.
    pub(crate) fn check(&self) {
        if self.0.get("joins").copied().unwrap_or(0) < 10_000 {
            return;
        }
        for kind in [
            "entries",
            "waits",
            "gone",
            "repeated",
            "evicted",
            "bases moved",
            "policies",
            "openings",
            "draws",
            "deals",
            "deals refused",
            "moved after a freeze",
            "marks",
            "dumps",
            "visits",
            "visits left",
            "places left",
            "left twice",
            "left elsewhere",
            "left unknown",
            "left waiting",
            "bound",
            "idle visits",
            "full",
        ] {
            assert!(self.0.get(kind).is_some_and(|&count| count > 0), "no {kind} in the whole run: {self:?}");
        }
    }
}

impl fmt::Debug for Kinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds: Vec<_> = self.0.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        f.write_str(&kinds.join(", "))
    }
}

/// Runs a future that is never pending, because the plain client blocks.
fn now<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    match future.as_mut().poll(&mut task::Context::from_waker(task::Waker::noop())) {
        task::Poll::Ready(value) => value,
        task::Poll::Pending => panic!("the plain client blocks"),
    }
}

/// What a server learns from each side. It is the same if the sides report the same.
struct Forecasts {
    redis: Forecast,
    rules: Forecast,
}

/// Both sides, and what the test knows.
struct Pair<'a> {
    redis: Arc<Redis<Connection>>,
    connection: &'a Connection,
    zone: ZoneId,
    rules: Zone,
    forecasts: Forecasts,
    evicted: u64,
    ended: u64,
    inside: Vec<u64>,
    base: u64,
    now_ms: u64,
    epoch: u32,
    next: u64,
    policy: Policy,
    seed: u64,
    call: u64,
}

fn policy(dice: &mut Random, now_ms: u64) -> Policy {
    let pick = |dice: &mut Random, of: &[u32]| of[dice.below(of.len())];
    let polling_period_ms = pick(dice, &[500, 1_000, 3_000, 3_000, 7_000, 10_000]);
    let admit_per_minute = pick(dice, &[1, 3, 10, 60, 100, 600, 5_000]);
    // A script ends at most 1,000 missed appointments per call, so the front must not have more.
    let sub_windows = pick(dice, if admit_per_minute > 1_000 { &[10, 60] } else { &[1, 3, 10, 10, 10, 60] });
    let policy = Policy {
        mode: if dice.below(12) == 0 {
            [Mode::Hold, Mode::Open, Mode::Closed][dice.below(3)]
        } else {
            Mode::Auto
        },
        admit_per_minute,
        sub_windows,
        polling_period_ms,
        idle_timeout_s: pick(dice, &[30, 60, 60, 90]),
        pass_ttl_s: pick(dice, &[60, 300]),
        visit_idle_s: pick(dice, &[30, 60, 900]),
        max_active: pick(dice, &[0, 0, 5, 40, 2_000]),
        opens_at: if dice.below(4) == 0 {
            u32::try_from(now_ms / 1_000).expect("before 2106") + pick(dice, &[0, 1, 4, 20, 90]) - 2
        } else {
            0
        }
        .into(),
        ..Policy::default()
    };
    let policy = policy.check().expect("in range");
    match dice.below(12) {
        0 => drawn_event(["one", "two"][dice.below(2)]).policy(&policy),
        _ => policy,
    }
}

/// What an operator would define, so that this policy is in force.
fn definition(policy: Policy) -> Definition {
    let events = ["one", "two"].map(drawn_event);
    let of_policy = events.into_iter().filter(|event| event.draw_number() == policy.opens_at.draw);
    let schedule = Schedule::new(of_policy.collect(), &policy).expect("a schedule");
    Definition { policy, schedule, ..Definition::default() }
}

/// Brings a policy into force in Redis.
fn put(redis: &Arc<Redis<Connection>>, zone: &ZoneId, policy: Policy) -> Snapshot {
    let define = |new: &Definition| {
        let defined = now(redis.define(zone, &Expected::Any, Some(new))).expect("defines");
        assert!(matches!(defined, Defined::Done(_)), "{defined:?}");
    };
    // A draw whose event has begun stays as it is until the event is over.
    let kept = now(redis.zones()).expect("lists").expect("it keeps zones");
    if let Some((_, before)) = kept.zones.iter().find(|(of, _)| of == zone) {
        let ends = Moment::parse("2026-01-03T00:00:00Z").expect("an instant");
        let over = before.schedule.events().iter().map(|event| Event { ends: ends.clone(), ..event.clone() });
        let schedule = Schedule::new(over.collect(), &before.policy).expect("a schedule");
        define(&Definition { schedule, ..before.clone() });
    }
    define(&definition(policy));
    now(redis.line(zone).open(policy)).expect("opens")
}

/// Runs one trace. Returns the number of calls.
pub(crate) fn run(plain: &Plain, seed: u64, kinds: &mut Kinds) -> u64 {
    let mut dice = Random::of(seed);
    let connection = plain.connect();
    connection.command(&[b"FLUSHALL"]).expect("flushes");
    // Claims pass half of them for the front, whose appointments end, and a trace's line has up to five segments with people.
    let redis = Redis::new(plain.connect(), Durability::Async).with_max_segments([10, 16][dice.below(2)]);
    let redis = Arc::new(redis);
    let zone = ZoneId::parse(&format!("Z{seed}")).expect("a name");
    // Far ahead of the machine's clock, so that the zone's clock is that of the trace.
    let now_ms = 2_000_000_000_000 + dice.bits() % 100_000;
    redis.hold_clock(now_ms);
    let policy = policy(&mut dice, now_ms);
    let policy = Policy { opens_at: Opening { draw: 0, ..policy.opens_at }, ..policy };
    let seen = now(redis.line(&zone).put(policy)).expect("puts");
    let rules = Zone::new(policy, seen.epoch, Now { ms: now_ms, unix_ms: now_ms });
    let forecasts =
        Forecasts { redis: Forecast::new(&policy, now_ms), rules: Forecast::new(&policy, now_ms) };
    let (epoch, connection) = (seen.epoch, &connection);
    let mut pair = Pair {
        redis,
        connection,
        zone,
        rules,
        forecasts,
        evicted: 0,
        ended: 0,
        inside: Vec::new(),
        base: 0,
        now_ms,
        epoch,
        next: 0,
        policy,
        seed,
        call: 0,
    };
    let rules = pair.rules.beat(&[], pair.at());
    pair.compare_views(seen, rules);
    if dice.below(4) == 0 {
        // Nearly a whole segment; most of it will leave.
        for _ in 0..63 {
            pair.join(1_024, kinds);
        }
        pair.join(1 + u32::try_from(dice.below(1_000)).expect("fits"), kinds);
        if dice.below(3) == 0 {
            // The line goes past the segment's end. Then all holders stop polling, some for ever.
            pair.join(1_024, kinds);
            for second in 0..120 {
                pair.now_ms += 1_000;
                pair.redis.hold_clock(pair.now_ms);
                let newest: Vec<u64> = (pair.next - 500..pair.next).collect();
                pair.beat(&if second % 5 == 0 { marks(&newest) } else { Vec::new() }, 0, kinds);
            }
        }
    }
    let calls = 200 + dice.below(1_500) as u64;
    let (mut waiting, mut busy) = (vec![], false);
    while pair.call < calls {
        let pause = match dice.below(40) {
            0 => 1_500 + dice.below(3_000),
            1 => 4_000 + dice.below(70_000),
            2..12 => 0,
            12..20 => 1_000,
            _ => dice.below(400),
        };
        pair.now_ms += pause as u64;
        pair.redis.hold_clock(pair.now_ms);
        match dice.below(100) {
            0 => {
                let policy = self::policy(&mut dice, pair.now_ms);
                let policy =
                    if dice.below(2) == 0 { Policy { mode: policy.mode, ..pair.policy } } else { policy };
                pair.put(policy, kinds);
            }
            1..20 => {
                let count = if dice.below(20) == 0 { 1_024 } else { 1 + dice.below(12) };
                pair.join(u32::try_from(count).expect("fits"), kinds);
            }
            20 if pair.policy.opens_at.draw != 0 || dice.below(20) == 0 => pair.draw(&mut dice, kinds),
            20..32 => pair.visits(&mut dice, kinds),
            32..40 => pair.leave(&mut dice, &waiting, kinds),
            40..65 => {
                let claims = (0..=dice.below(20)).map(|_| pair.any_claim(&mut dice, &waiting)).collect();
                pair.enter(claims, kinds);
            }
            _ => {
                let share = [0, 1, 3, 10][dice.below(4)];
                let marked = waiting.iter().copied().filter(|_| dice.below(10) < share).collect::<Vec<_>>();
                kinds.note("marks", marked.len() as u64);
                let marks = marks(&marked);
                // Mostly nobody is busy, so that a period that was told ends.
                let longest_period_ms = if busy { [4_000, 8_000, 20_000][dice.below(3)] } else { 0 };
                busy ^= dice.below(60) == 0;
                let view = pair.beat(&marks, longest_period_ms, kinds);
                waiting = live(&view);
            }
        }
        if dice.below(150) == 0 {
            pair.compare_states(kinds);
        }
    }
    pair.compare_states(kinds);
    pair.call
}

/// The waiting tickets of a view.
fn live(view: &View) -> Vec<u64> {
    // Between the numbers of a deal there are many pages without people.
    let pages = (view.base..).step_by(PAGE_TICKETS).zip(&view.pages).filter(|(_, page)| page.live > 0);
    let tickets = pages.flat_map(|(first, _)| first..first + PAGE_TICKETS as u64);
    tickets.filter(|&seq| seq < view.next && view.position(seq, view.now_ms).is_some()).take(3_000).collect()
}

fn marks(seqs: &[u64]) -> Vec<PagePolls> {
    let mut marks = BTreeMap::new();
    for seq in seqs {
        let (page, ticket) =
            (seq / PAGE_TICKETS as u64, usize::try_from(seq % PAGE_TICKETS as u64).expect("fits"));
        marks.entry(page).or_insert_with(|| Box::new([0_u64; PAGE_WORDS]))[ticket / 64] |= 1 << (ticket % 64);
    }
    marks.into_iter().map(|(page, words)| PagePolls { page, words }).collect()
}

impl Pair<'_> {
    /// A number of the line, or one beyond. Of the numbers that were dealt, most are nobody's, and a server looks there now and then only.
    fn any_number(&self, dice: &mut Random) -> u64 {
        match self.rules.dump().drawn {
            LastDeal { draw: 0, .. } => dice.bits() % (self.next + 3),
            LastDeal { from, .. } => from + dice.bits() % 50,
        }
    }

    fn any_claim(&self, dice: &mut Random, waiting: &[u64]) -> Claim {
        let near = |dice: &mut Random, end: u64| if end == 0 { 0 } else { dice.bits() % end };
        let seq = match dice.below(10) {
            0 => self.any_number(dice),
            1 => self.next.saturating_sub(near(dice, 20)),
            2..8 if !waiting.is_empty() => waiting[dice.below(waiting.len().min(40))],
            _ if !waiting.is_empty() => waiting[dice.below(waiting.len())],
            _ => self.any_number(dice),
        };
        // One after, two after, and the one before.
        let other = [1, 2, u32::MAX][dice.below(3)];
        // With a later epoch and a later number, a ticket shows that the state in Redis is old. The rules know no losses.
        let other = if seq < self.next { other } else { u32::MAX };
        let epoch = if dice.below(40) == 0 { self.epoch.wrapping_add(other) } else { self.epoch };
        Claim { epoch, seq }
    }

    /// A clock that is held is its own wall clock: see `opening` in `lua/zone.lua`.
    fn at(&self) -> Now {
        Now { ms: self.now_ms, unix_ms: self.now_ms }
    }

    #[track_caller]
    fn same<T: PartialEq + fmt::Debug>(&self, what: &str, redis: &T, rules: &T) {
        assert!(
            redis == rules,
            "trace {}, call {}, at {}: {what}\nRedis: {redis:?}\nrules: {rules:?}",
            self.seed,
            self.call,
            self.now_ms
        );
    }

    fn put(&mut self, policy: Policy, kinds: &mut Kinds) {
        kinds.note("policies", 1);
        kinds.note("openings", u64::from(u64::from(policy.opens_at.unix_s) * 1_000 > self.now_ms));
        let redis = put(&self.redis, &self.zone, policy);
        self.rules.set_policy(policy, self.at());
        self.policy = policy;
        let rules = self.rules.beat(&[], self.at());
        self.compare_views(redis, rules);
        self.call += 1;
    }

    /// Lists who waits, lets some calls pass, and deals the line anew, by the draw of the policy or by another one.
    fn draw(&mut self, dice: &mut Random, kinds: &mut Kinds) {
        let frozen = self.census();
        let list: Vec<(u64, Vec<u64>)> =
            frozen.segments.iter().map(|segment| (segment.index, segment.live.clone())).collect();
        let people: u32 = list.iter().flat_map(|(_, words)| words).map(|word| word.count_ones()).sum();
        let mut positions: Vec<u32> = (0..people).collect();
        for i in (1..positions.len()).rev() {
            positions.swap(i, dice.below(i + 1));
        }
        let number = if dice.below(6) == 0 { 3 } else { self.policy.opens_at.draw.max(1) };
        let lots = Lots::new(number, frozen.next, &list, &positions).expect("the list is right");
        let later = u32::try_from(dice.below(4)).expect("few");
        if later > 0 {
            self.join(later, kinds);
        }
        self.now_ms += dice.below(9_000) as u64;
        self.redis.hold_clock(self.now_ms);
        if dice.below(2) == 0 {
            self.beat(&[], 0, kinds);
        }
        // Sometimes of an old list, from which people have left.
        let census = if dice.below(3) == 0 { frozen } else { self.census() };
        let (deal, anyway) = (lots.deal(&census), dice.below(2) == 0);
        let redis = now(self.redis.line(&self.zone).deal(deal.clone(), anyway)).expect("deals");
        let was = self.rules.dump().drawn;
        let rules = self.rules.deal(&deal, anyway, self.at());
        self.same("a deal", &redis, &rules);
        kinds.note("draws", 1);
        let dump = self.rules.dump();
        if dump.drawn == was {
            kinds.note("deals refused", u64::from(rules != Dealt::Done));
        } else {
            kinds.note("deals", 1);
            kinds.note("moved after a freeze", u64::from(later > 0));
            (self.base, self.next) = (dump.base, dump.next);
        }
        self.call += 2;
        self.beat(&[], 0, kinds);
        self.compare_states(kinds);
    }

    fn census(&mut self) -> Census {
        // A clock that is held is not the wall clock of Redis.
        let without_wall = |census: Census| Census { unix_ms: 0, ..census };
        let mut redis = without_wall(now(self.redis.line(&self.zone).census()).expect("lists"));
        // The rules lose no state.
        let ended = std::mem::take(&mut redis.ended);
        let rules = without_wall(self.rules.census(self.at()));
        self.same("a census", &redis, &rules);
        self.call += 1;
        Census { ended, ..rules }
    }

    fn join(&mut self, count: u32, kinds: &mut Kinds) {
        let mut redis = now(self.redis.line(&self.zone).join(count)).expect("joins");
        let mut rules = self.rules.join(count, self.at());
        self.estimate((&mut redis.verdicts, &redis.slots), (&mut rules.verdicts, &rules.slots));
        kinds.note("joins", u64::from(count));
        strip(&mut redis.verdicts);
        strip(&mut rules.verdicts);
        let of = |joined: &Joined| (joined.epoch, joined.first, joined.at_ms, joined.verdicts.clone());
        self.same("a join", &of(&redis), &of(&rules));
        self.next = redis.first + u64::from(count);
        self.call += 1;
    }

    fn enter(&mut self, claims: Vec<Claim>, kinds: &mut Kinds) -> Vec<Verdict> {
        let mut redis = now(self.redis.line(&self.zone).enter(claims.clone())).expect("enters");
        let mut rules = self.rules.enter(&claims, self.at());
        self.estimate((&mut redis.verdicts, &redis.slots), (&mut rules.verdicts, &rules.slots));
        for verdict in &redis.verdicts {
            let kind = match verdict {
                Verdict::Gone => "gone",
                Verdict::Waiting(_) => "waits",
                Verdict::Entered(entry) if entry.at_ms == redis.at_ms => "entries",
                Verdict::Entered(_) => "repeated",
            };
            kinds.note(kind, 1);
        }
        strip(&mut redis.verdicts);
        strip(&mut rules.verdicts);
        for (claim, (redis, rules)) in claims.iter().zip(redis.verdicts.iter().zip(&rules.verdicts)) {
            self.same(&format!("the claim of {}", claim.seq), redis, rules);
        }
        self.same("the instant of claims", &redis.at_ms, &rules.at_ms);
        self.call += 1;
        rules.verdicts
    }

    fn beat(&mut self, marks: &[PagePolls], longest_period_ms: u32, kinds: &mut Kinds) -> View {
        let redis = now(self.redis.line(&self.zone).beat(marks.to_vec(), longest_period_ms)).expect("beats");
        self.rules.note_longest_period(longest_period_ms, self.at());
        let rules = self.rules.beat(marks, self.at());
        let (evicted, base) = (rules.tally.evicted, rules.base);
        let view = self.compare_views(redis, rules);
        kinds.note("evicted", evicted - std::mem::replace(&mut self.evicted, evicted));
        kinds.note("bases moved", u64::from(base != std::mem::replace(&mut self.base, base)));
        self.call += 1;
        view
    }

    /// Some of the people inside leave, some who wait, some twice, and some tickets of other epochs or that nobody has. Some are bound to
    /// addresses before.
    fn leave(&mut self, dice: &mut Random, waiting: &[u64], kinds: &mut Kinds) {
        let mut leavers: Vec<Leaver> = Vec::new();
        for _ in 0..1 + dice.below(6) {
            let claim = match dice.below(3) {
                0 if !self.inside.is_empty() => {
                    Claim { epoch: self.epoch, seq: self.inside[dice.below(self.inside.len())] }
                }
                1 if !leavers.is_empty() => leavers[dice.below(leavers.len())].claim,
                _ => self.any_claim(dice, waiting),
            };
            let proof = [Proof::Name, Proof::Token, Proof::Token, Proof::Visit][dice.below(4)];
            leavers.push(Leaver { claim, proof, address: dice.below(3) as u64 });
            // Only entries are bound.
            if dice.below(3) == 0 && matches!(self.enter(vec![claim], kinds)[0], Verdict::Entered(_)) {
                let address = 1 + dice.below(2) as u64;
                let redis = now(self.redis.line(&self.zone).bind(claim, address)).expect("binds");
                let rules = self.rules.bind(claim, address, self.at());
                self.same("the address of an entry", &redis, &rules);
                kinds.note("bound", 1);
            }
        }
        let redis = now(self.redis.line(&self.zone).leave(leavers.clone())).expect("leaves");
        let rules = self.rules.leave(&leavers, self.at());
        for (leaver, (redis, rules)) in leavers.iter().zip(redis.iter().zip(&rules)) {
            self.same(&format!("{leaver:?}"), redis, rules);
            let kind = match rules {
                Departure::Place => "places left",
                Departure::Visit => "visits left",
                Departure::Gone => "left twice",
                Departure::Waits => "left waiting",
                Departure::Elsewhere => "left elsewhere",
                Departure::Unknown => "left unknown",
                // Behind the line's end, while a draw is due.
                Departure::NotYet => "left not yet",
            };
            kinds.note(kind, 1);
        }
        self.ended = self.rules.dump().inside.ended;
        self.call += 1;
    }

    /// Some of the people inside are active, and some who are not counted show themselves.
    fn visits(&mut self, dice: &mut Random, kinds: &mut Kinds) {
        // Some are never active.
        let share = [0, 1, 5, 10][dice.below(4)];
        let is_active = |dice: &mut Random, seq: u64| !seq.is_multiple_of(3) && dice.below(10) < share;
        let mut seen: Vec<u64> = self.inside.iter().copied().filter(|&seq| is_active(dice, seq)).collect();
        if self.next > 0 && dice.below(8) == 0 {
            seen.push(self.any_number(dice));
        }
        let seen = marks(&seen);
        let redis = now(self.redis.line(&self.zone).visits(seen.clone())).expect("reports");
        let rules = self.rules.visits(&seen, self.at());
        self.same("who left", &redis.pages, &rules);
        let inside = self.rules.dump().inside;
        let ended = inside.ended.saturating_sub(self.ended);
        kinds.note("idle visits", ended);
        kinds.note("visits", inside.visits.len() as u64);
        kinds.note(
            "full",
            u64::from(self.policy.max_active > 0 && inside.visits.len() >= self.policy.max_active as usize),
        );
        self.ended = inside.ended;
        self.inside = inside.visits.iter().map(|visit| visit.seq).collect();
        self.call += 1;
    }

    /// Fills in the waits of both sides.
    fn estimate(&mut self, redis: (&mut [Verdict], &SlotState), rules: (&mut [Verdict], &SlotState)) {
        self.forecasts.redis.estimate(redis.0, redis.1, self.now_ms);
        self.forecasts.rules.estimate(rules.0, rules.1, self.now_ms);
        self.same("the people inside", &redis.1.occupancy, &rules.1.occupancy);
    }

    /// Makes the views of both sides. Returns the one of Redis.
    #[track_caller]
    fn compare_views(&mut self, redis: Snapshot, rules: Snapshot) -> View {
        let redis = self.forecasts.redis.observe(redis);
        let rules = self.forecasts.rules.observe(rules);
        let numbers = |view: &View| {
            (
                view.now_ms,
                view.policy,
                view.epoch,
                view.base,
                view.next,
                (view.front_end, view.approach_end, view.longest_period_ms),
                (view.tally, view.occupancy),
            )
        };
        self.same("a view's numbers", &numbers(&redis), &numbers(&rules));
        self.same("a view's plan", &redis.plan, &rules.plan);
        self.same("a view's outlook", &redis.outlook, &rules.outlook);
        let pages = |view: &View| -> Vec<_> {
            let of = |page: &Page| (page.live_before, page.present_before, page.live, page.present);
            view.pages.iter().map(of).collect()
        };
        self.same("the number of pages", &redis.pages.len(), &rules.pages.len());
        for (page, (redis, rules)) in pages(&redis).iter().zip(&pages(&rules)).enumerate() {
            self.same(&format!("page {page}"), redis, rules);
        }
        for (page, (redis, rules)) in redis.pages.iter().zip(&rules.pages).enumerate() {
            self.same(&format!("page {page}'s bits"), &redis.gone, &rules.gone);
        }
        redis
    }

    fn compare_states(&self, kinds: &mut Kinds) {
        kinds.note("dumps", 1);
        // The stored values of a segment without waiting tickets do not matter.
        let used = |mut dump: Dump| {
            dump.segments.retain(|segment| segment.live > 0);
            dump.entries.clear();
            dump
        };
        let (redis, rules) =
            (used(state::dump(self.zone.as_str(), self.connection)), used(self.rules.dump()));
        self.same("appointments", &redis.appointments, &rules.appointments);
        for (redis, rules) in redis.tickets.iter().zip(&rules.tickets) {
            self.same("a ticket", redis, rules);
        }
        self.same("the people inside", &redis.inside, &rules.inside);
        self.same("the draw", &redis.drawn, &rules.drawn);
        self.same("the state", &redis, &rules);
    }
}

/// Removes the seconds of the wall clock, which no rule reads.
fn strip(verdicts: &mut [Verdict]) {
    for verdict in verdicts {
        if let Verdict::Entered(entry) = verdict {
            entry.unix_s = 0;
        }
    }
}
