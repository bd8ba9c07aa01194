//! The editor of servers that share a store: all servers serve what one of them changed.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use admission::{Definition, Notice, Policy};
use gate::{
    Refusal,
    cells::Cell,
    definitions::{Author, DefineError, DefinitionChange},
};
use store::{Expected, RoutesDefined};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use super::world::*;

fn author() -> Author {
    Author { name: "ada".to_owned(), role: "admin".to_owned(), from: None }
}

fn saying(policy: Policy, text: &str) -> Definition {
    Definition { notice: Notice::new([("en", text)]).expect("a notice"), ..policy.into() }
}

impl Server {
    async fn define(
        &self,
        name: &str,
        expected: Expected,
        new: Option<Definition>,
    ) -> std::result::Result<DefinitionChange, DefineError> {
        self.editor.define(author(), &zone(name), expected, new).await
    }

    /// The definition that is served under a name, with the policy in force.
    fn served(&self, name: &str) -> Option<Definition> {
        let notice = Notice::clone(&*self.gate.notice(name)?);
        Some(Definition { notice, ..self.gate.policy(name)?.into() })
    }
}

#[test]
fn what_is_changed_is_in_force_here_at_once_and_everywhere_within_a_second() {
    in_virtual_time(async {
        let fake = Fake::new();
        let file = zones(&["A", "B"], hold());
        let (one, two) = (serve_one(&fake, &file).await, serve_one(&fake, &file).await);
        // Each round begins at another moment between two refreshes of the watchers.
        for round in 0..10 {
            pass(3.0 + 0.07 * f64::from(round)).await;
            let before = one.editor.get("A").expect("served");
            let now = saying(if round % 2 == 0 { closed() } else { hold() }, &format!("{round}"));
            let changed = one.define("A", Expected::Tag(before.etag()), Some(now.clone())).await;
            assert_eq!(changed, Ok(DefinitionChange { before: Some(before), after: Some(now.clone()) }));
            assert_eq!(one.served("A").as_ref(), Some(&now), "round {round}");
            assert_eq!(one.editor.get("A").as_ref(), Some(&now));

            let new = format!("NEW{round}");
            let made = one.define(&new, Expected::Absent, Some(now.clone())).await.expect("made");
            assert_eq!(made, DefinitionChange { before: None, after: Some(now.clone()) });
            assert_eq!(one.served(&new).as_ref(), Some(&now));
            let newcomer = one.gate.join(&new).await;
            assert!(now.policy == closed() || newcomer.is_ok(), "round {round}: {newcomer:?}");

            one.define("B", Expected::Any, None).await.expect("deleted");
            assert_eq!(one.gate.join("B").await, Err(Refusal::UnknownZone), "round {round}");
            assert_eq!(one.editor.get("B"), None);
            pass(1.0).await;
            assert_eq!(two.served("A").as_ref(), Some(&now), "round {round}");
            assert_eq!(two.served(&new).as_ref(), Some(&now));
            assert_eq!(two.gate.join("B").await, Err(Refusal::UnknownZone), "round {round}");
            two.define("B", Expected::Absent, Some(hold().into())).await.expect("made again");
            pass(1.0).await;
            assert_eq!(one.served("B"), Some(hold().into()));
        }
    });
}

#[test]
fn of_two_servers_that_expect_the_same_one_succeeds() {
    in_virtual_time(async {
        let fake = Fake::new();
        let file = zones(&["A"], hold());
        let (one, two) = (serve_one(&fake, &file).await, serve_one(&fake, &file).await);
        for round in 1..=20 {
            let tag = one.editor.get("A").expect("served").etag();
            let [first, second] =
                [round, 100 * round].map(|n| Definition::from(Policy { admit_per_minute: n, ..hold() }));
            let (by_one, by_two) = tokio::join!(
                one.define("A", Expected::Tag(tag.clone()), Some(first.clone())),
                two.define("A", Expected::Tag(tag), Some(second.clone()))
            );
            match (by_one, by_two) {
                (Ok(_), Err(DefineError::Conflict(now))) => assert_eq!(now, first),
                (Err(DefineError::Conflict(now)), Ok(_)) => assert_eq!(now, second),
                both => panic!("{both:?}"),
            }
            assert_eq!(one.served("A"), two.served("A"), "also where the change was refused");
            let name = format!("NEW{round}");
            let new = || Some(Definition::from(hold()));
            let made = tokio::join!(
                one.define(&name, Expected::Absent, new()),
                two.define(&name, Expected::Absent, new())
            );
            assert!(
                matches!(made, (Ok(_), Err(DefineError::Exists(_))) | (Err(DefineError::Exists(_)), Ok(_))),
                "{made:?}"
            );
            for server in [&one, &two] {
                assert_eq!(
                    server.editor.get(&name),
                    new(),
                    "whoever is told that it exists asks about it next"
                );
                assert!(server.gate.join(&name).await.is_ok());
            }
        }
    });
}

/// A register that was lost looks like one without the zone. A server that has just started can't tell them apart, but the
/// token proves that there was a zone.
#[test]
fn a_new_server_sends_nobody_away_who_shows_a_token() {
    in_virtual_time(async {
        let fake = Fake::new();
        let old = serve_one(&fake, &zones(&["A"], hold())).await;
        let token = waits(&old.gate.join("A").await.expect("served")).0;
        old.define("A", Expected::Any, None).await.expect("deleted");
        pass(1.0).await;
        assert_eq!(old.gate.poll("A", &token).await, Err(Refusal::UnknownZone), "it saw the zone go");
        let new = serve_one(&fake, &[]).await;
        assert_eq!(new.gate.poll("A", &token).await, Err(AWAY));
        assert_eq!(new.gate.poll("A", b"forged").await, Err(Refusal::UnknownZone));
        assert_eq!(new.gate.poll("B", &token).await, Err(Refusal::UnknownZone), "it is of another zone");
        assert_eq!(new.gate.join("A").await, Err(Refusal::UnknownZone));
        pass(60.0).await;
        assert_eq!(new.gate.poll("A", &token).await, Err(Refusal::UnknownZone));
    });
}

#[test]
fn what_is_deleted_stays_away_whoever_watches() {
    in_virtual_time(async {
        let fake = Fake::new();
        let file = zones(&["A", "B"], hold());
        let servers = [serve_one(&fake, &file).await, serve_one(&fake, &file).await];
        // One holder waits and keeps polling.
        let token = waits(&servers[1].gate.join("A").await.expect("served")).0;
        for name in ["A", "B"] {
            servers[0].define(name, Expected::Any, None).await.expect("deleted");
        }
        for _ in 0..200 {
            let _ = servers[1].gate.poll("A", &token).await;
            pass(0.1).await;
            assert_eq!(fake.lock().zones.len(), 0, "a file does not fill a store that was emptied");
        }
        for server in &servers {
            assert_eq!(server.editor.list(), []);
            assert_eq!(server.gate.poll("A", &token).await, Err(Refusal::UnknownZone));
        }
        let late = serve_one(&fake, &file).await;
        pass(2.0).await;
        assert_eq!(late.editor.list(), [], "a server that starts later does not fill it either");
        // A zone that is created again has the same line.
        servers[0].define("A", Expected::Absent, Some(hold().into())).await.expect("made");
        waits(&servers[0].gate.poll("A", &token).await.expect("the place is kept"));
    });
}

#[test]
fn an_emptied_store_is_given_its_notices_back() {
    in_virtual_time(async {
        let fake = Fake::new();
        let servers = [serve_one(&fake, &zones(&["A"], hold())).await, serve_one(&fake, &[]).await];
        let said = saying(hold(), "Back at noon.");
        servers[0].define("A", Expected::Any, Some(said.clone())).await.expect("changed");
        pass(1.0).await;
        fake.wipe();
        pass(2.0).await;
        assert_eq!(fake.lock().zones, BTreeMap::from([(zone("A"), said.clone())]));
        for server in &servers {
            assert_eq!(server.served("A").as_ref(), Some(&said));
        }
    });
}

#[test]
fn what_fails_changes_nothing() {
    in_virtual_time(async {
        let (one, two) = (Fake::new(), Fake::new());
        let cells = vec![
            Cell::new("one", vec!["one".to_owned()], one.connect()),
            Cell::new("two", vec!["two".to_owned()], two.connect()),
        ];
        let server = serve(cells, &zones(&["one:a", "two:a"], hold())).await;
        let before = server.editor.list();
        let new = || Some(Definition::from(closed()));
        two.set(Is::Down);
        let refused = server.define("two:a", Expected::Any, new()).await;
        assert!(matches!(refused, Err(DefineError::Away(_))), "{refused:?}");
        let conflict = server.define("one:a", Expected::Tag(String::new()), new()).await;
        assert_eq!(conflict, Err(DefineError::Conflict(hold().into())));
        let exists = server.define("one:a", Expected::Absent, new()).await;
        assert_eq!(exists, Err(DefineError::Exists(hold().into())));
        for new in [new(), None] {
            assert_eq!(server.define("one:b", Expected::Any, new).await, Err(DefineError::UnknownZone));
        }
        assert_eq!(server.define("one:b", Expected::Absent, None).await, Err(DefineError::UnknownZone));
        assert_eq!(server.define("three:a", Expected::Absent, new()).await, Err(DefineError::NoCell));
        let wild = Definition::from(Policy { admit_per_minute: 0, ..hold() });
        let refused = server.define("one:a", Expected::Any, Some(wild)).await;
        assert!(matches!(refused, Err(DefineError::OutOfRange(_))), "{refused:?}");
        pass(5.0).await;
        assert_eq!(server.editor.list(), before);
    });
}

/// If the caller of a change hangs up, the change is completed, and this server applies it.
#[test]
fn a_change_goes_on_without_its_caller() {
    in_virtual_time(async {
        let fake = Fake::new();
        let server = serve_one(&fake, &zones(&["A"], hold())).await;
        tokio::select! {
            biased;
            _ = server.define("A", Expected::Any, Some(closed().into())) => panic!("it takes a moment"),
            () = sleep(Duration::ZERO) => {}
        }
        pass(0.1).await;
        assert_eq!(server.served("A"), Some(closed().into()));
    });
}

/// If the part of the store that holds the zone hangs, a change is stored, and its caller waits for a limited time.
#[test]
fn a_change_is_answered_though_it_is_not_in_force_yet() {
    in_virtual_time(async {
        let fake = Fake::new();
        let server = serve_one(&fake, &zones(&["A"], hold())).await;
        pass(0.1).await;
        let asked = Instant::now();
        let hang = async {
            while fake.lock().zones[&zone("A")] != closed().into() {
                pass(0.0001).await;
            }
            fake.set(Is::Hanging);
        };
        let (changed, ()) = tokio::join!(server.define("A", Expected::Any, Some(closed().into())), hang);
        assert!(changed.is_ok(), "{changed:?}");
        assert!(asked.elapsed() < Duration::from_millis(2_500));
        fake.set(Is::Up);
        pass(4.0).await;
        assert_eq!(server.served("A"), Some(closed().into()));
    });
}

/// A change is in force when it is answered, even if more callers wait for the store than the lane accepts.
#[test]
fn a_change_is_in_force_when_it_is_answered_though_the_lane_is_full() {
    in_virtual_time(async {
        let fake = Fake::new();
        let server = serve_one(&fake, &zones(&["A"], hold())).await;
        pass(1.0).await;
        fake.set(Is::Slow);
        let mut joining = JoinSet::new();
        let mut flood = async |count| {
            for _ in 0..count {
                let gate = Arc::clone(&server.gate);
                joining.spawn(async move { gate.join("A").await });
            }
            pass(0.001).await;
            let refused = |answer| matches!(answer, Some(Ok(Err(Refusal::Busy { .. }))));
            refused(joining.try_join_next())
        };
        assert!(flood(20_000).await, "the lane is full");
        let new = Policy { admit_per_minute: 7, ..hold() };
        let changing = server.define("A", Expected::Any, Some(new.into()));
        let flooding = async {
            loop {
                flood(1_100).await;
            }
        };
        let changed = tokio::select! {
            changed = changing => changed,
            () = flooding => unreachable!("it goes on"),
        };
        assert!(changed.is_ok(), "{changed:?}");
        assert_eq!(server.gate.policy("A"), Some(new));
    });
}

#[test]
fn routes_are_in_force_here_at_once_and_everywhere_within_a_second() {
    in_virtual_time(async {
        let fake = Fake::new();
        let file = zones(&["A"], hold());
        let (one, two) = (serve_one(&fake, &file).await, serve_one(&fake, &file).await);
        assert_eq!((one.editor.routes(), two.editor.routes()), (None, None));
        let mut followed = two.gate.routes().subscribe();
        for round in 0..5 {
            pass(3.0 + 0.07 * f64::from(round)).await;
            let (before, now) = (one.editor.routes(), Arc::<str>::from(format!("[{round}]")));
            let made = one.editor.set_routes(before.clone(), Arc::clone(&now)).await;
            assert_eq!((made, one.editor.routes()), (Ok(RoutesDefined::Done), Some(Arc::clone(&now))));
            pass(1.0).await;
            assert_eq!(two.editor.routes().as_ref(), Some(&now));
            assert!(followed.has_changed().expect("served"), "who follows is told");
            followed.mark_unchanged();
            let late = two.editor.set_routes(before, "[]".into()).await;
            assert_eq!(late, Ok(RoutesDefined::Otherwise(Some(now))), "somebody else was first");
        }
        pass(3.0).await;
        assert!(!followed.has_changed().expect("served"), "nobody is told of no change");
        let third = serve_one(&fake, &file).await;
        assert_eq!(third.editor.routes(), one.editor.routes(), "a server that starts later has them");
        // A store that does not answer changes nothing.
        fake.set(Is::Down);
        pass(3.0).await;
        assert_eq!(third.editor.routes(), one.editor.routes());
        let failed = one.editor.set_routes(one.editor.routes(), "[]".into()).await;
        assert!(matches!(failed, Err(DefineError::Away(_))), "{failed:?}");
    });
}
