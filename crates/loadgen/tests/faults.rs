//! The verdict names each fault of a waiting room, and a room without a fault passes every check.
//!
//! The crowd and the room run in virtual time, so a rehearsal of minutes takes milliseconds, with random network delays.
//! `http::spawn` serves the same room over HTTP in real time.

#[path = "bad_server/crowd.rs"]
mod crowd;
#[path = "bad_server/http.rs"]
mod http;
#[path = "bad_server/room.rs"]
mod room;

use bytes::Bytes;
use crowd::Crowd;
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, StatusCode, client::conn::http1};
use hyper_util::rt::TokioIo;
use loadgen::{
    promise_checks::judge,
    report::{Check, Eta, Judgement, Plan},
};
use proptest::prelude::*;
use room::{Fault, Policy, Room, Way};
use serde_json::{Value, json};
use tokio::net::TcpStream;

/// Each fault, and the check that must fail. `WrongEta` shows in the figures of `eta` and `Stalls` in the latencies; no
/// check fails for them, because objectives judge both.
const FAULTS: [(Fault, &str); 10] = [
    (Fault::TooManyAMinute, "over_admission_60s"),
    (Fault::TooManyASubWindow, "over_admission_sub_window"),
    (Fault::Reorders, "order"),
    (Fault::RaisesRanks, "rank_rises"),
    (Fault::LosesUsers, "evictions"),
    (Fault::SecondPass, "entered_once"),
    (Fault::OnePass, "entered_once"),
    (Fault::WastesSlots, "slot_use"),
    (Fault::Forgets(Way::InAnHour), "polling_period"),
    (Fault::Forgets(Way::Stale), "order"),
];

const CALM: Crowd = Crowd {
    users: 400,
    come_within_ms: 20_000,
    delay_ms: 60,
    leaves: 0,
    naps: 0,
    away_ms: (0, 0),
    until_ms: 200_000,
    seed: 1,
};

fn rehearse(crowd: Crowd, admit_per_minute: u32, fault: Fault) -> (Vec<Check>, Eta) {
    let policy =
        Policy { admit_per_minute, sub_windows: 10, polling_ms: 3_000, idle_ms: 60_000, opens_at: 0 };
    let stories = crowd::run(crowd, &mut Room::new(policy, fault));
    let plan = Plan {
        target: "http://127.0.0.1:1".into(),
        zone: "Z".into(),
        profile: "test".into(),
        users: crowd.users,
        planned_ms: crowd.until_ms,
        abandon: 0.0,
        streams: 0,
        start_unix_ms: 0,
        is_part: false,
        admit_per_minute: Some(admit_per_minute),
        sub_windows: 10,
        idle_s: 60,
        inside_at_most: None,
        opening: None,
    };
    judge(&plan, crowd.until_ms, &stories, &[])
}

fn failed(checks: &[Check]) -> Vec<&Check> {
    checks.iter().filter(|check| check.judgement == Judgement::Bad).collect()
}

#[test]
fn a_good_room_passes_every_check() {
    let (checks, eta) = rehearse(CALM, 120, Fault::None);
    for check in &checks {
        assert_eq!(check.judgement, Judgement::Good, "{check:?}");
    }
    assert!(eta.users > 200 && eta.coverage > 0.9, "{eta:?}");
}

#[test]
fn each_fault_fails_its_check_with_a_worst_example() {
    for (fault, name) in FAULTS {
        let (checks, _) = rehearse(CALM, 120, fault);
        let check = checks.iter().find(|check| check.name == name).expect("a check of that name");
        assert_eq!(check.judgement, Judgement::Bad, "{fault:?}: {check:?}");
        assert!(
            check.count > 0 && !check.worst.is_empty() && !check.worst_ko.is_empty(),
            "{fault:?}: {check:?}"
        );
    }
}

#[test]
fn faults_are_found_in_a_crowd_that_leaves_pauses_and_hears_late() {
    let crowd = Crowd { leaves: 3, naps: 12, delay_ms: 400, ..CALM };
    for (fault, name) in FAULTS {
        let (checks, _) = rehearse(crowd, 120, fault);
        assert!(failed(&checks).iter().any(|check| check.name == name), "{fault:?}: {checks:#?}");
    }
}

/// The burst uses the minute, and the few who wait enter within seconds a minute later.
#[test]
fn a_line_that_ends_within_a_sub_window_does_not_hide_too_many_entries() {
    let crowd = Crowd { users: 150, ..CALM };
    let (checks, _) = rehearse(crowd, 120, Fault::TooManyASubWindow);
    let names: Vec<_> = failed(&checks).iter().map(|check| check.name.clone()).collect();
    assert_eq!(names, ["over_admission_sub_window"], "{checks:#?}");
}

/// After an outage all users may have counted as absent. Whoever polls as told afterwards is judged again.
#[test]
fn faults_after_an_outage_are_found() {
    for away_ms in [(25_000, 33_000), (25_000, 60_000)] {
        let crowd = Crowd { away_ms, until_ms: 240_000, users: 600, ..CALM };
        let (checks, _) = rehearse(crowd, 120, Fault::None);
        assert!(checks.iter().all(|check| check.judgement == Judgement::Good), "{checks:#?}");
        for (fault, name) in FAULTS {
            let (checks, _) = rehearse(crowd, 120, fault);
            assert!(failed(&checks).iter().any(|check| check.name == name), "{fault:?}: {checks:#?}");
        }
    }
}

#[test]
fn a_wrong_eta_is_measured() {
    let (checks, eta) = rehearse(CALM, 120, Fault::WrongEta);
    assert!(failed(&checks).is_empty(), "{checks:?}");
    assert!(eta.coverage < 0.2 && eta.ratio[1] > 3.0 && eta.bias_s > 20.0, "{eta:?}");
}

/// Makes the calls one after another over one connection.
async fn calls(policy: Policy, fault: Fault, calls: &[(&str, Value)]) -> Vec<(StatusCode, Value)> {
    let address = http::spawn(policy, fault).await;
    let stream = TcpStream::connect(address).await.expect("it listens");
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.expect("HTTP");
    tokio::spawn(connection);
    let mut replies = Vec::new();
    for (path, body) in calls {
        let body = Full::new(Bytes::from(body.to_string()));
        let request = Request::post(*path).header("host", "127.0.0.1").body(body).expect("a request");
        let reply = sender.send_request(request).await.expect("a reply");
        let status = reply.status();
        let body = reply.into_body().collect().await.expect("its body").to_bytes();
        replies.push((status, serde_json::from_slice(&body).expect("JSON")));
    }
    replies
}

#[tokio::test]
async fn the_room_follows_the_wire_format() {
    let policy =
        Policy { admit_per_minute: 1, sub_windows: 1, polling_ms: 3_000, idle_ms: 60_000, opens_at: 0 };
    let zone = || json!({"zoneId": http::ZONE});
    let entry = |token| json!({"zoneId": http::ZONE, "token": token});
    let script = [
        ("/traffic/wait", zone()),
        ("/traffic/wait", zone()),
        ("/traffic/entry", entry("0")),
        ("/traffic/entry", entry("1")),
        ("/traffic/entry", entry("99")),
        ("/traffic/entry", json!({"zoneId": "OTHER", "token": "0"})),
    ];
    let replies = calls(policy, Fault::None, &script).await;
    assert_eq!((&replies[0].1["canEnter"], &replies[0].1["token"]), (&json!(true), &json!("0")));
    assert_eq!(replies[0].1["pass"], replies[2].1["pass"], "asking again gives the same pass");
    assert_eq!(replies[1].1["canEnter"], false);
    let waiting = &replies[3].1["waiting"];
    assert_eq!((&waiting["rank"], &waiting["pollingPeriod"]), (&json!(1), &json!(3_000)));
    assert!(waiting["etaSeconds"].as_u64() > Some(30) && waiting["etaRange"].is_array(), "{waiting}");
    assert_eq!((replies[4].0, &replies[4].1["code"]), (StatusCode::GONE, &json!("gone")));
    assert_eq!((replies[5].0, &replies[5].1["code"]), (StatusCode::NOT_FOUND, &json!("unknown_zone")));

    let again = calls(policy, Fault::SecondPass, &script[..3]).await;
    assert_ne!(again[0].1["pass"], again[2].1["pass"]);
}

/// The paused clock advances only while the test sleeps, so a delay of a second takes no real time.
#[tokio::test(start_paused = true)]
async fn the_stalling_room_answers_late() {
    let policy =
        Policy { admit_per_minute: 1, sub_windows: 1, polling_ms: 3_000, idle_ms: 60_000, opens_at: 0 };
    let before = tokio::time::Instant::now();
    calls(policy, Fault::Stalls, &[("/traffic/wait", json!({"zoneId": http::ZONE}))]).await;
    assert!(before.elapsed() >= std::time::Duration::from_secs(1));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// A room without a fault fails no check, over any network, with any share of users who leave or pause, and with an outage. Used
    /// slots are not checked where slow or lost calls or leaving users, not the room, waste slots.
    #[test]
    fn a_good_room_fails_no_check_over_any_network(
        users in 1_u32..300,
        come_within_ms in 0_u32..60_000,
        delay_ms in prop_oneof![0_u32..100, 100_u32..4_000],
        leaves in 0_u32..6,
        naps in 0_u32..8,
        admit_per_minute in 1_u32..200,
        away_from_ms in 0_u32..150_000,
        away_for_ms in prop_oneof![Just(0_u32), 1_u32..6_000, 6_000_u32..50_000],
        seed: u64,
    ) {
        let away_ms = (away_from_ms, away_from_ms + away_for_ms);
        let crowd = Crowd { users, come_within_ms, delay_ms, leaves, naps, away_ms, until_ms: 180_000, seed };
        let (checks, _) = rehearse(crowd, admit_per_minute, Fault::None);
        let calm = delay_ms < 100 && leaves == 0 && away_for_ms == 0;
        let failed_checks: Vec<_> =
            failed(&checks).into_iter().filter(|check| calm || check.name != "slot_use").collect();
        prop_assert!(failed_checks.is_empty(), "{failed_checks:#?}");
    }
}
