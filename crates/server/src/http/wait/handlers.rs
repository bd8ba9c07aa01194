//! The handlers of the waiting page, its files and a zone's notice.

use admission::ZoneId;
use axum::extract::{FromRequestParts, Path, RawQuery, State, rejection::PathRejection};
use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    HeaderMap, Response, StatusCode,
    header::{HeaderValue, LOCATION},
    http::request::Parts,
};

use super::super::{
    Replied,
    problem::{MISSING_FIELD, NOT_FOUND, Problem, STORE_AWAY, UNKNOWN_ZONE},
    public::{PublicState, shape},
    query::{Others, fields},
};

/// The zone that a page's path names. A name that no zone can have is not found.
pub(in crate::http) struct PageOf(pub(super) ZoneId);

impl<S: Send + Sync> FromRequestParts<S> for PageOf {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let zone = path.ok().and_then(|Path(name)| ZoneId::parse(&name).ok());
        zone.map(Self).ok_or_else(|| NOT_FOUND.into())
    }
}

/// The waiting page of a zone, for browsers.
#[utoipa::path(
    get,
    path = "/wait/{zone}",
    tag = "pages",
    params(
        ("zone" = String, Path, description = "The zone's id", example = "TEST_ZONE"),
        ("lang" = Option<String>, Query, description = "`en` or `ko`; otherwise as the browser prefers"),
    ),
    responses((status = 200, description = "The page", content_type = "text/html", body = String)),
)]
pub(in crate::http) async fn page(
    State(state): State<PublicState>,
    PageOf(zone): PageOf,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response<Full<Bytes>> {
    let policy = state.gate.policy(zone.as_str());
    // A zone that does not exist gets a page, too, which says so.
    let may_exist = policy.is_some() || state.gate.may_keep(zone.as_str()).await;
    let status = if may_exist { StatusCode::OK } else { StatusCode::NOT_FOUND };
    state.pages.load().page(&zone, policy, status, query.as_deref(), &headers)
}

/// The address of a page with a slash behind it, as people type it: leads to the page.
pub(in crate::http) async fn page_with_slash(
    PageOf(zone): PageOf,
    RawQuery(query): RawQuery,
) -> Response<Full<Bytes>> {
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    let mut response = Response::new(Full::default());
    *response.status_mut() = StatusCode::PERMANENT_REDIRECT;
    // Relative: a proxy may serve the pages below another path.
    let to = HeaderValue::from_bytes(format!("../{zone}{query}").as_bytes());
    response.headers_mut().insert(LOCATION, to.unwrap_or(HeaderValue::from_static("..")));
    response
}

/// The operators' notice for the people who wait in a zone.
#[utoipa::path(
    get,
    path = "/traffic/notice",
    tag = "waiting",
    params(("zone" = String, Query, description = "The zone's id", example = "TEST_ZONE")),
    responses((status = 200, body = shape::Notice)),
)]
pub(in crate::http) async fn notice(
    State(state): State<PublicState>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Replied {
    let [zone] = fields(query.as_deref(), ["zone"], Others::Ignored)?;
    let zone = zone.ok_or_else(|| Problem::new(MISSING_FIELD, "`zone`, in the address"))?;
    match state.gate.notice(&zone) {
        Some(notice) => Ok(super::notice(&notice, &headers)),
        None if state.gate.may_keep(&zone).await => Err(Problem::from(STORE_AWAY).retry_after(3)),
        None => Err(UNKNOWN_ZONE.into()),
    }
}

/// A script for an app's own pages: it waits, and continues with the pass.
#[utoipa::path(
    get,
    path = "/weir.js",
    tag = "pages",
    responses((status = 200, description = "The library", content_type = "text/javascript", body = String)),
)]
pub(in crate::http) async fn library(headers: HeaderMap) -> Response<Full<Bytes>> {
    super::library(&headers)
}

/// A file that waiting pages show.
pub(in crate::http) async fn asset(
    State(state): State<PublicState>,
    name: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
) -> Replied {
    let found = name.ok().and_then(|Path(name)| state.pages.load().asset(&name, &headers));
    found.ok_or_else(|| NOT_FOUND.into())
}
