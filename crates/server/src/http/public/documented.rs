//! The JSON of the calls of apps, for the OpenAPI document.
//!
//! No value of these types is ever made: the JSON of polls is written straight into a string (`reply`). `tests/openapi`
//! compares the replies of a running server with the document.
#![expect(dead_code, reason = "only the document uses these shapes")]

use std::collections::BTreeMap;

use serde::Serialize;
use utoipa::{
    ToSchema,
    openapi::{Object, schema::ObjectBuilder, schema::Type},
};

use crate::http::stock_shape::StockTier;

/// A request for a place.
#[derive(ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Wait {
    #[schema(example = "TEST_ZONE")]
    zone_id: String,
    /// For the app's own use. The server ignores it, whatever its type.
    client_ip: Option<String>,
    /// For the app's own use. The server ignores it, whatever its type.
    client_agent: Option<String>,
    /// Resumes the place of this token.
    token: Option<String>,
    /// Made at random for one place: whoever sends it again within two minutes gets that place, and no second one.
    #[schema(min_length = 22, max_length = 64, pattern = "^[A-Za-z0-9_-]+$")]
    idempotency_key: Option<String>,
}

/// A poll: may the holder of this place enter now?
#[derive(ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Entry {
    #[schema(example = "TEST_ZONE")]
    zone_id: String,
    /// For the app's own use. The server ignores it, whatever its type.
    client_ip: Option<String>,
    /// For the app's own use. The server ignores it, whatever its type.
    client_agent: Option<String>,
    /// The newest token.
    token: String,
}

/// The holder of an entry leaves.
#[derive(ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Leave {
    #[schema(example = "TEST_ZONE")]
    zone_id: String,
    /// For the app's own use. The server ignores it, whatever its type.
    client_ip: Option<String>,
    /// For the app's own use. The server ignores it, whatever its type.
    client_agent: Option<String>,
    /// The token that came with the pass.
    token: String,
}

/// The holder entered, or still waits.
#[derive(ToSchema)]
#[serde(untagged)]
pub(super) enum Answer {
    In(Entered),
    NotYet(NotYet),
}

/// The holder entered.
#[derive(ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Entered {
    #[schema(schema_with = always::<true>)]
    can_enter: bool,
    /// A poll with this token returns the same pass until the pass expires.
    token: String,
    /// A JWT, for the protected service.
    pass: String,
}

/// The holder waits.
#[derive(ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct NotYet {
    #[schema(schema_with = always::<false>)]
    can_enter: bool,
    /// The token for the next poll.
    token: String,
    waiting: Waiting,
}

/// A field with this one value, so that programs can tell the two answers apart by it.
fn always<const VALUE: bool>() -> Object {
    ObjectBuilder::new().schema_type(Type::Boolean).enum_values(Some([VALUE])).build()
}

/// Place and wait.
#[derive(ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Waiting {
    /// The position in the line, from 1. While `reason` is `draw`, nobody has one, and it says how many people wait: until the list is
    /// frozen these are all who take part, and then also people who came later and stand behind them.
    #[schema(minimum = 1)]
    rank: u64,
    /// The expected wait; null while nobody may enter, or the order is still to be drawn.
    #[schema(required, minimum = 1)]
    eta_seconds: Option<u32>,
    /// The range that holds the wait in nine of ten cases; null where `etaSeconds` is.
    #[schema(required)]
    eta_range: Option<[u32; 2]>,
    /// The time until the next poll, in milliseconds.
    polling_period: u32,
    /// The store does not answer, or answers late, and this is the last known state.
    stale: bool,
    /// Why the wait is null, or longer than before.
    #[schema(nullable = false)]
    reason: Option<Reason>,
    /// The time until the zone opens, in milliseconds, by the server's clock. Only while that is to come: nobody enters before.
    #[schema(minimum = 1, nullable = false)]
    opens_in_ms: Option<u32>,
    /// What is left, where the operators tell it.
    #[schema(nullable = false)]
    stock: Option<Left>,
    /// As many people are ahead as pieces are left of everything, or more: everything may be sold out before. Only where it is true, and
    /// never before a draw.
    #[schema(nullable = false, schema_with = always::<true>)]
    beyond_stock: Option<bool>,
}

/// `held`: nobody enters, and no end is known. `draw`: the order is still to be drawn. The others are why the wait is longer than before.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Reason {
    Held,
    Draw,
    Slowed,
    Interrupted,
    Returned,
    Slower,
}

/// An event of a stream.
#[derive(ToSchema)]
pub(super) struct StreamEvent {
    event: StreamEventName,
    /// JSON, depending on the event: the object `waiting` of a poll, a whole answer, a problem document, or `{}`.
    data: String,
    /// The newest token.
    #[schema(nullable = false)]
    id: Option<String>,
    /// The time until the browser reconnects, in milliseconds.
    #[schema(nullable = false)]
    retry: Option<u32>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum StreamEventName {
    Wait,
    Enter,
    Problem,
    Reconnect,
}

/// A draw of a zone.
#[derive(ToSchema)]
pub(in crate::http) struct Draw {
    #[schema(example = "TEST_ZONE")]
    zone: String,
    #[schema(example = "spring-sale")]
    event: String,
    /// `announced`, `frozen` once the list is fixed, or `drawn`.
    #[schema(example = "frozen")]
    stage: String,
    /// When the list is frozen, in seconds since 1970.
    begins: u32,
    /// When people enter, in seconds since 1970; later if the randomness comes later.
    opens: u32,
    /// `drand`, or `stated: ` and where the value comes from.
    #[schema(example = "drand")]
    randomness: String,
    /// `wait` or `arrival`.
    #[schema(example = "wait")]
    fallback: String,
    /// The public key that signs, `NAME+ID+KEY`.
    key: String,
    /// The signed checkpoint, once the list is frozen.
    checkpoint: Option<String>,
}

/// Texts by language.
#[derive(ToSchema)]
pub(super) struct Notice {
    #[schema(example = json!({"en": "Back at noon."}))]
    notice: BTreeMap<String, String>,
}

/// What is left in a zone.
#[derive(ToSchema)]
pub(super) struct Stock {
    /// Differs where labels or prices differ; empty if nothing is told. Polls have the same.
    texts: String,
    /// In the order of the operators.
    #[schema(max_items = 16)]
    tiers: Vec<StockTier>,
    /// How many pieces are left of everything; null if that is not known of some tier, or nothing is told.
    #[schema(required)]
    remaining: Option<u64>,
}

/// What is left, in a poll.
#[derive(ToSchema)]
pub(super) struct Left {
    /// If it is not the one that the client has, `GET /traffic/stock` has the new labels and prices.
    texts: String,
    /// By the ids of tiers: 0 if a tier is sold out, null if nobody knows.
    #[schema(example = json!({"floor": 12, "balcony": 0}))]
    remaining: BTreeMap<String, Option<u32>>,
}

/// The rule of a zone.
#[derive(ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Rules {
    #[schema(example = "TEST_ZONE")]
    zone: String,
    rule: Rule,
    /// Differs where `rule` differs: BLAKE3 of its text, 64 hexadecimal digits. The audit log has it.
    digest: String,
    /// The mode in force: an event may have changed it.
    mode_in_force: String,
    /// The event of whose draw people get receipts: its pre-queue began last, and its order is drawn by lot. Null if there is none.
    #[schema(required, example = "spring-sale")]
    draw: Option<String>,
    /// Sentences by language.
    #[schema(example = json!({"en": ["People enter in the order in which they took their places."]}))]
    words: BTreeMap<String, Vec<String>>,
    counted: Counted,
    /// When this server saw the rule first, as in `2026-12-01T08:30:00Z`; null for a moment after its start or a change.
    #[schema(required)]
    changed: Option<String>,
    /// The line of this server's audit log that has the rule; null if there is no log, or it is not written yet.
    #[schema(required)]
    audit_record: Option<AuditRecord>,
}

/// What operators set.
#[derive(ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Rule {
    /// By what people are ordered: `arrival`. Others may be added.
    order: String,
    mode: String,
    admit_per_minute: u32,
    sub_windows: u32,
    /// Null if the people inside are not limited.
    #[schema(required)]
    inside_at_most: Option<u32>,
    #[schema(required)]
    opens_at: Option<String>,
    /// After so many seconds of silence, a place is lost.
    silent_for_s: u32,
    /// Who enters while the store is away: `closed` (nobody) or `open` (everybody).
    without_store: String,
    #[schema(max_items = 32)]
    events: Vec<RuleEvent>,
    /// How many routes of proxies let requests of the zone's site through without the zone.
    bypass_routes: u32,
    /// How many of them need a bypass token.
    bypass_routes_by_token: u32,
}

/// An event of a zone. Instants are written as the operators wrote them.
#[derive(ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct RuleEvent {
    id: String,
    prequeue_from: String,
    begins: String,
    ends: String,
    before: String,
    after: String,
    admit_per_minute: u32,
    #[schema(required)]
    inside_at_most: Option<u32>,
}

/// What this server counted since it started.
#[derive(ToSchema)]
pub(super) struct Counted {
    since: String,
    /// Requests that bypass routes let through.
    through: u64,
}

/// A line of an audit log.
#[derive(ToSchema)]
pub(super) struct AuditRecord {
    n: u64,
    hash: String,
}

/// Public keys; RFC 7517.
#[derive(ToSchema)]
pub(super) struct Jwks {
    keys: Vec<serde_json::Map<String, serde_json::Value>>,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use utoipa::PartialSchema as _;

    use super::Reason;

    #[test]
    fn every_reason_is_documented_as_it_is_sent() {
        let sent = gate::Reason::ALL.map(|reason| {
            // A reason that is added needs a value here, and in `ALL`.
            match reason {
                gate::Reason::Held | gate::Reason::Draw | gate::Reason::Slowed => {}
                gate::Reason::Interrupted | gate::Reason::Returned | gate::Reason::Slower => {}
            }
            Value::from(reason.as_str())
        });
        let documented = serde_json::to_value(Reason::schema()).expect("JSON");
        assert_eq!(documented["enum"], json!(sent));
    }
}
