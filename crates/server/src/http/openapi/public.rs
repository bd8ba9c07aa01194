//! The shapes and errors of the document for apps.
//!
//! No value of these types is ever made: the JSON of polls is written straight into a string (`reply`). `tests/openapi`
//! compares the replies of a running server with the document.
#![expect(dead_code, reason = "only the document uses these shapes")]

use std::collections::BTreeMap;

use serde::Serialize;
use utoipa::{
    Modify, OpenApi, PartialSchema as _, ToSchema,
    openapi::{Content, RefOr, ResponseBuilder},
};

use super::{
    super::problem::{
        BAD_TOKEN, BUSY, Code, GONE, MALFORMED_JSON, METHOD_NOT_ALLOWED, MISSING_FIELD, NOT_FOUND,
        OVERLOADED, SLOW_BODY, STOPPING, STORE_AWAY, TOO_LARGE, TOO_MANY_REQUESTS, UNKNOWN_FIELD,
        UNKNOWN_ZONE, UNSUPPORTED_MEDIA_TYPE, WRONG_TYPE, ZONE_CLOSED,
    },
    OF_HTTP, Problem, operations, refuse,
};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Weir",
        description = "A waiting room that apps poll. Take a place with `wait`, ask for it with `entry` as often as told.",
        license(name = "Apache-2.0 OR MIT", identifier = "Apache-2.0 OR MIT"),
    ),
    components(schemas(Problem))
)]
pub(super) struct Base;

/// Who wants in.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[serde(rename_all = "camelCase")]
pub(in crate::http) struct Wait {
    #[schema(example = "TEST_ZONE")]
    zone_id: String,
    /// For the app's own use: nothing reads it.
    client_ip: Option<String>,
    /// For the app's own use: nothing reads it.
    client_agent: Option<String>,
    /// Resumes a place.
    token: Option<String>,
}

/// Who asks again.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[serde(rename_all = "camelCase")]
pub(in crate::http) struct Entry {
    #[schema(example = "TEST_ZONE")]
    zone_id: String,
    /// For the app's own use: nothing reads it.
    client_ip: Option<String>,
    /// For the app's own use: nothing reads it.
    client_agent: Option<String>,
    /// The newest there is.
    token: String,
}

/// In, or not yet.
#[derive(ToSchema)]
#[serde(untagged)]
pub(in crate::http) enum Answer {
    In(Entered),
    NotYet(NotYet),
}

#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[serde(rename_all = "camelCase")]
pub(in crate::http) struct Entered {
    /// `true`
    can_enter: bool,
    /// Asked with again, it gives the same pass for as long as that is good.
    token: String,
    /// A JWT, for the protected service.
    pass: String,
}

#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[serde(rename_all = "camelCase")]
pub(in crate::http) struct NotYet {
    /// `false`
    can_enter: bool,
    /// To ask with next time.
    token: String,
    waiting: Waiting,
}

#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[serde(rename_all = "camelCase")]
pub(in crate::http) struct Waiting {
    /// 1 + the places ahead.
    #[schema(minimum = 1)]
    rank: u64,
    /// The expected wait; null while nobody is let in.
    #[schema(required, minimum = 1)]
    eta_seconds: Option<u32>,
    /// In which it is in nine of ten cases.
    #[schema(required)]
    eta_range: Option<[u32; 2]>,
    /// When to ask again, in milliseconds from now.
    polling_period: u32,
    /// The store is away, and this is what was last known.
    stale: bool,
    /// Why the wait is null, or longer than before.
    #[schema(nullable = false)]
    reason: Option<Reason>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(in crate::http) enum Reason {
    Held,
    Slower,
}

/// What a stream says.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct StreamEvent {
    event: StreamEventName,
    /// JSON, of the event's own kind: what polls have in `waiting`, an answer, a problem document, nothing.
    data: String,
    /// The newest token.
    #[schema(nullable = false)]
    id: Option<String>,
    /// When to come back, in milliseconds.
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
#[serde(deny_unknown_fields)]
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
        let of_poll: &[Code] = &[
            MALFORMED_JSON,
            MISSING_FIELD,
            UNKNOWN_FIELD,
            WRONG_TYPE,
            BAD_TOKEN,
            UNKNOWN_ZONE,
            SLOW_BODY,
            GONE,
            TOO_LARGE,
            UNSUPPORTED_MEDIA_TYPE,
            TOO_MANY_REQUESTS,
            BUSY,
            STORE_AWAY,
            ZONE_CLOSED,
        ];
        let of_stream: &[Code] = &[
            MISSING_FIELD,
            UNKNOWN_FIELD,
            WRONG_TYPE,
            BAD_TOKEN,
            UNKNOWN_ZONE,
            GONE,
            TOO_MANY_REQUESTS,
            BUSY,
            STOPPING,
            STORE_AWAY,
            ZONE_CLOSED,
        ];
        for (path, item) in &mut document.paths.paths {
            for (_, operation) in operations(item) {
                let own = match path.as_str() {
                    "/traffic/wait" | "/traffic/entry" => of_poll,
                    "/traffic/stream" => of_stream,
                    "/traffic/notice" => {
                        &[MISSING_FIELD, UNKNOWN_FIELD, WRONG_TYPE, UNKNOWN_ZONE, STORE_AWAY]
                    }
                    "/wait/{zone}" => &[NOT_FOUND],
                    "/readyz" => &[STOPPING, STORE_AWAY],
                    _ => &[],
                };
                refuse(operation, &[OF_HTTP, &[METHOD_NOT_ALLOWED, OVERLOADED], own].concat());
                if let "/traffic/notice" | "/wait/{zone}" | "/weir.js" = path.as_str() {
                    let known = ResponseBuilder::new().description("`If-None-Match` names what there is");
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
