//! Pages of other sites: what their requests may change for the visitor whose browser sends them.

use crate::{
    app::{Answer, body},
    client::Reply,
    limits::counted,
    weir::{Setup, Weir, zone},
};

const HELD: &str = "mode = \"hold\"";

/// The header fields of a request, by whose page makes a browser send it.
const FOREIGN: &[&str] = &[
    // `fetch` with `no-cors` and a blob without a type, and with a text. Each browser sends `Origin` with a POST.
    "Origin: https://evil.example\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\n",
    "Origin: https://evil.example\r\nSec-Fetch-Site: cross-site\r\nContent-Type: text/plain\r\n",
    // The same where the browser sends no `Sec-Fetch-…`, because the address has no TLS.
    "Origin: http://evil.example\r\n",
    "Origin: http://evil.example\r\nContent-Type: application/json\r\n",
    // A page in a sandbox, and one of another host of the same site.
    "Origin: null\r\n",
    "Origin: https://blog.weir.example\r\nSec-Fetch-Site: same-site\r\n",
    // A request that has no origin.
    "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\nSec-Fetch-Dest: image\r\n",
];

/// The header fields of requests that are answered as ever: of apps, of Weir's own page, and of a page that is listed.
const OWN: &[&str] = &[
    "",
    "Content-Type: application/json\r\n",
    "Origin: https://shop.example\r\nSec-Fetch-Site: cross-site\r\n",
    "Origin: https://shop.example\r\n",
    "Origin: https://weir.example\r\nSec-Fetch-Site: same-origin\r\n",
    "Origin: https://weir.example\r\n",
    "Sec-Fetch-Site: none\r\n",
];

fn send(weir: &Weir, call: &str, fields: &str, body: &str) -> Reply {
    let mut client = weir.connect();
    let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    client
        .send(format!("{call} HTTP/1.1\r\nHost: weir.example\r\n{fields}{length}\r\n{body}"))
        .expect("taken");
    client.reply().expect("a reply")
}

/// Requests of foreign pages are refused and change nothing: no place is taken, kept or left.
pub(crate) fn a_foreign_page_takes_and_leaves_no_place() {
    let config = format!(
        "cors_origins = [\"https://shop.example\"]\n{}{}",
        zone("HELD", 60, HELD),
        zone("Z", 600, "max_active = 1")
    );
    let weir = Setup::new(&config).start();
    let joined = |zone: &str| counted(&weir, &format!("weir_zone_joined_total{{zone=\"{zone}\"}}"));
    let inside = Answer::of(&weir.post("/traffic/wait", &body("Z", None)));
    assert!(inside.can_enter);
    let next = Answer::of(&weir.post("/traffic/wait", &body("Z", None)));
    assert_eq!(next.waiting().rank, 1);
    for fields in FOREIGN {
        for (call, body) in [
            ("POST /traffic/wait", body("HELD", None)),
            ("POST /traffic/entry", body("Z", Some(&next.token))),
            ("POST /traffic/leave", body("Z", Some(&inside.token))),
        ] {
            let reply = send(&weir, call, fields, &body);
            assert_eq!(
                (reply.status, reply.problem().as_str()),
                (403, "foreign_origin"),
                "{call} {fields:?}"
            );
            assert_eq!(reply.header("access-control-allow-origin"), None, "{reply:?}");
        }
        let stream = format!("GET /traffic/stream?zone=Z&token={}", next.token);
        assert_eq!(send(&weir, &stream, fields, "").problem(), "foreign_origin", "{fields:?}");
    }
    assert_eq!(joined("HELD"), 0, "nobody joined");
    let still = Answer::of(&weir.post("/traffic/entry", &body("Z", Some(&next.token))));
    assert_eq!(still.waiting().rank, 1, "the one inside has not left");
    for (fields, others) in OWN.iter().zip(1..) {
        let reply = send(&weir, "POST /traffic/wait", fields, &body("HELD", None));
        let answer = Answer::of(&reply);
        assert_eq!(answer.waiting().rank, others, "{fields:?}");
        let polled = send(&weir, "POST /traffic/entry", fields, &body("HELD", Some(&answer.token)));
        assert_eq!(Answer::of(&polled).waiting().rank, others, "{fields:?}");
    }
    // What a listed page sends while it closes, with a blob without a type.
    let beacon = "Origin: https://shop.example\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\n";
    assert_eq!(send(&weir, "POST /traffic/leave", beacon, &body("Z", Some(&inside.token))).status, 204);
}
