//! The list of endpoints of a listener. Its router and its OpenAPI document are built from this one list.
//!
//! Invariant: a path is served if and only if it is in the list, and then by the methods of the list; every other method of
//! the path gets a 405 that names them.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use axum::{
    Router,
    extract::Request,
    handler::Handler,
    middleware::{Next, from_fn, from_fn_with_state},
    response::IntoResponse as _,
    routing::{MethodFilter, MethodRouter, any, get},
};
use bytes::Bytes;
use hyper::Method;
use tower_service::Service;
use utoipa::openapi::{OpenApi, path::Paths};
use utoipa_axum::router::UtoipaMethodRouter;

use super::{
    context::Requests,
    layers::count,
    problem::{NOT_FOUND, Problem},
    text,
};
use crate::{
    access::{Caller, Role},
    metrics::Route,
};

/// One method of one path.
pub(super) struct Endpoint<S> {
    /// The route under which metrics count it.
    route: Route,
    method: Method,
    path: String,
    /// The role that an operator needs. Checked behind the guard of the admin API.
    role: Option<Role>,
    handler: MethodRouter<S>,
    /// Its part of the OpenAPI document.
    operation: Option<UtoipaMethodRouter<S>>,
}

/// An entry of the list of endpoints, for tests and documents.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    /// The method, in capital letters.
    pub method: String,
    /// The path, with `{…}` for its parameters.
    pub path: String,
    /// The name of the role that an operator needs.
    pub role: Option<&'static str>,
}

impl<S: Clone + Send + Sync + 'static> Endpoint<S> {
    /// An endpoint that is described by `#[utoipa::path]`; `routes!(handler)` makes the operation.
    pub(super) fn documented(route: Route, operation: UtoipaMethodRouter<S>) -> Self {
        let (path, item) = operation.1.paths.first_key_value().expect("`routes!` makes one path");
        let methods = [
            (Method::GET, &item.get),
            (Method::POST, &item.post),
            (Method::PUT, &item.put),
            (Method::PATCH, &item.patch),
            (Method::DELETE, &item.delete),
        ];
        let method = methods.into_iter().find(|(_, operation)| operation.is_some());
        let method = method.expect("`routes!` makes one method").0;
        let (path, handler) = (path.clone(), operation.2.clone());
        Self { route, method, path, role: None, handler, operation: Some(operation) }
    }

    /// A `GET` endpoint that the OpenAPI document does not describe.
    pub(super) fn get<H: Handler<T, S>, T: 'static>(route: Route, path: &str, handler: H) -> Self {
        let handler = MethodRouter::new().on(MethodFilter::GET, handler);
        Self { route, method: Method::GET, path: path.to_owned(), role: None, handler, operation: None }
    }

    /// `GET /openapi.json`, which answers with this document, and makes it when somebody asks first. The document does not describe it.
    pub(super) fn openapi(document: fn() -> String) -> Self {
        let made = Arc::new(OnceLock::new());
        let serve =
            async move || text(made.get_or_init(|| Bytes::from(document())).clone(), "application/json");
        Self::get(Route::OpenApi, "/openapi.json", serve)
    }

    /// The same endpoint, for operators of at least this role. The guard of the admin API must be around it.
    pub(super) fn needs(self, role: Role) -> Self {
        self.admits(role, false)
    }

    /// The same, and for a shop's programs, too.
    pub(super) fn needs_or_shop(self, role: Role) -> Self {
        self.admits(role, true)
    }

    fn admits(self, role: Role, shop: bool) -> Self {
        let handler = self.handler.route_layer(from_fn(move |request: Request, next: Next| async move {
            let caller = request.extensions().get::<Caller>().expect("the guard puts it there");
            match caller.needs(role) {
                _ if shop && caller.role == Role::Shop => next.run(request).await,
                Ok(()) => next.run(request).await,
                Err(problem) => problem.into_response(),
            }
        }));
        Self { role: Some(role), handler, ..self }
    }

    /// The same, where the handler checks the role itself.
    pub(super) fn checks(self, role: Role) -> Self {
        Self { role: Some(role), ..self }
    }

    pub(super) fn listed(&self) -> Listed {
        let role = self.role.map(Role::as_str);
        Listed { method: self.method.to_string(), path: self.path.clone(), role }
    }

    /// Adds its operation to `document`, with the schemas that it names.
    pub(super) fn describe(self, document: &mut OpenApi) {
        let Some((schemas, Paths { paths, .. }, _)) = self.operation else { return };
        document.components.get_or_insert_default().schemas.extend(schemas);
        for (path, item) in paths {
            match document.paths.paths.get_mut(&path) {
                Some(known) => known.merge_operations(item),
                None => {
                    document.paths.paths.insert(path, item);
                }
            }
        }
    }

    /// The methods that its path allows. A stream has no `HEAD`, because it does not end.
    fn allows(&self) -> &str {
        match (self.route, self.method.as_str()) {
            (Route::Stream | Route::Events, _) => "GET",
            (_, "GET") => "GET, HEAD",
            (_, method) => method,
        }
    }
}

/// The routes that unknown paths are counted under.
const UNKNOWN: [Route; 4] = [Route::Admin, Route::Page, Route::Asset, Route::Other];

/// Makes the router of a list. `layers` puts layers around all methods of a path. Every other path is not found, and counted
/// under the route that `unknown` names for it.
///
/// # Panics
/// If a path and method are listed twice, or a path under two routes; later, if `unknown` returns a route that is not in
/// [`UNKNOWN`].
pub(super) fn router<S: Clone + Send + Sync + 'static>(
    endpoints: Vec<Endpoint<S>>,
    state: &S,
    requests: &Arc<Requests>,
    layers: impl Fn(Route, MethodRouter<S>) -> MethodRouter<S>,
    unknown: fn(&str) -> Route,
) -> Router {
    let counted = |route, path: &str, methods| {
        let state = (Arc::clone(requests), route, Arc::<str>::from(path));
        layers(route, methods).layer(from_fn_with_state(state, count))
    };
    let mut paths: BTreeMap<String, (Route, String, MethodRouter<S>)> = BTreeMap::new();
    for endpoint in endpoints {
        let allows = endpoint.allows().to_owned();
        let mut handler = endpoint.handler;
        if allows == "GET" {
            let refused = async || Problem::method_not_allowed("GET".to_owned());
            handler = handler.on(MethodFilter::HEAD, refused);
        }
        match paths.remove(&endpoint.path) {
            None => {
                paths.insert(endpoint.path, (endpoint.route, allows, handler));
            }
            Some((route, others, known)) => {
                assert_eq!(route, endpoint.route, "{} has one route", endpoint.path);
                paths.insert(endpoint.path, (route, format!("{others}, {allows}"), known.merge(handler)));
            }
        }
    }
    let mut router = Router::new();
    for (path, (route, allows, methods)) in paths {
        router = router.route(&path, counted(route, &path, otherwise_405(methods, allows)));
    }
    let missing = |route| {
        let not_found = async || Problem::from(NOT_FOUND);
        let methods = match route {
            // These paths match any name, so a wrong method gets a 405 before the name is checked.
            Route::Page | Route::Asset => otherwise_405(get(not_found), "GET, HEAD".to_owned()),
            _ => any(not_found),
        };
        counted(route, "", methods).with_state::<()>(state.clone())
    };
    let missing = UNKNOWN.map(missing);
    let not_found = move |request: Request| {
        let route = unknown(request.uri().path());
        let at = UNKNOWN.iter().position(|known| *known == route).expect("a route of `UNKNOWN`");
        let mut missing = missing[at].clone();
        async move { Service::call(&mut missing, request).await }
    };
    router.fallback(not_found).with_state(state.clone())
}

/// Answers the other methods of a path with a 405. The layers around it may answer instead, so `Allow` must not come from
/// axum, which would put it on every reply.
fn otherwise_405<S: Clone + Send + Sync + 'static>(
    methods: MethodRouter<S>,
    allow: String,
) -> MethodRouter<S> {
    any(move || async move { Problem::method_not_allowed(allow) }).merge(methods)
}
