//! Users do not notice trouble of the store.
//!
//! A limit on the size of files simulates a full disk: any user can set and lift it on a running process, and every
//! write to the journal fails, as on a disk without space.

use rustix::process::{Resource, Rlimit, prlimit};
use serde_json::json;

use crate::{
    admin::weir as command,
    app::{Answer, body},
    client::Reply,
    clock::eventually,
    keys::KeyFiles,
    passes::JwkSet,
    redis::Standalone,
    weir::{Setup, Weir, zone},
};

/// A server whose journal may fail. A write beyond the limit must return an error instead of ending the process.
fn start(config: &str) -> Weir {
    Setup::new(config).shell("trap '' XFSZ;").start()
}

fn limit_files(weir: &Weir, bytes: Option<u64>) {
    let limit = Rlimit { current: bytes, maximum: None };
    prlimit(Some(weir.pid()), Resource::Fsize, limit)
        .expect("our own process, and no lower limit on this one");
}

/// The reply to a join while the disk is full, for the table of errors.
pub(crate) fn join_while_away() -> Reply {
    let weir = start(&zone("Z", 60, ""));
    limit_files(&weir, Some(0));
    weir.post("/traffic/wait", &body("Z", None))
}

/// While the disk is full, polls are answered and marked stale, and nobody enters or joins. When there is space
/// again, everything continues, and no place is lost.
pub(crate) fn polls_are_answered_and_nobody_enters() {
    let (held, auto) = (zone("Z", 6, "mode = \"hold\""), zone("Z", 6, ""));
    let mut weir = start(&held);
    let join = || weir.post("/traffic/wait", &body("Z", None));
    let entry = |token: &str| Answer::of(&weir.post("/traffic/entry", &body("Z", Some(token))));
    let mut tokens: Vec<String> = (0..41).map(|_| Answer::of(&join()).token).collect();
    eventually("the server's own view has all of them", || {
        let metrics = weir.admin_get("/metrics");
        metrics.text().contains("weir_zone_waiting_tickets{zone=\"Z\"} 41").then_some(())
    });
    limit_files(&weir, Some(0));
    let refused = join();
    assert_eq!((refused.status, refused.problem().as_str()), (503, "store_away"));
    // The store may write it later.
    let last = tokens.pop().expect("there are 41");
    let refused = weir.post("/traffic/leave", &body("Z", Some(&last)));
    let told = &refused.json()["detail"];
    assert_eq!(refused.status, 503);
    assert!(told.as_str().is_some_and(|told| told.ends_with("leave again")), "{refused:?}");

    // The zone is opened, but nobody enters, because an entry cannot be stored.
    weir.setup().write_config(&auto);
    weir.signal(rustix::process::Signal::HUP);
    for round in 0..20 {
        for (token, rank) in tokens.iter().zip(1..) {
            let answer = entry(token);
            let waiting = answer.waiting();
            assert_eq!(waiting.rank, rank, "round {round}");
            assert!(waiting.stale || round == 0, "an old answer is not marked stale: {waiting:?}");
        }
        assert_eq!(join().status, 503, "round {round}");
    }
    assert_eq!(weir.get("/healthz").status, 200, "restarting it would not help");
    let why = eventually("not ready", || Some(weir.admin_get("/readyz")).filter(|reply| reply.status == 503));
    assert!(why.text().contains("disk"), "{}", why.text());

    limit_files(&weir, None);
    eventually("joins are taken again", || (join().status == 200).then_some(()));
    weir.signal(rustix::process::Signal::HUP);
    eventually("the first of the line enters", || entry(&tokens[0]).pass);
    eventually("replies are fresh", || (!entry(&tokens[39]).waiting().stale).then_some(()));
    eventually("ready", || (weir.get("/readyz").status == 200).then_some(()));
    weir.kill_and_restart();
    let last = Answer::of(&weir.post("/traffic/entry", &body("Z", Some(&tokens[39]))));
    assert!(last.waiting().rank <= 39, "{last:?}");
}

/// While the store does not answer, nobody knows who waits. Whoever deletes a zone hears that, and not the number of before.
pub(crate) fn a_deletion_does_not_say_that_nobody_waits() {
    let weir = start(&zone("Z", 60, "mode = \"hold\""));
    for _ in 0..3 {
        Answer::of(&weir.post("/traffic/wait", &body("Z", None)));
    }
    limit_files(&weir, Some(0));
    let refused = weir.post("/traffic/wait", &body("Z", None));
    assert_eq!((refused.status, refused.problem().as_str()), (503, "store_away"));
    for (args, first) in [
        (
            &["zones", "delete", "Z", "--dry-run"][..],
            "the zone would be deleted\nit is not known who waits in it; all polls would be",
        ),
        (
            &["zones", "set", "Z", "mode=auto", "--dry-run"],
            "Z would be changed:\n- mode = hold\n+ mode = auto\nwarning: ",
        ),
    ] {
        let (code, said, complaint) = command(args, Some(&weir));
        assert_eq!(code, Some(0), "{said}{complaint}");
        assert!(said.starts_with(first), "{said}");
        assert!(
            said.contains("warning: the store does not answer, so it is not known who waits in the zone"),
            "{said}"
        );
    }
    limit_files(&weir, None);
    eventually("the store answers", || {
        let (_, said, _) = command(&["zones", "delete", "Z", "--dry-run"], Some(&weir));
        (said.contains(" people wait in it; ") && !said.contains("warning")).then_some(())
    });
}

/// A zone whose policy says so opens when the store has been away for `open_after_s`, and not earlier.
pub(crate) fn a_zone_opens_after_the_time_of_the_setting() {
    let config =
        |after_s: u32| format!("open_after_s = {after_s}\n{}", zone("Z", 1, "on_store_failure = \"open\""));
    let (soon, late) = (start(&config(1)), start(&config(3_600)));
    let join = |weir: &Weir| weir.post("/traffic/wait", &body("Z", None));
    for weir in [&soon, &late] {
        // The first one enters; whoever comes next waits.
        assert!(Answer::of(&join(weir)).can_enter && !Answer::of(&join(weir)).can_enter);
        limit_files(weir, Some(0));
        assert_eq!(join(weir).status, 503);
    }
    eventually("the zone opens", || {
        let reply = join(&soon);
        (reply.status == 200 && Answer::of(&reply).can_enter).then_some(())
    });
    assert_eq!(join(&late).status, 503);
}

/// Whoever entered gets the same pass while Redis is away, also where the zone opens without it. Whoever left gets none.
pub(crate) fn a_pass_is_the_same_while_redis_is_away() {
    for open in ["closed", "open"] {
        let redis = Standalone::start();
        let config = format!("store = {:?}\nopen_after_s = 1\n{}", redis.url(), zone("A", 1, ""));
        let weir = Setup::new(&config).start();
        // A zone of the file would admit nobody for a minute.
        let new = json!({ "id": "Z", "policy": { "admit_per_minute": 2, "on_store_failure": open } });
        let made = weir.admin_ask("POST", "/admin/v1/zones", &[], Some(&new.to_string()));
        assert_eq!(made.status, 201, "{made:?}");
        let keys = JwkSet::of(&weir);
        let join = || weir.post("/traffic/wait", &body("Z", None));
        let entry = |token: &str| weir.post("/traffic/entry", &body("Z", Some(token)));
        let [stays, left] = [(); 2].map(|()| {
            eventually("somebody enters", || {
                let reply = join();
                (reply.status == 200).then(|| Answer::of(&reply)).filter(|answer| answer.can_enter)
            })
        });
        let waits = Answer::of(&join());
        assert!(!waits.can_enter);
        assert_eq!(weir.post("/traffic/leave", &body("Z", Some(&left.token))).status, 204);
        let pass_of = |answer: &Answer| keys.verify(answer.pass.as_ref().expect("a pass"));
        let before = pass_of(&stays);
        redis.stop();
        if open == "closed" {
            eventually("the store is away", || (join().status == 503).then_some(()));
        } else {
            eventually("the zone is open", || Answer::of(&entry(&waits.token)).can_enter.then_some(()));
        }
        for _ in 0..3 {
            assert_eq!(pass_of(&Answer::of(&entry(&stays.token))), before, "{open}");
            assert_eq!(entry(&left.token).problem(), "gone", "{open}");
        }
    }
}

/// The same, of whoever left at another server, once this one has been told so: by an answer of the store, and with the people inside.
pub(crate) fn whoever_left_elsewhere_gets_no_pass_while_redis_is_away() {
    let redis = Standalone::start();
    let keys = KeyFiles::old();
    let config = format!("store = {:?}\n{}{}", redis.url(), keys.named("key_file"), zone("A", 1, ""));
    let [one, other] = [(); 2].map(|()| Setup::new(&config).start());
    for (zone, max_active) in [("Z", 0), ("M", 50)] {
        let new = json!({ "id": zone, "policy": { "admit_per_minute": 60, "max_active": max_active, "polling_period_ms": 500 } });
        let made = one.admin_ask("POST", "/admin/v1/zones", &[], Some(&new.to_string()));
        assert_eq!(made.status, 201, "{made:?}");
    }
    let ask = |weir: &Weir, what: &str, zone: &str, token: Option<&str>| {
        weir.post(&format!("/traffic/{what}"), &body(zone, token))
    };
    let left = ["Z", "M"].map(|zone| {
        let answer = eventually("somebody enters", || {
            let reply = ask(&one, "wait", zone, None);
            (reply.status == 200).then(|| Answer::of(&reply)).filter(|answer| answer.can_enter)
        });
        eventually("the other server returns the pass", || {
            let reply = ask(&other, "entry", zone, Some(&answer.token));
            (reply.status == 200 && Answer::of(&reply).can_enter).then_some(())
        });
        assert_eq!(ask(&one, "leave", zone, Some(&answer.token)).status, 204);
        eventually("the other server hears of it", || {
            (ask(&other, "entry", zone, Some(&answer.token)).problem() == "gone").then_some(())
        });
        (zone, answer.token)
    });
    redis.stop();
    eventually("the store is away", || (ask(&other, "wait", "Z", None).status == 503).then_some(()));
    for _ in 0..3 {
        for (zone, token) in &left {
            assert_eq!(ask(&other, "entry", zone, Some(token)).problem(), "gone", "{zone}");
        }
    }
}
