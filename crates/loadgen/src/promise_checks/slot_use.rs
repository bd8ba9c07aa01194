//! How many slots were used while people waited.
//!
//! The number of used slots is compared with the best possible server. It knows the entries before the interval, and
//! admits as many users as the minute and the sub-window allow, as soon as they allow it. After a burst that used the
//! whole minute, the best server admits nobody until the burst leaves the window, so a good server is not blamed. Only
//! intervals count in which the users of at least one sub-window were certainly present ([`Line`]), so that each slot had a user.
//! Before a zone opens there are no slots ([`opening`]).
//!
//! A good server is a little later than the best one, because people poll. So the slots of the last half sub-window of an interval are
//! not demanded: half a sub-window is 3 s where a minute has ten, which is the default polling period. An entry counts until the
//! interval ends, and in each interval at most as many count as are demanded. So entries at its end replace late ones, but not those that
//! never came in another interval, and the share is never above 100 %.
//!
//! Below [`LEAST_SHARE_USED`] the check fails: users who poll late or leave at the very front cost a few slots, but not that many.
//! The promise of 97 % is checked by an objective.
//!
//! Slots alone do not decide who enters where the number of people inside is limited, or where nobody is admitted at all and users are
//! told so. Then nothing is judged.

use super::{at, check, hindrance, judged, line::Line, opening, span};
use crate::{
    bilingual::bilingual,
    format::{float, grouped},
    report::{Check, Judgement, Plan},
    story::Story,
};

const NAME: &str = "slot_use";

/// The check fails if a smaller share of the demanded slots was used.
const LEAST_SHARE_USED: f64 = 0.9;

/// The least number of slots that decides the check, in sub-windows.
const LEAST_SUB_WINDOWS: u32 = 3;

/// A user counts again this long after a silence, milliseconds: a server that lost entries takes the slots of a minute for used.
pub(super) const AGAIN_MS: u32 = span::MINUTE_MS;

/// The time step of the best server, milliseconds.
const STEP_MS: u32 = 50;

/// How the slots of an interval were used.
struct Used {
    from_ms: u32,
    to_ms: u32,
    /// How many entries the best server makes until half a sub-window before the end.
    demanded: u64,
    /// How many entries there were, at most those that are demanded.
    used: u64,
}

impl Used {
    fn share(&self) -> f64 {
        float(self.used) / float(self.demanded)
    }
}

pub(super) fn judge(plan: &Plan, stories: &[Story], line: &Line, slots_from_ms: u32) -> Check {
    if let Some(inside) = plan.inside_at_most {
        let inside = grouped(u64::from(inside));
        let note = bilingual!(
            "Not judged: by the published rule at most {inside} people may be inside, so entries also wait until somebody leaves.",
            "판정하지 않습니다. 공개된 규칙에 따라 안에 있을 수 있는 사람은 최대 {inside}명이므로, 누가 나가야 다음 사람이 입장할 수 있습니다."
        );
        return check(NAME, Judgement::Open, 0, None, note, None);
    }
    let Some(limit) = plan.admit_per_minute else {
        let note = bilingual!(
            "The number of slots is unknown; give the limit of entries per minute with --admit-per-minute.",
            "입장 자리가 몇 개였는지 알 수 없습니다. 분당 허용 인원을 --admit-per-minute로 알려 주세요."
        );
        return check(NAME, Judgement::Open, 0, None, note, None);
    };
    let (sub_ms, sub_limit) = span::sub(plan, limit);
    let intervals = opening::with_slots(line.intervals(sub_limit), slots_from_ms);
    let found = used(stories, intervals, (limit, sub_limit), sub_ms);
    let (used, demanded) = found
        .iter()
        .fold((0, 0), |(used, demanded), interval| (used + interval.used, demanded + interval.demanded));
    if demanded < u64::from(LEAST_SUB_WINDOWS) * u64::from(sub_limit) || demanded == 0 {
        let slots = grouped(u64::from(LEAST_SUB_WINDOWS) * u64::from(sub_limit));
        // One more, because the end of an interval is not demanded.
        let must = span::must_last_s(stories, slots_from_ms, (LEAST_SUB_WINDOWS + 1) * sub_ms);
        let users = u64::from(limit) + u64::from(LEAST_SUB_WINDOWS + 1) * u64::from(sub_limit);
        if plan.planned_ms >= must.saturating_mul(1_000) && u64::from(plan.users) >= users {
            let note = bilingual!(
                "Too few slots became free while at least {sub_limit} people waited; it takes {slots}. The run was long and large enough \
                 for that, but the line was not: let more users come (--users), or let them come sooner.",
                "{sub_limit}명 이상이 기다리는 동안 생긴 입장 자리가 너무 적습니다. {slots}개가 필요합니다. 실행 시간과 사용자 수는 \
                 충분했지만 대기 줄이 짧았으므로, 더 많은 사용자가(--users) 또는 더 일찍 오도록 해야 합니다."
            );
            return check(NAME, Judgement::Open, 0, None, hindrance::or(stories, note), None);
        }
        let users = grouped(users);
        let note = bilingual!(
            "Too few slots became free while at least {sub_limit} people waited; it takes {slots}. After a burst that used the \
             whole minute, slots become free a minute later: a run must last at least {must} s and have at least {users} users \
             (--users).",
            "{sub_limit}명 이상이 기다리는 동안 생긴 입장 자리가 너무 적습니다. {slots}개가 필요합니다. 한꺼번에 몰려 1분치를 다 쓰면 \
             1분 뒤에 자리가 다시 생기므로, 사용자 {users}명 이상으로(--users) {must}초 이상 실행해야 합니다."
        );
        return check(NAME, Judgement::Open, 0, None, hindrance::or(stories, note), None);
    }
    if was_held(stories) {
        let note = bilingual!(
            "Not judged: nobody entered, and no user was told a wait, so the zone admitted nobody. It must admit users (mode=auto).",
            "판정하지 않습니다. 입장한 사용자도, 예상 대기 시간을 들은 사용자도 없어 구역이 아무도 들이지 않은 것으로 보입니다. 입장이 \
             이루어지게 하고(mode=auto) 다시 실행해야 합니다."
        );
        return check(NAME, Judgement::Open, 0, None, note, None);
    }
    let share = float(used) / float(demanded);
    let (percent, lost) = (100.0 * share, demanded - used);
    let (shown, of) = (grouped(used), grouped(demanded));
    let note = bilingual!(
        "{shown} of {of} slots were used while people waited: {percent:.1} %.",
        "대기자가 있는 동안 입장 자리 {of}개 중 {shown}개가 쓰였습니다({percent:.1}%)."
    );
    if share >= LEAST_SHARE_USED {
        return check(NAME, judged(true), 0, Some(share), note, None);
    }
    let worst = found.iter().min_by(|a, b| a.share().total_cmp(&b.share()));
    let example = worst.map(|interval| {
        let (from, to) = (at(interval.from_ms), at(interval.to_ms));
        let (had, could) = (grouped(interval.used), grouped(interval.demanded));
        bilingual!(
            "From {from} to {to} people waited all the time; {had} entered, but {could} could have entered.",
            "{from}부터 {to}까지 계속 대기자가 있었지만, {could}명이 들어갈 수 있는 동안 {had}명만 입장했습니다."
        )
    });
    check(NAME, judged(false), lost, Some(share), note, example)
}

/// Whether the zone admitted nobody, and said so: then it tells no wait.
fn was_held(stories: &[Story]) -> bool {
    stories.iter().all(|story| story.entered.is_none() && story.first_told.is_none())
}

/// How the slots of each interval were used in which some were demanded.
fn used(stories: &[Story], intervals: Vec<(u32, u32)>, limits: (u32, u32), sub_ms: u32) -> Vec<Used> {
    let mut calls: Vec<_> = stories.iter().filter_map(|story| story.entered).collect();
    calls.sort_unstable_by_key(|call| call.heard_ms);
    let of = |(from_ms, to_ms): (u32, u32)| {
        // Whole sub-windows, so that a server which wastes some of them has not one more than it should at both ends.
        let to_ms = from_ms + (to_ms - from_ms) / sub_ms * sub_ms;
        let demanded_to_ms = to_ms.saturating_sub(sub_ms / 2).max(from_ms);
        let first = calls.partition_point(|call| call.heard_ms < from_ms);
        let before = calls[..first].iter().map(|call| call.heard_ms);
        let demanded = best_server(before, (from_ms, demanded_to_ms), limits, sub_ms);
        // In doubt an entry belongs to the interval.
        let entries = calls[first..].iter().filter(|call| call.sent_ms <= to_ms).count();
        let used = u64::try_from(entries).unwrap_or(u64::MAX).min(demanded);
        (demanded > 0).then_some(Used { from_ms, to_ms, demanded, used })
    };
    intervals.into_iter().filter_map(of).collect()
}

/// How many users the best server admits from `from_ms` to `to_ms`, given the entries before.
fn best_server(
    before: impl DoubleEndedIterator<Item = u32>,
    (from_ms, to_ms): (u32, u32),
    (limit, sub_limit): (u32, u32),
    sub_ms: u32,
) -> u64 {
    // Steps are counted from a minute before the interval. Windows are rounded up to whole steps, in favour of the
    // judged server.
    let (minute, sub) = ((60_000 / STEP_MS) as usize, sub_ms.div_ceil(STEP_MS) as usize);
    let steps = ((to_ms - from_ms) / STEP_MS) as usize;
    let mut entered = vec![0_u64; minute + steps];
    for heard_ms in before.rev() {
        let ago = ((from_ms - heard_ms).div_ceil(STEP_MS)) as usize;
        if ago > minute {
            break;
        }
        entered[minute - ago] += 1;
    }
    let (mut in_minute, mut in_sub): (u64, u64) =
        (entered[..minute].iter().sum(), entered[minute - sub.min(minute)..minute].iter().sum());
    let mut total = 0;
    for step in minute..entered.len() {
        in_minute -= entered[step - minute];
        in_sub -= entered[step - sub];
        let free =
            u64::from(limit).saturating_sub(in_minute).min(u64::from(sub_limit).saturating_sub(in_sub));
        entered[step] = free;
        in_minute += free;
        in_sub += free;
        total += free;
    }
    total
}
