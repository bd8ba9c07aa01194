//! What happened to those who were told a wait, and what somebody would have told who knows the law of their patience.

use crate::{
    law::Law,
    line::{Told, World},
};

impl World<'_> {
    /// Fills in what happened, and forgets those who did not enter or for whom the rate changed meanwhile.
    pub(crate) fn judge(&mut self, law: &Law, from: usize) {
        let mut told = self.told.split_off(from);
        told.retain(|told| {
            let entered_ms = self.users[told.user].entered_ms;
            entered_ms != u64::MAX && (told.after_change || entered_ms <= self.changed_ms)
        });
        told.sort_by_key(|told| (told.at_ms, told.user));
        let mut rest = &mut told[..];
        while let Some(first) = rest.first() {
            let at_ms = first.at_ms;
            let count = rest.iter().take_while(|told| told.at_ms == at_ms).count();
            let (same, others) = rest.split_at_mut(count);
            self.judge_instant(law, at_ms, same);
            rest = others;
        }
        self.told.append(&mut told);
    }

    fn judge_instant(&self, law: &Law, at_ms: u64, told: &mut [Told]) {
        let before = self.entries.partition_point(|&(ms, _)| ms <= at_ms);
        let (mut entry, entered) = (before, self.entries[before - 1].1);
        let (mut index, mut ahead) = (0, 0.0);
        for told in told {
            while index < told.user {
                let user = self.users[index];
                index += 1;
                if user.joined_ms > at_ms || user.leaves_ms <= at_ms || user.entered_ms <= at_ms {
                    continue;
                }
                let wait_s = self.wait_s(&mut entry, entered, ahead, at_ms);
                let age_s = (at_ms - user.joined_ms) as f64 / 1_000.0;
                ahead += law.stays(age_s + wait_s) / law.stays(age_s);
            }
            told.floor_s = self.wait_s(&mut entry, entered, ahead, at_ms);
            told.actual_s = (self.users[told.user].entered_ms - at_ms) as f64 / 1_000.0;
        }
    }

    /// How long after `at_ms` the entry came that followed `ahead` others after it.
    fn wait_s(&self, entry: &mut usize, entered: u64, ahead: f64, at_ms: u64) -> f64 {
        while *entry < self.entries.len() && (self.entries[*entry].1 - entered) as f64 <= ahead {
            *entry += 1;
        }
        let at = self.entries.get(*entry).map_or_else(
            || {
                let (ms, total) = self.entries[self.entries.len() - 1];
                let more = ahead - (total - entered) as f64;
                ms as f64 + more * 60_000.0 / f64::from(self.policy.admit_per_minute)
            },
            |&(ms, _)| ms as f64,
        );
        (at - at_ms as f64) / 1_000.0
    }
}
