//! Too many entries within a window.
//!
//! An entry was decided between `sent` and `heard`. So an interval of W ms that begins at `t` certainly contains the
//! entries with `sent >= t` and `heard <= t + W`. Any other entry may have been decided outside. A server that admits at
//! most `limit` users in any W ms therefore never shows more than `limit` of them. W is shortened by [`CLOCKS_MS`],
//! because clocks differ.
//!
//! The limit of a sub-window holds only while people wait: with nobody in line, newcomers may use the whole minute at
//! once. So an entry counts only if its user had been told to wait before, or if somebody else was certainly present in
//! the line when it was decided. The last of these entries within an interval was decided while people waited, so all of
//! them together are at most the limit, however long the line lasts. The check is good only if there was an interval in
//! which people certainly waited from end to end.
//!
//! Before a zone opens nobody enters, so that time is no evidence ([`super::opening`]).
//!
//! A limit that nobody could exceed is not tested. The check is good only if an interval was observed from end to end, if
//! users entered, and if more users than the limit wanted to enter within one interval ([`Evidence`]).

use super::{
    CLOCKS_MS, at, check, hindrance,
    line::Line,
    name,
    opening::with_slots,
    ranks::Ranks,
    span::{MINUTE_MS, must_last_s, of_slots, sub},
};
use crate::{
    bilingual::{Bilingual, bilingual},
    format::grouped,
    report::{Check, Judgement, Plan},
    story::{Call, Story},
};

/// The interval with the most entries.
struct Fullest {
    held: u32,
    from_ms: u32,
}

pub(super) fn minute(plan: &Plan, stories: &[Story], slots_from_ms: u32) -> Check {
    let (first_ms, last_ms) = of_slots(stories, slots_from_ms);
    // None where the run is shorter than a minute, also if its first place was asked for at 0 ms.
    let latest_ms = last_ms.checked_sub(MINUTE_MS - CLOCKS_MS).filter(|latest_ms| first_ms <= *latest_ms);
    let observed: Vec<_> = latest_ms.map(|latest_ms| (first_ms, latest_ms)).into_iter().collect();
    let what = Window {
        name: "over_admission_60s",
        length_ms: MINUTE_MS,
        limit: plan.admit_per_minute,
        minute: plan.admit_per_minute,
        observed: &observed,
        slots_from_ms,
        is_evidence: None,
    };
    what.check(stories, entries(stories, |_, _| true))
}

/// The entries that count, by the time at which they were asked for.
fn entries(stories: &[Story], counts: impl Fn(&Story, Call) -> bool) -> Vec<(&Story, Call)> {
    let entered = stories.iter().filter_map(|story| Some((story, story.entered?)));
    let mut entries: Vec<_> = entered.filter(|&(story, call)| counts(story, call)).collect();
    entries.sort_unstable_by_key(|(_, call)| call.sent_ms);
    entries
}

pub(super) fn sub_window(plan: &Plan, stories: &[Story], line: &Line, slots_from_ms: u32) -> Check {
    let (length_ms, _) = sub(plan, 1);
    let limit = plan.admit_per_minute.map(|n| sub(plan, n).1);
    let intervals = line.intervals(1);
    let is_covered = |from_ms: u32, to_ms: u32| {
        let next = intervals.partition_point(|&(from, _)| from <= from_ms);
        next > 0 && intervals[next - 1].1 >= to_ms
    };
    // Too many before the opening are too many; but they are no evidence that the limit holds.
    let with_slots = with_slots(intervals.clone(), slots_from_ms);
    let long = with_slots.iter().filter(|(from_ms, to_ms)| to_ms - from_ms >= length_ms);
    let observed: Vec<_> = long.map(|&(from_ms, to_ms)| (from_ms, to_ms - length_ms)).collect();
    let what = Window {
        name: "over_admission_sub_window",
        length_ms,
        limit,
        minute: plan.admit_per_minute,
        observed: &observed,
        slots_from_ms,
        is_evidence: Some(&|from_ms| is_covered(from_ms, from_ms.saturating_add(length_ms))),
    };
    // The clocks of those who wait and of those who enter may differ.
    let while_others_wait = |call: Call| {
        is_covered(call.sent_ms.saturating_sub(CLOCKS_MS), call.heard_ms.saturating_add(CLOCKS_MS))
    };
    what.check(stories, entries(stories, |story, call| had_waited(story) || while_others_wait(call)))
}

/// Whether the user was told to wait before the pass.
fn had_waited(story: &Story) -> bool {
    story.last_waiting.is_some()
}

/// A limit of entries within a time.
struct Window<'a> {
    name: &'static str,
    length_ms: u32,
    limit: Option<u32>,
    /// The limit of a minute.
    minute: Option<u32>,
    /// From when to when an interval may begin that was observed from end to end, in order.
    observed: &'a [(u32, u32)],
    /// From when on there are slots.
    slots_from_ms: u32,
    /// Whether the entries of the interval that begins at this time show that the limit holds; none if those of all intervals do.
    is_evidence: Option<&'a dyn Fn(u32) -> bool>,
}

/// What shows that a limit was tested.
enum Evidence {
    Enough,
    /// No interval was observed from end to end.
    TooShort,
    /// Nobody entered.
    NobodyEntered,
    /// People entered, but not in an interval that was observed from end to end.
    NoneObserved,
    /// At most this many users wanted to enter within one interval, no more than the limit.
    TooFew(u32),
}

impl Window<'_> {
    fn is_sub_window(&self) -> bool {
        self.is_evidence.is_some()
    }

    fn while_people_wait(&self) -> (&'static str, &'static str) {
        if self.is_sub_window() { (" while people waited", "대기자가 있는 동안 ") } else { ("", "") }
    }

    fn check(&self, stories: &[Story], entries: Vec<(&Story, Call)>) -> Check {
        let span_ms = self.length_ms.saturating_sub(CLOCKS_MS);
        let (fullest, over) = fullest(&entries, span_ms, self.limit.unwrap_or(u32::MAX), |_| true);
        let (held, seconds) = (fullest.held, f64::from(self.length_ms) / 1_000.0);
        let figure = Some(f64::from(held));
        let shown = grouped(u64::from(held));
        let (while_en, while_ko) = if self.is_sub_window() {
            (" while people waited", "대기자가 있는 동안 ")
        } else {
            ("", "")
        };
        let Some(limit) = self.limit else {
            let note = bilingual!(
                "At most {shown} entered within {seconds} s{while_en}. The limit is unknown; give the limit of entries per minute \
                 with --admit-per-minute.",
                "{while_ko}{seconds}초 동안 최대 {shown}명이 입장했습니다. 분당 허용 인원을 알 수 없어 판정하지 못했습니다. \
                 --admit-per-minute로 알려 주세요."
            );
            return check(self.name, Judgement::Open, 0, figure, note, None);
        };
        let may = grouped(u64::from(limit));
        let mut note = bilingual!(
            "At most {shown} entered within {seconds} s{while_en}; the limit is {may}.",
            "{while_ko}{seconds}초 동안 최대 {shown}명이 입장했습니다. 허용 인원은 {may}명입니다."
        );
        if over > 0 {
            let worst = (held > limit).then(|| example(&entries, &fullest, span_ms, limit));
            return check(self.name, Judgement::Bad, over, figure, note, worst);
        }
        let evidence = self.evidence(stories, &entries, (limit, held));
        let missing = self.missing(&evidence, stories, limit).map(|missing| match evidence {
            // The sentence says how long the replies were, or how many users there were.
            Evidence::TooShort if !self.is_sub_window() => missing,
            Evidence::TooFew(_) | Evidence::Enough => missing,
            _ => hindrance::or(stories, missing),
        });
        let judgement = if missing.is_some() { Judgement::Open } else { Judgement::Good };
        if let Some(Bilingual { en, ko }) = missing {
            note =
                Bilingual { en: format!("{} {en}", note.en).into(), ko: format!("{} {ko}", note.ko).into() };
        }
        check(self.name, judgement, 0, figure, note, None)
    }

    fn evidence(&self, stories: &[Story], entries: &[(&Story, Call)], (limit, held): (u32, u32)) -> Evidence {
        if self.observed.is_empty() {
            return Evidence::TooShort;
        }
        if held == 0 {
            return Evidence::NobodyEntered;
        }
        let is_seen = |is_evidence| {
            fullest(entries, self.length_ms.saturating_sub(CLOCKS_MS), limit, is_evidence).0.held > 0
        };
        if self.is_evidence.is_some_and(|is_evidence| !is_seen(is_evidence)) {
            return Evidence::NoneObserved;
        }
        let wanted = most_wanted(stories, self.length_ms.saturating_sub(CLOCKS_MS), self.observed);
        if wanted > limit { Evidence::Enough } else { Evidence::TooFew(wanted) }
    }

    /// What is missing, and how long or how large a run must be; none if the evidence is enough.
    fn missing(&self, evidence: &Evidence, stories: &[Story], limit: u32) -> Option<Bilingual> {
        let seconds = f64::from(self.length_ms) / 1_000.0;
        let (while_en, while_ko) = self.while_people_wait();
        // After a burst the run went on for long enough.
        let must = must_last_s(stories, self.slots_from_ms, 2 * self.length_ms);
        let is_long = of_slots(stories, self.slots_from_ms).1 / 1_000 >= must;
        match evidence {
            Evidence::Enough => None,
            Evidence::TooShort if self.is_sub_window() => {
                let more = grouped(u64::from(self.minute.unwrap_or(0)));
                Some(bilingual!(
                    "No line was certain to last {seconds} s, so the limit was not seen to hold for so long. It takes a run of more \
                     than {seconds} s with more users than may enter in a minute: more than {more} (--users).",
                    "{seconds}초 이상 이어진 대기 줄이 확인되지 않아 그동안 허용 인원을 지키는지 알 수 없습니다. {seconds}초보다 길게, \
                     1분 허용 인원인 {more}명보다 많은 사용자로(--users) 실행해야 합니다."
                ))
            }
            Evidence::TooShort => {
                let (first_ms, last_ms) = of_slots(stories, self.slots_from_ms);
                let shown = f64::from(last_ms.saturating_sub(first_ms)) / 1_000.0;
                // The first minute is the one that is shown.
                let must = must_last_s(stories, self.slots_from_ms, 0);
                Some(bilingual!(
                    "The replies cover only {shown:.1} s: a run must last at least {must} s, and be answered until its end.",
                    "응답이 {shown:.1}초 동안만 있었습니다. {must}초 이상 실행하고 끝까지 응답을 받아야 판정할 수 있습니다."
                ))
            }
            Evidence::NobodyEntered if !self.is_sub_window() || is_long => Some(bilingual!(
                "Nobody entered{while_en}, so nothing shows that the limit holds: the zone must be open and admit users.",
                "{while_ko}아무도 입장하지 않아 허용 인원을 지키는지 알 수 없습니다. 구역이 열려 있고 입장이 이루어져야 합니다."
            )),
            Evidence::NobodyEntered => Some(bilingual!(
                "Nobody entered during {seconds} s of waiting, so nothing shows that the limit holds. After a burst that used \
                     the whole minute, the next users enter a minute later: a run must last at least {must} s.",
                "대기 줄이 {seconds}초 이어지는 동안 아무도 입장하지 않아 허용 인원을 지키는지 알 수 없습니다. 한꺼번에 몰려 \
                     1분치를 다 쓰면 1분 뒤에 다시 입장하므로 {must}초 이상 실행해야 합니다."
            )),
            Evidence::NoneObserved => Some(bilingual!(
                "No entry was followed by {seconds} s in which people certainly waited, so nothing shows that the limit holds for \
                     so long. After a burst that used the whole minute, the next users enter a minute later: a run must last at least \
                     {must} s, with more users (--users).",
                "입장 뒤에 대기 줄이 {seconds}초 이어진 적이 없어 그동안 허용 인원을 지키는지 알 수 없습니다. 한꺼번에 몰려 1분치를 \
                     다 쓰면 1분 뒤에 다시 입장하므로, 더 많은 사용자로(--users) {must}초 이상 실행해야 합니다."
            )),
            Evidence::TooFew(wanted) => {
                let (wanted, more) = (grouped(u64::from(*wanted)), grouped(u64::from(limit) + 1));
                Some(bilingual!(
                    "At most {wanted} users wanted to enter within that time, so the limit was not tested: it takes at least \
                     {more} of them (--users).",
                    "그 시간에 입장하려던 사용자가 최대 {wanted}명뿐이어서 허용 인원을 시험하지 못했습니다. {more}명 이상이 \
                     필요합니다(--users)."
                ))
            }
        }
    }
}

/// The largest number of users who wanted to enter within one interval of `span_ms` that begins in one of `observed`. A
/// user wants to enter from the place until the pass, or until the last reply.
fn most_wanted(stories: &[Story], span_ms: u32, observed: &[(u32, u32)]) -> u32 {
    let (mut from, mut until) = (Vec::new(), Vec::new());
    for story in stories {
        let Some(arrived) = story.arrived else { continue };
        let last = story.entered.or(story.last_waiting).unwrap_or(arrived);
        // An interval that begins between these times has the user.
        from.push(arrived.heard_ms.saturating_sub(span_ms));
        until.push(last.heard_ms);
    }
    from.sort_unstable();
    until.sort_unstable();
    // The number is largest where an interval begins that has one more user, or as early as one may begin.
    let mut most = 0;
    let mut count = |at_ms: u32| {
        let (came, gone) =
            (from.partition_point(|&from| from <= at_ms), until.partition_point(|&until| until < at_ms));
        most = most.max(came.saturating_sub(gone));
    };
    for &(earliest_ms, latest_ms) in observed {
        count(earliest_ms);
        let next = from.partition_point(|&from| from <= earliest_ms);
        from[next..].iter().take_while(|&&from| from <= latest_ms).for_each(|&from| count(from));
    }
    u32::try_from(most).unwrap_or(u32::MAX)
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
