//! The HTTP side of the server: the calls and streams of apps, the waiting page, the operators' API and console.
//!
//! One list of endpoints per listener ([`public`], [`admin`]) feeds both its axum router and its OpenAPI document. The crate
//! `edge` is beneath and turns sockets into requests. A request gets its context ([`context`]), passes the layers, then its handler.
//!
//! | module | concern |
//! |---|---|
//! | [`public`] | the public listener: its state, endpoints, handlers and service |
//! | [`admin`] | the admin listener: the same |
//! | [`grpc`] | the listener for proxies that ask over gRPC; the answer is that of [`public::check`] |
//! | [`openapi`] | the documents, made from the endpoints of both |
//! | `endpoint` | the entries of a list, and the router that is built from a list |
//! | [`context`] | a request from its head to its reply: the client, metrics, caching, CORS, limits, the unread body |
//! | `layers` | the layers around handlers |
//! | [`rules`] | the published rule of a zone |
//! | [`routes_in_force`] | the routes of proxies that are in force |
//! | [`stream`] | server-sent events, and the streams of waiting users |
//! | [`waiting_page`], [`console`], `asset` | pages and files |
//! | `reply` | the JSON of replies to polls |
//! | `stock_shape`, `draw_path` | a tier of what is left, for the documents of both APIs; a draw that a path of either names |
//! | [`request`], `query`, `body` | reading requests: the JSON of polls, the fields of a query, bodies with their limits |
//! | `origin`, [`cors`] | whose pages may take and leave places, and read replies |
//! | `health` | whether the server runs and is ready |
//! | [`counted_addresses`] | whose connections and streams are counted, and the digest of an address |
//! | [`problem`] | every error, as HTTP |
//! | [`listener`] | what the edge reports |
//!
//! Invariant: every request gets exactly one reply, and is counted once, under its route and status. A stream is one
//! reply, and is counted when it begins.

pub mod admin;
mod asset;
mod body;
pub mod console;
pub mod context;
pub mod cors;
pub mod counted_addresses;
mod draw_path;
mod endpoint;
pub mod grpc;
mod health;
mod layers;
pub mod listener;
pub mod openapi;
mod origin;
pub mod public;
mod query;
mod reply;
pub mod request;
pub mod routes_in_force;
pub mod rules;
mod stock_shape;
pub mod stream;
pub mod waiting_page;

use std::net::SocketAddr;

use axum::body::Body;
use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Response,
    header::{CONTENT_TYPE, HeaderValue},
};

pub use crate::problem;
use problem::Problem;

pub use endpoint::Listed;
pub use health::{Lifecycle, Readiness};

/// The longest body of an app's request, in bytes.
pub const MAX_BODY: usize = 4_096;

/// The most header fields of a request. A browser sends about 17, and a content delivery network adds as many. All `Cookie` fields count
/// as one: browsers send one for each cookie over HTTP/2 ([RFC 9113, 8.2.3](https://www.rfc-editor.org/rfc/rfc9113#section-8.2.3)).
pub const MAX_FIELDS: usize = 64;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// No cache may store the reply.
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// A reply with a complete body, or a problem.
type Replied = Result<Response<Full<Bytes>>, Problem>;

/// The address of the connection's other end. An extension of requests that a router gets.
#[derive(Clone, Copy, Debug)]
struct Peer(SocketAddr);

/// A reply with this body and media type.
fn text(body: impl Into<Bytes>, kind: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// The same reply, with axum's type of body.
fn boxed(response: Response<Full<Bytes>>) -> Response<Body> {
    response.map(Body::new)
}
