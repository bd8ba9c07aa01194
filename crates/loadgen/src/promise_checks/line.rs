//! The users who certainly waited.
//!
//! A user without a lapse was certainly present from the reply with the place to the sending of the last call that was
//! answered "not yet", or to the end of a stream that owed an answer. A user with a lapse may have been taken for absent: from the
//! last "not yet" before the silence until [`AGAIN_MS`] after the reply that ended it. That time does not count here.

use crate::story::Story;

/// A user who was absent is certainly present again this long after the first reply, milliseconds. Servers report polls to their store
/// once a second, so it is known there a little later.
pub(super) const AGAIN_MS: u32 = 3_000;

/// How many users were certainly present, from each time at which the number changed.
pub(super) struct Line {
    steps: Vec<(u32, u32)>,
}

impl Line {
    /// A user counts again `again_ms` after a silence.
    pub(super) fn certain(stories: &[Story], again_ms: u32) -> Self {
        let mut changes: Vec<(u32, bool)> = Vec::new();
        for (from, to) in stories.iter().flat_map(|story| presences(story, again_ms)) {
            changes.push((from, true));
            changes.push((to, false));
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

/// From when to when a user was certainly present, in order: between the silences, and again `again_ms` after each of them.
pub(super) fn presences(story: &Story, again_ms: u32) -> impl Iterator<Item = (u32, u32)> {
    // A file of an earlier version does not say when the user was silent.
    let is_known = story.silences.is_empty() == (story.lapses == 0);
    let arrived = story.arrived.filter(|_| is_known);
    // Times are truncated to milliseconds: the reply arrived before the next millisecond.
    let from_ms = arrived.into_iter().map(|call| call.heard_ms.saturating_add(1));
    let again = story
        .silences
        .iter()
        .map(move |silence| silence.ended.heard_ms.saturating_add(1).saturating_add(again_ms));
    let to_ms = story.silences.iter().map(|silence| silence.kept_ms);
    let last_ms = story.last_waiting.into_iter().map(|call| call.sent_ms);
    from_ms.chain(again).zip(to_ms.chain(last_ms)).filter(|(from_ms, to_ms)| to_ms > from_ms)
}
