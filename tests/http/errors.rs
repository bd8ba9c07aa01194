//! Every error code is provoked by a client and compared with the table that users read.

use std::{collections::BTreeSet, fs, net::Ipv4Addr};

use server::http::problem;

use crate::{
    app::{Answer, body},
    away, check,
    client::{Client, Reply, post},
    clock::eventually,
    drain, sse,
    weir::{Setup, Weir, zone},
};

/// Asks a server with a zone `Z` for one error.
type Ask = fn(&Weir, &mut Client) -> Reply;

fn ask(client: &mut Client, bytes: impl AsRef<[u8]>) -> Reply {
    client.send(bytes).expect("the server reads");
    client.reply().expect("the server replies")
}

fn wait(client: &mut Client, json: &str) -> Reply {
    ask(client, post("/traffic/wait", json))
}

fn entry(client: &mut Client, json: &str) -> Reply {
    ask(client, post("/traffic/entry", json))
}

fn stream(client: &mut Client, query: &str) -> Reply {
    client.get(&format!("/traffic/stream{query}")).expect("refused before a stream begins")
}

fn typed(kind: &str) -> String {
    let body = body("Z", None);
    let length = body.len();
    format!("POST /traffic/wait HTTP/1.1\r\nHost: test\r\n{kind}Content-Length: {length}\r\n\r\n{body}")
}

/// Codes that a client cannot provoke at will. Tests of the store cover a full queue; tests of the zone editor cover
/// the limit of zones and a tenant without a store; tests of draws cover those of a draw, whose list is frozen when its event begins; the
/// test of reports covers an event that has not begun.
const MET_ELSEWHERE: &[&str] = &["busy", "draw_decided", "no_cell", "no_draw", "not_begun", "too_many_zones"];

/// A token of the role `admin` and one of a viewer, which the server knows.
const ADMIN: (&str, &str) = ("Authorization", "Bearer weir_admin-for-tests");
const VIEWER: (&str, &str) = ("Authorization", "Bearer weir_viewer-for-tests");
const TOKENS: &str = "[[admin_token]]
name = \"ada\"
role = \"admin\"
sha256 = \"1f90bf907533c1517f5005e4d9f9fef7e03f412b07f09cc716d76b6332e463bf\"
[[admin_token]]
name = \"vera\"
role = \"viewer\"
sha256 = \"bb5fc44523b811598212ad0169bec78c2da988cd8365291802b1a184b31895db\"
";

/// Sends a request to the admin listener.
fn admin(
    weir: &Weir,
    client: &mut Client,
    call: &str,
    headers: &[(&str, &str)],
    body: Option<&str>,
) -> Reply {
    *client = Client::connect(weir.admin).expect("the admin listener accepts");
    let (method, path) = call.split_once(' ').expect("a method and a path");
    client.ask(method, path, headers, body).expect("the admin listener replies")
}

/// An `If-Match` header that matches any state.
const ANY: (&str, &str) = ("If-Match", "*");

/// Each row: code, status, and how to provoke it. There is one row for each mistake that apps are likely to make.
const CASES: &[(&str, u16, Ask)] = &[
    ("malformed_http", 400, |_, c| ask(c, "nonsense\r\n\r\n")),
    ("malformed_http", 400, |_, c| ask(c, "GET /healthz HTTP/7\r\n\r\n")),
    ("malformed_http", 400, |_, c| ask(c, "GET /healthz HTTP/1.1\r\n\r\n")),
    ("malformed_json", 400, |_, c| wait(c, "{")),
    ("malformed_json", 400, |_, c| wait(c, "")),
    ("malformed_json", 400, |_, c| wait(c, r#"{"zoneId":"Z"} {}"#)),
    ("malformed_json", 400, |_, c| wait(c, r#"{"zoneId":"Z","zoneId":"Z"}"#)),
    ("malformed_json", 400, |_, c| entry(c, "nonsense")),
    ("wrong_type", 400, |_, c| wait(c, "[]")),
    ("wrong_type", 400, |_, c| wait(c, r#"["Z"]"#)),
    ("wrong_type", 400, |_, c| wait(c, r#"{"zoneId":7}"#)),
    ("wrong_type", 400, |_, c| wait(c, r#"{"zoneId":12345678901234567890123}"#)),
    ("wrong_type", 400, |_, c| wait(c, r#"{"zoneId":null}"#)),
    ("wrong_type", 400, |_, c| entry(c, r#"{"zoneId":"Z","token":null}"#)),
    ("missing_field", 400, |_, c| wait(c, r#"{"zone":"Z","colour":3}"#)),
    ("missing_field", 400, |_, c| wait(c, "{}")),
    ("missing_field", 400, |_, c| entry(c, r#"{"zoneId":"Z"}"#)),
    ("missing_field", 400, |_, c| stream(c, "")),
    ("missing_field", 400, |_, c| stream(c, "?zone=Z")),
    ("missing_field", 400, |_, c| stream(c, "?zoneId=Z&token=x")),
    ("bad_token", 401, |_, c| stream(c, "?zone=Z&token=x&lastEventId=7")),
    ("wrong_type", 400, |_, c| stream(c, "?zone=Z&token=x&token=y")),
    ("bad_token", 401, |_, c| stream(c, "?zone=Z&token=x")),
    ("bad_token", 401, |_, c| wait(c, &body("Z", Some("x")))),
    ("bad_token", 401, |_, c| wait(c, &body("Z", Some(&"A".repeat(52))))),
    ("bad_token", 401, |weir, c| {
        let foreign = Answer::of(&weir.post("/traffic/wait", &body("OTHER", None))).token;
        entry(c, &body("Z", Some(&foreign)))
    }),
    ("bad_token", 401, |weir, c| {
        let mut token = Answer::of(&weir.post("/traffic/wait", &body("Z", None))).token;
        let other = if token.as_bytes()[20] == b'A' { "B" } else { "A" };
        token.replace_range(20..21, other);
        entry(c, &body("Z", Some(&token)))
    }),
    ("unknown_zone", 404, |_, c| wait(c, &body("NOWHERE", None))),
    ("unknown_zone", 404, |_, c| wait(c, &body("", None))),
    ("unknown_zone", 404, |_, c| stream(c, "?zone=NOWHERE&token=x")),
    ("unknown_zone", 404, |_, c| c.get("/traffic/notice?zone=NOWHERE").expect("a reply")),
    ("missing_field", 400, |_, c| c.get("/traffic/notice").expect("a reply")),
    ("unknown_zone", 404, |_, c| c.get("/traffic/notice?zone=NOWHERE&lang=ko&_=1").expect("a reply")),
    ("unknown_zone", 404, |_, c| stream(c, "?zone=no%20name&token=x")),
    ("not_found", 404, |_, c| c.get("/traffic").expect("a reply")),
    ("not_found", 404, |_, c| c.get("/").expect("a reply")),
    ("not_found", 404, |_, c| c.get("/metrics").expect("metrics are not for the public")),
    ("method_not_allowed", 405, |_, c| {
        let reply = c.get("/traffic/wait").expect("a reply");
        assert_eq!(reply.header("allow"), Some("POST"));
        reply
    }),
    ("method_not_allowed", 405, |_, c| {
        let reply = c.post("/healthz", "{}").expect("a reply");
        assert!(reply.header("allow").is_some_and(|a| a.contains("GET") && a.contains("HEAD")));
        reply
    }),
    ("method_not_allowed", 405, |_, c| {
        let reply = c.post("/traffic/stream?zone=Z&token=x", "{}").expect("a reply");
        assert_eq!(reply.header("allow"), Some("GET"));
        reply
    }),
    ("slow_head", 408, |_, c| ask(c, "GET /healthz HTTP/1.1\r\nHo")),
    ("slow_body", 408, |_, c| ask(c, &post("/traffic/wait", &body("Z", None))[..120])),
    ("gone", 410, |weir, c| {
        let silent = Answer::of(&weir.post("/traffic/wait", &body("HELD", None))).token;
        eventually("the silent one is evicted", || {
            weir.admin_get("/metrics")
                .text()
                .contains("weir_zone_evicted_total{zone=\"HELD\"} 1")
                .then_some(())
        });
        // A connection without a request for this time is closed.
        *c = weir.connect();
        entry(c, &body("HELD", Some(&silent)))
    }),
    ("too_large", 413, |_, c| wait(c, &format!("{{\"zoneId\":\"{}\"}}", "x".repeat(5_000)))),
    ("unsupported_media_type", 415, |_, c| ask(c, typed("Content-Type: text/plain\r\n"))),
    ("unsupported_media_type", 415, |_, c| ask(c, typed("Content-Type: application/jsonx\r\n"))),
    ("unsupported_media_type", 415, |_, c| {
        ask(c, typed("Content-Type: application/json\r\nContent-Encoding: gzip\r\n"))
    }),
    ("foreign_origin", 403, |_, c| ask(c, typed("Origin: https://evil.example\r\n"))),
    ("foreign_origin", 403, |_, c| {
        ask(c, typed("Sec-Fetch-Site: cross-site\r\nContent-Type: text/plain\r\n"))
    }),
    ("too_many_requests", 429, |_, c| {
        assert_eq!(wait(c, &body("LIMITED", None)).status, 200);
        wait(c, &body("LIMITED", None))
    }),
    ("head_too_large", 431, |_, c| ask(c, typed(&format!("X-Long: {}\r\n", "x".repeat(9_000))))),
    ("zone_closed", 503, |_, c| wait(c, &body("CLOSED", None))),
    ("zone_full", 503, |_, c| {
        assert_eq!(wait(c, &body("FULL", None)).status, 200);
        wait(c, &body("FULL", None))
    }),
    ("unauthorized", 401, |w, c| {
        let reply = admin(w, c, "GET /admin/v1/zones", &[], None);
        assert!(
            reply.header("www-authenticate").is_some_and(|scheme| scheme.starts_with("Bearer")),
            "{reply:?}"
        );
        reply
    }),
    ("unauthorized", 401, |w, c| {
        admin(w, c, "GET /admin/v1/nowhere", &[("Authorization", "Bearer x")], None)
    }),
    ("unauthorized", 401, |w, c| admin(w, c, "GET /admin/v1/events", &[], None)),
    ("foreign_origin", 403, |w, c| {
        admin(w, c, "GET /admin/v1/zones", &[ADMIN, ("Origin", "https://evil.example")], None)
    }),
    ("foreign_origin", 403, |w, c| {
        admin(w, c, "PUT /admin/v1/drain", &[ADMIN, ("Origin", "null")], Some("{}"))
    }),
    ("forbidden", 403, |w, c| {
        let reply = admin(w, c, "PUT /admin/v1/drain", &[VIEWER], Some(r#"{"draining":true}"#));
        assert_eq!((&reply.json()["needed"], &reply.json()["had"]), (&"admin".into(), &"viewer".into()));
        reply
    }),
    ("unknown_event", 404, |w, c| admin(w, c, "GET /admin/v1/zones/Z/events/x/report", &[VIEWER], None)),
    ("unknown_zone", 404, |w, c| admin(w, c, "GET /admin/v1/zones/NOWHERE", &[VIEWER], None)),
    ("unknown_zone", 404, |w, c| admin(w, c, "GET /admin/v1/zones/%FF", &[VIEWER], None)),
    ("unknown_zone", 404, |w, c| admin(w, c, "DELETE /admin/v1/zones/NOWHERE", &[ADMIN, ANY], None)),
    ("not_found", 404, |w, c| admin(w, c, "GET /admin/v1/nowhere", &[VIEWER], None)),
    ("method_not_allowed", 405, |w, c| {
        let reply = admin(w, c, "DELETE /admin/v1/zones", &[ADMIN], None);
        assert!(reply.header("allow").is_some_and(|a| a.contains("GET") && a.contains("POST")), "{reply:?}");
        reply
    }),
    ("zone_exists", 409, |w, c| {
        let reply = admin(w, c, "POST /admin/v1/zones", &[ADMIN], Some(r#"{"id":"Z"}"#));
        assert_eq!(reply.json()["zone"]["policy"]["admit_per_minute"], 60_000);
        reply
    }),
    ("changed_meanwhile", 412, |w, c| {
        let reply = admin(w, c, "PATCH /admin/v1/zones/Z", &[ADMIN, ("If-Match", "\"old\"")], Some("{}"));
        assert_eq!(reply.json()["zone"]["id"], "Z");
        reply
    }),
    ("too_large", 413, |w, c| {
        admin(w, c, "POST /admin/v1/zones", &[ADMIN], Some(&" ".repeat((1 << 20) + 1)))
    }),
    ("unsupported_media_type", 415, |w, c| {
        admin(w, c, "POST /admin/v1/zones", &[ADMIN, ("Content-Type", "text/plain")], Some("{}"))
    }),
    ("unsupported_media_type", 415, |w, c| {
        let request = "PUT /admin/v1/drain HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n";
        *c = Client::connect(w.admin).expect("the admin listener accepts");
        ask(c, format!("{request}{}: {}\r\n\r\n{{}}", ADMIN.0, ADMIN.1))
    }),
    ("foreign_host", 421, |w, c| {
        admin(w, c, "GET /admin/v1/zones", &[ADMIN, ("Host", "evil.example")], None)
    }),
    ("out_of_range", 422, |w, c| {
        let body = r#"{"policy":{"admit_per_minute":0}}"#;
        let reply = admin(w, c, "PATCH /admin/v1/zones/Z", &[ADMIN, ANY], Some(body));
        assert_eq!(
            (&reply.json()["field"], &reply.json()["high"]),
            (&"policy.admit_per_minute".into(), &600_000.into())
        );
        reply
    }),
    ("bad_route", 422, |w, c| {
        let body = r#"{"routes":[{"name":"a","deny":true,"path":"x"}]}"#;
        let reply = admin(w, c, "PUT /admin/v1/routes", &[ADMIN, ANY], Some(body));
        assert_eq!((&reply.json()["route"], &reply.json()["field"]), (&0.into(), &"path".into()));
        reply
    }),
    ("precondition_required", 428, |w, c| {
        admin(w, c, "PUT /admin/v1/routes", &[ADMIN], Some(r#"{"routes":[]}"#))
    }),
    ("out_of_range", 422, |w, c| admin(w, c, "GET /admin/v1/zones/Z/stats?minutes=361", &[VIEWER], None)),
    ("precondition_required", 428, |w, c| admin(w, c, "DELETE /admin/v1/zones/Z", &[ADMIN], None)),
    ("malformed_json", 400, |w, c| admin(w, c, "POST /admin/v1/zones", &[ADMIN], Some("{"))),
    ("missing_field", 400, |w, c| admin(w, c, "POST /admin/v1/zones", &[ADMIN], Some("{}"))),
    ("unknown_field", 400, |w, c| {
        admin(w, c, "PATCH /admin/v1/zones/Z", &[ADMIN, ANY], Some(r#"{"policy":{"colour":1}}"#))
    }),
    ("unknown_field", 400, |w, c| admin(w, c, "GET /admin/v1/zones?colour=1", &[VIEWER], None)),
    ("wrong_type", 400, |w, c| admin(w, c, "GET /admin/v1/zones?trend=x", &[VIEWER], None)),
    ("wrong_type", 400, |w, c| admin(w, c, "DELETE /admin/v1/zones/Z?dry_run=perhaps", &[ADMIN, ANY], None)),
    ("wrong_type", 400, |w, c| admin(w, c, "DELETE /admin/v1/zones/Z", &[ADMIN, ("If-Match", "x")], None)),
    ("head_too_large", 431, |w, c| {
        let many: Vec<(&str, &str)> = vec![("X-Many", "1"); 65];
        admin(w, c, "GET /admin/v1/whoami", &many, None)
    }),
];

/// Starts a server and asks it for one error.
type AskApart = fn() -> Reply;

/// An address that is counted. The usual one of this machine is not.
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// Errors that need their own server.
const CASES_APART: &[(&str, u16, AskApart)] = &[
    ("store_away", 503, away::join_while_away),
    ("untrusted_proxy", 403, || check::problem_of("untrusted_proxy")),
    ("denied", 403, || check::problem_of("denied")),
    ("misdirected", 421, || check::problem_of("misdirected")),
    ("odd_target", 400, || check::problem_of("odd_target")),
    ("admitted", 409, || check::problem_of("admitted")),
    ("waiting", 503, || check::problem_of("waiting")),
    ("no_cookie", 409, || check::problem_of("no_cookie")),
    ("no_place", 503, || check::problem_of("no_place")),
    ("left", 410, || check::problem_of("left")),
    ("nothing_to_leave", 409, || check::problem_of("nothing_to_leave")),
    ("other_address", 403, || check::problem_of("other_address")),
    ("stopping", 503, || drain::asked_while_stopping("/readyz")),
    ("stopping", 503, || drain::asked_while_stopping("/traffic/stream?zone=Z&token=x")),
    ("too_many_connections", 429, || {
        let weir = Setup::new(&format!("max_connections_per_client = 1\n{}", zone("Z", 60, ""))).start();
        let connect = || Client::connect_from(ELSEWHERE, weir.public).expect("accepted");
        let mut inside = connect();
        assert_eq!(inside.get("/healthz").expect("a reply").status, 200);
        connect().reply().expect("a polite refusal")
    }),
    ("too_many_streams", 429, || {
        let held = zone("Z", 60, "mode = \"hold\"");
        let weir = Setup::new(&format!("max_streams_per_client = 1\n{held}")).start();
        let token = Answer::of(&weir.post("/traffic/wait", &body("Z", None))).token;
        let mut clients = [(); 2].map(|()| Client::connect_from(ELSEWHERE, weir.public).expect("accepted"));
        clients[0].send(sse::request("Z", &token, None)).expect("taken");
        assert_eq!(clients[0].head().expect("a head").status, 200);
        stream(&mut clients[1], &format!("?zone=Z&token={token}"))
    }),
    ("proxied", 403, || {
        let weir = Setup::zone(60, "").start();
        weir.admin_ask("GET", "/admin/v1/zones", &[("X-Forwarded-For", "203.0.113.9")], None)
    }),
    ("overloaded", 503, || {
        let weir = Setup::new(&format!("max_connections = 2\n{}", zone("Z", 60, ""))).start();
        let mut inside = [weir.connect(), weir.connect()];
        assert_eq!(inside.each_mut().map(|c| c.get("/healthz").expect("a reply").status), [200, 200]);
        weir.connect().reply().expect("a polite refusal")
    }),
];

/// Each case returns its code and status. The connection ends if the reply announces it, and stays usable otherwise.
/// The codes are exactly those of the program and of the book.
pub(crate) fn every_code_is_met_and_documented() {
    let zones = [
        zone("Z", 60_000, ""),
        zone("OTHER", 60, ""),
        zone("CLOSED", 60, "mode = \"closed\""),
        zone("FULL", 60, "mode = \"hold\"\nmax_waiting = 1"),
        zone("LIMITED", 60, "waits_per_minute_per_client = 1"),
        zone("HELD", 60, "mode = \"hold\"\nidle_timeout_s = 10"),
    ];
    let weir =
        Setup::new(&format!("body_timeout_s = 1\nheader_timeout_s = 1\n{TOKENS}{}", zones.concat())).start();
    for (code, status, ask) in CASES {
        let mut client = weir.connect();
        let reply = ask(&weir, &mut client);
        assert_eq!((reply.problem().as_str(), reply.status), (*code, *status), "{reply:?}");
        if reply.closes() {
            assert!(client.is_ended(), "{code}");
        } else {
            let next = client.get("/healthz").unwrap_or_else(|e| panic!("{code} left {e}"));
            assert_eq!(next.status, 200, "{code}");
        }
    }
    for (code, status, ask) in CASES_APART {
        let reply = ask();
        assert_eq!((reply.problem().as_str(), reply.status), (*code, *status), "{reply:?}");
    }

    let apart = CASES_APART.iter().map(|(code, ..)| *code);
    let met: BTreeSet<String> = CASES
        .iter()
        .map(|(code, ..)| *code)
        .chain(apart)
        .chain(MET_ELSEWHERE.iter().copied())
        .map(str::to_owned)
        .collect();
    let known: BTreeSet<String> = problem::ALL.iter().map(|code| code.name.to_owned()).collect();
    assert_eq!(met, known, "the codes that are tested, and those that the program has");
    let page = |name: &str| {
        let file = format!("{}/../docs/{name}", env!("CARGO_MANIFEST_DIR"));
        fs::read_to_string(&file).unwrap_or_else(|e| panic!("{file}: {e}"))
    };
    let pages = ["app/errors.md", "operate/admin-api.md"].map(page).concat();
    // A row has a cell with a code in backticks, and a cell with its status.
    let row = |line: &str| {
        let cells: Vec<&str> = line.strip_prefix('|')?.split('|').map(str::trim).collect();
        let status = cells.iter().find_map(|cell| cell.parse().ok().filter(|s| (400..600).contains(s)))?;
        let code = cells.iter().find_map(|cell| cell.strip_prefix('`')?.strip_suffix('`'))?;
        Some((code.to_owned(), status))
    };
    let documented: BTreeSet<(String, u16)> = pages.lines().filter_map(row).collect();
    let known: BTreeSet<_> = problem::ALL.iter().map(|code| (code.name.to_owned(), code.status)).collect();
    assert_eq!(documented, known, "the codes that the book explains, and those that the program has");
}
