//! An event of a schedule as JSON: what the admin API, the configuration file and `zones.json` have.
//!
//! Invariant: what is written here is read here as the same event.

use std::collections::BTreeMap;

use admission::{Event, InstantFault, Moment, Notice, NoticeFault, Outside, ZoneId};
use serde::{Deserialize, Serialize};

/// An event with its fields as operators write them.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct EventJson {
    /// Its name among the events of the zone, written as a zone's id.
    pub id: String,
    /// From when on people take places: an instant, as `2026-12-01T08:30[Europe/Berlin]`. At least a minute before `begins`.
    pub prequeue_from: String,
    /// From when on people enter.
    pub begins: String,
    /// When it is over.
    pub ends: String,
    /// What applies until `prequeue_from`: `usual` (the zone's policy), `hold` or `closed`.
    #[serde(default = "usual")]
    pub before: String,
    /// What applies from `ends` on, until the next event.
    #[serde(default = "usual")]
    pub after: String,
    /// How many people may enter in a minute, where that differs from the policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admit_per_minute: Option<u32>,
    /// How many people may be inside, where that differs from the policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_active: Option<u32>,
    /// The text for people who wait, by language; without one, the zone's own counts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub notice: BTreeMap<String, String>,
}

fn usual() -> String {
    Outside::Usual.word().to_owned()
}

/// A field of an event says nothing that it may say.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {what}")]
pub struct EventFault {
    /// The field.
    pub field: &'static str,
    /// What is wrong with it.
    pub what: String,
}

impl From<&Event> for EventJson {
    fn from(event: &Event) -> Self {
        Self {
            id: event.id.to_string(),
            prequeue_from: event.prequeue_from.to_string(),
            begins: event.begins.to_string(),
            ends: event.ends.to_string(),
            before: event.before.word().to_owned(),
            after: event.after.word().to_owned(),
            admit_per_minute: event.admit_per_minute,
            max_active: event.max_active,
            notice: event
                .notice
                .iter()
                .map(|(language, text)| (language.to_owned(), text.to_owned()))
                .collect(),
        }
    }
}

impl EventJson {
    /// The event.
    ///
    /// # Errors
    /// An [`EventFault`] for the first field that is wrong.
    pub fn event(&self) -> Result<Event, EventFault> {
        let moment = |field: &'static str, text: &str| {
            let fault = |fault: InstantFault| EventFault { field, what: format!("{text:?} {fault}") };
            Moment::parse(text).map_err(fault)
        };
        let outside = |field: &'static str, word: &str| {
            let words = Outside::ALL.map(|(_, word)| word).join(", ");
            let what = format!("{word:?} is not one of {words}");
            Outside::named(word).ok_or(EventFault { field, what })
        };
        Ok(Event {
            id: ZoneId::parse(&self.id).map_err(|_| EventFault {
                field: "id",
                what: "an event's id is 1 to 64 of A-Z a-z 0-9 _ . : -, and neither . nor ..".to_owned(),
            })?,
            prequeue_from: moment("prequeue_from", &self.prequeue_from)?,
            begins: moment("begins", &self.begins)?,
            ends: moment("ends", &self.ends)?,
            before: outside("before", &self.before)?,
            after: outside("after", &self.after)?,
            admit_per_minute: self.admit_per_minute,
            max_active: self.max_active,
            notice: Notice::new(&self.notice)
                .map_err(|fault: NoticeFault| EventFault { field: "notice", what: fault.to_string() })?,
        })
    }
}
