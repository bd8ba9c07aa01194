//! The clock of the embedded store.
//!
//! It counts `CLOCK_BOOTTIME` plus an offset. A restart within the same boot keeps the offset, so the time in which the
//! process was down counts. After a reboot it is not known how long the machine was down, because the wall clock may have
//! been set. So the clock resumes at the last instant in the journal, and windows stay closed at least as long as they
//! must.
//!
//! Invariant: it never goes back, neither when the wall clock is set nor across restarts.

use std::{fs, time::SystemTime};

use admission::Now;
use rustix::time::{ClockId, clock_gettime};

/// The kernel's random id of a boot.
pub(crate) type Boot = [u8; 16];

/// The clock of the embedded store. It never goes back, not even across restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// The boot of the offset; `None` if the kernel does not say. An unknown boot differs from every boot.
    pub(crate) boot: Option<Boot>,
    pub(crate) offset_ms: i64,
}

impl Clock {
    /// The clock that continues the one in a journal, whose last instant was `last_ms`.
    pub(crate) fn resume(kept: Self, last_ms: u64) -> Self {
        kept.resume_in(this_boot(), since_boot_ms(), last_ms)
    }

    fn resume_in(self, boot: Option<Boot>, since_boot_ms: i64, last_ms: u64) -> Self {
        let same_boot = boot.is_some() && boot == self.boot;
        let resumed_ms = i64::try_from(last_ms).unwrap_or(i64::MAX) - since_boot_ms;
        // Even within one boot, a container's time namespace may set the count back.
        Self { boot, offset_ms: if same_boot { self.offset_ms.max(resumed_ms) } else { resumed_ms } }
    }

    /// The present instant.
    #[must_use]
    pub fn now(&self) -> Now {
        let ms = since_boot_ms().saturating_add(self.offset_ms);
        Now { ms: u64::try_from(ms).unwrap_or(0), unix_ms: unix_ms() }
    }
}

/// The wall clock, in milliseconds since 1970: for instants that people, passes and logs read. A new journal's clock starts there, so that
/// its numbers look like dates. No rule relies on it.
#[expect(clippy::disallowed_methods, reason = "this is the store's clock")]
#[must_use]
pub fn unix_ms() -> u64 {
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
    fn within_a_boot_the_down_time_counts() {
        assert_eq!(KEPT.resume_in(KEPT.boot, 70_000, 1_050_000), KEPT);
    }

    #[test]
    fn after_a_reboot_the_clock_resumes_at_the_last_instant() {
        let clock = KEPT.resume_in(Some([2; 16]), 500, 1_050_000);
        assert_eq!(clock.offset_ms + 500, 1_050_000);
        assert_eq!(
            Clock { boot: None, ..KEPT }.resume_in(None, 500, 1_050_000).offset_ms,
            1_049_500,
            "unknown boots differ"
        );
    }

    #[test]
    fn the_clock_stays_when_the_boot_count_goes_back() {
        assert_eq!(KEPT.resume_in(KEPT.boot, 10, 1_050_000).offset_ms + 10, 1_050_000);
    }

    #[test]
    fn this_machine_has_a_clock() {
        let clock = Clock::resume(Clock { boot: None, offset_ms: 0 }, unix_ms());
        let (a, b) = (clock.now(), clock.now());
        assert!(a.ms <= b.ms && a.unix_s() > 1_700_000_000 && a.ms / 1_000 > 1_700_000_000);
        assert_eq!(Clock::resume(clock, b.ms), clock);
    }
}
