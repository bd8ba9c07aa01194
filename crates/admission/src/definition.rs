//! A zone's definition: the policy, the notice and the events that its operators set.
//!
//! Invariant: two definitions have the same tag only if they are equal, up to a collision of BLAKE3.

use crate::{Field, Notice, Policy, SECOND_FIELDS, Schedule};

/// Everything that operators set for one zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Definition {
    /// How the zone admits.
    pub policy: Policy,
    /// The text for people who wait. No rule reads it.
    pub notice: Notice,
    /// Its events. They say which policy and notice are in force when: [`Definition::policy_at`].
    pub schedule: Schedule,
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
        let fields = self.policy.used_fields(SECOND_FIELDS).enumerate();
        let part = |(index, field): (usize, &Field)| {
            // A later field may follow any other one, so its name has to be there.
            let name = if index < SECOND_FIELDS { String::new() } else { format!("{}=", field.name) };
            name + &field.text(&self.policy)
        };
        let mut text = fields.map(part).collect::<Vec<_>>().join(" ");
        // A tab separates the parts, because neither a language nor a text contains one.
        for (language, notice) in self.notice.iter() {
            text.extend(["\t", language, "\t", notice]);
        }
        for event in self.schedule.events() {
            text.extend(["\t@event\t", &event.text()]);
        }
        let mut tag = blake3::hash(text.as_bytes()).to_hex().to_string();
        tag.truncate(TAG_LEN);
        tag
    }

    /// What is different in `new`, as in `mode auto -> hold`; empty where nothing is.
    #[must_use]
    pub fn changes(&self, new: &Self) -> Vec<String> {
        let pairs = self.policy.fields().into_iter().zip(new.policy.fields());
        let mut changes: Vec<_> = pairs
            .filter(|(old, new)| old != new)
            .map(|((name, old), (_, new))| format!("{name} {old} -> {new}"))
            .collect();
        if self.notice != new.notice {
            changes.push(format!("{} -> {}", self.notice.sentence(), new.notice.sentence()));
        }
        changes.extend(self.schedule.changes(&new.schedule));
        changes
    }
}

impl From<Policy> for Definition {
    fn from(policy: Policy) -> Self {
        Self { policy, ..Self::default() }
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
            ..Definition::default()
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
            Policy { max_waiting: 30, ..policy }.into(),
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

    /// Operators' programs keep tags over an upgrade.
    #[test]
    fn tags_do_not_change_between_versions() {
        let rules = Policy {
            mode: Mode::Hold,
            admit_per_minute: 600,
            sub_windows: 12,
            polling_period_ms: 4_000,
            idle_timeout_s: 61,
            pass_ttl_s: 301,
            on_store_failure: OnStoreFailure::Open,
            ..Policy::default()
        };
        let policy = Policy { waits_per_minute_per_client: 5, entries_per_minute_per_client: 60, ..rules };
        let definition = Definition {
            notice: Notice::new([("en", "a"), ("ko", "안내")]).expect("a notice"),
            ..policy.into()
        };
        assert_eq!(Definition::default().etag(), "a5b8431fdc02ba89b77945af381b4ec1");
        assert_eq!(definition.etag(), "f04ee1ddc8ec68b8b5edd9c617e7869d");
    }
}
