//! Shows a server's replies to people: tables on a terminal, lines with tabs in a pipe.
//!
//! Invariant: texts from a server are escaped, so that they cannot control the terminal.

use jiff::Timestamp;
use serde_json::Value;

/// The style of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Style {
    /// Columns and a heading.
    pub(super) pretty: bool,
    /// Colours; only with `pretty`.
    pub(super) colour: bool,
}

/// All zones, with their definitions.
pub(super) fn zones(reply: &Value, style: Style) -> String {
    let heading = ["ZONE", "MODE", "A MINUTE", "WAITING", "ENTERED", "WAIT"];
    let row = |zone: &Value| {
        let (policy, now) = (&zone["policy"], &zone["now"]);
        vec![
            text(&zone["id"]),
            text(&policy["mode"]),
            text(&policy["admit_per_minute"]),
            text(&now["waiting"]),
            text(&now["entered_last_minute"]),
            wait(&now["eta_s"]),
        ]
    };
    table(&heading, list(&reply["zones"]).iter().map(row).collect(), style)
}

/// All zones, with the movement of their lines.
pub(super) fn lines(reply: &Value, style: Style) -> String {
    let heading = ["ZONE", "MODE", "WAITING", "PRESENT", "ENTERED", "OF", "WAIT", "STATE", "LAST 30 MIN"];
    let row = |zone: &Value| {
        let (policy, now) = (&zone["policy"], &zone["now"]);
        let trend: Vec<u64> =
            list(&zone["trend"]).iter().map(|minute| minute["waiting"].as_u64().unwrap_or(0)).collect();
        vec![
            text(&zone["id"]),
            text(&policy["mode"]),
            text(&now["waiting"]),
            text(&now["present"]),
            text(&now["entered_last_minute"]),
            text(&policy["admit_per_minute"]),
            wait(&now["eta_s"]),
            if now["stale"] == true { "stale" } else { "ok" }.to_owned(),
            if style.pretty { sparks(&trend) } else { String::new() },
        ]
    };
    table(&heading, list(&reply["zones"]).iter().map(row).collect(), style)
}

/// One zone, field by field.
pub(super) fn zone(reply: &Value) -> String {
    let mut out = format!("id = {}\n", text(&reply["id"]));
    out.push_str(&definition(reply));
    for (name, value) in reply["now"].as_object().into_iter().flatten() {
        let shown = match value {
            Value::Array(range) => range.iter().map(text).collect::<Vec<_>>().join(" to "),
            Value::Null => "nobody is let in".to_owned(),
            other => text(other),
        };
        out.push_str(&format!("now.{name} = {shown}\n"));
    }
    out
}

fn definition(reply: &Value) -> String {
    let fields = reply["policy"].as_object().into_iter().flatten();
    let mut out: String = fields.map(|(name, value)| format!("{name} = {}\n", text(value))).collect();
    let notices = reply["notice"].as_object().into_iter().flatten();
    out.extend(notices.map(|(language, notice)| format!("notice.{language} = {}\n", text(notice))));
    out
}

/// The effect of a change, or of a dry run.
pub(super) fn change(reply: &Value) -> String {
    let zone =
        reply["zone"]["id"].as_str().map(|_| format!("{} ", text(&reply["zone"]["id"]))).unwrap_or_default();
    let is_dry = reply["dry_run"] == true;
    let mut out = match (reply["before"].is_null(), reply["zone"].is_null(), is_dry) {
        (true, _, true) => format!("{zone}would be created:\n{}", definition(&reply["zone"])),
        (true, _, false) => format!("{zone}was created:\n{}", definition(&reply["zone"])),
        (_, true, true) => "the zone would be deleted\n".to_owned(),
        (_, true, false) => "the zone was deleted; its line stays in the store\n".to_owned(),
        (false, false, _) => {
            let (old, new) = (definition(&reply["before"]), definition(&reply["zone"]));
            let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
            let removed = old.iter().filter(|line| !new.contains(line)).map(|line| format!("- {line}\n"));
            let added = new.iter().filter(|line| !old.contains(line)).map(|line| format!("+ {line}\n"));
            let lines: String = removed.chain(added).collect();
            let verb = if is_dry { "would be" } else { "was" };
            if lines.is_empty() {
                format!("{zone}{verb} left unchanged\n")
            } else {
                format!("{zone}{verb} changed:\n{lines}")
            }
        }
    };
    for eta in list(&reply["etas"]) {
        let who = if eta["place"] == "last" { "a newcomer" } else { "the middle of the line" };
        let (rank, before, after) = (text(&eta["rank"]), wait(&eta["before_s"]), wait(&eta["after_s"]));
        out.push_str(&format!("wait of {who} (rank {rank}): {before} -> {after}\n"));
    }
    out
}

/// The routes in the order in which they decide, with their counts.
pub(super) fn routes(reply: &Value, style: Style) -> String {
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
pub(super) fn routes_change(reply: &Value) -> String {
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
pub(super) fn explanation(reply: &Value) -> String {
    let path = reply["path"].as_str().map(|_| format!("the path counts as {}\n", text(&reply["path"])));
    path.into_iter().chain(list(&reply["lines"]).iter().map(|line| text(line) + "\n")).collect()
}

/// A zone's last minutes, and the waits of the people that the server admitted.
pub(super) fn stats(reply: &Value, style: Style) -> String {
    let heading = ["UTC", "WAITING", "PRESENT", "JOINED", "ENTERED", "EVICTED", "SLOTS", "USED", "A MINUTE"];
    let row = |minute: &Value| {
        let at = minute["at"].as_i64().and_then(|at_s| Timestamp::from_second(at_s).ok());
        let mut row = vec![at.map_or_else(|| "-".to_owned(), |at| at.strftime("%H:%M").to_string())];
        let names = [
            "waiting",
            "present",
            "joined",
            "entered",
            "evicted",
            "slots_offered",
            "slots_used",
            "admit_per_minute",
        ];
        row.extend(names.map(|name| text(&minute[name])));
        row
    };
    let mut out = table(&heading, list(&reply["minutes"]).iter().map(row).collect(), style);
    let figures = |of: &Value, names: &[&str]| {
        let of_name = |name: &&str| {
            format!("{name} {}", of[name].as_f64().map_or("-".to_owned(), |v| format!("{v:.2}")))
        };
        names.iter().map(of_name).collect::<Vec<_>>().join(", ")
    };
    let here = &reply["here"];
    let (waits, ratio) = (&here["waits_s"], &here["told_ratio"]);
    out.push_str(&format!(
        "admitted by this server: {}; waits in seconds: {}\nwaits divided by told waits: {} people: {}\n",
        text(&waits["count"]),
        figures(waits, &["p50", "p90", "p99"]),
        text(&ratio["count"]),
        figures(ratio, &["p10", "p50", "p90"]),
    ));
    out
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A value as text, with control characters escaped.
fn text(value: &Value) -> String {
    let plain = match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    };
    plain
        .chars()
        .flat_map(|c| if c.is_control() { c.escape_default().collect::<Vec<_>>() } else { vec![c] })
        .collect()
}

/// A wait in seconds as text; "held" if there is none.
fn wait(value: &Value) -> String {
    match value.as_u64() {
        None => "held".to_owned(),
        Some(s @ 0..60) => format!("{s} s"),
        Some(s @ 60..3_600) => format!("{} min {:02} s", s / 60, s % 60),
        Some(s) => format!("{} h {:02} min", s / 3_600, s / 60 % 60),
    }
}

/// A row of numbers as a row of blocks. The largest number gets the highest block.
fn sparks(values: &[u64]) -> String {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = values.iter().copied().max().unwrap_or(0).max(1);
    let block = |value: &u64| BLOCKS[usize::try_from(value * 7 / most).unwrap_or(7).min(7)];
    values.iter().map(block).collect()
}

fn table(heading: &[&str], rows: Vec<Vec<String>>, style: Style) -> String {
    if !style.pretty {
        return rows.iter().map(|row| row.join("\t").trim_end().to_owned() + "\n").collect();
    }
    let mut widths: Vec<usize> = heading.iter().map(|cell| cell.len()).collect();
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let cells = cells.zip(&widths).enumerate().map(|(at, (cell, &width))| {
            // Names are aligned left, numbers right.
            if at == 0 || at + 1 == widths.len() && heading.len() > 8 {
                format!("{cell:<width$}")
            } else {
                format!("{cell:>width$}")
            }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    let top = line(&mut heading.iter().copied());
    let mut out = if style.colour { format!("\x1b[1m{}\x1b[0m\n", top.trim_end()) } else { top };
    out.extend(rows.iter().map(|row| line(&mut row.iter().map(String::as_str))));
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PLAIN: Style = Style { pretty: false, colour: true };
    const PRETTY: Style = Style { pretty: true, colour: false };

    fn reply() -> Value {
        json!({"zones": [
            {"id": "A", "policy": {"mode": "auto", "admit_per_minute": 600}, "now": {"waiting": 1200, "present": 1100, "entered_last_minute": 600, "eta_s": 121, "stale": false},
             "trend": [{"waiting": 0}, {"waiting": 600}, {"waiting": 1200}]},
            {"id": "shop:b", "policy": {"mode": "hold", "admit_per_minute": 5}, "now": {"waiting": 0, "present": 0, "entered_last_minute": 0, "eta_s": null, "stale": true}, "trend": []},
        ]})
    }

    #[test]
    fn a_terminal_gets_tables_and_a_pipe_gets_tabs() {
        assert_eq!(
            zones(&reply(), PLAIN),
            "A\tauto\t600\t1200\t600\t2 min 01 s\nshop:b\thold\t5\t0\t0\theld\n"
        );
        assert_eq!(
            lines(&reply(), PRETTY),
            "ZONE    MODE  WAITING  PRESENT  ENTERED   OF        WAIT  STATE  LAST 30 MIN\n\
             A       auto     1200     1100      600  600  2 min 01 s     ok  ▁▄█\n\
             shop:b  hold        0        0        0    5        held  stale\n"
        );
        assert!(zones(&reply(), Style { pretty: true, colour: true }).starts_with("\x1b[1mZONE"));
    }

    #[test]
    fn a_change_is_shown_by_its_differences() {
        let definition = |rate, text| json!({"policy": {"mode": "auto", "admit_per_minute": rate}, "notice": {"en": text}});
        let mut zone = definition(300, "a\u{1b}[31m\nb");
        zone["id"] = "A".into();
        let reply = json!({"dry_run": true, "zone": zone, "before": definition(600, "a\u{1b}[31m\nb"), "etas": [
            {"place": "last", "rank": 7, "before_s": 30, "after_s": null},
        ]});
        assert_eq!(
            change(&reply),
            "A would be changed:\n- admit_per_minute = 600\n+ admit_per_minute = 300\nwait of a newcomer (rank 7): 30 s -> held\n"
        );
        let shown = super::zone(
            &json!({"id": "A", "policy": {"mode": "auto"}, "notice": {"en": "a\u{1b}[31m\nb"}, "now": {"eta_range_s": [1, 2], "eta_s": null}}),
        );
        assert_eq!(
            shown,
            "id = A\nmode = auto\nnotice.en = a\\u{1b}[31m\\nb\nnow.eta_range_s = 1 to 2\nnow.eta_s = nobody is let in\n"
        );
        let deleted = json!({"dry_run": false, "zone": null, "before": definition(1, "x"), "etas": []});
        assert!(change(&deleted).starts_with("the zone was deleted"));
    }

    #[test]
    fn routes_are_shown_with_their_counts_and_changes() {
        let abuse = json!({"name": "abuse", "deny": true, "address": ["10.0.0.1/32", "10.0.0.2/32"]});
        let staff = json!({"name": "staff", "bypass": true, "header": {"x-staff": {"secret": true}}});
        let checks = json!({"through": 1, "visit": 2, "entered": 3, "waits": 4, "denied": 5, "refused": 6});
        let reply = json!({"routes": [{"source": "api", "route": abuse, "checks": checks}]});
        let rule = "deny address=10.0.0.1/32,10.0.0.2/32";
        assert_eq!(routes(&reply, PLAIN), format!("abuse\tapi\t6\t4\t5\t6\t{rule}\n"));
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

    #[test]
    fn minutes_are_shown_in_utc() {
        let reply = json!({"minutes": [{"at": 1_795_333_440}, {"at": 1_795_392_000 + 59 * 60}, {"at": null}], "here": {}});
        let shown = stats(&reply, PLAIN);
        let times: Vec<_> = shown.lines().filter_map(|line| line.split('\t').next()).take(3).collect();
        assert_eq!(times, ["07:44", "00:59", "-"]);
    }
}
