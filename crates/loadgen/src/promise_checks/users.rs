//! Checks of each user alone: ranks, second passes, told periods, lost places, failed calls. Only passes are compared with those of others.
//!
//! Each is good only if a user did what could have shown the fault: polled again, or asked again after entering.
//!
//! None of them depends on another user's clock or on the network, because the calls of a user follow one another.

use super::{at, check, hindrance, judged, name};
use crate::{
    bilingual::{Bilingual, bilingual},
    format::grouped,
    report::{Check, Judgement, Plan},
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
    if rises == 0 && !has_polled_again(stories) {
        return check("rank_rises", Judgement::Open, 0, None, nobody_polled(stories), None);
    }
    check("rank_rises", judged(rises == 0), rises, None, note, worst)
}

/// Whether a user with a place was told again to wait. Only then a rank can rise, or a place be lost.
fn has_polled_again(stories: &[Story]) -> bool {
    let again = |story: &Story| {
        story.arrived.zip(story.last_waiting).is_some_and(|(arrived, last)| last.sent_ms > arrived.sent_ms)
    };
    stories.iter().any(again)
}

fn nobody_polled(stories: &[Story]) -> Bilingual {
    let nobody = Bilingual::fixed(
        "Nobody waited for more than one reply. It takes more users than may enter in a minute (--users), and a run of more than \
         two polling periods.",
        "두 번 이상 확인하며 기다린 사용자가 없어 판정할 수 없습니다. 1분 허용 인원보다 많은 사용자로(--users), 확인 주기의 두 배보다 \
         길게 실행해야 합니다.",
    );
    hindrance::or(stories, nobody)
}

/// Each person enters once, with a pass of the own. Two users with the same pass are one entry to the service behind the waiting room. And
/// asking again after entering returns the same pass: a user with another pass or none was counted twice or lost the entry. Users ask
/// again within the lifetime of the pass, so it cannot have expired.
pub(super) fn entered_once(stories: &[Story]) -> Check {
    let twice = count(stories, |story| story.second_pass);
    let again = count(stories, |story| story.asked_again);
    let shared = with_a_shared_pass(stories);
    if let Some(&(first, other)) = shared.first() {
        let (shown, of) =
            (grouped(shared.len() as u64), grouped(count(stories, |story| story.pass.is_some())));
        let asked_again = grouped(twice);
        let note = bilingual!(
            "Of {of} users who entered, {shown} received the pass of another user. {asked_again} users who asked again after entering \
             received another pass or none.",
            "입장한 사용자 {of}명 중 {shown}명이 다른 사용자와 같은 입장권을 받았습니다. 입장한 뒤 다시 물은 사용자 중 {asked_again}명은 \
             다른 입장권을 받거나 아무것도 받지 못했습니다."
        );
        let (a, b) = (name(first), name(other));
        let [a_at, b_at] = [first, other].map(entered_at);
        let worst = bilingual!(
            "User {a} entered at {a_at}, and user {b} at {b_at}, with the same pass.",
            "사용자 {a}는 {a_at}에, 사용자 {b}는 {b_at}에 같은 입장권으로 입장했습니다."
        );
        return check("entered_once", Judgement::Bad, shared.len() as u64 + twice, None, note, Some(worst));
    }
    if twice == 0 && again == 0 {
        let note = bilingual!(
            "Nobody asked again after entering. It takes a larger share of users who do (--repeat), or more users who enter.",
            "입장한 뒤 다시 물은 사용자가 없어 판정할 수 없습니다. 다시 묻는 비율(--repeat)을 높이거나 더 많은 사용자가 입장하도록 \
             실행해야 합니다."
        );
        return check("entered_once", Judgement::Open, 0, None, note, None);
    }
    let (shown, asked) = (grouped(twice), grouped(again.max(twice)));
    let note = match twice {
        0 => bilingual!(
            "All {asked} users who asked again after entering received their own pass again.",
            "입장한 뒤 다시 물은 사용자 {asked}명이 모두 자기 입장권을 다시 받았습니다."
        ),
        _ => bilingual!(
            "Of {asked} users who asked again after entering, {shown} received another pass or none.",
            "입장한 뒤 다시 물은 사용자 {asked}명 중 {shown}명이 다른 입장권을 받거나 아무것도 받지 못했습니다."
        ),
    };
    let worst = stories.iter().find(|story| story.second_pass).map(|story| {
        let (who, at) = (name(story), entered_at(story));
        bilingual!(
            "User {who} entered at {at}; asking again did not return the same pass.",
            "사용자 {who}는 {at}에 입장했는데, 다시 물었을 때 같은 입장권을 받지 못했습니다."
        )
    });
    check("entered_once", judged(twice == 0), twice, None, note, worst)
}

fn entered_at(story: &Story) -> String {
    at(story.entered.map_or(story.ended_ms, |call| call.heard_ms))
}

/// The users who received the pass of another one, each after the one who entered before with it; the first of them first.
fn with_a_shared_pass(stories: &[Story]) -> Vec<(&Story, &Story)> {
    let mut entered: Vec<_> = stories
        .iter()
        .filter_map(|story| Some((story.pass?, story.entered.map(|call| call.heard_ms), story)))
        .collect();
    entered.sort_unstable_by_key(|&(pass, at_ms, story)| (pass, at_ms, story.who));
    let mut shared: Vec<_> = entered
        .windows(2)
        .filter(|pair| pair[0].0 == pair[1].0)
        .map(|pair| (pair[1].1, (pair[0].2, pair[1].2)))
        .collect();
    shared.sort_by_key(|&(at_ms, (_, story))| (at_ms, story.who));
    shared.into_iter().map(|(_, pair)| pair).collect()
}

/// The longest period that a user may be told, milliseconds.
const LONGEST_PERIOD_MS: u32 = 60_000;

/// The longest period that a user may be told in this run, milliseconds: a place lasts for three periods, so that a lost call or two do
/// not cost it.
fn longest_period_ms(plan: &Plan) -> u32 {
    (plan.idle_s.saturating_mul(1_000) / 3).min(LONGEST_PERIOD_MS)
}

/// A user is told to ask again soon enough to keep the place. Whoever is not, and obeys, shows nothing in the other checks: such a user
/// is silent.
pub(super) fn polling_period(plan: &Plan, stories: &[Story]) -> Check {
    let most_ms = longest_period_ms(plan);
    let count = count(stories, |story| story.told_period_ms > Some(most_ms));
    let Some((longest_ms, story)) =
        stories.iter().filter_map(|story| Some((story.told_period_ms?, story))).max_by_key(|(ms, _)| *ms)
    else {
        let nobody = bilingual!(
            "Nobody was told when to ask again. It takes more users than may enter in a minute (--users).",
            "언제 다시 확인하라는 안내를 받은 사용자가 없어 판정할 수 없습니다. 1분 허용 인원보다 많은 사용자로(--users) 실행해야 합니다."
        );
        return check("polling_period", Judgement::Open, 0, None, nobody, None);
    };
    let [longest, most] = [longest_ms, most_ms].map(|ms| f64::from(ms) / 1_000.0);
    if count == 0 {
        let note = bilingual!(
            "Users were told to ask again after {longest:.1} s at most; the limit is {most:.1} s.",
            "다시 확인하라고 안내된 시간은 길어야 {longest:.1}초였습니다. 한도는 {most:.1}초입니다."
        );
        return check("polling_period", judged(true), 0, Some(longest), note, None);
    }
    let (shown, idle_s) = (grouped(count), plan.idle_s);
    let note = bilingual!(
        "{shown} users were told to ask again only after more than {most:.1} s, a third of the idle time of {idle_s} s (--idle-timeout) and at \
         most 60 s. Whoever obeys may lose the place.",
        "사용자 {shown}명이 {most:.1}초(유휴 시간 {idle_s}초의 3분의 1, 최대 60초, --idle-timeout)보다 늦게 다시 확인하라는 안내를 받았습니다. \
         그대로 따르면 자리를 잃을 수 있습니다."
    );
    let who = name(story);
    let worst = bilingual!(
        "User {who} was told to ask again after {longest:.1} s.",
        "사용자 {who}는 {longest:.1}초 뒤에 다시 확인하라는 안내를 받았습니다."
    );
    check("polling_period", judged(false), count, Some(longest), note, Some(worst))
}

/// A user who is never silent for the idle time keeps the place. Silences run from the sending of one call to the reply
/// of the next, so the server cannot have seen longer ones. The idle time is that of the plan (`--idle-timeout`). A user who was told to
/// be silent for long is not to blame for it.
pub(super) fn evictions(plan: &Plan, stories: &[Story]) -> Check {
    let idle_s = plan.idle_s;
    let idle_ms = idle_s.saturating_mul(1_000);
    let was_told = |story: &Story| story.told_period_ms > Some(longest_period_ms(plan));
    let lost =
        |story: &Story| story.end == End::Gone && (story.longest_silence_ms < idle_ms || was_told(story));
    let count = count(stories, lost);
    let shown = grouped(count);
    let note = match count {
        0 => bilingual!(
            "No user who kept polling lost the place.",
            "계속 확인하던 사용자 중 자리를 잃은 사람은 없습니다."
        ),
        _ => bilingual!(
            "{shown} users lost their places although they were never silent for {idle_s} s, or only because they were told to be.",
            "{idle_s}초 넘게 확인을 멈춘 적이 없거나 안내대로 멈췄을 뿐인데도 {shown}명이 자리를 잃었습니다."
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
    if count == 0 && !has_polled_again(stories) {
        return check("evictions", Judgement::Open, 0, None, nobody_polled(stories), None);
    }
    check("evictions", judged(count == 0), count, None, note, worst)
}

/// A user whose calls failed for this long was left without an answer, milliseconds: several polling periods.
const UNANSWERED_MS: u32 = 10_000;

/// Users whose calls failed until they gave up or the run ended: they never received a place, or nothing more was answered.
/// A failure shortly before the end may be one that the next call would have made up for, so those users count only if
/// they are more than one in a hundred. Users to whom a closed or full zone gave no place are no fault of the server, but the check is
/// not good.
pub(super) fn errors(lasted_ms: u32, stories: &[Story]) -> Check {
    let since_ms = |story: &Story| match story.end {
        End::Outside => Some(story.unanswered_since_ms.unwrap_or(story.ended_ms)),
        End::Waiting | End::Left => story.unanswered_since_ms,
        // The zone answered that it gives no places.
        End::Entered | End::Gone | End::NoPlace => None,
    };
    let is_certain = |story: &Story, since_ms: u32| {
        let gave_up = story.end == End::Outside && story.ended_ms < lasted_ms;
        gave_up || story.ended_ms.saturating_sub(since_ms) >= UNANSWERED_MS
    };
    let doubtful =
        count(stories, |story| since_ms(story).is_some_and(|since_ms| !is_certain(story, since_ms)));
    let are_many = doubtful * 100 > stories.len() as u64;
    let unanswered =
        |story: &Story| since_ms(story).is_some_and(|since_ms| are_many || is_certain(story, since_ms));
    let count = count(stories, unanswered);
    let (shown, of) = (grouped(count), grouped(stories.len() as u64));
    let left_out = self::count(stories, |story| story.end == End::NoPlace);
    if count == 0 && left_out > 0 {
        let without_place = grouped(left_out);
        let note = bilingual!(
            "Of {of} users, {without_place} got no place, because the zone was closed or its line was full. All others were answered. Open \
             the zone, or let more people wait (max_waiting), and rehearse again.",
            "사용자 {of}명 중 {without_place}명은 구역이 닫혀 있거나 대기 줄이 가득 차 자리를 받지 못했고, 나머지는 모두 응답을 받았습니다. \
             구역을 열거나 더 많은 사람이 기다릴 수 있게 하고(max_waiting) 다시 실행해야 합니다."
        );
        return check("errors", Judgement::Open, left_out, None, note, None);
    }
    let note = match count {
        0 => bilingual!("All {of} users were answered.", "사용자 {of}명이 모두 응답을 받았습니다."),
        _ => bilingual!(
            "Of {of} users, {shown} were left without an answer: their calls failed until they gave up or the run ended.",
            "사용자 {of}명 중 {shown}명은 포기하거나 실행이 끝날 때까지 요청이 실패해 응답을 받지 못했습니다."
        ),
    };
    let first = stories.iter().filter(|s| unanswered(s)).filter_map(|s| Some((since_ms(s)?, s)));
    let worst = first.min_by_key(|&(since_ms, _)| since_ms).map(|(since_ms, story)| {
        let (who, from, to) = (name(story), at(since_ms), at(story.ended_ms));
        bilingual!(
            "The first was user {who}, whose calls failed from {from} to {to}.",
            "처음은 사용자 {who}로, {from}부터 {to}까지 요청이 실패했습니다."
        )
    });
    check("errors", judged(count == 0), count, None, note, worst)
}

fn count(stories: &[Story], which: impl Fn(&Story) -> bool) -> u64 {
    stories.iter().map(|story| u64::from(which(story))).sum()
}
