//! A request on a connection with a link, and the body of its reply.

use std::{
    convert::Infallible,
    error::Error,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use hyper::{
    Request, Response, Version,
    body::{Body, Frame, Incoming, SizeHint},
    header::{CONNECTION, HOST, HeaderName, HeaderValue},
    http::uri::{Authority, PathAndQuery},
};
use tower_service::Service;

use crate::{
    KnownClient, MAX_HEAD, Observer, Received, Refusal,
    link::{Exchange, Link, Part, Replying},
    outlet::{Outlet, Piped, Takeover, pipe},
    well_formed::{Malformed, call, check, close_if_last},
};

type AnyError = Box<dyn Error + Send + Sync>;

/// The body of a reply.
pub(crate) enum Reply<B> {
    /// As the service gave it.
    Whole(B, Arc<Replying>),
    /// A stream.
    Stream(Piped),
    /// That of a request which did not reach the service.
    Refused(Option<Bytes>, Arc<Replying>),
}

impl<B> Body for Reply<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<AnyError>,
{
    type Data = Part;
    type Error = AnyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Part>, AnyError>>> {
        match self.get_mut() {
            Self::Whole(body, reply) => {
                let part = |frame: Frame<Bytes>| frame.map_data(|bytes| reply.part(bytes, false));
                let frame = ready!(Pin::new(body).poll_frame(cx));
                Poll::Ready(frame.map(|frame| frame.map(part).map_err(Into::into)))
            }
            Self::Stream(body) => {
                Pin::new(body).poll_frame(cx).map(|frame| frame.map(|frame| frame.map_err(Into::into)))
            }
            Self::Refused(body, reply) => {
                Poll::Ready(body.take().map(|body| Ok(Frame::data(reply.part(body, false)))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(body, _) => body.is_end_stream(),
            Self::Stream(body) => body.is_end_stream(),
            Self::Refused(body, _) => body.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(body, _) => body.size_hint(),
            Self::Stream(body) => body.size_hint(),
            Self::Refused(body, _) => SizeHint::with_exact(body.as_ref().map_or(0, |body| body.len() as u64)),
        }
    }
}

/// Gives one request to `service`, and its reply to the engine. With HTTP/1.1, a malformed request ends the connection, and
/// the edge words the refusal. With HTTP/2 it ends its own stream.
///
/// Not an `async fn`: the service is called at once, before the engine decodes the body. See `decode_body_early`.
pub(crate) fn respond<S, B>(
    link: &Arc<Link>,
    observer: &Arc<dyn Observer>,
    service: &S,
    request: Request<Incoming>,
) -> impl Future<Output = Result<Response<Reply<B>>, Malformed>> + use<S, B>
where
    S: Service<Request<Received>, Response = Response<B>, Error = Infallible> + Clone,
{
    let link = Arc::clone(link);
    let called = prepare(request).map(|request| {
        let exchange = Exchange::begin(Arc::clone(&link));
        (call(service, request.map(Received::Engine)), exchange)
    });
    let called = called.map_err(|refusal| {
        link.is_multiplexed().then(|| {
            let exchange = Exchange::begin(Arc::clone(&link));
            exchange.wait();
            observer.refused(refusal).map(|body| Reply::Refused(Some(body), Replying::new(exchange)))
        })
    });
    async move {
        let (reply, exchange) = match called {
            Ok(called) => called,
            Err(refused) => return refused.ok_or(Malformed),
        };
        let Ok(mut response) = reply.await;
        if response.extensions_mut().remove::<KnownClient>().is_some() {
            link.connection.make_known();
        }
        if let Some(take_over) = Takeover::of(&mut response) {
            let (pipe, piped) = pipe(&exchange);
            take_over(Outlet::from(pipe));
            if !link.is_multiplexed() {
                // At least the head waits for the client.
                exchange.wait();
            }
            return Ok(response.map(|_| Reply::Stream(piped)));
        }
        exchange.wait();
        if link.is_multiplexed() {
            // HTTP/2 has no such field, and the connection is for other requests, too.
            response.headers_mut().remove(CONNECTION);
        } else {
            close_if_last(&link.connection, response.headers_mut());
        }
        Ok(response.map(|body| Reply::Whole(body, Replying::new(exchange))))
    }
}

/// Checks a request. One of HTTP/2 gets the field `Host` from its authority, so that the service need not tell the versions
/// apart. With HTTP/1.1 the engine has refused a head that is too long.
fn prepare(mut request: Request<Incoming>) -> Result<Request<Incoming>, Refusal> {
    if request.version() == Version::HTTP_2 && head_len(&request) > MAX_HEAD {
        return Err(Refusal::HeadTooLarge);
    }
    if request.version() == Version::HTTP_2
        && let Some(authority) = request.uri().authority()
    {
        let named = HeaderValue::from_str(authority.as_str()).map_err(|_| Refusal::Malformed)?;
        let is_other = |host: &HeaderValue| !host.as_bytes().eq_ignore_ascii_case(named.as_bytes());
        // RFC 9113, 8.3.1: two names are not one request.
        if request.headers().get_all(HOST).iter().any(is_other) {
            return Err(Refusal::Malformed);
        }
        request.headers_mut().insert(HOST, named);
    }
    check(&request).map_err(|Malformed| Refusal::Malformed)?;
    Ok(request)
}

/// The size of a head as HTTP/2 counts it (RFC 9113, 6.5.2): 32 bytes more for each field, of which the method and the parts of the address
/// are four.
fn head_len(request: &Request<Incoming>) -> usize {
    let uri = request.uri();
    let address = [
        request.method().as_str(),
        uri.scheme_str().unwrap_or_default(),
        uri.authority().map(Authority::as_str).unwrap_or_default(),
        uri.path_and_query().map(PathAndQuery::as_str).unwrap_or_default(),
    ];
    let names = [":method", ":scheme", ":authority", ":path"];
    let pseudo: usize = names.iter().zip(address).map(|(name, value)| name.len() + value.len() + 32).sum();
    let field = |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len() + 32;
    pseudo + request.headers().iter().map(field).sum::<usize>()
}
