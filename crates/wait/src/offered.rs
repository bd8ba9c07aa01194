//! Counts the slots that fell free (`slots_offered`): those that a line would have used, had it used each one at once.
//!
//! A store counts the slots that were used; the share of the others is what a plan needs. Invariants: the count never falls; without a
//! line nothing is counted.

use admission::{MINUTE_MS, Snapshot, Window};

/// The slots of one line that fell free.
#[derive(Clone, Debug)]
pub(crate) struct Offered {
    /// So many fell free so far.
    slots: u64,
    /// The window if the line had used each slot at once.
    window: Window,
    /// The instant up to which `window` was advanced.
    advanced_ms: u64,
    /// The present tickets that `window` may still admit before the next snapshot.
    line: u64,
    /// From then on, `window` is ahead of the line by what the line is late. In the first minute both use the slots of before.
    comparable_ms: u64,
}

impl Offered {
    /// None yet.
    pub(crate) fn new(window: Window, now_ms: u64) -> Self {
        Self { slots: 0, window, advanced_ms: now_ms, line: 0, comparable_ms: 0 }
    }

    /// How many fell free so far.
    pub(crate) fn slots(&self) -> u64 {
        self.slots
    }

    /// Whether the slots that fell free since then can be compared with those that were used.
    pub(crate) fn is_comparable(&self, now_ms: u64) -> bool {
        now_ms >= self.comparable_ms
    }

    /// Counts up to `snapshot`. At most `room` people could enter since the last one, because of those inside, or because the zone admits
    /// nobody.
    pub(crate) fn count(&mut self, snapshot: &Snapshot, room: u64) {
        let now_ms = snapshot.now_ms;
        let mut taken = Vec::new();
        let mut line = self.line.min(room);
        for (at_ms, count) in self.window.upcoming(self.advanced_ms) {
            if at_ms > now_ms || line == 0 {
                break;
            }
            let count = count.min(u32::try_from(line).unwrap_or(u32::MAX));
            line -= u64::from(count);
            self.slots += u64::from(count);
            taken.push((at_ms, count));
        }
        for (at_ms, count) in taken {
            self.window.advance(at_ms);
            self.window.record(at_ms, count);
        }
        self.window.advance(now_ms);
        // Without a line, newcomers use slots that no snapshot reports.
        if self.line == 0 || snapshot.tally.present == 0 {
            self.start_again(snapshot);
        }
        self.advanced_ms = now_ms;
        self.line = snapshot.tally.present;
    }

    /// Starts again from the real window.
    pub(crate) fn start_again(&mut self, snapshot: &Snapshot) {
        self.window = (*snapshot.window).clone();
        self.comparable_ms = snapshot.now_ms + MINUTE_MS;
    }
}
