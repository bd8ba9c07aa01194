//! The register of zones: what servers that share a Redis can rely on. Each store object acts as a server.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use admission::{Definition, Event, Mode, Moment, Notice, Policy, Schedule, ZoneId};
use bytes::Bytes;
use store::{
    Defined, Expected, Line as _, RegisterContents, RoutesDefined, Store as _, StoreError,
    redis::{
        Durability, Redis,
        address::Settings,
        client::{Client as _, Value},
        scripts,
    },
};

use crate::{
    backend::{Backend as _, InRedis, Servers},
    behaviour::{enter, entry, eventually, policy, with},
    drawn::drawn_event,
};

/// The register's key; see `lua/register.lua`.
const REGISTER: &str = "weir:v1:{zones}";

fn saying(policy: Policy, text: &str) -> Definition {
    let notice = Notice::new([("en", text), ("ko", "안내\n둘째 줄")]).expect("a notice");
    Definition { notice, ..policy.into() }
}

fn named(zone: &ZoneId, name: &str) -> ZoneId {
    ZoneId::parse(&format!("{zone}-{name}")).expect("a name")
}

fn kept<const N: usize>(zones: [(&ZoneId, &Definition); N]) -> Option<RegisterContents> {
    let zones = zones.map(|(zone, definition)| (zone.clone(), definition.clone())).to_vec();
    Some(RegisterContents { zones, ..RegisterContents::default() })
}

async fn define(store: &Arc<Redis>, zone: &ZoneId, definition: &Definition) {
    let done = store.define(zone, &Expected::Any, Some(definition)).await.expect("answered");
    assert!(matches!(done, Defined::Done(_)), "{done:?}");
}

pub(crate) async fn of_changes_that_expect_the_same_one_is_made(backend: &InRedis, zone: &ZoneId) {
    let (a, b) = (backend.open().await, backend.open().await);
    let mut before = None;
    for round in 1..=20 {
        let expected = before.as_ref().map_or(Expected::Absent, |now: &Definition| Expected::Tag(now.etag()));
        let [one, other] = [round, 1_000 * round]
            .map(|n| saying(Policy { admit_per_minute: n, ..policy() }, &format!("{n}")));
        // Sometimes both want the same definition; still only one change is made.
        let other = if round % 5 == 0 { one.clone() } else { other };
        let (by_a, by_b) =
            tokio::join!(a.define(zone, &expected, Some(&one)), b.define(zone, &expected, Some(&other)));
        let made = match (by_a.expect("answered"), by_b.expect("answered")) {
            (Defined::Done(was), Defined::Otherwise(now)) if now.as_ref() == Some(&one) => (was, one),
            (Defined::Otherwise(now), Defined::Done(was)) if now.as_ref() == Some(&other) => (was, other),
            both => panic!("round {round}: {both:?}"),
        };
        assert_eq!(made.0, before, "round {round}");
        before = Some(made.1);
    }
    for store in [&a, &b] {
        let Some(RegisterContents { zones, .. }) = store.zones().await.expect("lists") else {
            panic!("it keeps zones")
        };
        assert_eq!(zones.iter().find(|(kept, _)| kept == zone).map(|(_, now)| now), before.as_ref());
    }
}

pub(crate) async fn what_is_not_as_expected_is_not_changed(backend: &InRedis, zone: &ZoneId) {
    let store = backend.open().await;
    let [first, second] = ["a", "b"].map(|text| saying(policy(), text));
    let define = async |expected, new: Option<&Definition>| {
        store.define(zone, &expected, new).await.expect("answered")
    };
    let tag = |of: &Definition| Expected::Tag(of.etag());
    assert_eq!(define(Expected::Any, Some(&first)).await, Defined::Otherwise(None));
    assert_eq!(define(tag(&first), Some(&first)).await, Defined::Otherwise(None));
    assert_eq!(define(Expected::Absent, Some(&first)).await, Defined::Done(None));
    assert_eq!(define(Expected::Absent, Some(&second)).await, Defined::Otherwise(Some(first.clone())));
    assert_eq!(define(tag(&second), None).await, Defined::Otherwise(Some(first.clone())));
    assert_eq!(define(tag(&first), Some(&second)).await, Defined::Done(Some(first)));
    assert_eq!(define(Expected::Any, None).await, Defined::Done(Some(second)));
    assert_eq!(define(Expected::Any, None).await, Defined::Otherwise(None));
}

pub(crate) async fn deleted_zone_is_not_brought_back_by_opening_it(backend: &InRedis, zone: &ZoneId) {
    let (a, b) = (backend.open().await, backend.open().await);
    let definition = saying(with(Mode::Hold), "a");
    a.define(zone, &Expected::Absent, Some(&definition)).await.expect("answered");
    let epoch = b.line(zone).open(policy()).await.expect("opened").epoch;
    b.line(zone).join(3).await.expect("joins");
    a.define(zone, &Expected::Any, None).await.expect("answered");
    // A server that has not heard of it.
    assert_eq!(b.line(zone).beat(Vec::new(), 0).await.expect("answered").policy.mode, Mode::Closed);
    assert_eq!(b.line(zone).open(definition.policy).await.expect_err("deleted"), StoreError::UnknownZone);
    for store in [&a, &b] {
        let kept = store.zones().await.expect("lists").expect("it keeps zones");
        assert!(!kept.zones.iter().any(|(kept, _)| kept == zone), "{kept:?}");
    }
    // The line has the same people.
    a.define(zone, &Expected::Absent, Some(&definition)).await.expect("answered");
    let view = b.line(zone).open(policy()).await.expect("opened");
    assert_eq!((view.epoch, view.tally.waiting, view.policy.mode), (epoch, 3, Mode::Hold));
}

async fn admits_at_once(store: &Arc<Redis>, zone: &ZoneId) {
    let joined = store.line(zone).join(1).await.expect("joins");
    let decided = enter(store, zone, joined.epoch, joined.first..joined.first + 1).await;
    entry(&decided.verdicts[0]);
}

/// A server that has not heard of a new zone may find it in the register at any instant.
pub(crate) async fn new_zone_admits_people_at_once_whoever_opens_it_first(backend: &InRedis, zone: &ZoneId) {
    const ZONES: usize = 20;
    let watch = async |store: Arc<Redis>, count: usize| {
        let mut opened = BTreeSet::new();
        while opened.len() < count {
            for (found, _) in store.zones().await.expect("lists").expect("it keeps zones").zones {
                if found.as_str().starts_with(&format!("{zone}-")) && opened.insert(found.clone()) {
                    store.line(&found).open(policy()).await.expect("opened");
                }
            }
        }
    };
    let create = async |store: Arc<Redis>, of: &str| {
        for i in 0..ZONES {
            let new = named(zone, &format!("{of}{i}"));
            let done = store.define(&new, &Expected::Absent, Some(&policy().into())).await.expect("answered");
            assert_eq!(done, Defined::Done(None));
        }
    };
    let (a, b) = (backend.open().await, backend.open().await);
    let (c, d) = (backend.open().await, backend.open().await);
    // Servers that create zones see those of others, too.
    tokio::join!(
        create(Arc::clone(&a), "A"),
        create(Arc::clone(&b), "B"),
        watch(Arc::clone(&a), 2 * ZONES),
        watch(Arc::clone(&c), 2 * ZONES),
        watch(Arc::clone(&d), 2 * ZONES),
    );
    for (of, i) in ["A", "B"].into_iter().flat_map(|of| (0..ZONES).map(move |i| (of, i))) {
        admits_at_once(&c, &named(zone, &format!("{of}{i}"))).await;
    }
}

/// Without a state, nobody would enter in its first minute. In a cluster the register answers all the while.
pub(crate) async fn a_zone_whose_state_cannot_be_created_is_not_defined(backend: &InRedis, zone: &ZoneId) {
    let servers = Servers::start(backend.servers.topology());
    let settings = Settings { command_timeout: Duration::from_millis(500), ..backend.settings() };
    let store = servers.connect(&settings, Durability::Async).await;
    let of_register = servers.holder(REGISTER);
    let holder = |zone: &ZoneId| servers.holder(&format!("{{{zone}}}"));
    let names = (0..100).map(|i| named(zone, &format!("{i}")));
    let new = names.max_by_key(|new| holder(new) != of_register).expect("names");
    servers.stop(holder(&new));
    let refused = store.define(&new, &Expected::Absent, Some(&policy().into())).await;
    servers.cont(holder(&new));
    assert!(matches!(refused, Err(StoreError::Away(_))), "{refused:?}");
    // As one that waits for a busy machine: a change whose answer is lost would be made, and count as another's.
    let store = servers.connect(&backend.settings(), Durability::Async).await;
    let kept = eventually("Redis answers", || async { store.zones().await.ok() }).await;
    assert_eq!(kept.expect("it keeps zones").zones, []);
    let made = eventually("it is created", || async {
        store.define(&new, &Expected::Absent, Some(&policy().into())).await.ok()
    });
    assert_eq!(made.await, Defined::Done(None));
    store.line(&new).open(policy()).await.expect("opened");
    admits_at_once(&store, &new).await;
}

/// A server stands still just before it creates the state of a zone. Meanwhile another one may have created it, people may have entered, and
/// that state may have been lost.
pub(crate) async fn a_state_is_created_as_new_only_with_a_mark(backend: &InRedis, zone: &ZoneId) {
    let store = backend.open().await;
    let prefix = format!("weir:v1:{{{zone}}}:");
    let fixed = ["z", "log", "due", "seg", "on", "t1", "t2", "srv", "new"]
        .map(|key| Bytes::from(format!("{prefix}{key}")));
    let call = async |mark: &str, policy: &str| {
        let args = ["0", "0", "0", "0", "0", "", "0", mark].into_iter().chain(policy.split_terminator(' '));
        let args = args.map(|text| Bytes::copy_from_slice(text.as_bytes())).collect();
        let answer = store.client().run(&scripts::NEW, fixed.to_vec(), args, None).await.expect("answered");
        let Value::Array(parts) = answer else { panic!("{answer:?}") };
        parts
    };
    let says = |text: &'static str| vec![Value::Bytes(text.into())];
    let holder = backend.servers.holder(&format!("{prefix}z"));
    let exists = || backend.servers.command(holder, &["EXISTS", &format!("{prefix}z")]).int() == 1;
    let rules = "0 600 10 3000 60 300 0 60 0 0 0";
    assert_eq!(call("a", rules).await, says("0"), "no mark");
    assert_eq!(call("a", "").await, says("a"));
    assert_eq!(call("b", "").await, says("a"), "two servers share it");
    backend.servers.command(holder, &["DEL", &format!("{prefix}new")]);
    assert_eq!(call("a", rules).await, says("0"), "it was lost, and a state may have been");
    assert!(!exists());
    assert_eq!(call("b", "").await, says("b"));
    assert_eq!(call("b", rules).await, says("1"));
    assert!(exists());
    assert_eq!(call("b", rules).await, says("1"), "sent again");
    assert_eq!(call("c", "").await, says(""), "there is a state");
}

/// However long a change is on its way: it is made before the event begins, or not at all.
pub(crate) async fn draw_that_has_begun_is_not_moved(backend: &InRedis, zone: &ZoneId) {
    let store = backend.open().await;
    let with = |event: Event| {
        let schedule = Schedule::new(vec![event], &policy()).expect("a schedule");
        Definition { schedule, ..policy().into() }
    };
    let later = |text| Moment::parse(text).expect("an instant");
    let to_come = Event { begins: later("2098-01-01T00:00:00Z"), ..drawn_event("sale") };
    store.define(zone, &Expected::Absent, Some(&with(to_come))).await.expect("answered");
    // It has not begun: it may be moved, also into the past.
    define(&store, zone, &with(drawn_event("sale"))).await;

    let frozen = Defined::Frozen(ZoneId::parse("sale").expect("a name"));
    let moved = with(Event { begins: later("2099-01-01T00:00:00Z"), ..drawn_event("sale") });
    let by_arrival = with(Event { draw: None, ..drawn_event("sale") });
    for new in [Some(&moved), Some(&by_arrival), None] {
        let answer = store.define(zone, &Expected::Any, new).await.expect("answered");
        assert_eq!(answer, frozen, "{new:?}");
    }
    let over = with(Event { ends: later("2026-01-03T00:00:00Z"), ..drawn_event("sale") });
    define(&store, zone, &over).await;
    define(&store, zone, &by_arrival).await;
}

pub(crate) async fn change_that_is_sent_again_is_made_once(backend: &InRedis, zone: &ZoneId) {
    let store = backend.open().await;
    let rev = || {
        let holder = backend.servers.holder(REGISTER);
        backend.servers.command(holder, &["HGET", REGISTER, zone.as_str()]).text()
    };
    let send = async |made: &str, expected: &'static str, new: &'static str| {
        let keys = [REGISTER.to_owned(), format!("{REGISTER}:made:{zone}{made}")].map(Bytes::from);
        let texts = ["0", "0", zone.as_str(), expected, new, "60"];
        let args = texts.map(|text| Bytes::copy_from_slice(text.as_bytes())).to_vec();
        let answer = store.client().run(&scripts::DEFINE, keys.to_vec(), args, None).await.expect("answered");
        let Value::Array(parts) = answer else { panic!("{answer:?}") };
        parts[0].clone()
    };
    let (done, not) = (Value::Bytes("1".into()), Value::Bytes("0".into()));
    let [first, second] = ["1 600 10 3000 60 300 1", "1 700 10 3000 60 300 1"];
    assert_eq!(send("a", "", first).await, done);
    assert_eq!(send("a", "", first).await, done, "the same one, whose answer was lost");
    assert_eq!(send("b", "", second).await, not, "another one");
    assert_eq!(send("c", first, second).await, done);
    assert_eq!(send("a", "", first).await, done);
    assert_eq!(rev(), second, "not made again");
}

/// Uses its own register, because the test reads all zones.
pub(crate) async fn register_that_is_lost_comes_back_whole(backend: &InRedis, zone: &ZoneId) {
    let servers = Servers::start(backend.servers.topology());
    let holder = servers.holder(REGISTER);
    let connect = async || servers.connect(&backend.settings(), Durability::Async).await;
    let [x, y, file] = ["X", "Y", "FILE"].map(|name| named(zone, name));
    let [first, second] = ["a", "b"].map(|text| saying(with(Mode::Hold), text));
    let of_file = [(file.clone(), Definition::from(policy()))];

    // A server without a memory creates the register, once.
    let (a, b) = (connect().await, connect().await);
    assert_eq!(Some(a.begin(&of_file).await.expect("begins")), kept([(&file, &of_file[0].1)]));
    let none = b.begin(&[(x.clone(), policy().into())]).await.expect("there is one");
    assert_eq!(Some(none), kept([(&file, &of_file[0].1)]));
    a.define(&file, &Expected::Any, None).await.expect("answered");
    a.define(&x, &Expected::Absent, Some(&first)).await.expect("answered");
    a.define(&y, &Expected::Absent, Some(&first)).await.expect("answered");
    b.define(&y, &Expected::Any, None).await.expect("answered");
    b.define(&x, &Expected::Any, Some(&second)).await.expect("answered");
    let all = kept([(&x, &second)]);
    assert_eq!(a.zones().await.expect("lists"), all);

    // After a wipe the zones come back with their notices, and deleted zones stay deleted.
    servers.command(holder, &["DEL", REGISTER]);
    assert_eq!(a.zones().await.expect("lists"), all);
    assert_eq!(b.zones().await.expect("lists"), all);

    // A failover lost the last changes.
    let older = servers.command(holder, &["HGETALL", REGISTER]);
    let older: Vec<String> = older.parts().iter().map(|part| part.text()).collect();
    a.define(&x, &Expected::Any, Some(&first)).await.expect("answered");
    a.define(&y, &Expected::Absent, Some(&second)).await.expect("answered");
    let all = kept([(&x, &first), (&y, &second)]);
    assert_eq!(b.zones().await.expect("lists"), all);
    let put: Vec<&str> = ["HSET", REGISTER].into_iter().chain(older.iter().map(String::as_str)).collect();
    servers.command(holder, &["DEL", REGISTER]);
    servers.command(holder, &put);
    let change = b.define(&x, &Expected::Tag(first.etag()), Some(&second)).await.expect("answered");
    assert_eq!(change, Defined::Done(Some(first)), "by what is remembered");
    let all = kept([(&x, &second), (&y, &second)]);
    assert_eq!(a.zones().await.expect("lists"), all);

    // A server without a memory created it again. The servers that remember more are right.
    servers.command(holder, &["DEL", REGISTER]);
    let rev = servers.command(holder, &["EVAL", "return redis.call('TIME')[1]", "0"]).text();
    let later = (rev.parse::<u64>().expect("seconds") / 60 - 29_453_760 + 5) << 28 | 77;
    let (later, text) = (later.to_string(), "0 1 10 3000 60 300 0");
    servers.command(holder, &["HSET", REGISTER, "#rev", &later, file.as_str(), text]);
    let fresh = connect().await;
    assert_eq!(fresh.zones().await.expect("lists").expect("kept").zones[0].0, file);
    assert_eq!(a.zones().await.expect("lists"), all);
    assert_eq!(fresh.zones().await.expect("lists"), all, "its own register is newer");

    // A register that was emptied by deleting stays empty.
    for zone in [&x, &y] {
        a.define(zone, &Expected::Any, None).await.expect("answered");
    }
    let fresh = connect().await;
    for store in [&fresh, &a, &b] {
        assert_eq!(store.zones().await.expect("lists"), kept([]));
        assert_eq!(Some(store.begin(&of_file).await.expect("answered")), kept([]));
    }
}

/// Of two servers that find the register lost, the first one may know less than the other. Uses its own register, because
/// the test reads all zones.
pub(crate) async fn who_knows_a_later_change_writes_it_back(backend: &InRedis, zone: &ZoneId) {
    let servers = Servers::start(backend.servers.topology());
    let holder = servers.holder(REGISTER);
    let connect = async || servers.connect(&backend.settings(), Durability::Async).await;
    let x = named(zone, "X");
    let [first, second] = ["a", "b"].map(|text| saying(with(Mode::Hold), text));
    let (knows, older) = (connect().await, connect().await);
    knows.define(&x, &Expected::Absent, Some(&first)).await.expect("answered");
    assert_eq!(older.zones().await.expect("lists"), kept([(&x, &first)]));
    knows.define(&x, &Expected::Any, Some(&second)).await.expect("answered");

    // Also if the register is lost again before the other one speaks.
    for losses in 1..=3 {
        for _ in 0..losses {
            servers.command(holder, &["DEL", REGISTER]);
            assert_eq!(older.zones().await.expect("lists"), kept([(&x, &first)]), "all that it knows");
        }
        for store in [&knows, &older, &knows, &older, &older] {
            assert_eq!(store.zones().await.expect("lists"), kept([(&x, &second)]), "{losses} losses");
        }
        // For the next round `knows` alone has a change again, upon a register that was written back.
        knows.define(&x, &Expected::Any, Some(&first)).await.expect("answered");
        assert_eq!(older.zones().await.expect("lists"), kept([(&x, &first)]));
        knows.define(&x, &Expected::Any, Some(&second)).await.expect("answered");
    }
}

/// A server that knows less writes the register back, and a zone is changed before one that knows more speaks: the change counts, and for
/// all other zones what the latter knows. Uses its own register, because the test reads all zones.
pub(crate) async fn a_change_of_a_register_that_knew_less_counts_alone(backend: &InRedis, zone: &ZoneId) {
    let servers = Servers::start(backend.servers.topology());
    let holder = servers.holder(REGISTER);
    let connect = async || servers.connect(&backend.settings(), Durability::Async).await;
    let [a, b, c, gone] = ["A", "B", "C", "GONE"].map(|name| named(zone, name));
    let [first, second, third] = ["a", "b", "c"].map(|text| saying(with(Mode::Hold), text));
    let (most, more, older) = (connect().await, connect().await, connect().await);
    for zone in [&a, &b, &c, &gone] {
        most.define(zone, &Expected::Absent, Some(&first)).await.expect("answered");
    }
    assert_eq!(older.zones().await.expect("lists").expect("kept").zones.len(), 4);
    define(&most, &a, &second).await;
    most.define(&gone, &Expected::Any, None).await.expect("answered");
    assert_eq!(more.zones().await.expect("lists"), kept([(&a, &second), (&b, &first), (&c, &first)]));
    define(&most, &c, &second).await;

    servers.command(holder, &["DEL", REGISTER]);
    define(&older, &b, &second).await;
    define(&older, &b, &third).await;
    let merged = kept([(&a, &second), (&b, &third), (&c, &first)]);
    for store in [&more, &older, &more] {
        assert_eq!(store.zones().await.expect("lists"), merged);
    }
    define(&older, &a, &third).await;
    let merged = kept([(&a, &third), (&b, &third), (&c, &second)]);
    for store in [&most, &older, &more, &most, &connect().await] {
        assert_eq!(store.zones().await.expect("lists"), merged);
    }

    // A loss of all that brings nothing back that was changed.
    let asleep = connect().await;
    assert_eq!(asleep.zones().await.expect("lists"), merged);
    define(&older, &c, &third).await;
    let all = kept([(&a, &third), (&b, &third), (&c, &third)]);
    assert_eq!(most.zones().await.expect("lists"), all);
    servers.command(holder, &["DEL", REGISTER]);
    for store in [&most, &asleep, &older, &more, &most] {
        assert_eq!(store.zones().await.expect("lists"), all);
    }
}

/// Two servers began a register in the same minute, because Redis was emptied in between. The earlier one is right, however many
/// changes each of them had. Uses its own register, because the test reads all zones.
pub(crate) async fn lives_of_one_minute_are_told_apart(backend: &InRedis, zone: &ZoneId) {
    let servers = Servers::start(backend.servers.topology());
    let holder = servers.holder(REGISTER);
    let connect = async || servers.connect(&backend.settings(), Durability::Async).await;
    let all = || {
        let fields = servers.command(holder, &["HGETALL", REGISTER]);
        fields.parts().iter().map(|part| part.text()).collect::<Vec<String>>()
    };
    let replace = |by: &[String]| {
        // In one step, so that no server finds it missing in between.
        let put = "redis.call('DEL', KEYS[1]) return redis.call('HSET', KEYS[1], unpack(ARGV))";
        let fields = by.iter().map(String::as_str);
        let put: Vec<&str> = ["EVAL", put, "1", REGISTER].into_iter().chain(fields).collect();
        servers.command(holder, &put);
    };
    let [x, new] = ["X", "NEW"].map(|name| named(zone, name));
    let [first, second] = ["a", "b"].map(|text| saying(with(Mode::Hold), text));
    for (changes_of_first, changes_of_second) in [(0, 0), (4, 0), (0, 4), (2, 2)] {
        let change = async |store: &Arc<Redis>, zone: &ZoneId, to: &Definition, times: u32| {
            for admit_per_minute in 1..=times {
                let definition = saying(Policy { admit_per_minute, ..policy() }, "c");
                define(store, zone, &definition).await;
            }
            define(store, zone, to).await;
        };
        servers.command(holder, &["DEL", REGISTER]);
        let of_first = connect().await;
        of_first.begin(&[(x.clone(), policy().into())]).await.expect("begins");
        change(&of_first, &x, &first, changes_of_first).await;
        let backup = all();

        // It is lost, and a server that does not know it begins another one.
        servers.command(holder, &["DEL", REGISTER]);
        let of_second = connect().await;
        let zones = [(x.clone(), policy().into()), (new.clone(), policy().into())];
        of_second.begin(&zones).await.expect("begins");
        change(&of_second, &x, &second, changes_of_second).await;
        let lives = format!("{changes_of_first} and {changes_of_second} changes");
        let is_of_second = of_second.zones().await.expect("lists");
        assert_eq!(is_of_second, kept([(&new, &policy().into()), (&x, &second)]), "{lives}");
        let other = all();

        // The backup is restored.
        replace(&backup);
        for store in [&of_second, &of_first, &connect().await] {
            assert_eq!(store.zones().await.expect("lists"), kept([(&x, &first)]), "{lives}");
        }
        // A server that knows the earlier one finds the later one, and writes the earlier one back.
        replace(&other);
        for store in [&of_first, &connect().await, &of_second] {
            assert_eq!(store.zones().await.expect("lists"), kept([(&x, &first)]), "{lives}: found");
        }
    }
}

/// A register of an old version: without notices, and with revisions that do not start with a minute.
pub(crate) async fn register_of_before_is_read_and_written(backend: &InRedis, zone: &ZoneId) {
    let servers = Servers::start(backend.servers.topology());
    let holder = servers.holder(REGISTER);
    let text = "1 600 10 3000 60 300 0";
    servers.command(holder, &["HSET", REGISTER, "#rev", "3", zone.as_str(), text, "#later", "anything"]);
    let connect = async || servers.connect(&backend.settings(), Durability::Async).await;
    let (a, b) = (connect().await, connect().await);
    let of_before = Definition::from(with(Mode::Hold));
    assert_eq!(a.zones().await.expect("lists"), kept([(zone, &of_before)]));
    let expected = Expected::Tag(of_before.etag());
    let said = saying(with(Mode::Hold), "a");
    for now in [&said, &of_before] {
        let done = a.define(zone, &Expected::Any, Some(now)).await.expect("answered");
        assert!(matches!(done, Defined::Done(_)), "{done:?}");
        assert_eq!(b.zones().await.expect("lists"), kept([(zone, now)]));
    }
    assert_eq!(servers.command(holder, &["HGET", REGISTER, zone.as_str()]).text(), text, "written as before");
    assert_eq!(servers.command(holder, &["HGET", REGISTER, "#rev"]).text(), "5");
    assert_eq!(
        servers.command(holder, &["HGET", REGISTER, "#format"]).text(),
        "1",
        "it says its version from now on"
    );
    // Another version wrote it differently, with the same meaning.
    servers.command(holder, &["HSET", REGISTER, "#rev", "6", zone.as_str(), "1 600 10 3000 60 300 0 0 0"]);
    let done = b.define(zone, &expected, Some(&said)).await.expect("answered");
    assert_eq!(done, Defined::Done(Some(of_before)));
    // An old server lost it and wrote it back.
    assert_eq!(a.zones().await.expect("lists"), kept([(zone, &said)]));
    servers.command(holder, &["DEL", REGISTER]);
    servers.command(holder, &["HSET", REGISTER, "#rev", "1", zone.as_str(), text]);
    assert_eq!(a.zones().await.expect("lists"), kept([(zone, &said)]));
}

/// A register that says a later format is neither read nor changed, also not by a server that knows more than it, and it goes on when the
/// servers are upgraded.
pub(crate) async fn register_of_a_later_version_is_left_alone(backend: &InRedis, zone: &ZoneId) {
    let servers = Servers::start(backend.servers.topology());
    let holder = servers.holder(REGISTER);
    let connect = async || servers.connect(&backend.settings(), Durability::Async).await;
    let (a, b) = (connect().await, connect().await);
    let first = Definition::from(with(Mode::Hold));
    a.define(zone, &Expected::Absent, Some(&first)).await.expect("answered");
    assert_eq!(a.zones().await.expect("lists"), kept([(zone, &first)]));
    // It lacks the zone, too, so that a server would write it back.
    servers.command(holder, &["HINCRBY", REGISTER, "#rev", "-1"]);
    servers.command(holder, &["HSET", REGISTER, "#format", "2"]);
    servers.command(holder, &["HDEL", REGISTER, zone.as_str()]);
    let dump = || {
        servers
            .command(holder, &["EVAL", "return redis.sha1hex(redis.call('DUMP', KEYS[1]))", "1", REGISTER])
            .text()
    };
    let later = dump();
    let other = saying(with(Mode::Open), "a");
    for store in [&a, &b] {
        let refused = [
            store.zones().await.map(drop),
            store.begin(&[(zone.clone(), first.clone())]).await.map(drop),
            store.define(zone, &Expected::Any, Some(&other)).await.map(drop),
            store.define_routes(None, "x").await.map(drop),
        ];
        for refused in refused {
            let Err(StoreError::Away(text)) = refused else { panic!("not refused: {refused:?}") };
            assert_eq!(
                text,
                "a newer version of Weir wrote it: the register of zones has format 2, and this version knows 1; upgrade this server"
            );
        }
    }
    assert_eq!(dump(), later, "something was touched");
    servers.command(holder, &["HSET", REGISTER, "#format", "1"]);
    assert_eq!(a.zones().await.expect("lists"), kept([(zone, &first)]));
    assert_eq!(b.zones().await.expect("lists"), kept([(zone, &first)]));
}

/// Two registers with different changes may have the same revision. The servers notice it.
pub(crate) async fn equal_revisions_of_different_pasts_are_found(backend: &InRedis, zone: &ZoneId) {
    let servers = Servers::start(backend.servers.topology());
    let holder = servers.holder(REGISTER);
    let store = servers.connect(&backend.settings(), Durability::Async).await;
    store.define(zone, &Expected::Absent, Some(&policy().into())).await.expect("answered");
    servers.command(holder, &["HSET", REGISTER, zone.as_str(), "1 600 10 3000 60 300 0"]);
    let found = async || store.zones().await.expect("lists") == kept([(zone, &with(Mode::Hold).into())]);
    let mut asked = 1;
    while !found().await {
        asked += 1;
        assert!(asked <= 20, "at two questions a second, that is 10 s");
    }
}

/// Somebody writes nonsense into the register past the servers. A server that knows better writes it back; one that does not know says
/// what is wrong. Uses its own register, because the test reads all zones.
pub(crate) async fn a_spoiled_entry_is_written_back(backend: &InRedis, zone: &ZoneId) {
    let servers = Servers::start(backend.servers.topology());
    let holder = servers.holder(REGISTER);
    let connect = async || servers.connect(&backend.settings(), Durability::Async).await;
    let knows = connect().await;
    let [first, second] = ["a", "b"].map(|text| saying(with(Mode::Hold), text));
    let other = named(zone, "OTHER");
    for zone in [zone, &other] {
        knows.define(zone, &Expected::Absent, Some(&first)).await.expect("answered");
    }
    let all = kept([(zone, &first), (&other, &first)]);
    assert_eq!(knows.zones().await.expect("lists"), all);
    servers
        .command(holder, &["HSET", REGISTER, zone.as_str(), "garbage", other.as_str(), "1\n2", "a b", "x"]);

    let told = connect().await.zones().await.expect_err("it does not know better").to_string();
    assert!(told.contains("its field `") && told.contains("HDEL"), "{told}");
    for _ in 0..20 {
        assert_eq!(knows.zones().await.expect("no question fails"), all, "at two questions a second, 10 s");
    }
    for store in [&connect().await, &knows] {
        assert_eq!(store.zones().await.expect("lists"), all);
    }
    let fields = servers.command(holder, &["HKEYS", REGISTER]);
    assert!(!fields.parts().iter().any(|field| field.text() == "a b"), "{fields:?}");

    // Another server's change comes in between. Whoever made it has the revision that it led to.
    servers.command(holder, &["HSET", REGISTER, zone.as_str(), "garbage"]);
    define(&knows, &other, &second).await;
    for _ in 0..20 {
        knows.zones().await.expect("no question fails");
    }
    let all = kept([(zone, &first), (&other, &second)]);
    assert_eq!(connect().await.zones().await.expect("lists"), all);

    // A text that came with another revision may be a later version's, and stays.
    servers.command(holder, &["HSET", REGISTER, zone.as_str(), "9 9 9 9"]);
    servers.command(holder, &["HINCRBY", REGISTER, "#rev", "1"]);
    for _ in 0..20 {
        knows.zones().await.expect_err("it cannot be read");
    }
    assert_eq!(servers.command(holder, &["HGET", REGISTER, zone.as_str()]).text(), "9 9 9 9");

    // A revision that is no number is none.
    servers.command(holder, &["HSET", REGISTER, zone.as_str(), "garbage", "#rev", "garbage"]);
    assert_eq!(knows.zones().await.expect("it is lost, and written back"), all);
}

/// Uses its own register, because the test reads all of it.
pub(crate) async fn routes_are_changed_once_and_come_back_with_the_zones(backend: &InRedis, zone: &ZoneId) {
    let servers = Servers::start(backend.servers.topology());
    let holder = servers.holder(REGISTER);
    let connect = async || servers.connect(&backend.settings(), Durability::Async).await;
    let (a, b) = (connect().await, connect().await);
    a.define(zone, &Expected::Absent, Some(&policy().into())).await.expect("answered");
    let mut before: Option<String> = None;
    for round in 0..10 {
        let [one, other] = [round, 100 + round].map(|n| format!("[{n}]"));
        let was = before.as_deref();
        let (by_a, by_b) = tokio::join!(a.define_routes(was, &one), b.define_routes(was, &other));
        before = Some(match (by_a.expect("answered"), by_b.expect("answered")) {
            (RoutesDefined::Done, RoutesDefined::Otherwise(Some(now))) if *now == *one => one,
            (RoutesDefined::Otherwise(Some(now)), RoutesDefined::Done) if *now == *other => other,
            both => panic!("round {round}: {both:?}"),
        });
    }
    let all = Some(RegisterContents {
        zones: vec![(zone.clone(), policy().into())],
        routes: before.as_deref().map(Into::into),
        ..RegisterContents::default()
    });
    for store in [&a, &b, &connect().await] {
        assert_eq!(store.zones().await.expect("lists"), all);
    }
    // Redis loses the last change, and then everything.
    let older = servers.command(holder, &["HGETALL", REGISTER]);
    let older: Vec<String> = older.parts().iter().map(|part| part.text()).collect();
    a.define_routes(before.as_deref(), "[\"last\"]").await.expect("answered");
    let all = all.map(|kept| RegisterContents { routes: Some("[\"last\"]".into()), ..kept });
    servers.command(holder, &["DEL", REGISTER]);
    let put: Vec<&str> = ["HSET", REGISTER].into_iter().chain(older.iter().map(String::as_str)).collect();
    servers.command(holder, &put);
    for store in [&a, &b, &connect().await] {
        assert_eq!(store.zones().await.expect("lists"), all);
    }
    servers.command(holder, &["DEL", REGISTER]);
    for store in [&b, &a, &connect().await] {
        assert_eq!(store.zones().await.expect("lists"), all);
    }
    // A change of a zone leaves them as they are.
    b.define(zone, &Expected::Any, None).await.expect("answered");
    assert_eq!(
        a.zones().await.expect("lists").and_then(|kept| kept.routes),
        all.and_then(|kept| kept.routes)
    );
}
