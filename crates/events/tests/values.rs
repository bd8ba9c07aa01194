//! A received event equals the published one, for all values.

use admission::{FIELDS, FieldKind, Policy, ZoneId};
use events::{
    Admitted, AdmittedEntry, AdmittedWithoutStore, Bus, DefinitionChanged, Entered, Event, Evicted, Joined,
    Kind, Kinds, Limited, LimitedCall, ModeChanged, NoticeChanged, PolicyChanged, RefusalReason, Refused,
    Reloaded, Scope, StoreBack, StoreCall, StoreCalled, StoreLost, Tallied, ViewShown, ZoneAdded, ZoneNumber,
    ZoneRemoved,
};
use proptest::{prelude::*, sample::select};

/// Policies whose fields have any value of their ranges.
fn policies() -> impl Strategy<Value = Policy> {
    let numbers: Vec<_> = FIELDS
        .iter()
        .map(|field| match field.kind {
            FieldKind::Number { low, high, .. } => low..=high,
            FieldKind::Word { words, .. } => 0..=u32::try_from(words.len() - 1).expect("few words"),
            FieldKind::Instant => 0..=u32::MAX,
        })
        .collect();
    numbers.prop_map(|numbers| {
        let mut policy = Policy::default();
        for (field, number) in FIELDS.iter().zip(numbers) {
            assert!(field.set(&mut policy, number), "{}", field.name);
        }
        policy
    })
}

proptest! {
    #[test]
    fn received_events_equal_published_ones(
        policy in policies(),
        halves in any::<[u32; 4]>(),
        words in any::<[u64; 5]>(),
        flag in any::<bool>(),
        why in select(&RefusalReason::ALL[..]),
        call in select(&StoreCall::ALL[..]),
        limited in select(&LimitedCall::ALL[..]),
    ) {
        let ([a, b, c, d], [v, w, x, y, z]) = (halves, words);
        let bus = Bus::with_rings(|_| 4).expect("a bus");
        let zone = bus.zone(&ZoneId::parse("ZONE").expect("a name"));
        let mut all = bus.subscribe("all", Scope::Root, Kinds::within(Scope::Root)).expect("its right");
        let mut published: Vec<Event> = Vec::new();
        macro_rules! publish {
            ($($event:expr;)*) => {$({
                let event = $event;
                bus.publish(event);
                published.push(event.into());
            })*};
        }
        publish! {
            ViewShown { zone, epoch: a, at_ms: v };
            ModeChanged { zone, mode: policy.mode };
            PolicyChanged { zone, policy };
            NoticeChanged { zone };
            DefinitionChanged { zone };
            ZoneAdded { zone: ZoneNumber::NONE, policy };
            ZoneRemoved { zone };
            Joined { zone, epoch: a, first: v, count: b, entered: c, at_ms: w };
            Entered { zone, waited_ms: a, told_s: b, told_low_s: c, told_high_s: d, at_ms: v };
            Evicted { zone, count: a, at_ms: v };
            Refused { zone, why: why.0, count: a };
            Limited { zone, call: limited.0, count: b, retry_after_s: c };
            Tallied {
                zone,
                admit_per_minute: a,
                waiting: b,
                present: c,
                joined: v,
                entered: w,
                evicted: x,
                slots_offered: y,
                slots_used: z,
            };
            StoreCalled { zone, call: call.0, took_us: a, tickets: d, ok: flag };
            StoreLost { zone };
            StoreBack { zone, away_ms: v };
            AdmittedWithoutStore { zone, total: v };
            Reloaded { ok: flag };
            Admitted {
                zone,
                epoch: a,
                entry: AdmittedEntry { seq: v >> 16, entered_unix_s: w >> 32, at_ms: x >> 16 },
                policy,
            };
        }
        prop_assert_eq!(published.len(), Kind::ALL.len());
        prop_assert_eq!(all.try_next().expect("events").events, published);
    }
}

#[test]
fn each_zone_name_has_one_number() {
    let bus = Bus::with_rings(|_| 2).expect("a bus");
    let name = |n: u32| ZoneId::parse(&format!("Z{n}")).expect("a name");
    let first = bus.zone(&name(0));
    assert_eq!(bus.zone(&name(0)), first);
    assert_ne!(bus.zone(&name(1)), first);
    assert_eq!(bus.zone_id(first), Some(name(0)));
    assert_eq!(bus.zone_id(ZoneNumber::NONE), None);
    (2..65_536).for_each(|n| assert_ne!(bus.zone(&name(n)), ZoneNumber::NONE));
    // One more name has no number, and the others keep theirs.
    assert_eq!(bus.zone(&name(65_536)), ZoneNumber::NONE);
    assert_eq!(bus.zone_id(bus.zone(&name(65_535))), Some(name(65_535)));
}
