//! Reads the configuration file: from TOML to settings and zones. Each fault has its line.

mod cell;
mod route;
mod target;
mod token;

use std::{collections::HashMap, io::ErrorKind, ops::Range, path::Path};

use admission::{Definition, Event, FIELDS, Field, FieldKind, Notice, Policy, Schedule, ZoneId};
use check::Route;
use gate::definitions::{EventFault, EventJson, ZONES_MAX};
use serde::de::IntoDeserializer as _;
use shown::{ends, utf8};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use crate::{access::AdminToken, fields::plain_types, stores::CellSettings};

use super::{
    ConfigFault,
    settings::{Kind, Origin, SETTINGS, Setting, SettingValue, Value, out_of_range},
    values::no_such_word,
};
use crate::http::waiting_page::target::Target;

const MAX_LEN: u64 = 4 << 20;

type Fields<'t, 'i> = Vec<(&'t Spanned<std::borrow::Cow<'i, str>>, &'t Spanned<DeValue<'i>>)>;

/// A zone, and its position in the file.
pub(super) type Zone = (ZoneId, Definition, Origin);

/// The content of a file.
#[derive(Default)]
pub(super) struct FileText {
    pub(super) settings: Vec<(&'static str, SettingValue)>,
    pub(super) cells: Vec<CellSettings>,
    pub(super) admin_tokens: Vec<AdminToken>,
    pub(super) zones: Vec<Zone>,
    pub(super) targets: Vec<Target>,
    /// The routes, and their positions in the file.
    pub(super) routes: Vec<(Route, Origin)>,
    /// The first route that has no name.
    pub(super) unnamed_route: Option<Origin>,
    /// The fields that hold secrets as plain text.
    pub(super) secrets: Vec<String>,
}

impl FileText {
    /// Whether there is nothing but routes.
    pub(super) fn has_only_routes(&self) -> bool {
        let Self { settings, cells, admin_tokens, zones, targets, routes: _, unnamed_route: _, secrets: _ } =
            self;
        settings.is_empty()
            && cells.is_empty()
            && admin_tokens.is_empty()
            && zones.is_empty()
            && targets.is_empty()
    }
}

/// Reads the file at `path`.
pub(super) fn read(path: &Path) -> Result<FileText, ConfigFault> {
    let name = path.display();
    let fault = |what: String| ConfigFault(format!("{name}: {what}"));
    let bytes = shown::file::bytes(path, MAX_LEN).map_err(|e| match e.kind() {
        ErrorKind::FileTooLarge => {
            fault(format!("is too long: the largest configuration has {MAX_LEN} bytes"))
        }
        _ => fault(format!("can't be read: {e}")),
    })?;
    let text = utf8::text(bytes).map_err(|e| ConfigFault(format!("{name}:{e}")))?;
    parse(&name.to_string(), &text)
}

/// Reads `text`. Faults mention `name`.
pub(super) fn parse(name: &str, text: &str) -> Result<FileText, ConfigFault> {
    let lines = Lines { name, text };
    let root = DeTable::parse(text).map_err(|e| {
        let span = e.span().unwrap_or(0..0);
        let message = e.message().lines().next().unwrap_or("no TOML").to_owned();
        let line = text[..span.start.min(text.len())].rsplit('\n').next().unwrap_or_default().len();
        let line = text[span.start.min(text.len()) - line..].lines().next().unwrap_or_default();
        let hint = bare_text(line).map(|shown| format!("; a text needs quotes{shown}")).unwrap_or_default();
        lines.at(&span, "").fault(format!("{message}{hint}; see https://toml.io for the syntax"))
    })?;
    let mut found = FileText::default();
    for (key, value) in in_order(root.get_ref()) {
        match (key.get_ref().as_ref(), value.get_ref()) {
            ("zone", DeValue::Array(tables)) => {
                let mut first_lines = HashMap::new();
                for table in tables {
                    let (id, definition) = zone(&lines, table)?;
                    let origin = lines.at(&table.span(), "zone");
                    if let Some(first) = first_lines.insert(id.clone(), lines.line(&table.span())) {
                        let what = format!("`{id}` is defined twice, first at line {first}; remove one");
                        return Err(origin.fault(what));
                    }
                    found.zones.push((id, definition, origin));
                }
            }
            ("zone", _) => {
                return Err(lines.at(&key.span(), "zone").fault("zones are written as [[zone]] tables"));
            }
            ("cell", DeValue::Array(tables)) => {
                found.cells = cell::all(&lines, tables)?;
                if found.cells.iter().any(|cell| cell.address.password.is_some()) {
                    found.secrets.push("cell.store".to_owned());
                }
            }
            ("route", DeValue::Array(tables)) => {
                found.routes = route::all(&lines, tables)?;
                found.unnamed_route = route::unnamed(&lines, tables);
                if tables.iter().any(|table| route::has_secret(table.get_ref())) {
                    found.secrets.push("route".to_owned());
                }
            }
            ("route", _) => {
                return Err(lines.at(&key.span(), "route").fault("routes are written as [[route]] tables"));
            }
            ("cell", _) => {
                return Err(lines.at(&key.span(), "cell").fault("cells are written as [[cell]] tables"));
            }
            ("admin_token", DeValue::Array(tables)) => found.admin_tokens = token::all(&lines, tables)?,
            ("admin_token", _) => {
                return Err(lines
                    .at(&key.span(), "admin_token")
                    .fault("tokens are written as [[admin_token]] tables"));
            }
            (
                section @ ("audit" | "draw" | "limit" | "otlp" | "pass" | "redis" | "seal" | "tls" | "wait"),
                DeValue::Table(table),
            ) => {
                for (key, value) in in_order(table) {
                    if (section, key.get_ref().as_ref()) == ("wait", "target") {
                        found.targets = target::all(&lines, key, value)?;
                        continue;
                    }
                    let field = format!("{section}.{}", key.get_ref());
                    found.settings.push(setting(&lines, &field, key.span(), value)?);
                }
            }
            (field, _) => found.settings.push(setting(&lines, field, key.span(), value)?),
        }
    }
    let secret =
        |(name, given): &(&str, SettingValue)| is_secret(name, &given.value).then(|| (*name).to_owned());
    found.secrets.extend(found.settings.iter().filter_map(secret));
    if found.zones.len() > ZONES_MAX {
        let count = found.zones.len();
        return Err(ConfigFault(format!("{name}: has {count} zones, and {ZONES_MAX} are the most")));
    }
    Ok(found)
}

/// Whether the value of a setting is a secret, or an address with a password or token in it.
fn is_secret(name: &str, value: &Value) -> bool {
    let is_kind = SETTINGS.iter().any(|setting| setting.name == name && matches!(setting.kind, Kind::Secret));
    let is_address = matches!(name, "store" | "fanout");
    is_kind || is_address && matches!(value, Value::Text(text) if text.contains('@'))
}

struct Lines<'a> {
    name: &'a str,
    text: &'a str,
}

impl Lines<'_> {
    fn line(&self, span: &Range<usize>) -> usize {
        1 + self.text.bytes().take(span.start).filter(|&b| b == b'\n').count()
    }

    fn at(&self, span: &Range<usize>, field: &str) -> Origin {
        Origin::File(self.name.to_owned(), self.line(span), ends(field).into_owned())
    }
}

/// The fields of a table in the order of the file, so that the first fault in the file is reported.
fn in_order<'t, 'i>(table: &'t DeTable<'i>) -> Fields<'t, 'i> {
    let mut fields: Vec<_> = table.iter().collect();
    fields.sort_by_key(|(key, _)| key.span().start);
    fields
}

fn setting(
    lines: &Lines<'_>,
    field: &str,
    span: Range<usize>,
    value: &Spanned<DeValue<'_>>,
) -> Result<(&'static str, SettingValue), ConfigFault> {
    let origin = lines.at(&span, field);
    let Some(setting) = SETTINGS.iter().find(|s| s.name == field) else {
        return Err(origin.fault(unknown(field, SETTINGS.iter().map(|s| s.name).chain(TABLES))));
    };
    let value = match (setting.kind, value.get_ref()) {
        (Kind::Text | Kind::Secret, DeValue::String(text)) => Value::of_text(text, &origin)?,
        (Kind::List, DeValue::Array(items)) => {
            let text = |item: &Spanned<DeValue<'_>>| item.get_ref().as_str().map(str::to_owned);
            let texts: Option<_> = items.iter().map(text).collect();
            Value::List(texts.ok_or_else(|| origin.fault("must be a list of strings"))?)
        }
        (Kind::Number(low, high), DeValue::Integer(number)) => {
            let read = u32::from_str_radix(number.as_str(), number.radix()).ok();
            let read = read.filter(|n| (low..=high).contains(n));
            Value::Number(read.ok_or_else(|| origin.fault(out_of_range(number, low, high)))?)
        }
        (Kind::Share, DeValue::Float(share)) => Value::of_share(share.as_str(), &origin)?,
        (Kind::Share, DeValue::Integer(share)) => Value::of_share(share.as_str(), &origin)?,
        (kind, other) => return Err(origin.fault(wrong_type(kind, other))),
    };
    Ok((setting.name, SettingValue { value, origin }))
}

fn wrong_type(kind: Kind, value: &DeValue<'_>) -> String {
    let wanted = match kind {
        Kind::Text | Kind::Secret => "a string",
        Kind::Number(..) => "a whole number",
        Kind::Share => "a number from 0 to 1",
        Kind::List => "a list of strings",
    };
    format!("must be {wanted}, and is of type {}", value.type_str())
}

/// What to say of a value that is no text, where an instant belongs.
fn no_instant_text(value: &DeValue<'_>) -> String {
    let what = wrong_type(Kind::Text, value);
    format!("{what}; an instant is written in quotes, as in \"2026-12-01T09:00[Asia/Seoul]\"")
}

/// What is written as tables, beside the settings.
const TABLES: [&str; 5] = ["zone", "route", "cell", "admin_token", "wait.target"];

/// What to say of a line `name = text` without quotes: how to write the text, or nothing if it may be a secret. None for other lines.
fn bare_text(line: &str) -> Option<String> {
    let (name, value) = line.split_once('=')?;
    let (name, value) = (name.trim(), value.split('#').next()?.trim());
    let is_text = value.starts_with(|c: char| c.is_alphabetic() || c == '/') && !value.contains(['"', '\'']);
    if !is_text || matches!(value, "true" | "false" | "inf" | "nan") {
        return None;
    }
    // Below a section, only the last part of a setting's name is written. An address may have a password in it.
    let of_name = |setting: &&Setting| {
        setting.name.rsplit('.').next() == Some(name) && name != "store" && name != "fanout"
    };
    let mut settings = SETTINGS.iter().filter(of_name).peekable();
    let is_shown = settings.peek().is_some() && settings.all(|setting| matches!(setting.kind, Kind::Text));
    Some(if is_shown { format!(": \"{value}\"") } else { String::new() })
}

/// How alike two names must be for one to be a misspelling of the other: the measure of Jaro and Winkler, from 0 to 1.
const ALIKE: f64 = 0.85;

fn unknown<'a>(field: &str, known: impl Iterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.collect();
    let alike = known.iter().map(|name| (strsim::jaro_winkler(field, name), name));
    match alike.max_by(|(one, _), (other, _)| one.total_cmp(other)) {
        Some((most, name)) if most >= ALIKE => {
            format!("there is no such field as `{field}`; did you mean `{name}`?")
        }
        _ => format!("there is no such field as `{field}`; the fields are {}", known.join(", ")),
    }
}

/// Reads the texts of a `notice`.
fn notice(lines: &Lines<'_>, field: &Origin, value: &DeValue<'_>) -> Result<Notice, ConfigFault> {
    let DeValue::Table(texts) = value else {
        return Err(field.fault("must be a table of texts by language, as in [zone.notice] en = \"…\""));
    };
    let mut found = Vec::new();
    for (key, value) in in_order(texts) {
        let language = key.get_ref().as_ref();
        let origin = lines.at(&key.span(), &format!("zone.notice.{language}"));
        let DeValue::String(text) = value.get_ref() else {
            return Err(origin.fault(wrong_type(Kind::Text, value.get_ref())));
        };
        Notice::new([(language, text)]).map_err(|e| origin.fault(e))?;
        found.push((language, text));
    }
    Notice::new(found).map_err(|e| field.fault(e))
}

/// The events of a zone: `[[zone.event]]` tables.
fn events(lines: &Lines<'_>, field: &Origin, value: &DeValue<'_>) -> Result<Vec<Event>, ConfigFault> {
    let DeValue::Array(tables) = value else {
        return Err(field.fault("events are written as [[zone.event]] tables"));
    };
    let read = |table: &Spanned<DeValue<'_>>| {
        let DeValue::Table(fields) = table.get_ref() else {
            return Err(field.fault("events are written as [[zone.event]] tables"));
        };
        let fields = in_order(fields);
        let of_name = |name: &str| fields.iter().find(|(key, _)| key.get_ref() == name);
        let id = of_name("id").and_then(|(_, value)| value.get_ref().as_str());
        let id = id.filter(|id| EventJson::name(id).is_ok());
        let at = |span: &Range<usize>, part: &str| {
            let event = id.map_or_else(String::new, |id| format!(" (event {id})"));
            lines.at(span, &format!("zone.event{part}{event}"))
        };
        // The only values that serde takes for something else than TOML does.
        let date = fields.iter().find(|(_, value)| matches!(value.get_ref(), DeValue::Datetime(_)));
        if let Some((key, value)) = date {
            let origin = at(&key.span(), &format!(".{}", key.get_ref()));
            return Err(origin.fault(no_instant_text(value.get_ref())));
        }
        let event: EventJson =
            serde_path_to_error::deserialize(table.clone().into_deserializer()).map_err(|fault| {
                let span = fault.inner().span().unwrap_or_else(|| table.span());
                let part = match fault.path().iter().len() {
                    0 => String::new(),
                    _ => format!(".{}", fault.path()),
                };
                at(&span, &part).fault(plain_types(fault.inner().message()))
            })?;
        event.event().map_err(|EventFault { field, what }| {
            let span = of_name(field).map_or_else(|| table.span(), |(key, _)| key.span());
            at(&span, &format!(".{field}")).fault(what)
        })
    };
    tables.iter().map(read).collect()
}

/// The fields of a zone's table.
fn zone_fields() -> impl Iterator<Item = &'static str> {
    ["id"].into_iter().chain(FIELDS.iter().map(|field| field.name)).chain(["notice", "event"])
}

fn zone(lines: &Lines<'_>, table: &Spanned<DeValue<'_>>) -> Result<(ZoneId, Definition), ConfigFault> {
    let here = lines.at(&table.span(), "zone");
    let DeValue::Table(fields) = table.get_ref() else {
        return Err(here.fault("zones are written as [[zone]] tables"));
    };
    let (mut id, mut policy, mut numbers) = (None, Policy::default(), Vec::new());
    let (mut said, mut events) = (Notice::default(), Vec::new());
    for (key, value) in in_order(fields) {
        let field = key.get_ref().as_ref();
        let origin = lines.at(&key.span(), &format!("zone.{field}"));
        let text = || match value.get_ref() {
            DeValue::String(text) => Ok(text.as_ref()),
            other => Err(origin.fault(wrong_type(Kind::Text, other))),
        };
        let target = match field {
            "id" => {
                id = Some(ZoneId::parse(text()?).map_err(|e| origin.fault(e))?);
                continue;
            }
            "notice" => {
                said = notice(lines, &origin, value.get_ref())?;
                continue;
            }
            "event" => {
                events = self::events(lines, &origin, value.get_ref())?;
                continue;
            }
            other => Field::named(other).ok_or_else(|| origin.fault(unknown(other, zone_fields())))?,
        };
        match target.kind {
            FieldKind::Number { .. } => {}
            FieldKind::Word { words, .. } => {
                let word = text()?;
                target.set_text(&mut policy, word).map_err(|_| origin.fault(no_such_word(word, words)))?;
                continue;
            }
            FieldKind::Instant => {
                let DeValue::String(instant) = value.get_ref() else {
                    return Err(origin.fault(no_instant_text(value.get_ref())));
                };
                let fault = |fault| origin.fault(format!("{instant:?} {fault}"));
                target.set_text(&mut policy, instant).map_err(fault)?;
                continue;
            }
        }
        let DeValue::Integer(number) = value.get_ref() else {
            return Err(origin.fault(wrong_type(Kind::Number(0, 0), value.get_ref())));
        };
        // A number that does not fit a u32 is out of every range, and the check below reports the range.
        let read = i128::from_str_radix(number.as_str(), number.radix()).unwrap_or(i128::MAX);
        target.set(&mut policy, u32::try_from(read).unwrap_or(if read < 0 { 0 } else { u32::MAX }));
        numbers.push((field, origin, number.to_string()));
    }
    let policy = policy.check().map_err(|e| match numbers.iter().find(|(field, ..)| *field == e.field) {
        Some((_, origin, written)) => origin.fault(out_of_range(written, e.low, e.high)),
        None => here.fault(format!("{e} here; say it")),
    })?;
    let id = id.ok_or_else(|| here.fault("has no `id`; give it one"))?;
    let schedule = Schedule::new(events, &policy).map_err(|e| here.fault(e))?;
    Ok((id, Definition { policy, notice: said, schedule }))
}
