//! The changes of the zone, and what each changed.

use std::{collections::BTreeMap, path::Path};

use admission::Definition;
use gate::definitions::definition_json;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{Bilingual, bilingual};
use crate::change_log::PastChange;

/// The most fields that are listed of one change.
const FIELDS_MAX: usize = 40;

/// The changes of the zone, the oldest first.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[schema(as = ReportChanges)]
pub struct Changes {
    /// Where they come from.
    pub source: Bilingual,
    /// The changes.
    pub list: Vec<Change>,
}

/// One change.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[schema(as = ReportChange)]
pub struct Change {
    /// In milliseconds since 1970.
    pub at_ms: u64,
    /// The author; null if it is not known.
    #[schema(required)]
    pub who: Option<String>,
    /// The author's role.
    #[schema(required)]
    pub role: Option<String>,
    /// What changed.
    pub fields: Vec<FieldChange>,
    /// The line of the audit log, if it comes from there.
    #[schema(required)]
    pub line: Option<u64>,
}

/// A field that changed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
pub struct FieldChange {
    /// Its name, as in `events.spring-sale.begins`.
    pub field: String,
    /// Its value before; empty if it had none.
    pub before: String,
    /// Its value after; empty if it has none.
    pub after: String,
}

impl Changes {
    /// Those that a server remembers (the newest first) until `until_ms`, in milliseconds since 1970.
    #[must_use]
    pub fn of_server(remembered: &[PastChange], until_ms: u64) -> Self {
        let source = bilingual!(
            "From the list of recent changes of the server that was asked: at most 200 of all zones, since that server started. It knows \
             the authors of its own changes only. The audit logs of the servers have all of them.",
            "요청을 받은 서버의 최근 변경 목록에서 읽었습니다. 이 목록에는 서버가 시작된 뒤 모든 구역의 변경이 최대 200개 있으며, 변경한 사람은 그 서버에서 한 변경만 압니다. 전체 변경은 각 서버의 감사 로그에 있습니다."
        );
        let change = |PastChange { at_ms, by, before, after, .. }: &PastChange| Change {
            at_ms: *at_ms,
            who: by.as_ref().map(|by| by.name.to_string()),
            role: by.as_ref().map(|by| by.role.as_str().to_owned()),
            fields: fields(&value(before.as_ref()), &value(after.as_ref())),
            line: None,
        };
        let in_time = remembered.iter().rev().filter(|change| change.at_ms <= until_ms);
        Self { source, list: in_time.map(change).collect() }
    }

    /// Those of the audit log in `dir`.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub(super) fn of_audit(dir: &Path, zone: &str, until_ms: u64) -> Result<Self, String> {
        let all = audit::changes(dir, zone).map_err(|fault| fault.to_string())?;
        let change = |change: audit::Change| Change {
            at_ms: change.at_ms,
            fields: fields(&change.before, &change.after),
            who: Some(change.name),
            role: Some(change.role),
            line: Some(change.line),
        };
        let list = all.into_iter().filter(|change| change.at_ms <= until_ms).map(change).collect();
        let source = bilingual!(
            "From the audit log of this server. Changes that were made at other servers are in their logs. `weir audit verify` says \
             whether the log is unchanged.",
            "이 서버의 감사 로그에서 읽었습니다. 다른 서버에서 한 변경은 그 서버의 로그에 있습니다. 로그가 바뀌지 않았는지는 `weir audit verify`로 확인합니다."
        );
        Ok(Self { source, list })
    }
}

/// A definition as the audit log has it; null for none.
fn value(definition: Option<&Definition>) -> Value {
    let text = definition.map(definition_json);
    text.map_or(Value::Null, |text| serde_json::from_str(&text).expect("it was written as JSON"))
}

/// The fields in which two definitions differ.
fn fields(before: &Value, after: &Value) -> Vec<FieldChange> {
    let (before, after) = (flat(before), flat(after));
    let names: std::collections::BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let of = |all: &BTreeMap<String, String>, name: &String| all.get(name).cloned().unwrap_or_default();
    let changed = names.into_iter().filter(|name| before.get(*name) != after.get(*name));
    let change = |name: &String| FieldChange {
        field: name.clone(),
        before: of(&before, name),
        after: of(&after, name),
    };
    changed.take(FIELDS_MAX).map(change).collect()
}

/// The values of a document by their paths. The parts of a list that have an id are named by it.
fn flat(value: &Value) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut open = vec![(String::new(), value)];
    while let Some((path, value)) = open.pop() {
        let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        match value {
            Value::Null => {}
            Value::Object(fields) => open.extend(fields.iter().map(|(name, value)| (below(name), value))),
            Value::Array(list) => {
                let name = |(at, part): (usize, &Value)| {
                    part["id"].as_str().map_or_else(|| at.to_string(), str::to_owned)
                };
                open.extend(list.iter().enumerate().map(|(at, part)| (below(&name((at, part))), part)));
            }
            Value::String(text) => drop(all.insert(path, text.clone())),
            other => drop(all.insert(path, other.to_string())),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use admission::{Policy, ZoneId};
    use serde_json::json;

    use super::*;
    use crate::access::{Caller, Role};

    #[test]
    fn a_change_lists_the_fields_that_differ() {
        let before =
            json!({"policy": {"mode": "auto", "admit_per_minute": 60}, "events": [{"id": "a", "ends": "x"}]});
        let after = json!({"policy": {"mode": "auto", "admit_per_minute": 90}, "events": []});
        let text = |[field, before, after]: [&str; 3]| FieldChange {
            field: field.to_owned(),
            before: before.to_owned(),
            after: after.to_owned(),
        };
        assert_eq!(
            fields(&before, &after),
            [
                text(["events.a.ends", "x", ""]),
                text(["events.a.id", "a", ""]),
                text(["policy.admit_per_minute", "60", "90"]),
            ]
        );
    }

    #[test]
    fn the_remembered_changes_are_listed_as_those_of_the_audit_log() {
        let rate = |admit_per_minute| Some(Policy { admit_per_minute, ..Policy::default() }.into());
        let by = Some(Caller { name: "otto".into(), role: Role::Operator, authenticated: true });
        let zone = || ZoneId::parse("Z").expect("a name");
        let remembered = [
            PastChange { at_ms: 9, by: None, zone: zone(), before: rate(2), after: rate(3) },
            PastChange { at_ms: 8, by: None, zone: zone(), before: rate(1), after: rate(2) },
            PastChange { at_ms: 5, by, zone: zone(), before: None, after: rate(1) },
        ];
        let listed = Changes::of_server(&remembered, 8).list;
        assert_eq!((listed.len(), listed[0].who.as_deref()), (2, Some("otto")));
        let change = &listed[1].fields[..];
        assert!(
            matches!(change, [one] if one.field == "policy.admit_per_minute" && one.after == "2"),
            "{change:?}"
        );
    }
}
