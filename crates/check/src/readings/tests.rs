//! Known spellings, and servers whose readings are inverted.

use super::*;

fn texts(target: &[u8]) -> Vec<String> {
    Readings::of(target).all().iter().map(|path| path.text.to_string()).collect()
}

/// What a step makes of a path, in the form of readings.
fn applied(step: Step, path: &[u8]) -> Vec<u8> {
    let new = step(path).unwrap_or_else(|| path.to_vec());
    unescaped(&new).unwrap_or(new)
}

#[test]
fn settled_paths_have_one_reading() {
    for (target, path) in [
        ("/", "/"),
        ("/checkout", "/checkout"),
        ("/a.b/..c/~d-e_f/", "/a.b/..c/~d-e_f/"),
        ("/a:b@c,d=e&f$g+h!i'(j)*", "/a:b@c,d=e&f$g+h!i'(j)*"),
        ("/a?q=/x//../y;z%2f", "/a"),
        ("https://shop.example/checkout?q", "/checkout"),
        ("https://shop.example:8443", "/"),
        ("https://[2001:db8::1]:8443?x=/", "/"),
        ("", "/"),
        // What a browser has to encode.
        ("/%EC%87%BC%ED%95%91/%20%22%7c", "/쇼핑/ \"|"),
        ("/caf%c3%A9", "/café"),
        ("/caf\u{e9}", "/café"),
    ] {
        let one = RoutePath { text: path.into(), is_plain: true };
        assert_eq!(Readings::of(target.as_bytes()), Readings::One(one), "{target}");
        assert!(STEPS.iter().all(|step| applied(*step, path.as_bytes()) == path.as_bytes()), "{target}");
    }
}

#[test]
fn a_path_that_all_read_alike_may_still_not_be_plain() {
    for target in [&b"/100%"[..], b"/%zz%4", b"/a\xff", b"/a%FF"] {
        let Readings::One(path) = Readings::of(target) else { panic!("{target:?}: one reading") };
        assert!(!path.is_plain, "{target:?}");
    }
}

#[test]
fn known_spellings_are_read_as_the_path_that_they_lead_to() {
    for target in [
        "//x/checkout/1",
        "/%u0063heckout/1",
        "/checkout%u002f1",
        "/%25u0063heckout%U002F1",
        "/\\x/checkout/1",
        "\\\\x\\checkout\\1",
        "\\/x/checkout/1",
        "///x/checkout/1",
        "//x//y/checkout/1",
        "//user@x:80/checkout/1",
        "/%2fx/checkout/1",
        "/./\\x/checkout/1",
        "http:/checkout/1",
        "http:checkout/1",
        "checkout/1",
        "http:///x/checkout/1",
        "http:\\\\x\\checkout/1",
        "http://x\\checkout/1",
        "http://u:p@x/checkout/1",
        "http://x#/../checkout/1",
        "custom+scheme://x/checkout/1",
        "/%63heckout/1",
        "/checkout%2f1",
        "/checkout%5c1",
        "/checkout\\1",
        "/%2563heckout/1",
        "/%252563heckout/%2531",
        "/%25%36%33heckout/1",
        "//checkout/1",
        "/checkout//1",
        "/checkout/./1",
        "/checkout/%2e/1",
        "/x/../checkout/1",
        "/x/%2e%2E/checkout/1",
        "/x/.%252e/checkout/1",
        "/x//../checkout/1",
        "/x//../../checkout/1",
        "/../../checkout/1",
        "/x/..;/checkout/1",
        "/x/..;a=b/checkout/1",
        "/checkout;a/1;b",
        "/;a/checkout/1",
        "/checkout%3ba/1",
        "/checkout/1%3fx",
        "/checkout/1%23x",
        "/checkout/1#x",
        "/checkout/1;x/y",
        "/checkout/1%00.css",
        "/x#/../checkout/1",
        "/check%09out/1",
        "/checkout/1%20",
        "/checkout/1%2f..%2f1",
        "/checkout%c0%af1",
        "/x/%c0%ae%c0%ae/checkout/1",
        "/x/%e0%80%ae./checkout/1",
        "/x/%c1%9c..%c1%9ccheckout/1",
        "/checkout./1",
        "/checkout.../1. .",
        "/checkout%20/1%20%2e",
        "/checkout /1",
        "/checkout::$DATA/1::$data",
        "/checkout:$I30:$INDEX_ALLOCATION/1.%3A%3A%24DATA",
        "/x/..%20/checkout/1",
        "/x/.. ./../checkout/1.;a",
    ] {
        let read = texts(target.as_bytes());
        assert!(read.contains(&"/checkout/1".to_owned()), "{target}: {read:?}");
    }
}

#[test]
fn a_name_of_windows_keeps_its_inner_dots_and_the_steps_their_meaning() {
    for (path, read) in [
        ("/a.b/.c/d e", "/a.b/.c/d e"),
        ("/a/./b/../c", "/a/./b/../c"),
        ("/a/. /b/..  /c", "/a/./b/../c"),
        ("/a./b. ./c .", "/a/b/c"),
        ("/.../a", "//a"),
        ("/a:b/c:$d:$e/f::$DATA", "/a:b/c/f"),
    ] {
        let step = as_windows_file(path.as_bytes()).unwrap_or_else(|| path.into());
        assert_eq!(String::from_utf8(step).expect("text"), read, "{path}");
    }
}

#[test]
fn every_reading_is_kept_beside_the_path_as_it_was_written() {
    let expected = ["/checkout/..%2fx", "/checkout/../x", "/x"];
    assert_eq!(texts(b"/checkout/..%2fx"), expected);
    assert_eq!(texts(b"*"), ["*", "/*"]);
    let read = texts(b"/checkout/\xff/../%2e");
    assert!(read.contains(&"/checkout/".to_owned()), "invalid bytes hide nothing: {read:?}");
}

#[test]
fn servers_that_decode_a_part_are_known() {
    for (target, reading) in [
        ("/%63heckout/%3fx", "/checkout/%3fx"),
        ("/a%3ab%2fc", "/a:b%2fc"),
        ("/a%2fb/%2e%2e/checkout/1", "/checkout/1"),
        ("/a%252fb%2f%2e%2e/checkout/1", "/checkout/1"),
    ] {
        assert!(texts(target.as_bytes()).contains(&reading.to_owned()), "{target}");
    }
}

#[test]
fn usual_encodings_have_few_readings() {
    for (target, most) in [
        ("/%7Euser", 2),
        ("/a%2Bb", 2),
        ("/login/https%3A%2F%2Fshop.example%2Fa%3Fb%3Dc%26d%3D%25EC", 32),
        ("/shop;jsessionid=A1/1", 3),
    ] {
        assert!(texts(target.as_bytes()).len() <= most, "{target}: {:?}", texts(target.as_bytes()));
    }
}

#[test]
fn the_readings_are_bounded() {
    let deep = format!("/%{}2e", "25".repeat(2_000));
    assert_eq!(Readings::of(deep.as_bytes()), Readings::TooMany);
    let long = format!("/{}%2f..", "a".repeat(MOST_LEN / 2));
    assert_eq!(Readings::of(long.as_bytes()), Readings::TooMany);
    // Many short readings.
    assert_eq!(Readings::of(b"//x/a/%252e%3b/..;b\\%252fc%2500/..%2f"), Readings::TooMany);
    let settled = "/a".repeat(MOST_LEN);
    assert_eq!(
        Readings::of(settled.as_bytes()).all().len(),
        1,
        "a settled path has no other length than its own"
    );
}

mod servers {
    //! Servers, each as a small function, and targets that they read as a wanted path.

    use http::HeaderMap;
    use proptest::{prelude::*, sample::select};

    use super::super::*;
    use crate::{Decision, Request, Routes};

    /// Node's `new URL(target, base).pathname`, by the same standard, and Express's router, which ignores case and a last slash.
    fn node(target: &str) -> Option<String> {
        let url = url::Url::parse("http://h").expect("an address").join(target).ok()?;
        let path = url.path().to_ascii_lowercase();
        Some(path.strip_suffix('/').unwrap_or(&path).to_owned())
    }

    fn decode(path: &str) -> Option<String> {
        String::from_utf8(decoded(path.as_bytes()).unwrap_or_else(|| path.into())).ok()
    }

    fn without_query(target: &str) -> &str {
        target.split('?').next().unwrap_or_default()
    }

    fn merge(path: &str) -> String {
        let mut path = path.to_owned();
        while path.contains("//") {
            path = path.replace("//", "/");
        }
        path
    }

    fn resolve(path: &str) -> String {
        let mut kept = Vec::new();
        for segment in path.split('/').filter(|segment| !matches!(*segment, "" | ".")) {
            if segment == ".." {
                kept.pop();
            } else {
                kept.push(segment);
            }
        }
        format!("/{}", kept.join("/"))
    }

    /// Werkzeug: the reference is split (`//x` is a host), the path is decoded once, and slashes are merged.
    fn werkzeug(target: &str) -> Option<String> {
        let target = without_query(target).split('#').next()?;
        let path = match target.strip_prefix("//") {
            Some(behind) => &behind[behind.find('/')?..],
            None => target,
        };
        Some(merge(&decode(path)?))
    }

    /// A Java servlet container: parameters are cut, then the path is decoded and resolved.
    fn servlet(target: &str) -> Option<String> {
        let cut: Vec<_> =
            without_query(target).split('/').map(|part| part.split(';').next().unwrap_or_default()).collect();
        Some(resolve(&decode(&cut.join("/"))?.replace('\\', "/")))
    }

    /// The `location` of nginx: decoded, merged and resolved, up to a fragment.
    fn nginx(target: &str) -> Option<String> {
        let path = without_query(target).split('#').next()?;
        path.starts_with('/').then(|| decode(path).map(|path| resolve(&path)))?
    }

    /// A proxy that decodes in front of an app that decodes.
    fn double(target: &str) -> Option<String> {
        let once = decode(without_query(target))?;
        Some(resolve(&decode(without_query(&once))?))
    }

    /// Fastify 4: the path ends at `?`, `;` or `#`, and is decoded once.
    fn fastify(target: &str) -> Option<String> {
        decode(target.split(['?', ';', '#']).next()?)
    }

    /// What a server reads in a target.
    type Read = fn(&str) -> Option<String>;

    const SERVERS: [(&str, Read); 6] = [
        ("Node", node),
        ("Werkzeug", werkzeug),
        ("servlet", servlet),
        ("nginx", nginx),
        ("double", double),
        ("Fastify", fastify),
    ];

    /// A path, spelled in one more way. `at` chooses where, `kind` how.
    fn spell(path: &str, kind: u8, at: usize) -> String {
        let slashes: Vec<usize> = path.match_indices('/').map(|(at, _)| at).collect();
        let slash = slashes.get(at % slashes.len().max(1)).copied();
        let insert = |text: &str| match slash {
            Some(slash) => format!("{}{text}{}", &path[..=slash], &path[slash + 1..]),
            None => path.to_owned(),
        };
        let behind = |text: &str| match slash {
            Some(slash) if slash > 0 => format!("{}{text}{}", &path[..slash], &path[slash..]),
            _ => format!("{path}{text}"),
        };
        match kind {
            0..=2 if !path.is_empty() => {
                let at = at % path.len();
                let byte = path.as_bytes()[at];
                let code = if kind == 0 { format!("%{byte:02x}") } else { format!("%{byte:02X}") };
                format!("{}{code}{}", &path[..at], &path[at + 1..])
            }
            3 => insert("x/../"),
            4 => insert("./"),
            5 => insert("/"),
            6 => behind(";a=b"),
            7 => insert("x/..;v/"),
            8 => slash.map_or_else(|| path.to_owned(), |at| format!("{}\\{}", &path[..at], &path[at + 1..])),
            9 => format!("//x{path}"),
            10 => format!("/\\x{path}"),
            11 => path.replace('%', "%25"),
            12 => path.to_ascii_uppercase(),
            13 => format!("{path}/"),
            14 => format!("{path}#x"),
            15 => insert("%2e%2e/"),
            16 => insert("%2e/"),
            17 => format!("{path}/y/%2e."),
            18 => format!("http:{path}"),
            19 => format!("http://x{path}"),
            20 => format!("{path};/../y"),
            _ => format!("{path}?q=1"),
        }
    }

    fn routes() -> Routes {
        let read = |text: &str| {
            let fields: serde_json::Map<_, _> = serde_json::from_str(text).expect("JSON");
            crate::written::read(&fields, 1).expect("right")
        };
        Routes::new(vec![
            read(r#"{"name": "help", "bypass": true, "path": ["/help/*", "/x/*", "*.css"]}"#),
            read(r#"{"name": "checkout", "zone": "Z", "path": "/checkout/*"}"#),
            read(r#"{"name": "admin", "deny": true, "path": "/admin/*"}"#),
        ])
    }

    fn goes_on(routes: &Routes, target: &str) -> bool {
        let headers = HeaderMap::new();
        let request = Request {
            method: "GET".into(),
            host: "h".into(),
            target: target.as_bytes().into(),
            is_secure: false,
            headers: &headers,
            address: [192, 0, 2, 7].into(),
            tokens: &[],
        };
        matches!(routes.decide(&request), Decision::LetThrough { .. } | Decision::Unrouted)
    }

    /// Steps that lead some server from the target back to the path.
    fn spellings() -> impl Strategy<Value = (&'static str, Vec<(u8, usize)>)> {
        let paths = select(vec!["/checkout/1", "/admin/x"]);
        (paths, proptest::collection::vec((0u8..22, 0usize..64), 1..7))
    }

    /// The targets of this many random spellings, with the servers that read them as the path; the rest of them does not count.
    fn check(
        path: &str,
        steps: &[(u8, usize)],
        routes: &Routes,
    ) -> Result<[bool; SERVERS.len()], TestCaseError> {
        let target = steps.iter().fold(path.to_owned(), |path, (kind, at)| spell(&path, *kind, *at));
        let read_by = SERVERS.map(|(_, read)| read(&target).as_deref() == Some(path));
        if read_by.contains(&true) {
            let who: Vec<_> =
                SERVERS.iter().zip(read_by).filter(|(_, reads)| *reads).map(|(s, _)| s.0).collect();
            prop_assert!(!goes_on(routes, &target), "{target} is {path} to {who:?}");
        }
        Ok(read_by)
    }

    #[test]
    fn no_server_is_reached_by_a_spelling() {
        run(2_000, 20);
    }

    /// A long search: `cargo test --release -p check -- --ignored --nocapture no_server`.
    #[test]
    #[ignore = "takes a minute"]
    fn no_server_is_reached_by_any_of_many_spellings() {
        run(1_000_000, 10_000);
    }

    /// Tries this many spellings. At least so many must be read as the path, by each server.
    fn run(cases: u32, least: u32) {
        let routes = routes();
        let counts = std::cell::Cell::new([0u32; SERVERS.len()]);
        let config = proptest::test_runner::Config { cases, ..Default::default() };
        let mut runner = proptest::test_runner::TestRunner::new(config);
        let judged = runner.run(&spellings(), |(path, steps)| {
            let (read_by, mut now) = (check(path, &steps, &routes)?, counts.get());
            for (count, reads) in now.iter_mut().zip(read_by) {
                *count += u32::from(reads);
            }
            counts.set(now);
            Ok(())
        });
        judged.expect("no spelling goes on");
        let counts = counts.get();
        let names = SERVERS.map(|(name, _)| name);
        assert!(
            counts.iter().all(|count| *count >= least),
            "{names:?} {counts:?}: too few targets are judged"
        );
    }
}

mod properties {
    use proptest::prelude::*;

    use super::{super::*, applied};

    proptest! {
        #[test]
        fn a_settled_path_is_changed_by_no_step(path in "/[a-z%2fF5cC;./\\\\é?#:$ \u{0}\t]{0,24}") {
            if is_settled(path.as_bytes()) {
                for step in STEPS {
                    prop_assert_eq!(applied(step, path.as_bytes()), path.as_bytes());
                }
            }
        }

        #[test]
        fn the_readings_are_closed_and_different(target in proptest::collection::vec(any::<u8>(), 0..24)) {
            if let Some(found) = closure(unescaped(&target).unwrap_or(target)) {
                for (at, path) in found.iter().enumerate() {
                    prop_assert!(!found[..at].contains(path));
                    prop_assert!(STEPS.iter().all(|step| found.contains(&applied(*step, path))));
                }
            }
        }
    }
}
