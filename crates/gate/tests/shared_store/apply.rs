//! `weir zones apply`.

use std::sync::Arc;

use admission::{Definition, DrawFallback, DrawTerms, Event, Policy, RandomnessSource, Schedule};
use gate::{
    cells::{Cell, Cells},
    definitions::{Applied, ApplyOptions, ZONES_MAX, ZoneApplied, apply},
};
use store::{Defined, Expected, Line as _, Store as _, StoreError};

use super::world::*;

#[test]
fn zones_are_applied_and_what_was_there_stays() {
    in_virtual_time(async {
        let (one, two) = (Fake::new(), Fake::new());
        two.set(Is::Down);
        let cells = Arc::new(Cells::new(vec![
            Cell::new("one", vec!["*".to_owned()], one.connect()),
            Cell::new("two", vec!["two".to_owned()], two.connect()),
        ]));
        let other = Policy { admit_per_minute: 60, ..Policy::default() };
        for (name, policy) in [("same", other), ("changed", Policy::default()), ("mine", hold())] {
            one.line(&zone(name)).put(policy).await.expect("put");
        }
        let wanted = zones(&["same", "changed", "new", "two:a"], other);
        let applied = apply(&cells, &wanted, ApplyOptions::default(), async |_, _, _| {}).await;
        let away = StoreError::Away("two: refused".to_owned());
        let outcomes = [
            ("same", ZoneApplied::Unchanged),
            ("changed", ZoneApplied::Changed(vec!["admit_per_minute 10000 -> 60".to_owned()])),
            ("new", ZoneApplied::Created(other.into())),
            ("two:a", ZoneApplied::Failed(away.clone())),
        ];
        assert_eq!(applied.zones, outcomes.map(|(name, outcome)| (zone(name), outcome)));
        assert_eq!((applied.others, applied.failure()), (1, Some(&away)));
        let text = applied.to_string();
        assert!(
            text.starts_with("unchanged  same\nchanged    changed  admit_per_minute 10000 -> 60\n"),
            "{text}"
        );
        let sum = "1 created, 1 changed, 1 unchanged, 0 refused, 1 failed; 1 more in the store stay as they are; not counted, because it does \
                   not answer: two\n";
        assert!(text.ends_with(sum), "{text}");
        // Nothing is applied, and what the store keeps is counted nevertheless.
        let nothing = apply(&cells, &[], ApplyOptions::default(), async |_, _, _| {}).await;
        assert_eq!((nothing.zones.len(), nothing.others), (0, 4));
        two.set(Is::Up);
        assert_eq!(
            apply(&cells, &wanted, ApplyOptions::default(), async |_, _, _| {}).await.zones[3].1,
            ZoneApplied::Created(other.into())
        );
        let again = apply(&cells, &wanted, ApplyOptions::default(), async |_, _, _| {}).await;
        assert!(again.zones.iter().all(|(_, outcome)| *outcome == ZoneApplied::Unchanged), "{again}");
        assert_eq!(one.lock().zones[&zone("mine")], hold().into());
    });
}

#[test]
fn no_more_zones_are_created_than_there_may_be() {
    in_virtual_time(async {
        let fake = Fake::new();
        let cells = Arc::new(Cells::new(vec![Cell::new("one", vec!["*".to_owned()], fake.connect())]));
        let names: Vec<String> = (0..ZONES_MAX - 1).map(|at| format!("Z{at}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        apply(&cells, &zones(&names, hold()), ApplyOptions::default(), async |_, _, _| {}).await;
        let more = zones(&["Z7", "LAST", "MORE"], hold());
        for options in [ApplyOptions { dry_run: true, ..ApplyOptions::default() }, ApplyOptions::default()] {
            let applied = apply(&cells, &more, options, async |_, _, _| {}).await;
            let outcomes: Vec<_> = applied.zones.iter().map(|(_, outcome)| outcome.clone()).collect();
            let created = ZoneApplied::Created(hold().into());
            assert_eq!(outcomes, [ZoneApplied::Unchanged, created, ZoneApplied::TooMany]);
            assert!(applied.is_refused(), "{applied}");
        }
        assert_eq!(fake.lock().zones.len(), ZONES_MAX);
    });
}

/// A zone that was put on hold, and that has an event, as operators make both past the file.
#[test]
fn what_operators_set_up_ends_only_if_that_is_meant() {
    in_virtual_time(async {
        let store = Fake::new();
        let cells = Arc::new(Cells::new(vec![Cell::new("one", vec!["*".to_owned()], store.connect())]));
        let event = Event::parse(
            "sale 2026-01-01T00:00:00Z 2099-01-01T00:00:00Z 2099-01-02T00:00:00Z usual closed - -",
        );
        let with_event = |policy: Policy| Definition {
            schedule: Schedule::new(vec![event.clone().expect("an event")], &policy).expect("a schedule"),
            ..policy.into()
        };
        let put = async |name: &str, definition: &Definition| {
            let made = store.define(&zone(name), &Expected::Absent, Some(definition)).await;
            assert_eq!(made, Ok(Defined::Done(None)));
        };
        put("held", &hold().into()).await;
        put("sale", &with_event(Policy::default())).await;
        let wanted = zones(&["held", "sale", "new"], Policy::default());
        let mut told = 0;
        let mut with = async |dry_run, replace| {
            let options = ApplyOptions { dry_run, replace };
            let applied: Applied = apply(&cells, &wanted, options, async |_, _, _| told += 1).await;
            (applied.is_refused(), applied.to_string(), told)
        };
        let before = store.lock().zones.clone();
        let advice = "correct the file, or do as it says with --replace";
        let refused = format!(
            "refused    held  the file would end mode hold; {advice}\n\
             refused    sale  the file would end event sale, whose pre-queue goes on; {advice}\n"
        );
        let (is_refused, said, told) = with(true, false).await;
        assert!(is_refused && said.starts_with(&refused), "{said}");
        assert!(said.contains("created    new   auto, 10000 a minute"), "{said}");
        assert_eq!((&store.lock().zones, told), (&before, 0), "a preview changes nothing");
        let (_, would, told) = with(true, true).await;
        assert!(would.contains("changed    held  mode hold -> auto\n"), "{would}");
        assert_eq!((&store.lock().zones, told), (&before, 0), "a preview changes nothing");
        assert_eq!(
            with(false, false).await,
            (true, said, 1),
            "the preview told it, and the others are applied"
        );
        let (is_refused, again, _) = with(false, false).await;
        assert!(is_refused && again.starts_with(&refused), "{again}");
        let unchanged = "unchanged  new\n0 created, 0 changed, 1 unchanged, 2 refused, 0 failed;";
        assert!(again.contains(unchanged), "{again}");
        let (is_refused, said, told) = with(false, true).await;
        assert!(!is_refused && said.contains("changed    sale  event sale deleted\n"), "{said}");
        assert_eq!((store.lock().zones[&zone("held")].clone(), told), (Policy::default().into(), 3));
    });
}

/// What was published of a draw stays, so a file of last week with other dates would hold none.
#[test]
fn an_event_of_a_name_that_had_a_draw_is_refused() {
    in_virtual_time(async {
        let store = Fake::new();
        let cells = Arc::new(Cells::new(vec![Cell::new("one", vec!["*".to_owned()], store.connect())]));
        let by_lot = |dates: &str| {
            let event = Event::parse(&format!("sale {dates} usual usual - -")).expect("an event");
            let terms = DrawTerms { randomness: RandomnessSource::Drand, fallback: DrawFallback::Wait };
            let event = Event { draw: Some(terms), ..event };
            let policy = Policy::default();
            let schedule = Schedule::new(vec![event.clone()], &policy).expect("a schedule");
            (event, Definition { schedule, ..policy.into() })
        };
        let (held, before) = by_lot("2026-01-01T00:00:00Z 2026-01-02T00:00:00Z 2026-01-03T00:00:00Z");
        let (_, again) = by_lot("2098-01-01T00:00:00Z 2098-01-02T00:00:00Z 2098-01-03T00:00:00Z");
        let made = store.define(&zone("Z"), &Expected::Absent, Some(&before)).await;
        assert_eq!(made, Ok(Defined::Done(None)));
        store.line(&zone("Z")).put(before.policy).await.expect("put");
        let apply_again = async |replace| {
            let options = ApplyOptions { dry_run: false, replace };
            apply(&cells, &[(zone("Z"), again.clone())], options, async |_, _, _| {}).await
        };
        let kept = store.line(&zone("Z")).keep_draw(held.draw_number(), Some(b"1".to_vec())).await;
        assert_eq!(kept, Ok(Some(b"1".to_vec())));
        for replace in [false, true] {
            let applied = apply_again(replace).await;
            assert_eq!(applied.zones[0].1, ZoneApplied::HeldDraw(zone("sale")));
            assert!(applied.is_refused() && applied.to_string().contains("give this event another name"));
        }
        assert_eq!(store.lock().zones[&zone("Z")].schedule, before.schedule);
    });
}

/// The zones of a cell are read once, and an operator stops one before its turn comes.
#[test]
fn a_hold_that_comes_meanwhile_does_not_end() {
    in_virtual_time(async {
        let store = Fake::new();
        let cells = Arc::new(Cells::new(vec![Cell::new("one", vec!["*".to_owned()], store.connect())]));
        store.line(&zone("b")).put(Policy::default()).await.expect("put");
        let other = Policy { admit_per_minute: 60, ..Policy::default() };
        let wanted = zones(&["a", "b"], other);
        let applied = apply(&cells, &wanted, ApplyOptions::default(), async |_, told, _| {
            assert_eq!(*told, zone("a"), "the second one is not changed");
            store.define(&zone("b"), &Expected::Any, Some(&hold().into())).await.expect("held");
        });
        let applied = applied.await;
        assert_eq!(applied.zones[1].1, ZoneApplied::Ended(vec!["mode hold".to_owned()]), "{applied}");
        assert_eq!(store.lock().zones[&zone("b")], hold().into());
    });
}
