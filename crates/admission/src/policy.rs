//! The name of a zone and its policy.
//!
//! Invariant: after [`Policy::check`] every number is in its range, and the numbers fit each other. The rules are tested
//! for exactly these ranges.

mod fields;

use std::{fmt, sync::Arc};

use crate::{LastDeal, segment::IDLE_AGE};

pub use fields::{
    FIELDS, FIELDS_LEN, FIRST_FIELDS, Field, Kind as FieldKind, RULE_FIELDS, SECOND_FIELDS, TextFault,
    UsedBy as FieldUsedBy,
};

/// The name of a zone: 1 to 64 characters of `A-Z a-z 0-9 _ . : -`. Not `.` or `..`, which clients cut out of addresses. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ZoneId(Arc<str>);

/// The text is not a valid zone name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a zone's id is 1 to 64 of A-Z a-z 0-9 _ . : -, and neither . nor ..")]
pub struct ZoneIdFault;

impl ZoneId {
    /// The longest name, in bytes.
    pub const MAX_LEN: usize = 64;

    /// Parses a name.
    ///
    /// # Errors
    /// [`ZoneIdFault`] if the text is empty, too long, has other characters, or is `.` or `..`.
    pub fn parse(text: &str) -> Result<Self, ZoneIdFault> {
        let fits = (1..=Self::MAX_LEN).contains(&text.len());
        let right = |b: u8| b.is_ascii_alphanumeric() || b"_.:-".contains(&b);
        let is_step = matches!(text, "." | "..");
        if fits && !is_step && text.bytes().all(right) { Ok(Self(text.into())) } else { Err(ZoneIdFault) }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ZoneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::borrow::Borrow<str> for ZoneId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// Who may enter a zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// As many people as the windows allow.
    #[default]
    Auto,
    /// Nobody. The line forms and keeps its order.
    Hold,
    /// Everybody at once. The windows do not limit entries, but still count them.
    Open,
    /// Nobody, and no tickets are issued. People in the line keep their place.
    Closed,
}

impl Mode {
    /// All modes with their names in configuration files.
    pub const ALL: [(Self, &'static str); 4] =
        [(Self::Auto, "auto"), (Self::Hold, "hold"), (Self::Open, "open"), (Self::Closed, "closed")];

    /// The mode's name in configuration files.
    #[must_use]
    pub fn word(self) -> &'static str {
        word(&Self::ALL, self)
    }

    /// Whether nobody enters in this mode.
    #[must_use]
    pub fn keeps_out(self) -> bool {
        matches!(self, Self::Hold | Self::Closed)
    }
}

/// The name of a value in a list of all values.
fn word<T: PartialEq>(all: &[(T, &'static str)], value: T) -> &'static str {
    all.iter().find(|(known, _)| *known == value).map_or("", |(_, word)| word)
}

/// What a server does for a zone whose store does not answer. No rule reads it, because the rules run in the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnStoreFailure {
    /// Nobody enters. People in the line keep their place.
    #[default]
    Closed,
    /// Everybody enters, and is counted.
    Open,
}

impl OnStoreFailure {
    /// Both values with their names in configuration files.
    pub const ALL: [(Self, &'static str); 2] = [(Self::Closed, "closed"), (Self::Open, "open")];

    /// The value's name in configuration files.
    #[must_use]
    pub fn word(self) -> &'static str {
        word(&Self::ALL, self)
    }
}

/// How a zone admits. [`FIELDS`] has the range, default and help text of each field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Who may enter.
    pub mode: Mode,
    /// N: the most entries in any 60 s.
    pub admit_per_minute: u32,
    /// The number of sub-windows of the minute. While people wait, at most `ceil(N / sub_windows)` enter in any
    /// `60 s / sub_windows`.
    pub sub_windows: u32,
    /// How often a waiting app polls, in milliseconds.
    pub polling_period_ms: u32,
    /// The silence after which a ticket is evicted, in seconds. At least three polling periods, so that one lost poll does
    /// not evict it.
    pub idle_timeout_s: u32,
    /// How long a pass is valid, in seconds. A repeated entry returns the same pass for that long. At least 60, because the
    /// remembered entries also rebuild the 60 s window after a restart.
    pub pass_ttl_s: u32,
    /// What happens while the store does not answer.
    pub on_store_failure: OnStoreFailure,
    /// How many tickets one client address may request per minute; 0 leaves it to the servers. No rule reads this field or the next
    /// one: servers check them before they ask the store.
    pub waits_per_minute_per_client: u32,
    /// How many polls and claims one client address may send per minute; 0 means no limit. A limit must allow one holder
    /// to poll as often as the polling period asks.
    pub entries_per_minute_per_client: u32,
    /// The most people who may wait. Servers check it before they ask the store.
    pub max_waiting: u32,
    /// The longest polling period that a busy server tells; see [`Policy::period_limit_ms`].
    pub polling_period_max_ms: u32,
    /// How long a visit lasts at most, in seconds. Servers check it, where proxies ask them.
    pub visit_ttl_s: u32,
    /// The inactivity after which a visit ends, in seconds.
    pub visit_idle_s: u32,
    /// The most people who may be inside; 0 for no limit.
    pub max_active: u32,
    /// Nobody enters before this instant.
    pub opens_at: Opening,
}

/// When a zone opens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Opening {
    /// Seconds since 1970-01-01 UTC by the store's wall clock; 0 if it is not closed until an instant.
    pub unix_s: u32,
    /// The draw that decides the order, which nobody enters before; 0 for none. See [`LastDeal`](crate::LastDeal). Only an event has one.
    pub draw: u32,
}

impl From<u32> for Opening {
    fn from(unix_s: u32) -> Self {
        Self { unix_s, draw: 0 }
    }
}

impl Opening {
    /// The wall clock when a zone's clock shows `now_ms`, in milliseconds since 1970: by the clock that put the opening at `opens_ms`.
    /// None without an opening.
    #[must_use]
    pub fn unix_ms(self, opens_ms: u64, now_ms: u64) -> Option<u64> {
        let is_set = self.unix_s > 0 && opens_ms > 0;
        is_set.then(|| (u64::from(self.unix_s) * 1_000 + now_ms).saturating_sub(opens_ms))
    }

    /// The instant in milliseconds on a clock that shows `now.ms` now; 0 for none. It is computed once, when the policy comes into
    /// force, so a wall clock that is set later neither opens a zone early nor keeps it closed.
    #[must_use]
    pub fn on_clock(self, now: crate::Now) -> u64 {
        match self.unix_s {
            0 => 0,
            unix_s => (u64::from(unix_s) * 1_000 + now.ms).saturating_sub(now.unix_ms).max(1),
        }
    }
}

/// A number of a policy is out of its range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {value}, and must be {low} to {high}")]
pub struct PolicyFault {
    /// The field's name in configuration files.
    pub field: &'static str,
    /// The value.
    pub value: u32,
    /// The smallest allowed value.
    pub low: u32,
    /// The largest allowed value.
    pub high: u32,
}

/// The longest period that people who approach the front are told, in milliseconds.
const NEAR_PERIOD_MS: u32 = 3_000;

/// The longest period of those who are next to enter while nobody more may be inside, in milliseconds. So the slot of somebody who
/// leaves is used within a second.
const FULL_POLL_MS: u32 = 500;

/// How long before the slot the front's last but one poll should come, in milliseconds.
pub(crate) const LAST_STEP_MS: u64 = 700;

/// How long nobody enters a zone whose visitors are not known, in milliseconds. Visitors who are active show themselves in that
/// time.
pub const BLIND_MS: u64 = 60_000;

/// The grace time after two polling periods, in milliseconds.
pub(crate) const GRACE_MS: u64 = 500;

/// After this time, in milliseconds, everybody who waits has heard a change of the period: who was told `period_ms` by a view that
/// is 3 s old, and lost one poll.
#[must_use]
pub(crate) fn warning_ms(period_ms: u32) -> u64 {
    2 * u64::from(period_ms) + GRACE_MS + 3_000
}

/// The longest period that people may keep to who were told the near one, in milliseconds, where nobody keeps to a longer period
/// than `longest_period_ms`. Not shorter after a change of the policy, because they may have been told it before.
#[must_use]
pub(crate) fn longest_near_period_ms(longest_period_ms: u32) -> u32 {
    longest_period_ms.min(NEAR_PERIOD_MS)
}

impl Policy {
    /// The mode in force in a line that was dealt last by `drawn`. A zone whose policy names a draw is held until the line is dealt by it.
    #[must_use]
    pub fn mode_after(&self, drawn: LastDeal) -> Mode {
        match self.mode {
            Mode::Auto if self.opens_at.draw != 0 && self.opens_at.draw != drawn.draw => Mode::Hold,
            mode => mode,
        }
    }

    /// This policy, with the fields of `other` that servers use themselves. A store's line has only those that the rules use.
    #[must_use]
    pub fn with_limits_of(mut self, other: &Self) -> Self {
        for field in FIELDS.iter().filter(|field| field.used_by == FieldUsedBy::Servers) {
            field.set(&mut self, field.number(other));
        }
        self
    }

    /// The length of a sub-window, in milliseconds.
    #[must_use]
    pub fn sub_window_ms(&self) -> u64 {
        60_000 / u64::from(self.sub_windows)
    }

    /// The most entries in any sub-window while people wait.
    #[must_use]
    pub fn admit_per_sub_window(&self) -> u32 {
        self.admit_per_minute.div_ceil(self.sub_windows)
    }

    /// The length of a presence generation, in milliseconds: a twelfth of the idle time.
    #[must_use]
    pub fn generation_ms(&self) -> u64 {
        u64::from(self.idle_timeout_s) * 1_000 / 12
    }

    /// The most present tickets in the front: one and a half sub-windows' worth, but at least 16.
    #[must_use]
    pub fn front_len(&self) -> u32 {
        self.admit_per_sub_window().saturating_mul(3).div_ceil(2).max(16)
    }

    /// The polling period of people who approach the front, in milliseconds: 3 s at most.
    #[must_use]
    pub fn near_period_ms(&self) -> u32 {
        self.polling_period_ms.min(NEAR_PERIOD_MS)
    }

    /// How often those ask who are next to enter while nobody more may be inside, in milliseconds.
    #[must_use]
    pub(crate) fn full_period_ms(&self) -> u32 {
        FULL_POLL_MS.min(self.near_period_ms())
    }

    /// What contradicts itself in this policy, though each field is right: a person who asks when told to is refused.
    #[must_use]
    pub fn contradiction(&self) -> Option<String> {
        let (limit, max_active) = (self.entries_per_minute_per_client, self.max_active);
        let period_ms = self.full_period_ms().max(1);
        let calls = 60_000_u32.div_ceil(period_ms);
        if limit == 0 {
            return None;
        }
        if max_active > 0 && limit < calls {
            return Some(format!(
                "entries_per_minute_per_client = {limit} is too low with max_active = {max_active}: while the zone is full, each person \
                 at the front is told to ask every {period_ms} ms, and gets 429 after {limit} calls in a minute; allow {calls} for \
                 each person behind one address, or 0 for no limit"
            ));
        }
        let (calls, sub_windows) = (self.calls_at_the_front(), self.sub_windows);
        (limit < calls).then(|| {
            format!(
                "entries_per_minute_per_client = {limit} is low with sub_windows = {sub_windows}: if people who were away return to places \
                 before somebody at the front, that person is told to ask up to {calls} times in a minute, and gets 429 after {limit} \
                 calls; allow {calls} for each person behind one address, or 0 for no limit"
            )
        })
    }

    /// The most calls in a minute that somebody at the front of a zone with room is told to make: each sub-window, those who return
    /// take the slot, and the next one is a sub-window away. The steps to a slot are those of `ask_again_in`, for somebody who is
    /// never late.
    fn calls_at_the_front(&self) -> u32 {
        let (near_ms, mut wait_ms) = (u64::from(self.near_period_ms().max(1)), self.sub_window_ms());
        let mut steps = 0_u32;
        while wait_ms > 0 {
            let step_ms = match wait_ms {
                ms if ms > near_ms + LAST_STEP_MS => near_ms,
                ms if ms > 2 * LAST_STEP_MS => near_ms.min(ms - LAST_STEP_MS),
                ms => near_ms.min(ms),
            };
            (steps, wait_ms) = (steps + 1, wait_ms - step_ms);
        }
        steps * self.sub_windows
    }

    /// No server tells a longer polling period than this, in milliseconds. Two lost polls do not evict a ticket.
    #[must_use]
    pub fn period_limit_ms(&self) -> u32 {
        let third_ms = self.idle_timeout_s.saturating_mul(1_000) / 3;
        self.polling_period_max_ms.min(third_ms).max(self.polling_period_ms)
    }

    /// A ticket belongs to the front if its slot becomes free within this time, in milliseconds.
    ///
    /// A holder may be told a whole near period by a view that is a second old, and may keep it only to a tenth. This
    /// time still leaves that holder one poll before the slot becomes free, and time for a last short step.
    #[must_use]
    pub fn front_ms(&self) -> u64 {
        u64::from(self.near_period_ms()) * 5 / 4 + 2_000
    }

    /// The highest age (see the module `segment`) at which somebody is present who was told `period_ms`: whoever polls every
    /// period has polled within the last two and a grace time.
    #[must_use]
    pub fn present_age(&self, period_ms: u32) -> u64 {
        (u64::from(period_ms) * 2 + GRACE_MS).div_ceil(self.generation_ms()).min(IDLE_AGE - 1)
    }

    /// How many present people approach the front or belong to it: as many as get slots until a person at the end of the approach,
    /// who has just been told the near period instead of `longest_period_ms`, is known to be here or to have left before the front comes.
    #[must_use]
    pub(crate) fn approach_len(&self, longest_period_ms: u32) -> u64 {
        let near_age = self.present_age(longest_near_period_ms(longest_period_ms));
        let near_ms = self.front_ms() + (near_age + 1) * self.generation_ms();
        // The marks of the approach are made each quarter of the warning time.
        let ms = near_ms + warning_ms(longest_period_ms) * 5 / 4;
        u64::from(self.front_len()).max(u64::from(self.admit_per_minute) * ms / 60_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// While a zone is full, its front asks twice a second. A limit of calls below that refuses people who do as told.
    #[test]
    fn a_limit_below_what_the_front_is_told_is_a_contradiction() {
        let with = |max_active, entries_per_minute_per_client| {
            let policy = Policy { max_active, entries_per_minute_per_client, ..Policy::default() };
            policy.check().expect("each field is right").contradiction()
        };
        assert_eq!([with(0, 30), with(1, 0), with(1, 120)], [None, None, None]);
        let told = with(1, 119).expect("a contradiction");
        for part in ["entries_per_minute_per_client = 119", "max_active = 1", "every 500 ms", "allow 120"] {
            assert!(told.contains(part), "{told}");
        }
    }

    /// In a plain zone, people who return may take each slot before somebody at the front.
    #[test]
    fn a_limit_below_the_steps_to_a_slot_each_sub_window_is_a_contradiction() {
        let least = |sub_windows, polling_period_ms| {
            let with = |entries_per_minute_per_client| {
                let policy = Policy {
                    sub_windows,
                    polling_period_ms,
                    entries_per_minute_per_client,
                    ..Policy::default()
                };
                policy.contradiction()
            };
            (1..=600).find(|limit| with(*limit).is_none()).expect("a limit that is enough")
        };
        // 6 s: 3 s, 2.3 s and 0.7 s. 1 s: at once the last step. 60 s: nineteen times 3 s, 2.3 s and 0.7 s.
        assert_eq!([least(10, 3_000), least(60, 3_000), least(1, 20_000)], [30, 60, 21]);
        assert_eq!(least(10, 1_000), 60);
        let told = Policy { entries_per_minute_per_client: 20, ..Policy::default() }.contradiction();
        let told = told.expect("the least limit that is allowed");
        for part in ["entries_per_minute_per_client = 20", "sub_windows = 10", "allow 30"] {
            assert!(told.contains(part), "{told}");
        }
    }

    #[test]
    fn each_range_is_checked() {
        assert_eq!(Policy::default().check(), Ok(Policy::default()));
        let fault = |change: fn(&mut Policy)| {
            let mut policy = Policy::default();
            change(&mut policy);
            policy.check().expect_err("out of range").field
        };
        assert_eq!(fault(|p| p.admit_per_minute = 0), "admit_per_minute");
        assert_eq!(fault(|p| p.admit_per_minute = u32::MAX), "admit_per_minute");
        assert_eq!(fault(|p| p.sub_windows = 61), "sub_windows");
        assert_eq!(fault(|p| p.polling_period_ms = 499), "polling_period_ms");
        assert_eq!(fault(|p| p.idle_timeout_s = 9), "idle_timeout_s");
        assert_eq!(fault(|p| p.pass_ttl_s = 59), "pass_ttl_s");
        let slow = Policy { polling_period_ms: 30_000, ..Policy::default() };
        assert_eq!(slow.check().expect_err("one lost poll would evict").low, 90);
        assert_eq!(fault(|p| p.waits_per_minute_per_client = 600_001), "waits_per_minute_per_client");
        assert_eq!(fault(|p| p.entries_per_minute_per_client = 600_001), "entries_per_minute_per_client");
        assert_eq!(fault(|p| p.max_waiting = 0), "max_waiting");
        assert_eq!(fault(|p| p.polling_period_max_ms = 60_001), "polling_period_max_ms");
        assert_eq!(fault(|p| p.visit_ttl_s = 59), "visit_ttl_s");
        assert_eq!(fault(|p| p.visit_idle_s = 29), "visit_idle_s");
        let tight = Policy { entries_per_minute_per_client: 19, ..Policy::default() };
        assert_eq!(tight.check().expect_err("a holder who polls as asked would be refused").low, 20);
        assert!(Policy { entries_per_minute_per_client: 20, ..Policy::default() }.check().is_ok());
    }

    #[test]
    fn the_longest_period_fits_the_others() {
        let longest_ms = |change: fn(&mut Policy)| {
            let mut policy = Policy::default();
            change(&mut policy);
            policy.period_limit_ms()
        };
        assert_eq!(longest_ms(|_| ()), 20_000);
        assert_eq!(longest_ms(|p| p.polling_period_max_ms = 8_000), 8_000);
        assert_eq!(longest_ms(|p| p.idle_timeout_s = 30), 10_000, "two lost polls do not evict");
        assert_eq!(
            longest_ms(|p| p.polling_period_max_ms = 1_000),
            3_000,
            "not below the period that is wished for"
        );
        assert_eq!(longest_ms(|p| p.polling_period_ms = 20_000), 20_000);
    }

    #[test]
    fn zone_names_have_simple_characters() {
        assert!(ZoneId::parse("TEST_ZONE").is_ok() && ZoneId::parse("a.b:c-d").is_ok());
        assert!(ZoneId::parse(&"x".repeat(64)).is_ok());
        for bad in ["", "a b", "ö", "a/b", &"x".repeat(65)] {
            assert_eq!(ZoneId::parse(bad), Err(ZoneIdFault), "{bad:?}");
        }
    }
}
