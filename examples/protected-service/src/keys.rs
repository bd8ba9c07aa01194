//! The keys that Weir publishes.
//!
//! Invariants: they are fetched at most once in 10 s, however many passes name unknown keys. A key that is not published any
//! more, because it was stolen, is accepted for a minute at most, unless Weir does not answer.

use std::{
    sync::{PoisonError, RwLock},
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::{
    Request, StatusCode, Uri,
    header::{CACHE_CONTROL, HOST},
};
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
pub(crate) const PAUSE: Duration = Duration::from_secs(10);

/// After this time the keys are fetched again, because one may have been withdrawn.
const OLD: Duration = Duration::from_secs(60);

const MAX_BODY: usize = 64 << 10;

/// The keys as fetched last.
pub struct Keys {
    at: Uri,
    known: RwLock<Known>,
    asked: Mutex<Option<Instant>>,
}

/// Why there is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoKey {
    /// Weir does not publish it.
    Unknown,
    /// Weir does not answer, or was asked within one pause. The next fetch may bring the key.
    Away,
}

struct Known {
    keys: JwkSet,
    fetched: Option<Instant>,
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
        Ok(Self {
            at,
            known: RwLock::new(Known { keys: JwkSet { keys: Vec::new() }, fetched: None }),
            asked: Mutex::default(),
        })
    }

    /// The key with this name. Fetches the keys if it is unknown or the keys are old, unless they were asked for within one
    /// pause (`PAUSE`).
    ///
    /// # Errors
    /// [`NoKey`].
    pub async fn find(&self, kid: &str) -> Result<Jwk, NoKey> {
        if let (Some(key), true) = self.known(kid) {
            return Ok(key);
        }
        let mut asked = self.asked.lock().await;
        // Another caller may have fetched them meanwhile.
        let is_needed = !matches!(self.known(kid), (Some(_), true));
        if is_needed && asked.is_none_or(|at| at.elapsed() >= PAUSE) {
            *asked = Some(Instant::now());
            // After a failure the old keys are used, so people can enter while Weir is away. A later pass fetches again.
            if let Ok(Ok(keys)) = timeout(PATIENCE, self.fetch()).await {
                let fetched = Some(Instant::now());
                *self.known.write().unwrap_or_else(PoisonError::into_inner) = Known { keys, fetched };
                return self.known(kid).0.ok_or(NoKey::Unknown);
            }
        }
        self.known(kid).0.ok_or(NoKey::Away)
    }

    /// Keys that are fetched already.
    #[cfg(test)]
    pub(crate) fn known_already(keys: JwkSet) -> Self {
        let made = Self::of("http://weir.example").expect("an address");
        *made.known.write().expect("no holder panics") = Known { keys, fetched: Some(Instant::now()) };
        made
    }

    /// The key with this name, and whether the keys are fresh.
    fn known(&self, kid: &str) -> (Option<Jwk>, bool) {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        (known.keys.find(kid).cloned(), known.fetched.is_some_and(|at| at.elapsed() < OLD))
    }

    async fn fetch(&self) -> anyhow::Result<JwkSet> {
        let authority = self.at.authority().context("checked at the start")?;
        let stream = TcpStream::connect((authority.host(), authority.port_u16().unwrap_or(80))).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let asking = tokio::spawn(connection);
        // A cache in between would keep a withdrawn key for its own time, and a new one away.
        let request =
            Request::get(self.at.path()).header(HOST, authority.as_str()).header(CACHE_CONTROL, "no-cache");
        let response = sender.send_request(request.body(Empty::<Bytes>::new())?).await?;
        if response.status() != StatusCode::OK {
            bail!("Weir answers {}", response.status());
        }
        let body = Limited::new(response.into_body(), MAX_BODY).collect().await;
        asking.abort();
        let body = body.map_err(|e| anyhow::anyhow!("the keys cannot be read: {e}"))?.to_bytes();
        Ok(serde_json::from_slice(&body)?)
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;

    /// Answers one request after another with these keys, and then none.
    async fn publish(answers: [&'static str; 2]) -> Keys {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let keys = Keys::of(&format!("http://{}", listener.local_addr().expect("bound"))).expect("right");
        tokio::spawn(async move {
            for body in answers {
                let (mut client, _) = listener.accept().await.expect("a client");
                let mut request = [0; 1_024];
                let length = client.read(&mut request).await.expect("a request");
                // As a cache does that has older keys.
                let is_fresh =
                    String::from_utf8_lossy(&request[..length]).contains("cache-control: no-cache\r\n");
                let body = if is_fresh { body } else { r#"{"keys":[]}"# };
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
                client.write_all(format!("{head}{body}").as_bytes()).await.expect("it listens");
            }
        });
        keys
    }

    /// Lets the keys grow old.
    async fn age(keys: &Keys) {
        let long_ago = Instant::now().checked_sub(OLD).expect("this machine runs for a minute");
        *keys.asked.lock().await = Some(long_ago);
        keys.known.write().expect("no holder panics").fetched = Some(long_ago);
    }

    const ONE: &str = r#"{"keys":[{"kty":"oct","kid":"a","k":"AA"}]}"#;
    const TWO: &str = r#"{"keys":[{"kty":"oct","kid":"b","k":"AA"}]}"#;

    #[tokio::test]
    async fn a_key_that_was_withdrawn_is_forgotten() {
        let keys = publish([ONE, r#"{"keys":[]}"#]).await;
        assert!(keys.find("a").await.is_ok());
        assert!(keys.find("a").await.is_ok(), "without asking again");
        age(&keys).await;
        assert_eq!(keys.find("a").await, Err(NoKey::Unknown));
    }

    #[tokio::test]
    async fn a_key_is_unknown_only_after_a_fetch_without_it() {
        let keys = publish([ONE, TWO]).await;
        assert_eq!(keys.find("c").await, Err(NoKey::Unknown));
        assert_eq!(keys.find("b").await, Err(NoKey::Away), "Weir is not asked again at once");
        age(&keys).await;
        assert!(keys.find("b").await.is_ok());
    }

    #[tokio::test]
    async fn old_keys_are_used_while_weir_is_away() {
        let keys = publish([ONE, "no keys"]).await;
        assert!(keys.find("a").await.is_ok());
        age(&keys).await;
        assert!(keys.find("a").await.is_ok());
        assert_eq!(keys.find("b").await, Err(NoKey::Away), "Weir is not asked again at once");
    }
}
