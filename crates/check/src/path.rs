//! The path that routes are matched with.
//!
//! A service may read a path in another way than Weir: `/%63heckout`, `//checkout`, `/x/../checkout`, `/checkout;a` and
//! `\checkout` lead to `/checkout` in many of them. So routes see the path as the most generous reader does. Invariant: a rule that
//! lets people through uses a path only if it is written in the plain way, so that no spelling gets around the line.

use std::borrow::Cow;

/// A path without its query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutePath<'a> {
    /// As routes see it. Starts with `/`.
    pub normal: Cow<'a, str>,
    /// Whether that is how it was written.
    pub is_plain: bool,
}

impl<'a> RoutePath<'a> {
    /// Reads the target of a request, with or without a query: `/path`, `https://host/path`, or `*`.
    #[must_use]
    pub fn of(target: &'a str) -> Self {
        let written = path_of(target);
        if is_plain(written) {
            return Self { normal: Cow::Borrowed(written), is_plain: true };
        }
        Self { normal: Cow::Owned(normalize(written)), is_plain: false }
    }
}

/// The part of a target behind its host: the path and the query, as they were written.
#[must_use]
pub fn behind_host(target: &[u8]) -> &[u8] {
    match target.windows(3).position(|part| part == b"://") {
        Some(at) if target[..at].iter().all(u8::is_ascii_alphabetic) => {
            let rest = &target[at + 3..];
            rest.iter().position(|b| b"/?#".contains(b)).map_or(&[], |at| &rest[at..])
        }
        _ => target,
    }
}

/// The part of a target that is its path, as it was written.
fn path_of(target: &str) -> &str {
    // What is cut off ends with an ASCII character.
    let path = &target[target.len() - behind_host(target.as_bytes()).len()..];
    &path[..path.find(['?', '#']).unwrap_or(path.len())]
}

fn is_plain(path: &str) -> bool {
    let is_dots = |segment: &str| segment == "." || segment == "..";
    path.starts_with('/')
        && path.bytes().all(|b| b.is_ascii_graphic() && !b"%;\\".contains(&b))
        && !path.contains("//")
        && !path.split('/').any(is_dots)
}

fn normalize(path: &str) -> String {
    let decoded = percent_decoded(path);
    let text = String::from_utf8_lossy(&decoded).replace('\\', "/");
    let mut kept: Vec<&str> = Vec::new();
    for segment in text.split('/') {
        // Some services take what follows a `;` for parameters.
        match segment.split(';').next().unwrap_or_default() {
            "" | "." => {}
            ".." => {
                kept.pop();
            }
            name => kept.push(name),
        }
    }
    let mut normal = format!("/{}", kept.join("/"));
    if normal.len() > 1 && text.ends_with('/') {
        normal.push('/');
    }
    normal
}

/// Decodes `%XX` once. What is no valid code stays.
fn percent_decoded(text: &str) -> Vec<u8> {
    let (bytes, mut out, mut at) = (text.as_bytes(), Vec::with_capacity(text.len()), 0);
    let digit = |b: u8| char::from(b).to_digit(16).and_then(|d| u8::try_from(d).ok());
    while let Some(&byte) = bytes.get(at) {
        let code = (byte == b'%')
            .then(|| Some(16 * digit(*bytes.get(at + 1)?)? + digit(*bytes.get(at + 2)?)?))
            .flatten();
        out.push(code.unwrap_or(byte));
        at += if code.is_some() { 3 } else { 1 };
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn plain_paths_stay() {
        for path in ["/", "/checkout", "/a/b.css", "/a/", "/a.b/..c/~d-e_f"] {
            assert_eq!(RoutePath::of(path), RoutePath { normal: path.into(), is_plain: true });
            assert_eq!(RoutePath::of(&format!("{path}?q=/x//../y")).normal, path);
            assert_eq!(RoutePath::of(&format!("https://shop.example{path}?q")).normal, path);
        }
    }

    #[test]
    fn other_spellings_lead_to_the_plain_one() {
        for (written, plain) in [
            ("/%63heckout", "/checkout"),
            ("//checkout", "/checkout"),
            ("/x/../checkout", "/checkout"),
            ("/./checkout", "/checkout"),
            ("/checkout;jsessionid=1", "/checkout"),
            ("/checkout%3bx", "/checkout"),
            ("/a;b/checkout/", "/a/checkout/"),
            ("\\checkout", "/checkout"),
            ("/%2fcheckout", "/checkout"),
            ("/%5c..%5ccheckout", "/checkout"),
            ("/../../checkout", "/checkout"),
            ("/%c3%a9t%C3%A9", "/été"),
            ("/100%", "/100%"),
            ("/%zz%4", "/%zz%4"),
            ("*", "/*"),
            ("", "/"),
            ("http://shop.example", "/"),
            ("http://shop.example?x", "/"),
        ] {
            let path = RoutePath::of(written);
            assert_eq!((path.normal.as_ref(), path.is_plain), (plain, false), "{written}");
        }
    }

    proptest! {
        #[test]
        fn a_path_is_plain_only_if_normalizing_changes_nothing(path in "[a-z%2fF5cC;./\\\\é?#:]{0,24}") {
            let read = RoutePath::of(&path);
            prop_assert!(read.normal.starts_with('/'));
            if read.is_plain {
                prop_assert_eq!(normalize(&read.normal), read.normal.to_string());
                prop_assert!(path.contains(read.normal.as_ref()));
            }
        }
    }
}
