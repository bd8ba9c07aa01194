//! What browsers receive from the running server, and what operators may replace. `tests/browser` tests what people
//! see.

use std::fs;

use rustix::process::Signal;
use serde_json::json;

use crate::{
    client::Reply,
    clock::eventually,
    weir::{Setup, Weir, zone},
};

fn ask(weir: &Weir, path: &str, field: &str) -> Reply {
    let mut client = weir.connect();
    client.send(format!("GET {path} HTTP/1.1\r\nHost: test\r\n{field}\r\n")).expect("the server reads");
    client.reply().expect("the server replies")
}

/// A page has its policy and its language, is not sent again to a client that has it, and has status 404 for an
/// unknown zone.
pub(crate) fn pages_are_served_with_their_policy_and_cached() {
    let weir = Setup::zone(60, "").start();
    let page = weir.get("/wait/Z?lang=ko");
    assert_eq!((page.status, page.header("content-language")), (200, Some("ko")), "{page:?}");
    assert!(
        page.header("content-security-policy").is_some_and(|policy| policy.starts_with("default-src 'none'"))
    );
    assert!(page.text().contains("<html lang=\"ko\">") && page.text().contains("\"idle_timeout_s\":60"));
    let known = format!("If-None-Match: {}\r\n", page.header("etag").expect("a tag"));
    assert_eq!(ask(&weir, "/wait/Z?lang=ko", &known).status, 304);
    assert_eq!(ask(&weir, "/wait/Z?lang=en", &known).status, 200, "another language is another page");
    assert_eq!(weir.get("/wait/NOWHERE").status, 404);
    let slash = weir.get("/wait/Z/?lang=ko");
    assert_eq!((slash.status, slash.header("location")), (308, Some("../Z?lang=ko")));
    for nothing in ["/wait/", "/wait/a/b", "/wait-assets/nothing.js", "/wait-assets/page.html"] {
        let reply = weir.get(nothing);
        assert_eq!((reply.status, reply.json()["code"].as_str()), (404, Some("not_found")), "{nothing}");
    }
    // Every file that the page names is served, from the same host.
    for named in page.text().split(['"', '\'']).filter(|text| text.starts_with("../")) {
        let asset = weir.get(named.trim_start_matches(".."));
        assert_eq!(asset.status, 200, "{named}");
        assert!(
            asset.header("cache-control").is_some_and(|caching| caching.contains("max-age=300")),
            "{named}"
        );
    }
    assert!(!page.text().contains("//"), "no other host: {}", page.text());
    let library = weir.get("/weir.js");
    assert_eq!(library.header("access-control-allow-origin"), Some("*"));
    assert!(library.body.len() < 19_900, "a few KB: {}", library.body.len());
    assert_eq!(weir.connect().post("/wait/Z", "{}").expect("a reply").header("allow"), Some("GET, HEAD"));
    let metrics = weir.admin_get("/metrics").text().to_owned();
    assert!(metrics.contains("weir_requests_total{route=\"page\",status=\"304\"} 1"), "{metrics}");
}

/// A zone's notice is served to pages of listed origins, may be cached for seconds, and follows changes of the zone.
pub(crate) fn a_notice_is_served() {
    let config = |notice: &str| {
        format!(
            "cors_origins = [\"https://shop.example\"]\n{}{}{notice}",
            zone("PLAIN", 60, ""),
            zone("Z", 60, "")
        )
    };
    let weir = Setup::new(&config("[zone.notice]\nen = \"At noon.\"\nko = \"정오에\\n\\\"\"\n")).start();
    let notice = |more| ask(&weir, "/traffic/notice?zone=Z", more);
    let reply = notice("Origin: https://shop.example\r\n");
    assert_eq!(reply.json(), json!({"notice": {"en": "At noon.", "ko": "정오에\n\""}}), "{reply:?}");
    assert_eq!(reply.header("cache-control"), Some("public, max-age=5"));
    assert_eq!(reply.header("access-control-allow-origin"), Some("https://shop.example"));
    let known = format!("If-None-Match: {}\r\n", reply.header("etag").expect("a tag"));
    assert_eq!(notice(&known).status, 304);
    assert_eq!(weir.get("/traffic/notice?zone=PLAIN").json(), json!({"notice": {}}));
    weir.setup().write_config(&config(""));
    weir.signal(Signal::HUP);
    eventually("the notice is gone", || {
        let reply = notice(&known);
        (reply.status == 200 && reply.json() == json!({"notice": {}})).then_some(())
    });
}

/// Templates are read at the start and at SIGHUP. An invalid one changes nothing at SIGHUP, and keeps a server from
/// starting.
pub(crate) fn templates_are_read_again() {
    let setup = Setup::new("");
    let dir = setup.dir().join("pages");
    fs::create_dir(&dir).expect("takes directories");
    let put = |name: &str, html: &str| fs::write(dir.join(name), html).expect("takes files");
    let config = |url: &str| {
        let target = format!("[[wait.target]]\nzone = \"Z\"\nurl = \"{url}\"\n");
        format!("wait.templates_dir = \"pages\"\n{target}{}{}", zone("Z", 60, ""), zone("OTHER", 60, ""))
    };
    setup.write_config(&config("https://one.example/"));
    put("Z.html", "one {{lang}} {{settings}}");
    put("Y.html", "nobody's");
    let weir = setup.start();
    let unused = |file: &str| weir.log().matches(&format!("nobody sees {file}, because")).count();
    weir.logs("nobody sees Y.html, because");
    assert_eq!((unused("Y.html"), unused("Z.html")), (1, 0), "{}", weir.log());
    let page = || weir.get("/wait/Z").text().to_owned();
    assert!(page().starts_with("one en") && page().contains("https://one.example/"));
    assert!(
        weir.get("/wait/OTHER").text().starts_with("<!doctype html>"),
        "other zones have Weir's own page"
    );

    put("Z.html", "two {{lang}} {{settings}}");
    put("Z@sale.html", "the page of an event that does not exist");
    weir.setup().write_config(&config("https://two.example/"));
    weir.signal(Signal::HUP);
    eventually("the new template and target are in force", || {
        (page().starts_with("two en") && page().contains("https://two.example/")).then_some(())
    });
    weir.logs("nobody sees Z@sale.html, because");
    assert_eq!((unused("Y.html"), unused("Z@sale.html")), (1, 1), "{}", weir.log());
    put("Z.html", "three\n{{nonsense}}");
    weir.setup().write_config(&config("https://three.example/"));
    weir.signal(Signal::HUP);
    eventually("the fault is logged", || weir.log().contains("Z.html: line 2: `{{nonsense}}`").then_some(()));
    assert!(page().starts_with("two en") && page().contains("https://two.example/"), "nothing changed");
    assert!(!weir.log().contains("needs a restart"), "{}", weir.log());
    let ended = weir.stop().fail();
    assert_eq!(ended.status.code(), Some(64));
    assert!(ended.log.contains("Z.html: line 2"), "{}", ended.log);
}
