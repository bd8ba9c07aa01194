//! A zone as its operators define it: its policy, and what they tell those who wait.
//!
//! Invariant: two definitions have the same tag only if they are equal, up to a collision of BLAKE3.

use crate::{Notice, Policy};

/// What operators define of a zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Definition {
    /// How it admits.
    pub policy: Policy,
    /// What those who wait are told. No rule reads it.
    pub notice: Notice,
}

/// Digits of a tag.
const TAG_LEN: usize = 32;

impl Definition {
    /// A strong tag of what is defined: 32 hexadecimal digits (128 bits of BLAKE3 over a text of all fields).
    ///
    /// # Examples
    /// ```
    /// use admission::{Definition, Policy};
    /// let one = Definition::default();
    /// let other = Definition::from(Policy { admit_per_minute: 1, ..Policy::default() });
    /// assert_eq!(one.etag(), Definition::default().etag());
    /// assert_ne!(one.etag(), other.etag());
    /// ```
    #[must_use]
    pub fn etag(&self) -> String {
        let mut text = self.policy.fields().map(|(_, value)| value).join(" ");
        // Neither languages nor texts have tabs in them.
        for (language, notice) in self.notice.iter() {
            text.extend(["\t", language, "\t", notice]);
        }
        let mut tag = blake3::hash(text.as_bytes()).to_hex().to_string();
        tag.truncate(TAG_LEN);
        tag
    }
}

impl From<Policy> for Definition {
    fn from(policy: Policy) -> Self {
        Self { policy, notice: Notice::default() }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::{Mode, OnStoreFailure};

    #[test]
    fn every_field_counts_in_the_tag() {
        let policy = Policy::default();
        let said = |texts: &[(&str, &str)]| Definition {
            policy,
            notice: Notice::new(texts.iter().copied()).expect("a notice"),
        };
        let all = [
            policy.into(),
            Policy { mode: Mode::Closed, ..policy }.into(),
            Policy { admit_per_minute: 1, ..policy }.into(),
            Policy { sub_windows: 1, ..policy }.into(),
            Policy { polling_period_ms: 1_000, ..policy }.into(),
            Policy { idle_timeout_s: 61, ..policy }.into(),
            Policy { pass_ttl_s: 301, ..policy }.into(),
            Policy { on_store_failure: OnStoreFailure::Open, ..policy }.into(),
            Policy { waits_per_minute_per_client: 1, ..policy }.into(),
            Policy { entries_per_minute_per_client: 30, ..policy }.into(),
            said(&[("en", "a")]),
            said(&[("ko", "a")]),
            said(&[("en", "a"), ("ko", "b")]),
            said(&[("en", "a\nko\nb")]),
            said(&[("en", "b"), ("ko", "a")]),
        ];
        let tags: HashSet<String> = all.iter().map(Definition::etag).collect();
        assert_eq!(tags.len(), all.len());
        assert!(tags.iter().all(|tag| tag.len() == TAG_LEN && tag.bytes().all(|b| b.is_ascii_hexdigit())));
        assert_eq!(said(&[("ko", "b"), ("en", "a")]).etag(), said(&[("en", "a"), ("ko", "b")]).etag());
    }
}
