//! A store that is away: zones that fail open, and calls that are bounded.

use std::{sync::Arc, time::Duration};

use admission::{
    Definition, DrawFallback, DrawTerms, Event, Mode, OnStoreFailure, Outside, Policy, RandomnessSource,
    Schedule, instant_text,
};
use events::Kind;
use gate::{Refusal, Reply, Trips};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use super::world::*;

#[test]
fn an_open_zone_lets_people_in_while_the_store_is_away() {
    in_virtual_time(async {
        let fake = Fake::new();
        let slow = Policy { admit_per_minute: 1, ..Policy::default() };
        let open = Policy { on_store_failure: OnStoreFailure::Open, ..slow };
        let held = Policy { mode: Mode::Hold, ..open };
        let file =
            [("OPEN", open), ("SHUT", slow), ("HELD", held)].map(|(name, policy)| (zone(name), policy));
        let server = serve_one(&fake, &file.map(|(zone, policy)| (zone, policy.into()))).await;
        let (gate, unseen) = (&server.gate, || server.bus.published(Kind::AdmittedWithoutStore));
        let mut holders = Vec::new();
        for name in ["OPEN", "SHUT", "HELD"] {
            gate.join(name).await.expect("the first one enters or waits");
            holders.push(waits(&gate.join(name).await.expect("served")).0);
        }
        pass(2.0).await;
        let mine = seals().sealer(&zone("OPEN")).open(&holders[0]).expect("ours");

        // A single failed call does not open the zone.
        fake.set(Is::Down);
        assert_eq!(gate.join("OPEN").await, Err(AWAY));
        assert!(waits(&gate.poll("OPEN", &holders[0]).await.expect("stale")).1);
        fake.set(Is::Up);
        pass(1.5).await;
        assert!(!waits(&gate.poll("OPEN", &holders[0]).await.expect("fresh")).1);
        assert_eq!(unseen(), 0);

        // The time in which the server stood still shows nothing, even if a call was under way.
        fake.set(Is::Hanging);
        pass(4.0).await;
        assert!(waits(&gate.poll("OPEN", &holders[0]).await.expect("stale")).1);
        tokio::time::advance(Duration::from_secs(20)).await;
        assert!(waits(&gate.poll("OPEN", &holders[0]).await.expect("stale")).1);
        fake.set(Is::Up);
        pass(4.0).await;
        assert!(!waits(&gate.poll("OPEN", &holders[0]).await.expect("fresh")).1);
        assert_eq!(unseen(), 0);

        // A failover does not open it either.
        fake.set(Is::Hanging);
        for _ in 0..12 {
            pass(1.0).await;
            assert!(waits(&gate.poll("OPEN", &holders[0]).await.expect("stale")).1);
            assert_eq!(gate.join("OPEN").await, Err(AWAY));
        }
        assert_eq!(unseen(), 0);

        pass(8.0).await;
        let newcomers = [gate.join("OPEN").await, gate.join("OPEN").await];
        let newcomers = newcomers.map(|reply| is_in(&reply.expect("open")));
        assert!(newcomers[0].1.0 == 0 && newcomers[1].1.0 == 0 && newcomers[0].1 != newcomers[1].1);
        let (token, entry, _) = is_in(&gate.poll("OPEN", &holders[0]).await.expect("open"));
        assert_eq!(entry, (mine.epoch, mine.seq));
        assert_eq!(unseen(), 3);
        let again = gate.poll("OPEN", &newcomers[0].0).await.map(|reply| is_in(&reply));
        assert_eq!(again, Ok(newcomers[0]));
        assert_eq!(unseen(), 3, "a repeated reply is not another entry");
        let leaves = async |token: &[u8]| {
            gate.holder("OPEN", token).await.expect("served").leave(0, &mut Trips::unwatched()).await
        };
        assert_eq!(leaves(&newcomers[0].0).await, Err(Refusal::Gone), "there is nothing to leave");
        assert_eq!(
            gate.poll("OPEN", &holders[1]).await,
            Err(Refusal::BadToken),
            "the token is of another zone"
        );
        for (name, holder) in [("SHUT", &holders[1]), ("HELD", &holders[2])] {
            assert!(waits(&gate.poll(name, holder).await.expect("polls are answered")).1, "{name}");
            assert_eq!(gate.join(name).await, Err(AWAY), "{name}");
        }

        // A call that hangs, and the pause behind it. The minute in which nobody else enters is nearly over.
        fake.set(Is::Up);
        pass(3.5).await;
        let again = gate.poll("OPEN", &newcomers[0].0).await.map(|reply| is_in(&reply));
        assert_eq!(again, Ok(newcomers[0]), "the same pass, with the store back");
        assert_eq!(leaves(&newcomers[0].0).await, Err(Refusal::Gone));
        let mut later = gate.poll("OPEN", &token).await.expect("served");
        waits(&later);
        while let Reply::Waiting { status, .. } = later {
            sleep(Duration::from_millis(status.polling_period_ms.into())).await;
            later = gate.poll("OPEN", &token).await.expect("served");
        }
        assert_eq!(is_in(&later).1, entry, "both ways lead to the same entry");
        assert_eq!(unseen(), 3);
    });
}

/// An event from one second to another, counted from the store's start. Its pre-queue begins a minute before.
fn event(begins_s: i32, ends_s: i32) -> Event {
    let at = |second: i32| instant_text(START_S.strict_add_signed(second));
    let text = format!("sale {} {} {} usual usual - -", at(begins_s - 60), at(begins_s), at(ends_s));
    Event::parse(&text).expect("an event")
}

/// No store says that an event begins or ends while it is away. Nobody enters before it begins, after it closed the zone, or before its
/// order is drawn.
#[test]
fn an_open_zone_keeps_to_its_events_while_the_store_is_away() {
    in_virtual_time(async {
        let fake = Fake::new();
        // The zone's own clock tells the time, because it has an opening.
        let open = Policy {
            admit_per_minute: 1,
            on_store_failure: OnStoreFailure::Open,
            opens_at: (START_S - 3_600).into(),
            ..Policy::default()
        };
        let closes = Event { after: Outside::Closed, ..event(-1, 60) };
        let holds = Event { after: Outside::Hold, ..event(-1, 60) };
        let terms = DrawTerms { randomness: RandomnessSource::Drand, fallback: DrawFallback::Wait };
        let drawn = Event { draw: Some(terms), ..event(-31, 600) };
        let events = [("CLOSES", closes), ("HOLDS", holds), ("BEGINS", event(120, 180)), ("DRAWN", drawn)];
        let file = events.map(|(name, event)| {
            let schedule = Schedule::new(vec![event], &open).expect("a schedule");
            (zone(name), Definition { schedule, ..open.into() })
        });
        let server = serve_one(&fake, &file).await;
        pass(2.0).await;
        let gate = &server.gate;
        let lets_in = async |name: &str| match gate.join(name).await {
            Ok(Reply::Entered { .. }) => true,
            Err(AWAY) => false,
            other => panic!("{name}: {other:?}"),
        };
        gate.join("HOLDS").await.expect("the first one enters");
        let holder = waits(&gate.join("HOLDS").await.expect("served")).0;
        fake.set(Is::Down);
        for (until_s, [closes, holds, begins, drawn]) in [
            (40.0, [true, true, true, false]),
            (70.0, [false, false, false, false]),
            (130.0, [false, false, true, false]),
            (190.0, [false, false, true, false]),
        ] {
            pass(until_s - fake.age_s()).await;
            for (name, expected) in
                [("CLOSES", closes), ("HOLDS", holds), ("BEGINS", begins), ("DRAWN", drawn)]
            {
                assert_eq!(lets_in(name).await, expected, "{name} at {until_s}");
            }
        }
        assert!(waits(&gate.poll("HOLDS", &holder).await.expect("stale")).1, "the place stays");
    });
}

/// The store is there, and newer servers admit by it. A server that is too old for its state lets nobody in beside them.
#[test]
fn a_state_of_a_newer_version_opens_no_zone() {
    in_virtual_time(async {
        let fake = Fake::new();
        let open =
            Policy { admit_per_minute: 1, on_store_failure: OnStoreFailure::Open, ..Policy::default() };
        let server = serve_one(&fake, &zones(&["A"], open)).await;
        server.gate.join("A").await.expect("the first one enters");
        let holder = waits(&server.gate.join("A").await.expect("served")).0;
        pass(1.5).await;
        fake.set(Is::Newer);
        for _ in 0..30 {
            pass(1.0).await;
            assert!(waits(&server.gate.poll("A", &holder).await.expect("stale")).1);
            assert_eq!(server.gate.join("A").await, Err(AWAY));
        }
        fake.set(Is::Up);
        pass(1.5).await;
        assert!(!waits(&server.gate.poll("A", &holder).await.expect("fresh")).1);
    });
}

#[test]
fn a_hanging_store_holds_a_bounded_number_for_a_bounded_time() {
    in_virtual_time(async {
        let fake = Fake::new();
        let server = serve_one(&fake, &zones(&["A"], hold())).await;
        let holder = waits(&server.gate.join("A").await.expect("served")).0;
        pass(1.5).await;
        fake.set(Is::Hanging);
        let started = Instant::now();
        let mut asking = JoinSet::new();
        for _ in 0..20_000 {
            let gate = Arc::clone(&server.gate);
            asking.spawn(async move { gate.join("A").await });
        }
        let (mut busy, mut away) = (0, 0);
        while let Some(answer) = asking.join_next().await {
            match answer.expect("no panic") {
                Err(Refusal::Busy { .. }) => busy += 1,
                Err(Refusal::StoreAway { .. }) => away += 1,
                other => panic!("{other:?}"),
            }
        }
        assert!(busy > 1_000 && busy + away == 20_000, "{busy} busy, {away} away");
        assert!(started.elapsed() < Duration::from_millis(5_100), "{:?}", started.elapsed());
        let asked = Instant::now();
        assert!(waits(&server.gate.poll("A", &holder).await.expect("answered")).1);
        assert_eq!(server.gate.join("A").await, Err(AWAY));
        assert!(
            asked.elapsed() < Duration::from_millis(10),
            "the store is known to be away, so the call does not wait"
        );

        fake.set(Is::Up);
        pass(4.5).await;
        assert!(!waits(&server.gate.poll("A", &holder).await.expect("answered")).1);
        assert!(server.gate.join("A").await.is_ok());
    });
}
