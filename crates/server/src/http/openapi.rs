//! The HTTP APIs as OpenAPI 3.1 documents: one for apps, one for operators.
//!
//! Both are made from the lists of endpoints from which the routers are made; errors are added from the table of
//! [`problem`](super::problem). The documents are checked in under `docs/`, and served at `/openapi.json`. Invariant: every
//! reply is described, and replies are open for fields that are added later; `tests/openapi` compares the replies of a running
//! server, and fails on a field that is not described.

mod complete;
mod public;

use utoipa::{
    Modify, OpenApi,
    openapi::{
        Content, Ref, ResponseBuilder,
        path::{Operation, PathItem},
        security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme},
    },
};

use super::{
    admin,
    endpoint::Endpoint,
    problem::{
        BAD_ROUTE, BUSY, CHANGED_MEANWHILE, Code, DRAW_DECIDED, FORBIDDEN, FOREIGN_HOST, FOREIGN_ORIGIN,
        HEAD_TOO_LARGE, MALFORMED_HTTP, MALFORMED_JSON, METHOD_NOT_ALLOWED, MISSING_FIELD, NO_CELL, NO_DRAW,
        NOT_BEGUN, NOTHING_TO_LEAVE, OUT_OF_RANGE, OVERLOADED, PRECONDITION_REQUIRED, PROXIED, SLOW_BODY,
        SLOW_HEAD, STOPPING, STORE_AWAY, TOO_LARGE, TOO_MANY_ZONES, UNAUTHORIZED, UNKNOWN_EVENT,
        UNKNOWN_FIELD, UNKNOWN_ZONE, UNSUPPORTED_MEDIA_TYPE, WRONG_TYPE, ZONE_EXISTS,
    },
    public as public_listener,
};

/// An error; RFC 9457.
#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "only the document uses this shape; `problem` writes the JSON")]
struct Problem {
    r#type: String,
    title: String,
    status: u16,
    /// The kind of error, for programs. Stable.
    code: String,
    /// What exactly is wrong, for people.
    detail: Option<String>,
}

/// The documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Document {
    /// For apps.
    Public,
    /// For operators.
    Admin,
}

impl Document {
    /// Both, by name.
    pub const ALL: [(Self, &'static str); 2] = [(Self::Public, "public"), (Self::Admin, "admin")];

    /// The document, as it is checked in.
    #[must_use]
    pub fn text(self) -> String {
        let document = match self {
            Self::Public => {
                describe(public::Base::openapi(), public_listener::endpoints(String::new), &public::Refusals)
            }
            Self::Admin => describe(AdminBase::openapi(), admin::endpoints(String::new), &AdminRefusals),
        };
        document.to_pretty_json().expect("documents are plain values") + "\n"
    }
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Weir: the admin API",
        description = "The API for operators. `GET /admin/v1/events` is a stream of server-sent events; \
                       docs/operate/admin-api.md says more about it. A change of a zone or of the routes names the state that it changes in `If-Match`.",
        license(name = "Apache-2.0 OR MIT", identifier = "Apache-2.0 OR MIT"),
    ),
    components(schemas(Problem))
)]
struct AdminBase;

/// Adds the operations of `endpoints` to `base`, then what `refusals` adds to all of them, and then what follows from both.
fn describe<S: Clone + Send + Sync + 'static>(
    mut base: utoipa::openapi::OpenApi,
    endpoints: Vec<Endpoint<S>>,
    refusals: &dyn Modify,
) -> utoipa::openapi::OpenApi {
    for endpoint in endpoints {
        endpoint.describe(&mut base);
    }
    refusals.modify(&mut base);
    complete::complete(&mut base);
    base
}

struct AdminRefusals;

/// The errors of any request.
const OF_HTTP: &[Code] = &[MALFORMED_HTTP, SLOW_HEAD, HEAD_TOO_LARGE];

/// The errors of any request of the admin API.
const OF_GUARD: &[Code] = &[
    UNAUTHORIZED,
    FORBIDDEN,
    FOREIGN_ORIGIN,
    PROXIED,
    FOREIGN_HOST,
    UNKNOWN_FIELD,
    WRONG_TYPE,
    METHOD_NOT_ALLOWED,
    SLOW_BODY,
    TOO_LARGE,
    UNSUPPORTED_MEDIA_TYPE,
];

impl Modify for AdminRefusals {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer);
        let scheme =
            scheme.description(Some("A token of `weir token new`. Not needed if no token is configured"));
        let components = document.components.get_or_insert_default();
        components.security_schemes.insert("token".to_owned(), SecurityScheme::Http(scheme.build()).into());
        document.security =
            Some(vec![SecurityRequirement::default(), SecurityRequirement::new("token", [] as [&str; 0])]);
        for (path, item) in &mut document.paths.paths {
            for (method, operation) in operations(item) {
                let of_body: &[Code] = match method {
                    "post" | "put" | "patch" => &[MALFORMED_JSON, MISSING_FIELD, OUT_OF_RANGE],
                    _ => &[],
                };
                let of_change: &[Code] = match (method, path.as_str()) {
                    ("post", "/admin/v1/zones") => &[ZONE_EXISTS, NO_CELL, TOO_MANY_ZONES, BUSY, STORE_AWAY],
                    ("put", "/admin/v1/routes") => {
                        &[CHANGED_MEANWHILE, BAD_ROUTE, NO_CELL, PRECONDITION_REQUIRED, BUSY, STORE_AWAY]
                    }
                    ("put" | "patch", "/admin/v1/zones/{id}") => {
                        &[CHANGED_MEANWHILE, PRECONDITION_REQUIRED, BUSY, STORE_AWAY]
                    }
                    // A draw whose list is frozen stays.
                    ("delete", "/admin/v1/zones/{id}") => {
                        &[OUT_OF_RANGE, CHANGED_MEANWHILE, PRECONDITION_REQUIRED, BUSY, STORE_AWAY]
                    }
                    ("put" | "patch", "/admin/v1/zones/{id}/stock") => {
                        &[NO_CELL, TOO_MANY_ZONES, BUSY, STORE_AWAY]
                    }
                    ("post", "/admin/v1/zones/{id}/leave") => &[NOTHING_TO_LEAVE, BUSY, STORE_AWAY],
                    ("post", "/admin/v1/zones/{id}/draws/{event}") => &[NO_DRAW, DRAW_DECIDED, STORE_AWAY],
                    ("get", "/admin/v1/events") => &[OVERLOADED, STOPPING],
                    ("get", "/admin/v1/zones" | "/admin/v1/zones/{id}/stats") => &[OUT_OF_RANGE],
                    ("get", "/admin/v1/zones/{id}/events/{event}/report") => {
                        &[UNKNOWN_EVENT, NOT_BEGUN, STORE_AWAY]
                    }
                    ("get", "/admin/v1/zones/{id}/minutes") => &[OUT_OF_RANGE, STORE_AWAY],
                    _ => &[],
                };
                let names_a_zone = path.contains("{id}") || path == "/admin/v1/changes";
                let of_zone: &[Code] = if names_a_zone { &[UNKNOWN_ZONE] } else { &[] };
                refuse(operation, &[OF_HTTP, OF_GUARD, of_body, of_change, of_zone].concat());
            }
        }
    }
}

/// The operations of a path, with their methods in lower case.
fn operations(item: &mut PathItem) -> impl Iterator<Item = (&'static str, &mut Operation)> {
    let all = [
        ("get", &mut item.get),
        ("post", &mut item.post),
        ("put", &mut item.put),
        ("patch", &mut item.patch),
        ("delete", &mut item.delete),
    ];
    all.into_iter().filter_map(|(method, operation)| Some((method, operation.as_mut()?)))
}

/// Adds the errors of an operation: a reply for each status, which names the codes.
fn refuse(operation: &mut Operation, codes: &[Code]) {
    let mut codes = codes.to_vec();
    codes.sort_unstable_by_key(|code| (code.status, code.name));
    for of_status in codes.chunk_by(|a, b| a.status == b.status) {
        let meanings: Vec<_> =
            of_status.iter().map(|code| format!("`{}`: {}", code.name, code.title)).collect();
        let response = ResponseBuilder::new()
            .description(meanings.join("; "))
            .content("application/problem+json", Content::new(Some(Ref::from_schema_name("Problem"))))
            .build();
        operation.responses.responses.insert(of_status[0].status.to_string(), response.into());
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_checked_in_documents_are_up_to_date() {
        for (document, name) in Document::ALL {
            let file = format!("{}/../../docs/openapi-{name}.json", env!("CARGO_MANIFEST_DIR"));
            let kept = fs::read_to_string(&file).unwrap_or_default();
            assert!(
                kept == document.text(),
                "{file} is out of date: run weir openapi {name} > docs/openapi-{name}.json"
            );
            let json: serde_json::Value = serde_json::from_str(&kept).expect("JSON");
            assert_eq!(json["openapi"], "3.1.0");
        }
    }

    /// Whoever adds an endpoint describes it, or says why not.
    #[test]
    fn every_endpoint_of_the_admin_listener_is_described_or_left_out_for_a_reason() {
        let document: serde_json::Value = serde_json::from_str(&Document::Admin.text()).expect("JSON");
        let left_out = |path: &str| {
            admin::UNDOCUMENTED.iter().any(|(known, reason)| *known == path && !reason.is_empty())
                || crate::http::console::paths().any(|known| known == path)
        };
        for crate::http::Listed { method, path, .. } in admin::listed() {
            let is_described = document["paths"][&path][method.to_lowercase()].is_object();
            assert!(is_described != left_out(&path), "{method} {path}: described {is_described}");
        }
    }
}
