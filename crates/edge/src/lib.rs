//! Turns sockets into HTTP requests, and gives each request to a [`tower_service::Service`].
//!
//! - [`listen()`] opens a listening socket, and [`Edge::serve`] accepts its connections.
//! - [`Limits`] bounds the number of connections and the time that each step may take.
//! - A reply that carries a [`Takeover`] is a stream: the service writes its body to an [`Outlet`].
//! - [`Protocol`] is what a listener speaks: HTTP/1.1, HTTP/2, or both of them below [`Tls`].
//! - An [`Observer`] counts connections, and words the refusals that happen before there is a request.
//! - A request that arrives whole in one read is answered without an HTTP engine; hyper serves all others.
//! - [`kernel`] reads the counters that the kernel keeps about this process and its accept queues.
//!
//! The crate knows nothing about what the service does. Invariants:
//!
//! - A connection is always in a phase (`connection::Phase`) that ends by itself or by a deadline.
//! - There are never more connections than [`Limits::connections`], and never more of one client than
//!   [`Limits::per_client`]. Addresses without a reserve never use [`Limits::reserved`].
//! - After a stop, connections that were already in the accept queue are still served.

mod at_once;
mod connection;
mod direct;
mod engine;
mod exchange;
mod http2;
mod io;
pub mod kernel;
mod link;
mod listen;
mod outlet;
mod per_address;
mod read;
mod received;
mod serve;
mod stream;
mod tls;
mod watched;
mod well_formed;
mod wire;

use std::{net::IpAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use hyper::Response;

pub use listen::{ListenError, listen};
pub use outlet::{Outlet, Takeover};
pub use per_address::{Held, PerAddress, PerClient};
pub use received::Received;
pub use serve::{Edge, decode_body_early};
pub use tls::{Certificate, CertificateError, Tls};

/// The longest head of a request, in bytes. hyper's buffer cannot be smaller.
pub const MAX_HEAD: usize = 8_192;

/// The longest head of a request with HTTP/1.1 from an address that has a [reserve](Observer::has_reserve), in bytes. Proxies pass on what
/// their own clients send: a browser keeps 180 cookies of 4 KiB for a site, and nginx reads heads of 32 KiB.
pub const MAX_HEAD_WITH_RESERVE: usize = 65_536;

/// What the connections of a listener may use.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most open connections at a time.
    pub connections: usize,
    /// How many of these connections are only for addresses that the observer [reserves](Observer::has_reserve) them for.
    pub reserved: usize,
    /// The most open connections of one client address. None for as many as there are.
    pub per_client: Option<PerClient>,
    /// How long a connection may be idle, or send a head, while the service does not know its client: see
    /// [`KnownClient`]. When the listener is full, such a connection also makes room for a new one; if there is none, one of
    /// a known client that has no request. None if all connections are worth the same, and a full listener refuses.
    pub unknown_client: Option<Duration>,
    /// The longest time from the first byte of a request to the end of its head; the same for a TLS handshake.
    pub header: Duration,
    /// How long a reply may make no progress on its way out.
    pub write: Duration,
    /// The longest time between two requests of a connection.
    pub idle: Duration,
}

/// What the connections of a listener speak.
pub enum Protocol {
    /// HTTP/1.1, plain.
    Http1,
    /// HTTP/2 or HTTP/1.1, as the client chooses, encrypted.
    Tls(Arc<Tls>),
    /// HTTP/2, plain. A client must know beforehand that the listener speaks it, as clients of gRPC do.
    Http2,
}

/// An extension of a response: the service knows the client of this connection. From now on the connection makes room only
/// where all clients are known, and only while it has no request; see [`Limits::unknown_client`].
#[derive(Clone, Copy, Debug)]
pub struct KnownClient;

/// Why the edge itself refuses a connection. There is no request in these cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There are [`Limits::connections`] already, or all but [`Limits::reserved`] of them, which are not for this address.
    Overloaded,
    /// The client's address has as many connections as [`Limits::per_client`] allows.
    TooManyOfClient(IpAddr),
    /// The bytes are not HTTP/1, or a request of a kind that RFC 9112 forbids.
    Malformed,
    /// The head is longer than [`MAX_HEAD`], or [`MAX_HEAD_WITH_RESERVE`].
    HeadTooLarge,
    /// The head took longer than [`Limits::header`].
    SlowHead,
    /// The listener encrypts, and the client sends plain HTTP.
    Plaintext,
}

/// Hears about the connections of a listener.
///
/// The calls come from the tasks that serve, so they must be short and must not block.
pub trait Observer: Send + Sync + 'static {
    /// A connection was accepted, and is open now.
    fn opened(&self) {}

    /// A connection that was opened is closed now.
    fn closed(&self) {}

    /// Whether connections from this address do not count under [`Limits::per_client`].
    fn is_exempt(&self, _address: IpAddr) -> bool {
        false
    }

    /// Whether connections from this address may use [`Limits::reserved`].
    fn has_reserve(&self, _address: IpAddr) -> bool {
        false
    }

    /// A connection did not get through its TLS handshake: the client broke it off, took too long, or cannot agree.
    fn handshake_failed(&self) {}

    /// A connection is refused, or a request of a connection with HTTP/2. Returns the reply. Where the connection ends with
    /// it, the edge says so in it.
    fn refused(&self, refusal: Refusal) -> Response<Bytes>;
}
