//! Examples of each rule of the line. `model` compares the rules with a naive model, for random traffic.

mod full;
mod model;
mod periods;

use std::collections::BTreeMap;

use super::*;
use crate::{PAGE_TICKETS, Position, Words};

fn at(ms: u64) -> Now {
    Now { ms, unix_ms: ms }
}

fn policy(n: u32) -> Policy {
    Policy { admit_per_minute: n, ..Policy::default() }
}

const EPOCH: u32 = 3;

fn claim(seq: u64) -> Claim {
    Claim { epoch: EPOCH, seq }
}

fn is_in(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Entered(_))
}

fn position(verdict: &Verdict) -> Position {
    let Verdict::Waiting(position) = verdict else { panic!("waits: {verdict:?}") };
    *position
}

/// The tickets that a snapshot shows as waiting, in their order.
fn line(snapshot: &Snapshot) -> Vec<u64> {
    let is_live = |seq: &u64| {
        let offset = usize::try_from(seq - snapshot.base).expect("a few pages");
        let ticket = offset % PAGE_TICKETS;
        snapshot.pages[offset / PAGE_TICKETS].gone[ticket / 64] >> (ticket % 64) & 1 == 0
    };
    (snapshot.base..snapshot.next).filter(is_live).collect()
}

/// The report of a server to which the holders of these tickets polled.
fn polls(seqs: impl IntoIterator<Item = u64>) -> Vec<PagePolls> {
    let mut pages = BTreeMap::<u64, Box<Words>>::new();
    for seq in seqs {
        let (page, ticket) = (seq / PAGE_TICKETS as u64, split(seq).1 % PAGE_TICKETS);
        pages.entry(page).or_insert_with(|| Box::new([0; crate::PAGE_WORDS]))[ticket / 64] |=
            1 << (ticket % 64);
    }
    pages.into_iter().map(|(page, words)| PagePolls { page, words }).collect()
}

#[test]
fn an_empty_line_admits_a_whole_minute_at_once() {
    let mut zone = Zone::new(policy(600), EPOCH, at(0));
    let joined = zone.join(601, at(5));
    assert_eq!(joined.verdicts.iter().filter(|v| is_in(v)).count(), 600);
    assert_eq!(position(&joined.verdicts[600]).rank, 1);
}

#[test]
fn a_newcomer_waits_only_if_a_present_ticket_waits() {
    let mut zone = Zone::new(policy(10), EPOCH, at(0));
    assert!(!is_in(&zone.join(11, at(0)).verdicts[10]));
    // The minute has passed. The first waiter polls every 3 s.
    for t in (3_000..60_000).step_by(3_000) {
        zone.beat(&[], at(t));
        zone.enter(&[claim(10)], at(t));
    }
    assert!(!is_in(&zone.join(1, at(60_500)).verdicts[0]), "a present ticket waits");
    let mut empty = Zone::new(policy(10), EPOCH, at(0));
    empty.join(11, at(0));
    for t in (1_000..60_000).step_by(1_000) {
        empty.beat(&[], at(t));
    }
    assert!(is_in(&empty.join(1, at(60_500)).verdicts[0]), "the only waiter is silent");
}

#[test]
fn an_absent_ticket_keeps_its_place_and_holds_no_slot() {
    let mut zone = Zone::new(policy(10), EPOCH, at(0));
    zone.join(13, at(0));
    // Ticket 10 is silent, 11 and 12 poll.
    for t in (1_000..60_000).step_by(1_000) {
        zone.beat(&[], at(t));
        zone.enter(&[claim(11), claim(12)], at(t));
    }
    let verdicts = zone.enter(&[claim(12), claim(11)], at(60_100)).verdicts;
    assert!(
        !is_in(&verdicts[0]) && is_in(&verdicts[1]),
        "the sub-window's one slot is for the first present ticket"
    );
    let back = position(&zone.enter(&[claim(10)], at(61_000)).verdicts[0]);
    assert_eq!(back.rank, 1);
    assert!(!is_in(&zone.enter(&[claim(12)], at(66_200)).verdicts[0]), "ticket 10 is back, and ahead");
    assert!(is_in(&zone.enter(&[claim(10)], at(66_300)).verdicts[0]));
}

#[test]
fn a_repeated_claim_returns_the_same_entry() {
    let mut zone = Zone::new(policy(10), EPOCH, at(0));
    let Verdict::Entered(entry) = zone.join(1, at(7)).verdicts[0] else { panic!("the line is empty") };
    for t in [8, 60_000, 299_000] {
        zone.beat(&[], at(t));
        assert_eq!(zone.enter(&[claim(0), claim(0)], at(t)).verdicts, vec![Verdict::Entered(entry); 2]);
    }
    zone.beat(&[], at(300_008));
    assert_eq!(zone.enter(&[claim(0)], at(300_009)).verdicts, vec![Verdict::Gone]);
    assert_eq!(zone.tally.entered, 1);
}

#[test]
fn tickets_of_another_epoch_are_gone() {
    let mut zone = Zone::new(policy(1), EPOCH, at(0));
    zone.join(3, at(0));
    let foreign = Claim { epoch: EPOCH + 1, seq: 2 };
    assert_eq!(zone.enter(&[foreign, claim(3), claim(u64::MAX)], at(1)).verdicts, vec![Verdict::Gone; 3]);
}

#[test]
fn each_mode_decides_as_described() {
    let mut zone = Zone::new(Policy { mode: Mode::Hold, ..policy(10) }, EPOCH, at(0));
    let held = position(&zone.join(1, at(0)).verdicts[0]);
    assert_eq!((held.rank, held.estimate), (1, None));
    assert!(!is_in(&zone.enter(&[claim(0)], at(1)).verdicts[0]));
    zone.set_policy(Policy { mode: Mode::Open, ..policy(10) }, at(2));
    assert!(is_in(&zone.enter(&[claim(0)], at(3)).verdicts[0]));
    assert!(zone.join(100, at(4)).verdicts.iter().all(is_in));
    zone.set_policy(policy(10), at(5));
    assert!(!is_in(&zone.join(1, at(6)).verdicts[0]), "entries in the mode `open` count");
}

#[test]
fn silent_tickets_are_evicted_in_time_and_a_pause_evicts_nobody() {
    let mut zone = Zone::new(policy(1), EPOCH, at(0));
    zone.join(3, at(0));
    let mut evicted_ms = None;
    for t in (1_000..80_000).step_by(1_000) {
        zone.beat(&polls([2]), at(t));
        if zone.tally.evicted > 0 {
            evicted_ms.get_or_insert(t);
        }
    }
    assert!((65_000..=70_000).contains(&evicted_ms.expect("silent since 0")), "{evicted_ms:?}");
    assert_eq!(zone.tally.evicted, 1, "ticket 2 polls");
    zone.beat(&[], at(1_000_000));
    assert_eq!(zone.tally.evicted, 1, "no poll could arrive for a quarter of an hour");
}

#[test]
fn a_shorter_idle_time_evicts_nobody_who_comes_back_as_told() {
    let slow = Policy { mode: Mode::Hold, polling_period_ms: 60_000, idle_timeout_s: 180, ..policy(1) };
    let mut zone = Zone::new(slow, EPOCH, at(0));
    zone.join(2, at(0));
    zone.set_policy(Policy { polling_period_ms: 3_000, idle_timeout_s: 10, ..slow }, at(1_000));
    for t in (2_000..62_000).step_by(1_000) {
        zone.beat(&[], at(t));
    }
    // Ticket 1 polls when it was told to. Ticket 0 never does.
    for t in (62_000..160_000).step_by(1_000) {
        zone.beat(&polls([1]), at(t));
        assert!(zone.tally.evicted <= 1, "at {t} ms");
    }
    assert_eq!((zone.tally.evicted, zone.is_live(0), zone.is_live(1)), (1, false, true));
}

#[test]
fn a_late_report_still_keeps_its_tickets() {
    let mut zone = Zone::new(Policy { mode: Mode::Hold, ..policy(1) }, EPOCH, at(0));
    zone.join(2, at(4_999));
    for t in (5_000..67_000).step_by(1_000) {
        zone.beat(&[], at(t));
    }
    // Ticket 1 polled at 67 s. The next call of the store takes until 70 s.
    zone.beat(&polls([1]), at(70_000));
    assert_eq!((zone.tally.evicted, zone.is_live(1)), (1, true));
}

#[test]
fn a_poll_at_the_end_of_the_idle_time_may_be_reported_after_it() {
    let mut zone = Zone::new(Policy { mode: Mode::Hold, ..policy(1) }, EPOCH, at(0));
    zone.join(2, at(4_900));
    for t in (5_900..64_000).step_by(1_000) {
        zone.beat(&[], at(t));
    }
    // Ticket 1 polls after 59.9 s, which the next beat reports. Before that, other calls let time pass.
    zone.enter(&[claim(0)], at(65_100));
    zone.join(1, at(65_200));
    zone.beat(&polls([1]), at(65_900));
    assert!(zone.is_live(1));
}

#[test]
fn a_pause_postpones_all_appointments() {
    for (pause_ms, here) in [(1_400, 0), (1_600, 1), (3_900, 1), (4_100, 1)] {
        let mut zone = Zone::new(policy(10), EPOCH, at(0));
        let joined = zone.join(11, at(0));
        let asked_ms = u64::from(position(&joined.verdicts[10]).poll_in_ms);
        assert_eq!(asked_ms, 3_000);
        // The first beat makes an appointment that is due at 8,000 ms, and the holder does not poll.
        for t in (1_000..7_000).step_by(1_000) {
            zone.beat(&[], at(t));
        }
        zone.beat(&[], at(6_700));
        let snapshot = zone.beat(&[], at(6_700 + pause_ms));
        assert_eq!(snapshot.tally.present, here, "after a pause of {pause_ms} ms");
        let dump = zone.dump();
        assert_eq!(dump.paused_ms, if here == 1 && pause_ms < 4_000 { pause_ms } else { 0 });
        assert_eq!(dump.seen_all, HEARD * u64::from(pause_ms > 4_000));
        assert_eq!(dump.appointments.len() as u64, here, "after a long pause the beat makes another one");
    }
}

#[test]
fn only_a_claim_keeps_an_appointment() {
    let line = || {
        let mut zone = Zone::new(policy(10), EPOCH, at(0));
        zone.join(11, at(0));
        zone
    };
    // Servers report polls of the holder, who never claims.
    for reported in [&[][..], &[10]] {
        let mut zone = line();
        assert_eq!(zone.dump().appointments, [(10, 7_000, 3_000)]);
        for t in (1_000..=8_000).step_by(1_000) {
            assert_eq!(zone.beat(&polls(reported.iter().copied()), at(t)).tally.present, 1);
            assert_eq!(zone.dump().appointments, [(10, 8_000, 0)], "the beat made another one");
        }
        assert_eq!(zone.beat(&polls(reported.iter().copied()), at(8_001)).tally.present, 0);
        assert_eq!(zone.dump().appointments, []);
        zone.enter(&[claim(10)], at(8_500));
        assert_eq!(zone.dump().lateness_ms, 0, "the appointment was over");
        assert_eq!((zone.tally().present, zone.dump().appointments.len()), (1, 1), "a claim makes present");
    }
    let mut zone = line();
    for t in (1_000..=6_000).step_by(1_000) {
        zone.beat(&polls([10]), at(t));
        if t == 3_000 {
            zone.enter(&[claim(10)], at(t));
            assert_eq!(zone.dump().lateness_ms, 0, "a beat made the appointment, and asked for no instant");
        }
    }
    zone.enter(&[claim(10), claim(10)], at(6_400));
    assert_eq!(zone.dump().lateness_ms, 400 / 16, "measured once");
}

#[test]
fn a_holder_who_never_claims_loses_the_slot_and_keeps_the_place() {
    let mut zone = Zone::new(Policy { mode: Mode::Hold, ..policy(10) }, EPOCH, at(0));
    zone.join(3, at(0));
    zone.set_policy(policy(10), at(1_000));
    let all = || polls([0, 1, 2]);
    // The only slot that becomes free soon is that of ticket 0: only this ticket is in the front.
    assert_eq!(zone.beat(&all(), at(1_000)).front_end, 1);
    assert_eq!(zone.dump().appointments, [(0, 8_000, 0)]);
    for t in (2_000..=8_000).step_by(1_000) {
        let beaten = zone.beat(&all(), at(t));
        assert_eq!((beaten.tally.present, beaten.front_end), (3, 1));
        assert!(!is_in(&zone.enter(&[claim(1)], at(t)).verdicts[0]), "ticket 0 owns the slot");
    }
    assert!(is_in(&zone.enter(&[claim(1)], at(8_001)).verdicts[0]), "ticket 0 missed the appointment");
    for t in (9_000..=90_000).step_by(1_000) {
        let beaten = zone.beat(&all(), at(t));
        assert_eq!((beaten.tally.waiting, beaten.tally.evicted), (2, 0), "whoever polls keeps the place");
    }
    assert_eq!(zone.tally().present, 0, "ticket 2 did not claim either");
    assert!(is_in(&zone.enter(&[claim(0)], at(90_100)).verdicts[0]), "a claim gets the slot back");
    // Outside of the front, reports count again.
    zone.set_policy(Policy { mode: Mode::Hold, ..policy(10) }, at(90_200));
    zone.beat(&[], at(90_200));
    assert_eq!(zone.beat(&polls([2]), at(91_000)).tally.present, 1);
}

#[test]
fn a_ticket_of_the_front_keeps_its_appointment_when_others_come_back() {
    let mut zone = Zone::new(policy(10), EPOCH, at(0));
    zone.join(10 + 20, at(0));
    // The first nineteen are silent, so the front reaches the last one.
    for t in (1_000..50_000).step_by(1_000) {
        zone.beat(&[], at(t));
        zone.enter(&[claim(29)], at(t));
    }
    zone.beat(&[], at(50_000));
    let others: Vec<_> = (10..29).map(claim).collect();
    zone.enter(&others, at(50_100));
    let told = position(&zone.enter(&[claim(29)], at(50_200)).verdicts[0]);
    assert_eq!((told.present_ahead, told.slot_in_ms), (19, None), "behind as many as the front may have");
    assert!(zone.dump().appointments.iter().any(|&(seq, ..)| seq == 29));
}

#[test]
fn time_passes_for_a_segment_when_it_is_touched() {
    let mut zone = Zone::new(Policy { mode: Mode::Hold, ..policy(10) }, EPOCH, at(0));
    let whole = u32::try_from(SEGMENT_TICKETS).expect("small");
    zone.join(2 * whole + 10, at(0));
    let stamps = |zone: &Zone| zone.segments.iter().map(|s| (s.generation, s.present)).collect::<Vec<_>>();
    for t in (1..10_000).step_by(1_000) {
        zone.enter(&[claim(u64::from(whole))], at(t));
    }
    assert_eq!(stamps(&zone), [(0, whole), (1, whole), (0, 10)], "a claim touches only its own segment");
    // Two polling periods and the grace time are two generations: a silent ticket of age 3 is not present.
    for t in (10_001..17_000).step_by(1_000) {
        zone.enter(&[claim(u64::from(whole))], at(t));
    }
    assert_eq!(stamps(&zone), [(0, whole), (3, 1), (0, 10)]);
    assert_eq!(zone.beat(&[], at(17_000)).tally.present, 1);
    assert_eq!(stamps(&zone), [(3, 0), (3, 1), (3, 0)]);
    zone.join(1, at(17_100));
    for t in (18_000..90_000).step_by(1_000) {
        zone.beat(&polls([u64::from(whole)]), at(t));
    }
    let snapshot = zone.beat(&[], at(90_000));
    let waiting = snapshot.tally.waiting;
    assert_eq!((snapshot.base, waiting), (u64::from(whole), 1), "the base moves by whole segments");
    assert_eq!(snapshot.pages.len(), 8 + 1, "the last segment has only the pages that have tickets");
}

#[test]
fn a_join_updates_the_last_segment_first() {
    let mut zone = Zone::new(policy(10), EPOCH, at(0));
    zone.join(11, at(0));
    for t in (1_000..61_000).step_by(1_000) {
        // A call without claims lets time pass, and touches no segment.
        zone.enter(&[], at(t));
    }
    assert!(is_in(&zone.join(1, at(61_000)).verdicts[0]), "the only waiter was silent since the start");
    assert_eq!(zone.segments[0].generation, 12);
}

#[test]
fn positions_count_the_entries_of_the_same_call() {
    let mut zone = Zone::new(policy(10), EPOCH, at(0));
    let whole = SEGMENT_TICKETS as u64;
    zone.join(10 + u32::try_from(SEGMENT_TICKETS).expect("small"), at(0));
    for t in (1_000..6_100).step_by(1_000) {
        zone.beat(&[], at(t));
    }
    // Three slots are free: for 10, 11 and 12.
    zone.set_policy(policy(30), at(6_100));
    let asked = [whole + 5, 12, 10, 500, 11, whole + 5].map(claim);
    let verdicts = zone.enter(&asked, at(6_100)).verdicts;
    assert!([1, 2, 4].into_iter().all(|i| is_in(&verdicts[i])), "{verdicts:?}");
    let ranks = [0, 3, 5].map(|i| (position(&verdicts[i]).rank, position(&verdicts[i]).present_ahead));
    let last = whole + 5 - 10 - 3;
    assert_eq!(ranks, [(1 + last, last), (1 + 500 - 13, 500 - 13), (1 + last, last)]);
    assert!(zone.dump().appointments.iter().all(|&(seq, ..)| seq > 12), "a ticket that entered has none");
}

#[test]
fn after_a_long_pause_every_holder_has_the_whole_idle_time() {
    let mut zone = Zone::new(policy(10), EPOCH, at(0));
    zone.join(11, at(0));
    zone.beat(&polls([10]), at(1_000));
    for t in (2_000..=60_000).step_by(1_000) {
        zone.beat(&[], at(t));
    }
    assert_eq!(zone.dump().tickets, [DumpTicket { seq: 10, age: 12, here: false }]);
    zone.beat(&[], at(64_500));
    assert_eq!(zone.dump().tickets, [DumpTicket { seq: 10, age: 0, here: true }]);
}

#[test]
fn a_line_saved_from_the_middle_of_a_segment_starts_with_that_segment() {
    let next = 11 * PAGE_TICKETS as u64 + 5;
    let header = Header {
        epoch: EPOCH,
        next,
        base_page: 11,
        inside: None,
        drawn: Default::default(),
        totals: Default::default(),
    };
    let image = Image { header, pages: vec![], entries: vec![], bound: vec![] };
    let mut zone = Zone::restore(policy(1), image.clone(), at(0)).expect("consistent");
    let before: Vec<_> = zone.dump().tickets.iter().map(|ticket| ticket.seq).collect();
    assert_eq!(before, (next - 5..next).collect::<Vec<_>>());
    let mut saved = image;
    save(&mut saved, zone.take_delta().expect("the base moved back"));
    assert_eq!((saved.header.base_page, saved.pages.len()), (8, 3), "earlier pages are saved as gone");
    let again = Zone::restore(policy(1), saved, at(0)).expect("consistent");
    assert_eq!(again.dump(), zone.dump());
}

#[test]
fn segments_in_which_nobody_waits_are_freed_behind_somebody_who_does() {
    let held = Policy { mode: Mode::Hold, idle_timeout_s: 10, ..policy(10) };
    let mut zone = Zone::new(held, EPOCH, at(0));
    let mut saved = Image {
        header: Header {
            epoch: EPOCH,
            next: 0,
            base_page: 0,
            inside: None,
            drawn: Default::default(),
            totals: Default::default(),
        },
        pages: vec![],
        entries: vec![],
        bound: vec![],
    };
    let segment = SEGMENT_TICKETS as u64;
    let last = 4 * segment - 6;
    zone.join(u32::try_from(last + 1).expect("small"), at(0));
    // Only the first and the last one poll.
    for t in (1_000..=20_000).step_by(1_000) {
        zone.beat(&polls([0, last]), at(t));
    }
    let freed = |zone: &Zone| zone.segments.iter().map(Segment::is_freed).collect::<Vec<_>>();
    let middle = [false, true, true, false];
    assert_eq!(freed(&zone), middle);
    save(&mut saved, zone.take_delta().expect("changes"));
    let restored = Zone::restore(held, saved, at(20_000)).expect("consistent");
    for mut zone in [zone, restored] {
        assert_eq!(freed(&zone), middle);
        // A poll or a claim of somebody who was evicted changes nothing.
        zone.beat(&polls([0, segment + 7, last]), at(20_500));
        assert_eq!(zone.enter(&[claim(segment + 7)], at(20_500)).verdicts, [Verdict::Gone]);
        let shown = zone.beat(&[], at(20_600));
        assert_eq!((shown.base, shown.pages.len()), (0, 32));
        assert_eq!((shown.tally.waiting, shown.tally.present), (2, 2));
        assert_eq!(line(&shown), [0, last]);
        assert_eq!(zone.join(1, at(20_700)).first, last + 1);
        for (segment, number) in zone.dump().segments.iter().zip(0..) {
            assert_eq!((segment.index, segment.generation), (number, zone.clock().generation));
        }
        // After a long pause all who wait count as just heard, and only they.
        zone.beat(&[], at(30_000));
        assert_eq!((zone.tally().waiting, zone.tally().present), (3, 3));
        zone.segments.iter().for_each(Segment::check);
        // When the first one has entered, the base moves past the freed segments.
        zone.set_policy(Policy { mode: Mode::Auto, ..held }, at(30_000));
        assert!(is_in(&zone.enter(&[claim(0)], at(30_000)).verdicts[0]));
        let shown = zone.beat(&[], at(30_100));
        // Nobody else of the first segment waits.
        assert_eq!((shown.base, shown.tally.waiting), (3 * segment, 2));
    }
}

#[test]
fn an_entry_expires_without_a_beat() {
    let mut zone = Zone::new(policy(10), EPOCH, at(0));
    zone.join(1, at(0));
    assert!(is_in(&zone.enter(&[claim(0)], at(300_000)).verdicts[0]));
    assert_eq!(zone.enter(&[claim(0)], at(300_001)).verdicts, [Verdict::Gone]);
}

#[test]
fn a_pass_keeps_its_life_when_the_policy_changes() {
    let lives = |pass_ttl_s| Policy { pass_ttl_s, ..policy(10) };
    let mut zone = Zone::new(lives(60), EPOCH, at(0));
    let Verdict::Entered(short) = zone.join(1, at(0)).verdicts[0] else { panic!("the line is empty") };
    zone.set_policy(lives(300), at(1_000));
    let Verdict::Entered(long) = zone.join(1, at(1_000)).verdicts[0] else { panic!("the line is empty") };
    zone.set_policy(lives(60), at(2_000));
    assert_eq!((short.life_s, long.life_s), (60, 300));
    // Restored from a journal, nothing differs.
    let mut saved = Image {
        header: zone.take_delta().expect("new").header,
        pages: vec![],
        entries: vec![],
        bound: vec![],
    };
    let mut gone = Box::new([0; crate::PAGE_WORDS]);
    gone[0] = 3;
    saved.pages.push((0, gone));
    saved.entries = vec![(0, short), (1, long)];
    let restored = Zone::restore(lives(60), saved, at(3_000)).expect("consistent");
    for mut zone in [zone, restored] {
        let both = |zone: &mut Zone, ms| zone.enter(&[claim(0), claim(1)], at(ms)).verdicts;
        assert_eq!(both(&mut zone, 60_000), [Verdict::Entered(short), Verdict::Entered(long)]);
        zone.beat(&[], at(60_001));
        assert_eq!(both(&mut zone, 60_001), [Verdict::Gone, Verdict::Entered(long)]);
        zone.set_policy(lives(3_600), at(61_000));
        assert_eq!(both(&mut zone, 61_000), [Verdict::Gone, Verdict::Entered(long)], "nothing is revived");
        zone.beat(&[], at(301_000));
        assert_eq!(both(&mut zone, 301_000)[1], Verdict::Entered(long));
        assert_eq!(zone.dump().entries, [(1, long)], "each is forgotten in its own time");
        zone.beat(&[], at(301_001));
        assert_eq!(both(&mut zone, 301_001), [Verdict::Gone, Verdict::Gone]);
        assert_eq!(zone.dump().entries, []);
    }
}

#[test]
fn ticket_numbers_may_exceed_a_million_millions() {
    let base_page = 1_000_000_000_000 / PAGE_TICKETS as u64;
    let header = Header {
        epoch: EPOCH,
        next: base_page * PAGE_TICKETS as u64 + 100,
        base_page,
        inside: None,
        drawn: Default::default(),
        totals: Default::default(),
    };
    let mut gone = Box::new([0; crate::PAGE_WORDS]);
    (gone[0], gone[1]) = (u64::MAX, (1 << 36) - 1);
    let image = Image { header, pages: vec![(base_page, gone)], entries: vec![], bound: vec![] };
    let mut zone = Zone::restore(policy(60), image, at(0)).expect("consistent");
    let first = zone.join(10_000, at(0)).first;
    assert_eq!(first, header.next);
    let line = line(&zone.beat(&[], at(1)));
    assert_eq!((line.len(), line.last()), (10_000 - 60, Some(&(first + 9_999))));
}

#[test]
fn damaged_images_are_refused() {
    let image = |next, base_page, entries| Image {
        header: Header {
            epoch: EPOCH,
            next,
            base_page,
            inside: None,
            drawn: Default::default(),
            totals: Default::default(),
        },
        pages: vec![(base_page, Box::new([1; crate::PAGE_WORDS]))],
        entries,
        bound: vec![],
    };
    let refused = |image| Zone::restore(policy(1), image, at(0)).err().expect("refused").0;
    let entry = Entry { at_ms: 0, unix_s: 0, life_s: 300 };
    assert!(refused(image(5, 1, vec![])).contains("after its end"));
    assert!(refused(image(64, 0, vec![])).contains("never issued"));
    assert!(refused(image(8_192, 0, vec![(1, entry)])).contains("still waits"));
    assert!(refused(image(u64::MAX, 0, vec![])).contains("at most 268435456"));
    assert!(Zone::restore(policy(1), image(8_192, 0, vec![(64, entry)]), at(0)).is_ok());
}

/// Adds a delta to an image, as a journal does.
fn save(image: &mut Image, delta: Delta) {
    image.header = delta.header;
    image.pages.retain(|(index, _)| !delta.dropped.contains(index));
    for (index, words) in delta.pages {
        image.pages.retain(|(saved, _)| *saved != index);
        image.pages.push((index, Box::new(*words)));
    }
    image.entries.extend(delta.entered);
    image.entries.retain(|(seq, _)| !delta.forgotten.contains(seq));
}

/// Four people of whom three are inside, of which one left. Returns what shows whether each rule of leaving holds.
fn leaves() -> [bool; 3] {
    let mut zone = Zone::new(Policy { max_active: 3, ..policy(600) }, EPOCH, at(0));
    zone.join(5, at(0));
    let mut leave = |claim, proof| zone.leave(&[Leaver { claim, proof, address: 0 }], at(1))[0];
    let foreign = leave(Claim { epoch: EPOCH + 1, seq: 0 }, Proof::Token);
    let unborn = leave(claim(5), Proof::Visit);
    assert_eq!(unborn, Departure::Unknown);
    assert_eq!(leave(claim(3), Proof::Name), Departure::Waits);
    assert_eq!(leave(claim(1), Proof::Token), Departure::Visit);
    assert_eq!(leave(claim(3), Proof::Token), Departure::Place);
    let verdicts = zone.enter(&[claim(1), claim(3)], at(2)).verdicts;
    [foreign == Departure::Unknown, verdicts[0] == Verdict::Gone, verdicts[1] == Verdict::Gone]
}

#[test]
fn only_what_this_line_gave_out_leaves_and_only_once() {
    assert_eq!(leaves(), [true; 3]);
}

#[cfg(feature = "sabotage")]
#[test]
fn each_rule_of_leaving_is_needed() {
    use crate::sabotage::{Rule, break_rule};
    for (rule, broken) in [(Rule::LeaveEpoch, 0), (Rule::Replay, 1), (Rule::GivingUp, 2)] {
        break_rule(Some(rule));
        let held = leaves();
        break_rule(None);
        assert!(!held[broken], "{rule:?}: {held:?}");
    }
}

/// The slots of those who entered and left count for the whole minute, also after restarts.
#[test]
fn whoever_left_still_counts_in_the_window_after_restarts() {
    let policy = Policy { pass_ttl_s: 60, ..policy(3) };
    let mut zone = Zone::new(policy, EPOCH, at(0));
    zone.join(3, at(0));
    let header = zone.take_delta().expect("new").header;
    let gone = zone.segments[0].gone[0].clone();
    let leavers = [0, 1, 2].map(|seq| Leaver { claim: claim(seq), proof: Proof::Token, address: 0 });
    assert_eq!(zone.leave(&leavers, at(10)), [Departure::Visit; 3]);
    let entries = zone.take_delta().expect("left").entered;
    let image = Image { header, pages: vec![(0, Box::new(*gone))], entries, bound: vec![] };
    let mut zone = Zone::restore(policy, image, at(1_000)).expect("consistent");
    assert!(zone.take_delta().is_none_or(|delta| delta.forgotten.is_empty()));
    zone.beat(&[], at(30_000));
    assert!(zone.take_delta().is_none_or(|delta| delta.forgotten.is_empty()), "the window needs them");
    assert!(!is_in(&zone.join(1, at(31_000)).verdicts[0]));
    zone.beat(&[], at(61_001));
    assert_eq!(zone.take_delta().expect("old").forgotten.len(), 3);
}

/// Nobody knows who is inside when a limit is set, so nobody enters for a minute. A restart in that minute begins another one; it does not
/// take the limit for people who are there.
#[test]
fn a_restart_in_the_pause_after_a_limit_was_set_begins_another_pause() {
    let limited = Policy { max_active: 5, ..policy(600) };
    let mut zone = Zone::new(policy(600), EPOCH, at(0));
    zone.set_policy(limited, at(10));
    let mut header = zone.take_delta().expect("new").header;
    for restart in 1..=3 {
        let image = Image { header, pages: vec![], entries: vec![], bound: vec![] };
        zone = Zone::restore(limited, image, at(20_000 * restart)).expect("consistent");
        zone.beat(&[], at(20_000 * restart + 1));
        header = zone.take_delta().map_or(header, |delta| delta.header);
    }
    // A higher limit says nothing about who is inside.
    zone.set_policy(Policy { max_active: 50, ..limited }, at(70_000));
    assert_eq!(position(&zone.join(1, at(119_000)).verdicts[0]).rank, 1);
    assert!(is_in(&zone.enter(&[claim(0)], at(120_001)).verdicts[0]));
    // From then on the number is known, and a restart remembers it.
    let delta = zone.take_delta().expect("an entry");
    assert_eq!(delta.header.inside, Some(1));
}
