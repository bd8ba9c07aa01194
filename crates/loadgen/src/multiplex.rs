//! Calls over HTTP/2: all users share a few connections, and each of these carries many calls at once.
//!
//! Invariants: at most N connections are open. A call that the server may have handled is not made again.

use std::{
    error::Error as _,
    sync::atomic::{AtomicUsize, Ordering},
};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, Response, Uri, body::Incoming, header::HOST, http::uri::PathAndQuery};
use tokio::sync::Mutex;

use crate::connect::{Connector, Http2Sender};

/// What is said of a reply that the library refuses. It has a limit of its own for heads, and says no more of one beyond it
/// ([RFC 9113, 6.5.2](https://www.rfc-editor.org/rfc/rfc9113#section-6.5.2)).
const REFUSED: &str = "the reply breaks the rules of HTTP/2, or its head has more than 16 KB";
/// How the library's text of that begins. It has no public kind for it.
const DETECTED: &str = "stream error detected: ";

/// The connections.
#[derive(Debug)]
pub(crate) struct Multiplex {
    /// `http` or `https`, and the host: HTTP/2 has them in each request.
    origin: Uri,
    connections: Vec<Mutex<Option<Http2Sender>>>,
    turn: AtomicUsize,
}

impl Multiplex {
    /// At most `connections` to `origin`, which has scheme and host.
    pub(crate) fn new(origin: Uri, connections: usize) -> Self {
        Self {
            origin,
            connections: (0..connections.max(1)).map(|_| Mutex::default()).collect(),
            turn: AtomicUsize::new(0),
        }
    }

    /// Sends `request` over the connection whose turn it is, which is opened if need be. It calls `sending` just before. If the
    /// server allows no further call on that connection now, this one waits.
    ///
    /// # Errors
    /// A short text, the same for each failure of a kind.
    pub(crate) async fn send(
        &self,
        connector: &Connector,
        mut request: Request<Full<Bytes>>,
        mut sending: impl FnMut(),
    ) -> Result<Response<Incoming>, String> {
        *request.uri_mut() = self.absolute(request.uri().path_and_query())?;
        request.headers_mut().remove(HOST);
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % self.connections.len();
        loop {
            let (mut sender, fresh) = {
                // Others who have the same turn wait here until the connection is open.
                let mut kept = self.connections[turn].lock().await;
                match &*kept {
                    Some(sender) if !sender.is_closed() => (sender.clone(), false),
                    _ => (kept.insert(connector.open_http2().await?).clone(), true),
                }
            };
            sending();
            match sender.try_send_request(request).await {
                Ok(response) => return Ok(response),
                // hyper returns a request that was not sent. After any other failure the server may have handled the call.
                Err(mut error) => match error.take_message() {
                    Some(unsent) if !fresh => request = unsent,
                    _ => return Err(failure(error.error())),
                },
            }
        }
    }

    fn absolute(&self, path: Option<&PathAndQuery>) -> Result<Uri, String> {
        let mut parts = self.origin.clone().into_parts();
        parts.path_and_query = path.cloned();
        Uri::from_parts(parts).map_err(|error| format!("no address: {error}"))
    }
}

fn failure(error: &hyper::Error) -> String {
    if error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
        "connection closed without a reply".to_owned()
    } else if error.source().is_some_and(|cause| cause.to_string().starts_with(DETECTED)) {
        REFUSED.to_owned()
    } else {
        // The causes have the numbers of streams, so they are not shown.
        "no reply over HTTP/2".to_owned()
    }
}
