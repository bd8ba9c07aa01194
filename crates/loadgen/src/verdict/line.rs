//! The users who certainly waited, and how many slots were used while they did.
//!
//! A user without a lapse was certainly present from the reply with the place to the sending of the last call that was
//! answered "not yet". Other users may have been taken for absent at some time, so they do not count here.
//!
//! The number of used slots is compared with the best possible server. It knows the entries before the interval, and
//! admits as many users as the minute and the sub-window allow, as soon as they allow it. After a burst that used the
//! whole minute, the best server admits nobody until the burst leaves the window, so a good server is not blamed. Only
//! intervals count in which the users of at least one sub-window were certainly present, so that each slot had a user.
//! Before a zone opens there are no slots ([`opening`]). Below [`FLOOR`] the check fails: users who poll late or leave at the very front cost a few slots, but not that many.
//! The promise of 97 % is checked by an objective.

use super::{at, check, judged, opening, span};
use crate::{
    bilingual::bilingual,
    format::{float, grouped},
    report::{Check, Judgement, Plan},
    story::Story,
};

/// The check fails if a smaller share of the slots was used.
const FLOOR: f64 = 0.9;

/// The least number of slots that decides the check, in sub-windows.
const LEAST_SUB_WINDOWS: u32 = 3;

/// The time step of the best server, milliseconds.
const STEP_MS: u32 = 50;

/// How many users were certainly present, from each time at which the number changed.
pub(super) struct Line {
    steps: Vec<(u32, u32)>,
}

impl Line {
    pub(super) fn certain(stories: &[Story]) -> Self {
        let mut changes: Vec<(u32, bool)> = Vec::new();
        for story in stories {
            if let Some((from, to)) = present(story) {
                changes.push((from, true));
                changes.push((to, false));
            }
        }
        // At equal times arrivals come first, because both ends belong to a presence.
        changes.sort_unstable_by_key(|&(at_ms, comes)| (at_ms, !comes));
        let (mut steps, mut length) = (Vec::new(), 0_u32);
        for (at_ms, comes) in changes {
            length = if comes { length + 1 } else { length - 1 };
            steps.push((at_ms, length));
        }
        Self { steps }
    }

    /// The intervals in which at least `least` users were present, both ends included, in order.
    pub(super) fn intervals(&self, least: u32) -> Vec<(u32, u32)> {
        let (mut found, mut since) = (Vec::new(), None);
        for &(at_ms, length) in &self.steps {
            match since {
                None if length >= least => since = Some(at_ms),
                Some(from) if length < least => {
                    found.push((from, at_ms));
                    since = None;
                }
                _ => {}
            }
        }
        found
    }
}

/// From when to when a user was certainly present.
pub(super) fn present(story: &Story) -> Option<(u32, u32)> {
    let (arrived, waiting) = (story.arrived?, story.last_waiting?);
    // Times are truncated to milliseconds: the reply arrived before the next millisecond.
    let from_ms = arrived.heard_ms.saturating_add(1);
    (story.lapses == 0 && waiting.sent_ms > from_ms).then_some((from_ms, waiting.sent_ms))
}

pub(super) fn slot_use(plan: &Plan, stories: &[Story], slots_from_ms: u32) -> Check {
    let what = "slot_use";
    let Some(limit) = plan.admit_per_minute else {
        let note = bilingual!(
            "The number of slots is unknown; give the limit of entries per minute with --admit-per-minute.",
            "입장 자리가 몇 개였는지 알 수 없습니다. 분당 허용 인원을 --admit-per-minute로 알려 주세요."
        );
        return check(what, Judgement::Open, 0, None, note, None);
    };
    let (sub_ms, sub_limit) = span::sub(plan, limit);
    let mut calls: Vec<_> = stories.iter().filter_map(|story| story.entered).collect();
    calls.sort_unstable_by_key(|call| call.heard_ms);
    let (mut used, mut best) = (0_u64, 0_u64);
    let mut worst: Option<(f64, u32, u32, u64, u64)> = None;
    let intervals = Line::certain(stories).intervals(sub_limit);
    for (from_ms, to_ms) in opening::with_slots(intervals, slots_from_ms) {
        let windows = (to_ms - from_ms) / sub_ms;
        if windows == 0 {
            continue;
        }
        let to_ms = from_ms + windows * sub_ms;
        let first = calls.partition_point(|call| call.heard_ms < from_ms);
        let before = calls[..first].iter().map(|call| call.heard_ms);
        let could = best_server(before, (from_ms, to_ms), (limit, sub_limit), sub_ms);
        // In doubt an entry belongs to the interval. A slot that becomes free at its very end is used a little later.
        let until = |ms: u32| whole_number(calls[first..].iter().filter(|call| call.sent_ms <= ms).count());
        let had = until(to_ms).max(could.min(until(to_ms.saturating_add(sub_ms / 4))));
        used += had;
        best += could;
        let part = float(had) / float(could.max(1));
        if could > 0 && worst.is_none_or(|(least, ..)| part < least) {
            worst = Some((part, from_ms, to_ms, had, could));
        }
    }
    if best < u64::from(LEAST_SUB_WINDOWS) * u64::from(sub_limit) || best == 0 {
        let slots = grouped(u64::from(LEAST_SUB_WINDOWS) * u64::from(sub_limit));
        let must = span::must_last_s(stories, slots_from_ms, LEAST_SUB_WINDOWS * sub_ms);
        let users = grouped(u64::from(limit) + u64::from(LEAST_SUB_WINDOWS + 1) * u64::from(sub_limit));
        let note = bilingual!(
            "Too few slots became free while at least {sub_limit} people waited; it takes {slots}. After a burst that used the \
             whole minute, slots become free a minute later: a run must last at least {must} s and have at least {users} users \
             (--users).",
            "{sub_limit}명 이상이 기다리는 동안 생긴 입장 자리가 너무 적습니다. {slots}개가 필요합니다. 한꺼번에 몰려 1분치를 다 쓰면 \
             1분 뒤에 자리가 다시 생기므로, 사용자 {users}명 이상으로(--users) {must}초 이상 실행해야 합니다."
        );
        return check(what, Judgement::Open, 0, None, note, None);
    }
    let part = float(used) / float(best);
    let (percent, lost) = (100.0 * part, best.saturating_sub(used));
    let (used, best) = (grouped(used), grouped(best));
    let note = bilingual!(
        "{used} of {best} slots were used while people waited: {percent:.1} %.",
        "대기자가 있는 동안 입장 자리 {best}개 중 {used}개가 쓰였습니다({percent:.1}%)."
    );
    let example = worst.filter(|_| part < FLOOR).map(|(_, from_ms, to_ms, had, could)| {
        let (from, to, had, could) = (at(from_ms), at(to_ms), grouped(had), grouped(could));
        bilingual!(
            "From {from} to {to} people waited all the time; {had} entered, but {could} could have entered.",
            "{from}부터 {to}까지 계속 대기자가 있었지만, {could}명이 들어갈 수 있는 동안 {had}명만 입장했습니다."
        )
    });
    let good = part >= FLOOR;
    check(what, judged(good), if good { 0 } else { lost }, Some(part), note, example)
}

fn whole_number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
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
