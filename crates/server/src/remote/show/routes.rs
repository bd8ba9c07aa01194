//! Routes, their changes, and which one decides.

use serde_json::Value;

use super::{Style, list, table, text};

/// The routes in the order in which they decide, with their counts.
pub(in crate::remote) fn routes(reply: &Value, style: Style) -> String {
    let heading = ["ROUTE", "FROM", "LET THROUGH", "WAITED", "DENIED", "REFUSED", "RULE"];
    let row = |served: &Value| {
        let checks = &served["checks"];
        let count =
            |names: &[&str]| names.iter().filter_map(|name| checks[name].as_u64()).sum::<u64>().to_string();
        vec![
            text(&served["route"]["name"]),
            text(&served["source"]),
            count(&["through", "visit", "entered"]),
            count(&["waits"]),
            count(&["denied"]),
            count(&["refused"]),
            rule(&served["route"]),
        ]
    };
    table(&heading, list(&reply["routes"]).iter().map(row).collect(), style)
}

/// What a route does, and when: all its fields but the name.
fn rule(route: &Value) -> String {
    let all = route.as_object().into_iter().flatten().filter(|(name, _)| *name != "name");
    let field = |(name, value): (&String, &Value)| match value {
        Value::Bool(true) => name.clone(),
        Value::Array(texts) => {
            format!("{name}={}", texts.iter().map(text).collect::<Vec<_>>().join(","))
        }
        other => format!("{name}={}", text(other)),
    };
    let (outcome, conditions): (Vec<_>, Vec<_>) =
        all.partition(|(name, _)| matches!(name.as_str(), "zone" | "bypass" | "deny"));
    outcome.into_iter().chain(conditions).map(field).collect::<Vec<_>>().join(" ")
}

/// The effect of a change of the routes, or of a dry run.
pub(in crate::remote) fn routes_change(reply: &Value) -> String {
    let lines = |name: &str| {
        let line = |route: &Value| format!("{}: {}\n", text(&route["name"]), rule(route));
        list(&reply[name]).iter().map(line).collect::<Vec<_>>()
    };
    let (old, new) = (lines("before"), lines("after"));
    let verb = if reply["dry_run"] == true { "would be" } else { "were" };
    if old == new {
        return format!("the routes {verb} left unchanged\n");
    }
    let removed = old.iter().filter(|line| !new.contains(line)).map(|line| format!("- {line}"));
    let added = new.iter().filter(|line| !old.contains(line)).map(|line| format!("+ {line}"));
    let lines: String = removed.chain(added).collect();
    let order = if lines.is_empty() { "in another order\n" } else { "" };
    format!("the routes {verb} changed:\n{lines}{order}")
}

/// Which route decides, and why.
pub(in crate::remote) fn explanation(reply: &Value) -> String {
    let path = reply["path"].as_str().map(|_| format!("the path counts as {}\n", text(&reply["path"])));
    path.into_iter().chain(list(&reply["lines"]).iter().map(|line| text(line) + "\n")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PLAIN: Style = Style { pretty: false, colour: true };

    #[test]
    fn routes_are_shown_with_their_counts_and_changes() {
        let abuse = json!({"name": "abuse", "deny": true, "address": ["10.0.0.1/32", "10.0.0.2/32"]});
        let staff = json!({"name": "staff", "bypass": true, "header": {"x-staff": {"secret": true}}});
        let checks = json!({"through": 1, "visit": 2, "entered": 3, "waits": 4, "denied": 5, "refused": 6});
        let reply = json!({"routes": [{"source": "api", "route": abuse, "checks": checks}]});
        const ROUTES: &str = "ROUTE\tFROM\tLET THROUGH\tWAITED\tDENIED\tREFUSED\tRULE\n";
        let rule = "deny address=10.0.0.1/32,10.0.0.2/32";
        assert_eq!(routes(&reply, PLAIN), format!("{ROUTES}abuse\tapi\t6\t4\t5\t6\t{rule}\n"));
        let change = |before: &[&Value], after: &[&Value]| {
            routes_change(&json!({"dry_run": false, "before": before, "after": after}))
        };
        assert_eq!(
            change(&[&abuse], &[&staff]),
            format!(
                "the routes were changed:\n- abuse: {rule}\n+ staff: bypass header={{\"x-staff\":{{\"secret\":true}}}}\n"
            )
        );
        assert_eq!(
            change(&[&abuse, &staff], &[&staff, &abuse]),
            "the routes were changed:\nin another order\n"
        );
        assert_eq!(change(&[&abuse], &[&abuse]), "the routes were left unchanged\n");
    }
}
