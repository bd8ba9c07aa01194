//! A wait that becomes longer than told comes with its cause.

use std::{collections::HashSet, sync::Arc};

use admission::{Dealt, Departure, Lots, Opening, Policy};
use gate::{Gate, Reason, Reply, Token, Trips, cells::Cells};
use store::Line as _;

use super::world::*;

const ZONE: &str = "Z";

/// The people of a line, from its front on, with their tokens. One who has entered has none.
struct Line {
    gate: Arc<Gate<Cells<Fake>>>,
    people: Vec<Option<Token>>,
}

impl Line {
    /// So many people join within a moment.
    async fn of(server: &Server, count: usize) -> Self {
        let mut people = Vec::new();
        for _ in 0..count {
            let joined = server.gate.join(ZONE).await.expect("served");
            people.push(match joined {
                Reply::Waiting { token, .. } => Some(token),
                Reply::Entered { .. } => None,
            });
        }
        Self { gate: Arc::clone(&server.gate), people }
    }

    /// Those whom `polls` names ask every 3 s. Returns the reasons that anybody heard.
    async fn poll(&mut self, seconds: u32, polls: impl Fn(usize) -> bool) -> HashSet<Reason> {
        let mut heard = HashSet::new();
        for _ in 0..seconds / 3 {
            pass(3.0).await;
            for (at, person) in self.people.iter_mut().enumerate().filter(|(at, _)| polls(*at)) {
                let Some(before) = *person else { continue };
                match self.gate.poll(ZONE, &before).await {
                    Ok(Reply::Waiting { token, status }) => {
                        *person = Some(token);
                        heard.extend(status.reason);
                    }
                    Ok(Reply::Entered { .. }) => *person = None,
                    Err(refusal) => panic!("person {at}: {refusal}"),
                }
            }
        }
        heard
    }
}

fn policy() -> Policy {
    Policy { admit_per_minute: 60, ..Policy::default() }
}

#[test]
fn a_longer_wait_comes_with_its_cause() {
    in_virtual_time(async {
        let fake = Fake::new();
        let server = serve_one(&fake, &zones(&[ZONE], policy())).await;
        let mut line = Line::of(&server, 400).await;
        let steady = line.poll(30, |_| true).await;
        assert_eq!(steady, HashSet::new(), "the line moves as told");

        // Half of the people behind the first 150 lose their network for a while. For all that is known, they and others leave.
        let is_silent = |at: usize| at >= 150 && at.is_multiple_of(2);
        let meanwhile = line.poll(39, |at| !is_silent(at)).await;
        assert!(meanwhile.is_subset(&HashSet::from([Reason::Slower])), "{meanwhile:?}");
        let back = line.poll(12, |_| true).await;
        assert!(back.contains(&Reason::Returned), "{back:?}");
        assert!(!back.contains(&Reason::Slowed) && !back.contains(&Reason::Interrupted), "{back:?}");

        line.poll(60, |_| true).await;
        fake.set(Is::Down);
        line.poll(45, |_| true).await;
        fake.set(Is::Up);
        let after = line.poll(30, |_| true).await;
        assert_eq!(after, HashSet::from([Reason::Interrupted]));

        line.poll(90, |_| true).await;
        let slower = Policy { admit_per_minute: 30, ..policy() };
        fake.line(&zone(ZONE)).put(slower).await.expect("put");
        let after = line.poll(12, |_| true).await;
        assert_eq!(after, HashSet::from([Reason::Slowed]));
    });
}

/// Deals a line by draw 1, in which everybody has a position. Returns the lots.
async fn deal(line: &impl store::Line, positions: &[u32]) -> Arc<Lots> {
    let census = line.census().await.expect("there is a line");
    let list: Vec<_> = census.segments.iter().map(|of| (of.index, of.live.clone())).collect();
    let lots = Lots::new(1, census.next, &list, positions).expect("one position each");
    assert_eq!(line.deal(lots.deal(&census), false).await, Ok(Dealt::Done));
    Arc::new(lots)
}

/// Another server has dealt the line, and this one has not read the draw yet. The zone is not held.
#[test]
fn whose_number_is_not_known_yet_is_told_that_the_draw_is_to_come() {
    in_virtual_time(async {
        let fake = Fake::new();
        let opens_at = Opening { unix_s: 1_790_000_060, draw: 1 };
        let server = serve_one(&fake, &zones(&["z"], Policy { opens_at, ..Policy::default() })).await;
        let z = zone("z");
        let (token, _) = waits(&server.gate.join("z").await.expect("served"));
        let line = fake.line(&z);
        let lots = deal(&line, &[0]).await;
        pass(1.5).await;
        let told = |reply: Reply| match reply {
            Reply::Waiting { status, .. } => status.reason,
            Reply::Entered { .. } => panic!("the zone is not open yet"),
        };
        let reason = told(server.gate.poll("z", &token).await.expect("the place stays"));
        assert_eq!(reason, Some(Reason::Draw));
        server.gate.add_lots(&z, lots);
        let reason = told(server.gate.poll("z", &token).await.expect("the place stays"));
        assert_eq!(reason, None, "it has its place");
    });
}

/// A line with a draw, held by one server, whose people joined there and at another one. The line is dealt, which that server does not
/// know yet, though it knows the draw. Returns it, and the tokens in the order of the new numbers.
async fn dealt_unseen(fake: &Fake) -> (Server, Vec<Token>) {
    let opens_at = Opening { unix_s: 1_790_000_060, draw: 1 };
    let policy = Policy { opens_at, ..Policy::default() };
    let (server, other) =
        (serve_one(fake, &zones(&["z"], policy)).await, serve_one(fake, &zones(&["z"], policy)).await);
    let (z, line) = (zone("z"), fake.line(&zone("z")));
    let here = waits(&server.gate.join("z").await.expect("served")).0;
    let there = waits(&other.gate.join("z").await.expect("served")).0;
    server.gate.add_lots(&z, deal(&line, &[1, 0]).await);
    (server, vec![there, here])
}

#[test]
fn whoever_leaves_as_the_line_is_dealt_gives_up_the_new_number() {
    in_virtual_time(async {
        let fake = Fake::new();
        let (server, people) = dealt_unseen(&fake).await;
        for token in people {
            let holder = server.gate.holder("z", &token).await.expect("its token");
            assert_eq!(holder.leave(0, &mut Trips::unwatched()).await, Ok(Departure::Place));
        }
        let census = fake.line(&zone("z")).census().await.expect("there is a line");
        assert_eq!(census.segments, [], "the places are free");
    });
}

/// The line is dealt, and this server reads the draw a little later.
#[test]
fn whoever_leaves_before_the_draw_is_read_gives_up_the_place() {
    in_virtual_time(async {
        let fake = Fake::new();
        let opens_at = Opening { unix_s: 1_790_000_060, draw: 1 };
        let server = serve_one(&fake, &zones(&["z"], Policy { opens_at, ..Policy::default() })).await;
        let (z, line) = (zone("z"), fake.line(&zone("z")));
        let (token, _) = waits(&server.gate.join("z").await.expect("served"));
        let lots = deal(&line, &[0]).await;
        pass(1.5).await;
        let holder = server.gate.holder("z", &token).await.expect("its token");
        let reads = async {
            pass(0.9).await;
            server.gate.add_lots(&z, lots);
        };
        let mut trips = Trips::unwatched();
        let (left, ()) = tokio::join!(holder.leave(0, &mut trips), reads);
        assert_eq!(left, Ok(Departure::Place));
    });
}

#[test]
fn whoever_asks_the_store_as_the_line_is_dealt_is_told_the_new_place() {
    in_virtual_time(async {
        let fake = Fake::new();
        let (server, people) = dealt_unseen(&fake).await;
        // The server has never heard of this ticket, so it asks the store.
        match server.gate.poll("z", &people[0]).await {
            Ok(Reply::Waiting { status, .. }) => assert_eq!((status.rank, status.reason), (1, None)),
            other => panic!("{other:?}"),
        }
    });
}
