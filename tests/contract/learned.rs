//! What one server learnt about the patience of a zone's people, another one knows. The zone's clock is held and moved on, so that
//! lines of minutes take seconds.

use std::sync::Arc;

use admission::{PAGE_TICKETS, PAGE_WORDS, PagePolls, Policy, Verdict, ZoneId};
use gate::ZoneForecast;
use store::{
    Line as _, Store as _,
    redis::{Redis, RedisLine},
};

use crate::{
    backend::{Backend as _, InRedis},
    behaviour::{claims, place},
};

const PEOPLE: u32 = 1_000;

fn policy() -> Policy {
    Policy { admit_per_minute: 200, ..Policy::default() }
}

/// A server's store, and its line and forecast, as a room holds them.
struct Server {
    store: Arc<Redis>,
    line: RedisLine,
    forecast: ZoneForecast,
}

/// A zone whose clock the test moves.
struct Clock<'a> {
    backend: &'a InRedis,
    zone: &'a ZoneId,
    now_ms: u64,
}

impl Clock<'_> {
    /// A server that has just started.
    async fn start(&self) -> Server {
        let store = self.backend.open().await;
        let line = store.line(self.zone);
        let server = Server { store, line, forecast: ZoneForecast::new(&policy()) };
        server.store.hold_clock(self.now_ms);
        let snapshot = server.line.open(policy()).await.expect("opened");
        server.forecast.exchange(&server.line, self.zone, self.now_ms).await;
        server.forecast.observe(snapshot);
        server
    }

    async fn beat(&mut self, server: &Server, polls: Vec<PagePolls>, after_ms: u64) {
        self.now_ms += after_ms;
        server.store.hold_clock(self.now_ms);
        server.forecast.observe(server.line.beat(polls, 0).await.expect("beats"));
        server.forecast.exchange(&server.line, self.zone, self.now_ms).await;
    }

    /// Plays a line of [`PEOPLE`] of which two fifths leave within a minute. Returns by what share the wait was wrong that the last one
    /// was told.
    async fn line(&mut self, server: &Server) -> f64 {
        let waits = |verdict: &Verdict| matches!(verdict, Verdict::Waiting(_));
        let mut joined = server.line.join(PEOPLE).await.expect("joins");
        server.forecast.estimate(&mut joined.verdicts, &joined.slots, joined.at_ms);
        let last = place(joined.verdicts.last().expect("they joined"));
        let told_s = last.estimate.expect("known").wait_ms as f64 / 1_000.0;
        // When a person leaves, in seconds after the join; the last one stays.
        let leaves_s =
            |i: u64| if i % 5 < 2 && i + 1 < u64::from(PEOPLE) { 5 + (i * 37) % 50 } else { u64::MAX };
        let mut waiting: Vec<u64> =
            (0..).zip(&joined.verdicts).filter(|(_, verdict)| waits(verdict)).map(|(i, _)| i).collect();
        let (mut second, mut had_s) = (0, 0);
        while second < had_s + 100 {
            second += 1;
            waiting.retain(|&i| leaves_s(i) > second);
            let mut polls: Vec<PagePolls> = Vec::new();
            for seq in waiting.iter().map(|i| joined.first + i) {
                let page = seq / PAGE_TICKETS as u64;
                if polls.last().is_none_or(|last| last.page != page) {
                    polls.push(PagePolls { page, words: Box::new([0; PAGE_WORDS]) });
                }
                let ticket = usize::try_from(seq % PAGE_TICKETS as u64).expect("small");
                polls.last_mut().expect("pushed").words[ticket / 64] |= 1 << (ticket % 64);
            }
            self.beat(server, polls, 1_000).await;
            let front = waiting.len().min(100);
            if front == 0 {
                continue;
            }
            had_s = second;
            let claims = claims(joined.epoch, waiting[..front].iter().map(|i| joined.first + i));
            let decided = server.line.enter(claims).await.expect("decides");
            let mut verdicts = decided.verdicts.iter();
            waiting.retain(|_| verdicts.next().is_none_or(waits));
        }
        assert!(had_s > 120, "a short line: {had_s} s");
        told_s / had_s as f64 - 1.0
    }

    /// A command about the key, with words behind it.
    fn key(&self, command: &str, words: &[&str]) -> crate::redis::Reply {
        let key = format!("weir:v1:{{{}}}:learned", self.zone);
        let servers = &self.backend.servers;
        servers.command(servers.holder(&format!("{{{}}}", self.zone)), &[&[command, &key], words].concat())
    }
}

fn is_cold(error: f64) {
    assert!(error > 0.3, "nobody can know of a first line who leaves: {error:.3}");
}

fn is_warm(error: f64) {
    assert!(error.abs() < 0.08, "an earlier line taught it: {error:.3}");
}

async fn begin<'a>(backend: &'a InRedis, zone: &'a ZoneId) -> (Clock<'a>, Server) {
    let first = backend.open().await;
    let now_ms = first.line(zone).put(policy()).await.expect("put").now_ms + 1_000;
    let clock = Clock { backend, zone, now_ms };
    let first = clock.start().await;
    (clock, first)
}

pub(crate) async fn what_one_server_learnt_another_one_knows(backend: &InRedis, zone: &ZoneId) {
    let (mut clock, first) = begin(backend, zone).await;
    let idle = clock.start().await;
    is_cold(clock.line(&first).await);
    is_warm(clock.line(&clock.start().await).await);
    let kept_ms = clock.key("PTTL", &[]).int();
    assert!(kept_ms > 80 * 86_400_000, "kept for {kept_ms} ms");

    // One that had nothing to do meanwhile beats before it asks for places.
    clock.beat(&idle, Vec::new(), 0).await;
    is_warm(clock.line(&idle).await);
}

pub(crate) async fn what_was_learnt_is_written_again_where_it_was_lost(backend: &InRedis, zone: &ZoneId) {
    let (mut clock, first) = begin(backend, zone).await;
    is_cold(clock.line(&first).await);
    for spoil in [("DEL", &[][..]), ("SET", &["what nobody wrote"]), ("RPUSH", &["of another type"])] {
        let spoil = |clock: &Clock<'_>| {
            clock.key("DEL", &[]);
            clock.key(spoil.0, spoil.1);
        };
        spoil(&clock);
        // Without it, or with what no server wrote, another server knows nothing, and the zone works.
        is_cold(clock.line(&clock.start().await).await);
        is_warm(clock.line(&clock.start().await).await);
        // A server that remembers it writes it again, though it has no news.
        spoil(&clock);
        clock.beat(&first, Vec::new(), 60_000).await;
        clock.beat(&first, Vec::new(), 1_000).await;
        is_warm(clock.line(&clock.start().await).await);
    }
}
