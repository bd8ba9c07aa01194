//! Parses the bodies of the calls of people in line.
//!
//! Apps send fields of their own, and new releases send more; the server ignores what it does not know. Invariant: a correct request is
//! read in one pass and borrows from the body. Only a wrong one is read twice, to say what is wrong with it.

use std::borrow::Cow;

use admission::JoinKey;
use serde::Deserialize;
use serde_json::Value;

use super::problem::{MALFORMED_JSON, Problem, WRONG_TYPE};
use crate::fields::{missing, wrong};

/// The field with the key of a join.
const KEY: &str = "idempotencyKey";

/// A call of an app.
#[derive(Debug, PartialEq, Eq)]
pub struct Ask<'a> {
    /// `zoneId`.
    pub zone: Cow<'a, str>,
    /// `token`. Optional for `wait`, which resumes its place; required for `entry`.
    pub token: Option<Cow<'a, str>>,
    /// `idempotencyKey`, which only `wait` reads.
    pub key: Option<JoinKey>,
}

#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    #[serde(borrow)]
    zone_id: Cow<'a, str>,
    #[serde(borrow, default)]
    token: Option<Text<'a>>,
    #[serde(borrow, default)]
    idempotency_key: Option<Text<'a>>,
}

/// Parses a body. `entry` requires a token.
///
/// # Errors
/// A [`Problem`] that says what is wrong.
pub fn parse(body: &[u8], entry: bool) -> Result<Ask<'_>, Problem> {
    // A derived parser would also accept an array of the values.
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err(explain(body, entry));
    }
    // The parser does not look into the texts of fields that it ignores.
    let Ok(text) = std::str::from_utf8(body) else { return Err(explain(body, entry)) };
    match serde_json::from_str::<Body<'_>>(text) {
        Ok(Body { zone_id, token, idempotency_key }) if token.is_some() || !entry => {
            let key = match idempotency_key {
                Some(Text(text)) if !entry => Some(JoinKey::of(&text).ok_or_else(wrong_key)?),
                _ => None,
            };
            Ok(Ask { zone: zone_id, token: token.map(|Text(text)| text), key })
        }
        _ => Err(explain(body, entry)),
    }
}

fn wrong_key() -> Problem {
    let (least, most) = JoinKey::LEN.into_inner();
    wrong(KEY, &format!("{least} to {most} letters, digits, `-` and `_`, made at random for each place"))
}

fn explain(body: &[u8], entry: bool) -> Problem {
    let fields = match serde_json::from_slice(body) {
        Ok(Value::Object(fields)) => fields,
        Ok(_) => return Problem::new(WRONG_TYPE, "the body must be a JSON object"),
        Err(e) => {
            return Problem::new(MALFORMED_JSON, format!("at line {}, column {}", e.line(), e.column()));
        }
    };
    for (name, value) in &fields {
        let may_be_null = match name.as_str() {
            "zoneId" => false,
            "token" => !entry,
            KEY => true,
            _ => continue,
        };
        if !(value.is_string() || value.is_null() && may_be_null) {
            return wrong(name, "a string");
        }
    }
    match ["zoneId", "token"]
        .into_iter()
        .find(|name| !fields.contains_key(*name) && (entry || *name == "zoneId"))
    {
        Some(name) => missing(name),
        None => Problem::new(MALFORMED_JSON, "a field is there twice"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn correct_requests_are_parsed() {
        let ask = |body: &'static str, entry| parse(body.as_bytes(), entry).expect(body);
        let plain = ask(r#"{"zoneId":"Z"}"#, false);
        assert!(matches!(plain, Ask { zone: Cow::Borrowed("Z"), token: None, key: None }));
        assert_eq!(ask(r#"{"token":null,"clientIp":null,"zoneId":"Z"}"#, false), plain);
        let full = r#" {"zoneId":"Z","clientIp":"1.2.3.4","clientAgent":"\u00e4\"","token":"t"} "#;
        assert!(matches!(ask(full, true).token, Some(Cow::Borrowed("t"))));
        // Apps of old releases may send these two, which mean nothing, in any form and twice.
        let ignored = r#"{"clientIp":7,"clientAgent":["x"],"zoneId":"Z","clientIp":{},"clientAgent":null}"#;
        assert_eq!(ask(ignored, false), plain);
        assert_eq!(ask(r#"{"zone\u0049d":"\u005a","token":"t"}"#, true).zone, "Z");
        let key = "0123456789abcdef-_ABCD";
        let body = format!(r#"{{"zoneId":"Z","idempotencyKey":"{key}"}}"#);
        assert_eq!(parse(body.as_bytes(), false).expect("right").key, JoinKey::of(key));
        assert_eq!(ask(r#"{"zoneId":"Z","idempotencyKey":null}"#, false), plain);
        // `entry` has a token, and no use for a key.
        assert_eq!(ask(r#"{"zoneId":"Z","token":"t","idempotencyKey":"k"}"#, true).key, None);
    }

    proptest::proptest! {
        /// Whatever else an app sends, a request whose known fields are right is accepted.
        #[test]
        fn other_fields_are_ignored(
            others in proptest::collection::btree_map("[a-zA-Z_$ \u{e4}]{0,12}|client(Ip|Agent)", json(), 0..6),
            entry in proptest::bool::ANY,
        ) {
            let mut fields: serde_json::Map<String, Value> = others.into_iter().collect();
            fields.insert("zoneId".to_owned(), "Z".into());
            fields.insert("token".to_owned(), "t".into());
            let body = Value::Object(fields).to_string();
            let ask = parse(body.as_bytes(), entry).expect("right");
            proptest::prop_assert_eq!((&*ask.zone, ask.token.as_deref()), ("Z", Some("t")));
        }
    }

    /// Any JSON.
    fn json() -> impl proptest::strategy::Strategy<Value = Value> {
        use proptest::prelude::*;
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 16, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map(any::<String>(), inner, 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    #[test]
    fn wrong_requests_say_what_is_wrong() {
        let cases: &[(&[u8], bool, &str, &str)] = &[
            (b"", false, "malformed_json", "at line 1, column 0"),
            (b"{\"zoneId\":", false, "malformed_json", "at line 1, column 10"),
            (b"\xff\xfe", false, "malformed_json", "at line 1, column 1"),
            (b"{\"zoneId\":\"\xff\"}", false, "malformed_json", "at line 1, column 12"),
            (b"{\"zoneId\":\"Z\",\"a\":\"\xff\"}", false, "malformed_json", "at line 1, column 20"),
            (b"{\"zoneId\":\"Z\"} x", false, "malformed_json", "at line 1, column 16"),
            (b"[]", false, "wrong_type", "the body must be a JSON object"),
            (b" [\"Z\"]", false, "wrong_type", "the body must be a JSON object"),
            (b"{\"zoneId\":7}", false, "wrong_type", "`zoneId` must be a string"),
            (b"{\"zoneId\":null}", false, "wrong_type", "`zoneId` must be a string"),
            (b"{\"zoneId\":\"Z\",\"token\":{}}", false, "wrong_type", "`token` must be a string"),
            (b"{\"zoneId\":\"Z\",\"token\":null}", true, "wrong_type", "`token` must be a string"),
            (
                b"{\"zoneId\":\"Z\",\"idempotencyKey\":7}",
                false,
                "wrong_type",
                "`idempotencyKey` must be a string",
            ),
            (
                b"{\"zoneId\":\"Z\",\"idempotencyKey\":\"short\"}",
                false,
                "wrong_type",
                "`idempotencyKey` must be 22 to 64 letters, digits, `-` and `_`, made at random for each place",
            ),
            (b"{\"zoneID\":\"Z\",\"zone\":\"Z\"}", false, "missing_field", "`zoneId`"),
            (b"{}", false, "missing_field", "`zoneId`"),
            (b"{\"zoneId\":\"Z\"}", true, "missing_field", "`token`"),
            (b"{\"zoneId\":\"Z\",\"zoneId\":\"Z\"}", false, "malformed_json", "a field is there twice"),
        ];
        for &(body, entry, code, detail) in cases {
            let problem = parse(body, entry).expect_err("refused");
            assert_eq!(
                (problem.code.name, problem.detail.as_ref()),
                (code, detail),
                "{}",
                body.escape_ascii()
            );
        }
        let deep = "[".repeat(4_000);
        assert_eq!(parse(deep.as_bytes(), false).expect_err("refused").code, MALFORMED_JSON);
    }
}
