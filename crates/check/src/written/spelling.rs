//! Patterns of hosts and paths, in the spelling in which requests are compared.
//!
//! Invariant: what comes out of here is read again as it is. A pattern that no request can fit is refused, because a zone behind it
//! would let everybody through, and nobody would notice.

use std::net::{IpAddr, Ipv6Addr};

use admission::is_asked_for;
use ipnet::{IpNet, Ipv4Net};

use crate::readings::{as_windows_file, decoded_where};

/// The longest part of a host between two dots ([RFC 1035](https://www.rfc-editor.org/rfc/rfc1035#section-2.3.4)).
const MOST_LABEL: usize = 63;

/// A pattern of hosts as browsers send them: in lower case, without a last dot, in punycode.
///
/// # Errors
/// No request can have such a host.
pub(crate) fn host(text: &str) -> Result<String, String> {
    let wrong = |why: &str, instead: &str| Err(format!("`{text}`: {why}; write `{instead}`"));
    if let Some((_, behind)) = text.split_once("://") {
        let authority = behind.split(['/', '?', '#']).next().unwrap_or_default();
        let host = authority.rsplit('@').next().unwrap_or_default();
        let name = host.split(':').next().unwrap_or_default();
        return wrong(
            "a host has no scheme and no path",
            if name.is_empty() { "shop.example" } else { name },
        );
    }
    if let Some((name, _)) = text.split_once('/') {
        return wrong("a host has no slash and no path", if name.is_empty() { "shop.example" } else { name });
    }
    if let Some(address) = address(text) {
        return match address {
            Ok(address) => Ok(address),
            Err(address) => {
                wrong("is an address; brackets are around one, and no port is behind it", &address)
            }
        };
    }
    if let Some((name, _)) = text.split_once(':') {
        return wrong("hosts are compared without a port", if name.is_empty() { "*" } else { name });
    }
    if text.starts_with('.') && text.len() > 1 {
        return wrong("no host begins with a dot", &format!("*{text}"));
    }
    let mut labels = Vec::new();
    // These are dots to browsers, too.
    for label in text.split(['.', '\u{3002}', '\u{ff0e}', '\u{ff61}']) {
        if label.is_ascii() {
            labels.push(label.to_ascii_lowercase());
        } else if label.contains('*') {
            return wrong("browsers send this part in another form, so a * cannot be in it", "*");
        } else {
            let sent = idna::domain_to_ascii_strict(label);
            labels.push(sent.map_err(|_| format!("`{text}`: `{label}` is no part of a host; correct it"))?);
        }
    }
    while labels.len() > 1 && labels.last().is_some_and(String::is_empty) {
        labels.pop();
    }
    if labels.len() > 1 && labels.iter().any(String::is_empty) {
        let parts: Vec<_> = labels.iter().filter(|label| !label.is_empty()).map(String::as_str).collect();
        return wrong("no host has an empty part between two dots", &parts.join("."));
    }
    if let Some(label) = labels.iter().find(|label| label.len() > MOST_LABEL) {
        return Err(format!(
            "`{text}`: `{label}` has more than {MOST_LABEL} characters, and no host has such a part"
        ));
    }
    let host = labels.join(".");
    match host.chars().find(|c| !c.is_ascii_alphanumeric() && !"-._*".contains(*c)) {
        Some(other) => Err(format!(
            "`{text}`: no host has {other:?}; write a name as in `shop.example` or `*.shop.example`"
        )),
        // An empty host is that of requests without one.
        None if host.is_empty() || host.contains('*') || is_asked_for(&host) => Ok(host),
        None => Err(format!(
            "`{text}`: browsers ask for another host or for none; write a name as in `shop.example`, whose last part is no number, or an \
             address as in `192.0.2.7`"
        )),
    }
}

/// A pattern of the values of a header: without what no value has.
///
/// # Errors
/// No request can have such a value.
pub(super) fn header(text: &str) -> Result<(), String> {
    if text.chars().any(|c| c.is_control() && c != '\t') {
        return Err(format!("{text:?} has a control character, and no header has one; remove it"));
    }
    let trimmed = text.trim_matches([' ', '\t']);
    if trimmed.len() < text.len() {
        return Err(format!("{text:?}: no value begins or ends with a space; write `{trimmed}`"));
    }
    Ok(())
}

/// The same for the values of a cookie.
///
/// # Errors
/// No cookie can have such a value.
pub(super) fn cookie(text: &str) -> Result<(), String> {
    if let Some((before, _)) = text.split_once(';') {
        return Err(format!("`{text}`: a cookie ends at the first ; write `{before}`"));
    }
    header(text)
}

/// Whether a cookie can have this name ([RFC 6265](https://www.rfc-editor.org/rfc/rfc6265#section-4.1.1): a token).
pub(super) fn is_cookie_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_graphic() && !b"()<>@,;:\\\"/[]?={}".contains(&b))
}

/// An address with colons as browsers send it. `Err` has it if it was written in a way in which they do not.
fn address(text: &str) -> Option<Result<String, String>> {
    let (inside, is_sent) = match text.strip_prefix('[') {
        Some(behind) => {
            let (inside, rest) = behind.split_once(']')?;
            (inside, rest.is_empty())
        }
        None => (text, false),
    };
    let address = format!("[{}]", inside.parse::<Ipv6Addr>().ok()?);
    Some(if is_sent { Ok(address) } else { Err(address) })
}

/// A pattern of paths as routes see them: decoded, without a query.
///
/// # Errors
/// No request can have such a path.
pub(super) fn path(text: &str) -> Result<String, String> {
    let wrong = |why: &str, instead: &str| Err(format!("`{text}`: {why}; write `{instead}`"));
    if text.is_empty() {
        return Ok(String::new());
    }
    if !text.starts_with(['/', '*']) {
        return Err(format!("`{text}` is no path; a path begins with /"));
    }
    for (sign, why) in [
        ('?', "the query is no part of a path"),
        ('#', "no server gets what is behind a #"),
        (';', "some servers cut what is behind a ;"),
    ] {
        if let Some((before, _)) = text.split_once(sign) {
            return wrong(why, before);
        }
    }
    if text.contains('\\') {
        return wrong("a path is written with /", &text.replace('\\', "/"));
    }
    let decoded = decoded_where(text.as_bytes(), |_| true).unwrap_or_else(|| text.into());
    if let Some(at) = text.find('%').filter(|_| decoded.contains(&b'%')) {
        return wrong("no pattern can say a %", &format!("{}*", &text[..at]));
    }
    // What such a code stands for has another meaning in a path or in a pattern.
    if decoded_where(text.as_bytes(), |byte| b"/\\?#;*".contains(&byte))
        .is_some_and(|other| other != text.as_bytes())
    {
        return Err(format!(
            "`{text}`: servers differ about encoded / \\ ? # ; and *, so no pattern can say them; write a * in that place"
        ));
    }
    let path = String::from_utf8(decoded)
        .map_err(|_| format!("`{text}` is no UTF-8 when it is decoded; write the letters themselves"))?;
    if path.chars().any(char::is_control) {
        return Err(format!("{text:?} has a control character, and no path has one; remove it"));
    }
    if path.ends_with(' ') {
        return wrong("no path ends with a space", path.trim_end());
    }
    if path.contains("//") {
        return wrong("paths are compared without empty parts", &merged(&path));
    }
    if path.split('/').any(|part| matches!(part, "." | "..")) {
        return Err(format!(
            "`{text}`: paths are compared without `.` and `..`; write the path to which it leads"
        ));
    }
    if let Some(read) = as_windows_file(path.as_bytes()) {
        let read = merged(&String::from_utf8_lossy(&read));
        return wrong(
            "some servers drop dots and spaces at the end of a name, and what is behind a : if it has a $",
            &read,
        );
    }
    Ok(path)
}

fn merged(path: &str) -> String {
    let (mut path, mut before) = (path.to_owned(), None);
    path.retain(|c| before.replace(c) != Some('/') || c != '/');
    path
}

/// A network, or a single address, in the form in which clients' addresses are compared: IPv4 addresses within IPv6 are IPv4.
///
/// # Errors
/// What is wrong, and how to write one.
pub fn network(text: &str) -> Result<IpNet, String> {
    let net = text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    let net = net.map_err(|_| format!("`{text}` is not a network; write one as in 10.0.0.0/8"))?;
    let IpNet::V6(six) = net else { return Ok(net) };
    Ok(match (six.addr().to_canonical(), six.prefix_len().checked_sub(96)) {
        (IpAddr::V4(address), Some(len)) => Ipv4Net::new(address, len).map_or(net, IpNet::V4),
        _ => net,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{host::bare, readings::Readings};

    #[test]
    fn hosts_become_what_browsers_send() {
        for (written, sent) in [
            ("shop.example", "shop.example"),
            ("Shop.Example.", "shop.example"),
            ("*.shop.example", "*.shop.example"),
            ("*", "*"),
            ("shop*", "shop*"),
            ("쇼핑.example", "xn--hp4bo76a.example"),
            ("*.쇼핑.example.", "*.xn--hp4bo76a.example"),
            ("BÜCHER。example", "xn--bcher-kva.example"),
            ("a_b.example", "a_b.example"),
            ("127.0.0.1", "127.0.0.1"),
            ("[2001:DB8:0::1]", "[2001:db8::1]"),
        ] {
            assert_eq!(host(written).as_deref(), Ok(sent), "{written}");
        }
    }

    #[test]
    fn hosts_that_no_request_has_are_refused() {
        for (written, told) in [
            ("shop.example:8443", "without a port; write `shop.example`"),
            ("shop..example", "no host has an empty part between two dots; write `shop.example`"),
            ("*..example", "write `*.example`"),
            ("*:8443", "write `*`"),
            (":8443", "write `*`"),
            ("https://shop.example", "no scheme and no path; write `shop.example`"),
            ("https://shop.example:8443/a", "write `shop.example`"),
            ("https://u:p@shop.example:8443/a", "write `shop.example`"),
            ("shop.example/", "no slash and no path; write `shop.example`"),
            (".shop.example", "write `*.shop.example`"),
            ("쇼*.example", "a * cannot be in it; write `*`"),
            ("shop example", "no host has ' '"),
            ("shop.example,other.example", "no host has ','"),
            ("shop%2eexample", "no host has '%'"),
            ("[::1]:80", "write `[::1]`"),
            ("2001:db8::1", "write `[2001:db8::1]`"),
            ("a\u{0}.example", "no host has '\\0'"),
            ("0x7f.1", "ask for another host"),
            ("127.1", "ask for another host"),
            ("xn--a.jp", "for none"),
        ] {
            let wrong = host(written).expect_err(written);
            assert!(wrong.contains(told), "{written}: {wrong}");
        }
    }

    #[test]
    fn paths_become_what_routes_see() {
        for (written, seen) in [
            ("/checkout/*", "/checkout/*"),
            ("*.php", "*.php"),
            ("/caf%C3%A9/*", "/café/*"),
            ("/쇼핑", "/쇼핑"),
            ("/a%20b", "/a b"),
            ("/%63heckout", "/checkout"),
            ("/a/..b/.c/d..*", "/a/..b/.c/d..*"),
        ] {
            assert_eq!(path(written).as_deref(), Ok(seen), "{written}");
        }
    }

    #[test]
    fn paths_that_no_request_has_are_refused() {
        for (written, told) in [
            ("checkout", "a path begins with /"),
            ("https://shop.example/checkout", "a path begins with /"),
            ("/checkout?step=1", "the query is no part of a path; write `/checkout`"),
            ("/a#b", "write `/a`"),
            ("/a;b", "write `/a`"),
            ("/a\\b", "write `/a/b`"),
            ("//checkout", "write `/checkout`"),
            ("/a///b//c", "write `/a/b/c`"),
            ("/a/../b", "without `.` and `..`"),
            ("/a/%2e%2E/b", "without `.` and `..`"),
            ("/a/.", "without `.` and `..`"),
            ("/a%2fb", "write a * in that place"),
            ("/a%2A", "write a * in that place"),
            ("/a%3fb", "write a * in that place"),
            ("/100%", "write `/100*`"),
            ("/a%2563", "write `/a*`"),
            ("/a%ff", "is no UTF-8"),
            ("/a\tb", "control character"),
            ("/a%00b", "control character"),
            ("/a%20", "write `/a`"),
            ("/a./b", "at the end of a name, and what is behind a : if it has a $; write `/a/b`"),
            ("/a%20/b", "write `/a/b`"),
            ("/a/.../b..", "write `/a/b`"),
            ("/a::$DATA/*", "write `/a/*`"),
        ] {
            let wrong = path(written).expect_err(written);
            assert!(wrong.contains(told), "{written}: {wrong}");
        }
    }

    #[test]
    fn networks_of_ipv4_are_ipv4() {
        for (written, compared) in [
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
            ("::ffff:0:0/90", "::ffff:0.0.0.0/90"),
            ("::ffff:10.1.2.3", "10.1.2.3/32"),
            ("2001:db8::/32", "2001:db8::/32"),
        ] {
            assert_eq!(network(written).expect("a network").to_string(), compared);
        }
    }

    proptest! {
        /// A pattern without a star is the path of a request: the one that a client sends for it.
        #[test]
        fn every_path_that_is_taken_can_be_asked_for(written in "/[a-z%2fF5cC;./\\\\é?#:$ *]{0,16}") {
            if let Ok(taken) = path(&written) {
                prop_assert_eq!(path(&taken), Ok(taken.clone()), "it is read again as it is");
                let Readings::One(read) = Readings::of(taken.as_bytes()) else {
                    return Err(TestCaseError::fail(format!("{taken} has several readings")));
                };
                prop_assert_eq!((&*read.text, read.is_plain), (&*taken, true));
            }
        }

        #[test]
        fn every_host_that_is_taken_can_be_asked_for(written in "[a-zA-Z0-9쇼é.:/*_\\[\\]-]{0,12}") {
            if let Ok(taken) = host(&written) {
                prop_assert_eq!(host(&taken), Ok(taken.clone()), "it is read again as it is");
                prop_assert_eq!(bare(taken.as_bytes()), taken.as_str());
            }
        }
    }
}
