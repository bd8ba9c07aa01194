//! Why zones are away: columns in a pipe, and lines below the table on a terminal, where the words of a store have room.

use serde_json::Value;

use super::{Style, instant, table, text};

/// The columns that a pipe gets. They are always there, so that a program finds them.
pub(super) const SINCE: &str = "AWAY SINCE (UTC)";
pub(super) const CAUSE: &str = "CAUSE";
pub(super) const WHY: &str = "WHY";

/// How a zone is.
pub(super) fn state(now: &Value) -> &'static str {
    match (now["away"].is_null(), now["stale"] == true) {
        (false, _) => "away",
        (true, true) => "stale",
        (true, false) => "ok",
    }
}

/// A table of zones, with why some of them are away.
pub(super) fn table_of_zones(
    heading: &[&str],
    zones: &[Value],
    row: impl Fn(&Value) -> Vec<String>,
    style: Style,
) -> String {
    if !style.pretty {
        let with_cause = |zone: &Value| {
            let away = &zone["now"]["away"];
            let cause = [instant(&away["since"]), text(&away["cause"]), text(&away["why"])];
            row(zone).into_iter().chain(cause).collect()
        };
        let heading = [heading, &[SINCE, CAUSE, WHY]].concat();
        return table(&heading, zones.iter().map(with_cause).collect(), style);
    }
    let mut out = table(heading, zones.iter().map(row).collect(), style);
    let away = zones.iter().filter(|zone| !zone["now"]["away"].is_null());
    out.extend(away.map(|zone| lines_of(&zone["id"], &zone["now"]["away"])));
    out
}

/// Why a zone is away, and what to do.
pub(super) fn lines_of(zone: &Value, away: &Value) -> String {
    format!("zone {} is away {}\n", text(zone), sentence(away))
}

/// Since when, why, and what to do.
pub(super) fn sentence(away: &Value) -> String {
    let (since, cause) = (instant(&away["since"]), text(&away["cause"]));
    format!("since {since} UTC: {cause}: {}. What to do: {}", text(&away["why"]), text(&away["advice"]))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::remote::show::{lines, stats, zone, zones};

    #[test]
    fn a_zone_that_is_away_says_why_in_every_form() {
        let away = json!({"since": 60_000, "cause": "no_replica", "why": "NOREPLICAS\nNot enough", "advice": "start a replica"});
        let of = |id: &str, away: &Value| {
            let now = json!({"away": away, "stale": true, "waiting": 1, "present": 1, "entered_last_minute": 0, "eta_s": null});
            json!({"id": id, "policy": {"mode": "auto", "admit_per_minute": 60}, "now": now, "notice": {}})
        };
        let reply = json!({"zones": [of("A", &away), of("B", &Value::Null)]});
        let [plain, pretty] = [false, true].map(|pretty| Style { pretty, colour: false });
        for all in [zones(&reply, plain), lines(&reply, plain)] {
            let rows: Vec<Vec<&str>> = all.lines().map(|line| line.split('\t').collect()).collect();
            let last = rows.iter().map(|row| row[row.len() - 3..].join("|")).collect::<Vec<_>>();
            assert!(rows.iter().all(|row| row.len() == rows[0].len()), "{all}");
            assert_eq!(
                last,
                [
                    "AWAY SINCE (UTC)|CAUSE|WHY",
                    "1970-01-01 00:01:00|no_replica|NOREPLICAS\\nNot enough",
                    "-|-|-"
                ]
            );
            assert!(rows[1].contains(&"away") && rows[2].contains(&"stale"), "{all}");
        }
        let said = "since 1970-01-01 00:01:00 UTC: no_replica: NOREPLICAS\\nNot enough. What to do: start a replica\n";
        for all in
            [zones(&reply, pretty), lines(&reply, pretty), stats(&json!({"id": "A", "away": away}), plain)]
        {
            assert_eq!(all.matches(&format!("zone A is away {said}")).count(), 1, "{all}");
            assert!(!all.contains("zone B is away"), "{all}");
        }
        let shown = zone(&reply["zones"][0]);
        assert!(shown.contains(&format!("now.away = {said}")), "{shown}");
    }
}
