//! Lines of several servers and cells: what is served, and what it costs the stores.

use std::{collections::HashSet, sync::Arc, time::Duration};

use admission::{Claim, Departure, Leaver, Mode, Policy, Proof, Visit, VisitState, ZoneId};
use events::{Event, Kind, Kinds, Scope};
use gate::{
    Gate, Refusal, Reply, Token,
    cells::{Cell, Cells},
};
use store::{Line as _, Store as _};
use tokio::{task::JoinSet, time::Instant};

use super::world::*;

#[test]
fn a_zone_goes_on_after_its_task_panicked() {
    in_virtual_time(async {
        let fake = Fake::new();
        let server =
            serve_one(&fake, &zones(&["z"], Policy { admit_per_minute: 1, ..Policy::default() })).await;
        let gate = &server.gate;
        is_in(&gate.join("z").await.expect("served"));
        let (first, _) = waits(&gate.join("z").await.expect("served"));
        for panics in 1..=3 {
            fake.lock().panics = true;
            let told = gate.join("z").await;
            assert!(matches!(told, Err(Refusal::StoreAway { .. })), "panic {panics}: {told:?}");
            let (token, stale) = waits(&gate.poll("z", &first).await.expect("the place stays"));
            assert!(stale && token == first, "told from the last view");
            // The beat by which the task begins again panics, too.
            fake.lock().panics = panics == 3;
            pass(6.0).await;
            let (_, stale) = waits(&gate.poll("z", &first).await.expect("the place stays"));
            assert!(!stale, "after panic {panics}");
            waits(&gate.join("z").await.expect("served again"));
        }
        let mut token = first;
        for _ in 0..25 {
            pass(3.0).await;
            match gate.poll("z", &token).await.expect("the place stays") {
                Reply::Waiting { token: newer, .. } => token = newer,
                Reply::Entered { .. } => return,
            }
        }
        panic!("the first in line never enters");
    });
}

/// A reload asks who waits in each zone that goes. However many go, a slow store does not hold it up for long.
#[test]
fn many_zones_are_asked_at_the_same_time_who_waits_in_them() {
    in_virtual_time(async {
        let fake = Fake::new();
        let names: Vec<_> = (0..300).map(|n| format!("Z{n}")).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let server = serve_one(&fake, &zones(&names, hold())).await;
        for name in &names[..3] {
            waits(&server.gate.join(name).await.expect("served"));
        }
        waits(&server.gate.join(names[2]).await.expect("served"));
        let asked = [names[2], "unknown", names[299], names[0]];
        let all = names.iter().chain(&asked).map(|name| zone(name)).collect::<Vec<_>>();
        let look = async || {
            let asked = Instant::now();
            let views = server.gate.views_of_now(&all).await;
            let waiting = views.iter().map(|view| view.as_ref().map(|view| view.tally().waiting));
            (waiting.collect::<Vec<_>>(), asked.elapsed().as_millis())
        };
        for is in [Is::Up, Is::Slow] {
            fake.set(is);
            let (waiting, took_ms) = look().await;
            assert_eq!(waiting[..4], [Some(1), Some(1), Some(2), Some(0)]);
            assert_eq!(waiting[4..300], [Some(0); 296]);
            assert_eq!(
                waiting[300..],
                [Some(2), None, Some(0), Some(1)],
                "in the order in which they are asked"
            );
            assert!(took_ms < 700, "{took_ms} ms");
        }
        fake.set(Is::Frozen);
        let (waiting, took_ms) = look().await;
        assert_eq!(waiting, [None; 304], "nothing older is told as of now");
        assert_eq!(took_ms, 2_000, "a second for each 256");
    });
}

/// Another server changed the zone, and this one has not seen it yet.
#[test]
fn an_entry_tells_the_policy_by_which_the_store_decided() {
    in_virtual_time(async {
        let fake = Fake::new();
        let limits = Policy { waits_per_minute_per_client: 9, ..Policy::default() };
        let held = Policy { mode: Mode::Hold, ..limits };
        let server = serve_one(&fake, &zones(&["z"], held)).await;
        let mut told = server.bus.subscribe("test", Scope::Root, Kinds::of(&[Kind::Admitted])).expect("few");
        let (token, _) = waits(&server.gate.join("z").await.expect("served"));
        fake.line(&zone("z")).put(Policy { mode: Mode::Open, ..limits }).await.expect("changed");
        is_in(&server.gate.join("z").await.expect("served"));
        pass(1.5).await;
        let _ = server.gate.poll("z", &token).await.expect("served");
        let mut modes = Vec::new();
        while let Some(batch) = told.try_next() {
            for event in batch.events {
                let Event::Admitted(admitted) = event else { panic!("{event:?} was not asked for") };
                modes.push((admitted.policy.mode, admitted.policy.waits_per_minute_per_client));
            }
        }
        assert_eq!(modes, [(Mode::Open, 9); 2]);
    });
}

/// Nobody waits at the second server, so nothing but the visitors there makes it ask the store.
#[test]
fn a_server_with_visitors_alone_reports_them_and_hears_who_left() {
    in_virtual_time(async {
        let fake = Fake::new();
        let policy = Policy { max_active: 2, visit_idle_s: 10, ..Policy::default() };
        let [one, two] = [
            serve_one(&fake, &zones(&["z"], policy)).await.gate,
            serve_one(&fake, &zones(&["z"], policy)).await.gate,
        ];
        let z = zone("z");
        let mut visits = Vec::new();
        for _ in 0..2 {
            let (_, (epoch, seq), unix_s) = is_in(&one.join("z").await.expect("served"));
            visits.push(Visit { epoch, seq, began_s: unix_s, seen_s: unix_s, address: 0 });
        }
        pass(30.0).await;
        // Until then, nobody was active.
        let active = |server: &Gate<Cells<Fake>>, visit: &Visit| {
            let seen = Visit { seen_s: visit.began_s + 30, ..*visit };
            let state = server.visit(&z, &server.seal_visit(&z, &seen), seen.seen_s).expect("its seal").1;
            if state != VisitState::Ended {
                server.note_visit(&z, &seen);
            }
            state != VisitState::Ended
        };
        for _ in 0..3 {
            assert!(visits.iter().all(|visit| active(&two, visit)));
            pass(1.0).await;
        }
        waits(&one.join("z").await.expect("served"));
        let [left, stays] = [visits[0], visits[1]];
        let leaver =
            Leaver { claim: Claim { epoch: left.epoch, seq: left.seq }, proof: Proof::Visit, address: 0 };
        assert_eq!(one.leave(&z, leaver).await, Ok(Departure::Visit));
        pass(3.0).await;
        assert!(!active(&two, &left), "a visit that ended is open");
        assert!(active(&two, &stays));
    });
}

#[test]
fn a_cell_that_is_away_is_no_other_cells_trouble() {
    in_virtual_time(async {
        let (shop, gov) = (Fake::new(), Fake::new());
        gov.set(Is::Down);
        let cells = vec![
            Cell::new("shop", vec!["shop".to_owned(), String::new()], shop.connect()),
            Cell::new("gov", vec!["gov".to_owned()], gov.connect()),
        ];
        let server = serve(cells, &zones(&["shop:a", "plain", "gov:a"], hold())).await;
        let gate = &server.gate;
        let up = || server.cells.all().iter().map(|cell| cell.health().is_up()).collect::<Vec<_>>();
        let shopper = waits(&gate.join("shop:a").await.expect("served")).0;
        waits(&gate.join("plain").await.expect("a zone without a tenant is served"));
        assert_eq!(gate.join("gov:a").await, Err(AWAY));
        assert_eq!(gate.join("gov:in_the_store_only").await, Err(AWAY), "the cell was never reached");
        assert_eq!(gate.join("elsewhere:a").await, Err(Refusal::UnknownZone));
        assert_eq!(up(), [true, false]);
        pass(0.2).await;
        let told = server.cells.zones().await.expect("one answers").expect("kept");
        assert_eq!(told.zones.len(), 2, "{told:?}");

        pass(7.0).await;
        gov.set(Is::Up);
        pass(3.0).await;
        let official = waits(&gate.join("gov:a").await.expect("served")).0;
        assert_eq!(gate.join("gov:in_the_store_only").await, Err(Refusal::UnknownZone));
        assert_eq!(up(), [true, true]);

        for is in [Is::Down, Is::Hanging] {
            pass(2.0).await;
            gov.set(is);
            for round in 0..40 {
                let asked = Instant::now();
                assert!(!waits(&gate.poll("shop:a", &shopper).await.expect("served")).1);
                assert!(asked.elapsed() < Duration::from_millis(200), "a failing cell delayed another one");
                let (_, stale) = waits(&gate.poll("gov:a", &official).await.expect("polls are answered"));
                assert!(asked.elapsed() < Duration::from_millis(1_200));
                assert!(stale || round <= 6, "the view is 3 s old and not marked stale");
                pass(0.5).await;
            }
            assert_eq!(up(), [true, false]);
            assert_eq!(gate.zones().iter().filter(|(_, answers)| !answers).count(), 1);
            gov.set(Is::Up);
            pass(4.0).await;
            assert!(!waits(&gate.poll("gov:a", &official).await.expect("served")).1, "fresh again");
        }
    });
}

#[test]
fn the_file_fills_an_empty_store_once() {
    in_virtual_time(async {
        let fake = Fake::new();
        let one = serve_one(&fake, &zones(&["A", "B"], hold())).await;
        pass(1.0).await;
        assert_eq!(fake.lock().zones.keys().map(ZoneId::as_str).collect::<Vec<_>>(), ["A", "B"]);
        let other = Policy { admit_per_minute: 5, ..hold() };
        let two = serve_one(&fake, &zones(&["B", "C"], other)).await;
        pass(3.0).await;
        for server in [&one, &two] {
            assert_eq!(server.gate.policies(), policies(&["A", "B"], hold()));
        }
        assert_eq!(fake.lock().zones.len(), 2, "a file does not add to a store that has zones");
        let first = waits(&one.gate.join("A").await.expect("served")).0;
        let Reply::Waiting { status, .. } = two.gate.join("A").await.expect("served") else {
            panic!("nobody enters a held zone")
        };
        assert_eq!(status.rank, 2, "one line for both servers");
        waits(&two.gate.poll("A", &first).await.expect("the place of the other server is valid"));
    });
}

#[test]
fn a_file_does_not_add_to_a_store_that_was_away_at_the_start() {
    in_virtual_time(async {
        let fake = Fake::new();
        fake.line(&zone("KEPT")).put(hold()).await.expect("put");
        fake.set(Is::Down);
        let server = serve_one(&fake, &zones(&["FILE"], hold())).await;
        assert_eq!(server.gate.join("FILE").await, Err(AWAY));
        pass(10.0).await;
        fake.set(Is::Up);
        pass(3.0).await;
        assert_eq!(server.gate.policies(), policies(&["KEPT"], hold()));
        assert_eq!(fake.lock().zones.len(), 1);
    });
}

#[test]
fn a_change_in_the_store_is_in_force_within_a_second() {
    in_virtual_time(async {
        let fake = Fake::new();
        let server = serve_one(&fake, &zones(&["A", "B"], hold())).await;
        // Each round begins at another moment between two refreshes of the watcher.
        for round in 0..10 {
            pass(3.0 + 0.07 * f64::from(round)).await;
            let closed = Policy { mode: Mode::Closed, ..Policy::default() };
            fake.line(&zone("A")).put(closed).await.expect("put");
            fake.line(&zone("NEW")).put(hold()).await.expect("put");
            fake.lock().zones.remove(&zone("B"));
            pass(1.0).await;
            let refused = server.gate.join("A").await;
            assert_eq!(refused, Err(Refusal::Closed { retry_after_s: 60 }), "round {round}");
            waits(&server.gate.join("NEW").await.expect("served"));
            assert_eq!(server.gate.join("B").await, Err(Refusal::UnknownZone), "round {round}");
            assert!(!fake.lock().zones.contains_key(&zone("B")), "a deleted zone stays deleted");
            fake.line(&zone("A")).put(hold()).await.expect("put");
            fake.line(&zone("B")).put(hold()).await.expect("put");
            fake.lock().zones.remove(&zone("NEW"));
            pass(1.0).await;
            waits(&server.gate.join("A").await.expect("open again"));
            waits(&server.gate.join("B").await.expect("back"));
        }
    });
}

#[test]
fn a_full_line_refuses_newcomers_and_keeps_everybody() {
    in_virtual_time(async {
        let fake = Fake::new();
        let full = Refusal::Full { retry_after_s: 30 };
        let bounded = Policy { max_waiting: 3, ..hold() };
        let one = serve_one(&fake, &zones(&["A", "B"], bounded)).await;
        let two = serve_one(&fake, &zones(&["A", "B"], bounded)).await;
        pass(2.0).await;
        // Joins at the same moment count, although the store has not answered any of them.
        let mut burst = JoinSet::new();
        for _ in 0..20 {
            let gate = Arc::clone(&one.gate);
            burst.spawn(async move { gate.join("A").await });
        }
        let (placed, refused): (Vec<_>, Vec<_>) =
            burst.join_all().await.into_iter().partition(std::result::Result::is_ok);
        assert_eq!((placed.len(), refused), (3, vec![Err(full); 17]));
        let tokens: Vec<Token> = placed.into_iter().map(|reply| waits(&reply.expect("a place")).0).collect();
        // An idle server learns of the full line with its first join, and a busy one every second.
        let late = two.gate.join("A").await;
        assert_eq!(two.gate.join("A").await, Err(full));
        pass(1.1).await;
        for server in [&one, &two] {
            assert_eq!(server.gate.join("A").await, Err(full));
            waits(&server.gate.join("B").await.expect("another zone has room"));
        }
        let mut ranks = Vec::new();
        for token in &tokens {
            match two.gate.poll("A", token).await.expect("keeps the place") {
                Reply::Waiting { status, .. } => ranks.push(status.rank),
                Reply::Entered { .. } => panic!("nobody enters a held zone"),
            }
        }
        ranks.sort_unstable();
        assert_eq!(ranks, [1, 2, 3]);

        // Room comes when people enter. Newcomers who enter at once need none.
        fake.line(&zone("A")).put(Policy { mode: Mode::Auto, ..bounded }).await.expect("put");
        pass(1.5).await;
        for token in tokens.iter().chain([&waits(&late.expect("one was let through")).0]) {
            is_in(&two.gate.poll("A", token).await.expect("enters"));
        }
        pass(1.1).await;
        for _ in 0..10 {
            is_in(&one.gate.join("A").await.expect("nobody waits"));
        }
        fake.line(&zone("A")).put(bounded).await.expect("put");
        pass(1.5).await;
        for _ in 0..3 {
            waits(&one.gate.join("A").await.expect("there is room again"));
        }
        assert_eq!(one.gate.join("A").await, Err(full));
    });
}

#[test]
fn a_zone_that_was_just_put_is_not_called_unknown() {
    in_virtual_time(async {
        let fake = Fake::new();
        let server = serve_one(&fake, &zones(&["A"], hold())).await;
        // Each round begins at another moment between two refreshes of the watcher.
        for round in 0..10 {
            pass(3.0 + 0.07 * f64::from(round)).await;
            let new = format!("NEW{round}");
            fake.line(&zone(&new)).put(hold()).await.expect("put");
            // The information of a server is at most this old.
            pass(0.15).await;
            match server.gate.join(&new).await {
                refused @ Err(_) => assert_eq!(refused, Err(AWAY)),
                answer => drop(waits(&answer.expect("served already"))),
            }
            pass(1.0).await;
            waits(&server.gate.join(&new).await.expect("served"));
            assert_eq!(server.gate.join("OTHER").await, Err(Refusal::UnknownZone));
        }
    });
}

#[test]
fn unknown_names_cost_the_store_little() {
    in_virtual_time(async {
        let fake = Fake::new();
        fake.line(&zone("A")).put(hold()).await.expect("put");
        let server = serve_one(&fake, &[]).await;
        let (before, start) = (fake.lock().lists, Instant::now());
        while start.elapsed() < Duration::from_secs(3) {
            let mut asking = JoinSet::new();
            for name in 0..100 {
                let gate = Arc::clone(&server.gate);
                asking.spawn(async move { gate.join(&format!("NO{name}")).await });
            }
            while let Some(answer) = asking.join_next().await {
                assert_eq!(answer.expect("no panic"), Err(Refusal::UnknownZone));
            }
            pass(0.01).await;
        }
        let asked = fake.lock().lists - before;
        assert!((10..=21).contains(&asked), "30,000 names, and the store was asked {asked} times");
        // While the store does not answer, no zone is called unknown.
        fake.set(Is::Down);
        pass(1.0).await;
        assert_eq!(server.gate.join("NO").await, Err(AWAY));
    });
}

/// A store is emptied as a server starts. To newcomers the zone is not unknown there, because that would send them away for good.
#[test]
fn a_zone_that_is_lost_before_a_start_is_not_called_unknown() {
    in_virtual_time(async {
        let fake = Fake::new();
        fake.line(&zone("KEPT")).put(hold()).await.expect("put");
        let knows = serve_one(&fake, &[]).await;
        pass(90.0).await;
        assert!(knows.gate.join("KEPT").await.is_ok());
        assert_eq!(knows.gate.join("NO").await, Err(Refusal::UnknownZone));
        fake.set(Is::Down);
        pass(1.0).await;
        fake.wipe();
        fake.set(Is::Up);
        let starts = serve_one(&fake, &[]).await;
        for _ in 0..100 {
            match starts.gate.join("KEPT").await {
                Ok(_) | Err(AWAY) => {}
                other => panic!("{other:?}"),
            }
            pass(0.03).await;
        }
        assert!(starts.gate.join("KEPT").await.is_ok());
    });
}

#[test]
fn an_emptied_store_is_given_its_zones_back() {
    in_virtual_time(async {
        let fake = Fake::new();
        let policy = Policy { admit_per_minute: 1, ..Policy::default() };
        fake.line(&zone("KEPT")).put(policy).await.expect("put");
        let servers = [serve_one(&fake, &[]).await, serve_one(&fake, &[]).await];
        pass(0.3).await;
        is_in(&servers[0].gate.join("KEPT").await.expect("the minute's only slot"));
        fake.wipe();
        for _ in 0..100 {
            for server in &servers {
                let answer = server.gate.join("KEPT").await;
                assert_ne!(answer, Err(Refusal::UnknownZone));
            }
            pass(0.03).await;
        }
        assert_eq!(fake.policies(), [(zone("KEPT"), policy)]);
        assert!(servers[1].gate.join("KEPT").await.is_ok());
    });
}

#[test]
fn idle_zones_cost_nothing() {
    in_virtual_time(async {
        let fake = Fake::new();
        let names: Vec<String> = (0..300).map(|n| format!("Z{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let server = serve_one(&fake, &zones(&names, Policy::default())).await;
        pass(5.0).await;
        let before = fake.lock().calls;
        pass(600.0).await;
        assert_eq!(fake.lock().calls, before, "an unused zone was called");
        is_in(&server.gate.join("Z7").await.expect("served all the same"));
    });
}

#[test]
fn who_asks_too_often_keeps_the_place_and_costs_the_store_nothing() {
    in_virtual_time(async {
        let fake = Fake::new();
        let policy = Policy { idle_timeout_s: 10, ..hold() };
        let server = serve_one(&fake, &zones(&["a"], policy)).await;
        let gate = &server.gate;
        let silent = waits(&gate.join("a").await.expect("served")).0;
        let eager = waits(&gate.join("a").await.expect("served")).0;
        let calls = || fake.lock().calls;
        let before = calls();
        // For three idle times, no poll is answered.
        for _ in 0..3_000 {
            gate.holder("a", &eager).await.expect("ours").note_rate_limited(1);
            pass(0.01).await;
        }
        assert!(calls() - before <= 32, "{} calls: more than a beat a second", calls() - before);
        assert_eq!(gate.poll("a", &silent).await, Err(Refusal::Gone));
        let Ok(Reply::Waiting { status, .. }) = gate.poll("a", &eager).await else { panic!("is gone") };
        assert_eq!(status.rank, 1);
        // Only a valid token of the zone has a holder, whose presence could be noted.
        let before = calls();
        assert_eq!(gate.holder("a", b"nonsense").await.err(), Some(Refusal::BadToken));
        assert_eq!(calls(), before);
    });
}

/// People ask often, of two servers in turn, and the store is far away from one of them: by its answers and by those of views, ranks only
/// fall. A view that may be older than what somebody heard is marked stale; at the usual distances, none is.
#[test]
fn a_rank_rises_nowhere_however_far_the_store_is() {
    for (period_ms, way_ms, may_be_stale) in
        [(500, 1, false), (500, 90, true), (1_000, 90, false), (1_000, 300, true), (3_000, 150, false)]
    {
        in_virtual_time(async {
            let fake = Fake::new();
            let policy = Policy { admit_per_minute: 200, polling_period_ms: period_ms, ..Policy::default() };
            let here = serve_one(&fake, &zones(&["z"], policy)).await;
            let far = fake.seen_from(Duration::from_millis(way_ms));
            let there = serve_one(&far, &zones(&["z"], policy)).await;
            pass(0.5).await;
            let gates = [&here.gate, &there.gate];
            let mut people = JoinSet::new();
            for person in 0..300 {
                people.spawn(ranks_of(person, gates.map(Arc::clone)));
            }
            let told = people.join_all().await;
            let compared: u32 = told.iter().map(|(compared, _)| compared).sum();
            let stale: u32 = told.iter().map(|(_, stale)| stale).sum();
            let what = format!(
                "{period_ms} ms, {way_ms} ms: {compared} ranks were compared, and {stale} replies are stale"
            );
            assert!(compared > 2_000 && (may_be_stale || stale == 0), "{what}");
        });
    }
}

/// Asks as told, of two servers in turn, until the person enters; asserts that no rank rises, but behind a stale reply or none. Returns
/// how many ranks were compared, and how many replies were stale.
async fn ranks_of(person: u32, gates: [Arc<Gate<Cells<Fake>>>; 2]) -> (u32, u32) {
    pass(f64::from(person) * 0.013).await;
    let mut reply = gates[0].join("z").await.expect("served");
    let (mut compared, mut stale, mut told) = (0, 0, None);
    let mut turn = person as usize;
    while let Reply::Waiting { token, status } = reply {
        if status.stale {
            (told, stale) = (None, stale + 1);
        } else {
            let (before, rank) = (told.replace(status.rank), status.rank);
            assert!(
                before.is_none_or(|before| rank <= before),
                "{person} was told {before:?}, and then {rank}"
            );
            compared += u32::from(before.is_some());
        }
        pass(f64::from(status.polling_period_ms) / 1_000.0).await;
        reply = loop {
            turn += 1;
            match gates[turn % 2].poll("z", &token).await {
                Ok(reply) => break reply,
                // The store let the person in, and its answer was late.
                Err(refusal) => assert_eq!(refusal, AWAY),
            }
            (told, stale) = (None, stale + 1);
            pass(3.0).await;
        };
    }
    (compared, stale)
}

/// A stream gets what a poll at the same instant would get, and it counts as a poll: its holder stays.
#[test]
fn a_stream_gets_what_a_poll_gets() {
    in_virtual_time(async {
        let fake = Fake::new();
        let policy = Policy { admit_per_minute: 60, polling_period_ms: 20_000, ..Policy::default() };
        let held = Policy { mode: Mode::Hold, idle_timeout_s: 60, ..policy };
        let server = serve_one(&fake, &[(zone("MOVES"), policy.into()), (zone("HELD"), held.into())]).await;
        let gate = &server.gate;
        let join = async |name: &str| {
            let joined = gate.join(name).await.expect("served");
            let (Reply::Waiting { token, .. } | Reply::Entered { token, .. }) = joined;
            seals().sealer(&zone(name)).open(&token).expect("ours")
        };
        let mut tickets = Vec::new();
        for _ in 0..400 {
            tickets.push(join("MOVES").await);
        }
        let (mut looked, mut periods) = (0, HashSet::new());
        for _ in 0..15 {
            pass(1.0).await;
            let view = gate.follower_view("MOVES").expect("served");
            for ticket in &tickets {
                let Some((status, newer)) = view.poll(*ticket) else { continue };
                let polled = gate.poll_for_stream("MOVES", *ticket).await.expect("served");
                let token = view.seal(&newer);
                assert_eq!(polled, (Reply::Waiting { token, status }, newer));
                looked += 1;
                periods.insert(status.polling_period_ms);
            }
        }
        assert!(looked >= 1_000 && periods.len() >= 100, "{looked} answers, {} periods", periods.len());

        let [looked_at, silent] = [join("HELD").await, join("HELD").await];
        for _ in 0..90 {
            pass(1.0).await;
            let view = gate.follower_view("HELD").expect("served");
            assert!(view.poll(looked_at).is_some());
        }
        assert!(gate.poll_for_stream("HELD", looked_at).await.is_ok());
        assert_eq!(gate.poll_for_stream("HELD", silent).await, Err(Refusal::Gone));
    });
}

/// Tokens whose tickets are gone, sent again and again, cost the store one call each, and not one for each time. Whatever
/// may bring a ticket back makes the server ask again.
#[test]
fn replayed_gone_tokens_cost_the_store_little() {
    in_virtual_time(async {
        const TOKENS: usize = 1_000;
        let fake = Fake::new();
        let server = serve_one(&fake, &zones(&["A"], Policy { idle_timeout_s: 10, ..hold() })).await;
        let gate = &server.gate;
        let mut tokens = Vec::new();
        for _ in 0..TOKENS {
            tokens.push(waits(&gate.join("A").await.expect("served")).0);
        }
        pass(15.0).await;
        let replay_some = async |count: usize| {
            let before = fake.lock().calls;
            for token in &tokens[..count] {
                assert_eq!(gate.poll("A", token).await, Err(Refusal::Gone));
            }
            fake.lock().calls - before
        };
        let replay = async || replay_some(TOKENS).await;
        assert!(replay().await >= TOKENS, "the store decides once about each");
        let mut again = 0;
        for _ in 0..10 {
            again += replay().await;
        }
        assert!(again <= 10, "{again} calls");

        // The store was away: it may have come back with an older state.
        fake.set(Is::Down);
        gate.join("A").await.expect_err("away");
        fake.set(Is::Up);
        pass(2.0).await;
        assert!(replay().await >= TOKENS);
        assert!(replay().await <= 10);
        // The state was lost without a failed call: a view of the new epoch tells.
        fake.wipe();
        pass(5.0).await;
        assert!(replay().await >= TOKENS);
        // A server that comes late may give back what it knows of tickets of an earlier epoch.
        pass(2.0).await;
        assert!(replay_some(50).await >= 50);
        assert!(replay_some(50).await <= 2, "within a second");
        // Another policy may have other passes.
        gate.serve_zone(&zone("A"), Some(&Policy { idle_timeout_s: 11, ..hold() }.into()))
            .await
            .expect("served");
        assert!(replay().await >= TOKENS);
        // Without a fresh view nothing is known.
        pass(20.0).await;
        let before = fake.lock().calls;
        assert_eq!(gate.poll("A", &tokens[0]).await, Err(Refusal::Gone));
        assert!(fake.lock().calls > before);
    });
}
