//! The listener for proxies that ask over gRPC: `envoy.service.auth.v3.Authorization/Check`, and nothing else.
//!
//! The decision is that of [`check`]. The edge bounds connections, heads and deadlines, this file bounds messages.
//! Invariant: nothing that a visitor sends makes a call fail, because a proxy may be set to let requests through whose call failed. Each
//! message of a proxy gets a `CheckResponse`; a call fails only if the proxy does not keep to the protocol, or stops sending.

use std::{convert::Infallible, net::SocketAddr, pin::Pin, sync::Arc};

use bytes::Bytes;
use edge::{KnownClient, Received};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::{
    HeaderMap, Method, Request, Response,
    header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue},
};
use tokio::time::timeout;
use tonic::{
    Code, Status,
    body::Body,
    server::{Grpc as Calls, UnaryService},
};
use tonic_prost::ProstCodec;

use super::{
    Peer, Replied,
    problem::{HEAD_TOO_LARGE, ODD_TARGET, Problem},
    public::{
        PublicState,
        check::{
            self,
            envoy::{
                self,
                messages::{CheckRequest, CheckResponse},
            },
        },
    },
};
use crate::{metrics::Route, otlp::Traced};

/// The longest message, in bytes. Envoy takes heads of up to 60 KiB unless it is told otherwise, and repeats some fields.
const MAX_MESSAGE: usize = 256 << 10;

/// A message of gRPC without content, and the bytes in front of each: a flag and a length.
const EMPTY: &[u8] = &[0; PREFIX];
const PREFIX: usize = 5;

/// The only call.
const CHECK: &str = "/envoy.service.auth.v3.Authorization/Check";

/// The service of the listener.
pub struct Grpc {
    state: PublicState,
}

/// The check as a call of gRPC.
struct Check(PublicState);

/// An extension of a call: why its message was not read.
#[derive(Clone, Copy)]
enum NotRead {
    TooLong,
    /// It is no message of the protocol: for example, a target or a header has bytes that are not UTF-8.
    NotText,
}

impl Grpc {
    /// Decides as the public listener with this state does.
    #[must_use]
    pub fn new(state: PublicState) -> Arc<Self> {
        Arc::new(Self { state })
    }

    /// Answers one call.
    ///
    /// # Errors
    /// None.
    pub async fn serve(
        self: Arc<Self>,
        request: Request<Received>,
        peer: SocketAddr,
    ) -> Result<Response<Body>, Infallible> {
        let (mut head, body) = request.into_parts();
        let is_trusted = self.state.requests.trusts(peer.ip());
        // Nobody else makes this server keep a message.
        let message = if is_trusted { self.message(body).await } else { Ok(Some(EMPTY.into())) };
        let message = match message {
            Ok(message) => message.unwrap_or_else(|| {
                head.extensions.insert(NotRead::TooLong);
                EMPTY.into()
            }),
            Err(status) => return Ok(status.into_http()),
        };
        head.headers.remove(CONTENT_LENGTH);
        head.extensions.insert(Peer(peer));
        let uri = head.uri.clone();
        if uri.path() != CHECK {
            return Ok(Status::unimplemented("only Authorization/Check is answered here").into_http());
        }
        let mut response = self.call(Request::from_parts(head, Full::new(message))).await;
        // The library fails the call if it cannot decode the message.
        if is_trusted
            && Status::from_header_map(response.headers()).is_some_and(|of| of.code() == Code::Internal)
        {
            let mut again = Request::post(uri).body(Full::new(Bytes::from(EMPTY))).expect("the same call");
            again.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
            again.extensions_mut().insert(Peer(peer));
            again.extensions_mut().insert(NotRead::NotText);
            response = self.call(again).await;
        }
        if is_trusted {
            response.extensions_mut().insert(KnownClient);
        }
        Ok(response)
    }

    async fn call(&self, request: Request<Full<Bytes>>) -> Response<Body> {
        let calls = Calls::new(ProstCodec::<CheckResponse, CheckRequest>::default());
        calls.max_decoding_message_size(MAX_MESSAGE).unary(Check(self.state.clone()), request).await
    }

    /// The message of a call. None if it is too long.
    async fn message(&self, body: Received) -> Result<Option<Bytes>, Status> {
        let read = Limited::new(body, MAX_MESSAGE + PREFIX).collect();
        match timeout(self.state.requests.body_timeout, read).await {
            Ok(Ok(message)) => Ok(Some(message.to_bytes())),
            Ok(Err(e)) if e.is::<LengthLimitError>() => Ok(None),
            Ok(Err(e)) => Err(Status::cancelled(e.to_string())),
            Err(_) => Err(Status::deadline_exceeded("the message took too long")),
        }
    }
}

impl UnaryService<CheckRequest> for Check {
    type Response = CheckResponse;
    type Future = Pin<Box<dyn Future<Output = Result<tonic::Response<CheckResponse>, Status>> + Send>>;

    fn call(&mut self, call: tonic::Request<CheckRequest>) -> Self::Future {
        let state = self.0.clone();
        Box::pin(async move { Ok(tonic::Response::new(answer(&state, call).await)) })
    }
}

async fn answer(state: &PublicState, call: tonic::Request<CheckRequest>) -> CheckResponse {
    let peer = *call.extensions().get::<Peer>().expect("`serve` puts it there");
    let traced =
        Traced { method: &Method::POST, route: CHECK, path: CHECK, headers: call.metadata().as_ref() };
    let requests = &state.requests;
    let context = requests.begin(Route::Check, traced, peer, &HeaderMap::new(), &Full::<Bytes>::default());
    let not_read = call.extensions().get::<NotRead>().copied();
    let request = call.into_inner();
    let replied: Replied = match not_read {
        Some(NotRead::TooLong) => {
            let what = format!("the head of the request is longer than {} KiB", MAX_MESSAGE >> 10);
            Err(Problem::new(HEAD_TOO_LARGE, what))
        }
        Some(NotRead::NotText) => {
            let what = "the request has bytes that are not UTF-8; write them as %XX";
            Err(Problem::new(ODD_TARGET, what))
        }
        None => check::answer_envoy(state, &request, peer, &context).await,
    };
    let response = state.requests.reply(&context, replied, "over gRPC");
    let (head, body) = response.into_parts();
    let Ok(body) = body.collect().await;
    envoy::reply(&Response::from_parts(head, body.to_bytes()))
}
