//! The line's rules against naive models, for random traffic.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::{Place, Seen};

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

fn place(verdict: &Verdict) -> Place {
    let Verdict::Waiting(place) = verdict else { panic!("waits: {verdict:?}") };
    *place
}

/// The `gone` bits of some tickets as a server marks polls.
fn marks(seqs: impl IntoIterator<Item = u64>) -> Vec<Mark> {
    let mut marks = BTreeMap::<u64, Box<Words>>::new();
    for seq in seqs {
        let (segment, ticket) = split(seq);
        marks.entry(segment).or_insert_with(|| Box::new([0; crate::SEGMENT_WORDS]))[ticket / 64] |=
            1 << (ticket % 64);
    }
    marks.into_iter().map(|(segment, words)| Mark { segment, words }).collect()
}

#[test]
fn with_nobody_waiting_the_minute_is_used_at_once() {
    let mut zone = Zone::new(policy(600), EPOCH, at(0));
    let joined = zone.join(601, at(5));
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
fn numbers_past_a_million_millions_work() {
    let base_segment = 1_000_000_000_000 / SEGMENT_TICKETS as u64;
    let header = Header { epoch: EPOCH, next: base_segment * SEGMENT_TICKETS as u64 + 100, base_segment };
    let mut gone = Box::new([0; crate::SEGMENT_WORDS]);
    (gone[0], gone[1]) = (u64::MAX, (1 << 36) - 1);
    let image = Image { header, segments: vec![(base_segment, gone)], entries: vec![] };
    let mut zone = Zone::restore(policy(60), image, at(0)).expect("consistent");
    let first = zone.join(10_000, at(0)).first;
    assert_eq!(first, header.next);
    let view = zone.beat(&[], at(1));
    assert_eq!(view.place(first + 9_999, 1).expect("waits").rank, 10_000 - 60);
}

#[test]
fn damaged_images_are_refused() {
    let image = |next, base_segment, entries| Image {
        header: Header { epoch: EPOCH, next, base_segment },
        segments: vec![(base_segment, Box::new([1; crate::SEGMENT_WORDS]))],
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

#[test]
fn a_person_costs_two_bytes() {
    let mut zone = Zone::new(policy(1), EPOCH, at(0));
    for _ in 0..100 {
        zone.join(1_000, at(0));
    }
    let bytes = zone.segments.len() * (std::mem::size_of::<Words>() * (GENERATIONS + 2) + 64);
    assert!(bytes <= 8 * 100_000, "{} bytes a person", bytes / 100_000);
}

/// What a test's user does next.
#[derive(Clone, Debug)]
enum Step {
    Join(u32),
    Poll(Vec<usize>),
    Pass(u64),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (1u32..40).prop_map(Step::Join),
        6 => proptest::collection::vec(0usize..400, 1..30).prop_map(Step::Poll),
        4 => (1u64..4_000).prop_map(Step::Pass),
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
        let (base_segment, header_next) = (0, if start == 0 { 0 } else { seed_base });
        let mut kept = Image {
            header: Header { epoch: EPOCH, next: header_next, base_segment },
            segments: Vec::new(),
            entries: Vec::new(),
        };
        let mut gone = Box::new([0; crate::SEGMENT_WORDS]);
        for seq in 0..header_next {
            let (_, ticket) = split(seq);
            gone[ticket / 64] |= 1 << (ticket % 64);
        }
        kept.segments.push((0, gone));
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
                Step::Pass(ms) => {
                    now += ms;
                    let view = zone.beat(&[], at(now));
                    live.retain(|&seq, polled| view.place(seq, now).is_some() || now - *polled <= 60_000);
                    for (ahead, &seq) in live.keys().enumerate() {
                        let place = view.place(seq, now);
                        prop_assert!(place.is_some(), "{seq} polled, and is evicted");
                        prop_assert_eq!(place.expect("checked").rank, 1 + ahead as u64);
                        prop_assert!(matches!(view.look(EPOCH, seq, now), Seen::Waiting(_)) != (seq < view.front_end));
                    }
                }
                Step::Restart => {
                    zone = Zone::restore(policy, kept.clone(), at(now)).expect("what was kept is consistent");
                }
            }
            if let Some(changes) = zone.take_changes() {
                keep(&mut kept, changes);
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
fn keep(image: &mut Image, changes: Changes) {
    image.header = changes.header;
    image.segments.retain(|(index, _)| !changes.dropped.contains(index));
    for (index, words) in changes.segments {
        image.segments.retain(|(kept, _)| *kept != index);
        image.segments.push((index, Box::new(*words)));
    }
    image.entries.extend(changes.entered);
    image.entries.retain(|(seq, _)| !changes.forgotten.contains(seq));
}
