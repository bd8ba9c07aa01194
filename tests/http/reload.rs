//! SIGHUP reads the configuration file again.

use rustix::process::Signal;

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

/// Waits until a zone is served, or is not.
fn served(weir: &Weir, zone: &str, status: u16) {
    let call = body(zone, Some("no token of ours"));
    let what = format!("{zone} answers {status}");
    eventually(&what, || (weir.post("/traffic/entry", &call).status == status).then_some(()));
}

/// Zones come, go, come back and change; nobody loses the place.
pub(crate) fn zones_come_go_and_change() {
    let (held, auto) = (zone("A", 60, "mode = \"hold\""), zone("A", 60, ""));
    let b = zone("B", 60, "mode = \"hold\"");
    let weir = Setup::new(&format!("{held}{b}")).start();
    let in_a = [join(&weir, "A"), join(&weir, "A")];
    let in_b = [join(&weir, "B"), join(&weir, "B")];

    reload(&weir, &format!("{held}{}", zone("C", 60, "")));
    served(&weir, "C", 401);
    served(&weir, "B", 404);
    assert!(join(&weir, "C").can_enter);

    reload(&weir, &format!("{auto}{b}"));
    served(&weir, "B", 401);
    let back = Answer::of(&weir.post("/traffic/entry", &body("B", Some(&in_b[1].token))));
    assert_eq!(back.waiting().rank, 2, "the place outlived the zone's absence");
    for answer in in_a {
        eventually("the line of A moves now", || {
            Answer::of(&weir.post("/traffic/entry", &body("A", Some(&answer.token)))).pass
        });
    }
    eventually("the series of a zone go with it", || {
        (!weir.admin_get("/metrics").text().contains("zone=\"C\"")).then_some(())
    });
}

/// A file with a fault is refused with its line and the reason, and what was in force stays.
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
