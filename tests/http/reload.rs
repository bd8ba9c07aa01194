//! SIGHUP reads the configuration file again.

use std::{fs, io::Write as _};

use rustix::{
    fs::{CWD, Mode, OFlags, mkfifoat, open},
    process::{Pid, Signal, kill_process},
};

use crate::{
    app::{Answer, body},
    clock::eventually,
    weir::{Setup, Weir, zone},
};

fn reload(weir: &Weir, config: &str) {
    weir.setup().write_config(config);
    weir.signal(Signal::HUP);
}

fn join(weir: &Weir, zone: &str) -> Answer {
    Answer::of(&weir.post("/traffic/wait", &body(zone, None)))
}

/// Waits until a call for the zone gets this status.
fn served(weir: &Weir, zone: &str, status: u16) {
    let call = body(zone, Some("no token of ours"));
    let what = format!("{zone} answers {status}");
    eventually(&what, || (weir.post("/traffic/entry", &call).status == status).then_some(()));
}

/// Zones are added, removed, restored and changed, and nobody loses a place.
pub(crate) fn zones_come_go_and_change() {
    let (held, auto) = (zone("A", 60, "mode = \"hold\""), zone("A", 60, ""));
    let b = zone("B", 60, "mode = \"hold\"");
    let weir = Setup::new(&format!("{held}{b}")).start();
    let in_a = [join(&weir, "A"), join(&weir, "A")];
    let in_b = [join(&weir, "B"), join(&weir, "B")];

    reload(&weir, &format!("{held}{}", zone("C", 60, "")));
    served(&weir, "C", 401);
    served(&weir, "B", 404);
    let line = eventually("the log says whose line ends", || {
        weir.log().lines().find(|line| line.contains("has this zone no more")).map(str::to_owned)
    });
    assert!(line.contains("WARN") && line.contains("zone=B") && line.contains("waiting=2"), "{line}");
    assert!(join(&weir, "C").can_enter);

    reload(&weir, &format!("{auto}{b}"));
    served(&weir, "B", 401);
    let back = Answer::of(&weir.post("/traffic/entry", &body("B", Some(&in_b[1].token))));
    assert_eq!(back.waiting().rank, 2, "the place was kept while the zone was absent");
    for answer in in_a {
        eventually("the line of A moves now", || {
            Answer::of(&weir.post("/traffic/entry", &body("A", Some(&answer.token)))).pass
        });
    }
    eventually("the series of a zone go with it", || {
        (!weir.admin_get("/metrics").text().contains("zone=\"C\"")).then_some(())
    });
}

/// A server that is asked to read its file again while it starts does so once it serves. A pipe in place of the file shows when it reads.
pub(crate) fn a_reload_during_the_start_is_kept() {
    let setup = Setup::new("").shell("echo $$ > pid.new; mv pid.new pid;");
    let (pipe, pid) = (setup.config_path(), setup.dir().join("pid"));
    mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR).expect("a pipe");
    // It can be opened once somebody reads it.
    let answer_reader = || {
        let opened = eventually("the server reads its file", || {
            open(&pipe, OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty()).ok()
        });
        move |config: &str| fs::File::from(opened).write_all(config.as_bytes()).expect("it reads")
    };
    std::thread::scope(|scope| {
        let starting = scope.spawn(move || setup.start());
        let write = answer_reader();
        let pid = fs::read_to_string(pid).expect("the server's").trim().parse().expect("a number");
        kill_process(Pid::from_raw(pid).expect("a process"), Signal::HUP).expect("our own child");
        write(&zone("A", 60, ""));
        let weir = starting.join().expect("it starts");
        answer_reader()(&(zone("A", 60, "") + &zone("B", 60, "")));
        served(&weir, "B", 401);
    });
}

/// A file with a fault is refused with its line and the reason, and the previous configuration stays in force.
pub(crate) fn bad_file_changes_nothing() {
    let good = zone("A", 60, "mode = \"hold\"");
    let weir = Setup::new(&good).start();
    let first = join(&weir, "A");
    let faults = [
        (format!("{good}[[zone]\n"), "weir.toml:5"),
        (format!("{good}\n[[zone]]\nid = \"B\"\nadmit_per_minute = 0\n"), "weir.toml:8"),
        (format!("{good}{good}"), "weir.toml:5"),
        (format!("{good}colour = 3\n"), "weir.toml:5"),
    ];
    for (config, place) in faults {
        let before = weir.log().len();
        reload(&weir, &config);
        eventually(&format!("the log names {place}"), || weir.log()[before..].contains(place).then_some(()));
        let answer = Answer::of(&weir.post("/traffic/entry", &body("A", Some(&first.token))));
        assert_eq!(answer.waiting().rank, 1);
        assert_eq!(weir.post("/traffic/wait", &body("B", None)).status, 404);
    }
    reload(&weir, &zone("B", 60, ""));
    served(&weir, "B", 401);
}

/// Operators' changes are stored beside the file and override it until the file's entry of the zone changes. A stored
/// file that cannot be read ends the start with its name.
pub(crate) fn what_operators_changed_wins_until_the_file_is_edited() {
    let of_file = zone("A", 60, "mode = \"hold\"") + &zone("B", 60, "mode = \"hold\"");
    let setup = Setup::new(&of_file);
    let policy = |mode: &str| {
        serde_json::json!({
            "mode": mode, "admit_per_minute": 60, "sub_windows": 10, "polling_period_ms": 3_000,
            "idle_timeout_s": 60, "pass_ttl_s": 300, "on_store_failure": "closed",
            "waits_per_minute_per_client": 0, "entries_per_minute_per_client": 0,
        })
    };
    let defined = |mode: &str| serde_json::json!({ "policy": policy(mode), "notice": {} });
    let kept = serde_json::json!({ "version": 1, "zones": [
        { "zone": "A", "file": defined("hold"), "now": defined("closed") },
        { "zone": "B", "file": defined("hold"), "now": null },
        { "zone": "NEW", "file": null, "now": defined("hold") },
    ]});
    fs::create_dir_all(setup.data()).expect("made");
    let path = setup.data().join("zones.json");
    fs::write(&path, "{").expect("written");
    let ended = setup.fail();
    assert_eq!(ended.status.code(), Some(74), "{}", ended.log);
    assert!(ended.log.contains("zones.json: EOF"), "{}", ended.log);
    assert!(!ended.log.contains("can't be kept"), "nobody makes a change: {}", ended.log);

    fs::write(&path, kept.to_string()).expect("written");
    let mut weir = setup.start();
    let refused = |weir: &Weir, zone: &str| weir.post("/traffic/wait", &body(zone, None)).status;
    for _ in 0..2 {
        assert_eq!(refused(&weir, "A"), 503, "closed");
        assert_eq!(refused(&weir, "B"), 404);
        assert_eq!(refused(&weir, "NEW"), 200);
        reload(&weir, &of_file);
        eventually("it was read again", || weir.log().contains("read again").then_some(()));
        weir.kill_and_restart();
    }
    reload(&weir, &of_file.replace("id = \"A\"\n", "id = \"A\"\nsub_windows = 6\n"));
    eventually("the file counts for A", || weir.log().contains("the file counts").then_some(()));
    weir.logs("the configuration file ends what an operator set up: mode closed");
    assert_eq!(refused(&weir, "A"), 200);
    assert_eq!(refused(&weir, "B"), 404, "its entry in the file did not change");
    weir.kill_and_restart();
    reload(&weir, &of_file);
    eventually("it was read again", || weir.log().contains("read again").then_some(()));
    assert_eq!(refused(&weir, "A"), 200, "a dropped change does not come back");
    // A start says as much as a signal.
    let setup = weir.stop();
    fs::write(setup.data().join("zones.json"), kept.to_string()).expect("written");
    setup.write_config(&of_file.replace("id = \"A\"\n", "id = \"A\"\nsub_windows = 6\n"));
    let weir = setup.start();
    weir.logs("the configuration file was edited after an operator changed the zone: the file counts");
    weir.logs("the configuration file ends what an operator set up: mode closed");
}
