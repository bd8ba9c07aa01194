//! An event of a schedule as JSON: what the admin API, the configuration file and `zones.json` have.
//!
//! Invariant: what is written here is read here as the same event.

use std::{collections::BTreeMap, fmt};

use admission::{
    DrawFallback, DrawTerms, Event, InstantFault, Moment, NoPageAddress, Notice, NoticeFault, Outside,
    PageAddress, RandomnessSource, ZoneId,
};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error, Visitor},
};

/// An event with its fields as operators write them.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct EventJson {
    /// Its name among the events of the zone, written as a zone's id.
    pub id: String,
    /// From when on people take places: an instant, as `2026-12-01T08:30[Europe/Berlin]`. At least a minute before `begins`.
    #[serde(deserialize_with = "instant")]
    pub prequeue_from: String,
    /// From when on people enter.
    #[serde(deserialize_with = "instant")]
    pub begins: String,
    /// When it is over.
    #[serde(deserialize_with = "instant")]
    pub ends: String,
    /// What applies until `prequeue_from`: `usual` (the zone's policy), `hold` or `closed`.
    #[serde(default = "usual")]
    pub before: String,
    /// What applies from `ends` on, until the next event.
    #[serde(default = "usual")]
    pub after: String,
    /// Where people go on while the zone is closed before the pre-queue: the address of a page, or a path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_page: Option<String>,
    /// The same, after the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_page: Option<String>,
    /// How many people may enter in a minute, where that differs from the policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admit_per_minute: Option<u32>,
    /// How many people may be inside, where that differs from the policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_active: Option<u32>,
    /// Who enters first: whoever came first (`arrival`), or by lot (`draw`). Then the list is frozen when the event begins, and people
    /// enter 30 s later.
    #[serde(default = "arrival", skip_serializing_if = "is_arrival")]
    pub order: String,
    /// What decides a draw: `drand`, or `stated: ` and where the value comes from that an operator will state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub randomness: Option<String>,
    /// What happens if it does not come: nobody enters until it does (`wait`), or the order is that of arrival (`arrival`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<String>,
    /// The text for people who wait, by language; without one, the zone's own counts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub notice: BTreeMap<String, String>,
}

/// Reads the text of an instant. Another type is told how an instant is written.
fn instant<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    struct Text;

    impl Visitor<'_> for Text {
        type Value = String;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an instant in quotes, as in \"2026-12-01T09:00[Asia/Seoul]\"")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<String, E> {
            Ok(text.to_owned())
        }
    }

    from.deserialize_str(Text)
}

fn usual() -> String {
    Outside::Usual.word().to_owned()
}

fn arrival() -> String {
    ARRIVAL.to_owned()
}

fn is_arrival(order: &str) -> bool {
    order == ARRIVAL
}

const ARRIVAL: &str = "arrival";
const DRAW: &str = "draw";
const DRAND: &str = "drand";
const STATED: &str = "stated: ";

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
            before_page: event.before_page.as_ref().map(|page| page.as_str().to_owned()),
            after_page: event.after_page.as_ref().map(|page| page.as_str().to_owned()),
            admit_per_minute: event.admit_per_minute,
            max_active: event.max_active,
            order: if event.draw.is_some() { DRAW } else { ARRIVAL }.to_owned(),
            randomness: event.draw.as_ref().map(|draw| match &draw.randomness {
                RandomnessSource::Drand => DRAND.to_owned(),
                RandomnessSource::Stated(source) => format!("{STATED}{source}"),
            }),
            fallback: event.draw.as_ref().map(|draw| draw.fallback.word().to_owned()),
            notice: event
                .notice
                .iter()
                .map(|(language, text)| (language.to_owned(), text.to_owned()))
                .collect(),
        }
    }
}

impl EventJson {
    /// Reads the name of an event.
    ///
    /// # Errors
    /// An [`EventFault`] that says what names may be.
    pub fn name(text: &str) -> Result<ZoneId, EventFault> {
        ZoneId::parse(text).map_err(|_| EventFault {
            field: "id",
            what: format!("{text:?} is no name of an event: it has 1 to 64 of A-Z a-z 0-9 _ . : -, and is neither . nor .."),
        })
    }

    /// How the order is drawn.
    fn draw(&self) -> Result<Option<DrawTerms>, EventFault> {
        let fault = |field, what| Err(EventFault { field, what });
        match &*self.order {
            ARRIVAL => {
                let given = [("randomness", &self.randomness), ("fallback", &self.fallback)];
                let given: Vec<_> = given.into_iter().filter(|(_, text)| text.is_some()).collect();
                let Some(&(first, _)) = given.first() else { return Ok(None) };
                let given: Vec<_> = given.into_iter().map(|(field, _)| field).collect();
                let what = format!(
                    "belongs to a draw, and order is {ARRIVAL}: take {} away, or set order to {DRAW}",
                    given.join(" and ")
                );
                return fault(first, what);
            }
            DRAW => {}
            other => return fault("order", format!("{other:?} is not one of arrival, draw")),
        }
        let text = self.randomness.as_deref().unwrap_or(DRAND);
        let randomness = match text.strip_prefix(STATED).map(DrawTerms::source) {
            None if text == DRAND => RandomnessSource::Drand,
            Some(Some(source)) => RandomnessSource::Stated(source),
            _ => {
                let what = format!(
                    "{text:?} is neither drand nor `stated: ` with a text of one line, of at most {} bytes, that says where the value \
                     comes from",
                    DrawTerms::SOURCE_MAX
                );
                return fault("randomness", what);
            }
        };
        let word = self.fallback.as_deref().unwrap_or(DrawFallback::Wait.word());
        match DrawFallback::named(word) {
            Some(fallback) => Ok(Some(DrawTerms { randomness, fallback })),
            None => fault("fallback", format!("{word:?} is not one of wait, arrival")),
        }
    }

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
        let page = |field: &'static str, of: &'static str, around: &str, text: &Option<String>| {
            let Some(text) = text else { return Ok(None) };
            if around != Outside::Closed.word() {
                let closed = Outside::Closed.word();
                let what = format!(
                    "belongs to a {closed} zone, and {of} is {around}: take {field} away, or set {of} to {closed}"
                );
                return Err(EventFault { field, what });
            }
            // An address with a user may have a password.
            let shown =
                if text.contains('@') { "the address with an @".to_owned() } else { format!("{text:?}") };
            let fault = |fault: NoPageAddress| EventFault { field, what: format!("{shown} {fault}") };
            PageAddress::parse(text).map(Some).map_err(fault)
        };
        Ok(Event {
            id: Self::name(&self.id)?,
            prequeue_from: moment("prequeue_from", &self.prequeue_from)?,
            begins: moment("begins", &self.begins)?,
            ends: moment("ends", &self.ends)?,
            before: outside("before", &self.before)?,
            after: outside("after", &self.after)?,
            before_page: page("before_page", "before", &self.before, &self.before_page)?,
            after_page: page("after_page", "after", &self.after, &self.after_page)?,
            admit_per_minute: self.admit_per_minute,
            max_active: self.max_active,
            draw: self.draw()?,
            notice: Notice::new(&self.notice)
                .map_err(|fault: NoticeFault| EventFault { field: "notice", what: fault.to_string() })?,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn with(fields: &Value) -> Value {
        let mut event = json!({
            "id": "sale", "prequeue_from": "2026-12-01T08:30:00Z", "begins": "2026-12-01T09:00:00Z", "ends": "2026-12-01T12:00:00Z",
        });
        let fields = fields.as_object().expect("an object").clone();
        event.as_object_mut().expect("an object").extend(fields);
        event
    }

    #[test]
    fn an_instant_of_another_type_is_told_how_one_is_written() {
        for wrong in [json!({ "begins": 5 }), json!({ "ends": null }), json!({ "prequeue_from": [] })] {
            let said = serde_json::from_value::<EventJson>(with(&wrong)).expect_err("refused").to_string();
            assert!(said.ends_with("as in \"2026-12-01T09:00[Asia/Seoul]\""), "{said}");
        }
    }

    #[test]
    fn fields_that_contradict_another_one_are_told_both_ways_out() {
        let said = |fields: &Value| {
            let read = serde_json::from_value::<EventJson>(with(fields)).expect("fields of an event");
            read.event().expect_err("refused").to_string()
        };
        for (fields, wanted) in [
            (
                json!({ "order": "arrival", "randomness": "drand" }),
                "randomness: belongs to a draw, and order is arrival: take randomness away, or set order to draw",
            ),
            (
                json!({ "fallback": "wait" }),
                "fallback: belongs to a draw, and order is arrival: take fallback away, or set order to draw",
            ),
            (
                json!({ "order": "arrival", "fallback": "wait", "randomness": "nonsense" }),
                "randomness: belongs to a draw, and order is arrival: take randomness and fallback away, or set order to draw",
            ),
            (
                json!({ "before": "hold", "before_page": "/soon" }),
                "before_page: belongs to a closed zone, and before is hold: take before_page away, or set before to closed",
            ),
            (
                json!({ "after_page": "/soon" }),
                "after_page: belongs to a closed zone, and after is usual: take after_page away, or set after to closed",
            ),
        ] {
            assert_eq!(said(&fields), wanted);
        }
    }
}
