//! The target: its address, and whether it is a waiting room.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Request, Uri,
    header::{CONTENT_TYPE, HOST},
};
use thiserror::Error;

use crate::{
    pool::Pool,
    wire::{self, Answer},
};

/// A token that no waiting room issued.
const NO_TOKEN: &str = "loadgen-asks-who-is-there";

/// The address of a waiting room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The socket address.
    pub address: SocketAddr,
    /// The header `Host`.
    pub host: String,
    /// The prefix of the paths; empty, or begins with `/`.
    pub prefix: String,
}

/// Why the run cannot begin.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TargetError {
    /// The URL is invalid.
    #[error("--target {url}: {why}")]
    Url {
        /// The URL, without credentials.
        url: String,
        /// What is wrong.
        why: String,
    },
    /// No connection, or no reply.
    #[error("{url}: {why}")]
    Unreachable {
        /// The target.
        url: String,
        /// The reason.
        why: String,
    },
    /// The server is not a waiting room.
    #[error("{url} is not a waiting room: {why}")]
    Other {
        /// The target.
        url: String,
        /// The evidence.
        why: String,
    },
    /// The waiting room does not serve the zone.
    #[error("{url} does not know the zone {zone}")]
    Zone {
        /// The target.
        url: String,
        /// The zone.
        zone: String,
    },
}

/// Reads `url` and resolves its host.
///
/// # Errors
/// If it is not of the form `http://HOST[:PORT][/PATH]`, or the host is unknown.
pub fn parse(url: &str) -> Result<Target, TargetError> {
    let wrong = |why: &str| TargetError::Url { url: url.to_owned(), why: why.to_owned() };
    let uri: Uri = url.parse().map_err(|error| wrong(&format!("{error}")))?;
    match uri.scheme_str() {
        Some("http") => {}
        Some("https") => {
            return Err(wrong("https is not supported; rehearse behind the load balancer, over http"));
        }
        _ => return Err(wrong("must begin with http://")),
    }
    let authority = uri.authority().ok_or_else(|| wrong("has no host"))?;
    if authority.as_str().contains('@') {
        return Err(TargetError::Url {
            url: format!("http://…@{}", authority.host()),
            why: "credentials are not sent".to_owned(),
        });
    }
    if uri.query().is_some() {
        return Err(wrong("must have no query"));
    }
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    let address = (host, authority.port_u16().unwrap_or(80))
        .to_socket_addrs()
        .map_err(|_| wrong("no such host"))?
        .next()
        .ok_or_else(|| wrong("no such host"))?;
    let prefix = uri.path().trim_end_matches('/').to_owned();
    Ok(Target { address, host: authority.as_str().to_owned(), prefix })
}

/// Checks that `target` is a waiting room that serves `zone`.
///
/// The check asks for entry with an invalid token, which takes no place. Only if the reply does not decide, it takes a
/// place.
///
/// # Errors
/// If it is not a waiting room, does not serve the zone, or does not reply.
pub async fn check(url: &str, target: &Target, zone: &str, sources: &[IpAddr]) -> Result<(), TargetError> {
    let url = url.to_owned();
    let pool = Pool::new(target.address, 1, sources.iter().copied().take(1).collect());
    let mut last = String::new();
    for (path, token) in [(wire::ENTRY, Some(NO_TOKEN)), (wire::WAIT, None)] {
        let request: Request<Full<Bytes>> = Request::post(format!("{}{path}", target.prefix))
            .header(HOST, &target.host)
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(wire::body(zone, token)))
            .map_err(|error| TargetError::Url { url: url.clone(), why: error.to_string() })?;
        let reply = pool.call(request, || {}).await;
        let reply = reply.map_err(|why| TargetError::Unreachable { url: url.clone(), why })?;
        match wire::read(reply.status, reply.retry_after.as_deref(), &reply.body) {
            Answer::Enter { .. } | Answer::NotYet { .. } => return Ok(()),
            Answer::Refused { code, .. } if code == "unknown_zone" => {
                return Err(TargetError::Zone { url, zone: zone.to_owned() });
            }
            Answer::Refused { status: 401, code, .. } if code == "bad_token" => return Ok(()),
            Answer::Refused { status: 503, code, .. } if code == "zone_closed" || code == "zone_full" => {
                return Ok(());
            }
            Answer::Gone if token.is_some() => {}
            Answer::Gone => last = format!("it answered 410 to {path}"),
            Answer::Refused { status, code, .. } => {
                last = format!("it answered {status} {code} to {path}").replace("  ", " ");
            }
            Answer::Invalid(_) => {
                last = format!("it answered 200 to {path}, but the body is not that of a waiting room");
            }
        }
    }
    Err(TargetError::Other { url, why: last })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;

    #[test]
    fn targets_are_read() {
        let target = parse("http://127.0.0.1:8080/room/").expect("a target");
        assert_eq!(target.address, "127.0.0.1:8080".parse().expect("a target"));
        assert_eq!((target.host.as_str(), target.prefix.as_str()), ("127.0.0.1:8080", "/room"));
        assert_eq!(parse("http://127.0.0.1").expect("a target").address.port(), 80);
        assert_eq!(
            parse("http://[::1]:81").expect("a target").address,
            "[::1]:81".parse().expect("a target")
        );
    }

    /// A room that refuses the first join is still a room.
    #[tokio::test]
    async fn a_closed_and_a_full_zone_are_waiting_rooms() {
        for (code, is_room) in [("zone_closed", true), ("zone_full", true), ("maintenance", false)] {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
            let address = listener.local_addr().expect("bound");
            let server = tokio::spawn(async move {
                // The first call asks for entry, and the second one for a place.
                let (mut socket, _) = listener.accept().await.expect("a connection");
                for (status, code) in [(410, "gone"), (503, code)] {
                    let mut request = Vec::new();
                    // The body is a JSON object, and the head has no brace.
                    while !request.ends_with(b"}") {
                        socket.read_buf(&mut request).await.expect("a request");
                    }
                    let body = format!(r#"{{"code":"{code}"}}"#);
                    let reply =
                        format!("HTTP/1.1 {status} x\r\ncontent-length: {}\r\n\r\n{body}", body.len());
                    socket.write_all(reply.as_bytes()).await.expect("taken");
                }
            });
            let url = format!("http://{address}");
            let checked = check(&url, &parse(&url).expect("a target"), "Z", &[]).await;
            assert_eq!(checked.is_ok(), is_room, "{code}: {checked:?}");
            server.await.expect("no panic");
        }
    }

    #[test]
    fn invalid_targets_are_refused_in_a_line() {
        for (url, why) in [
            ("https://a", "https"),
            ("127.0.0.1:80", "must begin with http://"),
            ("ftp://a", "must begin with http://"),
            ("http://", "--target http://"),
            ("http://u:secret@127.0.0.1", "credentials"),
            ("http://127.0.0.1/?a=b", "query"),
        ] {
            let said = parse(url).expect_err("refused").to_string();
            assert!(said.contains(why) && !said.contains('\n') && !said.contains("secret"), "{said}");
        }
    }
}
