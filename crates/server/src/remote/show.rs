//! Shows a server's replies to people: tables on a terminal, a heading and lines with tabs in a pipe.
//!
//! Invariant: texts from a server are escaped, so that they cannot control the terminal.

mod away;
mod routes;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::{clock::in_utc, output::one_line};
pub(super) use routes::{explanation, routes, routes_change};

/// The style of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Style {
    /// Columns of one width.
    pub(super) pretty: bool,
    /// Colours; only with `pretty`.
    pub(super) colour: bool,
}

/// All zones, with their definitions.
pub(super) fn zones(reply: &Value, style: Style) -> String {
    let heading = ["ZONE", "MODE", "A MINUTE", "WAITING", "ENTERED", "WAIT", "STATE"];
    let row = |zone: &Value| {
        let (policy, now) = (&zone["policy"], &zone["now"]);
        vec![
            text(&zone["id"]),
            text(&policy["mode"]),
            text(&policy["admit_per_minute"]),
            text(&now["waiting"]),
            entered(now),
            wait_in(zone),
            away::state(now).to_owned(),
        ]
    };
    away::table_of_zones(&heading, list(&reply["zones"]), row, style)
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
            entered(now),
            text(&policy["admit_per_minute"]),
            wait_in(zone),
            away::state(now).to_owned(),
            if style.pretty { sparks(&trend) } else { String::new() },
        ]
    };
    away::table_of_zones(&heading, list(&reply["zones"]), row, style)
}

/// The entries of the last minute, and of how much of it they are, if the server has not yet seen all of it.
fn entered(now: &Value) -> String {
    let entered = text(&now["entered_last_minute"]);
    match now["entered_seen_s"].as_u64() {
        Some(seen_s @ ..60) => format!("{entered} in {seen_s} s"),
        _ => entered,
    }
}

/// What is left in a zone.
pub(super) fn stock(reply: &Value, style: Style) -> String {
    let heading = ["TIER", "LEFT", "PRICE", "LABEL"];
    let row = |tier: &Value| {
        let price = &tier["price"];
        let price = match price.is_null() {
            true => "-".to_owned(),
            false => {
                format!("{} {} to {}", text(&price["currency"]), text(&price["from"]), text(&price["to"]))
            }
        };
        let label = tier["label"].as_object().into_iter().flatten();
        let label: Vec<_> = label
            .map(|(language, said)| format!("{}: {}", text(&language.as_str().into()), text(said)))
            .collect();
        let left = match &tier["remaining"] {
            Value::Null => "unknown".to_owned(),
            number => text(number),
        };
        vec![text(&tier["id"]), left, price, label.join(", ")]
    };
    let tiers = list(&reply["tiers"]);
    let mut out = if reply["dry_run"] == true {
        "nothing was changed; it would be:\n".to_owned()
    } else {
        String::new()
    };
    if tiers.is_empty() {
        return out + "nothing is told about what is left\n";
    }
    out += &table(&heading, tiers.iter().map(row).collect(), style);
    if let Some(beyond @ 1..) = reply["beyond"].as_u64() {
        out += &format!("told that everything may be sold out before their turn: {beyond} waiting\n");
    }
    out
}

/// One zone, field by field.
pub(super) fn zone(reply: &Value) -> String {
    let mut out = format!("id = {}\n", text(&reply["id"]));
    out.push_str(&definition(reply));
    for (name, value) in reply["now"].as_object().into_iter().flatten() {
        let shown = match (name.as_str(), value) {
            ("away", Value::Object(_)) => away::sentence(value),
            ("away", Value::Null) if reply["now"]["stale"] != true => "no".to_owned(),
            (_, Value::Array(range)) => range.iter().map(text).collect::<Vec<_>>().join(" to "),
            ("inside", Value::Null) if reply["policy"]["max_active"] == 0 => {
                "not counted (max_active is 0)".to_owned()
            }
            ("eta_s" | "eta_range_s", Value::Null) if reply["now"]["stale"] != true => {
                if is_undrawn(&reply["draw"]) {
                    "not known before the draw".to_owned()
                } else {
                    "nobody is let in".to_owned()
                }
            }
            (_, Value::Null) => "not known".to_owned(),
            (_, other) => text(other),
        };
        out.push_str(&format!("now.{name} = {shown}\n"));
    }
    if !reply["draw"].is_null() {
        out.push_str(&format!("draw = {}\n", draw(&reply["draw"])));
    }
    out
}

/// Whether nobody enters because of a draw.
fn is_undrawn(draw: &Value) -> bool {
    !draw["waits_for"].is_null()
}

/// Where a draw is.
fn draw(of: &Value) -> String {
    let mut said = format!("{} of event {}", text(&of["stage"]), text(&of["event"]));
    match of["waits_for"].as_str() {
        None => {}
        Some("freeze") => said += "; the list is to be frozen",
        Some("round") => said += &format!("; waits for round {} of drand", text(&of["round"])),
        Some("value") => {
            said += &format!("; waits for the value that an operator states ({})", text(&of["source"]));
        }
        Some("deal") => said += "; the line is to be dealt by it",
        Some(_) => said += &format!("; waits for: {}", text(&of["waits_for"])),
    }
    if let Some(overdue_s @ 1..) = of["overdue_s"].as_u64() {
        said += &format!("; OVERDUE for {}: nobody enters", wait(&overdue_s.into()));
    }
    if !of["trouble"].is_null() {
        said += &format!("; {}", text(&of["trouble"]));
    }
    said
}

fn definition(reply: &Value) -> String {
    let fields = reply["policy"].as_object().into_iter().flatten();
    let mut out: String = fields.map(|(name, value)| format!("{name} = {}\n", text(value))).collect();
    let notices = reply["notice"].as_object().into_iter().flatten();
    out.extend(notices.map(|(language, notice)| format!("notice.{language} = {}\n", text(notice))));
    out.extend(event_fields(reply).into_iter().map(|(name, value)| format!("{name} = {value}\n")));
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
    let etas = list(&reply["etas"]);
    let is_deleted = reply["zone"].is_null();
    if is_deleted {
        out.push_str(&lost_line(etas, is_dry));
    }
    for eta in etas.iter().filter(|_| !is_deleted) {
        let who = if eta["place"] == "last" { "a newcomer" } else { "the middle of the line" };
        let (rank, before, after) = (text(&eta["rank"]), wait(&eta["before_s"]), wait(&eta["after_s"]));
        out.push_str(&format!("wait of {who} (rank {rank}): {before} -> {after}\n"));
    }
    out.extend(list(&reply["warnings"]).iter().map(|warning| format!("warning: {}\n", text(warning))));
    out
}

/// What happens to the people in the line of a zone that is deleted.
fn lost_line(etas: &[Value], is_dry: bool) -> String {
    // Somebody who joins gets the rank after theirs.
    let waiting = etas.iter().find(|eta| eta["place"] == "last").and_then(|eta| eta["rank"].as_u64());
    let people = match waiting.map(|rank| rank.saturating_sub(1)) {
        None => "it is not known who waits in it".to_owned(),
        Some(0) => "nobody waits in it".to_owned(),
        Some(1) => "1 person waits in it".to_owned(),
        Some(people) => format!("{people} people wait in it"),
    };
    let (are, instead) = if is_dry {
        ("would be", "; mode=hold or mode=closed stops entries, too, and keeps the places")
    } else {
        ("are", "")
    };
    format!("{people}; all polls {are} refused from then on (404 unknown_zone), and nobody enters{instead}\n")
}

/// The last changes of zones, the newest first.
pub(super) fn changes(reply: &Value, style: Style) -> String {
    let heading = ["UTC", "WHO", "ROLE", "ZONE", "CHANGE"];
    let row = |change: &Value| {
        let who = match change["made"].as_str() {
            Some("file") => "the configuration file".to_owned(),
            Some("store") => "another server, or `weir zones apply`".to_owned(),
            _ => text(&change["who"]),
        };
        vec![instant(&change["at"]), who, text(&change["role"]), text(&change["zone"]), difference(change)]
    };
    table(&heading, list(&reply["changes"]).iter().map(row).collect(), style)
}

/// The fields of a definition's events, by name, as `weir zones set` takes them.
fn event_fields(definition: &Value) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for event in list(&definition["events"]) {
        let of = format!("event.{}", text(&event["id"]));
        for (name, value) in event.as_object().into_iter().flatten().filter(|(name, _)| *name != "id") {
            match value.as_object() {
                Some(texts) => all.extend(
                    texts.iter().map(|(language, said)| (format!("{of}.{name}.{language}"), text(said))),
                ),
                None => all.push((format!("{of}.{name}"), text(value))),
            }
        }
    }
    all
}

/// What a change changed, on one line.
fn difference(change: &Value) -> String {
    let (before, after) = (&change["before"], &change["after"]);
    match (before.is_null(), after.is_null()) {
        (true, _) => return "created".to_owned(),
        (_, true) => return "deleted".to_owned(),
        (false, false) => {}
    }
    let mut out = Vec::new();
    for (part, prefix) in [("policy", ""), ("notice", "notice.")] {
        let (old, new) = (before[part].as_object(), after[part].as_object());
        let names: BTreeSet<_> = old.into_iter().chain(new).flat_map(Map::keys).collect();
        for name in names {
            let (old, new) = (&before[part][name], &after[part][name]);
            if old != new {
                out.push(format!("{prefix}{name} {} -> {}", text(old), text(new)));
            }
        }
    }
    let [old, new] = [before, after].map(|of| BTreeMap::from_iter(event_fields(of)));
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let shown =
        |of: &BTreeMap<String, String>, name| of.get(name).map_or_else(|| "none".to_owned(), Clone::clone);
    for name in names.into_iter().filter(|name| old.get(*name) != new.get(*name)) {
        out.push(format!("{name} {} -> {}", shown(&old, name), shown(&new, name)));
    }
    out.join(", ")
}

/// The servers that share the store, and then the cells that keep it.
pub(super) fn servers(reply: &Value, style: Style) -> String {
    let heading =
        ["SERVER", "ADDRESS", "VERSION", "STATE", "STARTED (UTC)", "SEEN (UTC)", "ZONES", "CONNECTIONS"];
    let row = |server: &Value| {
        let mut state: Vec<String> = Vec::new();
        let mut note = |holds: bool, what: &str| {
            if holds {
                state.push(what.to_owned());
            }
        };
        note(server["draining"] == true, "draining");
        note(server["keys_agree"] == false, "other seal keys");
        match server["busy"].as_str() {
            None | Some("") => {}
            Some(_) => note(true, &format!("busy: {}", text(&server["busy"]))),
        }
        match server["zones_away"].as_u64() {
            None | Some(0) => {}
            Some(1) => note(true, "1 zone away"),
            Some(zones) => note(true, &format!("{zones} zones away")),
        }
        if state.is_empty() {
            state.push("ok".to_owned());
        }
        // This says which server answers, and nothing about how it is.
        if server["here"] == true {
            state.push("asked".to_owned());
        }
        vec![
            text(&server["name"]),
            text(&server["address"]),
            text(&server["version"]),
            state.join(", "),
            instant(&server["started_at"]),
            instant(&server["seen_at"]),
            text(&server["zones"]),
            text(&server["connections"]),
        ]
    };
    let servers = table(&heading, list(&reply["servers"]).iter().map(row).collect(), style);
    let cell = |cell: &Value| {
        let state = if cell["up"] == true { "up" } else { "does not answer" };
        vec![text(&cell["name"]), state.to_owned()]
    };
    let cells = table(&["CELL", "STATE"], list(&reply["cells"]).iter().map(cell).collect(), style);
    format!("{servers}\n{cells}")
}

/// What a server that was taken out of service, or put back, does from now on.
pub(super) fn drain(reply: &Value) -> String {
    if reply["draining"] == true {
        "the server is out of service: /readyz answers 503, and it starts no new streams; it goes on answering polls, and \
         `weir drain --undo` puts it back\n"
            .to_owned()
    } else {
        "the server is in service\n".to_owned()
    }
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
    if !reply["away"].is_null() {
        out.push_str(&away::lines_of(&reply["id"], &reply["away"]));
    }
    let figures = |of: &Value, names: &[&str]| {
        let of_name = |name: &&str| {
            format!("{name} {}", of[name].as_f64().map_or("-".to_owned(), |v| format!("{v:.2}")))
        };
        names.iter().map(of_name).collect::<Vec<_>>().join(", ")
    };
    let here = &reply["here"];
    let (waits, ratio) = (&here["waits_s"], &here["told_ratio"]);
    out.push_str(&format!(
        "admitted by this server since {} UTC: {}; waits in seconds: {}\nwaits divided by told waits: {} people: {}\n",
        instant(&here["since"]),
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
    match value {
        Value::String(text) => one_line(text),
        Value::Null => "-".to_owned(),
        other => one_line(&other.to_string()),
    }
}

/// An instant in milliseconds since 1970, in UTC.
fn instant(value: &Value) -> String {
    in_utc(value.as_i64())
}

/// The wait of somebody who joins a zone now.
fn wait_in(zone: &Value) -> String {
    match &zone["now"]["eta_s"] {
        Value::Null if is_undrawn(&zone["draw"]) => "draw".to_owned(),
        eta_s => wait(eta_s),
    }
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

/// The columns of texts. They are aligned left, and numbers and waits right.
const TEXTS: [&str; 23] = [
    "CELL",
    "ZONE",
    "MODE",
    "STATE",
    "LAST 30 MIN",
    "ROUTE",
    "FROM",
    "RULE",
    "UTC",
    "TIER",
    "PRICE",
    "LABEL",
    "WHO",
    "ROLE",
    "CHANGE",
    "SERVER",
    "ADDRESS",
    "VERSION",
    "STARTED (UTC)",
    "SEEN (UTC)",
    away::SINCE,
    away::CAUSE,
    away::WHY,
];

fn table(heading: &[&str], rows: Vec<Vec<String>>, style: Style) -> String {
    if !style.pretty {
        let lines = rows.iter().map(|row| row.join("\t").trim_end().to_owned() + "\n");
        return [heading.join("\t") + "\n"].into_iter().chain(lines).collect();
    }
    let mut widths: Vec<usize> = heading.iter().map(|cell| cell.len()).collect();
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let cells = cells.zip(&widths).zip(heading).map(|((cell, &width), name)| {
            if TEXTS.contains(name) { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
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
            "ZONE\tMODE\tA MINUTE\tWAITING\tENTERED\tWAIT\tSTATE\tAWAY SINCE (UTC)\tCAUSE\tWHY\n\
             A\tauto\t600\t1200\t600\t2 min 01 s\tok\t-\t-\t-\nshop:b\thold\t5\t0\t0\theld\tstale\t-\t-\t-\n"
        );
        assert_eq!(
            lines(&reply(), PRETTY),
            "ZONE    MODE  WAITING  PRESENT  ENTERED   OF        WAIT  STATE  LAST 30 MIN\n\
             A       auto     1200     1100      600  600  2 min 01 s  ok     ▁▄█\n\
             shop:b  hold        0        0        0    5        held  stale\n"
        );
        assert!(zones(&reply(), Style { pretty: true, colour: true }).starts_with("\x1b[1mZONE"));
    }

    #[test]
    fn a_server_that_just_started_says_how_much_it_has_seen() {
        let now = |seen_s: u64| json!({"entered_last_minute": 7, "entered_seen_s": seen_s});
        assert_eq!([entered(&now(12)), entered(&now(60))], ["7 in 12 s", "7"]);
    }

    #[test]
    fn a_change_is_shown_by_its_differences() {
        let definition = |rate, text| json!({"policy": {"mode": "auto", "admit_per_minute": rate}, "notice": {"en": text}});
        let mut zone = definition(300, "a\u{1b}[31m\nb");
        zone["id"] = "A".into();
        let reply = json!({"dry_run": true, "zone": zone, "before": definition(600, "a\u{1b}[31m\nb"), "etas": [
            {"place": "last", "rank": 7, "before_s": 30, "after_s": null},
        ], "warnings": ["too low"]});
        assert_eq!(
            change(&reply),
            "A would be changed:\n- admit_per_minute = 600\n+ admit_per_minute = 300\nwait of a newcomer (rank 7): 30 s -> held\nwarning: too low\n"
        );
        let shown = super::zone(
            &json!({"id": "A", "policy": {"mode": "auto"}, "notice": {"en": "a\u{1b}[31m\nb"}, "now": {"eta_range_s": [1, 2], "eta_s": null}}),
        );
        assert_eq!(
            shown,
            "id = A\nmode = auto\nnotice.en = a\\u{1b}[31m\\nb\nnow.eta_range_s = 1 to 2\nnow.eta_s = nobody is let in\n"
        );
    }

    /// A field that is null says what that means: nothing is counted, nobody may enter, or it is not known.
    #[test]
    fn what_is_missing_says_why() {
        let shown = |max_active: u32, stale: bool| {
            let now = json!({"away": null, "stale": stale, "inside": null, "eta_s": null});
            super::zone(&json!({"id": "A", "policy": {"max_active": max_active}, "notice": {}, "now": now}))
        };
        let lines = |text: &str| text.lines().skip(2).map(str::to_owned).collect::<Vec<_>>();
        let free = [
            "now.away = no",
            "now.eta_s = nobody is let in",
            "now.inside = not counted (max_active is 0)",
            "now.stale = false",
        ];
        assert_eq!(lines(&shown(0, false)), free);
        assert_eq!(
            lines(&shown(5, true)),
            ["now.away = not known", "now.eta_s = not known", "now.inside = not known", "now.stale = true"]
        );
    }

    #[test]
    fn a_draw_that_waits_says_for_what() {
        let shown = |draw: Value| {
            let reply = json!({"id": "A", "policy": {}, "notice": {}, "now": {"eta_s": null, "stale": false}, "draw": draw});
            super::zone(&reply)
                .split_once("now.eta_s = ")
                .map(|(_, shown)| shown.to_owned())
                .unwrap_or_default()
        };
        let of = |stage: &str, waits_for: Value, overdue_s: u64, trouble: Value| {
            shown(
                json!({"event": "sale", "stage": stage, "waits_for": waits_for, "round": 7, "source": "six dice", "overdue_s": overdue_s, "trouble": trouble}),
            )
        };
        let value = of("frozen", "value".into(), 65, Value::Null);
        assert!(value.starts_with("not known before the draw\n"), "{value}");
        assert!(value.ends_with("draw = frozen of event sale; waits for the value that an operator states (six dice); OVERDUE for 1 min 05 s: nobody enters\n"), "{value}");
        let round = of("frozen", "round".into(), 0, "a\u{1b}".into());
        assert!(
            round.ends_with("draw = frozen of event sale; waits for round 7 of drand; a\\u{1b}\n"),
            "{round}"
        );
        let done = of("drawn", Value::Null, 0, Value::Null);
        assert!(
            done.starts_with("nobody is let in\n") && done.ends_with("draw = drawn of event sale\n"),
            "{done}"
        );
        assert!(!shown(Value::Null).contains("draw"), "the order is that of arrival");
        let of_list = |eta_s: Value, waits_for: Value| {
            wait_in(&json!({"now": {"eta_s": eta_s}, "draw": {"stage": "announced", "waits_for": waits_for}}))
        };
        assert_eq!(of_list(Value::Null, "freeze".into()), "draw");
        assert_eq!([of_list(3.into(), Value::Null), of_list(Value::Null, Value::Null)], ["3 s", "held"]);
    }

    #[test]
    fn a_deleted_zone_says_what_happens_to_its_line() {
        let deleted = |dry_run: bool, rank: u64| {
            let etas = json!([
                {"place": "middle", "rank": 2, "before_s": 60, "after_s": null},
                {"place": "last", "rank": rank, "before_s": 198, "after_s": null},
            ]);
            change(&json!({"dry_run": dry_run, "zone": null, "before": {"policy": {}}, "etas": etas}))
        };
        let would = deleted(true, 4);
        assert!(would.starts_with("the zone would be deleted\n3 people wait in it; "), "{would}");
        assert!(
            would.contains("would be refused from then on (404 unknown_zone)")
                && would.contains("mode=hold")
                && !would.contains("held"),
            "{would}"
        );
        let was = deleted(false, 2);
        assert!(
            was.starts_with("the zone was deleted; its line stays in the store\n1 person waits in it; "),
            "{was}"
        );
        assert!(deleted(false, 1).contains("\nnobody waits in it; "));
        // The server does not know who waits.
        let unseen = json!({"dry_run": false, "zone": null, "before": {"policy": {}}, "etas": []});
        assert_eq!(
            change(&unseen),
            "the zone was deleted; its line stays in the store\nit is not known who waits in it; all polls are refused from then \
             on (404 unknown_zone), and nobody enters\n"
        );
    }

    #[test]
    fn changes_say_who_and_what() {
        let definition = |mode: &str, notice: Value| json!({"policy": {"mode": mode, "admit_per_minute": 60}, "notice": notice});
        let reply = json!({"changes": [
            {"at": 1_795_333_440_000_u64, "who": "ada", "role": "admin", "made": "here", "zone": "A", "before": definition("auto", json!({"ko": "곧"})),
             "after": definition("hold", json!({"en": "Soon.\u{1b}"}))},
            {"at": 0, "who": null, "role": null, "made": "store", "zone": "B", "before": null, "after": definition("auto", json!({}))},
            {"at": 0, "who": null, "role": null, "made": "file", "zone": "B", "before": definition("auto", json!({})), "after": null},
            {"at": 0, "who": "ada", "role": "admin", "made": "here", "zone": "C", "before": definition("auto", json!({})), "after": null},
        ]});
        assert_eq!(
            changes(&reply, PLAIN),
            "UTC\tWHO\tROLE\tZONE\tCHANGE\n\
             2026-11-22 07:44:00\tada\tadmin\tA\tmode auto -> hold, notice.en - -> Soon.\\u{1b}, notice.ko 곧 -> -\n\
             1970-01-01 00:00:00\tanother server, or `weir zones apply`\t-\tB\tcreated\n\
             1970-01-01 00:00:00\tthe configuration file\t-\tB\tdeleted\n\
             1970-01-01 00:00:00\tada\tadmin\tC\tdeleted\n"
        );
    }

    #[test]
    fn servers_say_how_they_are() {
        let server = |name: &str, here: bool, draining: bool, busy: &str, keys_agree: bool| {
            json!({
                "name": name, "version": "1", "address": "h:1", "started_at": 0, "seen_at": 60_000, "here": here,
                "draining": draining, "zones": 2, "connections": 3, "busy": busy, "keys_agree": keys_agree,
            })
        };
        let mut away = server("d", true, false, "", true);
        away["zones_away"] = 2.into();
        let reply = json!({
            "servers": [
                server("a", true, true, "", true), server("b", false, false, "lag", false), server("c", true, false, "", true), away,
            ],
            "cells": [{"name": "redis", "up": true}, {"name": "eu", "up": false}],
        });
        let times = "1970-01-01 00:00:00\t1970-01-01 00:01:00\t2\t3";
        assert_eq!(
            servers(&reply, PLAIN),
            format!(
                "SERVER\tADDRESS\tVERSION\tSTATE\tSTARTED (UTC)\tSEEN (UTC)\tZONES\tCONNECTIONS\n\
                 a\th:1\t1\tdraining, asked\t{times}\nb\th:1\t1\tother seal keys, busy: lag\t{times}\nc\th:1\t1\tok, asked\t{times}\n\
                 d\th:1\t1\t2 zones away, asked\t{times}\n\
                 \nCELL\tSTATE\nredis\tup\neu\tdoes not answer\n"
            )
        );
    }

    #[test]
    fn minutes_are_shown_in_utc() {
        let reply = json!({"minutes": [{"at": 1_795_333_440}, {"at": 1_795_392_000 + 59 * 60}, {"at": null}], "here": {}});
        let shown = stats(&reply, PLAIN);
        let times: Vec<_> =
            shown.lines().filter_map(|line| line.split('\t').next()).skip(1).take(3).collect();
        assert_eq!(times, ["07:44", "00:59", "-"]);
    }
}
