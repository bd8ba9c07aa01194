//! The keys that Weir publishes.
//!
//! Invariant: they are fetched at most once in 10 s, however many passes name unknown keys.

use std::{
    sync::{PoisonError, RwLock},
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::{Request, Uri, header::HOST};
use hyper_util::rt::TokioIo;
use jsonwebtoken::jwk::{Jwk, JwkSet};
use tokio::{
    net::TcpStream,
    sync::Mutex,
    time::{Instant, timeout},
};

/// The time limit of a fetch.
const PATIENCE: Duration = Duration::from_secs(5);

/// The shortest time between two fetches.
const PAUSE: Duration = Duration::from_secs(10);

const MAX_BODY: usize = 64 << 10;

/// The keys as fetched last.
pub struct Keys {
    at: Uri,
    known: RwLock<JwkSet>,
    asked: Mutex<Option<Instant>>,
}

impl Keys {
    /// Keys that will be fetched from `weir`, such as `http://127.0.0.1:8080`.
    ///
    /// # Errors
    /// If `weir` is not such an address.
    pub fn of(weir: &str) -> anyhow::Result<Self> {
        let at = format!("{}/.well-known/jwks.json", weir.trim_end_matches('/'));
        let at: Uri = at.parse().with_context(|| format!("`{weir}` is not an address"))?;
        ensure!(
            at.scheme_str() == Some("http") && at.authority().is_some(),
            "`{weir}`: this example supports only http, such as http://127.0.0.1:8080; with TLS, use another HTTP client"
        );
        Ok(Self { at, known: RwLock::new(JwkSet { keys: Vec::new() }), asked: Mutex::default() })
    }

    /// The key with this name. Fetches the keys if it is unknown, unless they were fetched within one pause (`PAUSE`).
    pub async fn find(&self, kid: &str) -> Option<Jwk> {
        let known = || self.known.read().unwrap_or_else(PoisonError::into_inner).find(kid).cloned();
        if let Some(key) = known() {
            return Some(key);
        }
        let mut asked = self.asked.lock().await;
        // Another caller may have fetched them meanwhile.
        if known().is_none() && asked.is_none_or(|at| at.elapsed() >= PAUSE) {
            *asked = Some(Instant::now());
            // After a failure a later pass fetches again.
            if let Ok(Ok(keys)) = timeout(PATIENCE, self.fetch()).await {
                *self.known.write().unwrap_or_else(PoisonError::into_inner) = keys;
            }
        }
        known()
    }

    async fn fetch(&self) -> anyhow::Result<JwkSet> {
        let authority = self.at.authority().context("checked at the start")?;
        let stream = TcpStream::connect((authority.host(), authority.port_u16().unwrap_or(80))).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let asking = tokio::spawn(connection);
        let request = Request::get(self.at.path()).header(HOST, authority.as_str());
        let response = sender.send_request(request.body(Empty::<Bytes>::new())?).await?;
        if !response.status().is_success() {
            bail!("Weir answers {}", response.status());
        }
        let body = Limited::new(response.into_body(), MAX_BODY).collect().await;
        asking.abort();
        let body = body.map_err(|e| anyhow::anyhow!("the keys cannot be read: {e}"))?.to_bytes();
        Ok(serde_json::from_slice(&body)?)
    }
}
