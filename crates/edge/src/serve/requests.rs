//! The requests of a connection.
//!
//! A connection with HTTP/1.1 begins in a set ([`Watched`]), and stays there as long as its requests arrive whole and are
//! answered at once, as nearly all are. It gets a task while a reply is not ready; for good, when its bytes need an engine,
//! when it reads slowly, or when an outlet has it.

use std::{
    convert::Infallible,
    error::Error,
    future::{Future, pending, poll_fn},
    net::SocketAddr,
    pin::{Pin, pin},
    sync::{Arc, atomic::Ordering::Relaxed},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use hyper::{
    Request, Response, Version,
    body::{Body, Incoming},
    header::{CONNECTION, EXPECT},
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use rustix::io::{Errno, retry_on_intr};
use tokio::time::sleep;
use tower_service::Service;

use super::{Edge, TICK};
use crate::{
    KnownClient,
    at_once::{AtOnce, Polled},
    connection::{Connection, LINGER_BYTES, Phase},
    direct,
    io::ConnectionIo,
    outlet::{Outlet, Socket, Takeover},
    read::READ_LEN,
    received::Received,
    watched::{Loan, Watch, Watched},
    well_formed::{Malformed, call, check, close_if_last, refusal},
};

/// What follows a request, or some requests.
enum After {
    /// The connection waits for another request.
    Idle,
    /// It ends, for this reason if the engine failed.
    End(Option<hyper::Error>),
    /// An outlet has it.
    TakenOver,
    /// It is broken.
    Lost,
}

/// What a connection of a set has sent.
#[expect(clippy::large_enum_variant, reason = "nearly all of them are requests")]
enum Sent {
    Nothing,
    /// A request that arrived whole. `is_all`: there were no further bytes at that time.
    Request {
        request: Request<Received>,
        is_all: bool,
    },
    /// Bytes for the engine.
    Other(Bytes),
    /// The client is gone.
    Closed,
}

impl<M, S, B> Edge<M>
where
    M: Fn(SocketAddr) -> S + Send + Sync + 'static,
    S: Service<Request<Received>, Response = Response<B>, Error = Infallible> + Clone + Send + Sync + 'static,
    S::Future: Send,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    /// Puts a connection into a set. It ends if the system cannot watch it.
    pub(super) fn watch(&self, set: &Watched, connection: Arc<Connection>) {
        if let Err(e) = set.add(connection) {
            tracing::warn!(error = %e, "a connection is closed, because the system cannot watch it");
        }
    }

    /// Serves the connections of a set.
    pub(super) async fn serve_set(self: Arc<Self>, set: Arc<Watched>, mut watch: Watch) {
        let mut buffer = [0; READ_LEN];
        let mut answers = AtOnce::new();
        loop {
            let serve = |ready| {
                let Some(connection) = set.get(ready) else { return };
                match self.read_ready(&connection, &mut buffer) {
                    Sent::Nothing => {}
                    Sent::Closed => set.remove(ready),
                    Sent::Other(received) => {
                        set.remove(ready);
                        tokio::spawn(Arc::clone(&self).run(connection, Some(received)));
                    }
                    Sent::Request { request, is_all } => {
                        let answer = Arc::clone(&self).answer(Arc::clone(&connection), request);
                        match answers.poll(answer) {
                            Polled::Ready(After::Idle) if is_all && !ready.is_closed => {}
                            Polled::Ready(after) => {
                                set.remove(ready);
                                tokio::spawn(Arc::clone(&self).go_on(connection, after));
                            }
                            Polled::Pending(answer) => {
                                let loan = set.lend(ready, is_all);
                                tokio::spawn(Arc::clone(&self).complete(loan, connection, answer));
                            }
                            Polled::Panicked => set.remove(ready),
                        }
                    }
                }
            };
            if let Err(e) = watch.next(serve).await {
                tracing::error!(error = %e, "the system does not tell which connections have sent something");
                sleep(TICK).await;
            }
        }
    }

    /// What a connection of a set has sent.
    fn read_ready(&self, connection: &Connection, buffer: &mut [u8; READ_LEN]) -> Sent {
        let read = match retry_on_intr(|| rustix::io::read(&connection.stream, &mut buffer[..])) {
            Err(Errno::WOULDBLOCK) => return Sent::Nothing,
            Ok(0) | Err(_) => return Sent::Closed,
            Ok(read) => read,
        };
        connection.set(Phase::Head);
        // A copy of what was sent, and no more: whatever keeps a part of the request keeps all of it.
        let received = Bytes::copy_from_slice(&buffer[..read]);
        match direct::parse(&received) {
            Some(request) => Sent::Request { request, is_all: read < READ_LEN },
            None => Sent::Other(received),
        }
    }

    /// Completes a request of a connection that its set has lent. The connection goes back when it waits for another request, and nothing
    /// has made the runtime watch its socket.
    async fn complete<F: Future<Output = After>>(
        self: Arc<Self>,
        loan: Loan,
        connection: Arc<Connection>,
        answer: Pin<Box<F>>,
    ) {
        let after = answer.await;
        if matches!(after, After::Idle) && !connection.stream.is_registered() {
            if let Err(e) = loan.give_back() {
                tracing::warn!(error = %e, "a connection is closed, because the system cannot watch it");
            }
            return;
        }
        drop(loan);
        self.go_on(connection, after).await;
    }

    /// Goes on with a connection that has left its set after a request.
    async fn go_on(self: Arc<Self>, connection: Arc<Connection>, after: After) {
        if self.goes_on(&connection, after).await {
            Box::pin(self.run(connection, None)).await;
        }
    }

    /// Serves a connection that has a task of its own, beginning with what it has sent already.
    async fn run(self: Arc<Self>, connection: Arc<Connection>, mut received: Option<Bytes>) {
        if connection.stream.register().is_err() {
            return;
        }
        loop {
            let bytes = match received.take() {
                Some(bytes) => bytes,
                None => match connection.receive().await {
                    Some(bytes) => bytes,
                    None => return,
                },
            };
            let after = match direct::parse(&bytes) {
                Some(request) => {
                    drop(bytes);
                    // The steps are boxed: otherwise each connection would reserve the space for them.
                    Box::pin(Arc::clone(&self).answer(Arc::clone(&connection), request)).await
                }
                None => {
                    let service = (self.make_service)(connection.peer);
                    Box::pin(self.run_engine(&connection, &service, bytes)).await
                }
            };
            if !self.goes_on(&connection, after).await {
                return;
            }
        }
    }

    /// Does what follows a request. Returns whether the connection waits for another one.
    async fn goes_on(&self, connection: &Arc<Connection>, after: After) -> bool {
        match after {
            After::Idle => return true,
            After::End(failure) => Box::pin(self.finish(connection, failure)).await,
            After::TakenOver => {
                // Until the client or the outlet ends it.
                Box::pin(connection.discard_until_closed(LINGER_BYTES)).await;
                connection.cut();
                connection.set(Phase::Over);
            }
            After::Lost => {}
        }
        false
    }

    /// Answers one request that arrived whole.
    async fn answer(self: Arc<Self>, connection: Arc<Connection>, request: Request<Received>) -> After {
        let service = (self.make_service)(connection.peer);
        let mut replying = pin!(reply_to(&connection, &service, request, false));
        let reply = poll_fn(|cx| match replying.as_mut().poll(cx) {
            Poll::Ready(reply) => Poll::Ready(Some(reply)),
            Poll::Pending if connection.is_taken_over() => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        });
        let Some(reply) = reply.await else { return After::TakenOver };
        let (head, body) = reply.into_parts();
        let Ok(body) = whole(body).await else { return After::Lost };
        let closes = head.headers.contains_key(CONNECTION);
        let bytes = direct::encode(&head, &body, self.shared.tick.load(Relaxed));
        if connection.send(&bytes).await.is_err() {
            return After::Lost;
        }
        if closes {
            return After::End(None);
        }
        connection.set(Phase::Idle);
        After::Idle
    }

    /// Answers requests by the HTTP engine until the connection ends, is taken over, or has been idle for a while.
    async fn run_engine(&self, connection: &Arc<Connection>, service: &S, mut unparsed: Bytes) -> After {
        loop {
            connection.unpark();
            let service = service_fn(|request| respond(connection, service, request));
            let io = TokioIo::new(ConnectionIo::new(Arc::clone(connection), unparsed));
            let mut engine = self.engines.of(connection.has_reserve()).serve_connection(io, service);
            let served = poll_fn(|cx| match Pin::new(&mut engine).poll(cx) {
                Poll::Ready(served) => Poll::Ready(Some(served)),
                Poll::Pending if connection.is_taken_over() => Poll::Ready(None),
                Poll::Pending if connection.parks(cx.waker()) => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            });
            match served.await {
                Some(served) => return After::End(served.err()),
                None if connection.is_taken_over() => return After::TakenOver,
                None => unparsed = engine.into_parts().read_buf,
            }
            if unparsed.is_empty() {
                return After::Idle;
            }
        }
    }

    /// Ends a connection whose engine has finished. Replaces what the engine wanted to reply by the observer's reply.
    async fn finish(&self, connection: &Connection, failure: Option<hyper::Error>) {
        let refusal = refusal(connection, failure.as_ref());
        if let Some(refusal) = refusal {
            let _ = connection.stream.try_write(&connection.refusal(refusal));
        }
        connection.end_writing();
        if refusal.is_some() || connection.service_closes() || connection.has_unread() {
            connection.linger(LINGER_BYTES).await;
        }
    }
}

/// Gives one request of the engine to `service`. A malformed request ends the connection, and the edge words the refusal.
///
/// Not an `async fn`: the service is called at once, before the engine decodes the body. See [`decode_body_early`].
fn respond<S, B>(
    connection: &Arc<Connection>,
    service: &S,
    request: Request<Incoming>,
) -> impl Future<Output = Result<Response<B>, Malformed>> + use<S, B>
where
    S: Service<Request<Received>, Response = Response<B>, Error = Infallible> + Clone,
{
    // Only a client that sends requests without reading replies has an earlier reply that is not out yet.
    let is_behind = connection.phase().0 == Phase::Reply;
    let reply =
        check(&request).map(|()| reply_to(connection, service, request.map(Received::Engine), is_behind));
    async move { Ok(reply?.await) }
}

/// Gives one request to `service`, and returns its reply; or hands the connection over to the service, and then never
/// returns. `is_behind`: an earlier reply is not out yet.
fn reply_to<S, B>(
    connection: &Arc<Connection>,
    service: &S,
    request: Request<Received>,
    is_behind: bool,
) -> impl Future<Output = Response<B>> + use<S, B>
where
    S: Service<Request<Received>, Response = Response<B>, Error = Infallible> + Clone,
{
    connection.set(Phase::Busy);
    let reply = call(service, request);
    let connection = Arc::clone(connection);
    async move {
        let Ok(mut response) = reply.await;
        if response.extensions_mut().remove::<KnownClient>().is_some() {
            connection.make_known();
        }
        if let Some(take_over) = Takeover::of(&mut response) {
            if is_behind || connection.stream.register().is_err() {
                connection.cut();
            }
            take_over(Outlet::from(Socket::new(connection, &response)));
            // The caller drops this future now.
            return pending().await;
        }
        connection.set(Phase::Reply);
        close_if_last(&connection, response.headers_mut());
        response
    }
}

/// The body of a reply, to its end.
async fn whole<B: Body<Data = Bytes>>(body: B) -> Result<Bytes, B::Error> {
    let mut body = pin!(body);
    let (mut first, mut all) = (Bytes::new(), Vec::new());
    while let Some(frame) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
        // Trailers are ignored.
        let Ok(data) = frame?.into_data() else { continue };
        if first.is_empty() {
            first = data;
        } else {
            if all.is_empty() {
                all.extend_from_slice(&first);
            }
            all.extend_from_slice(&data);
        }
    }
    Ok(if all.is_empty() { first } else { all.into() })
}

/// Tells the HTTP engine that the body will be read, so that it decodes the bytes that it already has before it polls the
/// service's future. Otherwise each request with a body takes one more turn through the scheduler.
///
/// Only works inside [`Service::call`], before that returns. Call it only where the body will be read.
pub fn decode_body_early(request: &mut Request<Received>) {
    // A client that waits for `100 Continue` must get it only when the body is really read. The engine of HTTP/2 may have
    // the body already, and this would lose it.
    let is_decoded_later = request.version() <= Version::HTTP_11 && !request.headers().contains_key(EXPECT);
    if let Received::Engine(body) = request.body_mut()
        && is_decoded_later
        && !body.is_end_stream()
    {
        let body = Pin::new(body);
        let early = body.poll_frame(&mut Context::from_waker(Waker::noop()));
        debug_assert!(early.is_pending(), "the engine has decoded nothing yet");
    }
}
