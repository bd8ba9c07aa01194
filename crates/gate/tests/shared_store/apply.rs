//! `weir zones apply`.

use admission::Policy;
use gate::{
    cells::{Cell, Cells},
    definitions::{ZoneApplied, apply},
};
use store::{Line as _, StoreError};

use super::world::*;

#[test]
fn zones_are_applied_and_what_was_there_stays() {
    in_virtual_time(async {
        let (one, two) = (Fake::new(), Fake::new());
        two.set(Is::Down);
        let cells = Cells::new(vec![
            Cell::new("one", vec!["*".to_owned()], one.connect()),
            Cell::new("two", vec!["two".to_owned()], two.connect()),
        ]);
        let other = Policy { admit_per_minute: 60, ..Policy::default() };
        for (name, policy) in [("same", other), ("changed", Policy::default()), ("mine", hold())] {
            one.line(&zone(name)).put(policy).await.expect("put");
        }
        let wanted = zones(&["same", "changed", "new", "two:a"], other);
        let applied = apply(&cells, &wanted, async |_, _, _| {}).await;
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
        let sum = "1 created, 1 changed, 1 unchanged, 1 failed; 1 more in the store stay as they are; not counted, because it does \
                   not answer: two\n";
        assert!(text.ends_with(sum), "{text}");
        // Nothing is applied, and what the store keeps is counted nevertheless.
        let nothing = apply(&cells, &[], async |_, _, _| {}).await;
        assert_eq!((nothing.zones.len(), nothing.others), (0, 4));
        two.set(Is::Up);
        assert_eq!(
            apply(&cells, &wanted, async |_, _, _| {}).await.zones[3].1,
            ZoneApplied::Created(other.into())
        );
        let again = apply(&cells, &wanted, async |_, _, _| {}).await;
        assert!(again.zones.iter().all(|(_, outcome)| *outcome == ZoneApplied::Unchanged), "{again}");
        assert_eq!(one.lock().zones[&zone("mine")], hold().into());
    });
}
