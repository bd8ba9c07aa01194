//! A zone's definition: the policy and the notice that its operators set.
//!
//! Invariant: two definitions have the same tag only if they are equal, up to a collision of BLAKE3.

use crate::{Notice, Policy};

/// Everything that operators set for one zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Definition {
    /// How the zone admits.
    pub policy: Policy,
    /// The text for people who wait. No rule reads it.
    pub notice: Notice,
}

/// The length of a tag, in hexadecimal digits.
const TAG_LEN: usize = 32;

impl Definition {
    /// A strong entity tag: 32 hexadecimal digits (128 bits of BLAKE3 over all fields).
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
        // A tab separates the parts, because neither a language nor a text contains one.
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
    fn each_field_changes_the_tag() {
        let policy = Policy::default();
        let with_notice = |texts: &[(&str, &str)]| Definition {
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
            with_notice(&[("en", "a")]),
            with_notice(&[("ko", "a")]),
            with_notice(&[("en", "a"), ("ko", "b")]),
            with_notice(&[("en", "a\nko\nb")]),
            with_notice(&[("en", "b"), ("ko", "a")]),
        ];
        let tags: HashSet<String> = all.iter().map(Definition::etag).collect();
        assert_eq!(tags.len(), all.len());
        assert!(tags.iter().all(|tag| tag.len() == TAG_LEN && tag.bytes().all(|b| b.is_ascii_hexdigit())));
        let [one, other] =
            [[("ko", "b"), ("en", "a")], [("en", "a"), ("ko", "b")]].map(|texts| with_notice(&texts));
        assert_eq!(one.etag(), other.etag());
    }
}
