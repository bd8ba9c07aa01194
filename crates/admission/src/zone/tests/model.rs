//! The line compared with a naive model, for random traffic.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// One step of a random run.
#[derive(Clone, Debug)]
enum Step {
    Join(u32),
    Poll(Vec<usize>),
    PagePolls(Vec<usize>),
    Wait(u64),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (1u32..40).prop_map(Step::Join),
        6 => proptest::collection::vec(0usize..400, 1..30).prop_map(Step::Poll),
        3 => proptest::collection::vec(0usize..400, 1..30).prop_map(Step::PagePolls),
        4 => (1u64..4_500).prop_map(Step::Wait),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    /// A rank equals a naive count; the windows hold; a holder who polled within the idle time is not evicted; an entry
    /// stays; and a zone that was saved and restored at any moment continues unchanged.
    #[test]
    fn the_line_matches_a_naive_model(
        n in 1u32..60, steps in proptest::collection::vec(step(), 1..150), start in 0u64..3, seed_base in 8_100u64..8_192,
    ) {
        let policy = policy(n);
        // An empty line, a line that ends shortly before the end of a page, and one that ends shortly before a segment.
        let base_page = if start == 2 { 7 } else { 0 };
        let first = base_page * PAGE_TICKETS as u64;
        let header_next = if start == 0 { 0 } else { first + seed_base };
        let mut saved = Image {
            header: Header { epoch: EPOCH, next: header_next, base_page, inside: None, drawn: Default::default(), totals: Default::default() },
            pages: Vec::new(),
            entries: Vec::new(),
            bound: Vec::new(),
        };
        let mut gone = Box::new([0; crate::PAGE_WORDS]);
        for seq in first..header_next {
            let ticket = split(seq - first).1;
            gone[ticket / 64] |= 1 << (ticket % 64);
        }
        saved.pages.push((base_page, gone));
        let mut now = 1_000;
        let mut zone = Zone::restore(policy, saved.clone(), at(now)).expect("consistent");
        // Live tickets with the instant of the last poll, and entered tickets with their entry.
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
                            Verdict::Waiting(position) => {
                                prop_assert_eq!(position.rank, 1 + live.len() as u64);
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
                    let line = line(&zone.beat(&[], at(now)));
                    live.retain(|seq, _| line.binary_search(seq).is_ok());
                    if live.is_empty() {
                        continue;
                    }
                    let all: Vec<u64> = live.keys().copied().collect();
                    let polled: Vec<u64> = picks.iter().map(|pick| all[pick % all.len()]).collect();
                    let fronts: Vec<usize> = zone.segments.iter().map(|segment| segment.front).collect();
                    zone.beat(&polls(polled.iter().copied()), at(now));
                    for seq in polled {
                        live.insert(seq, now);
                        let (index, ticket) = zone.find(seq).expect("lives");
                        let segment = &zone.segments[index];
                        prop_assert_eq!(segment.age(ticket), 0);
                        prop_assert!(segment.is_here(ticket) || ticket < fronts[index]);
                    }
                }
                Step::Wait(ms) => {
                    now += ms;
                    let line = line(&zone.beat(&[], at(now)));
                    live.retain(|seq, polled| line.binary_search(seq).is_ok() || now - *polled <= 60_000);
                    for (ahead, seq) in live.keys().enumerate() {
                        prop_assert_eq!(line.binary_search(seq), Ok(ahead), "{} polled", seq);
                    }
                }
                Step::Restart => {
                    zone = Zone::restore(policy, saved.clone(), at(now)).expect("a saved image is consistent");
                }
            }
            if let Some(delta) = zone.take_delta() {
                save(&mut saved, delta);
            }
            for segment in &zone.segments {
                segment.check();
            }
        }
        // Compare each entry with those before it, because a later entry of the same millisecond was not there to be
        // counted. With nobody waiting a newcomer may enter beyond the sub-window.
        for (last, &(end, strict)) in entries.iter().enumerate() {
            let within = |ms| entries[..=last].iter().filter(|e| e.0 >= end.saturating_sub(ms)).count();
            prop_assert!(within(60_000) <= n as usize);
            prop_assert!(!strict || within(6_000) <= policy.admit_per_sub_window() as usize);
        }
    }
}
