//! Scopes: which subscribers receive which events.

use admission::{Mode, Policy, ZoneId};
use events::{
    Bus, DefinitionChanged, Event, Kind, Kinds, ModeChanged, NoticeChanged, PolicyChanged, Scope,
    SubscribeError, ViewShown, ZoneAdded, ZoneNumber, ZoneRemoved,
};

/// Everything that a waiting user may receive, field by field. A new field must be added here as well.
type Public = (ZoneNumber, Option<u32>, Option<u64>, Option<Mode>);

fn public(event: Event) -> Option<Public> {
    match event {
        Event::ViewShown(ViewShown { zone, epoch, at_ms }) => Some((zone, Some(epoch), Some(at_ms), None)),
        Event::ModeChanged(ModeChanged { zone, mode }) => Some((zone, None, None, Some(mode))),
        _ => None,
    }
}

/// Everything that another server may receive in addition.
fn federated(event: Event) -> Option<(ZoneNumber, Option<Policy>)> {
    match event {
        Event::PolicyChanged(PolicyChanged { zone, policy })
        | Event::ZoneAdded(ZoneAdded { zone, policy }) => Some((zone, Some(policy))),
        Event::NoticeChanged(NoticeChanged { zone })
        | Event::DefinitionChanged(DefinitionChanged { zone })
        | Event::ZoneRemoved(ZoneRemoved { zone }) => Some((zone, None)),
        _ => None,
    }
}

#[test]
fn each_scope_has_exactly_its_kinds() {
    let within = |scope| Kinds::within(scope).iter().map(Kind::as_str).collect::<Vec<_>>();
    let public = ["ViewShown", "ModeChanged"];
    let federated = ["PolicyChanged", "NoticeChanged", "DefinitionChanged", "ZoneAdded", "ZoneRemoved"];
    let private = [
        "Joined",
        "Entered",
        "Evicted",
        "Refused",
        "Limited",
        "Tallied",
        "StoreCalled",
        "StoreLost",
        "StoreBack",
        "AdmittedUnseen",
        "Reloaded",
    ];
    assert_eq!(within(Scope::Public), public);
    assert_eq!(within(Scope::Federated), [&public[..], &federated].concat());
    assert_eq!(within(Scope::Private), [&public[..], &federated, &private].concat());
    assert_eq!(within(Scope::Root), [&public[..], &federated, &private, &["Admitted"]].concat());
    assert_eq!(within(Scope::Root).len(), Kind::ALL.len());
}

#[test]
fn a_subscription_above_its_right_is_refused() {
    let bus = Bus::new().expect("a bus");
    for (right, name) in Scope::ALL {
        for &kind in Kind::ALL {
            let subscribed = bus.subscribe(name, right, Kinds::of(&[kind]));
            if kind.scope() <= right {
                assert!(subscribed.is_ok(), "{kind:?} to {name}");
            } else {
                assert_eq!(subscribed.err(), Some(SubscribeError::Refused { kind, right }));
            }
        }
        assert!(bus.subscribe(name, right, Kinds::within(right)).is_ok());
    }
    let refused = bus.subscribe("browser", Scope::Public, Kinds::of(&[Kind::ModeChanged, Kind::Admitted]));
    assert_eq!(
        refused.err().expect("above its right").to_string(),
        "Admitted is for root alone, and the subscriber is public"
    );
    let nothing = bus.subscribe("nobody", Scope::Root, Kinds::default());
    assert_eq!(nothing.err(), Some(SubscribeError::Nothing));
    assert!(bus.subscribers().is_empty());
}

#[test]
fn each_subscriber_receives_its_scope_and_nothing_else() {
    let bus = Bus::new().expect("a bus");
    let zone = bus.zone(&ZoneId::parse("ZONE").expect("a name"));
    let mut subscriptions = Scope::ALL
        .map(|(right, name)| (right, bus.subscribe(name, right, Kinds::within(right)).expect("its right")));
    publish_all(&bus, zone);
    for (right, subscription) in &mut subscriptions {
        let events = subscription.try_next().expect("events").events.to_vec();
        let kinds: Vec<_> = events.iter().map(Event::kind).collect();
        assert_eq!(kinds, Kinds::within(*right).iter().collect::<Vec<_>>());
        for event in events {
            match event.kind().scope() {
                Scope::Public => assert!(public(event).is_some(), "{event:?}"),
                Scope::Federated => assert!(federated(event).is_some(), "{event:?}"),
                Scope::Private | Scope::Root => assert!(*right >= Scope::Private),
            }
        }
    }
}

/// One event of each kind, in the order of the kinds.
fn publish_all(bus: &Bus, zone: ZoneNumber) {
    let policy = Policy::default();
    bus.publish(ViewShown { zone, epoch: 1, at_ms: 2 });
    bus.publish(ModeChanged { zone, mode: Mode::Hold });
    bus.publish(PolicyChanged { zone, policy });
    bus.publish(NoticeChanged { zone });
    bus.publish(DefinitionChanged { zone });
    bus.publish(ZoneAdded { zone, policy });
    bus.publish(ZoneRemoved { zone });
    bus.publish(events::Joined { zone, epoch: 1, first: 5, count: 2, entered: 0, at_ms: 2 });
    bus.publish(events::Entered { zone, waited_ms: 3, told_s: 1, told_low_s: 0, told_high_s: 2, at_ms: 2 });
    bus.publish(events::Evicted { zone, count: 1, at_ms: 2 });
    bus.publish(events::Refused { zone, why: events::RefusalReason::Busy, count: 1 });
    bus.publish(events::Limited { zone, call: events::LimitedCall::Join, count: 1, retry_after_s: 1 });
    bus.publish(events::Tallied {
        zone,
        admit_per_minute: 600,
        waiting: 1,
        present: 1,
        joined: 7,
        entered: 5,
        evicted: 1,
        slots_offered: 5,
        slots_used: 5,
    });
    let call = events::StoreCall::Beat;
    bus.publish(events::StoreCalled { zone, call, took_us: 90, tickets: 1, ok: true });
    bus.publish(events::StoreLost { zone });
    bus.publish(events::StoreBack { zone, away_ms: 10 });
    bus.publish(events::AdmittedWithoutStore { zone, total: 1 });
    bus.publish(events::Reloaded { ok: true });
    let entry = events::AdmittedEntry { seq: 5, entered_unix_s: 1_790_000_000, at_ms: 2 };
    bus.publish(events::Admitted { zone, epoch: 1, entry, policy });
}
