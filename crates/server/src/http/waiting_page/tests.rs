//! The pages that are served, and the files that an operator's directory may contain.

use std::collections::BTreeSet;

use http_body_util::BodyExt as _;
use hyper::header::{ETAG, IF_NONE_MATCH};

use super::*;
use crate::sample;
use target::HandOver;

fn zone(id: &str) -> ZoneId {
    ZoneId::parse(id).expect("a zone's name")
}

fn header<'a>(response: &'a Response<Full<Bytes>>, name: &str) -> &'a str {
    response.headers().get(name).map_or("", |value| value.to_str().expect("text"))
}

fn text(response: Response<Full<Bytes>>) -> String {
    let mut body = response.into_body();
    let frame = futures_now(body.frame());
    frame.map_or(String::new(), |frame| {
        let bytes = frame.expect("whole").into_data().expect("bytes");
        String::from_utf8(bytes.to_vec()).expect("UTF-8")
    })
}

/// The result of a future that is ready.
fn futures_now<T>(future: impl Future<Output = T>) -> T {
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut cx) {
        std::task::Poll::Ready(done) => done,
        std::task::Poll::Pending => panic!("a full body is ready"),
    }
}

fn with(targets: &[(&str, &str, HandOver)], dir: Option<&Path>) -> Result<Pages, PagesFault> {
    let targets =
        targets.iter().map(|(zones, url, by)| Target::new(zones, url, *by).expect("right")).collect();
    Pages::read(&WaitSettings { templates_dir: dir.map(Path::to_owned), targets })
}

fn page(pages: &Pages, id: &str) -> Response<Full<Bytes>> {
    page_in(pages, id, None, &HeaderMap::new())
}

/// The page of a zone while this event lasts, which is no draw.
fn page_in(pages: &Pages, id: &str, event: Option<&str>, headers: &HeaderMap) -> Response<Full<Bytes>> {
    let (zone, event, policy) = (zone(id), event.map(zone), Some(Policy::default()));
    let about = PageFor { zone: &zone, event: event.as_ref(), draw: None, policy };
    pages.page(about, StatusCode::OK, None, headers)
}

#[test]
fn all_languages_have_the_same_texts_and_all_are_used() {
    let [first, rest @ ..] = &BUILT_IN.texts;
    let names: BTreeSet<_> = first.names().collect();
    for other in rest {
        assert_eq!(names, other.names().collect());
    }
    for name in names {
        let script = include_str!("page.js").contains(&format!("\"{name}"));
        let made =
            ["heading_", "explanation_", "reason_", "trouble_", "seconds", "minutes", "hours", "title"];
        // What a proxy's visitor sees: its script gets the texts by the end of their names.
        let gate = include_str!("../public/check/page.rs").contains(&format!("\"{name}\""));
        let used = script
            || gate
            || include_str!("page.html").contains(&format!("{{{{text.{name}}}}}"))
            || made.iter().any(|made| name.starts_with(made));
        assert!(used, "the page does not use {name}");
    }
}

/// The script tells the time of the draw by the same number of seconds.
#[test]
fn the_script_knows_how_long_a_draw_takes() {
    let line = format!("const DRAW_MS = {}_000;", admission::DrawTerms::DRAW_S);
    assert!(include_str!("page.js").contains(&line), "{line}");
}

#[test]
fn a_page_may_go_on_to_its_target_only() {
    let pages = with(&[("Z", "https://shop.example/in", HandOver::Fragment)], None).expect("right");
    let ours = page(&pages, "Z");
    assert!(header(&ours, "content-security-policy").contains("; form-action 'self' https://shop.example; "));
    assert!(text(ours).contains(r#""target":{"by":"fragment","url":"https://shop.example/in"}"#));
    let other = page(&pages, "OTHER");
    let policy = header(&other, "content-security-policy");
    assert!(
        policy.starts_with("default-src 'none'; ") && policy.contains("; form-action 'none'; "),
        "{policy}"
    );
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(header(&other, "referrer-policy"), "strict-origin");
    assert!(text(other).contains(r#""target":null"#));
}

#[test]
fn a_page_that_the_browser_has_is_not_sent_again() {
    let pages = with(&[], None).expect("right");
    let ours = page(&pages, "Z");
    let known = HeaderMap::from_iter([(IF_NONE_MATCH, ours.headers()[ETAG].clone())]);
    let again = |id: &str| page_in(&pages, id, None, &known);
    assert_eq!(again("Z").status(), StatusCode::NOT_MODIFIED);
    assert_eq!(text(again("Z")), "");
    assert_eq!(again("OTHER").status(), StatusCode::OK, "another page");
    for name in ["weir.js", "page.js", "page.css", "icon.svg", "verify-draw.html"] {
        let served = |headers: &HeaderMap| match name {
            "weir.js" => library(headers),
            name => pages.asset(name, headers).expect("there is such a file"),
        };
        let first = served(&HeaderMap::new());
        assert_eq!(header(&first, "cache-control"), "public, max-age=300");
        assert_eq!(header(&first, "x-content-type-options"), "nosniff");
        let weak = format!("\"x\", W/{}", header(&first, "etag"));
        let known = HeaderMap::from_iter([(IF_NONE_MATCH, HeaderValue::from_str(&weak).expect("text"))]);
        assert_eq!(served(&known).status(), StatusCode::NOT_MODIFIED);
        assert!(!text(first).contains("\n//"), "{name}: comments are left out");
    }
    assert!(pages.asset("page.html", &HeaderMap::new()).is_none());
    assert!(pages.asset("../weir.js", &HeaderMap::new()).is_none());
}

#[test]
fn a_zone_may_have_its_own_template_and_assets() {
    let dir = tempfile::tempdir().expect("a directory");
    let put = |name: &str, body: &[u8]| fs::write(dir.path().join(name), body).expect("takes files");
    put("default.html", b"all {{lang}}");
    put("shop:sale.html", b"sale {{text.title}}");
    put("shop:sale@spring.2026.html", b"spring {{zone}}");
    put("logo.png", b"\x89PNG");
    put(".hidden", b"");
    let pages = with(&[], Some(dir.path())).expect("right");
    assert_eq!(text(page(&pages, "Z")), "all en");
    assert_eq!(text(page(&pages, "shop:sale")), "sale Waiting room");
    let during = |id: &str, event: &str| text(page_in(&pages, id, Some(event), &HeaderMap::new()));
    assert_eq!(during("shop:sale", "spring.2026"), "spring shop:sale");
    assert_eq!(
        during("shop:sale", "autumn"),
        "sale Waiting room",
        "an event without a template has the zone's"
    );
    assert_eq!(during("Z", "spring.2026"), "all en", "the event of another zone");
    let logo = pages.asset("logo.png", &HeaderMap::new()).expect("it is there");
    assert_eq!(header(&logo, "content-type"), "image/png");

    for (name, body, message) in [
        ("a b.html", &b"x"[..], "`a b` is not a zone"),
        ("Z@a b.html", b"x", "`a b` is not an event"),
        ("@sale.html", b"x", "`` is not a zone"),
        ("Z.html", b"\n{{nonsense}}", "Z.html: line 2: `{{nonsense}}`"),
        ("Z.html", b"\xff", "Z.html: line 1: the byte at column 1 is not UTF-8"),
        ("page.css", b"x", "page.css: has the name of an asset of Weir"),
        ("script.js", b"x", "script.js: is neither a template"),
        ("big.png", &[0; 600_000], "big.png: has 600000 bytes"),
    ] {
        put(name, body);
        let fault = with(&[], Some(dir.path())).err().expect("refused").to_string();
        assert!(fault.contains(message), "{fault}");
        fs::remove_file(dir.path().join(name)).expect("removed");
    }
    fs::create_dir(dir.path().join("more")).expect("takes directories");
    assert!(with(&[], Some(dir.path())).is_err());
    assert!(with(&[], Some(&dir.path().join("nowhere"))).is_err());
}

#[test]
fn templates_that_nothing_uses_are_named_once() {
    let event = serde_json::json!({
        "id": "spring", "prequeue_from": "2026-12-01T08:30:00Z", "begins": "2026-12-01T09:00:00Z", "ends": "2026-12-01T12:00:00Z",
    });
    let zones = vec![
        (zone("shop:sale"), sample::zone_with(vec![sample::event(event)])),
        (zone("Z"), Policy::default().into()),
    ];
    let dir = tempfile::tempdir().expect("a directory");
    let put = |name: &str| fs::write(dir.path().join(name), "x").expect("takes files");
    let read = || with(&[], Some(dir.path())).expect("right");
    let used = ["default.html", "shop:sale.html", "shop:sale@spring.html", "Z.html", "logo.png"];
    used.into_iter().for_each(put);
    assert_eq!(read().unused(&zones), [""; 0]);
    for misspelled in ["Y.html", "shop@spring.html", "shop:sale@sprung.html", "Z@spring.html"] {
        put(misspelled);
    }
    let mut first = read();
    let said = first.note_unused(&zones, None);
    let about = |file: &str, why: &str| format!("wait.templates_dir: nobody sees {file}, because {why}");
    assert_eq!(
        said,
        [
            about("Y.html", "there is no zone Y"),
            about("Z@spring.html", "zone Z has no event spring"),
            about("shop:sale@sprung.html", "zone shop:sale has no event sprung"),
            about("shop@spring.html", "there is no zone shop"),
        ]
    );
    // Pages that are read again say what is new only, and so do those after them.
    put("Z@autumn.html");
    let mut second = read();
    let new = about("Z@autumn.html", "zone Z has no event autumn");
    assert_eq!(second.note_unused(&zones, Some(&first)), [new]);
    assert_eq!(read().note_unused(&zones, Some(&second)), [""; 0]);
    // However many there are, the log has a few lines of them.
    for number in 0..30 {
        put(&format!("a{number}.html"));
    }
    let many = read().unused(&zones);
    assert_eq!(many.len(), UNUSED_NAMED + 1);
    assert_eq!(many[UNUSED_NAMED], "wait.templates_dir: nobody sees 15 more templates");
}
