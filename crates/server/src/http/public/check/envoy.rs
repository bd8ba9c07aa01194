//! The check in the words of Envoy's external authorization: the question of a `CheckRequest`, and the reply as a `CheckResponse`.
//!
//! The request of the visitor is in the message, as the proxy received it. Invariants: a reply is 200 here if and only if it is a yes
//! there. Headers with which other proxies describe a request say nothing here.

pub mod messages;

use check::host::{bare, is_https};
use hyper::{
    HeaderMap, Response, StatusCode,
    header::{CONNECTION, CONTENT_LENGTH, HeaderName, HeaderValue, SET_COOKIE, TRANSFER_ENCODING},
};

use self::messages::{
    AttributeContext, CheckRequest, CheckResponse, DeniedHttpResponse, HeaderAppendAction,
    HeaderValue as Pair, HeaderValueOption, HttpRequest, HttpResponse, HttpStatus, OkHttpResponse, Status,
};
use super::asked::{Asked, Wanted};
use crate::http::problem::{HEAD_TOO_LARGE, MISSING_FIELD, Problem};

/// The most header fields of a request. Envoy itself takes 100 unless it is told otherwise.
const MOST_FIELDS: usize = 1_000;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// gRPC's codes of a yes and a no (`google.rpc.Code`).
const OK: i32 = 0;
const PERMISSION_DENIED: i32 = 7;

/// A request of a visitor, as a proxy describes it in a message.
pub(super) struct Described<'a> {
    http: &'a HttpRequest,
    /// The header fields. The last address of `X-Forwarded-For` is that of the connection on which the proxy received the request.
    /// The proxy saw it itself, so a visitor cannot choose it.
    pub(super) headers: HeaderMap,
}

impl<'a> Described<'a> {
    /// # Errors
    /// The message describes no request.
    pub(super) fn of(request: &'a CheckRequest) -> Result<Self, Problem> {
        let described = request.attributes.as_ref();
        let http = described.and_then(|context| context.request.as_ref()?.http.as_ref());
        let http = http.filter(|http| !http.method.is_empty() && !http.path.is_empty());
        let missing = || "`attributes.request.http`: the proxy must say in it what its visitor asks for";
        let (Some(context), Some(http)) = (described, http) else {
            return Err(Problem::new(MISSING_FIELD, missing()));
        };
        let count = http.headers.len() + http.header_map.as_ref().map_or(0, |map| map.headers.len());
        if count > MOST_FIELDS {
            let what = format!("the head has {count} fields; send at most {MOST_FIELDS}");
            return Err(Problem::new(HEAD_TOO_LARGE, what));
        }
        let mut headers = HeaderMap::with_capacity(count + 1);
        let mut put = |name: &str, value: &[u8]| {
            // The pseudo-fields of HTTP/2 are no names of fields, and so they are left out here.
            if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_bytes(value)) {
                headers.append(name, value);
            }
        };
        for (name, value) in &http.headers {
            put(name, value.as_bytes());
        }
        // A proxy sends one of the two.
        for field in http.header_map.iter().flat_map(|map| &map.headers) {
            let value = if field.raw_value.is_empty() { field.value.as_bytes() } else { &field.raw_value };
            put(&field.key, value);
        }
        if let Some(source) = source(context) {
            headers.append(FORWARDED_FOR, source);
        }
        Ok(Self { http, headers })
    }

    /// The question.
    pub(super) fn asked(&self) -> Asked<'_> {
        let proto = self.headers.get("x-forwarded-proto").map(HeaderValue::as_bytes);
        Asked {
            wanted: Wanted::Reply,
            method: self.http.method.as_str().into(),
            host: bare(self.http.host.as_bytes()),
            target: self.http.path.as_bytes(),
            is_secure: is_https(proto.unwrap_or(self.http.scheme.as_bytes())),
        }
    }
}

/// The address from which the proxy received the request.
fn source(context: &AttributeContext) -> Option<HeaderValue> {
    let socket = context.source.as_ref()?.address.as_ref()?.socket_address.as_ref()?;
    HeaderValue::try_from(&socket.address).ok()
}

/// A reply as the proxy understands it. With a yes go the cookies; with a no go all of the reply.
#[must_use]
pub fn reply(response: &Response<impl AsRef<[u8]>>) -> CheckResponse {
    let (code, http) = if response.status() == StatusCode::OK {
        let cookies = response.headers().get_all(SET_COOKIE);
        let cookies = cookies.iter().map(|value| field(&SET_COOKIE, value, true)).collect();
        (
            OK,
            HttpResponse::OkResponse(OkHttpResponse {
                response_headers_to_add: cookies,
                ..Default::default()
            }),
        )
    } else {
        // The connection between visitor and proxy is the proxy's.
        let ours = [CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING];
        let fields = response.headers().iter().filter(|(name, _)| !ours.contains(name));
        let denied = DeniedHttpResponse {
            status: Some(HttpStatus { code: response.status().as_u16().into() }),
            headers: fields.map(|(name, value)| field(name, value, *name == SET_COOKIE)).collect(),
            body: String::from_utf8_lossy(response.body().as_ref()).into_owned(),
        };
        (PERMISSION_DENIED, HttpResponse::DeniedResponse(denied))
    };
    CheckResponse { status: Some(Status { code }), http_response: Some(http) }
}

/// A header field of a reply. `is_further`: beside those of the same name that the site sends.
fn field(name: &HeaderName, value: &HeaderValue, is_further: bool) -> HeaderValueOption {
    let (key, value) = (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned());
    let action = if is_further {
        HeaderAppendAction::AppendIfExistsOrAdd
    } else {
        HeaderAppendAction::OverwriteIfExistsOrAdd
    };
    HeaderValueOption {
        header: Some(Pair { key, value, ..Default::default() }),
        append_action: action.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use limiter::layer::client_address;

    use super::{
        messages::{Address, HeaderMap as Fields, Peer, Request, SocketAddress},
        *,
    };

    fn request(headers: &[(&str, &str)], source: Option<&str>) -> CheckRequest {
        let http = HttpRequest {
            method: "POST".to_owned(),
            path: "/sale?x=1".to_owned(),
            host: "Shop.Example:8443".to_owned(),
            scheme: "https".to_owned(),
            headers: headers.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect(),
            ..Default::default()
        };
        let address =
            |address: &str| Address { socket_address: Some(SocketAddress { address: address.to_owned() }) };
        let source = source.map(|text| Peer { address: Some(address(text)) });
        let request = Some(Request { http: Some(http) });
        CheckRequest { attributes: Some(AttributeContext { source, request }) }
    }

    #[test]
    fn the_message_describes_the_request_and_other_headers_do_not() {
        let forged = [
            (":path", "/other"),
            ("x-forwarded-uri", "/other"),
            ("x-forwarded-method", "OPTIONS"),
            ("x-forwarded-host", "other"),
            ("accept", "text/html"),
        ];
        let request = request(&forged, None);
        let described = Described::of(&request).expect("a request");
        let asked = described.asked();
        assert_eq!((asked.wanted, &*asked.method, &*asked.host), (Wanted::Reply, "POST", "shop.example"));
        assert_eq!((asked.target, asked.is_secure), (&b"/sale?x=1"[..], true));
        assert_eq!(described.headers["accept"], "text/html");
        assert!(!described.headers.keys().any(|name| name.as_str().starts_with(':')));
    }

    #[test]
    fn the_scheme_is_what_the_proxy_in_front_says() {
        let request = request(&[("x-forwarded-proto", "http")], None);
        assert!(!Described::of(&request).expect("a request").asked().is_secure);
    }

    #[test]
    fn fields_may_come_as_bytes() {
        let mut request = request(&[], None);
        let http =
            request.attributes.as_mut().and_then(|a| a.request.as_mut()?.http.as_mut()).expect("there");
        let field = |key: &str, raw: &[u8]| Pair {
            key: key.to_owned(),
            raw_value: raw.to_vec(),
            ..Default::default()
        };
        http.header_map = Some(Fields { headers: vec![field("cookie", b"a=1"), field("cookie", b"b=\xff")] });
        let described = Described::of(&request).expect("a request");
        let cookies: Vec<_> = described.headers.get_all("cookie").iter().map(HeaderValue::as_bytes).collect();
        assert_eq!(cookies, [&b"a=1"[..], b"b=\xff"]);
    }

    /// A map of header fields panics above 24,576 of them.
    #[test]
    fn a_message_with_too_many_fields_is_refused() {
        let names: Vec<_> = (0..30_000).map(|n| format!("x-{n}")).collect();
        for (count, expected) in
            [(MOST_FIELDS, None), (MOST_FIELDS + 1, Some(HEAD_TOO_LARGE)), (30_000, Some(HEAD_TOO_LARGE))]
        {
            let fields: Vec<_> = names[..count].iter().map(|name| (name.as_str(), "")).collect();
            assert_eq!(Described::of(&request(&fields, None)).err().map(|problem| problem.code), expected);
        }
        let mut request = request(&[], None);
        let http =
            request.attributes.as_mut().and_then(|a| a.request.as_mut()?.http.as_mut()).expect("there");
        let field = |name: &String| Pair { key: name.clone(), ..Default::default() };
        http.header_map = Some(Fields { headers: names.iter().map(field).collect() });
        assert_eq!(Described::of(&request).err().map(|problem| problem.code), Some(HEAD_TOO_LARGE));
    }

    #[test]
    fn a_message_without_a_request_is_refused() {
        let mut empty = request(&[], None);
        if let Some(http) = empty.attributes.as_mut().and_then(|a| a.request.as_mut()?.http.as_mut()) {
            http.path.clear();
        }
        for message in [CheckRequest::default(), empty] {
            assert_eq!(Described::of(&message).err().map(|problem| problem.code), Some(MISSING_FIELD));
        }
    }

    /// `X-Forwarded-For` counts only if the connection's own address is that of a proxy that the operator listed.
    #[test]
    fn a_visitor_cannot_choose_an_address() {
        let trusted: Vec<_> = ["10.0.0.0/8"].iter().map(|net| net.parse().expect("a network")).collect();
        let proxy: IpAddr = "10.0.0.1".parse().expect("an address");
        for (forwarded, source, client) in [
            (Some("192.0.2.9"), Some("203.0.113.7"), "203.0.113.7"),
            (Some("192.0.2.9, 10.0.0.9"), Some("203.0.113.7"), "203.0.113.7"),
            (None, Some("203.0.113.7"), "203.0.113.7"),
            // A load balancer in front of the proxy.
            (Some("192.0.2.9, 203.0.113.7"), Some("10.0.0.2"), "203.0.113.7"),
            (Some("203.0.113.7, 10.0.0.2"), Some("10.0.0.2"), "203.0.113.7"),
            (Some("203.0.113.7"), None, "203.0.113.7"),
            (Some("203.0.113.7"), Some("2001:db8::7"), "2001:db8::7"),
        ] {
            let headers: Vec<_> = forwarded.iter().map(|value| ("x-forwarded-for", *value)).collect();
            let request = request(&headers, source);
            let described = Described::of(&request).expect("a request");
            let found = client_address::client(proxy, &described.headers, &trusted).to_string();
            assert_eq!(found, client, "{forwarded:?} from {source:?}");
        }
    }

    fn pairs(fields: &[HeaderValueOption]) -> Vec<(&str, &str, i32)> {
        let pair = |field: &HeaderValueOption| field.header.as_ref().map(|_| ()).expect("a pair");
        fields.iter().for_each(pair);
        fields
            .iter()
            .filter_map(|field| {
                let header = field.header.as_ref()?;
                Some((header.key.as_str(), header.value.as_str(), field.append_action))
            })
            .collect()
    }

    #[test]
    fn a_yes_brings_the_cookies_and_nothing_else() {
        let response = Response::builder()
            .header("set-cookie", "a=1")
            .header("set-cookie", "b=2")
            .header("cache-control", "no-store")
            .body("")
            .expect("right");
        let reply = reply(&response);
        assert_eq!(reply.status.map(|status| status.code), Some(OK));
        let Some(HttpResponse::OkResponse(ok)) = reply.http_response else { panic!("a yes") };
        assert_eq!(pairs(&ok.response_headers_to_add), [("set-cookie", "a=1", 0), ("set-cookie", "b=2", 0)]);
        assert!(ok.headers.is_empty(), "the site hears nothing of it");
    }

    #[test]
    fn every_other_reply_is_a_no_with_all_of_it() {
        for status in [204, 303, 401, 403, 410, 429, 500, 503] {
            let response = Response::builder()
                .status(status)
                .header("content-type", "text/html")
                .header("connection", "close")
                .header("set-cookie", "a=1")
                .body("page")
                .expect("right");
            let reply = reply(&response);
            assert_eq!(reply.status.map(|status| status.code), Some(PERMISSION_DENIED));
            let Some(HttpResponse::DeniedResponse(denied)) = reply.http_response else { panic!("a no") };
            assert_eq!(denied.status.map(|status| status.code), Some(status.into()));
            assert_eq!(pairs(&denied.headers), [("content-type", "text/html", 2), ("set-cookie", "a=1", 0)]);
            assert_eq!(denied.body, "page");
        }
    }
}
