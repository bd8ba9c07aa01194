//! The pace of polls, simulated: servers of limited capacity and crowds, on a virtual clock.
//!
//! A server answers as many calls as its processors allow; the others wait in a queue. Users ask again when they are told, a tenth early
//! or late. Invariant: the same crowd gives the same run.

use std::{
    collections::{BTreeMap, VecDeque},
    io::Write as _,
    time::Duration,
};

use gate::pace::{Load, Pace, Wish};
use tokio::time::Instant;

/// The step of the simulation, and an update of the pace, in milliseconds.
const STEP_MS: u64 = 50;
const UPDATE_MS: u64 = 250;

/// What the policy wishes for, and the longest period.
const WISH: Wish = Wish { earliest_ms: 3_000, period_ms: 3_000, allowed_ms: 20_000, longest_ms: 20_000 };

/// The share of its processors that a server uses at most, as documented.
const SHARE: f64 = 0.7;

/// A server, and what it did.
struct Server {
    pace: Pace,
    processors: f64,
    /// Processor seconds a call.
    cost_s: f64,
    queue: VecDeque<(u32, bool)>,
    /// Processor seconds that are left from the last step.
    left_s: f64,
    used_s: f64,
    /// The part of its processors that it used, second by second.
    use_by_second: Vec<f64>,
    longest_ms: u32,
}

impl Server {
    fn new(processors: f64, cost_s: f64) -> Self {
        Self {
            pace: Pace::new(processors),
            processors,
            cost_s,
            queue: VecDeque::new(),
            left_s: 0.0,
            used_s: 0.0,
            use_by_second: Vec::new(),
            longest_ms: 0,
        }
    }

    fn update(&mut self, now_ms: u64, spent_s: &mut f64) {
        let waits_s = self.queue.len() as f64 * self.cost_s / self.processors;
        let load = Load {
            elapsed_s: UPDATE_MS as f64 / 1_000.0,
            cpu_s: std::mem::take(spent_s),
            others_s: 0.0,
            lag_s: waits_s,
            overflowed: false,
        };
        self.pace.update(load);
        if now_ms.is_multiple_of(1_000) {
            self.use_by_second.push(std::mem::take(&mut self.used_s) / self.processors);
        }
    }

    /// The mean use in each five seconds from `from_s` on.
    fn use_from(&self, from_s: usize, to_s: usize) -> Vec<f64> {
        self.use_by_second[from_s..to_s]
            .chunks(5)
            .map(|part| part.iter().sum::<f64>() / part.len() as f64)
            .collect()
    }
}

/// Which server a user asks.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// Always the same one, as over a connection that stays.
    Same,
    /// Another one each time.
    Any,
}

/// Numbers that look random and are the same in each run (xorshift).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        u32::try_from(self.0 >> 32).expect("32 bits")
    }

    fn below(&mut self, end: u64) -> u64 {
        (u64::from(self.next()) * end) >> 32
    }
}

/// Users who join within `arrive_ms`. Every user whose number is a multiple of `hasty` asks each second, whatever it is told.
struct Crowd {
    users: u32,
    arrive_ms: u64,
    way: Way,
    hasty: u32,
}

/// Plays `seconds`. `change` is called each second, and may change the servers.
async fn play(crowd: &Crowd, servers: &mut [Server], seconds: u64, change: impl Fn(u64, &mut [Server])) {
    let mut dice = Dice(0x2545_F491_4F6C_DD1D);
    let mut due: BTreeMap<u64, Vec<(u32, bool)>> = BTreeMap::new();
    for user in 0..crowd.users {
        due.entry(dice.below(crowd.arrive_ms) / STEP_MS).or_default().push((user, true));
    }
    let count = servers.len() as u64;
    let mut spent_s = vec![0.0; servers.len()];
    for step in 0..seconds * 1_000 / STEP_MS {
        let now_ms = step * STEP_MS;
        if now_ms.is_multiple_of(1_000) {
            change(now_ms / 1_000, servers);
        }
        for (user, joins) in due.remove(&step).unwrap_or_default() {
            let at = if crowd.way == Way::Same { u64::from(user) % count } else { dice.below(count) };
            servers[usize::try_from(at).expect("small")].queue.push_back((user, joins));
        }
        for (server, spent_s) in servers.iter_mut().zip(&mut spent_s) {
            server.left_s =
                (server.left_s + server.processors * STEP_MS as f64 / 1_000.0).min(server.processors);
            while server.left_s >= server.cost_s
                && let Some((user, joins)) = server.queue.pop_front()
            {
                for spent in [&mut server.used_s, &mut *spent_s] {
                    *spent += server.cost_s;
                }
                server.left_s -= server.cost_s;
                if joins {
                    server.pace.note_join();
                }
                let told_ms = server.pace.book(Instant::now(), WISH, dice.next());
                server.longest_ms = server.longest_ms.max(told_ms);
                let is_hasty = crowd.hasty > 0 && user % crowd.hasty == 0;
                let back_ms =
                    if is_hasty { 1_000 } else { u64::from(told_ms) * (900 + dice.below(201)) / 1_000 };
                due.entry(step + 1 + back_ms / STEP_MS).or_default().push((user, false));
            }
            if server.queue.is_empty() {
                server.left_s = 0.0;
            }
        }
        tokio::time::advance(Duration::from_millis(STEP_MS)).await;
        let now_ms = now_ms + STEP_MS;
        if now_ms.is_multiple_of(UPDATE_MS) {
            for (server, spent_s) in servers.iter_mut().zip(&mut spent_s) {
                server.update(now_ms, spent_s);
            }
        }
    }
}

/// Asserts that the use of a server stays below its share in these seconds, and within a tenth of its mean.
#[track_caller]
fn is_steady(server: &Server, from_s: usize, to_s: usize, what: &str) {
    let uses = server.use_from(from_s, to_s);
    let mean = uses.iter().sum::<f64>() / uses.len() as f64;
    let shown: Vec<_> = uses.iter().map(|used| format!("{used:.2}")).collect();
    let shown = shown.join(" ");
    let line = format!("{what}: {mean:.2} of the processors from {from_s} s to {to_s} s: {shown}");
    drop(writeln!(std::io::stderr(), "{line}"));
    assert!(uses.iter().all(|used| *used <= SHARE * 1.05), "{what}: above the share: {shown}");
    assert!(uses.iter().all(|used| (used / mean - 1.0).abs() <= 0.1), "{what}: it oscillates: {shown}");
    assert!(server.longest_ms <= WISH.longest_ms, "{what}: a period of {} ms", server.longest_ms);
}

const EVERYBODY: Crowd = Crowd { users: 600_000, arrive_ms: 2_000, way: Way::Same, hasty: 0 };

#[tokio::test(start_paused = true)]
async fn a_crowd_that_comes_at_once_is_carried_within_the_share() {
    let mut servers = [Server::new(4.0, 40e-6)];
    play(&EVERYBODY, &mut servers, 150, |_, _| ()).await;
    // 600,000 joins take six seconds. 70,000 polls a second are the share.
    is_steady(&servers[0], 30, 150, "a sudden start");
    let mean = servers[0].use_from(30, 150).iter().sum::<f64>() / 24.0;
    assert!(mean > SHARE * 0.85, "people wait longer than they have to: {mean:.2}");
}

#[tokio::test(start_paused = true)]
async fn half_of_the_capacity_is_enough_thirty_seconds_later() {
    let mut servers = [Server::new(4.0, 40e-6)];
    let halve = |second, servers: &mut [Server]| {
        if second == 80 {
            servers[0].cost_s = 80e-6;
        }
    };
    play(&EVERYBODY, &mut servers, 200, halve).await;
    is_steady(&servers[0], 30, 80, "before");
    is_steady(&servers[0], 110, 200, "after half of the capacity is gone");
}

#[tokio::test(start_paused = true)]
async fn each_of_two_unequal_servers_steers_itself() {
    for way in [Way::Same, Way::Any] {
        let mut servers = [Server::new(4.0, 40e-6), Server::new(2.0, 40e-6)];
        let crowd = Crowd { way, ..EVERYBODY };
        play(&crowd, &mut servers, 200, |_, _| ()).await;
        // The smaller server needs twelve seconds for its joins, and then the strays are averaged.
        let from_s = if way == Way::Same { 30 } else { 100 };
        for (server, what) in servers.iter().zip(["the larger server", "the smaller server"]) {
            is_steady(server, from_s, 200, what);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn users_who_ask_when_they_like_take_room_and_no_more() {
    let mut servers = [Server::new(4.0, 40e-6)];
    let crowd = Crowd { hasty: 40, ..EVERYBODY };
    play(&crowd, &mut servers, 200, |_, _| ()).await;
    is_steady(&servers[0], 100, 200, "one in forty asks every second");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_not_busy_tells_the_period_that_is_wished_for() {
    let mut servers = [Server::new(4.0, 40e-6)];
    let crowd = Crowd { users: 60_000, arrive_ms: 10_000, ..EVERYBODY };
    play(&crowd, &mut servers, 60, |_, _| ()).await;
    assert_eq!(servers[0].longest_ms, WISH.period_ms);
}
