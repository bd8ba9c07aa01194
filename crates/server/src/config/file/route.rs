//! The routes, in a configuration file. Their order counts. `check::written` says what a route may be; this gives each fault
//! its line.

use check::{
    Route,
    written::{self, RouteFault},
};
use serde_json::{Map, Value};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{Lines, in_order};
use crate::config::{ConfigFault, settings::Origin};

/// Reads all routes.
pub(super) fn all(
    lines: &Lines<'_>,
    tables: &[Spanned<DeValue<'_>>],
) -> Result<Vec<(Route, Origin)>, ConfigFault> {
    let (mut routes, mut origins) = (Vec::new(), Vec::new());
    for (table, number) in tables.iter().zip(1..) {
        let here = lines.at(&table.span(), "route");
        let DeValue::Table(fields) = table.get_ref() else {
            return Err(here.fault("routes are written as [[route]] tables"));
        };
        let route = written::read(&object(fields), number);
        routes.push(route.map_err(|fault| at_its_line(lines, &here, fields, &fault))?);
        origins.push(here);
    }
    if let Some((index, what)) = written::fault_of_list(&routes) {
        return Err(origins[index].fault(what));
    }
    Ok(routes.into_iter().zip(origins).collect())
}

/// The first route without a name.
pub(super) fn unnamed(lines: &Lines<'_>, tables: &[Spanned<DeValue<'_>>]) -> Option<Origin> {
    let has_name =
        |table: &DeValue<'_>| matches!(table, DeValue::Table(fields) if fields.contains_key("name"));
    let table = tables.iter().find(|table| !has_name(table.get_ref()))?;
    Some(lines.at(&table.span(), "route"))
}

/// Whether a route has a secret as plain text, and not as a digest.
pub(super) fn has_secret(table: &DeValue<'_>) -> bool {
    let DeValue::Table(fields) = table else { return false };
    let is_secret = |matcher: &Spanned<DeValue<'_>>| matches!(matcher.get_ref(), DeValue::Table(of) if of.contains_key("secret"));
    let matchers = ["header", "cookie"].into_iter().filter_map(|field| fields.get(field));
    matchers.into_iter().any(|matchers| match matchers.get_ref() {
        DeValue::Table(by_name) => by_name.values().any(is_secret),
        _ => false,
    })
}

/// A fault with the line of its field.
fn at_its_line(
    lines: &Lines<'_>,
    here: &Origin,
    fields: &DeTable<'_>,
    RouteFault { field, what }: &RouteFault,
) -> ConfigFault {
    let first = field.split('.').next().unwrap_or_default();
    match in_order(fields).into_iter().find(|(key, _)| key.get_ref().as_ref() == first) {
        Some((key, _)) => lines.at(&key.span(), &format!("route.{field}")).fault(what),
        None => here.fault(what),
    }
}

fn object(table: &DeTable<'_>) -> Map<String, Value> {
    table.iter().map(|(key, value)| (key.get_ref().to_string(), json(value.get_ref()))).collect()
}

/// The same value in JSON. No field of a route is a number or a date, so those are only to be refused.
fn json(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::from(text.as_ref()),
        DeValue::Boolean(is) => Value::from(*is),
        DeValue::Array(items) => items.iter().map(|item| json(item.get_ref())).collect(),
        DeValue::Table(table) => object(table).into(),
        DeValue::Integer(_) | DeValue::Float(_) | DeValue::Datetime(_) => Value::Null,
    }
}
