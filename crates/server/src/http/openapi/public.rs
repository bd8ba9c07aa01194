//! The shapes and errors of the document for apps.
//!
//! No value of these types is ever made: the JSON of polls is written straight into a string (`reply`). `tests/openapi`
//! compares the replies of a running server with the document.
#![expect(dead_code, reason = "only the document uses these shapes")]

use std::collections::BTreeMap;

use serde::Serialize;
use utoipa::{
    Modify, OpenApi, PartialSchema as _, ToSchema,
    openapi::{Content, Object, RefOr, ResponseBuilder, schema::ObjectBuilder, schema::Type},
};

use super::{
    super::problem::{
        BAD_TOKEN, BUSY, Code, FOREIGN_ORIGIN, GONE, MALFORMED_JSON, METHOD_NOT_ALLOWED, MISSING_FIELD,
        NOT_FOUND, OTHER_ADDRESS, OVERLOADED, SLOW_BODY, STOPPING, STORE_AWAY, TOO_LARGE,
        TOO_MANY_CONNECTIONS, TOO_MANY_REQUESTS, TOO_MANY_STREAMS, UNKNOWN_ZONE, UNSUPPORTED_MEDIA_TYPE,
        WRONG_TYPE, ZONE_CLOSED, ZONE_FULL,
    },
    OF_HTTP, Problem, operations, refuse,
};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Weir",
        description = "A waiting room that apps poll. Take a place with `wait`, then ask with `entry` after each polling period.",
        license(name = "Apache-2.0 OR MIT", identifier = "Apache-2.0 OR MIT"),
    ),
    components(schemas(Problem))
)]
pub(super) struct Base;

/// A request for a place.
#[derive(ToSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::http) struct Wait {
    #[schema(example = "TEST_ZONE")]
    zone_id: String,
    /// For the app's own use. The server ignores it.
    client_ip: Option<String>,
    /// For the app's own use. The server ignores it.
    client_agent: Option<String>,
    /// Resumes the place of this token.
    token: Option<String>,
}

/// A poll: may the holder of this place enter now?
#[derive(ToSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::http) struct Entry {
    #[schema(example = "TEST_ZONE")]
    zone_id: String,
    /// For the app's own use. The server ignores it.
    client_ip: Option<String>,
    /// For the app's own use. The server ignores it.
    client_agent: Option<String>,
    /// The newest token.
    token: String,
}

/// The holder of an entry leaves.
#[derive(ToSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::http) struct Leave {
    #[schema(example = "TEST_ZONE")]
    zone_id: String,
    /// For the app's own use. The server ignores it.
    client_ip: Option<String>,
    /// For the app's own use. The server ignores it.
    client_agent: Option<String>,
    /// The token that came with the pass.
    token: String,
}

/// The holder entered, or still waits.
#[derive(ToSchema)]
#[serde(untagged)]
pub(in crate::http) enum Answer {
    In(Entered),
    NotYet(NotYet),
}

/// The holder entered.
#[derive(ToSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::http) struct Entered {
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
pub(in crate::http) struct NotYet {
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
pub(in crate::http) struct Waiting {
    /// The position in the line, from 1.
    #[schema(minimum = 1)]
    rank: u64,
    /// The expected wait; null while nobody may enter.
    #[schema(required, minimum = 1)]
    eta_seconds: Option<u32>,
    /// The range that holds the wait in nine of ten cases; null while nobody may enter.
    #[schema(required)]
    eta_range: Option<[u32; 2]>,
    /// The time until the next poll, in milliseconds.
    polling_period: u32,
    /// The store does not answer, and this is the last known state.
    stale: bool,
    /// Why the wait is null, or longer than before.
    #[schema(nullable = false)]
    reason: Option<Reason>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(in crate::http) enum Reason {
    Held,
    Slowed,
    Interrupted,
    Returned,
    Slower,
}

/// An event of a stream.
#[derive(ToSchema)]
pub(in crate::http) struct StreamEvent {
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
pub(in crate::http) enum StreamEventName {
    Wait,
    Enter,
    Problem,
    Reconnect,
}

/// Texts by language.
#[derive(ToSchema)]
pub(in crate::http) struct Notice {
    #[schema(example = json!({"en": "Back at noon."}))]
    notice: BTreeMap<String, String>,
}

/// Public keys; RFC 7517.
#[derive(ToSchema)]
pub(in crate::http) struct Jwks {
    keys: Vec<serde_json::Map<String, serde_json::Value>>,
}

pub(super) struct Refusals;

impl Modify for Refusals {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        // Tokens of places are in bodies. No call needs anything else.
        document.security = Some(vec![]);
        let of_token: &[Code] = &[
            MALFORMED_JSON,
            MISSING_FIELD,
            WRONG_TYPE,
            BAD_TOKEN,
            FOREIGN_ORIGIN,
            UNKNOWN_ZONE,
            SLOW_BODY,
            TOO_LARGE,
            UNSUPPORTED_MEDIA_TYPE,
            TOO_MANY_REQUESTS,
            STORE_AWAY,
        ];
        let of_poll = &[of_token, &[GONE, BUSY, ZONE_CLOSED, ZONE_FULL]].concat();
        let of_leave = &[of_token, &[GONE, BUSY, OTHER_ADDRESS]].concat();
        let of_stream: &[Code] = &[
            MISSING_FIELD,
            WRONG_TYPE,
            BAD_TOKEN,
            FOREIGN_ORIGIN,
            UNKNOWN_ZONE,
            GONE,
            TOO_MANY_REQUESTS,
            TOO_MANY_STREAMS,
            BUSY,
            STOPPING,
            STORE_AWAY,
            ZONE_CLOSED,
        ];
        for (path, item) in &mut document.paths.paths {
            for (_, operation) in operations(item) {
                let own = match path.as_str() {
                    "/traffic/wait" | "/traffic/entry" => of_poll,
                    "/traffic/leave" => of_leave,
                    "/traffic/stream" => of_stream,
                    "/traffic/notice" => &[MISSING_FIELD, WRONG_TYPE, UNKNOWN_ZONE, STORE_AWAY],
                    "/wait/{zone}" => &[NOT_FOUND],
                    "/readyz" => &[STOPPING, STORE_AWAY],
                    _ => &[],
                };
                refuse(
                    operation,
                    &[OF_HTTP, &[METHOD_NOT_ALLOWED, TOO_MANY_CONNECTIONS, OVERLOADED], own].concat(),
                );
                if let "/traffic/notice" | "/wait/{zone}" | "/weir.js" = path.as_str() {
                    let known =
                        ResponseBuilder::new().description("`If-None-Match` has the tag of the current file");
                    operation.responses.responses.insert("304".to_owned(), known.build().into());
                }
                // A zone that does not exist has a page that says so. A malformed name has none.
                if path == "/wait/{zone}"
                    && let Some(RefOr::T(response)) = operation.responses.responses.get_mut("404")
                {
                    let page = Content::new(Some(String::schema()));
                    response.content.insert("text/html".to_owned(), page.into());
                }
            }
        }
    }
}
