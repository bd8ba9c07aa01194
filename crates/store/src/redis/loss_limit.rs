//! Limits how many losses of a zone's state are mended in a row.
//!
//! Each loss begins an epoch, and a state remembers 64 of them: whoever waits through more loses the place. A Redis that evicts
//! keys would use them up within seconds. So where losses do not end, the zone is away between them.
//!
//! Invariant: however often keys vanish, the epochs of the last 25 minutes are remembered.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

use crate::StoreError;

/// Losses count for so long.
const LATELY: Duration = Duration::from_secs(600);

/// So many of them are mended at once.
const AT_ONCE: usize = 8;

/// After those, another epoch begins a second after the last one, then two, and so on, up to this.
const LONGEST: Duration = Duration::from_secs(30);

/// The epochs that began lately, as far as this server saw them.
#[derive(Clone, Default)]
pub(super) struct Losses(VecDeque<Instant>);

impl Losses {
    /// An epoch has begun.
    pub(super) fn note(&mut self, now: Instant) {
        self.forget(now);
        self.0.push_back(now);
    }

    /// Whether another one may begin now.
    ///
    /// # Errors
    /// The last one is too young, and there were too many before.
    pub(super) fn check(&mut self, now: Instant) -> Result<(), StoreError> {
        self.forget(now);
        let (Some(last), Some(more)) = (self.0.back(), self.0.len().checked_sub(AT_ONCE)) else {
            return Ok(());
        };
        let seconds = 1_u64.checked_shl(u32::try_from(more).unwrap_or(u32::MAX)).unwrap_or(u64::MAX);
        if now - *last >= Duration::from_secs(seconds).min(LONGEST) {
            return Ok(());
        }
        Err(StoreError::Away(format!(
            "keys of the zone vanish again and again: its state was lost {} times in the last ten minutes",
            self.0.len()
        )))
    }

    fn forget(&mut self, now: Instant) {
        while self.0.front().is_some_and(|at| now - *at > LATELY) {
            self.0.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_an_hour_of_losses_is_remembered() {
        let (start, step) = (Instant::now(), Duration::from_millis(250));
        let mut losses = Losses::default();
        let mut now = start;
        let mut begun = Vec::new();
        while now - start < Duration::from_secs(7_200) {
            if losses.check(now).is_ok() {
                losses.note(now);
                begun.push(now - start);
            }
            now += step;
        }
        assert!(begun[AT_ONCE] - begun[0] < Duration::from_secs(5), "a few are mended at once: {begun:?}");
        for of_line in begun.windows(64) {
            let lasts = of_line[63] - of_line[0];
            assert!(lasts >= Duration::from_secs(1_500), "64 epochs in {lasts:?}");
        }
        assert!(losses.check(now + LATELY + step).is_ok());
    }
}
