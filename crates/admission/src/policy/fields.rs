//! The table of a policy's fields: name, unit, range, default and help text of each.
//!
//! These read the table: the configuration file, the admin API and its OpenAPI document, the register of a Redis store,
//! events, tags, differences, the page docs/reference/policy.md, and the console's editor. A new field is a field of
//! [`Policy`], a row here, its labels in the console's languages, and the code that gives it its meaning.
//!
//! Invariants:
//! - The rows are the fields of [`Policy`]. The compiler checks it.
//! - A row never moves, because the register keeps values in the order of the rows. A new row comes last.
//! - The fields that [`UsedBy::Rules`] marks are those of POLICY in `lua/zone.lua`, in the same order.

use super::{Mode, OnStoreFailure, Opening, Policy, PolicyFault};
use crate::{InstantFault, instant_text, parse_instant};

/// The number of fields that the first version had. The register and a policy's sentence always contain these fields. They
/// contain a later field only if it has another value than its default.
pub const FIRST_FIELDS: usize = 7;

/// The number of fields that the second version had, which brought tags, digests and `zones.json`. These always contain the
/// fields of that version. A later field is optional there, so an upgrade changes no tag and refuses no file.
pub const SECOND_FIELDS: usize = 9;

/// What a field holds.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A whole number.
    Number {
        /// What is counted: `ms`, `s`, the plural of a noun, or empty.
        unit: &'static str,
        /// The smallest allowed value.
        low: u32,
        /// The largest allowed value.
        high: u32,
        /// A further lower bound, which depends on other fields.
        least: fn(&Policy) -> u32,
        /// Whether the number is a limit that 0 switches off.
        is_optional_limit: bool,
    },
    /// One of several words. A word's number is its index.
    Word {
        /// The name of the type in the OpenAPI document.
        schema: &'static str,
        /// All words.
        words: &'static [&'static str],
    },
    /// An instant, as [`parse_instant`] reads it, or `none`. Its number is the seconds since 1970; 0 for none.
    Instant,
}

/// The text of an instant that is not set.
const NONE: &str = "none";

/// Which code gives a field its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsedBy {
    /// The rules of the line, which exist in this crate and in `lua/zone.lua`. The store receives these fields, and
    /// keeps them in the header of the line.
    Rules,
    /// Servers, before they ask the store.
    Servers,
}

/// One field of a policy.
#[derive(Debug)]
pub struct Field {
    /// The name in configuration files and everywhere else.
    pub name: &'static str,
    /// What the field holds.
    pub kind: Kind,
    /// Which code gives it its meaning.
    pub used_by: UsedBy,
    /// What the field means, as Markdown.
    pub help: &'static str,
    /// The part of the policy's sentence that states the value. `{}` stands for the value.
    phrase: &'static str,
    default: u32,
    get: fn(&Policy) -> u32,
    set: fn(&mut Policy, u32) -> bool,
}

/// The type of a field.
trait Value: Copy + Sized {
    /// The value as a number.
    fn number(self) -> u32;
    /// The value of this number, if there is one.
    fn of(number: u32) -> Option<Self>;
}

impl Value for u32 {
    fn number(self) -> u32 {
        self
    }

    fn of(number: u32) -> Option<Self> {
        Some(number)
    }
}

impl Value for Opening {
    fn number(self) -> u32 {
        self.unix_s
    }

    fn of(number: u32) -> Option<Self> {
        Some(number.into())
    }
}

/// The words of a list of values.
const fn words<T: Copy, const N: usize>(all: [(T, &'static str); N]) -> [&'static str; N] {
    let mut words = [""; N];
    let mut at = 0;
    while at < N {
        words[at] = all[at].1;
        at += 1;
    }
    words
}

macro_rules! words {
    ($($type:ident),*) => {$(
        impl $type {
            const WORDS: &[&str] = &words(Self::ALL);
            const KIND: Kind = Kind::Word { schema: stringify!($type), words: Self::WORDS };
        }

        impl Value for $type {
            fn number(self) -> u32 {
                Self::ALL.iter().zip(0..).find(|((value, _), _)| *value == self).map_or(0, |(_, index)| index)
            }

            fn of(number: u32) -> Option<Self> {
                Some(Self::ALL.get(number as usize)?.0)
            }
        }
    )*};
}

words! { Mode, OnStoreFailure }

const fn number(unit: &'static str, low: u32, high: u32) -> Kind {
    number_at_least(|_| 0, unit, low, high)
}

const fn number_at_least(least: fn(&Policy) -> u32, unit: &'static str, low: u32, high: u32) -> Kind {
    Kind::Number { unit, low, high, least, is_optional_limit: false }
}

/// A limit from `least` to `high`, or 0 for no limit. `least` returns 0 where there is no limit.
const fn optional_limit(least: fn(&Policy) -> u32, unit: &'static str, high: u32) -> Kind {
    Kind::Number { unit, low: 0, high, least, is_optional_limit: true }
}

/// One lost poll must not evict a ticket.
fn three_polls_s(policy: &Policy) -> u32 {
    policy.polling_period_ms.saturating_mul(3).div_ceil(1_000)
}

/// A holder who polls on time must not be refused.
fn polls_a_minute_or_no_limit(policy: &Policy) -> u32 {
    match policy.entries_per_minute_per_client {
        0 => 0,
        _ => 60_000_u32.div_ceil(policy.near_period_ms().max(1)),
    }
}

macro_rules! table {
    ($($field:ident = $default:expr, $kind:expr, $used_by:ident, $phrase:literal, $help:literal;)*) => {
        /// All fields of a policy.
        pub static FIELDS: &[Field] = &[$(Field {
            name: stringify!($field),
            kind: $kind,
            used_by: UsedBy::$used_by,
            help: $help,
            phrase: $phrase,
            default: {
                // The number of a word is its index in the list of all words. A test checks that the enum has the same order.
                const DEFAULT: u32 = $default as u32;
                DEFAULT
            },
            get: |policy| policy.$field.number(),
            set: |policy, number| {
                let value = Value::of(number);
                if let Some(value) = value {
                    policy.$field = value;
                }
                value.is_some()
            },
        }),*];

        /// The number of fields.
        pub const FIELDS_LEN: usize = [$(stringify!($field)),*].len();

        /// The number of fields that the rules use.
        pub const RULE_FIELDS: usize = 0 $(+ matches!(UsedBy::$used_by, UsedBy::Rules) as usize)*;

        impl Default for Policy {
            fn default() -> Self {
                Self { $($field: Value::of($default as u32).expect("a default is a value")),* }
            }
        }

        // Fails to compile if the table and the struct have different fields.
        const _: fn(Policy) = |Policy { $($field: _),* }| {};
    };
}

table! {
    mode = Mode::Auto, Mode::KIND, Rules, "{}",
        "`auto`: the windows decide who enters. `hold`: nobody enters; the line forms and keeps its order. `open`: everybody enters at once; entries are still counted. `closed`: nobody enters and there are no new tickets; existing tickets keep their places.";
    admit_per_minute = 10_000, number("people", 1, 600_000), Rules, ", {} a minute",
        "N: the most people who may enter in any 60 s.";
    sub_windows = 10, number("", 1, 60), Rules, " in {} sub-windows",
        "The number of parts of the minute. While people wait, at most `ceil(N / sub_windows)` enter in any part.";
    polling_period_ms = 3_000, number("ms", 500, 60_000), Rules, ", asked every {} ms",
        "The time between two polls that apps are told to keep while the server is not busy. Near the front it is 3,000 at most.";
    idle_timeout_s = 60, number_at_least(three_polls_s, "s", 10, 3_600), Rules, ", idle after {} s",
        "A ticket whose holder is silent for this long loses its place. At least three polling periods.";
    pass_ttl_s = 300, number("s", 60, 3_600), Rules, ", passes for {} s",
        "How long a pass is valid, and how long a repeated `entry` returns it. A change affects later entries only.";
    on_store_failure = OnStoreFailure::Closed, OnStoreFailure::KIND, Rules, ", {} without a store",
        "While the store does not answer: `closed` admits nobody; `open` admits everybody, without a limit, and counts them.";
    waits_per_minute_per_client = 0, optional_limit(|_| 0, "calls", 600_000), Servers, ", {} waits a minute a client",
        "How many tickets one client address may request in a minute. 0: 3,000 for a public address, counted by each server, and no limit for others.";
    entries_per_minute_per_client = 0, optional_limit(polls_a_minute_or_no_limit, "calls", 600_000), Servers, ", {} entries a minute a client",
        "How many polls one client address may send in a minute. 0 means no limit. A limit is at least the polls of one holder near the front: 60,000 / `polling_period_ms`, or 20 if that is more.";
    max_waiting = 50_000_000, number("people", 1, 100_000_000), Servers, ", at most {} waiting",
        "The most people who may wait. If the line is full, nobody gets a new ticket until there is room. People who enter at once do not count.";
    polling_period_max_ms = 20_000, number("ms", 500, 60_000), Servers, ", asked every {} ms at the most",
        "The longest time between two polls that a busy server tells apps to keep. It counts as a third of `idle_timeout_s` if it is more than that, and as `polling_period_ms` if it is less than that.";
    visit_ttl_s = 3_600, number("s", 60, 86_400), Servers, ", visits for {} s",
        "How long a visit lasts at most, where a proxy asks Weir about each request. Then the visitor waits again.";
    visit_idle_s = 900, number("s", 30, 86_400), Rules, ", idle visits for {} s",
        "How long a visit lasts without a request. It is counted in steps of an eighth, so a visit may end by that much later; its place inside is free up to a third of the time later.";
    max_active = 0, optional_limit(|_| 0, "people", 10_000_000), Rules, ", at most {} inside",
        "The most people who may be inside: those who entered, have not left, and were active within `visit_idle_s`. 0 means no limit, and nobody counts. In the mode `open` people enter beyond it, and are counted. When the limit is set, nobody enters for a minute, in which people who are inside show themselves.";
    opens_at = 0, Kind::Instant, Rules, ", opens at {}",
        "Nobody enters before this instant, by the store's clock; the line forms and keeps its order. People are told how long that is, and those at the front are asked to come at that instant. Written as `2026-12-01T08:00:00Z`, or with a time zone as `2026-12-01T09:00[Europe/Berlin]`. It counts in the mode `auto`.";
}

impl Field {
    /// The field of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        FIELDS.iter().find(|field| field.name == name)
    }

    /// The default value, as a number.
    #[must_use]
    pub fn default(&self) -> u32 {
        self.default
    }

    /// The value in `policy`, as a number.
    #[must_use]
    pub fn number(&self, policy: &Policy) -> u32 {
        (self.get)(policy)
    }

    /// The value in `policy`, as configuration files have it.
    #[must_use]
    pub fn text(&self, policy: &Policy) -> String {
        match (self.kind, self.number(policy)) {
            (Kind::Instant, 0) => NONE.to_owned(),
            (Kind::Instant, unix_s) => instant_text(unix_s),
            (Kind::Number { .. } | Kind::Word { .. }, number) => {
                self.word(policy).map_or_else(|| number.to_string(), str::to_owned)
            }
        }
    }

    /// The value in `policy`, if the field holds a word.
    #[must_use]
    pub fn word(&self, policy: &Policy) -> Option<&'static str> {
        match self.kind {
            Kind::Number { .. } | Kind::Instant => None,
            Kind::Word { words, .. } => words.get(self.number(policy) as usize).copied(),
        }
    }

    /// Changes the value. Returns false, and changes nothing, if the field holds a word and no word has this number. Does not
    /// check the range of a number: [`Policy::check`] does.
    pub fn set(&self, policy: &mut Policy, number: u32) -> bool {
        (self.set)(policy, number)
    }

    /// Changes the value to what this text says: one of the field's words, or an instant.
    ///
    /// # Errors
    /// [`TextFault`] if the text says no value of the field. Nothing is changed then.
    pub fn set_text(&'static self, policy: &mut Policy, text: &str) -> Result<(), TextFault> {
        let number = match self.kind {
            Kind::Number { .. } => None,
            Kind::Word { words, .. } => {
                words.iter().zip(0..).find(|(word, _)| **word == text).map(|(_, at)| at)
            }
            Kind::Instant if text == NONE => Some(0),
            Kind::Instant => Some(parse_instant(text)?),
        };
        if number.is_some_and(|number| self.set(policy, number)) {
            Ok(())
        } else {
            Err(TextFault::Word(self))
        }
    }

    /// The number of bits that hold every allowed value.
    #[must_use]
    pub const fn bits(&self) -> u32 {
        match self.kind {
            Kind::Number { high, .. } => u32::BITS - high.leading_zeros(),
            Kind::Word { words, .. } => usize::BITS - (words.len() - 1).leading_zeros(),
            Kind::Instant => u32::BITS,
        }
    }

    /// The lowest and the highest allowed value in `policy`, if the field holds a number.
    #[must_use]
    pub fn range(&self, policy: &Policy) -> Option<(u32, u32)> {
        match self.kind {
            Kind::Number { low, high, least, .. } => Some((least(policy).max(low), high)),
            Kind::Word { .. } | Kind::Instant => None,
        }
    }
}

/// A text says no value of a field.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TextFault {
    /// The field holds one of several words, and none is this text.
    #[error("is not one of {}", words_of(.0))]
    Word(&'static Field),
    /// The field holds an instant.
    #[error("{}{}", .0, or_none(.0))]
    Instant(#[from] InstantFault),
}

/// The other text of such a field, for somebody who may not have meant an instant.
fn or_none(fault: &InstantFault) -> String {
    if *fault == InstantFault::Form { format!("; or {NONE}") } else { String::new() }
}

/// The words that a field may hold, in a sentence.
fn words_of(field: &Field) -> String {
    match field.kind {
        Kind::Word { words, .. } => words.join(", "),
        Kind::Number { .. } | Kind::Instant => String::new(),
    }
}

impl Policy {
    /// Checks that every number is in its range.
    ///
    /// # Errors
    /// The first [`PolicyFault`], in the order of the fields.
    pub fn check(self) -> Result<Self, PolicyFault> {
        for field in FIELDS {
            let value = field.number(&self);
            if let Some((low, high)) = field.range(&self)
                && !(low..=high).contains(&value)
            {
                return Err(PolicyFault { field: field.name, value, low, high });
            }
        }
        Ok(self)
    }

    /// The first `always` fields, and the later fields that have another value than their default.
    pub fn used_fields(&self, always: usize) -> impl Iterator<Item = &'static Field> {
        let (first, later) = FIELDS.split_at(always);
        first.iter().chain(later.iter().filter(|field| field.number(self) != field.default()))
    }

    /// The policy in a sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        let said = self.used_fields(FIRST_FIELDS);
        said.map(|field| field.phrase.replace("{}", &field.text(self))).collect()
    }

    /// The name and value of each field, as in configuration files, in the order of the table.
    #[must_use]
    pub fn fields(&self) -> [(&'static str, String); FIELDS_LEN] {
        std::array::from_fn(|at| (FIELDS[at].name, FIELDS[at].text(self)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_can_be_set_and_read() {
        let mut policy = Policy::default();
        for (field, at) in FIELDS.iter().zip(0..) {
            let before = policy.fields();
            match field.kind {
                Kind::Number { .. } => assert!(field.set(&mut policy, at + 100)),
                Kind::Word { words, .. } => {
                    assert!(field.set_text(&mut policy, words[words.len() - 1]).is_ok());
                    assert!(
                        field.set_text(&mut policy, "no such word").is_err() && !field.set(&mut policy, 100)
                    );
                }
                Kind::Instant => {
                    assert!(field.set_text(&mut policy, "2026-12-01T08:00:00Z").is_ok());
                    assert!(field.set_text(&mut policy, "at nine").is_err());
                }
            }
            let changed = before.iter().zip(policy.fields()).filter(|(before, after)| **before != *after);
            assert_eq!(changed.map(|(before, _)| before.0).collect::<Vec<_>>(), [field.name]);
            assert_eq!(
                Field::named(field.name).map(|found| found.number(&policy)),
                Some(field.number(&policy))
            );
        }
        let values = policy.fields().map(|(_, value)| value);
        let expected = ["closed", "101", "102", "103", "104", "105", "open", "107", "108", "109", "110"];
        assert_eq!(values[..expected.len()], expected);
        assert_eq!(values[values.len() - 1], "2026-12-01T08:00:00Z");
        assert!(Field::named("colour").is_none());
    }

    /// The table takes a default's number from the enum, and everything else from the list of words.
    #[test]
    fn words_are_in_the_order_of_their_enum() {
        for (index, (mode, _)) in Mode::ALL.into_iter().enumerate() {
            assert_eq!((mode as usize, mode.number() as usize), (index, index));
        }
        for (index, (failure, _)) in OnStoreFailure::ALL.into_iter().enumerate() {
            assert_eq!((failure as usize, failure.number() as usize), (index, index));
        }
    }

    /// The register of a running cluster has the values in this order.
    #[test]
    fn rows_keep_their_index() {
        let names: Vec<_> = FIELDS.iter().map(|field| field.name).collect();
        let first = [
            "mode",
            "admit_per_minute",
            "sub_windows",
            "polling_period_ms",
            "idle_timeout_s",
            "pass_ttl_s",
            "on_store_failure",
            "waits_per_minute_per_client",
            "entries_per_minute_per_client",
            "max_waiting",
            "polling_period_max_ms",
            "visit_ttl_s",
            "visit_idle_s",
            "max_active",
            "opens_at",
        ];
        assert_eq!(names[..first.len()], first);
    }

    #[test]
    fn bits_hold_every_allowed_value() {
        let bits = |name| Field::named(name).map(Field::bits);
        assert_eq!(bits("mode"), Some(2));
        assert_eq!(bits("on_store_failure"), Some(1));
        assert_eq!(bits("sub_windows"), Some(6));
        assert_eq!(bits("admit_per_minute"), Some(20));
    }

    #[test]
    fn later_fields_are_used_unless_they_have_their_default() {
        let names =
            |policy: Policy| policy.used_fields(FIRST_FIELDS).map(|field| field.name).collect::<Vec<_>>();
        let policy = Policy::default();
        assert_eq!(names(policy).len(), FIRST_FIELDS);
        assert_eq!(names(policy).last(), Some(&"on_store_failure"));
        let limited = Policy { entries_per_minute_per_client: 60, ..policy };
        assert_eq!(names(limited)[FIRST_FIELDS..], ["entries_per_minute_per_client"]);
    }

    #[test]
    fn defaults_are_in_their_ranges() {
        let policy = Policy::default();
        assert_eq!(policy.check(), Ok(policy));
        for field in FIELDS {
            assert_eq!(field.default(), field.number(&policy), "{}", field.name);
            assert!(!field.help.is_empty(), "{}", field.name);
        }
    }
}
