//! Sends one request to a server's admin API.
//!
//! Invariant: replies are bounded in bytes and in time.

use std::{fmt::Display, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{
    Method, Request, Uri,
    client::conn::http1,
    header::{AUTHORIZATION, CONTENT_TYPE, ETAG, HOST, HeaderValue, IF_MATCH},
};
use hyper_util::rt::TokioIo;
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};
use shown::{without_quoted_logins, without_secrets};
use tokio::{net::TcpStream, time::timeout};

use crate::{
    failure::{self, Failure},
    output::one_line,
};

/// How long a server may take to reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(15);

/// The largest reply, in bytes. Enough for some thousand zones with their trends.
const MAX_REPLY: usize = 64 << 20;

const NO_ADMIN_API: &str = "this is not an admin API";

/// A server's reply.
pub(crate) struct Response {
    pub(crate) value: Value,
    pub(super) etag: Option<String>,
}

/// A client of one server.
pub(crate) struct Client {
    host: String,
    port: u16,
    /// The value of the header `Host`.
    authority: String,
    token: Option<HeaderValue>,
}

impl Client {
    /// A client of the server at `http://HOST:PORT`. A token comes with what to call the place where it was given.
    pub(super) fn new(url: &str, token: Option<(String, String)>) -> Result<Self, Failure> {
        let wrong = || {
            Failure::new(
                failure::USAGE,
                format_args!(
                    "--admin: `{}` is not an address; write one as in http://127.0.0.1:8081",
                    without_secrets(url)
                ),
            )
        };
        let uri: Uri = url.parse().map_err(|_| wrong())?;
        if uri.scheme_str() == Some("https") {
            let what = "--admin: https is not supported; run the command on the server's machine, or use a tunnel (ssh -L)";
            return Err(Failure::new(failure::USAGE, what));
        }
        let is_bare = uri.query().is_none() && matches!(uri.path(), "" | "/");
        let authority = uri.authority().filter(|_| uri.scheme_str() == Some("http") && is_bare);
        let authority = authority.ok_or_else(wrong)?;
        if authority.as_str().contains('@') {
            let what = format_args!(
                "--admin: `{}` has a name or a password, which are not sent; leave them out, and give a token, in a file with \
                 --token-file or in WEIR_ADMIN_TOKEN",
                without_secrets(url)
            );
            return Err(Failure::new(failure::USAGE, what));
        }
        let token = token.map(|(origin, token)| {
            let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| {
                let lines = token.lines().count();
                let what = if lines > 1 { format!("has {lines} lines") } else { "has control characters".to_owned() };
                let what = format_args!(
                    "{origin}: {what}, and a token is one word; leave there only the token, which is the first line that \
                     `weir token new` printed (weir_…)"
                );
                Failure::new(failure::USAGE, what)
            })?;
            value.set_sensitive(true);
            Ok::<_, Failure>(value)
        });
        Ok(Self {
            host: authority.host().trim_matches(['[', ']']).to_owned(),
            port: authority.port_u16().unwrap_or(80),
            authority: authority.to_string(),
            token: token.transpose()?,
        })
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Response, Failure> {
        self.send(Method::GET, path, None, None).await
    }

    /// The reply, if it is an object with this member. Another server that speaks JSON may be at the address.
    pub(super) fn checked(&self, reply: Response, member: &str) -> Result<Response, Failure> {
        if reply.value.get(member).is_none() {
            return Err(self.away(&NO_ADMIN_API));
        }
        Ok(reply)
    }

    /// The failure if a request was sent, and no reply came. A change may have been made: asking again would not say so.
    fn unanswered(&self, method: &Method, what: &dyn Display) -> Failure {
        if *method == Method::GET {
            return self.away(what);
        }
        let line = format!(
            "http://{}: {what}; the change may have been made: look before you repeat it",
            self.authority
        );
        Failure { exit: failure::UNAVAILABLE, line }
    }

    fn away(&self, what: &dyn Display) -> Failure {
        Failure {
            exit: failure::UNAVAILABLE,
            line: format!(
                "http://{}: {what}; is it the address of a server's admin listener? --admin names another one",
                self.authority
            ),
        }
    }

    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        if_match: Option<&str>,
        body: Option<&Map<String, Value>>,
    ) -> Result<Response, Failure> {
        let connected = timeout(REPLY_TIMEOUT, TcpStream::connect((self.host.as_str(), self.port))).await;
        let stream = connected.map_err(|_| self.away(&"no answer in time"))?.map_err(|e| self.away(&e))?;
        let reply = timeout(REPLY_TIMEOUT, self.exchange(stream, method.clone(), path, if_match, body)).await;
        let (status, etag, body) = reply
            .map_err(|_| self.unanswered(&method, &"no answer in time"))?
            .map_err(|e| self.unanswered(&method, &e))?;
        let value = serde_json::from_slice(&body).map_err(|_| self.away(&NO_ADMIN_API))?;
        let response = Response { value, etag };
        if status < 400 {
            return Ok(response);
        }
        let text = |member: &str| one_line(response.value[member].as_str().unwrap_or_default());
        let (title, detail, code) = (text("title"), without_quoted_logins(&text("detail")), text("code"));
        let colon = if detail.is_empty() { "" } else { ": " };
        let zone = path.strip_prefix("/admin/v1/zones/").and_then(|rest| rest.split(['/', '?']).next());
        let zone = zone.map(|zone| percent_decode_str(zone).decode_utf8_lossy());
        let next = match (status, code.as_str(), zone.as_deref()) {
            (401, ..) if self.token.is_none() => {
                "; give a token, in a file with --token-file or in WEIR_ADMIN_TOKEN".to_owned()
            }
            (401, ..) => "; the server has no [[admin_token]] with this token's digest".to_owned(),
            (404, "not_found", _) => {
                format!(
                    "; is {} the address of a server's admin listener? --admin names another one",
                    self.authority
                )
            }
            (_, "unknown_zone", Some(zone)) => {
                format!("; `weir zones list` lists them, and {} is none", one_line(zone))
            }
            (_, "changed_meanwhile", _) => "; look at it, and repeat the command".to_owned(),
            _ => String::new(),
        };
        let line = format!("{title}{colon}{detail} ({status} {code}){next}");
        let exit = match status {
            401 | 403 | 421 => failure::NO_PERMISSION,
            500.. => failure::UNAVAILABLE,
            _ => failure::DATA,
        };
        Err(Failure { exit, line })
    }

    async fn exchange(
        &self,
        stream: TcpStream,
        method: Method,
        path: &str,
        if_match: Option<&str>,
        body: Option<&Map<String, Value>>,
    ) -> anyhow::Result<(u16, Option<String>, Bytes)> {
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let mut request = Request::builder().method(method).uri(path).header(HOST, &self.authority);
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token);
        }
        if let Some(tag) = if_match {
            request = request.header(IF_MATCH, tag);
        }
        let bytes = match body {
            Some(body) => {
                request = request.header(CONTENT_TYPE, "application/json");
                Bytes::from(serde_json::to_vec(body)?)
            }
            None => Bytes::new(),
        };
        let exchange = async {
            let response = sender.send_request(request.body(Full::new(bytes))?).await?;
            let status = response.status().as_u16();
            let etag = response.headers().get(ETAG).and_then(|tag| tag.to_str().ok()).map(str::to_owned);
            let body = Limited::new(response.into_body(), MAX_REPLY).collect().await;
            Ok((status, etag, body.map_err(|e| anyhow::anyhow!("{e}"))?.to_bytes()))
        };
        tokio::select! {
            reply = exchange => reply,
            Err(e) = connection => Err(e.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_the_token_is_not_shown() {
        let at =
            |url: &str| Client::new(url, None).map(|client| (client.host, client.port, client.authority));
        let here = ("127.0.0.1".to_owned(), 8081, "127.0.0.1:8081".to_owned());
        assert_eq!(at("http://127.0.0.1:8081"), Ok(here.clone()));
        assert_eq!(at("http://127.0.0.1:8081/"), Ok(here));
        assert_eq!(at("http://[::1]:8081"), Ok(("::1".to_owned(), 8081, "[::1]:8081".to_owned())));
        assert_eq!(at("http://weir.example"), Ok(("weir.example".to_owned(), 80, "weir.example".to_owned())));
        for wrong in ["", "127.0.0.1:8081", "ftp://h", "http://h/admin", "http://u:p@h", "https://h"] {
            assert_eq!(at(wrong).expect_err(wrong).exit, 64, "{wrong}");
        }
        for wrong in [
            "http://u:s3cret@h",
            "htp://u:s3cret@h",
            "u:s3cret@h",
            "http://h/?key=s3cret",
            "http://u:s3?c@h /",
        ] {
            let line = at(wrong).expect_err(wrong).line;
            assert!(line.starts_with("--admin: `") && !line.contains("s3"), "{line}");
        }
        let token = |text: &str| {
            let given = ("--token-file f".to_owned(), text.to_owned());
            Client::new("http://h", Some(given)).err().expect("refused").line
        };
        let line = token("s3cret\n\nThis is shown once.");
        assert!(line.starts_with("--token-file f: has 3 lines, and a token is one word; leave"), "{line}");
        let line = token("s3cret\u{7}");
        assert!(
            line.starts_with("--token-file f: has control characters") && !line.contains("s3cret"),
            "{line}"
        );
    }
}
