//! A tower layer that lets through a request with a pass.
//!
//! Invariant: a request reaches the service only with an accepted pass, which is in its extensions as a [`Pass`](crate::Pass).

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::{HeaderMap, Request, Response, header::AUTHORIZATION};
use tower_layer::Layer;
use tower_service::Service;

use crate::{
    passes::Passes,
    record::{Memory, Spend},
    refusal::Code,
};

/// The layer: takes the pass of `Authorization: Bearer …`, or answers with the refusal. A handler of axum that takes `Extension<Pass>`
/// answers 500 where the layer was forgotten.
pub struct PassLayer<S = Memory>(Arc<Passes<S>>);

impl<S> PassLayer<S> {
    /// Accepts these passes.
    #[must_use]
    pub fn new(passes: Arc<Passes<S>>) -> Self {
        Self(passes)
    }
}

impl<S> Clone for PassLayer<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S, V> Layer<V> for PassLayer<S> {
    type Service = PassService<S, V>;

    fn layer(&self, inner: V) -> Self::Service {
        PassService { passes: Arc::clone(&self.0), inner }
    }
}

/// A service behind the layer.
pub struct PassService<S, V> {
    passes: Arc<Passes<S>>,
    inner: V,
}

impl<S, V: Clone> Clone for PassService<S, V> {
    fn clone(&self) -> Self {
        Self { passes: Arc::clone(&self.passes), inner: self.inner.clone() }
    }
}

impl<S, V, B, R> Service<Request<B>> for PassService<S, V>
where
    S: Spend,
    V: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    V::Future: Send,
    B: Send + 'static,
    R: From<String>,
{
    type Response = Response<R>;
    type Error = V::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let passes = Arc::clone(&self.passes);
        // The one that is ready is called, not its clone.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        Box::pin(async move {
            let accepted = match bearer(request.headers()) {
                Some(text) => passes.accept(text).await,
                None => Err(Code::NoPass.into()),
            };
            match accepted {
                Ok(pass) => {
                    request.extensions_mut().insert(pass);
                    inner.call(request).await
                }
                Err(refusal) => Ok(refusal.response()),
            }
        })
    }
}

/// The pass of `Authorization: Bearer …`.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut fields = headers.get_all(AUTHORIZATION).iter();
    let (scheme, pass) = fields.next()?.to_str().ok()?.split_once(' ')?;
    let pass = pass.trim_start_matches(' ');
    // Of two, a proxy before this service may have read the other one.
    let is_one = fields.next().is_none();
    (is_one && scheme.eq_ignore_ascii_case("bearer") && !pass.is_empty() && !pass.contains(' '))
        .then_some(pass)
}
