//! The targets of the waiting pages, in a configuration file.

use std::borrow::Cow;

use toml::{Spanned, de::DeValue};

use super::{Lines, in_order, unknown, wrong_type};
use crate::{
    config::{ConfigFault, settings::Kind, values::one_of},
    http::waiting_page::target::{HandOver, Target, TargetFault},
};

const MAX_TARGETS: usize = 4_096;
const TARGET_FIELDS: [&str; 3] = ["zone", "url", "by"];

/// Reads all targets, and checks that they do not contradict each other.
pub(super) fn all(
    lines: &Lines<'_>,
    key: &Spanned<Cow<'_, str>>,
    value: &Spanned<DeValue<'_>>,
) -> Result<Vec<Target>, ConfigFault> {
    let DeValue::Array(tables) = value.get_ref() else {
        let origin = lines.at(&key.span(), "wait.target");
        return Err(origin.fault("targets are written as [[wait.target]] tables"));
    };
    let mut targets: Vec<Target> = Vec::new();
    for table in tables {
        let (here, target) = (lines.at(&table.span(), "wait.target"), target(lines, table)?);
        if targets.len() == MAX_TARGETS {
            return Err(here.fault(format!("there are more than {MAX_TARGETS} targets")));
        }
        if targets.iter().any(|other| other.collides(&target)) {
            return Err(here.fault(format!("{target}: these zones have another target already; remove one")));
        }
        targets.push(target);
    }
    Ok(targets)
}

fn target(lines: &Lines<'_>, table: &Spanned<DeValue<'_>>) -> Result<Target, ConfigFault> {
    let here = lines.at(&table.span(), "wait.target");
    let DeValue::Table(fields) = table.get_ref() else {
        return Err(here.fault("targets are written as [[wait.target]] tables"));
    };
    let (mut zone, mut url, mut by) = (None, None, HandOver::default());
    for (key, value) in in_order(fields) {
        let field = key.get_ref().as_ref();
        let origin = lines.at(&key.span(), &format!("wait.target.{field}"));
        match (field, value.get_ref()) {
            ("zone", DeValue::String(text)) => zone = Some((text, origin)),
            ("url", DeValue::String(text)) => url = Some((text, origin)),
            ("by", DeValue::String(text)) => by = one_of(HandOver::ALL, text, &origin)?,
            ("zone" | "url" | "by", other) => return Err(origin.fault(wrong_type(Kind::Text, other))),
            (other, _) => return Err(origin.fault(unknown(other, TARGET_FIELDS.into_iter()))),
        }
    }
    let missing = |field: &str| here.fault(format!("has no `{field}`; give it one"));
    let (zone, zone_place) = zone.ok_or_else(|| missing("zone"))?;
    let (url, url_place) = url.ok_or_else(|| missing("url"))?;
    Target::new(zone, url, by).map_err(|fault| match fault {
        TargetFault::Zones(_) => zone_place.fault(fault),
        TargetFault::Url(_) => url_place.fault(fault),
    })
}
