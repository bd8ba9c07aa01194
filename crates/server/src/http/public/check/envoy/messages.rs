//! The messages of `envoy.service.auth.v3.Authorization/Check`, with the fields that the check reads and writes.
//!
//! Source: `envoy/service/auth/v3/external_auth.proto` and `attribute_context.proto`, and what they import. A field that is not here
//! is skipped when a message is read. The whole of Envoy's API took 40 s to compile.
//! Invariant: names, numbers and types are those of the `.proto` files; the tests compare bytes that another library wrote.

use std::collections::HashMap;

use prost::{Enumeration, Message, Oneof};

/// A proxy's question.
#[derive(Clone, PartialEq, Message)]
pub struct CheckRequest {
    /// What it asks about.
    #[prost(message, optional, tag = "1")]
    pub attributes: Option<AttributeContext>,
}

/// A request, and where it comes from.
#[derive(Clone, PartialEq, Message)]
pub struct AttributeContext {
    /// The other end of the connection on which the proxy received the request.
    #[prost(message, optional, tag = "1")]
    pub source: Option<Peer>,
    /// The request.
    #[prost(message, optional, tag = "4")]
    pub request: Option<Request>,
}

/// One end of a connection.
#[derive(Clone, PartialEq, Message)]
pub struct Peer {
    /// Its address.
    #[prost(message, optional, tag = "1")]
    pub address: Option<Address>,
}

/// An address.
#[derive(Clone, PartialEq, Message)]
pub struct Address {
    /// An address of a network. There are other kinds, which say nothing of a visitor.
    #[prost(message, optional, tag = "1")]
    pub socket_address: Option<SocketAddress>,
}

/// An address of a network.
#[derive(Clone, PartialEq, Message)]
pub struct SocketAddress {
    /// The IP address, as text.
    #[prost(string, tag = "2")]
    pub address: String,
}

/// A request of any protocol.
#[derive(Clone, PartialEq, Message)]
pub struct Request {
    /// A request of HTTP.
    #[prost(message, optional, tag = "2")]
    pub http: Option<HttpRequest>,
}

/// A request of HTTP.
#[derive(Clone, PartialEq, Message)]
pub struct HttpRequest {
    /// The method, in capital letters.
    #[prost(string, tag = "2")]
    pub method: String,
    /// The header fields by their names in small letters; values of the same name are joined by commas.
    #[prost(map = "string, string", tag = "3")]
    pub headers: HashMap<String, String>,
    /// The header fields as they came, in place of `headers`, if the proxy is set to `encode_raw_headers`.
    #[prost(message, optional, tag = "13")]
    pub header_map: Option<HeaderMap>,
    /// The target: path and query.
    #[prost(string, tag = "4")]
    pub path: String,
    /// `Host` or `:authority`.
    #[prost(string, tag = "5")]
    pub host: String,
    /// `http` or `https`.
    #[prost(string, tag = "6")]
    pub scheme: String,
}

/// Header fields, in order.
#[derive(Clone, PartialEq, Message)]
pub struct HeaderMap {
    /// The fields.
    #[prost(message, repeated, tag = "1")]
    pub headers: Vec<HeaderValue>,
}

/// A header field. It has one of the two values.
#[derive(Clone, PartialEq, Message)]
pub struct HeaderValue {
    /// Its name.
    #[prost(string, tag = "1")]
    pub key: String,
    /// Its value, if that is text.
    #[prost(string, tag = "2")]
    pub value: String,
    /// Its value as bytes.
    #[prost(bytes = "vec", tag = "3")]
    pub raw_value: Vec<u8>,
}

/// The reply to a proxy.
#[derive(Clone, PartialEq, Message)]
pub struct CheckResponse {
    /// A yes (0) or a no.
    #[prost(message, optional, tag = "1")]
    pub status: Option<Status>,
    /// What goes with it.
    #[prost(oneof = "HttpResponse", tags = "2, 3")]
    pub http_response: Option<HttpResponse>,
}

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, Message)]
pub struct Status {
    /// A `google.rpc.Code`.
    #[prost(int32, tag = "1")]
    pub code: i32,
}

/// What goes with a reply.
#[derive(Clone, PartialEq, Oneof)]
pub enum HttpResponse {
    /// With a no: the visitor's reply.
    #[prost(message, tag = "2")]
    DeniedResponse(DeniedHttpResponse),
    /// With a yes.
    #[prost(message, tag = "3")]
    OkResponse(OkHttpResponse),
}

/// The reply that a visitor gets.
#[derive(Clone, PartialEq, Message)]
pub struct DeniedHttpResponse {
    /// Its status; without one, 403.
    #[prost(message, optional, tag = "1")]
    pub status: Option<HttpStatus>,
    /// Its header fields.
    #[prost(message, repeated, tag = "2")]
    pub headers: Vec<HeaderValueOption>,
    /// Its body.
    #[prost(string, tag = "3")]
    pub body: String,
}

/// A status of HTTP.
#[derive(Clone, PartialEq, Message)]
pub struct HttpStatus {
    /// An enumeration in the `.proto` file, with the statuses' own numbers.
    #[prost(int32, tag = "1")]
    pub code: i32,
}

/// What changes in a request that goes on, and in its reply.
#[derive(Clone, PartialEq, Message)]
pub struct OkHttpResponse {
    /// Header fields that the site gets.
    #[prost(message, repeated, tag = "2")]
    pub headers: Vec<HeaderValueOption>,
    /// Header fields that the visitor gets beside those of the site.
    #[prost(message, repeated, tag = "6")]
    pub response_headers_to_add: Vec<HeaderValueOption>,
}

/// A header field, and what becomes of those of the same name.
#[derive(Clone, PartialEq, Message)]
pub struct HeaderValueOption {
    /// The field.
    #[prost(message, optional, tag = "1")]
    pub header: Option<HeaderValue>,
    /// What becomes of the others.
    #[prost(enumeration = "HeaderAppendAction", tag = "3")]
    pub append_action: i32,
}

/// What becomes of other header fields of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum HeaderAppendAction {
    /// They stay.
    AppendIfExistsOrAdd = 0,
    /// They are replaced.
    OverwriteIfExistsOrAdd = 2,
}

#[cfg(test)]
mod tests {
    use super::*;

    // Written by the library `envoy-types` 0.7.7, which is made from the `.proto` files. All fields of HTTP requests are in it.
    const REQUEST: &str = "0ae2010a260a130a11120b3230332e302e3131332e3718c0b8021201731a060a016b1201762201702a01631226\
        0a130a11120b3230332e302e3131332e3718c0b8021201731a060a016b1201762201702a016322780a040801100212700a01371204504f53541a080a\
        03782d6112013122092f73616c653f783d312a0c73686f702e6578616d706c65320568747470733a03783d3142016648ffffffffffffffffff015206\
        485454502f325a0162620201026a190a0d0a06636f6f6b69651a03623dff0a080a03782d6212013252060a0165120178620e0a0c73686f702e657861\
        6d706c65";
    const OVER_A_PIPE: &str = "0a180a0a0a0812060a022f701001220a1208120347455422012f";
    const YES: &str = "0a001a2332130a110a0a7365742d636f6f6b69651203613d31320c0a080a03782d611201321802";
    const NO: &str = "0a02080712370a0308af0212150a110a086c6f636174696f6e12052f77616974180212130a110a0a7365742d636f6f6b\
        69651203613d311a0470616765";

    fn bytes(hex: &str) -> Vec<u8> {
        let pairs = hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).expect("digits"));
        pairs.map(|pair| u8::from_str_radix(pair, 16).expect("a byte")).collect()
    }

    fn pair(key: &str, value: &str, raw: &[u8]) -> HeaderValue {
        HeaderValue { key: key.to_owned(), value: value.to_owned(), raw_value: raw.to_vec() }
    }

    #[test]
    fn a_request_of_another_library_is_read() {
        let read = CheckRequest::decode(&bytes(REQUEST)[..]).expect("a message").attributes.expect("there");
        let address = read.source.expect("a source").address.expect("an address").socket_address;
        assert_eq!(address, Some(SocketAddress { address: "203.0.113.7".to_owned() }));
        let expected = HttpRequest {
            method: "POST".to_owned(),
            headers: HashMap::from([("x-a".to_owned(), "1".to_owned())]),
            header_map: Some(HeaderMap {
                headers: vec![pair("cookie", "", b"b=\xff"), pair("x-b", "2", b"")],
            }),
            path: "/sale?x=1".to_owned(),
            host: "shop.example".to_owned(),
            scheme: "https".to_owned(),
        };
        assert_eq!(read.request.expect("a request").http, Some(expected));
        let read = CheckRequest::decode(&bytes(OVER_A_PIPE)[..]).expect("a message").attributes;
        let address = read.expect("there").source.expect("a source").address.expect("an address");
        assert_eq!(address.socket_address, None);
    }

    #[test]
    fn replies_are_the_bytes_of_another_library() {
        let field = |key, value, action: HeaderAppendAction| HeaderValueOption {
            header: Some(pair(key, value, b"")),
            append_action: action.into(),
        };
        let (stay, replaced) =
            (HeaderAppendAction::AppendIfExistsOrAdd, HeaderAppendAction::OverwriteIfExistsOrAdd);
        let yes = OkHttpResponse {
            response_headers_to_add: vec![field("set-cookie", "a=1", stay), field("x-a", "2", replaced)],
            ..Default::default()
        };
        let no = DeniedHttpResponse {
            status: Some(HttpStatus { code: 303 }),
            headers: vec![field("location", "/wait", replaced), field("set-cookie", "a=1", stay)],
            body: "page".to_owned(),
        };
        for (code, response, expected) in
            [(0, HttpResponse::OkResponse(yes), YES), (7, HttpResponse::DeniedResponse(no), NO)]
        {
            let reply = CheckResponse { status: Some(Status { code }), http_response: Some(response) };
            assert_eq!(reply.encode_to_vec(), bytes(expected));
            assert_eq!(CheckResponse::decode(&bytes(expected)[..]), Ok(reply));
        }
    }
}
