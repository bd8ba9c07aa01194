//! What a run shows: from when to when users were answered, and how long it must be to show more.

use crate::{report::Plan, story::Story};

pub(super) const MINUTE_MS: u32 = 60_000;

/// The last reply may be this much older than the end of the run, milliseconds: a polling period.
const LAST_REPLY_MS: u32 = 3_000;

/// The length of a sub-window in milliseconds, and its limit of entries.
pub(super) fn sub(plan: &Plan, admit_per_minute: u32) -> (u32, u32) {
    let parts = plan.sub_windows.clamp(1, 60);
    (MINUTE_MS / parts, admit_per_minute.div_ceil(parts))
}

/// The time of the first place or pass, and of the last reply.
pub(super) fn observed(stories: &[Story]) -> (u32, u32) {
    let first_ms = stories.iter().filter_map(|story| Some(story.arrived?.sent_ms)).min();
    let replies = stories.iter().flat_map(|story| [story.arrived, story.last_waiting, story.entered]);
    (first_ms.unwrap_or(0), replies.flatten().map(|call| call.heard_ms).max().unwrap_or(0))
}

/// From the first slot that a user could take to the last reply. There are slots from `slots_from_ms` on.
pub(super) fn of_slots(stories: &[Story], slots_from_ms: u32) -> (u32, u32) {
    let (first_ms, last_ms) = observed(stories);
    (first_ms.max(slots_from_ms), last_ms)
}

/// How long a run must last that shows slots for so long after the first users came, or the zone opened, and they used the whole
/// minute at once, seconds. Their slots become free a minute later.
pub(super) fn must_last_s(stories: &[Story], slots_from_ms: u32, shows_ms: u32) -> u32 {
    let (first_ms, _) = of_slots(stories, slots_from_ms);
    let burst_ms = first_ms.saturating_add(MINUTE_MS);
    burst_ms.saturating_add(shows_ms).saturating_add(LAST_REPLY_MS).div_ceil(1_000)
}
