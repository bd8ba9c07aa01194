//! Zone definitions as operators see them: their text forms, and the code that changes them.
//!
//! The [`ZoneEditor`] changes definitions while a server runs; [`apply`] does so for `weir zones apply`, without a
//! server.

mod apply;
mod change;
mod editor;
mod event_json;
mod overrides;
mod routes;
mod routes_file;

use std::collections::BTreeMap;

use admission::{Definition, FIELDS, Field, FieldKind, Policy, ZoneId};
use serde::{Serialize, Serializer};

pub use apply::{Applied, ApplyOptions, ZoneApplied, apply};
pub use change::{Author, DefineError, DefinitionChange, OnChange};
pub use editor::{RefreshOf, ZoneEditor};
pub use event_json::{EventFault, EventJson};
pub use overrides::OverridesFault;
pub use routes_file::ROUTES_MAX_LEN;

/// The largest number of zones in a file, and of zones that operators may define.
pub const ZONES_MAX: usize = 4_096;

/// A policy in JSON: an object of [`FIELDS`], numbers as numbers, instants as texts or null.
#[derive(Clone, Copy, Debug)]
pub struct PolicyJson<'a>(pub &'a Policy);

impl Serialize for PolicyJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(untagged)]
        enum Value {
            Word(&'static str),
            Number(u32),
            /// An instant, or none.
            Instant(Option<String>),
        }
        let value = |field: &Field| match (field.word(self.0), field.kind) {
            (Some(word), _) => Value::Word(word),
            (None, FieldKind::Instant) => {
                Value::Instant(Some(field.text(self.0)).filter(|_| field.number(self.0) > 0))
            }
            (None, _) => Value::Number(field.number(self.0)),
        };
        serializer.collect_map(FIELDS.iter().map(|field| (field.name, value(field))))
    }
}

/// A policy as a JSON text.
#[must_use]
pub fn policy_json(policy: &Policy) -> String {
    serde_json::to_string(&PolicyJson(policy)).expect("words and numbers are JSON")
}

/// A definition as a JSON text: `policy`, `notice` by language, and `events` if there are any.
#[must_use]
pub fn definition_json(definition: &Definition) -> String {
    #[derive(Serialize)]
    struct DefinitionJson<'a> {
        policy: PolicyJson<'a>,
        notice: BTreeMap<&'a str, &'a str>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        events: Vec<EventJson>,
    }
    let Definition { policy, notice, schedule } = definition;
    let events = schedule.events().iter().map(EventJson::from).collect();
    let json = DefinitionJson { policy: PolicyJson(policy), notice: notice.iter().collect(), events };
    serde_json::to_string(&json).expect("texts and numbers are JSON")
}

/// A definition in a sentence.
#[must_use]
pub fn sentence(definition: &Definition) -> String {
    let mut said = definition.policy.sentence();
    if !definition.notice.is_empty() {
        said.extend([", ", &definition.notice.sentence()]);
    }
    said
}

/// How the zones of a file differ from the zones that a store keeps; empty where they do not.
#[must_use]
pub fn differences(file: &[(ZoneId, Definition)], kept: &[(ZoneId, Definition)]) -> Vec<String> {
    let differs = |(zone, policy): &(ZoneId, Definition)| match kept.iter().find(|(other, _)| other == zone) {
        None => Some(format!("{zone} is not in the store")),
        Some((_, other)) if other == policy => None,
        Some((_, other)) => Some(format!("{zone} has {} in the file", other.changes(policy).join(", "))),
    };
    file.iter().filter_map(differs).collect()
}

#[cfg(test)]
mod tests {
    use admission::Notice;

    use super::*;

    /// Audit logs, zones.json and the replies of the admin API have this text, which other programs read.
    #[test]
    fn the_text_of_a_definition_does_not_change_between_versions() {
        let rules = Policy {
            mode: admission::Mode::Hold,
            admit_per_minute: 600,
            sub_windows: 12,
            polling_period_ms: 4_000,
            idle_timeout_s: 61,
            pass_ttl_s: 301,
            on_store_failure: admission::OnStoreFailure::Open,
            ..Policy::default()
        };
        let policy = Policy { waits_per_minute_per_client: 5, entries_per_minute_per_client: 60, ..rules };
        let definition = Definition {
            notice: Notice::new([("en", "a"), ("ko", "안내")]).expect("a notice"),
            ..policy.into()
        };
        assert_eq!(
            definition_json(&Definition::default()),
            r#"{"policy":{"mode":"auto","admit_per_minute":10000,"sub_windows":10,"polling_period_ms":3000,"#
                .to_owned()
                + r#""idle_timeout_s":60,"pass_ttl_s":300,"on_store_failure":"closed","waits_per_minute_per_client":0,"#
                + r#""entries_per_minute_per_client":0,"max_waiting":50000000,"polling_period_max_ms":20000,"#
                + r#""visit_ttl_s":3600,"visit_idle_s":900,"max_active":0,"opens_at":null},"notice":{}}"#
        );
        assert_eq!(
            definition_json(&definition),
            r#"{"policy":{"mode":"hold","admit_per_minute":600,"sub_windows":12,"polling_period_ms":4000,"#
                .to_owned()
                + r#""idle_timeout_s":61,"pass_ttl_s":301,"on_store_failure":"open","waits_per_minute_per_client":5,"#
                + r#""entries_per_minute_per_client":60,"max_waiting":50000000,"polling_period_max_ms":20000,"#
                + r#""visit_ttl_s":3600,"visit_idle_s":900,"max_active":0,"opens_at":null},"notice":{"en":"a","ko":"안내"}}"#
        );
        assert_eq!(
            sentence(&Definition::default()),
            "auto, 10000 a minute in 10 sub-windows, asked every 3000 ms, idle after 60 s, passes for 300 s, \
             closed without a store"
        );
        assert_eq!(
            sentence(&definition),
            "hold, 600 a minute in 12 sub-windows, asked every 4000 ms, idle after 61 s, passes for 301 s, \
             open without a store, 5 waits a minute a client, 60 entries a minute a client, a notice in en, ko"
        );
        let only_entries = Policy { waits_per_minute_per_client: 0, ..policy };
        assert!(sentence(&only_entries.into()).ends_with("without a store, 60 entries a minute a client"));
        assert_eq!(
            Definition::default().changes(&definition),
            [
                "mode auto -> hold",
                "admit_per_minute 10000 -> 600",
                "sub_windows 10 -> 12",
                "polling_period_ms 3000 -> 4000",
                "idle_timeout_s 60 -> 61",
                "pass_ttl_s 300 -> 301",
                "on_store_failure closed -> open",
                "waits_per_minute_per_client 0 -> 5",
                "entries_per_minute_per_client 0 -> 60",
                "no notice -> a notice in en, ko",
            ]
        );
    }
}
