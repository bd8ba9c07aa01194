//! A store in Redis whose past changes.

use crate::{
    app::body,
    clock::eventually,
    redis::Standalone,
    weir::{Setup, Weir, zone},
};

fn join(weir: &Weir) -> u16 {
    weir.post("/traffic/wait", &body("Z", None)).status
}

/// A backup of an earlier life of Redis is restored. Its zones are in force by the rule, and the log says loudly what went back.
pub(crate) fn a_register_that_goes_back_is_reported() {
    const REGISTER: &str = "weir:v1:{zones}";
    const LIFE: u64 = 1 << 28;
    let redis = Standalone::start();
    let setup = Setup::new(&format!("store = \"{}\"\n{}", redis.url(), zone("Z", 120, "mode = \"hold\"")));
    let weir = setup.start();
    assert_eq!(join(&weir), 200);
    let rev: u64 = redis.command(&["HGET", REGISTER, "#rev"]).text().parse().expect("a revision");
    let earlier = ((rev / LIFE - 5) * LIFE + 7).to_string();
    let (z, old) = ("1 30 10 3000 60 300 0", "1 600 10 3000 60 300 0");
    // In one step, so that no server finds it missing in between.
    let restore = "redis.call('DEL', KEYS[1]) return redis.call('HSET', KEYS[1], unpack(ARGV))";
    let fields = ["#rev", &earlier, "Z", z, "OLD", old];
    let restored = redis.command(&[&["EVAL", restore, "1", REGISTER], &fields[..]].concat());
    assert_eq!(restored.int(), 3);
    let told = "went back to one that began earlier";
    eventually("the log says it", || weir.log().contains(told).then_some(()));
    let log = weir.log();
    let line = log.lines().find(|line| line.contains(told)).expect("it is there");
    assert!(line.contains("ERROR"), "{line}");
    for wanted in ["Z has admit_per_minute 120 -> 30", "OLD is in it again", "weir zones apply FILE"] {
        assert!(line.contains(wanted), "{wanted} is not in {line}");
    }
    eventually("it is in force", || {
        let zone = weir.admin_ask("GET", "/admin/v1/zones/Z", &[], None).json();
        (zone["policy"]["admit_per_minute"] == 30).then_some(())
    });
    assert_eq!(weir.log().matches(told).count(), 1);
}
