//! The handlers of the waiting page and its files, of a zone's notice and rule, and of what is left in a zone.

use std::borrow::Cow;

use admission::ZoneId;
use axum::extract::{FromRequestParts, Path, RawQuery, State, rejection::PathRejection};
use bytes::Bytes;
use gate::Refusal;
use http_body_util::Full;
use hyper::{
    HeaderMap, Response, StatusCode,
    header::{HeaderValue, LOCATION},
    http::request::Parts,
};

use super::{documented, state::PublicState};
use crate::http::{
    Replied,
    problem::{NOT_FOUND, Problem, STORE_AWAY, UNKNOWN_ZONE},
    query::{Others, fields, needed},
    rules, waiting_page,
};

/// The zone that a page's path names. A name that no zone can have is not found.
pub(super) struct PageOf(ZoneId);

impl<S: Send + Sync> FromRequestParts<S> for PageOf {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let zone = path.ok().and_then(|Path(name)| ZoneId::parse(&name).ok());
        zone.map(Self).ok_or_else(|| NOT_FOUND.into())
    }
}

/// The zone that a query names.
fn zone_of(query: Option<&str>) -> Result<Cow<'_, str>, Problem> {
    let [zone] = fields(query, ["zone"], Others::Ignored)?;
    needed(zone, "zone")
}

impl PublicState {
    /// What to say of a zone that is not served: a store that does not answer may keep it.
    pub(super) async fn no_zone(&self, zone: &str) -> Problem {
        if self.gate.may_keep(zone).await {
            Problem::from(STORE_AWAY).retry_after(3)
        } else {
            UNKNOWN_ZONE.into()
        }
    }

    /// What to say to a newcomer of a zone who gets no place: if the zone is closed around an event that names a page, also which one.
    pub(super) fn no_place(&self, zone: &str, refusal: Refusal) -> Problem {
        let page = matches!(refusal, Refusal::Closed { .. }).then(|| self.gate.closed_page(zone)).flatten();
        let problem = Problem::from(refusal);
        match page {
            Some(page) => problem.with([("page", page.as_str().into())]),
            None => problem,
        }
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
pub(super) async fn page(
    State(state): State<PublicState>,
    PageOf(zone): PageOf,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response<Full<Bytes>> {
    let (policy, event) = (state.gate.policy(zone.as_str()), state.gate.event_now(zone.as_str()));
    // A zone that does not exist gets a page, too, which says so.
    let may_exist = policy.is_some() || state.gate.may_keep(zone.as_str()).await;
    let status = if may_exist { StatusCode::OK } else { StatusCode::NOT_FOUND };
    let draw = state.gate.draw_of_now(zone.as_str());
    let about = waiting_page::PageFor { zone: &zone, event: event.as_ref(), draw: draw.as_ref(), policy };
    state.pages.load().page(about, status, query.as_deref(), &headers)
}

/// The address of a page with a slash behind it, as people type it: leads to the page.
pub(super) async fn page_with_slash(
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
    responses((status = 200, body = documented::Notice)),
)]
pub(super) async fn notice(
    State(state): State<PublicState>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Replied {
    let zone = zone_of(query.as_deref())?;
    match state.gate.notice(&zone) {
        Some(notice) => Ok(waiting_page::notice(&notice, &headers)),
        None => Err(state.no_zone(&zone).await),
    }
}

/// What is left in a zone: the labels and prices behind the numbers that polls get. Without tiers, nothing is told.
#[utoipa::path(
    get,
    path = "/traffic/stock",
    tag = "waiting",
    params(("zone" = String, Query, description = "The zone's id", example = "TEST_ZONE")),
    responses((status = 200, body = documented::Stock)),
)]
pub(super) async fn stock(
    State(state): State<PublicState>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Replied {
    let zone = zone_of(query.as_deref())?;
    match state.gate.policy(&zone) {
        Some(_) => Ok(waiting_page::stock(state.stock.of(&zone).as_deref(), &headers)),
        None => Err(state.no_zone(&zone).await),
    }
}

/// How a zone orders people, how fast they enter, and who is let through besides: in words, and as JSON.
#[utoipa::path(
    get,
    path = "/zones/{zone}/rules",
    operation_id = "rules",
    tag = "waiting",
    params(("zone" = String, Path, description = "The zone's id", example = "TEST_ZONE")),
    responses((status = 200, body = documented::Rules)),
)]
pub(super) async fn rules(
    State(state): State<PublicState>,
    PageOf(zone): PageOf,
    headers: HeaderMap,
) -> Replied {
    match rules::reply(&zone, &state.gate, &state.routes, &state.rules, &headers) {
        Some(reply) => Ok(reply),
        None => Err(state.no_zone(zone.as_str()).await),
    }
}

/// A script for an app's own pages: it waits, and continues with the pass.
#[utoipa::path(
    get,
    path = "/weir.js",
    tag = "pages",
    responses((status = 200, description = "The library", content_type = "text/javascript", body = String)),
)]
pub(super) async fn library(headers: HeaderMap) -> Response<Full<Bytes>> {
    waiting_page::library(&headers)
}

/// A file that waiting pages show.
pub(super) async fn asset(
    State(state): State<PublicState>,
    name: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
) -> Replied {
    let found = name.ok().and_then(|Path(name)| state.pages.load().asset(&name, &headers));
    found.ok_or_else(|| NOT_FOUND.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The path of a page names its zone. No other path reaches the handler.
    #[tokio::test]
    async fn paths_name_zones() {
        let handler = async |PageOf(zone): PageOf| zone.to_string();
        let router = axum::Router::<()>::new().route("/wait/{zone}", axum::routing::get(handler));
        let get = async |path: &str| {
            let request = hyper::Request::get(path).body(axum::body::Body::empty()).expect("a request");
            tower::ServiceExt::oneshot(router.clone(), request).await.expect("infallible")
        };
        let named =
            axum::body::to_bytes(get("/wait/shop%3Acheckout").await.into_body(), 100).await.expect("a body");
        assert_eq!(named, "shop:checkout");
        for wrong in ["/wait/", "/wait/a/b", "/wait/%FF", "/wait/..%2F..", "/wait/%3Cscript%3E"] {
            assert_eq!(get(wrong).await.status(), StatusCode::NOT_FOUND, "{wrong}");
        }
    }
}
