//! Too many entries within a window.
//!
//! An entry was decided between `sent` and `heard`. So an interval of W ms that begins at `t` certainly contains the
//! entries with `sent >= t` and `heard <= t + W`. Any other entry may have been decided outside. A server that admits at
//! most `limit` users in any W ms therefore never shows more than `limit` of them. W is shortened by [`CLOCKS_MS`],
//! because clocks differ.
//!
//! The limit of a sub-window holds only while people wait: with nobody in line, newcomers may use the whole minute at
//! once. So an interval counts only if somebody was certainly present in the line during all of it.

use super::{CLOCKS_MS, Ranks, at, check, judged, line::Line, name};
use crate::{
    bilingual::{Bilingual, bilingual},
    format::grouped,
    report::{Check, Judgement, Plan},
    story::{Call, Story},
};

const MINUTE_MS: u32 = 60_000;

/// The interval with the most entries.
struct Fullest {
    held: u32,
    from_ms: u32,
}

/// The length of a sub-window in milliseconds, and its limit of entries.
pub(super) fn sub(plan: &Plan, admit_per_minute: u32) -> (u32, u32) {
    let parts = plan.sub_windows.clamp(1, 60);
    (MINUTE_MS / parts, admit_per_minute.div_ceil(parts))
}

pub(super) fn minute(plan: &Plan, stories: &[Story]) -> Check {
    let limit = plan.admit_per_minute;
    report("over_admission_60s", MINUTE_MS, limit, stories, |_| true)
}

pub(super) fn sub_window(plan: &Plan, stories: &[Story], line: &Line) -> Check {
    let (length_ms, _) = sub(plan, 1);
    let limit = plan.admit_per_minute.map(|n| sub(plan, n).1);
    let intervals = line.intervals(1);
    if limit.is_some() && intervals.iter().all(|(from_ms, to_ms)| to_ms - from_ms < length_ms) {
        let seconds = f64::from(length_ms) / 1_000.0;
        let nobody = bilingual!(
            "No line was certain to last {seconds} s, so the sub-window did not limit entries.",
            "{seconds}초 이상 이어진 대기 줄이 확인되지 않아 판정할 수 없습니다."
        );
        return check("over_admission_sub_window", Judgement::Open, 0, None, nobody, None);
    }
    let covered = |from_ms: u32| {
        let next = intervals.partition_point(|&(from, _)| from <= from_ms);
        next > 0 && intervals[next - 1].1 >= from_ms.saturating_add(length_ms)
    };
    report("over_admission_sub_window", length_ms, limit, stories, covered)
}

fn report(
    what: &str,
    length_ms: u32,
    limit: Option<u32>,
    stories: &[Story],
    counts: impl Fn(u32) -> bool,
) -> Check {
    let mut entries: Vec<(&Story, Call)> = stories.iter().filter_map(|s| Some((s, s.entered?))).collect();
    entries.sort_unstable_by_key(|(_, call)| call.sent_ms);
    let span_ms = length_ms.saturating_sub(CLOCKS_MS);
    let (fullest, over) = fullest(&entries, span_ms, limit.unwrap_or(u32::MAX), counts);
    let (held, seconds) = (fullest.held, f64::from(length_ms) / 1_000.0);
    let figure = Some(f64::from(held));
    let shown = grouped(u64::from(held));
    let Some(limit) = limit else {
        let note = bilingual!(
            "At most {shown} entered within {seconds} s. The limit is unknown; give the limit of entries per minute with \
             --admit-per-minute.",
            "{seconds}초 동안 최대 {shown}명이 입장했습니다. 분당 허용 인원을 알 수 없어 판정하지 못했습니다. \
             --admit-per-minute로 알려 주세요."
        );
        return check(what, Judgement::Open, 0, figure, note, None);
    };
    let may = grouped(u64::from(limit));
    let note = bilingual!(
        "At most {shown} entered within {seconds} s; the limit is {may}.",
        "{seconds}초 동안 최대 {shown}명이 입장했습니다. 허용 인원은 {may}명입니다."
    );
    let worst = (held > limit).then(|| example(&entries, &fullest, span_ms, limit));
    check(what, judged(over == 0), over, figure, note, worst)
}

/// The interval of `span_ms` with the most entries, and how many of the intervals that begin with an entry exceed `limit`.
fn fullest(
    entries: &[(&Story, Call)],
    span_ms: u32,
    limit: u32,
    counts: impl Fn(u32) -> bool,
) -> (Fullest, u64) {
    let mut heard: Vec<u32> = entries.iter().map(|(_, call)| call.heard_ms).collect();
    heard.sort_unstable();
    let mut ranks = Ranks::new(heard.len());
    let mut fullest = Fullest { held: 0, from_ms: 0 };
    let mut over = 0;
    let mut rest = entries;
    // From the last entry back, so that the tree holds the entries that were sent at or after `from_ms`.
    while let Some((_, last)) = rest.last() {
        let from_ms = last.sent_ms;
        while let Some(((_, call), before)) = rest.split_last()
            && call.sent_ms == from_ms
        {
            // Equal times share the first position, because queries ask for positions below the next greater time.
            ranks.add(heard.partition_point(|&h| h < call.heard_ms));
            rest = before;
        }
        if !counts(from_ms) {
            continue;
        }
        let held = ranks.below(heard.partition_point(|&h| h <= from_ms.saturating_add(span_ms)));
        over += u64::from(held > limit);
        if held > fullest.held {
            fullest = Fullest { held, from_ms };
        }
    }
    (fullest, over)
}

fn example(entries: &[(&Story, Call)], fullest: &Fullest, span_ms: u32, limit: u32) -> Bilingual {
    let until_ms = fullest.from_ms.saturating_add(span_ms);
    let mut first: Option<&Story> = None;
    let mut last: Option<(&Story, Call)> = None;
    for &(story, call) in entries {
        if call.sent_ms >= fullest.from_ms && call.heard_ms <= until_ms {
            first = first.or(Some(story));
            if last.is_none_or(|(_, latest)| call.heard_ms > latest.heard_ms) {
                last = Some((story, call));
            }
        }
    }
    let (Some(first), Some((last, call))) = (first, last) else { return Bilingual::default() };
    let more = 100.0 * (f64::from(fullest.held) / f64::from(limit.max(1)) - 1.0);
    let (from, to) = (at(fullest.from_ms), at(call.heard_ms));
    let (held, limit) = (grouped(u64::from(fullest.held)), grouped(u64::from(limit)));
    let (first, last) = (name(first), name(last));
    bilingual!(
        "From {from} to {to} {held} users asked and entered, from user {first} to user {last}: {more:.1} % more than the \
         limit of {limit}.",
        "{from}부터 {to}까지 사용자 {first}부터 {last}까지 {held}명이 요청해서 입장했습니다. 허용 인원 {limit}명보다 \
         {more:.1}% 많습니다."
    )
}
