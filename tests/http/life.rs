//! The way of one user through the waiting room.

use std::{
    collections::BTreeSet,
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use rustix::process::Signal;

use crate::{
    admin,
    app::{self, Answer, App, body},
    clock::{DEADLINE, eventually, now, obey_polling_period},
    passes::{self, JwkSet, jti},
    weir::{Setup, Weir, zone},
};

/// A user joins, waits, polls as told, enters and shows the pass. When the pass has expired, the ticket is gone.
pub(crate) fn full_life() {
    let weir = Setup::zone(10, "pass_ttl_s = 60").start();
    let keys = JwkSet::of(&weir);
    let mut early: Vec<App> = (0..10).map(|_| App::new("Z")).collect();
    for app in &mut early {
        app.step(weir.public);
        assert!(app.pass().is_some(), "a burst with nobody waiting uses the minute's slots at once");
    }

    let mut us = vec![App::new("Z")];
    let joined = us[0].step(weir.public).expect("an answer").waiting().clone();
    assert_eq!((joined.rank, joined.stale, joined.reason), (1, false, None));
    assert!((100..=3_300).contains(&joined.polling_period), "{}", joined.polling_period);
    assert!(joined.eta_seconds.is_some_and(|s| (45..=65).contains(&s)), "told {:?}", joined.eta_seconds);
    app::run(&mut us, || weir.public, |us| us[0].entered.is_some(), Duration::from_secs(120));

    let first_in = early[0].entered.expect("the early ones are in");
    let waited = us[0].entered.expect("it is in").to - first_in.from;
    assert!(waited > Duration::from_secs(60) - Duration::from_millis(2), "in after {waited:?}");
    let claims = keys.verify(us[0].pass().expect("a pass"));
    assert_eq!((claims.zone.as_str(), claims.exp - claims.iat), ("Z", 60));
    let again = us[0].step(weir.public).expect("an answer");
    assert_eq!(passes::jti(&again.pass.clone().expect("still in")), claims.jti);

    // The passes of the early users have expired or will soon. Until then asking again returns the same pass, which
    // `step` checks.
    let token = early[0].last.as_ref().expect("an answer").token.clone();
    let gone = eventually("the ticket ends with its pass", || {
        let reply = weir.post("/traffic/entry", &body("Z", Some(&token)));
        let too_early = now() - first_in.to < Duration::from_secs(59);
        assert!(reply.status == 200 || !too_early, "gone while the pass is good: {reply:?}");
        (reply.status != 200).then_some(reply)
    });
    assert_eq!((gone.status, gone.problem().as_str()), (410, "gone"));
    let anew = Answer::of(&weir.post("/traffic/wait", &body("Z", None)));
    assert_ne!(anew.token, token);
}

/// A token in `wait` resumes its place, also after a restart, and takes no second one.
pub(crate) fn token_in_wait_resumes() {
    let config = zone("Z", 60, "mode = \"hold\"");
    let mut weir = Setup::new(&config).start();
    let mut tokens = Vec::new();
    for rank in 1..=5 {
        let answer = Answer::of(&weir.post("/traffic/wait", &body("Z", None)));
        let waiting = answer.waiting();
        assert_eq!(
            (waiting.rank, waiting.eta_seconds),
            (rank, None),
            "while the zone is held, the wait is unknown"
        );
        assert_eq!(waiting.reason.as_deref(), Some("held"));
        tokens.push(answer.token);
    }
    for round in 0..2 {
        for (token, rank) in tokens.iter().zip(1..) {
            for path in ["/traffic/wait", "/traffic/entry"] {
                let answer = Answer::of(&weir.post(path, &body("Z", Some(token))));
                assert_eq!(answer.waiting().rank, rank, "{path}, round {round}");
            }
        }
        let null = Answer::of(&weir.post("/traffic/wait", r#"{"zoneId":"Z","token":null}"#));
        assert_eq!(null.waiting().rank, 6 + round, "no token, a new place");
        weir.kill_and_restart();
    }
}

/// A repeated entry returns the same pass, on any connection, before and after reload and restart, and uses one slot.
pub(crate) fn entry_is_idempotent() {
    let weir = Setup::zone(3, "").start();
    let joined = Answer::of(&weir.post("/traffic/wait", &body("Z", None)));
    let pass = joined.pass().to_owned();
    for token in [&joined.token; 5] {
        let again = Answer::of(&weir.post("/traffic/entry", &body("Z", Some(token))));
        assert_eq!(again.pass(), pass);
        let resumed = Answer::of(&weir.post("/traffic/wait", &body("Z", Some(&again.token))));
        assert_eq!(resumed.pass(), pass);
    }
    weir.signal(Signal::HUP);
    let restarted = weir.stop().start();
    let again = Answer::of(&restarted.post("/traffic/entry", &body("Z", Some(&joined.token))));
    assert_eq!(again.pass(), pass);
    let others: Vec<_> =
        (0..3).map(|_| Answer::of(&restarted.post("/traffic/wait", &body("Z", None))).can_enter).collect();
    assert_eq!(others, [true, true, false], "one slot used, two left, and no more in {DEADLINE:?}");
}

/// A `wait` whose reply was lost is sent again with its key: while its user waits, after the entry, at once by several devices, after
/// the user left, and in another zone.
pub(crate) fn wait_is_idempotent_with_a_key() {
    let config = zone("Z", 2, "") + &zone("OTHER", 2, "");
    let weir = Setup::new(&config).start();
    let key = |number: u32| format!("0123456789abcdef-{number:06}");
    let wait = |zone: &str, key: &str| {
        let body = format!(r#"{{"zoneId":"{zone}","idempotencyKey":"{key}"}}"#);
        weir.post("/traffic/wait", &body)
    };
    let first = Answer::of(&wait("Z", &key(1)));
    let again = Answer::of(&wait("Z", &key(1)));
    assert_eq!(jti(again.pass()), jti(first.pass()), "one slot is used");
    assert!(Answer::of(&wait("Z", &key(2))).can_enter, "the second slot is there");
    assert_eq!(Answer::of(&wait("Z", &key(3))).waiting().rank, 1);
    let (weir_ref, fourth) = (&weir, key(4));
    let ranks: BTreeSet<u64> = thread::scope(|scope| {
        let body = format!(r#"{{"zoneId":"Z","idempotencyKey":"{fourth}"}}"#);
        let calls: Vec<_> = (0..8)
            .map(|_| {
                let body = body.clone();
                scope.spawn(move || Answer::of(&weir_ref.post("/traffic/wait", &body)).waiting().rank)
            })
            .collect();
        calls.into_iter().map(|call| call.join().expect("an answer")).collect()
    });
    assert_eq!(ranks, BTreeSet::from([2]), "eight calls, one place");
    assert_eq!(Answer::of(&weir.post("/traffic/wait", &body("Z", None))).waiting().rank, 3);
    assert!(Answer::of(&wait("OTHER", &key(4))).can_enter, "another zone has another line");

    // A token counts, and the key beside it does not.
    let token = Answer::of(&wait("Z", &key(3))).token;
    let both = format!(r#"{{"zoneId":"Z","token":"{token}","idempotencyKey":"{}"}}"#, key(9));
    assert_eq!(Answer::of(&weir.post("/traffic/wait", &both)).waiting().rank, 1);

    // Whoever left has no place, by this key either. Another key takes a new one.
    assert_eq!(weir.post("/traffic/leave", &body("Z", Some(&token))).status, 204);
    let gone = wait("Z", &key(3));
    assert_eq!((gone.status, gone.problem().as_str()), (410, "gone"));
    assert_eq!(Answer::of(&wait("Z", &key(5))).waiting().rank, 3);

    for wrong in ["short", "0123456789abcdef 000001", &"a".repeat(65)] {
        let refused = wait("Z", wrong);
        assert_eq!((refused.status, refused.problem().as_str()), (400, "wrong_type"), "{wrong}");
    }
}

/// Whoever joined has the place by the key also where nobody joins any more: the line is full, or the zone is closed. It counts as polling.
pub(crate) fn a_key_finds_its_place_where_nobody_joins() {
    let weir = Setup::new(&zone("Z", 2, "mode = \"hold\"\nmax_waiting = 1\nidle_timeout_s = 10")).start();
    let wait = |key: u32| {
        weir.post(
            "/traffic/wait",
            &format!(r#"{{"zoneId":"Z","idempotencyKey":"0123456789abcdef-{key:06}"}}"#),
        )
    };
    assert_eq!(Answer::of(&wait(1)).waiting().rank, 1);
    for (mode, refused) in [("hold", "zone_full"), ("closed", "zone_closed")] {
        let mode = format!(r#"{{"policy":{{"mode":"{mode}"}}}}"#);
        let changed = weir.admin_ask("PATCH", "/admin/v1/zones/Z", &[("If-Match", "*")], Some(&mode));
        assert_eq!(changed.status, 200);
        let began = now();
        // Longer than the idle time.
        while now() - began < Duration::from_secs(14) {
            let other = wait(2);
            assert_eq!((other.status, other.problem().as_str()), (503, refused));
            let period_ms = Answer::of(&wait(1)).waiting().polling_period;
            obey_polling_period(now() + Duration::from_millis(period_ms));
        }
    }
}

/// A restored journal gives passes out twice, and nothing shows it. A data directory that is restored without its journal begins
/// a new line, whose passes have other names, under the same keys.
pub(crate) fn a_backup_is_safe_without_its_journal() {
    let files = |dir: &Path| -> Vec<(PathBuf, Vec<u8>)> {
        let files = fs::read_dir(dir).expect("a directory").map(|file| file.expect("a file").path());
        files.map(|file| (file.clone(), fs::read(file).expect("a file"))).collect()
    };
    let restore = |setup: &Setup, backup: &[(PathBuf, Vec<u8>)]| {
        for (file, _) in files(&setup.data()) {
            fs::remove_file(file).expect("our own file");
        }
        for (file, bytes) in backup {
            fs::write(file, bytes).expect("our own directory");
            fs::set_permissions(file, Permissions::from_mode(0o600)).expect("our own file");
        }
    };
    let join_in = |weir: &Weir, zone: &str| Answer::of(&weir.post("/traffic/wait", &body(zone, None)));
    let join = |weir: &Weir| join_in(weir, "Z");
    let run = |weir: &Weir, args: &[&str]| {
        let (code, said, complaint) = admin::weir(args, Some(weir));
        assert_eq!((code, complaint.as_str()), (Some(0), ""), "{args:?}");
        said
    };
    // One zone is of the file, and one an operator makes.
    let weir = Setup::zone(5, "").start();
    run(&weir, &["zones", "create", "MADE", "admit_per_minute=5"]);
    let setup = weir.stop();
    let mut backup = files(&setup.data());
    let weir = setup.start();
    let entered = [(); 5].map(|()| join(&weir));
    let names: BTreeSet<_> = entered.iter().map(|answer| jti(answer.pass())).collect();
    assert!([(); 5].map(|()| join_in(&weir, "MADE")).iter().all(|answer| answer.can_enter));

    let setup = weir.stop();
    restore(&setup, &backup);
    let weir = setup.start();
    assert_eq!([(); 5].map(|()| join(&weir)).iter().filter(|a| names.contains(&jti(a.pass()))).count(), 5);
    assert!(!weir.log().contains("WARN"), "{}", weir.log());

    let setup = weir.stop();
    backup.retain(|(file, _)| file.file_stem().is_some_and(|name| name != "weir"));
    restore(&setup, &backup);
    // Where nobody reaches it, each zone is held, and the modes are noted.
    let weir = setup.start();
    let listed = run(&weir, &["zones", "list"]);
    let modes: Vec<_> = listed.lines().skip(1).map(|line| line.split('\t').collect::<Vec<_>>()).collect();
    assert_eq!(
        modes.iter().map(|of| of[..2].to_vec()).collect::<Vec<_>>(),
        [["MADE", "auto"], ["Z", "auto"]]
    );
    for of in &modes {
        run(&weir, &["zones", "set", of[0], "mode=hold"]);
    }
    let weir = weir.stop().start();
    let [waiting, in_made] = ["Z", "MADE"].map(|zone| join_in(&weir, zone));
    for answer in [&waiting, &in_made] {
        let reason = answer.waiting().reason.as_deref();
        assert_eq!(reason, Some("held"), "nobody enters on top of those who did");
    }
    let before = weir.post("/traffic/entry", &body("Z", Some(&entered[0].token)));
    assert_eq!(before.problem(), "gone", "apps take a new place");
    JwkSet::of(&weir).verify(entered[0].pass());
    for of in &modes {
        run(&weir, &["zones", "set", of[0], &format!("mode={}", of[1])]);
    }
    let now = eventually("the line moves", || {
        let answer = Answer::of(&weir.post("/traffic/entry", &body("Z", Some(&waiting.token))));
        answer.can_enter.then_some(answer)
    });
    assert!(!names.contains(&jti(now.pass())));
}
