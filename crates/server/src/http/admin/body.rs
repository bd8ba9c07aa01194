//! Reads the bodies of operators' requests.
//!
//! Invariants: an unknown field, a field that is there twice, a wrong type and a value out of its range are refused. The problem names the field, as in
//! `policy.admit_per_minute`, and the range of a number that is out of it. An event has its name there, as in `events.sale.begins`; one
//! without a right name has its place in the list, as in `events[0].id`.

use std::fmt;

use admission::{Claim, Definition, Event, Field, FieldKind, Notice, NoticeFault, Policy, Schedule, ZoneId};
use gate::definitions::{EventFault, EventJson};
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use shown::{brief, ends};

use crate::{
    fields::{Object, missing, plain_types, rest, shown, wrong},
    http::problem::{MALFORMED_JSON, MISSING_FIELD, Problem, UNKNOWN_FIELD, WRONG_TYPE},
};

/// Reads a new zone and its definition.
///
/// # Errors
/// A [`Problem`] that says what is wrong.
pub(super) fn create(body: &[u8]) -> Result<(ZoneId, Definition), Problem> {
    let mut fields = object(body)?;
    let id = match fields.remove("id") {
        Some(Value::String(id)) => id,
        Some(_) => return Err(wrong("id", "a string")),
        None => return Err(missing("id")),
    };
    let id = ZoneId::parse(&id).map_err(|fault| Problem::new(WRONG_TYPE, format!("`id`: {fault}")))?;
    Ok((id, definition(fields, &Definition::default())?))
}

/// Reads a definition that replaces another.
///
/// # Errors
/// A [`Problem`] that says what is wrong.
pub(super) fn replace(body: &[u8]) -> Result<Definition, Problem> {
    let fields = object(body)?;
    if !fields.contains_key("policy") {
        return Err(missing("policy"));
    }
    definition(fields, &Definition::default())
}

/// Applies a JSON merge patch ([RFC 7396](https://www.rfc-editor.org/rfc/rfc7396)) to `old`. Fields of a policy cannot be
/// removed.
///
/// # Errors
/// A [`Problem`] that says what is wrong.
pub(super) fn merge(body: &[u8], old: &Definition) -> Result<Definition, Problem> {
    definition(object(body)?, old)
}

/// Reads whether to take the server out of service.
///
/// # Errors
/// A [`Problem`] that says what is wrong.
pub(super) fn draining(body: &[u8]) -> Result<bool, Problem> {
    let mut fields = object(body)?;
    let draining = match fields.remove("draining") {
        Some(Value::Bool(draining)) => draining,
        Some(_) => return Err(wrong("draining", "true or false")),
        None => return Err(missing("draining")),
    };
    rest(&fields, "")?;
    Ok(draining)
}

/// Reads what decides a draw: a value, or `None` if the announced randomness did not come.
///
/// # Errors
/// A [`Problem`] that says what is wrong.
pub(super) fn stated(body: &[u8]) -> Result<Option<String>, Problem> {
    let mut fields = object(body)?;
    let stated = match (fields.remove("value"), fields.remove("missing")) {
        (Some(Value::String(value)), None) => Some(value),
        (None, Some(Value::Bool(true))) => None,
        (Some(_), None) => return Err(wrong("value", "a string")),
        (None, Some(_)) => return Err(wrong("missing", "true")),
        (Some(_), Some(_)) => return Err(wrong("missing", "left out where there is a value")),
        (None, None) => return Err(missing("value")),
    };
    rest(&fields, "")?;
    Ok(stated)
}

/// Reads which entry of `zone` an operator ends: its `jti`, and its ticket.
///
/// # Errors
/// A [`Problem`] that says what is wrong.
pub(super) fn leaver(body: &[u8], zone: &ZoneId) -> Result<(String, Claim), Problem> {
    let mut fields = object(body)?;
    let wanted = || wrong("jti", &format!("as in \"{zone}/0000002a/1202\""));
    let jti = match fields.remove("jti") {
        Some(Value::String(jti)) => jti,
        Some(_) => return Err(wanted()),
        None => return Err(missing("jti")),
    };
    rest(&fields, "")?;
    let entry = jti.strip_prefix(zone.as_str()).and_then(|rest| rest.strip_prefix('/')?.split_once('/'));
    let (epoch, seq) = entry.ok_or_else(wanted)?;
    // Readers of numbers take a plus sign, too.
    if epoch.starts_with('+') || seq.starts_with('+') {
        return Err(wanted());
    }
    let epoch = u32::from_str_radix(epoch, 16).map_err(|_| wanted())?;
    // A ticket's number is below 2^48.
    let seq = seq.parse().ok().filter(|seq| *seq < 1_u64 << 48).ok_or_else(wanted)?;
    Ok((jti, Claim { epoch, seq }))
}

pub(super) fn object(body: &[u8]) -> Result<Object, Problem> {
    match serde_json::from_slice(body) {
        Ok(Once(Value::Object(fields))) => Ok(fields),
        Ok(_) => Err(Problem::new(WRONG_TYPE, "the body must be a JSON object")),
        Err(e) if e.is_data() => Err(Problem::new(MALFORMED_JSON, e.to_string())),
        Err(e) => Err(Problem::new(MALFORMED_JSON, format!("at line {}, column {}", e.line(), e.column()))),
    }
}

/// JSON in whose objects each field is there once: of two, nobody knows which one was meant.
struct Once(Value);

impl<'de> Deserialize<'de> for Once {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(OnceVisitor).map(Self)
    }
}

struct OnceVisitor;

impl<'de> Visitor<'de> for OnceVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(Once(item)) = items.next_element()? {
            all.push(item);
        }
        Ok(all.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut all = Object::new();
        while let Some((name, Once(value))) = fields.next_entry::<String, Once>()? {
            if all.contains_key(&name) {
                return Err(de::Error::custom(format_args!("`{}` is there twice", shown(&name))));
            }
            all.insert(name, value);
        }
        Ok(all.into())
    }
}

fn definition(mut fields: Object, old: &Definition) -> Result<Definition, Problem> {
    let given = (fields.remove("policy"), fields.remove("notice"), fields.remove("events"));
    rest(&fields, "")?;
    let policy = match given.0 {
        None => old.policy,
        Some(Value::Null) => Policy::default(),
        Some(Value::Object(fields)) => policy(fields, old.policy)?,
        Some(_) => return Err(wrong("policy", "an object, or null")),
    };
    let notice = match given.1 {
        None => old.notice.clone(),
        Some(Value::Null) => Notice::default(),
        Some(Value::Object(texts)) => notice(texts, &old.notice)?,
        Some(_) => return Err(wrong("notice", "an object of texts by language, or null")),
    };
    let events = match given.2 {
        None => old.schedule.events().to_vec(),
        Some(Value::Null) => Vec::new(),
        Some(Value::Array(events)) => {
            let numbered = events.into_iter().enumerate();
            numbered.map(|(at, event)| self::event(at, event)).collect::<Result<_, _>>()?
        }
        Some(_) => return Err(wrong("events", "an array of events, or null")),
    };
    let schedule = Schedule::new(events, &policy).map_err(|fault| Problem::schedule_fault(&fault))?;
    Ok(Definition { policy, notice, schedule })
}

/// Reads one event.
fn event(at: usize, value: Value) -> Result<Event, Problem> {
    let id = value["id"].as_str().filter(|id| EventJson::name(id).is_ok());
    let place = id.map_or_else(|| format!("events[{at}]"), |id| format!("events.{id}"));
    if !value.is_object() {
        return Err(wrong(&place, "an object"));
    }
    let read: EventJson = serde_path_to_error::deserialize(value).map_err(|fault| {
        let said = plain_types(&fault.inner().to_string());
        let code = if said.starts_with("missing field") {
            MISSING_FIELD
        } else if said.starts_with("unknown field") {
            UNKNOWN_FIELD
        } else {
            WRONG_TYPE
        };
        let field = match fault.path().iter().len() {
            0 => String::new(),
            _ => format!(".{}", fault.path()),
        };
        Problem::new(code, format!("`{place}{}`: {}", ends(&field), brief(&said)))
    })?;
    let wrong = |EventFault { field, what }| Problem::new(WRONG_TYPE, format!("`{place}.{field}`: {what}"));
    read.event().map_err(wrong)
}

const INSTANT_OR_NULL: &str = "an instant as a string, as in \"2026-12-01T09:00[Asia/Seoul]\", or null";

/// `null` gives a field its default.
fn policy(fields: Object, mut policy: Policy) -> Result<Policy, Problem> {
    let mut numbers = Object::new();
    for (name, value) in fields {
        let path = format!("policy.{name}");
        let Some(field) = Field::named(&name) else {
            return rest(&Object::from_iter([(name, value)]), "policy.").map(|()| policy);
        };
        match field.kind {
            _ if value.is_null() => {
                field.set(&mut policy, field.default());
            }
            FieldKind::Word { words, .. } => {
                if value.as_str().is_none_or(|word| field.set_text(&mut policy, word).is_err()) {
                    return Err(wrong(&path, &format!("one of {}", words.join(", "))));
                }
            }
            FieldKind::Instant => {
                let text = value.as_str().ok_or_else(|| wrong(&path, INSTANT_OR_NULL))?;
                let fault = |fault| Problem::new(WRONG_TYPE, format!("`{path}`: {text:?} {fault}"));
                field.set_text(&mut policy, text).map_err(fault)?;
            }
            FieldKind::Number { .. } => {
                field.set(&mut policy, whole(&value).ok_or_else(|| wrong(&path, "a whole number"))?);
                numbers.insert(name, value);
            }
        }
    }
    policy.check().map_err(|found| {
        let given = numbers.remove(found.field).unwrap_or_else(|| found.value.into());
        Problem::policy_fault(&found, given)
    })
}

/// A whole number. A number that no field can hold becomes one that is out of every range.
fn whole(value: &Value) -> Option<u32> {
    let Value::Number(number) = value else { return None };
    match (number.as_u64(), number.as_i64(), number.as_f64()) {
        (Some(number), ..) => Some(u32::try_from(number).unwrap_or(u32::MAX)),
        (_, Some(_), _) => Some(u32::MAX),
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "held against the range first"
        )]
        (_, _, Some(number)) if number.fract() == 0.0 => {
            Some(if (0.0..f64::from(u32::MAX)).contains(&number) { number as u32 } else { u32::MAX })
        }
        _ => None,
    }
}

fn notice(texts: Object, old: &Notice) -> Result<Notice, Problem> {
    let mut said: Object = old.iter().map(|(language, text)| (language.to_owned(), text.into())).collect();
    for (language, text) in texts {
        match text {
            Value::Null => {
                said.remove(&language);
            }
            text => {
                said.insert(language, text);
            }
        }
    }
    let texts = said.iter().map(|(language, text)| {
        let text = text.as_str().ok_or_else(|| wrong(&format!("notice.{}", shown(language)), "a string"));
        text.map(|text| (language.as_str(), text))
    });
    let texts = texts.collect::<Result<Vec<_>, _>>()?;
    Notice::new(texts).map_err(|fault| {
        let whole = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        match fault {
            NoticeFault::Languages { count } => {
                Problem::field_out_of_range("notice", count.into(), 0, whole(Notice::LANGUAGES_MAX))
            }
            NoticeFault::Length { language, length } => Problem::field_out_of_range(
                &format!("notice.{language}"),
                length.into(),
                1,
                whole(Notice::TEXT_MAX),
            ),
            fault @ NoticeFault::Language(_) => Problem::new(UNKNOWN_FIELD, format!("`notice`: {fault}")),
            fault @ NoticeFault::Control { .. } => Problem::new(WRONG_TYPE, format!("`notice`: {fault}")),
        }
    })
}

#[cfg(test)]
mod tests {
    use admission::{FIELDS, Mode};

    use super::*;

    #[test]
    fn every_field_of_a_policy_is_read() {
        let before = Policy::default();
        for field in FIELDS {
            let (value, expected) = match field.kind {
                FieldKind::Word { words, .. } => {
                    (Value::from(words[words.len() - 1]), u32::try_from(words.len() - 1).expect("few words"))
                }
                FieldKind::Instant => (Value::from("2026-12-01T09:00[Europe/Berlin]"), 1_796_112_000),
                FieldKind::Number { .. } => {
                    let (_, high) = field.range(&before).expect("a number");
                    (high.into(), high)
                }
            };
            // The longest period fits the longest idle time only.
            let mut fields = Object::from_iter([("idle_timeout_s".to_owned(), 3_600.into())]);
            fields.insert(field.name.to_owned(), value);
            let read = policy(fields, before).expect(field.name);
            assert_eq!(field.number(&read), expected, "{}", field.name);
        }
    }

    fn old() -> Definition {
        let policy = Policy { admit_per_minute: 600, mode: Mode::Hold, ..Policy::default() };
        Definition {
            notice: Notice::new([("en", "Hello."), ("ko", "안녕")]).expect("a notice"),
            ..policy.into()
        }
    }

    #[test]
    fn a_patch_changes_what_it_names() {
        let patched = |body: &str| merge(body.as_bytes(), &old()).expect(body);
        assert_eq!(patched("{}"), old());
        let policy = Policy { admit_per_minute: 60, ..old().policy };
        assert_eq!(patched(r#"{"policy":{"admit_per_minute":60}}"#), Definition { policy, ..old() });
        assert_eq!(patched(r#"{"policy":{"admit_per_minute":60.0}}"#), Definition { policy, ..old() });
        let texts = |body| patched(body).notice.iter().map(|(l, t)| format!("{l} {t}")).collect::<Vec<_>>();
        assert_eq!(texts(r#"{"notice":{"ko":null,"fr":"Bonjour."}}"#), ["en Hello.", "fr Bonjour."]);
        assert_eq!(texts(r#"{"notice":{}}"#).len(), 2);
        assert!(patched(r#"{"notice":null}"#).notice.is_empty());
    }

    #[test]
    fn a_new_zone_has_the_defaults_of_a_configuration_file() {
        let made = create(br#"{"id":"shop:a","policy":{"mode":"closed"}}"#).expect("right");
        let policy = Policy { mode: Mode::Closed, ..Policy::default() };
        assert_eq!((made.0.as_str(), made.1), ("shop:a", policy.into()));
        assert_eq!(create(br#"{"id":"A"}"#).expect("right").1, Definition::default());
        assert_eq!(replace(br#"{"policy":{}}"#).expect("right"), Definition::default());
        assert_eq!(draining(br#"{"draining":true}"#), Ok(true));
        // As RFC 7396 says, null takes a value away.
        let changed = merge(br#"{"policy":{"mode":null,"admit_per_minute":null}}"#, &old()).expect("right");
        let (mode, admit_per_minute) = (Policy::default().mode, Policy::default().admit_per_minute);
        assert_eq!(changed.policy, Policy { mode, admit_per_minute, ..old().policy });
        assert_eq!(merge(br#"{"policy":null}"#, &old()).expect("right").policy, Policy::default());
    }

    #[test]
    fn errors_name_the_field() {
        let patch = |body: &str| merge(body.as_bytes(), &old()).map(|_| ());
        let post = |body: &str| create(body.as_bytes()).map(|_| ());
        let put = |body: &str| replace(body.as_bytes()).map(|_| ());
        let drain = |body: &str| draining(body.as_bytes()).map(|_| ());
        let long = format!(r#"{{"notice":{{"en":"{}"}}}}"#, "x".repeat(501));
        let many: Vec<_> = (b'a'..=b'i').map(|letter| format!(r#""x{}":"x""#, char::from(letter))).collect();
        let many = format!(r#"{{"notice":{{{}}}}}"#, many.join(","));
        type Read<'a> = &'a dyn Fn(&str) -> Result<(), Problem>;
        let cases: [(Read<'_>, &str, &str, &str); 30] = [
            (
                &patch,
                r#"{"policy":{"mode":"hold","mode":"open"}}"#,
                "malformed_json",
                "`mode` is there twice at line 1",
            ),
            (&post, r#"{"id":"A","id":"B"}"#, "malformed_json", "`id` is there twice at line 1"),
            (&patch, "", "malformed_json", "at line 1, column 0"),
            (&patch, "[]", "wrong_type", "the body must be a JSON object"),
            (&patch, r#"{"colour":1}"#, "unknown_field", "`colour`"),
            (&patch, r#"{"policy":{"colour":1}}"#, "unknown_field", "`policy.colour`"),
            (&patch, r#"{"policy":7}"#, "wrong_type", "`policy` must be an object, or null"),
            (
                &patch,
                r#"{"policy":{"mode":7}}"#,
                "wrong_type",
                "`policy.mode` must be one of auto, hold, open, closed",
            ),
            (&patch, r#"{"policy":{"mode":"ajar"}}"#, "wrong_type", "`policy.mode` must be one of auto"),
            (
                &patch,
                r#"{"policy":{"admit_per_minute":"9"}}"#,
                "wrong_type",
                "`policy.admit_per_minute` must be a whole number",
            ),
            (&patch, r#"{"policy":{"admit_per_minute":1.5}}"#, "wrong_type", "`policy.admit_per_minute`"),
            (
                &patch,
                r#"{"policy":{"admit_per_minute":0}}"#,
                "out_of_range",
                "`policy.admit_per_minute` is 0, and must be 1 to 600000",
            ),
            (
                &patch,
                r#"{"policy":{"admit_per_minute":-1}}"#,
                "out_of_range",
                "`policy.admit_per_minute` is -1,",
            ),
            (
                &patch,
                r#"{"policy":{"waits_per_minute_per_client":-1}}"#,
                "out_of_range",
                "`policy.waits_per_minute_per_client` is -1,",
            ),
            (
                &patch,
                r#"{"policy":{"waits_per_minute_per_client":1e300}}"#,
                "out_of_range",
                "`policy.waits_per_minute_per_client` is 1e+300,",
            ),
            (
                &patch,
                r#"{"policy":{"sub_windows":99999999999999999999}}"#,
                "out_of_range",
                "`policy.sub_windows` is",
            ),
            (
                &patch,
                r#"{"policy":{"polling_period_ms":60000}}"#,
                "out_of_range",
                "`policy.idle_timeout_s` is 60, and must be 180 to 3600",
            ),
            (&patch, r#"{"notice":{"en":5}}"#, "wrong_type", "`notice.en` must be a string"),
            (&patch, r#"{"notice":"Hello."}"#, "wrong_type", "`notice` must be an object"),
            (&patch, r#"{"notice":{"EN":"x"}}"#, "unknown_field", "`notice`: `EN` is not a language"),
            (&patch, r#"{"notice":{"en":"\u0007"}}"#, "wrong_type", "`notice`: "),
            (&patch, r#"{"notice":{"en":""}}"#, "out_of_range", "`notice.en` is 0, and must be 1 to 500"),
            (&patch, &long, "out_of_range", "`notice.en` is 501, and must be 1 to 500"),
            (&patch, &many, "out_of_range", "`notice` is 11, and must be 0 to 8"),
            (&post, r#"{"policy":{}}"#, "missing_field", "`id`"),
            (&post, r#"{"id":7}"#, "wrong_type", "`id` must be a string"),
            (&post, r#"{"id":"a b"}"#, "wrong_type", "`id`: a zone's id is"),
            (&put, "{}", "missing_field", "`policy`"),
            (&drain, "{}", "missing_field", "`draining`"),
            (&drain, r#"{"draining":1}"#, "wrong_type", "`draining` must be true or false"),
        ];
        for (read, body, code, detail) in cases {
            let problem = read(body).expect_err(body);
            assert!(problem.code.name == code && problem.detail.starts_with(detail), "{body}: {problem:?}");
        }
        let problem = patch(r#"{"policy":{"sub_windows":61}}"#).expect_err("out of range");
        let told: Value = serde_json::from_str(&problem.body()).expect("JSON");
        let range = ["field", "value", "low", "high"].map(|member| told[member].to_string());
        assert_eq!(range, ["\"policy.sub_windows\"", "61", "1", "60"]);
    }

    #[test]
    fn errors_name_an_event_as_it_was_written() {
        let said = |events: Value| {
            let body = serde_json::json!({ "events": events }).to_string();
            merge(body.as_bytes(), &old()).expect_err("refused").detail.into_owned()
        };
        let sale = |id: Value, begins: Value| {
            serde_json::json!({
                "id": id, "prequeue_from": "2026-12-01T08:30:00Z", "begins": begins, "ends": "2026-12-01T12:00:00Z",
            })
        };
        let right = sale("first".into(), "2026-12-01T09:00:00Z".into());
        for (wrong, wanted) in [
            (sale("a.b".into(), "tomorrow".into()), "`events.a.b.begins`: \"tomorrow\" is not an instant"),
            (sale("1".into(), "".into()), "`events.1.begins`: \"\" is not an instant: write"),
            (
                sale("sale".into(), 5.into()),
                "`events.sale.begins`: invalid type: integer `5`, expected an instant",
            ),
            (serde_json::json!({ "id": "sale" }), "`events.sale`: missing field `prequeue_from`"),
            (
                serde_json::json!({ "id": "sale", "max_active": -1 }),
                "`events.sale.max_active`: invalid value",
            ),
            // Without a name that an event can have, its place says which one it is.
            (sale("a b".into(), "x".into()), "`events[1].id`: \"a b\" is no name of an event"),
            (sale(7.into(), "x".into()), "`events[1].id`: invalid type: integer `7`"),
            (serde_json::json!({ "begins": "x" }), "`events[1]"),
            (7.into(), "`events[1]` must be an object"),
        ] {
            let said = said(Value::from(vec![right.clone(), wrong]));
            assert!(said.starts_with(wanted), "{said}");
        }
        let policy = merge(br#"{"policy":{"opens_at":5}}"#, &old()).expect_err("refused").detail;
        assert!(policy.contains("as in \"2026-12-01T09:00[Asia/Seoul]\", or null"), "{policy}");
        let policy = merge(br#"{"policy":{"opens_at":""}}"#, &old()).expect_err("refused").detail;
        assert!(policy.starts_with("`policy.opens_at`: \"\" is not an instant"), "{policy}");
        assert!(policy.ends_with("; or none"), "{policy}");
    }
}
