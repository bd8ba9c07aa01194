//! The line's rules against naive models, for random traffic.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::{Forecast, Lookup, PAGE_TICKETS, Position, View, Words};

fn at(ms: u64) -> Now {
    Now { ms, unix_s: ms / 1_000 }
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

fn place(verdict: &Verdict) -> Position {
    let Verdict::Waiting(place) = verdict else { panic!("waits: {verdict:?}") };
    *place
}

/// A beat, as a server that has just started sees it.
fn view(zone: &mut Zone, now: Now) -> View {
    let sight = zone.beat(&[], now);
    Forecast::new(&zone.policy, now.ms).show(sight, zone.window())
}

/// Some tickets as a server marks polls.
fn marks(seqs: impl IntoIterator<Item = u64>) -> Vec<PagePolls> {
    let mut marks = BTreeMap::<u64, Box<Words>>::new();
    for seq in seqs {
        let (segment, ticket) = (seq / PAGE_TICKETS as u64, split(seq).1 % PAGE_TICKETS);
        marks.entry(segment).or_insert_with(|| Box::new([0; crate::PAGE_WORDS]))[ticket / 64] |=
            1 << (ticket % 64);
    }
    marks.into_iter().map(|(segment, words)| PagePolls { page: segment, words }).collect()
}

#[test]
fn with_nobody_waiting_the_minute_is_used_at_once() {
    let mut zone = Zone::new(policy(600), EPOCH, at(0));
    let mut joined = zone.join(601, at(5));
    Forecast::new(&policy(600), 5).estimate(&mut joined.verdicts, zone.window(), true, joined.at_ms);
    assert_eq!(joined.verdicts.iter().filter(|v| is_in(v)).count(), 600);
    let last = place(&joined.verdicts[600]);
    assert_eq!(last.rank, 1);
    assert_eq!(last.estimate.expect("auto").wait_ms, 60_001, "nobody enters until the burst slides out");
}

#[test]
fn a_newcomer_waits_behind_the_present_only() {
    let mut zone = Zone::new(policy(10), EPOCH, at(0));
    assert!(!is_in(&zone.join(11, at(0)).verdicts[10]));
    // The minute has passed, the first waiter is present: polls every 3 s.
    for t in (3_000..60_000).step_by(3_000) {
        zone.beat(&marks([10]), at(t));
    }
    assert!(!is_in(&zone.join(1, at(60_500)).verdicts[0]), "somebody waits");
    let mut empty = Zone::new(policy(10), EPOCH, at(0));
    empty.join(11, at(0));
    for t in (1_000..60_000).step_by(1_000) {
        empty.beat(&[], at(t));
    }
    assert!(is_in(&empty.join(1, at(60_500)).verdicts[0]), "who was there is silent: there is no line");
}

#[test]
fn the_absent_keep_their_place_and_hold_no_slot() {
    let mut zone = Zone::new(policy(10), EPOCH, at(0));
    zone.join(13, at(0));
    // Ticket 10 is silent, 11 and 12 poll.
    for t in (1_000..60_000).step_by(1_000) {
        zone.beat(&marks([11, 12]), at(t));
    }
    let verdicts = zone.enter(&[claim(12), claim(11)], at(60_100)).verdicts;
    assert!(!is_in(&verdicts[0]) && is_in(&verdicts[1]), "one slot a sub-window, the first present one's");
    let back = place(&zone.enter(&[claim(10)], at(61_000)).verdicts[0]);
    assert_eq!(back.rank, 1);
    assert!(!is_in(&zone.enter(&[claim(12)], at(66_200)).verdicts[0]), "who came back is ahead again");
    assert!(is_in(&zone.enter(&[claim(10)], at(66_300)).verdicts[0]));
}

#[test]
fn entry_is_once_and_the_answer_stays() {
    let mut zone = Zone::new(policy(10), EPOCH, at(0));
    let Verdict::Entered(entry) = zone.join(1, at(7)).verdicts[0] else { panic!("nobody waits") };
    for t in [8, 60_000, 299_000] {
        zone.beat(&[], at(t));
        assert_eq!(zone.enter(&[claim(0), claim(0)], at(t)).verdicts, vec![Verdict::Entered(entry); 2]);
    }
    zone.beat(&[], at(300_008));
    assert_eq!(zone.enter(&[claim(0)], at(300_009)).verdicts, vec![Verdict::Gone]);
    assert_eq!(zone.tally.entered, 1);
}

#[test]
fn tickets_of_another_line_are_gone() {
    let mut zone = Zone::new(policy(1), EPOCH, at(0));
    zone.join(3, at(0));
    let foreign = Claim { epoch: EPOCH + 1, seq: 2 };
    assert_eq!(zone.enter(&[foreign, claim(3), claim(u64::MAX)], at(1)).verdicts, vec![Verdict::Gone; 3]);
}

#[test]
fn modes_decide() {
    let mut zone = Zone::new(Policy { mode: Mode::Hold, ..policy(10) }, EPOCH, at(0));
    let held = place(&zone.join(1, at(0)).verdicts[0]);
    assert_eq!((held.rank, held.estimate), (1, None));
    assert!(!is_in(&zone.enter(&[claim(0)], at(1)).verdicts[0]));
    zone.set_policy(Policy { mode: Mode::Open, ..policy(10) }, at(2));
    assert!(is_in(&zone.enter(&[claim(0)], at(3)).verdicts[0]));
    assert!(zone.join(100, at(4)).verdicts.iter().all(is_in));
    zone.set_policy(policy(10), at(5));
    assert!(!is_in(&zone.join(1, at(6)).verdicts[0]), "what entered while it was open counts");
}

#[test]
fn the_silent_are_evicted_in_time_and_a_pause_of_the_store_evicts_nobody() {
    let mut zone = Zone::new(policy(1), EPOCH, at(0));
    zone.join(3, at(0));
    let mut evicted_ms = None;
    for t in (1_000..80_000).step_by(1_000) {
        zone.beat(&marks([2]), at(t));
        if zone.tally.evicted > 0 {
            evicted_ms.get_or_insert(t);
        }
    }
    assert!((60_001..=67_000).contains(&evicted_ms.expect("silent since 0")), "{evicted_ms:?}");
    assert_eq!(zone.tally.evicted, 1, "ticket 2 polls");
    zone.beat(&[], at(1_000_000));
    assert_eq!(zone.tally.evicted, 1, "nobody could be heard for a quarter of an hour");
}

#[test]
fn a_report_that_comes_late_does_not_come_too_late() {
    let mut zone = Zone::new(Policy { mode: Mode::Hold, ..policy(1) }, EPOCH, at(0));
    zone.join(2, at(4_999));
    for t in (5_000..62_000).step_by(1_000) {
        zone.beat(&[], at(t));
    }
    // Ticket 1 polled at 62 s, and the next call of the store takes until 65 s.
    zone.beat(&marks([1]), at(65_000));
    assert_eq!((zone.tally.evicted, zone.is_live(1)), (1, true));
}

#[test]
fn a_pause_puts_all_appointments_off() {
    for (pause_ms, here) in [(1_400, 0), (1_600, 1), (3_900, 1), (4_100, 1)] {
        let mut zone = Zone::new(policy(10), EPOCH, at(0));
        let joined = zone.join(11, at(0));
        let asked_ms = u64::from(place(&joined.verdicts[10]).poll_in_ms);
        assert_eq!(asked_ms, 3_000);
        // Due at 7,000 ms, and nobody polls.
        for t in (1_000..6_000).step_by(1_000) {
            zone.beat(&[], at(t));
        }
        zone.beat(&[], at(5_700));
        let sight = zone.beat(&[], at(5_700 + pause_ms));
        assert_eq!(sight.tally.present, here, "after a pause of {pause_ms} ms");
        let dump = zone.dump();
        assert_eq!(dump.paused_ms, if here == 1 && pause_ms < 4_000 { pause_ms } else { 0 });
        assert_eq!(dump.seen_all, u64::from(pause_ms > 4_000));
        assert_eq!(dump.appointments.len() as u64, here * u64::from(pause_ms < 4_000));
    }
}

#[test]
fn a_poll_keeps_the_appointment_and_a_claim_after_it_tells_nothing_of_the_network() {
    let line = || {
        let mut zone = Zone::new(policy(10), EPOCH, at(0));
        zone.join(11, at(0));
        zone
    };
    let mut silent = line();
    assert_eq!(silent.dump().appointments, [(10, 7_000, 3_000)]);
    for t in (1_000..8_000).step_by(1_000) {
        silent.beat(&[], at(t));
    }
    assert_eq!(silent.beat(&[], at(7_000)).tally.present, 1);
    assert_eq!(silent.beat(&[], at(7_001)).tally.present, 0, "asked to come, and did not");
    silent.enter(&[claim(10)], at(7_500));
    assert_eq!(silent.dump().lateness_ms, 0, "the appointment was over");
    let mut polled = line();
    polled.beat(&marks([10]), at(1_000));
    assert!(polled.dump().tickets[0].met);
    for t in (2_000..8_000).step_by(1_000) {
        polled.beat(&[], at(t));
    }
    assert_eq!(polled.beat(&[], at(7_001)).tally.present, 1, "was heard since");
    assert_eq!(polled.dump().appointments, []);
    for (marked, lateness_ms) in [(false, 400 / 16), (true, 0)] {
        let mut zone = line();
        zone.beat(&if marked { marks([10]) } else { Vec::new() }, at(1_000));
        zone.beat(&[], at(2_000));
        zone.enter(&[claim(10), claim(10)], at(3_400));
        let dump = zone.dump();
        assert_eq!((dump.lateness_ms, dump.tickets[0].met), (lateness_ms, false), "learns once");
    }
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
    assert_eq!(stamps(&zone), [(0, whole), (1, whole), (0, 10)], "a claim touches its own segment");
    // Two polling periods and a bit are two generations: at age 3 the silent are not present.
    for t in (10_001..17_000).step_by(1_000) {
        zone.enter(&[claim(u64::from(whole))], at(t));
    }
    assert_eq!(stamps(&zone), [(0, whole), (3, 1), (0, 10)]);
    assert_eq!(zone.beat(&[], at(17_000)).tally.present, 1);
    assert_eq!(stamps(&zone), [(3, 0), (3, 1), (3, 0)]);
    zone.join(1, at(17_100));
    for t in (18_000..90_000).step_by(1_000) {
        zone.beat(&marks([u64::from(whole)]), at(t));
    }
    let sight = zone.beat(&[], at(90_000));
    assert_eq!((sight.base, sight.tally.waiting), (u64::from(whole), 1), "the base moves by whole segments");
    assert_eq!(sight.pages.len(), 8 + 1, "of the last segment, as many pages as have tickets");
}

#[test]
fn a_join_finds_the_last_segment_as_it_is_now() {
    let mut zone = Zone::new(policy(10), EPOCH, at(0));
    zone.join(11, at(0));
    for t in (1_000..61_000).step_by(1_000) {
        // Claims of another line let time pass, and touch nothing.
        zone.enter(&[], at(t));
    }
    assert!(is_in(&zone.join(1, at(61_000)).verdicts[0]), "who waited is silent since the start");
    assert_eq!(zone.segments[0].generation, 12);
}

#[test]
fn places_are_those_after_the_entries_of_the_call() {
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
    let ranks = [0, 3, 5].map(|i| (place(&verdicts[i]).rank, place(&verdicts[i]).present_ahead));
    let last = whole + 5 - 10 - 3;
    assert_eq!(ranks, [(1 + last, last), (1 + 500 - 13, 500 - 13), (1 + last, last)]);
    assert!(zone.dump().appointments.iter().all(|&(seq, ..)| seq > 12), "who entered has none");
}

#[test]
fn after_a_long_pause_everybody_has_the_whole_idle_time() {
    let mut zone = Zone::new(policy(10), EPOCH, at(0));
    zone.join(11, at(0));
    zone.beat(&marks([10]), at(1_000));
    for t in (2_000..=60_000).step_by(1_000) {
        zone.beat(&[], at(t));
    }
    assert_eq!(zone.dump().tickets, [DumpTicket { seq: 10, age: 12, here: false, met: true }]);
    zone.beat(&[], at(64_500));
    assert_eq!(zone.dump().tickets, [DumpTicket { seq: 10, age: 0, here: true, met: false }]);
}

#[test]
fn the_present_of_a_segment_are_shown_spread_over_its_pages() {
    let none = std::sync::Arc::new([0; crate::PAGE_WORDS]);
    let mut gone = vec![none; 8];
    gone[1] = std::sync::Arc::new([u64::MAX >> 32; crate::PAGE_WORDS]);
    let pages = crate::SnapshotPage::spread(&gone, 2 * PAGE_TICKETS + 100, 1_000);
    let counts: Vec<_> = pages.iter().map(|page| (page.live, page.present)).collect();
    assert_eq!(counts, [(8_192, 661), (4_096, 330), (100, 9)]);
    assert_eq!(crate::SnapshotPage::spread(&gone, 0, 0).len(), 1);
}

#[test]
fn a_line_kept_from_within_a_segment_on_starts_with_the_segment() {
    let next = 11 * PAGE_TICKETS as u64 + 5;
    let header = Header { epoch: EPOCH, next, base_page: 11 };
    let image = Image { header, segments: vec![], entries: vec![] };
    let mut zone = Zone::restore(policy(1), image.clone(), at(0)).expect("consistent");
    let before: Vec<_> = zone.dump().tickets.iter().map(|ticket| ticket.seq).collect();
    assert_eq!(before, (next - 5..next).collect::<Vec<_>>());
    let mut kept = image;
    keep(&mut kept, zone.take_delta().expect("the base moved back"));
    assert_eq!((kept.header.base_page, kept.segments.len()), (8, 3), "those before are kept as gone");
    let again = Zone::restore(policy(1), kept, at(0)).expect("consistent");
    assert_eq!(again.dump(), zone.dump());
}

#[test]
fn an_entry_is_forgotten_without_a_beat() {
    let mut zone = Zone::new(policy(10), EPOCH, at(0));
    zone.join(1, at(0));
    assert!(is_in(&zone.enter(&[claim(0)], at(300_000)).verdicts[0]));
    assert_eq!(zone.enter(&[claim(0)], at(300_001)).verdicts, [Verdict::Gone]);
}

#[test]
fn numbers_past_a_million_millions_work() {
    let base_page = 1_000_000_000_000 / PAGE_TICKETS as u64;
    let header = Header { epoch: EPOCH, next: base_page * PAGE_TICKETS as u64 + 100, base_page };
    let mut gone = Box::new([0; crate::PAGE_WORDS]);
    (gone[0], gone[1]) = (u64::MAX, (1 << 36) - 1);
    let image = Image { header, segments: vec![(base_page, gone)], entries: vec![] };
    let mut zone = Zone::restore(policy(60), image, at(0)).expect("consistent");
    let first = zone.join(10_000, at(0)).first;
    assert_eq!(first, header.next);
    let view = view(&mut zone, at(1));
    assert_eq!(view.position(first + 9_999, 1).expect("waits").rank, 10_000 - 60);
}

#[test]
fn damaged_images_are_refused() {
    let image = |next, base_page, entries| Image {
        header: Header { epoch: EPOCH, next, base_page },
        segments: vec![(base_page, Box::new([1; crate::PAGE_WORDS]))],
        entries,
    };
    let refused = |image| Zone::restore(policy(1), image, at(0)).err().expect("refused").0;
    let entry = Entry { at_ms: 0, unix_s: 0 };
    assert!(refused(image(5, 1, vec![])).contains("after its end"));
    assert!(refused(image(64, 0, vec![])).contains("never given out"));
    assert!(refused(image(8_192, 0, vec![(1, entry)])).contains("still waits"));
    assert!(refused(image(u64::MAX, 0, vec![])).contains("longer than any"));
    assert!(Zone::restore(policy(1), image(8_192, 0, vec![(64, entry)]), at(0)).is_ok());
}

/// What a test's user does next.
#[derive(Clone, Debug)]
enum Step {
    Join(u32),
    Poll(Vec<usize>),
    PagePolls(Vec<usize>),
    Pass(u64),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (1u32..40).prop_map(Step::Join),
        6 => proptest::collection::vec(0usize..400, 1..30).prop_map(Step::Poll),
        3 => proptest::collection::vec(0usize..400, 1..30).prop_map(Step::PagePolls),
        4 => (1u64..4_500).prop_map(Step::Pass),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    /// Rank is a naive count, windows hold, nobody who polled within the idle time is evicted, an entry stays, and
    /// a zone that was kept and restored at any moment goes on as it was.
    #[test]
    fn the_line_is_what_a_naive_model_says(
        n in 1u32..60, steps in proptest::collection::vec(step(), 1..150), start in 0u64..3, seed_base in 8_100u64..8_192,
    ) {
        let policy = policy(n);
        // An empty line, one that ends a little before the end of a page, and before the end of a segment.
        let base_page = if start == 2 { 7 } else { 0 };
        let first = base_page * PAGE_TICKETS as u64;
        let header_next = if start == 0 { 0 } else { first + seed_base };
        let mut kept = Image {
            header: Header { epoch: EPOCH, next: header_next, base_page },
            segments: Vec::new(),
            entries: Vec::new(),
        };
        let mut gone = Box::new([0; crate::PAGE_WORDS]);
        for seq in first..header_next {
            let ticket = split(seq - first).1;
            gone[ticket / 64] |= 1 << (ticket % 64);
        }
        kept.segments.push((base_page, gone));
        let mut now = 1_000;
        let mut zone = Zone::restore(policy, kept.clone(), at(now)).expect("consistent");
        // Live tickets with the last poll; who entered with the entry.
        let (mut live, mut entered) = (BTreeMap::<u64, u64>::new(), BTreeMap::<u64, Entry>::new());
        let mut entries: Vec<(u64, bool)> = Vec::new();
        for step in steps {
            match step {
                Step::Join(count) => {
                    let joined = zone.join(count, at(now));
                    for (seq, verdict) in (joined.first..).zip(joined.verdicts) {
                        match verdict {
                            Verdict::Entered(entry) => {
                                entered.insert(seq, entry);
                                entries.push((now, false));
                            }
                            Verdict::Waiting(place) => {
                                prop_assert_eq!(place.rank, 1 + live.len() as u64);
                                live.insert(seq, now);
                            }
                            Verdict::Gone => prop_assert!(false, "a new ticket is not gone"),
                        }
                    }
                }
                Step::Poll(picks) => {
                    let all: Vec<u64> = live.keys().chain(entered.keys()).copied().collect();
                    if all.is_empty() {
                        continue;
                    }
                    let claims: Vec<Claim> = picks.iter().map(|pick| claim(all[pick % all.len()])).collect();
                    for (asked, verdict) in claims.iter().zip(zone.enter(&claims, at(now)).verdicts) {
                        match verdict {
                            Verdict::Entered(entry) => {
                                if let Some(before) = entered.insert(asked.seq, entry) {
                                    prop_assert_eq!(before, entry, "the same answer again");
                                } else {
                                    live.remove(&asked.seq);
                                    entries.push((now, true));
                                }
                            }
                            Verdict::Waiting(_) => {
                                live.insert(asked.seq, now);
                            }
                            Verdict::Gone => {
                                let polled = live.remove(&asked.seq);
                                prop_assert!(polled.is_some_and(|ms| now - ms > 60_000) || entered.contains_key(&asked.seq));
                            }
                        }
                    }
                }
                Step::PagePolls(picks) => {
                    let known = view(&mut zone, at(now));
                    live.retain(|&seq, _| known.position(seq, now).is_some());
                    if live.is_empty() {
                        continue;
                    }
                    let all: Vec<u64> = live.keys().copied().collect();
                    let polled: Vec<u64> = picks.iter().map(|pick| all[pick % all.len()]).collect();
                    zone.beat(&marks(polled.iter().copied()), at(now));
                    for seq in polled {
                        live.insert(seq, now);
                        let (segment, ticket) = zone.find(seq).expect("lives");
                        let segment = &zone.segments[segment];
                        prop_assert!(segment.is_here(ticket) && segment.age(ticket) == 0);
                    }
                }
                Step::Pass(ms) => {
                    now += ms;
                    let view = view(&mut zone, at(now));
                    live.retain(|&seq, polled| view.position(seq, now).is_some() || now - *polled <= 60_000);
                    for (ahead, &seq) in live.keys().enumerate() {
                        let place = view.position(seq, now);
                        prop_assert!(place.is_some(), "{seq} polled, and is evicted");
                        prop_assert_eq!(place.expect("checked").rank, 1 + ahead as u64);
                        prop_assert!(matches!(view.look(EPOCH, seq, now), Lookup::Waiting(_)) != (seq < view.front_end));
                    }
                }
                Step::Restart => {
                    zone = Zone::restore(policy, kept.clone(), at(now)).expect("what was kept is consistent");
                }
            }
            if let Some(changes) = zone.take_delta() {
                keep(&mut kept, changes);
            }
            for segment in &zone.segments {
                segment.check();
            }
        }
        // Each entry against those before it: what enters later in the same millisecond was not there to be counted,
        // and with nobody waiting a newcomer may enter beyond the sub-window.
        for (last, &(end, strict)) in entries.iter().enumerate() {
            let within = |ms| entries[..=last].iter().filter(|e| e.0 >= end.saturating_sub(ms)).count();
            prop_assert!(within(60_000) <= n as usize);
            prop_assert!(!strict || within(6_000) <= policy.admit_per_sub_window() as usize);
        }
    }
}

/// What a journal does with changes.
fn keep(image: &mut Image, changes: Delta) {
    image.header = changes.header;
    image.segments.retain(|(index, _)| !changes.dropped.contains(index));
    for (index, words) in changes.segments {
        image.segments.retain(|(kept, _)| *kept != index);
        image.segments.push((index, Box::new(*words)));
    }
    image.entries.extend(changes.entered);
    image.entries.retain(|(seq, _)| !changes.forgotten.contains(seq));
}
