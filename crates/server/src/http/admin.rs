//! The admin listener: what operators see and change under `/admin/v1`, and the role that each call needs; their console, metrics and
//! health.
//!
//! A request of the admin API passes the guard, and its body is read, before anything is looked up (`check_operator`). Then
//! its path and method are matched, and the role of the endpoint is checked before its handler runs. Invariants: every
//! endpoint of the API needs a role; a request that changes a zone or the routes says which state it changes (`If-Match`), and a dry
//! run changes nothing; every error is a problem document.

mod body;
mod draws;
mod events;
mod guard;
mod json;
mod precondition;
mod query;
mod refusals;
mod routes;
mod servers;
mod shape;
mod state;
mod stock;
mod stream;
mod zones;

use std::{convert::Infallible, future::Future, net::SocketAddr, sync::Arc};

use axum::{
    Extension, Router,
    body::Body,
    extract::{Request, State},
    middleware::{Next, from_fn, from_fn_with_state},
    response::{IntoResponse as _, Response},
    routing::MethodRouter,
};
use bytes::Bytes;
use edge::{KnownClient, Received};
use gate::definitions::Author;
use http_body_util::Full;
use hyper::{HeaderMap, body::Body as _, http::request::Parts};
use tower_service::Service as _;
use utoipa_axum::routes;

use super::{
    Listed, Peer, console,
    context::RequestContext,
    endpoint::{self, Endpoint},
    health, layers,
    problem::{NOT_FOUND, Problem},
    text,
};
use crate::{
    access::{Caller, Role},
    metrics::Route,
};

pub use guard::Guard;
use json::Json;
pub use refusals::Refusals;
pub use state::{AdminParts, AdminState};

/// The longest body of an operator's request, in bytes.
const MAX_BODY: usize = 1 << 20;

/// The start of every path of the admin API.
const ROOT: &str = "/admin/v1/";

/// The endpoints of the admin listener. `openapi` is the document that is made from them.
pub(super) fn endpoints(openapi: fn() -> String) -> Vec<Endpoint<AdminState>> {
    use Role::{Admin, Operator, Viewer};
    let mut all = vec![
        Endpoint::documented(Route::Admin, routes!(servers::whoami)).needs(Viewer),
        Endpoint::documented(Route::Admin, routes!(servers::list)).needs(Viewer),
        Endpoint::documented(Route::Admin, routes!(servers::drain)).needs(Admin),
        Endpoint::documented(Route::Admin, routes!(zones::list)).needs(Viewer),
        Endpoint::documented(Route::Admin, routes!(zones::create)).needs(Admin),
        Endpoint::documented(Route::Admin, routes!(zones::show)).needs(Viewer),
        Endpoint::documented(Route::Admin, routes!(zones::replace)).needs(Admin),
        Endpoint::documented(Route::Admin, routes!(zones::change)).needs(Operator),
        Endpoint::documented(Route::Admin, routes!(zones::delete)).needs(Admin),
        Endpoint::documented(Route::Admin, routes!(zones::leave)).needs(Operator),
        Endpoint::documented(Route::Admin, routes!(events::list)).needs(Viewer),
        Endpoint::documented(Route::Admin, routes!(events::report)).needs(Viewer),
        Endpoint::documented(Route::Admin, routes!(draws::show)).needs(Viewer),
        Endpoint::documented(Route::Admin, routes!(draws::state)).needs(Operator),
        Endpoint::documented(Route::Admin, routes!(zones::stats)).needs(Viewer),
        Endpoint::documented(Route::Admin, routes!(zones::past_minutes)).needs(Viewer),
        Endpoint::documented(Route::Admin, routes!(stock::show)).needs_or_shop(Viewer),
        Endpoint::documented(Route::Admin, routes!(stock::replace)).needs_or_shop(Operator),
        Endpoint::documented(Route::Admin, routes!(stock::change)).needs_or_shop(Operator),
        Endpoint::documented(Route::Admin, routes!(zones::changes)).needs(Viewer),
        Endpoint::documented(Route::Admin, routes!(routes::list)).needs(Viewer),
        Endpoint::documented(Route::Admin, routes!(routes::replace)).needs(Operator),
        Endpoint::documented(Route::Admin, routes!(routes::explain)).needs(Viewer),
        Endpoint::documented(Route::Admin, routes!(servers::past_events)).needs(Viewer),
        Endpoint::documented(Route::Events, routes!(stream::events)).checks(Viewer),
        Endpoint::get(Route::Metrics, "/metrics", metrics),
        Endpoint::get(Route::Health, "/healthz", health::healthz),
        Endpoint::get(Route::Ready, "/readyz", health::readyz_with_names),
        Endpoint::openapi(openapi),
    ];
    for path in console::paths() {
        let file = async move |headers: HeaderMap| {
            console::reply(path, &headers).ok_or_else(|| Problem::from(NOT_FOUND))
        };
        all.push(Endpoint::get(Route::Console, path, file));
    }
    all
}

/// The paths that the document of the admin API leaves out, with the reason. The files of the console are left out, too: they are for
/// browsers.
#[cfg(test)]
pub(super) const UNDOCUMENTED: [(&str, &str); 4] = [
    ("/metrics", "text for Prometheus; docs/operate/metrics.md describes it"),
    ("/healthz", "a probe: only its status counts; the document for apps has it"),
    ("/readyz", "a probe: only its status counts; its text is for people"),
    ("/openapi.json", "the document itself"),
];

/// What the admin listener serves: every method of every path, with the role that it needs.
#[must_use]
pub fn listed() -> Vec<Listed> {
    endpoints(String::new).iter().map(Endpoint::listed).collect()
}

async fn metrics(State(state): State<AdminState>) -> hyper::Response<Full<Bytes>> {
    text(state.requests.metrics.render(), "text/plain; version=0.0.4; charset=utf-8")
}

/// Puts the layers of a route around its methods; `count` is the outermost layer.
fn layered(state: &AdminState, route: Route, methods: MethodRouter<AdminState>) -> MethodRouter<AdminState> {
    let checked = match route {
        Route::Admin => methods.layer(from_fn_with_state(state.clone(), check_operator)),
        Route::Console => methods.layer(from_fn_with_state(state.clone(), check_host)),
        _ => methods,
    };
    checked.layer(from_fn(layers::limit_fields))
}

/// Refuses requests that the guard does not admit, and reads the body of the others. A connection whose request was admitted
/// is that of a known client: it keeps its place when the listener is full.
async fn check_operator(
    State(state): State<AdminState>,
    Extension(context): Extension<Arc<RequestContext>>,
    request: Request,
    next: Next,
) -> Response {
    let (mut head, body) = request.into_parts();
    match read_request(&state, &context, &mut head, body).await {
        Ok(bytes) => {
            let caller = head.extensions.get::<Caller>().cloned();
            let mut response = next.run(Request::from_parts(head, Body::from(bytes))).await;
            if let Some(caller) = caller {
                state.refusals.by_role(context.client.0, &caller, response.status());
            }
            response.extensions_mut().insert(KnownClient);
            response
        }
        Err(problem) => problem.into_response(),
    }
}

/// Refuses requests under a foreign host name, as the guard of the API does. Metrics, health and the document answer under
/// every name, because scrapers and probes ask by the name of a service.
async fn check_host(State(state): State<AdminState>, request: Request, next: Next) -> Response {
    let checked = state.guard.load().own_host(request.uri(), request.headers()).map(drop);
    match checked {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

async fn read_request(
    state: &AdminState,
    context: &RequestContext,
    head: &mut Parts,
    mut body: Body,
) -> Result<Bytes, Problem> {
    let client = context.client.0;
    let caller = state.guard.load().admit(head.version, &head.uri, &head.headers);
    let caller = caller.inspect_err(|problem| state.refusals.by_the_guard(client, problem))?;
    guard::says_json(&head.method, &head.headers, !body.is_end_stream())?;
    super::body::check_change(&head.headers, &body, MAX_BODY)?;
    let bytes = context.read_body(&mut body, MAX_BODY, state.requests.body_timeout).await?;
    head.extensions.insert(Author {
        name: caller.name.to_string(),
        role: caller.role.as_str().to_owned(),
        from: Some(client),
    });
    head.extensions.insert(caller);
    Ok(bytes)
}

/// The service of the admin listener.
pub struct Admin {
    router: Router,
}

impl Admin {
    /// Serves the endpoints with this state, and the document that is made from them.
    #[must_use]
    pub fn new(state: &AdminState, openapi: fn() -> String) -> Arc<Self> {
        let layers = |route, methods| layered(state, route, methods);
        // Below the root of the API, unknown paths have the route of the API, so the guard comes before the 404.
        let unknown = |path: &str| if path.starts_with(ROOT) { Route::Admin } else { Route::Other };
        Arc::new(Self {
            router: endpoint::router(endpoints(openapi), state, &state.requests, layers, unknown),
        })
    }

    /// Answers one request.
    pub fn serve(
        self: &Arc<Self>,
        mut request: hyper::Request<Received>,
        peer: SocketAddr,
    ) -> impl Future<Output = Result<Response, Infallible>> + use<> {
        request.extensions_mut().insert(Peer(peer));
        self.router.clone().call(request)
    }
}
