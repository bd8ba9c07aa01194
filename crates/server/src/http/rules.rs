//! The published rule of a zone: how it orders people, how fast they enter, and who is let through besides. For everybody, in words and
//! as JSON.
//!
//! The rule is what operators set, without notices and without figures of now. Its digest changes with it, and only then. Invariants:
//! what is published follows from the definition, the routes and the mode in force alone. A reply is bounded, because a zone has a bounded
//! number of events. No name of a route, token or address is published.

mod seen;
mod words;

use std::sync::Arc;

use admission::{Definition, Event, Policy, ZoneId, instant_text};
use bytes::Bytes;
use check::{RouteAction, route::Condition};
use gate::{AnyStore, Gate};
use http_body_util::Full;
use hyper::{
    Response,
    header::{ACCESS_CONTROL_ALLOW_ORIGIN, HeaderMap, HeaderValue},
};
use serde_json::{Value, json};

use super::{
    asset::Asset,
    routes_in_force::{CheckResult, ServedRoutes},
    waiting_page::language::Language,
};

pub use seen::{SeenFault, SeenRule, SeenRules};

const CACHING: HeaderValue = HeaderValue::from_static("public, max-age=5");

/// What lets requests of a zone's site through without the zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Bypasses {
    /// How many routes do.
    routes: usize,
    /// How many of them need a bypass token.
    by_token: usize,
}

impl Bypasses {
    /// Those of a zone, and how many requests they let through at this server. None where no route of a proxy leads to the zone.
    fn of(zone: &ZoneId, routes: &ServedRoutes) -> (Self, u64) {
        let now = routes.load();
        let (mut found, mut through) = (Self::default(), 0);
        if !now.routes.gated().any(|gated| gated.zone == *zone) {
            return (found, through);
        }
        for (index, route) in now.routes.all().iter().enumerate() {
            if route.action == RouteAction::Bypass {
                found.routes += 1;
                let needs_token =
                    route.conditions.iter().any(|condition| matches!(condition, Condition::Token(_)));
                found.by_token += usize::from(needs_token);
                through += now.counts(index)[CheckResult::Through as usize].get();
            }
        }
        (found, through)
    }
}

/// The rule as JSON: what operators set, in one spelling. The audit log has the same.
fn rule(definition: &Definition, bypasses: Bypasses) -> Value {
    let Definition { policy, schedule, .. } = definition;
    let event = |event: &Event| {
        let Policy { admit_per_minute, max_active, .. } = event.policy(policy);
        json!({
            "id": event.id.as_str(), "prequeueFrom": event.prequeue_from.to_string(), "begins": event.begins.to_string(),
            "ends": event.ends.to_string(), "before": event.before.word(), "after": event.after.word(),
            "admitPerMinute": admit_per_minute, "insideAtMost": at_most(max_active), "order": event.order_text(),
        })
    };
    json!({
        // An event may have another one.
        "order": "arrival",
        "mode": policy.mode.word(),
        "admitPerMinute": policy.admit_per_minute,
        "subWindows": policy.sub_windows,
        "insideAtMost": at_most(policy.max_active),
        "opensAt": (policy.opens_at.unix_s > 0).then(|| instant_text(policy.opens_at.unix_s)),
        "silentForS": policy.idle_timeout_s,
        "withoutStore": policy.on_store_failure.word(),
        "events": schedule.events().iter().map(event).collect::<Vec<_>>(),
        "bypassRoutes": bypasses.routes,
        "bypassRoutesByToken": bypasses.by_token,
    })
}

/// 0 is no limit.
fn at_most(number: u32) -> Option<u32> {
    Some(number).filter(|number| *number > 0)
}

/// What differs where the rule differs: BLAKE3 of its text, in hexadecimal digits.
fn digest(rule: &Value) -> String {
    blake3::hash(rule.to_string().as_bytes()).to_hex().to_string()
}

/// The rule of a zone, for everybody; none where the zone is not served.
#[must_use]
pub fn reply(
    zone: &ZoneId,
    gate: &Gate<AnyStore>,
    routes: &ServedRoutes,
    seen: &SeenRules,
    headers: &HeaderMap,
) -> Option<Response<Full<Bytes>>> {
    let definition = gate.definition(zone.as_str())?;
    let in_force = gate.policy(zone.as_str())?;
    let (bypasses, through) = Bypasses::of(zone, routes);
    let rule = rule(&definition, bypasses);
    let digest = digest(&rule);
    let draw = gate.deciding_draw(zone.as_str());
    let said = |language: Language| {
        words::sentences(language, &definition, draw.as_ref(), &in_force, bypasses, through)
    };
    // A rule that changed a moment ago is seen as changed in a moment.
    let known = seen.of(zone).filter(|known| known.digest == digest);
    let record = known.as_ref().and_then(|known| known.record.as_ref());
    let document = json!({
        "zone": zone.as_str(),
        "rule": rule,
        "digest": digest,
        "modeInForce": in_force.mode.word(),
        "draw": gate.draw_of_now(zone.as_str()).as_ref().map(ZoneId::as_str),
        "words": { "en": said(Language::English), "ko": said(Language::Korean) },
        "counted": { "since": instant_of_ms(seen.started_ms), "through": through },
        "changed": known.as_ref().map(|known| instant_of_ms(known.at_ms)),
        "auditRecord": record.map(|(n, hash)| json!({ "n": n, "hash": hash })),
    });
    let mut reply = Asset::new("application/json", document.to_string()).reply(CACHING, headers);
    // It is for everybody: a page of any site may show it.
    reply.headers_mut().insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    Some(reply)
}

fn instant_of_ms(unix_ms: u64) -> String {
    instant_text(u32::try_from(unix_ms / 1_000).unwrap_or(u32::MAX))
}

/// What `SeenRules` follows.
pub struct Followed {
    /// The zones.
    pub gate: Arc<Gate<AnyStore>>,
    /// The routes of proxies' requests.
    pub routes: Arc<ServedRoutes>,
    /// Writes the changes into the audit log.
    pub recorder: audit::Recorder,
}

#[cfg(test)]
mod tests {
    use admission::{Mode, Notice, Policy};

    use super::*;

    #[test]
    fn the_digest_changes_with_the_rule_and_only_then() {
        let usual = Definition::default();
        let of = |definition: &Definition, routes: usize| {
            digest(&rule(definition, Bypasses { routes, by_token: 0 }))
        };
        let before = of(&usual, 0);
        let notice = Notice::new([("en", "Soon.")]).expect("a notice");
        assert_eq!(of(&Definition { notice, ..usual.clone() }, 0), before);
        let policy = |policy: Policy| of(&policy.into(), 0);
        let all = [
            policy(Policy { mode: Mode::Hold, ..usual.policy }),
            policy(Policy { admit_per_minute: 7, ..usual.policy }),
            policy(Policy { sub_windows: 7, ..usual.policy }),
            policy(Policy { max_active: 7, ..usual.policy }),
            policy(Policy { idle_timeout_s: 77, ..usual.policy }),
            of(&usual, 1),
            before,
        ];
        let different: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len());
    }
}
