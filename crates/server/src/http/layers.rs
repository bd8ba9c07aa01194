//! The layers around the handlers of both routers. Order, from the outside: [`count`], the number of header fields, and then the
//! handler. On the admin API the check of the operator is between the last two, and on the public listener the answer to browsers that
//! ask first.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use hyper::header::{COOKIE, HeaderMap};

use super::{
    MAX_FIELDS, Peer,
    context::Requests,
    problem::{HEAD_TOO_LARGE, Problem},
};
use crate::{metrics::Route, otlp::Traced};

/// The outermost layer: begins and finishes each request of a route. The path is the route's; empty for the paths that are not listed.
pub(super) async fn count(
    State((requests, route, path)): State<(Arc<Requests>, Route, Arc<str>)>,
    mut request: Request,
    next: Next,
) -> Response {
    let peer = *request.extensions().get::<Peer>().expect("the listener's service puts it there");
    let traced = Traced {
        method: request.method(),
        route: &path,
        path: request.uri().path(),
        headers: request.headers(),
    };
    let context = Arc::new(requests.begin(route, traced, peer, request.headers(), request.body()));
    request.extensions_mut().insert(Arc::clone(&context));
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let mut response = next.run(request).await;
    if let Some(problem) = response.extensions_mut().remove::<Problem>() {
        context.log_refusal(&problem, format_args!("{method} {}", uri.path()));
    }
    requests.finish(&context, &mut response);
    response
}

/// Refuses heads with too many fields. The edge has already refused heads longer than [`edge::MAX_HEAD`].
pub(super) async fn limit_fields(request: Request, next: Next) -> Response {
    match check_fields(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// # Errors
/// A head with more than [`MAX_FIELDS`] fields. The connection ends with it.
pub(super) fn check_fields(headers: &HeaderMap) -> Result<(), Problem> {
    let more_cookies = headers.get_all(COOKIE).iter().count().saturating_sub(1);
    if headers.len() - more_cookies > MAX_FIELDS {
        return Err(Problem::from(HEAD_TOO_LARGE).closing());
    }
    Ok(())
}
