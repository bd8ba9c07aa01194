//! Rules for reverse proxies: what happens to a request that a proxy describes.
//!
//! | module | concern |
//! |---|---|
//! | [`request`] | the request of a visitor, as a proxy describes it |
//! | [`decision`] | what the routes decide about it, and why |
//! | [`route`] | a route: its conditions and its action |
//! | [`written`] | routes as they are written, in files and in JSON |
//! | [`readings`] | the paths that servers read in the target of one request |
//! | [`path`], [`host`], [`pattern`] | what conditions compare |
//! | [`exemption`] | requests that do not wait in a zone |
//! | [`cookie`], [`token`] | what a visitor carries: places, visits, bypass tokens |
//! | [`question`] | a request that somebody describes by hand |
//! | [`digest`] | secrets that are kept as their digest |
//!
//! A [`Decision`] is a value: the server asks the zones that it names, and words the reply over HTTP or gRPC. Invariants: every function
//! depends on its arguments only; nothing here knows a socket, a clock, a store or a reply. Headers are bytes: a part that cannot be
//! read is skipped, and the rest counts.

pub mod cookie;
pub mod decision;
pub mod digest;
pub mod exemption;
pub mod host;
pub mod path;
pub mod pattern;
pub mod question;
pub mod readings;
pub mod request;
pub mod route;
pub mod token;
pub mod written;

pub use decision::{Decision, Routes};
pub use exemption::Exemption;
pub use request::Request;
pub use route::{Gated, Route, RouteAction};
