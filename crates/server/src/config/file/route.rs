//! The routes, in a configuration file. Their order counts.

use admission::ZoneId;
use hyper::header::HeaderName;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{Lines, in_order, unknown, wrong_type};
use crate::{
    config::{
        ConfigFault,
        checks::network,
        settings::{Kind, Origin},
    },
    http::check::{
        pattern::Pattern,
        routes::{Condition, Gated, Outcome, Route},
    },
};

const MAX_ROUTES: usize = 1_024;
const MAX_ITEMS: usize = 256;
const MAX_NAME_LEN: usize = 64;
const ROUTE_FIELDS: [&str; 12] = [
    "name",
    "zone",
    "bypass",
    "deny",
    "everything",
    "bind_address",
    "host",
    "path",
    "method",
    "header",
    "cookie",
    "address",
];

/// Reads all routes.
pub(super) fn all(
    lines: &Lines<'_>,
    tables: &[Spanned<DeValue<'_>>],
) -> Result<Vec<(Route, Origin)>, ConfigFault> {
    let mut routes: Vec<(Route, Origin)> = Vec::new();
    for (table, number) in tables.iter().zip(1..) {
        let (here, route) = (lines.at(&table.span(), "route"), route(lines, table, number)?);
        if routes.len() == MAX_ROUTES {
            return Err(here.fault(format!("there are more than {MAX_ROUTES} routes")));
        }
        if routes.iter().any(|(other, _)| other.name == route.name) {
            return Err(here.fault(format!("`{}` is the name of two routes; change one", route.name)));
        }
        if let Some((above, _)) = routes.iter().find(|(other, _)| other.conditions.is_empty()) {
            let what = format!(
                "the route `{}` above fits every request, so this one never decides; move it up",
                above.name
            );
            return Err(here.fault(what));
        }
        routes.push((route, here));
    }
    Ok(routes)
}

fn route(lines: &Lines<'_>, table: &Spanned<DeValue<'_>>, number: usize) -> Result<Route, ConfigFault> {
    let here = lines.at(&table.span(), "route");
    let DeValue::Table(fields) = table.get_ref() else {
        return Err(here.fault("routes are written as [[route]] tables"));
    };
    let (mut name, mut conditions, mut outcomes) = (format!("route {number}"), Vec::new(), Vec::new());
    let (mut everything, mut bind_address) = (None, None);
    for (key, value) in in_order(fields) {
        let field = key.get_ref().as_ref();
        let origin = lines.at(&key.span(), &format!("route.{field}"));
        match (field, value.get_ref()) {
            ("name", DeValue::String(text)) => {
                if !(1..=MAX_NAME_LEN).contains(&text.len()) || text.chars().any(char::is_control) {
                    return Err(
                        origin.fault(format!("a route's name has 1 to {MAX_NAME_LEN} printable characters"))
                    );
                }
                name = text.to_string();
            }
            ("zone", DeValue::String(text)) => {
                outcomes.push(Some(ZoneId::parse(text).map_err(|fault| origin.fault(fault))?));
            }
            ("bypass" | "deny", DeValue::Boolean(true)) => outcomes.push(None),
            ("everything", DeValue::Boolean(is)) => everything = Some((*is, origin)),
            ("bind_address", DeValue::Boolean(is)) => bind_address = Some((*is, origin)),
            ("bypass" | "deny", DeValue::Boolean(false)) => {
                return Err(origin.fault("is false; leave it out instead"));
            }
            ("bypass" | "deny" | "everything" | "bind_address", other) => {
                return Err(
                    origin.fault(format!("must be true or false, and is of type {}", other.type_str()))
                );
            }
            ("host", _) => {
                let lower = |text: &str| pattern(&text.to_ascii_lowercase(), &origin);
                conditions.push(Condition::Host(list(value, &origin, lower)?));
            }
            ("path", _) => {
                let path = |text: &str| match text.starts_with(['/', '*']) {
                    true => pattern(text, &origin),
                    false => Err(origin.fault(format!("`{text}` is no path; a path begins with /"))),
                };
                conditions.push(Condition::Path(list(value, &origin, path)?));
            }
            ("method", _) => {
                let method =
                    |text: &str| match !text.is_empty() && text.bytes().all(|b| b.is_ascii_uppercase()) {
                        true => Ok(text.to_owned()),
                        false => Err(origin.fault(format!("`{text}` is no method; write one as in GET"))),
                    };
                conditions.push(Condition::Method(list(value, &origin, method)?));
            }
            ("address", _) => {
                conditions.push(Condition::Address(list(value, &origin, |text| network(text, &origin))?));
            }
            ("header", DeValue::Table(table)) => {
                for (name, pattern) in patterns(lines, table, "header")? {
                    let header = HeaderName::try_from(name.as_str())
                        .map_err(|_| origin.fault(format!("`{name}` is not the name of a header")))?;
                    conditions.push(Condition::Header(header, pattern));
                }
            }
            ("cookie", DeValue::Table(table)) => {
                let all = patterns(lines, table, "cookie")?;
                conditions.extend(all.into_iter().map(|(name, pattern)| Condition::Cookie(name, pattern)));
            }
            ("header" | "cookie", other) => {
                let what =
                    format!("must be a table of patterns by name, and is of type {}", other.type_str());
                return Err(origin.fault(what));
            }
            ("name" | "zone", other) => return Err(origin.fault(wrong_type(Kind::Text, other))),
            (other, _) => return Err(origin.fault(unknown(other, ROUTE_FIELDS.into_iter()))),
        }
    }
    let outcome = match &outcomes[..] {
        [Some(zone)] => Outcome::Zone(Gated {
            zone: zone.clone(),
            everything: everything.is_some_and(|(is, _)| is),
            bind_address: bind_address.is_some_and(|(is, _)| is),
        }),
        [None] if everything.is_some() || bind_address.is_some() => {
            let (_, origin) = everything.or(bind_address).expect("one of them is there");
            return Err(origin.fault("is for routes with a zone; remove it"));
        }
        [None] if fields.contains_key("deny") => Outcome::Deny,
        [None] => Outcome::Bypass,
        _ => {
            return Err(here.fault("needs exactly one of `zone = \"ID\"`, `bypass = true` and `deny = true`"));
        }
    };
    if outcome == Outcome::Bypass && conditions.is_empty() {
        return Err(here.fault("lets everybody through; give it a condition, or remove it"));
    }
    Ok(Route { name, conditions, outcome })
}

fn pattern(text: &str, origin: &Origin) -> Result<Pattern, ConfigFault> {
    Pattern::new(text).map_err(|fault| origin.fault(fault))
}

/// A text, or a list of texts.
fn list<T>(
    value: &Spanned<DeValue<'_>>,
    origin: &Origin,
    read: impl Fn(&str) -> Result<T, ConfigFault>,
) -> Result<Vec<T>, ConfigFault> {
    match value.get_ref() {
        DeValue::String(text) => Ok(vec![read(text)?]),
        DeValue::Array(items) if (1..=MAX_ITEMS).contains(&items.len()) => {
            let text = |item: &Spanned<DeValue<'_>>| match item.get_ref() {
                DeValue::String(text) => read(text),
                other => Err(origin.fault(wrong_type(Kind::List, other))),
            };
            items.iter().map(text).collect()
        }
        DeValue::Array(_) => Err(origin.fault(format!("has 1 to {MAX_ITEMS} texts"))),
        other => Err(origin
            .fault(format!("must be a string or a list of strings, and is of type {}", other.type_str()))),
    }
}

/// Patterns by name.
fn patterns(
    lines: &Lines<'_>,
    table: &DeTable<'_>,
    field: &str,
) -> Result<Vec<(String, Pattern)>, ConfigFault> {
    let read = |(key, value): (&Spanned<std::borrow::Cow<'_, str>>, &Spanned<DeValue<'_>>)| {
        let origin = lines.at(&key.span(), &format!("route.{field}.{}", key.get_ref()));
        match value.get_ref() {
            DeValue::String(text) => Ok((key.get_ref().to_string(), pattern(text, &origin)?)),
            other => Err(origin.fault(wrong_type(Kind::Text, other))),
        }
    };
    in_order(table).into_iter().map(read).collect()
}
