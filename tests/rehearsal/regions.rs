//! Servers in three regions share one store: one is beside it, the others are 80 and 180 ms away. Each region has its own crowd, and the
//! rehearsals of all three are judged together.
//!
//! Proxies delay each way by half of the round trip, and lose nothing.

use std::{
    fs,
    io::{self, Write as _},
    process::Command,
    time::Duration,
};

use serde_json::Value;
use store::unix_ms;

use crate::{
    clock::eventually,
    in_s, judged,
    redis::{Proxy, Standalone},
    start,
    weir::{self, Setup, Weir, zone},
};

/// The round trips from each region to the store, in milliseconds.
const ROUND_TRIPS_MS: [u64; 3] = [5, 80, 180];

/// How many enter in a minute. So 20 of the 240 people enter in a sub-window.
const PER_MINUTE: u32 = 200;

/// All come within 5 s, in the pre-queue, and so the line is there when the zone opens.
const PROFILE: &str = "users = 80\nsteps = [[5, 1.0], [5, 1.0], [34, 1.0], [1, 0.0]]\nprequeue_s = 10\nfirst_sleep_s = [0, 0.5]\nthen = \"stay\"\n";

/// A server, and its way to the store.
struct Region {
    way: Proxy,
    server: Weir,
}

/// The regions over a store, in which the zone opens in so many seconds; and when that is, in milliseconds of the Unix clock.
fn regions(redis: &Standalone, opens_in_s: i64) -> (Vec<Region>, u64) {
    let (begins, begins_ms) = in_s(opens_in_s);
    let (from, ends) = (in_s(-120).0, in_s(600).0);
    let event = format!(
        "polling_period_ms = 1000\n[[zone.event]]\nid = \"sale\"\nprequeue_from = \"{from}\"\nbegins = \"{begins}\"\nends = \"{ends}\"\n"
    );
    // An operator defines the zone: that of a file admits nobody in its first minute.
    let defined = Setup::new(&zone("Z", PER_MINUTE, &event));
    let mut apply = Command::new(weir::binary());
    let apply = weir::without_variables(&mut apply).args(["zones", "apply", "--store", &redis.url()]);
    let applied = apply.arg(defined.config_path()).output().expect("the binary runs");
    assert!(applied.status.success(), "{applied:?}");
    let keys = Setup::new("").start().stop();
    let file = |name: &str| keys.data().join(name);
    let config =
        format!("seal.key_file = {:?}\npass.key_file = {:?}\n", file("seal.key"), file("pass-es256.pem"));
    let region = |round_trip_ms: &u64| {
        let way = Proxy::start(([127, 0, 0, 1], redis.port()).into());
        way.delay(Duration::from_micros(round_trip_ms * 500));
        let store = format!("--store=redis://127.0.0.1:{}", way.port());
        Region { server: Setup::new(&config).arg(store).start(), way }
    };
    (ROUND_TRIPS_MS.iter().map(region).collect(), begins_ms)
}

/// Rehearses in all regions at the same time, calls `meanwhile` with them when the zone has opened, and returns the joint run, what it said,
/// and the run of each region.
fn rehearse(meanwhile: impl FnOnce(&[Region])) -> (Value, String, Vec<Value>) {
    let redis = Standalone::start();
    let (regions, opens_ms) = regions(&redis, 24);
    // All begin at the same time, ten seconds before the zone opens.
    let at = (opens_ms / 1_000 - 10).to_string();
    let args = ["--start-at", &at, "--admit-per-minute", "200"];
    let running: Vec<_> = regions.iter().map(|region| start(&region.server, PROFILE, &args)).collect();
    eventually("the zone opens", || (unix_ms() >= opens_ms).then_some(()));
    meanwhile(&regions);
    let ended: Vec<_> = running.into_iter().map(crate::Running::end).collect();
    let files: Vec<_> = regions.iter().map(|region| region.server.setup().dir().join("run.json")).collect();
    let merged = Command::new(weir::build("loadgen")).args(["merge", "--json", "-"]).args(&files).output();
    let merged = merged.expect("loadgen runs");
    let said = format!("{ended:?}\n{}", String::from_utf8_lossy(&merged.stderr));
    let read = |bytes: &[u8]| serde_json::from_slice(bytes).unwrap_or_else(|error| panic!("{error}: {said}"));
    let runs = files
        .iter()
        .map(|file| read(&fs::read(file).unwrap_or_else(|error| panic!("{error}: {said}"))))
        .collect();
    (read(&merged.stdout), said, runs)
}

fn assert_good(run: &Value, said: &str, names: &[&str]) {
    for name in names {
        assert_eq!(judged(run, name).0, "good", "{name}: {:?}\n{said}", judged(run, name));
    }
    let checks = run["report"]["checks"].as_array().expect("checks");
    assert!(checks.iter().all(|check| check["judgement"] != "bad"), "{checks:?}\n{said}");
}

/// For `docs/operate/regions.md`.
fn print_figures(run: &Value, runs: &[Value]) {
    let mut text = judged(run, "slot_use").1;
    for (round_trip_ms, run) in ROUND_TRIPS_MS.iter().zip(runs) {
        let of = |kind: &str, percentile: usize| {
            run["report"][kind]["percentiles_us"][percentile].as_f64().unwrap_or_default() / 1_000.0
        };
        // The 50th and the 99th.
        let line = |kind: &str| format!("{kind} p50 {:.1} ms, p99 {:.1} ms", of(kind, 0), of(kind, 3));
        text += &format!("\n{round_trip_ms} ms: {}; {}", line("wait"), line("entry"));
    }
    drop(writeln!(io::stderr(), "{text}"));
}

/// One line: people of all regions enter in the order in which they came, and use the slots together.
#[test]
fn three_regions_serve_one_line() {
    let (run, said, runs) = rehearse(|_| {});
    let names = [
        "opening",
        "order",
        "rank_rises",
        "entered_once",
        "evictions",
        "errors",
        "over_admission_sub_window",
        "slot_use",
    ];
    assert_good(&run, &said, &names);
    print_figures(&run, &runs);
}

/// A region that is cut off from the store answers polls and lets nobody in; when the way is back, its people still have their places.
#[test]
fn a_region_that_is_cut_off_loses_nobody() {
    let (run, said, runs) = rehearse(|regions| {
        regions[2].way.cut();
        let cut_ms = unix_ms();
        let server = &regions[2].server;
        eventually("it is noticed", || server.log().contains("no_answer").then_some(()));
        eventually("twelve seconds are over", || (unix_ms() >= cut_ms + 12_000).then_some(()));
        regions[2].way.pass();
        regions[2].way.delay(Duration::from_millis(90));
    });
    assert_good(&run, &said, &["opening", "entered_once", "evictions", "over_admission_sub_window"]);
    print_figures(&run, &runs);
}
