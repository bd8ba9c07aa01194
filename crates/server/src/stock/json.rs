//! What is left as JSON: what operators write, what people read, and what a store keeps.
//!
//! Invariants: what [`text`] writes is read by [`stock`] as the same stock. Unknown fields, wrong types and numbers out of range are
//! refused by the name of the field.

use admission::{Amount, Label, NoticeFault, Price, Stock, StockFault, Tier, TierId};
use serde_json::{Value, json};
use store::redis::stock::STOCK_LEN_MAX;

use crate::{
    fields::{Object, missing, rest, shown, wrong},
    problem::{OUT_OF_RANGE, Problem, UNKNOWN_FIELD, WRONG_TYPE},
};

/// The length of [`texts_tag`], in hexadecimal digits.
const TAG_LEN: usize = 12;

/// Reads `{"tiers": […]}`.
///
/// # Errors
/// A [`Problem`] that names the field.
pub fn stock(value: Value) -> Result<Stock, Problem> {
    let mut fields = object(value, "the body")?;
    let Some(Value::Array(tiers)) = fields.remove("tiers") else {
        return Err(wrong("tiers", "a list, which may be empty"));
    };
    rest(&fields, "")?;
    let tiers: Result<_, _> =
        tiers.into_iter().enumerate().map(|(at, tier)| read_tier(tier, &format!("tiers.{at}"))).collect();
    let stock = Stock::new(tiers?).map_err(|fault| match fault {
        StockFault::Tiers { count } => most("tiers", count, Stock::TIERS_MAX),
        fault => Problem::new(WRONG_TYPE, format!("`tiers`: {fault}")),
    })?;
    let len = text(&stock).len();
    if len > STOCK_LEN_MAX {
        let what = format!("`tiers` has {len} bytes, and {STOCK_LEN_MAX} are the most; shorten the labels");
        return Err(Problem::new(OUT_OF_RANGE, what));
    }
    Ok(stock)
}

/// Reads `{"remaining": {"ID": NUMBER}}`, with null for an unknown number.
///
/// # Errors
/// A [`Problem`] that names the field.
pub fn remaining(value: Value) -> Result<Vec<(String, Option<u32>)>, Problem> {
    let mut fields = object(value, "the body")?;
    let Some(given) = fields.remove("remaining") else { return Err(missing("remaining")) };
    rest(&fields, "")?;
    let given = object(given, "`remaining`")?;
    if given.len() > Stock::TIERS_MAX {
        return Err(most("remaining", given.len(), Stock::TIERS_MAX));
    }
    let one = |(id, number): (String, Value)| {
        let number = pieces(&number, &format!("remaining.{}", shown(&id)))?;
        Ok((id, number))
    };
    given.into_iter().map(one).collect()
}

/// `stock` with other numbers; see [`Stock::with_remaining`].
///
/// # Errors
/// A [`Problem`] that names the tier that there is not.
pub fn with_remaining(stock: &Stock, numbers: &[(String, Option<u32>)]) -> Result<Stock, Problem> {
    stock.with_remaining(numbers.iter().map(|(id, number)| (id.as_str(), *number))).map_err(|id| {
        let tiers: Vec<_> = stock.tiers().iter().map(|tier| tier.id.as_str()).collect();
        let tiers =
            if tiers.is_empty() { "no tiers".to_owned() } else { format!("the tiers {}", tiers.join(", ")) };
        Problem::new(UNKNOWN_FIELD, format!("`remaining.{}`: the zone has {tiers}", shown(id)))
    })
}

/// A stock as a store keeps it.
#[must_use]
pub fn text(stock: &Stock) -> String {
    json!({ "tiers": tiers(stock) }).to_string()
}

/// The tiers of a stock, as [`stock`] reads them.
#[must_use]
pub fn tiers(stock: &Stock) -> Vec<Value> {
    let one = |tier: &Tier| {
        let label: Object = tier.label.iter().map(|(tag, text)| (tag.to_owned(), text.into())).collect();
        let mut all = json!({ "id": tier.id.as_str(), "label": label, "remaining": tier.remaining });
        if let Some(price) = &tier.price {
            let (from, to) = (price.from().as_str(), price.to().as_str());
            all["price"] = json!({ "currency": price.currency(), "from": from, "to": to });
        }
        all
    };
    stock.tiers().iter().map(one).collect()
}

/// What anybody may read about a zone.
#[must_use]
pub fn document(stock: &Stock, texts: &str) -> String {
    json!({ "texts": texts, "tiers": tiers(stock), "remaining": stock.total() }).to_string()
}

/// What polls get: the numbers, and what tells whether the labels and prices are still those that a client has.
#[must_use]
pub fn in_polls(stock: &Stock, texts: &str) -> String {
    let number = |tier: &Tier| match tier.remaining {
        Some(number) => format!(r#""{}":{number}"#, tier.id),
        None => format!(r#""{}":null"#, tier.id),
    };
    let numbers: Vec<_> = stock.tiers().iter().map(number).collect();
    format!(r#"{{"texts":"{texts}","remaining":{{{}}}}}"#, numbers.join(","))
}

/// Hexadecimal digits that differ where anything but a number differs.
#[must_use]
pub fn texts_tag(stock: &Stock) -> String {
    let mut tiers = tiers(stock);
    for tier in &mut tiers {
        tier["remaining"] = Value::Null;
    }
    let mut tag = blake3::hash(Value::from(tiers).to_string().as_bytes()).to_hex().to_string();
    tag.truncate(TAG_LEN);
    tag
}

fn read_tier(value: Value, at: &str) -> Result<Tier, Problem> {
    let mut fields = object(value, &format!("`{at}`"))?;
    let mut take = |name: &str| fields.remove(name).filter(|value| !value.is_null());
    let (id, label, price) = (take("id"), take("label"), take("price"));
    let remaining = pieces(&take("remaining").unwrap_or_default(), &format!("{at}.remaining"))?;
    rest(&fields, &format!("{at}."))?;
    let id = id.ok_or_else(|| missing(&format!("{at}.id")))?;
    let id = id.as_str().ok_or_else(|| wrong(&format!("{at}.id"), "a string"))?;
    let id = TierId::parse(id).map_err(|fault| Problem::new(WRONG_TYPE, format!("`{at}.id`: {fault}")))?;
    let label = read_label(label.ok_or_else(|| missing(&format!("{at}.label")))?, &format!("{at}.label"))?;
    let price = price.map(|price| read_price(price, &format!("{at}.price"))).transpose()?;
    Ok(Tier { id, label, price, remaining })
}

fn read_label(value: Value, at: &str) -> Result<Label, Problem> {
    let texts = object(value, &format!("`{at}`"))?;
    let text = |(language, text): (String, Value)| match text {
        Value::String(text) => Ok((language, text)),
        _ => Err(wrong(&format!("{at}.{}", shown(&language)), "a string")),
    };
    let texts = texts.into_iter().map(text).collect::<Result<Vec<_>, _>>()?;
    Label::new(texts).map_err(|fault| {
        let code = match fault {
            StockFault::Label { .. } | StockFault::Text(NoticeFault::Languages { .. }) => OUT_OF_RANGE,
            StockFault::Text(NoticeFault::Language(_)) => UNKNOWN_FIELD,
            _ => WRONG_TYPE,
        };
        Problem::new(code, format!("`{at}`: {fault}"))
    })
}

fn read_price(value: Value, at: &str) -> Result<Price, Problem> {
    let mut fields = object(value, &format!("`{at}`"))?;
    let mut take = |name: &str| match fields.remove(name) {
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(wrong(&format!("{at}.{name}"), "a string, so that no digit changes")),
        None => Err(missing(&format!("{at}.{name}"))),
    };
    let (currency, from, to) = (take("currency")?, take("from")?, take("to")?);
    rest(&fields, &format!("{at}."))?;
    let fault = |fault: StockFault| Problem::new(WRONG_TYPE, format!("`{at}`: {fault}"));
    let (from, to) = (Amount::parse(&from).map_err(fault)?, Amount::parse(&to).map_err(fault)?);
    Price::new(&currency, from, to).map_err(fault)
}

/// A number of pieces; null if nobody knows it.
fn pieces(value: &Value, at: &str) -> Result<Option<u32>, Problem> {
    if value.is_null() {
        return Ok(None);
    }
    let wrong = || wrong(at, "a whole number, or null if nobody knows it");
    let Value::Number(number) = value else { return Err(wrong()) };
    // Some languages write each number as one with a fraction.
    let whole = |number: f64| if number.fract() == 0.0 { format!("{number:.0}").parse().ok() } else { None };
    let found: Option<u32> = number.as_f64().and_then(whole);
    match found.filter(|number| *number <= Tier::REMAINING_MAX) {
        Some(number) => Ok(Some(number)),
        // A number with a fraction is no number of pieces at all.
        None if number.as_f64().is_none_or(|number| number.fract() != 0.0) => Err(wrong()),
        None => Err(Problem::field_out_of_range(at, value.clone(), 0, Tier::REMAINING_MAX)),
    }
}

fn object(value: Value, what: &str) -> Result<Object, Problem> {
    match value {
        Value::Object(fields) => Ok(fields),
        _ => Err(Problem::new(WRONG_TYPE, format!("{what} must be an object"))),
    }
}

fn most(field: &str, count: usize, most: usize) -> Problem {
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let detail = format!("`{field}` has {count} entries, and {most} are the most");
    Problem::out_of_range(field, number(count).into(), 0, number(most), detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::MISSING_FIELD;

    #[test]
    fn what_is_written_is_read() {
        let tier = json!({
            "id": "floor", "label": {"en": "Floor \"A\"", "ko": "스탠딩"}, "remaining": 12,
            "price": {"currency": "GBP", "from": "40.00", "to": "95.50"},
        });
        let all = json!({ "tiers": [tier, {"id": "gold", "label": {"en": "Gold"}, "remaining": null}] });
        let read = stock(all.clone()).expect("a stock");
        assert_eq!(serde_json::from_str::<Value>(&text(&read)).expect("JSON"), all);
        assert_eq!(stock(all), Ok(read));
        assert!(stock(json!({ "tiers": [] })).expect("nothing").is_empty());
    }

    #[test]
    fn wrong_fields_are_named() {
        let tier = |more: Value| {
            let mut tier = json!({ "id": "a", "label": {"en": "A"} });
            tier.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
            json!({ "tiers": [tier] })
        };
        let price = |price: Value| tier(json!({ "price": price }));
        for (body, code, word) in [
            (json!([]), WRONG_TYPE, "the body"),
            (json!({}), WRONG_TYPE, "`tiers`"),
            (json!({"tiers": {}}), WRONG_TYPE, "`tiers`"),
            (json!({"tiers": [], "zone": 1}), UNKNOWN_FIELD, "`zone`"),
            (json!({"tiers": [1]}), WRONG_TYPE, "`tiers.0`"),
            (json!({"tiers": [{"label": {"en": "A"}}]}), MISSING_FIELD, "`tiers.0.id`"),
            (json!({"tiers": [{"id": "a"}]}), MISSING_FIELD, "`tiers.0.label`"),
            (tier(json!({"id": 1})), WRONG_TYPE, "`tiers.0.id`"),
            (tier(json!({"id": "a\"b"})), WRONG_TYPE, "`tiers.0.id`"),
            (tier(json!({"left": 1})), UNKNOWN_FIELD, "`tiers.0.left`"),
            (tier(json!({"label": {}})), WRONG_TYPE, "`tiers.0.label`"),
            (tier(json!({"label": {"en": 1}})), WRONG_TYPE, "`tiers.0.label.en`"),
            (tier(json!({"label": {"EN": "A"}})), UNKNOWN_FIELD, "`tiers.0.label`"),
            (tier(json!({"label": {"en": ""}})), OUT_OF_RANGE, "`tiers.0.label`"),
            (tier(json!({"label": {"en": "x".repeat(81)}})), OUT_OF_RANGE, "`tiers.0.label`"),
            (tier(json!({"label": {"en": "a\u{0}"}})), WRONG_TYPE, "`tiers.0.label`"),
            (tier(json!({"remaining": -1})), OUT_OF_RANGE, "`tiers.0.remaining`"),
            (tier(json!({"remaining": 1_000_000_001})), OUT_OF_RANGE, "`tiers.0.remaining`"),
            (tier(json!({"remaining": u64::MAX})), OUT_OF_RANGE, "`tiers.0.remaining`"),
            (tier(json!({"remaining": 1e300})), OUT_OF_RANGE, "`tiers.0.remaining`"),
            (tier(json!({"remaining": 1.5})), WRONG_TYPE, "`tiers.0.remaining`"),
            (tier(json!({"remaining": "7"})), WRONG_TYPE, "`tiers.0.remaining`"),
            (price(json!({"currency": "GBP", "from": "1"})), MISSING_FIELD, "`tiers.0.price.to`"),
            (price(json!({"currency": "GBP", "from": 1, "to": "2"})), WRONG_TYPE, "`tiers.0.price.from`"),
            (price(json!({"currency": "gbp", "from": "1", "to": "2"})), WRONG_TYPE, "`tiers.0.price`"),
            (price(json!({"currency": "GBP", "from": "3", "to": "2"})), WRONG_TYPE, "`tiers.0.price`"),
        ] {
            let problem = stock(body.clone()).expect_err(word);
            assert_eq!(problem.code, code, "{body}: {problem:?}");
            assert!(problem.detail.starts_with(word), "{body}: {problem:?}");
        }
        for (body, code, word) in [
            (json!({}), MISSING_FIELD, "`remaining`"),
            (json!({"remaining": [1]}), WRONG_TYPE, "`remaining`"),
            (json!({"remaining": {"a": -1}}), OUT_OF_RANGE, "`remaining.a`"),
            (json!({"remaining": {}, "tiers": []}), UNKNOWN_FIELD, "`tiers`"),
        ] {
            let problem = remaining(body.clone()).expect_err(word);
            assert_eq!((problem.code, problem.detail.starts_with(word)), (code, true), "{body}: {problem:?}");
        }
        let float = remaining(json!({"remaining": {"a": 7.0, "b": null}})).expect("a whole number");
        assert_eq!(float, [("a".to_owned(), Some(7)), ("b".to_owned(), None)]);
        let known = stock(tier(json!({}))).expect("a stock");
        let unknown = with_remaining(&known, &[("b".to_owned(), Some(1))]).expect_err("no such tier");
        assert_eq!(unknown.code, UNKNOWN_FIELD);
    }

    #[test]
    fn the_whole_text_has_a_limit() {
        // The longest labels in the most languages: no single field is out of its range.
        let languages = ["de", "en", "es", "fr", "it", "ja", "ko", "zh"];
        let label: Object =
            languages.map(|tag| (tag.to_owned(), "가".repeat(80).into())).into_iter().collect();
        let tiers: Vec<_> = (0..16).map(|at| json!({ "id": format!("t{at}"), "label": label })).collect();
        assert_eq!(stock(json!({ "tiers": tiers })).expect_err("too long").code, OUT_OF_RANGE);
        assert!(stock(json!({ "tiers": tiers[..4] })).is_ok());
    }

    #[test]
    fn the_tag_changes_with_texts_and_not_with_numbers() {
        let of = |label: &str, remaining: u32| {
            let tier = json!({"id": "a", "label": {"en": label}, "remaining": remaining});
            texts_tag(&stock(json!({ "tiers": [tier] })).expect("a stock"))
        };
        assert_eq!(of("A", 1), of("A", 2));
        assert_ne!(of("A", 1), of("B", 1));
    }
}
