//! Servers that share a store and hear each other's changes, in virtual time over a store and a transport in memory.

#[path = "../../gate/tests/shared_store/world.rs"]
#[allow(dead_code, reason = "the tests of `gate` use the rest")]
mod world;

use std::{
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use admission::{Definition, Event, Notice, Policy, Schedule, ZoneId};
use bytes::Bytes;
use events::Kind;
use gate::definitions::Author;
use store::{Expected, Line as _, Store as _};
use tokio::{
    sync::{broadcast, mpsc},
    time::Instant,
};
use weir::{
    fanout::{
        self, ChannelEvent, Fanout, SenderId, Transport,
        message::{Message, State},
    },
    metrics::{FanoutMeter, Metrics},
};

use world::{Fake, Is, Server, closed, hold, in_virtual_time, pass, serve_one, zone, zones};

/// A transport in memory that can lose messages.
#[derive(Clone)]
struct Air {
    said: broadcast::Sender<Bytes>,
    /// Whether messages are lost.
    still: Arc<AtomicBool>,
    count: Arc<AtomicUsize>,
}

impl Air {
    fn new() -> Self {
        Self { said: broadcast::Sender::new(1_024), still: Arc::default(), count: Arc::default() }
    }

    fn say(&self, message: Bytes) {
        self.count.fetch_add(1, Ordering::Relaxed);
        if !self.still.load(Ordering::Relaxed) {
            // Sending fails if nobody listens, which is no fault.
            let _ = self.said.send(message);
        }
    }

    /// The number of messages so far, of all servers.
    fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}

impl Transport for Air {
    async fn say(&self, message: Bytes) -> std::result::Result<(), String> {
        Air::say(self, message);
        Ok(())
    }

    async fn listen(&self, hears: mpsc::Sender<ChannelEvent>) {
        let mut said = self.said.subscribe();
        let mut heard = ChannelEvent::Listening;
        while hears.send(heard).await.is_ok() {
            heard = match said.recv().await {
                Ok(message) => ChannelEvent::Message(message),
                Err(broadcast::error::RecvError::Lagged(count)) => ChannelEvent::Missed(count),
                Err(broadcast::error::RecvError::Closed) => return,
            };
        }
    }
}

/// A server that hears what is sent over a transport.
struct Hearing {
    server: Server,
    heard: FanoutMeter,
}

impl Deref for Hearing {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

impl Hearing {
    /// What is served under a name, with the policy in force.
    fn served(&self, name: &str) -> Option<Definition> {
        let notice = Notice::clone(&*self.gate.notice(name)?);
        Some(Definition { notice, ..self.gate.policy(name)?.into() })
    }
}

async fn serve_hearing(fake: &Fake, file: &[(ZoneId, Definition)], air: &Air) -> Hearing {
    let mut server = serve_one(fake, file).await;
    let heard = Metrics::new(Arc::clone(&server.bus)).fanout("only");
    let fanout = Fanout::new("only", air.clone(), SenderId::new(), heard.clone());
    let (gate, bus, news) = (Arc::clone(&server.gate), Arc::clone(&server.bus), Arc::clone(&server.news));
    let told = fanout::subscribe(&bus).expect("it may");
    server.watching.spawn(async move { fanout.run(&gate, |_| true, (&bus, told), &news).await });
    Hearing { server, heard }
}

/// Servers of one store that hear each other.
async fn hearing(fake: &Fake, air: &Air, count: usize) -> Vec<Hearing> {
    let mut servers = Vec::new();
    for _ in 0..count {
        servers.push(serve_hearing(fake, &zones(&["A", "B"], hold()), air).await);
    }
    pass(5.0).await;
    servers
}

/// Two servers that hear each other, and a zone that an operator defined.
async fn two_with_a_zone(fake: &Fake, air: &Air) -> [Hearing; 2] {
    fake.define(&zone("A"), &Expected::Absent, Some(&hold().into())).await.expect("answered");
    let servers = [serve_hearing(fake, &[], air).await, serve_hearing(fake, &[], air).await];
    pass(3.0).await;
    servers
}

fn ada() -> Author {
    Author { name: "ada".to_owned(), role: "admin".to_owned(), from: None }
}

/// Waits until somebody says something. The thread of the bus wakes the senders, and the virtual clock must not outrun it: a server that asks
/// the store meanwhile finds the change itself, and says so, too. The clock of a runtime that always has something to do stands still.
async fn announced(air: &Air, before: usize) {
    let mut turns = 0..50_000_000;
    while air.count() == before {
        assert!(turns.next().is_some(), "no server announces it");
        std::thread::yield_now();
        tokio::task::yield_now().await;
    }
}

fn in_force(servers: &[Hearing], name: &str, policy: Policy) -> usize {
    servers.iter().filter(|server| server.gate.policy(name) == Some(policy)).count()
}

#[test]
fn what_is_said_is_asked_for_at_once_and_nobody_repeats_it() {
    in_virtual_time(async {
        let (fake, air) = (Fake::new(), Air::new());
        let servers = hearing(&fake, &air, 8).await;
        assert_eq!(air.count(), 0, "a starting server announces nothing");
        for (round, policy) in (1..).zip([closed(), hold(), closed()]) {
            fake.line(&zone("A")).put(policy).await.expect("put");
            fanout::say(&air, SenderId::new(), &zone("A"), Some(&policy.into())).await.expect("said");
            pass(0.03).await;
            assert_eq!(in_force(&servers, "A", policy), 8, "round {round}");
            pass(5.0).await;
            assert_eq!(air.count(), round, "a server that received a change does not announce it again");
            assert!(servers.iter().all(|server| server.heard.heard.get() == round as u64));
        }
        fake.line(&zone("NEW")).put(hold()).await.expect("put");
        fanout::say(&air, SenderId::new(), &zone("NEW"), Some(&hold().into())).await.expect("said");
        pass(0.03).await;
        assert_eq!(in_force(&servers, "NEW", hold()), 8);
    });
}

#[test]
fn who_finds_a_change_that_nobody_said_says_so() {
    in_virtual_time(async {
        let (fake, air) = (Fake::new(), Air::new());
        let servers = hearing(&fake, &air, 8).await;
        // The servers ask the store at different times within half a second.
        let policies = (1..=10).map(|n| Policy { admit_per_minute: n, ..hold() });
        for policy in policies {
            let said = air.count();
            fake.line(&zone("A")).put(policy).await.expect("put");
            while in_force(&servers, "A", policy) == 0 {
                pass(0.001).await;
            }
            announced(&air, said).await;
            pass(0.03).await;
            assert_eq!(in_force(&servers, "A", policy), 8);
            pass(5.0).await;
        }
        assert!(air.count() <= 8 * 10, "more than one message per server and change: {}", air.count());
    });
}

#[test]
fn nothing_depends_on_what_is_said() {
    in_virtual_time(async {
        let (fake, air) = (Fake::new(), Air::new());
        let servers = hearing(&fake, &air, 3).await;
        air.still.store(true, Ordering::Relaxed);
        for round in 0..10 {
            pass(3.0 + 0.07 * f64::from(round)).await;
            for policy in [closed(), hold()] {
                fake.line(&zone("A")).put(policy).await.expect("put");
                pass(1.0).await;
                assert_eq!(in_force(&servers, "A", policy), 3, "round {round}");
            }
        }
    });
}

#[test]
fn a_flood_costs_the_store_little_and_changes_nothing() {
    in_virtual_time(async {
        let (fake, air) = (Fake::new(), Air::new());
        let servers = hearing(&fake, &air, 2).await;
        let (lists, before) = (fake.lock().lists, servers[0].gate.policies());
        let flooded = Instant::now();
        // Each message has another state, of a zone that exists or of one that does not.
        for digest in 0..20_000 {
            let name = if digest % 2 == 0 { "A" } else { "NONE" };
            let state = if digest % 3 == 0 { State::Gone } else { State::Has(digest) };
            air.say(Message { sender: SenderId::new(), zone: zone(name), state }.to_bytes());
            if digest % 10 == 0 {
                pass(0.001).await;
            }
        }
        // Each server asks at most every 10 ms, and in addition twice a second, as always.
        let most = 2 * (flooded.elapsed().as_millis() / 10 + flooded.elapsed().as_millis() / 500 + 2);
        let asked = fake.lock().lists - lists;
        assert!(asked as u128 <= most, "asked {asked} times, more than {most}");
        assert!(asked as u128 > most / 4, "the messages caused too few questions for a flood: {asked}");
        assert_eq!(servers[0].gate.policies(), before);
        // The last messages may not have arrived yet.
        pass(0.1).await;
        assert_eq!(servers[0].heard.heard.get() + servers[0].heard.missed.get(), 20_000);

        // A message about the state in force causes no question.
        pass(10.0).await;
        let lists = fake.lock().lists;
        for _ in 0..1_000 {
            fanout::say(&air, SenderId::new(), &zone("A"), Some(&hold().into())).await.expect("said");
            pass(0.001).await;
        }
        assert!(fake.lock().lists - lists <= 2 * 3, "more than two questions a second");
    });
}

#[test]
fn a_cell_that_is_away_is_not_asked_more_often_for_being_talked_of() {
    in_virtual_time(async {
        let (fake, air) = (Fake::new(), Air::new());
        let servers = hearing(&fake, &air, 1).await;
        fake.set(Is::Down);
        pass(2.0).await;
        let lists = fake.lock().lists;
        for digest in 0..1_000 {
            let message = Message { sender: SenderId::new(), zone: zone("A"), state: State::Has(digest) };
            air.say(message.to_bytes());
            pass(0.001).await;
        }
        assert!(fake.lock().lists - lists <= 4, "asked {} times", fake.lock().lists - lists);
        fake.set(Is::Up);
        fake.line(&zone("A")).put(closed()).await.expect("put");
        pass(1.0).await;
        assert_eq!(in_force(&servers, "A", closed()), 1);
    });
}

#[test]
fn a_notice_disturbs_no_line_and_is_told_like_a_policy() {
    in_virtual_time(async {
        let (fake, air) = (Fake::new(), Air::new());
        let [one, two] = two_with_a_zone(&fake, &air).await;
        let calls = fake.lock().calls;
        let (told, policies) = ([&one, &two].map(|server| server.bus.published(Kind::NoticeChanged)), || {
            [&one, &two].map(|server| server.bus.published(Kind::PolicyChanged))
        });
        let (before, before_notice) = (policies(), air.count());
        let notice = Notice::new([("en", "Back at noon.")]).expect("a notice");
        let said = Definition { notice, ..hold().into() };
        one.editor.define(ada(), &zone("A"), Expected::Any, Some(said.clone())).await.expect("changed");
        assert_eq!(one.served("A").as_ref(), Some(&said));
        announced(&air, before_notice).await;
        pass(0.03).await;
        assert_eq!(two.served("A").as_ref(), Some(&said));
        assert_eq!(fake.lock().calls, calls, "the line was called");
        assert_eq!(policies(), before);
        let now = [&one, &two].map(|server| server.bus.published(Kind::NoticeChanged));
        assert_eq!(now, told.map(|count| count + 1), "once each");
    });
}

#[test]
fn a_change_of_events_alone_is_announced() {
    in_virtual_time(async {
        let (fake, air) = (Fake::new(), Air::new());
        let [one, two] = two_with_a_zone(&fake, &air).await;
        let policies = || [&one, &two].map(|server| server.bus.published(Kind::PolicyChanged));
        let (before_change, before) = (air.count(), policies());
        // It is so far away that neither the policy nor the notice in force changes.
        let event = Event::parse(
            "sale 2096-12-01T08:30:00Z 2096-12-01T09:00:00Z 2096-12-01T11:00:00Z usual usual - -",
        );
        let event = event.expect("an event");
        let schedule = Schedule::new(vec![event], &hold()).expect("a schedule");
        let with_event = Definition { schedule, ..hold().into() };
        one.editor.define(ada(), &zone("A"), Expected::Any, Some(with_event.clone())).await.expect("changed");
        announced(&air, before_change).await;
        pass(0.03).await;
        assert_eq!(two.gate.definition("A").as_ref(), Some(&with_event));
        assert_eq!(policies(), before, "the policy in force stays");
        pass(5.0).await;
        assert_eq!(
            air.count(),
            before_change + 1,
            "a server that received a change does not announce it again"
        );
        assert_eq!(two.heard.heard.get(), 1);
    });
}
