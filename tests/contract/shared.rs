//! What servers that share a Redis can rely on, in addition to the behaviour of one. Each store object acts as a server.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use admission::{
    Claim, Departure, JoinKey, Joined, Leaver, Mode, PagePolls, Policy, Position, Proof, Verdict, ZoneId,
};
use store::{
    Line as _, RegisterContents, Store as _, StoreError,
    redis::{Durability, Redis, address::Settings},
};

use crate::{
    acl,
    backend::{Backend as _, InRedis, Servers},
    behaviour::{claims, enter, entry, eventually, fill, inside, pages, policy, ranks, with},
    redis::{Options, Standalone},
};

/// The register's key; see `lua/zones.lua`.
const REGISTER: &str = "weir:v1:{zones}";

/// Also where the value of a key is none that a script has written.
pub(crate) async fn a_join_is_repeated_at_another_server(backend: &InRedis, zone: &ZoneId) {
    let (a, b) = (backend.open().await, backend.open().await);
    let epoch = a.line(zone).put(with(Mode::Hold)).await.expect("put").epoch;
    b.line(zone).open(policy()).await.expect("opened");
    let key = || vec![Some(JoinKey([7; 16]))];
    assert_eq!(a.line(zone).join_once(key()).await.expect("joins").earlier, [None]);
    let again = b.line(zone).join_once(key()).await.expect("joins");
    assert_eq!(again.earlier[0].map(|ticket| (ticket.epoch, ticket.seq)), Some((epoch, 0)));
    let name = format!("weir:v1:{{{zone}}}:key:{}", "\u{7}".repeat(16));
    let holder = backend.servers.holder(&format!("{{{zone}}}"));
    let command = |words: &[&str]| backend.servers.command(holder, words);
    let left_ms = command(&["PTTL", &name]).int();
    assert!((1..=120_000).contains(&left_ms), "{left_ms}");
    command(&["SET", &name, "spoilt"]);
    let spoilt = b.line(zone).join_once(key()).await.expect("joins");
    assert_eq!((spoilt.earlier, spoilt.joined.first), (vec![None], 1));
    command(&["DEL", &name]);
    command(&["SADD", &name, "another type"]);
    let other_type = a.line(zone).join_once(key()).await.expect("joins");
    assert_eq!((other_type.earlier, other_type.joined.first), (vec![None], 2));
    assert_eq!(
        b.line(zone).join_once(key()).await.expect("joins").earlier[0].map(|ticket| ticket.seq),
        Some(2)
    );
}

pub(crate) async fn two_servers_have_one_line(backend: &InRedis, zone: &ZoneId) {
    const BATCH: u32 = 15;
    let (a, b) = (backend.open().await, backend.open().await);
    let epoch = a.line(zone).put(policy()).await.expect("put").epoch;
    assert_eq!(b.line(zone).open(policy()).await.expect("opened").epoch, epoch);
    // Both at once, with several calls of each in flight.
    let join = async |store: &Arc<Redis>| store.line(zone).join(BATCH).await.expect("joins");
    let mut first = BTreeSet::new();
    for _ in 0..10 {
        let joined: [Joined; 4] = tokio::join!(join(&a), join(&b), join(&a), join(&b)).into();
        for joined in joined {
            assert!(first.insert(joined.first), "number {} was given out twice", joined.first);
            joined.verdicts.iter().for_each(|verdict| {
                entry(verdict);
            });
        }
    }
    assert!(first.into_iter().eq((0..600).step_by(15)), "all numbers, each once");

    // Both share the slots of the minute.
    assert_eq!(ranks(&a.line(zone).join(2).await.expect("joins").verdicts), [1, 2]);
    assert_eq!(ranks(&b.line(zone).join(2).await.expect("joins").verdicts), [3, 4]);
    for store in [&a, &b] {
        let verdicts = store.line(zone).enter(claims(epoch, 600..604)).await.expect("decided").verdicts;
        assert_eq!(ranks(&verdicts), [1, 2, 3, 4]);
        let tally = store.line(zone).beat(Vec::new(), 0).await.expect("beats").tally;
        assert_eq!((tally.joined, tally.entered, tally.waiting), (604, 600, 4));
    }

    // An entry through one server counts for the other, and is not ahead of anybody any more.
    a.line(zone).put(with(Mode::Open)).await.expect("put");
    let by_a = a.line(zone).enter(claims(epoch, [600, 601])).await.expect("decided").verdicts;
    let view = b.line(zone).beat(Vec::new(), 0).await.expect("beats");
    assert_eq!((view.tally.entered, view.tally.waiting), (602, 2));
    let rank = |seq| view.rank(seq);
    assert_eq!([600, 601, 602, 603].map(rank), [None, None, Some(1), Some(2)]);
    assert_eq!(b.line(zone).enter(claims(epoch, [600, 601])).await.expect("decided").verdicts, by_a);
    by_a.iter().for_each(|verdict| {
        entry(verdict);
    });
}

/// One server admits a ticket and dies. The other server knows of the entry only because the holder repeated the claim
/// there. After the state is lost, the claim still gets the same entry.
pub(crate) async fn entry_learnt_from_a_repeated_claim_survives_a_lost_state(
    backend: &InRedis,
    zone: &ZoneId,
) {
    // Uses its own Redis, because the test wipes it.
    let servers = Servers::start(backend.servers.topology());
    let settings = backend.settings();
    let a = servers.connect(&settings, Durability::Async).await;
    let b = servers.connect(&settings, Durability::Async).await;
    a.line(zone).put(with(Mode::Hold)).await.expect("put");
    let Joined { epoch, .. } = a.line(zone).join(1).await.expect("joins");
    let view = b.line(zone).open(policy()).await.expect("opened");
    assert_eq!(view.tally.waiting, 1);
    a.line(zone).put(policy()).await.expect("put");
    let admitted = entry(&a.line(zone).enter(claims(epoch, [0])).await.expect("decided").verdicts[0]);
    eventually("the clock advances", || async {
        let view = b.line(zone).beat(Vec::new(), 0).await.expect("beats");
        (view.now_ms > admitted.at_ms).then_some(())
    })
    .await;
    let repeated = b.line(zone).enter(claims(epoch, [0])).await.expect("decided").verdicts;
    assert_eq!(repeated, [Verdict::Entered(admitted)]);

    drop(a);
    servers.command(servers.holder(&format!("{{{zone}}}")), &["FLUSHALL"]);
    let verdict = eventually("the rebuilt state decides", || async {
        let decided = b.line(zone).enter(claims(epoch, [0])).await.expect("decided");
        decided.verdicts.into_iter().find(|verdict| !matches!(verdict, Verdict::Waiting(_)))
    })
    .await;
    assert_eq!(verdict, Verdict::Entered(admitted));
}

/// One server lets people in and one of them go, and ends. The other one has only looked on. After the state is lost, whoever entered has the
/// same entry, at once or by a claim; whoever gave up the place does not wait again; and the others have their places.
pub(crate) async fn each_server_knows_who_entered_by_others(backend: &InRedis, zone: &ZoneId) {
    // Uses its own Redis, because the test wipes it.
    let servers = Servers::start(backend.servers.topology());
    let settings = backend.settings();
    let policy = Policy { idle_timeout_s: 10, polling_period_ms: 1_000, ..policy() };
    let decides = servers.connect(&settings, Durability::Async).await;
    let looks_on = servers.connect(&settings, Durability::Async).await;
    decides.line(zone).put(policy).await.expect("put");
    let Joined { epoch, verdicts, .. } = decides.line(zone).join(1).await.expect("joins");
    let at_once = entry(&verdicts[0]);
    decides.line(zone).put(Policy { mode: Mode::Hold, ..policy }).await.expect("put");
    decides.line(zone).join(3).await.expect("joins");
    decides.line(zone).put(policy).await.expect("put");
    let claimed = entry(&decides.line(zone).enter(claims(epoch, [1])).await.expect("decided").verdicts[0]);
    let leaver = Leaver { claim: Claim { epoch, seq: 2 }, proof: Proof::Token, address: 0 };
    assert_eq!(decides.line(zone).leave(vec![leaver]).await.expect("leaves"), [Departure::Place]);
    looks_on.line(zone).open(policy).await.expect("opened");
    for _ in 0..2 {
        looks_on.line(zone).beat(Vec::new(), 0).await.expect("beats");
    }

    drop(decides);
    servers.command(servers.holder(&format!("{{{zone}}}")), &["FLUSHALL"]);
    let claim = async |seq| {
        looks_on.line(zone).enter(claims(epoch, [seq])).await.expect("decided").verdicts.remove(0)
    };
    for (seq, expected) in [(0, at_once), (1, claimed)] {
        assert_eq!(claim(seq).await, Verdict::Entered(expected));
    }
    let of_the_leaver = eventually("the rebuilt state decides", || async {
        let verdict = claim(2).await;
        (!matches!(verdict, Verdict::Waiting(_))).then_some(verdict)
    })
    .await;
    assert_eq!(of_the_leaver, Verdict::Gone);
    // The slots that the other server may have given count for a minute, so this one waits still.
    assert_ne!(claim(3).await, Verdict::Gone);
}

/// One server lets people in, and the other one lets one of them go. Each remembers a half of that. However often the state is lost, the visit
/// has ended, and the others are inside.
pub(crate) async fn a_visit_that_ended_does_not_come_back(backend: &InRedis, zone: &ZoneId) {
    // Uses its own Redis, because the test wipes it.
    let servers = Servers::start(backend.servers.topology());
    let settings = backend.settings();
    let free = ZoneId::parse(&format!("{zone}-free")).expect("a name");
    for (zone, max_active, inside_then) in [(zone, 5, 2), (&free, 0, 0)] {
        let policy = Policy { max_active, ..policy() };
        let lets_in = servers.connect(&settings, Durability::Async).await;
        let lets_go = servers.connect(&settings, Durability::Async).await;
        lets_in.line(zone).put(policy).await.expect("put");
        lets_go.line(zone).open(policy).await.expect("opened");
        let Joined { epoch, verdicts, .. } = lets_in.line(zone).join(3).await.expect("joins");
        let entries: Vec<_> = verdicts.iter().map(entry).collect();
        let leaver = Leaver { claim: Claim { epoch, seq: 0 }, proof: Proof::Token, address: 0 };
        assert_eq!(lets_go.line(zone).leave(vec![leaver]).await.expect("leaves"), [Departure::Visit]);
        for order in [[&lets_in, &lets_go], [&lets_go, &lets_in], [&lets_in, &lets_go]] {
            servers.command(servers.holder(&format!("{{{zone}}}")), &["FLUSHALL"]);
            for server in order {
                server.line(zone).beat(Vec::new(), 0).await.expect("beats");
            }
            for server in order {
                let verdicts = server.line(zone).enter(claims(epoch, 0..3)).await.expect("decided").verdicts;
                let expected = [Verdict::Gone, Verdict::Entered(entries[1]), Verdict::Entered(entries[2])];
                assert_eq!(verdicts, expected);
                if max_active > 0 {
                    let left = server.line(zone).visits(Vec::new()).await.expect("reports").pages;
                    let is_marked = left.iter().any(|(page, words)| *page == 0 && words[0] & 0b111 == 0b001);
                    assert!(is_marked, "its cookie shows a visit that goes on");
                }
                let view = server.line(zone).beat(Vec::new(), 0).await.expect("beats");
                assert_eq!(view.occupancy.map_or(0, |people| people.inside), inside_then);
            }
        }
    }
}

/// A server with the zone of its configuration, held. An operator would begin a new line; this may continue one.
async fn of_a_file(servers: &Servers, settings: &Settings, zone: &ZoneId) -> Arc<Redis> {
    let server = servers.connect(settings, Durability::Async).await;
    server.begin(&[(zone.clone(), with(Mode::Hold).into())]).await.expect("begun");
    server.line(zone).open(with(Mode::Hold)).await.expect("opened");
    server
}

/// A store is wiped twice. Each time a server that remembers nothing is first, and gives out tickets, before one that remembers the
/// line has spoken. Everybody keeps the place, the newcomers, too; and no two people have the same number.
pub(crate) async fn lines_that_began_without_each_other_lose_nobody(backend: &InRedis, zone: &ZoneId) {
    // Uses its own Redis, because the test wipes it.
    let servers = Servers::start(backend.servers.topology());
    let settings = backend.settings();
    let connect = async || of_a_file(&servers, &settings, zone).await;
    let join = async |server: &Arc<Redis>, count: u32| {
        let Joined { epoch, first, .. } = server.line(zone).join(count).await.expect("joins");
        (first..first + u64::from(count)).map(|seq| (epoch, seq)).collect::<Vec<(u32, u64)>>()
    };
    let ranks_of = async |server: &Arc<Redis>, tickets: &[(u32, u64)]| {
        let mut verdicts = Vec::new();
        for (epoch, seq) in tickets {
            verdicts.extend(server.line(zone).enter(claims(*epoch, [*seq])).await.expect("decided").verdicts);
        }
        ranks(&verdicts)
    };
    let first = connect().await;
    let mut tickets = join(&first, 200).await;
    let mut known = vec![first];
    for count in [3, 5] {
        // Lines begin at random numbers. A line that begins within the segments of another one is not the case that is tested here.
        let (ignorant, newcomers) = loop {
            servers.command(servers.holder(&format!("{{{zone}}}")), &["FLUSHALL"]);
            let ignorant = connect().await;
            let newcomers = join(&ignorant, count).await;
            if tickets.iter().all(|(_, seq)| seq.abs_diff(newcomers[0].1) > 4 * 65_536) {
                break (ignorant, newcomers);
            }
        };
        tickets.extend(newcomers);
        for server in &known {
            server.line(zone).beat(Vec::new(), 0).await.expect("beats");
        }
        known.push(ignorant);
        for server in &known {
            let view = server.line(zone).beat(Vec::new(), 0).await.expect("beats");
            assert_eq!(view.tally.waiting, tickets.len() as u64);
        }
        tickets.extend(join(&known[0], 10).await);
    }
    // The order of the numbers is that of the line.
    tickets.sort_unstable_by_key(|(_, seq)| *seq);
    tickets.dedup_by_key(|(_, seq)| *seq);
    assert_eq!(tickets.len(), 228);
    for server in &known {
        assert!(ranks_of(server, &tickets).await.iter().copied().eq(1..=228));
    }
}

/// The store is wiped. Who entered by a server that is still there is counted; of others, as many as the servers remember.
pub(crate) async fn people_inside_are_counted_after_a_loss(backend: &InRedis, zone: &ZoneId) {
    // Uses its own Redis, because the test wipes it.
    let servers = Servers::start(backend.servers.topology());
    let settings = backend.settings();
    let limited = Policy { max_active: 5, ..policy() };
    let [a, b] = [
        servers.connect(&settings, Durability::Async).await,
        servers.connect(&settings, Durability::Async).await,
    ];
    a.line(zone).put(limited).await.expect("put");
    b.line(zone).open(limited).await.expect("opened");
    let wipe = || servers.command(servers.holder(&format!("{{{zone}}}")), &["FLUSHALL"]);
    let beat =
        async |server: &Arc<Redis>| inside(&server.line(zone).beat(Vec::new(), 0).await.expect("beats"));
    let by_a = a.line(zone).join(2).await.expect("joins");
    let by_b = b.line(zone).join(2).await.expect("joins");
    assert_eq!((beat(&a).await, beat(&b).await), ((4, 4), (4, 4)));
    wipe();
    assert_eq!(beat(&a).await, (2, 4), "the others are only a number");
    b.line(zone).visits(pages(&[by_b.first])).await.expect("reports");
    assert_eq!(beat(&a).await, (4, 4), "this server knows who entered by it");
    wipe();
    drop(b);
    assert_eq!(beat(&a).await, (2, 4));
    // The visitor who shows herself is one of those.
    a.line(zone).visits(pages(&[by_b.first, by_a.first])).await.expect("reports");
    assert_eq!(beat(&a).await, (3, 4));
    // A server that remembers nothing is first: it lets nobody in for a minute, and knows better as soon as another one has spoken.
    wipe();
    let c = servers.connect(&settings, Durability::Async).await;
    c.begin(&[(zone.clone(), limited.into())]).await.expect("begun");
    let view = c.line(zone).open(limited).await.expect("opened");
    assert_eq!(inside(&view), (0, 5));
    assert_eq!(beat(&a).await, (2, 4));
    // Nobody knows in the minute after a limit was set, also if the store is lost in it.
    a.line(zone).put(policy()).await.expect("put");
    a.line(zone).put(limited).await.expect("put");
    wipe();
    beat(&a).await;
    a.line(zone).put(Policy { max_active: 50, ..limited }).await.expect("put");
    let Joined { verdicts, .. } = a.line(zone).join(1).await.expect("joins");
    assert_eq!(ranks(&verdicts), [1], "nobody enters until those inside had time to show themselves");
}

/// A store is wiped, and the server that gave out the tickets is gone. A server that has seen the line only before anybody joined
/// writes it back. The tickets themselves prove the places.
pub(crate) async fn tickets_that_no_server_remembers_keep_their_places(backend: &InRedis, zone: &ZoneId) {
    // Uses its own Redis, because the test wipes it.
    let servers = Servers::start(backend.servers.topology());
    let settings = backend.settings();
    let connect = async || of_a_file(&servers, &settings, zone).await;
    let of_before = connect().await;
    let Joined { epoch, first, .. } = connect().await.line(zone).join(3).await.expect("joins");
    let tickets = claims(epoch, first..first + 3);
    servers.command(servers.holder(&format!("{{{zone}}}")), &["FLUSHALL"]);
    let ignorant = connect().await;
    of_before.line(zone).beat(Vec::new(), 0).await.expect("beats");
    for server in [&ignorant, &of_before] {
        let verdicts = server.line(zone).enter(tickets.clone()).await.expect("decided").verdicts;
        assert!(ranks(&verdicts).iter().copied().eq(1..=3), "{verdicts:?}");
    }
}

/// A store is wiped, and comes back by what a server remembers. Once all has been said, the view knows the tickets of before, so that
/// their polls need no call.
pub(crate) async fn the_view_knows_the_tickets_of_a_line_that_was_lost(backend: &InRedis, zone: &ZoneId) {
    // Uses its own Redis, because the test wipes it.
    let servers = Servers::start(backend.servers.topology());
    let policy = Policy { idle_timeout_s: 10, polling_period_ms: 1_000, ..with(Mode::Hold) };
    let server = servers.connect(&backend.settings(), Durability::Async).await;
    server.begin(&[(zone.clone(), policy.into())]).await.expect("begun");
    server.line(zone).open(policy).await.expect("opened");
    let Joined { epoch, first, .. } = server.line(zone).join(3).await.expect("joins");
    let beat = async || server.line(zone).beat(Vec::new(), 0).await.expect("beats");
    assert!(beat().await.is_of_line(epoch, first));
    servers.command(servers.holder(&format!("{{{zone}}}")), &["FLUSHALL"]);
    let lost = beat().await;
    assert!(lost.epoch != epoch && lost.earlier.is_none() && !lost.is_of_line(epoch, first));
    let known = eventually("all has been said", || async {
        // Who asks is not dropped meanwhile.
        server.line(zone).enter(claims(epoch, first..first + 3)).await.expect("decided");
        Some(beat().await).filter(|snapshot| snapshot.earlier.is_some())
    })
    .await;
    assert!((first..first + 3).all(|seq| known.is_of_line(epoch, seq)));
    assert!(!known.is_of_line(epoch + 1, first), "nobody has such a ticket");
    assert_eq!(known.tally.waiting, 3);
}

/// The line is longer than two segments, and everything that knew it is lost. Whoever shows a ticket has the place, wherever in the line
/// it is, and whoever shows one first.
pub(crate) async fn tickets_of_a_long_line_prove_their_places(backend: &InRedis, zone: &ZoneId) {
    // Uses its own Redis, because the test wipes it.
    let servers = Servers::start(backend.servers.topology());
    let settings = backend.settings();
    let connect = async || of_a_file(&servers, &settings, zone).await;
    let of_before = connect().await;
    let Joined { epoch, first, .. } = of_before.line(zone).join(1_024).await.expect("joins");
    for _ in 1..140 {
        of_before.line(zone).join(1_024).await.expect("joins");
    }
    drop(of_before);
    servers.command(servers.holder(&format!("{{{zone}}}")), &["FLUSHALL"]);
    let ignorant = connect().await;
    let tickets = claims(epoch, [first + 10, first + 70_000, first + 143_000]);
    eventually("each has the place", || async {
        ignorant.line(zone).enter(tickets.clone()).await.expect("decided");
        let tally = ignorant.line(zone).beat(Vec::new(), 0).await.expect("beats").tally;
        (tally.waiting == 3).then_some(())
    })
    .await;
    // They stand in their order, and newcomers behind them.
    let joined = ignorant.line(zone).join(1).await.expect("joins");
    assert_eq!(ranks(&joined.verdicts), [4]);
    let verdicts = ignorant.line(zone).enter(tickets).await.expect("decided").verdicts;
    assert_eq!(ranks(&verdicts), [1, 2, 3]);
}

/// A server that nobody asked in a zone knows nothing of it, though it saw the zone begin. After a loss it alone does not say that no
/// slot was taken, or that nobody is inside.
pub(crate) async fn a_server_that_nobody_asked_knows_nothing_of_a_lost_state(
    backend: &InRedis,
    zone: &ZoneId,
) {
    // Uses its own Redis, because the test wipes it.
    let servers = Servers::start(backend.servers.topology());
    let settings = backend.settings();
    let asked = servers.connect(&settings, Durability::Async).await;
    let idle = servers.connect(&settings, Durability::Async).await;
    let inside = ZoneId::parse(&format!("{zone}-inside")).expect("a name");
    let of_slots = Policy { admit_per_minute: 30, ..policy() };
    let zones = [(zone, of_slots, 30), (&inside, Policy { max_active: 5, ..policy() }, 5)];
    for (zone, policy, _) in zones {
        asked.line(zone).put(policy).await.expect("put");
        idle.line(zone).open(policy).await.expect("opened");
    }
    for (zone, _, count) in zones {
        let joined = asked.line(zone).join(count).await.expect("joins");
        joined.verdicts.iter().for_each(|verdict| {
            entry(verdict);
        });
    }
    // What the other one knows grows old.
    tokio::time::sleep(Duration::from_secs(3)).await;
    drop(asked);
    for (zone, ..) in zones {
        servers.command(servers.holder(&format!("{{{zone}}}")), &["FLUSHALL"]);
    }
    for _ in 0..16 {
        for (zone, ..) in zones {
            let joined = idle.line(zone).join(1).await.expect("joins");
            assert_eq!(ranks(&joined.verdicts).len(), 1, "nobody enters: {joined:?}");
            let first = claims(joined.epoch, [joined.first]);
            let decided = idle.line(zone).enter(first).await.expect("decided");
            assert_eq!(ranks(&decided.verdicts).len(), 1, "nobody enters: {decided:?}");
            idle.line(zone).beat(Vec::new(), 0).await.expect("beats");
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// The entries of a segment that is freed are kept as long as the longest life of its passes.
pub(crate) async fn freed_segment_keeps_its_longest_life(backend: &InRedis, zone: &ZoneId) {
    let store = backend.open().await;
    let lives = |pass_ttl_s| Policy { pass_ttl_s, ..with(Mode::Open) };
    store.line(zone).put(lives(3_600)).await.expect("put");
    for _ in 0..64 {
        store.line(zone).join(1_024).await.expect("joins");
    }
    let view = store.line(zone).put(lives(60)).await.expect("put");
    assert_eq!((view.base, view.next), (65_536, 65_536));
    let holder = backend.servers.holder(&format!("{{{zone}}}"));
    let key = format!("weir:v1:{{{zone}}}:0:entry");
    let kept_ms = backend.servers.command(holder, &["PTTL", &key]).int();
    // Ten minutes longer, because the clocks of two nodes may be apart.
    assert!((3_600_000..=4_200_000).contains(&kept_ms), "kept for {kept_ms} ms");
}

/// A server that can't reach Redis for longer than the idle time keeps the places of those who ask it.
pub(crate) async fn who_asks_a_server_that_is_cut_off_keeps_the_place(backend: &InRedis, zone: &ZoneId) {
    let (a, b) = (backend.open().await, backend.open().await);
    let view = a.line(zone).put(with(Mode::Hold)).await.expect("put");
    b.line(zone).open(policy()).await.expect("opened");
    let epoch = a.line(zone).join(3).await.expect("joins").epoch;
    b.line(zone).join(1).await.expect("joins");
    let polls = |tickets: u64| {
        vec![PagePolls {
            page: 0,
            words: Box::new(std::array::from_fn(|i| if i == 0 { tickets } else { 0 })),
        }]
    };
    let mut now_ms = view.now_ms + 1_000;
    let mut beat = async |server: &Arc<Redis>, tickets: u64| {
        now_ms += 1_000;
        server.hold_clock(now_ms);
        server.line(zone).beat(polls(tickets), 0).await.expect("beats").tally
    };
    for _ in 0..100 {
        beat(&b, 0b1000).await;
    }
    assert_eq!(beat(&b, 0b1000).await.waiting, 4, "perhaps the other server has heard them");
    // It has heard two of them.
    beat(&a, 0b0011).await;
    for _ in 0..30 {
        beat(&a, 0b0011).await;
        beat(&b, 0b1000).await;
    }
    assert_eq!(beat(&a, 0b0011).await.waiting, 3, "nobody has heard the third");
    let verdicts = a.line(zone).enter(claims(epoch, [0, 1, 2, 3])).await.expect("decided").verdicts;
    assert_eq!(verdicts[2], Verdict::Gone);
    assert!([0, 1, 3].iter().all(|&i| matches!(verdicts[i], Verdict::Waiting(_))), "{verdicts:?}");
}

/// A server that stops has said what it heard, so people who fall silent then keep nothing because of it. One that falls silent
/// itself may have heard them.
pub(crate) async fn nobody_is_spared_for_a_server_that_retired(backend: &InRedis, zone: &ZoneId) {
    const IDLE_S: u32 = 30;
    let limited = Policy { max_active: 2, visit_idle_s: IDLE_S, ..policy() };
    for (retires, i) in [(true, 0), (false, 1)] {
        let zone = &ZoneId::parse(&format!("{zone}-{i}")).expect("a name");
        let (a, b) = (backend.open().await, backend.open().await);
        let mut now_ms = a.line(zone).put(limited).await.expect("put").now_ms;
        b.line(zone).open(limited).await.expect("opened");
        let Joined { verdicts, .. } = a.line(zone).join(4).await.expect("joins");
        verdicts[..2].iter().for_each(|verdict| {
            entry(verdict);
        });
        // The third falls silent, too. The fourth stays.
        let mut beat = async |server: &Arc<Redis>, active: &[u64]| {
            now_ms += 500;
            server.hold_clock(now_ms);
            server.line(zone).visits(pages(active)).await.expect("reported");
            server.line(zone).beat(pages(&[3]), 0).await.expect("beats")
        };
        for _ in 0..10 {
            beat(&b, &[1]).await;
            beat(&a, &[0]).await;
        }
        if retires {
            a.line(zone).retire().await.expect("said");
        }
        // So long after their last activity, visits have ended, and places, too: 4/3 of the idle time, and 70 s.
        let mut seen = Vec::new();
        for second in 1..=80 {
            beat(&b, &[]).await;
            let view = beat(&b, &[]).await;
            if second == 45 || second == 80 {
                seen.push((inside(&view).0, view.tally.waiting));
            }
        }
        let (of_visits, of_places) = (seen[0], seen[1]);
        if retires {
            assert_eq!(of_visits, (0, 2), "the visits have ended");
            assert_eq!(of_places, (0, 1), "and the place");
        } else {
            assert_eq!(of_visits, (2, 2), "the silent server may have heard the visitors");
            assert_eq!(of_places, (2, 2), "and the one who waits");
        }
    }
}

/// Visits that are open when their idle time is made longer count for the longer one, and end then.
pub(crate) async fn visits_count_for_an_idle_time_that_was_made_longer(backend: &InRedis, zone: &ZoneId) {
    let idle = |visit_idle_s| Policy { max_active: 2, visit_idle_s, ..policy() };
    let store = backend.open().await;
    let began_ms = store.line(zone).put(idle(30)).await.expect("put").now_ms;
    store.line(zone).join(2).await.expect("joins").verdicts.iter().for_each(|verdict| {
        entry(verdict);
    });
    let mut counts = Vec::new();
    for second in 1..=200 {
        store.hold_clock(began_ms + second * 1_000);
        if second == 27 {
            store.line(zone).put(idle(120)).await.expect("put");
        }
        store.line(zone).visits(Vec::new()).await.expect("reported");
        let view = store.line(zone).beat(Vec::new(), 0).await.expect("beats");
        if [26, 146, 200].contains(&second) {
            counts.push(inside(&view).0);
        }
    }
    assert_eq!(counts, [2, 2, 0]);
}

/// The state of a zone is lost: all of its first segment, too.
fn lose_state(backend: &InRedis, zone: &ZoneId) {
    let holder = backend.servers.holder(&format!("{{{zone}}}"));
    for key in ["z", "log", "due", "seg", "on", "srv", "0:live", "0:here", "0:entry", "0:lost"] {
        backend.servers.command(holder, &["DEL", &format!("weir:v1:{{{zone}}}:{key}")]);
    }
}

/// After a loss slots count as taken that nobody may have had, and after the next one, too. Nobody is counted for them.
pub(crate) async fn nobody_entered_by_what_is_presumed(backend: &InRedis, zone: &ZoneId) {
    let (a, b) = (backend.open().await, backend.open().await);
    a.line(zone).put(policy()).await.expect("put");
    b.line(zone).open(policy()).await.expect("opened");
    for server in [&a, &b] {
        server.line(zone).join(2).await.expect("joins").verdicts.iter().for_each(|verdict| {
            entry(verdict);
        });
        server.line(zone).beat(Vec::new(), 0).await.expect("beats");
    }
    a.line(zone).beat(Vec::new(), 0).await.expect("beats");
    // The second server does not say what it remembers, so its slots are presumed to be taken.
    for loss in 0..3 {
        lose_state(backend, zone);
        let entered = a.line(zone).beat(Vec::new(), 0).await.expect("beats").tally.entered;
        assert_eq!(entered, 4, "after loss {loss}");
    }
}

/// What a server decided before it ended counts for a minute from its last call on, however often the state is lost meanwhile.
pub(crate) async fn a_server_that_is_gone_is_not_waited_for_anew(backend: &InRedis, zone: &ZoneId) {
    let (store, gone) = (backend.open().await, backend.open().await);
    let began_ms = store.line(zone).put(policy()).await.expect("put").now_ms;
    gone.line(zone).open(policy()).await.expect("opened");
    gone.line(zone).join(1).await.expect("joins");
    let mut entered = Vec::new();
    for second in 1..=90 {
        store.hold_clock(began_ms + second * 1_000);
        if [20, 55, 80].contains(&second) {
            lose_state(backend, zone);
        }
        store.line(zone).beat(Vec::new(), 0).await.expect("beats");
        // Some seconds after each loss.
        if [30, 65, 90].contains(&second) {
            let Joined { verdicts, .. } = store.line(zone).join(2).await.expect("joins");
            entered.push(verdicts.iter().filter(|verdict| matches!(verdict, Verdict::Entered(_))).count());
        }
    }
    assert_eq!(entered, [0, 0, 2]);
}

/// Another process has the state, and the first call to it is refused, because it has the keys of other segments. What the process
/// before may have decided counts as taken all the same.
pub(crate) async fn slots_count_as_taken_though_the_first_call_is_refused(backend: &InRedis, zone: &ZoneId) {
    const NOTE_ANOTHER: &str = "local raw = redis.call('GET', KEYS[1])
        local run = struct.pack('>i8', (struct.unpack('>i8', raw, 26 * 8 + 1)) + 1)
        redis.call('SET', KEYS[1], string.sub(raw, 1, 26 * 8) .. run .. string.sub(raw, 27 * 8 + 1))
        return redis.call('DEL', KEYS[2])";
    let (store, silent) = (backend.open().await, backend.open().await);
    let began_ms = store.line(zone).put(policy()).await.expect("put").now_ms;
    silent.line(zone).open(policy()).await.expect("opened");
    for server in [&silent, &store] {
        server.line(zone).join(1).await.expect("joins");
    }
    let [header, process] = ["z", "on"].map(|key| format!("weir:v1:{{{zone}}}:{key}"));
    let holder = backend.servers.holder(&header);
    backend.servers.command(holder, &["EVAL", NOTE_ANOTHER, "2", &header, &process]);
    let mut entered = Vec::new();
    for second in 1..=50 {
        store.hold_clock(began_ms + second * 1_000);
        if [1, 30].contains(&second) {
            let Joined { verdicts, .. } = store.line(zone).join(2).await.expect("joins");
            entered.push(verdicts.iter().filter(|verdict| matches!(verdict, Verdict::Entered(_))).count());
        }
        store.line(zone).beat(Vec::new(), 0).await.expect("beats");
    }
    let view = store.line(zone).beat(Vec::new(), 0).await.expect("beats");
    assert_eq!((entered, view.tally.entered), (vec![0, 0], 2));
}

/// A server has not heard that the state was lost and that another server began it anew. What it is asked first is decided by what it
/// remembers.
pub(crate) async fn a_server_says_what_it_remembers_before_it_asks(backend: &InRedis, zone: &ZoneId) {
    for i in 0..3 {
        let zone = &ZoneId::parse(&format!("{zone}-{i}")).expect("a name");
        let (a, b) = (backend.open().await, backend.open().await);
        let began_ms = a.line(zone).put(policy()).await.expect("put").now_ms;
        b.line(zone).open(policy()).await.expect("opened");
        let Joined { epoch, verdicts, .. } = a.line(zone).join(1).await.expect("joins");
        let entered = entry(&verdicts[0]);
        a.line(zone).put(with(Mode::Hold)).await.expect("put");
        a.line(zone).join(2).await.expect("joins");
        a.line(zone).put(policy()).await.expect("put");
        lose_state(backend, zone);
        // Time enough for everybody to ask again.
        for second in 0..12 {
            b.hold_clock(began_ms + second * 1_000);
            b.line(zone).beat(Vec::new(), 0).await.expect("beats");
        }
        a.hold_clock(began_ms + 12_000);
        match i {
            0 => {
                let leaver = Leaver { claim: Claim { epoch, seq: 0 }, proof: Proof::Token, address: 0 };
                let left = a.line(zone).leave(vec![leaver]).await.expect("leaves");
                assert_eq!(left, [Departure::Visit]);
            }
            1 => {
                let Joined { verdicts, .. } = a.line(zone).join(1).await.expect("joins");
                assert!(
                    matches!(verdicts[0], Verdict::Waiting(Position { rank: 3, .. })),
                    "two came before: {:?}",
                    verdicts[0]
                );
            }
            _ => {
                let verdicts = a.line(zone).enter(claims(epoch, [0])).await.expect("decided").verdicts;
                assert_eq!(verdicts, [Verdict::Entered(entered)]);
            }
        }
    }
}

/// Visits of an earlier line may be far from all tickets of this one. They end, and whoever is active stays inside. A report costs one
/// call more for that, also if the server has never seen those tickets.
pub(crate) async fn visits_far_from_the_line_end(backend: &InRedis, zone: &ZoneId) {
    const SEGMENT: u64 = 65_536;
    const IDLE_S: u32 = 30;
    let limited = Policy { max_active: 10, visit_idle_s: IDLE_S, ..policy() };
    let (store, other) = (backend.open().await, backend.open().await);
    let mut now_ms = store.line(zone).put(limited).await.expect("put").now_ms;
    let Joined { epoch, verdicts, .. } = store.line(zone).join(1).await.expect("joins");
    entry(&verdicts[0]);
    let far = [0, 300 * SEGMENT, 600 * SEGMENT + 7, 900 * SEGMENT + 65_535];
    store.hold_clock(now_ms);
    store.line(zone).visits(pages(&far)).await.expect("reported");
    other.hold_clock(now_ms);
    assert_eq!(inside(&other.line(zone).open(limited).await.expect("opened")).0, 4);
    // Each call of the zone's scripts counts.
    let (holder, key) = (backend.servers.holder(&format!("{{{zone}}}")), format!("weir:v1:{{{zone}}}:z"));
    let count = ["EVAL", "return struct.unpack('>i8', redis.call('GET', KEYS[1]), 9)", "1", &key];
    let calls = || backend.servers.command(holder, &count).int();
    let mut report = async |active: &[u64]| {
        now_ms += 1_000;
        other.hold_clock(now_ms);
        let before = calls();
        let left = other.line(zone).visits(pages(active)).await.expect("reported");
        let cost = calls() - before;
        assert!(cost <= 2, "{cost} calls");
        (left, inside(&other.line(zone).beat(Vec::new(), 0).await.expect("beats")).0)
    };
    assert_eq!(report(&[]).await.1, 4);
    // Somebody leaves at another server.
    let leaver = Leaver { claim: Claim { epoch, seq: 0 }, proof: Proof::Visit, address: 0 };
    assert_eq!(store.line(zone).leave(vec![leaver]).await.expect("decided"), [Departure::Visit]);
    store.line(zone).retire().await.expect("said");
    let (left, still_inside) = report(&[]).await;
    assert_eq!((left.pages.iter().map(|(page, _)| *page).collect::<Vec<_>>(), still_inside), (vec![0], 3));
    // Twelve generations of 3/32 of the idle time are nine eighths of it, and two more may have begun.
    for _ in 0..IDLE_S * 3 / 2 {
        report(&far[2..3]).await;
    }
    assert_eq!(report(&[]).await.1, 1, "only the active one");
    for _ in 0..IDLE_S * 3 / 2 {
        report(&[]).await;
    }
    assert_eq!(report(&[]).await.1, 0);
}

/// One holder at the front does not keep what those had who came later and left.
pub(crate) async fn a_full_segment_in_which_nobody_waits_is_freed(backend: &InRedis, zone: &ZoneId) {
    const SEGMENT: u64 = 65_536;
    let store = backend.open().await;
    let epoch = fill(&store, zone, 2 * SEGMENT + 1_024).await;
    let holder = backend.servers.holder(&format!("{{{zone}}}"));
    let exists = |segment: u64, of: &str| {
        let key = format!("weir:v1:{{{zone}}}:{segment}:{of}");
        backend.servers.command(holder, &["EXISTS", &key]).int() == 1
    };
    store.line(zone).put(with(Mode::Open)).await.expect("put");
    for batch in 64..128 {
        enter(&store, zone, epoch, batch * 1_024..(batch + 1) * 1_024).await;
    }
    assert!(exists(1, "live"));
    let view = store.line(zone).beat(Vec::new(), 0).await.expect("beats");
    assert_eq!((view.base, view.tally.waiting), (0, SEGMENT + 1_024));
    assert_eq!([0, 1, 2].map(|segment| exists(segment, "live")), [true, false, true]);
    assert!(exists(1, "entry"));

    // What is known of it stays the same, also to a server that was not there.
    let other = backend.open().await;
    other.line(zone).open(policy()).await.expect("opened");
    for store in [&store, &other] {
        let view = store.line(zone).beat(Vec::new(), 0).await.expect("beats");
        let rank = |seq| view.rank(seq);
        let last = u32::try_from(SEGMENT).expect("small") + 1;
        assert_eq!(
            [0, SEGMENT, 2 * SEGMENT - 1, 2 * SEGMENT].map(rank),
            [Some(1), None, None, Some(last.into())]
        );
        let again = store.line(zone).enter(claims(epoch, [SEGMENT, 2 * SEGMENT - 1])).await.expect("decided");
        again.verdicts.iter().for_each(|verdict| {
            entry(verdict);
        });
    }

    // Somebody deletes its entries. The server that decided them gives them back.
    backend.servers.command(holder, &["DEL", &format!("weir:v1:{{{zone}}}:1:entry")]);
    for server in [&other, &store] {
        eventually("the entries are there again", || async {
            store.line(zone).beat(Vec::new(), 0).await.expect("beats");
            let again =
                server.line(zone).enter(claims(epoch, [SEGMENT, 2 * SEGMENT - 1])).await.expect("decided");
            assert!(!again.verdicts.contains(&Verdict::Gone), "{again:?}");
            again.verdicts.iter().all(|verdict| matches!(verdict, Verdict::Entered(_))).then_some(())
        })
        .await;
    }
}

/// The header of a zone that the first version wrote has fewer numbers, and may have past epochs behind them.
pub(crate) async fn state_of_the_first_version_is_read(backend: &InRedis, zone: &ZoneId) {
    let store = backend.open().await;
    store.line(zone).put(with(Mode::Hold)).await.expect("put");
    let Joined { epoch, .. } = store.line(zone).join(3).await.expect("joins");
    let (holder, key) = (backend.servers.holder(&format!("{{{zone}}}")), format!("weir:v1:{{{zone}}}:z"));
    for epochs in [0, 1, 3] {
        let shorten = format!(
            "redis.call('SET', KEYS[1], string.sub(redis.call('GET', KEYS[1]), 1, 36 * 8) \
             .. string.rep('x', {epochs} * 32)); return 1"
        );
        assert_eq!(backend.servers.command(holder, &["EVAL", &shorten, "1", &key]).int(), 1);
        let verdicts = store.line(zone).enter(claims(epoch, 0..3)).await.expect("decided").verdicts;
        assert_eq!(ranks(&verdicts), [1, 2, 3]);
        assert_eq!(store.line(zone).beat(Vec::new(), 0).await.expect("beats").tally.waiting, 3);
    }
}

/// The header of a later version has more numbers than this one knows. Nothing of that state is touched, also not by a server that
/// would mend it or write it back, and it goes on when the servers are upgraded.
pub(crate) async fn state_of_a_later_version_is_left_alone(backend: &InRedis, zone: &ZoneId) {
    let (store, other) = (backend.open().await, backend.open().await);
    store.line(zone).put(with(Mode::Hold)).await.expect("put");
    let Joined { epoch, .. } = store.line(zone).join(3).await.expect("joins");
    let holder = backend.servers.holder(&format!("{{{zone}}}"));
    let keys: Vec<String> = ["z", "log", "due", "seg", "on", "srv", "0:live", "0:here", "0:entry"]
        .map(|key| format!("weir:v1:{{{zone}}}:{key}"))
        .into();
    let on_keys = |script: &str| {
        let count = keys.len().to_string();
        let mut command = vec!["EVAL", script, count.as_str()];
        command.extend(keys.iter().map(String::as_str));
        backend.servers.command(holder, &command).text()
    };
    // Without the mark that ends by itself.
    let dump = || {
        on_keys(
            "local all = {} for i = 1, #KEYS do all[i] = i ~= 5 and redis.call('DUMP', KEYS[i]) or '' end \
             return redis.sha1hex(table.concat(all))",
        )
    };
    let kept = on_keys(
        "local raw = redis.call('GET', KEYS[1]) local count = string.byte(raw, -1) \
         redis.call('SET', KEYS[1], string.sub(raw, 1, 8 * count) .. string.rep('\\0', 8 * (200 - count)) \
         .. string.sub(raw, 8 * count + 1, -2) .. string.char(200)) return tostring(count)",
    );
    let later = dump();

    let refused = [
        store.line(zone).join(1).await.map(drop),
        store.line(zone).enter(claims(epoch, 0..3)).await.map(drop),
        store.line(zone).beat(Vec::new(), 0).await.map(drop),
        store.line(zone).put(with(Mode::Open)).await.map(drop),
        store.line(zone).census().await.map(drop),
        other.line(zone).open(policy()).await.map(drop),
    ];
    for (call, refused) in (0..).zip(refused) {
        let Err(StoreError::Away(text)) = refused else { panic!("call {call} is not refused: {refused:?}") };
        assert!(text.contains("has 200 numbers, and this version knows"), "{text}");
        assert!(text.starts_with("a newer version of Weir wrote it: the state of the zone"), "{text}");
    }
    assert_eq!(dump(), later, "something was touched");

    on_keys(&format!(
        "local raw = redis.call('GET', KEYS[1]) redis.call('SET', KEYS[1], string.sub(raw, 1, 8 * {kept}) \
         .. string.sub(raw, 8 * 200 + 1, -2) .. string.char({kept})) return ''"
    ));
    store.line(zone).put(with(Mode::Hold)).await.expect("put");
    other.line(zone).open(policy()).await.expect("opened");
    for server in [&store, &other] {
        let verdicts = server.line(zone).enter(claims(epoch, 0..3)).await.expect("decided").verdicts;
        assert_eq!(ranks(&verdicts), [1, 2, 3]);
    }
}

pub(crate) async fn policy_put_by_one_is_in_the_others_view(backend: &InRedis, zone: &ZoneId) {
    let (a, b) = (backend.open().await, backend.open().await);
    a.line(zone).put(with(Mode::Hold)).await.expect("put");
    b.line(zone).open(policy()).await.expect("opened");
    let Joined { epoch, .. } = a.line(zone).join(3).await.expect("joins");
    let other = Policy { admit_per_minute: 700, polling_period_ms: 2_000, ..policy() };
    b.line(zone).put(other).await.expect("put");
    assert_eq!(a.line(zone).beat(Vec::new(), 0).await.expect("beats").policy, other);
    // The limits that servers check are only in the register. A server that has read the register knows them.
    let limited = Policy {
        waits_per_minute_per_client: 5,
        entries_per_minute_per_client: 60,
        max_waiting: 1_000,
        ..other
    };
    b.line(zone).put(limited).await.expect("put");
    let zones = a.zones().await.expect("lists").expect("this store keeps zones");
    assert_eq!(zones.zones.into_iter().find(|(kept, _)| kept == zone), Some((zone.clone(), limited.into())));
    assert_eq!(a.line(zone).beat(Vec::new(), 0).await.expect("beats").policy, limited);
    // The server also decides by the new policy.
    let verdicts = a.line(zone).enter(claims(epoch, 0..3)).await.expect("decided").verdicts;
    verdicts.iter().for_each(|verdict| {
        entry(verdict);
    });
}

pub(crate) async fn zone_that_is_kept_keeps_its_policy_when_opened(backend: &InRedis, zone: &ZoneId) {
    let (a, b) = (backend.open().await, backend.open().await);
    let first = Policy { admit_per_minute: 700, ..policy() };
    assert_eq!(a.line(zone).open(first).await.expect_err("nobody put it"), StoreError::UnknownZone);
    assert_eq!(a.line(zone).put(first).await.expect("put").policy, first);
    assert_eq!(b.line(zone).open(policy()).await.expect("opened").policy, first);
    let zones = b.zones().await.expect("lists").expect("this store keeps zones");
    assert_eq!(zones.zones.into_iter().find(|(kept, _)| kept == zone), Some((zone.clone(), first.into())));
}

pub(crate) async fn register_lists_zones_in_order_and_is_put_again_when_lost(
    backend: &InRedis,
    zone: &ZoneId,
) {
    // Uses its own Redis, because the test reads all zones.
    let servers = Servers::start(backend.servers.topology());
    let settings = backend.settings();
    let a = servers.connect(&settings, Durability::Async).await;
    assert_eq!(
        a.zones().await.expect("lists"),
        Some(RegisterContents { is_new: true, ..RegisterContents::default() })
    );
    let named = |name: &str| ZoneId::parse(&format!("{zone}-{name}")).expect("a name");
    let (x, y) = (named("X"), named("Y"));
    a.line(&y).put(policy()).await.expect("put");
    a.line(&x).put(with(Mode::Hold)).await.expect("put");
    let b = servers.connect(&settings, Durability::Async).await;
    let listed = |mode| {
        let zones = vec![(x.clone(), with(mode).into()), (y.clone(), policy().into())];
        Some(RegisterContents { zones, ..RegisterContents::default() })
    };
    assert_eq!(b.zones().await.expect("lists"), listed(Mode::Hold));
    b.line(&x).put(with(Mode::Open)).await.expect("put");
    assert_eq!(a.zones().await.expect("lists"), listed(Mode::Open));

    let holder = servers.holder(REGISTER);
    assert_eq!(servers.command(holder, &["DEL", REGISTER]).int(), 1);
    assert_eq!(a.zones().await.expect("lists"), listed(Mode::Open));
    for store in [b, servers.connect(&settings, Durability::Async).await] {
        assert_eq!(store.zones().await.expect("lists"), listed(Mode::Open));
    }
    assert_eq!(servers.command(holder, &["EXISTS", REGISTER]).int(), 1);
}

pub(crate) async fn frozen_redis_is_away_in_time_and_comes_back(backend: &InRedis, zone: &ZoneId) {
    let servers = Servers::start(backend.servers.topology());
    let settings = Settings { command_timeout: Duration::from_millis(500), ..backend.settings() };
    let store = servers.connect(&settings, Durability::Async).await;
    let epoch = store.line(zone).put(with(Mode::Hold)).await.expect("put").epoch;
    store.line(zone).join(3).await.expect("joins");

    let holder = servers.holder(&format!("{{{zone}}}"));
    servers.stop(holder);
    // Each call ends by itself.
    let refused = [
        store.line(zone).join(1).await.expect_err("frozen"),
        store.line(zone).enter(claims(epoch, [0])).await.expect_err("frozen"),
        store.line(zone).beat(Vec::new(), 0).await.expect_err("frozen"),
        store.line(zone).put(policy()).await.expect_err("frozen"),
    ];
    servers.cont(holder);
    assert!(refused.iter().all(|error| matches!(error, StoreError::Away(_))), "{refused:?}");

    let verdicts = eventually("it is back", || async {
        store.line(zone).enter(claims(epoch, 0..3)).await.ok().map(|decided| decided.verdicts)
    })
    .await;
    assert!(verdicts.iter().all(|verdict| *verdict != Verdict::Gone), "{verdicts:?}");
}

pub(crate) async fn decisions_without_a_replica_are_not_answered(backend: &InRedis, zone: &ZoneId) {
    let store = backend.servers.connect(&backend.settings(), Durability::Replicated).await;
    // A change of policy is not a decision, and needs no replica.
    store.line(zone).put(with(Mode::Hold)).await.expect("put");
    let Err(StoreError::Away(text)) = store.line(zone).join(1).await else {
        panic!("nobody but the primary knows of this place");
    };
    assert!(text.contains("no replica"), "{text}");
    // The join happened, as it may after any failed call. The view has it, and says that nobody enters now.
    let beat = async || {
        let view = store.line(zone).beat(Vec::new(), 0).await.expect("beats");
        assert_eq!((view.next, view.is_confirmed), (1, false));
        view
    };
    let epoch = beat().await.epoch;
    store.line(zone).put(policy()).await.expect("put");
    // Redis may not know the script yet. The call waits for a replica twice then, and comes too late to let anybody in.
    for _ in 0..2 {
        store
            .line(zone)
            .enter(claims(epoch, [0]))
            .await
            .expect_err("nobody but the primary knows of this entry");
    }
    // The views that show the entry do not tell it.
    for _ in 0..3 {
        assert_eq!(beat().await.tally.entered, 1);
        assert_eq!(store.line(zone).remembered_entry(Claim { epoch, seq: 0 }), None);
    }
}

pub(crate) async fn decisions_that_a_replica_confirmed_are_answered(backend: &InRedis, zone: &ZoneId) {
    let primary = Standalone::start_with(&acl::options());
    let replica = Standalone::start_with(&Options::new().arg(&[
        "--replicaof",
        "127.0.0.1",
        &primary.port().to_string(),
    ]));
    primary.wait_replicas(1);
    let servers = Servers::One(primary);
    let store = servers.connect(&backend.settings(), Durability::Replicated).await;
    store.line(zone).put(policy()).await.expect("put");
    let Joined { epoch, verdicts, .. } = store.line(zone).join(2).await.expect("joins");
    assert_eq!(store.line(zone).enter(claims(epoch, 0..2)).await.expect("decided").verdicts, verdicts);
    let other = servers.connect(&backend.settings(), Durability::Replicated).await;
    other.line(zone).open(policy()).await.expect("opened");
    assert!(other.line(zone).beat(Vec::new(), 0).await.expect("beats").is_confirmed);
    assert!(other.line(zone).remembered_entry(Claim { epoch, seq: 1 }).is_some(), "the view tells it");
    // The replica has both entries.
    let key = format!("weir:v1:{{{zone}}}:0:entry");
    assert_eq!(replica.command(&["STRLEN", &key]).int(), 24);
}
