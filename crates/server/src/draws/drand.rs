//! Fetches rounds of drand from a relay over HTTP.
//!
//! What a relay says is not trusted: the caller verifies the round's signature. Invariants: a call takes at most [`WITHIN`], and reads at
//! most [`MAX_BODY`] bytes.

use std::{fmt, time::Duration};

use ::draw::QUICKNET;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::{
    Request,
    header::{HOST, USER_AGENT},
};
use serde::Deserialize;
use tokio::time::timeout;

use crate::outgoing::Address;

/// How long a call may take.
const WITHIN: Duration = Duration::from_secs(3);

/// The longest answer, in bytes. One of a relay has 300.
const MAX_BODY: usize = 16 << 10;

/// A relay of drand, by its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relay(Address);

/// Why a relay has no round.
#[derive(Debug, thiserror::Error)]
pub enum RelayFault {
    /// It cannot be reached.
    #[error("{0}")]
    Unreachable(String),
    /// It answered with this status.
    #[error("it answered with status {0}")]
    Status(u16),
    /// Its answer is no round.
    #[error("its answer is not that round: {0}")]
    NoRound(String),
}

/// The part of an answer that counts.
#[derive(Deserialize)]
struct Round {
    round: u64,
    signature: String,
}

impl fmt::Display for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Relay {
    /// A relay at this address; `None` if the text is none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Address::parse(text).map(Self)
    }

    /// The signature of a round, in hex. The caller verifies it.
    ///
    /// # Errors
    /// [`RelayFault`].
    pub async fn fetch(&self, round: u64) -> Result<String, RelayFault> {
        let unreachable = |why: &dyn fmt::Display| RelayFault::Unreachable(why.to_string());
        match timeout(WITHIN, self.ask(round)).await {
            Ok(answer) => answer,
            Err(_) => Err(unreachable(&format_args!("it did not answer within {} s", WITHIN.as_secs()))),
        }
    }

    async fn ask(&self, round: u64) -> Result<String, RelayFault> {
        let unreachable = |why: &dyn fmt::Display| RelayFault::Unreachable(why.to_string());
        let mut link = self.0.open().await.map_err(RelayFault::Unreachable)?;
        let path = format!("{}/{}/public/{round}", self.0.path(), QUICKNET.hash);
        let request = Request::get(path).header(HOST, self.0.authority()).header(USER_AGENT, "weir");
        let request = request.body(Empty::<Bytes>::new()).map_err(|why| unreachable(&why))?;
        let response = link.sender.send_request(request).await.map_err(|why| unreachable(&why))?;
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), MAX_BODY).collect().await;
        if status != 200 {
            return Err(RelayFault::Status(status));
        }
        let bytes = body.map_err(|why| RelayFault::NoRound(why.to_string()))?.to_bytes();
        let read: Round =
            serde_json::from_slice(&bytes).map_err(|why| RelayFault::NoRound(why.to_string()))?;
        if read.round != round {
            return Err(RelayFault::NoRound(format!("it is round {}", read.round)));
        }
        Ok(read.signature)
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;

    /// A relay that answers one call with this.
    async fn relay(answer: &str) -> (Relay, tokio::task::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let at = listener.local_addr().expect("an address");
        let answer = answer.to_owned();
        let asked = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a caller");
            let mut head = vec![0; 1_024];
            let count = stream.read(&mut head).await.expect("reads");
            stream.write_all(answer.as_bytes()).await.expect("writes");
            head.truncate(count);
            String::from_utf8_lossy(&head).into_owned()
        });
        (Relay::parse(&format!("http://{at}/base/")).expect("an address"), asked)
    }

    fn ok(body: &str) -> String {
        format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
    }

    #[tokio::test]
    async fn a_round_is_fetched_and_others_are_refused() {
        let (right, asked) = relay(&ok(r#"{"round":7,"randomness":"00","signature":"ab"}"#)).await;
        assert_eq!(right.fetch(7).await.expect("there"), "ab");
        let asked = asked.await.expect("answered");
        assert!(asked.starts_with(&format!("GET /base/{}/public/7 HTTP/1.1", QUICKNET.hash)), "{asked}");
        for (answer, why) in [
            (ok(r#"{"round":8,"signature":"ab"}"#), "it is round 8"),
            (ok("[]"), "not that round"),
            ("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_owned(), "status 404"),
            (ok(&"x".repeat(MAX_BODY + 1)), "not that round"),
            (String::new(), "connection"),
        ] {
            let (wrong, _asked) = relay(&answer).await;
            let fault = wrong.fetch(7).await.expect_err("refused").to_string();
            assert!(fault.contains(why), "{fault}");
        }
    }
}
