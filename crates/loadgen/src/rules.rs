//! The published rule of a zone, as far as a rehearsal needs it: the mode, the events, and how many people may be inside.
//!
//! Invariant: a server without a published rule can be rehearsed, too. What the rule does not say is not known.

use jiff::{Timestamp, Zoned};
use serde::{Deserialize, de::DeserializeOwned};

use crate::{pool::Pool, run::Setup, wire};

/// The published document.
#[derive(Debug, Deserialize)]
pub(crate) struct Rules {
    /// What the operators set.
    pub(crate) rule: Rule,
}

/// What the operators set.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Rule {
    /// The mode.
    #[serde(default)]
    pub(crate) mode: String,
    /// The most people who may be inside at once; none without a limit.
    #[serde(default)]
    inside_at_most: Option<u32>,
    /// The events.
    #[serde(default)]
    pub(crate) events: Vec<Event>,
}

/// An event.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Event {
    /// Its name.
    pub(crate) id: String,
    /// How its order is made.
    pub(crate) order: String,
    /// When people enter, as operators write it.
    #[serde(default)]
    pub(crate) begins: String,
    /// When it is over, as operators write it.
    #[serde(default)]
    pub(crate) ends: String,
    #[serde(default)]
    inside_at_most: Option<u32>,
}

impl Rule {
    /// The most people who may be inside at some time from `from` to `to`: the zone's limit, or that of an event which runs then. None
    /// without a limit.
    pub(crate) fn inside_at_most(&self, from: Timestamp, to: Timestamp) -> Option<u32> {
        let of_events = self.events.iter().filter(|event| event.runs(from, to));
        self.inside_at_most.or_else(|| of_events.filter_map(|event| event.inside_at_most).min())
    }
}

impl Event {
    /// Whether it runs at some time from `from` to `to`. False if its instants are not understood here.
    pub(crate) fn runs(&self, from: Timestamp, to: Timestamp) -> bool {
        let [begins, ends] = [&self.begins, &self.ends].map(|text| read_instant(text));
        begins.zip(ends).is_some_and(|(begins, ends)| begins <= to && from < ends)
    }
}

/// An instant as operators write it: with `Z` or an offset, or with a time zone.
fn read_instant(text: &str) -> Option<Timestamp> {
    text.parse().ok().or_else(|| Some(text.parse::<Zoned>().ok()?.timestamp()))
}

/// The published rule of the zone. None if the server has none.
pub(crate) async fn of(setup: &Setup) -> Option<Rule> {
    let pool = Pool::new(&setup.target, 1, setup.sources.iter().copied().take(1).collect()).ok()?;
    read(setup, &pool).await
}

/// The published rule of the zone. None if the server has none.
pub(crate) async fn read(setup: &Setup, pool: &Pool) -> Option<Rule> {
    Some(get::<Rules>(setup, pool, &wire::rules(&setup.zone)).await.ok()?.rule)
}

/// What the server publishes as JSON at `path`.
///
/// # Errors
/// If there is no such reply. The text says what came instead.
pub(crate) async fn get<T: DeserializeOwned>(setup: &Setup, pool: &Pool, path: &str) -> Result<T, String> {
    let reply = pool.call(setup.target.get(path)?, || {}).await?;
    match reply.status {
        200 => serde_json::from_slice(&reply.body)
            .map_err(|_| format!("{path} is not JSON of the expected form")),
        status => Err(format!("{path} answered {status}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `crates/server/src/http/rules.rs` publishes, with a limit for the zone, for an event, or none.
    #[test]
    fn the_people_inside_are_limited_by_the_zone_or_by_an_event_that_runs() {
        let limit = |zone: Option<u32>, event: Option<u32>| {
            let document = serde_json::json!({ "zone": "Z", "rule": {
                "order": "arrival", "mode": "auto", "admitPerMinute": 600, "subWindows": 10, "insideAtMost": zone, "opensAt": null,
                "events": [{
                    "id": "spring", "prequeueFrom": "2026-05-01T08:00:00Z", "begins": "2026-05-01T09:00:00Z",
                    "ends": "2026-05-01T12:00[Europe/Berlin]", "admitPerMinute": 600, "insideAtMost": event, "order": "arrival",
                }],
            }});
            let rule = serde_json::from_value::<Rules>(document).expect("a rule").rule;
            ["08:50:00", "08:59:00", "09:59:59", "10:00:00"].map(|from| {
                let from: Timestamp = format!("2026-05-01T{from}Z").parse().expect("an instant");
                rule.inside_at_most(from, from + std::time::Duration::from_secs(60))
            })
        };
        assert_eq!(limit(None, None), [None; 4]);
        assert_eq!(limit(Some(50), Some(70)), [Some(50); 4]);
        assert_eq!(limit(None, Some(70)), [None, Some(70), Some(70), None]);
        // A server that says nothing of it.
        let bare: Rule = serde_json::from_str("{}").expect("a rule");
        assert_eq!(bare.inside_at_most(Timestamp::UNIX_EPOCH, Timestamp::MAX), None);
    }
}
