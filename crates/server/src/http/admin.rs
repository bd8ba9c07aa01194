//! The admin API: what operators see and change, under `/admin/v1`.
//!
//! A request goes through the door (`guard`), and its body is read, before anything is looked up; then a route's own role is
//! asked for, and only then does its handler run. Invariants: no route is without a role; a request that changes something
//! says what it is a change of, and a dry run changes nothing; what is refused is a problem document.

mod body;
mod guard;
mod precondition;
pub(super) mod servers;
pub(super) mod shape;
pub(super) mod zones;

use std::{future::Future, net::SocketAddr, sync::Arc};

use axum::{
    Router,
    body::Body,
    extract::Request as AxumRequest,
    middleware::{self, Next},
    response::{IntoResponse, Response as AxumResponse},
    routing::{MethodRouter, get, patch, post, put},
};
use bytes::Bytes;
use gate::definitions::Author;
use http_body_util::{BodyExt as _, Collected, Full};
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Body as _, Incoming},
    header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE, ETAG, HeaderValue, LOCATION},
    http::request::Parts,
};
use limiter::layer::address;
use serde::Serialize;
use store::Store;
use tokio::time::Instant;
use tower_service::Service as _;

use super::{App, JSON, MAX_FIELDS, NO_STORE, Served, console, openapi::Document, read, unreadable};
use crate::{
    access::{Caller, Role},
    http::problem::{HEAD_TOO_LARGE, METHOD_NOT_ALLOWED, NOT_FOUND, Problem},
    metrics::Route,
};

pub use guard::Guard;

/// The longest body of an operator's request, in bytes.
const MAX_BODY: usize = 64 << 10;

/// What all routes begin with.
const ROOT: &str = "/admin/v1/";

/// The admin listener's side of an [`App`].
pub struct Admin<S> {
    app: Arc<App<S>>,
    router: Router,
}

impl<S: Store> Admin<S> {
    /// Serves the admin API beside metrics and health.
    #[must_use]
    pub fn new(app: Arc<App<S>>) -> Self {
        let mut router = Router::new();
        for (path, methods) in routes() {
            router = router.route(path, methods);
        }
        let router = router
            .fallback(async || Problem::from(NOT_FOUND))
            .method_not_allowed_fallback(async || Problem::from(METHOD_NOT_ALLOWED))
            .with_state(Arc::clone(&app));
        Self { app, router }
    }

    /// Answers a request of the admin API.
    async fn api(&self, request: Request<Incoming>, peer: SocketAddr) -> Response<Full<Bytes>> {
        let start = Instant::now();
        let (head, mut body) = request.into_parts();
        // What is left of a body would be taken for the next request's head.
        let mut left = !body.is_end_stream();
        let (method, path) = (head.method.clone(), head.uri.path().to_owned());
        let mut response = match self.prepared(head, &mut body, &mut left, peer).await {
            Ok(request) => {
                let Ok(response) = self.router.clone().call(request).await;
                whole(response).await
            }
            Err(problem) => {
                tracing::debug!(%peer, %method, path, code = problem.code.name, detail = %problem.detail, "refused");
                problem.into_response()
            }
        };
        if left {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        self.app.metrics.answered(Route::Admin, response.status().as_u16(), start.elapsed());
        response
    }

    /// The request as handlers get it: of somebody who may ask, with its body read.
    async fn prepared(
        &self,
        mut head: Parts,
        body: &mut Incoming,
        left: &mut bool,
        peer: SocketAddr,
    ) -> Result<Request<Body>, Problem> {
        if head.headers.len() > MAX_FIELDS {
            return Err(Problem::from(HEAD_TOO_LARGE).closing());
        }
        let caller = self.app.guard.load().admit(&head.headers)?;
        guard::says_json(&head.method, &head.headers, *left)?;
        if let Some(problem) = unreadable(&head.headers, body, MAX_BODY) {
            return Err(problem);
        }
        let bytes = read(body, MAX_BODY, self.app.body_timeout).await?;
        *left = false;
        let from = address::client(peer.ip(), &head.headers, &self.app.trusted_proxies);
        head.extensions.insert(Author {
            name: caller.name.to_string(),
            role: caller.role.as_str().to_owned(),
            from: Some(from),
        });
        head.extensions.insert(caller);
        Ok(Request::from_parts(head, Body::from(bytes)))
    }
}

/// Answers a request of the admin listener.
pub fn admin<S: Store>(
    admin: &Arc<Admin<S>>,
    request: Request<Incoming>,
    peer: SocketAddr,
) -> impl Future<Output = Served> + use<S> {
    let admin = Arc::clone(admin);
    async move { Ok(admin.answer(request, peer).await) }
}

impl<S: Store> Admin<S> {
    async fn answer(&self, request: Request<Incoming>, peer: SocketAddr) -> Response<Full<Bytes>> {
        let route = match request.uri().path() {
            "/metrics" => Route::Metrics,
            "/admin/v1/events" => Route::Events,
            "/openapi.json" => Route::OpenApi,
            "/healthz" => Route::Health,
            "/readyz" => Route::Ready,
            path if path.starts_with(ROOT) => Route::Admin,
            path if console::is_here(path) => Route::Console,
            _ => Route::Other,
        };
        match route {
            // Boxed: its future is deep, and every idle connection would carry the room for it.
            Route::Admin => Box::pin(self.api(request, peer)).await,
            route => self.app.counted(route, &Method::GET, request, peer, Document::Admin).await,
        }
    }
}

/// All routes but the stream of events, which is no reply.
fn routes<S: Store>() -> Vec<(&'static str, MethodRouter<Arc<App<S>>>)> {
    use Role::{Admin, Operator, Viewer};
    let may = |role: Role, method: MethodRouter<Arc<App<S>>>| {
        method.route_layer(middleware::from_fn(move |request: AxumRequest, next: Next| async move {
            let caller = request.extensions().get::<Caller>().expect("put there before anything is routed");
            match caller.needs(role) {
                Ok(()) => next.run(request).await,
                Err(problem) => IntoResponse::into_response(problem),
            }
        }))
    };
    vec![
        ("/admin/v1/whoami", may(Viewer, get(servers::whoami::<S>))),
        ("/admin/v1/zones", may(Viewer, get(zones::list::<S>)).merge(may(Admin, post(zones::create::<S>)))),
        (
            "/admin/v1/zones/{id}",
            may(Viewer, get(zones::show::<S>))
                .merge(may(Admin, put(zones::replace::<S>).delete(zones::delete::<S>)))
                .merge(may(Operator, patch(zones::change::<S>))),
        ),
        ("/admin/v1/zones/{id}/stats", may(Viewer, get(zones::stats::<S>))),
        ("/admin/v1/changes", may(Viewer, get(zones::changes::<S>))),
        ("/admin/v1/servers", may(Viewer, get(servers::list::<S>))),
        ("/admin/v1/drain", may(Admin, put(servers::drain::<S>))),
    ]
}

/// A reply as the edge takes it. Handlers' bodies are whole already.
async fn whole(response: AxumResponse) -> Response<Full<Bytes>> {
    let (head, body) = response.into_parts();
    let bytes = body.collect().await.map(Collected::to_bytes).unwrap_or_default();
    Response::from_parts(head, Full::new(bytes))
}

impl IntoResponse for Problem {
    fn into_response(self) -> AxumResponse {
        self.into_response().map(Body::new)
    }
}

/// A reply in JSON.
struct Json<T> {
    status: StatusCode,
    value: T,
    etag: Option<String>,
    location: Option<String>,
}

impl<T> Json<T> {
    fn ok(value: T) -> Self {
        Self { status: StatusCode::OK, value, etag: None, location: None }
    }
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> AxumResponse {
        let body = serde_json::to_vec(&self.value).expect("shapes have text keys and finite numbers");
        let mut response = AxumResponse::new(Body::from(body));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, JSON);
        headers.insert(CACHE_CONTROL, NO_STORE);
        for (name, value) in [(ETAG, self.etag), (LOCATION, self.location)] {
            if let Some(value) = value {
                headers.insert(
                    name,
                    HeaderValue::try_from(value).expect("tags and zones' names are plain text"),
                );
            }
        }
        response
    }
}
