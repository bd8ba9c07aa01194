//! What a user concludes from replies.

use hyper::Uri;

use super::*;
use crate::{
    frame::Task,
    profile,
    report::Draw,
    story::Silence,
    target::{self, Way},
};

fn crowd(repeat: f64) -> Arc<Crowd> {
    crowd_of(repeat, None)
}

fn crowd_of(repeat: f64, draw: Option<Draw>) -> Arc<Crowd> {
    let mut profile = profile::load("spike").expect("built in");
    profile.repeat = repeat;
    let task = Task {
        target: target::parse("http://127.0.0.1:1", &Way::default()).expect("a target"),
        zone: "Z".into(),
        profile,
        worker: 3,
        workers: 4,
        connections: 1,
        sources: Vec::new(),
        seed: 1,
        draw,
    };
    let paths = [Uri::from_static(wire::WAIT), Uri::from_static(wire::ENTRY)];
    Arc::new(Crowd::new(&task, paths, 10).expect("a crowd"))
}

fn hears(user: &mut User, sent_ms: u64, heard_ms: u64, status: u16, body: &str) {
    let kind = if user.phase == Phase::Arriving { Kind::Wait } else { Kind::Entry };
    let retry_after = (status == 503).then(|| "7".to_owned());
    let reply = Reply { status, retry_after, body: body.to_owned().into() };
    user.heard(kind, sent_ms * 1000, heard_ms * 1000, Ok(reply));
}

fn not_yet(rank: u64, stale: bool) -> String {
    let waiting =
        format!(r#"{{"rank":{rank},"etaSeconds":9,"etaRange":[8,11],"pollingPeriod":3000,"stale":{stale}}}"#);
    format!(r#"{{"canEnter":false,"token":"t","waiting":{waiting}}}"#)
}

fn enter(pass: &str) -> String {
    format!(r#"{{"canEnter":true,"token":"t","pass":"{pass}"}}"#)
}

#[test]
fn a_story_records_what_the_user_heard() {
    let crowd = crowd(0.0);
    let mut user = User::new(crowd.clone(), 5, 0);
    hears(&mut user, 10, 12, 200, &not_yet(20, false));
    assert_eq!(user.due_us, 3_012_000, "the next call is due a polling period after the reply");
    hears(&mut user, 3012, 3015, 200, &not_yet(25, false));
    hears(&mut user, 6015, 6016, 200, &not_yet(90, true));
    hears(&mut user, 9000, 9001, 503, r#"{"type":"urn:weir:problem:busy","code":"busy"}"#);
    assert_eq!(user.due_us, 16_001_000, "Retry-After is obeyed");
    hears(&mut user, 16_001, 16_003, 200, &enter("p"));
    let total = crowd.tally.total();
    let story = Story {
        arrived: Some(Call { sent_ms: 10, heard_ms: 12 }),
        last_waiting: Some(Call { sent_ms: 3012, heard_ms: 3015 }),
        // The entry may have been decided by the call that got a stale reply.
        entered: Some(Call { sent_ms: 6_015, heard_ms: 16_003 }),
        first_told: Some(ToldWait { eta_s: 9, range_s: (8, 11), rank: 20, at_ms: 12 }),
        opens: None,
        undrawn_ms: None,
        placed: None,
        // From 3,012 on: a stale reply or a refusal does not end a silence.
        longest_silence_ms: 12_991,
        lapses: 1,
        // The call that was refused may have been noted.
        silences: vec![Silence { kept_ms: 3_012, ended: Call { sent_ms: 6_015, heard_ms: 16_003 } }],
        excused: Some(Excused { from_ms: 3_012, to_ms: 16_001 }),
        told_period_ms: Some(7_000),
        rises: 1,
        worst_rise: Some(Rise { from: 20, to: 25, at_ms: 3015 }),
        pass: Some(digest("p")),
        second_pass: false,
        asked_again: false,
        unanswered_since_ms: None,
        who: (3, 5),
        end: End::Entered,
        ended_ms: 16_003,
    };
    assert_eq!(total.stories, [story]);
    assert_eq!((total.counters.can_enter_true_count, total.counters.can_enter_false_count), (1, 3));
    assert_eq!(total.failures[0].what, "503 busy");
    assert_eq!((user.phase, user.story.who.1, &user.token), (Phase::Arriving, 10, &None), "a new user");
}

/// Before a draw the rank says how many people take part, so it may grow. A stale reply says nothing new.
#[test]
fn a_story_records_the_opening_and_ranks_only_after_the_draw() {
    let crowd = crowd(0.0);
    let mut user = User::new(crowd.clone(), 0, 0);
    let undrawn = |rank: u64, opens_in_ms: u64, stale| {
        let more = format!(r#","opensInMs":{opens_in_ms},"reason":"draw","pollingPeriod""#);
        not_yet(rank, stale).replace(r#","pollingPeriod""#, &more)
    };
    hears(&mut user, 10, 12, 200, &undrawn(20, 9_000, false));
    hears(&mut user, 3_010, 3_015, 200, &undrawn(90, 6_000, false));
    hears(&mut user, 6_010, 6_015, 200, &undrawn(91, 1, true));
    hears(&mut user, 9_010, 9_015, 200, &not_yet(95, false));
    hears(&mut user, 12_010, 12_015, 200, &not_yet(96, false));
    user.finish();
    let story = &crowd.tally.total().stories[0];
    let told = Call { sent_ms: 3_010, heard_ms: 3_015 };
    assert_eq!(story.opens, Some(ToldOpening { told, in_ms: 6_000 }));
    assert_eq!(story.opens.map(|opens| (opens.earliest_ms(), opens.latest_ms())), Some((9_010, 9_015)));
    assert_eq!((story.undrawn_ms, story.rises), (Some(3_015), 1));
    assert_eq!(story.worst_rise, Some(Rise { from: 95, to: 96, at_ms: 12_015 }));
}

/// A rank without a wait is not a drawn place: the server may not know the draw yet. The checkpoint is wanted from the freeze on, the
/// receipt with the place, and only by the sample.
#[test]
fn a_place_and_its_receipt_come_after_the_draw() {
    let draw = Draw { event: "sale".into(), begins_unix_s: 1_000, opens_unix_s: 1_030 };
    let crowd = crowd_of(0.0, Some(draw));
    let every = crowd.draw.as_ref().expect("a draw").every;
    assert_eq!(every, 50, "200 of 10,000");
    let mut others = User::new(crowd.clone(), every + 1, 0);
    let mut user = User::new(crowd.clone(), every, 0);
    let undrawn = |opens_in_ms: u64| {
        let more = format!(r#""reason":"draw","opensInMs":{opens_in_ms},"pollingPeriod""#);
        not_yet(90, false).replace(r#""pollingPeriod""#, &more)
    };
    let wants = |user: &User| [PaperKind::Published, PaperKind::Receipt].map(|kind| user.wants_now(kind));
    // The clock of the crowd has not begun: it is 0 ms.
    hears(&mut user, 0, 1, 200, &undrawn(40_000));
    assert_eq!(wants(&user), [false, false], "10 s before the freeze");
    hears(&mut user, 0, 1, 200, &undrawn(28_900));
    assert_eq!((wants(&user), user.story.placed), ([false, false], None), "the list is not published yet");
    hears(
        &mut user,
        3_000,
        3_001,
        200,
        &not_yet(80, false).replace(r#""etaSeconds":9"#, r#""etaSeconds":null"#),
    );
    assert_eq!(user.story.placed, None);
    for rank in [7, 6] {
        hears(&mut user, 6_000, 6_001, 200, &not_yet(rank, false));
        let told = Call { sent_ms: 6_000, heard_ms: 6_001 };
        assert_eq!(user.story.placed, Some(Placed { rank: 7, told }));
    }
    assert_eq!(wants(&user), [true, true]);
    hears(&mut others, 6_000, 6_001, 200, &not_yet(8, false));
    assert_eq!(wants(&others), [false, false]);
}

#[test]
fn a_room_that_tells_no_time_is_not_asked_in_a_loop() {
    let crowd = crowd(0.0);
    let mut user = User::new(crowd.clone(), 0, 0);
    hears(&mut user, 0, 1, 200, &not_yet(2, false).replace("3000", "0"));
    assert_eq!(user.due_us, 101_000);
}

#[test]
fn a_lost_place_ends_the_story() {
    for (status, body) in [(410, ""), (401, r#"{"code":"bad_token"}"#)] {
        let crowd = crowd(0.0);
        let mut user = User::new(crowd.clone(), 0, 0);
        hears(&mut user, 0, 1, 200, &not_yet(2, false));
        hears(&mut user, 3001, 3002, status, body);
        let stories = crowd.tally.total().stories;
        assert_eq!((stories.len(), stories[0].end), (1, End::Gone));
    }
}

#[test]
fn a_second_answer_without_the_same_pass_is_noticed() {
    for (body, second) in [(enter("p"), false), (enter("q"), true), (not_yet(5, false), true)] {
        let crowd = crowd(1.0);
        let mut user = User::new(crowd.clone(), 0, 0);
        hears(&mut user, 0, 1, 200, &enter("p"));
        assert_eq!(user.phase, Phase::Repeating);
        hears(&mut user, 1001, 1002, 200, &body);
        let stories = crowd.tally.total().stories;
        assert_eq!((stories.len(), stories[0].end, stories[0].second_pass), (1, End::Entered, second));
        assert!(stories[0].asked_again);
    }
}

/// A failure counts from the first call that was not answered, until one is. A stale reply is an answer.
#[test]
fn a_story_knows_since_when_nothing_was_answered() {
    let since = |replies: &[(u64, u16, &str)]| {
        let crowd = crowd(0.0);
        let mut user = User::new(crowd.clone(), 0, 0);
        for &(sent_ms, status, body) in replies {
            hears(&mut user, sent_ms, sent_ms + 5, status, body);
        }
        user.finish();
        crowd.tally.total().stories[0].unanswered_since_ms
    };
    let (place, stale) = (not_yet(2, false), not_yet(2, true));
    assert_eq!(since(&[(10, 200, &place)]), None);
    assert_eq!(since(&[(10, 503, ""), (20, 500, "")]), Some(10), "without a place");
    assert_eq!(since(&[(10, 200, &place), (20, 503, ""), (30, 200, "?")]), Some(20));
    assert_eq!(since(&[(10, 200, &place), (20, 503, ""), (30, 200, &stale)]), None);
    assert_eq!(since(&[(10, 200, &place), (20, 503, ""), (30, 200, &stale), (40, 500, "")]), Some(40));
    assert_eq!(since(&[(10, 200, &place), (20, 503, ""), (30, 410, "")]), None);
}

/// Stale and late replies excuse that others enter, from the last call by which the user was certainly present. A user who does not ask
/// as told, and one who is cut off, has no claim for that time.
#[test]
fn a_story_knows_how_long_stale_and_late_replies_excuse() {
    let crowd = crowd(0.0);
    let excused = |replies: &[(u64, u64, Option<bool>)]| {
        let mut user = User::new(crowd.clone(), 0, 0);
        for &(sent_ms, took_ms, stale) in replies {
            // The call was made when it was due.
            user.due_us = sent_ms * 1_000;
            match stale {
                Some(stale) => hears(&mut user, sent_ms, sent_ms + took_ms, 200, &not_yet(2, stale)),
                None => user.heard(Kind::Entry, sent_ms * 1_000, sent_ms * 1_000, Err("refused".into())),
            }
        }
        user.story.excused.map(|excused| (excused.from_ms, excused.to_ms))
    };
    let (fresh, stale, failed) = (Some(false), Some(true), None);
    assert_eq!(excused(&[(10, 5, fresh), (3_010, 5, fresh), (6_010, 5, fresh)]), None);
    // Stale from the place on, or later.
    assert_eq!(excused(&[(10, 5, stale), (3_010, 5, stale), (6_010, 5, stale)]), Some((10, 6_010)));
    assert_eq!(
        excused(&[(10, 5, fresh), (3_010, 5, fresh), (6_010, 5, stale), (9_010, 5, stale)]),
        Some((3_010, 9_010))
    );
    // Two late replies and a period are more than two periods; a late one and one in time are, too, while they take turns.
    let late = [(10, 2_000, fresh), (5_010, 2_000, fresh), (10_010, 2_000, fresh)];
    assert_eq!(excused(&late), Some((10, 10_010)));
    let in_turns = [(10, 5, fresh), (3_010, 4_000, fresh), (10_010, 5, fresh), (13_010, 4_000, fresh)];
    assert_eq!(excused(&in_turns), Some((10, 13_010)));
    // A call or two may fail meanwhile. After 10 s without an answer the time begins anew.
    let fails = |until_ms: u64| {
        [(10, 5, stale), (3_010, 0, failed), (until_ms, 5, stale), (until_ms + 3_000, 5, stale)]
    };
    assert_eq!(excused(&fails(6_010)), Some((10, 9_010)));
    assert_eq!(excused(&fails(13_010)), Some((13_010, 16_010)));
    // The longest time counts.
    let twice =
        [(10, 5, stale), (9_010, 5, stale), (12_010, 5, fresh), (15_010, 5, fresh), (18_010, 5, stale)];
    assert_eq!(excused(&twice), Some((10, 12_010)));
    // A pause of the user's own.
    let mut user = User::new(crowd.clone(), 0, 0);
    hears(&mut user, 10, 15, 200, &not_yet(2, false));
    user.nap = Some((0, 40_000_000));
    user.due_us = 3_010_000;
    hears(&mut user, 3_010, 3_015, 200, &not_yet(2, false));
    user.due_us = 46_015_000;
    hears(&mut user, 46_015, 46_020, 200, &not_yet(2, false));
    assert_eq!(user.story.excused, None);
    // A generator that asks late.
    let mut user = User::new(crowd.clone(), 0, 0);
    hears(&mut user, 10, 15, 200, &not_yet(2, false));
    hears(&mut user, 9_010, 9_015, 200, &not_yet(2, false));
    assert_eq!((user.story.excused, user.story.lapses), (None, 1));
}

/// A closed or full zone says so, which is an answer. It leaves the user without a place, and so do calls that fail.
#[test]
fn a_user_whom_the_zone_gives_no_place_is_not_without_an_answer() {
    let ended = |replies: &[(u16, &str)]| {
        let crowd = crowd(0.0);
        let mut user = User::new(crowd.clone(), 0, 0);
        for (&(status, body), sent_ms) in replies.iter().zip((10..).step_by(10)) {
            hears(&mut user, sent_ms, sent_ms + 5, status, body);
        }
        user.finish();
        let stories = crowd.tally.total().stories;
        (stories[0].end, stories[0].unanswered_since_ms)
    };
    let (closed, full, place) = (r#"{"code":"zone_closed"}"#, r#"{"code":"zone_full"}"#, not_yet(2, false));
    assert_eq!(ended(&[(503, closed), (503, full)]), (End::NoPlace, None));
    assert_eq!(ended(&[(503, ""), (503, full)]), (End::NoPlace, None));
    assert_eq!(ended(&[(503, closed), (503, closed), (503, "")]), (End::Outside, Some(30)), "then it died");
    assert_eq!(ended(&[(503, full), (200, &place)]), (End::Waiting, None));
    // Whoever has a place is owed an answer about it.
    assert_eq!(ended(&[(200, &place), (503, closed)]), (End::Waiting, Some(20)));
}

#[test]
fn the_end_of_the_run_ends_each_story_where_it_was() {
    let crowd = crowd(0.0);
    let mut waits = User::new(crowd.clone(), 0, 0);
    hears(&mut waits, 0, 1, 200, &not_yet(2, false));
    let mut outside = User::new(crowd.clone(), 1, 0);
    hears(&mut outside, 0, 1, 503, "");
    let mut without_a_call = User::new(crowd.clone(), 2, 0);
    for user in [&mut waits, &mut outside, &mut without_a_call] {
        user.finish();
    }
    let ends: Vec<_> = crowd.tally.total().stories.iter().map(|story| story.end).collect();
    assert_eq!(ends, [End::Waiting, End::Outside]);
}
