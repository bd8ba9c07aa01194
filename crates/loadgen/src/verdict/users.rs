//! What each user can tell alone: ranks, second passes, places lost, calls that failed.
//!
//! None of these depends on anybody else's clock or on the network: a user's calls follow one another.

use super::{at, check, judged, name};
use crate::{
    bilingual::bilingual,
    format::grouped,
    report::{Check, Plan},
    story::{End, Story},
};

/// A rank is one more than the number of people ahead who are still there. Nobody gets in ahead of a place given
/// out, so it can only fall, whether people enter, walk away or come back. What is marked stale is not counted. A user
/// whom several servers answer in turn must not see it rise either.
pub(super) fn rank_rises(stories: &[Story]) -> Check {
    let rises: u64 = stories.iter().map(|story| u64::from(story.rises)).sum();
    let users = count(stories, |story| story.rises > 0);
    let (shown, users) = (grouped(rises), grouped(users));
    let note = match rises {
        0 => bilingual!("No rank ever rose.", "순번이 뒤로 밀린 일이 없습니다."),
        _ => bilingual!(
            "Ranks rose; times: {shown}, users: {users}.",
            "순번이 뒤로 밀린 일이 {shown}번 있었고, 사용자 {users}명이 겪었습니다."
        ),
    };
    let worst = stories
        .iter()
        .filter_map(|story| Some((story, story.worst_rise?)))
        .max_by_key(|(_, rise)| rise.to.saturating_sub(rise.from))
        .map(|(story, rise)| {
            let (who, from, to, at) = (name(story), grouped(rise.from), grouped(rise.to), at(rise.at_ms));
            bilingual!(
                "User {who} was told rank {from}, and at {at} rank {to}.",
                "사용자 {who}의 순번은 {from}번이었는데 {at}에 {to}번이 되었습니다."
            )
        });
    check("rank_rises", judged(rises == 0), rises, None, note, worst)
}

/// Asking again after entering gives the same pass. Whoever got another one, or none, was counted twice or lost it;
/// repeaters ask within the pass's life, so it can't have expired.
pub(super) fn entered_once(stories: &[Story]) -> Check {
    let twice = count(stories, |story| story.second_pass);
    let (shown, entered) = (grouped(twice), grouped(count(stories, |story| story.entered.is_some())));
    let note = match twice {
        0 => bilingual!(
            "None of the {entered} users who got in was given another pass.",
            "입장한 사용자 {entered}명 중 다른 입장권을 또 받은 사람은 없습니다."
        ),
        _ => bilingual!(
            "Of {entered} users who got in, {shown} were given another pass, or none, when they asked again.",
            "입장한 사용자 {entered}명 중 {shown}명이 다시 물었을 때 다른 입장권을 받거나 아무것도 받지 못했습니다."
        ),
    };
    let worst = stories.iter().find(|story| story.second_pass).map(|story| {
        let (who, at) = (name(story), at(story.entered.map_or(story.ended_ms, |call| call.heard_ms)));
        bilingual!(
            "User {who} got in at {at}; asking again did not give the same pass.",
            "사용자 {who}는 {at}에 입장했는데, 다시 물었을 때 같은 입장권을 받지 못했습니다."
        )
    });
    check("entered_once", judged(twice == 0), twice, None, note, worst)
}

/// Whoever is never silent for the idle time keeps the place. A story's silences are counted from the sending of one
/// call to the reply of the next, so the server can't have found them longer. The idle time is the plan's: a zone that has
/// a shorter one needs to be told of it.
pub(super) fn evictions(plan: &Plan, stories: &[Story]) -> Check {
    let idle_s = plan.idle_s;
    let idle_ms = idle_s.saturating_mul(1_000);
    let lost = |story: &Story| story.end == End::Gone && story.longest_silence_ms < idle_ms;
    let count = count(stories, lost);
    let shown = grouped(count);
    let note = match count {
        0 => bilingual!(
            "Nobody who kept polling lost the place.",
            "계속 확인하던 사용자 중 자리를 잃은 사람은 없습니다."
        ),
        _ => bilingual!(
            "Users who lost their places although they were never silent for {idle_s} s: {shown}.",
            "{idle_s}초 넘게 확인을 멈춘 적이 없는데도 {shown}명이 자리를 잃었습니다."
        ),
    };
    let worst = stories.iter().filter(|s| lost(s)).min_by_key(|s| s.longest_silence_ms).map(|story| {
        let (who, at, silence) =
            (name(story), at(story.ended_ms), f64::from(story.longest_silence_ms) / 1_000.0);
        bilingual!(
            "User {who} was told at {at} that the place is gone, and had never been silent for longer than \
             {silence:.1} s.",
            "사용자 {who}는 확인을 멈춘 시간이 가장 길 때도 {silence:.1}초였는데 {at}에 자리가 없어졌다는 답을 받았습니다."
        )
    });
    check("evictions", judged(count == 0), count, None, note, worst)
}

/// Users whose every call failed. Whoever was still being answered when the run ended is not one of them.
pub(super) fn errors(lasted_ms: u32, stories: &[Story]) -> Check {
    let outside = |story: &Story| story.end == End::Outside && story.ended_ms < lasted_ms;
    let count = count(stories, outside);
    let (shown, of) = (grouped(count), grouped(stories.len() as u64));
    let note = match count {
        0 => bilingual!("All of the {of} users were answered.", "사용자 {of}명이 모두 응답을 받았습니다."),
        _ => bilingual!(
            "Of {of} users, {shown} never got a place, because every call of theirs failed.",
            "사용자 {of}명 중 {shown}명은 모든 요청이 실패해 자리를 받지 못했습니다."
        ),
    };
    let worst = stories.iter().filter(|s| outside(s)).min_by_key(|s| s.ended_ms).map(|story| {
        let (who, at) = (name(story), at(story.ended_ms));
        bilingual!(
            "The first was user {who}, who gave up at {at}.",
            "처음은 사용자 {who}로, {at}에 포기했습니다."
        )
    });
    check("errors", judged(count == 0), count, None, note, worst)
}

fn count(stories: &[Story], which: impl Fn(&Story) -> bool) -> u64 {
    stories.iter().map(|story| u64::from(which(story))).sum()
}
