//! The metrics that an operator sees.

use std::{
    io::Write as _,
    process::{Command, Stdio},
};

use rustix::process::Signal;

use crate::{
    app::{Answer, body},
    clock::eventually,
    weir::{Setup, Weir, zone},
};

/// The value of a series in the text of the metrics.
pub(crate) fn value(metrics: &str, series: &str) -> Option<f64> {
    let line =
        metrics.lines().find(|line| line.strip_prefix(series).is_some_and(|rest| rest.starts_with(' ')))?;
    line.rsplit_once(' ')?.1.parse().ok()
}

/// The current value of a series of whole numbers.
pub(crate) fn gauge(weir: &Weir, series: &str) -> u64 {
    let metrics = scrape(weir);
    let line = metrics.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no {series}: {metrics}"))
}

pub(crate) fn scrape(weir: &Weir) -> String {
    let reply = weir.admin_get("/metrics");
    assert_eq!(reply.status, 200);
    assert!(reply.header("content-type").is_some_and(|kind| kind.contains("text")), "{reply:?}");
    reply.text().to_owned()
}

/// `promtool check metrics` finds no fault in the live output, and the numbers match what happened.
pub(crate) fn promtool_is_silent_and_the_numbers_are_right() {
    let weir = Setup::new(&(zone("Z", 5, "") + &zone("EMPTY", 5, ""))).start();
    for n in 0..8 {
        let answer = Answer::of(&weir.post("/traffic/wait", &body("Z", None)));
        assert_eq!(answer.can_enter, n < 5);
        if !answer.can_enter {
            weir.post("/traffic/entry", &body("Z", Some(&answer.token)));
        }
    }
    weir.post("/traffic/wait", "{");
    let wanted = [
        ("weir_zone_waiting_tickets{zone=\"Z\"}", 3.0),
        ("weir_zone_present_tickets{zone=\"Z\"}", 3.0),
        ("weir_zone_joined_total{zone=\"Z\"}", 8.0),
        ("weir_zone_entered_total{zone=\"Z\"}", 5.0),
        ("weir_zone_evicted_total{zone=\"Z\"}", 0.0),
        ("weir_zone_waiting_tickets{zone=\"EMPTY\"}", 0.0),
        ("weir_zone_joined_total{zone=\"EMPTY\"}", 0.0),
        ("weir_requests_total{route=\"wait\",status=\"200\"}", 8.0),
        ("weir_requests_total{route=\"wait\",status=\"400\"}", 1.0),
        ("weir_requests_total{route=\"entry\",status=\"200\"}", 3.0),
    ];
    for (series, number) in wanted {
        let mut last = None;
        let metrics = eventually(&format!("{series} is {number}"), || {
            let metrics = scrape(&weir);
            last = value(&metrics, series);
            (last == Some(number)).then_some(metrics)
        });
        check(&metrics);
    }
}

fn check(metrics: &str) {
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| panic!("promtool ({e}): it comes with Debian's package prometheus"));
    let mut stdin = promtool.stdin.take().expect("piped");
    stdin.write_all(metrics.as_bytes()).expect("promtool reads");
    drop(stdin);
    let output = promtool.wait_with_output().expect("promtool ends");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success() && said.is_empty(), "{}", String::from_utf8_lossy(&said));
}

/// Both listeners report health and readiness, and the metrics count reloads.
pub(crate) fn health_and_readiness() {
    let weir = Setup::zone(60, "").start();
    for path in ["/healthz", "/readyz"] {
        assert_eq!([weir.get(path).status, weir.admin_get(path).status], [200, 200], "{path}");
    }
    assert_eq!(weir.admin_get("/traffic/wait").status, 404, "the admin listener serves no users");
    let reloads = |result: &str| {
        value(&scrape(&weir), &format!("weir_config_reloads_total{{result=\"{result}\"}}")).unwrap_or(0.0)
    };
    weir.signal(Signal::HUP);
    eventually("a good reload is counted", || (reloads("ok") > 0.5).then_some(()));
    weir.setup().write_config("nonsense");
    weir.signal(Signal::HUP);
    eventually("a bad reload is counted", || (reloads("failed") > 0.5).then_some(()));
    for series in ["weir_kernel_listen_overflows_total", "weir_kernel_listen_drops_total", "process_open_fds"]
    {
        assert!(value(&scrape(&weir), series).is_some(), "{series}");
    }
}
