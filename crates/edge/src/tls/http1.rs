//! HTTP/1.1 on an encrypted connection. As on a plain one, the engine and its buffers are freed while it is idle.

use std::{
    convert::Infallible,
    error::Error,
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use hyper::{Request, Response, body::Body, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncBufRead as _, AsyncWriteExt as _};
use tokio_rustls::server::TlsStream;
use tower_service::Service;

use super::plaintext::Plaintext;
use crate::{
    Observer, Received,
    connection::{LINGER_BYTES, Phase},
    exchange::respond,
    link::Link,
    well_formed::refusal,
    wire::Wire,
};

/// What is left when an engine has ended.
struct Left {
    stream: TlsStream<Wire>,
    unparsed: Bytes,
    /// Whether the engine was only asked to free its memory.
    parked: bool,
    failure: Option<hyper::Error>,
}

/// Serves the requests of a connection until it ends.
pub(super) async fn serve<S, B>(
    engine: &http1::Builder,
    mut stream: TlsStream<Wire>,
    link: Arc<Link>,
    observer: Arc<dyn Observer>,
    service: S,
) where
    S: Service<Request<Received>, Response = Response<B>, Error = Infallible> + Clone,
    B: Body<Data = Bytes> + Unpin + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let mut unparsed = Bytes::new();
    loop {
        if unparsed.is_empty() && !poll_fn(|cx| poll_more(&mut stream, &link, cx)).await {
            return close(stream, &link).await;
        }
        link.connection.unpark();
        // Boxed, so that an idle connection keeps no space for the engine.
        let left = Box::pin(run(engine, stream, &link, &observer, &service, unparsed)).await;
        stream = left.stream;
        unparsed = left.unparsed;
        if !left.parked {
            if let Some(refusal) = refusal(&link.connection, left.failure.as_ref()) {
                link.connection.set(Phase::Linger);
                let _ = stream.write_all(&link.connection.refusal(refusal)).await;
            }
            return close(stream, &link).await;
        }
    }
}

/// Waits until there is something to parse. False at the end of the connection, also if this server ends it.
fn poll_more(stream: &mut TlsStream<Wire>, link: &Link, cx: &mut Context<'_>) -> Poll<bool> {
    if link.connection.ends(cx.waker()) {
        return Poll::Ready(false);
    }
    Pin::new(stream).poll_fill_buf(cx).map(|read| read.is_ok_and(|bytes| !bytes.is_empty()))
}

/// Runs an engine until it ends, or is idle and asked to end.
async fn run<S, B>(
    engine: &http1::Builder,
    stream: TlsStream<Wire>,
    link: &Arc<Link>,
    observer: &Arc<dyn Observer>,
    service: &S,
    unparsed: Bytes,
) -> Left
where
    S: Service<Request<Received>, Response = Response<B>, Error = Infallible> + Clone,
    B: Body<Data = Bytes> + Unpin + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let connection = &link.connection;
    let service = service_fn(|request| respond(link, observer, service, request));
    let io = TokioIo::new(Plaintext::new(stream, Arc::clone(link), unparsed));
    let mut engine = engine.serve_connection(io, service);
    let served = poll_fn(|cx| match Pin::new(&mut engine).poll(cx) {
        Poll::Ready(served) => Poll::Ready(Some(served)),
        Poll::Pending if connection.parks(cx.waker()) || connection.ends(cx.waker()) => Poll::Ready(None),
        Poll::Pending => Poll::Pending,
    });
    let served = served.await;
    let parts = engine.into_parts();
    // Even an empty rest would keep the whole buffer alive.
    let unparsed = if parts.read_buf.is_empty() { Bytes::new() } else { parts.read_buf };
    Left {
        stream: parts.io.into_inner().stream,
        unparsed,
        parked: served.is_none(),
        failure: served.and_then(Result::err),
    }
}

/// Tells the client that this is the end, and closes.
async fn close(mut stream: TlsStream<Wire>, link: &Link) {
    // The deadline of the end.
    link.connection.set(Phase::Linger);
    let _ = stream.shutdown().await;
    drop(stream);
    // Boxed: otherwise each idle connection would reserve the space for it.
    Box::pin(link.connection.linger(LINGER_BYTES)).await;
}
