//! The admin API's command line: `weir zones list|show|set|create|delete`, `weir stock show|set|apply`, `weir route list|set|explain`,
//! `weir stats`, `weir changes`, `weir servers` and `weir drain`, for a running server.
//!
//! Invariants: a change is based on a definition that was read just before, and is refused if somebody else changed it
//! meanwhile. A token is sent only to the named server. A terminal gets tables and colours; a pipe gets a heading and one line
//! per item, with columns separated by tabs; JSON is the server's reply on one line.

mod client;
mod show;

use std::{
    collections::BTreeSet,
    io::{self, IsTerminal as _},
    path::{Path, PathBuf},
    time::Duration,
};

use admission::{Field, FieldKind, ZoneIdFault};
use check::{Route, question::Question, written};
use gate::definitions::{EventFault, EventJson};
use hyper::Method;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use serde_json::{Map, Value, json};
use shown::utf8;
use tokio::time::sleep;

use crate::{
    failure::{self, Failure},
    keys,
    output::print,
    secret::Secret,
};
pub(crate) use client::Client;

/// The pause between two looks of `--watch`.
const EVERY: Duration = Duration::from_secs(2);

/// The minutes of the trend beside each zone.
const TREND: u32 = 30;

/// The minutes in the table of one zone.
const MINUTES: u32 = 15;

/// The most bytes of a file for `weir stock apply`. Servers take less.
const MAX_STOCK: u64 = 4 << 20;

/// The path of the routes.
const ROUTES: &str = "/admin/v1/routes";

/// The path of the last changes.
const CHANGES: &str = "/admin/v1/changes";

/// The characters of a zone's name that need an escape in a path: all that no valid name has.
const IN_PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'_').remove(b'.').remove(b':').remove(b'-');

/// A request to a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// List all zones.
    List,
    /// Show one zone.
    Show(String),
    /// Change a zone. Fields by name, as in `admit_per_minute=600` or `notice.en=Soon.`
    Set {
        /// The zone.
        zone: String,
        /// The fields to change.
        fields: Vec<(String, String)>,
        /// Only show what would change.
        dry_run: bool,
    },
    /// Create a zone.
    Create {
        /// The zone.
        zone: String,
        /// The fields that differ from the defaults.
        fields: Vec<(String, String)>,
        /// Only show what would be created.
        dry_run: bool,
    },
    /// Delete a zone.
    Delete {
        /// The zone.
        zone: String,
        /// Only show what would be deleted.
        dry_run: bool,
    },
    /// Show what is left in a zone.
    Stock(String),
    /// Set how many pieces are left of some tiers.
    SetStock {
        /// The zone.
        zone: String,
        /// Numbers by tier, or `unknown`.
        numbers: Vec<(String, String)>,
        /// Only show what would be told.
        dry_run: bool,
    },
    /// Replace the tiers of a zone.
    ApplyStock {
        /// The zone.
        zone: String,
        /// The file that has them, as JSON.
        file: PathBuf,
        /// Only show what would be told.
        dry_run: bool,
    },
    /// List the routes with their counts.
    Routes,
    /// Replace the routes of the API.
    SetRoutes {
        /// All of them, in their order.
        routes: Vec<Route>,
        /// Only show what would change.
        dry_run: bool,
    },
    /// Say which route decides about a request, and why.
    ExplainRoute(Question),
    /// Show how lines move.
    Stats {
        /// Only this zone, by minute.
        zone: Option<String>,
        /// Repeat until interrupted.
        watch: bool,
    },
    /// List the last changes, of one zone or of all.
    Changes(Option<String>),
    /// List the servers and the cells.
    Servers,
    /// Take the server out of service, or put it back.
    Drain {
        /// Whether it is taken out.
        draining: bool,
    },
}

impl Call {
    /// Whether this changes something.
    #[must_use]
    pub fn changes(&self) -> bool {
        match self {
            Self::Set { dry_run, .. }
            | Self::Create { dry_run, .. }
            | Self::Delete { dry_run, .. }
            | Self::SetStock { dry_run, .. }
            | Self::ApplyStock { dry_run, .. }
            | Self::SetRoutes { dry_run, .. } => !dry_run,
            Self::Drain { .. } => true,
            Self::List
            | Self::Show(_)
            | Self::Stock(_)
            | Self::Routes
            | Self::ExplainRoute(_)
            | Self::Stats { .. }
            | Self::Changes(_)
            | Self::Servers => false,
        }
    }

    /// The zone that it is about, if it is about one.
    fn zone(&self) -> Option<&str> {
        match self {
            Self::Show(zone)
            | Self::Set { zone, .. }
            | Self::Create { zone, .. }
            | Self::Delete { zone, .. }
            | Self::Stock(zone)
            | Self::SetStock { zone, .. }
            | Self::ApplyStock { zone, .. }
            | Self::Stats { zone: Some(zone), .. }
            | Self::Changes(Some(zone)) => Some(zone),
            Self::List
            | Self::Routes
            | Self::SetRoutes { .. }
            | Self::ExplainRoute(_)
            | Self::Stats { zone: None, .. }
            | Self::Changes(None)
            | Self::Servers
            | Self::Drain { .. } => None,
        }
    }
}

/// Refuses an empty name of a zone, as of a variable that is not set. In an address it would lead to another place than a zone.
pub(crate) fn check_zone(zone: &str) -> Result<(), Failure> {
    if zone.is_empty() {
        let what = format!("the name of the zone is empty: {ZoneIdFault}");
        return Err(Failure::new(failure::DATA, what));
    }
    Ok(())
}

/// How a reply is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people, and for programs that cut columns.
    Text,
    /// The reply itself, on one line.
    Json,
}

/// The server, and the token for it.
#[derive(Clone, Debug)]
pub struct Server {
    /// The address of its admin listener, as in `http://127.0.0.1:8081`.
    pub url: String,
    /// The token, if one was given.
    pub token: Option<Secret>,
    /// The file with the token; wins over `token`.
    pub token_file: Option<PathBuf>,
}

/// A client of the server, with its token.
///
/// # Errors
/// The address is none, or the token cannot be read.
pub(crate) fn client_of(server: &Server) -> Result<Client, Failure> {
    let token = match (&server.token, &server.token_file) {
        (_, Some(file)) => {
            let text = keys::read_secret(file)
                .map_err(|fault| Failure::new(failure::USAGE, format_args!("--token-file {fault}")))?;
            Some((format!("--token-file {}", file.display()), text.trim().to_owned()))
        }
        (Some(token), None) => Some(("WEIR_ADMIN_TOKEN".to_owned(), token.reveal().trim().to_owned())),
        (None, None) => None,
    };
    if token.as_ref().is_some_and(|(_, token)| token.is_empty()) {
        let what = "the token is empty; write it into WEIR_ADMIN_TOKEN or the file of --token-file, or take both away";
        return Err(Failure::new(failure::USAGE, what));
    }
    Client::new(&server.url, token)
}

/// Sends the request, and writes the result to standard output.
///
/// # Errors
/// A [`Failure`], with its exit code.
pub async fn run(call: &Call, server: &Server, format: Format) -> Result<(), Failure> {
    call.zone().map_or(Ok(()), check_zone)?;
    let client = client_of(server)?;
    let style =
        show::Style { pretty: io::stdout().is_terminal(), colour: std::env::var_os("NO_COLOR").is_none() };
    loop {
        let reply = ask(&client, call).await?;
        let text = match format {
            Format::Json => format!("{reply}\n"),
            Format::Text => shown(call, &reply, style),
        };
        if !matches!(call, Call::Stats { watch: true, .. }) {
            return print(&text);
        }
        // A terminal is cleared first; in a pipe the looks follow each other, with an empty line between tables.
        print(&match format {
            Format::Json => text,
            Format::Text if style.pretty => format!("\x1b[H\x1b[2J{text}"),
            Format::Text => format!("{text}\n"),
        })?;
        sleep(EVERY).await;
    }
}

/// The server's reply to a call.
async fn ask(client: &Client, call: &Call) -> Result<Value, Failure> {
    let reply = match call {
        Call::List => client.get("/admin/v1/zones").await?,
        Call::Show(zone) => client.get(&path_of(zone)).await?,
        Call::Set { zone, fields, dry_run } => {
            let old = client.checked(client.get(&path_of(zone)).await?, "policy")?;
            let body = body_of(fields, &old.value["events"])?;
            let path = dry(&path_of(zone), *dry_run);
            client.send(Method::PATCH, &path, old.etag.as_deref(), Some(&body)).await?
        }
        Call::Create { zone, fields, dry_run } => {
            let mut body = body_of(fields, &Value::Null)?;
            body.insert("id".to_owned(), zone.as_str().into());
            let path = dry("/admin/v1/zones", *dry_run);
            client.send(Method::POST, &path, None, Some(&body)).await?
        }
        Call::Delete { zone, dry_run } => {
            let old = client.checked(client.get(&path_of(zone)).await?, "policy")?;
            let path = dry(&path_of(zone), *dry_run);
            client.send(Method::DELETE, &path, old.etag.as_deref(), None).await?
        }
        Call::Stock(zone) => client.get(&stock_of(zone)).await?,
        Call::SetStock { zone, numbers, dry_run } => {
            let body = Map::from_iter([("remaining".to_owned(), numbers_of(numbers)?.into())]);
            client.send(Method::PATCH, &dry(&stock_of(zone), *dry_run), None, Some(&body)).await?
        }
        Call::ApplyStock { zone, file, dry_run } => {
            let body = object_in(file)?;
            client.send(Method::PUT, &dry(&stock_of(zone), *dry_run), None, Some(&body)).await?
        }
        Call::Routes => client.get(ROUTES).await?,
        Call::SetRoutes { routes, dry_run } => {
            let old = client.checked(client.get(ROUTES).await?, "routes")?;
            // Digests travel, and no secrets.
            let routes: Vec<_> = routes.iter().map(written::stored).collect();
            let body = Map::from_iter([("routes".to_owned(), routes.into())]);
            let path = dry(ROUTES, *dry_run);
            client.send(Method::PUT, &path, old.etag.as_deref(), Some(&body)).await?
        }
        Call::ExplainRoute(Question { url, method, headers, address, tokens }) => {
            let body = json!({
                "url": url, "method": method, "headers": headers, "address": address.to_string(), "tokens": tokens,
            });
            let Value::Object(body) = body else { unreachable!("it is written as one") };
            let path = format!("{ROUTES}/explain");
            client.send(Method::POST, &path, None, Some(&body)).await?
        }
        Call::Stats { zone: None, .. } => client.get(&format!("/admin/v1/zones?trend={TREND}")).await?,
        Call::Stats { zone: Some(zone), .. } => {
            client.get(&format!("{}/stats?minutes={MINUTES}", path_of(zone))).await?
        }
        Call::Changes(None) => client.get(CHANGES).await?,
        Call::Changes(Some(zone)) => client.get(&changes_of(zone)).await?,
        Call::Servers => client.get("/admin/v1/servers").await?,
        Call::Drain { draining } => {
            let body = Map::from_iter([("draining".to_owned(), (*draining).into())]);
            client.send(Method::PUT, "/admin/v1/drain", None, Some(&body)).await?
        }
    };
    Ok(client.checked(reply, member_of(call))?.value)
}

/// What the reply to a call has in any case.
fn member_of(call: &Call) -> &'static str {
    match call {
        Call::List | Call::Stats { zone: None, .. } => "zones",
        Call::Show(_) => "policy",
        Call::Set { .. } | Call::Create { .. } | Call::Delete { .. } | Call::SetRoutes { .. } => "dry_run",
        Call::Stock(_) | Call::SetStock { .. } | Call::ApplyStock { .. } => "tiers",
        Call::Routes => "routes",
        Call::ExplainRoute(_) => "lines",
        Call::Stats { zone: Some(_), .. } => "minutes",
        Call::Changes(_) => "changes",
        Call::Servers => "servers",
        Call::Drain { .. } => "draining",
    }
}

/// The reply to a call as text.
fn shown(call: &Call, reply: &Value, style: show::Style) -> String {
    match call {
        Call::List => show::zones(reply, style),
        Call::Show(_) => show::zone(reply),
        Call::Set { .. } | Call::Create { .. } | Call::Delete { .. } => show::change(reply),
        Call::Stock(_) | Call::SetStock { .. } | Call::ApplyStock { .. } => show::stock(reply, style),
        Call::Routes => show::routes(reply, style),
        Call::SetRoutes { .. } => show::routes_change(reply),
        Call::ExplainRoute(_) => show::explanation(reply),
        Call::Stats { zone: None, .. } => show::lines(reply, style),
        Call::Stats { zone: Some(_), .. } => show::stats(reply, style),
        Call::Changes(_) => show::changes(reply, style),
        Call::Servers => show::servers(reply, style),
        Call::Drain { .. } => show::drain(reply),
    }
}

/// The path of a zone in the admin API.
fn path_of(zone: &str) -> String {
    format!("/admin/v1/zones/{}", in_path(zone))
}

/// The address of the report of an event in the admin API. `begins` says which one, if its name was used again.
pub(crate) fn report_of(zone: &str, event: &str, begins: Option<&str>) -> String {
    let query = begins.map_or(String::new(), |begins| format!("?begins={}", in_path(begins)));
    format!("{}/events/{}/report{query}", path_of(zone), in_path(event))
}

/// The address of the last changes of a zone in the admin API.
fn changes_of(zone: &str) -> String {
    format!("{CHANGES}?zone={}", in_path(zone))
}

/// A name as one part of a path.
fn in_path(name: &str) -> PercentEncode<'_> {
    utf8_percent_encode(name, IN_PATH)
}

fn stock_of(zone: &str) -> String {
    format!("{}/stock", path_of(zone))
}

/// The numbers of tiers in the body of a change. The server checks them.
fn numbers_of(given: &[(String, String)]) -> Result<Map<String, Value>, Failure> {
    let mut numbers = Map::new();
    for (tier, text) in given {
        let number = match text.as_str() {
            "unknown" => Value::Null,
            text => text.parse::<i64>().map(Value::from).map_err(|_| {
                let what = format!("`{tier}={text}`: write a whole number, or `unknown`");
                Failure::new(failure::USAGE, what)
            })?,
        };
        if numbers.insert(tier.clone(), number).is_some() {
            return Err(Failure::new(failure::USAGE, format!("`{tier}` is given twice")));
        }
    }
    Ok(numbers)
}

/// The object of a JSON file.
fn object_in(file: &Path) -> Result<Map<String, Value>, Failure> {
    let wrong = |what: String| Failure::new(failure::USAGE, format!("{}: {what}", file.display()));
    let bytes = shown::file::bytes(file, MAX_STOCK).map_err(|why| wrong(why.to_string()))?;
    let text = utf8::text(bytes).map_err(|why| wrong(format!("line {why}")))?;
    serde_json::from_str(&text).map_err(|why| wrong(format!("is not a JSON object: {why}")))
}

fn dry(path: &str, dry_run: bool) -> String {
    if dry_run { format!("{path}?dry_run=true") } else { path.to_owned() }
}

/// The body of a change with these fields, of a zone that has these events. The server checks them.
fn body_of(fields: &[(String, String)], events: &Value) -> Result<Map<String, Value>, Failure> {
    let (mut policy, mut notice, mut of_events) = (Map::new(), Map::new(), Vec::new());
    let mut given = BTreeSet::new();
    for (name, text) in fields {
        if !given.insert(name) {
            return Err(Failure::new(failure::USAGE, format!("`{name}` is given twice")));
        }
        if let Some(of_event) = name.strip_prefix("event.") {
            of_events.push((of_event, text.as_str()));
        } else if let Some(language) = name.strip_prefix("notice.") {
            let text = if text.is_empty() { Value::Null } else { text.as_str().into() };
            notice.insert(language.to_owned(), text);
        } else {
            let is_number =
                Field::named(name).is_some_and(|field| matches!(field.kind, FieldKind::Number { .. }));
            policy.insert(name.clone(), value_of(text, is_number));
        }
    }
    let mut body = Map::new();
    if !policy.is_empty() {
        body.insert("policy".to_owned(), policy.into());
    }
    if !notice.is_empty() {
        body.insert("notice".to_owned(), notice.into());
    }
    if !of_events.is_empty() {
        let events = events.as_array().cloned().unwrap_or_default();
        body.insert("events".to_owned(), changed_events(events, &of_events)?.into());
    }
    Ok(body)
}

/// The value that an argument means for a field. A text that is no number stays one, and the server says what the field takes.
fn value_of(text: &str, is_number: bool) -> Value {
    let number = is_number.then(|| text.parse::<i64>().ok()).flatten();
    number.map_or_else(|| text.into(), Value::from)
}

/// The fields of an event, beside its notice.
const OF_EVENT: [&str; 12] = [
    "prequeue_from",
    "begins",
    "ends",
    "before",
    "after",
    "before_page",
    "after_page",
    "admit_per_minute",
    "max_active",
    "order",
    "randomness",
    "fallback",
];

/// The fields of an event that are numbers.
const NUMBERS_OF_EVENT: [&str; 2] = ["admit_per_minute", "max_active"];

/// The fields that an event cannot be without.
const NEEDED_OF_EVENT: [&str; 3] = ["prequeue_from", "begins", "ends"];

/// A part of an event.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part<'a> {
    Field(&'a str),
    /// The notice in a language.
    Notice(&'a str),
}

/// The events with these changes: `ID.FIELD`, `ID.notice.LANGUAGE`, or `ID` alone, each with its text. An empty text takes a part
/// away; `ID` alone deletes the event. All of them count at once, so their order does not matter.
fn changed_events(mut events: Vec<Value>, given: &[(&str, &str)]) -> Result<Vec<Value>, Failure> {
    let wrong = |name: &str, what: String| Failure::new(failure::USAGE, format!("`event.{name}`: {what}"));
    let known: Vec<_> = events.iter().filter_map(|event| event["id"].as_str().map(str::to_owned)).collect();
    let is_known = |id: &str| known.iter().any(|known| known == id);
    let unknown = |id: &str| match &known[..] {
        [] => format!("the zone has no event {id}, and no other one"),
        known => format!("the zone has no event {id}: its events are {}", known.join(", ")),
    };
    let mut changes = Vec::new();
    for &(name, text) in given {
        let (id, part) = part_of(&known, name, text)?;
        changes.push((id, part, name, text));
    }
    for &(id, part, name, text) in &changes {
        let Some(part) = part else {
            let other = changes.iter().find(|(other, part, ..)| *other == id && part.is_some());
            if let Some((.., other, _)) = other {
                let what = format!("changes the event that `event.{name}=` deletes: leave one of them out");
                return Err(wrong(other, what));
            }
            if !is_known(id) {
                return Err(wrong(name, unknown(id)));
            }
            events.retain(|event| event["id"] != id);
            continue;
        };
        if is_known(id)
            && text.is_empty()
            && matches!(part, Part::Field(field) if NEEDED_OF_EVENT.contains(&field))
        {
            let what = format!("an event needs it: write an instant, or `event.{id}=` to delete the event");
            return Err(wrong(name, what));
        }
        let at = events.iter().position(|event| event["id"] == id).unwrap_or_else(|| {
            events.push(json!({ "id": id }));
            events.len() - 1
        });
        set_part(&mut events[at], part, text);
    }
    // An event that is new by a misspelt name has few fields.
    for (id, _, name, _) in changes.iter().filter(|(id, ..)| !is_known(id)) {
        let event = events.iter().find(|event| event["id"] == *id);
        let mut missing = NEEDED_OF_EVENT.to_vec();
        missing.retain(|field| event.is_none_or(|event| event[field].is_null()));
        if !missing.is_empty() {
            let what = format!("{}; a new one needs {}, too", unknown(id), missing.join(", "));
            return Err(wrong(name, what));
        }
    }
    Ok(events)
}

/// Which event an argument is about, and which part of it; `None` for the event itself. The name of an event may have dots, so the end of
/// the argument says what the part is; an argument without a text deletes the event that has just this name, if the zone has it.
fn part_of<'a>(known: &[String], name: &'a str, text: &str) -> Result<(&'a str, Option<Part<'a>>), Failure> {
    let (id, part) = match name.rsplit_once('.') {
        _ if text.is_empty() && known.iter().any(|known| known == name) => (name, None),
        Some((id, field)) if OF_EVENT.contains(&field) => (id, Some(Part::Field(field))),
        Some((of, language)) if of.ends_with(".notice") => {
            (&of[..of.len() - ".notice".len()], Some(Part::Notice(language)))
        }
        _ => {
            let fields = format!("{}, notice.LANGUAGE", OF_EVENT.join(", "));
            let field_of =
                |id: &String| Some((id.clone(), name.strip_prefix(id.as_str())?.strip_prefix('.')?));
            let what = match known.iter().filter_map(field_of).max_by_key(|(id, _)| id.len()) {
                Some((id, field)) => format!("event {id} has no field {field}: its fields are {fields}"),
                None if text.is_empty() => {
                    check_name(name, name)?;
                    return Ok((name, None));
                }
                None => format!(
                    "name a field of the event ({fields}), or leave the value empty to delete the event"
                ),
            };
            return Err(Failure::new(failure::USAGE, format!("`event.{name}`: {what}")));
        }
    };
    check_name(name, id)?;
    Ok((id, part))
}

/// Sets a part of an event, or takes it away if the text is empty.
fn set_part(event: &mut Value, part: Part<'_>, text: &str) {
    match (part, text) {
        (Part::Notice(language), "") => {
            event.get_mut("notice").and_then(Value::as_object_mut).map(|texts| texts.remove(language));
        }
        (Part::Field(field), "") => {
            event.as_object_mut().map(|fields| fields.remove(field));
        }
        (Part::Notice(language), text) => event["notice"][language] = text.into(),
        (Part::Field(field), text) => event[field] = value_of(text, NUMBERS_OF_EVENT.contains(&field)),
    }
}

/// Checks the name of an event in `event.FIELD`.
fn check_name(field: &str, id: &str) -> Result<(), Failure> {
    let wrong = |fault: EventFault| Failure::new(failure::USAGE, format!("`event.{field}`: {}", fault.what));
    EventJson::name(id).map(drop).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_become_the_body_of_a_change() {
        let body = |fields: &[(&str, &str)]| {
            let fields: Vec<_> = fields.iter().map(|(n, t)| ((*n).to_owned(), (*t).to_owned())).collect();
            body_of(&fields, &json!([{ "id": "old.one", "begins": "x" }])).map(Value::from)
        };
        let fields = [
            ("mode", "hold"),
            ("admit_per_minute", "60"),
            ("opens_at", "5"),
            ("notice.en", "7"),
            ("notice.ko", ""),
        ];
        let wanted = json!({
            "policy": { "mode": "hold", "admit_per_minute": 60, "opens_at": "5" }, "notice": { "en": "7", "ko": null },
        });
        assert_eq!(body(&fields).expect("right"), wanted);
        assert_eq!(body(&[]).expect("nothing"), json!({}));
        assert!(body(&[("mode", "hold"), ("mode", "open")]).is_err());
    }

    #[test]
    fn fields_of_events_change_the_events() {
        let events = |fields: &[(&str, &str)]| {
            let fields: Vec<_> = fields.iter().map(|(n, t)| ((*n).to_owned(), (*t).to_owned())).collect();
            let old = json!([{ "id": "old.one", "begins": "x", "notice": { "en": "a", "ko": "b" } }]);
            body_of(&fields, &old).map(|body| body["events"].clone()).map_err(|fault| fault.to_string())
        };
        assert_eq!(
            events(&[
                ("event.old.one.begins", "y"),
                ("event.old.one.notice.ko", ""),
                ("event.new.max_active", "5"),
                ("event.new.notice.en", ""),
                ("event.new.prequeue_from", "x"),
                ("event.new.begins", "y"),
                ("event.new.ends", "5"),
            ]),
            Ok(json!([
                { "id": "old.one", "begins": "y", "notice": { "en": "a" } },
                { "id": "new", "max_active": 5, "prequeue_from": "x", "begins": "y", "ends": "5" },
            ])),
            "an instant is a text"
        );
        assert_eq!(events(&[("event.old.one", "")]), Ok(json!([])));
        let dotted = json!([{ "id": "x.notice.en", "begins": "x" }]);
        let fields = [("event.x.notice.en.begins".to_owned(), "y".to_owned())];
        let body = body_of(&fields, &dotted).expect("of the event that is there");
        assert_eq!(body["events"], json!([{ "id": "x.notice.en", "begins": "y" }]));
        assert!(events(&[("event.old.one", "y")]).is_err_and(|fault| fault.contains("name a field")));
        let twice = events(&[("event.a.begins", "x"), ("event.a.begins", "y")]);
        assert!(twice.is_err_and(|fault| fault.contains("`event.a.begins` is given twice")));
    }

    #[test]
    fn every_name_of_an_event_can_be_made_changed_and_deleted() {
        let events = |fields: &[(&str, &str)], old: &Value| {
            let fields: Vec<_> =
                fields.iter().map(|(n, t)| (format!("event.{n}"), (*t).to_owned())).collect();
            body_of(&fields, old).map(|body| body["events"].clone()).map_err(|fault| fault.to_string())
        };
        let names =
            ["a", "a.begins", "a.b", "x.notice", "x.notice.en", "notice", "begins", "a.notice.notice"];
        for id in names {
            let field = |field: &str| format!("{id}.{field}");
            let [from, begins, ends, en] = ["prequeue_from", "begins", "ends", "notice.en"].map(field);
            let made = json!([{ "id": id, "prequeue_from": "1", "begins": "2", "ends": "3", "notice": { "en": "a" } }]);
            let fields = [(from.as_str(), "1"), (&begins, "2"), (&ends, "3"), (&en, "a")];
            assert_eq!(events(&fields, &json!([])), Ok(made.clone()), "{id}");
            let changed =
                json!([{ "id": id, "prequeue_from": "1", "begins": "9", "ends": "3", "notice": {} }]);
            assert_eq!(events(&[(&begins, "9"), (&en, "")], &made), Ok(changed), "{id}");
            assert_eq!(events(&[(id, "")], &made), Ok(json!([])), "{id}");
        }
        // Where the zone has both events, the name that is meant as a whole counts.
        let both = json!([{ "id": "a", "begins": "x" }, { "id": "a.begins", "begins": "x" }]);
        assert_eq!(events(&[("a.begins", "")], &both), Ok(json!([{ "id": "a", "begins": "x" }])));
        let later = json!([{ "id": "a", "begins": "y" }, { "id": "a.begins", "begins": "x" }]);
        assert_eq!(events(&[("a.begins", "y")], &both), Ok(later));
    }

    #[test]
    fn arguments_about_events_that_are_refused_say_why() {
        let said = |fields: &[(&str, &str)], events: &Value| {
            let given: Vec<_> = fields.iter().map(|(n, t)| ((*n).to_owned(), (*t).to_owned())).collect();
            body_of(&given, events).map(Value::from).expect_err("refused").to_string()
        };
        let sales = json!([{ "id": "spring", "begins": "x" }, { "id": "summer.1", "begins": "x" }]);
        let known = "the zone has no event sprng: its events are spring, summer.1";
        for (fields, wanted) in [
            (
                &[("event.sprng.begins", "x")][..],
                &*format!("{known}; a new one needs prequeue_from, ends, too"),
            ),
            (
                &[("event.sprng.notice.en", "x"), ("event.sprng.ends", "")],
                &format!("{known}; a new one needs"),
            ),
            (&[("event.sprng", "")], known),
            // A set field and the deletion of its event, in any order.
            (
                &[("event.spring.begins", "y"), ("event.spring", "")],
                "`event.spring.begins`: changes the event that `event.spring=` deletes: leave one of them out",
            ),
            (
                &[("event.summer.1", ""), ("event.summer.1.notice.en", "y")],
                "`event.summer.1.notice.en`: changes the event that `event.summer.1=` deletes",
            ),
            (&[("event.new.begins", "y"), ("event.new", "")], "`event.new.begins`: changes the event that"),
            // An empty text for what an event cannot be without, and for what is no field.
            (
                &[("event.spring.begins", "")],
                "`event.spring.begins`: an event needs it: write an instant, or `event.spring=` to delete the event",
            ),
            (
                &[("event.spring.begin", "")],
                "`event.spring.begin`: event spring has no field begin: its fields are prequeue_from",
            ),
            (
                &[("event.spring.notice", "x")],
                "`event.spring.notice`: event spring has no field notice: its fields are",
            ),
        ] {
            assert!(said(fields, &sales).contains(wanted), "{}", said(fields, &sales));
        }
        let none = said(&[("event.sale.begins", "x")], &Value::Null);
        let wanted = "the zone has no event sale, and no other one; a new one needs prequeue_from, ends, too";
        assert!(none.contains(wanted), "{none}");
    }

    #[test]
    fn a_name_that_no_event_can_have_is_named() {
        let said = |field: &str, text: &str| {
            let body = body_of(&[(field.to_owned(), text.to_owned())], &json!([{ "id": "sale" }]));
            body.expect_err(field).to_string()
        };
        for (field, text, name) in [
            ("event.spring sale.begins", "x", "spring sale"),
            ("event.spring sale.notice.en", "x", "spring sale"),
            ("event..begins", "x", ""),
            ("event..begins", "", ""),
            ("event...begins", "x", "."),
            ("event.sale .begins", "x", "sale "),
            ("event.spring sale", "", "spring sale"),
            ("event.", "", ""),
        ] {
            let wanted = format!("`{field}`: {name:?} is no name of an event: it has 1 to 64 of A-Z");
            assert!(said(field, text).contains(&wanted), "{}", said(field, text));
        }
    }

    #[test]
    fn every_field_of_an_event_can_be_set() {
        let event = EventJson {
            id: "a".to_owned(),
            prequeue_from: String::new(),
            begins: String::new(),
            ends: String::new(),
            before: String::new(),
            after: String::new(),
            before_page: Some("/".to_owned()),
            after_page: Some("/".to_owned()),
            admit_per_minute: Some(1),
            max_active: Some(1),
            order: "draw".to_owned(),
            randomness: Some("drand".to_owned()),
            fallback: Some("wait".to_owned()),
            notice: [("en".to_owned(), "a".to_owned())].into(),
        };
        let written = serde_json::to_value(event).expect("texts and numbers are JSON");
        let mut names: Vec<&str> =
            written.as_object().expect("an object").keys().map(String::as_str).collect();
        names.retain(|name| !["id", "notice"].contains(name));
        let mut known = OF_EVENT;
        known.sort_unstable();
        names.sort_unstable();
        assert_eq!(names, known);
    }

    #[test]
    fn numbers_of_tiers_become_the_body_of_a_change() {
        let of = |given: &[(&str, &str)]| {
            let given: Vec<_> = given.iter().map(|(n, t)| ((*n).to_owned(), (*t).to_owned())).collect();
            numbers_of(&given).map(Value::from)
        };
        assert_eq!(of(&[("floor", "12"), ("gold", "unknown")]), Ok(json!({ "floor": 12, "gold": null })));
        for wrong in [&[("floor", "")][..], &[("floor", "1.5")], &[("floor", "1"), ("floor", "2")]] {
            assert_eq!(of(wrong).expect_err("refused").exit, failure::USAGE, "{wrong:?}");
        }
    }

    #[tokio::test]
    async fn an_empty_name_of_a_zone_is_refused_before_anything_is_sent() {
        // No server has this address, so a request would say something else.
        let server = Server { url: "http://127.0.0.1:0".to_owned(), token: None, token_file: None };
        let (zone, fields, numbers, dry_run) = (String::new, Vec::new(), Vec::new(), false);
        for call in [
            Call::Show(zone()),
            Call::Set { zone: zone(), fields: fields.clone(), dry_run },
            Call::Create { zone: zone(), fields, dry_run },
            Call::Delete { zone: zone(), dry_run },
            Call::Stock(zone()),
            Call::SetStock { zone: zone(), numbers, dry_run },
            Call::ApplyStock { zone: zone(), file: PathBuf::new(), dry_run },
            Call::Stats { zone: Some(zone()), watch: false },
            Call::Changes(Some(zone())),
        ] {
            let Failure { exit, line } = run(&call, &server, Format::Json).await.expect_err("refused");
            assert!(line.starts_with("the name of the zone is empty: a zone's id is 1 to 64 of"), "{line}");
            assert_eq!(exit, failure::DATA, "{call:?}");
        }
    }

    #[test]
    fn names_are_escaped_in_paths() {
        assert_eq!(path_of("shop:a.b-c_D"), "/admin/v1/zones/shop:a.b-c_D");
        assert_eq!(path_of("a/../b?c"), "/admin/v1/zones/a%2F..%2Fb%3Fc");
    }
}
