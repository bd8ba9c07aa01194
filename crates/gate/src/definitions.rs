//! Zone definitions as operators see them: their text forms, and the code that changes them.
//!
//! The [`ZoneEditor`] changes definitions while a server runs; [`apply`] does so for `weir zones apply`, without a
//! server.

mod apply;
mod change;
mod editor;
mod overrides;

use std::{collections::BTreeMap, fmt::Write as _};

use admission::{Definition, Notice, Policy, ZoneId};

pub use apply::{Applied, Outcome, apply};
pub use change::{Author, Change, DefineError, OnChange};
pub use editor::{RefreshOf, ZoneEditor};
pub use overrides::OverridesFault;

/// The largest number of zones in a file, and of zones that operators may define.
pub const ZONES_MAX: usize = 4_096;

/// A policy as a JSON object: [`Policy::fields`], numbers as numbers.
#[must_use]
pub fn policy_json(policy: &Policy) -> String {
    let mut out = String::with_capacity(256);
    for (field, value) in policy.fields() {
        let quote = if value.parse::<u32>().is_ok() { "" } else { "\"" };
        let comma = if out.is_empty() { '{' } else { ',' };
        let _ = write!(out, r#"{comma}"{field}":{quote}{value}{quote}"#);
    }
    out.push('}');
    out
}

/// A definition as a JSON object: `policy` as [`policy_json`] writes it, and `notice` by language.
#[must_use]
pub fn definition_json(definition: &Definition) -> String {
    let notice: BTreeMap<_, _> = definition.notice.iter().collect();
    let notice = serde_json::to_string(&notice).expect("texts by texts are JSON");
    format!(r#"{{"policy":{},"notice":{notice}}}"#, policy_json(&definition.policy))
}

/// A definition in a sentence.
#[must_use]
pub fn sentence(definition: &Definition) -> String {
    let [mode, admit, sub_windows, polling_ms, idle_s, ttl_s, failure, waits, entries] =
        definition.policy.fields().map(|(_, value)| value);
    let limits = [("waits", waits), ("entries", entries)].map(|(what, limit)| {
        if limit == "0" { String::new() } else { format!(", {limit} {what} a minute a client") }
    });
    format!(
        "{mode}, {admit} a minute in {sub_windows} sub-windows, asked every {polling_ms} ms, idle after {idle_s} s, \
         passes for {ttl_s} s, {failure} without a store{}{}",
        limits.concat(),
        if definition.notice.is_empty() {
            String::new()
        } else {
            format!(", {}", notice(&definition.notice))
        }
    )
}

/// What differs between two definitions, as in `mode auto -> hold`; empty where nothing does.
#[must_use]
pub fn changes(old: &Definition, new: &Definition) -> Vec<String> {
    let pairs = old.policy.fields().into_iter().zip(new.policy.fields());
    let mut changes: Vec<_> = pairs
        .filter(|(old, new)| old != new)
        .map(|((name, old), (_, new))| format!("{name} {old} -> {new}"))
        .collect();
    if old.notice != new.notice {
        changes.push(format!("{} -> {}", notice(&old.notice), notice(&new.notice)));
    }
    changes
}

/// A notice's languages.
fn notice(notice: &Notice) -> String {
    let languages: Vec<_> = notice.iter().map(|(language, _)| language).collect();
    if languages.is_empty() {
        "no notice".to_owned()
    } else {
        format!("a notice in {}", languages.join(", "))
    }
}

/// How the zones of a file differ from the zones that a store keeps; empty where they do not.
#[must_use]
pub fn differences(file: &[(ZoneId, Definition)], kept: &[(ZoneId, Definition)]) -> Vec<String> {
    let differs = |(zone, policy): &(ZoneId, Definition)| match kept.iter().find(|(other, _)| other == zone) {
        None => Some(format!("{zone} is not in the store")),
        Some((_, other)) if other == policy => None,
        Some((_, other)) => Some(format!("{zone} has {} in the file", changes(other, policy).join(", "))),
    };
    file.iter().filter_map(differs).collect()
}
