//! Checks of each user alone: ranks, second passes, lost places, failed calls.
//!
//! None of them depends on another user's clock or on the network, because the calls of a user follow one another.

use super::{at, check, judged, name};
use crate::{
    bilingual::bilingual,
    format::grouped,
    report::{Check, Plan},
    story::{End, Story},
};

/// A rank is one more than the number of people ahead who are still in line. Nobody joins the line ahead of an existing
/// place, so a rank can only fall, whether people enter, leave or come back. It must not rise even if several servers
/// answer in turn. Replies marked stale do not count.
pub(super) fn rank_rises(stories: &[Story]) -> Check {
    let rises: u64 = stories.iter().map(|story| u64::from(story.rises)).sum();
    let users = count(stories, |story| story.rises > 0);
    let (shown, users) = (grouped(rises), grouped(users));
    let note = match rises {
        0 => bilingual!("No rank ever rose.", "순번이 뒤로 밀린 일이 없습니다."),
        _ => bilingual!(
            "Ranks rose {shown} times, for {users} users.",
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
                "User {who} was told rank {from}, and rank {to} at {at}.",
                "사용자 {who}의 순번은 {from}번이었는데 {at}에 {to}번이 되었습니다."
            )
        });
    check("rank_rises", judged(rises == 0), rises, None, note, worst)
}

/// Asking again after entering returns the same pass. A user with another pass or none was counted twice or lost the
/// entry. Users ask again within the lifetime of the pass, so it cannot have expired.
pub(super) fn entered_once(stories: &[Story]) -> Check {
    let twice = count(stories, |story| story.second_pass);
    let (shown, entered) = (grouped(twice), grouped(count(stories, |story| story.entered.is_some())));
    let note = match twice {
        0 => bilingual!(
            "None of the {entered} users who entered received another pass.",
            "입장한 사용자 {entered}명 중 다른 입장권을 또 받은 사람은 없습니다."
        ),
        _ => bilingual!(
            "Of {entered} users who entered, {shown} received another pass or none when they asked again.",
            "입장한 사용자 {entered}명 중 {shown}명이 다시 물었을 때 다른 입장권을 받거나 아무것도 받지 못했습니다."
        ),
    };
    let worst = stories.iter().find(|story| story.second_pass).map(|story| {
        let (who, at) = (name(story), at(story.entered.map_or(story.ended_ms, |call| call.heard_ms)));
        bilingual!(
            "User {who} entered at {at}; asking again did not return the same pass.",
            "사용자 {who}는 {at}에 입장했는데, 다시 물었을 때 같은 입장권을 받지 못했습니다."
        )
    });
    check("entered_once", judged(twice == 0), twice, None, note, worst)
}

/// A user who is never silent for the idle time keeps the place. Silences run from the sending of one call to the reply
/// of the next, so the server cannot have seen longer ones. The idle time is that of the plan (`--idle-timeout`).
pub(super) fn evictions(plan: &Plan, stories: &[Story]) -> Check {
    let idle_s = plan.idle_s;
    let idle_ms = idle_s.saturating_mul(1_000);
    let lost = |story: &Story| story.end == End::Gone && story.longest_silence_ms < idle_ms;
    let count = count(stories, lost);
    let shown = grouped(count);
    let note = match count {
        0 => bilingual!(
            "No user who kept polling lost the place.",
            "계속 확인하던 사용자 중 자리를 잃은 사람은 없습니다."
        ),
        _ => bilingual!(
            "{shown} users lost their places although they were never silent for {idle_s} s.",
            "{idle_s}초 넘게 확인을 멈춘 적이 없는데도 {shown}명이 자리를 잃었습니다."
        ),
    };
    let worst = stories.iter().filter(|s| lost(s)).min_by_key(|s| s.longest_silence_ms).map(|story| {
        let (who, at, silence) =
            (name(story), at(story.ended_ms), f64::from(story.longest_silence_ms) / 1_000.0);
        bilingual!(
            "User {who} was told at {at} that the place is gone; the longest silence was {silence:.1} s.",
            "사용자 {who}는 확인을 멈춘 시간이 가장 길 때도 {silence:.1}초였는데 {at}에 자리가 없어졌다는 답을 받았습니다."
        )
    });
    check("evictions", judged(count == 0), count, None, note, worst)
}

/// Users whose calls all failed. Those who still tried when the run ended may have begun shortly before, so they count only if they
/// are more than one in a hundred.
pub(super) fn errors(lasted_ms: u32, stories: &[Story]) -> Check {
    let is_outside = |story: &Story| story.end == End::Outside;
    let trying = count(stories, |story| is_outside(story) && story.ended_ms >= lasted_ms);
    let are_many = trying * 100 > stories.len() as u64;
    let outside = |story: &Story| is_outside(story) && (are_many || story.ended_ms < lasted_ms);
    let count = count(stories, outside);
    let (shown, of) = (grouped(count), grouped(stories.len() as u64));
    let note = match count {
        0 => bilingual!("All {of} users were answered.", "사용자 {of}명이 모두 응답을 받았습니다."),
        _ => bilingual!(
            "Of {of} users, {shown} never received a place, because all of their calls failed.",
            "사용자 {of}명 중 {shown}명은 모든 요청이 실패해 자리를 받지 못했습니다."
        ),
    };
    let worst = stories.iter().filter(|s| outside(s)).min_by_key(|s| s.ended_ms).map(|story| {
        let (who, at) = (name(story), at(story.ended_ms));
        bilingual!(
            "The first was user {who}, who tried until {at}.",
            "처음은 사용자 {who}로, {at}까지 시도했습니다."
        )
    });
    check("errors", judged(count == 0), count, None, note, worst)
}

fn count(stories: &[Story], which: impl Fn(&Story) -> bool) -> u64 {
    stories.iter().map(|story| u64::from(which(story))).sum()
}
