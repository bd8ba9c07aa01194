//! HTTP/2, on an encrypted connection or on a plain one.
//!
//! A client has its connection for as long as a request runs or is made now and then; what one connection may use is
//! bounded here. hyper itself ends connections that reset many streams before they are served (CVE-2023-44487), or that
//! send a head in endless pieces.

use std::{convert::Infallible, error::Error, future::poll_fn, pin::pin, sync::Arc};

use bytes::Bytes;
use hyper::{Request, Response, body::Body, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tower_service::Service;

use crate::{
    Observer, Received, Refusal,
    connection::{Connection, LINGER_BYTES},
    exchange::respond,
    link::Link,
    wire::Wire,
};

/// What a client sends first, before any request (RFC 9113, 3.4): the part that no request of HTTP/1 begins with.
const PREFACE: &[u8; 3] = b"PRI";

/// The most requests of a connection at a time. A page with many tabs has some dozens.
const STREAMS: u32 = 128;

/// The most streams that the client may reset before they are served, and that the engine may reset, before the connection
/// ends.
const RESETS: usize = 32;

/// The longest head that the engine reads, in bytes. One that is longer than [`MAX_HEAD`](crate::MAX_HEAD) gets a reply in the words of the
/// observer. One that is longer than this is refused by the engine: without a body, and half of the clients see a broken stream instead.
const LARGEST_READ: usize = 65_536;

/// How many bytes of a request's body the client may send before the service reads them. Bodies are small.
const STREAM_WINDOW: u32 = 16 << 10;

/// The same for all requests of a connection. The protocol allows no less.
const CONNECTION_WINDOW: u32 = 65_535;

/// The most bytes of a reply that wait for the client's window, in a copy.
const SEND_BUFFER: usize = 16 << 10;

pub(crate) fn engine() -> http2::Builder<TokioExecutor> {
    let mut engine = http2::Builder::new(TokioExecutor::new());
    engine
        .max_concurrent_streams(STREAMS)
        .max_pending_accept_reset_streams(RESETS)
        .max_local_error_reset_streams(RESETS)
        .max_header_list_size(u32::try_from(LARGEST_READ).unwrap_or(u32::MAX))
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER);
    engine
}

/// Serves the requests of a connection until it ends.
pub(crate) async fn serve<S, B>(
    engine: &http2::Builder<TokioExecutor>,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    link: Arc<Link>,
    observer: Arc<dyn Observer>,
    service: S,
) where
    S: Service<Request<Received>, Response = Response<B>, Error = Infallible> + Clone + Send + Sync + 'static,
    S::Future: Send,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let connection = Arc::clone(&link.connection);
    connection.multiplex();
    let service = service_fn(move |request| respond(&link, &observer, &service, request));
    {
        let mut engine = pin!(engine.serve_connection(TokioIo::new(stream), service));
        let mut told = false;
        poll_fn(|cx| {
            if !told && connection.is_asked_to_end(cx.waker()) {
                // Says which requests will still be answered, and ends after them.
                engine.as_mut().graceful_shutdown();
                told = true;
            }
            engine.as_mut().poll(cx)
        })
        .await
        .unwrap_or_else(
            |e| tracing::debug!(client = %connection.peer.ip(), error = %e, "an HTTP/2 connection failed"),
        );
    }
    connection.end_writing();
    connection.linger(LINGER_BYTES).await;
}

/// Serves a plain connection, whose client must know beforehand that the listener speaks HTTP/2.
pub(crate) async fn serve_plain<S, B>(
    engine: &http2::Builder<TokioExecutor>,
    connection: Arc<Connection>,
    observer: Arc<dyn Observer>,
    service: S,
) where
    S: Service<Request<Received>, Response = Response<B>, Error = Infallible> + Clone + Send + Sync + 'static,
    S::Future: Send,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    if connection.stream.register().is_err() {
        return;
    }
    let mut first = [0; PREFACE.len()];
    let Ok(read @ 1..) = connection.stream.peek(&mut first).await else { return };
    if !PREFACE.starts_with(&first[..read]) {
        let _ = connection.stream.try_write(&connection.refusal(Refusal::Malformed));
        connection.end_writing();
        return Box::pin(connection.linger(LINGER_BYTES)).await;
    }
    let link = Link::new(connection);
    let wire = Wire(Arc::clone(&link));
    // Boxed, as all that an idle connection does not need.
    Box::pin(serve(engine, wire, link, observer, service)).await;
}
