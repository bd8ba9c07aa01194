//! One virtual user: what it plans, what it hears, and its story.
//!
//! A user does one thing after another: it sleeps until its next call is due, then makes it ([`User::step`]). Invariants: a
//! call's latency counts from when it was due, so waiting for a connection or for a late timer counts; every life
//! ends with exactly one story.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
};
use std::time::Duration;

use http_body_util::Full;
use hyper::{
    Request, Uri,
    header::{CONTENT_TYPE, HOST, HeaderValue},
};
use tokio::{sync::Notify, time::sleep};

use crate::{
    clock::{Clock, ms},
    pool::{Pool, Reply},
    profile::{Profile, Then},
    random::Random,
    story::{Call, End, LAPSE_MS, Rise, Story, ToldWait},
    tally::{Kind, Tally},
    wire::{self, Answer, Waiting},
};

/// When to ask again after a failure that does not say when.
const RETRY_US: u64 = 3_000_000;
/// How long a user rests who has nothing to do any more, until it is told to go.
const REST: Duration = Duration::from_millis(500);
/// How long a user that asks once more after entering waits until then.
const REPEAT_US: u64 = 1_000_000;
/// A napper naps after this many polls at most.
const NAP_POLLS: f64 = 5.0;

/// What all users of a worker share.
#[derive(Debug)]
pub struct Crowd {
    /// The zone.
    pub zone: String,
    /// What users do.
    pub profile: Profile,
    /// Where the waiting room takes places, and where it is asked.
    pub paths: [Uri; 2],
    /// The header `Host`.
    pub host: HeaderValue,
    /// The worker's number.
    pub worker: u16,
    /// What chance begins with.
    pub seed: u64,
    /// The clock.
    pub clock: Clock,
    /// The connections.
    pub pool: Pool,
    /// What was done.
    pub tally: Tally,
    /// The next user's number, for those who begin again.
    pub next: AtomicU32,
    stopping: AtomicBool,
    stopped_us: AtomicU64,
    stop: Notify,
}

impl Crowd {
    /// A crowd of `users` users, numbered from 0.
    #[must_use]
    pub fn new(task: &crate::frame::Task, paths: [Uri; 2], host: HeaderValue, users: u32) -> Self {
        Self {
            zone: task.zone.clone(),
            profile: task.profile.clone(),
            paths,
            host,
            worker: task.worker,
            seed: task.seed,
            clock: Clock::default(),
            pool: Pool::new(task.address, task.connections, task.sources.clone()),
            tally: Tally::default(),
            next: AtomicU32::new(users),
            stopping: AtomicBool::new(false),
            stopped_us: AtomicU64::new(u64::MAX),
            stop: Notify::new(),
        }
    }

    /// Wakes all sleepers; no call is made from now on.
    pub fn stop(&self) {
        self.stopped_us.fetch_min(self.clock.now_us(), Ordering::SeqCst);
        self.stopping.store(true, Ordering::SeqCst);
        self.stop.notify_waiters();
    }

    /// Whether [`Self::stop`] was called.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Now, or when [`Self::stop`] was called: later than that, users only wait to be sent home.
    #[must_use]
    pub fn over_us(&self) -> u64 {
        self.clock.now_us().min(self.stopped_us.load(Ordering::SeqCst))
    }

    /// Sleeps; false if the run ended meanwhile.
    async fn sleep_until(&self, us: u64) -> bool {
        let stop = self.stop.notified();
        if self.is_stopping() {
            return false;
        }
        tokio::select! {
            () = tokio::time::sleep_until(self.clock.at(us)) => true,
            () = stop => false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Takes a place next.
    Arriving,
    /// Asks for it next.
    Waiting,
    /// Walks away next.
    Leaving,
    /// Asks once more after entering.
    Repeating,
    /// Has nothing more to do.
    Away,
}

/// A user.
#[derive(Clone, Debug)]
pub struct User {
    crowd: Arc<Crowd>,
    random: Random,
    phase: Phase,
    story: Story,
    token: Option<Box<str>>,
    pass: Option<Box<str>>,
    rank: Option<u64>,
    period_us: u64,
    /// When the next call is due, and when it would be if every reply had been there at once.
    due_us: u64,
    ideal_us: u64,
    /// From one call to the next, as planned last.
    gap_us: u64,
    /// A call of this life was answered, or failed.
    called: bool,
    /// The last call that the server surely took note of: when it was sent, and the period then asked for.
    noted: Option<(u32, u32)>,
    leaves_us: Option<u64>,
    nap: Option<(u32, u64)>,
}

fn new_story(who: (u16, u32)) -> Story {
    Story {
        arrived: None,
        last_waiting: None,
        entered: None,
        first_told: None,
        longest_silence_ms: 0,
        lapses: 0,
        rises: 0,
        worst_rise: None,
        second_pass: false,
        who,
        end: End::Outside,
        ended_ms: 0,
    }
}

impl User {
    /// The user of this number, who is there from `starts_us` on.
    #[must_use]
    pub fn new(crowd: Arc<Crowd>, number: u32, starts_us: u64) -> Self {
        let mut random = Random::new(crowd.seed, crowd.worker, number);
        let due_us = starts_us + random.between_us(crowd.profile.first_sleep_s);
        crowd.tally.came();
        let story = new_story((crowd.worker, number));
        let mut user = Self {
            crowd,
            random,
            phase: Phase::Arriving,
            story,
            token: None,
            pass: None,
            rank: None,
            period_us: RETRY_US,
            due_us,
            ideal_us: due_us,
            gap_us: RETRY_US,
            called: false,
            noted: None,
            leaves_us: None,
            nap: None,
        };
        user.draw();
        user
    }

    /// Draws what kind of user this is.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    fn draw(&mut self) {
        let profile = &self.crowd.profile;
        let naps = self.random.part() < profile.naps;
        let (polls, length) = (self.random.part() * NAP_POLLS, self.random.between_us(profile.nap_s));
        self.nap = naps.then_some((polls as u32, length));
        self.leaves_us = None;
    }

    /// Sleeps until the next call is due, and makes it.
    pub async fn step(&mut self) {
        let awake = if self.phase == Phase::Away {
            let stop = self.crowd.stop.notified();
            if !self.crowd.is_stopping() {
                stop.await;
            }
            false
        } else {
            self.crowd.sleep_until(self.due_us).await
        };
        if !awake {
            // The end is near; asking for it without rest would cost those who still work the processor.
            sleep(REST).await;
            return;
        }
        self.crowd.tally.lag(self.crowd.clock.now_us().saturating_sub(self.due_us));
        if self.phase == Phase::Leaving {
            let at = ms(self.crowd.clock.now_us());
            self.end(End::Left, at);
            self.go_away();
            return;
        }
        self.crowd.tally.due(self.ideal_us);
        // What a call needs is not kept while sleeping.
        Box::pin(self.call()).await;
    }

    async fn call(&mut self) {
        let kind = if self.phase == Phase::Arriving { Kind::Wait } else { Kind::Entry };
        let body = wire::ask(&self.crowd.zone, self.token.as_deref());
        let mut request = Request::post(self.crowd.paths[usize::from(kind == Kind::Entry)].clone())
            .body(Full::new(body))
            .unwrap_or_default();
        request.headers_mut().insert(HOST, self.crowd.host.clone());
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let mut sent_us = self.crowd.clock.now_us();
        let reply = self.crowd.pool.call(request, || sent_us = self.crowd.clock.now_us()).await;
        let heard_us = self.crowd.clock.now_us();
        self.heard(kind, sent_us, heard_us, reply);
    }

    fn heard(&mut self, kind: Kind, sent_us: u64, heard_us: u64, reply: Result<Reply, String>) {
        let call = Call { sent_ms: ms(sent_us), heard_ms: ms(heard_us) };
        self.called = true;
        let latency_us = heard_us.saturating_sub(self.due_us);
        let answer = reply.map(|reply| wire::read(reply.status, reply.retry_after.as_deref(), &reply.body));
        let failure = match &answer {
            Err(what) | Ok(Answer::Nonsense(what)) => Some(what.clone()),
            Ok(Answer::Refused { status, code, .. }) => {
                Some(format!("{status} {code}").trim_end().to_owned())
            }
            Ok(_) => None,
        };
        let tally = &self.crowd.tally;
        tally.called(kind, latency_us, failure.as_deref().map_or(Ok(()), Err), call.heard_ms);
        if self.phase == Phase::Waiting && is_noted(kind, &answer) {
            self.count_silence(call);
        }
        match answer {
            Ok(Answer::Enter { token, pass }) => self.enter(call, heard_us, token, pass),
            Ok(Answer::NotYet { .. } | Answer::Gone) if self.phase == Phase::Repeating => {
                self.story.second_pass = true;
                self.entered_for_good(heard_us);
            }
            Ok(Answer::NotYet { token, waiting }) => self.wait(call, heard_us, token, waiting),
            Ok(Answer::Gone) => self.lost(call, heard_us),
            // A place whose token is refused is lost too.
            Ok(Answer::Refused { status: 401, .. }) if kind == Kind::Entry => self.lost(call, heard_us),
            Ok(Answer::Refused { retry_after_ms: Some(after), .. }) => {
                self.plan(heard_us, u64::from(after) * 1000);
            }
            _ => self.plan(heard_us, self.period_us),
        }
    }

    /// The silence that ends with this call.
    fn count_silence(&mut self, call: Call) {
        let Some((sent_ms, period_ms)) = self.noted else { return };
        let silence_ms = call.heard_ms.saturating_sub(sent_ms);
        let story = &mut self.story;
        story.longest_silence_ms = story.longest_silence_ms.max(silence_ms);
        let lapse = silence_ms > period_ms.saturating_mul(2).saturating_add(LAPSE_MS);
        story.lapses = story.lapses.saturating_add(u16::from(lapse));
    }

    /// The next call is due `gap_us` after now.
    fn plan(&mut self, now_us: u64, gap_us: u64) {
        self.gap_us = gap_us;
        self.due_us = now_us + gap_us;
        self.ideal_us += gap_us;
        if let Some(leaves_us) = self.leaves_us.filter(|leaves| *leaves < self.due_us) {
            self.phase = Phase::Leaving;
            self.due_us = leaves_us.max(now_us);
        }
    }

    fn wait(&mut self, call: Call, heard_us: u64, token: Box<str>, waiting: Waiting) {
        self.crowd.tally.not_yet(waiting.stale);
        if self.phase == Phase::Arriving {
            self.phase = Phase::Waiting;
            self.story.arrived = Some(call);
            self.crowd.tally.stands();
            let profile = &self.crowd.profile;
            let leaves = self.random.part() < profile.abandon;
            let patience_us = self.random.between_us(profile.patience_s);
            self.leaves_us = leaves.then_some(heard_us + patience_us);
        }
        self.token = Some(token);
        if !waiting.stale || self.noted.is_none() {
            self.noted = Some((call.sent_ms, waiting.polling_period));
        }
        if !waiting.stale {
            self.story.last_waiting = Some(call);
            if let Some(before) = self.rank.replace(waiting.rank).filter(|before| *before < waiting.rank) {
                self.story.rises = self.story.rises.saturating_add(1);
                let rise = Rise { from: before, to: waiting.rank, at_ms: call.heard_ms };
                let worst = self.story.worst_rise.map_or(0, |worst| worst.to - worst.from);
                if rise.to - rise.from > worst {
                    self.story.worst_rise = Some(rise);
                }
            }
        }
        if let (None, Some(eta_s)) = (self.story.first_told, waiting.eta_seconds) {
            let range_s = waiting.eta_range.unwrap_or((eta_s, eta_s));
            self.story.first_told =
                Some(ToldWait { eta_s, range_s, rank: waiting.rank, at_ms: call.heard_ms });
        }
        self.period_us = u64::from(waiting.polling_period.max(1)) * 1000;
        let mut gap_us = self.period_us;
        match &mut self.nap {
            Some((0, length_us)) => {
                gap_us += *length_us;
                self.nap = None;
            }
            Some((polls, _)) => *polls -= 1,
            None => {}
        }
        self.plan(heard_us, gap_us);
    }

    fn enter(&mut self, call: Call, heard_us: u64, token: Option<Box<str>>, pass: Box<str>) {
        let again = self.phase == Phase::Repeating;
        self.crowd.tally.entered(!again);
        if again {
            self.story.second_pass = self.pass.as_deref().map(unsigned) != Some(unsigned(&pass));
            self.entered_for_good(heard_us);
            return;
        }
        if self.phase == Phase::Waiting {
            self.crowd.tally.stands_no_more();
        }
        self.story.arrived.get_or_insert(call);
        self.story.entered = Some(call);
        if token.is_some() {
            self.token = token;
        }
        self.pass = Some(pass);
        self.leaves_us = None;
        if self.token.is_some() && self.random.part() < self.crowd.profile.repeat {
            self.phase = Phase::Repeating;
            self.plan(heard_us, REPEAT_US);
        } else {
            self.entered_for_good(heard_us);
        }
    }

    fn entered_for_good(&mut self, heard_us: u64) {
        self.phase = Phase::Repeating;
        let at = self.story.entered.map_or_else(|| ms(heard_us), |call| call.heard_ms);
        self.end(End::Entered, at);
        match self.crowd.profile.then {
            Then::Anew => self.begin_anew(heard_us),
            Then::Stay => self.go_away(),
        }
    }

    fn lost(&mut self, call: Call, heard_us: u64) {
        self.end(End::Gone, call.heard_ms);
        self.begin_anew(heard_us);
    }

    fn begin_anew(&mut self, now_us: u64) {
        let number = self.crowd.next.fetch_add(1, Ordering::Relaxed);
        self.story = new_story((self.crowd.worker, number));
        self.phase = Phase::Arriving;
        (self.token, self.pass, self.rank, self.noted, self.called) = (None, None, None, None, false);
        self.draw();
        self.due_us = now_us + self.random.between_us(self.crowd.profile.first_sleep_s);
        self.ideal_us = self.due_us;
        self.period_us = RETRY_US;
        self.gap_us = RETRY_US;
    }

    fn go_away(&mut self) {
        self.phase = Phase::Away;
        self.crowd.tally.went();
    }

    /// Ends this life: its story is told.
    fn end(&mut self, end: End, at_ms: u32) {
        if matches!(self.phase, Phase::Waiting | Phase::Leaving) {
            self.crowd.tally.stands_no_more();
        }
        self.story.end = end;
        self.story.ended_ms = at_ms;
        let story = std::mem::replace(&mut self.story, new_story((self.crowd.worker, 0)));
        self.crowd.tally.tell(story);
    }

    /// The run is over for this user.
    pub fn finish(&mut self) {
        if self.phase == Phase::Away {
            return;
        }
        let now_us = self.crowd.over_us();
        if matches!(self.phase, Phase::Waiting | Phase::Arriving) {
            // Calls that a user without slow replies would have made by now.
            while self.gap_us > 0 && self.ideal_us < now_us {
                self.crowd.tally.due(self.ideal_us);
                self.ideal_us += self.gap_us;
            }
        }
        let (end, at_ms) = match (self.story.entered, self.story.arrived) {
            (Some(entered), _) => (End::Entered, entered.heard_ms),
            (None, Some(_)) => (End::Waiting, ms(now_us)),
            (None, None) => (End::Outside, ms(now_us)),
        };
        // Who never asked has no story.
        if end != End::Outside || self.called {
            self.end(end, at_ms);
        }
        self.go_away();
    }
}

/// What a pass says. Signatures may differ: not all are made the same way twice.
fn unsigned(pass: &str) -> &str {
    pass.rsplit_once('.').map_or(pass, |(claims, _)| claims)
}

/// Whether the server took note of the call: its reply is neither a refusal nor from memory.
fn is_noted(kind: Kind, answer: &Result<Answer, String>) -> bool {
    match answer {
        Ok(Answer::Enter { .. } | Answer::Gone) => true,
        Ok(Answer::NotYet { waiting, .. }) => !waiting.stale,
        Ok(Answer::Refused { status, .. }) => *status == 401 && kind == Kind::Entry,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{frame::Task, profile};

    fn crowd(repeat: f64) -> Arc<Crowd> {
        let mut profile = profile::load("spike").expect("built in");
        profile.repeat = repeat;
        let task = Task {
            address: ([127, 0, 0, 1], 1).into(),
            host: "x".into(),
            prefix: String::new(),
            zone: "Z".into(),
            profile,
            worker: 3,
            workers: 4,
            connections: 1,
            sources: Vec::new(),
            seed: 1,
        };
        let paths = [Uri::from_static(wire::WAIT), Uri::from_static(wire::ENTRY)];
        Arc::new(Crowd::new(&task, paths, HeaderValue::from_static("x"), 10))
    }

    fn hears(user: &mut User, sent_ms: u64, heard_ms: u64, status: u16, body: &str) {
        let kind = if user.phase == Phase::Arriving { Kind::Wait } else { Kind::Entry };
        let retry_after = (status == 503).then(|| "7".to_owned());
        let reply = Reply { status, retry_after, body: body.to_owned().into() };
        user.heard(kind, sent_ms * 1000, heard_ms * 1000, Ok(reply));
    }

    fn not_yet(rank: u64, stale: bool) -> String {
        let waiting = format!(
            r#"{{"rank":{rank},"etaSeconds":9,"etaRange":[8,11],"pollingPeriod":3000,"stale":{stale}}}"#
        );
        format!(r#"{{"canEnter":false,"token":"t","waiting":{waiting}}}"#)
    }

    fn enter(pass: &str) -> String {
        format!(r#"{{"canEnter":true,"token":"t","pass":"{pass}"}}"#)
    }

    #[test]
    fn a_story_is_told_as_it_was_heard() {
        let crowd = crowd(0.0);
        let mut user = User::new(crowd.clone(), 5, 0);
        hears(&mut user, 10, 12, 200, &not_yet(20, false));
        assert_eq!(user.due_us, 3_012_000, "it asks again a polling period after the reply");
        hears(&mut user, 3012, 3015, 200, &not_yet(25, false));
        hears(&mut user, 6015, 6016, 200, &not_yet(90, true));
        hears(&mut user, 9000, 9001, 503, r#"{"code":"busy"}"#);
        assert_eq!(user.due_us, 16_001_000, "Retry-After is obeyed");
        hears(&mut user, 16_001, 16_003, 200, &enter("p"));
        let total = crowd.tally.total();
        let story = Story {
            arrived: Some(Call { sent_ms: 10, heard_ms: 12 }),
            last_waiting: Some(Call { sent_ms: 3012, heard_ms: 3015 }),
            entered: Some(Call { sent_ms: 16_001, heard_ms: 16_003 }),
            first_told: Some(ToldWait { eta_s: 9, range_s: (8, 11), rank: 20, at_ms: 12 }),
            // From 3,012 on: what was answered from memory or refused does not end a silence.
            longest_silence_ms: 12_991,
            lapses: 1,
            rises: 1,
            worst_rise: Some(Rise { from: 20, to: 25, at_ms: 3015 }),
            second_pass: false,
            who: (3, 5),
            end: End::Entered,
            ended_ms: 16_003,
        };
        assert_eq!(total.stories, [story]);
        assert_eq!((total.counters.can_enter_true_count, total.counters.can_enter_false_count), (1, 3));
        assert_eq!(total.failures[0].what, "503 busy");
        assert_eq!((user.phase, user.story.who.1, &user.token), (Phase::Arriving, 10, &None), "a new user");
    }

    #[test]
    fn a_lost_place_ends_the_story() {
        for (status, body) in [(410, ""), (401, r#"{"code":"bad_token"}"#)] {
            let crowd = crowd(0.0);
            let mut user = User::new(crowd.clone(), 0, 0);
            hears(&mut user, 0, 1, 200, &not_yet(2, false));
            hears(&mut user, 3001, 3002, status, body);
            let stories = crowd.tally.total().stories;
            assert_eq!((stories.len(), stories[0].end), (1, End::Gone));
        }
    }

    #[test]
    fn another_pass_or_none_is_noticed() {
        for (body, second) in [(enter("p"), false), (enter("q"), true), (not_yet(5, false), true)] {
            let crowd = crowd(1.0);
            let mut user = User::new(crowd.clone(), 0, 0);
            hears(&mut user, 0, 1, 200, &enter("p"));
            assert_eq!(user.phase, Phase::Repeating);
            hears(&mut user, 1001, 1002, 200, &body);
            let stories = crowd.tally.total().stories;
            assert_eq!((stories.len(), stories[0].end, stories[0].second_pass), (1, End::Entered, second));
        }
    }

    #[test]
    fn who_is_sent_home_tells_how_far_it_got() {
        let crowd = crowd(0.0);
        let mut waits = User::new(crowd.clone(), 0, 0);
        hears(&mut waits, 0, 1, 200, &not_yet(2, false));
        let mut outside = User::new(crowd.clone(), 1, 0);
        hears(&mut outside, 0, 1, 503, "");
        let mut never_asked = User::new(crowd.clone(), 2, 0);
        for user in [&mut waits, &mut outside, &mut never_asked] {
            user.finish();
        }
        let ends: Vec<_> = crowd.tally.total().stories.iter().map(|story| story.end).collect();
        assert_eq!(ends, [End::Waiting, End::Outside]);
    }
}
