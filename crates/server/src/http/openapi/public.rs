//! The errors of the document for apps.

use utoipa::{
    Modify, OpenApi, PartialSchema as _,
    openapi::{Content, RefOr, ResponseBuilder},
};

use super::{
    super::problem::{
        BAD_TOKEN, BUSY, Code, FOREIGN_ORIGIN, GONE, MALFORMED_JSON, METHOD_NOT_ALLOWED, MISSING_FIELD,
        NO_DRAW, NOT_FOUND, OTHER_ADDRESS, OVERLOADED, SLOW_BODY, STOPPING, STORE_AWAY, TOO_LARGE,
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
        let of_receipt = &[of_token, &[NO_DRAW, NOT_FOUND]].concat();
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
                    "/draws/{zone}/{event}" | "/draws/{zone}/{event}/record" => {
                        &[NOT_FOUND, NO_DRAW, UNKNOWN_ZONE, STORE_AWAY]
                    }
                    "/draws/{zone}/{event}/receipt" => of_receipt,
                    "/traffic/notice" | "/traffic/stock" => {
                        &[MISSING_FIELD, WRONG_TYPE, UNKNOWN_ZONE, STORE_AWAY]
                    }
                    "/wait/{zone}" => &[NOT_FOUND],
                    "/zones/{zone}/rules" => &[NOT_FOUND, UNKNOWN_ZONE, STORE_AWAY],
                    "/readyz" => &[STOPPING, STORE_AWAY],
                    _ => &[],
                };
                refuse(
                    operation,
                    &[OF_HTTP, &[METHOD_NOT_ALLOWED, TOO_MANY_CONNECTIONS, OVERLOADED], own].concat(),
                );
                if let "/traffic/notice"
                | "/traffic/stock"
                | "/zones/{zone}/rules"
                | "/wait/{zone}"
                | "/weir.js" = path.as_str()
                {
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
