//! The target: its address, and how to call it.

use std::{
    net::{IpAddr, SocketAddr, ToSocketAddrs as _},
    str::FromStr,
};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    HeaderMap, Request, Uri,
    header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderName, HeaderValue, TRANSFER_ENCODING},
};
use serde::{Deserialize, Serialize};
use shown::without_secrets;
use thiserror::Error;

use crate::tls::{Tls, Trust};

/// The headers that the generator sets itself.
const OWN_HEADERS: [HeaderName; 5] = [HOST, CONTENT_TYPE, CONTENT_LENGTH, CONNECTION, TRANSFER_ENCODING];

/// A waiting room, and how to call it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The socket address.
    pub address: SocketAddr,
    /// The header `Host`.
    pub host: String,
    /// The prefix of the paths; empty, or begins with `/`.
    pub prefix: String,
    /// How the server proves who it is; none for `http`.
    pub tls: Option<Tls>,
    /// Calls go over HTTP/2.
    pub http2: bool,
    /// Further headers of each call: names and values. They may be secret.
    pub more_headers: Vec<(String, String)>,
}

impl Target {
    /// Scheme and host.
    #[must_use]
    pub fn origin(&self) -> Uri {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        // The host is that of an address that was read.
        Uri::builder()
            .scheme(scheme)
            .authority(self.host.as_str())
            .path_and_query("/")
            .build()
            .unwrap_or_default()
    }

    /// A call that posts a body to a path.
    ///
    /// # Errors
    /// As [`Target::headers`], or if the path is none.
    pub fn post(&self, path: &str, body: Bytes) -> Result<Request<Full<Bytes>>, String> {
        let request = Request::post(format!("{}{path}", self.prefix)).body(Full::new(body));
        let mut request = request.map_err(|error| error.to_string())?;
        *request.headers_mut() = self.headers()?;
        Ok(request)
    }

    /// A call that gets a path, which may have a query.
    ///
    /// # Errors
    /// As [`Target::post`].
    pub fn get(&self, path: &str) -> Result<Request<Full<Bytes>>, String> {
        let request = Request::get(format!("{}{path}", self.prefix)).body(Full::default());
        let mut request = request.map_err(|error| error.to_string())?;
        *request.headers_mut() = self.headers()?;
        request.headers_mut().remove(CONTENT_TYPE);
        Ok(request)
    }

    /// The headers of each call.
    ///
    /// # Errors
    /// If one is not a header, or the generator sets it itself. The text has no value, because values may be secret.
    pub fn headers(&self) -> Result<HeaderMap, String> {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.more_headers {
            let known: HeaderName = name.parse().map_err(|_| {
                // What follows a space may be a secret before a colon of its own.
                let word = name.split_whitespace().next().unwrap_or_default();
                format!("--header {word}: is not a name")
            })?;
            if OWN_HEADERS.contains(&known) {
                return Err(format!("--header {name}: the generator sets it itself"));
            }
            let mut value: HeaderValue =
                value.parse().map_err(|_| format!("--header {name}: its value is not allowed"))?;
            value.set_sensitive(true);
            headers.append(known, value);
        }
        let host = self.host.parse().map_err(|_| format!("{}: is not a host", self.host))?;
        headers.insert(HOST, host);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(headers)
    }
}

/// What the command line says about the way to the target.
#[derive(Clone, Debug, Default)]
pub struct Way {
    /// Whom to believe that an `https` server is the one.
    pub trust: Trust,
    /// Addresses of hosts, in place of those that the system knows.
    pub resolve: Vec<Resolved>,
    /// Further headers of each call.
    pub headers: Vec<(String, String)>,
    /// Calls go over HTTP/2.
    pub http2: bool,
}

/// The address of a host and port, as `--resolve` gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    host: String,
    port: u16,
    address: IpAddr,
}

impl FromStr for Resolved {
    type Err = String;

    /// Reads `HOST:PORT:ADDRESS`.
    fn from_str(text: &str) -> Result<Self, String> {
        let read = || {
            let (host, rest) = text.split_once(':')?;
            let (port, address) = rest.split_once(':')?;
            let address = address.trim_start_matches('[').trim_end_matches(']');
            Some(Self { host: host.to_owned(), port: port.parse().ok()?, address: address.parse().ok()? })
        };
        read().filter(|read| !read.host.is_empty()).ok_or_else(|| "write HOST:PORT:ADDRESS".to_owned())
    }
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
    /// The way to the target is invalid.
    #[error("{0}")]
    Way(String),
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
    /// The server does not speak HTTP/2 without encryption.
    #[error("{url} did not answer over HTTP/2 ({why}); leave --http2 out if it speaks HTTP/1.1 only")]
    NoHttp2 {
        /// The target.
        url: String,
        /// The evidence.
        why: String,
    },
    /// The waiting room has no streams.
    #[error("{url} has no streams of events, so --stream-share must be left out: {why}")]
    NoStreams {
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

const NO_HOST: &str = "no such host; correct the name, or give its address with --resolve HOST:PORT:ADDRESS";

/// Reads `url` and resolves its host.
///
/// # Errors
/// If it is not of the form `http[s]://HOST[:PORT][/PATH]`, the host is unknown, or a header is invalid.
pub fn parse(url: &str, way: &Way) -> Result<Target, TargetError> {
    let wrong = |why: &str| TargetError::Url { url: without_secrets(url), why: why.to_owned() };
    if url.contains('#') {
        return Err(wrong("must have no fragment"));
    }
    let uri: Uri = url.parse().map_err(|error| wrong(&format!("{error}")))?;
    let is_encrypted = match uri.scheme_str() {
        Some("http") => false,
        Some("https") => true,
        _ if !url.contains("://") && !url.contains('@') => {
            let shown = without_secrets(url);
            return Err(wrong(&format!("must begin with http:// or https://; write http://{shown}")));
        }
        _ => return Err(wrong("must begin with http:// or https://")),
    };
    let authority = uri.authority().ok_or_else(|| wrong("has no host"))?;
    if authority.as_str().contains('@') {
        return Err(wrong("credentials are not sent; use --header"));
    }
    if uri.query().is_some() {
        return Err(wrong("must have no query"));
    }
    if !is_encrypted && way.trust != Trust::System {
        return Err(wrong("--ca and --insecure are for https://"));
    }
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    let port = authority.port_u16().unwrap_or(if is_encrypted { 443 } else { 80 });
    let is_here = |known: &&Resolved| known.host.eq_ignore_ascii_case(host) && known.port == port;
    let address = match way.resolve.iter().find(is_here) {
        Some(known) => SocketAddr::new(known.address, port),
        None if !way.resolve.is_empty() => {
            return Err(wrong(&format!("--resolve must begin with {host}:{port}")));
        }
        None => (host, port)
            .to_socket_addrs()
            .map_err(|_| wrong(NO_HOST))?
            .next()
            .ok_or_else(|| wrong(NO_HOST))?,
    };
    let target = Target {
        address,
        host: authority.as_str().to_owned(),
        prefix: uri.path().trim_end_matches('/').to_owned(),
        http2: way.http2,
        tls: is_encrypted.then(|| Tls { name: host.to_owned(), trust: way.trust.clone() }),
        more_headers: way.headers.clone(),
    };
    target.headers().map_err(TargetError::Way)?;
    Ok(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read() {
        let target = parse("http://127.0.0.1:8080/room/", &Way::default()).expect("a target");
        assert_eq!(target.address, "127.0.0.1:8080".parse().expect("a target"));
        assert_eq!((target.host.as_str(), target.prefix.as_str()), ("127.0.0.1:8080", "/room"));
        assert_eq!(parse("http://127.0.0.1", &Way::default()).expect("a target").address.port(), 80);
        assert_eq!(
            parse("http://[::1]:81", &Way::default()).expect("a target").address,
            "[::1]:81".parse().expect("a target")
        );
    }

    #[test]
    fn the_way_to_a_target_is_read() {
        let resolve = |text: &str| vec![text.parse().expect("an address")];
        let way = Way { resolve: resolve("shop.example:443:[::1]"), ..Way::default() };
        let target = parse("https://shop.example", &way).expect("a target");
        assert_eq!(target.address, "[::1]:443".parse().expect("an address"));
        assert_eq!(target.tls.expect("encrypted").name, "shop.example");
        let said = parse("https://other.example", &way).expect_err("refused").to_string();
        assert!(said.contains("--resolve must begin with other.example:443"), "{said}");
        for wrong in
            ["shop.example", "shop.example:443", "shop.example:443:x", ":443:127.0.0.1", "a:99999:127.0.0.1"]
        {
            assert!(wrong.parse::<Resolved>().is_err(), "{wrong}");
        }
        let way = Way { trust: Trust::Anybody, ..Way::default() };
        assert!(parse("http://127.0.0.1", &way).expect_err("refused").to_string().contains("--insecure"));
        for (name, value) in [("host", "a"), ("Content-Length", "1"), ("a secret", "c"), ("x", "secret\n")] {
            let way = Way { headers: vec![(name.to_owned(), value.to_owned())], ..Way::default() };
            let said = parse("http://127.0.0.1", &way).expect_err("refused").to_string();
            let word = name.split(' ').next().unwrap_or_default();
            assert!(said.contains(&format!("--header {word}: ")) && !said.contains("secret"), "{said}");
        }
    }

    #[test]
    fn invalid_targets_are_refused_in_a_line() {
        for (url, why) in [
            ("127.0.0.1:80", "must begin with http:// or https://; write http://127.0.0.1:80"),
            ("localhost:8080", "; write http://localhost:8080"),
            ("ftp://a", "must begin with http:// or https://"),
            ("http://", "--target http://"),
            ("http://u:secret@127.0.0.1", "credentials"),
            ("http://127.0.0.1/?a=secret", "query"),
            ("http://127.0.0.1/#secret", "fragment"),
            ("htps://u:secret@127.0.0.1", "must begin with"),
            ("u:secret@127.0.0.1", "--target …@127.0.0.1"),
            ("https://u s:secret@127.0.0.1", "--target https://…@127.0.0.1"),
            ("http://u:secret?secret@127.0.0.1", "--target http://…@127.0.0.1"),
            ("127.0.0.1:80?a=secret", "--target 127.0.0.1:80: "),
            ("/?a=secret", "; write http:///"),
        ] {
            let said = parse(url, &Way::default()).expect_err("refused").to_string();
            assert!(said.contains(why) && !said.contains('\n') && !said.contains("secret"), "{said}");
        }
    }
}
