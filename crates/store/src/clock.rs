//! The store's clock.
//!
//! Invariant: it never goes back, not by steps of the wall clock and not across restarts. It counts `CLOCK_BOOTTIME`
//! plus an offset. A restart within the same boot keeps the offset, so the time that the process was down counts.
//! After a reboot nothing tells how long the machine was down (the wall clock may have been set meanwhile), so the
//! clock resumes at the last instant in the journal: windows stay closed at least as long as they must.

use std::{fs, time::SystemTime};

use admission::Now;
use rustix::time::{ClockId, clock_gettime};

/// A boot of the machine, by the kernel's random name for it.
pub(crate) type Boot = [u8; 16];

/// The store's clock. See the module's first lines for what it promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// None where the kernel does not tell; no boot is the same as that one.
    pub(crate) boot: Option<Boot>,
    pub(crate) offset_ms: i64,
}

impl Clock {
    /// The clock that goes on from the one that a journal last saw, at `last_ms`.
    pub(crate) fn resume(kept: Self, last_ms: u64) -> Self {
        kept.go_on(this_boot(), since_boot_ms(), last_ms)
    }

    fn go_on(self, boot: Option<Boot>, since_boot_ms: i64, last_ms: u64) -> Self {
        let same_boot = boot.is_some() && boot == self.boot;
        let resumed_ms = i64::try_from(last_ms).unwrap_or(i64::MAX) - since_boot_ms;
        // Even in one boot the count may be set back: by a container's time namespace.
        Self { boot, offset_ms: if same_boot { self.offset_ms.max(resumed_ms) } else { resumed_ms } }
    }

    /// The instant.
    #[must_use]
    pub fn now(&self) -> Now {
        let ms = since_boot_ms().saturating_add(self.offset_ms);
        Now { ms: u64::try_from(ms).unwrap_or(0), unix_s: wall_ms() / 1_000 }
    }
}

/// Where a new journal's clock begins, so that its numbers look like dates. No rule relies on that.
#[expect(clippy::disallowed_methods, reason = "this is the store's clock")]
pub(crate) fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn since_boot_ms() -> i64 {
    let at = clock_gettime(ClockId::Boottime);
    at.tv_sec * 1_000 + at.tv_nsec / 1_000_000
}

fn this_boot() -> Option<Boot> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let digits = text.trim().replace('-', "");
    Some(u128::from_str_radix(&digits, 16).ok()?.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT: Clock = Clock { boot: Some([1; 16]), offset_ms: 1_000_000 };

    #[test]
    fn the_same_boot_counts_the_time_down() {
        assert_eq!(KEPT.go_on(KEPT.boot, 70_000, 1_050_000), KEPT);
    }

    #[test]
    fn another_boot_resumes_where_it_was() {
        let clock = KEPT.go_on(Some([2; 16]), 500, 1_050_000);
        assert_eq!(clock.offset_ms + 500, 1_050_000);
        assert_eq!(
            Clock { boot: None, ..KEPT }.go_on(None, 500, 1_050_000).offset_ms,
            1_049_500,
            "unknown boots differ"
        );
    }

    #[test]
    fn a_count_that_was_set_back_does_not_set_the_clock_back() {
        assert_eq!(KEPT.go_on(KEPT.boot, 10, 1_050_000).offset_ms + 10, 1_050_000);
    }

    #[test]
    fn this_machine_has_a_clock() {
        let clock = Clock::resume(Clock { boot: None, offset_ms: 0 }, wall_ms());
        let (a, b) = (clock.now(), clock.now());
        assert!(a.ms <= b.ms && a.unix_s > 1_700_000_000 && a.ms / 1_000 > 1_700_000_000);
        assert_eq!(Clock::resume(clock, b.ms), clock);
    }
}
