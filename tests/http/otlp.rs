//! What a collector of OpenTelemetry gets, and what it must not get.

use std::collections::{BTreeMap, BTreeSet};

use rustix::process::Signal;
use server::otlp::message::{Data, Metric, Span, SpanKind, StatusCode};

use crate::{
    admin::new_token,
    app::{Answer, body},
    client::{Reply, post},
    clock::{eventually, now},
    collector::{Answers, Collector, Received, body_of, text_of},
    metrics::{scrape, value},
    redis::Standalone,
    weir::{Setup, Weir, zone},
};

const ALL: &str = "sample = 1.0\nmax_traces_per_s = 1000000";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Sends a POST of JSON with these header lines.
fn post_with(weir: &Weir, path: &str, headers: &[String], body: &str) -> Reply {
    let mut request = post(path, body);
    for header in headers {
        request = request.replacen("\r\n", &format!("\r\n{header}\r\n"), 1);
    }
    let mut client = weir.connect();
    client.send(request).expect("sent");
    client.reply().expect("answered")
}

/// A span of this name, once it has arrived, with all that arrived by then.
fn arrives(collector: &Collector, wanted: &str) -> (Span, Received) {
    eventually(&format!("the span `{wanted}` arrives"), || {
        let received = collector.received();
        let found = received.spans.iter().find(|span| span.name == wanted).cloned();
        found.map(|span| (span, received))
    })
}

fn attributes(span: &Span) -> BTreeMap<&str, String> {
    span.attributes
        .iter()
        .map(|attribute| {
            let key = attribute.key.as_str();
            (key, text_of(&span.attributes, key).expect("it has a value"))
        })
        .collect()
}

/// The trace of a join whose caller is traced. Returns the span of the call to the store.
fn check_join(collector: &Collector, weir: &Weir) -> Span {
    let header = format!("traceparent: 00-{TRACE}-{PARENT}-01");
    Answer::of(&post_with(weir, "/traffic/wait", &[header], &body("Z", None)));
    let (root, received) = arrives(collector, "POST /traffic/wait");
    assert_eq!([hex(&root.trace_id), hex(&root.parent_span_id)], [TRACE, PARENT]);
    assert_eq!((root.kind, root.flags), (SpanKind::Server.into(), 0x301));
    let expected = [
        ("http.request.method", "POST"),
        ("http.response.status_code", "200"),
        ("http.route", "/traffic/wait"),
        ("url.path", "/traffic/wait"),
        ("url.scheme", "http"),
        ("weir.zone", "Z"),
    ];
    assert_eq!(attributes(&root), expected.map(|(key, value)| (key, value.to_owned())).into());
    let child = |name: &str, parent: &Span| {
        let of = received.spans.iter().find(|span| span.name == name && span.trace_id == root.trace_id);
        let span = of.unwrap_or_else(|| panic!("no {name}: {:?}", received.spans)).clone();
        assert_eq!(span.parent_span_id, parent.span_id, "{name}");
        assert!(parent.start_time_unix_nano <= span.start_time_unix_nano, "{name}");
        assert!(span.start_time_unix_nano <= span.end_time_unix_nano, "{name}");
        assert!(span.end_time_unix_nano <= parent.end_time_unix_nano, "{name}");
        span
    };
    let gate = child("gate join", &root);
    child("limits", &gate);
    let lane = child("lane", &gate);
    let store = child("store join", &gate);
    for span in [&lane, &store] {
        let shown = attributes(span);
        let of = |key: &str| shown.get(key).map(String::as_str);
        assert_eq!(
            [of("weir.zone"), of("weir.store.call"), of("weir.batch.size")],
            [Some("Z"), Some("join"), Some("1")]
        );
        assert!(of("weir.batch.number").is_some_and(|number| number.parse::<u64>().is_ok()), "{shown:?}");
    }
    assert_eq!(lane.end_time_unix_nano, store.start_time_unix_nano);
    let ids: BTreeSet<_> = received.spans.iter().map(|span| (&span.trace_id, &span.span_id)).collect();
    assert_eq!(ids.len(), received.spans.len(), "no id is there twice");
    store
}

/// A join's spans show the gate, the client's limit, the lane with the batch, and the store's call, below the span of the caller. A poll
/// that is answered from the view has one span. A request that fails says so.
pub(crate) fn a_join_shows_its_way_to_the_store() {
    let collector = Collector::start(Answers::Taken);
    let limited = "waits_per_minute_per_client = 600000";
    let weir =
        Setup::new(&(collector.settings(ALL) + &zone("Z", 1, limited) + &zone("HELD", 1, "mode = \"hold\"")))
            .start();
    let store = check_join(&collector, &weir);
    assert_eq!(store.kind, SpanKind::Internal as i32);

    let waiting = Answer::of(&weir.post("/traffic/wait", &body("HELD", None)));
    eventually("the view has the place", || {
        Answer::of(&weir.post("/traffic/entry", &body("HELD", Some(&waiting.token))));
        let received = collector.received();
        let polls: Vec<_> =
            received.spans.iter().filter(|span| span.name == "POST /traffic/entry").cloned().collect();
        let is_alone = |poll: &Span| received.spans.iter().all(|span| span.parent_span_id != poll.span_id);
        polls.iter().any(is_alone).then_some(())
    });
    assert_eq!(weir.get("/wait/Z").status, 200);
    let (page, _) = arrives(&collector, "GET /wait/{zone}");
    assert_eq!(attributes(&page).get("url.path"), None, "its path has a parameter");

    let refused = post_with(&weir, "/traffic/entry", &[], &body("Z", Some("nonsense")));
    let problem = refused.problem();
    eventually("the refused poll arrives", || {
        let spans = collector.received().spans;
        let found = spans.iter().find(|span| attributes(span).get("weir.problem") == Some(&problem))?;
        assert_eq!(attributes(found).get("http.response.status_code"), Some(&refused.status.to_string()));
        assert_eq!(found.status, None, "the client's fault is no error of the server");
        Some(())
    });
    let service = collector.received().resources.swap_remove(0).attributes;
    assert_eq!(text_of(&service, "service.name").as_deref(), Some("weir"));
    for known in ["service.version", "service.instance.id", "host.name"] {
        assert!(text_of(&service, known).is_some_and(|value| !value.is_empty()), "{known}");
    }
}

/// With Redis, the call to the store is a client's span, and a call that fails is a failed span.
pub(crate) fn a_join_shows_the_call_to_redis() {
    let (collector, redis) = (Collector::start(Answers::Taken), Standalone::start());
    let limited = "waits_per_minute_per_client = 600000";
    let store = format!("store = \"{}\"\n", redis.url());
    let weir = Setup::new(&(store + &collector.settings(ALL) + &zone("Z", 60, limited))).start();
    let store = check_join(&collector, &weir);
    assert_eq!(store.kind, SpanKind::Client as i32);
    let shown = attributes(&store);
    let of = |key: &str| shown.get(key).map(String::as_str);
    assert_eq!([of("db.system.name"), of("db.operation.name")], [Some("redis"), Some("EVALSHA")]);
    eventually("a failed call is a failed span", || {
        // Once a beat has found that the store is away, a join makes no call. So it must be the first call that fails.
        redis.stop();
        weir.post("/traffic/wait", &body("Z", None));
        redis.cont();
        let spans = collector.received().spans;
        let has_failed = |span: &Span| {
            let is_error = span.status.as_ref().is_some_and(|status| status.code == StatusCode::Error as i32);
            span.name == "store join" && is_error
        };
        spans.iter().any(has_failed).then_some(())
    });
    eventually("so is a request that the store's trouble fails", || {
        let spans = collector.received().spans;
        let of = |span: &Span| attributes(span).get("error.type").cloned();
        spans.iter().any(|span| of(span).as_deref() == Some("503")).then_some(())
    });
}

/// No token, pass, address or e-mail address is in anything that a collector gets, and no word of a client. The headers for the collector
/// arrive, and are in no log.
pub(crate) fn nothing_private_is_sent() {
    let collector = Collector::start(Answers::Taken);
    let (token, lines) = new_token("kim@shop.example", "admin");
    let headers = ALL.to_owned() + "\nheaders = \"X-Key=s3cret%20word\"";
    let config = format!(
        "trusted_proxies = [\"127.0.0.1\"]\n{lines}\n{}",
        zone("Z", 60, "") + &collector.settings(&headers)
    );
    let weir = Setup::new(&config).start();
    let visitor = [
        "X-Forwarded-For: 198.51.100.9".to_owned(),
        "User-Agent: mozilla-of-kim@shop.example".to_owned(),
        "tracestate: mail=kim@shop.example".to_owned(),
        format!("traceparent: 00-{TRACE}-{PARENT}-01"),
        "baggage: user=kim@shop.example".to_owned(),
    ];
    let joined = Answer::of(&post_with(&weir, "/traffic/wait", &visitor, &body("Z", None)));
    post_with(&weir, "/traffic/entry", &visitor, &body("Z", Some(&joined.token)));
    post_with(&weir, "/traffic/wait", &visitor, &body("kim@shop.example", None));
    weir.get(&format!("/traffic/stream?zone=NONE&token={}", joined.token));
    weir.get("/wait/198.51.100.9?mail=kim@shop.example");
    weir.get("/kim@shop.example/198.51.100.9");
    let odd = weir.connect().ask("KIMS-METHOD", "/nowhere", &[], None).expect("answered");
    assert_eq!(odd.status, 404);
    let bearer = format!("Bearer {token}");
    let wrong = [("Authorization", "Bearer weir_wrong"), ("X-Forwarded-For", "198.51.100.9")];
    assert_eq!(weir.admin_ask("GET", "/admin/v1/zones", &wrong, None).status, 401);
    let right = [("Authorization", bearer.as_str()), ("If-Match", "*"), ("X-Forwarded-For", "198.51.100.9")];
    let held = Some(r#"{"policy":{"mode":"hold"}}"#);
    assert_eq!(weir.admin_ask("PATCH", "/admin/v1/zones/Z", &right, held).status, 200);
    // The refusal above is logged with the address, too.
    eventually("the act of the operator is in the log, with name and address", || {
        let log = weir.log();
        ["kim@shop.example", "198.51.100.9"].iter().all(|private| log.contains(private)).then_some(())
    });
    let log = weir.log();
    weir.stop();

    let received = collector.received();
    assert!(
        received.heads.iter().all(|head| head.contains("\r\nx-key: s3cret word\r\n")),
        "{:?}",
        received.heads
    );
    assert!(!log.contains("s3cret"), "{log}");
    assert!(received.spans.iter().any(|span| span.name == "_OTHER /nowhere" || span.name == "HTTP"));
    assert!(received.spans.iter().any(|span| span.name == "PATCH /admin/v1/zones/{id}"));
    let said: Vec<String> = received.records.iter().map(body_of).collect();
    assert!(said.iter().any(|text| text.contains("stopping")), "{said:?}");
    let hidden = received.records.iter().filter_map(|record| text_of(&record.attributes, "name"));
    assert!(hidden.into_iter().any(|name| name == "(hidden)"), "{said:?}");
    let pass = joined.pass().to_owned();
    let secrets = [
        joined.token.as_str(),
        pass.as_str(),
        token.as_str(),
        "198.51.100.9",
        "192.0.2.7",
        "127.0.0.1",
        "kim",
        "KIMS",
        "weir_wrong",
        "s3cret",
        "mozilla",
        "nonsense",
    ];
    for body in &received.bodies {
        let text = String::from_utf8_lossy(body);
        for secret in secrets {
            assert!(!text.contains(secret), "{secret} is in {text}");
        }
    }
}

/// A caller's mark continues a trace, up to the limit. Marks that are not right begin none.
pub(crate) fn callers_cannot_force_traces() {
    let collector = Collector::start(Answers::Taken);
    let settings = collector.settings("sample = 0\nmax_traces_per_s = 3");
    let weir = Setup::new(&(settings + &zone("Z", 60, "mode = \"hold\""))).start();
    let marked = format!("traceparent: 00-{TRACE}-{PARENT}-01");
    let long = format!("traceparent: 00-{TRACE}-{PARENT}-01-{}", "a".repeat(4_000));
    let wrong: &[&[String]] = &[
        &[],
        &[format!("traceparent: 00-{TRACE}-{PARENT}-00")],
        &[marked.clone(), marked.clone()],
        &[long],
        &[marked.to_uppercase()],
        &["traceparent: 00-0-0-01".to_owned()],
    ];
    for headers in wrong {
        assert_eq!(post_with(&weir, "/traffic/entry", headers, "{").status, 400, "{headers:?}");
    }
    let began = now();
    for _ in 0..200 {
        assert_eq!(
            post_with(&weir, "/traffic/wait", std::slice::from_ref(&marked), &body("Z", None)).status,
            200
        );
    }
    let seconds = began.elapsed().as_secs() + 2;
    let dropped = "weir_otlp_dropped_total{signal=\"traces\",why=\"limit\"}";
    let over = value(&scrape(&weir), dropped).expect("it is there");
    weir.stop();
    let received = collector.received();
    let roots: Vec<_> = received.spans.iter().filter(|span| span.kind == SpanKind::Server as i32).collect();
    assert!(roots.iter().all(|root| root.name == "POST /traffic/wait"), "{roots:?}");
    assert!((1..=3 * seconds).contains(&(roots.len() as u64)), "{} in {seconds} s", roots.len());
    assert_eq!(roots.len() as f64 + over, 200.0);
}

/// The series of a report, as `/metrics` writes them; of a histogram, its count and its sum.
fn series(metrics: &[Metric]) -> BTreeMap<String, f64> {
    let mut all = BTreeMap::new();
    let mut add = |name: String, labels: &[server::otlp::message::KeyValue], number: f64| {
        let shown: Vec<String> = labels
            .iter()
            .map(|label| format!("{}=\"{}\"", label.key, text_of(labels, &label.key).expect("a value")))
            .collect();
        let labels = if shown.is_empty() { String::new() } else { format!("{{{}}}", shown.join(",")) };
        assert!(all.insert(name + &labels, number).is_none());
    };
    for metric in metrics {
        let name = &metric.name;
        match metric.data.as_ref().expect("it has data") {
            Data::Gauge(gauge) => {
                for point in &gauge.data_points {
                    add(name.clone(), &point.attributes, point.as_double.expect("a number"));
                }
            }
            Data::Sum(sum) => {
                assert!(sum.is_monotonic && name.ends_with("_total"), "{name}");
                for point in &sum.data_points {
                    add(name.clone(), &point.attributes, point.as_double.expect("a number"));
                }
            }
            Data::Histogram(histogram) => {
                for point in &histogram.data_points {
                    assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1, "{name}");
                    assert_eq!(point.bucket_counts.iter().sum::<u64>(), point.count, "{name}");
                    add(format!("{name}_count"), &point.attributes, point.count as f64);
                    add(format!("{name}_sum"), &point.attributes, point.sum.expect("a sum"));
                }
            }
        }
    }
    all
}

/// The metrics are the same series with the same numbers as those of `/metrics`.
pub(crate) fn metrics_are_those_of_prometheus() {
    let collector = Collector::start(Answers::Taken);
    let weir = Setup::new(&(collector.settings("") + &zone("Z", 5, "") + &zone("EMPTY", 5, ""))).start();
    for n in 0..8 {
        assert_eq!(Answer::of(&weir.post("/traffic/wait", &body("Z", None))).can_enter, n < 5);
    }
    eventually("the totals are shown", || {
        (value(&scrape(&weir), "weir_zone_joined_total{zone=\"Z\"}") == Some(8.0)).then_some(())
    });
    let scraped = scrape(&weir);
    weir.stop();
    let sent = series(&collector.received().metrics);
    let shown: BTreeMap<String, f64> = scraped
        .lines()
        .filter(|line| !line.starts_with('#') && !line.contains("_bucket{"))
        .map(|line| line.rsplit_once(' ').expect("a number"))
        .map(|(series, number)| (series.to_owned(), number.parse().expect("a number")))
        .collect();
    let missing: Vec<_> = shown.keys().filter(|series| !sent.contains_key(*series)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    // Slots are offered as time goes by.
    let stays = |series: &str| {
        series.contains("zone=\"") && series.contains("_total") && !series.contains("slots_offered")
    };
    for still in shown.keys().filter(|series| stays(series)) {
        assert_eq!(sent[still], shown[still], "{still}");
    }
    assert_eq!(sent["weir_zone_entered_total{zone=\"Z\"}"], 5.0);
    assert_eq!(sent["weir_request_duration_seconds_count{route=\"wait\"}"], 8.0);
    // Without a collector, nothing of it is there.
    let plain = Setup::zone(5, "").start();
    assert!(!scrape(&plain).contains("weir_otlp"));
}

/// A collector that is away, says no or refuses a part is named in the log once, and its end, too. Requests notice nothing.
pub(crate) fn a_collector_that_fails_is_named_once_and_harms_nothing() {
    let cases = [
        (Answers::Status(500), "status 500", "failed"),
        (Answers::Status(302), "status 302", "failed"),
        (Answers::Never, "no answer within 10 s", "failed"),
        (Answers::Partly, "it refuses a part, and says \"bad\"", "refused"),
    ];
    let servers: Vec<_> = cases
        .into_iter()
        .map(|(answers, cause, why)| {
            let collector = Collector::start(answers);
            let weir = Setup::new(&(collector.settings(ALL) + &zone("Z", 60, ""))).start();
            (collector, weir, cause, why)
        })
        .collect();
    for (_, weir, ..) in &servers {
        Answer::of(&weir.post("/traffic/wait", &body("Z", None)));
    }
    for (_, weir, cause, why) in &servers {
        let dropped = format!("weir_otlp_dropped_total{{signal=\"traces\",why=\"{why}\"}}");
        eventually(&format!("{cause} is in the log, and counted"), || {
            Answer::of(&weir.post("/traffic/wait", &body("Z", None)));
            let is_counted = value(&scrape(weir), &dropped).is_some_and(|count| count > 0.0);
            (weir.log().contains(cause) && is_counted).then_some(())
        });
    }
    for (collector, weir, cause, _) in &servers {
        collector.answer(Answers::Taken);
        eventually(&format!("the end of `{cause}` is in the log"), || {
            weir.post("/traffic/wait", &body("Z", None));
            weir.log().contains(" again").then_some(())
        });
        let log = weir.log();
        assert_eq!(log.matches("of OpenTelemetry does not take").count(), 1, "{log}");
        eventually("traces arrive", || (!collector.received().spans.is_empty()).then_some(()));
    }
    // Nobody listens.
    let gone = Collector::start(Answers::Taken).settings("").replace("127.0.0.1", "127.66.66.66");
    let weir = Setup::new(&(gone + &zone("Z", 60, ""))).start();
    eventually("an unreachable collector is named", || {
        Answer::of(&weir.post("/traffic/wait", &body("Z", None)));
        weir.log().contains("does not take").then_some(())
    });
    weir.logs("refused");
    assert_eq!(weir.admin_get("/readyz").status, 200);
}

/// What waits at the end is sent, and a collector that does not answer holds the end up for two seconds at most.
pub(crate) fn a_stop_sends_what_waits_and_is_bounded() {
    let collector = Collector::start(Answers::Taken);
    let weir = Setup::new(&(collector.settings(ALL) + &zone("Z", 60, ""))).start();
    for _ in 0..20 {
        weir.post("/traffic/wait", &body("Z", None));
    }
    weir.stop();
    let received = collector.received();
    assert_eq!(received.spans.iter().filter(|span| span.name == "POST /traffic/wait").count(), 20);
    assert!(received.records.iter().any(|record| body_of(record) == "stopped"));

    let collector = Collector::start(Answers::Never);
    let mut weir = Setup::new(&(collector.settings(ALL) + &zone("Z", 60, ""))).start();
    weir.post("/traffic/wait", &body("Z", None));
    weir.signal(Signal::TERM);
    eventually("it stops", || weir.log().contains("stopped").then_some(()));
    let stopped = now();
    assert!(weir.wait_for_end().success());
    assert!(stopped.elapsed().as_secs() < 9, "a call may take ten seconds, and this one was cut short");
}
