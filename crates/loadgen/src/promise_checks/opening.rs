//! When the zone opened, and whether that is when the users were told.
//!
//! A server that says "it opens in T" counts from an instant between `sent` and `heard`. So the opening is between `sent + T` and
//! `heard + T`, and also within what all other users were told at about the same time. Nobody may have entered before the earliest
//! of these instants, shortened by [`CLOCKS_MS`].
//!
//! Before the opening there are no slots, so the checks of slots and of limits begin with it. If the order is drawn, people enter once
//! they can know it: also if that is later, the slots begin when nobody is told any more that the order is still to be drawn.

use super::{CLOCKS_MS, at, check, judged, name, span};
use crate::{
    bilingual::bilingual,
    format::grouped,
    report::{Check, Judgement, Plan},
    story::{Call, Story},
};

/// What users were told this long before the last one who was told counts, too, milliseconds: people are told at least once in that
/// time. An opening that was moved earlier does not count any more.
const RECENT_MS: u32 = 60_000;

/// An opening that is this far from the one for which the run was made was moved, milliseconds. Clocks and the network explain less.
const MOVED_MS: u32 = 2_000;

/// When the zone opened, as the users were told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Opening {
    /// Not before this time.
    pub(super) earliest_ms: u32,
    /// Not after this time.
    pub(super) latest_ms: u32,
    /// How much what two users were told differs, beyond what the network explains, milliseconds.
    apart_ms: u32,
    /// The last time at which somebody was told that the order is still to be drawn.
    undrawn_ms: u32,
}

impl Opening {
    /// None if nobody was told an opening.
    pub(super) fn told(stories: &[Story]) -> Option<Self> {
        let told = || stories.iter().filter_map(|story| story.opens);
        let since_ms = told().map(|opens| opens.told.heard_ms).max()?.saturating_sub(RECENT_MS);
        let recent = || told().filter(|opens| opens.told.heard_ms >= since_ms);
        let from_ms = recent().map(|opens| opens.earliest_ms()).max()?;
        let to_ms = recent().map(|opens| opens.latest_ms()).min()?;
        let undrawn_ms = stories.iter().filter_map(|story| story.undrawn_ms).max().unwrap_or(0);
        Some(Self {
            earliest_ms: from_ms.min(to_ms),
            latest_ms: from_ms.max(to_ms),
            apart_ms: from_ms.saturating_sub(to_ms),
            undrawn_ms,
        })
    }

    /// From when on there are slots.
    pub(super) fn slots_from_ms(&self) -> u32 {
        self.latest_ms.max(self.undrawn_ms)
    }
}

/// From when on there are slots: from the start of the run, or from the opening if users were told one.
pub(super) fn slots_from_ms(stories: &[Story]) -> u32 {
    Opening::told(stories).map_or(0, |opening| opening.slots_from_ms())
}

/// The parts of `intervals` in which there are slots, in order.
pub(super) fn with_slots(intervals: Vec<(u32, u32)>, slots_from_ms: u32) -> Vec<(u32, u32)> {
    let after =
        |(from_ms, to_ms): (u32, u32)| (to_ms > slots_from_ms).then_some((from_ms.max(slots_from_ms), to_ms));
    intervals.into_iter().filter_map(after).collect()
}

/// A user for whom the opening was not as told.
enum Fault {
    Early,
    /// The first told wait ended before the opening.
    ToldLess(u32),
}

/// The check of the opening; none if nobody was told one, and the run was not made for one.
pub(super) fn judge(plan: &Plan, stories: &[Story]) -> Option<Check> {
    let was_known = plan.opening.is_some();
    let Some(opening) = Opening::told(stories) else {
        let nobody = bilingual!(
            "No user was told when the zone opens.",
            "구역이 언제 열리는지 들은 사용자가 없어 판정할 수 없습니다."
        );
        return was_known.then(|| check("opening", Judgement::Open, 0, None, nobody, None));
    };
    let before_ms = opening.earliest_ms.saturating_sub(CLOCKS_MS);
    let fault = |story: &Story| {
        let told = story.opens.map(|opens| opens.told);
        // Whoever was not told may have entered before the pre-queue; not if it was there before the run.
        let waits = |call: Call| was_known || told.is_some_and(|told| call.sent_ms >= told.sent_ms);
        if story.entered.is_some_and(|call| waits(call) && call.heard_ms < before_ms) {
            return Some(Fault::Early);
        }
        let told = told?;
        // Whole seconds, rounded in favour of the server.
        let first = story.first_told.filter(|first| first.at_ms <= told.heard_ms)?;
        let ends_ms = first.at_ms.saturating_add(first.eta_s.saturating_add(1).saturating_mul(1_000));
        (ends_ms < before_ms).then_some(Fault::ToldLess(first.eta_s))
    };
    let found: Vec<(&Story, Fault)> =
        stories.iter().filter_map(|story| Some((story, fault(story)?))).collect();
    let is_early = |fault: &Fault| matches!(fault, Fault::Early);
    let early = found.iter().filter(|(_, fault)| is_early(fault)).count();
    let (early, less) = (early as u64, (found.len() - early) as u64);
    let opened = at(opening.earliest_ms);
    let planned_ms = plan.opening.as_ref().map_or(opening.earliest_ms, |planned| planned.at_ms);
    if early == 0 && less > 0 && planned_ms.abs_diff(opening.earliest_ms) > MOVED_MS {
        let before = at(planned_ms);
        let note = bilingual!(
            "The event was moved from {before} to {opened} during the run. Nobody entered before; the waits that users were told are not judged.",
            "실행 중에 행사가 {before}에서 {opened}(으)로 옮겨졌습니다. 먼저 입장한 사람은 없으며, 안내된 대기 시간은 판정하지 않습니다."
        );
        return Some(check("opening", Judgement::Open, 0, None, note, None));
    }
    if opening.apart_ms > 2 * CLOCKS_MS {
        let (first, last) = (at(opening.earliest_ms), at(opening.latest_ms));
        let note = bilingual!(
            "At about the same time, users were told different openings: {first} and {last}.",
            "비슷한 때에 사용자마다 다른 개시 시각을 들었습니다: {first}와 {last}."
        );
        return Some(check("opening", Judgement::Bad, found.len().max(1) as u64, None, note, None));
    }
    if found.is_empty() {
        let (_, last_ms) = span::observed(stories);
        if last_ms < opening.latest_ms {
            let last = at(last_ms);
            let note = bilingual!(
                "The zone was to open at {opened}, and the last reply came at {last}: a run must last until people enter.",
                "구역은 {opened}에 열릴 예정이었는데 마지막 응답이 {last}였습니다. 사람들이 입장할 때까지 실행해야 합니다."
            );
            return Some(check("opening", Judgement::Open, 0, None, note, None));
        }
        let note = bilingual!(
            "The zone was told to open at {opened}. Nobody entered before, and no told wait ended before.",
            "개시 시각으로 안내된 {opened}보다 먼저 입장한 사람도, 그보다 먼저 끝난다고 안내된 대기 시간도 없습니다."
        );
        return Some(check("opening", Judgement::Good, 0, None, note, None));
    }
    let (shown_early, shown_less) = (grouped(early), grouped(less));
    let note = bilingual!(
        "The zone was told to open at {opened}. {shown_early} users entered before, and {shown_less} users were told a wait that ended \
         before.",
        "개시 시각으로 안내된 {opened}보다 {shown_early}명이 먼저 입장했고, {shown_less}명은 그보다 먼저 끝나는 대기 시간을 안내받았습니다."
    );
    let worst =
        found.iter().min_by_key(|(story, fault)| (!is_early(fault), story.entered.map(|call| call.heard_ms)));
    let worst = worst.map(|(story, fault)| {
        let who = name(story);
        match fault {
            Fault::Early => {
                let entered = at(story.entered.map_or(0, |call| call.heard_ms));
                bilingual!(
                    "User {who} entered at {entered}, before the opening at {opened}.",
                    "사용자 {who}는 개시 시각 {opened}보다 이른 {entered}에 입장했습니다."
                )
            }
            Fault::ToldLess(eta_s) => {
                let told = at(story.first_told.map_or(0, |first| first.at_ms));
                bilingual!(
                    "User {who} was told {eta_s} s at {told}, although the zone opens at {opened}.",
                    "사용자 {who}는 구역이 {opened}에 열리는데 {told}에 {eta_s}초라고 안내받았습니다."
                )
            }
        }
    });
    Some(check("opening", judged(false), early + less, None, note, worst))
}
