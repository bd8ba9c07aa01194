//! Replies in JSON.

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use hyper::{
    StatusCode,
    header::{CONTENT_TYPE, ETAG, HeaderValue, LOCATION},
};
use serde::Serialize;

use crate::http::JSON;

/// A reply in JSON.
pub(super) struct Json<T> {
    pub(super) status: StatusCode,
    pub(super) value: T,
    pub(super) etag: Option<String>,
    pub(super) location: Option<String>,
}

impl<T> Json<T> {
    pub(super) fn ok(value: T) -> Self {
        Self { status: StatusCode::OK, value, etag: None, location: None }
    }
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        let body = serde_json::to_vec(&self.value).expect("shapes have text keys and finite numbers");
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, JSON);
        for (name, value) in [(ETAG, self.etag), (LOCATION, self.location)] {
            if let Some(value) = value {
                let value = HeaderValue::try_from(value).expect("tags and zones' names are plain text");
                headers.insert(name, value);
            }
        }
        response
    }
}
