//! The changes of the zone, and what each changed.

use std::{collections::BTreeMap, path::Path};

use serde::Serialize;
use serde_json::Value;

use super::{Said, said};

/// The most fields that are listed of one change.
const FIELDS_MAX: usize = 40;

/// The changes, the oldest first.
#[derive(Serialize)]
pub(super) struct Changes {
    /// Where they come from.
    pub(super) source: Said,
    pub(super) list: Vec<Change>,
}

/// One change.
#[derive(Serialize)]
pub(super) struct Change {
    /// In milliseconds since 1970.
    pub(super) at_ms: u64,
    /// The author; null if it is not known.
    pub(super) who: Option<String>,
    pub(super) role: Option<String>,
    /// What changed: the field, the value before, and the value after.
    pub(super) fields: Vec<(String, String, String)>,
    /// The line of the audit log, if it comes from there.
    pub(super) line: Option<u64>,
}

/// Those of the audit log in `dir`.
///
/// # Errors
/// Why it cannot be read.
pub(super) fn of_audit(dir: &Path, zone: &str, until_ms: u64) -> Result<Changes, String> {
    let all = audit::changes(dir, zone).map_err(|fault| fault.to_string())?;
    let change = |change: audit::Change| Change {
        at_ms: change.at_ms,
        fields: fields(&change.before, &change.after),
        who: Some(change.name),
        role: Some(change.role),
        line: Some(change.line),
    };
    let list = all.into_iter().filter(|change| change.at_ms <= until_ms).map(change).collect();
    let source = said!(
        "From the audit log of this server. Changes that were made at other servers are in their logs. `weir audit verify` says whether the \
         log is unchanged.",
        "이 서버의 감사 로그에서 읽었습니다. 다른 서버에서 한 변경은 그 서버의 로그에 있습니다. 로그가 바뀌지 않았는지는 `weir audit verify`로 확인합니다."
    );
    Ok(Changes { source, list })
}

/// Those that the server remembers: its reply, the newest first.
pub(super) fn of_server(reply: &Value, until_ms: u64) -> Changes {
    let all = reply["changes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let change = |change: &Value| {
        Some(Change {
            at_ms: change["at"].as_u64().filter(|at_ms| *at_ms <= until_ms)?,
            who: text(&change["who"]),
            role: text(&change["role"]),
            fields: fields(&change["before"], &change["after"]),
            line: None,
        })
    };
    let source = said!(
        "From the list of recent changes of the server that was asked: at most 200 of all zones, since that server started. It knows the \
         authors of its own changes only. The audit logs of the servers have all of them.",
        "요청을 받은 서버의 최근 변경 목록에서 읽었습니다. 이 목록에는 서버가 시작된 뒤 모든 구역의 변경이 최대 200개 있으며, 변경한 사람은 그 서버에서 한 변경만 압니다. 전체 변경은 각 서버의 감사 로그에 있습니다."
    );
    Changes { source, list: all.iter().rev().filter_map(change).collect() }
}

/// The fields in which two definitions differ.
fn fields(before: &Value, after: &Value) -> Vec<(String, String, String)> {
    let (before, after) = (flat(before), flat(after));
    let names: std::collections::BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let of = |all: &BTreeMap<String, String>, name: &String| all.get(name).cloned().unwrap_or_default();
    let changed = names.into_iter().filter(|name| before.get(*name) != after.get(*name));
    changed.take(FIELDS_MAX).map(|name| (name.clone(), of(&before, name), of(&after, name))).collect()
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
    use serde_json::json;

    use super::*;

    #[test]
    fn a_change_lists_the_fields_that_differ() {
        let before =
            json!({"policy": {"mode": "auto", "admit_per_minute": 60}, "events": [{"id": "a", "ends": "x"}]});
        let after = json!({"policy": {"mode": "auto", "admit_per_minute": 90}, "events": []});
        let text = |texts: [&str; 3]| (texts[0].to_owned(), texts[1].to_owned(), texts[2].to_owned());
        assert_eq!(
            fields(&before, &after),
            [
                text(["events.a.ends", "x", ""]),
                text(["events.a.id", "a", ""]),
                text(["policy.admit_per_minute", "60", "90"]),
            ]
        );
        let listed = of_server(
            &json!({"changes": [{"at": 9, "before": before, "after": after, "who": null}, {"at": 5, "who": "otto"}]}),
            8,
        );
        assert_eq!((listed.list.len(), listed.list[0].who.as_deref()), (1, Some("otto")));
    }
}
