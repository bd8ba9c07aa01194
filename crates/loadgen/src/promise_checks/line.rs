//! The users who certainly waited.
//!
//! A user without a lapse was certainly present from the reply with the place to the sending of the last call that was
//! answered "not yet", or to the end of a stream that owed an answer. Other users may have been taken for absent at some time, so they do not count here.

use crate::story::Story;

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
