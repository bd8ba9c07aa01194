//! Routes as they are written: one reader for the configuration file, the admin API and the store.
//!
//! A route is an object of [`FIELDS`]. Invariants: a field that does not exist, a wrong type and a value out of its range are
//! refused, and the fault names the field. A pattern that no request can fit is refused, or put into the spelling in which requests are
//! compared. A secret is kept as its digest only. A text made by [`shown`] has neither secrets nor
//! digests.

mod spelling;

pub(crate) use spelling::host;
pub use spelling::network;

use admission::ZoneId;
use http::header::{HeaderName, USER_AGENT};
use serde_json::{Map, Value, json};

use crate::{
    digest::SecretDigest,
    pattern::Pattern,
    route::{Condition, Gated, Matcher, Route, RouteAction},
};

/// The most routes of one list.
pub const MAX_ROUTES: usize = 1_024;

/// The most values of one condition.
const MAX_ITEMS: usize = 256;

const MAX_NAME_LEN: usize = 64;

/// The lengths of a secret in bytes. A shorter one could be guessed.
const SECRET_LEN: std::ops::RangeInclusive<usize> = 16..=256;

/// The fields of a route, as they are written.
pub const FIELDS: [&str; 13] = [
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
    "token",
];

type Object = Map<String, Value>;

/// What is wrong with a route.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct RouteFault {
    /// The field, as in `header.x-staff`. Empty if it is the whole route.
    pub field: String,
    /// What is wrong, and what to do.
    pub what: String,
}

fn fault(field: &str, what: impl ToString) -> RouteFault {
    RouteFault { field: field.to_owned(), what: what.to_string() }
}

/// Reads a route. `number` names it if it has no name.
///
/// # Errors
/// A [`RouteFault`] about its first wrong field.
///
/// # Panics
/// Never.
pub fn read(fields: &Object, number: usize) -> Result<Route, RouteFault> {
    if let Some(unknown) = fields.keys().find(|name| !FIELDS.contains(&name.as_str())) {
        let shown: String = unknown.chars().take(MAX_NAME_LEN).collect();
        let what = format!("there is no such field as `{shown}`; the fields are {}", FIELDS.join(", "));
        return Err(fault(&shown, what));
    }
    let flag = |name: &str| match fields.get(name) {
        None => Ok(false),
        Some(Value::Bool(true)) => Ok(true),
        Some(Value::Bool(false)) if matches!(name, "bypass" | "deny") => {
            Err(fault(name, "is false; leave it out instead"))
        }
        Some(Value::Bool(false)) => Ok(false),
        Some(_) => Err(fault(name, "must be true or false")),
    };
    let name = match fields.get("name") {
        None => format!("route {number}"),
        Some(value) => name_of(value).map_err(|what| fault("name", what))?,
    };
    let zone = match fields.get("zone") {
        None => None,
        Some(Value::String(text)) => Some(ZoneId::parse(text).map_err(|wrong| fault("zone", wrong))?),
        Some(_) => return Err(fault("zone", "must be a string")),
    };
    let (bypass, deny) = (flag("bypass")?, flag("deny")?);
    let (everything, bind_address) = (flag("everything")?, flag("bind_address")?);
    let action = match (zone, bypass, deny) {
        (Some(zone), false, false) => {
            RouteAction::Zone(Gated { everything, bind_address, ..Gated::new(zone) })
        }
        (None, true, false) => RouteAction::Bypass,
        (None, false, true) => RouteAction::Deny,
        _ => {
            return Err(fault("", "needs exactly one of `zone = \"ID\"`, `bypass = true` and `deny = true`"));
        }
    };
    if !matches!(action, RouteAction::Zone(_))
        && let Some(name) = ["everything", "bind_address"].iter().find(|name| fields.contains_key(**name))
    {
        return Err(fault(name, "is for routes with a zone; remove it"));
    }
    let conditions = conditions(fields, &action)?;
    if action == RouteAction::Bypass && conditions.is_empty() {
        return Err(fault("", "lets everybody through; give it a condition, or remove it"));
    }
    Ok(Route { name, conditions, action })
}

fn name_of(value: &Value) -> Result<String, String> {
    let Value::String(text) = value else { return Err("must be a string".to_owned()) };
    if !(1..=MAX_NAME_LEN).contains(&text.len()) || text.chars().any(char::is_control) {
        return Err(format!("a route's name has 1 to {MAX_NAME_LEN} printable characters"));
    }
    Ok(text.clone())
}

fn conditions(fields: &Object, action: &RouteAction) -> Result<Vec<Condition>, RouteFault> {
    let mut found = Vec::new();
    let pattern = |field: &str, text: &str| Pattern::new(text).map_err(|wrong| fault(field, wrong));
    if let Some(value) = fields.get("host") {
        let host = |text: &str| {
            spelling::host(text).map_err(|what| fault("host", what)).and_then(|text| pattern("host", &text))
        };
        found.push(Condition::Host(list(value, "host", host)?));
    }
    if let Some(value) = fields.get("path") {
        let path = |text: &str| {
            spelling::path(text).map_err(|what| fault("path", what)).and_then(|text| pattern("path", &text))
        };
        found.push(Condition::Path(list(value, "path", path)?));
    }
    if let Some(value) = fields.get("method") {
        let method = |text: &str| match !text.is_empty() && text.bytes().all(|b| b.is_ascii_uppercase()) {
            true => Ok(text.to_owned()),
            false => Err(fault("method", format!("`{text}` is no method; write one as in GET"))),
        };
        found.push(Condition::Method(list(value, "method", method)?));
    }
    let opens = *action == RouteAction::Bypass;
    for (name, value) in table(fields, "header")? {
        let header = HeaderName::try_from(name.as_str())
            .map_err(|_| fault("header", format!("`{name}` is not the name of a header")))?;
        // What a header means does not depend on its case in practice: browsers' names, countries.
        let pattern = |field: &str, text: &str| {
            spelling::header(text).map_err(|what| fault(field, what))?;
            pattern(field, &text.to_ascii_lowercase())
        };
        let field = format!("header.{name}");
        let matcher = matcher(value, &field, opens && header != USER_AGENT, pattern)?;
        if found.iter().any(|known| matches!(known, Condition::Header(other, _) if *other == header)) {
            return Err(fault(&field, "is named twice, in upper and lower case; remove one"));
        }
        found.push(Condition::Header(header, matcher));
    }
    for (name, value) in table(fields, "cookie")? {
        if !spelling::is_cookie_name(name) {
            let shown: String = name.chars().take(MAX_NAME_LEN).collect();
            return Err(fault("cookie", format!("{shown:?} is not the name of a cookie")));
        }
        let pattern = |field: &str, text: &str| {
            spelling::cookie(text).map_err(|what| fault(field, what))?;
            pattern(field, text)
        };
        found.push(Condition::Cookie(
            name.clone(),
            matcher(value, &format!("cookie.{name}"), opens, pattern)?,
        ));
    }
    if let Some(value) = fields.get("address") {
        let network = |text: &str| network(text).map_err(|what| fault("address", what));
        found.push(Condition::Address(list(value, "address", network)?));
    }
    if let Some(value) = fields.get("token") {
        let name = |text: &str| match admission::BypassToken::is_name(text) {
            true => Ok(text.to_owned()),
            false => Err(fault("token", "the name of a bypass token has 1 to 64 of A-Z a-z 0-9 _ . : -")),
        };
        found.push(Condition::Token(list(value, "token", name)?));
    }
    Ok(found)
}

/// A text, or a list of texts.
fn list<T>(
    value: &Value,
    field: &str,
    read: impl Fn(&str) -> Result<T, RouteFault>,
) -> Result<Vec<T>, RouteFault> {
    let wrong = || fault(field, "must be a string or a list of strings");
    match value {
        Value::String(text) => Ok(vec![read(text)?]),
        Value::Array(items) if (1..=MAX_ITEMS).contains(&items.len()) => {
            items.iter().map(|item| item.as_str().ok_or_else(wrong).and_then(&read)).collect()
        }
        Value::Array(_) => Err(fault(field, format!("has 1 to {MAX_ITEMS} texts"))),
        _ => Err(wrong()),
    }
}

fn table<'a>(fields: &'a Object, field: &str) -> Result<Vec<(&'a String, &'a Value)>, RouteFault> {
    match fields.get(field) {
        None => Ok(Vec::new()),
        Some(Value::Object(table)) if (1..=MAX_ITEMS).contains(&table.len()) => Ok(table.iter().collect()),
        Some(Value::Object(_)) => Err(fault(field, format!("has 1 to {MAX_ITEMS} names"))),
        Some(_) => Err(fault(field, "must be a table of patterns by name")),
    }
}

/// Patterns, or a secret. `opens` says whether this text alone may let somebody through.
fn matcher(
    value: &Value,
    field: &str,
    opens: bool,
    pattern: impl Fn(&str, &str) -> Result<Pattern, RouteFault>,
) -> Result<Matcher, RouteFault> {
    if let Value::Object(secret) = value {
        return secret_of(secret, field);
    }
    let read = |text: &str| {
        if opens && text.len() >= *SECRET_LEN.start() && !text.contains('*') {
            let what = "looks like a secret, and operators see this text; write it as { secret = \"…\" }, or add a * \
                        if it is none";
            return Err(fault(field, what));
        }
        pattern(field, text)
    };
    Ok(Matcher::Patterns(list(value, field, read)?))
}

fn secret_of(fields: &Object, field: &str) -> Result<Matcher, RouteFault> {
    let mut all = fields.iter();
    match (all.next(), all.next()) {
        (Some((kind, Value::String(text))), None) if kind == "secret" => {
            if !SECRET_LEN.contains(&text.len()) || !text.bytes().all(|b| b.is_ascii_graphic()) {
                let (least, most) = SECRET_LEN.into_inner();
                let what = format!("a secret has {least} to {most} letters, digits and signs, and no space");
                return Err(fault(field, what));
            }
            Ok(Matcher::Secret(SecretDigest::of(text.as_bytes())))
        }
        (Some((kind, Value::String(text))), None) if kind == "sha256" => {
            let digest = SecretDigest::parse(text);
            digest.map(Matcher::Secret).ok_or_else(|| fault(field, "a SHA-256 has 64 hexadecimal digits"))
        }
        (Some((kind, Value::Bool(true))), None) if kind == "secret" => {
            let what = "`secret: true` keeps the secret that a route of this name has there already, and it has none; send the \
                        secret";
            Err(fault(field, what))
        }
        _ => Err(fault(
            field,
            "must be a pattern, a list of patterns, { secret = \"…\" } or { sha256 = \"…\" }",
        )),
    }
}

/// Puts the secrets of `old` in place of each `{"secret": true}`, which is how they are shown. The route must have the same name,
/// and the secret the same place in it.
pub fn keep_secrets(fields: &mut Object, old: &[Route]) {
    let Some(name) = fields.get("name").and_then(Value::as_str) else { return };
    let Some(old) = old.iter().find(|route| route.name == name) else { return };
    for condition in &old.conditions {
        let (field, name, digest) = match condition {
            Condition::Header(name, Matcher::Secret(digest)) => ("header", name.as_str(), digest),
            Condition::Cookie(name, Matcher::Secret(digest)) => ("cookie", name.as_str(), digest),
            _ => continue,
        };
        let Some(Value::Object(table)) = fields.get_mut(field) else { continue };
        for (given, value) in table.iter_mut() {
            let is_same = if field == "header" { given.eq_ignore_ascii_case(name) } else { given == name };
            if is_same && *value == json!({ "secret": true }) {
                *value = json!({ "sha256": digest.to_string() });
            }
        }
    }
}

/// What is wrong with a list of routes as a whole: the index of the route, and what to do.
#[must_use]
pub fn fault_of_list(routes: &[Route]) -> Option<(usize, String)> {
    for (index, route) in routes.iter().enumerate() {
        if index == MAX_ROUTES {
            return Some((index, format!("there are more than {MAX_ROUTES} routes")));
        }
        let above = &routes[..index];
        if above.iter().any(|other| other.name == route.name) {
            return Some((index, format!("`{}` is the name of two routes; change one", route.name)));
        }
        if let Some(other) = above.iter().find(|other| other.conditions.is_empty()) {
            let what = format!(
                "the route `{}` above fits every request, so this one never decides; move it up",
                other.name
            );
            return Some((index, what));
        }
    }
    None
}

/// A route for people: as it was written, but a secret is `{"secret": true}`.
#[must_use]
pub fn shown(route: &Route) -> Value {
    written(route, |_| json!({ "secret": true }))
}

/// A route for a store: as it was written, but a secret is its SHA-256.
#[must_use]
pub fn stored(route: &Route) -> Value {
    written(route, |digest| json!({ "sha256": digest.to_string() }))
}

fn written(route: &Route, secret: impl Fn(&SecretDigest) -> Value) -> Value {
    fn texts<T: ToString>(all: &[T]) -> Value {
        all.iter().map(|one| Value::from(one.to_string())).collect()
    }
    let matcher = |matcher: &Matcher| match matcher {
        Matcher::Patterns(patterns) => texts(patterns),
        Matcher::Secret(digest) => secret(digest),
    };
    let mut fields = Object::new();
    let mut put = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    put("name", route.name.as_str().into());
    match &route.action {
        RouteAction::Bypass => drop(put("bypass", true.into())),
        RouteAction::Deny => drop(put("deny", true.into())),
        RouteAction::Zone(Gated { zone, everything, bind_address, .. }) => {
            put("zone", zone.as_str().into());
            for (name, is_set) in [("everything", everything), ("bind_address", bind_address)] {
                if *is_set {
                    put(name, true.into());
                }
            }
        }
    }
    let (mut headers, mut cookies) = (Object::new(), Object::new());
    for condition in &route.conditions {
        match condition {
            Condition::Host(patterns) => drop(put("host", texts(patterns))),
            Condition::Path(patterns) => drop(put("path", texts(patterns))),
            Condition::Method(methods) => drop(put("method", texts(methods))),
            Condition::Header(name, value) => drop(headers.insert(name.to_string(), matcher(value))),
            Condition::Cookie(name, value) => drop(cookies.insert(name.clone(), matcher(value))),
            Condition::Address(networks) => drop(put("address", texts(networks))),
            Condition::Token(names) => drop(put("token", texts(names))),
        }
    }
    for (name, table) in [("header", headers), ("cookie", cookies)] {
        if !table.is_empty() {
            put(name, table.into());
        }
    }
    fields.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: Value) -> Object {
        let Value::Object(fields) = value else { panic!("an object") };
        fields
    }

    fn whole() -> Value {
        json!({
            "name": "staff", "zone": "Z", "everything": true, "bind_address": true,
            "host": ["*.shop.example"], "path": ["/a/*", "/b"], "method": ["GET"],
            "header": {"user-agent": ["*bot*", "curl/*"], "x-staff": {"secret": "0123456789abcdef"}},
            "cookie": {"group": ["A"], "pass": {"sha256": "ab".repeat(32)}},
            "address": ["10.0.0.0/8"], "token": ["press"],
        })
    }

    #[test]
    fn what_is_stored_is_read_again_and_what_is_shown_has_no_secret() {
        let route = read(&object(whole()), 1).expect("right");
        assert_eq!(read(&object(stored(&route)), 2).expect("right"), route);
        let mut expected = whole();
        expected["header"]["x-staff"] = json!({"secret": true});
        expected["cookie"]["pass"] = json!({"secret": true});
        assert_eq!(shown(&route), expected);
        assert!(!stored(&route).to_string().contains("0123456789abcdef"));
        let debug = format!("{route:?}");
        assert!(!debug.contains("0123456789abcdef") && !debug.contains("abab"), "{debug}");
    }

    #[test]
    fn a_shown_secret_keeps_the_one_that_is_set() {
        let old = read(&object(whole()), 1).expect("right");
        let again = |name: &str| {
            let mut fields = object(shown(&old));
            fields.insert("name".to_owned(), name.into());
            keep_secrets(&mut fields, std::slice::from_ref(&old));
            read(&fields, 1)
        };
        assert_eq!(again("staff").as_ref(), Ok(&old));
        let told = again("other").expect_err("there is none");
        assert_eq!(told.field, "header.x-staff");
        assert!(told.what.contains("send the secret"), "{told}");
        let mut fields =
            object(json!({"name": "staff", "deny": true, "header": {"X-Staff": {"secret": true}}}));
        keep_secrets(&mut fields, std::slice::from_ref(&old));
        assert!(read(&fields, 1).is_ok(), "names of headers have no case");
    }

    #[test]
    fn faults_name_the_field_and_what_to_do() {
        for (fields, field, told) in [
            (json!({"zone": 1}), "zone", "must be a string"),
            (json!({"name": "", "deny": true}), "name", "1 to 64 printable"),
            (json!({"deny": 1}), "deny", "must be true or false"),
            (json!({"deny": true, "zone": "Z"}), "", "needs exactly one of"),
            (json!({"deny": true, "everything": false}), "everything", "is for routes with a zone"),
            (json!({"deny": true, "path": ["/a", 1]}), "path", "a list of strings"),
            (json!({"deny": true, "host": []}), "host", "has 1 to 256 texts"),
            (json!({"deny": true, "host": "a..b"}), "host", "write `a.b`"),
            (json!({"deny": true, "header": {"x-a": "b\nc"}}), "header.x-a", "has a control character"),
            (json!({"deny": true, "header": {"x-a": " b"}}), "header.x-a", "write `b`"),
            (json!({"deny": true, "cookie": {"a=b": "c"}}), "cookie", "is not the name of a cookie"),
            (json!({"deny": true, "cookie": {"a;b": "c"}}), "cookie", "is not the name of a cookie"),
            (json!({"deny": true, "cookie": {"a": "b;c"}}), "cookie.a", "write `b`"),
            (
                json!({"deny": true, "host": ["a.example", "https://shop.example"]}),
                "host",
                "write `shop.example`",
            ),
            (json!({"deny": true, "path": ["/a", "/b?c=d"]}), "path", "write `/b`"),
            (json!({"deny": true, "header": {}}), "header", "has 1 to 256 names"),
            (json!({"deny": true, "header": {"x": {"secret": "short"}}}), "header.x", "16 to 256"),
            (json!({"deny": true, "header": {"x": {"sha256": "12"}}}), "header.x", "64 hexadecimal"),
            (
                json!({"deny": true, "header": {"x": {"secret": "a", "b": 1}}}),
                "header.x",
                "must be a pattern",
            ),
            (json!({"bypass": true, "header": {"x": "0123456789abcdef"}}), "header.x", "looks like a secret"),
            (
                json!({"bypass": true, "cookie": {"x": ["a", "0123456789abcdef"]}}),
                "cookie.x",
                "looks like a secret",
            ),
            (json!({"deny": true, "header": {"X-A": "a", "x-a": "b"}}), "header.x-a", "is named twice"),
            (json!({"bypass": true, "token": "a b"}), "token", "1 to 64 of"),
            (json!({"bypass": true}), "", "lets everybody through"),
            (json!({"bypass": true, "pth": "/"}), "pth", "no such field"),
        ] {
            let wrong = read(&object(fields.clone()), 1).expect_err("wrong");
            assert_eq!(wrong.field, field, "{fields}");
            assert!(wrong.what.contains(told), "{fields}: {wrong}");
        }
        for right in [
            json!({"deny": true, "header": {"x": "0123456789abcdef"}}),
            json!({"bypass": true, "header": {"user-agent": "Mozilla/5.0 monitor"}}),
            json!({"bypass": true, "header": {"x": "0123456789abcdef*"}}),
        ] {
            assert!(read(&object(right.clone()), 1).is_ok(), "{right}");
        }
    }
}
