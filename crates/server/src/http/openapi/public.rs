//! The document for apps.
//!
//! Nothing here runs: the calls are answered by hand in [`http`](crate::http), and their shapes written without a tree of
//! values. What ties the two together is `tests/openapi`, which holds replies of a running server against the document.
#![expect(dead_code, reason = "shapes and paths for the document")]

use serde::Serialize;
use utoipa::{Modify, OpenApi, ToSchema};

use super::{
    super::problem::{
        BAD_TOKEN, BUSY, Code, GONE, MALFORMED_JSON, METHOD_NOT_ALLOWED, MISSING_FIELD, OVERLOADED,
        SLOW_BODY, STOPPING, STORE_AWAY, TOO_LARGE, TOO_MANY_REQUESTS, UNKNOWN_FIELD, UNKNOWN_ZONE,
        UNSUPPORTED_MEDIA_TYPE, WRONG_TYPE, ZONE_CLOSED,
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
    paths(wait, entry, stream, jwks, healthz, readyz),
    components(schemas(Problem)),
    modifiers(&Refusals),
)]
pub(super) struct Doc;

/// Who wants in.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[serde(rename_all = "camelCase")]
struct Wait {
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
struct Entry {
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
enum Answer {
    In(Entered),
    NotYet(NotYet),
}

#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[serde(rename_all = "camelCase")]
struct Entered {
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
struct NotYet {
    /// `false`
    can_enter: bool,
    /// To ask with next time.
    token: String,
    waiting: Waiting,
}

#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[serde(rename_all = "camelCase")]
struct Waiting {
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
enum Reason {
    Held,
    Slower,
}

/// What a stream says.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
struct StreamEvent {
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
enum StreamEventName {
    Wait,
    Enter,
    Problem,
    Reconnect,
}

/// Public keys; RFC 7517.
#[derive(ToSchema)]
struct Jwks {
    keys: Vec<serde_json::Map<String, serde_json::Value>>,
}

/// Takes a place in a zone's line, or resumes the token's.
#[utoipa::path(post, path = "/traffic/wait", tag = "waiting", request_body = Wait, responses((status = 200, body = Answer)))]
fn wait() {}

/// Asks for a place: whether its holder may enter now.
#[utoipa::path(post, path = "/traffic/entry", tag = "waiting", request_body = Entry, responses((status = 200, body = Answer)))]
fn entry() {}

/// Follows a place: server-sent events `wait` (what polls have in `waiting`), `enter` (what they are answered), `problem`, and
/// `reconnect`. An event's id is the newest token.
#[utoipa::path(
    get,
    path = "/traffic/stream",
    tag = "waiting",
    params(
        ("zone" = String, Query, description = "The zone's id", example = "TEST_ZONE"),
        ("token" = String, Query, description = "The place's token"),
        ("Last-Event-ID" = Option<String>, Header, description = "A newer token, as browsers send it who come back"),
    ),
    responses((status = 200, content_type = "text/event-stream", body = StreamEvent)),
)]
fn stream() {}

/// The keys that passes are signed with.
#[utoipa::path(
    get,
    path = "/.well-known/jwks.json",
    tag = "passes",
    responses((status = 200, content_type = "application/jwk-set+json", body = Jwks)),
)]
fn jwks() {}

/// The server runs.
#[utoipa::path(get, path = "/healthz", tag = "health", responses((status = 200, content_type = "text/plain", body = String)))]
fn healthz() {}

/// New work is welcome: the server is in service, and a store answers.
#[utoipa::path(get, path = "/readyz", tag = "health", responses((status = 200, content_type = "text/plain", body = String)))]
fn readyz() {}

struct Refusals;

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
                    "/readyz" => &[STOPPING, STORE_AWAY],
                    _ => &[],
                };
                refuse(operation, &[OF_HTTP, &[METHOD_NOT_ALLOWED, OVERLOADED], own].concat());
            }
        }
    }
}
