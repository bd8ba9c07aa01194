//! Small stories, each with one property.

use std::num::NonZeroU64;

use super::*;
use crate::story::{Call, End, Excused, Rise, ToldOpening, ToldWait};

fn plan(admit_per_minute: Option<u32>) -> Plan {
    Plan {
        target: "http://127.0.0.1:1".into(),
        zone: "Z".into(),
        profile: "test".into(),
        users: 1,
        planned_ms: 100_000,
        abandon: 0.0,
        streams: 0,
        start_unix_ms: 0,
        is_part: false,
        admit_per_minute,
        sub_windows: 10,
        idle_s: 60,
        inside_at_most: None,
        opening: None,
    }
}

fn call(sent_ms: u32, heard_ms: u32) -> Option<Call> {
    Some(Call { sent_ms, heard_ms })
}

/// A user who came at `came_ms`, last had to wait at `waits_ms` and entered at `in_ms`. Each call takes 10 ms.
fn story(number: u32, came_ms: u32, waits_ms: Option<u32>, in_ms: Option<u32>) -> Story {
    Story {
        arrived: call(came_ms, came_ms + 10),
        last_waiting: waits_ms.and_then(|ms| call(ms, ms + 10)),
        entered: in_ms.and_then(|ms| call(ms, ms + 10)),
        first_told: None,
        opens: None,
        undrawn_ms: None,
        placed: None,
        longest_silence_ms: 3_000,
        lapses: 0,
        silences: Vec::new(),
        excused: None,
        told_period_ms: Some(3_000),
        rises: 0,
        worst_rise: None,
        pass: None,
        second_pass: false,
        asked_again: false,
        unanswered_since_ms: None,
        who: (1, number),
        end: if in_ms.is_some() { End::Entered } else { End::Waiting },
        ended_ms: in_ms.unwrap_or(100_000),
    }
}

fn judged_as(admit_per_minute: Option<u32>, stories: &[Story], name: &str) -> Check {
    let (checks, _) = judge(&plan(admit_per_minute), 100_000, stories, &[]);
    checks.into_iter().find(|check| check.name == name).expect("each check is made")
}

#[test]
fn a_minute_counts_only_entries_certainly_decided_in_it() {
    let mut stories: Vec<_> = (0..11).map(|i| story(i, 1_000 * i, None, Some(1_000 * i))).collect();
    let check = judged_as(Some(10), &stories, "over_admission_60s");
    assert_eq!((check.judgement, check.count, check.figure), (Judgement::Bad, 1, Some(11.0)));
    assert!(check.worst.contains("1/0") && check.worst.contains("1/10"), "{}", check.worst);
    // The last entry may have been decided after the minute.
    stories[10].entered = call(10_000, 60_000);
    assert_eq!(judged_as(Some(10), &stories, "over_admission_60s").judgement, Judgement::Good);
    let open = judged_as(None, &stories, "over_admission_60s");
    assert_eq!((open.judgement, open.figure), (Judgement::Open, Some(10.0)));
    assert!(open.note.contains("--admit-per-minute"));
}

#[test]
fn a_burst_with_nobody_waiting_may_use_the_whole_minute() {
    let mut stories: Vec<_> = (0..10).map(|i| story(i, 5_000, None, Some(5_000 + i))).collect();
    assert_eq!(judged_as(Some(20), &stories, "over_admission_sub_window").judgement, Judgement::Open);
    stories.push(story(10, 1_000, Some(20_000), None));
    let check = judged_as(Some(20), &stories, "over_admission_sub_window");
    assert_eq!((check.judgement, check.figure), (Judgement::Bad, Some(10.0)));
}

/// A line that enters at once is over before a sub-window is. The limit holds for it all the same.
#[test]
fn a_line_that_enters_at_once_exceeds_the_sub_window() {
    let sub_window = |stories: &[Story]| judged_as(Some(20), stories, "over_admission_sub_window");
    // 20 a minute, 2 in 6 s. A burst with nobody waiting uses the minute, and ten wait until its slots are free.
    let burst: Vec<_> = (0..20).map(|i| story(i, 1_000 + i, None, Some(1_000 + i))).collect();
    let line = |entered: &dyn Fn(u32) -> u32| {
        let waits = |i| story(100 + i, 2_000 + i, Some(60_000 + i), Some(entered(i)));
        [burst.clone(), (0..10).map(waits).collect()].concat()
    };
    let check = sub_window(&line(&|i| 62_000 + i));
    assert_eq!((check.judgement, check.count, check.figure), (Judgement::Bad, 8, Some(10.0)), "{check:?}");
    assert!(check.note.contains("At most 10 entered within 6 s while people waited"), "{check:?}");
    assert!(check.worst.contains("1/100") && check.worst.contains("1/109"), "{check:?}");
    // Two in each sub-window, and those who come to an empty line afterwards use the minute at once.
    let mut good = line(&|i| 62_000 + i / 2 * 6_001);
    good.extend((0..8).map(|i| story(200 + i, 86_100 + i, None, Some(86_100 + i))));
    let check = sub_window(&good);
    assert_eq!((check.count, check.figure), (0, Some(2.0)), "{check:?}");
    assert_ne!(check.judgement, Judgement::Bad, "{check:?}");
    // Nobody was certain to wait for 6 s after an entry, so the limit was not seen to hold for so long.
    let short = [burst.clone(), vec![story(100, 2_000, Some(60_000), Some(62_000))]].concat();
    let check = sub_window(&short);
    assert_eq!((check.judgement, check.figure), (Judgement::Open, Some(1.0)), "{check:?}");
    assert!(
        check.note.contains("No entry was followed by 6 s in which people certainly waited"),
        "{check:?}"
    );
}

#[test]
fn a_user_who_has_to_wait_after_a_later_entry_is_overtaken() {
    let b = story(2, 2_000, None, Some(10_000));
    let one = |waits_ms| judged_as(None, &[story(1, 1_000, Some(waits_ms), None), b.clone()], "order");
    assert_eq!(one(13_000).judgement, Judgement::Good, "within the tolerance");
    let check = one(13_012);
    assert_eq!((check.judgement, check.count), (Judgement::Bad, 1));
    assert!(check.worst.contains("1/1") && check.worst.contains("1/2"), "{}", check.worst);
    // B came before A received the place, so the order is not certain.
    let mut a = story(1, 1_000, Some(50_000), None);
    a.arrived = call(1_000, 2_000);
    let check = judged_as(None, &[a.clone(), b.clone()], "order");
    assert_eq!((check.judgement, check.count), (Judgement::Open, 0), "nothing could be seen: {check:?}");
    // A user with a lapse is not checked, and explains one overtaken user.
    a = story(1, 1_000, Some(50_000), None);
    a.lapses = 1;
    assert_eq!(judged_as(None, &[a.clone(), b.clone()], "order").judgement, Judgement::Open);
    let others = [story(3, 1_000, Some(50_000), None), story(4, 1_000, Some(50_000), None)];
    let [c, d] = others;
    assert_eq!(judged_as(None, &[a.clone(), b.clone(), c.clone()], "order").judgement, Judgement::Good);
    assert_eq!(judged_as(None, &[a, b, c, d], "order").judgement, Judgement::Bad);
}

/// A user who was silent may have been overtaken meanwhile. Whoever polls as told again is judged again.
#[test]
fn a_user_who_is_heard_again_is_judged_again() {
    // Silent from 11 to 20 s.
    let silent = |number, came_ms, waits_ms| {
        let mut story = story(number, came_ms, Some(10_000), None);
        story.lapse(Call { sent_ms: 20_000, heard_ms: 20_010 });
        story.last_waiting = call(waits_ms, waits_ms + 10);
        story
    };
    let order = |users: &[Story], passes_ms: &[u32]| {
        let later = (0..).zip(passes_ms).map(|(i, &ms)| story(50 + i, 5_000, None, Some(ms)));
        let stories: Vec<_> = users.iter().cloned().chain(later).collect();
        judged_as(None, &stories, "order")
    };
    let a = silent(1, 1_000, 60_000);
    for absent_ms in [10_100, 15_000, 20_000, 23_000] {
        let check = order(std::slice::from_ref(&a), &[absent_ms]);
        assert_eq!((check.judgement, check.count), (Judgement::Good, 0), "{absent_ms}: {check:?}");
    }
    for present_ms in [5_010, 6_900, 23_011, 56_900] {
        let check = order(std::slice::from_ref(&a), &[present_ms]);
        assert_eq!((check.judgement, check.count), (Judgement::Bad, 1), "{present_ms}: {check:?}");
        assert!(check.worst.contains("1/1") && check.worst.contains("1/50"), "{check:?}");
    }
    let check = order(std::slice::from_ref(&a), &[15_000, 30_000]);
    assert!(check.worst.contains("1 users who came later") && check.worst.contains("user 1/51"), "{check:?}");
    // Somebody who comes back afterwards may take the slot of one of them; not somebody who came back before.
    let with = |back_ms: u32| {
        let mut b = silent(2, 2_000, 30_000);
        b.lapse(Call { sent_ms: back_ms, heard_ms: back_ms + 10 });
        order(&[a.clone(), b, story(3, 3_000, Some(60_000), None)], &[52_000])
    };
    let check = with(55_000);
    assert_eq!((check.judgement, check.count), (Judgement::Good, 0), "{check:?}");
    assert!(check.note.contains("2 were overtaken") && check.note.contains("at most 2"), "{check:?}");
    let check = with(45_000);
    assert_eq!((check.judgement, check.count), (Judgement::Bad, 2), "{check:?}");
    // A call that is never answered may have been noted.
    let fresh = story(6, 3_000, Some(60_000), None);
    let lost = |since_ms| Story { unanswered_since_ms: Some(since_ms), ..story(5, 60_500, None, None) };
    assert_eq!(order(&[a.clone(), lost(54_000)], &[52_000]).judgement, Judgement::Good);
    assert_eq!(order(&[a.clone(), lost(61_000)], &[52_000]).judgement, Judgement::Bad);
    // A file of an earlier version does not say when.
    let mut old = silent(1, 1_000, 60_000);
    old.silences.clear();
    assert_eq!(order(&[old, fresh], &[52_000]).judgement, Judgement::Good);
}

/// Users who ask as told and get only stale or late replies count as present when others have entered for a minute.
#[test]
fn stale_and_late_replies_do_not_excuse_a_user_who_is_left_behind() {
    // Users who come at 1 s, ask until `to_ms`, and are told nothing that is fresh and in time.
    let forgotten = |count: u32, from_ms, to_ms| {
        (0..count)
            .map(move |i| Story { excused: Some(Excused { from_ms, to_ms }), ..story(i, 1_000, None, None) })
    };
    // So many come at 2 s and enter one a second from 10 s on. Others come then, and have waited as they should when one of them enters.
    let order = |forgotten: &mut dyn Iterator<Item = Story>, passes: u32| {
        let mut stories: Vec<_> = forgotten.collect();
        stories.extend((0..passes).map(|i| story(100 + i, 2_000, None, Some(10_000 + 1_000 * i))));
        stories.extend((0..100).map(|i| story(300 + i, 2_500, Some(90_000), None)));
        stories.push(story(500, 3_000, Some(95_000), None));
        judged_as(None, &stories, "order")
    };
    let check = order(&mut forgotten(1, 1_000, 70_100), 20);
    assert_eq!((check.judgement, check.count), (Judgement::Bad, 1), "{check:?}");
    assert!(
        check.note.contains("1 users asked as they were told and got only stale or late replies, for 60 s"),
        "{check:?}"
    );
    assert!(check.worst.contains("1/0") && check.worst.contains("20 users who came later"), "{check:?}");
    // Not for a minute yet; or only by a few, in a line that moves slowly; or by those who entered while the user did not ask.
    for (from_ms, to_ms, passes) in [(1_000, 70_000, 20), (1_000, 90_000, 9), (11_000, 71_000, 20)] {
        let check = order(&mut forgotten(1, from_ms, to_ms), passes);
        assert_eq!((check.judgement, check.count), (Judgement::Good, 0), "{from_ms}..{to_ms}: {check:?}");
        assert!(
            check.note.contains("1 users were overtaken while") && check.note.contains("; 1 of them"),
            "{check:?}"
        );
        assert!(check.note_ko.contains("60초"), "{check:?}");
    }
    // One of a hundred may be kept out when the run ends; not more of them, unless they were heard again.
    let check = order(&mut forgotten(2, 1_000, 65_000), 20);
    assert_eq!(check.judgement, Judgement::Open, "{check:?}");
    let mut heard_again = forgotten(2, 1_000, 65_000).map(|mut story| {
        story.lapse(Call { sent_ms: 65_000, heard_ms: 65_010 });
        story.last_waiting = call(68_000, 68_010);
        story
    });
    let check = order(&mut heard_again, 20);
    assert_eq!(check.judgement, Judgement::Good, "{check:?}");
    assert!(
        check.note.contains("2 users were overtaken while") && check.note.contains("; 0 of them"),
        "{check:?}"
    );
}

/// Whoever obeys a period that is too long is silent, and no other check sees it.
#[test]
fn a_period_that_costs_the_place_is_a_fault() {
    let told = |period_ms| Story { told_period_ms: Some(period_ms), ..story(1, 0, Some(50), None) };
    let judged = |idle_s, period_ms| {
        let plan = Plan { idle_s, ..plan(None) };
        let (checks, _) = judge(&plan, 100_000, &[told(period_ms), story(2, 0, Some(50), None)], &[]);
        checks.into_iter().find(|check| check.name == "polling_period").expect("each check is made")
    };
    for (idle_s, most_ms) in [(60, 20_000), (30, 10_000), (180, 60_000), (3_600, 60_000)] {
        let check = judged(idle_s, most_ms);
        assert_eq!((check.judgement, check.count), (Judgement::Good, 0), "{check:?}");
        let check = judged(idle_s, most_ms + 1);
        assert_eq!((check.judgement, check.count), (Judgement::Bad, 1), "{check:?}");
    }
    let check = judged(60, 1_000_000_000);
    assert_eq!(check.figure, Some(1_000_000.0), "{check:?}");
    assert!(check.note.contains("--idle-timeout") && check.worst.contains("1/1"), "{check:?}");
    let nobody = [Story { told_period_ms: None, ..story(1, 0, None, Some(0)) }];
    assert_eq!(judged_as(None, &nobody, "polling_period").judgement, Judgement::Open);
    // A place that was lost because its holder obeyed is an eviction.
    let gone = |period_ms| Story { end: End::Gone, longest_silence_ms: 61_100, ..told(period_ms) };
    let evictions = |period_ms| judged_as(None, &[gone(period_ms), story(2, 0, Some(50), None)], "evictions");
    assert_eq!(evictions(61_000).judgement, Judgement::Bad, "{:?}", evictions(61_000));
    assert_eq!(evictions(3_000).judgement, Judgement::Good, "the user paused");
}

/// More users or a longer run do not help if the users were not answered, or not in time.
#[test]
fn an_open_check_names_what_hindered_the_users() {
    let notes = |change: fn(&mut Story)| {
        let mut stories: Vec<_> = (0..20).map(|i| story(i, 1_000, None, Some(1_000))).collect();
        stories.extend((20..60).map(|i| story(i, 1_000, Some(50_000), None)));
        stories[20..].iter_mut().for_each(change);
        let names = ["over_admission_sub_window", "order", "slot_use"];
        names.map(|name| {
            let check = judged_as(Some(20), &stories, name);
            assert_eq!(check.judgement, Judgement::Open, "{check:?}");
            check
        })
    };
    for check in notes(|story| story.unanswered_since_ms = Some(9_000)) {
        assert!(check.note.contains("40 got no answer any more"), "{check:?}");
    }
    for check in notes(|story| story.last_waiting = None) {
        assert!(check.note.contains("40 got only replies marked stale"), "{check:?}");
        assert!(!check.note.contains("--users") && check.note_ko.contains("stale"), "{check:?}");
    }
    for check in notes(|story| {
        story.last_waiting = call(4_000, 4_010);
        story.lapse(Call { sent_ms: 47_000, heard_ms: 47_010 });
        story.last_waiting = call(50_000, 50_010);
    }) {
        assert!(check.note.contains("40 were silent") && check.note.contains("47.010 s"), "{check:?}");
        assert!(!check.note.contains("--users") && check.note_ko.contains("47.010"), "{check:?}");
    }
}

#[test]
fn used_slots_are_compared_with_the_best_server() {
    // 60 per minute, 6 in 6 s. A burst of 60, then a line of 100 and no entry for 60 s.
    let mut stories: Vec<_> = (0..60).map(|i| story(i, 0, None, Some(0))).collect();
    stories.extend((60..160).map(|i| story(i, 100, Some(59_000), None)));
    let check = judged_as(Some(60), &stories, "slot_use");
    assert_eq!(check.judgement, Judgement::Open, "there were no slots: {check:?}");
    assert!(check.note.contains("at least 87 s and have at least 84 users"), "{}", check.note);
    // Without the burst there were slots.
    stories.drain(..60);
    stories[0].first_told = Some(ToldWait { eta_s: 9, range_s: (0, 99), rank: 1, at_ms: 110 });
    let check = judged_as(Some(60), &stories, "slot_use");
    assert_eq!((check.judgement, check.figure), (Judgement::Bad, Some(0.0)));
    // 6 entries every 6 s use all slots.
    stories.extend((0..54).map(|i| story(1_000 + i, 100, None, Some(150 + i / 6 * 6_001))));
    let check = judged_as(Some(60), &stories, "slot_use");
    assert_eq!(check.judgement, Judgement::Good, "{check:?}");
    assert!(check.figure > Some(0.97), "{check:?}");
}

/// A run that was long and large enough does not become more so.
#[test]
fn slots_without_a_line_do_not_ask_for_a_longer_run() {
    let note = |planned_ms, users| {
        let plan = Plan { planned_ms, users, ..plan(Some(60)) };
        let stories: Vec<_> = (0..100).map(|i| story(i, i, None, Some(i))).collect();
        let check = judge(&plan, 100_000, &stories, &[]).0.into_iter().find(|check| check.name == "slot_use");
        check.expect("each check is made").note
    };
    for (planned_ms, users) in [(87_000, 84), (200_000, 1_000)] {
        assert!(note(planned_ms, users).contains("large enough for that, but the line was not"));
    }
    for (planned_ms, users) in [(86_000, 84), (87_000, 83)] {
        assert!(note(planned_ms, users).contains("must last at least"), "{}", note(planned_ms, users));
    }
}

/// Sixty may enter in a minute, six in 6 s. `entries_ms` says when six enter, while others wait from `from_ms` to `to_ms`.
fn slots_used(entries_ms: &[u32], from_ms: u32, to_ms: u32) -> Check {
    let mut stories: Vec<_> = (0..50).map(|i| story(i, from_ms, Some(to_ms), None)).collect();
    for (group, &at_ms) in (0..).zip(entries_ms) {
        stories
            .extend((0..6).map(|i| story(100 + group * 6 + i, at_ms.saturating_sub(500), None, Some(at_ms))));
    }
    stories[0].first_told = Some(ToldWait { eta_s: 9, range_s: (0, 99), rank: 1, at_ms: from_ms + 10 });
    let check = slot_use::judge(&plan(Some(60)), &stories, &line::Line::certain(&stories, 0), 0);
    assert!(check.figure.is_none_or(|share| share <= 1.0), "{check:?}");
    check
}

/// The room admits in the sub-windows from 0, 12, 24 s and so on, and in none of those between them.
#[test]
fn a_room_that_wastes_every_other_sub_window_is_not_good_whenever_people_wait() {
    let mut judged = 0;
    // Either the first six enter when the line begins, or as soon as a good sub-window does.
    for begins_ms in (0..12_000).step_by(300) {
        let mut entries_ms: Vec<u32> = (1..20).map(|window| window * 12_000).collect();
        if begins_ms + 200 < 6_000 {
            entries_ms.insert(0, begins_ms + 200);
        }
        for lasts_ms in (12_000..80_000).step_by(2_300) {
            // The certain line begins with them, or some time later.
            for later_ms in [0, 3_000, 6_300, 9_100] {
                let check = slots_used(&entries_ms, begins_ms + later_ms, begins_ms + later_ms + lasts_ms);
                assert_ne!(check.judgement, Judgement::Good, "{begins_ms} +{later_ms} {lasts_ms}: {check:?}");
                judged += u32::from(check.judgement == Judgement::Bad);
            }
        }
    }
    assert!(judged > 4_000, "{judged}");
}

#[test]
fn a_room_that_uses_each_sub_window_is_not_bad_whenever_people_wait() {
    let mut judged = 0;
    // Each group enters a little late, because people poll.
    for late_ms in [10, 100, 300] {
        for began_ms in (0..6_000).step_by(300) {
            let entries_ms: Vec<u32> = (0..30).map(|window| began_ms + window * (6_000 + late_ms)).collect();
            for lasts_ms in (12_000..80_000).step_by(2_300) {
                let check = slots_used(&entries_ms, 6_000, 6_000 + lasts_ms);
                assert_ne!(check.judgement, Judgement::Bad, "{began_ms} {late_ms} {lasts_ms}: {check:?}");
                judged += u32::from(check.judgement == Judgement::Good);
            }
        }
    }
    assert!(judged > 1_500, "{judged}");
}

/// The last group may be late by half a sub-window. What comes after people stopped waiting makes up for nothing.
#[test]
fn entries_after_people_waited_are_no_evidence() {
    // Slots at 0, 6, 12, 18 and 24 s; people wait until 24.5 s. The last one is not demanded.
    let on_time = [10_200, 16_210, 22_220, 28_230];
    let with = |more: &[u32]| slots_used(&[&on_time[..], more].concat(), 10_000, 34_500);
    let check = with(&[34_600]);
    assert_eq!((check.judgement, check.figure), (Judgement::Good, Some(1.0)), "{check:?}");
    assert_eq!(with(&[]).judgement, Judgement::Good);
    // Two of four groups came, and four more just after the end.
    let late = [10_200, 16_210, 34_600, 34_700, 34_800, 35_000];
    let check = slots_used(&late, 10_000, 34_500);
    assert_eq!((check.judgement, check.figure), (Judgement::Bad, Some(0.5)), "{check:?}");
    assert!(check.worst.contains("12 entered, but 24 could have entered"), "{check:?}");
}

/// Too many entries are another check's business, and do not make up for slots that another interval wasted.
#[test]
fn more_entries_than_slots_are_no_more_than_all_of_them() {
    let twice: Vec<u32> = (0..20).map(|window| 10_200 + window * 3_000).collect();
    let check = slots_used(&twice, 10_000, 50_000);
    assert_eq!((check.judgement, check.figure), (Judgement::Good, Some(1.0)), "{check:?}");
    // The same people wait again, and nobody enters.
    let mut stories: Vec<_> = (0..50).map(|i| story(i, 10_000, Some(40_000), None)).collect();
    stories.extend((50..100).map(|i| story(i, 150_000, Some(180_000), None)));
    stories.extend((0..200).map(|i| story(200 + i, 9_000, None, Some(10_200 + i * 100))));
    let check = judged_as(Some(60), &stories, "slot_use");
    assert!(check.judgement == Judgement::Bad && check.figure < Some(0.6), "{check:?}");
}

/// A machine that plays a part of the users does not know those of the others.
#[test]
fn a_part_of_a_run_leaves_open_what_takes_all_users() {
    let judged = |is_part, stories: &[Story]| {
        let plan = Plan { is_part, ..plan(Some(60)) };
        judge(&plan, 100_000, stories, &[]).0
    };
    let named = |checks: &[Check], name: &str| {
        checks.iter().find(|check| check.name == name).cloned().expect("each check is made")
    };
    // Others use the slots, and somebody of another machine came back to a place ahead.
    let mut stories: Vec<_> = (0..100).map(|i| story(i, 100, Some(79_000), None)).collect();
    stories.extend((0..60).map(|i| story(100 + i, 200, Some(900), Some(1_000 + i * 1_001))));
    stories[0].first_told = Some(ToldWait { eta_s: 9, range_s: (0, 99), rank: 1, at_ms: 110 });
    let (whole, part) = (judged(false, &stories), judged(true, &stories));
    for name in ["over_admission_60s", "over_admission_sub_window", "slot_use"] {
        assert_ne!(named(&whole, name).judgement, Judgement::Open, "{:?}", named(&whole, name));
    }
    assert_eq!(named(&whole, "order").judgement, Judgement::Bad);
    for name in ["over_admission_60s", "over_admission_sub_window", "order", "slot_use"] {
        let check = named(&part, name);
        assert_eq!((check.judgement, check.count, check.figure), (Judgement::Open, 0, None), "{check:?}");
        assert!(check.note.contains("loadgen merge") && check.note_ko.contains("loadgen merge"), "{check:?}");
        assert!(check.worst.is_empty(), "{check:?}");
    }
    for name in ["rank_rises", "evictions", "errors"] {
        assert_eq!(named(&part, name).judgement, Judgement::Good, "{:?}", named(&part, name));
    }
    // That nobody of a part overtook another of it says nothing of those who overtook them, or were overtaken.
    let calm = [story(1, 1_000, Some(20_000), Some(30_000)), story(2, 2_000, Some(20_000), Some(31_000))];
    assert_eq!(named(&judged(false, &calm), "order").judgement, Judgement::Good);
    let check = named(&judged(true, &calm), "order");
    assert!(check.judgement == Judgement::Open && check.note.contains("loadgen merge"), "{check:?}");
    // Too many of a part are too many.
    stories.extend((200..300).map(|i| story(i, 200, None, Some(50_000 + i))));
    for name in ["over_admission_60s", "over_admission_sub_window"] {
        assert_eq!(named(&judged(true, &stories), name).judgement, Judgement::Bad);
    }
}

#[test]
fn slots_are_not_judged_where_people_must_leave_first_or_nobody_is_admitted() {
    let plan = Plan { inside_at_most: Some(1_500), ..plan(Some(60)) };
    let waiting: Vec<_> = (0..100).map(|i| story(i, 100, Some(99_000), None)).collect();
    let (checks, _) = judge(&plan, 100_000, &waiting, &[]);
    let check = checks.into_iter().find(|check| check.name == "slot_use").expect("made");
    assert_eq!((check.judgement, check.figure), (Judgement::Open, None), "{check:?}");
    assert!(check.note.contains("at most 1,500 people") && check.note_ko.contains("1,500명"), "{check:?}");
    // The zone is held: people have places, and no wait is told.
    let check = judged_as(Some(60), &waiting, "slot_use");
    assert_eq!((check.judgement, check.figure), (Judgement::Open, None), "{check:?}");
    assert!(check.note.contains("mode=auto") && check.note_ko.contains("mode=auto"), "{check:?}");
    let mut told = waiting;
    told[7].first_told = Some(ToldWait { eta_s: 9, range_s: (0, 99), rank: 8, at_ms: 110 });
    assert_eq!(judged_as(Some(60), &told, "slot_use").judgement, Judgement::Bad, "it promised slots");
}

/// A closed zone, or one whose line is full, gives no places. That is no fault of the server, and no evidence for it.
#[test]
fn a_zone_without_places_was_not_rehearsed() {
    let left_out = |number| Story { end: End::NoPlace, ended_ms: 100_000, ..Story::new((1, number)) };
    let mut stories: Vec<_> = (0..10).map(left_out).collect();
    assert!(gave_no_places(&stories));
    let (checks, _) = judge(&plan(Some(60)), 100_000, &stories, &[]);
    for check in &checks {
        assert_eq!((check.judgement, &*check.note), (Judgement::Open, &*NO_PLACES.en), "{check:?}");
        assert_eq!(check.note_ko, NO_PLACES.ko);
    }
    // The line was full for some.
    stories.push(story(10, 0, Some(50), Some(100)));
    assert!(!gave_no_places(&stories));
    let check = judged_as(Some(60), &stories, "errors");
    assert_eq!((check.judgement, check.count), (Judgement::Open, 10), "{check:?}");
    assert!(
        check.note.contains("Of 11 users, 10 got no place") && check.note_ko.contains("10명"),
        "{check:?}"
    );
    // Others got no answer at all, which is a fault.
    stories.pop();
    let silent = |number| Story { unanswered_since_ms: Some(1_000), end: End::Outside, ..left_out(number) };
    stories.push(silent(10));
    let check = judged_as(Some(60), &stories, "errors");
    assert_eq!((check.judgement, check.count), (Judgement::Bad, 1), "{check:?}");
    assert_eq!(judged_as(Some(60), &stories, "order").note, NO_PLACES.en);
    assert!(!gave_no_places(&[silent(1)]) && !gave_no_places(&[]));
}

#[test]
fn each_user_is_checked_alone() {
    let good = story(1, 0, Some(50), Some(100));
    for name in ["rank_rises", "evictions", "errors"] {
        assert_eq!(judged_as(None, std::slice::from_ref(&good), name).judgement, Judgement::Good, "{name}");
    }
    let again = Story { asked_again: true, ..good.clone() };
    assert_eq!(judged_as(None, std::slice::from_ref(&again), "entered_once").judgement, Judgement::Good);
    // Nobody has to ask again to show that a pass has two users; they may be of different workers.
    let with = |who, pass| Story { who, pass: NonZeroU64::new(pass), ..again.clone() };
    let check = judged_as(None, &[with((1, 1), 7), with((2, 1), 8)], "entered_once");
    assert_eq!(check.judgement, Judgement::Good, "{check:?}");
    let same = [with((1, 1), 7), with((1, 2), 8), with((2, 1), 7), with((3, 9), 7)];
    for asked_again in [true, false] {
        let same = same.clone().map(|story| Story { asked_again, ..story });
        let check = judged_as(None, &same, "entered_once");
        assert_eq!((check.judgement, check.count), (Judgement::Bad, 2), "{check:?}");
        assert!(
            check.note.starts_with("Of 4 users who entered, 2 received the pass of another"),
            "{check:?}"
        );
        assert!(check.worst.contains("User 1/1") && check.worst.contains("user 2/1"), "{check:?}");
    }
    let mut bad = good.clone();
    bad.rises = 2;
    bad.worst_rise = Some(Rise { from: 1_000, to: 1_200, at_ms: 70 });
    let check = judged_as(None, &[bad.clone()], "rank_rises");
    assert_eq!((check.judgement, check.count), (Judgement::Bad, 2));
    assert!(check.worst.contains("1,000") && check.worst.contains("1,200"));
    bad.second_pass = true;
    assert_eq!(judged_as(None, &[bad.clone()], "entered_once").count, 1);
    bad.end = End::Gone;
    assert_eq!(judged_as(None, &[bad.clone()], "evictions").judgement, Judgement::Bad);
    bad.longest_silence_ms = 60_000;
    assert_eq!(judged_as(None, &[bad.clone()], "evictions").judgement, Judgement::Good);
    bad.end = End::Outside;
    assert_eq!(judged_as(None, &[bad.clone()], "errors").judgement, Judgement::Bad);
    // Still trying at the end: one of a hundred may have begun shortly before, but not everybody.
    bad.ended_ms = 100_000;
    assert_eq!(judged_as(None, &[bad.clone()], "errors").judgement, Judgement::Bad);
    let mut stories = vec![good.clone(); 99];
    stories.push(bad.clone());
    assert_eq!(judged_as(None, &stories, "errors").judgement, Judgement::Good);
    stories.push(bad);
    assert_eq!(judged_as(None, &stories, "errors").judgement, Judgement::Bad);
}

#[test]
fn the_expected_wait_is_compared_with_the_actual_wait() {
    let told = |number, eta_s, range_s, in_ms| {
        let mut story = story(number, 0, Some(50), Some(in_ms));
        story.first_told = Some(ToldWait { eta_s, range_s, rank: 1, at_ms: 10 });
        story
    };
    let stories = [told(1, 10, (8, 12), 12_300), told(2, 10, (8, 12), 20_000)];
    let (checks, eta) = judge(&plan(None), 100_000, &stories, &[]);
    assert_eq!((eta.users, eta.coverage), (2, 0.5));
    assert!((eta.bias_s - 6.15).abs() < 1e-9, "{eta:?}");
    assert!((eta.mape - (2.3 / 12.3 + 0.5) / 2.0).abs() < 1e-9, "{eta:?}");
    assert!((eta.error - (2.3 + 10.0) / (12.3 + 20.0)).abs() < 1e-3, "{eta:?}");
    let check = checks.iter().find(|check| check.name == "eta").expect("made");
    assert_eq!(check.judgement, Judgement::Good);
    assert!(check.worst.contains("1/2"));
}

/// A user who did nothing that could show a fault is no evidence that there is none.
#[test]
fn what_no_user_did_stays_open() {
    let at_once = Story { told_period_ms: None, ..story(1, 0, None, Some(0)) };
    for (name, missing) in [
        ("rank_rises", "--users"),
        ("evictions", "--users"),
        ("polling_period", "--users"),
        ("entered_once", "--repeat"),
        ("order", "--users"),
    ] {
        let check = judged_as(None, std::slice::from_ref(&at_once), name);
        assert_eq!(check.judgement, Judgement::Open, "{check:?}");
        assert!(check.note.contains(missing) && check.note_ko.contains(missing), "{check:?}");
    }
    // Two wait, and nobody enters.
    let waiting = [story(1, 0, Some(90_000), None), story(2, 1_000, Some(90_000), None)];
    assert_eq!(judged_as(None, &waiting, "order").judgement, Judgement::Open);
    assert_eq!(judged_as(None, &waiting, "rank_rises").judgement, Judgement::Good);
}

/// A limit is tested only by users who would exceed it, in an interval that was observed from end to end.
#[test]
fn a_limit_that_nobody_tested_stays_open() {
    let minute = |stories: &[Story], limit| judged_as(Some(limit), stories, "over_admission_60s");
    // 20 come at once, 10 enter at once, and the others a minute later.
    let mut stories: Vec<_> = (0..10).map(|i| story(i, 1_000, None, Some(1_000))).collect();
    stories.extend((10..20).map(|i| story(i, 1_000, Some(61_500), Some(62_000))));
    assert_eq!(minute(&stories, 10).judgement, Judgement::Good, "{:?}", minute(&stories, 10));
    assert_eq!(minute(&stories, 19).judgement, Judgement::Good);
    let check = minute(&stories, 20);
    assert_eq!((check.judgement, check.figure), (Judgement::Open, Some(10.0)));
    assert!(check.note.contains("at least 21 of them (--users)"), "{}", check.note);
    // The server dies after 9 s.
    for story in &mut stories[10..] {
        (story.last_waiting, story.entered, story.end) = (call(9_000, 9_010), None, End::Waiting);
    }
    let check = minute(&stories, 10);
    assert_eq!((check.judgement, check.figure), (Judgement::Open, Some(10.0)));
    assert!(
        check.note.contains("cover only 8.0 s") && check.note.contains("at least 64 s"),
        "{}",
        check.note
    );
    assert_eq!(minute(&stories, 9).judgement, Judgement::Bad, "too many are too many in any time");
    // The same if they came with the first millisecond of the run.
    let early: Vec<_> = (0..20).map(|i| story(i, 0, Some(9_000), (i < 10).then_some(0))).collect();
    assert!(minute(&early, 10).note.contains("cover only 9.0 s"), "{:?}", minute(&early, 10));
    // Nobody enters for a minute, or for so long that somebody should have.
    for (name, last_ms, must) in [
        ("over_admission_60s", 70_000, "must be open"),
        ("over_admission_sub_window", 70_000, "at least 76 s"),
        ("over_admission_sub_window", 90_000, "must be open"),
    ] {
        for story in &mut stories {
            (story.last_waiting, story.entered, story.end) =
                (call(last_ms, last_ms + 10), None, End::Waiting);
        }
        let check = judged_as(Some(10), &stories, name);
        assert_eq!((check.judgement, check.figure), (Judgement::Open, Some(0.0)), "{check:?}");
        assert!(check.note.contains("Nobody entered") && check.note_ko.contains("아무도"), "{check:?}");
        assert!(check.note.contains(must), "{check:?}");
    }
    // One enters while the others wait: 1 of 1, and more wanted to.
    (stories[0].last_waiting, stories[0].entered) = (call(19_000, 19_010), call(20_000, 20_010));
    let check = judged_as(Some(10), &stories, "over_admission_sub_window");
    assert_eq!((check.judgement, check.figure), (Judgement::Good, Some(1.0)), "{check:?}");
    let check = judged_as(Some(1_000), &stories, "over_admission_sub_window");
    assert!(check.judgement == Judgement::Open && check.note.contains("at least 101"), "{check:?}");
}

/// Users who have a place and get no more answers are left without one, too.
#[test]
fn users_whose_calls_fail_until_the_end_are_not_answered() {
    let fails = |since_ms, ended_ms, end| {
        let mut story = story(1, 0, Some(50), None);
        (story.unanswered_since_ms, story.ended_ms, story.end) = (Some(since_ms), ended_ms, end);
        story
    };
    let good = story(2, 0, Some(50), Some(100));
    let judged = |fails: Story, of: usize| {
        let stories = [vec![fails], vec![good.clone(); of - 1]].concat();
        judged_as(None, &stories, "errors")
    };
    let check = judged(fails(9_000, 100_000, End::Waiting), 1_000);
    assert_eq!((check.judgement, check.count), (Judgement::Bad, 1), "{check:?}");
    assert!(check.worst.contains("from 9.000 s to 100.000 s"), "{}", check.worst);
    assert_eq!(judged(fails(9_000, 30_000, End::Left), 1_000).judgement, Judgement::Bad);
    // The next call may have been answered; but not for so many.
    let late = fails(98_000, 100_000, End::Waiting);
    assert_eq!(judged(late.clone(), 100).judgement, Judgement::Good);
    assert_eq!(judged(late, 99).judgement, Judgement::Bad);
    assert_eq!(judged(fails(9_000, 100_000, End::Entered), 1).judgement, Judgement::Good, "it has a pass");
}

#[test]
fn without_stories_every_check_is_open() {
    let (checks, _) = judge(&plan(Some(10)), 0, &[], &[]);
    assert!(checks.iter().all(|check| check.judgement == Judgement::Open), "{checks:?}");
}

/// By hand, in release: how long the verdict on a million stories takes.
#[test]
#[ignore = "measures, by hand"]
fn a_million_stories() {
    let stories: Vec<_> = (0..1_000_000)
        .map(|i| story(i, i / 10, Some(i / 10 + i / 4), Some(i / 10 + i / 4 + 3_000)))
        .collect();
    let (checks, _) = judge(&plan(Some(200_000)), 400_000, &stories, &[]);
    assert_eq!(checks.len(), 10);
}

/// Users who come from 0 ms on, are told that the zone opens at `opens_ms`, and enter six in six seconds from then on.
fn pre_queue(users: u32, opens_ms: u32) -> Vec<Story> {
    let mut stories: Vec<_> = (0..users).map(|i| story(i, 10 * i, Some(opens_ms + 70_000), None)).collect();
    for (i, story) in (0..).zip(&mut stories) {
        let told_ms = opens_ms - 1_000 - i;
        let told = Call { sent_ms: told_ms, heard_ms: told_ms + 20 };
        story.opens = Some(ToldOpening { told, in_ms: 990 + i });
        story.first_told =
            Some(ToldWait { eta_s: opens_ms / 1_000 + i, range_s: (0, 999), rank: 1, at_ms: 10 });
        let in_ms = opens_ms + 100 + i / 6 * 6_001;
        if in_ms < opens_ms + 66_000 {
            (story.last_waiting, story.entered) =
                (call(opens_ms - 500, opens_ms - 490), call(in_ms, in_ms + 10));
            story.end = End::Entered;
        }
    }
    stories
}

#[test]
fn slots_before_an_opening_are_no_slots() {
    let stories = pre_queue(100, 200_000);
    let check = judged_as(Some(60), &stories, "slot_use");
    assert_eq!(check.judgement, Judgement::Good, "{check:?}");
    assert!(check.figure > Some(0.97), "{check:?}");
    for name in ["opening", "order", "over_admission_60s", "over_admission_sub_window"] {
        let check = judged_as(Some(60), &stories, name);
        assert_eq!(check.judgement, Judgement::Good, "{check:?}");
    }
    // The order was still to be drawn for half a minute after the instant that was told: then there were no slots, either.
    let late = |undrawn_ms| {
        let mut stories = pre_queue(100, 200_000);
        for story in &mut stories {
            story.undrawn_ms = undrawn_ms;
            if let Some(entered) = &mut story.entered {
                (entered.sent_ms, entered.heard_ms) = (entered.sent_ms + 30_000, entered.heard_ms + 30_000);
                (story.last_waiting, story.ended_ms) = (call(229_000, 229_010), entered.heard_ms);
            }
        }
        judged_as(Some(60), &stories, "slot_use")
    };
    assert_eq!(late(None).judgement, Judgement::Bad, "{:?}", late(None));
    assert_eq!(late(Some(230_000)).judgement, Judgement::Good, "{:?}", late(Some(230_000)));
    // Slots after the opening are.
    let mut nobody = pre_queue(100, 200_000);
    nobody.iter_mut().for_each(|story| (story.last_waiting, story.entered) = (call(270_000, 270_010), None));
    assert_eq!(judged_as(Some(60), &nobody, "slot_use").judgement, Judgement::Bad);
    // A minute that had no slots does not show the limit of a minute.
    let short: Vec<_> = stories
        .iter()
        .cloned()
        .map(|mut story| {
            story.last_waiting =
                story.last_waiting.filter(|call| call.heard_ms < 240_000).or(call(240_000, 240_010));
            story.entered = story.entered.filter(|call| call.heard_ms < 240_000);
            story
        })
        .collect();
    let check = judged_as(Some(60), &short, "over_admission_60s");
    assert_eq!(check.judgement, Judgement::Open, "{check:?}");
    assert!(check.note.contains("cover only 40.0 s") && check.note.contains("at least 264 s"), "{check:?}");
}

#[test]
fn an_opening_is_as_told() {
    let judged = |change: &dyn Fn(&mut Vec<Story>)| {
        let mut stories = pre_queue(100, 200_000);
        change(&mut stories);
        let check = judged_as(Some(60), &stories, "opening");
        assert!(check.note_ko.len() > 20, "{check:?}");
        check
    };
    let check = judged(&|stories| stories[3].entered = call(199_880, 199_889));
    assert_eq!((check.judgement, check.count), (Judgement::Bad, 1), "{check:?}");
    assert!(check.worst.contains("1/3 entered at 199.889 s"), "{check:?}");
    let check = judged(&|stories| stories[3].entered = call(199_880, 199_950));
    assert_eq!(check.judgement, Judgement::Good, "within the difference of clocks: {check:?}");
    // A told wait that forgets the opening.
    let told = |eta_s| Some(ToldWait { eta_s, range_s: (0, 999), rank: 1, at_ms: 10 });
    let check = judged(&|stories| stories[5].first_told = told(198));
    assert_eq!((check.judgement, check.count), (Judgement::Bad, 1), "{check:?}");
    assert!(check.worst.contains("1/5 was told 198 s"), "{check:?}");
    assert_eq!(judged(&|stories| stories[5].first_told = told(199)).judgement, Judgement::Good);
    // One server tells another opening than the others.
    let check = judged(&|stories| stories[7].opens.iter_mut().for_each(|opens| opens.in_ms += 1_000));
    assert_eq!(check.judgement, Judgement::Bad, "{check:?}");
    assert!(check.note.contains("different openings"), "{check:?}");
    // The event was moved during the run: the first waits were right when they were told.
    let moved = |plan_ms: u32, entered_early: bool| {
        let mut stories = pre_queue(100, 200_000);
        stories[5].first_told = told(100);
        if entered_early {
            stories[3].entered = call(199_000, 199_010);
        }
        let plan =
            Plan { opening: Some(crate::report::Opening { at_ms: plan_ms, draw: None }), ..plan(Some(60)) };
        let (checks, _) = judge(&plan, 300_000, &stories, &[]);
        checks.into_iter().find(|check| check.name == "opening").expect("it is there")
    };
    assert_eq!(moved(100_000, false).judgement, Judgement::Open, "{:?}", moved(100_000, false));
    assert_eq!(moved(200_000, false).judgement, Judgement::Bad);
    assert_eq!(moved(100_000, true).judgement, Judgement::Bad, "somebody entered before all the same");
    // What somebody was told who left long before the opening was moved does not count.
    let check = judged(&|stories| {
        stories[7].opens.iter_mut().for_each(|opens| opens.told = Call { sent_ms: 100, heard_ms: 110 });
    });
    assert_eq!(check.judgement, Judgement::Good, "{check:?}");
    // The run ends before.
    let check = judged(&|stories| {
        for story in stories.iter_mut() {
            (story.last_waiting, story.entered) = (call(199_400, 199_410), None);
        }
    });
    assert_eq!(check.judgement, Judgement::Open, "{check:?}");
    let (checks, _) = judge(&plan(None), 100_000, &[story(1, 0, None, Some(0))], &[]);
    assert!(checks.iter().all(|check| check.name != "opening"), "nobody was told one");
}
