//! The public listener: for apps, for people who wait, and for services that check passes.
//!
//! `POST /traffic/wait` and `POST /traffic/entry` are matched before the router, because they are nearly all requests, and a
//! poll through the router costs 25 % more processor time (`docs/decisions/axum-on-the-polling-path.md`). They are
//! also in the list of endpoints: the router answers their other methods, and the document describes them. The check of a
//! proxy is matched there, too, and is not in the list: it has every method and any path, as the visitor's request has.

pub mod check;
pub(super) mod documented;
mod draws;
mod pages;
mod state;
mod stream;
mod traffic;
mod unused_visits;

use std::{convert::Infallible, future::Future, net::SocketAddr, sync::Arc};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    middleware::{Next, from_fn, from_fn_with_state},
    response::{IntoResponse as _, Response},
    routing::MethodRouter,
};
use bytes::Bytes;
use edge::{Received, decode_body_early};
use http_body_util::{Either, Full};
use hyper::{
    Method,
    header::{ACCESS_CONTROL_ALLOW_ORIGIN, CACHE_CONTROL, CONTENT_TYPE, HeaderValue},
};
use tower_service::Service as _;
use utoipa_axum::routes;

use super::{
    Peer, boxed,
    endpoint::{self, Endpoint},
    health, layers,
};
use crate::{metrics::Route, otlp::Traced};

pub use state::{PublicParts, PublicState};
use traffic::Poll;
pub use unused_visits::UnusedVisits;

/// The endpoints of the public listener. `openapi` is the document that is made from them.
pub(super) fn endpoints(openapi: fn() -> String) -> Vec<Endpoint<PublicState>> {
    vec![
        Endpoint::documented(Route::Wait, routes!(traffic::wait)),
        Endpoint::documented(Route::Entry, routes!(traffic::entry)),
        Endpoint::documented(Route::Leave, routes!(traffic::leave)),
        Endpoint::documented(Route::Stream, routes!(stream::stream)),
        Endpoint::documented(Route::Notice, routes!(pages::notice)),
        Endpoint::documented(Route::Draw, routes!(draws::draw)),
        Endpoint::documented(Route::Draw, routes!(draws::record)),
        Endpoint::documented(Route::Receipt, routes!(draws::receipt)),
        Endpoint::documented(Route::Stock, routes!(pages::stock)),
        Endpoint::documented(Route::Rules, routes!(pages::rules)),
        Endpoint::documented(Route::Page, routes!(pages::page)),
        Endpoint::get(Route::Page, "/wait/{zone}/", pages::page_with_slash),
        Endpoint::documented(Route::Asset, routes!(pages::library)),
        Endpoint::get(Route::Asset, "/wait-assets/{name}", pages::asset),
        Endpoint::documented(Route::Jwks, routes!(jwks)),
        Endpoint::documented(Route::Health, routes!(health::healthz)),
        Endpoint::documented(Route::Ready, routes!(health::readyz)),
        Endpoint::openapi(openapi),
    ]
}

/// The keys that passes are signed with.
#[utoipa::path(
    get, path = "/.well-known/jwks.json", tag = "passes",
    responses((status = 200, content_type = "application/jwk-set+json", body = documented::Jwks))
)]
async fn jwks(State(state): State<PublicState>) -> hyper::Response<Full<Bytes>> {
    let mut response = hyper::Response::new(Full::new(state.passes.load().jwks()));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/jwk-set+json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=300"));
    // They are public: a page of any site may check a pass.
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    response
}

/// Puts the layers of a route around its methods; `count` is the outermost layer.
fn layered(
    state: &PublicState,
    route: Route,
    methods: MethodRouter<PublicState>,
) -> MethodRouter<PublicState> {
    if !route.is_traffic() {
        return methods.layer(from_fn(layers::limit_fields));
    }
    let method = if matches!(route, Route::Wait | Route::Entry | Route::Leave | Route::Receipt) {
        Method::POST
    } else {
        Method::GET
    };
    methods.layer(from_fn_with_state((state.clone(), method), preflight)).layer(from_fn(layers::limit_fields))
}

/// Answers browsers that ask whether a page may use `method`.
async fn preflight(
    State((state, method)): State<(PublicState, Method)>,
    request: Request,
    next: Next,
) -> Response {
    match state.requests.cors_origins.preflight(request.method(), request.headers(), &method) {
        Some(Ok(preflight)) => boxed(preflight),
        Some(Err(problem)) => problem.into_response(),
        None => next.run(request).await,
    }
}

/// The route under which metrics count a path that is not in the list.
fn unknown(path: &str) -> Route {
    if path.starts_with("/wait/") {
        Route::Page
    } else if path.starts_with("/wait-assets/") {
        Route::Asset
    } else {
        Route::Other
    }
}

/// The service of the public listener.
pub struct Public {
    state: PublicState,
    router: Router,
}

impl Public {
    /// Serves the endpoints with this state, and the document that is made from them.
    #[must_use]
    pub fn new(state: PublicState, openapi: fn() -> String) -> Arc<Self> {
        let layers = |route, methods| layered(&state, route, methods);
        let router = endpoint::router(endpoints(openapi), &state, &state.requests, layers, unknown);
        Arc::new(Self { state, router })
    }

    /// Answers one request.
    ///
    /// Not an `async fn`: the body of a poll is decoded before the future is polled. See [`decode_body_early`].
    pub fn serve(
        self: &Arc<Self>,
        mut request: hyper::Request<Received>,
        peer: SocketAddr,
    ) -> impl Future<Output = Result<hyper::Response<Either<Full<Bytes>, Body>>, Infallible>> + use<> {
        let poll = match request.uri().path() {
            "/traffic/entry" if request.method() == Method::POST => Some(Poll::Entry),
            "/traffic/wait" if request.method() == Method::POST => Some(Poll::Wait),
            _ => None,
        };
        if poll.is_some() {
            decode_body_early(&mut request);
        }
        let public = Arc::clone(self);
        let is_check = poll.is_none() && check::is_path(request.uri().path());
        async move {
            Ok(match poll {
                None if is_check => Box::pin(public.check(request, Peer(peer))).await.map(Either::Left),
                Some(poll) => public.poll(poll, request, Peer(peer)).await.map(Either::Left),
                // Boxed: otherwise every poll would reserve the space for it.
                None => Box::pin(public.route(request, Peer(peer))).await.map(Either::Right),
            })
        }
    }

    async fn route(&self, mut request: hyper::Request<Received>, peer: Peer) -> Response {
        request.extensions_mut().insert(peer);
        let Ok(response) = self.router.clone().call(request).await;
        response
    }

    /// Answers a proxy. The number of header fields is the visitor's, so only the edge limits it.
    async fn check(&self, request: hyper::Request<Received>, peer: Peer) -> hyper::Response<Full<Bytes>> {
        let (head, body) = request.into_parts();
        let requests = &self.state.requests;
        let traced = Traced {
            method: &head.method,
            route: check::PATH,
            // What is behind the route's is the visitor's.
            path: "",
            headers: &head.headers,
        };
        let context = requests.begin(Route::Check, traced, peer, &head.headers, &body);
        let asked = (&head.method, &head.uri, &head.headers);
        let replied = check::answer(&self.state, asked, peer.0.ip(), &context).await;
        requests.reply(&context, replied, head.uri.path())
    }

    /// Answers a poll.
    async fn poll(
        &self,
        poll: Poll,
        request: hyper::Request<Received>,
        peer: Peer,
    ) -> hyper::Response<Full<Bytes>> {
        let (head, mut body) = request.into_parts();
        let requests = &self.state.requests;
        let traced = Traced {
            method: &head.method,
            route: head.uri.path(),
            path: head.uri.path(),
            headers: &head.headers,
        };
        let context = requests.begin(poll.route(), traced, peer, &head.headers, &body);
        let replied = traffic::answer(poll, &self.state, &context, &head.headers, &mut body).await;
        requests.reply(&context, replied, head.uri.path())
    }
}
