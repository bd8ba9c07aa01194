//! The behaviour that users of any store can rely on.
//!
//! Tests wait for conditions that need time, and assert nothing about how soon they come.

use std::{ops::Range, sync::Arc, time::Duration};

use admission::{
    Claim, Dealt, Decided, Definition, Departure, Entry, JoinKey, Joined, Leaver, Lots, Mode, PAGE_TICKETS,
    PAGE_WORDS, PagePolls, Policy, Position, Proof, Schedule, Snapshot, Ticket, Verdict, ZoneId,
};
use store::{
    Defined, Expected, JoinedOnce, Line as _, Store, StoreError,
    minutes::{KeptMinute, OfferedMinute, PART_LEN_MAX, PARTS_MAX},
};

use crate::{
    backend::Backend,
    clock::{DEADLINE, now},
    drawn::drawn_event,
};

/// Tickets of a segment of the line.
const SEGMENT: u64 = 65_536;

/// 600 a minute.
pub(crate) fn policy() -> Policy {
    Policy { admit_per_minute: 600, ..Policy::default() }
}

pub(crate) fn with(mode: Mode) -> Policy {
    Policy { mode, ..policy() }
}

pub(crate) fn claims(epoch: u32, seqs: impl IntoIterator<Item = u64>) -> Vec<Claim> {
    seqs.into_iter().map(|seq| Claim { epoch, seq }).collect()
}

#[track_caller]
pub(crate) fn entry(verdict: &Verdict) -> Entry {
    match verdict {
        Verdict::Entered(entry) => *entry,
        other => panic!("an entry was expected, not {other:?}"),
    }
}

#[track_caller]
pub(crate) fn place(verdict: &Verdict) -> Position {
    match verdict {
        Verdict::Waiting(place) => *place,
        other => panic!("a place was expected, not {other:?}"),
    }
}

pub(crate) fn ranks(verdicts: &[Verdict]) -> Vec<u64> {
    verdicts.iter().map(|verdict| place(verdict).rank).collect()
}

/// Repeats a question until it has an answer.
pub(crate) async fn eventually<T, F: Future<Output = Option<T>>>(
    what: &str,
    mut ask: impl FnMut() -> F,
) -> T {
    let deadline = now() + DEADLINE;
    loop {
        if let Some(value) = ask().await {
            return value;
        }
        assert!(now() < deadline, "not within {DEADLINE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Fills a line with `count` tickets, in the largest batches. Nobody is admitted.
pub(crate) async fn fill(store: &Arc<impl Store>, zone: &ZoneId, count: u64) -> u32 {
    let view = store.line(zone).put(with(Mode::Hold)).await.expect("put");
    let mut next = 0;
    while next < count {
        let joined = store.line(zone).join(1_024).await.expect("joins");
        assert_eq!(joined.first, next);
        next += 1_024;
    }
    view.epoch
}

pub(crate) async fn enter(store: &Arc<impl Store>, zone: &ZoneId, epoch: u32, seqs: Range<u64>) -> Decided {
    store.line(zone).enter(claims(epoch, seqs)).await.expect("decided")
}

pub(crate) async fn minutes_slots_are_given_at_once_and_the_next_one_waits(
    backend: &impl Backend,
    zone: &ZoneId,
) {
    let store = backend.open().await;
    let view = store.line(zone).put(policy()).await.expect("put");
    assert_eq!((view.next, view.policy, view.tally.waiting), (0, policy(), 0));
    let first = store.line(zone).join(600).await.expect("joins");
    assert_eq!((first.first, first.epoch, first.verdicts.len()), (0, view.epoch, 600));
    assert!(first.verdicts.iter().all(|verdict| entry(verdict).at_ms == first.at_ms), "{first:?}");

    let next = store.line(zone).join(1).await.expect("joins");
    assert_eq!((next.first, next.epoch), (600, view.epoch));
    let told = place(&next.verdicts[0]);
    assert_eq!((told.rank, told.present_ahead), (1, 0));
    assert!((1..=60_001).contains(&told.slot_in_ms.expect("of the front")), "{told:?}");
    assert_eq!(ranks(&store.line(zone).join(3).await.expect("joins").verdicts), [2, 3, 4]);

    let tally = store.line(zone).beat(Vec::new(), 0).await.expect("beats").tally;
    assert_eq!((tally.waiting, tally.present, tally.joined, tally.entered), (4, 4, 604, 600));
}

/// Whoever repeats a join with a key has the place of the first one, and the others of a batch have theirs in order.
pub(crate) async fn a_join_is_repeated_with_its_key(backend: &impl Backend, zone: &ZoneId) {
    let key = |number: u8| Some(JoinKey([number; 16]));
    let store = backend.open().await;
    store.line(zone).put(with(Mode::Hold)).await.expect("put");
    let join = async |keys: &[Option<JoinKey>]| {
        let JoinedOnce { earlier, joined } = store.line(zone).join_once(keys.to_vec()).await.expect("joins");
        let mut new = (joined.first..).zip(&joined.verdicts);
        let seqs: Vec<u64> = earlier
            .iter()
            .map(|ticket| ticket.map_or_else(|| new.next().expect("one for each").0, |ticket| ticket.seq))
            .collect();
        assert!(new.next().is_none(), "{joined:?}");
        let is_of_line = |ticket: &Ticket| ticket.epoch == joined.epoch && ticket.issued_ms <= joined.at_ms;
        assert!(earlier.iter().flatten().all(is_of_line), "{earlier:?}");
        assert_eq!(ranks(&joined.verdicts), seqs_after(&earlier, joined.first), "their ranks");
        (seqs, joined.verdicts.len())
    };
    assert_eq!(join(&[None, key(1), None, key(2)]).await, (vec![0, 1, 2, 3], 4));
    assert_eq!(join(&[key(1)]).await, (vec![1], 0));
    assert_eq!(join(&[None, key(2), key(3), key(1), None]).await, (vec![4, 3, 5, 1, 6], 3));
    // Two calls that come together.
    assert_eq!(join(&[key(4), None, key(4), key(3), key(5)]).await, (vec![7, 8, 7, 5, 9], 3));
    assert_eq!(join(&[key(5), key(4), key(4)]).await, (vec![9, 7, 7], 0));
    let tally = store.line(zone).beat(Vec::new(), 0).await.expect("beats").tally;
    assert_eq!((tally.joined, tally.waiting), (10, 10));
    // To look for tickets takes none.
    let sought = (1..=6).map(|number| JoinKey([number; 16])).collect();
    let found = store.line(zone).joined_before(sought).await.expect("looks");
    let seqs: Vec<_> = found.iter().map(|ticket| ticket.map(|ticket| ticket.seq)).collect();
    assert_eq!(seqs, [Some(1), Some(3), Some(5), Some(7), Some(9), None]);
    assert_eq!(join(&[None]).await, (vec![10], 1));
    // Another zone knows nothing of these keys.
    let other = ZoneId::parse(&format!("{zone}-2")).expect("a name");
    store.line(&other).put(with(Mode::Hold)).await.expect("put");
    assert_eq!(store.line(&other).joined_before(vec![JoinKey([1; 16])]).await.expect("looks"), [None]);
    let joined = store.line(&other).join_once(vec![key(1)]).await.expect("joins");
    assert_eq!((joined.earlier, joined.joined.first), (vec![None], 0));
}

/// The ranks of the new tickets in a line where nobody has left: the first number is the people ahead.
fn seqs_after(earlier: &[Option<Ticket>], first: u64) -> Vec<u64> {
    let new = earlier.iter().filter(|ticket| ticket.is_none());
    new.zip(first + 1..).map(|(_, rank)| rank).collect()
}

/// Nobody enters before the instant, not even a newcomer without anybody ahead. The front is told the instant, and enters from then on.
pub(crate) async fn a_zone_opens_at_its_instant(backend: &impl Backend, zone: &ZoneId) {
    let store = backend.open().await;
    let now_s = u32::try_from(store::unix_ms() / 1_000).expect("before 2106");
    let opening = Policy { opens_at: (now_s + 3).into(), ..policy() };
    let view = store.line(zone).put(opening).await.expect("put");
    // The instant by the zone's clock, which the wall clock of a store may differ from.
    let opens_ms = u64::from(opening.opens_at.unix_s) * 1_000 + view.now_ms - view.unix_ms;
    assert!(view.window.opens_ms().abs_diff(opens_ms) <= 1, "{} and {opens_ms}", view.window.opens_ms());
    let joined = store.line(zone).join(70).await.expect("joins");
    assert!(joined.at_ms < opens_ms, "the test was held up for seconds");
    for (verdict, slot) in joined.verdicts.iter().zip(0..) {
        // 60 in a sub-window. Its end is another millisecond.
        let slot_ms = if slot < 60 { opens_ms } else { opens_ms + 6_001 };
        let told_ms = joined.at_ms + u64::from(place(verdict).slot_in_ms.expect("of the front"));
        assert!(told_ms.abs_diff(slot_ms) <= 1, "slot {slot}: {told_ms}, not {slot_ms}");
    }
    // The same policy again changes nothing.
    let again = store.line(zone).put(opening).await.expect("put");
    assert_eq!(again.window.opens_ms(), view.window.opens_ms());
    let decided = eventually("somebody enters", async || {
        let decided = store
            .line(zone)
            .enter(claims(joined.epoch, joined.first..joined.first + 1))
            .await
            .expect("decided");
        matches!(decided.verdicts[0], Verdict::Entered(_)).then_some(decided)
    })
    .await;
    assert!(entry(&decided.verdicts[0]).at_ms >= view.window.opens_ms(), "{decided:?}");
    // An operator opens it earlier, or not at a set time any more.
    let other = Policy { opens_at: 0.into(), ..policy() };
    assert_eq!(store.line(zone).put(other).await.expect("put").window.opens_ms(), 0);
}

/// Brings the policy of an event into force whose order is drawn, and returns it.
async fn put_draw(store: &Arc<impl Store>, zone: &ZoneId) -> Policy {
    let event = drawn_event("sale");
    let of_event = event.policy(&policy());
    if store.zones().await.expect("answers").is_none() {
        store.line(zone).put(of_event).await.expect("put");
        return of_event;
    }
    store.line(zone).put(policy()).await.expect("put");
    let schedule = Schedule::new(vec![event], &policy()).expect("a schedule");
    let definition = Definition { policy: policy(), schedule, ..Definition::default() };
    let defined = store.define(zone, &Expected::Any, Some(&definition)).await.expect("defined");
    assert!(matches!(defined, Defined::Done(Some(_))), "{defined:?}");
    assert_eq!(store.line(zone).open(of_event).await.expect("opens").policy, of_event);
    of_event
}

/// Until the draw nobody enters. Then everybody on the list has the number of the position, and whoever came later stands behind. The
/// record of a draw is kept by stages.
pub(crate) async fn a_line_is_dealt_anew_by_a_draw(backend: &impl Backend, zone: &ZoneId) {
    let store = backend.open().await;
    let draw = put_draw(&store, zone).await.opens_at.draw;
    let line = store.line(zone);
    let joined = line.join(100).await.expect("joins");
    assert!(
        joined.verdicts.iter().all(|verdict| place(verdict).slot_in_ms.is_none()),
        "nobody has a rank yet"
    );
    let leaver = |seq| Leaver { claim: Claim { epoch: joined.epoch, seq }, proof: Proof::Token, address: 0 };
    assert_eq!(line.leave(vec![leaver(3)]).await.expect("leaves"), [Departure::Place]);
    let census = line.census().await.expect("lists");
    let list: Vec<(u64, Vec<u64>)> =
        census.segments.iter().map(|segment| (segment.index, segment.live.clone())).collect();
    assert_eq!((census.next, census.segments.len(), census.is_recovering), (100, 1, false));
    // The last one is the first.
    let positions: Vec<u32> = (0..99).rev().collect();
    let lots = Lots::new(draw, census.next, &list, &positions).expect("the list is right");
    let later = line.join(2).await.expect("joins");
    let other = Lots::new(draw.wrapping_add(1), census.next, &list, &positions).expect("the list is right");
    assert_eq!(line.deal(other.deal(&census), true).await, Ok(Dealt::NotNow), "another draw is due");
    assert_eq!(line.leave(vec![leaver(4)]).await.expect("leaves"), [Departure::Place]);
    assert_eq!(line.deal(lots.deal(&census), false).await, Ok(Dealt::Changed), "somebody has left");
    let census = line.census().await.expect("lists");
    assert_eq!(line.deal(lots.deal(&census), false).await, Ok(Dealt::Done));
    assert_eq!(line.deal(lots.deal(&census), false).await, Ok(Dealt::Done), "once is enough");
    let view = line.beat(Vec::new(), 0).await.expect("beats");
    assert_eq!((view.drawn, view.tally.waiting, view.tally.present), (lots.drawn(), 100, 100));
    let drawn = |seq| lots.number(seq).expect("in line");
    assert_eq!((view.rank(drawn(99)), view.rank(drawn(0))), (Some(1), Some(98)));
    assert_eq!([view.rank(drawn(later.first)), view.rank(drawn(later.first + 1))], [Some(99), Some(100)]);
    // 60 of the first minute's slots are free in this sub-window: the holders of the best positions enter, by tickets of any epoch.
    let best: Vec<u64> = (40..100).map(drawn).collect();
    let decided = line.enter(claims(joined.epoch.wrapping_add(1), best)).await.expect("decided");
    let entered = decided.verdicts.iter().filter(|verdict| matches!(verdict, Verdict::Entered(_))).count();
    assert_eq!((entered, decided.drawn), (60, lots.drawn()));
    let old = enter(&store, zone, joined.epoch, 0..2).await;
    assert_eq!(old.verdicts, [Verdict::Gone; 2], "the numbers before the draw are nobody's");
    // Newcomers stand behind everybody.
    let newcomer = line.join(1).await.expect("joins");
    assert!(newcomer.first >= lots.drawn().end);

    let keep = async |new: Option<&[u8]>| line.keep_draw(draw, new.map(<[u8]>::to_vec)).await.expect("kept");
    assert_eq!(keep(None).await, None);
    assert_eq!(keep(Some(b"1 mine")).await.as_deref(), Some(&b"1 mine"[..]));
    assert_eq!(keep(Some(b"1 another")).await.as_deref(), Some(&b"1 mine"[..]), "the first one stays");
    assert_eq!(keep(Some(b"2 later")).await.as_deref(), Some(&b"2 later"[..]));
    assert_eq!(keep(Some(b"1 mine")).await.as_deref(), Some(&b"2 later"[..]));
    drop(line);
    drop(store);
    let store = backend.open().await;
    let policy = put_again(&store, zone).await;
    assert_eq!(store.line(zone).open(policy).await.expect("opens").drawn, lots.drawn(), "it is durable");
    assert_eq!(store.line(zone).keep_draw(draw, None).await.expect("kept").as_deref(), Some(&b"2 later"[..]));
}

/// The policy in force of a zone that the store keeps, or that of the draw.
async fn put_again(store: &Arc<impl Store>, zone: &ZoneId) -> Policy {
    match store.zones().await.expect("answers") {
        Some(kept) => {
            let (_, definition) =
                kept.zones.into_iter().find(|(kept, _)| kept == zone).expect("the zone is kept");
            definition.policy_at(store::unix_ms() / 1_000)
        }
        None => put_draw(store, zone).await,
    }
}

pub(crate) async fn newcomers_enter_directly_only_where_nobody_waits(backend: &impl Backend, zone: &ZoneId) {
    let store = backend.open().await;
    let epoch = store.line(zone).put(with(Mode::Hold)).await.expect("put").epoch;
    place(&store.line(zone).join(1).await.expect("joins").verdicts[0]);
    store.line(zone).put(policy()).await.expect("put");
    // The free slots belong to those who wait.
    assert_eq!(ranks(&store.line(zone).join(2).await.expect("joins").verdicts), [2, 3]);
    for (seq, waiting) in [(0, 2), (1, 1), (2, 0)] {
        let decided = enter(&store, zone, epoch, seq..seq + 1).await;
        assert_eq!(entry(&decided.verdicts[0]).at_ms, decided.at_ms);
        assert_eq!(store.line(zone).beat(Vec::new(), 0).await.expect("beats").tally.waiting, waiting);
    }
    entry(&store.line(zone).join(1).await.expect("joins").verdicts[0]);
}

pub(crate) async fn claims_are_granted_in_order_as_slots_fall_free(backend: &impl Backend, zone: &ZoneId) {
    const PEOPLE: u64 = 35;
    // Ten in any second.
    let fast = Policy { sub_windows: 60, ..policy() };
    let store = backend.open().await;
    let epoch = store.line(zone).put(Policy { mode: Mode::Hold, ..fast }).await.expect("put").epoch;
    store.line(zone).join(u32::try_from(PEOPLE).expect("small")).await.expect("joins");
    store.line(zone).put(fast).await.expect("put");
    // Tickets further back get no slot although slots are free, because those ahead are present.
    let early = enter(&store, zone, epoch, 10..PEOPLE).await;
    assert_eq!(ranks(&early.verdicts), (11..=PEOPLE).collect::<Vec<_>>());

    let mut entries: Vec<Entry> = Vec::new();
    while entries.len() < 35 {
        let known = entries.len();
        let (store, known_entries) = (&store, entries.clone());
        entries = eventually("the next slots fall free", || {
            let known_entries = known_entries.clone();
            async move {
                // In reverse order: the order within a call does not matter.
                let mut verdicts =
                    store.line(zone).enter(claims(epoch, (0..PEOPLE).rev())).await.expect("decided").verdicts;
                verdicts.reverse();
                let entered = verdicts.partition_point(|verdict| matches!(verdict, Verdict::Entered(_)));
                let waiting = ranks(&verdicts[entered..]);
                assert_eq!(waiting, (1..=PEOPLE - entered as u64).collect::<Vec<_>>());
                let entries: Vec<Entry> = verdicts[..entered].iter().map(entry).collect();
                assert_eq!(entries[..known_entries.len()], known_entries, "asked again, they are the same");
                (entries.len() > known).then_some(entries)
            }
        })
        .await;
    }
    // At most ten entries in any sub-window, both ends included.
    for (before, after) in entries.iter().zip(&entries[10..]) {
        assert!(after.at_ms - before.at_ms > 1_000, "{entries:?}");
    }
}

pub(crate) async fn repeated_claims_give_the_same_entry(backend: &impl Backend, zone: &ZoneId) {
    let store = backend.open().await;
    store.line(zone).put(policy()).await.expect("put");
    let Joined { epoch, verdicts, .. } = store.line(zone).join(20).await.expect("joins");
    for _ in 0..2 {
        assert_eq!(enter(&store, zone, epoch, 0..20).await.verdicts, verdicts);
    }
    let tally = store.line(zone).beat(Vec::new(), 0).await.expect("beats").tally;
    assert_eq!((tally.entered, tally.waiting), (20, 0));
}

pub(crate) async fn foreign_and_unknown_tickets_are_gone(backend: &impl Backend, zone: &ZoneId) {
    let store = backend.open().await;
    store.line(zone).put(with(Mode::Hold)).await.expect("put");
    let Joined { epoch, .. } = store.line(zone).join(3).await.expect("joins");
    let asked = [
        Claim { epoch: epoch ^ 1, seq: 0 },
        Claim { epoch: 0, seq: 1 },
        Claim { epoch, seq: 3 },
        Claim { epoch, seq: SEGMENT + 1 },
        Claim { epoch, seq: (1 << 48) - 1 },
    ];
    assert_eq!(store.line(zone).enter(asked.to_vec()).await.expect("decided").verdicts, [Verdict::Gone; 5]);
    // They do not affect other claims of the same call.
    let mixed = [asked[0], Claim { epoch, seq: 2 }, asked[2], Claim { epoch, seq: 0 }];
    let verdicts = store.line(zone).enter(mixed.to_vec()).await.expect("decided").verdicts;
    assert_eq!([&verdicts[0], &verdicts[2]], [&Verdict::Gone; 2]);
    assert_eq!((place(&verdicts[1]).rank, place(&verdicts[3]).rank), (3, 1));
    let view = store.line(zone).beat(Vec::new(), 0).await.expect("beats");
    assert_eq!((view.next, view.tally.waiting, view.tally.joined), (3, 3, 3));
}

pub(crate) async fn hold_and_closed_let_nobody_in_and_open_everybody(backend: &impl Backend, zone: &ZoneId) {
    let store = backend.open().await;
    let epoch = store.line(zone).put(with(Mode::Hold)).await.expect("put").epoch;
    let held = store.line(zone).join(700).await.expect("joins");
    assert_eq!(ranks(&held.verdicts), (1..=700).collect::<Vec<_>>());
    assert!(held.verdicts.iter().all(|verdict| place(verdict).slot_in_ms.is_none()));
    for mode in [Mode::Hold, Mode::Closed] {
        let view = store.line(zone).put(with(mode)).await.expect("put");
        assert_eq!((view.policy.mode, view.tally.waiting), (mode, 700));
        assert_eq!(ranks(&enter(&store, zone, epoch, 0..700).await.verdicts), (1..=700).collect::<Vec<_>>());
    }
    store.line(zone).put(with(Mode::Open)).await.expect("put");
    // More than the minute allows, and the last ticket first.
    entry(&enter(&store, zone, epoch, 699..700).await.verdicts[0]);
    enter(&store, zone, epoch, 0..699).await.verdicts.iter().for_each(|verdict| {
        entry(verdict);
    });
    store.line(zone).join(700).await.expect("joins").verdicts.iter().for_each(|verdict| {
        entry(verdict);
    });
    // The entries count, so the windows are full.
    store.line(zone).put(policy()).await.expect("put");
    assert_eq!(ranks(&store.line(zone).join(1).await.expect("joins").verdicts), [1]);
}

pub(crate) async fn policy_changes_keep_places_and_entries(backend: &impl Backend, zone: &ZoneId) {
    let store = backend.open().await;
    store.line(zone).put(policy()).await.expect("put");
    let Joined { epoch, verdicts, .. } = store.line(zone).join(610).await.expect("joins");
    let changed = Policy {
        admit_per_minute: 601,
        polling_period_ms: 1_000,
        idle_timeout_s: 30,
        waits_per_minute_per_client: 7,
        entries_per_minute_per_client: 600,
        max_waiting: 1_000,
        ..policy()
    };
    let view = store.line(zone).put(changed).await.expect("put");
    assert_eq!((view.policy, view.epoch, view.next), (changed, epoch, 610));
    assert_eq!((view.tally.waiting, view.tally.present, view.tally.entered), (10, 10, 600));
    let again = enter(&store, zone, epoch, 0..610).await.verdicts;
    assert_eq!(again[..600], verdicts[..600]);
    assert_eq!(ranks(&again[600..]), (1..=10).collect::<Vec<_>>());
    // Earlier entries count in the new windows: the sub-window is full, whatever is left in the minute.
    assert!(again[600..].iter().all(|verdict| place(verdict).slot_in_ms.is_some_and(|ms| ms > 0)));
}

pub(crate) async fn passes_keep_their_life_when_the_policy_changes(backend: &impl Backend, zone: &ZoneId) {
    let lives = |pass_ttl_s| Policy { pass_ttl_s, ..policy() };
    let store = backend.open().await;
    let epoch = store.line(zone).put(lives(60)).await.expect("put").epoch;
    let short = store.line(zone).join(1).await.expect("joins").verdicts[0];
    store.line(zone).put(lives(3_600)).await.expect("put");
    let long = store.line(zone).join(1).await.expect("joins").verdicts[0];
    store.line(zone).put(lives(61)).await.expect("put");
    assert_eq!((entry(&short).life_s, entry(&long).life_s), (60, 3_600));
    let both = || async { enter(&store, zone, epoch, 0..2).await.verdicts };
    assert_eq!(both().await, [short, long]);
    // Another store object reads the same.
    drop(store);
    let store = backend.open().await;
    store.line(zone).open(lives(61)).await.expect("opened");
    let age_ms = || async {
        store.line(zone).beat(Vec::new(), 0).await.expect("beats").now_ms.saturating_sub(entry(&short).at_ms)
    };
    eventually("half of the life of the first pass goes by", || async {
        (age_ms().await >= 30_000).then_some(())
    })
    .await;
    // What the clock leaps, because calls were late, makes a pass live longer.
    eventually("the life of the first pass goes by", || async {
        let verdicts = enter(&store, zone, epoch, 0..2).await.verdicts;
        if verdicts == [Verdict::Gone, long] {
            assert!(age_ms().await >= 60_000, "it ended early");
            return Some(());
        }
        assert_eq!(verdicts, [short, long]);
        None
    })
    .await;
    store.line(zone).put(lives(3_600)).await.expect("put");
    assert_eq!(enter(&store, zone, epoch, 0..2).await.verdicts, [Verdict::Gone, long], "nothing is revived");
}

pub(crate) async fn the_silent_leave_and_who_is_marked_stays(backend: &impl Backend, zone: &ZoneId) {
    let restless = Policy { polling_period_ms: 500, idle_timeout_s: 10, ..with(Mode::Hold) };
    let store = backend.open().await;
    store.line(zone).put(restless).await.expect("put");
    store.line(zone).join(100).await.expect("joins");
    let marked = |seq: u64| seq.is_multiple_of(3);
    let mut words = Box::new([0; PAGE_WORDS]);
    for seq in (0..100).filter(|&seq| marked(seq)) {
        words[usize::try_from(seq / 64).expect("small")] |= 1 << (seq % 64);
    }
    let beat = || async {
        store.line(zone).beat(vec![PagePolls { page: 0, words: words.clone() }], 0).await.expect("beats")
    };
    let view = beat().await;
    assert_eq!((view.tally.waiting, view.tally.present), (100, 100));
    let view = eventually("the silent are not present any more", || async {
        Some(beat().await).filter(|view| view.tally.present == 34)
    })
    .await;
    assert_eq!((view.tally.waiting, view.tally.evicted), (100, 0), "absent, they keep their places");
    let view = eventually("the silent are evicted", || async {
        Some(beat().await).filter(|view| view.tally.evicted > 0)
    })
    .await;
    assert_eq!((view.tally.waiting, view.tally.present, view.tally.evicted), (34, 34, 66));
    for seq in 0..100 {
        let rank = view.rank(seq);
        assert_eq!(rank, marked(seq).then_some(seq / 3 + 1), "ticket {seq}");
    }
    let verdicts = enter(&store, zone, view.epoch, 0..100).await.verdicts;
    let stays = |verdict: &Verdict| *verdict != Verdict::Gone;
    assert!((0..100).zip(&verdicts).all(|(seq, verdict)| stays(verdict) == marked(seq)), "{verdicts:?}");
}

pub(crate) async fn who_never_claims_loses_the_slot_and_keeps_the_place(
    backend: &impl Backend,
    zone: &ZoneId,
) {
    // One person a minute.
    let slow = Policy {
        admit_per_minute: 1,
        sub_windows: 1,
        polling_period_ms: 500,
        idle_timeout_s: 10,
        ..policy()
    };
    let store = backend.open().await;
    let epoch = store.line(zone).put(Policy { mode: Mode::Hold, ..slow }).await.expect("put").epoch;
    store.line(zone).join(2).await.expect("joins");
    store.line(zone).put(slow).await.expect("put");
    let mut words = Box::new([0; PAGE_WORDS]);
    words[0] = 0b11;
    let beat = || async {
        store.line(zone).beat(vec![PagePolls { page: 0, words: words.clone() }], 0).await.expect("beats")
    };
    let ask = |seq| {
        let store = &store;
        async move { enter(store, zone, epoch, seq..seq + 1).await.verdicts[0] }
    };
    // Polls of both are reported all the time, and ticket 0 never claims.
    assert_eq!(place(&ask(1).await).present_ahead, 1);
    eventually("ticket 0 is not present any more", || async {
        let view = beat().await;
        assert_eq!((view.tally.waiting, view.tally.evicted), (2, 0));
        (view.tally.present == 1).then_some(())
    })
    .await;
    entry(&ask(1).await);
    // It does not come back by reports, for longer than the idle time, and it is not evicted.
    let from_ms = beat().await.now_ms;
    eventually("the idle time is over", || async {
        let view = beat().await;
        assert_eq!((view.tally.waiting, view.tally.present, view.tally.evicted), (1, 0, 0));
        (view.now_ms > from_ms + 12_000).then_some(())
    })
    .await;
    let back = place(&ask(0).await);
    assert_eq!((back.rank, back.present_ahead), (1, 0));
    assert_eq!(beat().await.tally.present, 1);
}

pub(crate) async fn full_batches_are_answered_in_the_claims_order(backend: &impl Backend, zone: &ZoneId) {
    let store = backend.open().await;
    store.line(zone).put(policy()).await.expect("put");
    let joined = store.line(zone).join(1_024).await.expect("joins");
    assert_eq!(joined.verdicts.len(), 1_024);
    joined.verdicts[..600].iter().for_each(|verdict| {
        entry(verdict);
    });
    assert_eq!(ranks(&joined.verdicts[600..]), (1..=424).collect::<Vec<_>>());
    let next = store.line(zone).join(1_024).await.expect("joins");
    assert_eq!(next.first, 1_024);
    assert_eq!(ranks(&next.verdicts), (425..=424 + 1_024).collect::<Vec<_>>());

    let mut asked = claims(joined.epoch, (0..1_024).rev());
    // One of them twice.
    asked[0] = asked[500];
    let verdicts = store.line(zone).enter(asked.clone()).await.expect("decided").verdicts;
    assert_eq!(verdicts.len(), asked.len());
    for (claim, verdict) in asked.iter().zip(&verdicts) {
        match claim.seq.checked_sub(600) {
            None => assert_eq!(entry(verdict).at_ms, joined.at_ms),
            Some(ahead) => assert_eq!(place(verdict).rank, ahead + 1, "ticket {}", claim.seq),
        }
    }
}

pub(crate) async fn places_are_counted_over_segments_ends(backend: &impl Backend, zone: &ZoneId) {
    let store = backend.open().await;
    // The line reaches the third segment. A batch crosses each segment's end except the first.
    let epoch = fill(&store, zone, 2 * SEGMENT + 1_024).await;
    let next = 2 * SEGMENT + 1_024;
    let edges = [0, SEGMENT - 1, SEGMENT, SEGMENT + 1, 2 * SEGMENT - 1, 2 * SEGMENT, next - 1];
    let verdicts = store.line(zone).enter(claims(epoch, edges)).await.expect("decided").verdicts;
    assert_eq!(ranks(&verdicts), edges.map(|seq| seq + 1));
    // A batch that crosses a segment's end.
    store.line(zone).join(1_000).await.expect("joins");
    for _ in 0..63 {
        store.line(zone).join(1_024).await.expect("joins");
    }
    let end = next + 1_000 + 63 * 1_024;
    assert!(end > 3 * SEGMENT - 1_024 && !end.is_multiple_of(1_024));
    let across = store.line(zone).join(1_024).await.expect("joins");
    assert_eq!(ranks(&across.verdicts), (end + 1..=end + 1_024).collect::<Vec<_>>());

    let everybody = |view: &Snapshot| -> Vec<PagePolls> {
        let pages = view.next.div_ceil(PAGE_TICKETS as u64);
        (0..pages)
            .map(|segment| PagePolls { page: segment, words: Box::new([u64::MAX; PAGE_WORDS]) })
            .collect()
    };
    let view = store.line(zone).beat(Vec::new(), 0).await.expect("beats");
    let view = store.line(zone).beat(everybody(&view), 0).await.expect("beats");
    assert_eq!((view.next, view.tally.waiting, view.tally.present), (end + 1_024, end + 1_024, end + 1_024));
    for seq in edges {
        assert_eq!(view.rank(seq).expect("waits"), seq + 1);
    }

    store.line(zone).put(with(Mode::Open)).await.expect("put");
    let leaving = [SEGMENT - 1, SEGMENT, 2 * SEGMENT];
    let verdicts = store.line(zone).enter(claims(epoch, leaving)).await.expect("decided").verdicts;
    verdicts.iter().for_each(|verdict| {
        entry(verdict);
    });
    let view = store.line(zone).put(with(Mode::Hold)).await.expect("put");
    assert_eq!(view.tally.waiting, end + 1_024 - 3);
    for (seq, rank) in
        [(SEGMENT - 2, SEGMENT - 1), (SEGMENT + 1, SEGMENT), (2 * SEGMENT - 1, 2 * SEGMENT - 2)]
    {
        assert_eq!(view.rank(seq).expect("waits"), rank);
        assert_eq!(ranks(&enter(&store, zone, epoch, seq..seq + 1).await.verdicts), [rank]);
    }
    assert!(leaving.iter().all(|&seq| view.rank(seq).is_none()));
}

pub(crate) async fn base_moves_past_a_segment_and_entries_are_told_again(
    backend: &impl Backend,
    zone: &ZoneId,
) {
    let store = backend.open().await;
    let epoch = fill(&store, zone, SEGMENT + 1_024).await;
    store.line(zone).put(with(Mode::Open)).await.expect("put");
    let mut first = None;
    for batch in 0..64 {
        let decided = enter(&store, zone, epoch, batch * 1_024..(batch + 1) * 1_024).await;
        decided.verdicts.iter().for_each(|verdict| {
            entry(verdict);
        });
        first = first.or(Some(decided.verdicts[0]));
    }
    let view = store.line(zone).beat(Vec::new(), 0).await.expect("beats");
    assert_eq!((view.base, view.next, view.tally.waiting), (SEGMENT, SEGMENT + 1_024, 1_024));
    assert_eq!(view.rank(SEGMENT).expect("waits"), 1);
    let again = store.line(zone).enter(claims(epoch, [0, SEGMENT])).await.expect("decided");
    assert_eq!(again.verdicts[0], first.expect("some were let in"));
    assert_eq!(entry(&again.verdicts[1]).at_ms, again.at_ms);
}

pub(crate) async fn new_store_object_finds_everything(backend: &impl Backend, zone: &ZoneId) {
    let store = backend.open().await;
    store.line(zone).put(policy()).await.expect("put");
    let Joined { epoch, verdicts, .. } = store.line(zone).join(610).await.expect("joins");
    drop(store);
    let store = backend.open().await;
    let view = store.line(zone).open(policy()).await.expect("opened");
    assert_eq!((view.epoch, view.next, view.tally.waiting), (epoch, 610, 10));
    let again = enter(&store, zone, epoch, 0..610).await.verdicts;
    assert_eq!(again[..600], verdicts[..600]);
    assert_eq!(ranks(&again[600..]), (1..=10).collect::<Vec<_>>());
    let next = store.line(zone).join(1).await.expect("joins");
    assert_eq!((next.first, ranks(&next.verdicts)), (610, vec![11]));
}

/// The pages of some tickets.
pub(crate) fn pages(seqs: &[u64]) -> Vec<PagePolls> {
    let mut pages = std::collections::BTreeMap::new();
    for seq in seqs {
        let words = pages.entry(seq / PAGE_TICKETS as u64).or_insert_with(|| Box::new([0_u64; PAGE_WORDS]));
        let ticket = usize::try_from(seq % PAGE_TICKETS as u64).expect("small");
        words[ticket / 64] |= 1 << (ticket % 64);
    }
    pages.into_iter().map(|(page, words)| PagePolls { page, words }).collect()
}

/// How many are inside, and how many may be.
pub(crate) fn inside(view: &Snapshot) -> (u64, u64) {
    let people = view.occupancy.expect("the zone counts the people inside");
    (people.inside, people.most)
}

pub(crate) async fn whoever_leaves_makes_room_for_the_next(backend: &impl Backend, zone: &ZoneId) {
    let limited = Policy { max_active: 3, ..policy() };
    let store = backend.open().await;
    store.line(zone).put(limited).await.expect("put");
    let Joined { epoch, verdicts, .. } = store.line(zone).join(5).await.expect("joins");
    for verdict in &verdicts[..3] {
        entry(verdict);
    }
    assert_eq!(ranks(&verdicts[3..]), [1, 2], "600 a minute may enter, and 3 may be inside");
    let asked = enter(&store, zone, epoch, 3..5).await;
    assert_eq!(asked.slots.occupancy.map(|people| people.most), Some(3));
    let asked = place(&asked.verdicts[0]);
    assert_eq!(asked.slot_in_ms, None, "nobody knows when somebody leaves");
    assert!(asked.poll_in_ms < 1_000, "the next place is to be used within a second");
    let view = store.line(zone).beat(Vec::new(), 0).await.expect("beats");
    assert_eq!(inside(&view), (3, 3));

    // Two are active, and the third one leaves. Activity after that does not bring the visit back.
    store.line(zone).visits(pages(&[0, 1, 2])).await.expect("reports");
    assert_eq!(leave(&store, zone, epoch, 1, Proof::Visit).await, Departure::Visit);
    let left = store.line(zone).visits(Vec::new()).await.expect("reports");
    assert_eq!(left.pages.iter().map(|(page, words)| (*page, words[0])).collect::<Vec<_>>(), [(0, 2)]);
    let again = store.line(zone).visits(pages(&[1])).await.expect("reports");
    assert_eq!(again, left);
    assert_eq!(inside(&store.line(zone).beat(Vec::new(), 0).await.expect("beats")), (2, 2));
    let next = enter(&store, zone, epoch, 3..5).await.verdicts;
    entry(&next[0]);
    assert_eq!(ranks(&next[1..]), [1]);

    // Who is inside, or at least how many, outlives the store object.
    drop(store);
    let store = backend.open().await;
    let view = store.line(zone).open(limited).await.expect("opened");
    assert_eq!(inside(&view).1, 3);
    assert_eq!(ranks(&enter(&store, zone, epoch, 4..5).await.verdicts), [1]);
    // Those who show themselves are counted once.
    store.line(zone).visits(pages(&[0, 2, 3])).await.expect("reports");
    assert_eq!(inside(&store.line(zone).beat(Vec::new(), 0).await.expect("beats")), (3, 3));
    assert_eq!(leave(&store, zone, epoch, 0, Proof::Token).await, Departure::Visit);
    entry(&enter(&store, zone, epoch, 4..5).await.verdicts[0]);

    // Without a limit nobody counts. When it comes back, nobody enters until those inside had time to show themselves.
    store.line(zone).put(policy()).await.expect("put");
    store.line(zone).visits(Vec::new()).await.expect("reports");
    assert_eq!(store.line(zone).beat(Vec::new(), 0).await.expect("beats").occupancy, None);
    store.line(zone).put(limited).await.expect("put");
    assert_eq!(ranks(&store.line(zone).join(1).await.expect("joins").verdicts), [1]);
    store.line(zone).visits(pages(&[2, 3])).await.expect("reports");
    assert_eq!(inside(&store.line(zone).beat(Vec::new(), 0).await.expect("beats")), (2, 3));
}

async fn leave(store: &Arc<impl Store>, zone: &ZoneId, epoch: u32, seq: u64, proof: Proof) -> Departure {
    let leaver = Leaver { claim: Claim { epoch, seq }, proof, address: 0 };
    store.line(zone).leave(vec![leaver]).await.expect("answered")[0]
}

/// A holder who waits gives up the place at once and for good, also when the store object is made anew. A visit ends once, and its ticket
/// begins no other. What another line gave out, or nobody yet, does not leave.
pub(crate) async fn whoever_leaves_the_line_has_no_place(backend: &impl Backend, zone: &ZoneId) {
    let limited = Policy { max_active: 2, ..policy() };
    let store = backend.open().await;
    store.line(zone).put(limited).await.expect("put");
    let Joined { epoch, verdicts, .. } = store.line(zone).join(5).await.expect("joins");
    assert_eq!(ranks(&verdicts[2..]), [1, 2, 3]);
    for (of, seq) in [(epoch ^ 0x5A, 0), (epoch ^ 0x5A, 2), (epoch, 5), (epoch, 1 << 40)] {
        for proof in [Proof::Name, Proof::Token, Proof::Visit] {
            assert_eq!(leave(&store, zone, of, seq, proof).await, Departure::Unknown, "{of} {seq} {proof:?}");
        }
    }
    assert_eq!(leave(&store, zone, epoch, 2, Proof::Name).await, Departure::Waits);
    assert_eq!(leave(&store, zone, epoch, 2, Proof::Token).await, Departure::Place);
    assert_eq!(leave(&store, zone, epoch, 2, Proof::Token).await, Departure::Gone);
    let view = store.line(zone).beat(Vec::new(), 0).await.expect("beats");
    assert_eq!((view.tally.waiting, view.tally.present, view.tally.evicted), (2, 2, 1));
    let decided = enter(&store, zone, epoch, 2..5).await.verdicts;
    assert_eq!(decided[0], Verdict::Gone);
    assert_eq!(ranks(&decided[1..]), [1, 2], "those behind moved up");

    assert_eq!(leave(&store, zone, epoch, 0, Proof::Name).await, Departure::Visit);
    assert_eq!(leave(&store, zone, epoch, 0, Proof::Token).await, Departure::Gone);
    let decided = enter(&store, zone, epoch, 0..4).await.verdicts;
    assert_eq!(decided[0], Verdict::Gone, "the ticket begins no second visit");
    entry(&decided[1]);
    entry(&decided[3]);
    drop(store);
    let store = backend.open().await;
    store.line(zone).open(limited).await.expect("opened");
    let decided = enter(&store, zone, epoch, 0..4).await.verdicts;
    assert_eq!((decided[0], decided[2]), (Verdict::Gone, Verdict::Gone));
    entry(&decided[1]);
}

/// The first address that asks has the entry, for every server and after a restart. Another one does not end its visit.
pub(crate) async fn an_entry_is_bound_to_one_address(backend: &impl Backend, zone: &ZoneId) {
    let store = backend.open().await;
    store.line(zone).put(policy()).await.expect("put");
    let Joined { epoch, verdicts, .. } = store.line(zone).join(1).await.expect("joins");
    entry(&verdicts[0]);
    let claim = Claim { epoch, seq: 0 };
    for asked in [7, 8, 7, u64::MAX] {
        assert_eq!(store.line(zone).bind(claim, asked).await.expect("bound"), 7);
    }
    drop(store);
    let store = backend.open().await;
    store.line(zone).open(policy()).await.expect("opened");
    assert_eq!(store.line(zone).bind(claim, 9).await.expect("bound"), 7);
    let departs = async |address| {
        let leaver = Leaver { claim, proof: Proof::Token, address };
        store.line(zone).leave(vec![leaver]).await.expect("answered")[0]
    };
    assert_eq!(departs(9).await, Departure::Elsewhere);
    assert_eq!(departs(7).await, Departure::Visit);
}

pub(crate) async fn zones_that_were_not_opened_are_unknown(backend: &impl Backend, zone: &ZoneId) {
    let store = backend.open().await;
    let unknown = StoreError::UnknownZone;
    assert_eq!(store.line(zone).join(1).await.expect_err("unknown"), unknown);
    assert_eq!(store.line(zone).enter(claims(1, [0])).await.expect_err("unknown"), unknown);
    assert_eq!(store.line(zone).beat(Vec::new(), 0).await.expect_err("unknown"), unknown);
    // Each store object must open the zone itself, whatever is stored.
    store.line(zone).put(policy()).await.expect("put");
    store.line(zone).join(1).await.expect("joins");
    drop(store);
    let store = backend.open().await;
    assert_eq!(store.line(zone).join(1).await.expect_err("unknown"), unknown);
}

/// A minute with this weight and part.
fn minute(minute: u32, weight: u64, part: &[u8]) -> OfferedMinute {
    OfferedMinute { minute, counts: weight.to_be_bytes().to_vec(), part: part.to_vec() }
}

/// Of one minute that several servers offer, the heaviest counts are kept, and the part of each server, however often they offer it. The
/// zone need not be open.
pub(crate) async fn minutes_are_merged_and_kept(backend: &impl Backend, zone: &ZoneId) {
    // The end of a day, and the begin of the next one.
    const LAST: u32 = 20_000 * 1_440 - 1;
    let store = backend.open().await;
    let line = store.line(zone);
    let keep = async |server, offered| line.keep_minutes(server, offered).await.expect("kept");
    assert_eq!(line.minutes(LAST - 9, LAST + 9).await.expect("read"), [], "nothing is kept yet");
    for _ in 0..2 {
        keep(1, vec![minute(LAST, 5, b"one"), minute(LAST + 1, 7, b"")]).await;
        keep(1, vec![minute(LAST, 5, b"one")]).await;
        keep(2, vec![minute(LAST, 4, b"other")]).await;
    }
    keep(3, vec![minute(LAST + 1, u64::MAX >> 11, &[0xFF; 128])]).await;
    keep(1, vec![minute(LAST + 8, 9, b"")]).await;
    drop(line);
    drop(store);
    let store = backend.open().await;
    let line = store.line(zone);
    let mut kept = line.minutes(LAST - 9, LAST + 8).await.expect("read");
    kept[0].parts.sort();
    let one = |minute, weight: u64, parts: &[(u64, &[u8])]| KeptMinute {
        minute,
        counts: weight.to_be_bytes().to_vec(),
        parts: parts.iter().map(|(server, part)| (*server, part.to_vec())).collect(),
    };
    let wanted =
        [one(LAST, 5, &[(1, b"one"), (2, b"other")]), one(LAST + 1, u64::MAX >> 11, &[(3, &[0xFF; 128])])];
    assert_eq!(kept, wanted, "in their order, and none from the end on");
    assert_eq!(line.minutes(LAST + 8, LAST + 8).await.expect("read"), []);
    let other = ZoneId::parse(&format!("{zone}-other")).expect("a name");
    assert_eq!(store.line(&other).minutes(LAST, LAST + 9).await.expect("read"), [], "of another zone");
}

/// However many servers offer a minute, it has a limit.
pub(crate) async fn a_minute_has_a_limit(backend: &impl Backend, zone: &ZoneId) {
    let store = backend.open().await;
    let line = store.line(zone);
    for server in 0..=PARTS_MAX as u64 {
        line.keep_minutes(server, vec![minute(1, server, &[7; PART_LEN_MAX])]).await.expect("kept");
    }
    let kept = line.minutes(1, 2).await.expect("read");
    assert_eq!((kept.len(), kept[0].parts.len()), (1, PARTS_MAX));
    assert_eq!(kept[0].counts, (PARTS_MAX as u64).to_be_bytes(), "the counts are of all");
}
